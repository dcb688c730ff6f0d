"""The arguments that several commands have in common."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

NAMES = """\
A conversation is named by its folder, or in a directory of conversations by its id, the beginning of its id (at least four
characters), or `last`: chats/today, chats/0b8f, chats/last. Without a directory it is looked for in this one, and then among
those of `chat`.
"""


def add_conversation(parser: ArgumentParser) -> None:
    """Add CONVERSATION, the name of a conversation that exists.

    The command finds its path in ``arguments.directory``: ``main()`` puts it there before it runs the command.
    """
    parser.add_argument("directory", metavar="CONVERSATION", type=path, help="its folder, DIR/ID, or DIR/last")
    parser.set_defaults(names_a_conversation=True)


def add_conversation_in_two_words(parser: ArgumentParser) -> None:
    """Add CONVERSATION, which may also be given in two words: LIBRARY ID."""
    add_conversation(parser)
    parser.add_argument("id", metavar="ID", nargs="?", type=_name, help="its id, if the first argument is its library")


def add_directory(parser: ArgumentParser) -> None:
    """Add DIR, the directory of a conversation that may not exist yet."""
    parser.add_argument("directory", metavar="DIR", type=path, help="the conversation's directory")


def add_json(parser: ArgumentParser, what: str) -> None:
    """Add ``--json``. ``what`` names what it prints, for the help."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")


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
