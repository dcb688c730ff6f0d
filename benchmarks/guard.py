"""A loss of speed is seen: ``python -m benchmarks.guard`` holds ratios against the bounds in guard.json; ``--set`` makes new ones.

Bounds that are set again and again could creep. So guard_states.json has what each operation cost at fixed states of the history, and no
bound may be far above the last of them. A state is measured with ``--one`` in a checkout of it that has this folder ``benchmarks``.

Each operation and the plainest way to do the same are timed in turn, in one go, by the processor time that they take: who else is
at work, and how fast the disk is, weighs little then. The least of the rounds counts on both sides. Each has an interpreter of its
own: where earlier work has left the memory in pieces, the messages lie far apart, and whoever looks at each of them pays for it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import pairs
from benchmarks.pairs import KEY, Pair

BOUNDS = Path(__file__).with_name("guard.json")
STATES = Path(__file__).with_name("guard_states.json")
MARGIN = 1.3
"""A bound is this much above what was measured when it was set. The least of a few measurements while eighteen processes wait for two
cores is up to 1.13 times the least on a quiet machine; a loss of a half is more than the margin."""

CREEP = 1.15
"""So far may a bound be above that of the last fixed state: what two measurements of the same differ by on a busy machine. The bounds
of "list" and "last 50" use it: for the same code, an Intel Xeon without SHA instructions takes 2.4 and 3.3 at the least, an AMD EPYC 1.8
and 2.6."""

PAUSES = (0, 5, 20, 60)
"""Seconds before each attempt: a loss is there each time, a neighbour who is at work is gone after a while."""

_LEAST_ROUNDS, _MOST_ROUNDS, _SECONDS = 7, 60, 1.0
_MEMORY = Path("/dev/shm")


def processor_seconds() -> float:
    """The processor time of this process and of the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cost(pair: Pair) -> float:
    """How many times the plain way's processor time ours takes: the least of the rounds over the least of the rounds."""
    least = [float("inf"), float("inf")]
    end = time.perf_counter() + _SECONDS
    for number in range(_MOST_ROUNDS):
        if number > _LEAST_ROUNDS and time.perf_counter() > end:
            break
        gc.collect()
        for index, way in enumerate((pair.ours, pair.plain)):
            begin = processor_seconds()
            result = way()
            seconds = processor_seconds() - begin
            if pair.after is not None:
                pair.after(result)
            del result
            least[index] = min(least[index], seconds)
    return least[0] / least[1]


def slowed(pair: Pair, factor: float) -> Pair:
    """The same pair with ours made slower: what the guard has to see."""

    def slow() -> Any:
        begin = processor_seconds()
        result = pair.ours()
        end = begin + (processor_seconds() - begin) * factor
        while processor_seconds() < end:
            pass
        return result

    return pair._replace(ours=slow)


# ---- what is held ----------------------------------------------------------------------------------------------------

_Ready = Callable[[Path], AbstractContextManager[Pair]]
_MESSAGES = 2_000


def _often(ready: _Ready, calls: int) -> _Ready:
    """Each way so many times at once, where one call is too short to be timed."""

    @contextmanager
    def made(folder: Path) -> Iterator[Pair]:
        with ready(folder) as pair:
            yield Pair(lambda: [pair.ours() for _ in range(calls)], lambda: [pair.plain() for _ in range(calls)])

    return made


def _of_a_conversation(
    ready: Callable[..., AbstractContextManager[Pair]], *, at_once: int | None = None, **options: Any
) -> _Ready:
    @contextmanager
    def made(folder: Path) -> Iterator[Pair]:
        path = pairs.make_conversation(folder / "conversation", _MESSAGES, at_once=at_once)
        with ready(path, **options) as pair:
            yield pair
        shutil.rmtree(path)

    return made


_OUTSIDE = "datetime, enum, fcntl, hashlib, hmac, inspect, json, logging, mmap, orjson, platform, typing, uuid"
"""What the package imports of others when it is imported. A list, or one more of them would weigh the same on both sides."""


