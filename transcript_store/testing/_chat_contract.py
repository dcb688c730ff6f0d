"""The contract of ``PersistentChatClient``, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from transcript_store import (
    ConversationStore,
    IncompleteResponseError,
    MaxStepsError,
    ProviderMismatchError,
    Record,
    Snapshot,
)
from transcript_store.chat import (
    ChatClient,
    PersistentChatClient,
    StreamingChatClient,
    TextDelta,
    Tool,
    ToolCallEnded,
    ToolCallStarted,
    TurnEnded,
)
from transcript_store.testing._arguments import require_function
from transcript_store.testing._simulated_machine import FileSystemCall, SimulatedFileSystem

__all__ = ["ChatBench", "ScriptedReply", "SentRequest", "check_chat_client"]


# ---- chat bench ----
# What the contract of chat clients works on: the caller's clients, a model with scripted replies, and a disk to
# inspect.

PROMPT = "Be brief."
TOKEN = "token-canary-5f2c"  # noqa: S105 (a canary)

_Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """The model's reply to the next request: a text, tool calls, or both.

    Args:
        text: the text of the reply.
        calls: tool calls, as pairs of name and arguments.
        fails: the request fails instead, with any ``Exception`` of the client's own.
        ends_early: the stream ends after the text, before a stop reason and without ``calls``.
    """

    text: str = ""
    calls: _Calls = ()
    fails: bool = False
    ends_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """The content of a request.

    Args:
        system_prompts: every system prompt that it carried; a correct request has one, or none if none is set.
        messages: its native messages in order, without system prompts.
        unpaired: the number of tool calls without a result and of results without a call.
    """

    system_prompts: list[str]
    messages: list[dict[str, Any]]
    unpaired: int


class ChatBench(Protocol):
    """A provider for the contract: clients that talk to a model with scripted replies."""

    sent: Sequence[SentRequest]
    """Every request that reached the scripted model, in order."""

    def script(self, *replies: ScriptedReply) -> None:
        """Add replies to those of the model. Each request takes the next one."""
        ...

    def client(self, conversation: ConversationStore | None = None, **config: Any) -> Any:
        """Make a client.

        Args:
            conversation: where the client records, if anywhere.
            config: fields of ``ChatConfig``: ``token``, ``system_prompt``, ``max_steps`` and ``initial_history``.
        """
        ...


@dataclass(slots=True)
class BenchRun:
    """One check, with its own bench and disk."""

    bench: ChatBench
    disk: SimulatedFileSystem = field(default_factory=SimulatedFileSystem)
    as_sent: list[SimulatedFileSystem] = field(default_factory=list)
    """The disk after a power loss at each request: nothing is written until the client has its reply."""

    def __post_init__(self) -> None:
        self.disk.on_call = self._look

    def _look(self, _: FileSystemCall) -> None:
        while len(self.as_sent) < len(self.bench.sent):
            self.as_sent.append(self.disk.worst_power_failure())

    @contextmanager
    def conversation(self, path: str = "/c") -> Iterator[ConversationStore]:
        with ConversationStore(path, file_system=self.disk) as conversation:
            yield conversation

    def client(self, conversation: ConversationStore | None = None, **config: Any) -> Any:
        return self.bench.client(conversation, **{"token": TOKEN, "system_prompt": PROMPT, **config})

    def on_disk(self, path: str = "/c") -> list[dict[str, Any]]:
        """The messages that another process would see now."""
        return [record.message for record in records_on(self.disk, path) if record.message is not None]


def records_on(disk: SimulatedFileSystem, path: str = "/c") -> list[Record]:
    with ConversationStore(path, file_system=disk, read_only=True) as reader:
        reader.load()
        return reader.get_records()


# ---- chat contract ----


def check_chat_client(make_bench: Callable[[], AbstractContextManager[ChatBench]]) -> None:
    """Check persistent chat clients against their contract. It returns nothing if they keep it.

    The rules for streams are checked only if the clients are ``StreamingChatClient``.

    Args:
        make_bench: makes a new bench, without any requests, at each call.

    Raises:
        TypeError: ``make_bench`` is not a function.
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``C7``.
    """
    require_function("make_bench", make_bench)
    for number, check in enumerate(CONTRACT, 1):
        with make_bench() as bench:
            try:
                check(BenchRun(bench))
            except Exception as error:
                raise AssertionError(f"C{number}, {(check.__doc__ or '').strip()} {error!r}") from error


def _tool(name: str, handler: Callable[..., Any]) -> Tool:
    return Tool(name, f"{name}.", {"type": "object", "properties": {"x": {"type": "string"}}}, handler=handler)


def _capable(rig: BenchRun) -> None:
    """A client is a ``ChatClient`` and a ``PersistentChatClient``."""
    client = rig.client()
    assert isinstance(client, ChatClient)
    assert isinstance(client, PersistentChatClient)


def _faithful(rig: BenchRun) -> None:
    """Every earlier turn is in the next request, in order and equal to what is on record; so is a message that was added."""
    rig.bench.script(ScriptedReply(text="one"), ScriptedReply(text="two"))
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        assert client.chat("first") == "one"
        client.add("by the way")
        before = client.export_history()
        assert before == conversation.get_messages() == rig.on_disk()
        assert client.chat("second") == "two"
        assert len(rig.bench.sent[0].messages) == 1
        assert rig.bench.sent[1].messages[:3] == before
        assert len(rig.bench.sent[1].messages) == 4
        assert len(client.export_history()) == 5


def _one_prompt(rig: BenchRun) -> None:
    """Every request has the system prompt exactly once, and the history never has it, through resume, save and restore."""
    rig.bench.script(*[ScriptedReply(text=f"answer {k}") for k in range(4)])
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        client.chat("one")
        client.chat("two")
    with rig.conversation() as conversation:
        client = rig.client(conversation, system_prompt=None)
        client.chat("three")
        snapshot = client.save()
    copy = rig.client(system_prompt=None)
    copy.restore(snapshot)
    copy.chat("four")
    assert [request.system_prompts for request in rig.bench.sent] == [[PROMPT]] * 4
    assert PROMPT not in json.dumps(copy.export_history())
    assert copy.save().system_prompt == PROMPT


def _write_ahead(rig: BenchRun) -> None:
    """The messages of a request are on disk before it is sent; a reply before its tools run, and each result before the
    next step.
    """
    seen: list[list[Record]] = []

    def look(x: str) -> str:
        seen.append(records_on(rig.disk))
        return "seen" + x

    two = (("look", {"x": "1"}), ("look", {"x": "2"}))
    rig.bench.script(ScriptedReply(text="wait", calls=two), ScriptedReply(text="done"))
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        client.set_tools([_tool("look", look)])
        assert client.chat("go") == "done"
        first, second = seen
        assert [record.message for record in first] == rig.bench.sent[1].messages[:2]
        assert "seen1" in json.dumps([[record.message, record.extra] for record in second])
        assert "seen1" in json.dumps(rig.bench.sent[1].messages[2:])
        assert rig.on_disk()[:-1] == rig.bench.sent[1].messages
    for request, disk in zip(rig.bench.sent, rig.as_sent, strict=True):
        assert [r.message for r in records_on(disk) if r.message is not None] == request.messages


def _two_calls(rig: BenchRun) -> None:
    """Two calls in one reply both get results, in order; an error, and an unknown tool, go back to the model."""

    def fails(x: str) -> str:
        raise LookupError(f"no {x} here")

    called = ScriptedReply(calls=(("works", {"x": "first"}), ("fails", {"x": "second"}), ("unknown", {})))
    rig.bench.script(called, ScriptedReply(text="done"))
    client = rig.client()
    client.set_tools([_tool("works", lambda x: x + " result"), _tool("fails", fails)])
    assert client.chat("go") == "done"
    request = rig.bench.sent[1]
    assert request.unpaired == 0
    sent_results = json.dumps(request.messages[2:])
    assert sent_results.index("first result") < sent_results.index("no second here") < sent_results.rindex("unknown")


def _replaced_tools(rig: BenchRun) -> None:
    """``set_tools`` replaces all: a tool that is gone is unknown."""
    rig.bench.script(ScriptedReply(calls=(("old", {}),)), ScriptedReply(text="done"))
    ran: list[str] = []
    client = rig.client()
    client.set_tools([_tool("old", lambda: ran.append("old"))])
    client.set_tools([_tool("new", lambda: ran.append("new"))])
    client.chat("go")
    assert ran == []


def _interrupted(rig: BenchRun) -> None:
    """A tool that was interrupted gets a result that is marked on record, and the next process's request is paired."""

    def interrupt() -> str:
        raise KeyboardInterrupt

    rig.bench.script(ScriptedReply(calls=(("works", {}), ("stops", {}))), ScriptedReply(text="I see."))
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        client.set_tools([_tool("works", lambda: "known result"), _tool("stops", interrupt)])
        try:
            client.chat("go")
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("Ctrl-C in a tool was swallowed")
    with rig.conversation() as conversation:
        assert rig.client(conversation).chat("what happened?") == "I see."
        marks = [r.extra["interrupted"] for r in conversation.get_records() if r.extra and "interrupted" in r.extra]
        assert [len(mark) for mark in marks] == [1]
    request = rig.bench.sent[1]
    assert request.unpaired == 0
    assert "known result" in json.dumps(request.messages)
    assert request.messages == rig.on_disk()[:-1]


