"""What a provider puts into a reply and refuses in a request: it stays on record, and is not sent.

The reports: https://github.com/anthropics/anthropic-sdk-python/issues/961 and /1339 (a paused turn),
https://github.com/avante-corp/avante.nvim/pull/425 (more than four ``cache_control``), https://github.com/firebase/firebase-js-sdk/issues/8714,
https://github.com/router-for-me/CLIProxyAPI/issues/1292 (empty parts of Gemini), https://github.com/anomalyco/opencode/issues/1295
(white space at the end), https://github.com/anthropics/claude-code/issues/4378 (members that only a response has).
https://github.com/NousResearch/hermes-agent/issues/35543 and https://github.com/OpenMinis/OpenMinis/issues/87 (thinking of another
model; DeepSeek and Kimi refuse their own replies without it: https://github.com/CommandCodeAI/command-code/issues/840).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect, no_certificates, no_keys, no_open_connections, server
from tests.chat.dialects import DIALECTS, events
from tests.chat.server import Answer, Server
from tests.kit.messages import user_message
from transcript_store import ConversationStore
from transcript_store.chat import TurnEnded
from transcript_store.errors import MaxStepsError

__all__ = ["no_certificates", "no_keys", "no_open_connections", "server"]

CLAUDE, GEMINI = DIALECTS["claude"], DIALECTS["gemini"]
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SAID = {"type": "text", "text": "Let me search. "}


def claude(*blocks: Any, stop_reason: str = "end_turn") -> Answer:
    return Answer(
        json.dumps(json.loads(CLAUDE.reply("x").body) | {"content": blocks, "stop_reason": stop_reason}).encode()
    )


def asked_after(server: Server, *history: Any, dialect: Any = CLAUDE) -> list[Any]:
    """The messages of the request that carries this history and a question."""
    server.answers.append(dialect.reply("Yes."))
    client = connect(dialect, server, initial_history=list(history))
    client.chat("And now?")
    assert client.export_history()[: len(history)] == list(history)  # what is on record is as it was
    return list(dialect.messages(server.bodies[-1]))


def assistant(*blocks: Any, **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **members}


# ---- a turn that Claude paused


def test_a_paused_turn_is_sent_again_as_it_is_until_it_ends(server: Server, tmp_path: Path) -> None:
    """Each part is on record before it is sent, and the text of the answer is that of all of them."""
    server.answers += [
        claude(SAID, SEARCH, stop_reason="pause_turn"),
        claude(FOUND, {"type": "text", "text": "One more. "}, stop_reason="pause_turn"),
        claude({"type": "text", "text": "It is 4."}),
        CLAUDE.reply("Yes."),
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(CLAUDE, server, conversation)
        assert client.chat("What is it?") == "Let me search. One more. It is 4."
        assert client.is_answered
        assert [len(CLAUDE.messages(body)) for body in server.bodies] == [1, 2, 3]
        assert CLAUDE.messages(server.bodies[1])[-1]["content"] == [SAID, SEARCH]
        assert CLAUDE.messages(server.bodies[2])[-1]["content"][-1]["text"] == "One more."  # no white space at the end
        assert client.chat("Sure?") == "Yes."
        assert CLAUDE.messages(server.bodies[-1])[:4] == conversation.get_messages()[:4]


def test_a_stream_that_pauses_continues(server: Server) -> None:
    paused = CLAUDE.stream("Let me search. ").body.replace(b'"stop_reason": "end_turn"', b'"stop_reason": "pause_turn"')
    server.answers += [Answer(paused, content_type="text/event-stream"), CLAUDE.stream("It is 4.")]
    *deltas, complete = connect(CLAUDE, server).stream_chat("What is it?")
    assert complete == TurnEnded(text="Let me search. It is 4.", stop_reason="end_turn")
    assert "".join(delta.text for delta in deltas) == complete.text


def test_a_pause_at_the_last_step_is_no_answer_and_the_next_process_continues(server: Server, tmp_path: Path) -> None:
    server.answers += [
        claude(SAID, SEARCH, stop_reason="pause_turn"),
        claude(FOUND, {"type": "text", "text": "It is 4."}),
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        with pytest.raises(MaxStepsError):
            connect(CLAUDE, server, conversation, max_steps=1).chat("What is it?")
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(CLAUDE, server, conversation)
        assert not client.is_answered
        assert client.retry() == "It is 4."
        assert CLAUDE.messages(server.bodies[-1])[-1]["content"] == [SAID, SEARCH]


def test_a_call_of_a_server_tool_without_its_result_is_left_out_behind_a_question(server: Server) -> None:
    """The result may come in the reply that continues it, also behind results of the caller's own tools."""
    sent = asked_after(server, user_message("x"), assistant(SAID, SEARCH))
    assert sent[1]["content"] == [SAID]
    assert [m["role"] for m in asked_after(server, user_message("x"), assistant(SEARCH))] == ["user", "user"]
    code = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = user_message([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}])
    ended = assistant({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": {}}, SAID)
    for history in (
        [user_message("x"), assistant(SEARCH), assistant(FOUND, SAID)],
        [user_message("x"), assistant(code, call), result, ended],
    ):
        assert asked_after(server, *history)[: len(history)] == history


# ---- Claude's requests


def test_only_the_newest_four_cache_controls_are_sent(server: Server) -> None:
    def cached(text: str) -> dict[str, Any]:
        return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}

    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "cache_control": {"type": "ephemeral"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [cached("three")],
        "cache_control": {"type": "ephemeral"},
    }
    history = [
        user_message([cached("one"), cached("two")]),
        assistant(call),
        user_message([result]),
        assistant(cached("four")),
    ]
    sent = asked_after(server, *history)
    assert [json.dumps(message).count("cache_control") for message in sent] == [0, 1, 2, 1, 0]
    few = [user_message([cached("one")]), assistant(cached("two"))]
    assert asked_after(server, *few)[:2] == few


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        ([{"type": "thinking", "thinking": "hm", "signature": ""}, SAID], [SAID]),
        ([{"type": "thinking", "thinking": "hm"}, SAID], [SAID]),
        ([{"type": "text", "text": " \n"}, SAID], [SAID]),
        ([{"type": "text", "text": None}, SAID], [SAID]),
        ([SAID | {"citations": None}], [SAID | {"citations": None}]),
        ([SEARCH | {"caller": None}, FOUND], [SEARCH, FOUND]),
    ],
    ids=["an empty signature", "no signature", "white space", "no text", "null citations", "a null caller"],
)
def test_a_block_that_only_a_response_may_have(server: Server, recorded: list[Any], sent: list[Any]) -> None:
    assert asked_after(server, user_message("x"), assistant(*recorded))[1]["content"] == sent


