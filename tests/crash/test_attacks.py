"""Another user with write access replaces each file between any two system calls of a victim.

Links, hard links, FIFOs, devices and directories take the place of every file of ours, at every moment of every operation, of a
victim that is nobody or root, with a umask of 000 or 0777. The victim may be refused, in words of ours; what the link leads to is
never read as ours, never written, and nobody waits for a FIFO. P16.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.kernel import Note, scratch
from tests.crash.operations import TORN
from tests.crash.strace import Injection, Say, trace
from tests.kit.children import Child
from transcript_store import ConversationStore, TranscriptStoreError, verify
from transcript_store._os.lock import Lock

pytestmark = [pytest.mark.root, pytest.mark.needs("strace")]

USER_ID = 65534
OURS = ("transcript.jsonl", "metadata.json", "lock", "archive", "quarantine")
MINE = b'{"format":"transcript-store","version":1} this is mine\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may reach, with a conversation's parent of nobody's in it, and something that is not ours."""
    with scratch() as there:
        there.chmod(0o755)
        (there / "parent").mkdir()
        os.chown(there / "parent", USER_ID, USER_ID)
        (there / "target").mkdir()
        (there / "target" / "file").write_bytes(MINE)
        (there / "target" / "file").chmod(0o644)
        (there / "target" / "folder").mkdir()
        (there / "target" / "folder" / "inside").write_bytes(MINE)
        for path in [there / "target", *(there / "target").rglob("*")]:
            os.chown(path, USER_ID, USER_ID)
        yield there


# ---- victims -----------------------------------------------------------------------------------------------------------


def create(path: Path) -> None:
    with ConversationStore(path) as store:
        store.load_or_initialize(messages=[{"n": 0}])
        store.append_message({"n": 1})


def append(path: Path) -> None:
    with ConversationStore(path) as store:
        store.load()
        store.append_message({"n": 1})
        store.update_metadata(model="m")


def replace(path: Path) -> None:
    with ConversationStore(path) as store:
        store.load()
        store.replace_transcript([{"n": 2}])


def recover(path: Path) -> None:
    with open(path / "transcript.jsonl", "ab") as file:
        file.write(TORN)
    with ConversationStore(path) as store:
        store.load()


def read(path: Path) -> None:
    with ConversationStore(path, read_only=True) as store:
        store.load()
        store.refresh()
    verify(path)


VICTIMS = [create, append, replace, recover, read]

# ---- attacks -----------------------------------------------------------------------------------------------------------


def links(path: Path, target: Path) -> None:
    _clear(path)
    path.symlink_to(target / ("folder" if path.name in ("archive", "quarantine") else "file"))


def hard_links(path: Path, target: Path) -> None:
    if path.name not in ("archive", "quarantine"):
        _clear(path)
        os.link(target / "file", path)


def fifos(path: Path, target: Path) -> None:
    _clear(path)
    os.mkfifo(path, 0o666)


def devices(path: Path, target: Path) -> None:
    _clear(path)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: whoever reads it never comes to an end


def directories(path: Path, target: Path) -> None:
    if path.name not in ("archive", "quarantine"):
        _clear(path)
        path.mkdir()


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


ATTACKS = [links, hard_links, fifos, devices, directories]


def swapped_folder(path: Path, target: Path) -> None:
    """The whole folder is moved away, and a link stands in its place."""
    if path.name == OURS[0]:
        folder = path.parent
        folder.rename(folder.with_name("moved away"))
        folder.symlink_to(target / "folder")


def contents(target: Path) -> dict[str, tuple[int, bytes]]:
    """What is there that is not ours: paths, modes, bytes."""
    return {
        str(path): (path.stat().st_mode, b"" if path.is_dir() else path.read_bytes())
        for path in [target, *sorted(target.rglob("*"))]
    }


def become(user: str, umask: int) -> None:
    if user == "nobody":
        os.setgroups([])
        os.setgid(USER_ID)
        os.setuid(USER_ID)
    os.umask(umask)


def fresh(path: Path, victim: Callable[[Path], None], user: str, umask: int) -> None:
    """The conversation that a victim works on: made once by the user, then copied with all that it is."""
    shutil.rmtree(path.parent / "moved away", ignore_errors=True)
    _clear(path)
    if victim is create:
        return
    made = path.parents[1] / "made before"
    if made.exists():
        shutil.copytree(made, path)
        for there in [path, *path.rglob("*")]:
            os.chown(there, made.stat().st_uid, made.stat().st_gid)
        return

    def prepare(_: Say) -> None:
        become(user, umask)
        with ConversationStore(path) as store:
            store.initialize(messages=[{"n": 0}])
            store.replace_transcript([{"n": 0}])

    Child(prepare).end()
    shutil.copytree(path, made)
    os.chown(made, path.stat().st_uid, path.stat().st_gid)


