"""Names that surprise whoever uses the library for the first time: of errors, of classes in errors, and of calls that are not there.

A folder with other files is no damaged transcript; an error of Python names the class that was called; a library is iterable and takes
an id or its beginning; a page of messages before a page; pytest finds fixtures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationStore,
    InvalidIdError,
    Record,
    verify,
)
from transcript_store.aio import AsyncConversationLibrary
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem


def test_a_folder_that_holds_other_files_is_no_damage(tmp_path):
    """Nothing of ours is there, so nothing is corrupt: it is not found, and cannot be begun there."""
    (tmp_path / "notes.txt").write_text("mine")
    conversation = ConversationStore(tmp_path)
    with pytest.raises(ConversationNotFoundError, match=r"'notes\.txt', and no conversation"):
        conversation.load()
    for begin in (conversation.initialize, conversation.load_or_initialize):
        with pytest.raises(ConversationExistsError, match=r"notes\.txt"):
            begin()
    with ConversationLibrary(tmp_path / "library").create():
        pass
    with pytest.raises(ConversationNotFoundError, match=r"library of conversations.*open one"):
        ConversationStore(tmp_path / "library").load()
    assert not verify(tmp_path).is_intact


def test_errors_of_python_name_the_class_that_was_called(tmp_path):
    with ConversationLibrary(tmp_path).create() as begun:
        conversation = cast("Any", begun)
        for call, name in (
            (lambda: conversation.append_message("user", "hi"), "append_message"),
            (lambda: conversation.append_message(role="user", content="hi"), "append_message"),
            (lambda: conversation.get_messages(50), "get_messages"),
            (lambda: conversation.update_metadata({}), "update_metadata"),
        ):
            with pytest.raises(TypeError, match=rf"^ConversationStore\.{name}\(\)"):
                call()
        assert type(conversation) is ConversationStore
        with pytest.raises(TypeError, match="'ConversationStore' object is not iterable"):
            list(cast("Any", conversation))


@pytest.fixture(params=["folder", "backend"])
def library(request, tmp_path):
    if request.param == "folder":
        return ConversationLibrary(tmp_path / "chats")
    return ConversationLibrary(SimulatedBackend(), file_system=SimulatedFileSystem())


def test_a_library_is_a_collection(library):
    assert list(library) == []
    one, two, three = (
        "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51",
        "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a52",
        "1b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51",
    )
    for number, its_id in enumerate((one, two, three)):
        with library.create(id=its_id, title=str(number)):
            pass
    assert {summary.id for summary in library} == {one, two, three}
    assert one in library
    assert one[:-1] + "9" not in library
    assert "0b8f" not in library
    assert 3 not in library
    with library[three] as conversation:
        assert conversation.title == "2"
    with library["1b8f"] as conversation:
        assert conversation.id == three
    assert library.find(one) == one
    for beginning, error, text in (
        ("0b8f", InvalidIdError, f"several.*{one}, {two}"),
        ("1b8", InvalidIdError, "4 to 36"),
        ("", InvalidIdError, "4 to 36"),
        (None, InvalidIdError, "4 to 36"),
        ("../..", InvalidIdError, "4 to 36"),
        ("ffff", ConversationNotFoundError, "ffff: there is no such conversation"),
        (one[:-1] + "9", ConversationNotFoundError, "9"),
        ("-" * 36, ConversationNotFoundError, "---"),
    ):
        with pytest.raises(error, match=text):
            library[beginning]


def test_the_beginning_of_an_id_is_answered_with_what_takes_one(library):
    with library.create() as conversation:
        pass
    with pytest.raises(InvalidIdError, match=r"not a whole id; library\["):
        library.open(conversation.id[:8])
    with pytest.raises(InvalidIdError, match="must be a lower-case UUID"):
        library.open(conversation.id.upper())


def test_a_library_of_tasks_is_iterable(tmp_path):
    async def main() -> None:
        library = AsyncConversationLibrary(tmp_path)
        async with await library.create(title="A"):
            pass
        assert [summary.title async for summary in library] == ["A"]

    asyncio.run(main())


@pytest.mark.parametrize("cache_bytes", [0, 200, 8 << 20])
@pytest.mark.parametrize("verify_", ["all", "tail"])
def test_pages_backwards(tmp_path, cache_bytes, verify_, monkeypatch):
    """Pages that are read backwards are together what one call gives: across the cache, pieces of the file, events and retractions."""
    monkeypatch.setattr("transcript_store._log.scan.PIECE_BYTES", 4096)
    monkeypatch.setattr("transcript_store._log.lines.PIECE_BYTES", 4096)
    with ConversationStore(tmp_path / "c", durability="process-crash") as conversation:
        conversation.initialize(features=["retract"])
        for n in range(60):
            conversation.append_message({"role": "user", "content": f"{n} " + "x" * 200})
            if n % 7 == 0:
                conversation.append_event({"n": n})
            if n % 11 == 0:
                conversation.retract()
    with ConversationStore(tmp_path / "c", cache_bytes=cache_bytes) as conversation:
        conversation.load(verify=verify_)
        for size in (1, 7, 50, 1000):
            paged: list[Record] = []
            before = conversation.record_count + 1
            while records := conversation.get_records(last=size, before_seq=before):
                assert records[-1].seq == before - 1
                paged[:0] = records
                before = records[0].seq
            assert paged == conversation.get_records()
        live = [record for record in conversation.get_records() if record.message and not record.is_retracted]
        assert [record.message for record in live] == conversation.get_messages()
        for before in (1, 2, 3, 30, 60, conversation.record_count, conversation.record_count + 1, 10**6):
            expected = [record.message for record in live if record.seq < before]
            assert conversation.get_messages(before_seq=before) == expected
            assert conversation.get_messages(last=5, before_seq=before) == expected[-5:]
            assert conversation.get_messages(last=0, before_seq=before) == []
        wrong: Any
        for wrong in (0, -1, True, "3", 1.5):
            with pytest.raises(ValueError, match="before_seq"):
                conversation.get_messages(before_seq=wrong)


def test_a_page_of_long_ago_is_read_alone(tmp_path):
    """What stands behind a page is not read again, however long it is."""
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk, durability="process-crash", cache_bytes=0) as conversation:
        conversation.initialize()
        for _ in range(300):
            conversation.append_messages([{"role": "user", "content": "x" * 9000}] * 10)
        conversation.close()
        conversation.load()
        read: list[int] = []
        real = disk.read

        def counted(handle: int, offset: int, length: int) -> Any:
            read.append(length)
            return real(handle, offset, length)

        with mock.patch.object(disk, "read", counted):
            assert len(conversation.get_messages(last=50, before_seq=200)) == 50
        assert read
        assert sum(read) < 4_000_000  # of 27 MB


@given(st.integers(1, 8), st.integers(1, 9))
def test_pages_of_an_earlier_generation(last, before):
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk) as conversation:
        conversation.initialize(messages=[{"n": n} for n in range(1, 8)])
        conversation.replace_transcript([])
        records = conversation.get_records(last=last, before_seq=before, generation=0)
        assert [record.seq for record in records] == [n for n in range(1, 8) if n < before][-last:]


@pytest.mark.long
def test_pytest_finds_the_fixtures(tmp_path):
    (tmp_path / "test_it.py").write_text("""
def test_it(conversation_library, simulated_disk):
    with conversation_library.create(messages=[{"role": "user", "content": "?"}]):
        pass
    assert len(conversation_library.list()) == 1
    from transcript_store import ConversationStore
    with ConversationStore("/c", file_system=simulated_disk) as conversation:
        conversation.initialize()
""")
    is_found = any(point.name == "transcript_store" for point in entry_points(group="pytest11"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:pytest_cov",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
    ]
    loaded = (
        [] if is_found else ["-p", "transcript_store.pytest_plugin"]
    )  # an editable install that is older than the plugin
    done = subprocess.run([*command, *loaded, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'transcript_store = "transcript_store.pytest_plugin"' in pyproject
