"""Forked processes that say what they did over a pipe, and a gate at which they wait."""

from __future__ import annotations

import gc
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import ClassVar


class Child:
    """A forked process that does some work and may say things, a line each."""

    running: ClassVar[dict[int, Child]] = {}

    def __init__(self, work: Callable[[Callable[[object], None]], object]) -> None:
        self.said = bytearray()
        self._pipe, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the children are prepared
            self.pid = os.fork()
        if self.pid == 0:
            # In the child, or its first full collection would copy every page of its parent's objects. The parent must not
            # unfreeze: what conftest.py froze would be gone through again at each collection.
            gc.freeze()

            def say(thing: object) -> None:
                os.writev(write, [f"{thing}\n".encode()])  # not a write: those are refused in some tests, this never is

            code = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's timeout is the parent's
                work(say)
                code = 0
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(code)
        os.close(write)
        self.running[self.pid] = self

    def wait_for(self, count: int = 1, seconds: float = 30) -> list[str]:
        """The first ``count`` lines, waited for."""
        until = time.monotonic() + seconds
        while self.said.count(b"\n") < count:
            data = os.read(self._pipe, 65536) if self._has_said_more(until - time.monotonic()) else b""
            if not data:
                raise AssertionError(f"the child said only {bytes(self.said)!r}")
            self.said += data
        return self.said.decode().split("\n")[:count]

    def wait_until_it_said(self, last: str, seconds: float = 60) -> list[str]:
        """Every line up to ``last``, or all of them if it died before it said that."""
        until = time.monotonic() + seconds
        while not self.said.endswith(f"{last}\n".encode()):
            if not self._has_said_more(until - time.monotonic()):
                raise AssertionError(f"the child said only {bytes(self.said)!r}")
            if not (data := os.read(self._pipe, 65536)):
                break
            self.said += data
        return self.said.decode().split("\n")[:-1]

    def has_said(self) -> list[str]:
        """Every line until now, without waiting."""
        while self._has_said_more(0) and (data := os.read(self._pipe, 65536)):
            self.said += data
        return self.said.decode().split("\n")[:-1]

    def _has_said_more(self, seconds: float) -> bool:
        poll = select.poll()  # select() knows no descriptor above 1023
        poll.register(self._pipe, select.POLLIN)
        return bool(poll.poll(max(0, seconds) * 1000))

    def end(self, with_signal: int | None = None, *, to_the_last_word: bool = True) -> list[str]:
        """Kill it, or let it end well; returns every line that it said (its own children may have more to say)."""
        if with_signal is not None:
            os.kill(self.pid, with_signal)
        while to_the_last_word and (data := os.read(self._pipe, 65536)):
            self.said += data
        os.close(self._pipe)
        _, status = os.waitpid(self.pid, 0)
        del self.running[self.pid]
        assert with_signal is not None or status == 0, f"the child failed: {status}"
        *lines, rest = self.said.decode().split("\n")
        assert not rest
        return lines


def wait_for_any(children: Iterable[Child], *, lines: int, seconds: float = 60) -> None:
    """Wait until some of these children, whichever, have said so many lines more; what they said is kept."""
    poll, by_pipe = select.poll(), {child._pipe: child for child in children}
    for pipe in by_pipe:
        poll.register(pipe, select.POLLIN)
    until = time.monotonic() + seconds
    while lines > 0:
        ready = poll.poll(max(0, until - time.monotonic()) * 1000)
        assert ready, "they all fell silent"
        for pipe, _ in ready:
            data = os.read(pipe, 65536)
            assert data, f"a child ended: {bytes(by_pipe[pipe].said)!r}"
            by_pipe[pipe].said += data
            lines -= data.count(b"\n")


class Gate:
    """Children that wait() at it go on when the parent opens it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._arrived = False

    def arrive(self) -> None:
        """In the child: what is left to do is to read."""
        if not self._arrived:
            self._arrived = True
            os.close(self._write)

    def wait(self) -> None:
        self.arrive()
        os.read(self._read, 1)

    def open(self) -> None:
        os.close(self._write)
        os.close(self._read)