@pytest.mark.parametrize(("user", "umask"), [("nobody", 0o777), ("root", 0o000)])
@pytest.mark.parametrize("attack", [*ATTACKS, swapped_folder], ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("victim", VICTIMS, ids=lambda victim: victim.__name__)
def test_everything_is_swapped_between_any_two_calls(
    folder: Path,
    victim: Callable[[Path], None],
    attack: Callable[[Path, Path], None],
    user: str,
    umask: int,
    record_property: Note,
) -> None:
    """P16: nothing that is not ours is written to or waited for, and what is said is an error of ours or nothing."""
    path, target = folder / "parent" / "c", folder / "target"
    before = contents(target)

    def prepare() -> None:
        become(user, umask)

    def work(say: Say) -> None:
        try:
            victim(path)
        except TranscriptStoreError as error:
            say(type(error).__name__)

    fresh(path, victim, user, umask)
    points = [call for call in trace(work, prepare=prepare).calls if call.touches(folder / "parent")]
    assert len(points) > 10
    record_property("attacks between two calls", len(points[::3]))
    for call in points[::3]:
        fresh(path, victim, user, umask)

        def swap() -> None:
            if path.is_dir():
                for name in OURS:
                    attack(path / name, target)

        traced = trace(work, prepare=prepare, while_stopped=swap, injection=Injection(call, "signal=SIGSTOP"))
        assert not traced.killed
        assert contents(target) == before, f"stopped at {call}, {traced.lines}"


def test_a_store_that_writes_into_what_was_planted_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: a store that signs its lock whatever other names it has writes into what is not ours."""

    def sign(self: Lock) -> None:
        self._files.truncate(self._handle, 0)
        self._files.write(self._handle, b"mine now")

    monkeypatch.setattr(Lock, "sign", sign)
    with pytest.raises(AssertionError, match="stopped at"):
        test_everything_is_swapped_between_any_two_calls(folder, append, hard_links, "root", 0, lambda *_: None)


@pytest.mark.parametrize("umask", [0o000, 0o777])
@pytest.mark.parametrize("user", ["nobody", "root"])
def test_modes(folder: Path, user: str, umask: int) -> None:
    """P16: after every operation each file is 0600, each folder is 0700, and each belongs to the owner of its parent folder.
    The umask does not matter, and neither does whether an unprivileged user or root runs the operation.
    """
    path = folder / "parent" / "made" / "c"

    def work(say: Say) -> None:
        become(user, umask)
        create(path)
        replace(path)
        recover(path)
        append(path)

    Child(work).end()
    found = {str(there.relative_to(path.parent)): there.stat() for there in [path.parent, *path.parent.rglob("*")]}
    assert {"c/archive/transcript-000000.jsonl", "c/quarantine"} <= set(found)
    for name, status in found.items():
        expected = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        assert stat.S_IMODE(status.st_mode) == expected, name
        assert status.st_uid == USER_ID  # the owner of the parent folder


ODD = [
    "a\nb",
    " ",
    "\x1b[31mred",
    "-rf",
    "...",
    "transcript.jsonl",
    ".tmp-" + "0" * 32,
    "x" * 255,
    "\u202egnp",
    "\udcff\udc80",
    "*?[]$`'\"\\",
    "lost+found",
]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_odd_names(folder: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """P16: a conversation may have any name that a folder may have, and nothing lands outside it."""
    caplog.set_level(
        logging.CRITICAL, "transcript_store"
    )  # a log that is not UTF-8 cannot go from one pytest to another
    before = set(folder.rglob("*"))
    path = folder / "parent" / name
    create(path)
    replace(path)
    recover(path)
    append(path)
    with ConversationStore(path, read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == [{"n": 2}, {"n": 1}]
    assert verify(path).is_intact
    assert {there for there in folder.rglob("*") if path not in there.parents} - before == {path}


@pytest.mark.parametrize("steps", ["folder/.", "folder/..", "folder/../folder", "../target/folder", "folder//"])
def test_steps_in_a_path(folder: Path, steps: str) -> None:
    """P16: what they lead to is judged like any folder: what is not ours is refused and left alone."""
    before = contents(folder / "target")
    for operation in (create, append, read):
        with pytest.raises(TranscriptStoreError):
            operation(Path(f"{folder}/target/{steps}"))
    assert contents(folder / "target") == before
