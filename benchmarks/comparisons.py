"""The same work, done by everybody: each in its own process, in turn, beside the limit of the same round."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, LIMIT, LIMIT_UNSYNCED, UNSYNCED, Contender
from benchmarks.environments import NotInstallableError, interpreter
from benchmarks.processes import TOP, DriverError, Process
from benchmarks.results import Comparison, Curve, Figure
from benchmarks.timing import middle, size

_TURN_SECONDS = 0.004  # a turn's calls are so many that it takes about this long: over before the scheduler's next turn
_MOST_CALLS = 100
_SYNCED_APPENDS = 20


@dataclass
class Field:
    """Who takes part: those whose environment could be made; why the others do not; and how much is measured."""

    directory: Path
    environments: Path
    quick: bool
    say: Callable[[str], None]
    pythons: dict[str, Path] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def gather(self) -> None:
        """Make the environments that are not there yet."""
        for contender in CONTENDERS:
            self.say(f"environment of {contender.name}")
            try:
                self.pythons[contender.name] = interpreter(self.environments, contender.requirements)
            except NotInstallableError as error:
                self.absent[contender.name] = "could not be installed"
                self.say(f"{contender.name} could not be installed: {error}\n")

    @contextmanager
    def start(self, contenders: Sequence[Contender] = CONTENDERS) -> Iterator[dict[str, Process]]:
        """A process for each that is there."""
        with ExitStack() as stack:
            processes = {}
            for number, contender in enumerate(contenders):
                if (python := self.pythons.get(contender.name)) is not None:
                    folder = self.directory / f"peer-{number}"
                    processes[contender.name] = stack.enter_context(Process(python, contender.driver, folder))
            for name, process in list(processes.items()):
                self.attempt(processes, name, process.ready)
            yield processes
        for number in range(len(contenders)):
            shutil.rmtree(self.directory / f"peer-{number}", ignore_errors=True)

    def attempt(self, processes: dict[str, Process], name: str, do: Callable[[], Any]) -> Any:
        """Do it; whoever fails is out, and the reason is kept."""
        try:
            return do()
        except DriverError as error:
            if not str(error).startswith("NotImplementedError"):
                self.absent[name] = f"failed: {str(error).partition(':')[0]}"  # the rest may have paths in it
                self.say(f"{name}: {error}\n")
            processes.pop(name)
            return None

    def fill(self, processes: dict[str, Process], length: int, encoded_bytes: int | None) -> dict[str, float]:
        """Everybody's conversation gets so many messages; returns how many seconds that took each."""
        seconds = {}
        for name, process in list(processes.items()):
            self.say(f"{length:,} messages for {name}")
            begin = time.perf_counter()
            self.attempt(processes, name, partial(process.ask, "open", length=length, encoded_bytes=encoded_bytes))
            seconds[name] = time.perf_counter() - begin
        return seconds

    def in_turn(
        self, processes: Mapping[str, Process], command: str, *, rounds: int, budget_seconds: float, **arguments: Any
    ) -> dict[str, dict[int, float]]:
        """Ask each in turn, round after round, until it has had its rounds or spent its budget; returns seconds by round.

        The first round warms up, and counts only for whoever spends the budget on it.
        """
        asked = dict(processes)
        spent = dict.fromkeys(asked, 0.0)
        calls = dict.fromkeys(asked, 1)
        taken: dict[str, dict[int, float]] = {name: {} for name in asked}
        for number in range(-1, rounds):
            self.say(f"{command}, round {max(number, 0) + 1} of {rounds}")
            names = list(asked)
            first = number % len(names) if names else 0
            for name in names[first:] + names[:first]:
                if spent[name] > budget_seconds:
                    continue
                more = {**arguments, "calls": calls[name]} if command == "append" else arguments
                begin = time.perf_counter()
                seconds = self.attempt(asked, name, partial(asked[name].ask, command, **more))
                spent[name] += time.perf_counter() - begin
                if seconds is None:
                    continue
                calls[name] = max(1, min(_MOST_CALLS, int(_TURN_SECONDS / seconds)))
                if number >= 0 or spent[name] > budget_seconds:
                    taken[name][number] = seconds
        return {name: by_round for name, by_round in taken.items() if by_round}


def _figures(taken: dict[str, dict[int, float]], field: Field) -> list[Figure]:
    """Everybody's figure, beside the limit of what it promises where that was measured, or else beside the other one."""
    figures = []
    for contender in CONTENDERS:
        name = contender.name
        if name not in taken:
            if name in field.absent:
                figures.append(Figure(name, None, note=field.absent[name]))
            continue
        limit = LIMIT if contender.survives == "a power cut" or LIMIT_UNSYNCED.name not in taken else LIMIT_UNSYNCED
        beside = taken.get(limit.name, {})
        ratios = [seconds / beside[number] for number, seconds in taken[name].items() if number in beside]
        if not ratios and beside:  # it spent its budget on warming up
            ratios = [seconds / middle([*beside.values()]).median for seconds in taken[name].values()]
        figures.append(Figure(name, middle([*taken[name].values()]), middle(ratios) if ratios else None))
    return figures


