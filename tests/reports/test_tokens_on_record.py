"""How many tokens a conversation took: asked for in every client, and counted only as long as a process lives.

Public reports: usage that is lost on a resume, counted twice after a fork, and cached tokens that are added to the input or not at all.
"""

from __future__ import annotations

import asyncio

import pytest

from transcript_store import ConversationLibrary, ConversationStore, CorruptTranscriptError, TokenUsage, UsageRow
from transcript_store.aio import AsyncConversationLibrary
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

REPLY = {"role": "assistant", "content": "Yes."}
CLAUDE = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 10, "output_tokens": 7}
MONDAY, TUESDAY = "2026-01-05T23:59:59Z", "2026-01-06T00:00:00Z"


def said(usage, reply_id=None, model=None):
    extra = {"usage": usage, "response_id": reply_id, "model": model}
    return {name: value for name, value in extra.items() if value is not None}


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (CLAUDE, (115, 100, 10, 7)),
        ({"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}}, (50, 30, 0, 7)),
        ({"input_tokens": 50, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 30}}, (50, 30, 0, 7)),
        (
            {"promptTokenCount": 50, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 30},
            (50, 30, 0, 7),
        ),
        ({"prompt_token_count": 50, "candidates_token_count": 7, "cached_content_token_count": 30}, (50, 30, 0, 7)),
        ({"prompt_tokens": 50, "completion_tokens": 7, "prompt_cache_hit_tokens": 30}, (50, 30, 0, 7)),
        ({"prompt_tokens": None, "completion_tokens": True, "prompt_tokens_details": None}, (0, 0, 0, 0)),
        ({"input_tokens": -5, "cache_read_input_tokens": "3", "input_tokens_details": [1]}, (0, 0, 0, 0)),
    ],
)
def test_each_providers_words(tmp_path, usage, counts):
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(messages=[REPLY], extras=[said(usage)])
        total = conversation.usage().total
    assert (total.input_tokens, total.cache_read_tokens, total.cache_write_tokens, total.output_tokens) == counts
    assert total.replies == 1


def test_by_day_and_model(tmp_path):
    """A reply's own model counts, else the conversation's; days are in UTC; costs are summed where they are known."""
    usage = {"input_tokens": 1, "output_tokens": 2}
    extras = [
        said(usage),
        said({**usage, "cost": 0.5}, model="b"),
        said(usage, model="b"),
        said(usage),
        None,
        {"usage": 3},
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        times = [MONDAY, MONDAY, TUESDAY, TUESDAY, TUESDAY, TUESDAY]
        conversation.initialize(model="a", messages=[REPLY] * 6, extras=extras, times=times)
        found = conversation.usage()
    assert [(row.day, row.model, row.replies, row.cost_usd) for row in found.rows] == [
        ("2026-01-05", "a", 1, None),
        ("2026-01-05", "b", 1, 0.5),
        ("2026-01-06", "a", 1, None),
        ("2026-01-06", "b", 1, None),
    ]
    assert found.total == UsageRow(day=None, model=None, replies=4, input_tokens=4, output_tokens=8, cost_usd=0.5)


@pytest.fixture(params=["folder", "backend"])
def library(request, tmp_path):
    if request.param == "folder":
        return ConversationLibrary(tmp_path / "chats")
    return ConversationLibrary(SimulatedBackend(), file_system=SimulatedFileSystem())


@pytest.mark.parametrize("reply_id", ["msg_1", None])
def test_a_reply_counts_once_wherever_it_is_copied(library, reply_id):
    """After a compaction, a change of records, a retraction and forks it was paid for once; nothing that was paid for is missing."""
    with library.create(provider="claude", features=["retract"]) as conversation:
        conversation.append_message(REPLY, extra=said(CLAUDE, reply_id))
        conversation.append_message(REPLY, extra=said(CLAUDE, reply_id and "msg_2"))
        conversation.retract()
        conversation.keep_records([1, 2], changed={1: (REPLY, said(CLAUDE, reply_id))})
        fork = library.fork(conversation.id)
        conversation.replace_transcript([{"role": "user", "content": "A summary."}])
        assert conversation.usage().total.replies == 2
    with library.open(fork) as other:
        other.append_message(REPLY, extra=said(CLAUDE, reply_id and "msg_3"))
    assert library.usage().total.replies == 3


def test_two_records_of_one_reply_count_once(tmp_path):
    """As programs store a reply: a line for each block, each with the usage of all."""
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(messages=[REPLY, REPLY], extras=[said(CLAUDE, "msg_1")] * 2)
        assert conversation.usage().total.replies == 1


def test_what_cannot_be_read_is_named(tmp_path):
    library = ConversationLibrary(tmp_path / "chats")
    with library.create(messages=[REPLY], extras=[said(CLAUDE)]) as conversation:
        conversation.replace_transcript([])
    with library.create(messages=[REPLY] * 9, extras=[said(CLAUDE)] + [None] * 8) as other:
        pass
    with ConversationLibrary(tmp_path / "chats", encryption_key=b"k" * 32).create(messages=[REPLY]) as sealed:
        pass
    (archived,) = (tmp_path / "chats" / conversation.id / "archive").iterdir()
    archived.write_bytes(archived.read_bytes().replace(b"Yes.", b"No!!"))
    damaged = tmp_path / "chats" / other.id / "transcript.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"message"', b'"massage"', 1))
    found = library.usage()
    assert found.total.replies == 0
    assert len(found.skipped) == 3
    for each in (conversation, other, sealed):
        assert any(each.id in reason for reason in found.skipped)
    with pytest.raises(CorruptTranscriptError), library.open(other.id) as opened:
        opened.usage()
    assert ConversationLibrary(tmp_path / "none").usage() == TokenUsage(rows=())


def test_for_tasks(tmp_path):
    async def main() -> None:
        library = AsyncConversationLibrary(tmp_path)
        async with await library.create(messages=[REPLY], extras=[said(CLAUDE)]) as conversation:
            assert (await conversation.usage()).total.replies == 1
        assert (await library.usage()).total.output_tokens == 7

    asyncio.run(main())
