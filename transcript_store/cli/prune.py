"""``transcript-store prune``: list expired conversations and generations, and remove them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from transcript_store import PrunedItem, Pruning
from transcript_store.cli._shared.arguments import add_json, path, since, whole_number
from transcript_store.cli._shared.keys import add_keys, add_retired_keys, command_keys, has_sealed
from transcript_store.cli._shared.names import (
    called,
    is_backend_address,
    library_at,
    say_unnamed,
    snapshots_at,
    the_library,
    too_high,
)
from transcript_store.cli._shared.terminal import (
    Misuse,
    complain,
    confirmed,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_json,
    size,
    time,
)
from transcript_store.display import MOMENTS
from transcript_store.transcripts import summary_of

if TYPE_CHECKING:
    from transcript_store.cli._shared.names import Snapshots

DESCRIPTION = """\
Remove conversations that have not changed for some time, earlier generations, and bytes that recovery and repairs have kept in
quarantine. Everything expired is listed first, and then the command asks. Without a terminal (in cron, say) it removes only
with --yes.

An import counts as a change: an imported session expires after its last import. A conversation is removed completely,
with its archive and its quarantine, or not at all. With --snapshots its messages are stored as a snapshot first. A
conversation that is open to write, is damaged, has other files in its folder, or may not be changed by you is skipped and named.
"""
EPILOG = """\
exit code: 0 if everything expired was removed (or nothing was expired), 1 if something was skipped, 2 if it was not confirmed

examples:
  transcript-store prune chats --older-than 365d --dry-run
  transcript-store prune chats --older-than 365d --snapshots kept
  transcript-store prune postgresql://keeper@db.example/agents --older-than 365d --snapshots s3://bucket/kept
  transcript-store prune chats --label project=x --keep-generations 3 --purge-quarantine --yes
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "library", metavar="LIBRARY", nargs="?", type=path, help="the library (default: that of `chat`)"
    )
    what = parser.add_argument_group("what is expired (at least one)")
    what.add_argument(
        "--older-than", metavar="WHEN", type=since, help=f"conversations without a change since then: {MOMENTS}"
    )
    what.add_argument(
        "--keep-generations",
        metavar="N",
        type=whole_number,
        help="earlier generations, except the newest N of each conversation",
    )
    what.add_argument("--purge-quarantine", action="store_true", help="the quarantine/ of each conversation")
    parser.add_argument(
        "--label",
        metavar="NAME=VALUE",
        action="append",
        type=_label,
        default=[],
        help="only conversations with this label (may be repeated: all must match)",
    )
    parser.add_argument(
        "--snapshots",
        metavar="STORE",
        type=path,
        help="first store a snapshot of each conversation here: a directory, or a library's address",
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and stop")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_json(parser, "one JSON object for each expired item (needs --dry-run or --yes)")
    add_keys(parser, of="keys of a sealed store of snapshots, and of sealed conversations")
    add_retired_keys(parser)


def run(arguments: Namespace) -> int:
    """List what is expired, ask, and remove it. The exit code is 1 if an expired item was skipped."""
    if arguments.older_than is None and arguments.keep_generations is None and not arguments.purge_quarantine:
        raise Misuse("prune needs --older-than, --keep-generations or --purge-quarantine")
    if arguments.json and not (arguments.dry_run or arguments.yes):
        raise Misuse("--json cannot ask: add --dry-run or --yes")
    directory = the_library(arguments.library, on_backends=True)
    keys = command_keys(arguments)
    prune = partial(
        library_at(directory, **(keys.options if is_backend_address(directory) or has_sealed(directory) else {})).prune,
        older_than=arguments.older_than,
        keep_generations=arguments.keep_generations,
        keep_quarantine=not arguments.purge_quarantine,
        labels=dict(arguments.label),
        snapshots=None if arguments.snapshots is None else _snapshots(arguments),
    )
    if not is_backend_address(directory) and (misnamed := too_high(directory)) is not None:
        complain(f"{directory}: {misnamed}")
    say_unnamed(directory, "prune")
    try:
        due = prune()
    except ValueError as error:
        raise Misuse(str(error)) from None
    names = {} if arguments.json else _names(due, directory)
    if arguments.dry_run:
        _tell(due, names, arguments, "would be removed")
        return 1 if due.skipped else 0
    if not (arguments.yes or due.items):
        say("nothing is expired")
        return 0
    if not arguments.yes:
        _tell(due, names, arguments, "would be removed")
        if due.pruned and not confirmed(f"remove {_counted(due.pruned)}?"):
            complain("nothing was removed" + ("" if is_at_a_terminal() else "; without a terminal, --yes removes it"))
            return 2
    done = prune(dry_run=False) if due.items else due
    if arguments.yes or done.items != due.items:
        _tell(done, names, arguments, "removed")
    else:
        say(_sum(done.pruned, "removed"))
    return 1 if done.skipped else 0


def _snapshots(arguments: Namespace) -> Snapshots:
    is_there = is_backend_address(arguments.snapshots) or os.path.lexists(arguments.snapshots)
    store = snapshots_at(arguments.snapshots, creates=True, **command_keys(arguments).options)
    if is_there and not store.opens():
        raise Misuse(f"{store.directory}: the key does not open its snapshots (see `transcript-store snapshot`)")
    return store


def _names(pruning: Pruning, directory: str) -> dict[str, str]:
    """The name of each conversation, before it is removed."""
    if is_backend_address(directory):
        return {}
    there = ((item.id, summary_of(os.path.join(directory, item.id))) for item in pruning.items)
    return {own_id: called(summary) for own_id, summary in there if summary is not None}


def _tell(pruning: Pruning, names: Mapping[str, str], arguments: Namespace, went: str) -> None:
    for item in pruning.items:
        if arguments.json:
            say_json({"applied": pruning.applied, **asdict(item)})
        else:
            say(_line(item, names.get(item.id) or item.title))
    if not arguments.json:
        say(_sum(pruning.pruned, went))


def _line(item: PrunedItem, name: str | None) -> str:
    what = item.what if item.generation is None else f"generation {item.generation}"
    changed = "changed at an unknown time" if item.updated_at is None else f"changed {time(item.updated_at)}"
    facts = [f"{what:<14}", item.id, changed, f"{size(item.size_bytes):>8}"]
    if name:
        facts.append(one_line(name))
    if item.snapshot is not None:
        facts.append(f"(snapshot {item.snapshot})")
    if item.skipped is not None:
        facts.append(f"- skipped: {one_line(item.skipped)}")
    return "  ".join(facts)


def _sum(items: Sequence[PrunedItem], went: str) -> str:
    if not items:
        return "nothing is expired" if went == "would be removed" else "nothing was removed"
    return f"{_counted(items)} ({size(sum(item.size_bytes for item in items))}) {went}"


def _counted(items: Sequence[PrunedItem]) -> str:
    kinds: list[str] = [item.what for item in items]
    return ", ".join(
        many(kinds.count(kind), kind) for kind in ("conversation", "generation", "quarantine") if kind in kinds
    )


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
