"""Which process holds a conversation: one cannot be opened, and forty pods could have it.

Public reports: stale locks of SQLite and LevelDB that name nobody; leases that are looked up in a table by hand.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli
from transcript_store import ConversationLibrary, ConversationLockedError
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

__all__ = ["a_cache_of_its_own", "cli"]


@pytest.mark.parametrize("kernel", [True, False])
def test_a_folder(tmp_path, monkeypatch, kernel):
    """Of three conversations the one that is open is listed; a look refuses no writer, and a name that was left is none."""
    if not kernel:
        monkeypatch.setattr("transcript_store._library.folders.locked_files", lambda: None)
    library = ConversationLibrary(tmp_path)
    assert library.writers() == []
    library.create().close()
    with library.create(hold_lock=False), library.create() as conversation:
        found = library.writers()
        named = {writer.id: writer for writer in found}[conversation.id]
        assert (named.pid, named.host) == (os.getpid(), socket.gethostname())
        assert named.since
        if kernel:  # elsewhere the process of a name that was left may be alive
            assert len(found) == 1
        Path(conversation.directory, "lock").write_bytes(b"\xff no name")
        if kernel:
            assert [(writer.id, writer.pid) for writer in library.writers()] == [(conversation.id, None)]
    if kernel:
        assert library.writers() == []
    with library.open(conversation.id):
        pass


def test_a_backend():
    """Who claimed and did not release; the error of an open names host, process and holder."""
    library = ConversationLibrary(SimulatedBackend(), file_system=SimulatedFileSystem())
    library.create(holder="done").close()
    with library.create(holder="worker-1") as conversation:
        (writer,) = library.writers()
        assert (writer.id, writer.name) == (conversation.id, "worker-1")
        assert writer.pid is not None
        assert writer.host
        assert writer.since is not None
        assert writer.last_write_at is not None
        with pytest.raises(ConversationLockedError) as refused:
            library.open(conversation.id)
        assert (
            f"'worker-1', process {writer.pid} on {writer.host}, has been writing to it since {writer.since}"
            in refused.value.problem
        )
    assert library.writers() == []


def test_the_command(tmp_path, cli):
    library = ConversationLibrary(tmp_path / "chats")
    library.create().close()
    assert cli("writers", library.directory).out == f"no conversation of {library.directory} has a writer\n"
    with library.create() as conversation:
        line = cli("writers", library.directory).out
        assert line.startswith(f"{conversation.id}  process {os.getpid()} on {socket.gethostname()}, since ")
        told = json.loads(cli("writers", library.directory, "--json").out)
        assert (told["id"], told["pid"], told["silent_seconds"]) == (conversation.id, os.getpid(), None)
    assert cli("writers", str(tmp_path / "none")).code == 1
