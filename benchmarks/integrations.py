"""Our stores beside the frameworks' own, through the frameworks' protocols, in turn: ``python -m benchmarks.integrations``.

It runs in a framework's environment (``tests/integrations/environments.py``), and prints lines for docs/integrations.md: milliseconds
of theirs and ours, and their ratio; below, the same of processor time, of all threads. The 20th percentile of each is compared: what
the machine does besides makes calls longer, and never shorter. A folder can be given: on ``/dev/shm`` nobody waits for a disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROUNDS = 40
TOGETHER = 4
LENGTHS = (10, 1_000, 20_000)
SESSIONS = 64
SESSION_BYTES = 20_000_000

Call = Callable[[], Awaitable[object]]
CALLS: dict[str, tuple[Callable[[Any], Awaitable[object]], int]] = {
    "add_items, 2 items": (lambda session: session.add_items([item(1), item(2)]), ROUNDS),
    "get_items(50)": (lambda session: session.get_items(50), ROUNDS),
    "get_items(1)": (lambda session: session.get_items(1), ROUNDS),
    "get_items()": (lambda session: session.get_items(), 10),
    "pop_item": (lambda session: session.pop_item(), ROUNDS),
}


def item(n: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{n} {'x' * 1000}"}


class Took(NamedTuple):
    """Of one call, in milliseconds."""

    on_the_clock: float
    of_processors: float


async def beside(theirs: Call, ours: Call, rounds: int) -> tuple[Took, Took]:
    """The 20th percentile of each, taken in turn: a few of theirs, a few of ours. What a thread does behind a call is in the next one."""
    times: tuple[list[Took], list[Took]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            began, processors = time.perf_counter(), time.process_time()
            for _ in range(TOGETHER):
                await (theirs, ours)[which]()
            took = time.perf_counter() - began, time.process_time() - processors
            times[which].append(Took(*(1000 * seconds / TOGETHER for seconds in took)))
    first, second = (Took(*(sorted(clock)[rounds // 5] for clock in zip(*each, strict=True))) for each in times)
    return first, second


def tell(what: str, theirs: Took, ours: Took) -> None:
    for each, one, other in zip((what, "processor time"), theirs, ours, strict=True):
        row = f"{each} | {one:.2f} | {other:.2f} | {other / one:.2f}"
        print(f"| {row} |" if each == what else f"    {row}", flush=True)


async def of_openai_agents(folder: Path) -> None:
    from agents import SQLiteSession

    from transcript_store.integrations.openai_agents import TranscriptSession

    for length in LENGTHS:
        theirs: Any = SQLiteSession("one", folder / f"{length}.db")
        ours: Any = TranscriptSession("one", folder / f"{length}")
        for session in (theirs, ours):
            await session.add_items([item(n) for n in range(length)])
        for name, (call, rounds) in CALLS.items():
            tell(f"`{name}`, {length:,} items", *await beside(partial(call, theirs), partial(call, ours), rounds))
        theirs.close()
        ours.close()


async def memory_of_openai_agents(folder: Path) -> None:
    from transcript_store import ConversationStore
    from transcript_store.integrations.openai_agents import TranscriptSession

    sessions = [TranscriptSession(f"{n}", folder / "many") for n in range(SESSIONS)]
    for session in sessions:
        await session.add_items([item(n) for n in range(SESSION_BYTES // 1100)])
        session.close()
    child = os.fork()  # without what the writing left in memory
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.integrations", "resident", str(folder / "many")])
    os.waitpid(child, 0)
    with ConversationStore(sessions[0].directory, read_only=True) as conversation:
        conversation.load()
        print(f"(each session has {conversation.record_count:,} items)")


async def resident(folder: str) -> None:
    from transcript_store.integrations.openai_agents import TranscriptSession

    def now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = now()
    sessions = [TranscriptSession(f"{n}", folder) for n in range(SESSIONS)]
    for session in sessions:
        await session.add_items([item(1), item(2)])
        await session.get_items(50)
    print(f"{SESSIONS} sessions of 20 MB, each with a turn: {(now() - before) / 1e6:.0f} MB")


async def of_claude_agent_sdk(folder: Path) -> None:
    from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore

    numbers = iter(range(10**9))
    key = {"project_key": "p", "session_id": "one"}

    def entries(number: int) -> list[dict[str, Any]]:
        return [{"type": "user", "uuid": f"{next(numbers)}", "message": item(n)} for n in range(number)]

    async def to_file(path: Path, number: int) -> None:
        """What a store would be that writes lines and syncs them, in a thread as it must not stop the event loop."""
        lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries(number))

        def write() -> None:
            with path.open("ab", buffering=0) as file:
                file.write(lines)
                os.fdatasync(file.fileno())

        await asyncio.to_thread(write)

    async def to_store(store: Any, number: int) -> None:
        await store.append(key, entries(number))

    for length in LENGTHS:
        path, store = folder / f"{length}.jsonl", TranscriptSessionStore(folder / f"{length}")
        await to_file(path, length)
        await to_store(store, length)
        figures = await beside(partial(to_file, path, 4), partial(to_store, store, 4), ROUNDS * 2)
        tell(f"`append`, 4 entries, {length:,} there", *figures)
        store.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["resident"]:
        asyncio.run(resident(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as scratch:
            if find_spec("agents"):
                asyncio.run(of_openai_agents(Path(scratch)))
                asyncio.run(memory_of_openai_agents(Path(scratch)))
            if find_spec("claude_agent_sdk"):
                asyncio.run(of_claude_agent_sdk(Path(scratch)))
