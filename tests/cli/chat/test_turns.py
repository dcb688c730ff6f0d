"""`transcript-store chat` without a terminal: which conversation, and how errors end it.

The model's side is a server of the tests that speaks the providers' wire formats, reached through their real SDKs. Against
servers that nobody here wrote, and the model on this machine: the tests that are `long`, here and in test_at_a_terminal.py.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import VARIABLES
from tests.chat.model_servers import FAULTS, aimock
from tests.chat.server import Answer, Server
from tests.cli.chat.conftest import BUSY, MODEL, OPENAI, Chat, said, trouble
from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli, Result, conversation, obeyed, too_wide
from transcript_store import ConversationLibrary, ConversationStore, FileStore, snapshot_of
from transcript_store.cli._shared import terminal as _working
from transcript_store.cli.chat import session
from transcript_store.installation import install_command

__all__ = ["aimock"]


def test_help(cli: Cli) -> None:
    """It has a help text with examples, as every command."""
    code, out, err = cli("chat", "--help")
    assert (code, err) == (0, "")
    assert "examples:" in out
    assert "transcript-store chat" in out


def test_its_help_fits_into_eighty_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of every command."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["transcript-store"])
    assert too_wide(cli("chat", "--help").out) == []


# ---- turns -----------------------------------------------------------------------------------------------------------


def test_each_line_is_a_turn_and_the_next_process_continues(chat: Chat, tmp_path: Path) -> None:
    """Two lines are two turns; the command again sends the whole history; the first line says what is there."""
    chat.server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Two."), OPENAI.stream("You said one, two.")]
    first = chat(str(tmp_path / "c"), lines="one\n\n  \ntwo\n")
    assert (first.code, first.err) == (0, "")
    assert first.out == (
        f"{tmp_path}/c: a new conversation, with openai-compatible default (--base-url is given)\nHello.\nTwo.\n"
    )
    second = chat(str(tmp_path / "c"), lines="What did I say?")
    assert second.out == (
        f"{tmp_path}/c: 4 messages, with openai-compatible default (the conversation's provider)\nYou said one, two.\n"
    )
    assert second.err == "transcript-store: the model gets the whole conversation: 5 messages\n"
    with ConversationStore(tmp_path / "c", read_only=True) as stored:
        stored.load()
        assert OPENAI.messages(chat.server.bodies[-1]) == stored.get_messages()[:-1]


@pytest.mark.parametrize(
    "where", [["DIR"], ["--new"], []], ids=["a folder", "a new one of the library", "the last one"]
)
def test_secrets_are_taken_out_before_anything_is_recorded(
    chat: Chat, tmp_path: Path, home: Path, where: list[str]
) -> None:
    """`--redact`: neither disk nor model gets what was typed; the screen has what the model said."""
    token = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z0123"
    if not where:
        chat.server.answers += [OPENAI.stream("Hello.")]
        chat("--new", lines="Hi\n")
    chat.server.answers += [OPENAI.stream(f"Not {token}?")]
    arguments = [str(tmp_path / "c") if word == "DIR" else word for word in where]
    done = chat(*arguments, "--redact", lines=f"Use {token}\n")
    assert done.code == 0
    assert f"Not {token}?" in done.out
    with_title = 3 if where else 2  # the first question is the title too
    assert done.err.endswith(f"transcript-store: redacted: {with_title} github-token\n")
    folder = tmp_path / "c" if where == ["DIR"] else next(home.iterdir())
    assert said(folder)[-2:] == [("user", "Use [redacted:github-token]"), ("assistant", "Not [redacted:github-token]?")]
    assert token not in str(chat.server.bodies)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_title_does_not_end_in_half_a_secret(chat: Chat, tmp_path: Path, home: Path, is_named: bool) -> None:
    """It is the beginning of the first question, and half a token has no form that shows what it is."""
    token = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z0123"
    chat.server.answers += [OPENAI.stream("Well.")]
    where = str(tmp_path / "c") if is_named else "--new"
    assert chat(where, "--redact", lines=f"Use what I tell you here, it is {token}\n").code == 0
    with ConversationStore(where if is_named else next(home.iterdir()), read_only=True) as stored:
        stored.load()
        assert stored.get_metadata().labels["title"].startswith("Use what I tell you here, it is [redacted:")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and token[:8].encode() in path.read_bytes()]


@pytest.mark.parametrize("closed", [False, True])
def test_without_input_it_says_where_it_is(closed: bool, tmp_path: Path) -> None:
    """An empty or closed standard input is no turn: one line, exit 0; nothing is fetched, sent or created."""
    environment = {**ENVIRONMENT, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("XDG_DATA_HOME", *VARIABLES):
        environment.pop(name, None)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-' if closed else 'exec "$@" </dev/null', "sh", *COMMAND, "chat", "--ports", ""],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"{tmp_path}/.+/[0-9a-f-]{{36}}: a new conversation, with local {MODEL} \(no provider's key is in the environment\)\n",
        done.stdout,
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_model_says_cannot_steer_the_terminal(chat: Chat, tmp_path: Path) -> None:
    """Control sequences in answers, errors and what was said before are shown, not obeyed; on record they are as they came."""
    hostile = "a\x1b[2Jb\x07\x9b\u202ec"
    chat.server.answers += [OPENAI.stream(hostile), BUSY]
    result = chat(str(tmp_path / "c"), lines="hi\nagain\n")
    assert obeyed(result.out + result.err) == set()
    assert "\\x1b[2Jb" in result.out
    assert "busy \\x1b[2J" in result.err
    assert said(tmp_path / "c")[1] == ("assistant", hostile)


def test_an_answer_is_flushed_as_it_comes(server: Server, tmp_path: Path) -> None:
    """Each piece of an answer is there to be read before the next one came."""
    held = threading.Event()
    whole = OPENAI.stream("Hello.")

    def slowly() -> Answer:
        assert held.wait(60)
        return OPENAI.stream("Late.")

    server.answers += [whole, slowly]
    command = [*COMMAND, "chat", str(tmp_path / "c"), "--base-url", server.url, "--allow-insecure-base-url"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        assert b"a new conversation" in process.stdout.readline()
        assert process.stdout.readline() == b"Hello.\n"
        held.set()
        process.stdin.close()
        assert process.stdout.read() == b"Late.\n"
    assert process.returncode == 0


@pytest.mark.parametrize(("line", "why"), [(b"\xff\n", "is not UTF-8"), (b"x" * 3000 + b"\n", "is longer than")])
def test_a_line_that_cannot_be_a_message(
    cli: Cli, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, why: str
) -> None:
    """It ends the command with its number; what came before it is answered and on record."""
    monkeypatch.setattr("transcript_store.cli.chat.session.DEFAULT_MAX_LINE_BYTES", 2000)
    server.answers += [OPENAI.stream("Hello.")]
    where = ("--base-url", server.url, "--allow-insecure-base-url")
    result = cli("chat", str(tmp_path / "c"), *where, stdin=b"one\n" + line + b"three\n")
    assert result.code == 1
    assert f"line 2 {why}" in result.err
    assert said(tmp_path / "c") == [("user", "one"), ("assistant", "Hello.")]


# ---- which conversation ----------------------------------------------------------------------------------------------


def test_the_last_conversation_of_the_library(chat: Chat, home: Path) -> None:
    """Without DIR: the first call begins one, the next goes on with it, --new starts another, --resume goes back."""
    chat.server.answers += [OPENAI.stream(f"Answer {number}.") for number in range(4)]
    chat(lines="First question.\n")
    assert "2 messages" in chat(lines="Second question.\n").out
    assert "a new conversation" in chat("--new", lines="Something else.\n").out
    library = ConversationLibrary(home)
    newest, oldest = library.list()
    assert [newest.title, oldest.title] == ["Something else.", "First question."]
    assert "4 messages" in chat("--resume", oldest.id or "", lines="Third question.\n").out
    assert [summary.id for summary in library.list()] == [oldest.id, newest.id]


def test_list(chat: Chat, cli: Cli, home: Path) -> None:
    """--list shows each conversation as `list` does; with a DIR it is misuse."""
    assert cli("chat", "--list") == Result(0, f"{home}: there is no conversation yet\n", "")
    chat.server.answers += [OPENAI.stream("Hello.")]
    chat(lines="A question that goes on and on, so that a title of it has to be cut somewhere.\n")
    (summary,) = ConversationLibrary(home).list()
    line = cli("chat", "--list").out
    assert line.startswith("A question that goes on and on, so that a title of it has t…\t20")
    assert f"\t{summary.id}\t" in line
    assert cli("chat", "--list", str(home)).code == 2


def test_a_new_conversation_where_something_is(chat: Chat, tmp_path: Path) -> None:
    """--new with a DIR that exists is misuse, and touches nothing; with one that does not it begins there."""
    chat.server.answers += [OPENAI.stream("Hello.")]
    assert chat(str(tmp_path / "c"), "--new", lines="one\n").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    result = chat(str(tmp_path / "c"), "--new", lines="two\n")
    assert (result.code, result.out) == (2, "")
    assert "this one exists" in result.err
    assert {path: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before


@pytest.mark.parametrize("is_one_there", [False, True])
def test_a_new_conversation_is_not_the_last_one(cli: Cli, tmp_path: Path, is_one_there: bool) -> None:
    """`--new chats/last` contradicts itself, whether one is there or not; nothing is begun under that name."""
    if is_one_there:
        conversation(tmp_path / "c")
    result = cli("chat", "--new", str(tmp_path / "last"), stdin=b"hello\n")
    assert (result.code, result.out) == (2, "")
    assert "`last` means an existing one: name a new folder" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["c"] * is_one_there


@pytest.mark.parametrize(
    "arguments",
    [
        ("c", "--resume", "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"),
        ("--new", "--resume", "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"),
        ("--timeout", "0"),
        ("--timeout", "nan"),
        ("--provider", "claude-local"),
        ("--provider", "local", "--model", "another"),
        ("--provider", "local", "--base-url", "https://gateway.internal"),
        ("--provider", "openai-compatible"),
        ("--base-url", "http://127.0.0.1:1"),
        ("--base-url", "http://10.0.0.1:1", "--allow-insecure-base-url"),
        ("--base-url", "https://user:secret@gateway.internal"),
    ],
)
def test_misuse(cli: Cli, home: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2, one sentence, nothing created; a URL is never repeated."""
    result = cli("chat", *arguments, stdin=b"hello\n")
    assert (result.code, result.out) == (2, "")
    assert "secret" not in result.err
    assert not home.exists()


