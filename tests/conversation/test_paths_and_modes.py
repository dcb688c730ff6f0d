"""A conversation is at the user's path, with files of mode 0600 in folders of mode 0700."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conversation.helpers import ONE, THREE, TWO
from transcript_store import ConversationLockedError, ConversationStore, Hint, StorageError, verify
from transcript_store._os.filesystem import PosixFileSystem


def test_a_tilde_is_expanded(tmp_path, monkeypatch):
    """A path may begin with ~, for the store and for verify."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with ConversationStore("~/agents/c") as store:
        assert store.directory == str(tmp_path / "agents/c")
        store.initialize(messages=[ONE])
    assert (tmp_path / "agents/c/transcript.jsonl").exists()
    assert verify("~/agents/c").records == 1


def test_a_relative_path_is_resolved_once(tmp_path, monkeypatch):
    """A relative path means what it meant when the store was made, wherever the process goes afterwards."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = ConversationStore("c")
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.initialize(messages=[ONE])
    store.update_metadata(model="m")
    store.replace_transcript([TWO])
    store.close()
    store.load()
    store.close()
    assert (tmp_path / "c/transcript.jsonl").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_users_own_path_may_lead_through_links(tmp_path):
    """P16: links are refused inside a conversation only; the path to it may hold them, at its end too."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with ConversationStore(tmp_path / "link/new/c") as store:
        store.initialize(messages=[ONE])
    (tmp_path / "direct").symlink_to("real/new/c")
    with ConversationStore(tmp_path / "direct") as store:
        store.load()
        store.append_message(TWO)
        store.replace_transcript([THREE])
        with pytest.raises(ConversationLockedError):
            ConversationStore(tmp_path / "real/new/c").load()
    assert verify(tmp_path / "real/new/c").is_intact


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_modes_without_proc(tmp_path, monkeypatch):
    """P16: a bare container has no /proc to reach a folder by its handle; the folder is opened instead."""

    def no_proc(path: object, *_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such file", path)

    monkeypatch.setattr(os, "chmod", no_proc)
    with umask(0o177), ConversationStore(tmp_path / "a" / "c") as store:
        store.initialize()
        store.replace_transcript([])
    for path in (tmp_path / "a", tmp_path / "a" / "c", tmp_path / "a" / "c" / "archive"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path, mask):
    """P16: every file is 0600 and every folder 0700, parents that were made included, whatever the umask is."""
    path = tmp_path / "made/by/us"
    with umask(mask):
        with ConversationStore(path) as store:
            store.initialize(messages=[ONE])
            store.append_message(TWO)
            store.update_metadata(model="m")
            store.replace_transcript([THREE])
        with open(path / "transcript.jsonl", "ab") as file:
            file.write(b"torn")
        with ConversationStore(path) as store:
            store.load()
            assert store.recovery is not None
            store.update_metadata(model="n")
    modes = {p: stat.S_IMODE(p.lstat().st_mode) for p in [tmp_path / "made", *(tmp_path / "made").rglob("*")]}
    assert {path.name for path in modes} >= {"made", "by", "us", "archive", "quarantine", "lock", "metadata.json"}
    assert {p: oct(mode) for p, mode in modes.items() if mode != (0o700 if p.is_dir() else 0o600)} == {}
    assert len(modes) == 3 + 2 + 3 + 1 + 2


def test_a_folder_that_was_there_keeps_its_mode(tmp_path):
    """P16: an existing empty folder is the user's; its mode is not ours to change."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(0o750)
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o750


def test_a_name_that_cannot_be_synced_is_refused(tmp_path):
    """A library that may be entered and not read, and a conversation that a group made: nobody can sync its name, so it is not locked.

    The load tried again and again, for ever: it took the refusal for a folder that was moved away.
    """

    class Unreadable(PosixFileSystem):
        def open_directory(self, path: str, parent: int | None = None) -> int:
            if path == "..":
                raise PermissionError(errno.EACCES, "injected", path)
            return super().open_directory(path, parent)

    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE])
    (tmp_path / "c/lock").unlink()  # as in a group, which makes none
    with pytest.raises(StorageError) as refused:
        ConversationStore(tmp_path / "c", file_system=Unreadable()).load()
    assert (refused.value.errno, refused.value.hint) == (errno.EACCES, Hint.CHECK_PERMISSIONS_OR_READ)
    assert not (tmp_path / "c/lock").exists()
    with ConversationStore(tmp_path / "c", read_only=True, file_system=Unreadable()) as reader:
        reader.load()
        assert reader.get_messages() == [ONE]
