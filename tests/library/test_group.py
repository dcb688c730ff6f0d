"""Conversations created together (A1 to A4 of ``group.py``): all the others are there whatever becomes of one."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import for_each
from tests.kit.children import Child
from tests.kit.machines import SyncedWhole
from transcript_store import (
    ConversationExistsError,
    ConversationGroup,
    ConversationLibrary,
    ConversationLockedError,
    InvalidIdError,
    InvalidMessageError,
    NewConversation,
    PoisonedError,
    StorageError,
    list_conversations,
    verify,
)
from transcript_store._os import filesystem
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

A, B, C = (f"0000000{number}-0000-4000-8000-000000000000" for number in range(3))
SAID = [{"role": "user", "content": "What is there?"}]
LATE: dict[str, Any] = {"role": "user", "content": "Too late."}


@pytest.fixture
def files() -> SyncedWhole:
    return SyncedWhole()


@pytest.fixture
def library(tmp_path: Path, files: SyncedWhole) -> ConversationLibrary:
    return ConversationLibrary(tmp_path / "library", file_system=files)


def names(library: ConversationLibrary) -> list[str]:
    return sorted(os.listdir(library.directory))


def on_a_disk() -> tuple[SimulatedFileSystem, ConversationLibrary]:
    disk = SimulatedFileSystem()
    return disk, ConversationLibrary("/library", file_system=disk)


def refusing(*refused: str, code: int = errno.EIO, path: str = "/library") -> Callable[[FileSystemCall], None]:
    def refuse(call: FileSystemCall) -> None:
        if call.name in refused and call.path == path:
            raise OSError(code, os.strerror(code))

    return refuse


# ---- what is promised --------------------------------------------------------------------------------------------------


def test_nothing_is_there_before_the_commit_and_all_of_it_afterwards(library: ConversationLibrary) -> None:
    """A1: neither a list nor an open shows what waits; and nothing else is left afterwards."""
    with library.group() as group:
        group.add(id=A, messages=SAID, labels={"title": "First"})
        group.add(id=B, provider="claude", messages=SAID, extras=[{"n": 1}], times=["2026-01-01T00:00:00Z"])
        with group.adding(id=C, messages=SAID) as store:
            store.append_message({"role": "assistant", "content": "Much."})
            store.replace_transcript(SAID, compaction_count=1)
            assert C in group
        assert len(group) == 3
        assert library.list() == list_conversations(library.directory) == []
    assert names(library) == [A, B, C]
    assert {summary.id: (summary.title, summary.record_count) for summary in library.list()} == {
        A: ("First", 1),
        B: (None, 1),
        C: (None, 1),
    }
    assert all(verify(summary.directory).is_intact for summary in library.list())


def test_a_conversation_is_the_same_as_one_that_was_created_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte, metadata and mark too. The first writer creates the lock file."""
    monkeypatch.setattr(SimulatedFileSystem, "now_us", lambda _: 1_790_000_000_000_000)
    contents: NewConversation = {
        "provider": "claude",
        "messages": [*SAID, None],
        "extras": [None, {"n": 1}],
        "times": [None, "2026-09-20T10:00:00Z"],
        "labels": {"title": "T"},
    }
    (alone, one), (grouped, other) = on_a_disk(), on_a_disk()
    one.create(id=A, **contents).close()
    with other.group() as group:
        group.add(id=A, **contents)
    assert grouped.tree() == {path: data for path, data in alone.tree().items() if not path.endswith("/lock")}


@pytest.mark.parametrize("is_removed", [False, True])
def test_what_a_store_was_opened_on_has_no_lock_file_either(is_removed: bool) -> None:
    """A2: otherwise the next writer would take its name for synced. The file may have been removed already."""
    disk, library = on_a_disk()
    with library.group() as group, group.adding(id=A, messages=SAID) as store:
        store.append_message({"role": "assistant", "content": "Much."})
        assert f"{store.directory}/lock" in disk.tree()
        if is_removed:
            disk.unlink(disk.open_directory(store.directory), "lock")
    assert disk.tree().keys() >= {f"/library/{A}/transcript.jsonl", f"/library/{A}/metadata.json"}
    assert f"/library/{A}/lock" not in disk.tree()


