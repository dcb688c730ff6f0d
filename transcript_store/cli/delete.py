"""``transcript-store delete``: delete a conversation."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from transcript_store import ConversationNotFoundError, delete_conversation
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import described, is_backend_address, library_at, summary_at, with_id
from transcript_store.cli._shared.terminal import Misuse, complain, confirmed, is_at_a_terminal, one_line, say, say_json

DESCRIPTION = f"""\
Delete a conversation, with its archive and its quarantine: all of it, or nothing if another process is writing to it or the
disk refuses. Only a backup brings it back. It asks first. Without a terminal (in a script, say) it deletes only with --yes.

An imported conversation does not return with the next import, except with `import --again`. (On a database or a bucket it does:
no list of deleted conversations is kept there.)

{NAMES}"""
EPILOG = """\
exit code: 0 if it was deleted, 1 if that failed, 2 if it was not confirmed

examples:
  transcript-store delete chats/today
  transcript-store delete chats/0b8f --dry-run
  transcript-store delete chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51 --yes
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument("--dry-run", action="store_true", help="list what would be deleted, and stop")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_keys(parser, what="not needed to delete; only checked")
    add_json(parser, "one JSON object with the name of the folder that was deleted")


def run(arguments: Namespace) -> int:
    """Ask, delete the conversation, and print its name."""
    options = command_keys(arguments).options
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise Misuse("--json cannot ask: add --yes or --dry-run")
    summary = summary_at(arguments.directory)
    name = os.path.basename(arguments.directory)
    what = one_line(name) if summary is None else described(summary, **options)
    if arguments.dry_run:
        if summary is None:
            reason = "there is no conversation"
            raise ConversationNotFoundError(path=arguments.directory, reason=reason)
        say_json({"would_delete": name}) if arguments.json else say(f"would be deleted: {what}")
        return 0
    if summary is not None and not arguments.yes and not confirmed(f"delete {what}?"):
        complain("nothing was deleted" + ("" if is_at_a_terminal() else "; without a terminal, --yes deletes it"))
        return 2
    if is_backend_address(arguments.directory):
        library, name = with_id(arguments.directory)
        library_at(library).delete(name)
    else:
        delete_conversation(arguments.directory)
    say_json({"deleted": name}) if arguments.json else say(f"deleted {one_line(name)}")
    return 0