@pytest.mark.parametrize(
    ("given", "says"), [("long", "'long' is not a number of seconds"), ("0", "must be more than 0")]
)
def test_a_timeout_that_is_none_is_told_in_plain_words(cli: Cli, given: str, says: str) -> None:
    """Argparse would print the name of the function that reads it."""
    code, out, err = cli("chat", "--timeout", given)
    assert (code, out, f"argument --timeout: {says} (" in err) == (2, "", True)


def test_a_conversation_that_is_not_there_or_is_in_use(chat: Chat, cli: Cli, tmp_path: Path) -> None:
    for name in ("0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51", "0b8f", "today", "last"):
        result = cli("chat", "--resume", name)
        assert (result.code, result.out) == (1, "")
        assert f"there is no conversation '{name}'; `transcript-store chat --list` lists them" in result.err
    path = conversation(tmp_path / "c", provider="openai-compatible", model="m")
    with ConversationStore(path) as other:
        other.load()
        result = chat(path, lines="hi\n")
    assert (result.code, result.out) == (1, "")
    assert "--new starts another" in result.err


def test_an_empty_conversation_of_the_library_does_not_stay(
    chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that cannot be made leaves nothing behind."""
    result = chat("--provider", "openai", lines="hi\n")
    assert (result.code, "OPENAI_API_KEY" in result.err) == (2, True)
    monkeypatch.setenv("OPENAI_API_KEY", "no\x01header")
    result = chat("--provider", "openai", lines="hi\n")
    assert (result.code, "no HTTP header can carry" in result.err) == (2, True)
    assert ConversationLibrary(home).list() == []


# ---- what fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            trouble(401, "Incorrect API key: sk-the-key"),
            r"openai-compatible at 127\.0\.0\.1 refused the key \(401\); --retry asks again$",
        ),
        (trouble(404), r"does not know this model or address \(404\): because; --retry asks again$"),
        (
            trouble(400, "x" * 1000),
            r"refused the request \(400\): x{300}…; later questions are sent without it; /drop retracts it",
        ),
        (
            OPENAI.stream("Half", stop=False),
            r"the reply ended without a finish reason; the received part of the answer is kept; --retry asks again$",
        ),
    ],
)
def test_a_turn_that_fails(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, says: str
) -> None:
    """One sentence without the key, exit code 1, the lines after it are not sent; the next run goes on."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-key")
    chat.server.answers += [answer, OPENAI.stream("Here.")]
    result = chat(str(tmp_path / "c"), lines="hi\nnever sent\n")
    assert result.code == 1
    assert re.fullmatch(r"transcript-store: [^\n]*\n", result.err)
    assert re.search(says, result.err.strip())
    assert "sk-the-key" not in result.out + result.err
    assert chat(str(tmp_path / "c"), lines="Where were we?\n").out.endswith("Here.\n")
    assert ("user", "hi") in said(tmp_path / "c")
    assert ("user", "never sent") not in said(tmp_path / "c")


