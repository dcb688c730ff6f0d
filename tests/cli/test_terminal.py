"""P18: nothing stored reaches a terminal as a control sequence.

A transcript holds what models, tools and web pages said, and a terminal obeys what it is sent: it can be made to rewrite
lines that were shown, to set its title, to type. So every command is run under a real pseudo-terminal on a conversation
that is hostile everywhere it can be: texts, roles, tool names, metadata, labels, extras, file names, error messages.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli, conversation, damage, lines, obeyed, tear, without_looks
from transcript_store import ConversationStore
from transcript_store.cli._shared.terminal import as_json, complain, one_line, safe, say, say_json

C0 = "".join(map(chr, range(0x20)))
C1 = "".join(map(chr, range(0x7F, 0xA0)))
BIDI = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
SEPARATORS = "\u2028\u2029"
SEQUENCES = "\x1b[7m\x1b[2J\x1b]0;title\x07\x1b]52;c;cm0=\x1b\\\x9b31m\x9d8;;http://x\x9c\x1bP1$r\x1b\\\x1bc"
HOSTILE = f"<{C0}{C1}{BIDI}{SEPARATORS}{SEQUENCES}>"
HOSTILE_NAME = "".join(c for c in HOSTILE if c not in "\0/")[:100]


def under_a_terminal(*arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    """Run a command whose output and errors go to a pseudo-terminal; returns its exit code and what the terminal got."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=slave, stderr=slave, env=ENVIRONMENT
        ) as process:
            os.close(slave)
            slave = -1
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            received = b""
            while True:
                try:
                    chunk = os.read(master, 1 << 16)
                except OSError:  # Linux: EIO once the last writer is gone
                    break
                if not chunk:  # macOS
                    break
                received += chunk
    finally:
        os.close(master)
        if slave >= 0:
            os.close(slave)
    return process.returncode, without_looks(received.decode("utf-8").replace("\r\n", "\n"))  # the terminal's own CR LF


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """A conversation that is hostile everywhere, in a folder whose name is, too."""
    directory = tmp_path / HOSTILE_NAME
    with ConversationStore(directory) as store:
        store.initialize(
            provider=HOSTILE,
            model=HOSTILE,
            system_prompt=HOSTILE,
            labels={HOSTILE: HOSTILE},
            tools=[{"name": HOSTILE, "description": HOSTILE}],
        )
        for message in (
            {"role": HOSTILE, "content": HOSTILE},
            {"type": HOSTILE, HOSTILE: HOSTILE},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": HOSTILE, "name": HOSTILE, "input": {HOSTILE: 1}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": HOSTILE, "content": HOSTILE}]},
            {"role": "assistant", "tool_calls": [{"id": HOSTILE, "function": {"name": HOSTILE, "arguments": HOSTILE}}]},
            {"role": "model", "parts": [{"functionCall": {"name": HOSTILE, "args": {HOSTILE: HOSTILE}}}]},
            {
                "role": "user",
                "content": [{"type": HOSTILE}, {"type": "image", "source": {"type": HOSTILE, "url": HOSTILE}}],
            },
            {"role": "user", "content": [{"type": "thinking", "thinking": HOSTILE}], HOSTILE: HOSTILE},
        ):
            store.append_message(message, extra={HOSTILE: HOSTILE})
    (directory / "quarantine").mkdir()
    (directory / "quarantine" / HOSTILE_NAME).write_text("x")
    (directory / "archive").mkdir()
    (directory / "archive" / HOSTILE_NAME).write_text("x")
    return str(directory)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "command",
    [("show",), ("show", "--full"), ("show", "--json"), ("verify",), ("verify", "--json"), ("head",), ("record",)],
)
def test_hostile_contents(hostile: str, command: tuple[str, ...]) -> None:
    """Every command on a hostile conversation: the terminal gets text and nothing to obey."""
    code, received = under_a_terminal(*command, hostile)
    assert code == 0
    assert obeyed(received) == set()
    if command == ("show", "--full"):
        assert "\\x1b]0;title\\x07" in received
    if command == ("show", "--json"):
        assert json.loads(received.split("\n")[0])["message"] == {"role": HOSTILE, "content": HOSTILE}


def test_hostile_damage(hostile: str) -> None:
    """Findings, errors and warnings name the path, and are as harmless."""
    tear(Path(hostile))
    code, received = under_a_terminal("verify", hostile)
    assert (code, obeyed(received)) == (1, set())
    code, received = under_a_terminal("record", hostile)
    assert (code, obeyed(received)) == (0, set())
    assert "recovered a torn tail" in received
    damage(Path(hostile), b"functionCall", b"functionCALL")
    for command in (("verify",), ("verify", "--json"), ("show",), ("head",), ("record",)):
        code, received = under_a_terminal(*command, hostile)
        assert (code, obeyed(received)) == (1, set())


def test_hostile_metadata_file(hostile: str) -> None:
    """So is the error about a metadata file that is damaged."""
    Path(hostile, "metadata.json").write_bytes(HOSTILE.encode())
    code, received = under_a_terminal("show", hostile)
    assert (code, obeyed(received), begun_lines(received)) == (1, set(), 1)


