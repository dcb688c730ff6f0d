"""``crash_test`` stops an agent at every step, and checks that its next process continues as if nothing had happened."""

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
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from transcript_store.conversation import AppendResult, ConversationStore
from transcript_store.display import many
from transcript_store.messages import EncodedMessage, decode_message, role_of
from transcript_store.testing._exchanges import calls_in, problem_with, results_in
from transcript_store.testing._simulated_machine import FileSystemCall, SimulatedFileSystem, SimulatedStop

__all__ = ["Aftermath", "CrashTestError", "CrashTestReport", "StopPoint", "ToolRun", "crash_test"]


# ---- crash process ----
# One process of an agent under ``crash_test``: its calls are recorded, and it is stopped at one of them.

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


class StopPoint(NamedTuple):
    """Where and how a process is stopped. ``moment`` is the number of a step of the process, counted from 1.

    ``kill`` is SIGKILL; written bytes stay. ``power cut`` may lose unsynced writes. ``disk refuses`` is an ``OSError`` of
    one call of the disk. ``answer lost`` is a ``ConnectionError`` in place of the model's answer.
    """

    moment: int
    way: Way
    seed: int = 0
    """For a power cut: the number of the disk's possible state. With 0, everything that was not synced is lost."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool. ``process`` is the number of the process that ran it, counted from 1."""

    name: str
    arguments: dict[str, Any]
    process: int


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of the test: an agent, and its arguments."""

    agent: Agent
    model: Model
    tools: Mapping[str, Callable[..., Any]]
    durability: Durability


class BrokenInvariantError(Exception):
    """An invariant that does not hold."""


@dataclass
class World:
    """The state that survives a process: the effects on the world outside, the acknowledged messages, and the story."""

    runs: list[ToolRun] = field(default_factory=list)
    requests: list[list[Message]] = field(default_factory=list)
    acknowledged: list[tuple[int, int, str]] = field(default_factory=list)
    """Generation, number and content of each acknowledged record."""
    story: list[str] = field(default_factory=list)
    processes: int = 0
    problem: BrokenInvariantError | None = None
    """The first failure. A client may have treated it as an error of its tool, and continued."""

    def object_to(self, what: str) -> NoReturn:
        """Stop the agent, for an invariant does not hold."""
        self.problem = self.problem or BrokenInvariantError(what)
        raise self.problem


class Process:
    """One process of an agent, on a disk. It watches what the agent does, and stops it at the cut, if there is one."""

    def __init__(self, subject: Subject, world: World, disk: SimulatedFileSystem, cut: StopPoint | None) -> None:
        self.disk = disk
        self.moments: list[str] = []
        self._subject, self._world, self._cut = subject, world, cut
        self.is_stopped = False
        world.processes += 1

    def run(self) -> None:
        """Let the agent work until it ends or is stopped."""
        self._say(f"process {self._world.processes}:")
        contents = [json.loads(text)[0] for _, _, text in records_after_crash(self.disk)[0]]
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
        except (BrokenInvariantError, AssertionError):
            raise
        except Exception as error:
            self._say(f"  ended with {type(error).__name__}: {error}")
            if not self.is_stopped:
                raise BrokenInvariantError(
                    f"a process that was not stopped ended with {type(error).__name__}: {error}"
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

    def _on_call(self, call: FileSystemCall) -> None:
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

    # ---- observation ---------------------------------------------------------------------------------------------

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
            self._say(f"  stores {story_of([message])}")
        else:
            self._say(f"  stores the event {json.dumps(extra)[:60]}")

    def replaced(self, messages: list[Message]) -> None:
        """Note that a replace was acknowledged."""
        self._on_record += json.loads(json.dumps(messages))
        self._say(f"  replaces the transcript by {story_of(messages)}")


class _Watched(ConversationStore):
    """A store that reports acknowledged messages to its process."""

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


def records_after_crash(disk: SimulatedFileSystem) -> tuple[list[tuple[int, int, str]], list[str]]:
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


def story_of(messages: list[Message]) -> str:
    return "; ".join(_summary_of(message) for message in messages) or "nothing"


def _summary_of(message: Message) -> str:
    if calls := calls_in(message):
        return f"{role_of(message)}: calls " + ", ".join(f"{call.name}({_list(call.arguments)})" for call in calls)
    if answered := results_in(message):
        return f"{role_of(message)}: the result of {', '.join(answered)}"
    content = message.get("content") or message.get("parts") or ""
    if isinstance(content, list) and all(isinstance(part, dict) and type(part.get("text")) is str for part in content):
        content = "".join(part["text"] for part in content)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"{role_of(message)}: {text[:60]!r}"


def _list(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


# ---- crash test ----

_SHOWN = 30
"""How many lines of a long story are printed from its beginning, and from its end."""
_WAYS = get_args(Way)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The state after an agent has come to its end, perhaps after crashes. Invariants are called with it."""

    messages: list[Message]
    """The messages of the live conversation."""
    runs: list[ToolRun]
    """All runs of tools, of all processes, in order."""
    requests: list[list[Message]]
    """The messages of each request, of all processes, in order."""
    processes: int
    """How many processes there were, with those that were stopped."""
    disk: SimulatedFileSystem
    """The disk as the last process left it."""


