"""``transcript-store bisect``: the first message of a conversation after which a command fails."""

from __future__ import annotations

import os
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json
from transcript_store.cli._shared.forks import fork_of
from transcript_store.cli._shared.keys import CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import printable_name
from transcript_store.cli._shared.terminal import Misuse, complain, for_shell, many, one_line, say, say_json

DESCRIPTION = f"""\
Find the first message after which COMMAND fails. COMMAND runs on prefixes of the conversation: about log n runs, and as many
to check the result. Each prefix is a conversation in a temporary folder, with the records up to a message. Its path is the last
argument of COMMAND, and the environment variable TRANSCRIPT_STORE_CONVERSATION. COMMAND may read it, write to it, send it to a
model. The original is read once and not changed; it may have a live writer.

The exit code of COMMAND is the answer, as for `git bisect run`: 0 passes, 125 cannot be tested (another message is tried), 1 to
127 fails. From 128, or if a signal kills it, the search stops. Its output goes to standard error.

If it fails after one message and passes after a later one, the answers are not monotone: this is reported, and no message.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store bisect chats/today -- ./check
  transcript-store bisect chats/0b8f -- sh -c 'transcript-store show "$0" --json | grep -q needle && exit 1 || exit 0'

exit codes: 0 found; 1 not found, not monotone, or stopped; 2 misuse
"""

VARIABLE = "TRANSCRIPT_STORE_CONVERSATION"
_SKIP, _LEAST_STOP = 125, 128

Answer = Literal["passes", "fails", "skipped"]
Ask = Callable[[int], Answer]
"""Tests the conversation after that many messages."""


class StoppedError(Exception):
    """The command ended with something that is not an answer."""


@dataclass(frozen=True, slots=True)
class BisectResult:
    """The result of a search. Numbers are counts of messages, from 0."""

    passes: int | None
    """The largest count before ``fails`` after which it passes; None if it fails without any message."""
    fails: int | None
    """The count after which it fails; None if it passes with all messages."""
    answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def is_first(self) -> bool:
        """True if ``fails`` is the first, provided that the answers are monotone: it follows ``passes`` directly."""
        return self.passes is not None and self.fails is not None and self.fails == self.passes + 1

    @property
    def against(self) -> int | None:
        """A count with an answer that contradicts monotone answers; None if they are monotone."""
        if self.passes is None or self.fails is None:
            return None
        for count, answer in sorted(self.answers.items()):
            if (answer == "fails" and count < self.fails) or (answer == "passes" and count > self.fails):
                return count
        return None


def search(count: int, ask: Ask) -> BisectResult:
    """Search among 0 to ``count`` messages: about log n runs to find a change, and as many to check."""
    answers: dict[int, Answer] = {}

    def asked(number: int) -> Answer:
        if number not in answers:
            answers[number] = ask(number)
        return answers[number]

    if asked(count) != "fails":
        return BisectResult(None, None, answers)
    if asked(0) == "fails":
        return BisectResult(None, 0, answers)
    passes, fails = 0, count  # if 0 cannot be tested, nothing failed there
    while (turn := _next(passes, fails, asked)) is not None:
        if answers[turn] == "passes":
            passes = turn
        else:
            fails = turn
    for number in _spread(count, answers):
        asked(number)
    return BisectResult(passes, fails, answers)


def _next(passes: int, fails: int, asked: Callable[[int], Answer]) -> int | None:
    """The testable number nearest to the middle of the two; None if there is none."""
    middle = (passes + fails) // 2
    between = sorted(range(passes + 1, fails), key=lambda number: abs(number - middle))
    return next((number for number in between if asked(number) != "skipped"), None)


