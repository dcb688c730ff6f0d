"""``transcript-store serve``: a library in the browser."""

from __future__ import annotations

import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.keys import add_keys, keys_of
from transcript_store.cli._shared.libraries import libraries
from transcript_store.cli._shared.places import library_at
from transcript_store.cli._shared.terminal import complain, one_line, say
from transcript_store.serving import serve

DESCRIPTION = """\
Show a library in the browser, by default that of `chat`: the list, a search over everything, and each conversation as `view`
shows it, with what is appended as it comes. It answers this machine's browser alone, at an address that nobody can guess.
That address stands in one file that only you can read; the browser is led there by it. Nothing in the library is changed and
no lock is taken. Ctrl-C ends it. With their key sealed conversations are shown too; nothing of them is written anywhere.
LIBRARY may be the address of a place: nothing there is claimed.
"""
EPILOG = """\
examples:
  transcript-store serve
  transcript-store serve chats
  transcript-store serve postgresql://keeper@db.example/agents
  transcript-store serve chats --no-open     prints the file that leads there; open it yourself
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("library", metavar="LIBRARY", nargs="?", type=path, help="which (default: that of `chat`)")
    parser.add_argument("--no-open", action="store_true", help="open no browser")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Serve until it is interrupted."""
    keys = keys_of(arguments)
    (directory,) = libraries([arguments.library] if arguments.library else [], on_places=True)

    def ready(entrance: str) -> None:
        say(one_line(entrance), now=True)
        if not arguments.no_open and not webbrowser.open(Path(entrance).as_uri()):
            complain("there is no browser to open it; open the file yourself")

    def failed(error: BaseException) -> None:
        complain(f"a page could not be made: {type(error).__name__}: {error}")

    serve(library_at(directory), ready=ready, failed=failed, **keys.options)
    return 0
