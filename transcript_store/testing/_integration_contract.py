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
from typing import Any

from transcript_store import ConversationLibrary, ConversationStore, CorruptTranscriptError, repair, verify
from transcript_store.testing._arguments import require_function

__all__ = ["IntegrationBench", "check_integration"]

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


class IntegrationBench(ABC):
    """How the contract uses an integration: yours to write, a few lines each. All in one directory; each key is a conversation."""

    keeps_nan: bool = True
    """Whether the framework's own encoding keeps NaN and infinities. (pydantic's writes null.)"""

    def __init__(self, directory: str) -> None:
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
        """The conversation's folder."""

    @abstractmethod
    def close(self, key: str) -> None:
        """Close the conversation's files. Nobody else waits for this."""


MakeBench = Callable[[str], IntegrationBench]


def check_integration(make_bench: MakeBench) -> None:
    """Check an integration against the contract, with asyncio. It returns nothing if the integration keeps it.

    Args:
        make_bench: makes a bench in an empty directory, whose path it is given.

    Raises:
        TypeError: ``make_bench`` is not a function.
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``I7``.
    """
    require_function("make_bench", make_bench)
    for number, check in enumerate(CONTRACT, 1):
        with tempfile.TemporaryDirectory() as directory:
            try:
                checking = check(make_bench(directory))
                if checking is not None:
                    asyncio.run(checking)
            except Exception as error:
                raise AssertionError(f"I{number}, {(check.__doc__ or '').strip()} {error!r}") from error


async def _nothing(bench: IntegrationBench) -> None:
    """What was never written is empty, and asking for it makes nothing."""
    assert await bench.items("nobody") == []
    assert list(Path(bench.directory).iterdir()) == []


async def _in_order(bench: IntegrationBench) -> None:
    """Batches come back whole and in order, also after a close; a transcript that verifies is under them."""
    for batch in ([0], [1, 2, 3], [4]):
        await _add(bench, "k", *batch)
    assert await _values(bench, "k") == [0, 1, 2, 3, 4]
    bench.close("k")
    assert verify(bench.folder("k")).is_whole
    await _add(bench, "k", 5)
    assert await _values(bench, "k") == [0, 1, 2, 3, 4, 5]
    bench.close("k")


async def _keys(bench: IntegrationBench) -> None:
    """A key may have any characters and any length. Each has a conversation of its own, inside the directory, named by its id."""
    for number, key in enumerate(_KEYS):
        await _add(bench, key, number)
    for number, key in enumerate(_KEYS):
        assert await _values(bench, key) == [number], f"the key {key[:20]!r}"
        bench.close(key)
        assert Path(bench.folder(key)).resolve().is_relative_to(Path(bench.directory).resolve())
        with ConversationStore(bench.folder(key), read_only=True) as conversation:
            conversation.load()
            assert conversation.id == Path(bench.folder(key)).name


async def _objects(bench: IntegrationBench) -> None:
    """Any number of objects and tasks may use one key: each batch is there once and together, each task's in its order."""

    async def task(name: int) -> None:
        for n in range(3):
            await _add(bench, "k", [name, n, 0], [name, n, 1])

    await asyncio.gather(*map(task, range(10)))
    values = await _values(bench, "k")
    assert sorted(values) == [[name, n, k] for name in range(10) for n in range(3) for k in range(2)]
    assert all(values[i + 1] == [*values[i][:2], 1] for i in range(0, 60, 2))
    for name in range(10):
        own = [value for value in values if value[0] == name]
        assert own == sorted(own)
    bench.close("k")


async def _what_json_writes(bench: IntegrationBench) -> None:
    """Whatever ``json.dumps`` writes comes back as ``json.loads`` reads it: NaN, lone surrogates, large integers, enums, tuples."""
    values = [value for value in _VALUES if bench.keeps_nan or not isinstance(value, float) or math.isfinite(value)]
    await _add(bench, "k", *values)
    bench.close("k")
    found = await _values(bench, "k")
    assert [json.dumps(value) for value in found] == [json.dumps(value) for value in values]
    bench.close("k")


async def _refused(bench: IntegrationBench) -> None:
    """What cannot be written refuses the whole batch, before anything is stored; the next call goes on."""
    await _add(bench, "k", 1)
    try:
        await _add(bench, "k", 2, object())
    except Exception:  # noqa: S110  # the framework says which
        pass
    else:
        raise AssertionError("an object() was accepted")
    await _add(bench, "k", 3)
    assert await _values(bench, "k") == [1, 3]
    bench.close("k")


