"""``transcript-store record``: messages from standard input, an acknowledgement for each on standard output."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from transcript_store import ConversationStore, InvalidMessageError
from transcript_store.cli._shared.arguments import add_directory
from transcript_store.cli._shared.input import lines, standard_input
from transcript_store.cli._shared.terminal import complain, give_up_output, say
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.messages import parse_message

DESCRIPTION = """\
Read JSON messages from standard input, one object a line, and append them to the conversation in DIR, which is
created if there is none. The `seq` of a message is printed, and flushed, once the message is durable: a program in any
language can write a line, read a line, and know that the message is safe.

Lines end in a line feed and in nothing else; blank lines are skipped. A line that is not one JSON object, or that JSON
readers disagree on (a key twice, an integer beyond 64 bits, NaN, bad UTF-8), ends the command with its line number
on standard error; what came before it stays.
"""
EPILOG = """\
examples:
  echo '{"role": "user", "content": "Where were we?"}' | transcript-store record chats/today
  agent | transcript-store record chats/today --provider claude --model claude-opus-4-8
  jq -c '.messages[]' request.json | transcript-store record chats/today
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_directory(parser)
    parser.add_argument(
        "--durability",
        choices=("power-loss", "process-crash"),
        default="power-loss",
        help="what an acknowledged message survives: the end of the machine, with a sync for each (the default), "
        "or only the end of the process",
    )
    parser.add_argument(
        "--wait", metavar="SECONDS", type=_seconds, default=0.0, help="how long to wait for another writer (default 0)"
    )
    created = parser.add_argument_group("used when the conversation is created, and ignored after")
    created.add_argument("--provider", metavar="NAME", help="whose form the messages have: claude, openai, gemini, …")
    created.add_argument("--model", metavar="NAME", help="the model that answers")
    created.add_argument("--system", metavar="TEXT", help="the system prompt")


def run(arguments: Namespace) -> int:
    """Append until the input ends; 1 at the first line that is not a message."""
    source = standard_input()
    with ConversationStore(
        arguments.directory,
        durability=arguments.durability,
        max_line_bytes=DEFAULT_MAX_LINE_BYTES,
        lock_timeout_seconds=arguments.wait,
    ) as conversation:

        def begin() -> None:
            conversation.load_or_initialize(
                provider=arguments.provider, model=arguments.model, system_prompt=arguments.system
            )

        has_begun = conversation.exists()
        if has_begun:
            begin()
        for number, line in lines(source, max_bytes=DEFAULT_MAX_LINE_BYTES):
            try:
                message = _message(line)
                if not has_begun:  # only now: garbage piped to a mistyped path leaves nothing behind
                    begin()
                    has_begun = True
                appended = conversation.append_message(message)
            except InvalidMessageError as error:
                problem = f"{error.member}: {error.reason}"
                if error.reason.startswith("is not JSON"):
                    problem += " (one object a line is expected: jq -c makes that of any JSON)"
                complain(f"standard input, line {number}: {problem}; {_stopped(number)}")
                return 1
            try:
                say(str(appended.seq), now=True)
            except BrokenPipeError:
                raise
            except OSError as error:
                give_up_output()
                what = f"message {appended.seq} is stored, and could not be acknowledged ({error})"
                complain(f"standard input, line {number}: {what}; stopped, and nothing after it was read")
                return 1
        if not has_begun:
            begin()
    return 0


def _stopped(number: int) -> str:
    return "nothing was stored" if number == 1 else "stopped, and what came before it is stored"


def _message(line: bytes) -> dict[str, Any]:
    if len(line) > DEFAULT_MAX_LINE_BYTES:
        raise InvalidMessageError(member="message", reason=f"is longer than {DEFAULT_MAX_LINE_BYTES:,} bytes")
    message = parse_message(line)
    if message.get("format") == "transcript-store" or (
        message.keys() >= {"seq", "at"} and message.keys() & {"message", "extra"}
    ):
        reason = (
            "is a line of a transcript, with a message in it; take the messages out first: jq -c '.message // empty'"
        )
        raise InvalidMessageError(member="message", reason=reason)
    return message


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds
