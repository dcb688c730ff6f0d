"""``crash_test`` stops an agent at every step, and checks that its next process continues as if nothing had happened."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, get_args

from transcript_store.messages import role_of
from transcript_store.testing._crash_process import (
    CHANGES,
    Agent,
    Cut,
    Message,
    Model,
    ProblemError,
    Process,
    Subject,
    ToolRun,
    Tools,
    Way,
    World,
    records_on,
    told,
)
from transcript_store.testing._pairing import problem_with, results_in
from transcript_store.testing._simulated import SimulatedFileSystem

__all__ = ["Aftermath", "CrashTestError", "CrashTestReport", "Cut", "ToolRun", "crash_test"]

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
    """An agent breaks an invariant. The text tells what each process did and where it was stopped.

    ``problem`` is the invariant, ``story`` the lines of the text, and ``schedule`` where processes were stopped; pass it as
    ``replay=`` to see it again. ``examples`` is the number of the run that found it.
    """

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
    """In how many places one process can be stopped: the steps of a run without a crash."""
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
    """Stop an agent at every call of the disk and between any two of its own effects. Check what its next process does.

    The agent runs on a simulated disk. Two runs without a crash come first. Then each run has one crash; all single crashes are
    tried, in this order: SIGKILL between effects, lost answers of the model, SIGKILL at each call of the disk, power cuts that
    lose all that was not synced, calls that the disk refuses, and other power cuts. Then runs with two random crashes follow,
    until there were ``examples`` runs. If there are more single crashes than that, only the first are tried.

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
        model: called as ``model(messages)``. It returns a message, or an iterator of pieces, and should depend on nothing but
            the messages.
        tools: the tools that the agent may run, by name. They may be called by position or by keyword.
        invariants: functions that are called with the :class:`Aftermath` of each run, and raise ``AssertionError``.
        ends_alike: require that a crash does not change how the conversation ends.
        durability: that of the conversation. With ``"process-crash"``, a power cut may lose what was acknowledged.
        examples: the greatest number of runs with a crash.
        seed: of the random crashes.
        replay: a schedule, as the message of a failure prints it. Nothing else is run.

    Returns:
        In how many places a process can be stopped, and how many runs there were with a crash.

    Raises:
        CrashTestError: an invariant does not hold. The text tells what each process did and where it was stopped.
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
    """Silence the package's logger, which would log each of a thousand recoveries. The story has what matters of them."""
    logger = logging.getLogger("transcript_store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _singles(moments: list[str]) -> Iterator[Cut]:
    """Every single crash. Those whose stories are easiest to follow come first."""
    effects = [number for number, name in enumerate(moments, 1) if name not in _DISK]
    calls = [number for number, name in enumerate(moments, 1) if name in _DISK]
    yield from (Cut(number, "kill") for number in effects)
    yield from (Cut(number, "answer lost") for number in effects if moments[number - 1] == "answered")
    yield from (Cut(number, "kill") for number in calls)
    yield from (Cut(number, "power cut") for number in (*effects, *calls))
    yield from (Cut(number, "disk refuses") for number in calls if moments[number - 1] in CHANGES)
    yield from (Cut(number, "power cut", seed) for seed in (1, 2) for number in (*effects, *calls))


def _any(random: Random, moments: int) -> Cut:
    return Cut(random.randint(1, moments), random.choice(_WAYS), random.randrange(4))


_DISK = {name for name in vars(SimulatedFileSystem) if not name.startswith("_")}
"""The names of the moments that are calls of the disk. All other moments are effects of the agent."""


class _Trial:
    """An agent, and what is required of it."""

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
            with self._told(world, []):
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

    def try_schedule(self, schedule: list[Cut]) -> int:
        """Stop the agent as often as the schedule says, then let it come to its end, and check the invariants.

        Returns how often it was stopped. A place that a process does not come to stops nothing.
        """
        self.examples += 1
        stopped = 0
        world, disk = World(), SimulatedFileSystem()
        with self._told(world, schedule):
            for cut in [*schedule, None]:
                process = Process(self.subject, world, disk, cut)
                process.run()
                stopped += process.is_stopped
                disk = process.next_disk()
                self._insist_on_what_was_acknowledged(world, disk, cut)
            self._aftermath(world, disk)
        return stopped

    @contextmanager
    def _told(self, world: World, schedule: list[Cut]) -> Iterator[None]:
        """Turn a problem into a :class:`CrashTestError` with its story."""
        try:
            yield
        except (ProblemError, AssertionError) as error:
            raise CrashTestError(str(error) or repr(error), world.story, schedule, self.examples) from error

    def _aftermath(self, world: World, disk: SimulatedFileSystem) -> Aftermath:
        messages = [json.loads(text) for text in records_on(disk)[1]]
        if (problem := problem_with(messages)) is not None:
            raise ProblemError(f"what is left would be refused: {problem}")
        if self._end is not None and _shape(messages) != self._end:
            raise ProblemError(f"the conversation does not end as it does without a crash: {told(messages)}")
        found = Aftermath(messages, list(world.runs), list(world.requests), world.processes, disk)
        for invariant in self.invariants:
            try:
                invariant(found)
            except AssertionError:
                raise
            except Exception as error:
                raise ProblemError(f"an invariant ended with {type(error).__name__}: {error}") from error
        return found

    def _insist_on_what_was_acknowledged(self, world: World, disk: SimulatedFileSystem, cut: Cut | None) -> None:
        if cut is not None and cut.way in ("power cut", "disk refuses") and self.subject.durability == "process-crash":
            world.acknowledged.clear()  # what was not synced goes with the power, and with a sync that fails
        there = set(records_on(disk)[0])
        for generation, seq, content in world.acknowledged:
            if (generation, seq, content) not in there:
                raise ProblemError(
                    f"record {seq} of generation {generation} was acknowledged, and is lost: {content[:100]}"
                )


def _shape(messages: list[Message]) -> list[object]:
    """What must be equal at two ends: roles, texts, calls, and which calls have results. The content of a result is left out."""
    return [
        (
            role_of(message),
            sorted(answered) if (answered := results_in(message)) else json.dumps(message, sort_keys=True),
        )
        for message in messages
    ]
