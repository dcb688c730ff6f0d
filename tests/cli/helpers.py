"""Shared by the tests of the command line: running a command, and conversations to run it on."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from transcript_store import ConversationStore

COMMAND = (sys.executable, "-m", "transcript_store")
"""The command as a process."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {"PYTHONUTF8": "1"}
"""Output is buffered, as it is for everybody: what must come at once must be flushed."""


class Result(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


class Cli(Protocol):
    """The fixture ``cli``: run a command in this process, with these bytes on its standard input."""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result: ...


def loaded_by(program: str) -> set[str]:
    """What is imported by a program, or by a command that this calls: all modules, ours without the package's name."""
    script = f"import sys\n{program}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return {name.removeprefix("transcript_store.") for name in done.stderr.split()}


def loaded_by_command(*arguments: str) -> set[str]:
    """What is imported by a command, which must end well."""
    return loaded_by(f"from transcript_store.cli import main\nassert main({[*arguments]!r}) == 0")


def on_a_terminal(
    *arguments: str, rows: int = 20, columns: int = 60, environment: Mapping[str, str] = ENVIRONMENT
) -> tuple[int, str]:
    """Run a command with all that it prints on a terminal; its exit code, and what the terminal got."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (rows, columns))
    said = b""
    try:
        process = subprocess.Popen((*COMMAND, *arguments), stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        with suppress(OSError):  # the end, as Linux says it
            while piece := os.read(master, 65536):
                said += piece
    finally:
        os.close(master)
    return process.wait(), said.decode().replace("\r\n", "\n")


def conversation(directory: Path, messages: Iterable[dict[str, Any]] = (), **metadata: Any) -> str:
    """Make a conversation; returns its path as a command takes it."""
    with ConversationStore(directory) as store:
        store.initialize(**metadata)
        for message in messages:
            store.append_message(message)
    return str(directory)


def tear(directory: Path) -> None:
    """Leave what a crash leaves: the beginning of a record."""
    with (directory / "transcript.jsonl").open("ab") as transcript:
        transcript.write(b'{"seq":99,"at":"2026-01-01T00')


def damage(directory: Path, old: bytes, new: bytes) -> None:
    """Change bytes that were stored."""
    path = directory / "transcript.jsonl"
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def lines(*messages: object) -> bytes:
    """Messages as a program would send them: one JSON value a line."""
    return b"".join(json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in messages)


_LOOKS = re.compile(r"\x1b\[(?:0|(?:[12349]|3[1-6])(?:;(?:[12349]|3[1-6]))*)m")


def too_wide(help: str) -> list[str]:
    """The lines of a help that a terminal of 80 columns would cut, except examples and lists of choices: those can be copied."""
    long = [line for line in help.splitlines() if len(line) > 80]
    return [line for line in long if not re.match(r"  .*transcript-store |  +\[--provider \{", line)]


def without_looks(text: str) -> str:
    r"""A text of ours on a terminal without how its pieces look. Of a transcript's own escapes at least ``\x1b[7m`` would be left."""
    return _LOOKS.sub("", text)


def obeyed(text: str) -> set[str]:
    """The characters in a text that a terminal would obey, or that would deceive who reads; told by what Unicode says."""
    allowed = {"\n", "\t", "\u200c", "\u200d", "\ufeff", "\u200b", "\u2060", "\u00ad"}
    return {
        character
        for character in text
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or character in "\u200e\u200f\u061c"
    } - allowed
