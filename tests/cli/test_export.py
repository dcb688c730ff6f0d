"""`export` at a terminal: losses as sentences, the command that resumes the session, and errors before any output."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import ENVIRONMENT, Cli, conversation, obeyed
from transcript_store import ConversationLibrary
from transcript_store.cli import export
from transcript_store.formats import WRITERS

HI, HELLO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
THOUGHT: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "tool_use", "id": "1", "name": "look", "input": {}},
    ],
}
FAILED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "no"}]}


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    return ConversationLibrary(tmp_path / "chats")


def test_losses_are_printed_as_sentences(cli: Cli, tmp_path: Path, library: ConversationLibrary) -> None:
    """One heading, and below it a line for each kind of thing with how often it is there, the most frequent first."""
    with library.create(provider="claude", messages=[HI, THOUGHT, FAILED, THOUGHT, FAILED, HELLO]) as store:
        for number in range(12):
            store.append_event({"n": number})
        directory = store.directory
    done = cli("export", directory, "--to", "codex", "--output", str(tmp_path / "out"))
    assert done.code == 0
    assert done.err.splitlines() == [
        "transcript-store: codex cannot hold all of it (the conversation here keeps it):",
        "    12 × an event stays here, as no model is sent one: a hook, a title, a branch that was left",
        "     2 × thinking was left out: another provider thought it, or its signature is missing",
        "     2 × a call failed: only the text of its result says so there",
        f"transcript-store: {tmp_path / 'out'}: the program reads its own folder: move these files there, or "
        "export without --output",
    ]


@pytest.mark.parametrize("to", ["jsonl", "markdown", "html", "pi"])
def test_a_missing_generation_is_the_only_output(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, to: str
) -> None:
    """A generation or a record that is not there: no header, no file, and the error says what there is."""
    with library.create(messages=[HI, HELLO]) as store:
        store.replace_transcript([HI])
        directory = store.directory
    output = ("--output", str(tmp_path / "out")) if to == "pi" else ()
    code, out, err = cli("export", directory, "--to", to, "--generation", "7", *output)
    assert (code, out) == (1, "")
    assert "there is no generation 7; there are 0, 1" in err
    code, out, err = cli("export", directory, "--to", to, "--through", "700", *output)
    assert (code, out) == (2, "")
    assert "there is no record 700: the conversation has 1 record" in err
    assert not (tmp_path / "out").exists()


def test_where_the_session_is_resumed(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is not there is an error in the program's own place, and a word of warning anywhere else."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with library.create(messages=[HI, HELLO], labels={"cwd": "/home/ada/nowhere"}) as store:
        directory = store.directory
    code, out, err = cli("export", directory, "--to", "claude-code", "--cwd", "/nonexistent")
    assert (code, out, "there is no directory /nonexistent" in err) == (2, "", True)
    assert not (tmp_path / ".claude").exists()
    done = cli("export", directory, "--to", "claude-code", "--cwd", "/nonexistent", "--output", str(tmp_path / "out"))
    assert (done.code, "create it before you resume" in done.err) == (0, True)
    assert "resume it: cd /nonexistent && claude --resume " in done.out
    assert f"{tmp_path / 'out'}: the program reads its own folder" in done.err
    assert "reads its own folder" not in cli("export", directory, "--to", "claude-code", "--cwd", str(tmp_path)).err
    done = cli("export", directory, "--to", "claude-code", "--output", str(tmp_path / "out"))
    assert "/home/ada/nowhere: the conversation took place there, and this directory does not exist here" in done.err
    assert "resume it: claude --resume " in done.out


def test_a_directory_that_no_system_can_have_is_one_that_is_not_there(
    cli: Cli, tmp_path: Path, library: ConversationLibrary
) -> None:
    """The label comes from another program's file."""
    with library.create(messages=[HI], labels={"cwd": "/home/ada\0/nowhere"}) as store:
        directory = store.directory
    done = cli("export", directory, "--to", "claude-code", "--output", str(tmp_path / "out"))
    assert (done.code, r"/home/ada\x00/nowhere: the conversation took place there" in done.err) == (0, True)


