"""One process of an agent under ``crash_test``: what it does is watched, and it is stopped at a moment of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import iscoroutine, isgenerator, signature
from random import Random
from typing import Any, Literal, NamedTuple, NoReturn

from transcript_store.conversation import AppendResult, ConversationStore
from transcript_store.messages import EncodedMessage, decode_message, role_of
from transcript_store.testing._pairing import calls_in, problem_with, results_in
from transcript_store.testing._simulated import Call, SimulatedFileSystem, SimulatedStop
from transcript_store.words import many

Message = dict[str, Any]
Model = Callable[[list[Message]], Any]
Tools = Mapping[str, Callable[..., Any]]
Agent = Callable[[ConversationStore, Tools, Model], object]
Durability = Literal["power-loss", "process-crash"]
Way = Literal["kill", "power cut", "disk refuses", "answer lost"]

_PATH = "/agent/conversation"
_MOST_REQUESTS = 1000
CHANGES = {"write", "create", "sync", "sync_data", "rename", "link", "unlink", "truncate", "make_directory"}
"""The moments that the disk may refuse: the calls that change it."""


class Cut(NamedTuple):
    """Where and how a process is stopped. ``moment`` is the number of a step of the process, counted from 1.

    ``kill`` is SIGKILL; what was written stays. ``power cut`` may lose what was not synced. ``disk refuses`` is an ``OSError`` of
    one call of the disk. ``answer lost`` is a ``ConnectionError`` in place of the model's answer.
    """

    moment: int
    way: Way
    seed: int = 0
    """Of a power cut: which of the possible states of the disk. With 0, everything that was not synced is lost."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool. ``process`` is the number of the process that ran it, counted from 1."""

    name: str
    arguments: dict[str, Any]
    process: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tested: an agent, and what it is given."""

    agent: Agent
    model: Model
    tools: Mapping[str, Callable[..., Any]]
    durability: Durability


class ProblemError(Exception):
    """An invariant that does not hold."""


@dataclass
class World:
    """What survives a process: the effects on the world outside, what was acknowledged, and the story."""

    runs: list[ToolRun] = field(default_factory=list)
    requests: list[list[Message]] = field(default_factory=list)
    acknowledged: list[tuple[int, int, str]] = field(default_factory=list)
    """Generation, number and content of each acknowledged record."""
    story: list[str] = field(default_factory=list)
    processes: int = 0
    problem: ProblemError | None = None
    """What was wrong first. A client may have taken it for an error of its tool, and gone on."""

    def object_to(self, what: str) -> NoReturn:
        """Stop the agent, for an invariant does not hold."""
        self.problem = self.problem or ProblemError(what)
        raise self.problem


class Process:
    """One process of an agent, on a disk. It watches what the agent does, and stops it at the cut, if there is one."""

    def __init__(self, subject: Subject, world: World, disk: SimulatedFileSystem, cut: Cut | None) -> None:
        self.disk = disk
        self.moments: list[str] = []
        self._subject, self._world, self._cut = subject, world, cut
        self.is_stopped = False
        world.processes += 1

    def run(self) -> None:
        """Let the agent work until it ends or is stopped."""
        self._say(f"process {self._world.processes}:")
        contents = [json.loads(text)[0] for _, _, text in records_on(self.disk)[0]]
        self._on_record: list[Message] = [message for message in contents if message is not None]
        """The messages of all generations."""
        self.disk.on_call = self._on_call
        store = _Watched(self, self.disk, self._subject.durability)
        tools = {name: self._watched_tool(name, tool) for name, tool in self._subject.tools.items()}
        try:
            returned = self._subject.agent(store, tools, self._ask)
            if iscoroutine(returned) or isgenerator(returned):
                returned.close()
                raise TypeError(
                    "the agent returned before it did anything: it is async or a generator; give a function around it"
                )
        except SimulatedStop:
            pass
        except (ProblemError, AssertionError):
            raise
        except Exception as error:
            self._say(f"  ended with {type(error).__name__}: {error}")
            if not self.is_stopped:
                raise ProblemError(
                    f"a process that nobody stopped ended with {type(error).__name__}: {error}"
                ) from error
        finally:
            self.disk.on_call = None
            if self._world.problem is not None:
                raise self._world.problem

    def next_disk(self) -> SimulatedFileSystem:
        """The disk that the next process finds."""
        if self._cut is None or self._cut.way != "power cut" or not self.is_stopped:
            return self.disk.kill_process()
        if self._cut.seed == 0:
            return self.disk.worst_power_failure()
        return self.disk.power_failure(Random(self._cut.seed).randrange)

    # ---- moments -------------------------------------------------------------------------------------------------

    def _on_call(self, call: Call) -> None:
        self._moment(call.name, f"{call.name} {call.path}")

    def _moment(self, name: str, where: str) -> None:
        """Count a moment, and stop the process if the cut says so."""
        self.moments.append(name)
        if self._cut is None or len(self.moments) < self._cut.moment:
            return
        if self.is_stopped:
            if self._cut.way in ("kill", "power cut"):
                raise SimulatedStop(where)  # a killed process has no effects, not even of its ``finally`` blocks
            return
        # Some ways fit some moments only: wait for the next one that fits.
        if self._cut.way == "disk refuses" and name not in CHANGES:
            return
        if self._cut.way == "answer lost" and name != "answered":
            return
        self.is_stopped = True
        self._say(f"  >> {self._cut.way} before: {where}")
        if self._cut.way == "disk refuses":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._cut.way == "answer lost":
            raise ConnectionError("the answer was lost on its way")
        raise SimulatedStop(where)

    def _say(self, line: str) -> None:
        self._world.story.append(line)

    # ---- what is watched -----------------------------------------------------------------------------------------

    def _ask(self, messages: list[Message], *more: Any, **named: Any) -> Any:
        """Call the model, and watch the request and its answer."""
        request = json.loads(json.dumps(messages))
        self._say(f"  asks the model, with {many(len(request), 'message')}")
        if len(self._world.requests) >= _MOST_REQUESTS:
            self._world.object_to(f"the agent asked the model {_MOST_REQUESTS:,} times, and did not come to an end")
        if (problem := problem_with(request)) is not None:
            self._world.object_to(f"a request would be refused: {problem}")
        self._moment("asked", "the model is asked")
        self._world.requests.append(request)
        reply = self._subject.model(messages, *more, **named)
        self._moment("answered", "its answer arrives")
        return self._pieces(reply) if isinstance(reply, Iterator) else reply

    def _pieces(self, reply: Iterator[Any]) -> Iterator[Any]:
        for piece in reply:
            self._moment("piece", f"the piece {piece!r} arrives")
            yield piece

    def _watched_tool(self, name: str, tool: Callable[..., Any]) -> Callable[..., Any]:
        def run(*positional: Any, **named: Any) -> Any:
            arguments = dict(signature(tool).bind(*positional, **named).arguments) if positional else named
            self._say(f"  runs the tool {name}({_list(arguments)})")
            asked_for = [call for message in self._on_record for call in calls_in(message)]
            same = [call for call in asked_for if (call.name, call.arguments) == (name, arguments)]
            if not same:
                self._world.object_to(f"the tool {name}({_list(arguments)}) runs, and its call is not on record")
            answered = {one for message in self._on_record for one in results_in(message)}
            ran = sum((run.name, run.arguments) == (name, arguments) for run in self._world.runs)
            if ran and all(call.id in answered for call in same):
                self._world.object_to(f"the tool {name}({_list(arguments)}) runs again, and its result is on record")
            self._moment("tool", f"the tool {name} runs")
            self._world.runs.append(ToolRun(name, arguments, self._world.processes))
            result = tool(**arguments)
            self._moment("result", f"the result of {name} arrives")
            return result

        return run

    def stored(self, generation: int, seq: int, message: Message | None, extra: Any) -> None:
        """Note that a record was acknowledged."""
        self._world.acknowledged.append((generation, seq, _text(message, extra)))
        if message is not None:
            self._on_record.append(json.loads(json.dumps(message)))
            self._say(f"  stores {told([message])}")
        else:
            self._say(f"  stores the event {json.dumps(extra)[:60]}")

    def replaced(self, messages: list[Message]) -> None:
        """Note that a replace was acknowledged."""
        self._on_record += json.loads(json.dumps(messages))
        self._say(f"  replaces the transcript by {told(messages)}")


class _Watched(ConversationStore):
    """A store that reports to its process what it acknowledged."""

    def __init__(self, process: Process, disk: SimulatedFileSystem, durability: Durability) -> None:
        super().__init__(_PATH, file_system=disk, durability=durability)
        self._process = process

    def append_message(
        self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None, if_head: str | None = None
    ) -> AppendResult:
        result = super().append_message(message, extra=extra, if_head=if_head)
        self._process.stored(self.get_metadata().generation, result.seq, dict(message), extra)
        return result

    def append_messages(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
        *,
        extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None = None,
        **more: Any,
    ) -> tuple[AppendResult, ...]:
        listed = [_decoded(message) for message in messages]
        beside = [None] * len(listed) if extras is None else [_decoded(extra) for extra in extras]
        results = super().append_messages(listed, extras=beside, **more)
        for message, extra, result in zip(listed, beside, results, strict=True):
            self._process.stored(self.get_metadata().generation, result.seq, message, extra)
        return results

    def append_event(self, extra: Mapping[str, Any], *, if_head: str | None = None) -> AppendResult:
        result = super().append_event(extra, if_head=if_head)
        self._process.stored(self.get_metadata().generation, result.seq, None, dict(extra))
        return result

    def replace_transcript(self, messages: Iterable[Mapping[str, Any] | EncodedMessage | None], **more: Any) -> Any:
        listed = [_decoded(message) for message in messages]
        result = super().replace_transcript(listed, **more)
        self._process.replaced([message for message in listed if message is not None])
        return result


def _decoded(value: Mapping[str, Any] | EncodedMessage | None) -> Message | None:
    if value is None:
        return None
    return decode_message(value.text) if isinstance(value, EncodedMessage) else dict(value)


def records_on(disk: SimulatedFileSystem) -> tuple[list[tuple[int, int, str]], list[str]]:
    """The records of all generations, and the live messages, as the next process would find them. The disk is not changed."""
    with ConversationStore(_PATH, file_system=disk.copy()) as conversation:
        if not conversation.exists():
            return [], []
        conversation.load()
        records = [
            (generation.number, record.seq, _text(record.message, record.extra))
            for generation in conversation.generations()
            for record in conversation.get_records(generation=generation.number)
        ]
        return records, [json.dumps(message) for message in conversation.get_messages()]


# ---- words -----------------------------------------------------------------------------------------------------------


def _text(message: Any, extra: Any) -> str:
    return json.dumps([message, extra], sort_keys=True)


def told(messages: list[Message]) -> str:
    return "; ".join(_told_one(message) for message in messages) or "nothing"


def _told_one(message: Message) -> str:
    if calls := calls_in(message):
        return f"{role_of(message)}: calls " + ", ".join(f"{call.name}({_list(call.arguments)})" for call in calls)
    if answered := results_in(message):
        return f"{role_of(message)}: the result of {', '.join(answered)}"
    content = message.get("content") or message.get("parts") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"{role_of(message)}: {text[:60]!r}"


def _list(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
