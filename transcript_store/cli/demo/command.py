"""``transcript-store demo``: kill a writer again and again, and count what was lost."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from transcript_store.cli._shared.arguments import count, path, positive
from transcript_store.cli._shared.progress import show_bar
from transcript_store.cli._shared.terminal import complain, has_status, one_line, say, status

if TYPE_CHECKING:
    from transcript_store.cli.demo.trial import Tally

DESCRIPTION = """\
Start an agent process that logs a conversation, kill it with SIGKILL at a random moment, load the conversation, and
compare it with what the agent was told is stored; again and again. Every acknowledged message must be there, in order
and whole; of the one call that was under way, all or nothing.
"""
EPILOG = """\
exit code: 0 if nothing was lost, 1 if anything was, or if nothing was tried

examples:
  transcript-store demo
  transcript-store demo --rounds 200 --directory ~/demo    on the disk that matters, and to look at afterwards
"""
_NOT_SHOWN = """\
What this does not show: SIGKILL ends a process, not the machine. The operating system still has all that was written,
so a missing sync would not be noticed here, and a torn tail is rare. Power cuts are another test's work. The latencies
are those of the disk behind {place}; a temporary directory may be in memory."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--rounds", metavar="N", type=positive, default=40, help="how many kills (default 40)")
    parser.add_argument("--seed", metavar="N", type=count, help="what the agent writes and about when it is killed")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=path,
        help="write the conversation here, where there must be none, and leave it (default: a temporary directory, removed)",
    )


def run(arguments: Namespace) -> int:
    """Run the trial and print its table. The exit code is 1 if anything was lost, or if nothing was tried."""
    import random
    import shutil
    import tempfile
    from pathlib import Path

    from transcript_store import ConversationExistsError, ConversationStore
    from transcript_store.cli.demo.trial import Trial

    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    temporary = None if arguments.directory else tempfile.mkdtemp(prefix="transcript-store-demo-")
    store = ConversationStore(arguments.directory or Path(temporary or "") / "conversation")
    directory = store.directory
    if store.exists():
        raise ConversationExistsError(path=directory, reason="the demo wants a place where there is nothing yet")
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
        say("Every acknowledged message is there, in order and whole.")
    else:
        complain(f"the demo failed: {problem}")
    say(f"The conversation {'was removed from' if remove else 'is left in'} {one_line(directory)}")
    say()
    say(_NOT_SHOWN.format(place=one_line(directory)))
    return 0 if problem is None else 1


def _show(tally: Tally, rounds: int) -> None:
    if has_status():
        what = f" {tally.kills}/{rounds} kills; {tally.acknowledged:,} messages acknowledged, {tally.lost} lost"
        show_bar(tally.kills, rounds, after=what)