async def _copied(bench: IntegrationBench) -> None:
    """What is stored is what was given when the call was made, and what is read is the reader's own."""
    value = {"n": [1]}
    item = bench.item(value)
    await bench.add("k", [item])
    value["n"].append(2)
    (await _values(bench, "k"))[0]["n"].append(3)
    assert await _values(bench, "k") == [{"n": [1]}]
    bench.close("k")


async def _cancelled(bench: IntegrationBench) -> None:
    """A cancelled call is over when it raises: its batch is stored whole by then, or not at all and never later."""
    await _add(bench, "k", "first")
    for steps in range(12):
        call = asyncio.create_task(_add(bench, "k", [steps, 0], [steps, 1]))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        before = await _values(bench, "k")
        await asyncio.sleep(0.01)
        assert await _values(bench, "k") == before
        assert before.count([steps, 0]) == before.count([steps, 1]) <= 1
    bench.close("k")


async def _damaged(bench: IntegrationBench) -> None:
    """A damaged session is an error at every read, and never an empty or a shorter history; a repair brings back the rest."""
    await _add(bench, "k", *range(20))
    bench.close("k")
    transcript = Path(bench.folder("k"), "transcript.jsonl")
    whole = transcript.read_bytes()
    lines = whole.splitlines(keepends=True)
    lines[10] = lines[10].replace(b'"seq"', b'"sEq"')
    transcript.write_bytes(b"".join(lines))
    for _ in range(2):
        error = await _error(_values(bench, "k"))
        assert isinstance(error, CorruptTranscriptError), repr(error)
    assert transcript.read_bytes() == b"".join(lines)
    repair(bench.folder("k"), mode="salvage", dry_run=False)
    assert len(await _values(bench, "k")) == 19
    bench.close("k")
    assert not verify(bench.folder("k")).findings


async def _forked(bench: IntegrationBench) -> None:
    """The conversation underneath is an ordinary one: it can be listed and forked, and says whose items it has."""
    await _add(bench, "k", 1, 2)
    bench.close("k")
    folder = Path(bench.folder("k"))
    library = ConversationLibrary(folder.parent)
    assert folder.name in [summary.id for summary in library.list()]
    with library.open(library.fork(folder.name)) as fork, ConversationStore(folder, read_only=True) as original:
        original.load()
        assert fork.get_messages() == original.get_messages()
        assert original.get_metadata().provider


def _processes(bench: IntegrationBench) -> None:
    """Objects of several processes take turns at one key, also if one of them is killed, and wait for nobody who did not close.

    Each batch that a process was told is stored is there once and together, each process's in its order.
    """
    asyncio.run(_add(bench, "k", "first"))  # and this process does not close it
    with ExitStack() as at_the_end:
        processes = [_Process(bench, name, count, at_the_end) for name, count in enumerate((10_000, 12, 12))]
        doomed, *others = processes
        doomed.wait_for(4)
        doomed.end(signal.SIGKILL)
        for process in others:
            process.wait_for(12)
            process.end()
    first, *values = asyncio.run(_values(bench, "k"))
    assert first == "first"
    for process in processes:
        own = [value for value in values if value[0] == process.name]
        stored = len(own) // 2
        assert own == [[process.name, n, k] for n in range(stored) for k in range(2)]
        assert process.said <= stored <= process.said + 1, f"{stored} batches, and {process.said} were told"
    assert all(values[i + 1] == [*values[i][:2], 1] for i in range(0, len(values), 2))
    asyncio.run(_add(bench, "k", "last"))
    assert asyncio.run(_values(bench, "k")) == ["first", *values, "last"]
    bench.close("k")
    assert verify(bench.folder("k")).is_whole


class _Process:
    """A forked process that adds so many batches under one key, and says after each that it is stored."""

    def __init__(self, bench: IntegrationBench, name: int, count: int, at_the_end: ExitStack) -> None:
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

    async def _live(self, bench: IntegrationBench, count: int, says: int) -> None:
        for n in range(count):
            await _add(bench, "k", [self.name, n, 0], [self.name, n, 1])
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


CONTRACT: tuple[Callable[[IntegrationBench], Coroutine[Any, Any, None] | None], ...] = (
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


async def _add(bench: IntegrationBench, key: str, *values: Any) -> None:
    await bench.add(key, [bench.item(value) for value in values])


async def _values(bench: IntegrationBench, key: str) -> list[Any]:
    return [bench.value_in(item) for item in await bench.items(key)]


async def _error(call: Awaitable[Any]) -> Exception | None:
    try:
        await call
    except Exception as error:
        return error
    return None
