"""From a conversation to a snapshot and back: the messages of every provider come through, and one of each kind of prompt.

A transcript never holds a system prompt, and OpenAI's history begins with one. The adapter adds it on the way out and takes it
off on the way in; twice would be two prompts, not at all would be none. Gemini's SDK dumps names and base64 that Gemini's own
API does not write; a snapshot has the API's.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.cases import few, for_each
from tests.kit.machines import machine_of
from tests.kit.vectors import VECTORS
from tests.snapshots.helpers import snapshot
from transcript_store import (
    ConversationNotLoadedError,
    ConversationStore,
    CorruptSnapshotError,
    FileStore,
    InvalidMessageError,
    ProviderMismatchError,
    ReadOnlyError,
    Snapshot,
    ToolSnapshot,
    restore_snapshot,
    snapshot_of,
    verify,
)
from transcript_store._log.record import close_line
from transcript_store._snapshots.history import as_the_api_writes
from transcript_store.histories import native_history
from transcript_store.testing import SimulatedFileSystem
from transcript_store.testing.strategies import FAULTS, PROVIDERS, conversations, texts

ID = "0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11"
USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
TOOL = {"name": "search", "description": "finds", "parameters": {"type": "object"}}
OURS = "transcript_store."
SEEDS = itertools.count()


def conversation(path: Path | str = "/conversation", **options: Any) -> ConversationStore:
    return ConversationStore(
        path,
        **(options if isinstance(path, Path) else {"file_system": SimulatedFileSystem(seed=next(SEEDS)), **options}),
    )


def begun(*messages: dict[str, Any], **fields: Any) -> ConversationStore:
    store = conversation()
    store.initialize(**{"provider": "claude", "messages": messages, **fields})
    return store


def header(store: ConversationStore) -> dict[str, Any]:
    disk = machine_of(store)
    decoded: dict[str, Any] = json.loads((disk.tree()["/conversation/transcript.jsonl"] or b"").splitlines()[0])
    return decoded


def through(store: ConversationStore) -> ConversationStore:
    """A copy, made through a snapshot's JSON."""
    copy = conversation()
    restore_snapshot(Snapshot.from_json(snapshot_of(store).to_json()), copy)
    return copy


# ---- round trips ------------------------------------------------------------------------------------------------------


def test_a_conversation_comes_through_whole() -> None:
    """Messages, model, prompt, tools, labels and compaction count; the copy has an id of its own and knows where it is from."""
    store = begun(
        USER, REPLY, model="a-model", system_prompt="Be brief.", tools=[TOOL], labels={"é": "", "title": "a test"}
    )
    store.update_metadata(compaction_count=3)
    store.append_event({"marker": True})
    one = snapshot_of(store)
    assert one.metadata[OURS + "labels"] == '{"title": "a test", "é": ""}'
    copy = conversation()
    restore_snapshot(one, copy)
    assert copy.get_messages() == [USER, REPLY]
    theirs, ours = copy.get_metadata(), store.get_metadata()
    for field in ("provider", "model", "system_prompt", "tools", "labels", "compaction_count"):
        assert getattr(theirs, field) == getattr(ours, field), field
    assert theirs.id != ours.id
    assert copy.get_metadata().restored_from == {
        "snapshot": one.id, "conversation": ours.id, "generation": 0, "seq": 3, "head": store.head
    }  # fmt: skip
    again = snapshot_of(copy)
    assert (again.messages_json, again.system_prompt, again.tools) == (one.messages_json, one.system_prompt, one.tools)
    assert again.id != one.id


@pytest.mark.parametrize(
    "name",
    [
        "01-plain-claude",
        "03-plain-openai-compatible",
        "05-unicode-html",
        "06-tools-nested",
        "09-media",
        "10-media-thresholds",
        "15-messages-null",
    ],
)
def test_what_go_stored_is_continued_and_saved_again_to_the_same_value(name: str, tmp_path: Path) -> None:
    """A snapshot of each provider, through a store, into a conversation, and back: messages, tools and metadata are equal."""
    one = Snapshot.from_json((VECTORS / name / "input.json").read_bytes())
    store = FileStore(tmp_path / "store", encryption_key=bytes(32))
    store.save(one)
    (summary,) = store.list()
    with conversation(tmp_path / "copy") as copy:
        restore_snapshot(store.load(summary.id), copy)
        assert not any(message.get("role") == "system" for message in copy.get_messages())
        again = snapshot_of(copy)
    assert again.messages == one.messages
    assert (again.provider, again.model, again.tools) == (one.provider, one.model, one.tools)
    assert {key: value for key, value in again.metadata.items() if not key.startswith(OURS)} == one.metadata
    assert verify(tmp_path / "copy").is_intact


