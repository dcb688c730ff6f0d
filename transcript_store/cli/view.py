"""``transcript-store view``: a conversation as one HTML file, to be looked at in a browser."""

from __future__ import annotations

import gc
import os
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transcript_store.cli._shared.arguments import NAMES, add_conversation, count, path
from transcript_store.cli._shared.keys import add_keys, keys_of
from transcript_store.cli._shared.places import conversation_at, is_address, with_id
from transcript_store.cli._shared.progress import Working
from transcript_store.cli._shared.redaction import add_redact, redacted, redactor_of
from transcript_store.cli._shared.terminal import Misuse, RawOutput, complain, one_line, say
from transcript_store.view import write_page

DESCRIPTION = f"""\
Write a conversation as one HTML file: prompts as an outline, Markdown, code in colours, calls with their results, edits as
diffs, search, light and dark. The page runs nothing of the conversation and asks the network for nothing, ever. Nothing of
the conversation is changed, and no lock is taken. A damaged one is shown as far as it can be read, with what is damaged. The page of a
sealed one is plain, as every page is: it has what was sealed.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store view chats/today --open
  transcript-store view chats/last --output today.html
  transcript-store view chats/0b8f --plain          for a reader without scripts
  transcript-store view chats/0b8f --redact         without keys and tokens, to hand it on
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=path,
        help="the file to write (default: its folder's name, here; -: standard output); missing folders are made",
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--plain", action="store_true", help="a page that needs no scripts: every message is in it")
    parser.add_argument("--generation", metavar="N", type=count, help="what it was before a replace (see generations)")
    add_redact(parser)
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Write the page, and say where it is."""
    if arguments.output == "-" and arguments.open:
        raise Misuse("--open needs a file, and --output - writes none")
    name = with_id(arguments.directory)[1] if is_address(arguments.directory) else os.path.basename(arguments.directory)
    output = arguments.output or f"{name}.html"
    keys, redactor = keys_of(arguments), redactor_of(arguments)
    with Working("writing the page"), _without_collections(), ExitStack() as stack:
        source, options = arguments.directory, keys.options
        if is_address(source):
            source, options = stack.enter_context(conversation_at(source, read_only=True, **options)), {}
            source.load()
        written = write_page(
            source,
            RawOutput("page") if output == "-" else output,
            generation=arguments.generation,
            plain=arguments.plain,
            redact=redactor,
            **options,
        )
    if redactor is not None:
        complain(redacted(written.redacted))
    if written.path:
        say(one_line(written.path))
    if arguments.open and not webbrowser.open(Path(written.path).as_uri()):
        complain("there is no browser to open it; open the file yourself")
        return 1
    return 0


@contextmanager
def _without_collections() -> Iterator[None]:
    """What a page is made of refers to nothing in circles, and the collector would look for some again and again: a twelfth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
