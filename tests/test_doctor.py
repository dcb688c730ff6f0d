"""``doctor`` tests a directory instead of assuming. It names what breaks a promise, and the promise.

On real file systems: tests/crash/test_doctor_on_volumes.py.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import for_each
from tests.kit.scratch import scratch_directory
from transcript_store import ConversationStore, Diagnosis, StorageError, _doctor, doctor
from transcript_store._doctor import Mount, file_system, mount_of
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.cli import main

TRIED = [
    "file system", "sync", "permissions", "rename and link", "directory sync", "kernel lock",
    "reads past the cache", "O_DSYNC", "space", "clock", "a conversation",
]  # fmt: skip


def result(found: Diagnosis, name: str) -> str:
    return next(check.result for check in found.checks if check.name == name)


@pytest.fixture
def quick() -> Iterator[Path]:
    """A place in memory, where 200 syncs cost nothing."""
    with scratch_directory() as directory:
        yield Path(directory)


def test_everything_is_tried_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "of somebody").write_text("else")
    found = doctor(tmp_path)
    assert [check.name for check in found.checks] == TRIED
    assert [path.name for path in tmp_path.iterdir()] == ["of somebody"]
    assert found.directory == str(tmp_path)
    assert found.sync_microseconds is not None
    assert 0 < found.sync_microseconds[0] <= found.sync_microseconds[1]
    # Where tests run there may be no medium, but locks, names and permissions there are.
    assert set(found.failed_promises) <= {"P1", "P2", "P4"}
    assert {result(found, name) for name in TRIED[2:]} <= {"ok", "note"}


def test_memory_is_no_medium() -> None:
    """/dev/shm: everything works, and everything is gone with the power."""
    found = doctor("/dev/shm")
    assert found.failed_promises == ("P1", "P2", "P4")
    assert [result(found, name) for name in ("file system", "sync", "a conversation")] == ["failed", "failed", "ok"]


# ---- places that break a promise --------------------------------------------------------------------------------------

Patch = Callable[..., Any]


def refuses(*_: object, **__: object) -> Any:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def makes_it_public(self: PosixFileSystem, parent: int, name: str) -> int:
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=parent)
    os.fchmod(handle, 0o644)
    return handle


def copies(self: PosixFileSystem, parent: int, old: str, new: str) -> None:
    os.close(os.open(new, os.O_WRONLY | os.O_TRUNC, dir_fd=parent))


BROKEN: list[tuple[str, Patch, str, tuple[str, ...]]] = [
    ("sync_data", lambda *_: None, "sync", ("P1", "P2", "P4")),
    ("sync_data", refuses, "sync", ("P1", "P2", "P4")),
    ("sync", refuses, "directory sync", ("P1", "P4")),
    ("create", makes_it_public, "permissions", ("P16",)),
    ("rename", refuses, "rename and link", ("P4", "P9")),
    ("rename", copies, "rename and link", ("P4", "P9")),
    ("try_lock", lambda *_: True, "kernel lock", ("P11",)),
    ("try_lock", refuses, "kernel lock", ("P11",)),
]


@pytest.mark.parametrize(
    ("call", "instead", "check", "promises"),
    BROKEN,
    ids=[f"{call}-{instead.__name__}" for call, instead, _, _ in BROKEN],
)
def test_a_place_that_breaks_a_promise(
    call: str,
    instead: Patch,
    check: str,
    promises: tuple[str, ...],
    quick: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is found by the check that is about it, and the others go on."""
    place = tmp_path if check == "sync" else quick
    monkeypatch.setattr(PosixFileSystem, call, instead)
    found = doctor(place)
    assert result(found, check) == "failed"
    assert next(one.promises for one in found.checks if one.name == check) == promises
    assert set(promises) <= set(found.failed_promises)
    assert not found.is_ok
    assert [one.name for one in found.checks] == TRIED
    assert list(place.iterdir()) == []