@settings(max_examples=few(40))
@given(st.data(), st.sampled_from(PROVIDERS), st.none() | texts())
def test_any_history_comes_through(data: st.DataObject, provider: Any, prompt: str | None) -> None:
    """What was said is what is restored, twice over, for every provider, with a prompt and without; also what no provider would take."""
    messages: list[Any] = data.draw(conversations(provider, faults=FAULTS, max_turns=2))
    with (
        begun(*messages, provider=provider, system_prompt=prompt) as store,
        through(store) as copy,
        through(copy) as twice,
    ):
        for found in (copy, twice):
            assert found.get_messages() == messages
            assert (found.get_metadata().system_prompt or "") == (prompt or "")
            assert snapshot_of(found).messages_json == snapshot_of(store).messages_json


# ---- the system prompt ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "openai-compatible"])
def test_the_prompt_is_in_the_history_exactly_once(provider: str) -> None:
    """Out it goes as the first message, in it comes as metadata, as often as one likes."""
    store = begun(USER, provider=provider, system_prompt="Be brief.")
    for _ in range(3):
        one = snapshot_of(store)
        assert one.messages == [{"role": "system", "content": "Be brief."}, USER]
        assert one.system_prompt == "Be brief."
        restore_snapshot(one, store)
        assert store.get_messages() == [USER]
        assert store.get_metadata().system_prompt == "Be brief."


@pytest.mark.parametrize("provider", ["claude", "gemini", "somebody-else"])
def test_other_histories_hold_no_prompt(provider: str) -> None:
    """It is a member of the snapshot, and a ``system`` message that somebody logged is theirs."""
    first = {"role": "system", "content": "Be brief."}
    store = begun(first, USER, provider=provider, system_prompt="Be brief.")
    assert snapshot_of(store).messages == [first, USER]
    assert through(store).get_messages() == [first, USER]


@for_each(
    "first",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "input_text", "text": "brief."}]},
        {"content": "Be brief.", "role": "system", "name": "boss"},
    ],
)
def test_a_prompt_comes_back_in_the_form_it_had(first: dict[str, Any]) -> None:
    """``developer`` stays ``developer``, parts stay parts; and if the prompt is changed, the new one is a plain message."""
    store = conversation()
    for prompt in ("", "Be brief."):
        restore_snapshot(snapshot(first, USER, provider="openai", system_prompt=prompt), store)
        assert store.get_messages() == [USER]
        assert store.get_metadata().system_prompt == "Be brief."
        assert snapshot_of(store).messages == [first, USER]
    store.update_metadata(system_prompt="Be long.")
    assert snapshot_of(store).messages == [{"role": "system", "content": "Be long."}, USER]


@for_each("role", ["system", "developer"])
@for_each("content", ["Be brief.", [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]])
def test_a_prompt_that_was_logged_is_not_added_again(role: str, content: Any) -> None:
    """A transcript that begins with it, as some agents log it, gives a history with one, in the form that was logged."""
    first = {"role": role, "content": content}
    for prompt in ("Be brief.", None):
        assert snapshot_of(begun(first, USER, provider="openai", system_prompt=prompt)).messages == [first, USER]


def test_a_prompt_that_was_logged_and_replaced_is_replaced_in_the_history() -> None:
    """Another prompt takes its place; a system message behind it stays; without any prompt the history is what was logged."""
    first, second = {"role": "system", "content": "Old."}, {"role": "system", "content": "It is Monday."}
    store = begun(first, second, USER, provider="openai")
    assert snapshot_of(store).messages == [first, second, USER]
    store.update_metadata(system_prompt="New.")
    assert snapshot_of(store).messages == [{"role": "system", "content": "New."}, second, USER]
    assert store.get_messages()[0] == first
    copy = through(store)
    assert copy.get_messages() == [second, USER]
    assert snapshot_of(copy).messages == snapshot_of(store).messages


def test_the_prompt_is_looked_for_in_the_first_message_though_an_event_precedes_it() -> None:
    """A program that logs the prompt may log events before it: the prompt is in the history once all the same."""
    store = begun(provider="openai", system_prompt="Be brief.")
    for number in range(3):
        store.append_event({"event": number})
    first = {"role": "system", "content": "Be brief."}
    store.append_message(first)
    store.append_message(USER)
    assert snapshot_of(store).messages == [first, USER]


