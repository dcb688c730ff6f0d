"""How do conversations get into the index? Appended records are added; after any other change the conversation is
indexed again.

Forgetting ends the life of a conversation's documents. From then on they refer to nothing; their words go with the next
rebuild, because an SQLite before 3.43 cannot remove them from an index that keeps no text.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import floor, inf
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from transcript_store.errors import ConversationNotFoundError, StorageError, TranscriptStoreError
from transcript_store.messages import left_of, role_of
from transcript_store.search._catalogue import CatalogueRow, IndexSource, note, raise_if_of_the_process
from transcript_store.search._database import Database
from transcript_store.search._tokens import COLUMNS, fold, texts_of, words_in
from transcript_store.transcripts import FilePosition, LocatedLine, TranscriptFile

if TYPE_CHECKING:
    from transcript_store.conversation import Record


# ---- vocabulary ----
# The words in an index, for searches by a part of a word: each once, in a separate table.
#
# Reading FTS5's own list takes a second where the table takes fifty milliseconds, because FTS5 counts how often each
# occurs. But it is the cheaper way to fill the table after many messages. So a build fills the table at its end, and
# notes that in the index: until then, and if it was killed, the list is read.

LONGEST_WORD = 64
"""Parts are searched for in words up to this length in UTF-8. Longer words are found completely, and by their start."""
_KNOWN_WORDS = 200_000

_IN_TABLE = "SELECT text FROM word"
_IN_LIST = f"SELECT term AS text FROM temp.vocabulary WHERE length(CAST(term AS BLOB)) <= {LONGEST_WORD}"
_LIST = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, words, row)"


class Vocabulary:
    """Fills the table. It remembers the stored words, so as not to store them again."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connection
        self._has_words = database.has_words
        self._known: set[bytes] = set()
        self._new: set[bytes] = set()
        self.is_left_for_later = False

    def add(self, folded: Iterable[str]) -> None:
        """Collect the words of folded texts; :meth:`store` stores them."""
        if not self.is_left_for_later:
            for text in folded:
                self._new.update(words_in(text))

    def store(self) -> None:
        """Store the collected words, within a transaction; or that the table is behind."""
        if self.is_left_for_later:
            self._connection.execute("UPDATE about SET value = 0 WHERE name = 'words'")
            return
        new, self._new = self._new - self._known, set()
        short_ones = sorted(word for word in new if len(word) <= LONGEST_WORD)
        self._connection.executemany("INSERT OR IGNORE INTO word VALUES (?)", ((word.decode(),) for word in short_ones))
        if len(self._known) > _KNOWN_WORDS:
            self._known.clear()
        self._known |= new

    def undo(self) -> None:
        """Forget the collected words: their transaction was undone."""
        self._known.clear()
        self._new.clear()

    def is_behind(self) -> bool:
        """True if there are words that the table lacks."""
        return self._has_words and not _is_complete(self._connection)

    def complete(self) -> None:
        """Copy the missing words from FTS5, within a transaction."""
        self._connection.execute(_LIST)
        self._connection.execute(f"INSERT OR IGNORE INTO word {_IN_LIST}")
        self._connection.execute("UPDATE about SET value = 1 WHERE name = 'words'")


def beginnings_up_to(connection: sqlite3.Connection, part: str, most: int) -> list[str]:
    """The distinct starts, up to the end of the part, of words that contain a part; at most ``most``."""
    words = _IN_TABLE
    if not _is_complete(connection):
        connection.execute(_LIST)
        words = _IN_LIST
    asked = {"part": part, "length": len(part), "most": most}
    statement = f"SELECT DISTINCT substr(text, 1, instr(text, :part) + :length - 1) FROM ({words}) WHERE instr(text, :part) LIMIT :most"
    return [beginning for (beginning,) in connection.execute(statement, asked)]


