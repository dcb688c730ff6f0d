"""``transcript-store backup``: copy a library to a folder, file, database, bucket or pipe. ``restore``: restore or merge it."""

from __future__ import annotations

import os
import re
import stat
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.arguments import add_json, path, standard_input
from transcript_store.cli._shared.filters import FILTER_OPTIONS, add_filters, filters_of, say_ignored
from transcript_store.cli._shared.health import StatusFile, add_status_file
from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.keys import CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import (
    backend_at,
    conversation_at,
    default_library,
    destination,
    is_backend_address,
    library_at,
    printable_name,
    require_a_view,
    require_outside,
    taken_apart,
    the_library,
    with_id,
)
from transcript_store.cli._shared.terminal import Misuse, Working, complain, many, one_line, say, say_json
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError
from transcript_store.file_names import absolute_path
from transcript_store.new_files import make_folders

if TYPE_CHECKING:
    from transcript_store.backends import BackupFile, NotShipped, Restored

STREAM = "-"
IN_A_FOLDER = "transcript-store.backup"
"""The file of a sealed backup in a folder."""
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]*\Z")


def is_file(name: str) -> bool:
    """True if a name means a file: an existing one, or a new one with a suffix (`chats.backup`, not `chats`)."""
    try:
        return not stat.S_ISDIR(os.stat(os.path.expanduser(name)).st_mode)
    except OSError:
        return not name.endswith("/") and _SUFFIX.search(name) is not None


class CopyTally:
    """Counts the reports, and prints them."""

    def __init__(self, arguments: Namespace, *, to_stderr: bool = False) -> None:
        self._arguments = arguments
        self._tell = complain if to_stderr else say
        self.total = self.new = self.grown = self.copies = self.failed = self.records = 0
        self.half_done = 0
        """Conversations that were copied, but with another failure."""
        self.without_key: list[str] = []

    def add(self, report: Restored | NotShipped) -> None:
        """Count a report, and print it if anything changed or failed."""
        from transcript_store.backends import NotShipped

        self.total += 1
        if isinstance(report, NotShipped):
            self.failed += 1
            sentence = error_sentence(report.error, self._arguments.command)
            if self._arguments.json:
                self._say_json({"directory": report.directory, "error": sentence})
            complain(
                sentence
                if printable_name(report.directory) in sentence
                else f"{one_line(printable_name(report.directory))}: {sentence}"
            )
            return
        self.new += report.is_new
        self.copies += report.is_new and report.copy_of is not None
        self.grown += report.is_changed and not report.is_new
        self.records += report.added_records
        if report.key_is_missing:
            self.without_key.append(report.id)
        if self._arguments.json:
            self._say_json(asdict(report))
        elif report.is_changed:
            self._tell(f"{one_line(report.id)}  {_facts(report)}")

    def _say_json(self, value: dict[str, Any]) -> None:
        if self._tell is say:
            say_json(value)

    def end(self, done: str) -> int:
        """Print the sum; returns the exit code."""
        unchanged = self.total - self.new - self.grown - self.failed
        facts = [f"{self.new:,} new"]
        facts += [f"{self.copies:,} of them as copies of conversations that diverged"] * bool(self.copies)
        facts += [f"{self.grown:,} grew", f"{unchanged:,} unchanged"]
        facts += [f"{self.failed:,} failed"] * bool(self.failed)
        sum_up = f"{many(self.total, 'conversation')}: {', '.join(facts)}; {many(self.records, 'record')} {done}"
        if not self._arguments.json:
            self._tell(sum_up)
        if self.without_key:
            one = f"{self.without_key[0]} is" if len(self.without_key) == 1 else f"{len(self.without_key):,} are"
            complain(f"{one} sealed, and came without key.json: restore it from your backup of the key files")
        return 1 if self.failed or self.half_done else 0

    @staticmethod
    def nothing_in(source: str) -> int:
        """Say that there was nothing to copy, because another folder may be meant; returns the exit code of a failure."""
        complain(f"{one_line(printable_name(source))}: there is no conversation in it; check the path")
        return 1


