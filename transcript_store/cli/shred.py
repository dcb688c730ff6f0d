"""``transcript-store shred``: destroy the key of a sealed conversation."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store import Shredding
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json
from transcript_store.cli._shared.names import is_backend_address, library_at, printable_name, with_id
from transcript_store.cli._shared.terminal import complain, confirmed, is_at_a_terminal, one_line, say, say_json
from transcript_store.file_names import is_id

DESCRIPTION = f"""\
Destroy the key of a sealed conversation: its transcript, archive and quarantine can never be read again, unless there is a
backup of its file key.json. It stays listed; `delete` removes it. This needs no key.

It cannot reach backups of key.json (destroy those too), old bytes that the disk keeps, forks, snapshots and exports of it, and a
program that has it open to read. On a backend it cannot reach what the server keeps of replaced values; a writer there gets an
error.

{NAMES}"""
EPILOG = """\
exit code: 0 if it is destroyed, 1 if some of its files are not sealed, 2 if it was not confirmed

examples:
  transcript-store shred chats/0b8f
  transcript-store shred chats/0b8f --yes
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_json(parser, "one JSON object (needs --yes)")


def run(arguments: Namespace) -> int:
    """Ask, shred, and print what it cannot reach."""
    question = (
        f"destroy the key of {one_line(printable_name(arguments.directory))}, so that it can never be read again?"
    )
    if not arguments.yes and (arguments.json or not confirmed(question)):
        complain("nothing was destroyed" + ("" if is_at_a_terminal() else "; without a terminal, --yes does it"))
        return 2
    done = _shred(arguments.directory)
    if arguments.json:
        say_json(asdict(done))
    else:
        say(f"shredded {done.id}: its key was destroyed at {done.shredded_at}")
        kept = "what the server keeps of its key (versions, replicas, backups, a log)"
        kept = kept if is_backend_address(arguments.directory) else "backups of its key.json, old bytes on the disk"
        say(f"not reached: {kept}, forks, snapshots and exports of it")
        for path in done.still_readable:
            say(f"not sealed, so still readable: {one_line(path)}")
    return 1 if done.still_readable else 0


def _shred(named: str) -> Shredding:
    if is_backend_address(named):
        library, own_id = with_id(named)
        return library_at(library).shred(own_id)
    library, name = os.path.split(named)
    home = library_at(library)
    return home.shred(name) if is_id(name) else home.shred_folder(name)