def test_a_whole_response_that_was_recorded_as_the_message(server: Server) -> None:
    whole = json.loads(CLAUDE.reply("Hello.").body) | {"container": None, "stop_details": None}
    assert asked_after(server, user_message("x"), whole)[1] == {"role": "assistant", "content": whole["content"]}


def test_an_input_that_is_no_object_and_an_empty_text_in_a_result(server: Server) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": '{"x": '}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": ""}, SAID]}
    sent = asked_after(server, user_message("x"), assistant(call), user_message([result]), assistant(SAID))
    assert sent[1]["content"] == [call | {"input": {}}]
    assert sent[2]["content"] == [result | {"content": [SAID]}]


# ---- Gemini's requests


@pytest.mark.parametrize("empty", [{"text": ""}, {"text": "", "thought": True}, {}, {"text": None}], ids=json.dumps)
def test_an_empty_part_is_not_sent_and_its_signature_is(server: Server, empty: dict[str, Any]) -> None:
    said, signed = {"text": "Hello."}, {"text": "", "thoughtSignature": "U0lH"}
    history = [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [empty, said, empty, signed, empty]},
    ]
    assert asked_after(server, *history, dialect=GEMINI)[1] == {"role": "model", "parts": [said, signed]}
    history[1] = {"role": "model", "parts": [empty]}
    assert [content["role"] for content in asked_after(server, *history, dialect=GEMINI)] == ["user", "user"]


def test_a_stream_that_ends_with_an_empty_text(server: Server) -> None:
    def chunk(part: Any, **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0, **more}]}

    image = {"inlineData": {"mimeType": "image/png", "data": "eA=="}}
    server.answers += [events(chunk(image), chunk({"text": ""}, finishReason="STOP")), GEMINI.stream("Yes.")]
    client = connect(GEMINI, server)
    for question in ("Draw it.", "Sure?"):
        list(client.stream_chat(question))
    assert client.export_history()[1]["parts"] == [image, {"text": ""}]
    assert GEMINI.messages(server.bodies[-1])[1]["parts"] == [image]


# ---- thinking as text


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning", "reasoning_details"])
def test_thinking_is_sent_to_the_model_that_wrote_it(server: Server, tmp_path: Path, member: str) -> None:
    """Cerebras, Groq and Mistral refuse it with 400 or 422, for each question anew; it stays on record."""
    openai = DIALECTS["openai"]
    thought: dict[str, Any] = {"role": "assistant", "content": "It is 4.", member: "Let me see."}
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(provider="openai", messages=[user_message("What is 2 + 2?")])
        conversation.append_message(thought, extra={"model": "kimi-k2-thinking"})
        for model, is_sent in (("moonshotai/kimi-k2-thinking", True), ("kimi-k2", True), ("gpt-oss-120b", False)):
            server.answers.append(openai.reply("Yes."))
            connect(openai, server, conversation, model=model).chat("Sure?")
            assert (member in openai.messages(server.bodies[-1])[1]) == is_sent, model
        assert conversation.get_messages()[1] == thought