def test_a_message_that_is_no_prompt_stays_when_there_is_one_later() -> None:
    """What a user said first is no prompt; nor is what stood behind the prompt in a snapshot, though it says the same."""
    store = begun(USER, provider="openai")
    store.update_metadata(system_prompt="New.")
    assert snapshot_of(store).messages == [{"role": "system", "content": "New."}, USER]
    prompt = {"role": "system", "content": "Be brief."}
    copy = conversation()
    restore_snapshot(snapshot(prompt, prompt, USER, provider="openai", system_prompt="Be brief."), copy)
    assert copy.get_messages() == [prompt, USER]
    assert snapshot_of(copy).messages == [prompt, prompt, USER]


@for_each(
    "first",
    [
        {"role": "system", "content": "Another."}, {"role": "system", "content": [{"type": "image_url"}]}, {"role": "system", "content": None},
        {"role": "system", "content": ""}, {"role": "user", "content": "Be brief."},
    ],
)  # fmt: skip
def test_what_is_not_the_prompt_stays_a_message(first: dict[str, Any]) -> None:
    """Only the first message, and only if it says what the snapshot says the prompt is."""
    store = conversation()
    restore_snapshot(snapshot(first, USER, provider="openai", system_prompt="Be brief."), store)
    assert store.get_messages() == [first, USER]
    assert store.get_metadata().system_prompt == "Be brief."


# ---- gemini -----------------------------------------------------------------------------------------------------------

DUMPED: dict[str, Any] = {
    "role": "model",
    "parts": [
        {"text": "snake_case stays in texts", "thought_signature": "-_-_"},
        {"inline_data": {"mime_type": "image/png", "data": "-_8"}},
        {"function_call": {"name": "f", "args": {"mime_type": "mine", "inline_data": {"data": "-_8"}}}},
        {"function_response": {"name": "f", "response": {"file_uri": "mine"}}},
        {"file_data": {"file_uri": "gs://x", "mime_type": "a/b"}, "video_metadata": {"start_offset": "1s"}},
    ],
}
WRITTEN: dict[str, Any] = {
    "role": "model",
    "parts": [
        {"text": "snake_case stays in texts", "thoughtSignature": "+/+/"},
        {"inlineData": {"mimeType": "image/png", "data": "+/8="}},
        {"functionCall": {"name": "f", "args": {"mime_type": "mine", "inline_data": {"data": "-_8"}}}},
        {"functionResponse": {"name": "f", "response": {"file_uri": "mine"}}},
        {"fileData": {"fileUri": "gs://x", "mimeType": "a/b"}, "videoMetadata": {"startOffset": "1s"}},
    ],
}


def test_gemini_is_written_as_its_api_writes_it() -> None:
    """CamelCase and standard base64 on the way out and on the way in; a tool's own arguments are nobody's business."""
    store = begun(DUMPED, provider="gemini")
    assert snapshot_of(store).messages == [WRITTEN]
    assert [list(part) for part in snapshot_of(store).messages[0]["parts"]] == [list(part) for part in WRITTEN["parts"]]
    assert store.get_messages() == [DUMPED]
    copy = conversation()
    restore_snapshot(snapshot(DUMPED, WRITTEN, provider="gemini"), copy)
    assert copy.get_messages() == [WRITTEN, WRITTEN]


@for_each(
    "message",
    [
        {"role": "user"},
        {"parts": None},
        {"parts": [None, "text", []]},
        {"parts": [{"inlineData": "x"}]},
        {"parts": [{"inlineData": {"data": 7}}]},
        {"parts": [{"inline_data": 1, "inlineData": 2}]},
        WRITTEN,
    ],
)
def test_what_is_gemini_already_or_not_at_all_stays(message: dict[str, Any]) -> None:
    """The same value, whatever its shape; where both names stand, neither is lost."""
    assert as_the_api_writes(message) == message


# ---- what does not fit ------------------------------------------------------------------------------------------------


@for_each(
    "ours, theirs",
    [("claude", "openai"), ("openai", "claude"), ("gemini", "claude"), ("claude", ""), ("openai", "gemini")],
)
def test_another_providers_snapshot_is_refused(ours: str, theirs: str) -> None:
    """Nothing is changed, and the error has both names."""
    store = begun(USER, provider=ours)
    head = store.head
    with pytest.raises(ProviderMismatchError) as caught:
        restore_snapshot(snapshot(REPLY, provider=theirs), store)
    assert (caught.value.provider, caught.value.recorded_provider) == (ours, theirs)
    assert store.head == head


