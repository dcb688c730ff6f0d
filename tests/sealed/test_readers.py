"""Readers without a key (search, pages, snapshots, exports) show no sealed content, but say that it exists.

P17, P18.
"""

import asyncio

import pytest

from tests.sealed.conversations import CANARY, KEY, MESSAGES
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    FileStore,
    KeyNeededError,
    restore_snapshot,
    snapshot_of,
)
from transcript_store.aio import AsyncConversationLibrary
from transcript_store.search import SearchIndex
from transcript_store.transcripts import open_transcript
from transcript_store.view import write_page


@pytest.fixture
def library(tmp_path):
    """A sealed conversation and a plain one."""
    found = ConversationLibrary(tmp_path / "library", encryption_key=KEY)
    with found.create(messages=MESSAGES, labels={"title": CANARY}):
        pass
    with ConversationLibrary(tmp_path / "library").create(messages=[{"role": "user", "content": "a plain needle"}]):
        pass
    return found


def sealed_folder(library):
    (found,) = [summary.directory for summary in library.list() if summary.sealed]
    return found


def test_a_search_finds_nothing_of_it_and_counts_what_it_could_not_search(library, tmp_path):
    with SearchIndex(library.directory, cache=tmp_path / "index") as index:
        answer = index.search(CANARY, wait=True)
        assert (len(answer), answer.not_searched, answer.not_indexed) == (0, 1, 0)
        assert len(index.search("needle", wait=True)) == 1
        listed = index.list(wait=True).summaries
        assert sorted(listed, key=lambda one: one.directory) == sorted(library.list(), key=lambda one: one.directory)
    for file in (tmp_path / "index").rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes()


def test_reading_by_position_returns_records_without_a_message(library):
    with open_transcript(sealed_folder(library)) as transcript:
        records = [placed.record for placed, _ in transcript.records(transcript.begin)]
    assert [(record.message, record.extra) for record in records] == [(None, None)] * 4


def test_no_page_is_made_without_the_key(library, tmp_path):
    with pytest.raises(KeyNeededError):
        write_page(sealed_folder(library), tmp_path / "page.html")
    assert not list(tmp_path.glob("*.html"))


def test_a_snapshot_is_taken_and_restored_with_the_key(library, tmp_path):
    with ConversationStore(sealed_folder(library), encryption_key=KEY, read_only=True) as store:
        store.load()
        snapshot = snapshot_of(store)
    FileStore(tmp_path / "snapshots", encryption_key=KEY).save(snapshot)
    with library.create() as another:
        restore_snapshot(snapshot, another)
        assert another.get_messages() == MESSAGES
    with ConversationStore(another.directory) as store:
        store.load()
        with pytest.raises(KeyNeededError):
            snapshot_of(store)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes()


def test_tasks_have_the_same(tmp_path):
    async def work():
        async_library = AsyncConversationLibrary(tmp_path / "library", encryption_key=KEY)
        async with await async_library.create(messages=MESSAGES) as store:
            await store.append_message({"content": "more"})
            one = store.id
        rotated = await AsyncConversationLibrary(
            tmp_path / "library", encryption_key=bytes(32), retired_keys=[KEY]
        ).rotate_key()
        assert rotated.rotated == (one,)
        async with await AsyncConversationLibrary(tmp_path / "library", encryption_key=bytes(32)).open(one) as store:
            assert len(await store.get_messages()) == 5
            await store.unseal()
        assert (await async_library.shred(one)).still_readable

    asyncio.run(work())