class CrashTestError(AssertionError):
    """An agent breaks an invariant. The text says what each process did and where it was stopped.

    ``problem`` is the invariant, ``story`` the lines of the text, and ``schedule`` where processes were stopped; pass
    it as ``replay=`` to see it again. ``examples`` is the number of the run that found it.
    """

    def __init__(self, problem: str, story: Sequence[str], schedule: Sequence[StopPoint], examples: int) -> None:
        self.problem = problem
        self.story: list[str] = list(story)
        self.schedule: list[StopPoint] = list(schedule)
        self.examples = examples
        replay = [tuple(cut) for cut in schedule]
        how = (
            f"found by example {examples}; again: crash_test(..., replay={replay})"
            if schedule
            else "found without a crash"
        )
        shown = (
            story
            if len(story) <= 2 * _SHOWN
            else [*story[:_SHOWN], f"  ({len(story) - 2 * _SHOWN} lines more)", *story[-_SHOWN:]]
        )
        lines = [problem, "", *shown, "", how]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class CrashTestReport:
    """How an agent was tried that passed."""

    moments: int
    """The number of stop points of one process: the steps of a run without a crash."""
    examples: int
    """How many runs with a crash there were."""


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
    """Stop an agent at every call of the disk and between any two of its own effects. Check the next process's actions.

    The agent runs on a simulated disk. Two runs without a crash come first. Then each run has one crash; all single
    crashes are tried, in this order: SIGKILL between effects, lost answers of the model, SIGKILL at each call of the
    disk, power cuts that lose all that was not synced, calls that the disk refuses, and other power cuts. Then runs
    with two random crashes follow, until there were ``examples`` runs. If there are more single crashes than that, only
    the first are tried.

    These invariants are checked, besides ``invariants``:

    * Nothing that was acknowledged is lost. It is in the live generation or in an archived one.
    * A tool runs only if its call is on record. It does not run again for a call whose result is on record.
    * No request has a tool call without its result, or a result without its call.
    * A process that is not stopped ends without an exception.
    * With ``ends_alike``, the conversation ends as it does without a crash, with the same roles, texts and calls. Only the
      content of a tool's result may differ.

    Args:
        agent: called as ``agent(conversation, tools, model)``; it does what one process does from its start to its end. The
            conversation is not loaded yet. Global variables survive a crash here, so the agent should keep nothing in them.
        model: called as ``model(messages)``. It returns a message, or an iterator of pieces, and should depend on
            nothing but the messages.
        tools: the tools that the agent may run, by name. They may be called by position or by keyword.
        invariants: functions that are called with the :class:`Aftermath` of each run, and raise ``AssertionError``.
        ends_alike: require that a crash does not change how the conversation ends.
        durability: that of the conversation. With ``"process-crash"``, a power cut may lose acknowledged messages.
        examples: the greatest number of runs with a crash.
        seed: of the random crashes.
        replay: a schedule, as the message of a failure prints it. Nothing else is run.

    Returns:
        In how many places a process can be stopped, and how many runs there were with a crash.

    Raises:
        CrashTestError: an invariant does not hold. The text says what each process did and where it was stopped.
        TypeError: ``agent``, ``model``, a tool or an invariant is not a function, or ``tools`` have no names.
        ValueError: two runs without a crash end differently: make ``model`` depend on its messages alone, or give
            ``ends_alike=False``. Or the agent does nothing. Or a replay names a place that the agent does not come to.
    """
    if not isinstance(tools or {}, Mapping):
        raise TypeError(f"tools must be functions by their names, {{name: function}}, not {type(tools).__name__}")
    if callable(invariants):
        raise TypeError("invariants must be a list of functions, not a function: give [function]")
    invariants = tuple(invariants)
    named = {f"invariants[{number}]": invariant for number, invariant in enumerate(invariants)}
    for name, value in {"agent": agent, "model": model, **(tools or {}), **named}.items():
        if not callable(value):
            raise TypeError(f"{name} must be a function, not {type(value).__name__}")
    if type(examples) is not int or examples < 1:
        raise ValueError(f"examples must be at least 1, not {examples!r}")
    schedule = None if replay is None else [_cut(one) for one in replay]
    trial = _Trial(Subject(agent, model, dict(tools or {}), durability), invariants, ends_alike)
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


