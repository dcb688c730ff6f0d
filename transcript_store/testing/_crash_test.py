"""``crash_test``: an agent is stopped wherever it can be, and its next process has to go on as if nothing had happened."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import iscoroutine, isgenerator, signature
from itertools import islice
from random import Random
from typing import Any, Literal, NamedTuple, get_args

from transcript_store.conversation import AppendResult, ConversationStore
from transcript_store.messages import role_of
from transcript_store.testing._pairing import calls_in, problem_with, results_in
from transcript_store.testing._simulated import Call, SimulatedFileSystem, SimulatedStop

Message = dict[str, Any]
Model = Callable[[list[Message]], Any]
Tools = Mapping[str, Callable[..., Any]]
Agent = Callable[[ConversationStore, Tools, Model], object]
Way = Literal["kill", "power cut", "disk refuses", "answer lost"]

__all__ = ["Aftermath", "CrashTestError", "CrashTestReport", "Cut", "ToolRun", "crash_test"]

_PATH = "/agent/conversation"
_SHOWN = 30
"""How many lines of a long story are printed from its beginning, and from its end."""
_MOST_REQUESTS = 1000
_WAYS = get_args(Way)
_CHANGES = {"write", "create", "sync", "sync_data", "rename", "link", "unlink", "truncate", "make_directory"}


class Cut(NamedTuple):
    """Where a process is stopped: its moment, counted from 1, and how."""

    moment: int
    way: Way
    seed: int = 0
    """Of a power cut: which of the states that a disk may be left in; 0 is the one that lost all it may lose."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool that ran."""

    name: str
    arguments: dict[str, Any]
    process: int


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is left when an agent has come to its end, perhaps after crashes: what invariants are asked about."""

    messages: list[Message]
    """Those of the live conversation."""
    runs: list[ToolRun]
    requests: list[list[Message]]
    """What the model was sent, request by request."""
    processes: int
    disk: SimulatedFileSystem


class CrashTestError(AssertionError):
    """An agent breaks an invariant. The text is the story of the shortest schedule that was found."""

    def __init__(self, problem: str, story: Sequence[str], schedule: Sequence[Cut], examples: int) -> None:
        self.problem = problem
        self.story: list[str] = list(story)
        self.schedule: list[Cut] = list(schedule)
        self.examples = examples
        replay = [tuple(cut) for cut in schedule]
        how = (
            f"found by example {examples}; again: crash_test(..., replay={replay})"
            if schedule
            else "found without a crash"
        )
        told = (
            story
            if len(story) <= 2 * _SHOWN
            else [*story[:_SHOWN], f"  ({len(story) - 2 * _SHOWN} lines more)", *story[-_SHOWN:]]
        )
        lines = [problem, "", *told, "", how]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class CrashTestReport:
    """An agent that passed: how it was tried."""

    moments: int
    """In how many places a process can be stopped when nothing happens."""
    examples: int


def crash_test(
    agent: Agent,
    *,
    model: Model,
    tools: Tools | None = None,
    invariants: Iterable[Callable[[Aftermath], object]] = (),
    ends_alike: bool = True,
    durability: Literal["power-loss", "process-crash"] = "power-loss",
    examples: int = 500,
    seed: int = 0,
    replay: Sequence[tuple[int, Way] | tuple[int, Way, int]] | None = None,
) -> CrashTestReport:
    """Stop an agent at every call of the disk and between any two of its own effects; its next process has to go on.

    ``agent(conversation, tools, model)`` is what one process of it does from its start to its end. The conversation is not
    loaded yet and lies on a simulated disk; ``tools`` and ``model`` are those that were given, watched. What it keeps in global
    variables is not lost between two processes here, so it should keep nothing there. ``model(messages)`` should be a function
    of what it is sent; it returns a message, or an iterator of pieces.

    First every single crash is tried, in the order: between effects, at each call of the disk (SIGKILL), power cuts, calls that
    the disk refuses, answers of the model that are lost. Then pairs of crashes at random, from ``seed``, up to ``examples``.

    Held, besides ``invariants`` (each may raise ``AssertionError``):

    * nothing that was acknowledged is lost: it is in the live generation or in an archived one;
    * no tool runs whose call is not on record, and none twice for a call whose result is on record;
    * no request holds a tool call without its result, or a result without its call;
    * a process that nobody stops comes to its end without an exception;
    * with ``ends_alike``, the conversation ends as it does without a crash: the same roles, texts and calls; what a tool's result
      says may differ.

    Args:
        agent: what one process does.
        model: what answers; nothing is sent anywhere.
        tools: what the agent may run, by name.
        invariants: asked of each end, after every schedule.
        ends_alike: whether a crash must not change how the conversation ends.
        seed: of the pairs of crashes.
        durability: that of the conversation. With ``process-crash`` a power cut may take what was acknowledged.
        examples: how many runs with a crash at most.
        replay: the schedule of a failure, as its message prints it: only that is run.

    Returns:
        In how many places it was stopped.

    Raises:
        CrashTestError: an invariant does not hold. Its text tells what the agent did, where it was stopped, and what the next
            process did.
        TypeError: what should be a function is none.
        ValueError: two runs without a crash end differently (make the model a function, or give ``ends_alike=False``); the agent
            does nothing; a replay names a place that the agent does not come to.
    """
    for name, value in {"agent": agent, "model": model, **(tools or {})}.items():
        if not callable(value):
            raise TypeError(f"{name} must be a function, not {type(value).__name__}")
    if type(examples) is not int or examples < 1:
        raise ValueError(f"examples must be at least 1, not {examples!r}")
    schedule = None if replay is None else [_cut(one) for one in replay]
    trial = _Trial(agent, model, dict(tools or {}), tuple(invariants), ends_alike, durability)
    with _without_warnings():
        moments = trial.settle()
        if schedule is not None:
            if trial.try_schedule(schedule) < len(schedule) or not schedule:
                raise ValueError(
                    f"nothing was tried: the agent does not come to every place of the schedule {replay!r}"
                )
            return CrashTestReport(moments=len(moments), examples=1)
        for cut in islice(_singles(moments), examples):
            trial.try_schedule([cut])
        random = Random(seed)
        while trial.examples < examples:
            trial.try_schedule([_any(random, len(moments)), _any(random, len(moments))])
    return CrashTestReport(moments=len(moments), examples=trial.examples)


def _cut(given: object) -> Cut:
    try:
        cut = Cut(*given)  # type: ignore[misc]
    except TypeError:
        cut = None
    if cut is None or type(cut.moment) is not int or cut.moment < 1 or cut.way not in _WAYS:
        ways = ", ".join(map(repr, _WAYS))
        raise ValueError(f"a replay is a list of (place from 1, way[, seed]), the way one of {ways}; not {given!r}")
    return cut


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A thousand recoveries would each be logged; what matters of them is in the story."""
    logger = logging.getLogger("transcript_store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _singles(moments: list[str]) -> Iterator[Cut]:
    """Every crash, those first that show the most with the least to read."""
    effects = [number for number, name in enumerate(moments, 1) if name not in _DISK]
    calls = [number for number, name in enumerate(moments, 1) if name in _DISK]
    yield from (Cut(number, "kill") for number in effects)
    yield from (Cut(number, "answer lost") for number in effects if moments[number - 1] == "answered")
    yield from (Cut(number, "kill") for number in calls)
    yield from (Cut(number, "power cut") for number in (*effects, *calls))
    yield from (Cut(number, "disk refuses") for number in calls if moments[number - 1] in _CHANGES)
    yield from (Cut(number, "power cut", seed) for seed in (1, 2) for number in (*effects, *calls))


def _any(random: Random, moments: int) -> Cut:
    return Cut(random.randint(1, moments), random.choice(_WAYS), random.randrange(4))


_DISK = {name for name in vars(SimulatedFileSystem) if not name.startswith("_")}
"""The names of moments that are calls of the disk; the others are the agent's effects."""


class _ProblemError(Exception):
    """An invariant that does not hold."""


@dataclass
class _World:
    """What outlives a process: what was acknowledged, what tools did, what the model was sent; and the story."""

    runs: list[ToolRun] = field(default_factory=list)
    requests: list[list[Message]] = field(default_factory=list)
    acknowledged: list[tuple[int, int, str]] = field(default_factory=list)
    """Generation, number and content of each record."""
    story: list[str] = field(default_factory=list)
    processes: int = 0


class _Trial:
    """An agent and what is asked of it."""

    def __init__(
        self,
        agent: Agent,
        model: Model,
        tools: dict[str, Callable[..., Any]],
        invariants: tuple[Callable[[Aftermath], object], ...],
        ends_alike: bool,
        durability: Literal["power-loss", "process-crash"],
    ) -> None:
        self.agent, self.model, self.tools, self.invariants = agent, model, tools, invariants
        self.ends_alike, self.durability = ends_alike, durability
        self.examples = 0
        self._end: list[object] | None = None

    def settle(self) -> list[str]:
        """Run it twice without a crash; returns the names of its moments."""
        ends: list[list[object]] = []
        moments: list[str] = []
        for _ in range(2):
            world = _World()
            process = _Process(self, world, SimulatedFileSystem(), None)
            with self._told(world, []):
                process.run()
                ends.append(_shape(self._aftermath(world, process.disk).messages))
            moments = process.moments
            if not moments:
                raise ValueError("the agent did nothing with its conversation, its tools and its model")
        if self.ends_alike:
            if ends[0] != ends[1]:
                raise ValueError(
                    "two runs without a crash end differently: give ends_alike=False, or make the model a function"
                )
            self._end = ends[0]
        return moments

    def try_schedule(self, schedule: list[Cut]) -> int:
        """Run the agent, stop it as often as the schedule says, then let it come to its end, and look.

        Returns how often it was stopped: a place that a process does not come to stops nothing.
        """
        self.examples += 1
        stopped = 0
        world, disk = _World(), SimulatedFileSystem()
        with self._told(world, schedule):
            for cut in [*schedule, None]:
                process = _Process(self, world, disk, cut)
                process.run()
                stopped += process.is_stopped
                disk = process.next_disk()
                self._insist_on_what_was_acknowledged(world, disk, cut)
            self._aftermath(world, disk)
        return stopped

    @contextmanager
    def _told(self, world: _World, schedule: list[Cut]) -> Iterator[None]:
        """Make a story of a problem."""
        try:
            yield
        except (_ProblemError, AssertionError) as error:
            raise CrashTestError(str(error) or repr(error), world.story, schedule, self.examples) from error

    def _aftermath(self, world: _World, disk: SimulatedFileSystem) -> Aftermath:
        messages = [json.loads(text) for text in _read(disk)[1]]
        if (problem := problem_with(messages)) is not None:
            raise _ProblemError(f"what is left would be refused: {problem}")
        if self._end is not None and _shape(messages) != self._end:
            raise _ProblemError(f"the conversation does not end as it does without a crash: {_told(messages)}")
        found = Aftermath(messages, list(world.runs), list(world.requests), world.processes, disk)
        for invariant in self.invariants:
            try:
                invariant(found)
            except AssertionError:
                raise
            except Exception as error:
                raise _ProblemError(f"an invariant ended with {type(error).__name__}: {error}") from error
        return found

    def _insist_on_what_was_acknowledged(self, world: _World, disk: SimulatedFileSystem, cut: Cut | None) -> None:
        if cut is not None and cut.way in ("power cut", "disk refuses") and self.durability == "process-crash":
            world.acknowledged.clear()  # what was not synced goes with the power, and with a sync that fails
        there = set(_read(disk)[0])
        for generation, seq, content in world.acknowledged:
            if (generation, seq, content) not in there:
                raise _ProblemError(
                    f"record {seq} of generation {generation} was acknowledged, and is lost: {content[:100]}"
                )


def _read(disk: SimulatedFileSystem) -> tuple[list[tuple[int, int, str]], list[str]]:
    """Every record in every generation, and the live messages, as the next process would find them; the disk stays as it is."""
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


class _Process:
    """One life of an agent: on a disk, with what is watched, and perhaps its end."""

    def __init__(self, trial: _Trial, world: _World, disk: SimulatedFileSystem, cut: Cut | None) -> None:
        self.disk = disk
        self.moments: list[str] = []
        self._trial, self._world, self._cut = trial, world, cut
        self.is_stopped = False
        world.processes += 1

    def run(self) -> None:
        """Let the agent work until it ends or is stopped."""
        self._say(f"process {self._world.processes}:")
        contents = [json.loads(text)[0] for _, _, text in _read(self.disk)[0]]
        self._on_record: list[Message] = [message for message in contents if message is not None]
        """Every message in every generation."""
        self.disk.on_call = self._on_call
        store = _Watched(self, self.disk, self._trial.durability)
        tools = {name: self._watched_tool(name, tool) for name, tool in self._trial.tools.items()}
        try:
            returned = self._trial.agent(store, tools, self._ask)
            if iscoroutine(returned) or isgenerator(returned):
                returned.close()
                raise TypeError(
                    "the agent returned before it did anything: it is async or a generator; give a function around it"
                )
        except SimulatedStop:
            pass
        except (_ProblemError, AssertionError):
            raise
        except Exception as error:
            self._say(f"  ended with {type(error).__name__}: {error}")
            if not self.is_stopped:
                raise _ProblemError(
                    f"a process that nobody stopped ended with {type(error).__name__}: {error}"
                ) from error
        finally:
            self.disk.on_call = None

    def next_disk(self) -> SimulatedFileSystem:
        """What the next process finds."""
        if self._cut is None or self._cut.way != "power cut" or not self.is_stopped:
            return self.disk.kill_process()
        if self._cut.seed == 0:
            return self.disk.worst_power_failure()
        return self.disk.power_failure(Random(self._cut.seed).randrange)

    # ---- moments -------------------------------------------------------------------------------------------------

    def _on_call(self, call: Call) -> None:
        self._moment(call.name, f"{call.name} {call.path}")

    def _moment(self, name: str, where: str) -> None:
        """Somewhere a process can be stopped."""
        self.moments.append(name)
        if self._cut is None or len(self.moments) < self._cut.moment:
            return
        if self.is_stopped:
            if self._cut.way in ("kill", "power cut"):
                raise SimulatedStop(where)  # what it does on its way out does not happen either
            return
        if self._cut.way == "disk refuses" and name not in _CHANGES:
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
        """The model."""
        request = json.loads(json.dumps(messages))
        self._say(f"  asks the model, with {len(request)} messages")
        if len(self._world.requests) >= _MOST_REQUESTS:
            raise _ProblemError(f"the agent asked the model {_MOST_REQUESTS:,} times, and did not come to an end")
        if (problem := problem_with(request)) is not None:
            raise _ProblemError(f"a request would be refused: {problem}")
        self._moment("asked", "the model is asked")
        self._world.requests.append(request)
        reply = self._trial.model(messages, *more, **named)
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
                raise _ProblemError(f"the tool {name}({_list(arguments)}) runs, and its call is not on record")
            answered = {one for message in self._on_record for one in results_in(message)}
            ran = sum((run.name, run.arguments) == (name, arguments) for run in self._world.runs)
            if ran and all(call.id in answered for call in same):
                raise _ProblemError(f"the tool {name}({_list(arguments)}) runs again, and its result is on record")
            self._moment("tool", f"the tool {name} runs")
            self._world.runs.append(ToolRun(name, arguments, self._world.processes))
            result = tool(**arguments)
            self._moment("result", f"the result of {name} arrives")
            return result

        return run

    def stored(self, generation: int, seq: int, message: Message | None, extra: Any) -> None:
        """A record was acknowledged."""
        self._world.acknowledged.append((generation, seq, _text(message, extra)))
        if message is not None:
            self._on_record.append(json.loads(json.dumps(message)))
            self._say(f"  stores {_told([message])}")
        else:
            self._say(f"  stores the event {json.dumps(extra)[:60]}")

    def replaced(self, messages: list[Message]) -> None:
        """A replace was acknowledged."""
        self._on_record += json.loads(json.dumps(messages))
        self._say(f"  replaces the transcript by {_told(messages)}")


class _Watched(ConversationStore):
    """A store that tells what it acknowledged."""

    def __init__(self, process: _Process, disk: SimulatedFileSystem, durability: Any) -> None:
        super().__init__(_PATH, file_system=disk, durability=durability)
        self._process = process

    def append_message(self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None) -> AppendResult:
        result = super().append_message(message, extra=extra)
        self._process.stored(self.get_metadata().generation, result.seq, dict(message), extra)
        return result

    def append_messages(
        self, messages: Iterable[Mapping[str, Any]], *, extras: Iterable[Mapping[str, Any] | None] | None = None
    ) -> tuple[AppendResult, ...]:
        listed = [dict(message) for message in messages]
        beside = [None] * len(listed) if extras is None else list(extras)
        results = super().append_messages(listed, extras=beside)
        for message, extra, result in zip(listed, beside, results, strict=True):
            self._process.stored(self.get_metadata().generation, result.seq, message, extra)
        return results

    def append_event(self, extra: Mapping[str, Any]) -> AppendResult:
        result = super().append_event(extra)
        self._process.stored(self.get_metadata().generation, result.seq, None, dict(extra))
        return result

    def replace_transcript(self, messages: Iterable[Mapping[str, Any]], **more: Any) -> Any:
        listed = [dict(message) for message in messages]
        result = super().replace_transcript(listed, **more)
        self._process.replaced(listed)
        return result


# ---- words -----------------------------------------------------------------------------------------------------------


def _text(message: Any, extra: Any) -> str:
    return json.dumps([message, extra], sort_keys=True)


def _shape(messages: list[Message]) -> list[object]:
    """What two ends have in common: roles, texts, calls and which are answered; not what a result says."""
    return [
        (
            role_of(message),
            sorted(answered) if (answered := results_in(message)) else json.dumps(message, sort_keys=True),
        )
        for message in messages
    ]


def _told(messages: list[Message]) -> str:
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
