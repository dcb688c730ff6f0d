"""F11: no reader takes a writer's lock or slows an append: told by the system calls of both, which no busy machine changes.

What an append takes beside an index is measured by hand, with ``python -m benchmarks.beside_an_index``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search.libraries import appended, begun
from transcript_store import ConversationLibrary
from transcript_store.search import SearchIndex

INDEX = """
import sys
from transcript_store.search import SearchIndex
with SearchIndex(sys.argv[1], cache=sys.argv[2]) as index:
    assert len(index.search("socket", wait=True)) == 3
    print(flush=True)
    sys.stdin.readline()
    assert len(index.search("socket", wait=True)) == 4
"""
WRITER = """
import os, sys
from transcript_store import ConversationStore
with ConversationStore(sys.argv[1]) as conversation:
    conversation.load()
    for number in range(20):
        sys.stdin.readline()
        os.access(f"/begin-{number}", os.F_OK)
        conversation.append_message({"role": "user", "content": "socket"})
        os.access(f"/end-{number}", os.F_OK)
        print(flush=True)
"""
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(", re.MULTILINE)
_OF_MEMORY = ("brk", "mmap", "munmap", "madvise", "futex")
_LOCKS = re.compile(r"flock\(|F_(?:OFD_)?SETLKW?\b|F_SETLEASE|F_ADD_SEALS")
_WRITES = re.compile(
    r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|PROT_WRITE.*MAP_SHARED|^\S* *(?:rename|unlink|mkdir|truncate|utime|chmod|chown|link)"
)


def traced(log: Path, *arguments: str) -> subprocess.Popen[str]:
    command = ["strace", "-f", "-y", "-s", "200", "-o", str(log), sys.executable, "-c", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> None:
    """Wait until the program says that it is as far."""
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"


def tell(process: subprocess.Popen[str]) -> None:
    """Let the program go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.needs("strace")
def test_f11_an_index_locks_and_writes_nothing_of_a_library_whatever_sqlite_does(tmp_path):
    """All its system calls, SQLite's among them: none that names a file of the library locks it, writes it or opens it to write."""
    library = ConversationLibrary(tmp_path / "library")
    own_id = begun(library, "socket", "a socket", "socket timeout")
    process = traced(tmp_path / "log", INDEX, library.directory, str(tmp_path / "cache"))
    told(process)
    appended(library, own_id, "another socket")
    process.communicate("\n")
    assert process.returncode == 0
    calls = (tmp_path / "log").read_text().splitlines()
    of_library = [call for call in calls if library.directory in call]
    assert len(of_library) > 10
    assert [call for call in of_library if _LOCKS.search(call) or _WRITES.search(call)] == []
    assert any(_LOCKS.search(call) for call in calls)  # the index's own file is locked: the pattern finds locks


@pytest.mark.needs("strace")
def test_f11_an_append_makes_the_same_system_calls_beside_an_index(tmp_path):
    """Twenty appends, and an index reads before every second one: each makes the same calls in the same order."""
    library = ConversationLibrary(tmp_path / "library")
    own_id = begun(library, "before")
    process = traced(tmp_path / "log", WRITER, str(Path(library.directory, own_id)))
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        for number in range(20):
            if number % 2:
                index.update()
            tell(process)
            told(process)
    process.communicate()
    assert process.returncode == 0
    log = (tmp_path / "log").read_text()
    made = []
    for number in range(20):
        _, _, behind = log.partition(f'"/begin-{number}"')
        append, _, _ = behind.partition(f'"/end-{number}"')
        made.append(tuple(call for call in _CALL.findall(append) if call not in _OF_MEMORY))
    assert "fdatasync" in made[-1]
    alone, beside = set(made[2::2]), set(made[3::2])  # the first append is another one: it is behind the opening
    assert alone == beside
    assert len(alone) == 1
