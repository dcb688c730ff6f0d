"""Input and output of a chat at a terminal: a prompt with editing and history, and the earlier turns.

If standard input is not a terminal, each line is a turn.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from transcript_store import Record
from transcript_store.cli._shared.arguments import lines, standard_input
from transcript_store.cli._shared.terminal import complain, many, safe, say
from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES
from transcript_store.messages import parts_of, role_of

_LAST_TURNS = 2
_LINES, _CHARACTERS = 12, 1200
"""The shown lines and characters of each earlier message."""


class BadInputError(Exception):
    """A line of standard input cannot be a message. The sentence says which line, and why."""


class PromptReader:
    """An iterator of what a person types, message by message, until Ctrl-D.

    A pasted text is one message, even with many lines. If ``default`` is set, the next prompt starts with that text.

    Raises:
        ModuleNotFoundError: from the constructor, without ``prompt_toolkit``; the extra ``chat`` installs it.
    """

    def __init__(self) -> None:
        # Imported here too, so that a missing package fails at the start, not after a model has been fetched.
        import prompt_toolkit  # noqa: F401

        self.default = ""
        self._earlier: list[str] = []

    def remember(self, earlier: Iterable[str]) -> None:
        """Let the arrow keys reach these earlier messages, the oldest first."""
        self._earlier += earlier

    def __iter__(self) -> Iterator[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")  # Ctrl-J alone: the Enter key sends c-m
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        session: PromptSession[str] = PromptSession(
            "> ", history=InMemoryHistory(self._earlier), key_bindings=keys, multiline=True, prompt_continuation="  "
        )
        while True:
            default, self.default = self.default, ""
            try:
                yield session.prompt(default=default)
            except KeyboardInterrupt:
                continue  # Ctrl-C drops the line, as in a shell
            except EOFError:
                return


def piped() -> Iterator[str]:
    """Each line of standard input that is not blank.

    Raises:
        BadInputError: a line is too long, or not UTF-8.
    """
    for number, line in lines(standard_input(), max_bytes=DEFAULT_MAX_LINE_BYTES):
        if len(line) > DEFAULT_MAX_LINE_BYTES:
            raise BadInputError(f"standard input, line {number} is longer than {DEFAULT_MAX_LINE_BYTES:,} bytes")
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadInputError(f"standard input, line {number} is not UTF-8") from None


def show_turns(records: Sequence[Record], *, last: int = _LAST_TURNS) -> int:
    """Print the last turns of a conversation as they looked in the chat. Returns how many records that were."""
    asked = [place for place, record in enumerate(records) if is_question(record)]
    shown = records[asked[-last] if len(asked) >= last else 0 :]
    for record in shown:
        before = "> " if is_question(record) else ""
        for part in parts_of(record.message) if record.message is not None else ():
            if part.kind == "text":
                _quote(part.text, before)
            elif part.kind != "thinking":
                say(f"[{part.title or part.kind}]")
        if "incomplete" in (record.extra or {}):
            say("(this answer was interrupted)")
        elif "refused" in (record.extra or {}):
            say("(this was refused: later questions are sent without it)")
    return len(shown)


def is_question(record: Record) -> bool:
    """True if a record is a question of the user. The role is not enough: tool results may have the role ``user`` too."""
    message = record.message
    return role_of(message) == "user" and any(part.kind == "text" for part in parts_of(message))


def question(record: Record) -> str:
    """The text of a question."""
    return "\n".join(part.text for part in parts_of(record.message) if part.kind == "text")


def stop(sentence: str) -> None:
    """Report why no more input is read."""
    complain(f"{sentence}; stopped; everything before it is on record")


def _quote(text: str, before: str) -> None:
    kept = "\n".join(text.split("\n")[:_LINES])[:_CHARACTERS]
    more = f" … ({many(len(text) - len(kept), 'more character')})" if len(kept) < len(text) else ""
    for line in safe(kept + more).split("\n"):
        say(before + line)
        before = " " * len(before)


# ---- signals ----
#
# SIGTERM and SIGHUP as exceptions. They arrive when the machine shuts down, or the terminal is closed.
#
# Without a handler they end the process at once, and the part of an answer that it had shown is lost. As an exception, like
# Ctrl-C, they let the turn end in order: what was received is recorded.


class Terminated(SystemExit):
    """A signal asked the process to end. ``code`` is the exit code that a shell shows for it.

    It is a ``SystemExit`` because the prompt runs an event loop: an event loop passes a ``SystemExit`` on, and only logs
    other exceptions.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


@contextmanager
def raised() -> Iterator[None]:
    """Within the block, raise :class:`Terminated` for the first of these signals.

    Later ones are ignored: they would interrupt the recording of what was received. A signal that was already ignored
    when the program started (nohup) stays ignored.
    """
    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]

    def on_signal(number: int, _frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    before = {number: signal.signal(number, on_signal) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminal_kept() -> Iterator[None]:
    """After the block, restore the terminal settings of standard input.

    The prompt restores them itself, except if a signal interrupts that.
    """
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError, TypeError):  # not a terminal, closed, or not there at all
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error, OSError, ValueError, TypeError):
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
