"""``transcript-store restore``: restore a backup, or merge it into a library."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import closing
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.copies import STREAM, CopyTally, error_sentence, open_copy
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at, is_backend_address, printable_name
from transcript_store.cli._shared.terminal import Misuse, Working, complain, one_line
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError
from transcript_store.file_names import absolute_path

if TYPE_CHECKING:
    from transcript_store.backends import Restored

DESCRIPTION = """\
Restore the conversations of SOURCE into LIBRARY, a directory, under their ids. SOURCE is the output of `backup` or `ship` (a
folder, a file, the address of a database or a bucket), any other library, or `-`, a stream on standard input.

A conversation that LIBRARY already has gets the missing records, and the labels of both. If it was continued differently in
LIBRARY, both are kept: LIBRARY's unchanged, and the other one as a copy that names the record where they diverge.

Nothing is removed, and restoring again changes nothing. Each folder is verified, and appears only when it is complete. If it is
killed, run it again: it continues.
"""
EPILOG = """\
exit code: 0 if everything was restored, 1 if a conversation was not, or if the backup is cut off or damaged

examples:
  transcript-store restore /mnt/copy/chats chats
  transcript-store restore chats.backup chats --key-file k.key
  transcript-store restore s3://bucket/copies chats
  transcript-store restore my.backup chats --cwd /Users/ada=/home/ada
  ssh host transcript-store backup chats - | transcript-store restore - chats
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="SOURCE", type=path, help="a folder, a file, an address, or -")
    parser.add_argument("library", metavar="LIBRARY", type=path, help="the directory; it is created if it is missing")
    parser.add_argument(
        "--only", metavar="ID", action="append", default=[], help="only this conversation (more than once: these)"
    )
    parser.add_argument(
        "--cwd",
        metavar="OLD=NEW",
        type=_moved,
        action="append",
        default=[],
        help="change the labels of projects in folder OLD to NEW",
    )
    add_keys(parser, of="keys of the backup, and of sealed conversations for --cwd")
    add_json(parser, "one JSON object for each conversation")


def _moved(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not (sign and old and new):
        raise ArgumentTypeError(f"{text!r} is not OLD=NEW, such as /Users/ada=/home/ada")
    return (old.rstrip("/") or "/", new.rstrip("/") or "/")


def run(arguments: Namespace) -> int:
    """Restore them."""
    from transcript_store.backends import BackupFile, NotShipped, restore_library

    if is_backend_address(arguments.library):
        raise Misuse(f"{printable_name(arguments.library)}: restore into a folder, and `ship` that")
    library = absolute_path(arguments.library)
    source = arguments.source
    if source != STREAM and not is_backend_address(source):
        source = absolute_path(source)
        if not os.path.exists(source):
            raise ConversationNotFoundError(path=source, reason="there is no such backup", hint=None)
        if os.path.realpath(source) == os.path.realpath(library):
            raise Misuse(f"{printable_name(library)}: the backup is the library itself")
    if (
        source == STREAM
    ):  # it is kept there until it has come to its end; otherwise a backup that does not open leaves no folder
        os.makedirs(library, mode=0o700, exist_ok=True)
    keys, tally, is_cut = command_keys(arguments), CopyTally(arguments), False
    with open_copy(source, keys.options, library) as (backup, named):
        complain(f"from {one_line(printable_name(arguments.source))} to {one_line(library)}")
        only = frozenset(arguments.only) or named
        with Working("restoring") as working, closing(restore_library(backup, library, only=only)) as reports:
            for report in reports:
                with working.paused():
                    tally.add(report)
                    if not isinstance(report, NotShipped) and arguments.cwd:
                        _move(report, arguments.cwd, keys.options, tally)
        if isinstance(backup, BackupFile):
            if backup.damage is not None:
                complain(f"{error_sentence(backup.damage, 'restore')}; everything before that was restored")
            elif not backup.is_complete:
                complain(
                    f"{one_line(backup.name)} is cut off: the last run of `backup` did not finish, or the stream broke; run it again"
                )
            is_cut = backup.damage is not None or not backup.is_complete
    code = tally.end("restored, and verified") or int(is_cut)
    return code if tally.total or is_cut else tally.nothing_in(source)


def _move(report: Restored, moves: list[tuple[str, str]], keys: dict[str, Any], tally: CopyTally) -> None:
    """Change the labels to the project's folder on this machine."""
    try:
        with conversation_at(report.directory, read_only=True) as conversation:
            conversation.load(verify="tail")
            is_sealed = conversation.get_metadata().sealed
        options = {"hold_lock": False, "lock_timeout_seconds": 10, **(keys if is_sealed else {})}
        with conversation_at(report.directory, **options) as conversation:
            conversation.load(verify="tail")
            labels = conversation.get_metadata().labels
            changed = {name: _at_home(labels[name], moves) for name in ("cwd", "project") if name in labels}
            if any(labels[name] != text for name, text in changed.items()):
                conversation.update_metadata(labels=changed)
    except TranscriptStoreError as error:
        tally.half_done += 1
        complain(
            f"{one_line(report.id)}: it is restored, but its project label did not change: {error_sentence(error, 'restore')}"
        )


def _at_home(folder: str, moves: list[tuple[str, str]]) -> str:
    for old, new in moves:
        if folder == old or folder.startswith(old.rstrip("/") + "/"):
            return (new.rstrip("/") if folder != old else new) + folder[
                len(old.rstrip("/") if folder != old else old) :
            ]
    return folder
