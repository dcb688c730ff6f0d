"""What the standard library offers: SQLite in its two durable ways, and a JSONL file as most agents keep it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drivers.base import Driver, Message


class SqliteFull(Driver):
    synchronous = "FULL"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection = sqlite3.connect(folder / "messages.db")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={self.synchronous}")
        self._connection.execute("CREATE TABLE IF NOT EXISTS messages (seq INTEGER PRIMARY KEY, message TEXT NOT NULL)")

    def fill(self, given: list[Message]) -> None:
        with self._connection as transaction:
            rows = ((json.dumps(message),) for message in given)
            transaction.executemany("INSERT INTO messages (message) VALUES (?)", rows)

    def append(self, given: list[Message]) -> None:
        for message in given:
            with self._connection as transaction:
                transaction.execute("INSERT INTO messages (message) VALUES (?)", (json.dumps(message),))

    def load(self) -> Sequence[Any]:
        return [json.loads(row[0]) for row in self._connection.execute("SELECT message FROM messages ORDER BY seq")]

    def last(self, count: int) -> Sequence[Any]:
        rows = self._connection.execute("SELECT message FROM messages ORDER BY seq DESC LIMIT ?", (count,)).fetchall()
        return [json.loads(row[0]) for row in reversed(rows)]

    def close(self) -> None:
        self._connection.close()


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

    def load(self) -> Sequence[Any]:
        with self._path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]
