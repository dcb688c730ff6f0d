"""`redact=`: what must not be stored is taken out before anything reaches the disk, whichever call it comes by.

The judge is the disk: every file of the folder is searched for the secret, after every way in.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import pytest

from tests.kit.machines import Between
from tests.kit.trees import contents, tree
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    InvalidMessageError,
    RedactionError,
    Snapshot,
    restore_snapshot,
    snapshot_of,
)
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore
from transcript_store.messages import EncodedMessage, encode_message
from transcript_store.redaction import SecretRedactor

KEY = "sk-ant-" + "api03-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"
GONE = "[redacted:anthropic-key]"
SAYS: dict[str, Any] = {"role": "user", "content": f"It is {KEY}."}
SAID = {"role": "user", "content": f"It is {GONE}."}
TOOLS = [{"name": "call", "description": f"with {KEY}", "parameters": {"type": "object"}}]


def secrets_on(folder: Path) -> list[str]:
    """The files below a folder in which the secret stands, or a half of it."""
    return [name for name, data in contents(folder).items() if KEY[7:30].encode() in data]


def fresh(folder: Path) -> ConversationStore:
    store = ConversationStore(folder / "c", redact=SecretRedactor())
    store.initialize()
    return store


def append(store: ConversationStore) -> None:
    store.append_message(SAYS, extra={"usage": {"note": KEY}})


def append_encoded(store: ConversationStore) -> None:
    encoded = EncodedMessage(encode_message(SAYS, "message", 10_000))
    store.append_messages([encoded], extras=[{"from": [KEY]}])


def append_if_head(store: ConversationStore) -> None:
    store.append_message(SAYS, if_head=store.head)


def append_an_event(store: ConversationStore) -> None:
    store.append_event({"tool_result": {"result": {"content": KEY}}})


def replace(store: ConversationStore) -> None:
    store.replace_transcript([SAYS], extras=[{KEY: 1}], system_prompt=f"You have {KEY}.")


def keep(store: ConversationStore) -> None:
    store.append_message(SAYS)
    store.keep_records([1], labels={"title": KEY})


def update(store: ConversationStore) -> None:
    store.update_metadata(model=f"m {KEY}", system_prompt=KEY, tools=TOOLS, labels={"title": f"About {KEY}", KEY: "x"})


def restore(store: ConversationStore) -> None:
    restore_snapshot(Snapshot.create(provider="claude", messages=[SAYS], system_prompt=KEY, metadata={"a": KEY}), store)


@pytest.mark.parametrize(
    "by", [append, append_encoded, append_if_head, append_an_event, replace, keep, update, restore]
)
def test_no_way_in_goes_around_it(tmp_path: Path, by: Callable[[ConversationStore], None]) -> None:
    """Message, extra, event, names of members, prompt, tools, labels, what an encoded message holds."""
    with fresh(tmp_path) as store:
        by(store)
        assert GONE in f"{store.get_records()} {store.get_metadata()}"
    assert secrets_on(tmp_path) == []


def test_nor_does_a_beginning(tmp_path: Path) -> None:
    """initialize, load_or_initialize, create, and a group, which may write before anybody has a store."""
    contents: Any = {"messages": [SAYS], "extras": [{"k": KEY}], "system_prompt": KEY, "tools": TOOLS}
    redact = SecretRedactor()
    with ConversationStore(tmp_path / "a", redact=redact) as store:
        store.initialize(**contents)
    with ConversationStore(tmp_path / "b", redact=redact) as store:
        assert store.load_or_initialize(**contents)
    library = ConversationLibrary(tmp_path / "l", redact=redact)
    with library.create(**contents) as store:
        assert store.redacts
        assert store.get_messages() == [SAID]
    with library.group() as group:
        group.add(**contents)
        with group.adding(**contents) as store:
            store.append_message(SAYS)
    assert secrets_on(tmp_path) == []
    for summary in library.list():
        with library.open(str(summary.id)) as store:
            append(store)
    assert secrets_on(tmp_path) == []


def test_the_awaited_doors_have_it_too(tmp_path: Path) -> None:
    """Many tasks at once: what is refused of one does not refuse another's."""

    def redact(value: dict[str, Any]) -> dict[str, Any]:
        if "bad" in value:
            raise ValueError(KEY)
        return SecretRedactor()(value)

    async def appends() -> list[Any]:
        async with AsyncConversationStore(tmp_path / "c", redact=redact) as store:
            assert store.redacts
            await store.initialize(system_prompt=KEY)
            each = [{"bad": 1} if n % 5 == 0 else {**SAYS, "n": n} for n in range(20)]
            return await asyncio.gather(*map(store.append_message, each), return_exceptions=True)

    async def in_a_library() -> None:
        async with await AsyncConversationLibrary(tmp_path / "l", redact=redact).create(messages=[SAYS]) as store:
            await store.append_event({"k": KEY})

    answers = asyncio.run(appends())
    assert [isinstance(answer, RedactionError) for answer in answers] == [n % 5 == 0 for n in range(20)]
    asyncio.run(in_a_library())
    assert secrets_on(tmp_path) == []
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert len(store.get_messages()) == 16


