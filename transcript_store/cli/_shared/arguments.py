"""What the commands ask for on the command line in the same way."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError


def add_directory(parser: ArgumentParser) -> None:
    """Add DIR, the conversation's directory."""
    parser.add_argument("directory", metavar="DIR", type=path, help="the conversation's directory")


def add_library(parser: ArgumentParser) -> None:
    """Add LIBRARY and ID: a conversation in a library."""
    parser.add_argument("library", metavar="LIBRARY", type=path, help="the directory that holds the conversations")
    parser.add_argument("id", metavar="ID", help="the conversation's id, which is its folder's name")


def add_json(parser: ArgumentParser, what: str) -> None:
    """Add ``--json``; ``what`` says what is printed then."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")


def path(text: str) -> str:
    """A path: any text but an empty one."""
    if not text:
        raise ArgumentTypeError("a path must not be empty")
    return text


def count(text: str) -> int:
    """A number from 0."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


def positive(text: str) -> int:
    """A number from 1."""
    if not (number := count(text)):
        raise ArgumentTypeError("must be at least 1")
    return number