# ---- the operations --------------------------------------------------------------------------------------------------

_READERS = [contender for contender in CONTENDERS if contender not in UNSYNCED]


def appends(field: Field) -> Iterator[Comparison]:
    """One append, to a short conversation and to a long one."""
    long = 1_000 if field.quick else 10_000
    rounds = 15 if field.quick else 40
    with field.start() as processes:
        for length, kilobytes, name in ((10, 1, "append"), (10, 64, "append-large"), (long, 1, "append-long")):
            field.fill(processes, length, 1024)
            taken = field.in_turn(
                processes, "append", rounds=rounds, budget_seconds=rounds / 8, encoded_bytes=kilobytes * 1024
            )
            title = f"Append {kilobytes} KB to {length:,} messages"
            yield Comparison(
                name, title, "s", "the bare system calls that keep the same promise", _figures(taken, field)
            )


def reads(field: Field) -> Iterator[Comparison]:
    """Open a conversation of the mix, and hand out all of it, or the end of it; and the memory that takes."""
    length = 1_000 if field.quick else 10_000
    with field.start(_READERS) as processes:
        field.fill(processes, length, None)
        for command, title, beside in (
            ("load", "Open, and hand out all", "a loop that keeps `orjson.loads` of each line, and verifies nothing"),
            ("last", "Open, and hand out the last 50", "reading backwards from the end of the file"),
        ):
            arguments = {"count": 50} if command == "last" else {}
            taken = field.in_turn(processes, command, rounds=5, budget_seconds=4, **arguments)
            yield Comparison(command, f"{title}, {length:,} messages", "s", beside, _figures(taken, field))
        yield _memory(field, processes, length)


def parallel(field: Field) -> Iterator[Comparison]:
    """Eight threads that append to one conversation; what one append takes of the time that all of them need."""
    rounds = 7 if field.quick else 25
    contenders = [contender for contender in CONTENDERS if contender.survives == "a power cut"]
    with field.start(contenders) as processes:
        field.fill(processes, 10, 1024)
        taken = field.in_turn(
            processes, "append_by_threads", rounds=rounds, budget_seconds=4, calls=4, encoded_bytes=1024
        )
        beside = "the limit with a lock around each write and its sync"
        yield Comparison(
            "threads", "Append 1 KB from eight threads, for each append", "s", beside, _figures(taken, field)
        )


def replacing(field: Field) -> Iterator[Comparison]:
    """Other messages in the place of all that are there, as a compaction does it."""
    length = 1_000 if field.quick else 10_000
    with field.start(_READERS) as processes:
        field.fill(processes, length, None)
        taken = field.in_turn(processes, "replace", rounds=3, budget_seconds=4)
        beside = "encoding, hashing, writing and syncing them once, and a rename"
        yield Comparison("replace", f"Replace {length:,} messages by others", "s", beside, _figures(taken, field))


def lists(field: Field) -> Iterator[Comparison]:
    """The list of conversations, of those that have one."""
    count = 100 if field.quick else 300
    contenders = [
        contender for contender in _READERS if contender.driver.partition(":")[0] in ("ours", "google_adk", "agno")
    ]
    with field.start(contenders) as processes:
        for name, process in list(processes.items()):
            field.say(f"{count} conversations for {name}")
            field.attempt(processes, name, partial(process.ask, "create", count=count))
        taken = field.in_turn(processes, "list", rounds=15, budget_seconds=4)
        yield Comparison("list", f"List {count} conversations", "s", "", _figures(taken, field))


def _memory(field: Field, processes: Mapping[str, Process], length: int) -> Comparison:
    grown = _grown(field, processes)
    sizes = {name: processes[name].ask("size") for name in grown}
    figures = []
    for name, used in grown.items():
        ratio = middle([used[0] / sizes[LIMIT.name]]) if LIMIT.name in sizes else None
        figures.append(Figure(name, middle([used[0]]), ratio, f"{size(sizes[name])} of files"))
    return Comparison(
        "memory", f"Memory to hand out all {length:,} messages", "bytes", "the size of the JSONL file", figures
    )


def _grown(field: Field, processes: Mapping[str, Process]) -> dict[str, dict[int, float]]:
    """By how much a fresh process grows at its peak, which loads what another one has stored."""
    grown: dict[str, dict[int, float]] = {}
    if not Path("/proc/self/status").exists():
        return grown
    for name, process in processes.items():
        field.say(f"memory of {name}")
        with process.again() as fresh:

            def load(fresh: Process = fresh, filled: Process = process) -> float:
                fresh.ready()
                fresh.ask("reopen", length=filled.ask("length"))
                return float(fresh.ask("memory"))

            if (used := field.attempt({name: fresh}, name, load)) is not None:
                grown[name] = {0: used}
    return grown