def test_what_was_taken_out_is_counted_and_logged_and_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By kind, in the record's extra, beside what the caller has there; a record without secrets is as it was, to the byte."""
    with caplog.at_level(logging.DEBUG), fresh(tmp_path) as store:
        store.append_message({"content": [KEY, KEY]}, extra={"usage": 3})
        store.append_message({"content": "nothing"})
        store.append_message({"content": GONE}, extra={"redacted": {"anthropic-key": 2}, "k": KEY})
        records = store.get_records()
    assert [record.extra for record in records] == [
        {"usage": 3, "redacted": {"anthropic-key": 2}},
        None,
        {"redacted": {"anthropic-key": 3}, "k": GONE},
    ]
    assert "removed before it was stored: 2 anthropic-key" in caplog.text
    assert KEY not in caplog.text
    with ConversationStore(tmp_path / "plain") as plain:
        plain.initialize()
        plain.append_message({"content": "nothing"})
        assert replaced(plain.get_records()[0], at="", seq=2) == replaced(records[1], at="")


def test_what_is_taken_out_of_metadata_is_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Metadata has no extra that would say it, so the log is the one place where anybody hears of it."""
    with caplog.at_level(logging.INFO), fresh(tmp_path) as store:
        store.update_metadata(system_prompt=KEY, labels={"title": KEY})
    assert "removed before it was stored: 2 anthropic-key" in caplog.text
    assert KEY not in caplog.text


def test_a_function_of_ones_own(tmp_path: Path) -> None:
    """It gets copies, which it may change; its marks are counted, and a change without one is ``changed``."""

    def redact(value: dict[str, Any]) -> dict[str, Any]:
        for name, member in value.items():
            if isinstance(member, str):
                value[name] = member.replace("ACME", "[redacted:client]").replace("hunter2", "***")
        return value

    said = {"role": "user", "content": "ACME and ACME"}
    with ConversationStore(tmp_path / "c", redact=redact) as store:
        store.initialize(system_prompt="For ACME.", provider="ACME")
        store.append_message(said)
        store.append_message({"content": "hunter2"})
        assert said["content"] == "ACME and ACME"
        assert [record.extra for record in store.get_records()] == [
            {"redacted": {"client": 2}},
            {"redacted": {"changed": 1}},
        ]
        metadata = store.get_metadata()
        assert (metadata.system_prompt, metadata.provider) == ("For [redacted:client].", "ACME")


def raises(value: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(f"no such thing: {value}")


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "raises": raises,
    "none": lambda value: None,
    "text": str,
    "bytes within": lambda value: {**value, KEY: b""},
    "too long": lambda value: {**value, "more": "x" * 2000},
    "too deep": lambda value: {**value, "more": json.loads("[" * 300 + "]" * 300)},
    "itself": lambda value: value.update(me=value) or value,
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_redactor_that_is_broken_stores_nothing(tmp_path: Path, broken: str) -> None:
    """An error of ours, which names the place and the function's line, and neither says nor carries the text."""
    ConversationLibrary(tmp_path).create(id="0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51").close()
    folder = tmp_path / "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
    with ConversationStore(folder, redact=BROKEN[broken], max_line_bytes=1024) as store:
        store.load()
        before = tree(tmp_path)
        calls: list[tuple[str, Callable[[], object]]] = [
            ("message", lambda: store.append_message(SAYS)),
            ("messages[1]", lambda: store.append_messages([None, SAYS], extras=[{}, None])),
            ("extra", lambda: store.append_event({"k": KEY})),
            ("messages[0]", lambda: store.replace_transcript([SAYS])),
            ("metadata", lambda: store.update_metadata(system_prompt=KEY)),
        ]
        for member, call in calls:
            with pytest.raises(RedactionError) as caught:
                call()
            error = caught.value
            if member != "messages[1]":  # an extra comes before it
                assert error.member == member
            assert "nothing was stored" in str(error)
            assert KEY not in str(error)
            assert (error.__cause__, error.__context__) == (None, None)
            assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert tree(tmp_path) == before
        assert store.get_messages() == []
    if broken == "raises":
        assert "KeyError in " in str(error)
        assert "test_redact.py, line" in str(error)


