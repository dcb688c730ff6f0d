"""Which messages match a query? The index proposes them, or they are read one by one; the transcript decides."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from transcript_store.display import title_in
from transcript_store.errors import StorageError, TranscriptStoreError
from transcript_store.messages import left_of, role_of
from transcript_store.search._answers import Hit, Sort
from transcript_store.search._catalogue import IndexSource, raise_if_of_the_process
from transcript_store.search._database import Database
from transcript_store.search._indexing import EARLIER, LEFT, MESSAGE, said_by, short
from transcript_store.search._query import (
    EVERY,
    Match,
    Query,
    QueryPlan,
    Range,
    TooManyWordsError,
    as_one,
    conditions,
    plan_for,
    role_searched,
)
from transcript_store.search._tokens import COLUMNS, fold, texts_of
from transcript_store.transcripts import FilePosition, TranscriptFile

if TYPE_CHECKING:
    from transcript_store.conversation import ConversationStore, Record


_RANKED = 2000
"""Ranking reads every hit, so it is limited to the newest documents of the index. More are not counted either."""
_OPEN_AT_ONCE = 64
_TRIED, _PASSED_WHILE_ONE_IS_BEGUN = 4, 250
"""With many ranges, this many are counted first. Measured: a range takes 45 µs, a foreign message with the words 0.19."""

Redact = Callable[[dict[str, Any]], dict[str, Any]]


class Finder:
    """Searches the index of a library. With ``redact`` only redacted messages are matched: removed text is never found."""

    def __init__(self, database: Database, source: IndexSource, redact: Redact | None) -> None:
        self._connection = database.connection
        self._has_words = database.has_words
        self._source = source
        self._redact = redact
        self.refused: list[StorageError] = []
        """The error of each conversation that the system refused to read."""
        self._changed: set[bytes] = set()
        """The folders of conversations whose bytes changed where the index has read a message."""

    def found(
        self, query: Query, match_of: Callable[[Query], Match], limit: int, sort: Sort | None, *, is_read: bool
    ) -> tuple[tuple[Hit, ...], int | None]:
        """The hits, live messages first, and their number if the index knows it."""
        if not (is_read or query.groups or query.without or query.filters or query.after or query.before):
            return (), 0  # an empty query
        try:
            plan = None if is_read or not self._has_words else plan_for(self._connection, query)
        except TooManyWordsError:
            plan = None
        if plan is None:
            return self._read_all(query, match_of(query), limit), None
        most = max(_RANKED, limit) + 1
        ranges = self._to_ask(plan, most)
        total = self._count(plan, ranges, most) if plan.is_exact else None
        # If the index decides, the number is known before the first is read.
        is_ranked = bool(plan.match) and (sort == "rank" or (sort is None and total is not None and total <= _RANKED))
        hits: dict[int, Hit] = {}
        with self._opened() as opened:
            for columns, kind in self._tiers(query, is_ranked=is_ranked):
                asked = replace(query, columns=columns)
                one = (plan if columns == query.columns else plan_for(self._connection, asked)).of_kind(kind)
                rows = self._ranked(one, total) if is_ranked else self._newest(one, self._to_ask(one, most))
                match = _both(match_of(asked), match_of(query)) if query.without else match_of(asked)
                found = ((row[0], opened.hit(_row_of(row[1:]), match)) for row in rows if row[0] not in hits)
                in_time = ((n, hit) for n, hit in found if hit is not None and _is_in_time(query, hit.at))
                tier = dict(islice(in_time, limit - len(hits)))
                hits |= (
                    tier
                    if is_ranked
                    else {n: tier[n] for n in sorted(tier, key=lambda n: _when(tier[n]), reverse=True)}
                )
                if len(hits) == limit:
                    break
        return tuple(hits.values()), total

    def _tiers(self, query: Query, *, is_ranked: bool) -> list[tuple[tuple[str, ...], int | None]]:
        """The queries in order, each with its columns, and the kind of its messages (None if there is only one)."""
        has_others = self._connection.execute("SELECT EXISTS (SELECT 1 FROM document WHERE kind > 0)").fetchone()[0]
        first = MESSAGE if has_others else None
        columns = [query.columns]
        if is_ranked and not query.is_limited:
            columns = [query.columns[:1], query.columns[:-1], query.columns]
        others = [(query.columns, kind) for kind in (LEFT, EARLIER)] if has_others else []
        return [*((each, first) for each in columns), *others]

    def _to_ask(self, plan: QueryPlan, most: int) -> list[Range]:
        """The ranges to search for that many messages: each range of a plan, or one that covers them all.

        To start a range takes as long as to skip some hundred messages. The last ranges show how many messages have the words.
        """
        ranges = plan.ranges
        if not plan.match or len(ranges) <= _TRIED:
            return ranges
        tried, whole = ranges[:_TRIED], as_one(ranges)
        found = max(1, self._count(plan, tried, most))
        in_tried, in_ranges = (max(1, sum(one.last - one.first + 1 for one in some)) for some in (tried, ranges))
        begun = min(len(ranges), _TRIED * most / found)
        passed = (whole.last - whole.first) * min(found / in_tried, most / in_ranges)
        return ranges if begun * _PASSED_WHILE_ONE_IS_BEGUN < passed else [whole]

    def _newest(self, plan: QueryPlan, ranges: list[Range]) -> Iterator[Any]:
        source, n = (
            ("words CROSS JOIN document d ON d.n = words.rowid", "words.rowid") if plan.match else ("document d", "d.n")
        )
        where = f"{'words MATCH ? AND' if plan.match else ''} {n} BETWEEN ? AND ? AND {plan.where}"
        statement = f"SELECT {_HIT} FROM {source} {_OF_ITS} WHERE {where} ORDER BY {n} DESC"
        return chain.from_iterable(self._connection.execute(statement, plan.of(one)) for one in ranges)

    def _ranked(self, plan: QueryPlan, total: int | None) -> Iterator[Any]:
        if not plan.ranges:
            return
        whole = as_one(plan.ranges)
        if total is None or total > _RANKED:
            bound = (
                f"SELECT words.rowid FROM {self._proposed(plan)} ORDER BY words.rowid DESC LIMIT 1 OFFSET {_RANKED - 1}"
            )
            for (least,) in self._connection.execute(bound, plan.of(whole)).fetchall():
                whole = whole._replace(first=least)
        # Few of them are shown, so only their positions are looked up.
        best = f"SELECT words.rowid FROM {self._proposed(plan)} ORDER BY bm25(words), words.rowid DESC"
        for n in self._connection.execute(best, plan.of(whole)):
            yield from self._connection.execute(f"SELECT {_HIT} FROM document d {_OF_ITS} WHERE d.n = ?", n)

    def _count(self, plan: QueryPlan, ranges: list[Range], most: int = _RANKED + 1) -> int:
        count = f"SELECT count(*) FROM (SELECT 1 FROM {self._proposed(plan)} LIMIT ?)"
        found = 0
        for one in ranges:
            found += self._connection.execute(count, [*plan.of(one), most - found]).fetchone()[0]
            if found == most:
                break
        return found

    def _proposed(self, plan: QueryPlan) -> str:
        """The messages of a plan with words, as SQL."""
        if plan.where == EVERY and self._leads_everywhere():
            return f"words WHERE {_OF_RANGE}"
        return f"words CROSS JOIN document d ON d.n = words.rowid {_OF_ITS} WHERE {_OF_RANGE} AND {plan.where}"

    def _leads_everywhere(self) -> bool:
        """True if no message of the index was forgotten: then a count of its words needs no join."""
        asked = "SELECT (SELECT coalesce(max(n), 0) FROM document) = (SELECT value FROM about WHERE name = 'messages')"
        return bool(self._connection.execute(asked).fetchone()[0])

    def damaged(self, query: Query) -> tuple[str, ...]:
        """The directories of damaged conversations that match its filters: damage met by the index, or by a hit."""
        where, values = conditions(replace(query, after=None, before=None))
        statement = (
            f"SELECT c.folder FROM conversation c INDEXED BY by_damage WHERE c.damaged = 1 AND {where} ORDER BY c.n"
        )
        folders = [folder for (folder,) in self._connection.execute(statement, values)]
        return tuple(
            self._source.path(os.fsdecode(folder)) for folder in dict.fromkeys((*folders, *sorted(self._changed)))
        )

    def elsewhere(self, query: Query) -> dict[str, int]:
        """The other columns with hits, for a query without any."""
        found = {}
        if query.groups and self._has_words:
            for name in COLUMNS:
                if name not in query.columns:
                    try:
                        plan = plan_for(self._connection, replace(query, columns=(name,)))
                    except TooManyWordsError:
                        break
                    found[name] = self._count(plan, self._to_ask(plan, _RANKED + 1))
        return {name: count for name, count in found.items() if count}

    def _read_all(self, query: Query, match: Match, limit: int) -> tuple[Hit, ...]:
        """The hits among all messages that match the filters, read conversation by conversation, latest change first."""
        found: dict[int, list[Hit]] = {MESSAGE: [], LEFT: [], EARLIER: []}
        where, values = conditions(replace(query, after=None, before=None))
        statement = f"SELECT c.folder, c.title FROM conversation c WHERE {where} ORDER BY c.updated_at DESC, c.n DESC"
        for folder, title in self._connection.execute(statement, values).fetchall():
            with self._opened() as opened:
                for hit in reversed(opened.last_hits_in(folder, title, match, query, limit)):
                    found[_KINDS[hit.beside]].append(hit)
            # Messages of earlier generations and of abandoned branches come last, so they never end the search.
            if len(found[MESSAGE]) >= limit:
                break
        return tuple(hit for its in found.values() for hit in newest_first(its[:limit]))[:limit]

    def _opened(self) -> _Opened:
        return _Opened(self._source, self._redact, self.refused, self._changed)


class _Proposal(NamedTuple):
    """A message that the index proposes."""

    folder: bytes
    title: str
    seq: int
    offset: int
    head: int
    kind: int
    generation: int | None
    """The earlier generation; None in the live one."""
    live: int
    """The number of the live generation when it was indexed."""
    read_to: FilePosition
    """The position up to which its transcript is indexed."""


def _row_of(selected: tuple[Any, ...]) -> _Proposal:
    folder, title, seq, offset, head, kind, generation, live, *read_to = selected
    return _Proposal(folder, title, seq, offset, head, kind, generation, live, FilePosition(*read_to))


_OF_RANGE = "words MATCH ? AND words.rowid BETWEEN ? AND ?"
_HIT = (
    "d.n, c.folder, c.title, d.seq, d.offset, d.head, d.kind, d.generation, c.text_generation, "
    "c.through_seq, c.through_offset, c.head"
)
_KINDS: dict[str | None, int] = {None: MESSAGE, "left-branch": LEFT, "earlier-generation": EARLIER}
_OF_ITS = "CROSS JOIN conversation c ON c.life = d.life"


class _Opened:
    """The transcripts that hits are read from, each opened once; use it in a ``with`` statement.

    Refusals of the system and changed conversations are noted.
    """

    def __init__(
        self, source: IndexSource, redact: Redact | None, refused: list[StorageError], changed: set[bytes]
    ) -> None:
        self._source = source
        self._redact = redact
        self._refused = refused
        self._changed = changed
        self._stack = ExitStack()
        self._transcripts: dict[bytes, TranscriptFile | None] = {}
        self._taken_back: dict[bytes, Callable[[int], bool]] = {}
        self._last_archived: tuple[tuple[bytes, int | None], Sequence[Record]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def transcript(self, folder: bytes) -> TranscriptFile | None:
        """The transcript in a folder; None if it cannot be read.

        Raises:
            StorageError: this process cannot open more files, or has no memory.
        """
        if folder not in self._transcripts:
            if len(self._transcripts) >= _OPEN_AT_ONCE:
                self._let_go()
            try:
                found = self._open(folder)
            except StorageError:
                self._let_go()  # the files kept open for the next hits may be too many
                found = self._open(folder)
            self._transcripts[folder] = found
        return self._transcripts[folder]

    def _let_go(self) -> None:
        self._transcripts.clear()
        self._taken_back.clear()
        self._stack.close()

    def _open(self, folder: bytes) -> TranscriptFile | None:
        try:
            return self._stack.enter_context(self._source.transcript(os.fsdecode(folder)))
        except TranscriptStoreError as error:
            if isinstance(error, StorageError):
                self._note(error)
            return None  # it was refused or deleted, or is damaged from its first line

    def _note(self, error: StorageError) -> None:
        raise_if_of_the_process(error)
        self._refused.append(error)

    def last_hits_in(self, folder: bytes, title: str, match: Match, query: Query, limit: int) -> Sequence[Hit]:
        """The last hits of a conversation, reading every record; none if it cannot be read to its end."""
        transcript = self.transcript(folder)
        if transcript is None:
            return ()
        earlier = self._earlier_records(folder) if transcript.generation else ()
        live = ((placed.record, None) for placed, _ in transcript.records(transcript.begin))
        found = (
            self._hit_of(folder, title, record, match, generation)
            for record, generation in chain(earlier, live)
            if not record.is_retracted and passes(query, record)
        )
        last: dict[str | None, deque[Hit]] = defaultdict(lambda: deque(maxlen=limit))
        try:
            for hit in found:
                if hit is not None:
                    last[hit.beside].append(hit)
        except StorageError as error:
            self._note(error)
            return ()
        return [hit for its in last.values() for hit in its]

    def _earlier_records(self, folder: bytes) -> Iterator[tuple[Record, int | None]]:
        """The records that compactions removed, each with the number of its generation."""
        try:
            with self._source.store(os.fsdecode(folder)) as conversation:
                yield from earlier_records(conversation)
        except StorageError:
            raise
        except TranscriptStoreError:
            return  # damaged: it has no hits

    def hit(self, row: _Proposal, match: Match) -> Hit | None:
        """The hit that the index proposes; None if the record has changed, is retracted, does not match, or cannot be read."""
        try:
            return self._hit(row, match)
        except StorageError as error:
            self._note(error)
            return None

    def _hit(self, row: _Proposal, match: Match) -> Hit | None:
        transcript = self.transcript(row.folder)
        if row.generation is not None:
            record = None if transcript is None or transcript.generation != row.live else self._archived(row)
            return None if record is None else self._hit_of(row.folder, row.title, record, match, row.generation)
        placed = None if transcript is None else transcript.record_at(row.offset)
        if placed is None or (placed.record.seq, short(placed.head.encode())) != (row.seq, row.head):
            # If the transcript no longer has the indexed position, it was replaced, and will be indexed again.
            if transcript is not None and transcript.holds(row.read_to):
                self._changed.add(row.folder)
            return None
        # Retracted after the index was updated: the record itself does not show it.
        if self._taken_back_in(row.folder, row.read_to)(row.seq):
            return None
        return self._hit_of(row.folder, row.title, placed.record, match, None)

    def _archived(self, row: _Proposal) -> Record | None:
        """The record of an earlier generation, verified; None if that was deleted, or is damaged."""
        key = row.folder, row.generation
        if self._last_archived is None or self._last_archived[0] != key:
            records: Sequence[Record] = ()
            try:
                with self._source.store(os.fsdecode(row.folder)) as conversation:
                    conversation.load(verify="tail")
                    records = conversation.get_records(generation=row.generation)
            except StorageError:
                raise
            except TranscriptStoreError:
                pass
            self._last_archived = key, records
        found = self._last_archived[1]
        return found[row.seq - 1] if row.seq <= len(found) else None

    def _taken_back_in(self, folder: bytes, read_to: FilePosition) -> Callable[[int], bool]:
        """The messages retracted after the indexed position, which the index does not know yet."""
        if folder not in self._taken_back:
            transcript = self.transcript(folder)
            assert transcript is not None
            self._taken_back[folder] = transcript.taken_back(read_to if transcript.holds(read_to) else transcript.begin)
        return self._taken_back[folder]

    def _hit_of(self, folder: bytes, title: str, record: Record, match: Match, generation: int | None) -> Hit | None:
        """The hit for a record, if its message matches; with a number, in an earlier generation."""
        transcript = self.transcript(folder)
        hit = hit_of(record, match, self._redact, title, is_earlier=generation is not None)
        if hit is None or transcript is None:
            return None
        return replace(
            hit,
            conversation=transcript.conversation,
            directory=self._directory(folder),
            generation=transcript.generation if generation is None else generation,
        )

    def _directory(self, folder: bytes) -> str:
        return self._source.path(os.fsdecode(folder))


def _both(match: Match, other: Match) -> Match:
    """The match of the first, if the second matches too: refused terms may not occur anywhere in the message."""
    return lambda texts: match(texts) if other(texts) is not None else None


def earlier_records(conversation: ConversationStore) -> Iterator[tuple[Record, int | None]]:
    """The records that compactions removed or carried over, each with the number of its generation."""
    from transcript_store.import_notes import earlier_generations

    conversation.load(verify="tail")
    earlier = earlier_generations(conversation)
    for number in earlier:
        later = number + 1 if number + 1 in earlier else None
        known = {said_by(record) for record in conversation.iter_records(generation=later)}
        for record in conversation.iter_records(generation=number):
            if said_by(record) not in known:
                yield record, number


def hit_of(record: Record, match: Match, redact: Redact | None, title: str | None, *, is_earlier: bool) -> Hit | None:
    """The hit for a record, if its message or its abandoned message matches. It has no conversation yet."""
    left = left_of(record.extra) if record.message is None else None
    message, extra = left if left is not None else (record.message, record.extra)
    if message is None:
        return None
    if redact is not None:
        # Before the match: a query must not find, and so confirm, a secret that is not shown.
        message, extra = redact(message), redact({"extra": extra})["extra"]
        title = redact({"title": title or ""})["title"]
    if (found := match(texts_of(message, extra))) is None:
        return None
    return Hit(
        conversation="",
        directory="",
        title=title or None,
        generation=0,
        beside="earlier-generation" if is_earlier else None if left is None else "left-branch",
        seq=record.seq,
        at=record.at,
        role=role_of(message),
        where=found.column,
        excerpt=found.text,
        highlights=found.highlights,
    )


def _when(hit: Hit) -> tuple[str, int]:
    return hit.at, hit.seq


def newest_first(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Live messages first, and the newest of each kind first."""
    return tuple(sorted(sorted(hits, key=_when, reverse=True), key=lambda hit: _KINDS[hit.beside]))