def _is_complete(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT value FROM about WHERE name = 'words'").fetchone()[0])


# ---- indexing ----

_DOCUMENTS, _CHARACTERS = 10_000, 32 * 2**20
"""Messages and characters of a transaction: a kill loses little, and memory is bounded. (With 2,000, FTS5
merges so often that a build takes a third longer.)"""
_WAITING = 2**21
"""Characters kept in memory before FTS5 gets them."""
_ROWS = 200
"""Conversations looked up in the catalogue at a time."""
_MANY, _SHARE = 100, 6
"""An update of more conversations than this, and more than a sixth of all, copies the vocabulary from FTS5 at its end: that reads
the whole index, but takes a sixth of the time of storing the words one by one."""

MESSAGE, LEFT, EARLIER = 0, 1, 2
"""The kinds of documents: a live message, one on an abandoned branch, one of an earlier generation."""
PENDING = "(stamp = '' OR indexed <> stamp)"


class _Texts(NamedTuple):
    """The indexed texts of a conversation: columns of the catalogue."""

    indexed: str
    life: int | None
    text_generation: int | None
    through_seq: int | None
    through_offset: int | None
    head: str | None
    documents: int
    earlier_from: int | None
    first_document: int | None
    last_document: int | None
    damaged: bool = False
    """True if damage follows its last indexed text: the rest is not in the index."""


_NOTED = ", ".join(_Texts._fields)


class _IndexedConversation(NamedTuple):
    n: int
    folder: bytes
    stamp: str
    sealed: int
    texts: _Texts


class Indexer:
    """Adds texts to an index."""

    def __init__(self, database: Database, source: IndexSource) -> None:
        self._database = database
        self._source = source
        self._vocabulary = Vocabulary(database)
        self.refused: list[StorageError] = []
        """The refusals of the last run, by conversation: nothing of these may be found now."""

    def run(self, deadline: float, lines: list[CatalogueRow]) -> int:
        """Store a few rows in the catalogue, and index its pending conversations, the oldest change first.

        Both start in one transaction: one more message costs one commit. Returns how many conversations are left.

        Raises:
            StorageError: no file can be opened any more, or there is no memory.
            sqlite3.OperationalError: another process writes to the index, or the system refuses.
        """
        self.refused.clear()
        numbers = [] if lines else self._pending()
        at, is_noted = 0, not lines
        while at < len(numbers) or not is_noted:
            try:
                with self._database.writing():
                    if not is_noted:
                        note(self._database, lines)
                        numbers, is_noted = self._pending(), True
                    # Without time for all of them, there is none for the vocabulary either.
                    self._vocabulary.is_left_for_later = deadline == inf and self._are_many(len(numbers))
                    batch = _IndexTransaction(self._database, deadline, self._vocabulary)
                    at += self._index_some(numbers, at, batch)
                    batch.store()
            except BaseException:
                self._vocabulary.undo()
                raise
            if time.monotonic() > deadline:
                break
        if deadline == inf and self._vocabulary.is_behind():
            with self._database.writing():
                self._vocabulary.complete()
        return len(numbers) - at

    def _pending(self) -> list[int]:
        statement = f"SELECT n FROM conversation WHERE {PENDING} ORDER BY updated_at, n"
        return [n for (n,) in self._database.connection.execute(statement)]

    def _are_many(self, conversations: int) -> bool:
        asked = "SELECT value FROM about WHERE name = 'conversations'"
        of: int = self._database.connection.execute(asked).fetchone()[0]
        return conversations > _MANY and conversations * _SHARE > of

    def _index_some(self, numbers: list[int], begin: int, batch: _IndexTransaction) -> int:
        """Index conversations until the batch is full; returns how many are done. A long one continues in the next batch."""
        for at in range(begin, len(numbers), _ROWS):
            some = numbers[at : at + _ROWS]
            rows = self._rows(some)
            for done, n in enumerate(some, at - begin):
                if n in rows and not self._index(rows[n], batch):
                    return done
                if batch.is_full():
                    return done + 1
        return len(numbers) - begin

    def _rows(self, numbers: list[int]) -> dict[int, _IndexedConversation]:
        """The pending ones of these, read again within the transaction: another process may have indexed them."""
        places = ", ".join("?" * len(numbers))
        asked = f"SELECT n, folder, stamp, sealed, {_NOTED} FROM conversation WHERE n IN ({places}) AND {PENDING}"
        found = self._database.connection.execute(asked, numbers)
        return {
            n: _IndexedConversation(n, folder, stamp, sealed, _Texts(*texts))
            for n, folder, stamp, sealed, *texts in found
        }

    def _index(self, row: _IndexedConversation, batch: _IndexTransaction) -> bool:
        """Index a conversation's new records; False if the batch was full before its end."""
        if row.sealed:  # the index is plaintext: it never has text of a sealed conversation
            batch.note(row, _nothing(row.stamp))
            return True
        is_whole, is_damaged, added, last, before = True, False, 0, None, batch.document
        named: list[tuple[int, int]] = []
        try:
            with self._source.transcript(os.fsdecode(row.folder)) as transcript:
                life, place, documents, first = self._beginning(row.texts, transcript, batch)
                for line in transcript.lines(place):
                    if added and batch.is_full():
                        is_whole = False
                        break
                    added += batch.add(life, line)
                    if line.retracts:
                        named.append(line.retracts)
                    last = line
                place = last.behind if last else place
                is_damaged = is_whole and transcript.stops_at_damage(place)
        except TranscriptStoreError as error:
            raise_if_of_the_process(error)
            # It was deleted, or is unreadable: nothing of it may be found. A refusal of the system may not last until the
            # next update.
            if isinstance(error, StorageError):
                self.refused.append(error)
                # No stamp, so that the next update tries it again.
                batch.note(row, _nothing(""))
            else:
                batch.note(row, _nothing(row.stamp, damaged=not isinstance(error, ConversationNotFoundError)))
            return True
        documents -= batch.take_back(life, named)
        earlier_from = row.texts.earlier_from if life == row.texts.life else None
        if is_whole:
            earlier_from, more = self._index_earlier(row, life, transcript.generation, earlier_from, batch)
            added += more
            is_whole = not earlier_from
        documents += added
        last_document = row.texts.last_document if life == row.texts.life else None
        if added:
            first, last_document = first or before + 1, batch.document
        indexed = row.stamp if is_whole else "(begun)"
        noted = _Texts(
            indexed, life, transcript.generation, *place, documents, earlier_from, first, last_document, is_damaged
        )
        batch.note(row, noted)
        return is_whole

    def _index_earlier(
        self, row: _IndexedConversation, life: int, live: int, earlier_from: int | None, batch: _IndexTransaction
    ) -> tuple[int, int]:
        """Index earlier generations, the newest first, until the batch is full. Return the first indexed generation, and
        the number of messages. Messages of the live one are not indexed twice.
        """
        left = live if earlier_from is None else earlier_from
        added = 0
        if not left:
            return 0, 0
        from transcript_store.import_notes import earlier_generations

        try:
            with self._source.store(os.fsdecode(row.folder)) as conversation:
                conversation.load(verify="tail")
                if conversation.get_metadata().generation != live:
                    return left, 0  # it was replaced just now: the next update starts again
                shown = [number for number in earlier_generations(conversation) if number < left]
                for number in reversed(shown):
                    if added and batch.is_full():
                        return number + 1, added
                    later = number + 1 if number + 1 < live else None
                    known = {said_by(record) for record in conversation.iter_records(generation=later)}
                    for record in conversation.get_records(generation=number):
                        if not record.is_retracted and said_by(record) not in known:
                            added += batch.add_earlier(life, record, number)
        except TranscriptStoreError as error:
            raise_if_of_the_process(error)  # an unreadable generation has no hits
        return 0, added

    def _beginning(
        self, known: _Texts, transcript: TranscriptFile, batch: _IndexTransaction
    ) -> tuple[int, FilePosition, int, int | None]:
        """The life of the documents, the position after the indexed records, the number of documents, and the first of them."""
        if known.life is not None:
            place = FilePosition(known.through_seq or 0, known.through_offset or 0, known.head or "")
            # By generation, offset and hash: a repair or a restored backup may have put another text before this place.
            if known.text_generation == transcript.generation and transcript.holds(place):
                return known.life, place, known.documents, known.first_document
        return batch.new_life(), transcript.begin, 0, None


def _nothing(indexed: str, *, damaged: bool = False) -> _Texts:
    """The state of a conversation of which nothing may be found."""
    return _Texts(indexed, None, None, None, None, None, 0, None, None, None, damaged)


class _IndexTransaction:
    """The messages of one transaction. Words go to FTS5 immediately, all other rows at its end.

    FTS5 collects words in memory, and flushes them whenever a statement of several steps starts, such as an update with a
    trigger. No such statement runs between the words of a transaction, so FTS5 writes one piece, and has less to merge.
    """

    def __init__(self, database: Database, deadline: float, vocabulary: Vocabulary) -> None:
        self._connection = database.connection
        self._has_words = database.has_words
        self._deadline = deadline
        self._vocabulary = vocabulary
        self._roles: dict[str, int] = dict(self._connection.execute("SELECT name, n FROM role"))
        last = "SELECT (SELECT max(n) FROM document), (SELECT value FROM about WHERE name = 'life')"
        self.document, self._life = (number or 0 for number in self._connection.execute(last).fetchone())
        self._documents_left, self._characters_left = _DOCUMENTS, _CHARACTERS
        self._waiting = 0
        self._documents: list[tuple[int | None, ...]] = []
        self._texts: list[tuple[int | str, ...]] = []
        self._lives: list[tuple[int]] = []
        self._noted: list[tuple[int | str | None, ...]] = []
        self._gone: list[tuple[int]] = []

    def is_full(self) -> bool:
        """True if it has enough messages or text, or the time ran out."""
        return (
            self._documents_left <= 0
            or self._characters_left <= 0
            or (self._deadline != inf and time.monotonic() > self._deadline)
        )

    def new_life(self) -> int:
        """A new number: forgotten documents keep theirs."""
        self._life += 1
        self._lives = [(self._life,)]
        return self._life

    def add(self, life: int, line: LocatedLine) -> int:
        """Add a message; returns how many were added: none if it has no text."""
        if line.is_retracted:
            return 0
        message, extra = line.members.get("message"), line.members.get("extra")
        return self._add(life, message, extra, line.seq, line.at, line.offset_bytes, short(line.head), None)

    def _add(
        self,
        life: int,
        message: dict[str, Any] | None,
        extra: dict[str, Any] | None,
        seq: int,
        at: str,
        offset_bytes: int,
        head: int,
        generation: int | None,
    ) -> int:
        kind = MESSAGE if generation is None else EARLIER
        if message is None and extra is not None and (left := left_of(extra)) is not None:
            (message, extra), kind = left, kind or LEFT
        if message is None or not (whole := "".join(texts := texts_of(message, extra))):
            return 0
        self.document = number = self.document + 1
        role = self._role(role_of(message))
        self._documents.append((number, life, seq, offset_bytes, record_seconds(at), role, head, kind, generation))
        length = len(whole)
        self._documents_left -= 1
        self._characters_left -= length
        if self._has_words:
            folded = texts if whole.isascii() else [*map(fold, texts)]
            self._texts.append((number, *folded))
            self._vocabulary.add(folded)
            self._waiting += length
            if self._waiting > _WAITING:
                self._store_words()
        return 1

    def add_earlier(self, life: int, record: Record, generation: int) -> int:
        """Add a message of an earlier generation; returns how many were added."""
        return self._add(life, record.message, record.extra, record.seq, record.at, 0, 0, generation)

    def take_back(self, life: int, named: Sequence[tuple[int, int]]) -> int:
        """Remove newly retracted messages from the index; return how many."""
        if not named:
            return 0
        first, last = min(first for first, _ in named), max(last for _, last in named)
        statement = "SELECT n, seq FROM document WHERE life = ? AND seq BETWEEN ? AND ? AND generation IS NULL"
        candidates = self._connection.execute(statement, (life, first, last)).fetchall()
        # The range above is of all retractions together; a message between two of them stays.
        gone = [(n,) for n, seq in candidates if any(first <= seq <= last for first, last in named)]
        self._gone += gone
        return len(gone)

    def note(self, row: _IndexedConversation, texts: _Texts) -> None:
        """Store in the catalogue how far a conversation is indexed."""
        if texts != row.texts:
            self._noted.append((*texts, row.n))

    def store(self) -> None:
        """Store the added rows."""
        many = self._connection.executemany
        if self._has_words:
            self._store_words()
            self._vocabulary.store()
        many(
            "INSERT INTO document (n, life, seq, offset, at, role, head, kind, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._documents,
        )
        # The row stays, or SQLite would reuse its number; like a forgotten one it refers to nothing.
        many("UPDATE document SET life = NULL WHERE n = ?", self._gone)
        many(f"UPDATE conversation SET ({_NOTED}) = ({', '.join('?' * len(_Texts._fields))}) WHERE n = ?", self._noted)
        many("INSERT OR REPLACE INTO about VALUES ('life', ?)", self._lives)

    def _store_words(self) -> None:
        statement = f"INSERT INTO words (rowid, {', '.join(COLUMNS)}) VALUES (?{', ?' * len(COLUMNS)})"
        self._connection.executemany(statement, self._texts)
        self._texts, self._waiting = [], 0

    def _role(self, name: str) -> int:
        if (known := self._roles.get(name)) is not None:
            return known
        found: int = self._connection.execute("INSERT INTO role (name) VALUES (?) RETURNING n", (name,)).fetchone()[0]
        self._roles[name] = found
        return found


def said_by(record: Record) -> int:
    """The same for a record that a compaction carried over. Its time and its extra may have changed."""
    left = None if record.message is not None else left_of(record.extra)
    return hash(orjson.dumps(left[0] if left else record.message, option=orjson.OPT_SORT_KEYS))


def record_seconds(at: str) -> int:
    """A record's time in whole seconds since 1970, rounded down; 0 for a day that does not exist, in a forged file."""
    try:
        return floor(datetime.fromisoformat(at).timestamp())
    except ValueError:
        return 0


def short(head: bytes) -> int:
    """Half of a hash, as an integer that SQLite can hold."""
    return int(head[:16], 16) - 2**63
