"""``transcript-store view``: write a conversation as one HTML file."""

from __future__ import annotations

import gc
import os
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transcript_store import ConversationStore
from transcript_store.cli._shared.arguments import NAMES, path, whole_number
from transcript_store.cli._shared.filters import say_not_read
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import (
    called,
    conversation_at,
    existing,
    is_backend_address,
    require_outside,
    summary_at,
    the_library,
    with_id,
)
from transcript_store.cli._shared.redaction import add_redact, redaction_counts, redactor_of
from transcript_store.cli._shared.terminal import Misuse, RawOutput, Working, complain, many, one_line, say
from transcript_store.naming import file_name_of
from transcript_store.view import write_page, write_site

DESCRIPTION = f"""\
Write a conversation as one HTML file: prompts as an outline, Markdown, code in colours, calls with their results, edits as
diffs, search, light and dark. The page runs no code of the conversation and makes no network request. The conversation is not
changed, and no lock is taken. A damaged one is shown as far as it can be read, with its damage. Pages are never encrypted: the
page of a sealed conversation shows its text.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store view chats/today --open
  transcript-store view chats/last --output today.html
  transcript-store view --all site chats            a page for each, and an index with a search
  transcript-store view chats/0b8f --plain          for a reader without scripts
  transcript-store view chats/0b8f --redact         without keys and tokens, to share it
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "directory",
        metavar="CONVERSATION",
        nargs="?",
        type=path,
        help="its folder, DIR/ID, or DIR/last; with --all a library (default: that of `chat`)",
    )
    parser.add_argument("id", metavar="ID", nargs="?", help="its id, if the first argument is its library")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=path,
        help="the file to write (default: its name and its last day, here; -: standard output); missing folders are created",
    )
    parser.add_argument(
        "--all", metavar="DIR", type=path, help="write all pages of a library into this folder, with an index"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--plain", action="store_true", help="a page without scripts, with every message")
    parser.add_argument("--generation", metavar="N", type=whole_number, help="an archived generation (see generations)")
    add_redact(parser)
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Write the page, or all of them, and print the path."""
    if arguments.output == "-" and arguments.open:
        raise Misuse("--open needs a file: it cannot be combined with --output -")
    if arguments.all is not None:
        if arguments.output is not None or arguments.generation is not None or arguments.id is not None:
            raise Misuse(
                "--all DIR writes all pages of a library: do not give a conversation, --output or --generation"
            )
        return _write_all(arguments)
    if arguments.directory is None:
        raise Misuse("the conversation is missing: give its folder, its id, or `last`; --all DIR writes all pages")
    directory = existing(arguments.directory, arguments.id)
    keys, redactor = command_keys(arguments), redactor_of(arguments)
    output = arguments.output or f"{_file_name(directory)}.html"
    with Working("writing the page"), _without_collections(), ExitStack() as stack:
        source: str | ConversationStore = directory
        options = keys.options
        if is_backend_address(directory):
            there = stack.enter_context(conversation_at(directory, read_only=True, **options))
            there.load()
            source, options = there, {}
        written = write_page(
            source,
            RawOutput("page") if output == "-" else output,
            generation=arguments.generation,
            plain=arguments.plain,
            redact=redactor,
            **options,
        )
    if redactor is not None:
        complain(redaction_counts(written.redacted))
    return _say_and_open(arguments, written.path)


def _file_name(directory: str) -> str:
    """The page's file name: the conversation's name and last day. For a sealed one it reveals nothing."""
    summary = summary_at(directory)
    if summary is None:
        return with_id(directory)[1] if is_backend_address(directory) else os.path.basename(directory)
    return file_name_of(called(summary), summary.updated_at)


def _write_all(arguments: Namespace) -> int:
    library, redactor = the_library(arguments.directory), redactor_of(arguments)
    require_outside(arguments.all, library)
    with Working("writing the pages"), _without_collections():
        options = command_keys(arguments).options
        written = write_site(library, arguments.all, plain=arguments.plain, redact=redactor, **options)
    say_not_read(written.failed, "view")
    if redactor is not None:
        complain(redaction_counts(written.redacted))
    say(f"{many(written.pages, 'page')}, with an index:", now=True)
    return max(_say_and_open(arguments, written.path), int(bool(written.failed)))


def _say_and_open(arguments: Namespace, path: str) -> int:
    if path:
        say(one_line(path))
    if arguments.open and not webbrowser.open(Path(path).as_uri()):
        complain("no browser was found: open the file yourself")
        return 1
    return 0


@contextmanager
def _without_collections() -> Iterator[None]:
    """A page's objects have no reference cycles: without the garbage collector it takes a twelfth less time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
