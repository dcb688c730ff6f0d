"""Shared by `backup` and `restore`: their source and target, and their output."""

from __future__ import annotations

import os
import re
import stat
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.hints import error_sentence as error_sentence  # noqa: PLC0414 (`restore` uses it too)
from transcript_store.cli._shared.names import backend_at, is_backend_address, printable_name, taken_apart, with_id
from transcript_store.cli._shared.terminal import complain, many, one_line, say, say_json

if TYPE_CHECKING:
    from transcript_store.backends import NotShipped, Restored

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
    if name == STREAM:
        import sys

        backup = BackupFile.from_stream(sys.stdin.buffer, folder, **keys)
    else:
        backup = BackupFile(name, **keys)
    with backup:
        yield backup, None
