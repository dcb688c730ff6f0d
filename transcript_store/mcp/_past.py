"""What the four tools answer, from the index and the transcripts of a library. It writes nothing, and makes a path of no argument."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, Literal, NamedTuple, Self

from transcript_store.conversation import Record
from transcript_store.file_names import absolute_path, is_id
from transcript_store.keys import KeyProvider
from transcript_store.library import ConversationLibrary, ConversationSummary
from transcript_store.mcp._cursors import Cursors
from transcript_store.mcp._quoting import (
    ANSWER_CHARACTERS,
    MESSAGE_CHARACTERS,
    NOTICE,
    Spot,
    pieces,
    quoted_role,
    quoted_summary,
    quoted_title,
    size_of,
)
from transcript_store.mcp._scope import Scope
from transcript_store.mcp._sealed import SealedTranscript, opened
from transcript_store.messages import Part, left_of, parts_of, role_of
from transcript_store.redaction import SecretRedactor
from transcript_store.search import SearchIndex, shelf_of
from transcript_store.transcripts import Place, TranscriptFile
from transcript_store.words import without_escapes

MOST_LISTED = 25
MOST_FOUND = 25
MOST_READ = 50
LONGEST_QUERY = 1000
_FARTHEST_HIT = 500
_SAME_ID = 10
"""A copy of a conversation's folder has the same id: so many are looked at for one that may be read."""

Order = Literal["updated", "created", "title", "records", "size"]
Sort = Literal["rank", "newest"]
Kind = Literal["text", "thinking", "call", "result", "media"]
_KINDS: tuple[Kind, ...] = ("text", "call", "result", "media")


class _Listed(NamedTuple):
    query: str
    sort: Order
    after: str | None


class _Found(NamedTuple):
    query: str
    sort: Sort | None
    skip: int


class _Read(NamedTuple):
    id: str
    kinds: tuple[Kind, ...]
    place: Place


class _Record(NamedTuple):
    id: str
    seq: int
    spot: Spot