def imports(field: Field) -> Iterator[Comparison]:
    """What importing costs before anything is stored, above a bare interpreter."""
    rounds = 2 if field.quick else 5
    users = [contender for contender in CONTENDERS if contender.imports and contender.name in field.pythons]
    users = list({contender.imports: contender for contender in users}.values())
    taken: dict[str, dict[int, float]] = {contender.name: {} for contender in users}
    for number in range(-1, rounds):
        for contender in users:
            field.say(f"{contender.imports}, round {max(number, 0) + 1} of {rounds}")
            python = str(field.pythons[contender.name])
            bare, full = (_seconds([python, "-c", code]) for code in ("pass", contender.imports))
            if number >= 0:
                taken[contender.name][number] = full - bare
    figures = [Figure(c.name, middle([*taken[c.name].values()]), note=f"`{c.imports}`") for c in users]
    yield Comparison("import", "Import, above a bare interpreter", "s", "", figures)


def _seconds(command: list[str]) -> float:
    """Byte code is cached, as it is once installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True, cwd=TOP, env=environment)
    return time.perf_counter() - begin


def syncs(field: Field) -> Iterator[Comparison]:
    """How often one append syncs, counted by the kernel's tracer: what a promise rests on. On Linux, with strace."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return
    figures = []
    for number, contender in enumerate(CONTENDERS):
        if contender.name not in field.pythons:
            continue
        field.say(f"syncs of {contender.name}")
        folder, trace = field.directory / f"traced-{number}", field.directory / f"trace-{number}"
        tracer = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync,sync_file_range,msync"]
        with Process(field.pythons[contender.name], contender.driver, folder, before=tracer) as process:
            alone = {contender.name: process}

            def count(process: Process = process, trace: Path = trace) -> float:
                process.ready()
                process.ask("open", length=10, encoded_bytes=1024)
                process.ask("append", calls=1, encoded_bytes=1024)
                before = _syncs_in(trace)
                process.ask("append", calls=_SYNCED_APPENDS, encoded_bytes=1024)
                return (_syncs_in(trace) - before) / _SYNCED_APPENDS

            counted = field.attempt(alone, contender.name, count)
        shutil.rmtree(folder, ignore_errors=True)
        if counted is not None:
            figures.append(Figure(contender.name, middle([counted])))
    yield Comparison("syncs", "Syncs for each append, counted with strace", "syncs", "", figures)


def _syncs_in(trace: Path) -> int:
    """A call that another thread's line interrupts is told in two lines; it is counted where it begins."""
    return len(re.findall(r"^\d+ +(?:fsync|fdatasync|sync_file_range|msync)\(", trace.read_text(), re.MULTILINE))


COMPARISONS: dict[str, Callable[[Field], Iterator[Comparison]]] = {
    "appends": appends,
    "reads": reads,
    "parallel": parallel,
    "replacing": replacing,
    "lists": lists,
    "imports": imports,
    "syncs": syncs,
}


# ---- growth ----------------------------------------------------------------------------------------------------------

_GROWN_BYTES = 200
_WEIGHABLE = 1_000  # messages; the memory that fewer need is not seen beside what an interpreter moves about
_LENGTHS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
_BUDGET_SECONDS = 1.0  # for one operation at one length
_PATIENCE_SECONDS = 2.5  # a peer that needs more to be filled, or for three appends, goes no further


def growth(field: Field) -> Iterator[Curve]:
    """What each operation costs as a conversation grows; who becomes too slow goes no further."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    in_turn = partial(field.in_turn, rounds=3 if field.quick else 5, budget_seconds=_BUDGET_SECONDS)
    peers = {contender.name for contender in CONTENDERS if contender.requirements}
    with field.start() as processes:
        for length in _LENGTHS[:3] if field.quick else _LENGTHS:
            filling = field.fill(processes, length, _GROWN_BYTES)
            appending = in_turn(processes, "append", encoded_bytes=_GROWN_BYTES)
            readers = {
                contender.name: processes[contender.name] for contender in _READERS if contender.name in processes
            }
            taken = {
                "append": appending,
                "load": in_turn(readers, "load"),
                "last": in_turn(readers, "last", count=50),
                "list": in_turn(readers, "list"),
                "memory": _grown(field, readers) if length >= _WEIGHABLE else {},
            }
            for operation, by_name in taken.items():
                for name, by_round in by_name.items():
                    points.setdefault((operation, name), []).append((length, middle([*by_round.values()]).median))
            for name in list(processes):
                append = appending.get(name)
                if append is None or (
                    name in peers and max(filling[name], 3 * min(append.values())) > _PATIENCE_SECONDS
                ):
                    processes.pop(name).close()
    yield from (Curve(operation, name, found) for (operation, name), found in points.items())
