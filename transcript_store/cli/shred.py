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
Destroy the key of a sealed conversation: nothing of it, its archive and its quarantine can be read again. There
is no way back but a backup of its file key.json. It stays listed; `delete` removes it. No key is needed for it.

What this cannot reach: backups of key.json (destroy those too), what the medium keeps of the old one, forks, snapshots and exports that
were made of it, and a program that has it open to read. On a place: what the server keeps of what was replaced. Its writer is told there.

{NAMES}"""
EPILOG = """\
exit code: 0 if it is destroyed, 1 if files of it are there that are not sealed, 2 if it was not confirmed

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
    """Ask, shred, and say what it cannot reach."""
    question = (
        f"destroy the key of {one_line(printable_name(arguments.directory))}, so that nobody can ever read it again?"
    )
    if not arguments.yes and (arguments.json or not confirmed(question)):
        complain("nothing was destroyed" + ("" if is_at_a_terminal() else ": without a terminal --yes does it"))
        return 2
    done = _shred(arguments.directory)
    if arguments.json:
        say_json(asdict(done))
    else:
        say(f"shredded {done.id}: its key was destroyed at {done.shredded_at}")
        kept = "what the server keeps of its key (versions, replicas, backups, a log)"
        kept = (
            kept if is_backend_address(arguments.directory) else "backups of its key.json, what the medium keeps of it"
        )
        say(f"not reached: {kept}, forks, snapshots and exports of it")
        for path in done.still_readable:
            say(f"not sealed, so still to be read: {one_line(path)}")
    return 1 if done.still_readable else 0


def _shred(named: str) -> Shredding:
    if is_backend_address(named):
        library, own_id = with_id(named)
        return library_at(library).shred(own_id)
    library, name = os.path.split(named)
    home = library_at(library)
    return home.shred(name) if is_id(name) else home.shred_folder(name)