@pytest.mark.parametrize(
    "name",
    ["a b; rm -rf ~", "$(touch owned)", "it's", "\x1b[2J\x07", "new\nline", "\u202egpj", "-rf", "back\\slash'\x9b"],
)
def test_the_command_that_is_printed_means_one_directory(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, name: str
) -> None:
    """A source's directory may have any name. Pasted into a shell the command goes there, and does nothing else."""
    where = tmp_path / name
    where.mkdir()
    with library.create(messages=[HI, HELLO], labels={"cwd": str(where)}) as store:
        directory = store.directory
    done = cli("export", directory, "--to", "pi", "--output", str(tmp_path / "out"))
    assert (done.code, obeyed(done.out + done.err)) == (0, set())
    printed = done.out.splitlines()[-1].removeprefix("resume it: ")
    going, _, resuming = printed.rpartition(" && ")
    assert resuming.startswith("pi --session ")
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    shell = subprocess.run(
        ["bash", "-c", f"{going} && pwd -P"], env=environment, cwd=tmp_path, capture_output=True, check=True
    )
    assert shell.stdout == os.fsencode(f"{where}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, "chats", "out"})


def test_a_plain_directory_is_quoted_as_everywhere(cli: Cli, tmp_path: Path, library: ConversationLibrary) -> None:
    """Only what a terminal would obey needs another kind of quotes."""
    where = tmp_path / "it's me"
    where.mkdir()
    with library.create(messages=[HI, HELLO]) as store:
        directory = store.directory
    out = cli("export", directory, "--to", "pi", "--output", str(tmp_path / "out"), "--cwd", str(where)).out
    assert f"cd {shlex.quote(str(where))} && " in out


def test_a_terminal_is_given_no_page(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page goes to a file, 0600; on a terminal the command says so."""
    with library.create(messages=[HI, HELLO]) as store:
        directory = store.directory
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    done = cli("export", directory, "--to", "html")
    assert (done.code, done.out) == (2, "")
    assert "the page is not for a terminal: give --output PATH" in done.err
    page = tmp_path / "page.html"
    assert cli("export", directory, "--to", "html", "--output", str(page)).out == f"{page}\n"
    assert page.stat().st_mode & 0o777 == 0o600


_STOPS = """
import sys
from transcript_store.exporting import _files
def pieces():
    yield b"some"
    print("writing", flush=True)
    sys.stdin.read()
_files.write_new(sys.argv[1], pieces())
"""


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path, cli: Cli) -> None:
    """What another one writes just now into the same folder is not, and what it writes then gets its name."""
    path, out = conversation(tmp_path / "today"), tmp_path / "out"

    def left() -> list[Path]:
        return list(out.glob(".transcript-store-*.tmp"))

    def export(name: str) -> None:
        assert cli("export", path, "--to", "jsonl", "--output", str(out / name)).code == 0

    command = [sys.executable, "-c", _STOPS]
    for ending in ("killed", "told to go on"):
        with subprocess.Popen(
            [*command, str(out / ending)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            (beside,) = left()
            export(f"while one is {ending}")
            assert left() == [beside]
            if ending == "killed":
                writer.kill()
            else:
                writer.communicate()
        assert left() == ([beside] if ending == "killed" else [])
        export(f"behind one that was {ending}")
        assert left() == []
    assert not (out / "killed").exists()
    assert (out / "told to go on").read_bytes() == b"some"


def test_the_help_names_every_program() -> None:
    """It has the names by heart, so that no format is imported for them."""
    assert tuple(writer.name for writer in WRITERS) == export.PROGRAMS


@pytest.mark.parametrize("to", ["jsonl", "markdown", "html", *(writer.name for writer in WRITERS)])
def test_no_secret_is_in_any_redacted_form(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """In the model's name, too: it had stayed in `--to jsonl`, `claude-code` and `pi`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    token = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"
    given: dict[str, Any] = {
        "model": f"m-{token}",
        "system_prompt": token,
        "labels": {"title": token, "cwd": str(tmp_path)},
    }
    messages = [{"role": "user", "content": token}, {"role": "assistant", "content": token}]
    with library.create(provider="claude", messages=messages, **given) as store:
        directory = store.directory
    done = cli("export", directory, "--to", to, "--redact", "--output", str(tmp_path / "out"))
    assert done.code == 0, done.err
    written = [path for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")] if path.is_file()]
    assert written
    assert not [path for path in written if token.encode() in path.read_bytes()]