@for_each(
    "ours, theirs",
    [
        ("openai", "openai-compatible"),
        ("openai-compatible", "openai"),
        (None, "claude"),
        (None, ""),
        ("claude", "claude"),
    ],
)
def test_one_family_is_one_provider(ours: str | None, theirs: str) -> None:
    """The conversation keeps its own name; one that has none takes the snapshot's."""
    store = begun(USER, provider=ours)
    restore_snapshot(snapshot(REPLY, provider=theirs), store)
    assert store.get_messages() == [REPLY]
    assert store.get_metadata().provider == (ours or theirs or None)


@for_each(
    "messages",
    [
        b"[{}, 1]", b'["text"]', b"[null]", b"[[]]", b'[{"n":18446744073709551616}]', b'[{"n":-9223372036854775809}]', rb'[{"s":"\ud800"}]',
        b'[{"a":1,"a":2}]', b'[{"f":1e999}]', b"[" + b'{"a":' * 201 + b"1" + b"}" * 201 + b"]",
    ],
)  # fmt: skip
def test_what_a_transcript_cannot_hold_is_refused(messages: bytes) -> None:
    """A snapshot may hold it, a conversation may not: refused by the message's number, and nothing is there afterwards."""
    one = Snapshot.from_json(b'{"id":"%b","provider":"claude","version":1,"messages":%b}' % (ID.encode(), messages))
    absent, there = conversation(), begun(USER)
    for store in (absent, there):
        with pytest.raises(InvalidMessageError, match=r"messages\[[01]\]"):
            restore_snapshot(one, store)
    assert not absent.exists()
    assert there.get_messages() == [USER]


@for_each(
    "key, value",
    [
        ("labels", "x"),
        ("labels", "[]"),
        ("labels", '{"a":1}'),
        ("compaction_count", "-1"),
        ("compaction_count", "١"),
        ("seq", "1.0"),
        ("generation", "9" * 19),
    ],
)
def test_metadata_of_ours_that_is_not_ours_is_refused(key: str, value: str) -> None:
    """Somebody wrote under our prefix: an error, and no conversation."""
    store = conversation()
    with pytest.raises(CorruptSnapshotError):
        restore_snapshot(snapshot(USER, metadata={OURS + key: value}), store)
    assert not store.exists()


def test_a_snapshot_without_our_metadata_leaves_labels_alone() -> None:
    """Go knows no labels: those of a conversation that is there stay."""
    store = begun(USER, labels={"title": "kept"})
    store.update_metadata(compaction_count=2)
    restore_snapshot(snapshot(REPLY), store)
    assert (store.get_metadata().labels, store.get_metadata().compaction_count) == ({"title": "kept"}, 2)


def test_restoring_replaces_and_archives() -> None:
    """One generation more; what was there is in the archive; the header says what was replaced and what it is from."""
    store = begun(USER, REPLY, model="old", tools=[TOOL], system_prompt="old")
    one = snapshot(REPLY, model="new")
    before = store.get_metadata()
    restore_snapshot(one, store)
    after = store.get_metadata()
    assert (after.id, after.generation, after.model, after.tools, after.system_prompt) == (
        before.id,
        1,
        "new",
        None,
        None,
    )
    assert header(store)["replaces"]["records"] == 2
    assert store.get_metadata().restored_from == {"snapshot": one.id}
    store.append_message(USER)
    assert store.get_messages() == [REPLY, USER]


def test_a_conversation_that_is_there_is_loaded(tmp_path: Path) -> None:
    """Whether this object had loaded it or not; and a reader may not."""
    with conversation(tmp_path / "c") as store:
        store.initialize(messages=[USER])
    with conversation(tmp_path / "c") as store:
        restore_snapshot(snapshot(REPLY), store)
        assert store.get_messages() == [REPLY]
        assert store.get_metadata().generation == 1
    with conversation(tmp_path / "c", read_only=True) as reader, pytest.raises(ReadOnlyError):
        restore_snapshot(snapshot(USER), reader)
    with pytest.raises(ConversationNotLoadedError):
        snapshot_of(conversation())
    with conversation(tmp_path / "c", read_only=True) as reader:
        reader.load()
        assert snapshot_of(reader).messages == [REPLY]


def test_tools_come_back_as_they_were_told_to_the_model() -> None:
    """Name, description and parameters; a tool that takes none has none."""
    store = conversation()
    restore_snapshot(
        snapshot(USER, tools=[ToolSnapshot("search", "finds", {"type": "object"}), ToolSnapshot("stop")]), store
    )
    assert store.get_metadata().tools == [TOOL, {"name": "stop", "description": ""}]
    assert snapshot_of(store).tools == (ToolSnapshot("search", "finds", {"type": "object"}), ToolSnapshot("stop"))


