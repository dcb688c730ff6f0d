"""The power fails during a change of another program's files: at every system call that was made, in every state that may be left.

The calls of a traced child are repeated on the simulated disk (tests/crash has it for conversations). Each state that it may have after a
power cut is written out at the same place, and the next call of ``session`` looks at it. SQLite's own files are not simulated: what it
promises of a transaction is taken for granted, so a database has the rows of before up to the first write of the transaction, those of
after from the last one on, and either of them between.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.model import ViolationError
from tests.crash.replay import PathReplay, disk_holding
from tests.crash.strace import SystemCall, trace
from transcript_store.sessions import finished_changes, undo_interrupted
from transcript_store.testing import SimulatedFileSystem

Tree = dict[str, bytes | None]
_DATABASE = (".sqlite", ".db")
_OWN = (".transcript-store-session", ".before-", ".new-")
_CHANGING = (
    "write",
    "rename",
    "linkat",
    "link",
    "unlink",
    "unlinkat",
    "mkdir",
    "rmdir",
    "fsync",
    "fdatasync",
    "openat",
)


def is_of_a_database(path: str) -> bool:
    """True of a database, its logs and its copies."""
    return any(end in os.path.basename(path) for end in _DATABASE)


def tree_of(root: Path, *, with_own: bool = False) -> Tree:
    """The files below a folder, and their folders as None; without databases, and without what a change keeps beside them."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        name = f"/{path.relative_to(root)}"
        if is_of_a_database(name) or (not with_own and any(own in path.name for own in _OWN)):
            continue
        found[name] = None if path.is_dir() else path.read_bytes()
    return found


def files_in(root: Path) -> dict[str, bytes]:
    """The files that a program has."""
    return {name: data for name, data in tree_of(root).items() if data is not None}


def databases_in(root: Path) -> dict[Path, bytes]:
    """The databases that a program has; a connection that was closed left nothing beside them."""
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.name.endswith(_DATABASE)}


@dataclass
class Change:
    """A home, and the change that is made in it. ``rows`` says what of the databases counts."""

    make_home: Callable[[Path], object]
    folder: Callable[[Path], Path]
    """The program's own folder in the home, in which the journal is."""
    make: Callable[[Path], object]
    rows: Callable[[Path], object] = lambda _: None
    is_undo: bool = False
    """What is made is the undo of a finished change: before it all is as after it."""


@dataclass
class Tally:
    """What a change was put through."""

    calls: int = 0
    states: int = 0


def cut_at_every_call(change: Change, root: Path, *, limit: int = 40) -> Tally:
    """Cut the power before every call and at the end; raises if what is left is not all, or nothing.

    Raises:
        ViolationError: it is neither, or what was acknowledged is gone.
    """
    shutil.rmtree(root, ignore_errors=True)
    change.make_home(root)
    program = change.folder(root)
    before, databases = tree_of(root, with_own=True), databases_in(root)
    facts_before = files_in(root), change.rows(root)
    traced = trace(lambda _: change.make(root))
    databases_after = databases_in(root)
    facts_after, left = (files_in(root), change.rows(root)), tree_of(root, with_own=True)
    if facts_before == facts_after or traced.killed:
        raise ViolationError("the change changed nothing, so nothing is tested")
    calls = [call for call in traced.calls if call.touches(root) and call.name in (*_CHANGING, "pwrite64", "ftruncate")]
    writes = [number for number, call in enumerate(calls) if _writes_a_database(call)]
    replay = PathReplay(disk_holding(before), root, traced.handles, skips=is_of_a_database)
    tally, seen = Tally(calls=len(calls)), set()

    def judge(number: int, image: SimulatedFileSystem, rows: dict[Path, bytes]) -> None:
        state = repr(sorted(image.tree().items())), tuple(sorted(rows.items()))
        if state in seen:
            return
        seen.add(state)
        tally.states += 1
        _write_out(root, image.tree(), rows)
        at = f"power cut before call {number} of {len(calls)}" if number < len(calls) else "power cut at the end"
        undone = undo_interrupted(str(program))
        found = files_in(root), change.rows(root)
        is_finished = bool(finished_changes(str(program)))
        wanted = (
            (facts_before if is_finished else facts_after)
            if change.is_undo
            else (facts_after if is_finished else facts_before)
        )
        if found != wanted or (undone is not None and undone.left):
            raise ViolationError(f"{at}: finished: {is_finished}, {undone}, {_difference(found, wanted)}")
        if number == len(calls) and found != facts_after:
            raise ViolationError(f"{at}: what was acknowledged is gone")

    position = {id(call): number for number, call in enumerate(calls)}
    for call in traced.calls:
        if (number := position.get(id(call))) is not None:
            for rows in _databases_at(number, writes, databases, databases_after):
                for image in replay.disk.power_failures(limit=limit, seed=number):
                    judge(number, image, rows)
        replay.run([call])
    if replay.disk.tree() != {"/": None, **left} and replay.disk.tree() != left:
        raise ViolationError(f"the replay ended with {replay.disk.tree()}, the kernel with {left}")
    for image in replay.disk.power_failures(limit=limit):
        judge(len(calls), image, databases_after)
    return tally


def _writes_a_database(call: SystemCall) -> bool:
    """True of a call that writes to a database or its log, not to the copy of one."""
    paths = [path for _, path in call.handles] + [
        text.decode(errors="replace") for text in call.strings if call.name != "pwrite64"
    ]
    return call.name in ("pwrite64", "ftruncate", "unlink", "fsync", "fdatasync") and any(
        is_of_a_database(path) and ".before-" not in path for path in paths
    )


def _databases_at(
    number: int, writes: list[int], before: dict[Path, bytes], after: dict[Path, bytes]
) -> Iterator[dict[Path, bytes]]:
    """What may be in the databases if the power fails before a call."""
    if not writes or number <= writes[-1]:
        yield before
    if writes and number > writes[0]:
        yield after


def _write_out(root: Path, tree: Tree, databases: dict[Path, bytes]) -> None:
    shutil.rmtree(root)
    root.mkdir()
    for name, data in sorted(tree.items()):
        path = root / name[1:]
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for path, data in databases.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _difference(found: tuple[dict[str, bytes], object], wanted: tuple[dict[str, bytes], object]) -> str:
    names = {name for name in {*found[0], *wanted[0]} if found[0].get(name) != wanted[0].get(name)}
    return f"files that differ: {sorted(names)}; rows: {found[1]} instead of {wanted[1]}"
