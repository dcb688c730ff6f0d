"""A folder of another program, a file in its place, a library, a name that cannot be; and a lock that somebody holds."""

from __future__ import annotations

import errno
import os

import pytest

from tests.hostile.helpers import MESSAGES, load, load_or_initialize
from tests.kit.trees import tree
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    StorageError,
    verify,
)

# ---- the wrong place ------------------------------------------------------------------------------------------------


def test_a_folder_of_another_program(tmp_path):
    """P13: a folder with other files in it is never made into a conversation, and never changed."""
    (tmp_path / "main.py").write_text("print()")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/metadata.json").write_text("{}")
    before = tree(tmp_path)
    for read_only in (False, True):
        with pytest.raises(ConversationNotFoundError) as caught:
            ConversationStore(tmp_path, read_only=read_only).load()
        assert caught.value.kind == "foreign"
        assert "main.py" in str(caught.value)
    with pytest.raises(ConversationExistsError, match=r"main\.py"):
        ConversationStore(tmp_path).initialize()
    with pytest.raises(ConversationExistsError):
        ConversationStore(tmp_path).load_or_initialize()
    assert ConversationStore(tmp_path).exists()
    assert not verify(tmp_path).is_intact
    assert tree(tmp_path) == before


@pytest.mark.parametrize("below", ["", "/child", "/child/grandchild"])
def test_a_file_where_a_folder_should_be(tmp_path, below):
    """P13: a path that is a file, or leads through one, is refused by every operation, and the file is left alone."""
    (tmp_path / "file").write_text("mine")
    path = f"{tmp_path}/file{below}"
    before = tree(tmp_path)
    store = ConversationStore(path)
    assert store.exists()
    with pytest.raises(ConversationExistsError):
        store.initialize()
    for operation in (load, load_or_initialize):
        with pytest.raises(CorruptTranscriptError) as caught:
            operation(store)
        assert caught.value.kind == "foreign"
    assert [finding.kind for finding in verify(path).findings] == ["foreign"]
    assert tree(tmp_path) == before


def test_nothing_there(tmp_path):
    """P13: of a path with nothing at it load says so, and makes nothing; verify too."""
    for path in (tmp_path, tmp_path / "c", tmp_path / "a/b/c"):
        for read_only in (True, False):
            with pytest.raises(ConversationNotFoundError) as caught:
                ConversationStore(path, read_only=read_only).load()
            assert caught.value.path == str(path)
    with pytest.raises(ConversationNotFoundError):
        verify(tmp_path / "c")
    assert not list(tmp_path.iterdir())


def test_a_second_writer_is_told_who_holds_it(conversation):
    """P11: a second writer gets an error that names the holder, and may read all the same."""
    with ConversationStore(conversation) as first:
        first.load()
        with pytest.raises(ConversationLockedError, match="this process") as caught:
            ConversationStore(conversation).load()
        assert caught.value.holder_pid == os.getpid()
        assert caught.value.holder_host == os.uname().nodename
        assert caught.value.path == str(conversation)
        with ConversationStore(conversation, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == MESSAGES
        first.append_message({"still": "mine"})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid":"x","host":7}', bytes(100_000), b"\xff" * 5000])
def test_a_lock_file_with_anything_in_it(conversation, content):
    """P11, P15: what stands in the lock file only helps an error message; no content of it does any harm."""
    with ConversationStore(conversation) as first:
        first.load()
        (conversation / "lock").write_bytes(content)
        with pytest.raises(ConversationLockedError) as caught:
            ConversationStore(conversation).load()
        assert caught.value.holder_pid == os.getpid()  # it is known without the file
    with ConversationStore(conversation) as second:
        second.load()


# ---- links, FIFOs, directories --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "\0", "a\0b"])
def test_a_path_that_names_nothing(bad):
    """P15: an empty path and one with a NUL are refused when the store is made, before anything is touched."""
    with pytest.raises(ValueError, match="path"):
        ConversationStore(bad)
    with pytest.raises(ValueError, match="path"):
        verify(bad)


def test_a_name_that_is_too_long_for_the_file_system(tmp_path):
    """P7: a name that the file system cannot carry is an error of ours, and nothing is left behind."""
    store = ConversationStore(tmp_path / ("x" * 300))
    for operation in (store.exists, store.load, store.initialize, lambda: verify(store.directory)):
        with pytest.raises(StorageError) as caught:
            operation()
        assert caught.value.errno == errno.ENAMETOOLONG
    assert not list(tmp_path.iterdir())


def test_a_loop_of_links(tmp_path):
    """P7: a path through links that lead to each other is an error of ours from every operation."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    store = ConversationStore(tmp_path / "a")
    for operation in (store.exists, store.load, store.initialize, store.load_or_initialize):
        with pytest.raises(StorageError) as caught:
            operation()
        assert caught.value.errno == errno.ELOOP


# ---- other users, full disks, read-only mounts: as root -------------------------------------------------------------


def test_a_library_is_not_called_damaged(tmp_path):
    """Incident: the folder of a library, given as a conversation, was called corrupt, with repair as the way out."""
    with ConversationLibrary(tmp_path).create():
        pass
    with pytest.raises(ConversationNotFoundError, match="the folder is a library of conversations") as caught:
        ConversationStore(tmp_path).load()
    assert caught.value.kind == "foreign"
    assert "repair" not in str(caught.value)