def begun_lines(received: str) -> int:
    """How many lines begin in the first column: what a sentence goes on in is indented, so that no name can imitate another one."""
    return sum(not line.startswith("  ") for line in received.splitlines())


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "line",
    [
        json.dumps({HOSTILE: 1})[:-1].encode() + b"," + json.dumps({HOSTILE: 1})[1:].encode(),
        f'{{"{SEQUENCES}":1}}'.encode(),
        SEQUENCES.encode(),
        b'{"\\u001b[31m\\u202e":1e999}',
        b"\xff\x1b[31m",
    ],
)
def test_hostile_input(tmp_path: Path, line: bytes) -> None:
    """An error about a line of input does not repeat what the line would do to a terminal."""
    code, received = under_a_terminal("record", str(tmp_path / "c"), stdin=line + b"\n")
    assert (code, obeyed(received)) == (1, set())
    assert "line 1: message" in received


@pytest.mark.parametrize("name", [HOSTILE_NAME, "\udcff\udc9b31m", "new\nline"])
def test_hostile_names(tmp_path: Path, name: str) -> None:
    """A path is repeated in an error in one piece, with escapes, bytes that are not UTF-8 included."""
    code, received = under_a_terminal("show", str(tmp_path / name))
    assert (code, obeyed(received), begun_lines(received)) == (1, set(), 1)


def test_names_that_are_not_utf8(cli: Cli, tmp_path: Path) -> None:
    """A folder whose name is not UTF-8 works like any other."""
    directory = str(tmp_path / "\udcff")
    try:
        Path(directory).mkdir()
    except OSError:
        pytest.skip("this file system wants UTF-8")
    assert cli("record", directory, stdin=lines({"n": 1})).out == "1\n"
    assert "\\udcff" in cli("show", directory).out
    assert json.loads(cli("verify", directory, "--json").out)["directory"] == directory


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "arguments",
    [
        (SEQUENCES,),
        ("show", "x", SEQUENCES),
        ("show", "x", "--last", SEQUENCES),
        ("record", "x", "--durability", SEQUENCES),
        (f"--{SEQUENCES}",),
    ],
)
def test_hostile_arguments(arguments: tuple[str, ...]) -> None:
    """Misuse is reported without repeating the argument as it is."""
    code, received = under_a_terminal(*arguments)
    assert (code, obeyed(received)) == (2, set())


def test_hostile_demo_directory(tmp_path: Path) -> None:
    """The demo draws a bar on a terminal, and still names its directory with escapes."""
    code, received = under_a_terminal(
        "demo", "--rounds", "1", "--seed", "1", "--directory", str(tmp_path / "\x1b]0;title\x07\u202e")
    )
    assert code == 0
    assert "\\x1b]0;title\\x07\\u202e" in received
    assert "]0;title\x07" not in received
    assert "\u202e" not in received


def test_only_one_module_prints() -> None:
    """What keeps it so: in the whole command line, only ``_shared/terminal.py`` prints."""
    folder = Path(sys.modules["transcript_store.cli"].__file__ or "").parent
    modules = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    printing = {name for name, text in modules.items() if re.search(r"\bprint\(|\bsys\.stderr\b", text)}
    assert printing == {"_shared/terminal.py"}


# ---- the functions ------------------------------------------------------------------------------------------------


def test_safe() -> None:
    """Every character that is obeyed becomes an escape; line feed, tab and everything readable stay."""
    assert obeyed(safe(HOSTILE)) == set()
    assert safe("a\n\tb é 漢字 عربي 👩\u200d🚀") == "a\n\tb é 漢字 عربي 👩\u200d🚀"
    assert safe("\x00\x1b\x9b\u202e\udcff\U000e0041") == "\\x00\\x1b\\x9b\\u202e\\udcff\\U000e0041"
    assert all(safe(chr(code)) != chr(code) for code in (*range(9), *range(11, 32), *range(127, 160)))
    assert safe(safe(HOSTILE)) == safe(HOSTILE)


def test_one_line() -> None:
    """A name or an error never begins a second line."""
    assert one_line("a\nb\tc\x1b") == "a\\nb\\tc\\x1b"


def test_as_json() -> None:
    """JSON keeps its value, on one line, and has nothing to obey in it; it can do without any but ASCII."""
    value = {HOSTILE: [HOSTILE, "é", "\udcff", 1.5, None]}
    assert json.loads(as_json(value)) == value
    assert obeyed(as_json(value)) == set()
    assert "\n" not in as_json(value)
    assert "é" in as_json(value)
    assert json.loads(as_json(value, ascii_only=True)) == value
    assert as_json(value, ascii_only=True).isascii()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_other_encodings(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """An output that cannot carry a character gets an escape, and JSON stays JSON."""
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    say("漢")
    say_json({"é": "漢"})
    output.flush()
    shown, as_value = output.buffer.getvalue().decode(encoding).splitlines()
    assert shown == "\\u6f22"
    assert as_value.isascii()
    assert json.loads(as_value) == {"é": "漢"}


def test_an_error_that_cannot_be_printed_is_no_second_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that cannot be said is no second error."""

    class Refusing(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Refusing())
    complain("x")


def test_plain_into_a_pipe(tmp_path: Path) -> None:
    """Into a pipe nothing is coloured or drawn, even if the environment asks for colours."""
    directory = conversation(tmp_path / "c", [{"role": "user", "content": "x"}])
    environment = {**ENVIRONMENT, "FORCE_COLOR": "1", "TERM": "xterm-256color", "TTY_COMPATIBLE": "1"}
    for command in (("show", directory), ("verify", directory), ("demo", "--rounds", "1", "--seed", "1")):
        done = subprocess.run([*COMMAND, *command], capture_output=True, check=True, env=environment)
        assert obeyed(done.stdout.decode()) == set(), command
        assert done.stderr == b""
