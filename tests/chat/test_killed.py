"""Two processes and one conversation: the first is killed with SIGKILL in the middle of a tool turn, the second goes on.

Incident, in every agent that keeps its own log: killed between a tool call and its result, it sent the call without a result from
then on, and the service refused each request with a 400, for ever. Here the first process dies before and after every
single record that a turn writes, in the tool, and in the middle of a stream; what the second one sends is captured raw.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Dialect
from tests.chat.server import Server
from transcript_store import ConversationStore
from transcript_store.chat import TextDelta, Tool

CALLS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
PROMPT = "Be brief."
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


@pytest.fixture(autouse=True, scope="module")
def _imported_once() -> None:
    """Here, not again in each process."""
    import anthropic  # noqa: F401
    import openai  # noqa: F401
    from google import genai  # noqa: F401


@pytest.fixture(params=["claude", "openai", pytest.param("openai-compatible", marks=pytest.mark.long), "gemini"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """All of them; the one that shares its wire format with another takes its turn among the long proofs."""
    return DIALECTS[request.param]


class MortalStore(ConversationStore):
    """A store whose process dies before, or after, its nth append."""

    def __init__(self, directory: Path, *, dies: str, at: int) -> None:
        super().__init__(directory)
        self.dies, self.at, self.appended = dies, at, 0

    def append_message(self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None) -> Any:
        return self._around(lambda: ConversationStore.append_message(self, message, extra=extra))

    def append_event(self, extra: Mapping[str, Any]) -> Any:
        return self._around(lambda: ConversationStore.append_event(self, extra))

    def _around(self, append: Callable[[], Any]) -> Any:
        self.appended += 1
        if (self.dies, self.appended) == ("before", self.at):
            die()
        done = append()
        if (self.dies, self.appended) == ("after", self.at):
            die()
        return done


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_another_process(work: Callable[[], None]) -> int:
    """Fork, work, exit; returns what ``waitpid`` says, decoded: 0, or minus the signal that ended it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside the server's thread
        pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def on_record(directory: Path) -> tuple[list[Any], list[Any]]:
    """The messages, and the extras of the records without one."""
    with ConversationStore(directory, read_only=True) as conversation:
        conversation.load()
        records = conversation.get_records()
    return [r.message for r in records if r.message], [r.extra for r in records if not r.message]


def first_life(
    dialect: Dialect, server: Server, store: ConversationStore, *, stream: bool, handler: Any = None
) -> None:
    client = connect(dialect, server, store, system_prompt=PROMPT)
    client.set_tools([Tool("add", "Add.", SCHEMA, handler=handler or (lambda a, b: a + b))])
    if stream:
        for event in client.stream_chat("What is it?"):
            if isinstance(event, TextDelta):
                die()
    else:
        client.chat("What is it?")


def second_life(dialect: Dialect, server: Server, directory: Path) -> dict[str, Any]:
    """Another process goes on; returns the raw body that it sent, parsed, after checking what holds for each of them."""
    before, _ = on_record(directory)
    sent = len(server.requests)
    server.answers[:] = [dialect.reply("Here again.")]

    def work() -> None:
        with ConversationStore(directory) as conversation:
            client = connect(dialect, server, conversation)
            assert client.chat("Go on.") == "Here again."

    assert in_another_process(work) == 0
    (request,) = server.requests[sent:]
    body: dict[str, Any] = request.body
    assert dialect.refusal(body) is None
    assert dialect.system_prompts(body) == [PROMPT]
    messages = dialect.messages(body)
    after, _ = on_record(directory)
    assert messages == after[:-1]
    assert messages[: len(before)] == before
    assert "Go on." in json.dumps(messages[-1])
    return body


# The records of the turn: question, reply, first result, second result, answer.
POINTS = [(dies, at) for at in range(1, 6) for dies in ("before", "after")]


@pytest.mark.parametrize(("dies", "at"), POINTS, ids=[f"{dies} record {at}" for dies, at in POINTS])
def test_killed_at_every_durable_step(dialect: Dialect, server: Server, tmp_path: Path, dies: str, at: int) -> None:
    """Wherever the first process dies, the second sends one system prompt, every earlier turn equal, and no unpaired call."""
    server.answers += [dialect.reply("I will add.", CALLS), dialect.reply("3 and 7.")]
    directory = tmp_path / "c"
    store = MortalStore(directory, dies=dies, at=at)
    assert in_another_process(lambda: first_life(dialect, server, store, stream=False)) == -signal.SIGKILL
    before, events = on_record(directory)
    assert len(before) + len(events) == at - (dies == "before")
    body = second_life(dialect, server, directory)
    after, _ = on_record(directory)
    with ConversationStore(directory, read_only=True) as conversation:
        conversation.load()
        interrupted = [
            r.extra["interrupted"] for r in conversation.get_records() if r.extra and "interrupted" in r.extra
        ]
    results_known = max(0, min(2, len(before) + len(events) - 2))
    calls_on_record = len(before) + len(events) >= 2
    assert len([name for names in interrupted for name in names]) == (2 - results_known if calls_on_record else 0)
    assert json.dumps(body).count("outcome is unknown") == (2 - results_known if calls_on_record else 0)
    assert len(after) >= len(before) + 2


def test_killed_in_the_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The tool may have run: its call gets a result that says so, durable and marked, and it is not run again."""
    server.answers += [dialect.reply("", CALLS[:1])]
    directory = tmp_path / "c"
    work = lambda: first_life(dialect, server, ConversationStore(directory), stream=False, handler=die)  # noqa: E731
    assert in_another_process(work) == -signal.SIGKILL
    body = second_life(dialect, server, directory)
    assert json.dumps(body).count("outcome is unknown") == 1


def test_killed_in_a_stream(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """What was shown of the answer is gone with the process; the question is on record, and the next turn works."""
    server.answers += [dialect.stream("dying" * 2)]
    directory = tmp_path / "c"
    work = lambda: first_life(dialect, server, ConversationStore(directory), stream=True)  # noqa: E731
    assert in_another_process(work) == -signal.SIGKILL
    messages, events = on_record(directory)
    assert (len(messages), events) == (1, [])
    second_life(dialect, server, directory)


def test_killed_again_while_paying_the_debt(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A second process that dies while it records what the first one owed changes nothing for the third."""
    server.answers += [dialect.reply("", CALLS)]
    directory = tmp_path / "c"
    store = MortalStore(directory, dies="after", at=2)
    assert in_another_process(lambda: first_life(dialect, server, store, stream=False)) == -signal.SIGKILL
    again = MortalStore(directory, dies="after", at=1)
    assert in_another_process(lambda: connect(dialect, server, again).add("Go on.")) == -signal.SIGKILL
    second_life(dialect, server, directory)