@pytest.mark.parametrize(
    ("dialect", "key", "address"),
    [
        ("claude", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ],
)
def test_a_wrong_key(
    cli: Cli, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, key: str, address: str
) -> None:
    """Whichever SDK says it: one sentence, and not the server's words, which may repeat the key."""
    monkeypatch.setenv(key, "sk-wrong")
    monkeypatch.setenv(address, server.url)
    server.answers += [trouble(401, "wrong: sk-wrong")]
    result = cli("chat", str(tmp_path / "c"), "--allow-insecure-base-url", stdin=b"hi\n")
    assert (result.code, result.err) == (
        1,
        f"transcript-store: {dialect} at 127.0.0.1 refused the key (401); --retry asks again\n",
    )


def test_no_network(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens: one sentence; the question is on record."""
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *_, **__: 0)
    where = ("--base-url", "http://127.0.0.1:9", "--allow-insecure-base-url")
    result = cli("chat", str(tmp_path / "c"), *where, stdin=b"hi\n")
    assert result.code == 1
    assert "openai-compatible at 127.0.0.1 cannot be reached (is it running, is there a network?)" in result.err
    assert said(tmp_path / "c") == [("user", "hi")]


def test_a_server_that_stalls(chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--timeout says how long; what is waited for is said after a second, and then what happened."""
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *_, **__: 0)
    monkeypatch.setattr(_working, "PATIENCE_SECONDS", 0.2)
    gone = threading.Event()

    def never() -> Answer:
        gone.wait(30)
        return OPENAI.stream("Too late.")

    chat.server.answers += [never] * 3
    result = chat(str(tmp_path / "c"), "--timeout", "0.3", lines="hi\n")
    gone.set()
    assert result.code == 1
    assert "waiting for openai-compatible at 127.0.0.1 …" in result.err
    assert "openai-compatible at 127.0.0.1 sent nothing for 0.3 seconds (--timeout)" in result.err


def test_missing_packages(cli: Cli, chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a provider's SDK, or what the command itself needs: what to install, and no conversation."""
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "openai", None)
        for arguments in ((), (str(home / "c"),)):
            result = chat(*arguments, lines="hi\n")
            assert result.code == 1
            assert f"{install_command('openai')}; or without a key: --provider local continues" in result.err
    assert not home.exists()
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "prompt_toolkit", None)
        patch.setattr("transcript_store.cli.chat.session.is_at_a_terminal", lambda: True)
        result = chat()
    assert (result.code, install_command("chat") in result.err) == (1, True)


