"""The arguments that several commands have in common."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from contextlib import suppress
from datetime import datetime

from transcript_store.words import MOMENTS, moment

NAMES = """\
A conversation is named by its folder, or in a directory of conversations by its id, the beginning of its id (at least four
characters), or `last`: chats/today, chats/0b8f, chats/last, ./last. An id or `last` without a directory is one of the library that
`list` shows: that of `chat`, or what TRANSCRIPT_STORE_LIBRARY names. A conversation on a place is named by the address of that:
postgresql://host/database/ID, s3://bucket/prefix/last.
"""


def add_conversation(
    parser: ArgumentParser, *, in_one_word: bool = False, on_places: bool = False, or_library: bool = False
) -> None:
    """Add CONVERSATION, the name of a conversation that exists. It may also be given in two words: LIBRARY ID.

    A command with words of any number behind it takes it ``in_one_word``: the second word would be ambiguous. The command
    finds its path in ``arguments.directory``: ``main()`` puts it there before it runs the command. If the command works ``on_places``,
    it may be the address of a conversation; otherwise ``main()`` refuses that. With ``or_library`` the address of a library stays one.
    """
    what = "its folder, DIR/ID, or DIR/last" + ("; or a library, for all that are in it" if or_library else "")
    parser.add_argument("directory", metavar="CONVERSATION", type=path, help=what)
    parser.set_defaults(names_a_conversation=True, id=None, on_places=on_places, or_library=or_library)
    if not in_one_word:
        what = "its id, if the first argument is its library"
        parser.add_argument("id", metavar="ID", nargs="?", type=_name, help=what)


def add_directory(parser: ArgumentParser) -> None:
    """Add DIR, the directory of a conversation that may not exist yet."""
    parser.add_argument("directory", metavar="DIR", type=path, help="the conversation's directory")


def add_json(parser: ArgumentParser, what: str) -> None:
    """Add ``--json``. ``what`` names what it prints, for the help."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")


def add_through(parser: ArgumentParser) -> None:
    """Add ``--through``, by whose other name the library's argument is called."""
    parser.add_argument(
        "--through", "--through-seq", metavar="SEQ", type=count, help="only the records up to this number"
    )


def path(text: str) -> str:
    """The type of an argument that is a path: any text except an empty one."""
    if not text:
        raise ArgumentTypeError("a path must not be empty")
    return text


def _name(text: str) -> str:
    """The type of an argument that names something in a directory, and is not a path itself."""
    if text in ("", ".", "..") or "/" in text:
        raise ArgumentTypeError(f"{text!r} is not an id, the beginning of one, a folder's name, or 'last'")
    return text


def count(text: str) -> int:
    """The type of an argument that is a whole number from 0. (18 digits fit into 64 bits.)"""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


def positive(text: str) -> int:
    """The type of an argument that is a whole number from 1."""
    if not (number := count(text)):
        raise ArgumentTypeError("must be at least 1")
    return number


def seconds(text: str) -> float:
    """The type of an argument that is a number of seconds, from 0."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < float("inf"):
            return number
    raise ArgumentTypeError(f"{text!r} is not a number of seconds")


def since(text: str) -> datetime:
    """The type of an argument that is a moment."""
    if (at := moment(text)) is None:
        raise ArgumentTypeError(f"{text!r} is no moment; give {MOMENTS}")
    return at
