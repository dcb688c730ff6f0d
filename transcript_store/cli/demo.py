"""``transcript-store demo``: kill a writer repeatedly, and count what was lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from operator import eq
from random import Random
from statistics import quantiles
from threading import Timer
from typing import TYPE_CHECKING

from transcript_store import ConversationNotFoundError, ConversationStore, TranscriptStoreError, verify
from transcript_store.cli._demo_agent import Message, appended_behind
from transcript_store.cli._shared.arguments import path, positive, whole_number
from transcript_store.cli._shared.terminal import complain, has_status, one_line, say, show_bar, status, warnings_hidden

if TYPE_CHECKING:
    pass

DESCRIPTION = """\
Start an agent process that logs a conversation, kill it with SIGKILL at a random time, load the conversation, and compare it
with the agent's acknowledgements; repeat. Every acknowledged message must be stored, in order and complete; the interrupted call
must be stored completely or not at all.
"""
EPILOG = """\
exit code: 0 if nothing was lost, 1 if anything was, or if nothing was tested

examples:
  transcript-store demo
  transcript-store demo --rounds 200 --directory ~/demo    on your own disk, and keep the conversation
"""
_NOT_SHOWN = """\
What this does not show: SIGKILL ends a process, not the machine. The operating system keeps everything that was written,
so this does not detect a missing sync, and a torn tail is rare. Other tests simulate power cuts. The latencies are those
of the disk under {directory}; a temporary directory may be in memory."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--rounds", metavar="N", type=positive, default=40, help="number of kills (default 40)")
    parser.add_argument(
        "--seed", metavar="N", type=whole_number, help="determines the messages and the times of the kills"
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=path,
        help="write the conversation into this new directory, and keep it (default: a temporary one)",
    )


def run(arguments: Namespace) -> int:
    """Run the trial and print its table. The exit code is 1 if anything was lost, or if nothing was tested."""
    import random
    import shutil
    import tempfile
    from pathlib import Path

    from transcript_store import ConversationExistsError, ConversationStore

    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    temporary = None if arguments.directory else tempfile.mkdtemp(prefix="transcript-store-demo-")
    store = ConversationStore(arguments.directory or Path(temporary or "") / "conversation")
    directory = store.directory
    if store.exists():
        raise ConversationExistsError(path=directory, reason="the demo needs a new directory")
    problem: str | None = "interrupted"
    try:
        say(
            f"An agent logs a conversation and is killed with SIGKILL, {arguments.rounds} times (--seed {seed}).",
            now=True,
        )
        tally = Trial(directory, rounds=arguments.rounds, seed=seed).run(lambda tally: _show(tally, arguments.rounds))
        problem = tally.problem
    finally:
        if has_status():
            status("")
        remove = temporary is not None and problem in (None, "interrupted")
        if remove and temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    for line in ("", *tally.lines(), ""):
        say(line)
    if problem is None:
        say("Every acknowledged message is stored, in order and complete.")
    else:
        complain(f"the demo failed: {problem}")
    say(f"The conversation {'was removed from' if remove else 'is left in'} {one_line(directory)}")
    say()
    say(_NOT_SHOWN.format(directory=one_line(directory)))
    return 0 if problem is None else 1


def _show(tally: TrialCounts, rounds: int) -> None:
    if has_status():
        what = f" {tally.kills}/{rounds} kills; {tally.acknowledged:,} messages acknowledged, {tally.lost} lost"
        show_bar(tally.kills, rounds, after=what)


# ---- trial ----
#
# The trial behind ``transcript-store demo``: start the agent, kill it, compare what is stored, and repeat.
#
# The trial believes only the agent's acknowledgements. After a kill, two conversations are correct: the one that ends with
# the last acknowledged message, and the one that has the next append too, completely. Anything else is a loss, and ends the
# trial.

AGENT = (sys.executable, "-m", "transcript_store.cli._demo_agent")
PATIENCE_SECONDS = 60.0
"""If the agent takes longer than this for one round, it hangs, and the trial fails."""
_EVERYDAY_CHARACTERS = 4000


@dataclass(slots=True)
class TrialCounts:
    """The counts of the trial so far. Torn tails are counted at the end: each one is a file in quarantine/."""

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


class DemoFailedError(Exception):
    """The trial failed; the sentence says why."""


class Trial:
    """The rounds of a trial, all with one conversation. There must be none in the directory yet."""

    def __init__(self, directory: str, *, rounds: int, seed: int, agent: Sequence[str] = AGENT) -> None:
        self.tally = TrialCounts()
        self._directory = directory
        self._rounds = rounds
        self._seed = seed
        self._agent = agent
        self._messages: list[Message] = []
        """The messages that must be stored."""

    def run(self, progress: Callable[[TrialCounts], object]) -> TrialCounts:
        """Do all rounds and the final check, and return the tally. The first problem ends the trial."""
        try:
            for number in range(1, self._rounds + 1):
                self._killed_round(Random(f"{self._seed}/kill {number}"))  # noqa: S311 (no secret)
                self.look(may_have_more=True)
                progress(self.tally)
            self._last_look()
        except (DemoFailedError, TranscriptStoreError) as error:
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
            lines += agent.stdout.readlines()  # acknowledgements between the last line read and the kill
            complaint = agent.stderr.read().decode(errors="replace").strip()
        self._acknowledge(lines)
        if hung:
            raise DemoFailedError(f"the agent did nothing for {PATIENCE_SECONDS:.0f} seconds")
        if agent.returncode != -signal.SIGKILL:
            last = complaint.splitlines()[-1] if complaint else f"exit code {agent.returncode}"
            raise DemoFailedError(f"the agent ended by itself before it was killed: {last}")
        self.tally.kills += 1

    def _acknowledge(self, lines: list[bytes]) -> None:
        """Add the acknowledged messages to those that must be stored, and count them.

        Raises:
            ProblemError: the acknowledgements are not in the order of the messages.
        """
        for line in lines[1:]:  # the first line reports that the conversation is open
            _, number, _, latency_us = line.split()
            messages = appended_behind(len(self._messages), self._seed)
            self._messages += messages
            if int(number) != len(self._messages):
                raise DemoFailedError("the agent acknowledged its messages out of their order")
            self.tally.acknowledged += len(messages)
            if len(messages) == 1 and len(messages[0]["content"]) <= _EVERYDAY_CHARACTERS:
                self.tally.latencies_us.append(int(latency_us))

    def look(self, *, may_have_more: bool) -> None:
        """Compare what is stored with what must be stored. Changes nothing on the disk.

        With ``may_have_more``, one more append is allowed: the kill may have come after it was stored and before it was
        acknowledged.

        Raises:
            ProblemError: other messages are stored; the sentence counts those in the right order.
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
        raise DemoFailedError(
            f"only the first {whole} of {due} acknowledged messages are stored in order, followed by {len(found) - whole} others"
        )

    def _last_look(self) -> None:
        """Open the conversation as a writer once more, so that the last torn tail is recovered too, and verify all of it."""
        if not self.tally.kills or not self.tally.acknowledged:
            raise DemoFailedError("nothing was acknowledged, so nothing was tested")
        with warnings_hidden(), ConversationStore(self._directory) as conversation:
            conversation.load()
        self.look(may_have_more=False)
        verification = verify(self._directory)
        self.tally.torn_tails = len(verification.quarantined)
        if verification.findings:
            finding = verification.findings[0]
            raise DemoFailedError(f"{finding.path}: {finding.reason} [{finding.kind}]")
