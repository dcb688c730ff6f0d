"""A copy is made of one moment, record by record, and no message is checked or encoded twice on its way.

``frozen()`` is how a conversation of any length is read while nothing changes; an ``EncodedMessage`` is how one that was checked is
handed over. The memory that this saves is measured in test_long_conversations.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit.cases import for_each
from transcript_store import ConversationStore, InvalidMessageError, Snapshot, SnapshotSummary, snapshot_of
from transcript_store._json import strict, verbatim
from transcript_store.messages import EncodedMessage, encode_message
from transcript_store.testing import SimulatedFileSystem
from transcript_store.testing.strategies import json_values

SEEDS = itertools.count()
USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


TOKENS = "transcript_store.approximate_tokens"


def begun(
    *messages: dict[str, Any], provider: str | None = None, system_prompt: str | None = None, **options: Any
) -> ConversationStore:
    store = ConversationStore("/conversation", file_system=SimulatedFileSystem(seed=next(SEEDS)), **options)
    store.initialize(messages=messages, provider=provider, system_prompt=system_prompt)
    return store


@pytest.mark.parametrize("cache_bytes", [0, 8 * 2**20])
def test_frozen_reads_one_state(cache_bytes: int) -> None:
    """The same metadata, records, position and first metadata, from the cache or from the file."""
    with begun(USER, REPLY, cache_bytes=cache_bytes) as store:
        store.append_event({"n": 1})
        state = store.state()
        with store.frozen() as held:
            assert (held.metadata, held.position, held.at_start) == (state.metadata, state.position, state.at_start)
            assert list(held.records) == state.records
            assert [record.message for record in state.records] == [USER, REPLY, None]


def test_nothing_changes_what_is_held() -> None:
    """Another thread's append is stored when the block has ended; a call of the same thread is refused, not a deadlock."""
    with begun(USER) as store:
        stored = threading.Event()
        began = threading.Event()

        def append() -> None:
            began.set()
            store.append_message(REPLY)
            stored.set()

        thread = threading.Thread(target=append)
        with store.frozen() as held:
            thread.start()
            began.wait()
            with pytest.raises(RuntimeError, match="under way in this thread"):
                store.get_messages()
            assert [record.message for record in held.records] == [USER]
            assert not stored.is_set()
        thread.join()
        assert store.get_messages() == [USER, REPLY]


def test_a_block_that_fails_lets_go() -> None:
    """Whatever is raised within it, the next call works."""
    with begun(USER) as store:
        with pytest.raises(ZeroDivisionError), store.frozen():
            raise ZeroDivisionError
        assert store.get_messages() == [USER]


# ---- a snapshot, written piece by piece -----------------------------------------------------------------------------------


@for_each("count", [0, 1, 2, 700])
@for_each("usage_at", [None, 0, 350, 699])
def test_a_snapshot_of_pieces_is_that_of_the_whole(count: int, usage_at: int | None) -> None:
    """Whatever the number of its pieces: the text that all messages have together, and tokens of those after the last usage."""
    said = [
        {"role": "user", "content": f"{n} <\u2028> " + ("A" * 4000 if n % 7 == 0 else "word " * 300)}
        for n in range(count)
    ]
    with begun() as store:
        extras = [{"usage": {"total_tokens": 1_000_000}} if n == usage_at else None for n in range(count)]
        store.replace_transcript(said, extras=extras)
        found = snapshot_of(store)
    assert found.messages_json == Snapshot.create(provider="", messages=said).messages_json
    is_counted = usage_at is not None and usage_at < count
    rest = said[usage_at + 1 :] if is_counted and usage_at is not None else said
    estimate = SnapshotSummary.of(Snapshot.create(provider="", messages=rest)).approximate_tokens
    # Long base64 is media: a summary counts its reference, of 81 bytes, as the estimate does.
    assert abs(int(found.metadata[TOKENS]) - (1_000_000 if is_counted else 0) - estimate) <= 1


def test_a_prompt_is_found_behind_records_without_a_message() -> None:
    """A program that logs an event first, then the prompt it sends: the history has the prompt once, and the event's usage counts."""
    prompt = {"role": "developer", "content": "Be brief."}
    with begun(provider="openai", system_prompt="Be brief.") as store:
        store.append_event({"usage": {"total_tokens": 7_000}})
        store.append_event({"began": True})
        store.append_messages([prompt, USER])
        found = snapshot_of(store)
    assert found.messages == [prompt, USER]
    assert 7_000 <= int(found.metadata[TOKENS]) < 7_100


def test_a_conversation_of_events_alone_has_its_prompt_and_no_message() -> None:
    """What stands before the first message is looked through to its end."""
    with begun(provider="openai", system_prompt="Be brief.") as store:
        store.append_event({"n": 1})
        assert snapshot_of(store).messages == [{"role": "system", "content": "Be brief."}]


# ---- a message, encoded once ----------------------------------------------------------------------------------------------


def test_an_encoded_message_is_restored_as_it_is() -> None:
    """Beside one that is a value; the bytes in the transcript are those that were given."""
    text = encode_message({"content": "as\u2028it is", "role": "user"}, "message", 1000)
    with begun() as store:
        store.restore([EncodedMessage(text), REPLY])
        assert store.get_messages() == [{"content": "as\u2028it is", "role": "user"}, REPLY]


def test_an_encoded_message_that_is_too_long_is_refused() -> None:
    """By its place; the bound is on the line, whoever encoded it."""
    long = EncodedMessage(encode_message({"content": "x" * 2000}, "message", 3000))
    with begun(USER, max_line_bytes=1024) as store:
        with pytest.raises(InvalidMessageError, match=r"messages\[1\]: makes a line"):
            store.restore([REPLY, long])
        assert store.get_messages() == [USER]


values = json_values(integers=st.integers(-(2**70), 2**70), max_leaves=8) | st.just("<\u2028&>\\u003c")


@given(st.dictionaries(st.text(max_size=3), values, max_size=3).map(verbatim.encode_compact) | st.binary(max_size=20))
@example(b'{"a":1,"a":1}')
@example(b'{"a":{"b":1,"b":2}}')
@example(b'{"n":1E5,"m":1.10,"o":-0,"p":-0.0}')
@example(b'{"n":18446744073709551616}')
@example(b'{"n":1e999}')
@example(rb'{"s":"\ud800"}')
@example(rb'{"s":"\/\u003C\u0041\\u003c"}')
@example(b'{"a":' * 200 + b"1" + b"}" * 200)
@example(b'{"a":' * 199 + b"1" + b"}" * 199)
@example(b"[]")
def test_the_short_way_into_a_transcript_leads_where_the_long_one_does(element: bytes) -> None:
    """Whatever a snapshot's message is: what a strict parser and the encoder make of it, or the same refusal."""
    try:
        expected: bytes | str = strict.encode(strict.parse(element, "messages[7]"), "messages[7]", 2**30)
    except InvalidMessageError as error:
        expected = str(error)
    try:
        found: bytes | str = verbatim.as_message(element, "messages[7]").text
    except InvalidMessageError as error:
        found = str(error)
    assert found == expected
