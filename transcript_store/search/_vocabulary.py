"""The words in an index, for whoever looks for a part of one: each once, in a table of its own.

To go through FTS5's own list takes a second where the table takes fifty milliseconds, because FTS5 counts how often each occurs.
But it is the cheaper way to fill the table after many messages. So a build leaves the table for its end, and says so in the index:
until then, and if it was killed, the list is what is asked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from transcript_store.search._database import Database
from transcript_store.search._words import words_in

LONGEST_WORD = 64
"""Parts of words are looked for in words up to this length in UTF-8. Longer ones are found whole, and by their beginning."""
_KNOWN_WORDS = 200_000

_IN_TABLE = "SELECT text FROM word"
_IN_LIST = f"SELECT term AS text FROM temp.vocabulary WHERE length(CAST(term AS BLOB)) <= {LONGEST_WORD}"
_LIST = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, words, row)"


class Vocabulary:
    """Fills the table. It remembers which words are there already, so as not to store each again."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connection
        self._has_words = database.has_words
        self._known: set[bytes] = set()
        self._new: set[bytes] = set()
        self.is_left_for_later = False

    def add(self, folded: Iterable[str]) -> None:
        """Note the words of texts that :func:`fold` gave; :meth:`store` stores them."""
        if not self.is_left_for_later:
            for text in folded:
                self._new.update(words_in(text))

    def store(self) -> None:
        """Store what was noted, within a transaction; or that the table is behind."""
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
        """Forget what was noted: the transaction that it was stored in did not come to its end."""
        self._known.clear()
        self._new.clear()

    def is_behind(self) -> bool:
        """Whether there are words that the table does not have."""
        return self._has_words and not _is_complete(self._connection)

    def complete(self) -> None:
        """Take what the table does not have from FTS5, within a transaction."""
        self._connection.execute(_LIST)
        self._connection.execute(f"INSERT OR IGNORE INTO word {_IN_LIST}")
        self._connection.execute("UPDATE about SET value = 1 WHERE name = 'words'")


def beginnings_up_to(connection: sqlite3.Connection, part: str, most: int) -> list[str]:
    """How the words that contain a part begin, up to the end of the part: each way once, at most so many."""
    words = _IN_TABLE
    if not _is_complete(connection):
        connection.execute(_LIST)
        words = _IN_LIST
    asked = {"part": part, "length": len(part), "most": most}
    statement = f"SELECT DISTINCT substr(text, 1, instr(text, :part) + :length - 1) FROM ({words}) WHERE instr(text, :part) LIMIT :most"
    return [beginning for (beginning,) in connection.execute(statement, asked)]


def _is_complete(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT value FROM about WHERE name = 'words'").fetchone()[0])
