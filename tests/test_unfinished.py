"""Leftovers of a create or a fork that was killed before its commit, and who removes them.

The incident: a fork of a long conversation was killed, its folder was no conversation yet, so no list showed it, no delete took it, and
its temporary kept its size for ever. Now a create in a library holds a note, ``.new-<id>``, locked; a note whose lock is free
is of a process that is gone, and the next change in the library sweeps what it speaks of, if that is half a conversation
and nothing else.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.interruption import every_line
from tests.kit.meanwhile import library_on
from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    StorageError,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
OTHER_ID = "11111111-2222-4333-8444-555555555555"
NOBODY = "00000000-0000-4000-8000-000000000000"
SAID = [{"role": "user", "content": "Hello"}]


def a_library() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    library_on(disk).create(id=OTHER_ID, messages=SAID * 3).close()
    return disk.copy()


def create(library: ConversationLibrary) -> None:
    library.create(messages=SAID).close()


def create_by_id(library: ConversationLibrary) -> None:
    library.create(id=ID, messages=SAID).close()


def fork(library: ConversationLibrary) -> object:
    return library.fork(OTHER_ID, through_seq=1)


def another(disk: SimulatedFileSystem) -> ConversationLibrary:
    """The library in another process, which has random numbers of its own."""
    machine = disk.another_process()
    machine.random_bytes(8)
    return library_on(machine)


def sweep(library: ConversationLibrary) -> None:
    """Any change; this one changes nothing else."""
    with suppress(ConversationNotFoundError):
        library.delete(NOBODY)


CREATES = pytest.mark.parametrize("make", [create, create_by_id, fork])


def insist_on_whole_conversations(disk: SimulatedFileSystem, counts: set[int], where: str) -> None:
    """Nothing but whole conversations in the library: as many as may be, each with its messages."""
    folder = disk.open_directory("/chats")
    names = disk.list_directory(folder)
    disk.close(folder)
    listed = library_on(disk).list()
    assert sorted(names) == sorted(str(summary.id) for summary in listed), where
    assert [summary.damage for summary in listed] == [None] * len(listed), where
    assert len(listed) in counts, where
    for summary in listed:
        with library_on(disk).open(str(summary.id)) as store:
            assert store.get_messages() == SAID * (3 if summary.id == OTHER_ID else 1), where


@pytest.mark.sampled(every=2)
@CREATES
def test_what_a_killed_create_left_is_swept_by_the_next_change(make: Callable[[ConversationLibrary], object]) -> None:
    """P4: killed at every call, a create or a fork leaves a whole conversation or nothing, once something else is changed."""
    halves, number = 0, 1
    while True:
        disk = a_library()
        first = disk.calls_made

        def stop(call: FileSystemCall, at: int = first + number) -> None:
            if call.number >= at:
                raise SimulatedStop

        disk.on_call = stop
        with suppress(SimulatedStop):
            make(library_on(disk))
            break
        disk = disk.kill_process()
        halves += sum(path.count("/") == 2 for path in disk.tree()) > 1
        library_on(disk).list()
        sweep(library_on(disk))
        insist_on_whole_conversations(disk, {1, 2}, f"killed at call {number}")
        number += 1
    assert halves > 20


@pytest.mark.sampled(every=4)
@CREATES
@pytest.mark.parametrize("other", [sweep, create, fork])
def test_a_sweep_leaves_unfinished_creates_alone(
    make: Callable[[ConversationLibrary], object], other: Callable[[ConversationLibrary], object]
) -> None:
    """P11, P13: whatever another process changes between any two calls of a create, it neither disturbs it nor fails."""
    number = 1
    while True:
        disk = a_library()
        first = disk.calls_made
        happened: list[FileSystemCall] = []

        def happen(call: FileSystemCall, at: int = first + number, disk: Any = disk, happened: Any = happened) -> None:
            if call.number == at:
                happened.append(call)
                other(another(disk))

        disk.on_call = happen
        make(library_on(disk))
        disk.on_call = None
        if not happened:
            break
        sweep(library_on(disk))  # a note that was just made when the other looked, perhaps
        insist_on_whole_conversations(disk, {2 if other is sweep else 3}, f"{other.__name__} before {happened[0]}")
        number += 1
    assert number > 40


def test_a_sweep_that_meets_who_tries_again() -> None:
    """P11: between any two calls of a sweep somebody creates the conversation whose half is being swept: it is made, whole, or
    the lock is in the way and the next attempt makes it.
    """
    outcomes, number = set(), 1
    while True:
        disk = a_library()
        renames = 0

        def stop(call: FileSystemCall) -> None:
            nonlocal renames
            renames += call.name == "rename"
            if renames == 2:
                raise SimulatedStop

        disk.on_call = stop
        with pytest.raises(SimulatedStop):
            create_by_id(library_on(disk))
        disk = disk.kill_process()
        assert f"/chats/{ID}/metadata.json" in disk.tree()
        first = disk.calls_made
        happened: list[str] = []

        def happen(call: FileSystemCall, at: int = first + number, disk: Any = disk, happened: Any = happened) -> None:
            if call.number == at:
                try:
                    create_by_id(another(disk))
                    happened.append("made")
                except ConversationLockedError:
                    happened.append("locked")

        disk.on_call = happen
        sweep(library_on(disk))
        disk.on_call = None
        if not happened:
            break
        if happened == ["locked"]:
            create_by_id(library_on(disk))
        insist_on_whole_conversations(disk, {2}, f"created before call {number}")
        outcomes.update(happened)
        number += 1
    assert outcomes == {"made", "locked"}


@pytest.mark.sampled(every=2)
@CREATES
def test_what_a_create_left_that_the_disk_refused_is_swept_by_the_next_change(
    make: Callable[[ConversationLibrary], object],
) -> None:
    """P7: refused from any call on, a create cannot remove what it made; its note stays with it, and the next change sweeps both."""
    left, number = 0, 1
    while True:
        disk = a_library()
        first = disk.calls_made

        def refuse(call: FileSystemCall, at: int = first + number) -> None:
            if call.number >= at and call.name != "close":
                raise OSError(errno.EACCES, "injected")

        disk.on_call = refuse
        with suppress(StorageError):
            make(library_on(disk))
            if disk.calls_made < first + number:
                break
        disk.on_call = None
        left += any("/.new-" in path for path in disk.tree())
        sweep(library_on(disk))
        for path in [path for path, data in disk.tree().items() if path.count("/") == 2 and data is None]:
            folder = disk.open_directory(path)
            if not disk.list_directory(folder):  # it had just been made
                disk.remove_directory(disk.open_directory("/chats"), path.rpartition("/")[2])
            disk.close(folder)
        insist_on_whole_conversations(disk, {1, 2}, f"refused from call {number} on")
        number += 1
    assert left > 10


def delete(library: ConversationLibrary) -> None:
    library.delete(OTHER_ID)


@pytest.mark.sampled(every=3)
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # of a store that nobody got, so nobody closed
@pytest.mark.parametrize("step", [211, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("operate", [create, create_by_id, fork, delete])
def test_ctrl_c_at_any_line_leaves_no_lock_and_no_half(
    scratch: Path, operate: Callable[[ConversationLibrary], object], step: int
) -> None:
    """P4, P21: interrupted anywhere, in the same process the next change sweeps what there is, and every conversation opens."""

    def prepare(directory: Path) -> ConversationLibrary:
        library = ConversationLibrary(directory)
        library.create(id=OTHER_ID, messages=SAID * 3).close()
        return library

    made: list[ConversationStore] = []
    if operate is create or operate is create_by_id:
        options = {"id": ID} if operate is create_by_id else {}

        def act(library: ConversationLibrary) -> None:
            made.append(library.create(messages=SAID, **options))  # type: ignore[arg-type]

    else:
        act = operate  # type: ignore[assignment]

    for library, root, where, _ in every_line(scratch, prepare, act, step):
        while made:
            made.pop().close()
        if where.startswith("library"):
            gc.collect()  # a store that was never returned lets go of its lock when it is collected
        sweep(library)
        with suppress(OSError):
            (root / ID).rmdir()  # its folder, where it had just been made: the caller knows of it
        listed = {str(summary.id): summary.damage for summary in library.list()}
        assert sorted(listed) == sorted(path.name for path in root.iterdir()), f"interrupted at {where}: left over"
        assert set(listed.values()) <= {None}, f"interrupted at {where}"
        for chat in listed:
            with library.open(chat) as store:
                assert store.get_messages() == SAID * (3 if chat == OTHER_ID else 1), f"interrupted at {where}"
        if operate is create_by_id and ID not in listed:
            create_by_id(library)
        shutil.rmtree(root)


@pytest.mark.parametrize("what", ["a message", "a folder", "a link"])
def test_what_is_not_half_a_conversation_is_left_unchanged(tmp_path: Path, what: str) -> None:
    """P13, P16: a note speaks of a folder; what is not ours in it, or in its place, is not touched."""
    library = ConversationLibrary(tmp_path / "chats")
    create(library)
    (tmp_path / "chats" / f".new-{ID}").touch()
    place = tmp_path / "chats" / ID
    if what == "a message":
        ConversationStore(place).initialize(messages=SAID)
    elif what == "a folder":
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "lock").touch()
        place.symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in place.iterdir())
    sweep(library)
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.parametrize("plant", ["a folder", "a link", "a FIFO"])
def test_a_note_that_cannot_be_made_stops_nothing(tmp_path: Path, plant: str) -> None:
    """P7, P16: who stands in its place is neither followed nor removed, and the conversation is made."""
    library = ConversationLibrary(tmp_path / "chats")
    create(library)
    place = tmp_path / "chats" / f".new-{ID}"
    if plant == "a folder":
        place.mkdir()
    elif plant == "a link":
        place.symlink_to(tmp_path / "target")
    else:
        os.mkfifo(place)
    create_by_id(library)
    assert {summary.id for summary in library.list()} >= {ID}
    sweep(library)
    assert os.path.lexists(place)
    assert not (tmp_path / "target").exists()


def test_a_note_that_the_disk_refuses_stops_nothing() -> None:
    """P7: no note, and the create goes on."""
    disk = a_library()

    def refuse(call: FileSystemCall) -> None:
        if "/.new-" in call.path:
            raise OSError(errno.ENOLCK, "injected")

    disk.on_call = refuse
    create_by_id(library_on(disk))
    disk.on_call = None
    sweep(library_on(disk))
    insist_on_whole_conversations(disk, {2}, "without a note")
