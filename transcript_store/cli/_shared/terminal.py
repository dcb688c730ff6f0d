r"""What the commands print, made safe: nothing stored reaches a terminal as a control sequence (P18).

Everything a command says goes through :func:`say`, :func:`say_json` or :func:`complain`, stored text and our own alike:
messages, metadata, paths, errors and warnings. Characters that a terminal obeys instead of showing, or that make text
look like other text, are shown as escapes such as ``\x1b``. We send no colours either, so an escape character on
the terminal can only be a progress bar, the line that says what is waited for, or the prompt of ``chat``, none of which
shows anything stored as it is.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from transcript_store.words import many as many  # noqa: PLC0414 (the commands find their words here)

PROGRAM = "transcript-store"

# C0 but for LF and tab, DEL, C1, the marks and overrides of bidirectional text, the line and paragraph separators, other
# format characters that show nothing, lone surrogates (what Python makes of file names that are not UTF-8), tags.
_UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u206f\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class Misuse(Exception):  # noqa: N818 (it is the user's)
    """What was asked for makes no sense; one sentence says why."""


def safe(text: str) -> str:
    """Text that may go to a terminal: line feeds and tabs stay, what a terminal would obey becomes an escape."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """The same on one line: for names, paths and errors, which must not be able to begin a line of their own."""
    return safe(text).replace("\n", "\\n").replace("\t", "\\t")


def time(at: str | None) -> str:
    """A stored time for a person."""
    at = str(at)  # only a file that somebody forged has something else here
    return one_line(f"{at[:10]} {at[11:19]} UTC")


def size(number: float) -> str:
    """A number of bytes for a person."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def as_json(value: Any, *, ascii_only: bool = False) -> str:
    r"""JSON on one line, in which those characters are ``\u`` escapes: the value is the same, the text is harmless."""
    return _UNSAFE.sub(_escape_json, json.dumps(value, ensure_ascii=ascii_only))


def say(text: str = "", *, now: bool = False) -> None:
    """Print a line, or several, on standard output; ``now`` flushes it."""
    encoding = _encoding()
    print(safe(text).encode(encoding, "backslashreplace").decode(encoding), flush=now)


def say_on(text: str) -> None:
    """Print a piece of a text that goes on, and flush it."""
    encoding = _encoding()
    print(safe(text).encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(as_json(value, ascii_only=_encoding() != "utf-8"))


def say_json_text(text: str) -> None:
    """Print JSON that is written already: the same value, with harmless characters only."""
    text = _UNSAFE.sub(_escape_json, text)
    print(text if _encoding() == "utf-8" else _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text))


def _encoding() -> str:
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name


def complain(text: str) -> None:
    """Print one line on standard error, after the program's name."""
    if sys.stderr is not None:  # print() takes None for standard output
        with suppress(OSError):  # nobody is there to complain to
            print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr, flush=True)


def is_at_a_terminal() -> bool:
    """Whether a person reads and types."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def status(text: str) -> None:
    """Show a line on standard error in place of the one that stands there: what is being waited for. Empty: none."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"\r\x1b[K{one_line(text)}", end="", file=sys.stderr, flush=True)


def has_status() -> bool:
    """Whether there is a terminal to show a status on."""
    return sys.stderr is not None and sys.stderr.isatty()


def flush() -> None:
    """Hand on what was said: an error of standard output belongs in front of the end, not after it."""
    if sys.stdout is not None:
        sys.stdout.flush()


def give_up_output() -> None:
    """Point standard output to nowhere, so that Python does not try once more at exit what just failed."""
    with suppress(OSError, AttributeError, ValueError):
        output = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output)
        os.close(null)


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Print the library's warnings (a torn tail was cut) as :func:`complain` does; they name paths, which are anybody's."""
    logger = logging.getLogger("transcript_store")
    handler = _Complainer(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def warnings_hidden() -> Iterator[None]:
    """Hide the library's warnings where they are expected, and told of in another way."""
    logger = logging.getLogger("transcript_store")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Complainer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(match[0])[1:-1]