def _facts(report: Restored) -> str:
    if report.copy_of is not None and report.is_new:
        where = f" in {one_line(report.directory)}" if report.id == report.copy_of else ""
        return (
            f"{many(report.added_records, 'record')}: a copy{where}, because {one_line(report.copy_of)} diverged there"
        )
    if report.is_new:
        return f"{many(report.added_records, 'record')}"
    return f"{many(report.added_records, 'record')} added" if report.added_records else "metadata or key"


@contextmanager
def open_copy(name: str, keys: dict[str, Any], folder: str) -> Iterator[tuple[Any, frozenset[str] | None]]:
    """The source of the conversations, and the ids to copy if the name is of one; a backup file is closed at the end.

    ``folder`` is where a stream is stored until it ends.
    """
    from transcript_store.backends import BackupFile

    if is_backend_address(name):
        if taken_apart(name).what is None:
            yield backend_at(name), None
        else:
            library, own_id = with_id(name)
            yield backend_at(library), frozenset({own_id})
        return
    if name != STREAM and not is_file(name):
        sealed = os.path.join(os.path.expanduser(name), IN_A_FOLDER)
        if not os.path.exists(sealed):
            yield os.path.expanduser(name), None
            return
        name = sealed
    with (
        BackupFile.from_stream(standard_input(), folder, **keys)
        if name == STREAM
        else BackupFile(name, **keys) as backup
    ):
        yield backup, None


BACKUP_DESCRIPTION = f"""\
Copy the conversations of LIBRARY to TARGET: every generation, the metadata, and the wrapped keys of sealed ones.
A second backup to the same target adds only new records. Agents may keep writing: each conversation is copied in a consistent
state, from the disk. Everything written is read back and verified. If it is killed, run it again: it continues.

TARGET is a folder, which becomes a library that every command reads; one file (a name with a suffix, such as
chats.backup); the address of a database or a bucket, as for `ship`; or `-`, a stream on standard output.

With a key the backup is sealed: the whole file or stream, or the file {IN_A_FOLDER} in a folder. (Sealed
conversations are copied sealed in any case.) On a database or a bucket, conversations are stored as they are in the library.

A backup never removes anything: it keeps what the library has lost or replaced. `restore` brings it back.
"""
BACKUP_EPILOG = """\
exit code: 0 if the backup has everything, 1 if a conversation is missing

examples:
  transcript-store backup /mnt/chats                       the library of `chat`; later only new records
  transcript-store backup chats c.backup --key-file k.key  one sealed file
  transcript-store backup chats s3://bucket/copies
  transcript-store backup chats - | ssh host transcript-store restore - chats
  transcript-store backup chats public --redact            copies without secrets
"""


