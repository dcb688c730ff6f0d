"""The turns of one run of ``chat``: it reads lines, and shows answers as they arrive."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, suppress
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
from transcript_store.cli._shared.hints import error_sentence as in_the_shell
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_on,
    say_wrapped,
)
from transcript_store.cli.chat import HINT, terminal
from transcript_store.cli.chat.answering import Answerer, sdk_error_sentence
from transcript_store.cli.chat.conversation import ChatConversation
from transcript_store.cli.chat.local.weights import LocalModelError
from transcript_store.cli.chat.provider import Choice, choose, find_servers
from transcript_store.cli.chat.terminal import Terminated
from transcript_store.messages import role_of

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

_CUT_SHORT = ("length", "max_tokens", "MAX_TOKENS")
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
        self._prompt = terminal.PromptReader() if self._at_terminal else None
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
            terminal.show_turns(records)
            self._prompt.remember(map(terminal.question, filter(terminal.is_question, records[-_LOOK_BACK_RECORDS:])))
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
            for line in terminal.piped():
                if (command := command_in(line)) is None:
                    yield self._turn(line)
                elif command.name == QUIT:
                    return
                else:
                    yield self._obey(command)
        except terminal.BadInputError as error:
            terminal.stop(str(error))
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
        shown = terminal.show_turns(records, last=int(turns[:9]) if turns else _HISTORY_TURNS)
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
        is_asked = prompt is None or any(terminal.is_question(r) and terminal.question(r) == prompt for r in new)
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