def _failed_request(rig: BenchRun) -> None:
    """A request that fails raises, leaves the question on record, and the next turn works."""
    rig.bench.script(ScriptedReply(fails=True), ScriptedReply(text="back"))
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        try:
            client.chat("one")
        except Exception:  # noqa: S110 (whatever the provider's library raises)
            pass
        else:
            raise AssertionError("a failed request raised nothing")
        assert len(conversation.get_messages()) == 1
        assert client.chat("two") == "back"
        assert rig.bench.sent[-1].messages == conversation.get_messages()[:-1]


def _bounded(rig: BenchRun) -> None:
    """``max_steps`` requests, then ``MaxStepsError``, with everything on record."""
    rig.bench.script(*[ScriptedReply(calls=(("again", {}),))] * 2, ScriptedReply(text="enough"))
    with rig.conversation() as conversation:
        client = rig.client(conversation, max_steps=2)
        client.set_tools([_tool("again", lambda: "again")])
        _expect(MaxStepsError, lambda: client.chat("go"))
        assert len(rig.bench.sent) == 2
        assert client.chat("stop") == "enough"
        assert rig.bench.sent[2].messages == conversation.get_messages()[:-1]


def _portable(rig: BenchRun) -> None:
    """A snapshot restored into a fresh client continues the conversation; the caller sets the tools again."""
    rig.bench.script(ScriptedReply(calls=(("look", {}),)), ScriptedReply(text="one"), ScriptedReply(text="two"))
    client = rig.client()
    client.set_tools([_tool("look", lambda: "seen")])
    client.chat("first")
    history = client.export_history()
    snapshot = Snapshot.from_json(client.save(metadata={"topic": "test"}).to_json())
    assert snapshot.metadata["topic"] == "test"
    assert [tool.name for tool in snapshot.tools] == ["look"]
    with rig.conversation() as conversation:
        fresh = rig.client(conversation)
        fresh.restore(snapshot)
        assert fresh.export_history() == history == rig.on_disk()
        assert tuple(fresh.missing_tools) == ("look",)
        fresh.set_tools([_tool("look", lambda: "seen")])
        assert tuple(fresh.missing_tools) == ()
        assert fresh.chat("second") == "two"
    assert rig.bench.sent[2].messages[:-1] == history


