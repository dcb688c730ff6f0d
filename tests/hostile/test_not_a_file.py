"""Links, FIFOs, sockets and directories in place of a file: never followed, never waited for."""

from __future__ import annotations

import logging
import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.hostile.helpers import MESSAGES, METADATA, TRANSCRIPT, load, load_or_initialize
from tests.kit.trees import tree
from transcript_store import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    StorageError,
    TranscriptStoreError,
    verify,
)


def _symlink(path: Path, target: Path) -> None:
    if path.is_dir():
        path.rename(target)
    elif path.exists():
        shutil.copyfile(path, target)
        path.unlink()
    else:
        target.mkdir()
    path.symlink_to(target)


def _dangling(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(target)


def _fifo(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    os.mkfifo(path)


def _directory(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_text("mine")


def _socket(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path may have 107 characters
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


IMPOSTORS = [_symlink, _dangling, _fifo, _directory, _socket]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", IMPOSTORS)
@pytest.mark.parametrize(
    ("name", "error"),
    [(TRANSCRIPT, CorruptTranscriptError), (METADATA, CorruptMetadataError), ("lock", CorruptTranscriptError)],
)
def test_what_is_not_a_file_is_neither_followed_nor_waited_for(conversation, tmp_path, name, error, impostor):
    """P16: a link, FIFO, directory or socket in the place of a file of ours is refused at once, its target untouched."""
    impostor(conversation / name, tmp_path / "target")
    before = tree(tmp_path, but=("lock",) if name != "lock" else ())
    for operation in (load, load_or_initialize):
        with pytest.raises(error) as caught:
            operation(ConversationStore(conversation))
        assert caught.value.kind == "foreign"
    reader = ConversationStore(conversation, read_only=True)
    if name == "lock":
        reader.load()  # a reader needs no lock
        assert reader.get_messages() == MESSAGES
        reader.close()
    else:
        with pytest.raises(error):
            reader.load()
        assert "foreign" in {finding.kind for finding in verify(conversation).findings}
    with pytest.raises(ConversationExistsError):
        ConversationStore(conversation).initialize()
    assert tree(tmp_path, but=("lock",) if name != "lock" else ()) == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", [_symlink, _dangling, _fifo, _socket])
def test_an_archive_that_is_not_a_directory(conversation, tmp_path, impostor):
    """P16: a link, FIFO or socket named archive is not followed: an error of ours, and nothing is put where it leads."""
    impostor(conversation / "archive", tmp_path / "target")
    before = tree(tmp_path, but=("lock",))
    with pytest.raises(TranscriptStoreError):
        ConversationStore(conversation).load()
    with ConversationStore(conversation, read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == MESSAGES
    assert tree(tmp_path, but=("lock",)) == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", [_symlink, _dangling, _fifo, _socket])
def test_verify_reports_an_archive_that_is_not_a_directory(conversation, tmp_path, impostor):
    """P16: verify() lists what stands in the archive's place as foreign; it neither follows it nor gives up."""
    impostor(conversation / "archive", tmp_path / "target")
    assert "foreign" in {finding.kind for finding in verify(conversation).findings}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", [_symlink, _dangling, _fifo, _socket])
def test_a_torn_tail_that_cannot_be_quarantined_is_not_cut(conversation, tmp_path, impostor):
    """P7, P16: where quarantine/ is a link, FIFO or socket, load() says so and cuts nothing; a reader still reads."""
    impostor(conversation / "quarantine", tmp_path / "target")
    with open(conversation / TRANSCRIPT, "ab") as file:
        file.write(b'{"seq":3,"at"')
    before = tree(tmp_path, but=("lock",))
    with pytest.raises(StorageError, match="open it with read_only=True to read every whole record"):
        ConversationStore(conversation).load()
    with ConversationStore(conversation, read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == MESSAGES
    assert tree(tmp_path, but=("lock",)) == before
    (conversation / "quarantine").unlink()
    with ConversationStore(conversation) as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == 13


def test_a_link_planted_where_a_file_will_be_put(tmp_path):
    """P16: initialize() writes through no link: a planted one is refused, or replaced without touching its target."""
    target = tmp_path / "target"
    target.write_text("mine")
    for name in ("lock", METADATA, TRANSCRIPT, ".tmp-" + "0" * 32):
        directory = tmp_path / name.strip(".")
        directory.mkdir()
        (directory / name).symlink_to(target)
        store = ConversationStore(directory)
        try:
            store.initialize()
        except TranscriptStoreError:
            assert list(directory.iterdir()) == [directory / name]
        else:
            assert not (directory / name).is_symlink()
        store.close()
        assert target.read_text() == "mine"


def test_a_lock_that_is_a_hard_link_is_locked_and_not_written(conversation, tmp_path):
    """P16: a foreign file that somebody linked to the lock's name keeps its bytes; the lock holds all the same."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (conversation / "lock").unlink()
    os.link(mine, conversation / "lock")
    with ConversationStore(conversation) as store:
        store.load()
        with pytest.raises(ConversationLockedError):
            ConversationStore(conversation).load()
    assert mine.read_text() == "mine"


def test_a_foreign_hard_link_is_warned_of(conversation, tmp_path, caplog):
    """P16: a second name of the transcript is warned of at load; the archive's own links, after a replace, are not."""
    with caplog.at_level(logging.WARNING, logger="transcript_store"):
        with ConversationStore(conversation) as store:
            store.load()
            store.replace_transcript(MESSAGES)
        with ConversationStore(conversation) as store:
            store.load()
        assert not caplog.records
        os.link(conversation / TRANSCRIPT, tmp_path / "second")
        with ConversationStore(conversation) as store:
            store.load()
        assert "hard link" in caplog.text
