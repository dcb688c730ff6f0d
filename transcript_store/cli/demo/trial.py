"""The trial behind ``transcript-store demo``: start the agent, kill it, compare what is stored, and repeat.

The trial believes only the agent's acknowledgements. After a kill, two conversations are correct: the one that ends with
the last acknowledged message, and the one that has the next append too, completely. Anything else is a loss, and ends the
trial.
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
from transcript_store.cli.demo.agent import Message, appended_behind

AGENT = (sys.executable, "-m", "transcript_store.cli.demo.agent")
PATIENCE_SECONDS = 60.0
"""If the agent takes longer than this for one round, it hangs, and the trial fails."""
_EVERYDAY_CHARACTERS = 4000


@dataclass(slots=True)
class Tally:
    """What the trial has counted so far. Torn tails are counted at the end: each one is a file in quarantine/."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    torn_tails: int = 0
    latencies_us: list[int] = field(default_factory=list)
    """How long the appends of a single short message took, in microseconds."""
    problem: str | None = None
    """Why the trial failed; None if it did not."""

    def lines(self) -> list[str]:
        """The lines of the table that is printed at the end."""
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
    """The trial failed; the sentence says why."""


class Trial:
    """The rounds of a trial, all with one conversation. There must be none in the directory yet."""

    def __init__(self, directory: str, *, rounds: int, seed: int, agent: Sequence[str] = AGENT) -> None:
        self.tally = Tally()
        self._directory = directory
        self._rounds = rounds
        self._seed = seed
        self._agent = agent
        self._messages: list[Message] = []
        """The messages that must be stored."""

    def run(self, progress: Callable[[Tally], object]) -> Tally:
        """Do all rounds and the final check, and return the tally. The first problem ends the trial."""
        try:
            for number in range(1, self._rounds + 1):
                self._killed_round(Random(f"{self._seed}/kill {number}"))  # noqa: S311 (no secret)
                self.look(may_have_more=True)
                progress(self.tally)
            self._last_look()
        except (ProblemError, TranscriptStoreError) as error:
            self.tally.problem = str(error)
        return self.tally

    def _killed_round(self, random: Random) -> None:
        """Start the agent, kill it at a random moment, and read what it acknowledged."""
        command = [*self._agent, self._directory, str(self._seed)]
        while_it_opens = random.random() < 0.15
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:  # noqa: S603 (ourselves)
            assert agent.stdout is not None
            assert agent.stderr is not None
            watchdog = Timer(PATIENCE_SECONDS, agent.kill)
            watchdog.start()
            try:
                lines = [] if while_it_opens else list(islice(agent.stdout, random.randint(2, 16)))
                time.sleep(random.uniform(0, 0.3 if while_it_opens else 0.03))
                hung = not watchdog.is_alive()
            finally:
                watchdog.cancel()
                agent.kill()
                watchdog.join()
            lines += agent.stdout.readlines()  # what it acknowledged between the last line that was read and the kill
            complaint = agent.stderr.read().decode(errors="replace").strip()
        self._acknowledge(lines)
        if hung:
            raise ProblemError(f"the agent did nothing for {PATIENCE_SECONDS:.0f} seconds")
        if agent.returncode != -signal.SIGKILL:
            last = complaint.splitlines()[-1] if complaint else f"exit code {agent.returncode}"
            raise ProblemError(f"the agent ended by itself before it was killed: {last}")
        self.tally.kills += 1

    def _acknowledge(self, lines: list[bytes]) -> None:
        """Add the acknowledged messages to those that must be stored, and count them.

        Raises:
            ProblemError: the acknowledgements are not in the order of the messages.
        """
        for line in lines[1:]:  # the first line says that the conversation is open
            _, number, _, latency_us = line.split()
            messages = appended_behind(len(self._messages), self._seed)
            self._messages += messages
            if int(number) != len(self._messages):
                raise ProblemError("the agent acknowledged its messages out of their order")
            self.tally.acknowledged += len(messages)
            if len(messages) == 1 and len(messages[0]["content"]) <= _EVERYDAY_CHARACTERS:
                self.tally.latencies_us.append(int(latency_us))

    def look(self, *, may_have_more: bool) -> None:
        """Compare what is stored with what must be stored. Changes nothing on the disk.

        With ``may_have_more``, one more append is allowed: the kill may have come after it was stored and before it was
        acknowledged.

        Raises:
            ProblemError: other messages are stored; the sentence says how many are in their place.
        """
        found: list[Message] = []
        with ConversationStore(self._directory, read_only=True) as conversation, suppress(ConversationNotFoundError):
            conversation.load()
            found = conversation.get_messages()
        due = len(self._messages)
        if may_have_more and len(found) > due:
            self._messages += appended_behind(due, self._seed)
        if found == self._messages:
            return
        whole = sum(1 for _ in takewhile(bool, map(eq, found, self._messages)))
        self.tally.lost = max(0, due - whole)
        raise ProblemError(
            f"only the first {whole} of {due} acknowledged messages are in their place, and {len(found) - whole} others are there"
        )

    def _last_look(self) -> None:
        """Open the conversation as a writer once more, so that the last torn tail is recovered too, and verify all of it."""
        if not self.tally.kills or not self.tally.acknowledged:
            raise ProblemError("nothing was acknowledged, so nothing was tried")
        with warnings_hidden(), ConversationStore(self._directory) as conversation:
            conversation.load()
        self.look(may_have_more=False)
        verification = verify(self._directory)
        self.tally.torn_tails = len(verification.quarantined)
        if verification.findings:
            finding = verification.findings[0]
            raise ProblemError(f"{finding.path}: {finding.reason} [{finding.kind}]")