def _foreign(rig: BenchRun) -> None:
    """Another provider's snapshot is ``ProviderMismatchError``, and changes nothing."""
    client = rig.client()
    client.add("mine")
    foreign = Snapshot.create(provider="unknown", messages=[{"role": "user", "content": "theirs"}])
    _expect(ProviderMismatchError, lambda: client.restore(foreign))
    assert len(client.export_history()) == 1


def _copied(rig: BenchRun) -> None:
    """``export_history`` is a deep copy."""
    client = rig.client()
    client.add("mine")
    exported = client.export_history()
    for message in exported:
        message.clear()
    assert client.export_history() != exported


def _seeded(rig: BenchRun) -> None:
    """A client with ``initial_history`` sends what one would send that had grown it; a system message in it is refused."""
    rig.bench.script(*[ScriptedReply(text=text) for text in ("one", "two", "two")])
    grown = rig.client()
    grown.chat("first")
    history = grown.export_history()
    grown.chat("second")
    rig.client(initial_history=history).chat("second")
    assert rig.bench.sent[1] == rig.bench.sent[2]
    _expect(ValueError, lambda: rig.client(initial_history=[{"role": "system", "content": "x"}]))


def _secret(rig: BenchRun) -> None:
    """The token is in no snapshot, no transcript, no ``repr``."""
    rig.bench.script(ScriptedReply(text="one"))
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        client.chat("first")
        shown = client.save().to_json().decode() + repr(client) + repr(client.save()) + repr(client.usage)
        shown += json.dumps([record.extra for record in conversation.get_records()])
        shown += json.dumps(conversation.get_messages()) + repr(conversation.get_metadata())
    assert TOKEN not in shown