def configure_backup(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    what = "a directory, a conversation, or an address (default: the library of `chat`)"
    parser.add_argument("library", metavar="LIBRARY", nargs="?", type=path, help=what)
    parser.add_argument("target", metavar="TARGET", type=path, help="a folder, a file, an address, or -")
    parser.set_defaults(two_words=("library", "target"))
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


def run_backup(arguments: Namespace) -> int:
    """Copy new records."""
    if arguments.library is None:
        arguments.library = the_library(None, on_backends=True)
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
        require_a_view(name)
        raise ConversationNotFoundError(path=name, reason="there is no such directory")
    if not is_backend_address(name) and is_file(name):
        raise Misuse(f"{printable_name(name)}: name a library; `restore` this backup into one first")
    if arguments.target != STREAM and not is_backend_address(arguments.target):
        require_outside(arguments.target, name)
    options: dict[str, Any] = {"with_key": not arguments.without_keys}
    if arguments.redact:
        from transcript_store.redaction import SecretRedactor

        options["redact"] = SecretRedactor()
    given = (arguments.filter, *(getattr(arguments, option) for option in FILTER_OPTIONS))
    if any(isinstance(one, str) and not one.strip() for one in given):
        raise Misuse("a filter is empty, and nothing was copied: it would choose every conversation; leave it out")
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
    elif not tally.total:
        complain("no conversation matches the filters, so nothing was copied")
    return code


def _target(arguments: Namespace, keys: CommandKeys, stack: ExitStack) -> tuple[Any, str]:
    """The target of the backup, and its name for messages."""
    from transcript_store.backends import BackupFile

    name, sealed = arguments.target, "the sealed file" if keys else "the file"
    if name == STREAM:
        if sys.stdout is None or sys.stdout.isatty():
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
            return _folder(destination(name)), f"the folder {one_line(name)}"
        name = os.path.join(name, IN_A_FOLDER)
    return stack.enter_context(BackupFile(name, writes=True, **keys.options)), f"{sealed} {one_line(name)}"


def _folder(path: str) -> str:
    """A folder for a backup: a new or empty one, or one that has conversations already."""
    from transcript_store.library import list_conversations

    if os.path.isdir(path):
        with os.scandir(path) as entries:
            has_files = any(not entry.name.startswith(".") for entry in entries)
        if has_files and next(iter(list_conversations(path)), None) is None:
            raise Misuse(f"{path} has other files, and no conversation: name a new or an empty folder")
    return path


def _chosen(name: str, query: str) -> frozenset[str]:
    """The conversations that match a query, by id and by folder name."""
    from transcript_store.search import SearchIndex

    found: set[str] = set()
    after = None
    with SearchIndex(library_at(name)) as index:
        while True:
            page = index.list(limit=500, after=after, filter=query, wait=after is None)
            if page.ignored:
                say_ignored(page.ignored)
                raise Misuse("nothing was copied: without the ignored part the filter chooses more conversations")
            for summary in page:
                found |= {each for each in (summary.id, os.path.basename(summary.directory)) if each}
            if (after := page.next) is None:
                return frozenset(found)


RESTORE_DESCRIPTION = """\
Restore the conversations of SOURCE into LIBRARY, a directory, under their ids. SOURCE is the output of `backup` or `ship` (a
folder, a file, the address of a database or a bucket), any other library, or `-`, a stream on standard input.

A conversation that LIBRARY already has gets the missing records, and the labels of both. If it was continued differently in
LIBRARY, both are kept: LIBRARY's unchanged, and the other one as a copy that names the record where they diverge.

Nothing is removed, and restoring again changes nothing. Each folder is verified, and appears only when it is complete. If it is
killed, run it again: it continues.
"""
RESTORE_EPILOG = """\
exit code: 0 if everything was restored, 1 if a conversation was not, or if the backup is cut off or damaged

examples:
  transcript-store restore /mnt/copy/chats chats
  transcript-store restore chats.backup chats --key-file k.key
  transcript-store restore s3://bucket/copies chats
  transcript-store restore my.backup chats --cwd /Users/ada=/home/ada
  ssh host transcript-store backup chats - | transcript-store restore - chats
"""


def configure_restore(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="SOURCE", type=path, help="a folder, a file, an address, or -")
    what = "the directory; it is created if it is missing (default: that of `chat`)"
    parser.add_argument("library", metavar="LIBRARY", nargs="?", type=path, help=what)
    parser.set_defaults(two_words=("source", "library"))
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


def run_restore(arguments: Namespace) -> int:
    """Restore them."""
    from transcript_store.backends import BackupFile, NotShipped, restore_library

    if arguments.library is None:
        arguments.library = default_library()  # the line that names source and library follows
    if is_backend_address(arguments.library):
        raise Misuse(f"{printable_name(arguments.library)}: restore into a folder, and `ship` that")
    library = destination(arguments.library)
    source = arguments.source
    if source != STREAM and not is_backend_address(source):
        source = absolute_path(source)
        if not os.path.exists(source):
            require_a_view(source)
            raise ConversationNotFoundError(path=source, reason="there is no such backup", hint=None)
        if os.path.realpath(source) == os.path.realpath(library):
            raise Misuse(f"{printable_name(library)}: the backup is the library itself")
    if (
        source == STREAM
    ):  # it is kept there until it has come to its end; otherwise a backup that does not open leaves no folder
        make_folders(library)
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
            changed: dict[str, str] = {
                name: _at_home(labels[name], moves) for name in ("cwd", "project") if name in labels
            }
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
