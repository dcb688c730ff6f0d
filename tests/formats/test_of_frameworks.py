"""What the integrations store is a framework's own items. Whoever shows, searches or hands on a conversation reads them all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import for_each
from transcript_store import ConversationStore
from transcript_store.exporting import export
from transcript_store.formats import Call, Media, Other, Result, Text, Thinking, to_neutral
from transcript_store.messages import parts_of, role_of

# Of pydantic-ai 2.68, as ModelMessagesTypeAdapter writes them; of members that are null some are left out.
PYDANTIC_AI: list[dict[str, Any]] = [
    {
        "parts": [
            {"content": "Be brief.", "timestamp": "2026-11-23T00:00:00Z", "part_kind": "system-prompt"},
            {
                "content": [
                    "Look at this:",
                    {"data": "iVBORw0KGgr__v0=", "media_type": "image/png", "kind": "binary", "identifier": "64c2d2"},
                    {"url": "https://example.org/a.png", "kind": "image-url", "media_type": "image/png"},
                ],
                "timestamp": "2026-11-23T00:00:00Z",
                "part_kind": "user-prompt",
            },
        ],
        "timestamp": "2026-11-23T00:00:00Z",
        "instructions": None,
        "kind": "request",
        "state": "complete",
    },
    {
        "parts": [
            {"content": "A sky.", "signature": "s", "provider_name": "anthropic", "part_kind": "thinking"},
            {"content": "Let me see.", "id": None, "part_kind": "text"},
            {"tool_name": "weather", "args": {"city": "Ulm"}, "tool_call_id": "c1", "part_kind": "tool-call"},
            {"tool_name": "weather", "args": '{"city": "Bonn"}', "tool_call_id": "c2", "part_kind": "tool-call"},
        ],
        "model_name": "m",
        "timestamp": "2026-11-23T00:00:00Z",
        "kind": "response",
    },
    {
        "parts": [
            {
                "tool_name": "weather",
                "content": {"sky": "blue"},
                "tool_call_id": "c1",
                "outcome": "success",
                "part_kind": "tool-return",
            },
            {
                "tool_name": "weather",
                "content": "no such city",
                "tool_call_id": "c2",
                "outcome": "failed",
                "part_kind": "tool-return",
            },
            {"content": "Go on.", "part_kind": "user-prompt"},
        ],
        "kind": "request",
    },
    {"parts": [{"content": "**Blue.**", "part_kind": "text"}], "kind": "response"},
]
OPENAI_AGENTS: list[dict[str, Any]] = [
    {"role": "user", "content": "The weather in Ulm?"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Ulm"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "blue"},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "**Blue.**", "annotations": []}],
    },
]
CLAUDE_AGENT_SDK: list[dict[str, Any]] = [
    {"role": "user", "content": "The weather in Ulm?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ulm"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "blue"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "**Blue.**"}]},
]


def test_a_message_of_pydantic_ai_is_shown_as_what_it_says() -> None:
    assert [role_of(message) for message in PYDANTIC_AI] == ["user", "assistant", "user", "assistant"]
    shown = [[(part.kind, part.title) for part in parts_of(m) if part.kind != "besides"] for m in PYDANTIC_AI]
    assert shown == [
        [("other", "system-prompt"), ("text", ""), ("media", "image image/png"), ("media", "image url")],
        [("thinking", "thinking"), ("text", ""), ("call", "call weather (c1)"), ("call", "call weather (c2)")],
        [("result", "result weather (c1)"), ("result", "error weather (c2)"), ("text", "")],
        [("text", "")],
    ]
    assert [part.text for part in parts_of(PYDANTIC_AI[2])] == ['{"sky": "blue"}', "no such city", "Go on."]


def test_the_system_prompt_of_pydantic_ai_is_nobody_elses_words() -> None:
    (alone,) = to_neutral([{**PYDANTIC_AI[0], "parts": PYDANTIC_AI[0]["parts"][:1]}], "pydantic-ai")
    assert (alone.role, [block.text for block in alone.blocks if isinstance(block, Text)]) == ("system", ["Be brief."])
    (beside,) = to_neutral(PYDANTIC_AI[:1], "pydantic-ai")
    assert beside.role == "user"
    assert isinstance(beside.blocks[0], Other)


def test_a_message_of_pydantic_ai_is_a_turn_of_blocks() -> None:
    turns = to_neutral(PYDANTIC_AI, "pydantic-ai")
    assert [[type(block) for block in turn.blocks] for turn in turns] == [
        [Other, Text, Media, Media],
        [Thinking, Text, Call, Call],
        [Result, Result, Text],
        [Text],
    ]
    image, call, failed = turns[0].blocks[2], turns[1].blocks[3], turns[2].blocks[1]
    assert isinstance(image, Media)
    assert image.data == "iVBORw0KGgr//v0="  # pydantic writes base64 for URLs
    assert isinstance(call, Call)
    assert (call.id, call.name, call.arguments) == ("c2", "weather", {"city": "Bonn"})
    assert isinstance(failed, Result)
    assert (failed.text, failed.failed) == ("no such city", True)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("program", ["claude-code", "codex", "gemini-cli", "pi"])
@pytest.mark.parametrize(
    ("provider", "messages"),
    [("pydantic-ai", PYDANTIC_AI), ("openai-agents", OPENAI_AGENTS), ("claude-agent-sdk", CLAUDE_AGENT_SDK)],
)
def test_a_conversation_of_a_framework_is_handed_on_with_its_calls_and_answers(
    tmp_path: Path, provider: str, messages: list[dict[str, Any]], program: str
) -> None:
    """Once the answers of an OpenAI agent were left out, as parts "that only its own provider understands"."""
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(provider=provider, messages=messages)
        exported = export(conversation, to=program, output=tmp_path / "home", cwd=tmp_path)
    text = "".join(Path(path).read_text() for path in exported.paths)
    for said in ("**Blue.**", "weather", "Ulm", "blue"):
        assert said in text
    kinds = {loss.kind for loss in exported.losses}
    assert kinds <= ({"own", "thinking", "failed", "media"} if provider == "pydantic-ai" else set())


@for_each("value", [None, 1, "text", [], ["text", 1], {}, {"kind": "binary"}, [{"kind": ["x"]}]])
@for_each("kind", ["user-prompt", "text", "thinking", "tool-call", "tool-return", "retry-prompt", "file", [], None])
def test_every_kind_of_part_is_shown(kind: object, value: Any) -> None:
    names = ("content", "args", "tool_call_id", "tool_name", "outcome", "media_type", "data", "url")
    message = {"kind": "request", "parts": [value, {"part_kind": kind, **dict.fromkeys(names, value)}]}
    assert role_of(message) == "user"
    assert all(isinstance(part.text, str) for part in parts_of(message))
    (turn,) = to_neutral([message], "pydantic-ai")
    assert turn.blocks


@pytest.mark.parametrize("message", [{"transcript_store.json": "[NaN]"}, {"kind": ["request"], "parts": []}])
def test_what_is_no_message_of_pydantic_ai_is_its_own_affair(message: dict[str, Any]) -> None:
    """As what JSON cannot hold, which is stored as text."""
    (turn,) = to_neutral([message], "pydantic-ai")
    assert [block.own for block in turn.blocks] == [message]
    assert parts_of(message)
