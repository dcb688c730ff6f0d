"""The turns of one run of ``chat``: it reads lines at a terminal or from a pipe, and shows answers as they arrive.

If standard input is not a terminal, each line is a turn.
"""

from __future__ import annotations

import re
import signal
import sys
import termios
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple, cast

from transcript_store import (
    IncompleteResponseError,
    InvalidMessageError,
    MaxStepsError,
    PoisonedError,
    Record,
    StorageError,
    TranscriptStoreError,
)
from transcript_store.chat import TextDelta, TurnEnded
from transcript_store.cli._shared.arguments import lines, standard_input
from transcript_store.cli._shared.hints import error_sentence as in_the_shell
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    is_at_a_terminal,
    many,
    one_line,
    safe,
    say,
    say_on,
    say_wrapped,
)
from transcript_store.cli.chat import HINT
from transcript_store.cli.chat.answering import Answerer, sdk_error_sentence
from transcript_store.cli.chat.conversation import ChatConversation
from transcript_store.cli.chat.local.server import LocalModelError
from transcript_store.cli.chat.provider import Choice, choose, find_servers
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


# ---- commands ----
#
# The commands inside a chat, such as ``/help``: they are for the program, and are never sent or recorded.

QUIT, HELP, HISTORY, RETRY, DROP, MODEL, SEARCH = "/quit", "/help", "/history", "/retry", "/drop", "/model", "/search"

HELP_TEXT = """\
/history [N]    show the last N turns (10)
/retry          ask an unanswered question again, like an empty line
/drop           retract an unanswered question
/model [NAME]   show the model; with NAME, switch to that one
/search WORDS   find messages, in all conversations of the library
/quit           leave, like exit, quit and Ctrl-D
A line that starts with / and a word is a command. A space before it sends it."""

_SAID_ALONE = {"exit": QUIT, "quit": QUIT}
_COMMAND = re.compile(r"(/[a-z][a-z0-9_-]*)(?:\s+(.*))?", re.IGNORECASE)
_SAME = {"/exit": QUIT, "/q": QUIT, "/h": HELP}


class Command(NamedTuple):
    """A command's name and its argument. The name may be unknown: the caller reports that."""

    name: str
    argument: str = ""


def command_in(line: str) -> Command | None:
    """The command in a line; None if the line is a message.

    These are messages: a text of several lines, a path (``/etc/hosts``), and a line that begins with a space.
    """
    line = line.rstrip()
    if line.lower() in _SAID_ALONE:
        return Command(_SAID_ALONE[line.lower()])
    if "\n" in line or (match := _COMMAND.fullmatch(line)) is None:
        return None
    name = match[1].lower()
    return Command(_SAME.get(name, name), (match[2] or "").strip())


# ---- session ----

_CUT_SHORT = ("length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded")
"""The stop reasons of an answer that ran out of tokens."""
_ANSWERS_FAIL = (IncompleteResponseError, MaxStepsError, InvalidMessageError, LocalModelError)
"""The errors of this package after which the next turn works. The others are about the disk or the conversation."""
_TITLE_CHARACTERS = 60
_LOOK_BACK_RECORDS = 200
"""How many records the arrow keys reach back."""
_HISTORY_TURNS = 10
_REFUSED = (
    "later questions are sent without it; /drop retracts it, /retry asks it again (/model NAME: asks another model)"
)
_REFUSED_AGAIN = (
    "the one before was refused too, so the conversation may be too long for this model: choose another with /model NAME, "
    "or continue a shorter copy (transcript-store fork --through)"
)
_NOT_ANSWERED = "(not answered: an empty line or /retry asks again)"


