"""``transcript-store fork``: copy a conversation, or its beginning, into a new one."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json, add_through, path
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import destination, fork_of, is_backend_address, library_at, with_id
from transcript_store.cli._shared.providers import PROVIDERS, fork_for_provider
from transcript_store.cli._shared.terminal import Misuse, Working, say, say_json

DESCRIPTION = f"""\
Copy a conversation into a new one beside it, or into another library, and print the new one's id. Records keep their
times; the new conversation names the record where it left the old one. The old one may have a live writer.

With --provider the copy has another provider's form, to continue with it. What that form cannot hold is reported, and stays here.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store fork chats/today
  transcript-store fork chats/0b8f --through 12
  transcript-store fork chats/last --into archive
  transcript-store fork 0b8f --provider local           continue with another model: chat ID
  transcript-store fork chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    add_through(parser)
    parser.add_argument("--into", metavar="LIBRARY", type=path, help="the library to copy into (default: its own)")
    parser.add_argument("--provider", choices=PROVIDERS, help="convert the copy to this provider's form")
    add_keys(parser, what="the key; the fork is sealed with it too")
    add_json(parser, "one JSON object with id and directory")


def run(arguments: Namespace) -> int:
    """Fork the conversation, and print the new one's id."""
    into = None if arguments.into is None else destination(arguments.into)
    options = command_keys(arguments).options
    if into is None:
        into = (
            with_id(arguments.directory)[0]
            if is_backend_address(arguments.directory)
            else os.path.dirname(arguments.directory)
        )
    library = library_at(into, creates=arguments.into is not None, **options)
    if arguments.provider is not None and arguments.through is not None:
        raise Misuse("--provider copies the whole conversation: fork --through first, then fork that copy")
    try:
        with Working("copying") as working:
            fork = (
                fork_for_provider(arguments.directory, arguments.provider, library, working, **options)
                if arguments.provider is not None
                else fork_of(arguments.directory, library, through_seq=arguments.through, **options)
            )
    except ValueError:
        raise Misuse(f"there is no record {arguments.through}: the conversation has fewer") from None
    if arguments.json:
        say_json({"id": fork, "directory": f"{library.directory}/{fork}"})
    else:
        say(fork)
    return 0