def test_metadata_that_becomes_none_is_refused(tmp_path: Path) -> None:
    """Fields must stay the fields they are: a tool keeps a name, a label is a text, and none is added or left out."""
    answers: list[dict[str, Any]] = [{"labels": {"title": 3}}, {}, {"labels": {}, "provider": "x"}]
    store = ConversationStore(tmp_path / "c", redact=lambda value: answers.pop())
    for _ in range(3):
        with pytest.raises(RedactionError):
            store.initialize(labels={"title": KEY})
    assert not store.exists()


def test_the_name_in_the_extra_is_the_stores(tmp_path: Path) -> None:
    """Something else under ``redacted`` would be lost at the first secret: it is refused always, and so at once."""
    with fresh(tmp_path) as store, pytest.raises(InvalidMessageError, match="object of counts"):
        store.append_message({"content": "nothing"}, extra={"redacted": "yes"})


async def awaited(message: dict[str, Any]) -> dict[str, Any]:
    return message


@pytest.mark.parametrize("redact", [r"sk-\w+", True, SecretRedactor, awaited])
@pytest.mark.parametrize(
    "make", [ConversationStore, ConversationLibrary, AsyncConversationStore, AsyncConversationLibrary]
)
def test_what_is_no_redactor_is_refused_at_once(tmp_path: Path, make: Any, redact: object) -> None:
    """A library says it before it has a conversation to be opened."""
    with pytest.raises(TypeError, match="redact must be a function from message to message"):
        make(tmp_path / "d", redact=redact)


def test_the_same_prompt_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """load_or_initialize with the prompt of the last time compares what would be stored with what is."""
    for _ in range(2):
        with ConversationStore(tmp_path / "c", redact=SecretRedactor()) as store:
            store.load_or_initialize(system_prompt=KEY)
    assert "differs" not in caplog.text


def test_what_is_stored_already_stays_and_can_be_cleaned(tmp_path: Path) -> None:
    """A fork and keep_records copy what is stored; a replace with what is there, and the generation goes: docs/secrets.md."""
    library = ConversationLibrary(tmp_path)
    with library.create(messages=[SAYS, {"content": "more"}]) as store:
        kept = store.id
    cleaning = ConversationLibrary(tmp_path, redact=SecretRedactor())
    with cleaning.open(kept) as store:
        store.keep_records([1])
        assert store.get_messages() == [SAYS]
        store.replace_transcript(store.get_messages())
        assert snapshot_of(store).messages_json.count(GONE.encode()) == 1
        for generation in store.generations()[:-1]:
            store.delete_generation(generation.number)
    assert secrets_on(tmp_path) == []


def test_a_process_that_is_stopped_leaves_no_secret(tmp_path: Path) -> None:
    """Before every call on the disk: what it was about to write is in no temporary file either."""

    class StopError(BaseException):
        pass

    def stop() -> None:
        raise StopError

    nth, reached = 0, True
    while reached:
        nth += 1
        machine: Any = Between(nth, stop)
        store = ConversationStore(tmp_path / f"c{nth}", redact=SecretRedactor(), file_system=machine)
        with suppress(StopError):
            store.initialize(messages=[SAYS], system_prompt=KEY)
            append(store)
            replace(store)
        reached = machine.calls >= nth
        machine.nth = 0
        store.close()
    assert nth > 50
    assert secrets_on(tmp_path) == []


@pytest.mark.parametrize("redact", [lambda message, more: message, dict.pop], ids=["it takes two", "it has no lines"])
def test_a_function_that_cannot_be_called_with_a_message(tmp_path, redact):
    """None of its lines was reached, so none is named; and none of ours, which is not where the mistake is."""
    store = ConversationStore(tmp_path / "c", redact=redact)
    with pytest.raises(
        RedactionError, match=r"redact raised TypeError when it was called with one JSON object \(nothing was stored\)"
    ):
        store.initialize(messages=[{"role": "user", "content": "hi"}])
