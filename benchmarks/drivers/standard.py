"""What the standard library offers: SQLite in its two durable ways, and a JSONL file as most agents keep it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.drivers.base import Driver, Message, by_threads


class SqliteFull(Driver):
    synchronous = "FULL"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection = self._connect()
        self._connection.execute("CREATE TABLE IF NOT EXISTS messages (seq INTEGER PRIMARY KEY, message TEXT NOT NULL)")

    def fill(self, given: list[Message]) -> None:
        with self._connection as transaction:
            rows = ((json.dumps(message),) for message in given)
            transaction.executemany("INSERT INTO messages (message) VALUES (?)", rows)

    def append(self, given: list[Message]) -> None:
        _insert_each(self._connection, given)

    def append_by_threads(self, given: list[Message]) -> None:
        def append(share: list[Message]) -> None:
            with closing(self._connect()) as connection:
                _insert_each(connection, share)

        by_threads(append, given)

    def replace(self, given: list[Message]) -> None:
        with self._connection as transaction:
            transaction.execute("DELETE FROM messages")
            rows = ((json.dumps(message),) for message in given)
            transaction.executemany("INSERT INTO messages (message) VALUES (?)", rows)

    def load(self) -> Sequence[Any]:
        return [json.loads(row[0]) for row in self._connection.execute("SELECT message FROM messages ORDER BY seq")]

    def last(self, count: int) -> Sequence[Any]:
        rows = self._connection.execute("SELECT message FROM messages ORDER BY seq DESC LIMIT ?", (count,)).fetchall()
        return [json.loads(row[0]) for row in reversed(rows)]

    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / "messages.db", timeout=60)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={self.synchronous}")
        return connection


def _insert_each(connection: sqlite3.Connection, given: list[Message]) -> None:
    for message in given:
        with connection as transaction:
            transaction.execute("INSERT INTO messages (message) VALUES (?)", (json.dumps(message),))


class SqliteNormal(SqliteFull):
    synchronous = "NORMAL"


class PlainJsonl(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "messages.jsonl"

    def fill(self, given: list[Message]) -> None:
        with self._path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(message) + "\n" for message in given)

    def append(self, given: list[Message]) -> None:
        for message in given:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(message) + "\n")

    def replace(self, given: list[Message]) -> None:
        self.fill(given)

    def load(self) -> Sequence[Any]:
        with self._path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]
