"""A rotation on the real file system, and what it meets there: too few descriptors, providers that fail, writers, other rotations, what is no file.

K1 to K3 of ``_conversation/key_changes.py``; crashes are in test_crash.py and test_killed_rotation.py. P17.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.trees import replace_by_folder
from tests.sealed.conversations import KEY, OTHER_KEY
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    CorruptKeyFileError,
    KeyProviderError,
    StorageError,
    WrongKeyError,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def library(folder: Any, key: Any = KEY, retired: Any = (), disk: Any = None) -> ConversationLibrary:
    return ConversationLibrary(folder, encryption_key=key, retired_keys=retired, file_system=disk)


def made(of: ConversationLibrary, count: int) -> list[str]:
    with of.group() as group:
        return sorted(group.add(messages=[{"content": str(number)}]) for number in range(count))


class Vault:
    """A provider that fails when it is asked for the nth time to wrap."""

    id = "vault:1"

    def __init__(self, fails_at: int = 0, while_wrapping: Callable[[], object] = lambda: None) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.fails_at, self.asked, self.while_wrapping = fails_at, 0, while_wrapping

    def wrap(self, data_key: bytes) -> bytes:
        self.asked += 1
        if self.asked == self.fails_at:
            raise ConnectionError("token hunter2 expired")
        self.while_wrapping()
        ticket = os.urandom(16)
        self.kept[ticket] = data_key
        return ticket

    def unwrap(self, wrapped: bytes) -> bytes:
        return self.kept[wrapped]


@pytest.mark.parametrize("can_sync_all", [True, False])
def test_what_stands_before_a_conversation_whose_provider_fails_is_rotated(can_sync_all: bool) -> None:
    """In a batch too: or a provider that always fails for one would keep all others from it."""
    disk = SimulatedFileSystem()
    disk.can_sync_all = lambda handle: can_sync_all  # type: ignore[method-assign]
    ids = made(library("/library", disk=disk), 5)
    vault = Vault(fails_at=3)
    with pytest.raises(KeyProviderError) as raised:
        library("/library", vault, [KEY], disk).rotate_key()
    assert "hunter2" not in str(raised.value)
    found = [json.loads(disk.tree()[f"/library/{one}/key.json"] or b"")["key_id"] == "vault:1" for one in ids]
    assert found == [True, True, False, False, False]
    done = library("/library", vault, [KEY], disk).rotate_key()
    assert (list(done.rotated), list(done.already_current), done.skipped) == (ids[2:], ids[:2], ())


def test_no_conversation_is_locked_while_a_provider_takes_its_time() -> None:
    """Its writers wait for the disk at most; and what one of them does meanwhile is kept."""
    disk = SimulatedFileSystem()
    (one,) = made(library("/library", disk=disk), 1)

    def write() -> None:
        with library("/library", disk=disk.another_process()).open(one) as store:
            store.append_message({"content": "meanwhile"})

    vault = Vault(while_wrapping=write)
    assert library("/library", vault, [KEY], disk).rotate_key().rotated == (one,)
    with library("/library", vault, disk=disk).open(one) as store:
        assert [message["content"] for message in store.get_messages()] == ["0", "meanwhile"]


def test_a_key_that_was_destroyed_meanwhile_stays_destroyed() -> None:
    """K3."""
    disk = SimulatedFileSystem()
    (one,) = made(library("/library", disk=disk), 1)
    vault = Vault(while_wrapping=lambda: library("/library", disk=disk.another_process()).shred(one))
    done = library("/library", vault, [KEY], disk).rotate_key()
    assert [name for name, _ in done.skipped] == [one]
    assert b"wrapped" not in (disk.tree()[f"/library/{one}/key.json"] or b"")


def test_a_key_that_another_rotation_changed_meanwhile_stays_as_it_is() -> None:
    """K3: what is written would be older than what stands there. It is told, and the next call finds out what there is."""
    disk = SimulatedFileSystem()
    (one,) = made(library("/library", disk=disk), 1)
    vault = Vault(while_wrapping=lambda: library("/library", OTHER_KEY, [KEY], disk.another_process()).rotate_key())
    done = library("/library", vault, [KEY, OTHER_KEY], disk).rotate_key()
    assert (done.rotated, done.already_current, done.skipped) == ((), (), ((one, "its key was changed just now"),))
    with library("/library", OTHER_KEY, disk=disk).open(one) as store:
        assert len(store.get_messages()) == 1
    vault.while_wrapping = lambda: None
    assert library("/library", vault, [KEY, OTHER_KEY], disk).rotate_key().rotated == (one,)


def test_a_folder_that_is_not_called_by_an_id_is_rotated_only_if_it_is_named() -> None:
    """Somebody's own conversation beside those of the library, say: its key is another matter."""
    disk = SimulatedFileSystem()
    with ConversationStore("/library/mine", encryption_key=KEY, file_system=disk) as store:
        store.initialize(messages=[{"content": "mine"}])
    before = disk.tree()["/library/mine/key.json"]
    turned = library("/library", OTHER_KEY, [KEY], disk)
    assert turned.rotate_key().skipped == (("mine", "its name is not the id of a conversation"),)
    assert disk.tree()["/library/mine/key.json"] == before
    assert turned.rotate_key(["mine"]).rotated == ("mine",)


