"""The contract of an integration, as numbered checks: what a framework's store of conversations keeps, on top of the framework's own.

The docstring of a check is the rule that an error prints.
"""

from __future__ import annotations

import asyncio
import enum
import json
import math
import os
import select
import signal
import tempfile
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcript_store import ConversationLibrary, ConversationStore, CorruptTranscriptError, repair, verify
from transcript_store.errors import ConversationNotFoundError
from transcript_store.testing._arguments import require_function

if TYPE_CHECKING:
    from transcript_store.backends import Backend

__all__ = ["IntegrationBench", "check_integration"]


# ---- integration bench ----
# What the contract of an integration works on: a bench, and the conversations under it, in a directory or on a backend.


class IntegrationBench(ABC):
    """How the contract uses an integration: yours to write, a few lines each. All in one library; each key is a conversation.

    Args:
        directory: of the library; or a library on a backend, if the contract is given one.
    """

    keeps_nan: bool = True
    """True if the framework's own encoding keeps NaN and infinities. (pydantic's writes null.)"""

    def __init__(self, directory: str | ConversationLibrary) -> None:
        self.directory = directory

    @abstractmethod
    def item(self, value: Any) -> Any:
        """An item of the framework that carries a value which ``json`` can write."""

    @abstractmethod
    def value_in(self, item: Any) -> Any:
        """The value that an item carries."""

    @abstractmethod
    async def add(self, key: str, items: list[Any]) -> None:
        """Add items by one call of the framework's protocol, with an object of the integration made for this call."""

    @abstractmethod
    async def items(self, key: str) -> list[Any]:
        """All items, read by the framework's protocol, with an object made for this call; none if nothing was added."""

    @abstractmethod
    def folder(self, key: str) -> str:
        """The conversation's folder. On a backend, any path that ends with the conversation's id."""

    @abstractmethod
    def close(self, key: str) -> None:
        """Close the conversation's files. No other process waits for this."""


MakeBench = Callable[[Any], IntegrationBench]


class Underneath:
    """A bench on a directory, or on a backend where each rule has its own keys."""

    def __init__(
        self, make_bench: MakeBench, directory: str, backend: Callable[[], Backend] | None, prefix: str
    ) -> None:
        self._make_bench, self._open_backend = make_bench, backend
        self._prefix = "" if backend is None else prefix
        self.directory = directory
        self.open()

    def open(self) -> None:
        """Create the bench, also again in another process: a backend's open connections cannot be passed on."""
        self.backend = None if self._open_backend is None else self._open_backend()
        self.library = None if self.backend is None else ConversationLibrary(self.backend)
        self.bench = self._make_bench(self.directory if self.library is None else self.library)

    async def add(self, key: str, *values: Any) -> None:
        await self.bench.add(self._prefix + key, [self.bench.item(value) for value in values])

    async def values(self, key: str) -> list[Any]:
        return [self.bench.value_in(item) for item in await self.bench.items(self._prefix + key)]

    def close(self, key: str) -> None:
        self.bench.close(self._prefix + key)

    def folder(self, key: str) -> Path:
        return Path(self.bench.folder(self._prefix + key))

    def holding(self, key: str) -> ConversationLibrary:
        """The library in which the conversation is."""
        return self.library or ConversationLibrary(self.folder(key).parent)

    def is_there(self, key: str) -> bool:
        try:
            self.read(key).close()
        except ConversationNotFoundError:
            return False
        return True

    def read(self, key: str) -> ConversationStore:
        return self.holding(key).open(self.folder(key).name, read_only=True)

    def is_intact(self, key: str) -> bool:
        verification = self.holding(key).verify(self.folder(key).name) if self.library else verify(self.folder(key))
        return verification.is_intact and not verification.findings

    def damage(self, key: str) -> Callable[[], None]:
        """Change the stored bytes; returns a function that restores the rest. Not possible on a backend: its slots are written once."""
        if self.backend is not None:
            name = self.folder(key).name
            last = max(self.backend.read(name), key=lambda piece: piece.last)
            data = last.data[last.data.rindex(b'{"slot":') :]
            envelope, _, lines = data.partition(b"\n")
            assert self.backend.put(name, last.last + 1, envelope + b"\n" + lines, envelope[-34:-2])
            return lambda: None
        transcript = self.folder(key) / "transcript.jsonl"
        lines_of_it = transcript.read_bytes().splitlines(keepends=True)
        lines_of_it[10] = lines_of_it[10].replace(b'"seq"', b'"sEq"')
        transcript.write_bytes(b"".join(lines_of_it))
        return lambda: self._repair(transcript, b"".join(lines_of_it))

    @staticmethod
    def _repair(transcript: Path, damaged: bytes) -> None:
        assert transcript.read_bytes() == damaged, "a read changed it"
        repair(transcript.parent, mode="salvage", dry_run=False)


# ---- integration contract ----