class Past:
    """The conversations of a library, as the tools answer them; use it in a ``with`` statement, or close it.

    Each answer is a JSON object: ``notice`` says what is quoted in it, ``cursor`` (None at the end) gets the next page. With a
    cursor no other argument but the limit counts. Whoever calls may be an agent that a page told what to do: arguments are
    looked at, and none of them becomes a path.

    Args:
        library: the library, or its directory. One on a place is read there; nothing is claimed.
        scope: which conversations may be read.
        redact: takes the secrets out of everything that is quoted. Nothing is found in what it takes out.
        cache: the directory of the index; None for the one in the user's cache directory.
        encryption_key: the key of sealed conversations. Without it nothing of them is read.
        retired_keys: earlier keys.
    """

    def __init__(
        self,
        library: ConversationLibrary | str | os.PathLike[str],
        *,
        scope: Scope | None = None,
        redact: SecretRedactor | None = None,
        cache: str | os.PathLike[str] | None = None,
        encryption_key: bytes | KeyProvider | None = None,
        retired_keys: Sequence[bytes | KeyProvider] = (),
    ) -> None:
        self._scope = scope or Scope()
        self._redactor = redact or SecretRedactor()
        self._keys: dict[str, Any] = {}
        if encryption_key is not None:
            self._keys = {"encryption_key": encryption_key, "retired_keys": retired_keys}
        self._index = SearchIndex(library, cache=cache, **self._keys)
        self._shelf = shelf_of(absolute_path(library) if isinstance(library, (str, os.PathLike)) else library)
        self._asking = Lock()
        self._lists: Cursors[_Listed] = Cursors()
        self._searches: Cursors[_Found] = Cursors()
        self._readings: Cursors[_Read] = Cursors()
        self._records: Cursors[_Record] = Cursors()

    def close(self) -> None:
        """Close the index, and let go of what was fetched."""
        self._shelf.close()
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the four tools --------------------------------------------------------------------------------------------

    def list_conversations(
        self, query: str = "", *, sort: Order = "updated", limit: int = 10, cursor: str | None = None
    ) -> dict[str, Any]:
        """A page of the conversations that a query leaves; its words have to be in what the conversation is called.

        Raises:
            ValueError: an argument makes no sense, or the cursor is none of this object's.
            StorageError: the library cannot be read.
        """
        asked = _Listed(_checked(query), sort, None) if cursor is None else self._lists.place(cursor)
        page = self._index.list(
            limit=_bounded(limit, MOST_LISTED),
            after=asked.after,
            sort=asked.sort,
            filter=self._scope.narrowed(asked.query),
        )
        listed = [
            {
                "id": one.id,
                "created_at": one.created_at,
                "updated_at": one.updated_at,
                "records": one.record_count,
                "is_damaged": one.damage is not None,
                "is_sealed": one.sealed,
                "quoted": quoted_summary(replace(one, title=name), self._clean),
            }
            for one, name in zip(page, page.names, strict=True)
            if one.id is not None and self._may_be_read(one.directory)
        ]
        more = None if page.next is None else self._lists.given(asked._replace(after=page.next))
        return _answer(conversations=listed, not_looked_at=page.not_looked_at, cursor=more)

    def search_conversations(
        self, query: str = "", *, sort: Sort | None = None, limit: int = 10, cursor: str | None = None
    ) -> dict[str, Any]:
        """A page of the messages that a query finds, each with an excerpt. Up to 500 are told one page after the other.

        ``beside`` says of a message that does not count why it does not, as :attr:`transcript_store.search.Hit.beside`: such hits come
        last. One of an earlier generation has no ``seq``: its excerpt is all that is given of it.

        Raises:
            ValueError: an argument makes no sense, or the cursor is none of this object's.
            StorageError: the library cannot be read.
        """
        asked = _Found(_checked(query), sort, 0) if cursor is None else self._searches.place(cursor)
        through = asked.skip + _bounded(limit, MOST_FOUND)
        answer = self._index.search(
            self._scope.narrowed(asked.query), limit=through + 1, sort=asked.sort, redact=self._redactor
        )
        found = [
            {
                "id": hit.conversation,
                # The number of a message of an earlier generation is another message's number now.
                "seq": hit.seq if hit.beside != "earlier-generation" else None,
                "at": hit.at,
                "where": hit.where,
                "beside": hit.beside,
                "quoted": {"title": quoted_title(hit.title), "role": quoted_role(hit.role), "excerpt": hit.excerpt},
            }
            for hit in answer.hits[asked.skip : through]
            if self._may_be_read(hit.directory)
        ]
        goes_on = len(answer) > through and through < _FARTHEST_HIT
        more = self._searches.given(asked._replace(skip=through)) if goes_on else None
        return _answer(
            hits=found,
            not_indexed=answer.not_indexed,
            not_searched=answer.not_searched,
            damaged=len(answer.damaged),
            not_read=len(answer.not_read),
            cursor=more,
        )

    def read_conversation(
        self,
        id: str = "",
        *,
        from_seq: int = 1,
        limit: int = 20,
        include: Sequence[Kind] = _KINDS,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """A page of a conversation's messages, each cut to 4,000 characters.

        Args:
            id: the conversation.
            from_seq: the number of the first message; a negative one counts messages from the end.
            limit: at most so many messages.
            include: which parts of each message.
            cursor: where the page before ended.

        Raises:
            ValueError: an argument makes no sense, or there is no such conversation, or it was replaced meanwhile.
            TranscriptStoreError: it cannot be read.
        """
        asked = None if cursor is None else self._readings.place(cursor)
        summary = self._found(id if asked is None else asked.id)
        kinds = tuple(include) if asked is None else asked.kinds
        with self._transcript(summary) as transcript:
            if from_seq < 0 and asked is None:
                from_seq = _seq_from_the_end(transcript, -from_seq)
            place = transcript.begin if asked is None else asked.place
            if asked is not None and not transcript.holds(place):
                raise ValueError("this conversation was replaced meanwhile: read it anew, without a cursor")
            messages, place, is_full = self._messages(transcript, place, from_seq, _bounded(limit, MOST_READ), kinds)
            unread = 0 if is_full else transcript.size_bytes - place.offset_bytes
        more = self._readings.given(_Read(transcript.conversation, kinds, place)) if is_full else None
        about = quoted_summary(summary, self._clean)
        return _answer(
            id=summary.id,
            records=summary.record_count,
            quoted=about,
            messages=messages,
            unread_bytes=unread,
            cursor=more,
        )

    def read_record(self, id: str = "", seq: int = 1, *, cursor: str | None = None) -> dict[str, Any]:
        """One message whole, 16,000 characters a page: also one on a branch that the conversation left, as a search gives its number.

        Raises:
            ValueError: there is no such conversation or message, or the cursor is none of this object's.
            TranscriptStoreError: it cannot be read.
        """
        asked = _Record(id, seq, Spot(0, 0)) if cursor is None else self._records.place(cursor)
        with self._transcript(self._found(asked.id)) as transcript:
            for placed, _ in transcript.records(transcript.begin):
                if placed.record.seq == asked.seq and (message := _message_of(placed.record)) is not None:
                    break
            else:
                raise ValueError(f"there is no message {asked.seq} in this conversation, or it is damaged before it")
        role, parts = self._said(message)
        found, spot = pieces(parts, asked.spot, ANSWER_CHARACTERS)
        more = None if spot is None else self._records.given(asked._replace(spot=spot))
        return _answer(
            id=asked.id, seq=asked.seq, at=placed.record.at, quoted={"role": role, "parts": found}, cursor=more
        )

    # ---- what they have in common ----------------------------------------------------------------------------------

    def _found(self, id: str) -> ConversationSummary:
        """The conversation with this id, as it stands now."""
        if is_id(id):
            for wait in (False, True):  # the second time everything is looked at
                page = self._index.list(limit=_SAME_ID, filter=self._scope.narrowed(f"id:{id}"), wait=wait)
                for one in page:
                    if one.id == id and (summary := self._may_be_read(one.directory)):
                        return summary
                if not page.not_looked_at:
                    break
        raise ValueError("there is no conversation with this id; list_conversations and search_conversations give ids")

    @contextmanager
    def _transcript(self, summary: ConversationSummary) -> Iterator[TranscriptFile | SealedTranscript]:
        """The transcript of a conversation, to read it: of a sealed one with the key."""
        folder = _folder_of(summary.directory)
        if summary.sealed:
            with opened(self._shelf.store(folder, **self._keys)) as sealed:
                yield sealed
        else:
            with self._asking, self._shelf.transcript(folder) as transcript:
                yield transcript

    def _may_be_read(self, directory: str) -> ConversationSummary | None:
        """A conversation as it stands now, if its labels are those that are asked for."""
        with self._asking:
            summary = self._shelf.summary(_folder_of(directory))
        return summary if summary is not None and self._scope.has(summary.labels) else None

    def _messages(
        self,
        transcript: TranscriptFile | SealedTranscript,
        place: Place,
        from_seq: int,
        limit: int,
        kinds: Sequence[Kind],
    ) -> tuple[list[dict[str, Any]], Place, bool]:
        """Messages behind a place, the place behind them, and whether the answer was full before the end."""
        found: list[dict[str, Any]] = []
        left = ANSWER_CHARACTERS
        for placed, behind in transcript.records(place):
            record = placed.record
            if record.seq >= from_seq and _counts(record):
                if len(found) == limit or left <= 0:
                    return found, place, True
                role, parts = self._said(record.message)
                wanted = [part for part in parts if part.kind in kinds]
                shown, spot = pieces(wanted, Spot(0, 0), min(left, MESSAGE_CHARACTERS))
                found.append(
                    {
                        "seq": record.seq,
                        "at": record.at,
                        "is_cut": spot is not None,
                        "quoted": {"role": role, "parts": shown},
                    }
                )
                left -= size_of(shown)
            place = behind
        return found, place, False

    def _said(self, message: Any) -> tuple[str, list[Part]]:
        """Role and parts of a message, without secrets. What is neither text nor a known part is a text."""
        clean = self._clean(message)
        return quoted_role(role_of(clean)), list(_known(parts_of(clean)))

    def _clean(self, value: Any) -> Any:
        return self._redactor.redact(value).value


def _folder_of(directory: str) -> str:
    return directory.rpartition("/")[2]


def _seq_from_the_end(transcript: TranscriptFile | SealedTranscript, count: int) -> int:
    """The number of the first of the last so many messages. Events stand behind them: what an import notes, for one."""
    seqs = (placed.record.seq for placed, _ in transcript.records(transcript.begin) if _counts(placed.record))
    return next(iter(deque(seqs, maxlen=min(count, sys.maxsize))), 1)


def _counts(record: Record) -> bool:
    """Whether it is a message that was not taken back."""
    return record.message is not None and not record.is_retracted


def _message_of(record: Record) -> dict[str, Any] | None:
    """The message that counts, or the one that an event keeps of a branch that was left; None if there is neither."""
    if record.is_retracted:
        return None
    left = left_of(record.extra) if record.message is None else None
    return record.message if left is None else left[0]


def _known(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        if part.kind != "besides":  # usage, ids and the like: nobody said it
            kind = "text" if part.kind == "other" else part.kind
            yield part._replace(
                kind=kind, text=without_escapes(part.text)
            )  # or a model copies them into what it writes


def _answer(**members: Any) -> dict[str, Any]:
    return {"notice": NOTICE, **members}


def _bounded(limit: int, most: int) -> int:
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit must be from 1 to {most}")
    return min(limit, most)


def _checked(query: str) -> str:
    if len(query) > LONGEST_QUERY:
        raise ValueError(f"a query has at most {LONGEST_QUERY:,} characters")
    return query
