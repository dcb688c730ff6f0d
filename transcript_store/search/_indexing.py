"""What the conversations say, into the index: what was appended is added, anything else is forgotten and indexed anew.

Forgetting ends the life of a conversation's documents. They lead nowhere from that moment; their words go with the next
rebuild, because an SQLite before 3.43 cannot take them out of an index that keeps no text.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from math import floor, inf
from typing import NamedTuple

from transcript_store.errors import StorageError, TranscriptStoreError
from transcript_store.messages import role_of
from transcript_store.search._database import Database
from transcript_store.search._shelf import Shelf
from transcript_store.search._texts import Texts, texts_of
from transcript_store.search._vocabulary import Vocabulary
from transcript_store.search._words import fold
from transcript_store.transcripts import Place, PlacedRecord, TranscriptFile
from transcript_store.ways_out import WayOut

_DOCUMENTS, _CHARACTERS = 10_000, 32 * 2**20
"""A transaction holds at most so many messages, and about so much text: a kill loses little, and memory is bounded. (With 2,000 FTS5
merges its pieces so often that a build takes a third longer.)"""
_WAITING = 2**21
"""So much text waits in memory before it is stored."""
_MANY, _SHARE = 100, 6
"""An update of more conversations than this, and more than a sixth of all, takes the vocabulary from FTS5 at its end: that goes through
the whole index, in a sixth of the time that the words of the same messages take one by one."""

PENDING = "(stamp = '' OR indexed <> stamp)"


class _Row(NamedTuple):
    n: int
    folder: bytes
    stamp: str
    life: int | None
    text_generation: int | None
    through_seq: int
    through_offset: int
    head: str
    sealed: int


class Indexer:
    """Adds texts to an index."""

    def __init__(self, database: Database, shelf: Shelf) -> None:
        self._database = database
        self._shelf = shelf
        self._vocabulary = Vocabulary(database)

    def run(self, deadline: float) -> int:
        """Index what the catalogue says is not indexed, the one that changed first first; returns how many are left.

        Raises:
            StorageError: no file can be opened any more.
            sqlite3.OperationalError: another process writes to the index, or the system refuses.
        """
        statement = f"SELECT n FROM conversation WHERE {PENDING} ORDER BY updated_at, n"
        numbers = [n for (n,) in self._database.connection.execute(statement)]
        # Whoever has no time for all of it has none for the end of it either.
        self._vocabulary.is_left_for_later = deadline == inf and self._are_many(len(numbers))
        at = 0
        while at < len(numbers):
            try:
                with self._database.writing():
                    batch = _Batch(self._database, deadline, self._vocabulary)
                    at += self._index_some(numbers[at : at + _DOCUMENTS], batch)
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

    def _are_many(self, conversations: int) -> bool:
        asked = "SELECT value FROM about WHERE name = 'conversations'"
        of: int = self._database.connection.execute(asked).fetchone()[0]
        return conversations > _MANY and conversations * _SHARE > of

    def _index_some(self, numbers: list[int], batch: _Batch) -> int:
        """Index conversations until the batch is full; returns how many are done. A long one goes on in the next batch."""
        for done, n in enumerate(numbers):
            # Read again, within the transaction: another process may have indexed it meanwhile.
            row = self._database.connection.execute(
                "SELECT n, folder, stamp, life, text_generation, through_seq, through_offset, head, sealed "
                f"FROM conversation WHERE n = ? AND {PENDING}",
                (n,),
            ).fetchone()
            if row is not None and not self._index(_Row(*row), batch):
                return done
            if batch.is_full():
                return done + 1
        return len(numbers)

    def _index(self, row: _Row, batch: _Batch) -> bool:
        """Index what is new in a conversation; False if the batch was full before its end."""
        if row.sealed:  # the index is plaintext: nothing of a sealed conversation comes into it
            self._forget(row.n)
            self._database.connection.execute("UPDATE conversation SET indexed = ? WHERE n = ?", (row.stamp, row.n))
            return True
        is_whole, added = True, 0
        try:
            with self._shelf.transcript(os.fsdecode(row.folder)) as transcript:
                life, place = self._beginning(row, transcript)
                for placed, behind in transcript.records(place):
                    if added and batch.is_full():
                        is_whole = False
                        break
                    added += batch.add(life, placed)
                    place = behind
                added -= batch.end_conversation(life)
        except TranscriptStoreError as error:
            if error.way_out is WayOut.ALLOW_MORE_FILES:  # that says nothing of this one, so it may not be missing
                raise
            # It is gone, or cannot be read: nothing of it may be found. What the system refused now it may give the next time.
            self._forget(row.n)
            looks = "" if isinstance(error, StorageError) else row.stamp
            self._database.connection.execute("UPDATE conversation SET indexed = ? WHERE n = ?", (looks, row.n))
            return True
        self._database.connection.execute(
            "UPDATE conversation SET life = ?, text_generation = ?, through_seq = ?, through_offset = ?, head = ?, "
            "documents = documents + ?, indexed = ? WHERE n = ?",
            (life, transcript.generation, *place, added, row.stamp if is_whole else "(begun)", row.n),
        )
        return is_whole

    def _beginning(self, row: _Row, transcript: TranscriptFile) -> tuple[int, Place]:
        """The life that the documents belong to, and where what is new begins."""
        if row.life is not None:
            place = Place(row.through_seq, row.through_offset, row.head)
            if row.text_generation == transcript.generation and transcript.holds(place):
                return row.life, place
        self._forget(row.n)
        return self._new_life(), transcript.begin

    def _new_life(self) -> int:
        """A number that was never given: the documents of what was forgotten keep theirs."""
        statement = (
            "INSERT INTO about VALUES ('life', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value"
        )
        found: int = self._database.connection.execute(statement).fetchone()[0]
        return found

    def _forget(self, n: int) -> None:
        self._database.connection.execute(
            "UPDATE conversation SET life = NULL, documents = 0, head = NULL WHERE n = ?", (n,)
        )


class _Batch:
    """The messages of one transaction. Rows are stored many at a time: a call for each would take as long as SQLite does."""

    def __init__(self, database: Database, deadline: float, vocabulary: Vocabulary) -> None:
        self._connection = database.connection
        self._has_words = database.has_words
        self._deadline = deadline
        self._vocabulary = vocabulary
        self._roles: dict[str, int] = dict(self._connection.execute("SELECT name, n FROM role"))
        self._next: int = self._connection.execute("SELECT coalesce(max(n), 0) + 1 FROM document").fetchone()[0]
        self._documents_left, self._characters_left = _DOCUMENTS, _CHARACTERS
        self._waiting = 0
        self._documents: list[tuple[int, ...]] = []
        self._texts: list[tuple[int | str, ...]] = []
        self._retractions: list[tuple[int, int]] = []

    def is_full(self) -> bool:
        """Whether there are enough messages or there is enough text in it, or the time is over."""
        return self._documents_left <= 0 or self._characters_left <= 0 or time.monotonic() > self._deadline

    def add(self, life: int, placed: PlacedRecord) -> int:
        """Add a message; returns how many were added: none if it has no text."""
        record = placed.record
        if record.retracts:
            self._retractions.append(record.retracts)
        texts = Texts() if record.message is None or record.is_retracted else texts_of(record.message)
        if not any(texts):
            return 0
        number, self._next = self._next, self._next + 1
        at, role = seconds(record.at), self._role(role_of(record.message))
        self._documents.append((number, life, record.seq, placed.offset_bytes, at, role, short(placed.head)))
        if self._has_words:
            folded = [text and fold(text) for text in texts]
            self._texts.append((number, *folded))
            for text in folded:
                if text:
                    self._vocabulary.add(text)
        length = sum(map(len, texts))
        self._documents_left -= 1
        self._characters_left -= length
        self._waiting += length
        if self._waiting > _WAITING:
            self.store()
        return 1

    def end_conversation(self, life: int) -> int:
        """Leave out what a conversation took back of what was indexed before; returns how many messages that is."""
        if not self._retractions:
            return 0
        self.store()
        named, self._retractions = self._retractions, []
        first, last = min(first for first, _ in named), max(last for _, last in named)
        statement = "SELECT n, seq FROM document WHERE life = ? AND seq BETWEEN ? AND ?"
        candidates = self._connection.execute(statement, (life, first, last)).fetchall()
        gone = [(n,) for n, seq in candidates if any(first <= seq <= last for first, last in named)]
        # The row stays, or its number would be given again; it leads nowhere, as what is forgotten does.
        self._connection.executemany("UPDATE document SET life = NULL WHERE n = ?", gone)
        return len(gone)

    def store(self) -> None:
        """Store what was added."""
        many = self._connection.executemany
        many(
            "INSERT INTO document (n, life, seq, offset, at, role, head) VALUES (?, ?, ?, ?, ?, ?, ?)", self._documents
        )
        if self._has_words:
            many("INSERT INTO words (rowid, text, thinking, call, result) VALUES (?, ?, ?, ?, ?)", self._texts)
            self._vocabulary.store()
        self._documents, self._texts, self._waiting = [], [], 0

    def _role(self, name: str) -> int:
        if (known := self._roles.get(name)) is not None:
            return known
        found: int = self._connection.execute("INSERT INTO role (name) VALUES (?) RETURNING n", (name,)).fetchone()[0]
        self._roles[name] = found
        return found


def seconds(at: str) -> int:
    """A record's time in whole seconds since 1970, rounded down; 0 for a day that does not exist, in a forged file."""
    try:
        return floor(datetime.fromisoformat(at).timestamp())
    except ValueError:
        return 0


def short(head: str) -> int:
    """Half of a hash, as an integer that SQLite can hold."""
    return int(head[:16], 16) - 2**63