_KEYS = (
    "",
    ".",
    "../../etc/passwd",
    "/",
    "user-1",
    "User-1",
    "user-1\0",
    "user-1\n",
    " user-1",
    "caf\u00e9",
    "cafe\u0301",
    "\ud800",
    "\udfff\U0001f600",
    "con",
    "x" * 100_000,
    "x" * 100_001,
)


_PATIENCE_SECONDS = 60


class _Colour(enum.StrEnum):
    RED = "red"


_VALUES: tuple[Any, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    1e16,
    2**64,
    -(10**30),
    "\ud800",
    "\u2028 <&> \U0001f600 \0",
    _Colour.RED,
    (1, (2, 3)),
    {"transcript_store.json": "1"},
    {"": None, "a": [True, {}]},
)


def check_integration(
    make_bench: MakeBench, *, backend: Callable[[], Backend] | None = None, is_shared: bool = True
) -> None:
    """Check an integration against the contract, with asyncio. It returns nothing if the integration keeps it.

    Args:
        make_bench: makes a bench in an empty directory, whose path it is given; or on a library, if there is a backend.
        backend: opens a backend without conversations, and each time the same one, as another process would. The conversations stay there.
        is_shared: whether several processes see the same backend. One in memory they do not share, and I11 is left out.

    Raises:
        TypeError: ``make_bench`` or ``backend`` is not a function.
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``I7``.
    """
    require_function("make_bench", make_bench)
    if backend is not None:
        require_function("backend", backend)
    for number, check in enumerate(CONTRACT, 1):
        if backend is not None and not is_shared and check is _processes:
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                checking = check(Underneath(make_bench, directory, backend, f"{number} "))
                if checking is not None:
                    asyncio.run(checking)
            except Exception as error:
                raise AssertionError(f"I{number}, {(check.__doc__ or '').strip()} {error!r}") from error


async def _nothing(bench: Underneath) -> None:
    """A key that was never written is empty, and reading it creates nothing."""
    assert await bench.values("unknown") == []
    assert list(Path(bench.directory).iterdir()) == []
    assert not bench.is_there("unknown")


async def _in_order(bench: Underneath) -> None:
    """Batches come back whole and in order, also after a close; a transcript that verifies is under them."""
    for batch in ([0], [1, 2, 3], [4]):
        await bench.add("k", *batch)
    assert await bench.values("k") == [0, 1, 2, 3, 4]
    bench.close("k")
    assert bench.is_intact("k")
    await bench.add("k", 5)
    assert await bench.values("k") == [0, 1, 2, 3, 4, 5]
    bench.close("k")


async def _keys(bench: Underneath) -> None:
    """A key may have any characters and any length. Each has its own conversation inside the directory, named by its id."""
    for number, key in enumerate(_KEYS):
        await bench.add(key, number)
    for number, key in enumerate(_KEYS):
        assert await bench.values(key) == [number], f"the key {key[:20]!r}"
        bench.close(key)
        if bench.library is None:
            assert bench.folder(key).resolve().is_relative_to(Path(bench.directory).resolve())
        with bench.read(key) as conversation:
            assert conversation.id == bench.folder(key).name


async def _objects(bench: Underneath) -> None:
    """Any number of objects and tasks may use one key: each batch is stored once and together, each task's in its order."""

    async def task(name: int) -> None:
        for n in range(3):
            await bench.add("k", [name, n, 0], [name, n, 1])

    await asyncio.gather(*map(task, range(10)))
    values = await bench.values("k")
    assert sorted(values) == [[name, n, k] for name in range(10) for n in range(3) for k in range(2)]
    assert all(values[i + 1] == [*values[i][:2], 1] for i in range(0, 60, 2))
    for name in range(10):
        own = [value for value in values if value[0] == name]
        assert own == sorted(own)
    bench.close("k")


async def _what_json_writes(bench: Underneath) -> None:
    """Whatever ``json.dumps`` writes comes back as ``json.loads`` reads it: NaN, lone surrogates, large integers, enums, tuples."""
    values = [
        value for value in _VALUES if bench.bench.keeps_nan or not isinstance(value, float) or math.isfinite(value)
    ]
    await bench.add("k", *values)
    bench.close("k")
    found = await bench.values("k")
    assert [json.dumps(value) for value in found] == [json.dumps(value) for value in values]
    bench.close("k")


async def _refused(bench: Underneath) -> None:
    """An item that cannot be written makes the whole batch fail before anything is stored; the next call continues."""
    await bench.add("k", 1)
    try:
        await bench.add("k", 2, object())
    except Exception:  # noqa: S110  # the framework says which
        pass
    else:
        raise AssertionError("an object() was accepted")
    await bench.add("k", 3)
    assert await bench.values("k") == [1, 3]
    bench.close("k")


async def _copied(bench: Underneath) -> None:
    """The store keeps a copy of the arguments, and a read returns the reader's own copy."""
    value = {"n": [1]}
    await bench.add("k", value)
    value["n"].append(2)
    (await bench.values("k"))[0]["n"].append(3)
    assert await bench.values("k") == [{"n": [1]}]
    bench.close("k")


