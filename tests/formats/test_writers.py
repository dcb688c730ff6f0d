"""A conversation exported to Codex and to Gemini CLI is read back with the same content (F8).

The real programs resumed such files, against a server on loopback (Codex 0.169.0, Gemini CLI 0.61.0).
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from tests.formats.of_others import Bytes, assert_nothing_is_lost, messages
from tests.kit.cases import for_each
from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats import READERS, WRITERS, SessionPlan, WrittenSession, head_of
from transcript_store.formats._arranging import messages_of, to_neutral

SESSION = "01a2071b-7309-40e1-8a72-e99f646caf7a"
NOW = "2026-11-23T06:32:49.218345Z"
CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "List the files"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
    {"role": "assistant", "content": "One \u2028 file."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "You are welcome."},
]
CONTENTS: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "List"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}]},
    {
        "role": "model",
        "parts": [
            {"text": "I look."},
            {"functionCall": {"id": "c", "name": "ls", "args": {}}, "thoughtSignature": "c2ln"},
        ],
    },
    {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "ls", "response": {"output": "a.txt"}}}]},
    {"role": "model", "parts": [{"text": "One file."}]},
]


def metadata(provider: str, **known: Any) -> ConversationMetadata:
    empty: dict[str, Any] = {field.name: None for field in fields(ConversationMetadata)}
    given = {"id": SESSION, "created_at": NOW, "updated_at": NOW, "labels": {}, "compaction_count": 0, "generation": 0}
    return ConversationMetadata(**{**empty, **given, "provider": provider, **known})


def written(name: str, said: list[dict[str, Any]], provider: str, **known: Any) -> WrittenSession:
    (writer,) = (writer for writer in WRITERS if writer.name == name)
    records = [
        Record(seq=seq, at=f"2026-11-23T06:00:{seq:02}.000000Z", message=message, extra=None)
        for seq, message in enumerate(said, 1)
    ]
    return writer.write(records, metadata(provider, **known), session=SESSION, cwd="/home/me/My Work", now=NOW)


def read_again(result: WrittenSession) -> SessionPlan:
    source = Bytes(result.files[-1][1])
    reader = next(reader for reader in READERS if reader.recognizes(head_of(source)))
    (plan,) = reader.plans(source)
    assert_nothing_is_lost(plan)
    assert plan.session == (result.session or SESSION)
    return plan


@pytest.mark.parametrize(("name", "said", "provider"), [("codex", CHAT, "openai"), ("gemini-cli", CONTENTS, "gemini")])
def test_its_own_form_comes_back_as_it_was(name, said, provider):
    result = written(name, said, provider)
    assert messages(read_again(result)) == said
    assert result.losses == ()
    assert SESSION in result.command


@pytest.mark.parametrize(("name", "said", "provider"), [("gemini-cli", CHAT, "openai"), ("codex", CONTENTS, "gemini")])
def test_another_form_says_the_same(name, said, provider):
    """As the other provider has it: pairs of calls and results are whole, and what is lost is counted."""
    result = written(name, said, provider)
    plan = read_again(result)
    other = {"gemini-cli": "gemini", "codex": "openai"}[name]
    assert messages(plan) == list(messages_of(to_neutral(said, provider), other).messages)


def test_where_each_program_looks():
    (path, _), (log, _) = written("gemini-cli", CONTENTS, "gemini").files
    assert (path, log) == ("tmp/my-work/.project_root", "tmp/my-work/chats/session-2026-11-23T06-32-01a2071b.jsonl")
    ((rollout, data),) = written("codex", CHAT, "openai").files
    assert rollout == f"sessions/2026/11/23/rollout-2026-11-23T06-32-49-{SESSION}.jsonl"
    assert b"model_provider" not in data, "Codex refuses to resume with another provider than the one that is recorded"


def test_losses_of_a_writer_are_counted():
    """The other program has a prompt and tools of its own. Codex's own prompt goes back to Codex."""
    known = {"system_prompt": "Be brief.", "tools": [{"name": "ls"}, {"name": "cat"}]}
    assert [(loss.kind, loss.count) for loss in written("gemini-cli", CHAT, "openai", **known).losses] == [
        ("prompt", 1),
        ("tools", 2),
    ]
    own = written("codex", CHAT, "openai", system_prompt="Be brief.", labels={"source": "codex"})
    assert read_again(own).system_prompt == "Be brief."


@for_each("name", [writer.name for writer in WRITERS])
def test_f8_the_title_goes_along(name):
    """Codex's sessions had none, and no loss said so."""
    done = written(name, CHAT, "openai", labels={"title": "My \u2028 thread"})
    again = read_again(done)
    assert (again.labels["title"], len(messages(again))) == (
        "My \u2028 thread",
        len(messages(read_again(written(name, CHAT, "openai")))),
    )


@pytest.mark.parametrize("name", ["codex", "gemini-cli"])
def test_a_call_without_a_result_gets_one_that_says_so(name):
    result = written(name, CHAT[:2], "openai")
    assert "not in this conversation" in str(messages(read_again(result))[-1])
    assert [loss.kind for loss in result.losses] == ["no-result"]


@pytest.mark.parametrize("name", ["codex", "gemini-cli"])
def test_a_conversation_that_says_nothing(name):
    with pytest.raises(ValueError, match="no message"):
        written(name, [], "openai")


def test_what_looks_like_a_command_to_gemini_cli_takes_nothing_with_it():
    """The incident: the program passes over a message that begins with a slash, and with it what was said in the same turn."""
    said = [
        {"role": "user", "content": "/mode"},
        {"role": "user", "content": "Read the themes."},
        {"role": "assistant", "content": "Done."},
    ]
    done = written("gemini-cli", said, "claude")
    *_, log = done.files
    messages = [json.loads(line) for line in log[1].splitlines()[1:]]
    assert [message["content"] for message in messages] == [
        [{"text": "/mode"}],
        [{"text": "Read the themes."}],
        [{"text": "Done."}],
    ]
    assert [(loss.kind, loss.count) for loss in done.losses] == [("commands", 1)]


@for_each("name", [writer.name for writer in WRITERS])
def test_what_a_program_said_of_its_own_surroundings_stays_here(name):
    """Gemini CLI leaves out all of a message that begins so, also a question that was joined to it."""
    own = {"role": "user", "parts": [{"text": "<session_context>\nToday is Monday.\n</session_context>"}]}
    asked = {"role": "user", "parts": [{"text": "What is in it?"}]}
    records = [
        Record(seq=1, at=NOW, message=own, extra={"scaffolding": True}),
        Record(seq=2, at=NOW, message=asked, extra=None),
    ]
    (writer,) = (writer for writer in WRITERS if writer.name == name)
    done = writer.write(records, metadata("gemini"), session=SESSION, cwd="/home/me", now=NOW)
    assert b"Monday" not in done.files[-1][1]
    assert b"What is in it?" in done.files[-1][1]
    assert [(loss.kind, loss.count) for loss in done.losses] == [("scaffolding", 1)]
