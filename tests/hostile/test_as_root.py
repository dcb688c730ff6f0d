"""Other users, full disks, read-only mounts: what needs root. Root itself ignores file modes, so the work is done as nobody."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.helpers import MESSAGES, TRANSCRIPT, child, conversation_at, load, load_or_initialize
from tests.kit.trees import tree
from tests.kit.unprivileged import USER_ID, as_nobody
from transcript_store import ConversationExistsError, ConversationStore, StorageError, verify
from transcript_store.cli import main
from transcript_store.new_files import give_to_owner, make_folders, replace_file

ALL_REFUSED = """
    import errno, sys
    from transcript_store import ConversationStore, StorageError, verify
    path, number = sys.argv[1], int(sys.argv[2])
    store = ConversationStore(path)
    reader = ConversationStore(path, read_only=True)
    for call in (store.exists, store.load, store.initialize, store.load_or_initialize, reader.load, lambda: verify(path)):
        try:
            call()
        except StorageError as error:
            assert error.errno == number, error
            assert path in str(error), error
        else:
            raise AssertionError(call)
    """


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o000, 0o700])
def test_a_folder_that_is_not_ours_to_enter(open_directory, mode):
    """P7: without permission to enter the folder every operation is refused with EACCES, and nothing is touched."""
    conversation = conversation_at(open_directory / "c")
    conversation.chmod(mode)  # root's
    before = tree(open_directory)
    child(as_nobody(ALL_REFUSED), conversation, errno.EACCES)
    assert tree(open_directory) == before


@pytest.mark.root
def test_a_parent_folder_that_is_not_ours_to_write(open_directory):
    """P7: where a folder cannot be made, initialize() says so and that there is no conversation, and so does exists()."""
    child(
        as_nobody("""
        import errno, sys
        from transcript_store import ConversationStore, StorageError
        store = ConversationStore(sys.argv[1])
        assert not store.exists()
        try:
            store.initialize()
        except StorageError as error:
            assert error.errno == errno.EACCES
            assert "There is none yet" in str(error)
        else:
            raise AssertionError
        """),
        open_directory / "a/b",
    )
    assert not list(open_directory.iterdir())


@pytest.mark.root
def test_a_conversation_that_is_ours_to_read_only(open_directory):
    """P7, P12: whoever may only read gets an error that points to read_only=True, and with it every message."""
    conversation = conversation_at(open_directory / "c")
    for path in [conversation, *conversation.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = tree(open_directory)
    child(
        as_nobody("""
        import errno, sys
        from transcript_store import ConversationStore, StorageError, verify
        try:
            ConversationStore(sys.argv[1]).load()
        except StorageError as error:
            assert error.errno == errno.EACCES
            assert "read_only=True" in str(error)
        else:
            raise AssertionError
        with ConversationStore(sys.argv[1], read_only=True) as reader:
            reader.load()
            assert len(reader.get_messages()) == 2
            assert reader.refresh() == (0, False)
        assert verify(sys.argv[1]).is_intact
        """),
        conversation,
    )
    assert tree(open_directory) == before


@pytest.mark.root
def test_a_folder_that_loses_its_permissions_under_a_writer(open_directory):
    """P7: a writer whose folder becomes read-only goes on appending, is refused what needs a new name, and recovers."""
    os.chown(open_directory, USER_ID, USER_ID)
    child(
        as_nobody("""
        import errno, os, sys
        from transcript_store import ConversationStore, StorageError, verify
        path = sys.argv[1]
        store = ConversationStore(path)
        store.initialize(model="old")
        os.chmod(path, 0o500)
        store.append_message({"n": 1})
        for call in (lambda: store.update_metadata(model="new"), lambda: store.replace_transcript([])):
            try:
                call()
            except StorageError as error:
                assert error.errno == errno.EACCES
                assert "in place and intact" in str(error)
            else:
                raise AssertionError
            assert store.get_messages() == [{"n": 1}]
            assert store.get_metadata().model == "old"
        store.append_message({"n": 2})
        store.close()                        # the mark cannot be renewed, and that is no error
        store.load()
        store.append_message({"n": 3})
        os.chmod(path, 0o700)
        store.replace_transcript([{"n": 4}], model="new")
        assert store.get_messages() == [{"n": 4}]
        store.close()
        assert verify(path).is_intact
        """),
        open_directory / "c",
    )


@pytest.mark.root
def test_what_root_writes_is_the_folders_owners(open_directory):
    """P16: a file that root creates in another user's folder belongs to that user, so that one sudo does not lock the
    user out; it is 0600.
    """
    os.chown(open_directory, USER_ID, USER_ID)
    library = str(open_directory / "chats")
    begin = "import sys; from transcript_store import ConversationStore\nstore = ConversationStore(sys.argv[1])\n"
    child(as_nobody(f"{begin}store.initialize(model='old')\nstore.append_message({{'n': 1}})"), f"{library}/c")
    with ConversationStore(f"{library}/c") as store:
        store.load()
        store.append_message({"n": 2})
        store.update_metadata(model="new")
        store.replace_transcript([{"n": 3}])
    with open(f"{library}/c/{TRANSCRIPT}", "ab") as file:
        file.write(b'{"torn')
    with ConversationStore(f"{library}/c") as store:
        store.load()  # makes the quarantine
    with ConversationStore(f"{library}/made/new") as store:
        store.initialize(messages=MESSAGES)
    assert main(["rename", f"{library}/c", "Renamed"]) == 0
    assert main(["snapshot", "save", f"{library}/c", "--store", f"{library}-snapshots"]) == 0
    assert main(["backup", library, f"{library}-backup"]) == 0
    made = [open_directory, *open_directory.rglob("*")]
    assert len(made) > 20
    assert {(str(path), path.stat().st_uid, path.stat().st_gid) for path in made if path.owner() != "nobody"} == set()
    assert {path.stat().st_mode & 0o777 for path in made[1:]} == {0o600, 0o700}
    child(
        as_nobody(f"{begin}store.load()\nstore.append_message({{'n': 4}})\nassert store.get_metadata().model == 'new'"),
        f"{library}/c",
    )
    assert verify(f"{library}/c").is_intact


@pytest.mark.root
def test_what_root_makes_in_a_home_is_the_users(open_directory, monkeypatch):
    """P16: ``sudo -E``, or a container of root with a user's folder: index, states and pages, and each folder on the way."""
    os.chown(open_directory, USER_ID, USER_ID)
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "TRANSCRIPT_STORE_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(open_directory))
    folder = open_directory / ".pi/agent/sessions/p"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[1] / "reports/imported_by_0_2_0/pi.jsonl", folder)
    os.utime(folder / "pi.jsonl", (1_750_000_000, 1_750_000_000))
    subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", str(open_directory)], check=True)
    assert main(["keep", "--once"]) == 0
    assert main(["import", "--yes"]) == 0
    assert main(["search", "the"]) == 0
    assert main(["snapshot", "save", "last", "--store", str(open_directory / "snapshots")]) == 0
    assert main(["snapshot", "list", "--store", str(open_directory / "snapshots")]) == 0
    shutil.rmtree(folder)
    assert main(["session", "restore", "last", "--apply"]) == 0
    assert main(["new-key", str(open_directory / "keys/key")]) == 0
    assert main(["view", "last", "--output", str(open_directory / "pages/last.html")]) == 0
    assert main(["export", "last", "--to", "jsonl", "--output", str(open_directory / "exported/last.jsonl")]) == 0
    made = [*open_directory.rglob("*")]
    assert {path.name for path in made} >= {".cache", ".local", "state", "pages", "last.html", "last.jsonl", "key"}
    assert any(path.suffix == ".sqlite" for path in made)
    assert {str(path) for path in made if path.stat().st_uid != USER_ID} == set()