def _cut(given: object) -> StopPoint:
    try:
        cut = StopPoint(*given)  # type: ignore[misc]
    except TypeError:
        cut = None
    if cut is None or type(cut.moment) is not int or cut.moment < 1 or cut.way not in _WAYS:
        ways = ", ".join(map(repr, _WAYS))
        raise ValueError(f"a replay is a list of (place from 1, way[, seed]), the way one of {ways}; not {given!r}")
    return cut


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence the package's logger, which would log each of a thousand recoveries. The story has what matters of them."""
    logger = logging.getLogger("transcript_store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _singles(moments: list[str]) -> Iterator[StopPoint]:
    """Every single crash. Those whose stories are easiest to follow come first."""
    effects = [number for number, name in enumerate(moments, 1) if name not in _DISK]
    calls = [number for number, name in enumerate(moments, 1) if name in _DISK]
    yield from (StopPoint(number, "kill") for number in effects)
    yield from (StopPoint(number, "answer lost") for number in effects if moments[number - 1] == "answered")
    yield from (StopPoint(number, "kill") for number in calls)
    yield from (StopPoint(number, "power cut") for number in (*effects, *calls))
    yield from (StopPoint(number, "disk refuses") for number in calls if moments[number - 1] in CHANGES)
    yield from (StopPoint(number, "power cut", seed) for seed in (1, 2) for number in (*effects, *calls))


def _any(random: Random, moments: int) -> StopPoint:
    return StopPoint(random.randint(1, moments), random.choice(_WAYS), random.randrange(4))


_DISK = {name for name in vars(SimulatedFileSystem) if not name.startswith("_")}
"""The names of the moments that are calls of the disk. All other moments are effects of the agent."""


class _Trial:
    """An agent, and its required behaviour."""

    def __init__(
        self,
        subject: Subject,
        invariants: tuple[Callable[[Aftermath], object], ...],
        ends_alike: bool,
    ) -> None:
        self.subject, self.invariants, self.ends_alike = subject, invariants, ends_alike
        self.examples = 0
        self._end: list[object] | None = None

    def settle(self) -> list[str]:
        """Run the agent twice without a crash. Returns the names of its moments."""
        ends: list[list[object]] = []
        moments: list[str] = []
        for _ in range(2):
            world = World()
            process = Process(self.subject, world, SimulatedFileSystem(), None)
            with self._reported(world, []):
                process.run()
                ends.append(_shape(self._aftermath(world, process.disk).messages))
            moments = process.moments
            if not moments:
                raise ValueError(
                    "the agent did nothing with the conversation, the tools and the model that it is given: "
                    "it has to use these, and none of its own"
                )
        if self.ends_alike:
            if ends[0] != ends[1]:
                raise ValueError(
                    "two runs without a crash end differently: give ends_alike=False, or make the model a function"
                )
            self._end = ends[0]
        return moments

    def try_schedule(self, schedule: list[StopPoint]) -> int:
        """Stop the agent as often as the schedule says, then let it come to its end, and check the invariants.

        Returns how often it was stopped. A place that a process does not come to stops nothing.
        """
        self.examples += 1
        stopped = 0
        world, disk = World(), SimulatedFileSystem()
        with self._reported(world, schedule):
            for cut in [*schedule, None]:
                process = Process(self.subject, world, disk, cut)
                process.run()
                stopped += process.is_stopped
                disk = process.next_disk()
                self._insist_on_what_was_acknowledged(world, disk, cut)
            self._aftermath(world, disk)
        return stopped

    @contextmanager
    def _reported(self, world: World, schedule: list[StopPoint]) -> Iterator[None]:
        """Turn a problem into a :class:`CrashTestError` with its story."""
        try:
            yield
        except (BrokenInvariantError, AssertionError) as error:
            raise CrashTestError(str(error) or repr(error), world.story, schedule, self.examples) from error

    def _aftermath(self, world: World, disk: SimulatedFileSystem) -> Aftermath:
        messages = [json.loads(text) for text in records_after_crash(disk)[1]]
        if (problem := problem_with(messages)) is not None:
            raise BrokenInvariantError(f"the remaining messages would be refused: {problem}")
        if self._end is not None and _shape(messages) != self._end:
            raise BrokenInvariantError(
                f"the conversation does not end as it does without a crash: {story_of(messages)}"
            )
        found = Aftermath(messages, list(world.runs), list(world.requests), world.processes, disk)
        for invariant in self.invariants:
            try:
                invariant(found)
            except AssertionError:
                raise
            except Exception as error:
                raise BrokenInvariantError(f"an invariant ended with {type(error).__name__}: {error}") from error
        return found

    def _insist_on_what_was_acknowledged(self, world: World, disk: SimulatedFileSystem, cut: StopPoint | None) -> None:
        if cut is not None and cut.way in ("power cut", "disk refuses") and self.subject.durability == "process-crash":
            world.acknowledged.clear()  # unsynced writes are lost with the power, and with a failed sync
        there = set(records_after_crash(disk)[0])
        for generation, seq, content in world.acknowledged:
            if (generation, seq, content) not in there:
                raise BrokenInvariantError(
                    f"record {seq} of generation {generation} was acknowledged, and is lost: {content[:100]}"
                )


def _shape(messages: list[Message]) -> list[object]:
    """The parts that must be equal at two ends: roles, texts, calls, and which calls have results. The content of a
    result is left out.
    """
    return [
        (
            role_of(message),
            sorted(answered) if (answered := results_in(message)) else json.dumps(message, sort_keys=True),
        )
        for message in messages
    ]