def test_a_library_without_a_key_has_nothing_to_wrap_with() -> None:
    """It is said before anything is looked at."""
    with pytest.raises(ValueError, match="needs the new key"):
        library("/nowhere", None, disk=SimulatedFileSystem()).rotate_key()


@pytest.mark.parametrize(("can_sync_all", "syncs"), [(True, [2, 1]), (False, [0, 0])])
def test_a_rotation_syncs_all_once_for_the_files_and_once_for_the_names(can_sync_all: bool, syncs: list[int]) -> None:
    """K2: the second time also for what an earlier rotation renamed. Where nothing is synced as a whole, one after the other is done."""
    disk = SimulatedFileSystem()
    disk.can_sync_all = lambda handle: can_sync_all  # type: ignore[method-assign]
    ids = made(library("/library", disk=disk), 3)
    calls: list[str] = []
    held: list[int] = []

    def note(call: FileSystemCall) -> None:
        calls.append(call.name)
        held.append(len(disk.open_handles))

    disk.on_call = note
    turned = library("/library", OTHER_KEY, [KEY], disk)
    counted = []
    for rotated, already in ((ids, 0), (list[str](), 3)):
        calls.clear()
        done = turned.rotate_key()
        assert (list(done.rotated), len(done.already_current)) == (rotated, already)
        counted.append(calls.count("sync_all"))
    assert counted == syncs
    if not can_sync_all:
        assert max(held) <= 4  # the library, and of one conversation its folder, its lock and its new file


def test_what_a_killed_rotation_left_is_swept_by_the_next() -> None:
    """It may be the data key, wrapped with a key that was given up since."""
    disk = SimulatedFileSystem()
    (one,) = made(library("/library", disk=disk), 1)
    left = f"/library/{one}/.tmp-{'0' * 32}"
    disk.write_file(left, disk.tree()[f"/library/{one}/key.json"] or b"")
    assert library("/library", OTHER_KEY, [KEY], disk).rotate_key().rotated == (one,)
    assert left not in disk.tree()


def test_a_key_that_is_gone_is_told_from_one_that_never_was() -> None:
    """The incident: where the key file of a sealed conversation was lost, a rotation said that it is not sealed."""
    disk = SimulatedFileSystem()
    (one,) = made(library("/library", disk=disk), 1)
    (stranger,) = made(ConversationLibrary("/library", file_system=disk), 1)
    nothing = "00000000-0000-4000-8000-000000000000"
    folder = disk.open_directory(f"/library/{one}")
    disk.unlink(folder, "key.json")
    disk.close(folder)
    disk.make_directory(disk.open_directory("/library"), nothing)
    told = dict(library("/library", OTHER_KEY, [KEY], disk).rotate_key().skipped)
    assert "key.json, without which it cannot be read, is missing" in told[one]
    assert "restore that file from a backup" in told[one]
    assert told[stranger] == "it is not sealed"
    assert told[nothing] not in ("it is not sealed", "")


@pytest.mark.parametrize("most", [12, 5])
def test_with_few_descriptors_batches_get_smaller(most: int) -> None:
    """Two are open for each conversation of a batch. Nothing is counted twice, also what was passed by before they ran out.

    At last there is one in each batch.
    """
    disk = SimulatedFileSystem()
    ids = made(library("/library", disk=disk), 30)
    strangers = made(ConversationLibrary("/library", file_system=disk), 10)
    assert min(strangers) < ids[5]

    def few(call: FileSystemCall) -> None:
        if call.name in ("open_directory", "open_read", "create", "open_append") and len(disk.open_handles) >= most:
            assert disk.calls_made < 10_000, "it tries for ever"
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    disk.on_call = few
    done = library("/library", OTHER_KEY, [KEY], disk).rotate_key()
    assert (list(done.rotated), done.already_current, [name for name, _ in done.skipped]) == (ids, (), strangers)
    assert not disk.open_handles


def test_a_full_disk_leaves_each_with_one_of_the_keys_and_the_next_one_finishes() -> None:
    """K1, P7."""
    disk = SimulatedFileSystem()
    ids = made(library("/library", disk=disk), 20)
    used = sum(len(data or b"") for data in disk.tree().values())
    disk.capacity_bytes = used + 2_500
    with pytest.raises(StorageError) as raised:
        library("/library", OTHER_KEY, [KEY], disk).rotate_key()
    assert raised.value.errno == errno.ENOSPC
    for one in ids:
        with library("/library", OTHER_KEY, [KEY], disk).open(one, read_only=True) as store:
            assert len(store.get_messages()) == 1
    disk.capacity_bytes = None
    assert not library("/library", OTHER_KEY, [KEY], disk).rotate_key().skipped
    for one in ids:
        with library("/library", OTHER_KEY, disk=disk).open(one) as store:
            assert len(store.get_messages()) == 1


