"""`transcript-store chat` under a real terminal, with the real model on this machine: typed, interrupted, left, killed, resumed.

The weights are fetched into the user's cache directory if they are not there, as by the command; all of these are `long`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chat.dialects import DIALECTS
from tests.chat.server import Answer, serving
from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli, obeyed
from tests.cli.terminal import Terminal
from transcript_store import ConversationStore, Record
from transcript_store.cli._shared.terminal import say_on
from transcript_store.cli.chat import session
from transcript_store.cli.chat.local import QWEN
from transcript_store.cli.chat.local.server import fetched

pytestmark = pytest.mark.long

KEYS = re.compile(r"(ANTHROPIC|OPENAI|GOOGLE|GEMINI)_.*")
CHAT = (*COMMAND, "chat", "--ports", "")
"""The command, whatever servers run on the machine of whoever runs this."""
HERE = {name: value for name, value in ENVIRONMENT.items() if not KEYS.fullmatch(name)}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No keys, a library of its own; the cache of whoever runs this, with the weights in it."""
    fetched(QWEN, lambda _done, _total: None)
    return {**HERE, "XDG_DATA_HOME": str(tmp_path / "data"), "HTTP_PROXY": "http://127.0.0.1:9"}  # nobody listens there


def records(directory: Path | str) -> list[Record]:
    with ConversationStore(directory, read_only=True) as stored:
        stored.load()
        return stored.get_records()


def the_one_of(environment: dict[str, str]) -> Path:
    (found,) = (Path(environment["XDG_DATA_HOME"]) / "transcript-store" / "conversations").iterdir()
    return found


def prompt_tokens(record: Record) -> int:
    assert record.extra is not None
    count: int = record.extra["usage"]["prompt_tokens"]
    return count