@contextmanager
def _importing(folder: Path) -> Iterator[Pair]:
    """``from transcript_store import ConversationStore``, beside an import of what it needs of others."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "byte-code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=pairs.TOP)

    yield Pair(partial(start, "from transcript_store import ConversationStore"), partial(start, f"import {_OUTSIDE}"))


CHECKS: dict[str, _Ready] = {
    "append, durable": _often(partial(pairs.appending, durability="power-loss", encoded_bytes=1024), 400),
    "append": _often(partial(pairs.appending, durability="process-crash", encoded_bytes=1024), 400),
    # Beside a way without hashes, it measured how fast the processor hashes: it differs fourfold from one to the next.
    "load": _of_a_conversation(pairs.loading, read_only=False, hashed=True),
    # An import, a group and a client leave batches, which `initialize` does not.
    "load, appended 500 at a time": _of_a_conversation(pairs.loading, read_only=False, at_once=500),
    "get_messages": _of_a_conversation(pairs.getting),
    "get beyond the cache": _of_a_conversation(pairs.getting, cache_bytes=1 << 18),
    "load + get": _of_a_conversation(pairs.loading_and_getting, hashed=True),
    "last 50": _often(_of_a_conversation(pairs.reading_the_end, count=50), 10),
    # Beside one hash of the whole file, it measured how fast the processor hashes: it differs from one to the next.
    "verify": _of_a_conversation(pairs.verifying, by_line=True),
    "list": partial(pairs.listing, count=100),
    "replace": partial(pairs.replacing, count=500),
    "snapshots, list": partial(pairs.listing_snapshots, count=200, key=None, decoded=True),
    "snapshots, list, sealed": partial(pairs.listing_snapshots, count=200, key=KEY, decoded=True),
    "snapshot, save": partial(pairs.saving, count=500, key=KEY),
    "snapshot, load": partial(pairs.restoring, count=500, key=KEY),
    "import": _importing,
}


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder in memory where there is one: a disk's processor time is not ours."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".benchmarks-", dir=parent) as folder:
        yield Path(folder)


def bounds() -> dict[str, float]:
    """How much each may cost."""
    found: dict[str, float] = json.loads(BOUNDS.read_text(encoding="utf-8"))
    return found


def states() -> dict[str, dict[str, float]]:
    """What each cost at fixed states, the last one last."""
    found: dict[str, dict[str, float]] = json.loads(STATES.read_text(encoding="utf-8"))
    return found


def crept() -> list[str]:
    """The operations whose bounds have moved too far away from the last fixed state."""
    *_, last = states().values()
    return [name for name, bound in bounds().items() if name in last and bound > MARGIN * CREEP * last[name]]


def measure_here(name: str, slower: float = 1.0) -> float:
    """What one operation costs now, in this interpreter; or would cost if it took so many times as long."""
    with workplace() as folder, CHECKS[name](folder) as pair:
        return cost(pair if slower == 1.0 else slowed(pair, slower))


def measure(name: str, slower: float = 1.0) -> float:
    """The same, in an interpreter of its own that is the same each time."""
    command = [sys.executable, "-m", "benchmarks.guard", "--one", name, "--slower", str(slower)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, cwd=pairs.TOP).stdout)


def seen(name: str, bound: float) -> float | None:
    """What it costs at the least, if that is more than its bound each time."""
    least = float("inf")
    for pause in PAUSES:
        time.sleep(pause)
        least = min(least, measure(name))
        if least <= bound:
            return None
    return least


def set_bounds(measured: Mapping[str, list[float]]) -> None:
    """Write new bounds, above the least of what was measured several times: the least is what is held against them."""
    new = {name: float(f"{min(costs) * MARGIN:.3g}") for name, costs in measured.items()}
    BOUNDS.write_text(json.dumps(new, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--set", action="store_true", help="write new bounds from what is measured now, seven times")
    parser.add_argument("--one", choices=CHECKS, metavar="NAME", help="what one operation costs now, and nothing else")
    parser.add_argument(
        "--slower", type=float, default=1.0, metavar="FACTOR", help="with --one: as if it took so many times as long"
    )
    options = parser.parse_args()
    if options.one is not None:
        print(measure_here(options.one, options.slower))
        return 0
    if options.set:
        measured: dict[str, list[float]] = {}
        for name in CHECKS:
            measured[name] = [measure(name) for _ in range(7)]
            print(f"{name:<28}" + "  ".join(f"{found:.3g}" for found in measured[name]), flush=True)
        set_bounds(measured)
        return 0
    lost = []
    for name, bound in bounds().items():
        found = seen(name, bound)
        if found is not None:
            lost.append(name)
        before = "  ".join(f"{state}: {costs[name]:.3g}" for state, costs in states().items() if name in costs)
        said = "" if found is None else f"LOST: {found:.3g}"
        print(f"{name:<30}≤ {bound:<8.3g}{before:<36}{said}".rstrip(), flush=True)
    return 1 if lost or crept() else 0


if __name__ == "__main__":
    sys.exit(main())