def test_reads_past_the_cache_that_are_refused(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P6 depends on them: without them, a page that another process has mapped is trusted after a failed sync."""
    really = os.open

    def no_direct(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECT:
            refuses()
        return really(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", no_direct)
    assert "P6" in doctor(quick).failed_promises


def test_a_conversation_that_does_not_come_back(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks it: here every read finds nothing."""
    monkeypatch.setattr(PosixFileSystem, "read", lambda *_: bytearray())
    found = doctor(quick)
    assert result(found, "a conversation") == "failed"
    assert {"P1", "P2"} <= set(found.failed_promises)


@for_each(
    "kind, options, result, promise",
    [
        ("ext4", ("rw", "relatime"), "ok", None),
        ("tmpfs", ("rw",), "failed", "P1"),
        ("nfs4", ("rw", "vers=4.2"), "failed", "P11"),
        ("overlay", ("rw", "volatile"), "failed", "P1"),
        ("overlay", ("rw", "fsync=volatile"), "failed", "P1"),
        ("ext4", ("rw", "nobarrier"), "failed", "P1"),
        ("ext4", ("rw", "barrier=0"), "failed", "P1"),
        ("ext4", ("rw", "errors=remount-ro"), "note", None),
        ("fuse.sshfs", ("rw",), "failed", "P11"),
        ("zfs", ("rw",), "note", None),
    ],
)
def test_what_is_known_of_a_file_system(kind: str, options: tuple[str, ...], result: str, promise: str | None) -> None:
    check = file_system(Mount(kind=kind, source="/dev/sda1", point="/", options=options))
    assert check.result == result
    assert promise in check.promises if promise else check.promises == ()
    assert kind in check.found


def test_the_nearest_mount_is_the_one_that_counts(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """proc(5): the last mount on a point hides the others; a space in a path is written in octal."""
    point = str(quick / "my disk").replace(" ", r"\040")
    lines = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro",
        f"30 22 0:40 / {point} rw - tmpfs hidden rw",
        f"31 22 0:41 / {point} ro,nosuid shared:2 master:3 - xfs /dev/my\\040disk rw,noquota",
        f"32 22 0:42 / {point}er rw - btrfs /dev/vdc rw",
    )
    (quick / "mountinfo").write_text("\n".join(lines) + "\n")
    (quick / "my disk").mkdir()
    monkeypatch.setattr(_doctor, "_MOUNTINFO", str(quick / "mountinfo"))
    found = mount_of(str(quick / "my disk/chats"))
    assert found is not None
    assert (found.kind, found.source, found.options) == ("xfs", "/dev/my disk", ("ro", "nosuid", "rw", "noquota"))
    assert (found := mount_of("/")) is not None
    assert (found.kind, found.options[-1]) == ("ext4", "errors=remount-ro")
    (quick / "mountinfo").unlink()
    assert mount_of("/") is None
    assert result(doctor(quick), "file system") == "skipped"


def test_what_a_killed_one_left_is_removed_by_the_next(quick: Path) -> None:
    """Nobody else's files are touched; a conversation that was refused beside it can be made."""
    (quick / ".doctor-0123456789abcdef/sync").mkdir(parents=True)
    (quick / ".doctor-of-somebody").mkdir()
    doctor(quick)
    assert [path.name for path in quick.iterdir()] == [".doctor-of-somebody"]


def test_a_conversation_is_asked_about_its_place(quick: Path) -> None:
    """A conversation's folder holds only its own files: doctor reported that no conversation can be kept there."""
    with ConversationStore(quick / "chat") as store:
        store.initialize(provider="claude")
    before = sorted(path.name for path in (quick / "chat").iterdir())
    found = doctor(quick / "chat")
    assert found.directory == str(quick)
    assert result(found, "a conversation") == "ok"
    assert sorted(path.name for path in (quick / "chat").iterdir()) == before


# ---- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_found(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", str(quick)])
    said = capsys.readouterr().out
    assert all(name in said for name in TRIED)
    assert "only a power cut shows that" in said
    assert (status == 0) == ("nothing found that stands against a promise" in said)


def test_at_a_terminal_what_it_found_is_broken_between_words(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", str(quick)])
    in_a_pipe = capsys.readouterr().out.split("\n", 1)[1]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True)
        patch.setenv("COLUMNS", "80")
        main(["doctor", str(quick)])
    shown = capsys.readouterr().out.split("\n", 1)[1]  # the first line is the path
    assert max(map(len, shown.splitlines())) <= 80
    (permissions,) = (line for line in in_a_pipe.splitlines() if "permissions" in line)
    assert " ".join(permissions.split()) in " ".join(shown.split())


def test_the_command_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "/dev/shm", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed_promises"] == ["P1", "P2", "P4"]
    assert [check["name"] for check in found["checks"]] == TRIED


def test_no_such_place(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StorageError) as caught:
        doctor(quick / "nowhere")
    assert caught.value.errno == errno.ENOENT
    (quick / "file").write_text("")
    assert main(["doctor", str(quick / "file")]) == 1
    assert "Not a directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["doctor", ""])
    assert "a path must not be empty" in capsys.readouterr().err


def test_a_place_where_nothing_can_be_made(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Existing conversations can be read: no promise is broken for them, and none can be kept for writers."""
    monkeypatch.setattr(os, "mkdir", refuses)
    assert main(["doctor", str(quick)]) == 1
    said = capsys.readouterr().out
    assert "what is here can be read" in said
    assert "conversations cannot be stored here" in said


def test_files_are_private_while_it_works(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P16, for a folder that others may look into too."""
    modes: list[int] = []
    really = PosixFileSystem.sync_data

    def look(self: PosixFileSystem, handle: int) -> None:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in quick.iterdir())
        really(self, handle)

    monkeypatch.setattr(PosixFileSystem, "sync_data", look)
    doctor(quick)
    assert set(modes) == {0o700}
