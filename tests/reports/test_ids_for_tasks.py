"""An id that is a coroutine in a JSON response, or gone when the conversation is closed; and a search that blocks the event loop.

Public reports: "Object of type coroutine is not JSON serializable" (FastAPI, Starlette), "'coroutine' object has no attribute".
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading

import pytest

from transcript_store import ConversationLibrary, ConversationNotLoadedError, ConversationStore, CorruptMetadataError
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore, AsyncSearchIndex
from transcript_store.search import SearchIndex
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

SAID = {"role": "user", "content": "Where is the blue door?"}


@pytest.mark.parametrize("options", [{}, {"hold_lock": False}, {"read_only": True}])
def test_an_id_and_a_folder_before_between_and_after(tmp_path, options):
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
    again = ConversationStore(tmp_path / "c", **options)
    with pytest.raises(ConversationNotLoadedError):
        _ = again.id
    for _ in range(2):
        again.load()
        assert again.id == conversation.id
        again.close()
        assert json.dumps({"id": again.id, "directory": again.directory})
    assert conversation.id == again.id


def test_an_id_on_a_backend_after_it_is_closed():
    library = ConversationLibrary(SimulatedBackend(), file_system=SimulatedFileSystem())
    with library.create() as conversation:
        pass
    with library.open(conversation.id, read_only=True) as again:
        assert again.id == conversation.id
    assert again.id == conversation.id


def test_a_load_that_fails_leaves_no_id(tmp_path):
    conversation = ConversationStore(tmp_path / "c")
    conversation.initialize()
    conversation.close()
    (tmp_path / "c" / "metadata.json").write_text("{}")
    other = ConversationStore(tmp_path / "c")
    with pytest.raises(CorruptMetadataError, match="metadata"):
        other.load()
    with pytest.raises(ConversationNotLoadedError):
        _ = other.id


def test_an_id_is_read_while_a_call_is_under_way(tmp_path):
    """It waits for no other call: a task that reads it does not stop the event loop."""
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
        with conversation.frozen():
            assert conversation.id
            seen = []
            thread = threading.Thread(target=lambda: seen.append(conversation.id))
            thread.start()
            thread.join(30)
            assert seen == [conversation.id]


@pytest.mark.parametrize("name", ["search", "list"])
def test_a_type_checker_sees_the_options_of_a_search(name):
    """They were ``**options: Any``: a misspelt one was found when it ran."""
    there = {one.name: one.default for one in inspect.signature(getattr(SearchIndex, name)).parameters.values()}
    for door in (AsyncSearchIndex, *[AsyncConversationLibrary] * (name == "search")):
        here = {one.name: one.default for one in inspect.signature(getattr(door, name)).parameters.values()}
        assert {option: default for option, default in here.items() if option != "cache"} == there


def test_tasks_have_plain_attributes_and_a_search(tmp_path):
    key = b"k" * 32

    async def main() -> None:
        library = AsyncConversationLibrary(tmp_path / "chats")
        async with await library.create(messages=[SAID]) as conversation:
            assert json.dumps({"id": conversation.id, "directory": conversation.directory})
        assert conversation.id in conversation.directory
        answer = await library.search("blue", cache=tmp_path / "cache", wait=True, limit=3)
        assert [hit.seq for hit in answer.hits] == [1]
        with pytest.raises(ValueError, match="limit"):
            await library.search("blue", cache=tmp_path / "cache", limit=0)
        async with AsyncSearchIndex(tmp_path / "chats", cache=tmp_path / "cache") as index:
            assert (await index.update()).not_indexed == 0
            found = await asyncio.gather(*(index.search(word) for word in ("blue", "door", "red")))
            assert [len(answer.hits) for answer in found] == [1, 1, 0]
            assert len(await index.list(limit=5)) == 1
            assert await index.status()
            assert await index.call(lambda there: there.status())
        await index.close()
        sealed = AsyncConversationLibrary(tmp_path / "sealed", encryption_key=key)
        async with await sealed.create(messages=[SAID]):
            pass
        assert len((await sealed.search("blue", cache=tmp_path / "cache")).hits) == 1
        async with AsyncConversationStore(tmp_path / "none") as nothing:
            with pytest.raises(ConversationNotLoadedError):
                _ = nothing.id

    asyncio.run(main())
