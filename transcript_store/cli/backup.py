"""``transcript-store backup``: copy a library to a folder, file, database, bucket or pipe; again: only new records."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.copies import IN_A_FOLDER, STREAM, CopyTally, is_file, open_copy
from transcript_store.cli._shared.filters import add_filters, filters_of, say_ignored
from transcript_store.cli._shared.health import StatusFile, add_status_file
from transcript_store.cli._shared.keys import CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import backend_at, is_backend_address, library_at, printable_name, taken_apart
from transcript_store.cli._shared.terminal import Misuse, Working, complain, one_line
from transcript_store.errors import ConversationNotFoundError
from transcript_store.file_names import absolute_path

if TYPE_CHECKING:
    from transcript_store.backends import BackupFile

DESCRIPTION = f"""\
Copy the conversations of LIBRARY to TARGET: every generation, the metadata, and the wrapped keys of sealed ones.
A second backup to the same target adds only new records. Agents may keep writing: each conversation is copied in a consistent
state, from the disk. Everything written is read back and verified. If it is killed, run it again: it continues.

TARGET is a folder, which becomes a library that every command reads; one file (a name with a suffix, such as
chats.backup); the address of a database or a bucket, as for `ship`; or `-`, a stream on standard output.

With a key the backup is sealed: the whole file or stream, or the file {IN_A_FOLDER} in a folder. (Sealed
conversations are copied sealed in any case.) On a database or a bucket, conversations are stored as they are in the library.

A backup never removes anything: it keeps what the library has lost or replaced. `restore` brings it back.
"""
EPILOG = """\
exit code: 0 if the backup has everything, 1 if a conversation is missing

examples:
  transcript-store backup chats /mnt/chats                 a folder; later only new records
  transcript-store backup chats c.backup --key-file k.key  one sealed file
  transcript-store backup chats s3://bucket/copies
  transcript-store backup chats - | ssh host transcript-store restore - chats
  transcript-store backup chats public --redact            copies without secrets
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("library", metavar="LIBRARY", type=path, help="a directory, a conversation, or an address")
    parser.add_argument("target", metavar="TARGET", type=path, help="a folder, a file, an address, or -")
    parser.add_argument(
        "--filter", "--query", metavar="QUERY", help="only conversations that match a query (see search)"
    )
    add_filters(parser)
    parser.add_argument("--redact", action="store_true", help="copy without secrets; each copy names its original")
    parser.add_argument(
        "--without-keys", action="store_true", help="do not copy the wrapped keys of sealed conversations"
    )
    add_keys(parser, of="the key of the backup", what="the key that seals it")
    add_status_file(parser)
    add_json(parser, "one JSON object for each conversation")


def run(arguments: Namespace) -> int:
    """Copy new records."""
    status = StatusFile(
        arguments.status_file,
        "backup",
        source=printable_name(arguments.library),
        target=printable_name(arguments.target),
    )
    with status.failing_if_it_raises():
        return _backup(arguments, status)


def _backup(arguments: Namespace, status: StatusFile) -> int:
    from transcript_store.backends import backup_library

    keys = command_keys(arguments)
    name = arguments.library if is_backend_address(arguments.library) else absolute_path(arguments.library)
    if not is_backend_address(name) and not os.path.exists(name):  # before the backup's folder is made
        raise ConversationNotFoundError(path=name, reason="there is no such directory")
    if not is_backend_address(name) and is_file(name):
        raise Misuse(f"{printable_name(name)}: name a library; `restore` this backup into one first")
    options: dict[str, Any] = {"with_key": not arguments.without_keys}
    if arguments.redact:
        from transcript_store.redaction import SecretRedactor

        options["redact"] = SecretRedactor()
    query = " ".join(filter(None, (filters_of(arguments), arguments.filter)))
    chosen = _chosen(name, query) if query else None
    tally = CopyTally(arguments, to_stderr=arguments.target == STREAM)
    with ExitStack() as stack:
        source, only = stack.enter_context(open_copy(name, {}, ""))
        target, what = _target(arguments, keys, stack)
        complain(f"from {one_line(printable_name(arguments.library))} to {what}")
        try:
            reports = backup_library(source, target, only=only if chosen is None else chosen, **options)
            with Working("copying") as working, closing(reports):
                for report in reports:
                    with working.paused():
                        tally.add(report)
        except ValueError as error:
            raise Misuse(str(error)) from None
    status.end_round(failing=tally.failed, records=tally.records)
    code = tally.end("copied, and verified")
    if not tally.total and chosen is None:
        tally.nothing_in(name)  # a library may be new, so this is no error; or its disk is not mounted
    return code


def _target(arguments: Namespace, keys: CommandKeys, stack: ExitStack) -> tuple[Any, str]:
    """The target of the backup, and its name for messages."""
    from transcript_store.backends import BackupFile

    name, sealed = arguments.target, "the sealed file" if keys else "the file"
    if name == STREAM:
        if sys.stdout.isatty():
            raise Misuse("- writes a stream to standard output: send it through a pipe, or name a file")
        made: BackupFile = BackupFile.to_stream(sys.stdout.buffer, **keys.options)
        return made, "a sealed stream" if keys else "a stream"
    if is_backend_address(name):
        if taken_apart(name).what is not None:
            raise Misuse(f"{printable_name(name)}: name the backend alone; conversations keep their ids there")
        if arguments.key_file:
            raise Misuse(f"{printable_name(name)}: conversations are copied as they are: `seal` them first")
        return backend_at(name, creates=True), one_line(printable_name(name))
    if not is_file(name):
        if not keys:
            return absolute_path(name), f"the folder {one_line(name)}"
        name = os.path.join(name, IN_A_FOLDER)
    return stack.enter_context(BackupFile(name, writes=True, **keys.options)), f"{sealed} {one_line(name)}"


def _chosen(name: str, query: str) -> frozenset[str]:
    """The conversations that match a query, by id and by folder name."""
    from transcript_store.search import SearchIndex

    found: set[str] = set()
    after = None
    with SearchIndex(library_at(name)) as index:
        while True:
            page = index.list(limit=500, after=after, filter=query, wait=after is None)
            if after is None:
                say_ignored(page.ignored)
            for summary in page:
                found |= {each for each in (summary.id, os.path.basename(summary.directory)) if each}
            if (after := page.next) is None:
                return frozenset(found)
