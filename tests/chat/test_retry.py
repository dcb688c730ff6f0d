"""An unanswered question is sent again, and recorded once.

A turn that failed used to leave its question without an answer: to ask it again was to say it twice, and the model was told it
twice from then on. ``retry()`` takes up the turn where the record ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import Dialect
from tests.chat.server import Answer, Server
from transcript_store import ConversationStore
from transcript_store.chat import Tool, TurnEnded
from transcript_store.errors import IncompleteResponseError

CALLS = (("add", {"a": 1, "b": 2}),)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
REFUSED = Answer(b'{"error": {"message": "busy"}}', status=400)


def roles(conversation: ConversationStore) -> list[str]:
    return ["assistant" if message["role"] == "model" else message["role"] for message in conversation.get_messages()]


def test_a_question_whose_request_failed(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """In the same process and in the next one: what is sent is what the failed request carried, to the byte."""
    server.answers += [REFUSED, REFUSED, dialect.reply("Here.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, system_prompt="Be brief.")
        assert client.is_answered
        for ask in (lambda: client.chat("Where were we?"), client.retry):
            with pytest.raises(Exception, match="busy"):
                ask()
            assert not client.is_answered
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        assert not client.is_answered
        assert client.retry() == "Here."
        assert client.is_answered
        assert roles(conversation) == ["user", "assistant"]
    first, second, third = (request.raw for request in server.requests)
    assert first == second == third


def test_half_an_answer_stays_on_record_and_is_not_sent_with_the_question(
    dialect: Dialect, server: Server, tmp_path: Path
) -> None:
    """At the end of a request it would be taken for the beginning of the answer, or refused."""
    server.answers += [dialect.stream("Half an", stop=False), dialect.stream("A whole answer."), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError):
            list(client.stream_chat("Well?"))
        assert not client.is_answered
        *_, end = client.stream_retry()
        assert end == TurnEnded(text="A whole answer.", stop_reason=end.stop_reason)
        assert dialect.messages(server.bodies[1]) == dialect.messages(server.bodies[0])
        assert roles(conversation) == ["user", "assistant", "assistant"]
        assert [record.seq for record in conversation.get_records() if "incomplete" in (record.extra or {})] == [2]
        assert client.chat("Sure?") == "Yes."


def test_a_turn_that_stopped_behind_a_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The results stand on record, and no tool runs again."""
    ran: list[int] = []

    def add(a: int, b: int) -> int:
        ran.append(a + b)
        return a + b

    server.answers += [dialect.reply("I add.", CALLS), REFUSED, dialect.reply("3.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("add", "Add.", SCHEMA, handler=add)])
        with pytest.raises(Exception, match="busy"):
            client.chat("1 and 2?")
        before = conversation.get_messages()
        assert client.retry() == "3."
        assert conversation.get_messages()[:-1] == before
    assert ran == [3]
    assert dialect.messages(server.bodies[2]) == dialect.messages(server.bodies[1])


def test_a_process_that_died_in_a_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The model is told that the outcome is unknown, as before any other turn, and goes on."""

    def dies(a: int, b: int) -> Any:
        raise KeyboardInterrupt

    server.answers += [dialect.reply("I add.", CALLS), dialect.reply("I do not know.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("add", "Add.", SCHEMA, handler=dies)])
        with pytest.raises(KeyboardInterrupt):
            client.chat("1 and 2?")
        assert not client.is_answered
        assert client.retry() == "I do not know."
    assert "outcome is unknown" in server.requests[-1].raw.decode()


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "in memory"])
def test_there_is_nothing_to_ask_again(dialect: Dialect, server: Server, tmp_path: Path, recorded: bool) -> None:
    """Before the first question and behind an answer: refused; nothing is sent, nothing recorded."""
    conversation = ConversationStore(tmp_path / "c") if recorded else None
    client = connect(dialect, server, conversation)
    with pytest.raises(ValueError, match="nothing to ask again"):
        client.retry()
    server.answers += [dialect.reply("Hello.")]
    client.chat("hi")
    before = client.export_history()
    for again in (client.retry, lambda: list(client.stream_retry())):
        with pytest.raises(ValueError, match="nothing to ask again"):
            again()
    assert client.is_answered
    assert client.export_history() == before
    assert len(server.requests) == 1
    if conversation is not None:
        conversation.close()


def test_a_message_that_was_only_added_waits_for_its_answer(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """``add()`` and ``retry()`` are a turn in two steps."""
    server.answers += [dialect.reply("Both.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.add("one")
        assert not client.is_answered
        assert client.retry() == "Both."
        assert roles(conversation) == ["user", "assistant"]
