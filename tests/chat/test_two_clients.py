"""Two clients of one conversation, as two requests of a web server make them: one turn at a time, whoever takes it.

Incident: a tool of the first client was running (it paid a bill). The second client began a turn, found a call without a result,
and told the model that the tool was interrupted. The receipt came later, was on record, and no request ever carried it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import Call, Dialect
from tests.chat.server import Server
from tests.kit.children import Child
from transcript_store import ConversationStore, Record
from transcript_store.chat import TextDelta, Tool

PAY: tuple[Call, ...] = (("pay", {}),)
RECEIPT = "PAID, receipt 77"


def paying(pay: Callable[[], str]) -> Tool:
    return Tool("pay", "Pay the bill.", {"type": "object"}, handler=pay)


def reading(client: Any, prompt: str) -> Any:
    """A stream whose first text has come."""
    stream = client.stream_chat(prompt)
    assert any(isinstance(event, TextDelta) for event in stream)
    return stream


def test_the_other_client_waits_while_a_tool_runs(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """It is told in each thread that a turn is under way, records nothing, and the model is told what the tool gave."""
    refused: list[str] = []
    server.answers += [dialect.reply("", PAY), dialect.reply("Paid."), dialect.reply("Hello.")]
    with ConversationStore(tmp_path / "c") as conversation:
        first, second = (connect(dialect, server, conversation) for _ in range(2))

        def ask() -> None:
            for turn in (lambda: second.chat("Hi"), lambda: list(second.stream_chat("Hi")), lambda: second.add("Hi")):
                try:
                    turn()
                except RuntimeError as error:
                    refused.append(str(error))

        def pay() -> str:
            ask()
            (thread := threading.Thread(target=ask)).start()
            thread.join()
            second.close()
            return RECEIPT

        first.set_tools([paying(pay)])
        assert first.chat("Pay it") == "Paid."
        assert refused == ["another turn of this conversation is under way"] * 6
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:-1]
        assert json.dumps(server.bodies[1]).count(RECEIPT) == 1
        assert "outcome is unknown" not in json.dumps(conversation.get_messages())
        third = connect(dialect, server, conversation)
        assert third.chat("Hi") == "Hello."
        assert dialect.messages(server.bodies[2]) == conversation.get_messages()[:-1]


def test_a_turn_ends_with_a_fork(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The child has its parent's memory, in which a turn is under way: it is the parent's."""

    def ask(say: Callable[[object], None]) -> None:
        conversation.load()
        say(connect(dialect, server, conversation).chat("Hi"))

    def pay() -> str:
        assert Child(ask).end() == ["Hello."]
        return RECEIPT

    server.answers += [dialect.reply("", PAY), dialect.reply("Hello."), dialect.reply("Paid.")]
    with ConversationStore(tmp_path / "c", hold_lock=False) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([paying(pay)])
        assert client.chat("Pay it") == "Paid."


def test_a_stream_stays_its_parents_in_a_fork(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A child that closes the conversation ends no stream of its parent's, and records no half of it."""

    def close(say: Callable[[object], None]) -> None:
        conversation.load()
        conversation.close()
        say("closed")

    server.answers += [dialect.stream("A long answer")]
    with ConversationStore(tmp_path / "c", hold_lock=False) as conversation:
        stream = reading(connect(dialect, server, conversation), "One")
        before = conversation.get_records()
        assert Child(close).end() == ["closed"]
        assert conversation.get_records() == before
        assert list(stream)[-1].text == "A long answer"


def test_stores_that_are_equal_have_turns_of_their_own(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A subclass with ``__eq__``, such as a dataclass, has no hash."""

    class Equal(ConversationStore):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # type: ignore[assignment]

    server.answers += [dialect.reply("", PAY), dialect.reply("Hello."), dialect.reply("Paid.")]
    with Equal(tmp_path / "c") as one, Equal(tmp_path / "d") as other:
        client, second = connect(dialect, server, one), connect(dialect, server, other)
        client.set_tools([paying(lambda: second.chat("Hi"))])
        assert client.chat("Pay it") == "Paid."


def test_whether_it_is_answered_is_looked_up_once(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Asked in a loop, behind what the program itself appended, it read the whole transcript each time."""
    reads: list[int] = []

    class Counting(ConversationStore):
        def get_records(self, **which: Any) -> list[Record]:
            reads.append(1)
            return super().get_records(**which)

    server.answers.append(dialect.reply("Hello."))
    with Counting(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.chat("Hi")
        conversation.append_event({"n": 1})
        before = len(reads)
        assert all(client.is_answered for _ in range(100))
        assert len(reads) == before + 1


def test_a_client_that_is_closed_leaves_the_others_stream(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A stream that somebody still reads is of another client; a turn of any client ends one that was left unfinished."""
    server.answers += [dialect.stream("A long answer"), dialect.stream("A long answer"), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        first, second = (connect(dialect, server, conversation) for _ in range(2))
        stream = reading(first, "One")
        second.close()
        assert list(stream)[-1].text == "A long answer"
        stream = reading(first, "Two")
        assert connect(dialect, server, conversation).chat("Three") == "Yes."
        assert "A long" in json.dumps(conversation.get_messages()[3])
        assert dialect.messages(server.bodies[2]) == conversation.get_messages()[:-1]


@pytest.mark.parametrize("answered", [False, True], ids=["before its answer", "behind its answer"])
def test_a_result_that_comes_after_another_process_gave_it_up(
    dialect: Dialect, server: Server, tmp_path: Path, answered: bool
) -> None:
    """Two processes take turns (``hold_lock=False``) and know nothing of each other's tools. The real result is what is sent."""
    with (
        ConversationStore(tmp_path / "c", hold_lock=False) as one,
        ConversationStore(tmp_path / "c", hold_lock=False) as other,
    ):
        first, second = connect(dialect, server, one), connect(dialect, server, other)

        def pay() -> str:
            if answered:
                assert second.chat("Hi") == "Hello."
            else:
                second.add("Hi")
            return RECEIPT

        first.set_tools([paying(pay)])
        server.answers += [dialect.reply("", PAY), *[dialect.reply("Hello.")] * answered, dialect.reply("Paid.")]
        assert first.chat("Pay it") == "Paid."
        sent = json.dumps(server.bodies[-1])
        if dialect.name == "gemini" and answered:
            return  # its calls have no id, so nothing says whose result it is
        assert sent.count(RECEIPT) == 1
        assert "outcome is unknown" not in sent
