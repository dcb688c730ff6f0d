"""More than 2 GiB at a time.

write(2) takes at most 0x7ffff000 bytes, whatever it is given, so a write of more is a short one on every disk; and a number that
somebody keeps in 32 bits overflows here.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from transcript_store import ConversationLibrary, verify
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import PosixFileSystem

TWO_GIB = 1 << 31


class Counting(PosixFileSystem):
    """Counts what the kernel says that it took."""

    def __init__(self) -> None:
        super().__init__()
        self.took: list[int] = []

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self.took.append(os.write(handle, data))
        return self.took[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="macOS refuses such a write instead")
def test_what_the_kernel_does_not_take_at_once_is_written_on() -> None:
    """P1: an append of many messages is one write; of more than 2 GiB the kernel takes the first 2 GiB less a page."""
    files = Counting()
    null = os.open("/dev/null", os.O_WRONLY)
    with mmap.mmap(-1, TWO_GIB + 100_000) as nothing:  # pages that nobody touched take no memory
        Folder(files, "/dev", -1).write_all(null, nothing)  # type: ignore[arg-type]
    os.close(null)
    assert sum(files.took) == TWO_GIB + 100_000
    assert files.took[0] < TWO_GIB, "the kernel took all of it: nothing is tested"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_transcript_of_more_than_two_gibibytes(tmp_path: Path) -> None:
    """P1, P4: it is appended to, loaded by its tail, verified, forked and replaced; memory holds a piece of it at a time."""
    library = ConversationLibrary(tmp_path)
    content = "x" * 60_000_000
    with library.create(durability="process-crash") as store:
        for number in range(36):
            store.append_message({"n": number, "content": content})
        original = store.id
    assert (tmp_path / original / "transcript.jsonl").stat().st_size > TWO_GIB
    fork = library.fork(original)
    assert verify(tmp_path / fork).is_intact
    with library.open(fork, verify="tail") as store:
        assert store.append_message({"n": 36}).offset_bytes > TWO_GIB
        assert [message["n"] for message in store.get_messages(last=2)] == [35, 36]
        store.replace_transcript(store.get_messages(last=1))
        assert [generation.record_count for generation in store.generations()] == [37, 1]
