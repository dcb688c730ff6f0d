"""Arguments that several commands share."""

from __future__ import annotations

import io
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from textwrap import fill, wrap
from typing import BinaryIO

from transcript_store.cli._shared.terminal import terminal_columns
from transcript_store.display import MOMENTS, moment

NAMES = """\
Name a conversation by its folder, or in a directory of conversations by its id, the start of its id (at least four characters),
or `last`: chats/today, chats/0b8f, chats/last, ./last. An imported session is also found by the id that its program gave it. An
id or `last` without a directory is in the default library: that of `chat`, or the one that TRANSCRIPT_STORE_LIBRARY names. Name a
conversation on a backend by its address: postgresql://host/database/ID, s3://bucket/prefix/last.
"""


def add_conversation(
    parser: ArgumentParser,
    *,
    in_one_word: bool = False,
    on_backends: bool = False,
    or_library: bool = False,
    or_none: bool = False,
) -> None:
    """Add CONVERSATION, the name of a conversation that exists. It may also be given in two words: LIBRARY ID.

    A command that takes more words after it uses ``in_one_word``: the second word would be ambiguous. The command
    finds its path in ``arguments.directory``: ``main()`` puts it there before it runs the command. If the command works ``on_backends``,
    it may be the address of a conversation; otherwise ``main()`` refuses that. With ``or_library`` the address of a library stays one.
    With ``or_none`` it may be left out, which means the default library.
    """
    what = "its folder, DIR/ID, or DIR/last" + ("; or a library, for all of its conversations" if or_library else "")
    what += " (default: the library of `chat`)" if or_none else ""
    parser.add_argument("directory", metavar="CONVERSATION", type=path, nargs="?" if or_none else None, help=what)
    parser.set_defaults(names_a_conversation=True, id=None, on_backends=on_backends, or_library=or_library)
    if not in_one_word:
        what = "its id, if the first argument is its library"
        parser.add_argument("id", metavar="ID", nargs="?", type=conversation_name, help=what)


def add_directory(parser: ArgumentParser) -> None:
    """Add DIR, the directory of a conversation that may not exist yet."""
    parser.add_argument("directory", metavar="DIR", type=path, help="the conversation's directory")


def add_json(parser: ArgumentParser, what: str) -> None:
    """Add ``--json``. ``what`` names what it prints, for the help."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")


def add_through(parser: ArgumentParser) -> None:
    """Add ``--through``, whose other name is that of the library's argument."""
    parser.add_argument(
        "--through", "--through-seq", metavar="SEQ", type=whole_number, help="only the records up to this number"
    )


def path(text: str) -> str:
    """The type of an argument that is a path: any text except an empty one."""
    if not text:
        raise ArgumentTypeError("a path must not be empty")
    return text


def conversation_name(text: str) -> str:
    """The type of an argument that names something in a directory, and is not a path itself."""
    if text in ("", ".", "..") or "/" in text:
        raise ArgumentTypeError(f"{text!r} is not an id, the start of one, a folder's name, or 'last'")
    return text


def whole_number(text: str) -> int:
    """The type of an argument that is a whole number from 0. (18 digits fit into 64 bits.)"""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


def positive(text: str) -> int:
    """The type of an argument that is a whole number from 1."""
    if not (number := whole_number(text)):
        raise ArgumentTypeError("must be at least 1")
    return number


def seconds(text: str) -> float:
    """The type of an argument that is a number of seconds, from 0."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < float("inf"):
            return number
    raise ArgumentTypeError(f"{text!r} is not a number of seconds")


def since(text: str) -> datetime:
    """The type of an argument that is a time."""
    if (at := moment(text)) is None:
        raise ArgumentTypeError(f"{text!r} is not a time; use {MOMENTS}")
    return at


# ---- helping ----
#
# Help text, as wide as the terminal.

_WIDEST = 118
_LAST_COLUMN = re.compile(r"(.*\S {2,})(\S.*)")
_NARROWEST = 24


class HelpFormatter(RawDescriptionHelpFormatter):
    """Fill paragraphs. Keep indented lines, so that examples can be copied; wrap only the last column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(width, _WIDEST)
        lines = []
        for is_prose, some in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            if is_prose:
                paragraph = " ".join(some)  # a name with a hyphen is not broken
                lines += [
                    fill(paragraph, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
                ]
            else:
                lines += [kept for line in some for kept in _in_columns(indent + line, width)]
        return "\n".join(lines)


def _in_columns(line: str, width: int) -> list[str]:
    columns = _LAST_COLUMN.fullmatch(line)
    if len(line) <= width or columns is None or width - len(columns[1]) < _NARROWEST:
        return [line]
    below = " " * len(columns[1])
    return wrap(columns[2], width, initial_indent=columns[1], subsequent_indent=below, break_on_hyphens=False)


# ---- input ----
#
# Standard input as lines of bytes. It may be a terminal, a pipe or a file, and it may be closed.


def standard_input() -> BinaryIO:
    """The stream to read from. It is empty if standard input is closed."""
    if sys.stdin is None:
        return io.BytesIO()
    with suppress(OSError):
        # Node gives its children a non-blocking pipe. A read of one returns nothing while it is empty, and that looks like
        # the end of the input.
        os.set_blocking(sys.stdin.fileno(), True)
    return sys.stdin.buffer


def lines(source: BinaryIO, *, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines, each with its number, from 1.

    A line longer than ``max_bytes`` is cut after ``max_bytes + 1`` bytes: the caller sees that it is too long, and should
    read no further, because the rest of the line would come next.
    """
    number = 0
    while line := source.readline(max_bytes + 1):
        number += 1
        if len(line) > max_bytes or line.strip(b" \t\r\n"):
            yield number, line
