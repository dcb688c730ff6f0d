"""The crash matrix on the real kernel: ``enumeration`` again, with strace in the place of the simulated disk's calls.

* ``kills``: SIGKILL on entry to every system call that touches the conversation.
* ``errors``: every error that the call may meet, once and for ever; then the store goes on.
* ``power_cuts``: the calls that were really made are repeated on the simulated disk, which knows what may be left of them
  when the power fails; each such state is written out as files and opened on the kernel.
* ``kills_then_power_cuts``: the same for a load of what a killed process left.

A run that was meant to be injected and was not, and a trace without calls, is an error of the harness, not a success.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import filelock  # noqa: F401 - imported once here, not again in every forked child

from tests.crash.enumeration import Judge, Run, allowed, goes_on, states, that_stays
from tests.crash.model import State, ViolationError
from tests.crash.operations import Case
from tests.crash.real_disk import RealDisk
from tests.crash.replay import SYNCS, Replay, disk_holding
from tests.crash.strace import Injection, Say, SystemCall, Traced, injections, trace
from tests.crash.sync_sites import Site, announced
from tests.kit.scratch import scratch_directory
from transcript_store import TranscriptStoreError
from transcript_store.testing import SimulatedFileSystem

Note = Callable[[str, object], None]
"""pytest's ``record_property``: figures are summed at the end of the run."""
Tree = dict[str, bytes | None]
RETURNED, FINE = "returned", "fine"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, where syncs cost nothing: what is tested here is the calls, not the disk."""
    with scratch_directory() as folder:
        yield Path(folder)


@contextmanager
def on_the_kernel(disk: SimulatedFileSystem) -> Iterator[RealDisk]:
    """Where a judge looks at a simulated disk: with what is on it written out as files."""
    with scratch() as folder:
        yield RealDisk.holding(folder / "left", disk.tree())


class Outcome(NamedTuple):
    """What became of a case in a traced child."""

    disk: RealDisk
    before: Tree
    """What stood there when the trace began."""
    traced: Traced
    returned: int
    verdict: str
    """The last thing that the child said: after a fault, whether it could go on."""

    @property
    def calls(self) -> list[SystemCall]:
        """The calls that touched the conversation."""
        calls = [call for call in self.traced.calls if call.touches(self.disk.root)]
        if len(calls) < 2:
            raise ViolationError("hardly a call was traced, so nothing is tested")
        return calls


def run(case: Case, root: Path, injection: Injection | None = None, durability: str = "power-loss") -> Outcome:
    """Run a case in a traced child, perhaps with a fault; then let it go on, and return what is left."""
    seen = states(case)  # here, so that the children need not
    shutil.rmtree(root, ignore_errors=True)
    disk = RealDisk.holding(root, case.disk().tree())
    under_way: list[Run] = []
    before: Tree = {}

    def work(say: Say) -> None:
        try:
            under_way[0].go(lambda: say(RETURNED))
        except TranscriptStoreError as error:
            say(f"{type(error).__name__}: {error}")

    def afterwards(say: Say) -> None:
        if injection is not None:
            now = under_way[0]
            may_be = allowed(case, now.returned) if now.returned < len(case.steps) else {seen[-1]}
            try:
                goes_on(case, now, may_be, str(injection), Judge(case))
            except BaseException as error:
                say(f"{type(error).__name__}: {error}".replace("\n", " "))
            else:
                say(FINE)

    traced = trace(
        work,
        afterwards,
        prepare=lambda: under_way.append(Run(case, disk, durability)),
        when_ready=lambda: before.update(disk.tree()),
        injection=injection,
    )
    if injection is not None and not traced.killed and not any(call.tampered for call in traced.calls):
        raise ViolationError(f"{case.name}: nothing was injected with {injection}")
    return Outcome(disk, before, traced, traced.lines.count(RETURNED), traced.lines[-1])


def kills(case: Case) -> int:
    """SIGKILL on entry to every call; returns how many were killed."""
    with scratch() as folder:
        points = run(case, folder / "all").calls
        judge = Judge(case)
        for number, call in enumerate(points):
            outcome = run(case, folder / str(number), Injection(call, "signal=SIGKILL"))
            if not outcome.traced.killed:
                raise ViolationError(f"{case.name}: not killed at {call}")
            may_be = allowed(case, outcome.returned)
            judge(RealDisk(outcome.disk.root, seed=2), may_be, f"killed at {call}")
            shutil.rmtree(outcome.disk.root)
        return len(points)


def errors(case: Case) -> int:
    """Every error at every call, once and for ever; returns how many were injected.

    Where a call refused once was the last of its kind that was traced, for ever is the same: nothing would be refused but
    that one call, and the same work makes the same calls. So that is not run again.
    """
    with scratch() as folder:
        count = 0
        for call in run(case, folder / "all").calls:
            was_last = False
            for injection in injections(call):
                if injection.for_ever and was_last:
                    continue
                outcome = run(case, folder / "c", injection)
                if outcome.verdict != FINE:
                    raise ViolationError(f"{case.name}, {injection}: {outcome.verdict}")
                if "EINTR" in injection.what and call.name != "close" and outcome.returned < len(case.steps):
                    raise ViolationError(f"{case.name}, {injection}: an interrupted call was not made again")
                later = [
                    made for made in outcome.traced.calls if made.name == call.name and made.ordinal > call.ordinal
                ]
                was_last = not injection.for_ever and not later
                count += 1
        return count


def power_cuts(
    case: Case,
    *,
    limit: int,
    durability: str = "power-loss",
    fills: tuple[bytes, ...] = (b"\0",),
    injection: Injection | None = None,
    judge: Judge | None = None,
) -> int:
    """Cut the power before every sync that was traced, and at the end; returns how many states were judged."""
    judge = judge or Judge(case, on_the_kernel)
    seen = states(case)
    with scratch() as folder:
        outcome = run(case, folder / "all", injection, durability)
        assert len(outcome.calls) > 1
        # What a base left unsynced is still unsynced, unless a load came before the trace.
        disk = disk_holding(outcome.before) if case.starts_loaded else case.disk()
        replay = Replay(disk, outcome.disk.root, outcome.traced.handles)
        returned = _Returned(outcome.traced.calls)

        def cut(where: str, count: int) -> None:
            unsynced = durability == "process-crash"
            may_be = allowed(case, count, any_since=0 if unsynced else None)
            if count == len(case.steps) and not unsynced:
                may_be = {seen[-1]}
            for image in replay.disk.power_failures(limit=limit, fills=fills, seed=count):
                judge(image, may_be, f"power cut {where}")

        replay.run(outcome.traced.calls, lambda call: cut(f"before {call}", returned.before(call)))
        cut("at the end", outcome.returned)
        if injection is None:
            _insist_that_the_replay_was_faithful(replay.disk, outcome.disk)
    return len(judge.pairs)


class _Returned:
    """How many steps had returned before a call: the child says so on its pipe, which is traced too."""

    def __init__(self, calls: list[SystemCall]) -> None:
        self._calls = calls

    def before(self, call: SystemCall) -> int:
        earlier = self._calls[: self._calls.index(call)]
        return sum(other.name == "writev" and other.strings == (b"returned\n",) for other in earlier)


def _insist_that_the_replay_was_faithful(disk: SimulatedFileSystem, real: RealDisk) -> None:
    if disk.tree() != real.tree():
        raise ViolationError(f"the replay ended with {disk.tree()}, the kernel with {real.tree()}")


def kills_then_power_cuts(case: Case, *, limit: int) -> int:
    """SIGKILL at a call; the next process loads what is there; then the power fails: what it was shown stays."""
    judge = Judge(case, on_the_kernel)
    return sum(loaded.power_cuts(judge, limit=limit) for loaded in loads_after_kills(case))


class Load(NamedTuple):
    """A load, traced, of what a killed process left."""

    killed: Outcome
    where: str
    traced: Traced
    shown: State
    may_be: set[State]

    def power_cuts(self, judge: Judge, *, limit: int, without: Site | None = None) -> int:
        """Cut the power when it has returned, perhaps with one of its syncs left out; returns how many states were judged."""
        root, lock = self.killed.disk.root, judge.case.world.lock
        first = Replay(disk_holding(self.killed.before), root, self.killed.traced.handles)
        first.run(self.killed.traced.calls)
        then = Replay(first.disk.kill_process(), root, self.traced.handles)
        sites = sites_of(self.traced.calls)
        then.run([made for made in self.traced.calls if without is None or sites.get(made) != without])
        if lock in then.disk.tree():
            then.disk.sync_path(lock)
        count = 0
        for image in then.disk.power_failures(limit=limit):
            judge(image, self.may_be, f"{self.where}, loaded, power cut")
            count += 1
        return count


def loads_after_kills(case: Case, *, kills: int = 25) -> Iterator[Load]:
    """Kill a case at each sync and at so many calls, evenly spread, and load what is there: where there is something to be
    shown.

    Before a sync the most is not on the medium yet. One delete that looked at three names more moved the spread past the only
    call, of 85, at which a seeded bug shows: its sync of a rename.
    """
    with scratch() as folder:
        points = run(case, folder / "all").calls
        every = -(-len(points) // kills)
        for call in [call for number, call in enumerate(points) if number % every == 0 or call.name in SYNCS]:
            killed = run(case, folder / "c", Injection(call, "signal=SIGKILL"))
            machine = RealDisk(killed.disk.root, seed=2)

            def load(_: Say, machine: RealDisk = machine) -> State:
                return case.world.shown(machine)

            traced = trace(load)
            shown = load(print)
            if shown.records is not None or killed.returned:
                may_be = that_stays(shown, allowed(case, killed.returned))
                yield Load(killed, f"killed at {call}", traced, shown, may_be)


def syncs(case: Case, durability: str) -> dict[SystemCall, Site]:
    """The syncs that a case really makes, each with the place in the source that asked for it."""
    with scratch() as folder:
        return sites_of(run(case, folder / "c", durability=durability).traced.calls)


def sites_of(calls: list[SystemCall]) -> dict[SystemCall, Site]:
    """The same of a trace."""
    found = {}
    site = None
    for call in calls:
        if call.name in ("access", "faccessat", "faccessat2") and call.strings:
            site = announced(call.strings[0]) or site
        elif call.name in SYNCS and site is not None:
            found[call] = site
            site = None
    return found
