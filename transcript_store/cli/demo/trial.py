"""The trial behind ``transcript-store demo``: start the agent, kill it, look at what is left, and do it again.

It trusts the agent for nothing but its acknowledgements: the steps of a round are computed again from the
seed. So after a kill there are two conversations that may be on the disk: the one with every acknowledged step, and the
one with the next step as well, whole. Anything else is a loss, and ends the trial.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from operator import eq
from random import Random
from statistics import quantiles
from threading import Timer

from transcript_store import ConversationNotFoundError, ConversationStore, TranscriptStoreError, verify
from transcript_store.cli._shared.terminal import warnings_hidden
from transcript_store.cli.demo.agent import Message, Step, steps

AGENT = (sys.executable, "-m", "transcript_store.cli.demo.agent")
PATIENCE_SECONDS = 60.0
"""An agent that takes longer than this for a round hangs."""


@dataclass(slots=True)
class Tally:
    """What the trial has seen so far: kills, messages, and, known at the end, the tails that were cut and kept in quarantine/."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    torn_tails: int = 0
    latencies_us: list[int] = field(default_factory=list)
    """Of the everyday steps."""
    problem: str | None = None
    """Why the trial failed."""

    def lines(self) -> list[str]:
        """The closing table."""
        facts = {
            "kills (SIGKILL)": f"{self.kills:,}",
            "messages acknowledged": f"{self.acknowledged:,}",
            "acknowledged and lost": f"{self.lost:,}",
            "torn tails recovered": f"{self.torn_tails:,}",
        }
        if len(self.latencies_us) > 1:
            percentiles = quantiles(self.latencies_us, n=100, method="inclusive")
            facts["latency of a durable append of up to 4 kB, p50"] = f"{percentiles[49] / 1000:.2f} ms"
            facts["and p99"] = f"{percentiles[98] / 1000:.2f} ms"
        return [f"  {name:<48}{value:>12}" for name, value in facts.items()]


class ProblemError(Exception):
    """Why the trial failed."""


class Trial:
    """Rounds of one conversation, in a directory where there is none yet."""

    def __init__(self, directory: str, *, rounds: int, seed: int, agent: Sequence[str] = AGENT) -> None:
        self._directory = directory
        self._rounds = rounds
        self._seed = seed
        self._agent = agent
        self._messages: list[Message] = []
        self.tally = Tally()

    def run(self, progress: Callable[[Tally], object]) -> Tally:
        """Do the rounds, and the last check; ends early at the first problem."""
        try:
            for number in range(1, self._rounds + 1):
                self.look(number, self._killed_round(number))
                progress(self.tally)
            self._last_look()
        except (ProblemError, TranscriptStoreError) as error:
            self.tally.problem = str(error)
        return self.tally

    def _killed_round(self, number: int) -> int:
        """Start the agent, kill it at a random moment; returns how many steps it acknowledged."""
        wait_for, delay_seconds = self._moment(number)
        command = [*self._agent, self._directory, str(self._seed), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:  # noqa: S603 (ourselves)
            assert agent.stdout is not None
            assert agent.stderr is not None
            watchdog = Timer(PATIENCE_SECONDS, agent.kill)
            watchdog.start()
            try:
                lines = list(islice(agent.stdout, 1 + wait_for))
                time.sleep(delay_seconds)
                hung = not watchdog.is_alive()
            finally:
                watchdog.cancel()
                agent.kill()
                watchdog.join()
            lines += agent.stdout.readlines()
            complaint = agent.stderr.read().decode(errors="replace").strip()
        acknowledged = self._count(number, lines)
        if hung:
            raise ProblemError(f"the agent did nothing for {PATIENCE_SECONDS:.0f} seconds")
        if agent.returncode != -signal.SIGKILL:
            last = complaint.splitlines()[-1] if complaint else f"exit code {agent.returncode}"
            raise ProblemError(f"the agent ended by itself before it was killed: {last}")
        self.tally.kills += 1
        return acknowledged

    def _moment(self, number: int) -> tuple[int, float]:
        """When to kill: after how many acknowledgements, and how long after. Often in the middle of something large."""
        random = Random(f"{self._seed}/kill {number}")  # noqa: S311 (no secret)
        if number > 1 and random.random() < 0.15:
            return 0, random.uniform(0, 0.15)  # while it opens, recovers, or writes its first
        wait_for = random.randint(1, 15)
        if random.random() < 0.5:
            ahead = enumerate(islice(steps(self._seed, number), wait_for, 60), wait_for)
            return next((before for before, step in ahead if step.is_large), wait_for), random.uniform(0, 0.03)
        return wait_for, random.uniform(0, 0.004)

    def _count(self, number: int, lines: list[bytes]) -> int:
        """Take the acknowledgements in: 1, 2, 3 and so on, each with its latency; returns how many there are."""
        for count, (line, step) in enumerate(zip(lines[1:], steps(self._seed, number), strict=False), 1):
            word, done, latency_us = line.split()
            if (word, int(done)) != (b"done", count):
                raise ProblemError("the agent acknowledged its steps out of their order")
            self.tally.acknowledged += len(step.messages)
            if step.is_small:
                self.tally.latencies_us.append(int(latency_us))
        return len(lines[1:])

    def look(self, number: int, acknowledged: int) -> None:
        """Load what is there, without changing it, and compare it with what may be there."""
        plan = steps(self._seed, number)
        for step in islice(plan, acknowledged):
            self._messages = step.applied(self._messages)
        self._compare(next(plan))

    def _compare(self, unanswered: Step | None) -> None:
        found: list[Message] = []
        with ConversationStore(self._directory, read_only=True) as conversation, suppress(ConversationNotFoundError):
            conversation.load()
            found = conversation.get_messages()
        if unanswered is not None and found == unanswered.applied(self._messages):
            self._messages = found
        if found == self._messages:
            return
        whole = sum(1 for _ in takewhile(bool, map(eq, found, self._messages)))
        self.tally.lost = len(self._messages) - whole
        raise ProblemError(
            f"only the first {whole} of {len(self._messages)} acknowledged messages are in their place, "
            f"and {len(found) - whole} others are there"
        )

    def _last_look(self) -> None:
        """Open it to write once more, so that the last torn tail is recovered too, and verify all of it."""
        if not self.tally.kills or not self.tally.acknowledged:
            raise ProblemError("nothing was acknowledged, so nothing was tried")
        with warnings_hidden(), ConversationStore(self._directory) as conversation:
            conversation.load()
        self._compare(None)
        verification = verify(self._directory)
        self.tally.torn_tails = len(verification.quarantined)
        if verification.findings:
            finding = verification.findings[0]
            raise ProblemError(f"{finding.path}: {finding.reason} [{finding.kind}]")