def test_two_turns_over_a_restart(environment: dict[str, str]) -> None:
    """Scripted, one process a turn: the model's own count of prompt tokens grows by the history, and it recalls the name."""

    def turn(line: str) -> str:
        done = subprocess.run(CHAT, input=line, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert "a new conversation" in turn("The capital of Freedonia is Zubrowka.\n")
    second = turn("What is the capital of Freedonia?\n")
    assert "2 messages, with local" in second
    assert "Zubrowka" in second.partition("\n")[2]
    _, answer, _, recall = records(the_one_of(environment))
    assert answer.message is not None
    assert prompt_tokens(recall) > prompt_tokens(answer) + len(answer.message["content"].split())


def test_a_conversation_at_a_terminal(environment: dict[str, str]) -> None:
    """Type, stop an answer with Ctrl-C, leave with Ctrl-D, go on, be killed in an answer, go on: all that was said is there."""
    with Terminal([*CHAT, "--system", "You tell long stories."], environment) as screen:
        screen.wait_for("a new conversation, with local")
        screen.wait_for(f"({QWEN.name} is a small model that runs on this machine: it has")
        screen.wait_for("no tools, and it is often wrong)")  # in the same line, or the next: as wide as the terminal is
        screen.wait_for("Ctrl-D leaves")
        screen.wait_for_prompt()
        screen.type("The capital of Freedonia\x1b\ris Zubrowka.\r")  # Alt-Enter begins a new line
        screen.wait_for_prompt()
        screen.type("\x1b[200~Tell me\na long story\nabout a cat.\x1b[201~")  # a paste is one message
        screen.type("\r")
        screen.wait_for_answer()
        screen.type("\x03")
        screen.wait_for("(stopped; the received part is on record)")
        screen.wait_for("(not answered: an empty line or /retry asks again)")
        screen.wait_for_prompt()
        screen.type("And now?\r")  # Ctrl-C stopped an answer, not the one who gives it
        screen.wait_for_answer()
        screen.wait_for_prompt()
        screen.type("dropped\x03")  # at the prompt Ctrl-C drops what was typed
        screen.wait_for_prompt()
        screen.type("\x04")
        assert screen.end() == 0
    directory = the_one_of(environment)
    first, second, story, stopped, *after = records(directory)
    assert [(record.message or {})["role"] for record in after] == ["user", "assistant"]
    assert (first.message or {})["content"] == "The capital of Freedonia\nis Zubrowka."
    assert second.extra is not None
    assert (story.message or {})["content"] == "Tell me\na long story\nabout a cat."
    assert stopped.extra is not None
    assert stopped.extra["incomplete"]["reason"] == "the stream was cut (KeyboardInterrupt)"

    with Terminal(CHAT, environment) as screen:
        shown = screen.wait_for("Ctrl-D leaves")
        assert f"{directory}: 6 messages, with local {QWEN.name} (the conversation's provider)" in shown
        assert "> Tell me\r\n  a long story\r\n  about a cat.\r\n" in shown
        assert "(this answer was interrupted)" in shown
        screen.wait_for_prompt()
        screen.type("\x1b[A" * 5)  # history: a question, the three lines of the story, then what was said first
        screen.wait_for("Freedonia")
        screen.type("\x03")
        screen.wait_for_prompt()
        screen.type("Tell me another long story.\r")
        screen.wait_for_answer()
        screen.process.send_signal(signal.SIGKILL)
        assert screen.end() == -signal.SIGKILL
    assert (records(directory)[6].message or {})["content"] == "Tell me another long story."
    assert len(records(directory)) == 7

    with Terminal(CHAT, environment) as screen:
        assert "7 messages" in screen.wait_for("Ctrl-D leaves")
        screen.wait_for_prompt()
        screen.type("Thank you.\r")
        screen.wait_for_answer()
        screen.wait_for_prompt()
        screen.type("\x04")
        assert screen.end() == 0
    assert len(records(directory)) == 9


def test_the_local_server_is_started_again(environment: dict[str, str], tmp_path: Path) -> None:
    """If somebody ends it: a sentence, and the next message has a new one."""
    with Terminal([*CHAT, str(tmp_path / "c")], environment) as screen:
        screen.wait_for_prompt()
        me = screen.process.pid
        (server,) = Path(f"/proc/{me}/task/{me}/children").read_text().split()
        os.kill(int(server), signal.SIGKILL)
        screen.type("hi\r")
        screen.wait_for("the local model's server ended")
        screen.wait_for_prompt()
        screen.type("hello\r")
        screen.wait_for_answer()
        screen.type("\x03")
        screen.wait_for_prompt()
        screen.type("\x04")
        assert screen.end() == 0
    assert [(record.message or {})["role"] for record in records(tmp_path / "c")][:3] == ["user", "user", "assistant"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_sigterm_at_the_prompt(number: signal.Signals, environment: dict[str, str], tmp_path: Path) -> None:
    """The prompt's event loop hands the signal on: the terminal is as it was, and the lock of the conversation is free."""
    with serving() as server:
        server.answers += [DIALECTS["openai-compatible"].stream("Hello.")]
        where = ("--base-url", server.url, "--allow-insecure-base-url")
        with Terminal([*CHAT, str(tmp_path / "c"), *where], environment) as screen:
            screen.wait_for_prompt()
            screen.type("hi\r")
            screen.wait_for("Hello.")
            screen.wait_for_prompt()
            screen.type("half a question")
            screen.wait_for("half a question")
            screen.process.send_signal(number)
            assert screen.end() == 128 + number
            assert screen.is_as_it_was()
        assert "Traceback" not in screen.text
    assert len(records(tmp_path / "c")) == 2


def test_commands_at_a_real_prompt(environment: dict[str, str], tmp_path: Path) -> None:
    """Commands at a real prompt, a turn that fails and is asked again with Enter alone, and ``exit``."""
    openai = DIALECTS["openai-compatible"]
    with serving() as server:
        server.answers += [Answer(b"{}", status=401), openai.stream("Here.")]
        where = ("--base-url", server.url, "--allow-insecure-base-url")
        with Terminal([*CHAT, str(tmp_path / "c"), *where], environment) as screen:
            screen.wait_for_prompt()
            screen.type("/frobnicate\r")
            screen.wait_for("there is no command /frobnicate")
            screen.wait_for_prompt()
            screen.type("Where were we?\r")
            screen.wait_for("(not answered: an empty line or /retry asks again)")
            screen.wait_for_prompt()
            screen.type("\r")
            screen.wait_for("Here.")
            screen.wait_for_prompt()
            screen.type("/history\r")
            screen.wait_for("(2 messages)")
            screen.wait_for_prompt()
            screen.type("exit\r")
            assert screen.end() == 0
    assert [(record.message or {})["content"] for record in records(tmp_path / "c")] == ["Where were we?", "Here."]


def test_a_key_that_is_refused_at_a_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    """A turn that fails says why, and the prompt comes back; what a model writes cannot steer the terminal; exit code 0."""
    claude = DIALECTS["claude"]
    with serving() as server:
        server.answers += [Answer(b"{}", status=401), claude.stream("Hello\x1b[2J\x9b."), claude.stream("Again.")]
        here = {**environment, "ANTHROPIC_API_KEY": "sk-wrong", "ANTHROPIC_BASE_URL": server.url}
        command = [*CHAT, str(tmp_path / "c"), "--allow-insecure-base-url"]
        with Terminal(command, here) as screen:
            screen.wait_for("with claude claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)")
            screen.wait_for_prompt()
            screen.type("hi\r")
            screen.wait_for("refused the key (401)")
            screen.wait_for_prompt()
            screen.type("again\r")
            answer = screen.wait_for("Hello\\x1b[2J\\x9b.")
            assert obeyed(answer.replace("\r", "")) == set()
            screen.wait_for_prompt()
            screen.type("\x04")
            assert screen.end() == 0
        with Terminal(command, here) as screen:
            assert "Hello\\x1b[2J\\x9b." in screen.wait_for("Ctrl-D leaves")
            screen.wait_for_prompt()
            screen.type("\x04")
            assert screen.end() == 0


@pytest.mark.parametrize("dialect", ["claude", "openai", "gemini"])
def test_the_first_token_after_10_000_messages(
    dialect: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our share of the time to the first token: from the message that is typed to the request at the server, and back.

    Measured: 45 to 75 ms on the two cores of a small server (the SDKs' share included), of processor time, which does not count
    what others do there.
    """
    text = "words " * 40
    with ConversationStore(tmp_path / "c") as stored:
        stored.initialize(provider=dialect, model="m")
        for start in range(0, 10_000, 1000):
            stored.append_messages([_said(dialect, number, text) for number in range(start, start + 1000)])
    stamps: dict[str, float] = {}

    def stamped(name: str, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            stamps.setdefault(name, time.process_time())
            return function(*arguments, **named)

        return call

    entitle = session.ChatRun._entitle  # between a line that was typed and its turn nothing public is called
    monkeypatch.setattr(session.ChatRun, "_entitle", stamped("typed", entitle))
    monkeypatch.setattr(session, "say_on", stamped("shown", say_on))
    with serving() as server:
        server.answers += [stamped("received", lambda: DIALECTS[dialect].stream("Hello."))]
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(name, "sk-test")
        where = ("--base-url", server.url, "--allow-insecure-base-url")
        result = cli("chat", str(tmp_path / "c"), *where, stdin=b"hi\n")
        assert (result.code, "10,000 messages" in result.out) == (0, True)
        assert len(DIALECTS[dialect].messages(server.bodies[0])) == 10_001
    assert stamps["typed"] < stamps["received"] < stamps["shown"]
    assert stamps["shown"] - stamps["typed"] < 1.0


def _said(dialect: str, number: int, text: str) -> dict[str, Any]:
    text = f"{number} {text}"
    if dialect == "gemini":
        return {"role": "model" if number % 2 else "user", "parts": [{"text": text}]}
    return {"role": "assistant" if number % 2 else "user", "content": text}
