"""``transcript-store record``: append messages from standard input, and acknowledge each one on standard output."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from errno import errorcode
from typing import Any

from transcript_store import ConversationStore, Hint, InvalidMessageError, PoisonedError, StorageError
from transcript_store.cli._shared.arguments import add_directory, lines, seconds, standard_input
from transcript_store.cli._shared.hints import in_the_shell
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import LAST, conversation_at, find_in, is_backend_address
from transcript_store.cli._shared.redaction import add_redact, redaction_counts, redactor_of
from transcript_store.cli._shared.terminal import Misuse, complain, for_shell, give_up_output, many, say
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.file_names import absolute_path
from transcript_store.messages import parse_message

DESCRIPTION = """\
Read JSON messages from standard input, one object a line, and append them to the conversation in DIR, which is
created if it does not exist. The `seq` of a message is printed and flushed once the message is durable: a program in any
language can write a line, read a line, and know that the message is safe.

DIR may be the address of a conversation on a backend, with an id that you choose: postgresql://host/database/ID.

Lines end in a line feed only; blank lines are skipped. A line that is not one JSON object, or that JSON readers disagree on
(a repeated key, an integer beyond 64 bits, NaN, bad UTF-8), ends the command with its line number on standard error; earlier
messages stay stored.
"""
EPILOG = """\
examples:
  echo '{"role": "user", "content": "Where were we?"}' | transcript-store record chats/today
  agent | transcript-store record chats/today --provider claude --model claude-opus-4-8
  agent | transcript-store record chats/today --redact   # removes keys and tokens before anything is stored
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
        "--wait", metavar="SECONDS", type=seconds, default=0.0, help="how long to wait for another writer (default 0)"
    )
    parser.add_argument(
        "--take-over", action="store_true", help="on a backend: claim it, even from a writer that has not closed it"
    )
    add_redact(parser)
    add_keys(parser, what="the key; a new conversation is sealed with it")
    created = parser.add_argument_group("used only when the conversation is created")
    created.add_argument("--provider", metavar="NAME", help="the form of the messages: claude, openai, gemini, …")
    created.add_argument("--model", metavar="NAME", help="the model that answers")
    created.add_argument("--system", metavar="TEXT", help="the system prompt")


def run(arguments: Namespace) -> int:
    """Append until the input ends. The exit code is 1 at the first line that is not a message or cannot be stored."""
    keys, redactor = command_keys(arguments), redactor_of(arguments)
    _refuse_last(arguments.directory)
    with conversation_at(
        arguments.directory,
        creates=True,
        durability=arguments.durability,
        max_line_bytes=DEFAULT_MAX_LINE_BYTES,
        lock_timeout_seconds=arguments.wait,
        take_over=arguments.take_over or "released",
        redact=redactor,
        **keys.options,
    ) as conversation:
        try:
            return _record(arguments, conversation)
        finally:
            if redactor is not None:
                complain(redaction_counts(redactor.counts))


def _refuse_last(name: str) -> None:
    """Refuse ``chats/last``: for every other command this is the latest conversation, not one with this name."""
    if is_backend_address(name) or os.path.basename(path := absolute_path(name)) != LAST or os.path.lexists(path):
        return
    meant = find_in(os.path.dirname(path), LAST)
    one = f", which is {for_shell(meant)}" if meant else ""
    raise Misuse(f"record takes a folder, and `last` means the latest conversation{one}; name a folder")


def _record(arguments: Namespace, conversation: ConversationStore) -> int:
    source = standard_input()
    recorder = _Recorder(arguments, conversation)
    for number, line in lines(source, max_bytes=DEFAULT_MAX_LINE_BYTES):
        try:
            seq = recorder.store(_message(line))
        except InvalidMessageError as error:
            problem = f"{error.member}: {error.reason}"
            if error.reason.startswith("is not JSON"):
                problem += " (expected one object a line: `jq -c` converts any JSON)"
            complain(f"standard input, line {number}: {problem}; {recorder.so_far}")
            return 1
        except (StorageError, PoisonedError) as error:
            complain(recorder.refused(error, number))
            return 1
        try:
            say(str(seq), now=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_output()
            what = f"message {seq} is stored, but could not be acknowledged ({error})"
            complain(f"standard input, line {number}: {what}; stopped, and nothing after it was read")
            return 1
    recorder.end()
    return 0


class _Recorder:
    """Appends to a conversation, and creates it with its first message.

    It creates the conversation only when it has read a message: garbage as input leaves no files.
    """

    def __init__(self, arguments: Namespace, conversation: ConversationStore) -> None:
        self._conversation = conversation
        self._created_with = {
            "provider": arguments.provider,
            "model": arguments.model,
            "system_prompt": arguments.system,
        }
        self._stored = 0
        self._is_open = conversation.exists()
        if self._is_open:
            self._open()

    def _open(self, messages: Sequence[dict[str, Any]] = ()) -> bool:
        """Load the conversation, or create it with these messages. Returns whether it was created."""
        self._is_open = True
        return self._conversation.load_or_initialize(messages=messages, **self._created_with)

    def store(self, message: dict[str, Any]) -> int:
        """Append a message, and return its number (``seq``)."""
        seq = 1 if not self._is_open and self._create_with(message) else self._conversation.append_message(message).seq
        self._stored += 1
        return seq

    def _create_with(self, message: dict[str, Any]) -> bool:
        try:
            return self._open([message])
        except InvalidMessageError as error:
            # The library names a position in a list. The user gave one message, so the error names it as an append would.
            member = f"message{error.member.removeprefix('messages[0]')}"
            raise InvalidMessageError(member=member, reason=error.reason) from None

    def end(self) -> None:
        """Create the conversation if the input had no message: an empty input is no error."""
        if not self._is_open:
            self._open()

    @property
    def so_far(self) -> str:
        """How many messages this command has stored, in words."""
        return f"{many(self._stored, 'message')} stored" if self._stored else "nothing stored"

    def refused(self, error: StorageError | PoisonedError, number: int) -> str:
        """A sentence about a line that the disk refused. After a failed sync it is unknown whether the line is stored."""
        is_unknown = error.hint in (Hint.LOAD_TO_SEE, Hint.CHECK_WITH_EXISTS)
        what = f"line {number} is in doubt" if is_unknown else f"line {number} is not"
        name = errorcode.get(error.errno or 0, "") if isinstance(error, StorageError) else ""
        why = f"{error.strerror} [{name}]" if isinstance(error, StorageError) else error.reason
        hint = f"; {in_the_shell(error.hint, error.path)}" if error.hint else ""
        return f"{self._conversation.directory}: {self.so_far}, {what}: {why}{hint}"


def _message(line: bytes) -> dict[str, Any]:
    if len(line) > DEFAULT_MAX_LINE_BYTES:
        raise InvalidMessageError(member="message", reason=f"is longer than {DEFAULT_MAX_LINE_BYTES:,} bytes")
    message = parse_message(line)
    # A transcript piped into `record` is a mistake: its lines are JSON objects, and would be stored as messages.
    if message.get("format") == "transcript-store" or (
        message.keys() >= {"seq", "at"} and message.keys() & {"message", "extra"}
    ):
        reason = (
            "is a line of a transcript, with a message in it; take the messages out first: jq -c '.message // empty'"
        )
        raise InvalidMessageError(member="message", reason=reason)
    return message