def test_an_answer_that_ran_out_of_tokens_says_so(chat: Chat, tmp_path: Path) -> None:
    cut = OPENAI.stream("And so on")
    chat.server.answers += [Answer(cut.body.replace(b'"stop"', b'"length"'), content_type=cut.content_type)]
    result = chat(str(tmp_path / "c"), lines="hi\n")
    assert (result.code, "reached this model's limit" in result.err) == (0, True)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_is_shown_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: a line that counts, changes with what is done, and is gone at the end; and a bar for a download."""
    monkeypatch.setattr("sys.stderr", screen := Screen())
    monkeypatch.setattr(_working, "PATIENCE_SECONDS", 0.05)
    with _working.Working("reading\x1b[2J") as working:
        wait_until(lambda: "… 1 s" in screen.getvalue())
        working.what = "writing"
        wait_until(lambda: "writing … " in screen.getvalue())
    assert screen.getvalue().startswith("\r\x1b[Kreading\\x1b[2J … 1 s\r")
    assert screen.getvalue().endswith("\r\x1b[K")
    monkeypatch.setattr("sys.stderr", screen := Screen())
    with _working.bar("fetching") as progress:
        progress(1_500_000, 3_000_000)
    assert re.search("fetching.*1.5/3.0 MB", screen.getvalue())


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_a_progress_line_fits_its_line(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """A line that is longer than the terminal goes on on the next one, and each update of it would leave one behind."""
    monkeypatch.setattr("sys.stderr", screen := Screen())
    monkeypatch.setenv("COLUMNS", str(width))
    with _working.bar("fetching Qwen2.5-Coder-0.5B-Instruct (491 MB, once)") as progress:
        progress(250_000_000, 491_000_000)
    shown = screen.getvalue().split("\r\x1b[K")[1]
    assert len(shown) < width
    assert ("250.0/491.0 MB" in shown, "[####" in shown) == (width >= 80, width >= 80)


def test_a_quick_command_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    with _working.Working("reading"):
        pass
    assert screen.getvalue() == ""


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_last_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a resume: the last two questions and what came of them, shortened; calls by name, an interrupted answer as that."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]}
    with ConversationStore(tmp_path / "c") as stored:
        stored.initialize()
        stored.append_messages([{"role": "user", "content": "Long ago."}, {"role": "assistant", "content": "Yes."}])
        stored.append_messages([{"role": "user", "content": "one\ntwo\x1b[2J"}, call, result])
        stored.append_messages([{"role": "assistant", "content": "x" * 2000}, {"role": "user", "content": "And?"}])
        stored.append_message({"role": "assistant", "content": "Well"}, extra={"incomplete": {"reason": "cut"}})
        session.show_turns(stored.get_records())
    assert capsys.readouterr().out == (
        "> one\n  two\\x1b[2J\n[call look (c1)]\n[result (c1)]\n"
        f"{'x' * 1200} … (800 more characters)\n> And?\nWell\n(this answer was interrupted)\n"
    )


# ---- what the other commands make of it ------------------------------------------------------------------------------


def test_show_and_snapshot(chat: Chat, cli: Cli, tmp_path: Path) -> None:
    """`show` tells of usage and of an interrupted answer in words; a snapshot of the conversation can be stored."""
    chat.server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Half an", stop=False)]
    path = str(tmp_path / "c")
    chat(path, lines="one\ntwo\n")
    out = cli("show", path).out
    assert re.search(r"    \d+ tokens in, \d+ out; stop reason stop; model model-under-test\n", out)
    assert re.search(r"    Half an\n.*    interrupted: the reply ended without a finish reason\n", out, re.DOTALL)
    assert "partial" not in out
    assert "partial" in cli("show", path, "--full").out
    with ConversationStore(path, read_only=True) as stored:
        stored.load()
        store = FileStore(tmp_path / "snapshots")
        store.save(snapshot_of(stored))
    assert store.list()[0].message_count == 4


@pytest.mark.parametrize(
    ("extra", "shown"),
    [
        ({"usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3}}, "    3 tokens in, 3 out\n"),
        (
            {"usage": {"promptTokenCount": 1, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}},
            "    1 token in, 7 out\n",
        ),
        ({"usage": {"tokens": 3}}, '    extra\n      {"usage": {"tokens": 3}}\n'),
        ({"interrupted": ["c1", "c2"]}, "    interrupted: the outcome is unknown for c1, c2\n"),
        (
            {"tool_result": {"name": "add", "result": {"tool_use_id": "c1", "content": "7", "type": "tool_result"}}},
            "    the result of add, before the message with all results\n    result (c1)\n      7\n",
        ),
        ({"incomplete": 5, "x": 1}, '    extra\n      {"incomplete": 5, "x": 1}\n'),
    ],
)
def test_show_says_what_stands_beside_a_message(cli: Cli, tmp_path: Path, extra: dict[str, Any], shown: str) -> None:
    """Each provider's usage, results on their way, calls whose outcome nobody knows; anything else as JSON."""
    with ConversationStore(tmp_path / "c") as stored:
        stored.initialize()
        stored.append_event(extra)
    assert cli("show", str(tmp_path / "c")).out.endswith(shown)