def test_a_thousand_wait_for_the_disk_as_one(library: ConversationLibrary, files: SyncedWhole) -> None:
    """One sync of the file system, one of the library; nothing is listed, removed or replaced in between."""
    with library.group() as group:
        group.add(messages=SAID)
        files.counted.clear()
        for _ in range(999):
            group.add(messages=SAID)
    assert files.counted == {"sync_all": 1, "sync": 1}
    assert len(names(library)) == 1000


def test_a_commit_of_nothing_does_not_wait(library: ConversationLibrary, files: SyncedWhole) -> None:
    """Neither before the first is added nor behind a commit; nor does the end of a block behind one."""
    with library.group() as group:
        files.counted.clear()
        group.commit()
        assert not files.counted
        group.add(messages=SAID)
        group.commit()
        files.counted.clear()
        group.commit()
    assert not files.counted


def test_a_short_conversation_is_two_writes() -> None:
    """The first line of a transcript goes out with its records; and its metadata is the other write."""
    disk, library = on_a_disk()
    written: list[str] = []
    with library.group() as group:
        disk.on_call = lambda call: written.append(call.path) if call.name == "write" and A in call.path else None
        group.add(id=A, messages=SAID * 10, labels={"title": "First"})
        disk.on_call = None
    assert [path.rpartition("/")[2] for path in written] == ["transcript.jsonl", "metadata.json"]
    with library.open(A, read_only=True) as store:
        assert store.get_messages() == SAID * 10