class ChatRun:
    """One run of the command: turns in one conversation, until the input ends."""

    def __init__(self, arguments: Namespace, chat: ChatConversation) -> None:
        self._arguments = arguments
        self._chat = chat
        self._at_terminal = is_at_a_terminal()
        self._is_resumed = chat.conversation is not None
        if arguments.retry and not self._is_resumed:
            raise Misuse(f"{chat.directory}: --retry needs a conversation, and there is none yet")
        choice = self._chosen(arguments.provider, arguments.model)
        self._answerer = Answerer(choice, chat, arguments, on_request=self._on_request, note=self._note)
        self._prompt = PromptReader() if self._at_terminal else None
        self._working: Working | None = None

    def run(self) -> int:
        """Print the conversation's name and its last turns, then take turns. Returns the exit code."""
        records = self._records()
        for line in self._answerer.choice.passed_over:
            complain(line)
        say(self._first_line(sum(record.message is not None for record in records)), now=True)
        with self._answerer:
            if self._prompt is None:
                return 0 if all(self._piped_turns()) else 1
            show_turns(records)
            self._prompt.remember(map(question, filter(is_question, records[-_LOOK_BACK_RECORDS:])))
            self._mark_unanswered()
            say_wrapped(HINT)
            if self._arguments.retry:
                self._safely(None)
            for line in self._prompt:
                if (command := command_in(line)) is None:
                    self._safely(line)
                elif command.name == QUIT:
                    break
                else:
                    self._obey(command)
                say(now=True)
        return 0

    def _piped_turns(self) -> Iterator[bool]:
        """Take the turns of standard input, and yield for each whether it succeeded. The caller stops at the first failure."""
        if self._arguments.retry:
            yield self._turn(None)
        try:
            for line in piped():
                if (command := command_in(line)) is None:
                    yield self._turn(line)
                elif command.name == QUIT:
                    return
                else:
                    yield self._obey(command)
        except BadInputError as error:
            stop(str(error))
            yield False

    def _safely(self, line: str | None) -> None:
        """Take a turn at a terminal. Ctrl-C ends only the turn.

        An empty line, or None, asks the last question again if it has no answer. A question that Ctrl-C kept from being recorded
        becomes the default of the next prompt.
        """
        before = self._chat.record_count
        try:
            if line is not None and not line.strip():
                if self._answerer.client.is_answered:
                    return
                line = None
            self._turn(line)
        except KeyboardInterrupt:
            if self._chat.record_count > before:
                say("\n(stopped; the received part is on record)")
                self._mark_unanswered()
            else:
                say("\n(stopped; nothing was recorded)", now=True)
                if line is not None and self._prompt is not None:
                    self._prompt.default = line  # it is stored nowhere else

    def _chosen(self, provider: str | None, model: str | None) -> Choice:
        stored = self._chat.conversation
        return choose(
            named=provider,
            model=model,
            base_url=self._arguments.base_url,
            allow_insecure=self._arguments.allow_insecure_base_url,
            metadata=None if stored is None else stored.get_metadata(),
            servers=lambda: find_servers(self._arguments.ports),
        )

    # ---- notes about the conversation ----------------------------------------------------------------------------

    def _first_line(self, messages: int) -> str:
        count = many(messages, "message") if self._is_resumed else "a new conversation"
        return one_line(f"{self._chat.directory}: {count}, with {self._who()} ({self._answerer.choice.why})")

    def _who(self) -> str:
        choice = self._answerer.choice
        return f"{'local' if choice.is_local else choice.provider} {choice.model}"

    def _note(self, text: str) -> None:
        """Print a note about the conversation; without a terminal, to standard error, apart from the answers."""
        if self._at_terminal:
            say_wrapped(f"({text})")
        else:
            complain(text)

    def _on_request(self, sent: int, on_record: int) -> None:
        if sent < on_record:
            self._said_while_working(
                f"the conversation is longer than the model's context: the model gets the last {sent:,} of "
                f"{on_record:,} messages; all of them stay on record"
            )
        elif self._is_resumed:
            self._said_while_working(f"the model gets the whole conversation: {many(sent, 'message')}")
        self._is_resumed = False
        if self._working is not None:
            self._working.what = f"waiting for {self._answerer.choice.called}"

    def _said_while_working(self, text: str) -> None:
        assert self._working is not None
        with self._working.paused():
            self._note(text)

    def _mark_unanswered(self) -> None:
        client = self._answerer.client
        if not client.is_answered:
            say(f"({_REFUSED})" if client.is_refused else _NOT_ANSWERED, now=True)

    # ---- commands ------------------------------------------------------------------------------------------------

    def _obey(self, command: Command) -> bool:
        """Run a command of the chat. Returns False if it is unknown or failed."""
        if command.name == HELP:
            say_wrapped(HINT)
            say(HELP_TEXT)
        elif command.name == HISTORY:
            return self._show_history(command.argument)
        elif command.name == RETRY:
            if self._at_terminal:
                self._safely(None)
            else:
                return self._turn(None)
        elif command.name == DROP:
            return self._drop()
        elif command.name == MODEL:
            return self._change_model(command.argument)
        elif command.name == SEARCH:
            return self._search(command.argument)
        else:
            complain(f"there is no command {command.name}: /help lists them; a space before it sends it as a message")
            return False
        return True

    def _records(self) -> list[Record]:
        """The records, without retracted ones."""
        found = [] if self._chat.conversation is None else self._chat.conversation.get_records()
        return [record for record in found if not record.is_retracted]

    def _show_history(self, turns: str) -> bool:
        if turns and not (turns.isascii() and turns.isdigit() and int(turns[:9]) > 0):
            complain("/history takes the number of turns to show, from 1")
            return False
        records = self._records()
        message_count = sum(record.message is not None for record in records)
        shown = show_turns(records, last=int(turns[:9]) if turns else _HISTORY_TURNS)
        say(
            f"({many(message_count, 'message')}{'' if shown == len(records) else f'; the last {shown:,} records are shown'})"
        )
        return True

    def _search(self, query: str) -> bool:
        if not query:
            complain("/search takes a query, like `transcript-store search`")
            return False
        from transcript_store.cli.chat.conversation import show_found

        return show_found(self._chat.library_name, query, self._chat.keys)

    def _drop(self) -> bool:
        client = self._answerer.client
        if client.is_answered:
            complain("there is nothing to retract: the last question is answered")
            return False
        self._note(f"retracted: {many(client.drop(), 'message')}")
        return True

    def _change_model(self, name: str) -> bool:
        if name:
            before = self._answerer.choice
            try:
                self._answerer.change(self._chosen("local" if before.is_local else before.provider, name))
                self._answerer.client  # noqa: B018 (created now, so that an error shows now, and the old model stays)
            except (Misuse, TranscriptStoreError, KeyboardInterrupt) as error:
                why = (
                    in_the_shell(error, "chat") if isinstance(error, TranscriptStoreError) else str(error) or "stopped"
                )
                self._answerer.change(before)
                complain(f"{why}; {self._who()} still answers")
                return False
            self._arguments.model = name
        self._note(f"{self._who()} answers")
        return True

    # ---- a turn --------------------------------------------------------------------------------------------------

    def _turn(self, prompt: str | None) -> bool:
        """Take one turn. If ``prompt`` is None, ask the last question again.

        Returns False if the turn failed; the reason has been printed. If Ctrl-C or a signal ends it, the received part of
        the answer is on record.
        """
        client = self._answerer.client
        if prompt is None and client.is_answered:
            self._note("there is nothing to ask again: the last question is answered")
            return True
        before = self._record_count
        try:
            if prompt is not None:
                self._entitle(prompt)
            self._stream(client.stream_retry() if prompt is None else client.stream_chat(prompt))
        except (StorageError, PoisonedError) as error:
            return self._not_stored(error, prompt, before)
        except TranscriptStoreError as error:
            if not isinstance(error, _ANSWERS_FAIL):
                raise  # the conversation was changed by another process, or is damaged
            return self._failed(error)
        except (OSError, RecursionError, MemoryError):
            raise  # not a failure of the provider: standard output failed, or this process
        except Exception as error:  # the SDKs' errors have no base class in common
            return self._failed(error)
        return True

    def _stream(self, events: Any) -> None:
        with Working("writing to disk") as self._working, closing(events):
            try:
                for event in events:
                    self._working.done()
                    if isinstance(event, TextDelta):
                        say_on(event.text)
                    elif isinstance(event, TurnEnded):
                        say(now=True)
                        if event.stop_reason in _CUT_SHORT:
                            complain("the answer reached this model's limit, and is cut there")
            except (KeyboardInterrupt, Terminated) as stop:
                # The client records the signal as the reason, even if it arrived while we were printing.
                events.throw(stop)
                raise

    def _failed(self, error: Exception) -> bool:
        say(now=True)
        if self._answerer.is_lost():
            why = "the local model's server ended; the received part of the answer is kept"
        else:
            why = sdk_error_sentence(
                error, server=self._answerer.choice.called, timeout_seconds=self._arguments.timeout
            )
        if self._answerer.client.is_refused:
            complain(f"{why}; {_REFUSED if self._refused_in_a_row() < 2 else _REFUSED_AGAIN}")
            return False
        can_be_asked_again = not isinstance(
            error, LocalModelError
        )  # a message that is too long will always be too long
        complain(f"{why}; --retry asks again" if can_be_asked_again and not self._at_terminal else why)
        if can_be_asked_again and self._at_terminal:
            say(_NOT_ANSWERED, now=True)  # the question is on record: no request is made before it is
        return False

    def _refused_in_a_row(self) -> int:
        """How many refusals follow the last reply."""
        count = 0
        for record in reversed(self._records()):
            if record.message is not None and role_of(record.message) not in ("user", "tool"):
                break
            count += "refused" in (record.extra or {})
        return count

    def _not_stored(self, error: StorageError | PoisonedError, prompt: str | None, before: int) -> bool:
        """Report what is not stored after the disk refused.

        At a terminal the chat continues. An unstored question becomes the default of the next prompt, so that it is not lost.
        """
        say(now=True)
        self._chat.was_refused = True
        conversation = self._chat.conversation
        assert conversation is not None
        why = in_the_shell(error, "chat")
        if isinstance(error, PoisonedError):
            conversation.load()  # after a failed sync, only a new load shows what the disk holds
            why = f"{error.problem}; the conversation was read again"
        new = conversation.get_records()[before:]
        is_asked = prompt is None or any(is_question(r) and question(r) == prompt for r in new)
        complain(f"{'the answer' if is_asked else 'the question'} is not stored: {why}")
        if self._prompt is not None and is_asked:
            self._mark_unanswered()
        elif self._prompt is not None:
            self._prompt.default = cast("str", prompt)
        return False

    @property
    def _record_count(self) -> int:
        assert self._chat.conversation is not None
        return self._chat.conversation.record_count

    def _entitle(self, prompt: str) -> None:
        """Give a new conversation its first question as title.

        A refusal by the disk is not reported here: the append of the question comes next, and reports it.
        """
        conversation = self._chat.conversation
        assert conversation is not None
        if conversation.record_count == 0 and "title" not in conversation.get_metadata().labels:
            # Redacted before it is cut: half a secret at the end of a title would not be recognized.
            line = " ".join(self._chat.clean(prompt.encode("utf-8", "backslashreplace").decode()).split())
            title = line if len(line) <= _TITLE_CHARACTERS else f"{line[: _TITLE_CHARACTERS - 1]}…"
            with suppress(StorageError):
                conversation.title = title