# ---- against a server that nobody here wrote -------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("dialect", "key", "address"),
    [
        ("claude", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ],
)
def test_aimock(
    cli: Cli, aimock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, key: str, address: str
) -> None:
    """Each provider, chosen by its key: a turn, a refusal, a stall, a connection that drops; and it goes on after each."""
    assert {fault["match"]["userMessage"] for fault in FAULTS} >= {"refused", "stall", "dropped"}
    monkeypatch.setenv(key, "sk-the-key")
    monkeypatch.setenv(address, aimock + ("/v1" if dialect == "openai" else ""))

    def turn(line: str) -> Result:
        arguments = (str(tmp_path / "c"), "--allow-insecure-base-url", "--timeout", "1")
        return cli("chat", *arguments, stdin=line.encode())

    assert turn("story").out.endswith("and it was read.\n")
    for fault, says in {
        "refused": r"refused the request \(400\)",
        "stall": "sent nothing for 1 seconds",
        "dropped": "broke|the received part of the answer is kept",
    }.items():
        result = turn(fault)
        assert result.code == 1, fault
        assert re.search(says, result.err), (fault, result.err)
        assert "Traceback" not in result.err
    assert turn("Go on.").out.endswith("Here again.\n")


def test_a_server_that_repeats_a_key(chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With whatever status: its words are quoted, the key is not."""
    monkeypatch.setenv("SOME_API_KEY", "sk-canary-canary")
    chat.server.answers += [Answer(b'{"error": {"message": "bad key sk-canary-canary"}}', status=400)]
    result = chat(str(tmp_path / "c"), lines="hi\n")
    assert result.code == 1
    assert "bad key <SOME_API_KEY>" in result.err
