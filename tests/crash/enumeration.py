"""Where an operation is stopped, and how; and what may be seen then.

Every function runs a case to one fault after another, lets ``model.observe`` judge what is left, and returns how many
states it judged. A state that the crash matrix does not allow is a ``ViolationError``.

The matrix: before a step returns, the state before it or the one after it; once it has returned, the one after it. With
``durability="process-crash"`` and a power cut, any state since the last sync, or a refusal of kind ``hole``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Any

from tests.crash.model import ABSENT, Machine, State, ViolationError, store_on
from tests.crash.operations import TRANSCRIPT, Case, damaged_everything, damaged_metadata
from tests.crash.real_disk import RealDisk
from transcript_store import TranscriptStoreError
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

FAULTS: dict[str, tuple[int, ...]] = {
    "open_directory": (errno.EACCES, errno.EMFILE, errno.EIO),
    "open_read": (errno.EACCES, errno.EMFILE, errno.EIO),
    "open_append": (errno.EACCES, errno.EMFILE, errno.EROFS),
    "create": (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EROFS),
    "close": (errno.EIO,),
    "make_directory": (errno.ENOSPC, errno.EROFS),
    "list_directory": (errno.EIO,),
    "status": (errno.EACCES, errno.EIO),
    "handle_status": (errno.EIO,),
    "path_status": (errno.EACCES, errno.EIO),
    "read": (errno.EIO,),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    "truncate": (errno.EIO,),
    "sync": (errno.EIO, errno.ENOSPC),
    "sync_data": (errno.EIO, errno.ENOSPC),
    "sync_all": (errno.EIO, errno.ENOSPC),
    "drop_cache": (errno.EIO,),
    "rename": (errno.ENOSPC, errno.EIO, errno.EACCES),
    "link": (errno.ENOSPC, errno.EPERM, errno.EIO),
    "unlink": (errno.EIO, errno.EACCES),
    "remove_directory": (errno.EIO, errno.EACCES),
    "try_lock": (errno.ENOLCK,),
    "unlock": (errno.EIO,),
}
"""What each call may be refused with."""
SYNCS = ("sync", "sync_data", "sync_all")


class Run:
    """A case under way: which steps have returned, and the store they work on."""

    def __init__(self, case: Case, disk: Machine, durability: str = "power-loss") -> None:
        self.case = case
        self.disk = disk
        self.returned = 0
        self.store = case.world.opened(disk, durability, case.starts_loaded)
        if case.starts_loaded and case.world.lock in disk.tree():
            disk.sync_path(case.world.lock)

    def go(self, acknowledge: Callable[[], object] = lambda: None) -> None:
        for step in self.case.steps[self.returned :]:
            step(self.store)
            self.returned += 1
            acknowledge()


@cache
def states(case: Case) -> list[State]:
    """What a user sees before the first step and after each, of a store that is not broken: so it is kept."""
    seen = [case.world.observe(case.disk())]
    for count in range(1, len(case.steps) + 1):
        disk = case.disk()
        Run(replace(case, steps=case.steps[:count]), disk).go()
        seen.append(case.world.observe(disk.kill_process().copy()))
    return seen


def allowed(case: Case, returned: int, *, any_since: int | None = None) -> set[State]:
    """The states that may be found when so many steps have returned and the next may be under way."""
    first = returned if any_since is None else any_since
    may_be = set(states(case)[first : returned + 2])
    if not returned:
        may_be |= case.before_it_returns
    if any_since is not None:
        may_be.add(State(None, refused="hole"))
    return may_be


class Judge:
    """Looks at what is on a disk, and objects to what may not be there.

    The same files are looked at once. What is found on a disk follows from what a process sees there, and from what of that
    the medium will never have (a load drops its cache): ``_key`` is both. The clock, the process id and the random numbers
    of two such disks may differ; they decide the names of temporaries and the times of records, and a ``State`` has neither.
    So the second disk would be found to be as the first. Nothing is kept from one judge to the next: the store may have been
    broken in between.

    ``place`` says where a disk is looked at: as it is, or written out as files of the kernel's.
    """

    def __init__(self, case: Case, place: Callable[[Any], AbstractContextManager[Machine]] = nullcontext) -> None:
        self.pairs: set[tuple[Hashable, frozenset[State]]] = set()
        """The disks that were judged, each with what was allowed."""
        self.case = case
        self._place = place
        self._found: dict[Hashable, State] = {}

    def __call__(self, disk: Machine, may_be: set[State], where: str) -> State:
        """What is found on a disk, which this may change."""
        key = self._key(disk)
        if key not in self._found:
            with self._place(disk) as there:
                self._found[key] = self._look(there, where)
        self.pairs.add((key, frozenset(may_be)))
        compare(self.case, self._found[key], may_be, where)
        return self._found[key]

    def _key(self, disk: Machine) -> Hashable:
        shown = self._files(disk)
        if isinstance(disk, RealDisk):
            return shown
        lasting = self._files(disk.copy())
        return shown if shown == lasting else (shown, lasting)

    def _files(self, disk: Machine) -> bytes:
        """A fingerprint: the files themselves, thousands of times over, would make each fork of this process dear."""
        fingerprint = blake2b(digest_size=16)
        for path, data in sorted(disk.tree().items()):
            if path != self.case.world.lock:
                fingerprint.update(repr((path, None if data is None else len(data))).encode())
                fingerprint.update(data or b"")
        return fingerprint.digest()

    def _look(self, disk: Machine, where: str) -> State:
        files = disk.tree().values()
        for kept in _must_keep(self.case):
            if not any(kept in data for data in files if data is not None):
                raise ViolationError(f"{self.case.name}, {where}: bytes that must be kept are nowhere")
        again = disk.copy() if self.case.repairs else None
        found = self.case.world.observe(disk)
        if again is not None and found.refused is not None:
            _recover(self.case, again)
            compare(self.case, self.case.world.observe(again.copy()), _repaired(self.case), f"{where}, repaired again")
        return found


def _repaired(case: Case) -> set[State]:
    """What a repair may come to in the end: a record that was never synced may be gone before it begins."""
    final = states(case)[-1]
    assert final.records is not None
    return {final, final._replace(records=final.records[:-1])} if case.base is damaged_metadata else {final}


@cache
def _must_keep(case: Case) -> list[bytes]:
    return case.must_keep


def _recover(case: Case, disk: Machine) -> None:
    """What the next process does with what it finds: it loads, or goes on with the repair."""
    if case.repairs:
        case.steps[0](store_on(disk))
    else:
        store_on(disk).load()


def compare(case: Case, found: State, may_be: set[State], where: str) -> None:
    if case.base is damaged_everything and len(may_be) > 1:
        may_be = may_be | {State(None, refused="archive")}  # what is damaged there is taken out last
    if found not in may_be:
        raise ViolationError(f"{case.name}, {where}: found {found}, allowed {sorted(may_be, key=repr)}")


def power_cuts(
    case: Case,
    *,
    limit: int,
    durability: str = "power-loss",
    fills: tuple[bytes, ...] = (b"\0",),
    judge: Judge | None = None,
) -> int:
    """Cut the power before every sync and at the end: the states before a sync hold all those of the calls before it."""
    judge = judge or Judge(case)
    seen = states(case)
    disk = case.disk()
    run = Run(case, disk, durability)

    def cut(where: str, *, over: bool = False) -> None:
        any_since = 0 if durability == "process-crash" else None
        may_be = allowed(case, run.returned, any_since=any_since)
        if over and any_since is None:
            may_be = {seen[-1]}
        if case.world.lock in disk.tree():
            disk.sync_path(case.world.lock)  # nobody who knew what stands in it is alive afterwards
        for image in disk.power_failures(limit=limit, fills=fills, seed=run.returned):
            judge(image, may_be, f"power cut {where}")

    def on_call(call: FileSystemCall) -> None:
        if call.name in SYNCS:
            cut(f"before call {call.number} ({call.name} {call.path})")

    disk.on_call = on_call
    run.go()
    disk.on_call = None
    cut("at the end", over=True)
    return len(judge.pairs)


def kills(case: Case, *, every: int = 1) -> int:
    """SIGKILL before every call, and in every write after some of its bytes; or at every ``every``-th of these moments."""
    judge = Judge(case)
    count = 0
    for stop in islice(_stops(case), None, None, every):
        disk = case.disk()
        run = Run(case, disk)
        disk.on_call = stop
        with suppress(SimulatedStop):
            run.go()
            raise ViolationError(f"{case.name}: nothing was stopped")
        judge(disk.kill_process(), allowed(case, run.returned), f"killed at {stop.where}")
        count += 1
    return count


def kills_then_power_cuts(case: Case, *, limit: int, every: int = 1, judge: Judge | None = None) -> int:
    """SIGKILL before every ``every``-th call; the next process loads what is there; then the power fails: what it was shown stays."""
    seen = states(case)
    judge = judge or Judge(case)
    count = 0
    for stop in islice(_stops(case), None, None, every):
        disk = case.disk()
        run = Run(case, disk)
        disk.on_call = stop
        with suppress(SimulatedStop):
            run.go()
        disk = disk.kill_process()
        if case.repairs:
            _recover(case, disk)
            shown = seen[-1]
        else:
            shown = case.world.shown(disk)
            if shown.records is None and not run.returned:
                continue
            if case.world.lock in disk.tree():
                disk.sync_path(case.world.lock)
        may_be = that_stays(shown, allowed(case, run.returned))
        for image in disk.power_failures(limit=limit):
            judge(image, may_be, f"killed at {stop.where}, loaded, then a power cut")
            count += 1
    return count


def damage(case: Case) -> int:
    """Change one byte in each record behind the mark that has another append behind it: refused, and nothing is cut."""
    pristine = case.disk()
    Run(case, pristine).go()
    content = pristine.tree()[TRANSCRIPT] or b""
    judge = Judge(case)
    lines = content.splitlines(keepends=True)
    count = 0
    for number in range(len(lines) - len(case.steps), len(lines) - 1):
        disk = pristine.kill_process().copy()
        offset = sum(map(len, lines[:number])) + 30
        disk.write_file(TRANSCRIPT, content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        judge(disk, {State(None, refused="hole")}, f"line {number + 1} changed")
        count += 1
    return count


def that_stays(shown: State, may_be: set[State]) -> set[State]:
    """What a user was shown stays. What is in quarantine is not shown: a purge that did not return may have removed a part
    of it, and a power cut may bring that back, until the purge is tried again.
    """
    return {shown} | {shown._replace(has_secret=state.has_secret) for state in may_be}


class _Stop:
    def __init__(self, number: int, name: str, written: int | None) -> None:
        self.where = f"call {number} ({name})" + ("" if written is None else f" after {written} bytes")
        self._number = number
        self._written = written

    def __call__(self, call: FileSystemCall) -> int | None:
        if call.number == self._number and self._written is not None:
            return self._written
        if call.number >= self._number:
            raise SimulatedStop
        return None


def calls_of(case: Case, durability: str = "power-loss") -> list[FileSystemCall]:
    """The calls that a case makes."""
    disk = case.disk()
    run = Run(case, disk, durability)
    made: list[FileSystemCall] = []
    disk.on_call = made.append
    run.go()
    disk.on_call = None
    if len(made) < 2:
        raise ViolationError(f"{case.name}: hardly a call was made, so nothing is tested")
    return made


def _stops(case: Case) -> Iterator[_Stop]:
    for call in reversed(calls_of(case)):  # the last first: what is seeded shows there soonest
        yield _Stop(call.number, call.name, None)
        if call.name == "write":
            for written in (1, 60, 150, 250, 400):
                yield _Stop(call.number, call.name, written)


def errors(case: Case, *, cut_limit: int = 0, every: int = 1) -> int:
    """Refuse every call with every error it may meet, once and for ever; or take every ``every``-th of these refusals.

    Whatever happens, the caller gets an error of ours or none; what is stored then is what the matrix allows; and once the
    cause is gone the store goes on (after a failed sync: by loading anew).
    """
    seen = states(case)
    judge = Judge(case)
    refusals = [refuse for call in calls_of(case) for number in FAULTS[call.name] for refuse in _refusals(call, number)]
    for refuse in refusals[::every]:
        disk = case.disk()
        run = Run(case, disk)
        disk.on_call = refuse
        where = str(refuse)
        failed = False
        try:
            run.go()
        except TranscriptStoreError:
            failed = True
        except OSError as error:
            raise ViolationError(f"{case.name}, {where}: a raw {error!r}") from error
        disk.on_call = None
        may_be = allowed(case, run.returned) if failed else {seen[-1]}
        for image in disk.power_failures(limit=cut_limit) if cut_limit else ():
            judge(image, may_be, f"{where}, then a power cut")
        goes_on(case, run, may_be, where, judge)
    return len(refusals[::every])


@dataclass(frozen=True)
class _Refuse:
    """Refuse a call: once or for ever, and a write perhaps only after some of its bytes (the next write is refused)."""

    call: FileSystemCall
    code: int
    for_ever: bool
    written: int | None = None

    def __call__(self, call: FileSystemCall) -> int | None:
        first = self.call.number if self.written is None else self.call.number + 1
        if call.number == self.call.number and self.written is not None:
            return self.written
        if call.number == first or (self.for_ever and call.number > first):
            raise OSError(self.code, "injected")
        return None

    def __str__(self) -> str:
        often = ("for ever" if self.for_ever else "once") + (f", after {self.written} bytes," if self.written else "")
        return f"{errno.errorcode[self.code]} {often} at call {self.call.number} ({self.call.name} {self.call.path})"


def _refusals(call: FileSystemCall, code: int) -> Iterator[_Refuse]:
    for for_ever in (False, True):
        yield _Refuse(call, code, for_ever)
        if call.name == "write":
            yield _Refuse(call, code, for_ever, written=30)


def goes_on(case: Case, run: Run, may_be: set[State], where: str, judge: Judge) -> None:
    """Once the cause is removed, the same store (loaded again if necessary) accepts one more append, and all records are stored."""
    if case.repairs:
        judge(run.disk.copy(), may_be, where)
        run.go()
        may_be = _repaired(case)
        run.store.load()
    before, found = case.world.go_on(run.store)
    compare(case, before, may_be, f"{where}, then one more")
    if run.disk.open_handles:
        raise ViolationError(f"{case.name}, {where}: left open: {run.disk.open_handles}")
    after = case.world.shown(run.disk.worst_power_failure())
    compare(case, after, that_stays(found, may_be), f"{where}, one more, then a power cut")


def cut_recoveries(case: Case, *, limit: int, every: int = 1) -> int:
    """Cut the power during a step, and again, or kill the process, during the recovery of what was left."""
    disk = case.disk()
    run = Run(case, disk)
    judge = Judge(case)
    images: dict[str, tuple[SimulatedFileSystem, set[State]]] = {}

    def on_call(call: FileSystemCall) -> None:
        if call.name in SYNCS:
            for image in disk.power_failures(limit=limit):
                images.setdefault(repr(sorted(image.tree().items())), (image, allowed(case, run.returned)))

    disk.on_call = on_call
    run.go()
    count = 0
    for image, may_be in list(images.values())[::every]:
        expected = judge(image.copy(), may_be, "power cut")
        if expected == ABSENT:
            continue
        for again in _cut_loads(case, image, limit):
            judge(again, {expected, *(_repaired(case) if case.repairs else ())}, "a second crash during recovery")
            count += 1
    return count


def _cut_loads(case: Case, image: SimulatedFileSystem, limit: int) -> Iterator[SimulatedFileSystem]:
    machine = image.copy()
    made: list[FileSystemCall] = []
    left: list[SimulatedFileSystem] = []

    def on_call(call: FileSystemCall) -> None:
        made.append(call)
        if call.name in SYNCS:
            left.extend(machine.power_failures(limit=limit))

    machine.on_call = on_call
    _recover(case, machine)
    yield from left
    for call in made:
        machine = image.copy()
        machine.on_call = _Stop(call.number, call.name, None)
        with suppress(SimulatedStop):
            _recover(case, machine)
        yield machine.kill_process()
