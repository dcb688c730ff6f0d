"""``transcript-store doctor``: test a directory, and report which promises hold there, and what programs will delete."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from transcript_store import ConversationLibrary, TranscriptStoreError, doctor
from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.hints import import_cache
from transcript_store.cli._shared.keys import counted_sealed
from transcript_store.cli._shared.names import examined, is_backend_address, none_in
from transcript_store.cli._shared.terminal import (
    Working,
    columns,
    complain,
    one_line,
    say,
    say_json,
    say_wrapped,
    wrapped,
)

if TYPE_CHECKING:
    from transcript_store.keeping import RetentionOutlook

_SHOWN = 10


def outlooks_of(directory: str) -> list[RetentionOutlook]:
    """The sessions that they will delete, compared with a library; empty on failure, which is reported."""
    from transcript_store.keeping import retention_outlook
    from transcript_store.sources import discover

    try:
        return retention_outlook(discover(), ConversationLibrary(directory), cache=import_cache())
    except TranscriptStoreError as error:
        complain(error.problem)
        return []


def say_outlooks(outlooks: Sequence[RetentionOutlook]) -> None:
    """Print what programs will delete, and the setting that keeps it."""
    for one in outlooks:
        say(one.sentence)
        if one.problem is not None:
            complain(one.problem)
        for source in one.missing[:_SHOWN]:
            say(f"    not in the library: {one_line(source)}")
        if (more := len(one.missing) - _SHOWN) > 0:
            say(f"    and {more:,} more (--json names each)")
        if one.days is not None:
            say(f"    to keep them: {one.keeps} in {one_line(one.setting)}{f' ({one.note})' if one.note else ''}")


DESCRIPTION = """\
Test what conversations need in the directory DIR: file system, syncs, locks, renames, cache, space, clock. Report which of the
promises in docs/durability.md hold there. It works in a temporary folder inside DIR and removes it.
For a backend (its address), test settings, rights, the version of the tables, the time of a commit and the clock; for a bucket
also conditional writes, lists and removal. It removes what it wrote.
For a library in a directory, list also the sessions that this machine's programs will delete by their own settings, and those
that the library does not have.
It cannot prove that a disk is honest: only a power cut shows whether a sync reached it.
"""
EPILOG = """\
exit code: 0 if no problem was found, 1 if a promise does not hold

examples:
  transcript-store doctor chats
  transcript-store doctor postgresql://keeper@db.example/agents
  transcript-store doctor /mnt/shared --json | jq '.checks[] | select(.result == "failed")'
"""
_WORDS = {"ok": "ok", "note": "note", "failed": "NO", "skipped": "?"}
_LEAST_COLUMNS = 20


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=path,
        nargs="?",
        default=".",
        help="where conversations are kept, or the address of a backend (default: here)",
    )
    add_json(parser, "one JSON object")


def run(arguments: Namespace) -> int:
    """Run every check, and print the results. The exit code is 1 if a check is ``failed``."""
    is_backend = is_backend_address(arguments.directory)
    with Working("testing"):
        found = examined(arguments.directory) if is_backend else doctor(arguments.directory)
    outlooks = [] if is_backend else _outlooks(found.directory)
    if arguments.json:
        retention = [{**asdict(one), "sentence": one.sentence} for one in outlooks]
        say_json(
            {**asdict(found), "failed_promises": found.failed_promises, "is_ok": found.is_ok, "retention": retention}
        )
        return 0 if found.is_ok else 1
    say(one_line(found.directory))
    width = columns()
    for check in found.checks:
        beside = f"  {_WORDS[check.result]:<5}{check.name:<22}"
        for line, _ in wrapped(check.found, (), None if width is None else max(_LEAST_COLUMNS, width - len(beside))):
            say(f"{beside}{line}")
            beside = " " * len(beside)
    say_outlooks([one for one in outlooks if one.soon or one.problem])
    if not is_backend and (there := counted_sealed(found.directory)):
        say(f"  {there}")
    say()
    if is_backend:
        say("no problem found" if found.is_ok else "conversations are not safe here")
        return 0 if found.is_ok else 1
    if found.checks[-1].name == "writing":
        say("conversations cannot be stored here")
    elif found.failed_promises:
        say(f"does not hold here: {', '.join(found.failed_promises)} (docs/durability.md)")
    else:
        say("no problem found")
    say_wrapped("not tested: whether the disk keeps what it has confirmed; only a power cut shows that")
    return 0 if found.is_ok else 1


def _outlooks(directory: str) -> list[RetentionOutlook]:
    """The sessions that programs will delete, if this is a library."""
    return outlooks_of(directory) if none_in(directory) is None else []