def passes(query: Query, record: Record) -> bool:
    """The conditions of :func:`conditions` on a message."""
    left = left_of(record.extra) if record.message is None else None
    role = fold(role_searched(role_of(left[0] if left else record.message))).lower()
    roles = ((fold(one.value).lower() in role) != one.is_not for one in query.filters if one.name == "role")
    return _is_in_time(query, record.at) and all(roles)


def _is_in_time(query: Query, at: str) -> bool:
    return (query.after is None or at >= query.after) and (query.before is None or at < query.before)


# ---- sealed ----
# Sealed conversations in a search: read in memory, one after the other. The index, which is plaintext, contains nothing
# of them.


class SealedFinder:
    """Reads the sealed conversations of a library. ``keys`` are the store's arguments; without keys they are only counted."""

    def __init__(self, database: Database, source: IndexSource, redact: Redact | None, keys: Mapping[str, Any]) -> None:
        self._connection = database.connection
        self._source = source
        self._redact = redact
        self._keys = keys
        self.not_opened = 0
        """How many could not be read: no key, a wrong key, or damage."""

    def found(self, query: Query, match: Match, limit: int, *, is_read: bool = False) -> list[Hit]:
        """At most ``limit`` hits, the latest changed conversation first, and in each the newest first.

        Filters for a title or for labels use plaintext only: a sealed conversation has none.
        """
        where, values = conditions(replace(query, after=None, before=None))
        statement = (
            # Without INDEXED BY, SQLite would scan all conversations in this order for the few sealed ones.
            "SELECT c.folder FROM conversation c INDEXED BY by_sealed "
            f"WHERE c.sealed = 1 AND {where} ORDER BY c.updated_at DESC, c.n DESC"
        )
        hits: list[Hit] = []
        for (folder,) in self._connection.execute(statement, values).fetchall():
            if not self._keys:
                self.not_opened += 1
            elif len(hits) < limit and (is_read or _asks_for_something(query)):
                try:
                    hits += reversed(deque(self._hits_in(os.fsdecode(folder), query, match), maxlen=limit - len(hits)))
                except TranscriptStoreError as error:
                    raise_if_of_the_process(error)
                    self.not_opened += 1
        return hits

    def _hits_in(self, folder: str, query: Query, match: Match) -> Iterator[Hit]:
        with self._source.store(folder, **self._keys) as conversation:
            conversation.load()
            metadata = conversation.get_metadata()
            live = ((record, None) for record in conversation.iter_records())
            for record, generation in chain(earlier_records(conversation), live):
                if record.is_retracted or not passes(query, record):
                    continue
                title = title_in(metadata.labels)
                hit = hit_of(record, match, self._redact, title, is_earlier=generation is not None)
                if hit is not None:
                    yield replace(
                        hit,
                        conversation=metadata.id,
                        directory=conversation.directory,
                        generation=metadata.generation if generation is None else generation,
                    )


def _asks_for_something(query: Query) -> bool:
    return bool(query.groups or query.without or query.filters or query.after or query.before)