async def _cancelled(bench: Underneath) -> None:
    """A cancelled call is over when it raises: its batch is stored whole by then, or not at all and never later."""
    await bench.add("k", "first")
    for steps in range(12):
        call = asyncio.create_task(bench.add("k", [steps, 0], [steps, 1]))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        before = await bench.values("k")
        await asyncio.sleep(0.01)
        assert await bench.values("k") == before
        assert before.count([steps, 0]) == before.count([steps, 1]) <= 1
    bench.close("k")


async def _damaged(bench: Underneath) -> None:
    """A damaged session is an error at every read, and never an empty or a shorter history; a repair brings back the rest."""
    await bench.add("k", *range(20))
    bench.close("k")
    bring_back = bench.damage("k")
    for _ in range(2):
        error = await _error(bench.values("k"))
        assert isinstance(error, CorruptTranscriptError), repr(error)
    bring_back()
    if bench.library is None:
        assert len(await bench.values("k")) == 19
        bench.close("k")
        assert bench.is_intact("k")


async def _forked(bench: Underneath) -> None:
    """The conversation underneath is an ordinary one: it can be listed and forked, and says whose items it has."""
    await bench.add("k", 1, 2)
    bench.close("k")
    library, name = bench.holding("k"), bench.folder("k").name
    assert name in [summary.id for summary in library.list()]
    with library.open(library.fork(name)) as fork, bench.read("k") as original:
        assert fork.get_messages() == original.get_messages()
        assert original.get_metadata().provider


def _processes(bench: Underneath) -> None:
    """Objects of several processes take turns at one key, also if one of them is killed, and never wait for a process
    that did not close.

    Each batch that a call returned for is stored once and together, each process's in order.
    """
    asyncio.run(bench.add("k", "first"))  # and this process does not close it
    with ExitStack() as at_the_end:
        processes = [_Process(bench, name, count, at_the_end) for name, count in enumerate((10_000, 12, 12))]
        doomed, *others = processes
        doomed.wait_for(4)
        doomed.end(signal.SIGKILL)
        for process in others:
            process.wait_for(12)
            process.end()
    first, *values = asyncio.run(bench.values("k"))
    assert first == "first"
    for process in processes:
        own = [value for value in values if value[0] == process.name]
        stored = len(own) // 2
        assert own == [[process.name, n, k] for n in range(stored) for k in range(2)]
        assert process.said <= stored <= process.said + 1, f"{stored} batches, but {process.said} were reported"
    assert all(values[i + 1] == [*values[i][:2], 1] for i in range(0, len(values), 2))
    asyncio.run(bench.add("k", "last"))
    assert asyncio.run(bench.values("k")) == ["first", *values, "last"]
    bench.close("k")
    assert bench.is_intact("k")


class _Process:
    """A forked process that adds so many batches under one key, and says after each that it is stored."""

    def __init__(self, bench: Underneath, name: int, count: int, at_the_end: ExitStack) -> None:
        self.name = name
        self.said = 0
        self._pipe, says = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads, which wait and hold nothing
            self._id = os.fork()
        if self._id == 0:
            failed = 1
            try:
                asyncio.run(self._live(bench, count, says))
                failed = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(failed)
        os.close(says)
        at_the_end.callback(self.end, signal.SIGKILL)

    async def _live(self, bench: Underneath, count: int, says: int) -> None:
        bench.open()
        for n in range(count):
            await bench.add("k", [self.name, n, 0], [self.name, n, 1])
            os.write(says, b".")

    def wait_for(self, count: int) -> None:
        """Wait until it has said so much."""
        while self.said < count:
            ready, _, _ = select.select([self._pipe], [], [], _PATIENCE_SECONDS)
            said = len(os.read(self._pipe, 4096)) if ready else 0
            assert said, f"process {self.name} stored {self.said} batches, and then {'ended' if ready else 'waited'}"
            self.said += said

    def end(self, with_signal: int | None = None) -> None:
        """Kill it, or let it end well; all that it said is counted. A second time does nothing."""
        if self._id == 0:
            return
        if with_signal is not None:
            os.kill(self._id, with_signal)
        while said := len(os.read(self._pipe, 4096)):
            self.said += said
        os.close(self._pipe)
        _, status = os.waitpid(self._id, 0)
        self._id = 0
        assert with_signal is not None or status == 0, f"process {self.name} failed"


CONTRACT: tuple[Callable[[Underneath], Coroutine[Any, Any, None] | None], ...] = (
    _nothing,
    _in_order,
    _keys,
    _objects,
    _what_json_writes,
    _refused,
    _copied,
    _cancelled,
    _damaged,
    _forked,
    _processes,
)


async def _error(call: Awaitable[Any]) -> Exception | None:
    try:
        await call
    except Exception as error:
        return error
    return None
