r"""What the commands print, made safe: nothing stored reaches a terminal as a control sequence (P18).

Everything that a command prints goes through the functions of this module: messages, metadata, paths, errors and
warnings, stored text and our own alike. Some characters make a terminal do something instead of being shown; others make
text look like other text. Both kinds are printed as escapes such as ``\x1b``.

The commands send no colours. Only three things send escape characters: the progress bar, the line that says what is being
waited for, and the prompt of ``chat``. None of them shows stored text unescaped.
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

# In this order: C0 except LF and tab, DEL and C1, the marks and overrides of bidirectional text, the line and paragraph
# separators, other invisible format characters, lone surrogates (Python's form of file names that are not UTF-8), tags.
_UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u206f\\ufff9-\\ufffb"
    "\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class Misuse(Exception):  # noqa: N818 (it is the user's)
    """The arguments make no sense together. Its one sentence says why, and the exit code is 2."""


def safe(text: str) -> str:
    """Text that is safe on a terminal: control characters become escapes. Line feeds and tabs stay."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """Text that is safe on a terminal, on one line: for names, paths and errors, which must not begin a new line."""
    return safe(text).replace("\n", "\\n").replace("\t", "\\t")


def time(at: str | None) -> str:
    """A stored time, for a person."""
    at = str(at)  # it is a text, except in a file that somebody forged
    return one_line(f"{at[:10]} {at[11:19]} UTC")


def size(number: float) -> str:
    """A number of bytes, for a person."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def as_json(value: Any, *, ascii_only: bool = False) -> str:
    r"""A value as JSON on one line. Unsafe characters are ``\u`` escapes: the value is the same, the text is harmless."""
    return _UNSAFE.sub(_escape_json, json.dumps(value, ensure_ascii=ascii_only))


def say(text: str = "", *, now: bool = False) -> None:
    """Print one or more lines on standard output. ``now`` flushes them."""
    encoding = _encoding()
    print(safe(text).encode(encoding, "backslashreplace").decode(encoding), flush=now)


def say_on(text: str) -> None:
    """Print a piece of a line without ending the line, and flush it."""
    encoding = _encoding()
    print(safe(text).encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(as_json(value, ascii_only=_encoding() != "utf-8"))


def say_json_text(text: str) -> None:
    """Print JSON text with its unsafe characters escaped: the value is the same."""
    text = _UNSAFE.sub(_escape_json, text)
    print(text if _encoding() == "utf-8" else _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text))


def _encoding() -> str:
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name


def complain(text: str) -> None:
    """Print one line on standard error, after the program's name."""
    if sys.stderr is not None:  # print(file=None) would print on standard output
        with suppress(OSError):  # standard error is closed, too: there is no place left to say anything
            print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr, flush=True)


def is_at_a_terminal() -> bool:
    """Whether both standard input and standard output are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def status(text: str) -> None:
    """Replace the status line on standard error, which says what is being waited for. An empty text removes it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"\r\x1b[K{one_line(text)}", end="", file=sys.stderr, flush=True)


def has_status() -> bool:
    """Whether standard error is a terminal, on which a status can be shown."""
    return sys.stderr is not None and sys.stderr.isatty()


def flush() -> None:
    """Flush standard output. Called before the end: there a full disk can still be reported, as any other error."""
    if sys.stdout is not None:
        sys.stdout.flush()


def give_up_output() -> None:
    """Point standard output to /dev/null. Else Python would flush it again at exit, and fail again."""
    with suppress(OSError, AttributeError, ValueError):
        output = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output)
        os.close(null)


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Print the library's warnings (a torn tail was cut) with :func:`complain`.

    They name paths, and a path may hold control characters.
    """
    logger = logging.getLogger("transcript_store")
    handler = _Complainer(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def warnings_hidden() -> Iterator[None]:
    """Hide the library's warnings, where the command expects them and reports them in its own words."""
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