def _spread(count: int, answers: dict[int, Answer]) -> Iterator[int]:
    """As many numbers as a search takes, each in the middle of the largest untested range."""
    known = sorted(answers)
    for _ in range(count.bit_length()):
        begin, end = max(pairwise(known), key=lambda pair: pair[1] - pair[0])
        if end - begin < 2:
            return
        yield (begin + end) // 2
        known = sorted([*known, (begin + end) // 2])


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, in_one_word=True, on_backends=True)
    parser.add_argument(
        "check", metavar="COMMAND", nargs="+", help="the command to run, with its arguments, after `--`"
    )
    add_keys(parser, what="the key; the prefixes are sealed too, and COMMAND gets the key in its environment")
    add_json(parser, "one JSON object")


def run(arguments: Namespace) -> int:
    """Search, and print the result."""
    keys = command_keys(arguments)
    with tempfile.TemporaryDirectory(prefix="transcript-store-bisect-") as folder:
        library = ConversationLibrary(os.path.join(folder, "whole"), **keys.options)
        whole = os.path.join(library.directory, fork_of(arguments.directory, library, **keys.options))
        with ConversationStore(whole, read_only=True, **keys.options) as conversation:
            conversation.load()
            seqs = [0, *(record.seq for record in conversation.iter_records() if record.message is not None)]

        def ask(count: int) -> Answer:
            answer = _answer(arguments.check, whole, seqs[count], os.path.join(folder, "beginning"), keys)
            if not arguments.json:
                say(f"after {_message_name(seqs[count])}: {answer}", now=True)
            return answer

        try:
            found = search(len(seqs) - 1, ask)
        except StoppedError as stop:
            complain(str(stop))
            return 1
    if arguments.json:
        _say_as_json(found, seqs)
    else:
        _say(found, seqs, arguments.directory)
    return 0 if found.is_first and found.against is None else 1


def _answer(check: Sequence[str], whole: str, seq: int, folder: str, keys: CommandKeys) -> Answer:
    """Run the command over the records up to a number."""
    beginnings = ConversationLibrary(folder, **keys.options)
    beginning = beginnings.fork_from(whole, through_seq=seq)
    directory = os.path.join(folder, beginning)
    try:
        done = subprocess.run(  # noqa: S603 (the user's own command, without a shell)
            [*check, directory],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={**os.environ, VARIABLE: directory, **keys.environment()},
            check=False,
        )
    except OSError as error:
        raise Misuse(f"{check[0]} cannot be run: {error.strerror}") from None
    finally:
        beginnings.delete_folder(beginning)
    if not 0 <= done.returncode < _LEAST_STOP:
        how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"ended with {done.returncode}"
        raise StoppedError(f"after {_message_name(seq)} the command {how}, which is not an answer")
    return "passes" if done.returncode == 0 else "skipped" if done.returncode == _SKIP else "fails"


def _message_name(seq: int) -> str:
    return f"#{seq}" if seq else "no message"


def _say(found: BisectResult, seqs: Sequence[int], directory: str) -> None:
    runs = f"({many(len(found.answers), 'run')}, {many(len(seqs) - 1, 'message')})"
    if found.fails is None:
        why = "cannot be tested" if "skipped" in found.answers.values() else "passes"
        say(f"with all messages it {why}: nothing to search for {runs}")
        return
    if found.passes is None:
        say(f"it fails without any message: no message causes it {runs}")
        return
    first, last = seqs[found.passes + 1], seqs[found.fails]
    if found.against is not None:
        odd = seqs[found.against]
        say(
            f"the answers are not monotone: after {_message_name(odd)} it {found.answers[found.against]}, so there is no first message "
            f"after which it fails; between {_message_name(seqs[found.passes])} and #{last} it changes from passing to failing {runs}"
        )
    elif found.is_first:
        say(f"#{last} is the first message after which it fails {runs}")
    else:
        say(f"it is one of #{first} to #{last}: those before #{last} cannot be tested {runs}")
    say(one_line(f"transcript-store show {for_shell(printable_name(directory))} --around {last}"))


def _say_as_json(found: BisectResult, seqs: Sequence[int]) -> None:
    against = found.against
    say_json(
        {
            "first_seq": seqs[found.fails] if found.fails and found.is_first and against is None else None,
            "passes_after": None if found.passes is None else seqs[found.passes],
            "fails_after": None if found.fails is None else seqs[found.fails],
            "is_monotone": against is None,
            "answers": {str(seqs[count]): answer for count, answer in sorted(found.answers.items())},
        }
    )
