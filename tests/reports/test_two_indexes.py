"""https://sqlite.org/howtocorrupt.html, 2.2, and NousResearch/hermes-agent#100313: a file of SQLite's that the same process opens and closes.

The incident: a second ``SearchIndex`` read the index file to compare its hash. The close took away the locks of the first one; another
process removed the write-ahead log under it, and the index ended malformed, in four runs of four.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from transcript_store import ConversationLibrary
from transcript_store.descriptors import close_unused, descriptor
from transcript_store.search import SearchIndex

TAKES_ALL = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except OSError:
        print("refused")
"""
"""What SQLite in another process does to find out whether it is the last one: it asks for all of the bytes that readers share."""


def is_locked(path: Path) -> bool:
    done = subprocess.run([sys.executable, "-I", "-c", TAKES_ALL, path], capture_output=True, text=True, check=True)
    return done.stdout == "refused\n"


def descriptors_of(path: Path) -> int:
    found = 0
    for name in os.listdir("/dev/fd"):
        try:
            found += os.path.samestat(os.fstat(int(name)), path.stat())
        except OSError:
            continue
    return found


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    library = ConversationLibrary(tmp_path / "chats")
    library.create(messages=[{"role": "user", "content": "alpha"}]).close()
    return library


def opened_and_closed(index: SearchIndex, library: ConversationLibrary) -> None:
    index.close()


def searched(index: SearchIndex, library: ConversationLibrary) -> None:
    assert index.search("alpha").total == 1
    index.close()


def written_and_sealed(index: SearchIndex, library: ConversationLibrary) -> None:
    library.create(messages=[{"role": "user", "content": "beta"}]).close()
    assert index.search("beta").total
    index.close()


def checked(index: SearchIndex, library: ConversationLibrary) -> None:
    assert index.status().is_intact
    index.close()


@pytest.mark.parametrize(
    "use", [opened_and_closed, searched, written_and_sealed, checked], ids=lambda use: use.__name__
)
def test_a_second_index_leaves_the_locks_of_the_first(
    library: ConversationLibrary, tmp_path: Path, use: Callable[[SearchIndex, ConversationLibrary], None]
) -> None:
    """Whatever the second does; and the first keeps its own while it is checked. Nothing stays open behind the last one."""
    with SearchIndex(library, cache=tmp_path / "cache") as sealed:
        sealed.search("alpha")
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    assert not is_locked(path)
    for _ in range(2):
        with SearchIndex(library, cache=tmp_path / "cache") as first:
            first.search("alpha")
            assert is_locked(path)
            for _ in range(5):
                use(SearchIndex(library, cache=tmp_path / "cache"), library)
            assert first.status().is_intact
            assert is_locked(path)
            assert descriptors_of(path) <= 3
        assert descriptors_of(path) == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_descriptor_is_closed_when_nothing_else_has_the_file_open(tmp_path: Path) -> None:
    """Also if it is a connection of somebody else's, and if several are used at once, from several threads."""
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("BEGIN IMMEDIATE")
        assert is_locked(path)

        def read() -> None:
            for _ in range(50):
                with descriptor(str(path), os.O_RDONLY) as one, descriptor(str(path), os.O_RDONLY) as other:
                    assert os.pread(one, 6, 0) == os.pread(other, 6, 0) == b"SQLite"

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert is_locked(path)
        assert descriptors_of(path) <= 1 + 2 * len(threads)
        connection.execute("COMMIT")
    close_unused()
    assert descriptors_of(path) == 0
    with descriptor(str(path), os.O_RDONLY):
        assert descriptors_of(path) == 1
    assert descriptors_of(path) == 0