def test_folders_on_the_way_are_private(tmp_path, monkeypatch):
    """P16: each missing one is 0700 whatever the umask, also with a relative path; a file in the way is an error."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        make_folders("a/b/c")
    finally:
        os.umask(before)
    make_folders("a/b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.rglob("*"))] == [0o700] * 3
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folders("file/d")
    with pytest.raises(NotADirectoryError):
        replace_file("file/d", b"")


@pytest.mark.root
def test_a_change_of_owner_that_is_refused_is_not_an_error(open_directory, monkeypatch):
    """P16: a container may lack the right to do so; the files stay root's, and every call works."""
    os.chown(open_directory, USER_ID, USER_ID)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    conversation_at(open_directory / "c")
    make_folders(str(open_directory / "a/b"))
    assert verify(open_directory / "c").is_intact
    assert {path.stat().st_uid for path in open_directory.rglob("*")} == {0}


@pytest.mark.root
def test_what_is_not_new_is_not_given_away(tmp_path):
    """P16: a user may put root's own file or folder where root is about to create one, to get it."""
    os.chown(tmp_path, USER_ID, USER_ID)
    for name in ("full", "linked", "new"):
        (tmp_path / name).touch()
    (tmp_path / "full").write_text("root's")
    os.link(tmp_path / "linked", tmp_path / "linked too")
    for name in ("folder", "new folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder/file").touch()
    for path in tmp_path.iterdir():
        handle = os.open(path, os.O_RDONLY)
        give_to_owner(handle, str(tmp_path))
        os.close(handle)
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_uid == USER_ID} == {"new", "new folder"}


