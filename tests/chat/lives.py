"""A process that dies in the middle of a tool turn, and the next one, which continues."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.chat.conftest import connect
from tests.chat.dialects import Dialect
from tests.chat.server import Server
from transcript_store import ConversationStore
from transcript_store.chat import TextDelta, Tool

CALLS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
PROMPT = "Be brief."
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


class MortalStore(ConversationStore):
    """A store whose process dies before, or after, its nth append."""

    def __init__(self, directory: Path, *, dies: str, at: int) -> None:
        super().__init__(directory)
        self.dies, self.at, self.appended = dies, at, 0

    def append_message(self, message: Mapping[str, Any], **more: Any) -> Any:
        return self._around(lambda: ConversationStore.append_message(self, message, **more))

    def append_event(self, extra: Mapping[str, Any], **more: Any) -> Any:
        return self._around(lambda: ConversationStore.append_event(self, extra, **more))

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
