"""One question that the provider refused blocked every later one: each request carried it again.

The reports: https://github.com/gi-dellav/zerostack/pull/132, https://github.com/anthropics/claude-code/issues/23854,
https://github.com/screenpipe/screenpipe/issues/3852 (a prompt that is too long), and
https://platform.claude.com/docs/en/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals (a refused turn has to be removed).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect, dialect, no_certificates, no_keys, no_open_connections, server
from tests.chat.dialects import DIALECTS, Dialect, sse
from tests.chat.server import Answer, Server
from tests.cli.conftest import cli
from tests.cli.helpers import Cli, Result
from transcript_store import ConversationStore
from transcript_store.chat import Tool
from transcript_store.errors import IncompleteResponseError

__all__ = ["cli", "dialect", "no_certificates", "no_keys", "no_open_connections", "server"]

LOOK = Tool("look", "Look.", {"type": "object", "properties": {}}, handler=lambda: "too much")


def refused(code: int = 400, /, **members: Any) -> Answer:
    error = {
        "message": "prompt is too long: 250000 tokens > 200000 maximum",
        "type": "invalid_request_error",
        **members,
    }
    return Answer(json.dumps({"type": "error", "error": error}).encode(), status=code)


def texts(dialect: Dialect, body: Any) -> str:
    return json.dumps(dialect.messages(body))


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_question_is_left_out_of_later_requests(
    dialect: Dialect, server: Server, tmp_path: Path, status: int, streamed: bool
) -> None:
    """It stays on record, marked with the server's reason; in this process and the next one."""

    def ask(client: Any, question: str) -> str:
        return str(list(client.stream_chat(question))[-1].text) if streamed else str(client.chat(question))

    answer = dialect.stream if streamed else dialect.reply
    server.answers += [answer("Hello."), refused(status), answer("Four."), answer("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        ask(client, "hello")
        with pytest.raises(Exception, match="too long"):
            ask(client, "THE LONG ONE")
        assert client.is_refused
        assert not client.is_answered
        assert ask(client, "What is 2+2?") == "Four."
        assert not client.is_refused
        assert "THE LONG ONE" not in texts(dialect, server.bodies[-1])
        assert [
            seen["refused"]["status"] for r in conversation.get_records() if (seen := r.extra or {}).get("refused")
        ] == [status]
        assert "THE LONG ONE" in json.dumps(conversation.get_messages())
    with ConversationStore(tmp_path / "c") as conversation:
        assert ask(connect(dialect, server, conversation), "Sure?") == "Yes."
        sent = texts(dialect, server.bodies[-1])
        assert "THE LONG ONE" not in sent
        assert all(text in sent for text in ("hello", "Hello.", "What is 2+2?", "Four.", "Sure?"))


def test_a_refused_question_that_is_answered_when_it_is_asked_again_counts(
    dialect: Dialect, server: Server, tmp_path: Path
) -> None:
    """A model with a longer context may take it: then it is part of the conversation, for the next process too."""
    server.answers += [refused(), refused(), dialect.reply("I read it."), dialect.reply("Yes."), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        for ask in (lambda: client.chat("THE LONG ONE"), client.retry):
            with pytest.raises(Exception, match="too long"):
                ask()
    for _ in range(2):
        with ConversationStore(tmp_path / "c") as conversation:
            client = connect(dialect, server, conversation)
            if not client.is_answered:
                assert client.retry() == "I read it."
            assert client.chat("Sure?") == "Yes."
            assert texts(dialect, server.bodies[-1]).count("THE LONG ONE") == 1


def test_refused_results_are_left_out_and_their_question_stays(
    dialect: Dialect, server: Server, tmp_path: Path
) -> None:
    """What an earlier request carried was taken. A call whose result is left out is sent with one that says so."""
    server.answers += [dialect.reply("I look.", (("look", {}),)), refused(), dialect.reply("Well.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([LOOK])
        with pytest.raises(Exception, match="too long"):
            client.chat("look around")
        assert client.chat("Never mind.") == "Well."
    sent = texts(dialect, server.bodies[-1])
    assert "too much" not in sent
    assert "look around" in sent
    assert "not in this conversation" in sent


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("kind", ["with retract", "without", "in memory"])
def test_drop_retracts_what_has_no_answer(dialect: Dialect, server: Server, tmp_path: Path, kind: str) -> None:
    """All of the turn, and nothing before it. Without the feature ``retract`` the rest becomes the next generation."""
    server.answers += [
        dialect.reply("Hello."), dialect.reply("", (("look", {}),)), refused(), dialect.reply("Four."), dialect.reply("Yes.")
    ]  # fmt: skip
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(provider=dialect.provider, features=["retract"] if kind == "with retract" else [])
        client = connect(dialect, server, None if kind == "in memory" else conversation)
        client.set_tools([LOOK])
        client.chat("hello")
        with pytest.raises(ValueError, match="nothing to take back"):
            client.drop()
        before = client.export_history()
        with pytest.raises(Exception, match="too long"):
            client.chat("look around")
        assert client.drop() == 3
        assert client.is_answered
        assert not client.is_refused
        assert client.export_history() == before
        assert client.chat("What is 2+2?") == "Four."
        assert "look around" not in texts(dialect, server.bodies[-1])
        assert client.chat("Sure?") == "Yes."
        assert conversation.get_metadata().generation == (1 if kind == "without" else 0)


@pytest.mark.parametrize(
    ("provider", "answer"),
    [
        ("claude", refused(401)),
        ("claude", refused(404)),
        ("claude", refused(message="Your credit balance is too low to access the Anthropic API.")),
        ("openai", refused(param="max_completion_tokens", message="max_tokens is too large")),
        ("gemini", refused(status="INVALID_ARGUMENT", details=[{"reason": "API_KEY_INVALID"}])),
        ("gemini", refused(status="FAILED_PRECONDITION", message="User location is not supported for the API use.")),
    ],
    ids=["key", "model", "money", "parameter", "Gemini's key", "Gemini's country"],
)
def test_an_error_that_is_not_about_the_question_does_not_leave_it_out(
    server: Server, provider: str, answer: Answer
) -> None:
    server.answers += [answer, DIALECTS[provider].reply("Yes.")]
    client = connect(DIALECTS[provider], server)
    with pytest.raises(Exception, match=r"40\d|credit|too large|location|key|prompt"):
        client.chat("the first one")
    assert not client.is_refused
    assert client.chat("the second one") == "Yes."
    assert "the first one" in texts(DIALECTS[provider], server.bodies[-1])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_turn_that_claude_refused_is_removed_with_what_came_of_its_reply(
    server: Server, tmp_path: Path, streamed: bool
) -> None:
    claude = DIALECTS["claude"]
    body = json.loads(claude.reply("I cannot").body) | {"stop_reason": "refusal"}
    stream = claude.stream("I cannot").body.replace(b'"stop_reason": "end_turn"', b'"stop_reason": "refusal"')
    server.answers += [
        Answer(stream, content_type="text/event-stream") if streamed else Answer(json.dumps(body).encode()),
        claude.reply("Four."),
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(claude, server, conversation)
        with pytest.raises(IncompleteResponseError, match="refus"):
            list(client.stream_chat("how to harm")) if streamed else client.chat("how to harm")
        assert client.is_refused
    with ConversationStore(tmp_path / "c") as conversation:
        assert connect(claude, server, conversation).chat("What is 2+2?") == "Four."
        assert len(conversation.get_messages()) == 4
    assert claude.messages(server.bodies[-1]) == [{"role": "user", "content": "What is 2+2?"}]


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("gemini", {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
        ("gemini", {"candidates": [{"finishReason": "PROHIBITED_CONTENT", "index": 0}]}),
        ("openai", {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": "content_filter"}]}),
        ("openai-compatible", {"error": {"code": 400, "message": "maximum context length is 8192 tokens"}}),
        ("claude", {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}),
    ],
)
def test_a_refusal_within_a_stream_leaves_the_question_out(server: Server, provider: str, said: Any) -> None:
    """The status of the answer is 200: a prompt that was blocked, and an error that a gateway passes on as an event."""
    dialect = DIALECTS[provider]
    stream = sse(said, said.get("type")).encode()
    server.answers += [Answer(stream, content_type="text/event-stream"), dialect.reply("Four.")]
    client = connect(dialect, server)
    with pytest.raises(Exception, match=r"PROHIBITED|content_filter|context length|too long"):
        list(client.stream_chat("how to harm"))
    assert client.is_refused
    assert client.chat("What is 2+2?") == "Four."
    assert "harm" not in texts(dialect, server.bodies[-1])


def test_a_gateway_that_refuses_with_status_200_and_no_stream(server: Server) -> None:
    dialect = DIALECTS["openai-compatible"]
    error = {"error": {"code": 400, "message": "maximum context length is 8192 tokens"}}
    server.answers += [Answer(json.dumps(error).encode()), dialect.reply("Four.")]
    client = connect(dialect, server)
    with pytest.raises(IncompleteResponseError):
        client.chat("how to harm")
    assert client.is_refused
    assert client.chat("What is 2+2?") == "Four."
    assert "harm" not in texts(dialect, server.bodies[-1])


def test_the_command_continues_without_it_says_so_and_drops_it(server: Server, tmp_path: Path, cli: Cli) -> None:
    """Exit code 1 for the refused line; the next run is answered. `/drop` takes it back, and says so if there is nothing."""
    where = ("--base-url", server.url, "--allow-insecure-base-url")
    openai = DIALECTS["openai-compatible"]

    def chat(line: str) -> Result:
        return cli("chat", str(tmp_path / "c"), *where, stdin=line.encode())

    server.answers += [openai.stream("Hello."), refused(), openai.stream("Four."), refused(), openai.stream("Yes.")]
    assert chat("hello").code == 0
    first = chat("THE LONG ONE")
    assert first.code == 1
    assert first.err.splitlines()[-1].endswith(
        "refused the request (400): prompt is too long: 250000 tokens > 200000 maximum; later questions are sent without it; "
        "/drop retracts it, /retry asks it again (/model NAME: asks another model)"
    )
    assert chat("What is 2+2?").code == 0
    assert "this was refused" in chat("/history").out
    assert "refused: prompt is too long" in cli("show", str(tmp_path / "c")).out
    assert chat("ANOTHER LONG ONE").code == 1
    dropped = chat("/drop")
    assert (dropped.code, dropped.err.splitlines()[-1]) == (0, "transcript-store: retracted: 1 message")
    again = chat("/drop")
    assert (again.code, again.err) == (
        1,
        "transcript-store: there is nothing to retract: the last question is answered\n",
    )
    assert chat("Sure?").code == 0
    server.answers += [refused(), refused()]
    assert "later questions are sent without it" in chat("one more").err
    assert "the conversation may be too long for this model" in chat("x").err
    server.answers += [openai.stream("Yes.")]
    assert chat("Sure?").code == 0
    assert "LONG" not in texts(openai, server.bodies[-1])
    assert "ANOTHER" not in cli("show", str(tmp_path / "c")).out
    assert "retracted" in cli("show", str(tmp_path / "c"), "--full").out