def _streamed(rig: BenchRun) -> None:
    """A stream yields the text, each call and its result, and the end; it stores what ``chat`` would store."""
    replies = (ScriptedReply(text="wait", calls=(("look", {"x": "1"}),)), ScriptedReply(text="done"))
    rig.bench.script(*replies, *replies)
    client, other = rig.client(), rig.client()
    if not _streams(client):
        return
    for one in (client, other):
        one.set_tools([_tool("look", lambda x: "seen" + x)])
    events = list(client.stream_chat("go"))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "waitdone"
    assert [event.arguments for event in events if isinstance(event, ToolCallStarted)] == [{"x": "1"}]
    assert [event.result for event in events if isinstance(event, ToolCallEnded)] == ["seen1"]
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].text == "done"
    other.chat("go")
    assert client.export_history() == other.export_history()


def _cut(rig: BenchRun) -> None:
    """A stream that ends early is ``IncompleteResponseError``; the received part is kept, and the next turn works."""
    rig.bench.script(ScriptedReply(text="half an answer", ends_early=True), ScriptedReply(text="whole"))
    with rig.conversation() as conversation:
        client = rig.client(conversation)
        if not _streams(client):
            return
        _expect(IncompleteResponseError, lambda: list(client.stream_chat("go")))
        assert "half an answer" in json.dumps(conversation.get_messages()[-1])
        assert "incomplete" in (conversation.get_records()[-1].extra or {})
        assert client.chat("go on") == "whole"
        assert rig.bench.sent[-1].messages == conversation.get_messages()[:-1]


def _streams(client: Any) -> bool:
    return isinstance(client, StreamingChatClient)


def _expect(kind: type[Exception], call: Callable[[], Any]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


CONTRACT: tuple[Callable[[BenchRun], None], ...] = (
    _capable,
    _faithful,
    _one_prompt,
    _write_ahead,
    _two_calls,
    _replaced_tools,
    _interrupted,
    _failed_request,
    _bounded,
    _portable,
    _foreign,
    _copied,
    _seeded,
    _secret,
    _streamed,
    _cut,
)
