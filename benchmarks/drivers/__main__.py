"""Wait for a command a line, do it with one driver, and answer with the seconds it took."""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.drivers.base import THREADS, Driver
from benchmarks.messages import messages, text_messages


class Server:
    """The commands; each answers with what can be written as JSON."""

    def __init__(self, make: type[Driver], folder: Path) -> None:
        self._make = make
        self._folder = folder
        self._driver: Driver | None = None
        self._length = 0
        self._conversations = 1

    def open(self, length: int, encoded_bytes: int | None) -> None:
        """A conversation of so many messages: of the mix, or of text of one size."""
        self._empty()
        driver = self._make(self._folder)
        given = islice(messages(), length) if encoded_bytes is None else text_messages(length, encoded_bytes)
        driver.fill([driver.translate(message) for message in given])
        driver.close()
        self.reopen(length)
        self.append(1, 1024)  # what the first append after opening does once is not what an append costs

    def _empty(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
        self._driver = None

    def append(self, calls: int, encoded_bytes: int) -> float:
        """Seconds for one append."""
        driver = self._open
        given = driver.prepare([driver.translate(message) for message in text_messages(calls, encoded_bytes)])
        gc.collect()
        begin = time.perf_counter()
        driver.append(given)
        end = time.perf_counter()
        self._length += calls
        return (end - begin) / calls

    def append_by_threads(self, calls: int, encoded_bytes: int) -> float:
        """Seconds for one append, of those that eight threads make; the threads are started in them."""
        driver = self._open
        given = driver.prepare([driver.translate(message) for message in text_messages(calls * THREADS, encoded_bytes)])
        gc.collect()
        begin = time.perf_counter()
        driver.append_by_threads(given)
        end = time.perf_counter()
        self._length += len(given)
        return (end - begin) / len(given)

    def replace(self) -> float:
        """Seconds to put as many messages of the mix in the place of those that are there."""
        driver = self._open
        given = [driver.translate(message) for message in islice(messages(), self._length)]
        gc.collect()
        begin = time.perf_counter()
        driver.replace(given)
        end = time.perf_counter()
        return end - begin

    def load(self) -> float:
        """Seconds to open and hand out all messages."""
        driver = self._open
        gc.collect()
        begin = time.perf_counter()
        loaded = driver.load()
        end = time.perf_counter()
        assert len(loaded) == self._length, (len(loaded), self._length)
        return end - begin

    def last(self, count: int) -> float:
        """Seconds to open and hand out the last messages."""
        driver = self._open
        gc.collect()
        begin = time.perf_counter()
        loaded = driver.last(count)
        end = time.perf_counter()
        assert len(loaded) == min(count, self._length), len(loaded)
        return end - begin

    def create(self, count: int) -> None:
        """So many conversations."""
        self._empty()
        driver = self._make(self._folder)
        driver.create(count)
        self._driver, self._conversations = driver, count

    def list(self) -> float:
        """Seconds to list the conversations that are there."""
        driver = self._open
        begin = time.perf_counter()
        count = driver.list()
        end = time.perf_counter()
        assert count == self._conversations, count
        return end - begin

    def memory(self) -> float:
        """How many bytes this process grew by at the most while it loaded; in a process that did nothing else. On Linux only."""
        driver = self._open
        gc.collect()
        before = _memory("VmRSS")
        loaded = driver.load()
        assert len(loaded) == self._length
        return _memory("VmHWM") - before

    def length(self) -> int:
        """How many messages there are."""
        return self._length

    def size(self) -> int:
        """How many bytes the files have."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def reopen(self, length: int) -> None:
        """The conversation that another process filled."""
        self.close()
        self._driver, self._length = self._make(self._folder), length

    @property
    def _open(self) -> Driver:
        assert self._driver is not None, "nothing is open"
        return self._driver


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in status if line.startswith(field))) * 1024


def main() -> None:
    name, folder = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a peer prints is no answer
    module, _, kind = name.partition(":")
    driver = getattr(importlib.import_module(f"benchmarks.drivers.{module}"), kind)
    server = Server(driver, Path(folder))
    print(json.dumps({"answer": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        command, arguments = json.loads(line)
        answer: Any
        try:
            answer = {"answer": getattr(server, command)(**arguments)}
        except Exception as error:  # whatever a peer raises is its result
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)
    server.close()


if __name__ == "__main__":
    main()