# ---- tokens -----------------------------------------------------------------------------------------------------------


@for_each(
    "extra, tokens",
    [
        ({"usage": {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4}}, 127),
        ({"usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": {"cached_tokens": 50}}}, 120),
        ({"usage": {"prompt_tokens": 100, "completion_tokens": 20}}, 120),
        ({"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 25}}, 25),
        ({"usage_metadata": {"prompt_token_count": 7, "candidates_token_count": 3}}, 10),
        ({"usage": {"output_tokens": 9}}, 9),
    ],
)  # fmt: skip
def test_tokens_are_those_that_the_last_reply_was_billed_for(extra: dict[str, Any], tokens: int) -> None:
    """Recorded usage counts what was sent and what came; later messages are estimated on top of it."""
    store = begun(USER, {"role": "user", "content": "long " * 2000}, system_prompt="x" * 9000)
    store.append_message(REPLY, extra={"usage": {"input_tokens": 5}})
    store.append_message(REPLY, extra=extra)
    assert snapshot_of(store).metadata[OURS + "approximate_tokens"] == str(tokens)
    store.append_message({"role": "user", "content": "word " * 80})
    assert tokens + 100 < int(snapshot_of(store).metadata[OURS + "approximate_tokens"]) < tokens + 120


@for_each(
    "extra",
    [
        None,
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": {"input_tokens": "9"}},
        {"usage": {"input_tokens": -9}},
        {"usage": [1]},
        {"usage": {"input_tokens": True}},
    ],
)
def test_without_usage_tokens_are_estimated(extra: dict[str, Any] | None) -> None:
    """A quarter of the bytes of prompt and messages, and an image is not text."""
    store = begun(
        {"role": "user", "content": "word " * 80}, {"role": "user", "content": "A" * 40_000}, system_prompt="be " * 400
    )
    store.append_message(REPLY, extra=extra)
    assert 400 < int(snapshot_of(store).metadata[OURS + "approximate_tokens"]) < 500


def test_arguments_in_the_wrong_order() -> None:
    """A hurried caller is told what goes where."""
    store = begun(USER)
    with pytest.raises(TypeError, match="takes a Snapshot and then a ConversationStore"):
        restore_snapshot(store, snapshot_of(store))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not Snapshot and str"):
        restore_snapshot(snapshot_of(store), "agent/main")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not bytes and ConversationStore"):
        restore_snapshot(snapshot_of(store).to_json(), store)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a loaded ConversationStore, not str"):
        snapshot_of("agent/main")  # type: ignore[arg-type]


@pytest.mark.parametrize("with_usage", [False, True])
def test_what_nests_too_deeply_for_a_snapshot_is_an_error_of_ours(tmp_path: Path, with_usage: bool) -> None:
    """A message that another program wrote, 900 levels deep, is read; of a snapshot it is refused, by its place.

    The incident: an error that only this package knows came out.
    """
    path = tmp_path / "c"
    with ConversationStore(path) as store:
        store.initialize(messages=[{"n": 1}])
    transcript = path / "transcript.jsonl"
    content = transcript.read_bytes()
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    extra = b',"extra":{"usage":{"total_tokens":7}}' if with_usage else b""
    body = b'{"seq":2,"at":"2099-01-01T00:00:00.000000Z","message":%b%b' % (deep, extra)
    transcript.write_bytes(content + close_line(content[-35:-3], body)[0])
    with ConversationStore(path) as store:
        store.load()
        assert len(store.get_messages()) == 2
        with pytest.raises(InvalidMessageError, match=r"messages\[1\]: nests more than 500 levels deep"):
            snapshot_of(store)


def test_the_history_of_a_client_begins_with_its_prompt_where_that_belongs_there() -> None:
    """In OpenAI's as its first message, once; Claude's and Gemini's have it beside them. Gemini's has the API's names."""
    assert native_history("claude", "Be brief.", [USER]) == [USER]
    assert native_history("openai", "Be brief.", [USER]) == [{"role": "system", "content": "Be brief."}, USER]
    carried = {"role": "developer", "content": "Be brief."}
    assert native_history("openai", "Be brief.", [USER], carriers=[REPLY, carried]) == [carried, USER]
    call = {"function_call": {"name": "search", "args": {}}}
    [message] = native_history("gemini", "Be brief.", [{"role": "model", "parts": [call]}])
    assert message == {"role": "model", "parts": [{"functionCall": call["function_call"]}]}