def test_two_rotations_at_once_leave_whole_key_files_and_each_says_what_it_did(tmp_path: Path) -> None:
    """K1: whichever comes last, each conversation opens with one of the keys, and nothing is left over."""
    ids = made(library(tmp_path), 40)
    third = bytes([3]) * 32
    keys = [KEY, OTHER_KEY, third]
    results: list[Any] = []
    rotations = [
        threading.Thread(target=lambda key=key: results.append(library(tmp_path, key, keys).rotate_key()))
        for key in (OTHER_KEY, third)
    ]
    for rotation in rotations:
        rotation.start()
    for rotation in rotations:
        rotation.join()
    for result in results:
        assert len(result.rotated) + len(result.already_current) + len(result.skipped) == 40
    for one in ids:
        opened = 0
        for key in keys:
            try:
                with library(tmp_path, key).open(one, read_only=True) as store:
                    opened += len(store.get_messages())
            except WrongKeyError:
                pass
        assert opened == 1
    assert not list(tmp_path.glob("*/.tmp-*"))


def as_a_link(file: Path) -> None:
    (file.parent.parent.parent / "elsewhere").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(file.parent.parent.parent / "elsewhere")


def as_a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def as_a_terabyte(file: Path) -> None:
    os.truncate(file, 1 << 40)


@pytest.mark.parametrize(
    "make", [as_a_link, as_a_fifo, replace_by_folder, as_a_terabyte], ids=lambda make: make.__name__
)
def test_what_is_no_key_file_is_neither_followed_nor_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A load says so; a rotation leaves it alone, and does the one beside it; a shred or a delete touches nothing elsewhere."""
    folder = tmp_path / "library"
    one, other = made(library(folder), 2)
    key_file = folder / one / "key.json"
    before = key_file.read_bytes()
    make(key_file)
    with pytest.raises(CorruptKeyFileError):
        library(folder).open(one)
    done = library(folder, OTHER_KEY, [KEY]).rotate_key()
    assert (done.rotated, [name for name, _ in done.skipped]) == ((other,), [one])
    with suppress(StorageError):  # a directory cannot be replaced by a file
        library(folder).shred(one)
    library(folder).delete(one)
    if make is as_a_link:
        assert (tmp_path / "elsewhere").read_bytes() == before
    with library(folder, OTHER_KEY).open(other) as store:
        assert store.get_messages() == [{"content": "1"}] or store.get_messages() == [{"content": "0"}]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("name", ["open_directory", "create", "open_read"])
@pytest.mark.parametrize("can_sync_all", [True, False])
def test_a_folder_that_is_closed_to_this_user_is_left_unchanged(can_sync_all: bool, name: str, number: int) -> None:
    """One of another user's ended the rotation each time: it was not named, and what stands behind it kept the earlier key."""
    disk = SimulatedFileSystem()
    disk.can_sync_all = lambda handle: can_sync_all  # type: ignore[method-assign]
    first, *others = sorted(made(library("/library", disk=disk), 3))

    def closed(call: FileSystemCall) -> None:
        if call.name == name and first in call.path:
            raise OSError(number, os.strerror(number))

    disk.on_call = closed
    done = library("/library", OTHER_KEY, [KEY], disk=disk).rotate_key()
    assert sorted(done.rotated) == others
    ((left, why),) = done.skipped
    assert left == first
    assert os.strerror(number) in why
    disk.on_call = None
    assert library("/library", OTHER_KEY, [KEY], disk=disk).rotate_key().rotated == (first,)


def test_a_name_that_is_not_there_is_told() -> None:
    """P17: nothing was said of it, so whoever misspelled one threw the earlier key away. One text was taken apart into letters."""
    disk = SimulatedFileSystem()
    (one,) = made(library("/library", disk=disk), 1)
    turned = library("/library", OTHER_KEY, [KEY], disk)
    with pytest.raises(TypeError, match="must be a list"):
        turned.rotate_key(one)
    done = turned.rotate_key([one, "misspelled", ".hidden", one])
    why = "there is no such conversation in the library"
    assert (done.rotated, done.skipped) == ((one,), ((".hidden", why), ("misspelled", why)))
    assert library("/nowhere", OTHER_KEY, [KEY], disk).rotate_key([one]).skipped == ((one, why),)
    assert library("/nowhere", OTHER_KEY, [KEY], disk).rotate_key().skipped == ()
