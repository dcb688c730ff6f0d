"""Forked processes that report over a pipe, and a gate at which they wait."""

from __future__ import annotations

import gc
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from random import Random
from typing import ClassVar

Work = Callable[[Callable[[object], None]], object]
"""What a child does; it is given a function with which it says things."""


class Child:
    """A forked process that does some work and may say things, a line each."""

    running: ClassVar[dict[int, Child]] = {}

    def __init__(self, work: Work) -> None:
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


def storm(writer: Callable[[int], Work], kills: int, randomly: Random) -> dict[int, int]:
    """Eight writers at a time, of which one is killed and another begins, so many times; at the end all are killed.

    Returns how many messages each was told are stored. A writer says that number, a line each time.
    """
    children = {number: Child(writer(number)) for number in range(8)}
    acknowledged: dict[int, int] = {}
    for started in range(8, 8 + kills):
        wait_for_any(children.values(), lines=randomly.randrange(1, 12))
        number = randomly.choice(sorted(children))
        acknowledged[number] = _last_said(children.pop(number))
        children[started] = Child(writer(started))
    return acknowledged | {number: _last_said(child) for number, child in children.items()}


def _last_said(child: Child) -> int:
    lines = child.end(signal.SIGKILL)
    return int(lines[-1]) if lines else 0


def check_storm(acknowledged: dict[int, int], found: dict[int, list[int]], kills: int) -> None:
    """Each writer's messages are stored once and in order, with at most two more than were acknowledged."""
    for number, count in acknowledged.items():
        own = found.pop(number, [])
        assert own == list(range(len(own))), f"writer {number}: lost, twice or out of order: {own}"
        assert len(own) - count in (0, 1, 2), f"writer {number}: {count} acknowledged, {len(own)} there"
    assert not found
    assert sum(acknowledged.values()) > kills, "they hardly got to write: this proved nothing"


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
