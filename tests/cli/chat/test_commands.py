"""Commands inside the chat, retries of a failed turn, and the end of the program during an answer.

A person who typed ``exit`` had it sent to the model and answered; one whose question met a busy server had to type it again, and the
model was told it twice; one whose terminal was closed lost what had been shown of the answer.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chat.server import Answer
from tests.cli.chat.conftest import BUSY, MODEL, OPENAI, Chat, said
from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli, conversation
from tests.kit.cases import for_each
from transcript_store import ConversationStore
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.chat import ChatConfig, create_client
from transcript_store.cli.chat import answering, session
from transcript_store.cli.chat.local import SMOLLM
from transcript_store.cli.chat.session import Command, command_in

# ---- commands --------------------------------------------------------------------------------------------------------


@for_each(
    "line, command",
    [
        ("exit", Command("/quit")),
        ("quit", Command("/quit")),
        ("EXIT  ", Command("/quit")),
        ("/quit", Command("/quit")),
        ("/Exit", Command("/quit")),
        ("/q", Command("/quit")),
        ("/help", Command("/help")),
        ("/history 3", Command("/history", "3")),
        ("/model  qwen3:14b ", Command("/model", "qwen3:14b")),
        ("/retry", Command("/retry")),
        ("/frobnicate now", Command("/frobnicate", "now")),
        ("/compact", Command("/compact")),
        (" /quit", None),
        (" exit", None),
        ("exit the building?", None),
        ("how do I quit?", None),
        ("/etc/hosts: what is it for?", None),
        ("/usr", Command("/usr")),
        ("/", None),
        ("// a comment", None),
        ("/quit\nand more", None),
        ("1/2", None),
        ("", None),
    ],
)
def test_which_lines_are_commands(line: str, command: Command | None) -> None:
    """A word behind a slash at the beginning of the only line; a path, a text of several lines and what is indented are messages."""
    assert command_in(line) == command


@pytest.mark.parametrize("leave", ["exit", "quit", "/quit", "/exit", "Quit"])
def test_leaving_is_never_sent(chat: Chat, tmp_path: Path, leave: str) -> None:
    """The lines after it are not read, and what stands before it is a turn as any other."""
    chat.server.answers += [OPENAI.stream("Hello.")]
    result = chat(str(tmp_path / "c"), lines=f"hi\n{leave}\nnever sent\n")
    assert (result.code, result.err) == (0, "")
    assert said(tmp_path / "c") == [("user", "hi"), ("assistant", "Hello.")]


def test_a_command_that_there_is_not(chat: Chat, tmp_path: Path) -> None:
    """It is said, and in a script it ends the run: the line was meant for somebody, and not for the model."""
    chat.server.answers += [OPENAI.stream("Hello.")]
    result = chat(str(tmp_path / "c"), lines="hi\n/frobnicate\nnever sent\n")
    assert result.code == 1
    assert result.err == (
        "transcript-store: there is no command /frobnicate: /help lists them; a space before it sends it as a message\n"
    )
    chat.server.answers += [OPENAI.stream("A word.")]
    assert chat(str(tmp_path / "c"), lines=" /frobnicate\n").code == 0
    assert [text for role, text in said(tmp_path / "c") if role == "user"] == ["hi", " /frobnicate"]


def test_help_names_every_command(chat: Chat, tmp_path: Path) -> None:
    result = chat(str(tmp_path / "c"), lines="/help\n")
    assert result.code == 0
    for name in ("/history", "/search", "/retry", "/model", "/quit", "exit", "Ctrl-D", "Alt-Enter"):
        assert name in result.out
    assert not (tmp_path / "c").exists()


def test_history_shows_what_was_said(chat: Chat, tmp_path: Path) -> None:
    """Whatever the model makes of it: the record itself, the last so many turns of it, and how many messages there are."""
    path = conversation(tmp_path / "c", provider="openai-compatible", model="m")
    with ConversationStore(path) as stored:
        stored.load()
        for number in range(12):
            stored.append_message({"role": "user", "content": f"question {number}"})
            stored.append_message({"role": "assistant", "content": f"answer {number}\x1b[2J"})
    out = chat(path, lines="/history 1\n").out
    assert out.partition("\n")[2] == "> question 11\nanswer 11\\x1b[2J\n(24 messages; the last 2 records are shown)\n"
    assert "> question 2\n" in (out := chat(path, lines="/history\n").out)
    assert "question 1\n" not in out
    assert chat(path, lines="/history 100\n").out.endswith("answer 11\\x1b[2J\n(24 messages)\n")
    assert chat(str(tmp_path / "new"), lines="/history\n").out.endswith("(0 messages)\n")
    for wrong in ("0", "x", "-1"):
        result = chat(path, lines=f"/history {wrong}\n")
        assert (result.code, "the number of turns" in result.err) == (1, True)


def test_another_model_from_now_on(chat: Chat, tmp_path: Path) -> None:
    """``/model`` says which one answers; with a name that one does, in the next request and in the next process."""
    chat.server.answers += [OPENAI.stream("One."), OPENAI.stream("Two."), OPENAI.stream("Three.")]
    result = chat(str(tmp_path / "c"), lines="hi\n/model\n/model large\nand?\n")
    assert result.code == 0
    assert "openai-compatible default answers\n" in result.err
    assert "openai-compatible large answers\n" in result.err
    chat(str(tmp_path / "c"), lines="still?\n")
    assert [body["model"] for body in chat.server.bodies] == ["default", "large", "large"]


def test_a_model_that_cannot_be_had_leaves_the_one_that_is(cli: Cli, chat: Chat, local: Path) -> None:
    chat.server.answers += [OPENAI.stream("One."), OPENAI.stream("Two."), OPENAI.stream("Three.")]
    result = cli("chat", str(local), "--provider", "local", stdin=b"hi\n/model gpt-9\n")
    assert result.code == 1
    assert f"and the models {MODEL} and {SMOLLM.name}" in result.err
    assert f"; local {MODEL} still answers\n" in result.err
    result = cli("chat", str(local), stdin=f"and?\n/model {SMOLLM.name}\nnow?\n".encode())
    assert (result.code, f"local {SMOLLM.name} answers" in result.err) == (0, True)
    assert [body["model"] for body in chat.server.bodies] == [MODEL, MODEL, SMOLLM.name]


def test_a_resume_prints_the_number_of_messages(chat: Chat, tmp_path: Path) -> None:
    """How many messages the model is told, once, behind the resume; it is the number that the request carries."""
    path = conversation(tmp_path / "c", provider="openai-compatible", model="m")
    with ConversationStore(path) as stored:
        stored.load()
        stored.append_messages([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    chat.server.answers += [OPENAI.stream("One."), OPENAI.stream("Two.")]
    assert chat(path, lines="c\nd\n").err == "transcript-store: the model gets the whole conversation: 3 messages\n"
    assert len(OPENAI.messages(chat.server.bodies[0])) == 3


# ---- asked again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["--retry", "/retry"])
def test_a_question_that_failed_is_asked_again_once(chat: Chat, tmp_path: Path, how: str) -> None:
    """For a script: the same command with --retry, however often; the question is on record once."""
    path = str(tmp_path / "c")
    chat.server.answers += [BUSY, BUSY, OPENAI.stream("Here.")]
    assert chat(path, lines="Where were we?\n").err.endswith("; --retry asks again\n")
    again = (path, "--retry") if how == "--retry" else (path,)
    lines = "" if how == "--retry" else "/retry\n"
    assert chat(*again, lines=lines).code == 1
    assert chat(*again, lines=lines).out.endswith("Here.\n")
    result = chat(*again, lines=lines)
    assert (result.code, "nothing to ask again: the last question is answered" in result.err) == (0, True)
    assert said(tmp_path / "c") == [("user", "Where were we?"), ("assistant", "Here.")]
    assert len(chat.server.requests) == 3


def test_retry_continues_with_the_lines_of_its_input(chat: Chat, tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    chat.server.answers += [BUSY, OPENAI.stream("One."), OPENAI.stream("Two.")]
    chat(path, lines="one\n")
    assert chat(path, "--retry", lines="two\n").out.endswith("One.\nTwo.\n")
    assert [text for _, text in said(tmp_path / "c")] == ["one", "One.", "two", "Two."]


def test_retry_where_nothing_is(chat: Chat, tmp_path: Path) -> None:
    result = chat(str(tmp_path / "c"), "--retry")
    assert (result.code, "--retry needs a conversation, and there is none yet" in result.err) == (2, True)
    assert not (tmp_path / "c").exists()


def test_a_blank_line_of_a_pipe_asks_nothing_again(chat: Chat, tmp_path: Path) -> None:
    """It is the prompt's way; a script's input may end in blank lines."""
    path = str(tmp_path / "c")
    chat.server.answers += [BUSY]
    chat(path, lines="one\n")
    assert chat(path, lines="\n\n").code == 0
    assert len(chat.server.requests) == 1


# ---- told to end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_sigterm_during_an_answer(number: signal.Signals, chat: Chat, tmp_path: Path) -> None:
    """A closed terminal, a shutdown: what came is kept, marked as an answer that was cut, as Ctrl-C keeps it."""
    whole = OPENAI.stream("The beginning of a long answer", stop=False)
    chat.server.answers += [Answer(whole.body + b": \n", whole.content_type, cut_after=len(whole.body), stalls=True)]
    command = [*COMMAND, "chat", str(tmp_path / "c"), "--base-url", chat.server.url, "--allow-insecure-base-url"]
    before = signal.signal(number, signal.SIG_DFL)  # what a test run under nohup would ignore, and its child with it
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        signal.signal(number, before)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        process.stdout.readline()
        shown = b""
        while b"answer" not in shown:
            shown += os.read(process.stdout.fileno(), 100)
        process.send_signal(number)
        said_last = process.stderr.read()
    assert process.returncode == 128 + number
    assert said_last.endswith(f"transcript-store: {number.name}: stopped; the received part is on record\n".encode())
    with ConversationStore(tmp_path / "c") as stored:
        stored.load()
        _, answer = stored.get_records()
    assert answer.message is not None
    assert answer.message["content"] == "The beginning of a long answer"
    assert answer.extra is not None
    assert answer.extra["incomplete"]["reason"] == "the stream was cut (Terminated)"


def test_sigterm_before_the_first_record(chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the SDK was imported, on a machine that had no time for it: "what came is on record" was said, and there was no record."""

    def told(_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("transcript_store.cli.chat.answering.Answerer.client", property(told))
    result = chat(str(tmp_path / "c"), lines="hi\n")
    assert (result.code, "SIGTERM: stopped; nothing was recorded\n" in result.err) == (128 + signal.SIGTERM, True)
    assert not (tmp_path / "c").exists()


def test_signals_that_were_ignored_stay_ignored() -> None:
    """Under nohup a closed terminal ends nothing; and whoever called us has the handlers back that it had."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mine = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with session.raised():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(session.Terminated) as caught:
                signal.raise_signal(signal.SIGTERM)
            assert (caught.value.signal, caught.value.code) == (signal.SIGTERM, 143)
            signal.raise_signal(signal.SIGTERM)  # the second one must not stand in the way of what is kept
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGTERM, mine)


# ---- at a terminal ---------------------------------------------------------------------------------------------------


class Person(session.PromptReader):
    """Somebody at a terminal: what they type, each line a text or something that gives one when its turn comes.

    ``offered`` is what stood in the line already, each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[str | Callable[[], str]] = []
        self.offered: list[str] = []

    def __iter__(self) -> Iterator[str]:
        for entry in self.script:
            self.offered.append(self.default)
            self.default = ""
            yield entry if isinstance(entry, str) else entry()


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    person = Person()
    monkeypatch.setattr(session, "is_at_a_terminal", lambda: True)
    monkeypatch.setattr(session, "PromptReader", lambda: person)
    return person


def test_a_failed_turn_is_marked_and_an_empty_line_asks_again(chat: Chat, person: Person, tmp_path: Path) -> None:
    """At once, after another failure, and in the next process; behind an answer an empty line is nothing."""
    chat.server.answers += [BUSY, BUSY]
    person.script = ["Where were we?", "", "/quit"]
    first = chat(str(tmp_path / "c"))
    mark = "(not answered: an empty line or /retry asks again)\n"
    assert (first.code, first.out.count(mark)) == (0, 2)
    chat.server.answers += [OPENAI.stream("Here.")]
    person.script = ["  ", "", "/retry"]
    second = chat(str(tmp_path / "c"))
    assert second.out.count(mark) == 1
    assert "(the model gets the whole conversation: 1 message)\nHere.\n" in second.out
    assert "(there is nothing to ask again: the last question is answered)" in second.out
    assert said(tmp_path / "c") == [("user", "Where were we?"), ("assistant", "Here.")]


def test_retry_comes_before_the_prompt(chat: Chat, person: Person, tmp_path: Path) -> None:
    chat.server.answers += [BUSY, OPENAI.stream("Here."), OPENAI.stream("Two.")]
    person.script = ["one"]
    chat(str(tmp_path / "c"))
    person.script = ["two"]
    chat(str(tmp_path / "c"), "--retry")
    assert [text for _, text in said(tmp_path / "c")] == ["one", "Here.", "two", "Two."]


def test_a_stopped_answer_is_marked_too(chat: Chat, person: Person, tmp_path: Path) -> None:
    """Ctrl-C keeps what came; /retry asks for the whole of it."""
    chat.server.answers += [OPENAI.stream("Whole.")]
    person.script = ["/retry"]
    with ConversationStore(tmp_path / "c") as stored:
        stored.initialize(provider="openai-compatible", model="m")
        stored.append_message({"role": "user", "content": "Well?"})
        stored.append_message({"role": "assistant", "content": "Ha"}, extra={"incomplete": {"reason": "cut"}})
    out = chat(str(tmp_path / "c")).out
    assert "Ha\n(this answer was interrupted)\n(not answered: an empty line or /retry asks again)\n" in out
    assert said(tmp_path / "c") == [("user", "Well?"), ("assistant", "Ha"), ("assistant", "Whole.")]
    assert len(OPENAI.messages(chat.server.bodies[0])) == 1


def test_a_command_that_cannot_be_done_leaves_the_prompt(chat: Chat, person: Person, tmp_path: Path) -> None:
    chat.server.answers += [OPENAI.stream("Hello.")]
    person.script = ["/frobnicate", "/history x", "hi", "/history", "exit", "never read"]
    result = chat(str(tmp_path / "c"))
    assert (result.code, "there is no command /frobnicate" in result.err) == (0, True)
    assert "> hi\nHello.\n" in result.out
    assert result.out.endswith("(2 messages)\n\n")
    assert len(person.offered) == 5


def interrupted(*_: Any, **__: Any) -> Any:
    """Ctrl-C, just now."""
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("where", ["a folder", "the library"])
def test_stopped_before_anything_was_recorded(
    chat: Chat, person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path, where: str
) -> None:
    """Ctrl-C while the SDK is imported, at the beginning: it is said that nothing was recorded, and no folder is left behind."""
    monkeypatch.setattr(answering, "create_client", interrupted)
    person.script = ["never asked"]
    result = chat(str(tmp_path / "c") if where == "a folder" else "--new")
    assert (result.code, result.err) == (130, "transcript-store: stopped; nothing was recorded\n")
    assert not (tmp_path / "c").exists()
    assert not home.exists() or list(home.iterdir()) == []


def test_stopped_in_a_turn_before_anything_was_recorded(
    chat: Chat, person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server was lost, and its client is made anew: "what came is on record" was said, and nothing had come. The question is offered again."""
    client: Any
    client, asked_for = vars(answering.Answerer)["client"], itertools.count(1)

    def stopped_once(answers: answering.Answerer) -> Any:
        if next(asked_for) == 2:  # the first time is at the beginning, the second in the turn
            interrupted()
        return client.__get__(answers)

    monkeypatch.setattr(answering.Answerer, "client", property(stopped_once))
    chat.server.answers += [OPENAI.stream("Here.")]
    person.script = ["Where were we?", "Where were we?"]
    result = chat(str(tmp_path / "c"))
    assert result.code == 0
    assert "(stopped; nothing was recorded)\n" in result.out
    assert "on record" not in result.out
    assert person.offered == ["", "Where were we?"]
    assert said(tmp_path / "c") == [("user", "Where were we?"), ("assistant", "Here.")]


def test_stopped_while_another_model_gets_ready(
    chat: Chat, person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The chat ended. The model that answered until then goes on."""
    made = create_client
    chat.server.answers += [OPENAI.stream("One."), OPENAI.stream("Two.")]

    def stopped_for_another(config: ChatConfig, **options: Any) -> Any:
        return interrupted() if config.model == "large" else made(config, **options)

    monkeypatch.setattr(answering, "create_client", stopped_for_another)
    person.script = ["one", "/model large", "two"]
    result = chat(str(tmp_path / "c"))
    assert (result.code, "stopped; openai-compatible default still answers\n" in result.err) == (0, True)
    assert [body["model"] for body in chat.server.bodies] == ["default", "default"]


def test_stopped_behind_the_question(
    chat: Chat, person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once the question is stored, it is said so, it is marked as not answered, and the next prompt is empty."""
    with monkeypatch.context() as patch:
        patch.setattr(session.ChatRun, "_on_request", interrupted)
        person.script = ["Where were we?", "/quit"]
        result = chat(str(tmp_path / "c"))
    assert (
        "(stopped; the received part is on record)\n(not answered: an empty line or /retry asks again)\n" in result.out
    )
    assert person.offered == ["", ""]
    assert said(tmp_path / "c") == [("user", "Where were we?")]


# ---- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()

    def write(handle: int, data: Any) -> int:
        if disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(handle, data)

    monkeypatch.setattr(PosixFileSystem, "write", staticmethod(write))
    return disk


class Disk:
    """The disk under the conversation; ``is_full``: it has no room for what is written next."""

    is_full = False

    def fills_up(self, given: Any) -> Callable[[], Any]:
        def fill() -> Any:
            self.is_full = True
            return given

        return fill

    def has_room(self, given: Any) -> Callable[[], Any]:
        def free() -> Any:
            self.is_full = False
            return given

        return free


def test_a_full_disk_keeps_the_prompt_and_the_question(chat: Chat, person: Person, disk: Disk, tmp_path: Path) -> None:
    """The chat ended, the question was gone, and two messages said that nothing and that everything was stored."""
    chat.server.answers += [OPENAI.stream("Hello."), OPENAI.stream("There is.")]
    question = "Is there room\nfor this?"
    person.script = ["hi", disk.fills_up(question), disk.has_room(question)]
    result = chat(str(tmp_path / "c"))
    assert result.code == 0
    assert person.offered == ["", "", question]
    (line,) = result.err.splitlines()
    assert "the question is not stored: " in line
    assert "No space left on device" in line
    assert line.endswith("free some space and try again")
    assert [text for _, text in said(tmp_path / "c")] == ["hi", "Hello.", question, "There is."]
    assert len(chat.server.requests) == 2


def test_a_disk_that_fills_up_under_an_answer(chat: Chat, person: Person, disk: Disk, tmp_path: Path) -> None:
    """The question is stored, so it does not come back; it is asked again when there is room."""
    chat.server.answers += [disk.fills_up(OPENAI.stream("Lost.")), OPENAI.stream("Kept.")]
    person.script = ["hi", disk.has_room("")]
    result = chat(str(tmp_path / "c"))
    assert (result.code, person.offered) == (0, ["", ""])
    (line,) = result.err.splitlines()
    assert "the answer is not stored: " in line
    assert "Lost.\n" in result.out
    assert "(not answered: an empty line or /retry asks again)" in result.out
    assert said(tmp_path / "c") == [("user", "hi"), ("assistant", "Kept.")]


def test_a_disk_that_stays_full(chat: Chat, person: Person, disk: Disk, tmp_path: Path) -> None:
    """One line each time somebody tries, and none when they leave: nothing says that every message is stored."""
    chat.server.answers += [OPENAI.stream("Hello.")]
    person.script = ["hi", disk.fills_up("one"), "one", "/history"]
    result = chat(str(tmp_path / "c"))
    assert [("the question is not stored" in line) for line in result.err.splitlines()] == [True, True]
    assert "(2 messages)" in result.out


def test_a_full_disk_ends_a_script(chat: Chat, disk: Disk, tmp_path: Path) -> None:
    """One line, exit code 1; what was answered before is on record, and nothing after it was sent."""
    chat.server.answers += [OPENAI.stream("Hello."), disk.fills_up(OPENAI.stream("Lost."))]
    result = chat(str(tmp_path / "c"), lines="one\ntwo\nthree\n")
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert "the answer is not stored: " in line
    assert [text for _, text in said(tmp_path / "c")] == ["one", "Hello.", "two"]
    assert len(chat.server.requests) == 2


def test_a_disk_that_fails_to_sync(chat: Chat, person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody knows then what it holds: the conversation is read again, and the question stands on record once, or is offered."""
    fails = threading.Event()
    sync = PosixFileSystem.sync_data

    def failing(self: PosixFileSystem, handle: int) -> None:
        if fails.is_set():
            fails.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(self, handle)

    def lost(given: str) -> Callable[[], str]:
        def fail() -> str:
            fails.set()
            return given

        return fail

    monkeypatch.setattr(PosixFileSystem, "sync_data", failing)
    chat.server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Yes.")]
    enter = lambda: person.offered[-1]  # noqa: E731 (whatever stands in the line; an empty one asks again)
    person.script = ["hi", lost("Is it there?"), enter, enter]
    result = chat(str(tmp_path / "c"))
    assert result.code == 0
    assert [text for _, text in said(tmp_path / "c")] == ["hi", "Hello.", "Is it there?", "Yes."]
    assert "Input/output error" in result.err.splitlines()[0]
    assert "every message is stored" not in result.err
