"""Memory does not grow with a conversation's length: the cache is bounded, and the rest is read in chunks.

Version 0.1 kept the whole transcript. Measured are Python's own allocations (tracemalloc), above those of an empty conversation;
what a whole process takes is in test_long_conversations.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLibrary, ConversationStore, verify

KIB, MIB = 2**10, 2**20
COUNT = 10_000
"""Of messages, in about 9 MB: more than the cache holds. Eight bytes held for each would be more than is allowed beside it."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("long") / "c"
    with ConversationStore(directory, durability="process-crash") as store:
        store.initialize()
        for start in range(0, COUNT, 1000):
            store.append_messages(said(n) for n in range(start, start + 1000))
    return directory


def said(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number} {'x' * 700}"}


@contextmanager
def counting() -> Iterator[None]:
    """Only what is done in here is traced: that takes several times as long."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def held_now() -> int:
    """How much of what was allocated since the counting began is still held."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def held_by(act: Callable[[], object]) -> int:
    """How much an act leaves held, its result not among it."""
    with counting():
        act()
        return held_now()


def peak_of(act: Callable[[], object]) -> int:
    """The most that an act takes beside what was there before it."""
    with counting():
        act()
        return tracemalloc.get_traced_memory()[1]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("cache_bytes", [0, pytest.param(MIB, marks=pytest.mark.long), 8 * MIB])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_loaded_conversation_takes_what_its_cache_may(
    long: Path, tmp_path: Path, cache_bytes: int, read_only: bool
) -> None:
    """However long it is: ``cache_bytes`` and 64 KiB above an empty one."""
    with ConversationStore(tmp_path / "empty") as empty:
        empty.initialize()
    with ConversationStore(tmp_path / "empty", read_only=read_only) as empty:
        least = held_by(empty.load)
    with ConversationStore(long, read_only=read_only, cache_bytes=cache_bytes) as store:
        assert held_by(store.load) < least + cache_bytes + 64 * KIB


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("cache_bytes", [0, MIB])
def test_appends_take_what_the_cache_may(tmp_path: Path, cache_bytes: int) -> None:
    """However many, of 2 MB here: ``cache_bytes`` and 64 KiB."""
    with ConversationStore(tmp_path / "c", durability="process-crash", cache_bytes=cache_bytes) as store:
        store.initialize()
        with counting():
            for number in range(3_000):
                store.append_message(said(number))
            assert held_now() < cache_bytes + 64 * KIB


def test_handing_out_all_messages_takes_the_messages_and_the_cache(long: Path) -> None:
    """Beside what is handed out: ``cache_bytes`` and 8 MiB."""
    with ConversationStore(long, read_only=True) as store:
        store.load()
        with counting():
            messages = store.get_messages()
            taken = held_now()
        assert len(messages) == COUNT
        del messages
        assert peak_of(store.get_messages) < taken + 8 * MIB + 8 * MIB


def test_nothing_else_takes_memory_by_the_length(long: Path, tmp_path: Path) -> None:
    """Verify, the last fifty, a fork, an archived generation: each in less than 6 MiB, of a conversation of 10."""
    assert peak_of(lambda: verify(long)) < 6 * MIB
    with ConversationStore(long, read_only=True, cache_bytes=0) as store:
        assert peak_of(store.load) < 6 * MIB
        assert peak_of(lambda: store.get_messages(last=50)) < 6 * MIB
    library = ConversationLibrary(tmp_path)
    with library.create() as store:
        chat = store.id
    with library.open(chat, durability="process-crash", cache_bytes=0) as store:
        for start in range(0, COUNT, 1000):
            store.append_messages(said(n) for n in range(start, start + 1000))
        assert peak_of(lambda: library.fork(chat)) < 6 * MIB
        assert peak_of(lambda: store.replace_transcript([said(1)])) < 6 * MIB
        assert peak_of(store.generations) < 6 * MIB
        assert peak_of(lambda: store.update_metadata(model="m")) < 6 * MIB
    assert peak_of(library.list) < MIB


def test_bytes_of_any_number_behind_a_transcript_are_not_held(tmp_path: Path) -> None:
    """6 MB of zeros, as an ext4 whose journal was lost may leave: no call takes half of them (0.1 took three times as much)."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[said(1)])
    with (tmp_path / "c" / "transcript.jsonl").open("ab") as file:
        file.truncate(file.tell() + 6_000_000)
    assert peak_of(lambda: verify(tmp_path / "c")) < 2_900_000
    with ConversationStore(tmp_path / "c", read_only=True) as reader:
        assert peak_of(reader.load) < 2_900_000
    with ConversationStore(tmp_path / "c") as writer:
        assert peak_of(writer.load) < 2_900_000
        assert writer.recovery is not None
        assert writer.recovery.torn_bytes == 6_000_000


def test_a_generation_of_others_is_not_held_at_a_load(tmp_path: Path) -> None:
    """An archived file of any size that is not of this conversation goes to quarantine in pieces."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[said(1)])
        store.replace_transcript([said(2)])
    with (tmp_path / "c" / "archive" / "transcript-000007.jsonl").open("wb") as file:
        file.truncate(48_000_000)
    with ConversationStore(tmp_path / "c") as writer:
        assert peak_of(writer.load) < 2_900_000
    assert sum(path.stat().st_size for path in (tmp_path / "c" / "quarantine").iterdir()) > 48_000_000


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"x" * 4 * MIB, id="text"),
        pytest.param(b'{"seq":3,' + bytes(4 * MIB), id="a beginning of ours, and NULs"),
    ],
)
def test_what_is_no_line_of_ours_is_not_read_into_memory(tmp_path: Path, rest: bytes) -> None:
    """P15: a tail that has no end may have any length. As soon as no line of ours can begin so, it is only passed over."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[said(n) for n in range(4)])
    path = tmp_path / "c" / "transcript.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]) + rest)
    found: list[str] = []
    peak = peak_of(lambda: found.extend(finding.kind for finding in verify(tmp_path / "c").findings))
    assert found == ["damaged-line"]
    assert peak < 3 * MIB, f"{peak:,} bytes"