@pytest.fixture
def tiny_disk(open_directory) -> Iterator[Path]:
    """A file system of 512 KiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(open_directory)], check=True)
    yield open_directory
    subprocess.run(["umount", str(open_directory)], check=True)


def fill(disk: Path, spare_pages: int) -> Path:
    """Leave so many pages free."""
    filler = disk / "filler"
    page = os.statvfs(disk).f_bsize
    with open(filler, "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(page))
        file.truncate(file.tell() - spare_pages * page)
    return filler


def refused(operation: Callable[[], object]) -> bool:
    """Whether the full disk refused an operation, in the words that the errors have."""
    try:
        operation()
    except StorageError as error:
        if error.errno != errno.ENOSPC or "free some space" not in str(error):
            raise
        return True
    return False


BIG = {"role": "user", "content": "x" * 10_000}
FULL: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda store: store.append_message(BIG),
    "append_messages": lambda store: store.append_messages([BIG, BIG]),
    "replace_transcript": lambda store: store.replace_transcript([BIG, BIG], model="new"),
    "update_metadata": lambda store: store.update_metadata(model="new", system_prompt="x" * 10_000),
}


@pytest.mark.root
@pytest.mark.parametrize("operation", FULL)
def test_a_full_disk(tiny_disk, operation):
    """P7: with any number of pages left an operation works, or is refused with ENOSPC and changes nothing; with space
    again the same store goes on.
    """
    operate = FULL[operation]
    refusals = successes = 0
    for spare in range(16):
        directory = tiny_disk / f"c{spare}"
        store = ConversationStore(directory)
        store.initialize(model="old", messages=MESSAGES)
        filler = fill(tiny_disk, spare)
        if refused(lambda: operate(store)):  # noqa: B023  # called at once
            refusals += 1
            filler.unlink()
            assert store.get_messages() == MESSAGES
            assert store.get_metadata().model == "old"
            operate(store)
        else:
            successes += 1
            filler.unlink()
        messages = store.get_messages()
        store.append_message({"last": 1})
        store.close()
        assert verify(directory).is_intact
        store.load()
        assert store.get_messages() == [*messages, {"last": 1}]
        assert store.recovery is None
        store.close()
        shutil.rmtree(directory)
    assert refusals >= 2
    assert successes >= 2


@pytest.mark.root
def test_initialize_on_a_full_disk(tiny_disk):
    """P7: initialize() on a full disk is refused and leaves nothing in its own way; close() there is no error."""
    refusals = 0
    for spare in range(12):
        directory = tiny_disk / f"c{spare}"
        store = ConversationStore(directory)
        filler = fill(tiny_disk, spare)
        if refused(lambda: store.initialize(messages=[BIG])):  # noqa: B023  # called at once
            refusals += 1
            assert not store.exists()
            filler.unlink()
            store.initialize(messages=[BIG])
        store.append_message({"n": 1})
        filler = fill(tiny_disk, 0)
        store.close()
        filler.unlink()
        assert verify(directory).is_intact
        shutil.rmtree(directory)
    assert refusals >= 3


@pytest.mark.root
def test_a_torn_tail_on_a_full_disk(tiny_disk):
    """P7: a torn tail that cannot be kept is not cut; load() says so, a reader reads, and with space the load works."""
    with ConversationStore(tiny_disk / "c") as store:
        store.initialize(messages=MESSAGES)
    with open(tiny_disk / "c" / TRANSCRIPT, "ab") as file:
        file.write(b"{" * 9000)
    filler = fill(tiny_disk, 0)
    before = tree(tiny_disk / "c", but=("lock",))
    with pytest.raises(StorageError, match="not cut") as caught:
        ConversationStore(tiny_disk / "c").load()
    assert caught.value.errno == errno.ENOSPC
    with ConversationStore(tiny_disk / "c", read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == MESSAGES
    after = tree(tiny_disk / "c", but=("lock", "quarantine"))
    assert after == before
    filler.unlink()
    with ConversationStore(tiny_disk / "c") as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == 9000
    assert verify(tiny_disk / "c").is_intact


@pytest.mark.root
def test_a_read_only_mount(open_directory, tmp_path):
    """P7, P12: on a read-only mount reading and verifying work; a writer is told of read_only=True; nothing changes."""
    conversation_at(tmp_path / "c")
    subprocess.run(["mount", "--bind", str(tmp_path), str(open_directory)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(open_directory)], check=True)
        before = tree(tmp_path)
        with ConversationStore(open_directory / "c", read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == MESSAGES
            assert reader.refresh() == (0, False)
        assert verify(open_directory / "c").is_intact
        for operation in (load, load_or_initialize):
            with pytest.raises(StorageError, match="read_only=True") as caught:
                operation(ConversationStore(open_directory / "c"))
            assert caught.value.errno == errno.EROFS
        with pytest.raises(StorageError) as caught:
            ConversationStore(open_directory / "new").initialize()
        assert caught.value.errno == errno.EROFS
        with pytest.raises(ConversationExistsError):
            ConversationStore(open_directory / "c").initialize()
        assert tree(tmp_path) == before
    finally:
        subprocess.run(["umount", str(open_directory)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("attribute", ["i", "a"])
def test_a_transcript_that_is_immutable(open_directory, attribute):
    """P7: chattr +i refuses the writer with a hint at lsattr; chattr +a lets it append, but not cut a torn tail."""
    conversation = conversation_at(open_directory / "c")
    path = conversation / TRANSCRIPT
    if attribute == "a":
        with open(path, "ab") as file:
            file.write(b'{"torn')
    data = path.read_bytes()
    subprocess.run(["chattr", f"+{attribute}", str(path)], check=True)
    try:
        with pytest.raises(StorageError, match="lsattr") as caught:
            ConversationStore(conversation).load()
        assert caught.value.errno == errno.EPERM
        with ConversationStore(conversation, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == MESSAGES
        assert path.read_bytes() == data
    finally:
        subprocess.run(["chattr", f"-{attribute}", str(path)], check=True)
    with ConversationStore(conversation) as store:
        store.load()
        store.append_message({"again": True})
    assert verify(conversation).is_intact
