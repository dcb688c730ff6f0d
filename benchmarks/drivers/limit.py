"""The least that can be done with the same bytes: encode, hash, write (and sync); read the file and decode each line."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from benchmarks.drivers.base import Driver, Message, by_threads
from transcript_store._os.filesystem import REAL

_HEAD = b'{"seq":100000,"at":"2026-11-21T12:00:00.000000Z","message":'
_TAIL = b',"hash":"0123456789abcdef0123456789abcdef"}\n'
_APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_BLOCK_BYTES = 1 << 16


def plain_line(message: Message) -> bytes:
    """A line as long as one of ours, encoded and hashed."""
    line = _HEAD + orjson.dumps(message) + _TAIL
    sha256(line).digest()
    return line


class Write(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "plain.jsonl"
        self._handle = os.open(self._path, _APPENDED, 0o600)
        self._lock = threading.Lock()

    def fill(self, given: list[Message]) -> None:
        with self._path.open("ab") as file:
            file.writelines(map(plain_line, given))

    def append(self, given: list[Message]) -> None:
        for message in given:
            os.write(self._handle, plain_line(message))

    def load(self) -> Sequence[Any]:
        with self._path.open("rb") as file:
            return [orjson.loads(line)["message"] for line in file]

    def last(self, count: int) -> Sequence[Any]:
        """Read blocks backwards from the end until they hold so many lines."""
        with self._path.open("rb") as file:
            position = file.seek(0, os.SEEK_END)
            data = b""
            while position and data.count(b"\n") <= count:
                begin = max(0, position - _BLOCK_BYTES)
                file.seek(begin)
                data = file.read(position - begin) + data
                position = begin
        return [orjson.loads(line)["message"] for line in data.splitlines()[-count:]]

    def close(self) -> None:
        os.close(self._handle)


class WriteAndSync(Write):
    def append(self, given: list[Message]) -> None:
        for message in given:
            line = plain_line(message)
            with self._lock:
                os.write(self._handle, line)
                REAL.sync_data(self._handle)

    def append_by_threads(self, given: list[Message]) -> None:
        by_threads(self.append, given)

    def replace(self, given: list[Message]) -> None:
        replacement = self._path.with_suffix(".new")
        with replacement.open("wb") as file:
            file.write(b"".join(map(plain_line, given)))
            file.flush()
            os.fsync(file.fileno())
        replacement.replace(self._path)