def test_a_full_group_commits_by_itself(library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory, and what a crash can cost, is bounded: by number, and by size."""
    monkeypatch.setattr("transcript_store._library.group._MOST", 2)
    monkeypatch.setattr("transcript_store._library.group._MOST_BYTES", 1000)
    with library.group() as group:
        waited = []
        for size in (1, 1, 1, 2000, 1):
            group.add(messages=[{"role": "user", "content": "x" * size}])
            waited.append(len(group))
        assert waited == [1, 2, 1, 2, 1]
    assert len(library.list()) == 5


def test_the_size_of_a_group_is_that_of_what_waits(
    library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte: what was committed, or not added, does not count; messages and extras do, and all of them together."""
    encoded = b'{"role":"user","content":"What is there?"}{"n":1}'
    monkeypatch.setattr("transcript_store._library.group._MOST_BYTES", 3 * len(encoded))
    with library.group() as group:
        waited = []
        for _ in range(8):
            group.add(messages=SAID, extras=[{"n": 1}])
            waited.append(len(group))
            with pytest.raises(InvalidMessageError):
                group.add(messages=[*SAID, "no message"], extras=[{"n": 1}, None])  # type: ignore[list-item]
        assert waited == [1, 2, 3, 1, 2, 3, 1, 2]
    with library.group() as group:
        monkeypatch.setattr("transcript_store._library.group._MOST_BYTES", 3 * len(encoded) + 1)
        waited = []
        for _ in range(5):
            group.add(messages=SAID, extras=[{"n": 1}])
            waited.append(len(group))
        assert waited == [1, 2, 3, 4, 1]


def test_where_the_file_system_cannot_be_synced_as_a_whole_each_is_created_by_itself(tmp_path: Path) -> None:
    """It is there, and durable, as soon as it is added."""

    class Doubtful(SyncedWhole):
        def doubt(self, handle: int) -> bool:
            return handle < 0

        can_sync_all = doubt

    files = Doubtful()
    library = ConversationLibrary(tmp_path / "library", file_system=files)
    with library.group() as group:
        group.add(id=A, messages=SAID)
        with group.adding(id=B, messages=SAID) as store:
            store.append_message(SAID[0])
        assert len(group) == 0
        assert len(library.list()) == 2
    assert files.counted["sync_all"] == 0
    assert files.counted["sync"] >= 14


def test_only_what_answers_for_its_syncs_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4, xfs and btrfs of Linux 5.17 and later are trusted; nothing else, and nothing that is unknown."""
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        for kind, release, is_believed in [
            ("ext4", "5.17.0-generic", True),
            ("xfs", "6.1.0", True),
            ("btrfs", "10.0", True),
            ("ext4", "5.16.9", False),
            ("ext4", "4.18.0-553.el8", False),
            ("overlay", "6.1.0", False),
            ("tmpfs", "6.1.0", False),
            ("fuse.sshfs", "6.1.0", False),
            ("nfs4", "6.1.0", False),
            (None, "6.1.0", False),
            ("ext4", "unknown", False),
        ]:
            monkeypatch.setattr(filesystem, "type_of", lambda _, kind=kind: kind)
            monkeypatch.setattr(filesystem, "release", lambda release=release: release)
            assert filesystem.can_be_relied_upon(handle) == (is_believed and os.uname().sysname == "Linux"), (
                kind,
                release,
            )
    finally:
        os.close(handle)


# ---- ids that are taken ------------------------------------------------------------------------------------------------


def test_an_id_that_is_there_or_waits_is_refused(library: ConversationLibrary) -> None:
    library.create(id=A).close()
    with library.group() as group:
        with pytest.raises(ConversationExistsError):
            group.add(id=A)
        group.add(id=B)
        with pytest.raises(ConversationExistsError, match="in the group already"):
            group.add(id=B)
        with pytest.raises(InvalidIdError):
            group.add(id="../escape")
    assert names(library) == [A, B]


@pytest.mark.parametrize("kind", ["conversation", "half a create", "file", "link", "directory with a file"])
def test_a_conversation_created_before_the_commit_is_kept(kind: str, library: ConversationLibrary) -> None:
    """What came under an id before the commit is not replaced; the group says which it did not create, and leaves nothing."""
    path = Path(library.directory) / A
    with library.group() as group:
        group.add(id=A, messages=SAID)
        group.add(id=B, messages=SAID)
        match kind:
            case "conversation":
                library.create(id=A, messages=[*SAID, *SAID]).close()
            case "half a create":
                path.mkdir()
                (path / "lock").touch()
            case "file":
                path.write_text("mine")
            case "link":
                path.symlink_to("/etc")
            case "directory with a file":
                path.mkdir()
                (path / "note").write_text("mine")
        status = path.lstat()
    assert group.existing_ids == {A}
    assert path.lstat().st_ino == status.st_ino
    assert names(library) == [A, B]
    assert [summary.record_count for summary in library.list() if summary.id == B] == [1]


def test_an_empty_folder_is_used(library: ConversationLibrary) -> None:
    """As ``create`` uses it."""
    with library.group() as group:
        group.add(id=A, messages=SAID)
        (Path(library.directory) / A).mkdir()
    assert group.existing_ids == frozenset()
    assert library.list()[0].record_count == 1


# ---- what goes wrong ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_stored_leaves_the_others(library: ConversationLibrary) -> None:
    with library.group() as group:
        group.add(id=A, messages=SAID)
        with pytest.raises(InvalidMessageError):
            group.add(id=B, messages=[{"content": object()}])
        with pytest.raises(ZeroDivisionError), group.adding(id=C, messages=SAID):
            raise ZeroDivisionError
        assert len(group) == 1
        group.add(id=C, messages=SAID)
    assert names(library) == [A, C]


def test_a_block_that_fails_adds_nothing(library: ConversationLibrary) -> None:
    with pytest.raises(KeyboardInterrupt), library.group() as group:
        group.add(id=A, messages=SAID)
        group.commit()
        group.add(id=B, messages=SAID)
        raise KeyboardInterrupt
    assert names(library) == [A]


def test_a_sync_of_all_that_fails_names_nothing() -> None:
    """A4: nothing of the group is stored, nothing more is accepted, the error has a hint; and the next group works."""
    disk, library = on_a_disk()
    with pytest.raises(PoisonedError), library.group() as group:
        group.add(id=A, messages=SAID)
        group.add(id=B, messages=SAID)
        disk.on_call = refusing("sync_all")
        with pytest.raises(StorageError, match="None of them was created") as caught:
            group.commit()
        assert "create the rest again" in str(caught.value)
        disk.on_call = None
        with pytest.raises(PoisonedError):
            group.add(id=C, messages=SAID)
    assert disk.worst_power_failure().tree().keys() <= {"/library"}
    assert library.list() == []
    assert disk.open_handles == []
    with library.group() as group:
        group.add(id=A, messages=SAID)
    assert [one.id for one in ConversationLibrary("/library", file_system=disk.worst_power_failure()).list()] == [A]


def test_names_whose_sync_failed_are_synced_by_the_next() -> None:
    """A2: they may be stored; the note stays, and the next create or delete in this library syncs them."""
    disk, library = on_a_disk()
    with (
        pytest.raises(StorageError, match="Some of them may be there, each of them whole"),
        library.group() as group,
    ):
        group.add(id=A, messages=SAID)
        disk.on_call = refusing("sync")
    disk.on_call = None
    assert [path for path in disk.tree() if "/.stage-" in path]
    with library.group():
        pass
    survives = ConversationLibrary("/library", file_system=disk.worst_power_failure())
    assert [one.id for one in survives.list()] == [A]
    assert not [path for path in disk.tree() if "/.stage-" in path]


def test_a_rename_that_fails_ends_the_group_too() -> None:
    """Conversations added then, or later, got ids but were never created. No sync failed, so no sync is reported."""
    disk, library = on_a_disk()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "rename":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(PoisonedError, match="a commit of this group failed"), library.group() as group:
        group.add(id=A, messages=SAID)
        with pytest.raises(PoisonedError), group.adding(id=B, messages=SAID):
            disk.on_call = refuse
            with pytest.raises(StorageError, match="Some of them may be there"):
                group.commit()
            disk.on_call = None
        with pytest.raises(PoisonedError) as caught:
            group.add(id=C, messages=SAID)
        assert "sync" not in str(caught.value)
        assert "create the rest again" in str(caught.value)
        assert len(group) == 0
    assert not [path for path in disk.tree() if path.endswith((A, B, C))]


@for_each("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_in_the_middle_leaves_nothing_of_that_one(code: int) -> None:
    """Whatever call it is: an error of ours, what was committed before is there, and the group can go on."""
    for refused_call in range(1, 100):
        disk, library = on_a_disk()
        with library.group() as group:
            group.add(id=A, messages=SAID)
            group.commit()
            group.add(id=B, messages=SAID)
            made = iter(range(1, 1000))

            def refuse(call: FileSystemCall, made: Iterator[int] = made, number: int = refused_call) -> None:
                if next(made) == number:
                    raise OSError(code, os.strerror(code))

            disk.on_call = refuse
            try:
                group.add(id=C, messages=SAID)
            except StorageError:
                pass
            else:
                if next(made) <= refused_call:
                    break
            finally:
                disk.on_call = None
        assert {A, B} <= {one.id for one in library.list()} <= {A, B, C}
        assert not [path for path in disk.tree() if "/.stage-" in path]
    assert refused_call > 8


def test_a_removed_note_is_noticed(library: ConversationLibrary) -> None:
    """A3: without it others may have removed a part of what waits, so none of it gets a name."""
    with pytest.raises(ConversationLockedError, match="note"), library.group() as group:
        group.add(id=A, messages=SAID)
        (note,) = [name for name in names(library) if name.startswith(".stage-") and len(name) == 39]
        os.unlink(f"{library.directory}/{note}")
    assert library.list() == []


# ---- stages of others --------------------------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_swept_and_never_listed() -> None:
    """A3: wherever it was killed; by the next group, create or delete."""
    sweepers: list[Callable[[ConversationLibrary], object]] = [
        lambda library: library.group().__enter__(),
        lambda library: library.create(id=C).close(),
    ]
    count = 0
    for stop in range(1, 1000):
        disk, library = on_a_disk()
        made = iter(range(1, 10_000))

        def kill(call: FileSystemCall, made: Iterator[int] = made, stop: int = stop) -> None:
            if next(made) == stop:
                raise SimulatedStop

        disk.on_call = kill
        try:
            with library.group() as group:
                group.add(id=A, messages=SAID)
                group.add(id=B, messages=SAID)
        except SimulatedStop:
            count += 1
        else:
            break
        disk = disk.kill_process()
        library = ConversationLibrary("/library", file_system=disk)
        there = {one.id for one in library.list()}
        assert there <= {A, B}
        for summary in list_conversations("/library", file_system=disk) if "/library" in disk.tree() else ():
            assert (summary.id, summary.damage) in {(A, None), (B, None)}
        sweepers[stop % 2](library)
        assert not [path for path in disk.tree() if "/.stage-" in path], f"killed at call {stop}"
        assert {one.id for one in library.list()} - {C} == there
    assert count > 30


def test_a_stage_that_cannot_be_removed_disturbs_no_call() -> None:
    """A3: each call does its work, and the next one tries to remove the stage again."""
    disk, library = on_a_disk()
    ends: list[str] = []

    def kill(call: FileSystemCall) -> None:
        if ends or call.name == "rename":
            ends.append(call.name)
            raise SimulatedStop

    with pytest.raises(SimulatedStop), library.group() as group:
        group.add(id=A, messages=SAID)
        disk.on_call = kill
    disk = disk.kill_process()
    library = ConversationLibrary("/library", file_system=disk)

    def refuse(call: FileSystemCall) -> None:
        if call.name == "unlink" and "/.stage-" in call.path:
            raise PermissionError(errno.EACCES, "it belongs to another user")

    disk.on_call = refuse
    library.create(id=C).close()
    library.delete(C)
    with library.group() as group:
        group.add(id=B)
    assert [path for path in disk.tree() if "/.stage-" in path]
    disk.on_call = None
    library.delete(B)
    assert not [path for path in disk.tree() if "/.stage-" in path]
    assert not library.list()


def test_the_stage_of_a_live_process_is_left_unchanged(library: ConversationLibrary) -> None:
    """A3: others create, delete and list meanwhile."""

    def elsewhere(say: Callable[[object], None]) -> None:
        other = ConversationLibrary(library.directory)
        with other.group():
            pass
        other.create(id=B).close()
        other.delete(B)
        say(len(other.list()))

    with library.group() as group:
        group.add(id=A, messages=SAID)
        assert Child(elsewhere).end() == ["0"]
    assert names(library) == [A]


def test_a_link_with_the_name_of_a_stage_is_not_followed(tmp_path: Path, library: ConversationLibrary) -> None:
    """It is removed, and what it leads to is left alone; so is one in the place of a note."""
    library.create(id=A).close()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    stage = ".stage-" + "0" * 32
    os.symlink(precious, f"{library.directory}/{stage}-{B}")
    os.symlink(precious / "file", f"{library.directory}/.stage-{'1' * 32}")
    with library.group() as group:
        group.add(id=B)
    assert (precious / "file").read_text() == "kept"
    assert f"{stage}-{B}" not in names(library)
    assert {one.id for one in library.list()} == {A, B}


def test_threads_share_a_group(library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it commits while others add."""
    monkeypatch.setattr("transcript_store._library.group._MOST", 7)

    def add(group: ConversationGroup) -> None:
        for _ in range(50):
            group.add(messages=SAID)

    with library.group() as group:
        threads = [threading.Thread(target=add, args=(group,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(library.list()) == 200
    assert not [name for name in names(library) if name.startswith(".")]


@pytest.mark.parametrize("add", ["add", "adding", "commit"])
def test_a_group_ends_with_its_block(library: ConversationLibrary, add: str) -> None:
    """Conversations added after it got an id but were never created."""
    with library.group() as group:
        group.add(id=A, messages=SAID)
    with pytest.raises(RuntimeError, match="has ended"), ExitStack() as stack:
        if add == "adding":
            stack.enter_context(group.adding())
        else:
            getattr(group, add)()
    assert names(library) == [A]


@pytest.mark.parametrize("add", ["add", "adding"])
def test_adding_to_a_group_that_has_ended_raises(add: str, tmp_path: Path) -> None:
    """It got an error about a bad file descriptor. The last of them removes the note; a second ``close`` does so too."""
    is_adding, goes_on = threading.Event(), threading.Event()

    def waiting(message: dict[str, Any]) -> dict[str, Any]:
        if message == LATE:
            is_adding.set()
            assert goes_on.wait(60)
        return message

    def add_late() -> None:
        if add == "add":
            group.add(id=B, messages=[LATE])
        else:
            with group.adding(id=B, messages=SAID):
                waiting(LATE)

    library = ConversationLibrary(tmp_path / "library", redact=waiting, file_system=SyncedWhole())
    with ThreadPoolExecutor(1) as thread:
        with library.group() as group:
            group.add(id=A, messages=SAID)
            late = thread.submit(add_late)
            assert is_adding.wait(60)
        group.close()
        goes_on.set()
        with pytest.raises(RuntimeError, match="has ended"):
            late.result(60)
    assert B not in group
    assert names(library) == [A]


def test_nothing_is_added_between_the_last_commit_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It got an id and was thrown away by the end: the two were two steps."""
    close, is_held = ConversationGroup.close, []

    def closing(group: ConversationGroup) -> None:
        is_held.append(group._mutex._is_owned())  # type: ignore[attr-defined]  # what another thread's add waits for
        close(group)

    monkeypatch.setattr(ConversationGroup, "close", closing)
    library = ConversationLibrary(tmp_path / "library", file_system=SyncedWhole())
    with library.group() as group:
        group.add(id=A, messages=SAID)
    assert is_held[0]
    assert names(library) == [A]


def test_a_thread_that_waits_while_its_group_ends_gets_an_error(tmp_path: Path) -> None:
    """Its conversation is written; it got an id, was never created, and stayed under a name that nothing looks for."""
    is_adding, goes_on, is_written = threading.Event(), threading.Event(), threading.Event()

    def waiting(message: dict[str, Any]) -> dict[str, Any]:
        if message == LATE:
            is_adding.set()
            assert goes_on.wait(60)
        return message

    class Ending(SyncedWhole):
        """While the end of the group takes away what waits, the other one writes."""

        def close(self, handle: int) -> None:
            super().close(handle)
            if any((tmp_path / "library").glob(f".stage-*-{B}/metadata.json")):
                is_written.set()

        def remove_directory(self, parent: int, name: str) -> None:
            if name.endswith(A):
                goes_on.set()
                assert is_written.wait(60)
            super().remove_directory(parent, name)

    library = ConversationLibrary(tmp_path / "library", redact=waiting, file_system=Ending())
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(ZeroDivisionError), library.group() as group:
            group.add(id=A, messages=SAID)
            late = thread.submit(lambda: group.add(id=B, messages=[LATE]))
            assert is_adding.wait(60)
            raise ZeroDivisionError
        with pytest.raises(RuntimeError, match="has ended"):
            late.result(60)
    assert names(library) == []


def test_a_child_that_leaves_the_block_of_a_group_is_told_whose_it_is(library: ConversationLibrary) -> None:
    """It got an error about a failing disk, although only the descriptors were closed."""

    def forked(say: Callable[[object], None]) -> None:
        try:
            group.commit()
        except RuntimeError as error:
            say(error)

    with library.group() as group:
        group.add(id=A, messages=SAID)
        assert Child(forked).end() == ["the group belongs to the process that created it; create another group here"]
    assert names(library) == [A]


def test_a_group_belongs_to_its_process(library: ConversationLibrary) -> None:
    """A child of fork() can neither add nor remove."""

    def forked(say: Callable[[object], None]) -> None:
        try:
            group.add(id=B)
        except RuntimeError:
            say("refused")
        group.close()

    with library.group() as group:
        group.add(id=A, messages=SAID)
        assert Child(forked).end() == ["refused"]
    assert names(library) == [A]
