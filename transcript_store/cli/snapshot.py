"""``transcript-store snapshot``: store conversations as snapshots; list, show, restore and check them; manage keys."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC
from typing import TYPE_CHECKING

from transcript_store import (
    FileStore,
    SnapshotNotFoundError,
    restore_snapshot,
    snapshot_of,
    write_key_file,
)
from transcript_store.cli._shared.arguments import HelpFormatter, add_conversation, add_json, path, whole_number
from transcript_store.cli._shared.hints import instead_of_a_store
from transcript_store.cli._shared.keys import VARIABLE, add_keys, add_retired_keys, command_keys, key_in, keys_if_sealed
from transcript_store.cli._shared.messages import manner_here, message_lines
from transcript_store.cli._shared.names import BEGINNING, conversation_at, is_backend_address, snapshots_at, the_only
from transcript_store.cli._shared.terminal import (
    Misuse,
    complain,
    many,
    one_line,
    say,
    say_json,
    say_json_text,
    say_line,
    size,
    time,
)
from transcript_store.file_names import is_id
from transcript_store.messages import role_of

if TYPE_CHECKING:
    from transcript_store import SnapshotSummary
    from transcript_store.cli._shared.names import Snapshots

DESCRIPTION = f"""\
A snapshot is a copy of a conversation, as one value; a store is a directory of snapshots, sealed with a key or plaintext. It
has the file format of the Go library go-tool-base. Instead of the directory you can give a library's address. A
key comes from --key-file or from {VARIABLE}, never from an argument; the same keys open a sealed
conversation. `new-key` is `transcript-store new-key`.
"""
EPILOG = """\
examples:
  mkdir -m 700 ~/.keys && transcript-store new-key ~/.keys/snapshots
  transcript-store snapshot save chats/today --store snapshots --key-file ~/.keys/snapshots
  transcript-store snapshot save postgresql://keeper@db.example/agents/last --store snapshots --key-file ~/.keys/snapshots
  transcript-store snapshot list --store snapshots --key-file ~/.keys/snapshots
  transcript-store snapshot list --store postgresql://keeper@db.example/agents
  transcript-store snapshot restore ID --store snapshots --into elsewhere/today --key-file ~/.keys/snapshots

`transcript-store snapshot COMMAND --help` says more.
"""


_NO_KEY = f"its snapshots are sealed: give the key, in --key-file or {VARIABLE}"
_OTHER_KEY = "this key does not open its snapshots: give another --key-file, or --retired-key-file if the key changed"
_KEY_TOO_MANY = f"its snapshots are not sealed: leave the key out ({VARIABLE}, --key-file), or give it to rotate-key, which seals all"


def configure(parser: ArgumentParser) -> None:
    """Add the commands."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="snapshot_command")

    def add(name: str, run: Callable[[Namespace], int], what: str, more: str = "") -> ArgumentParser:
        command = commands.add_parser(
            name,
            help=what,
            description=f"{what[0].upper()}{what[1:]}. {more}",
            formatter_class=HelpFormatter,
        )
        command.set_defaults(run_snapshot=run)
        if name != "new-key":
            command.add_argument(
                "--store",
                metavar="STORE",
                type=path,
                required=True,
                help="the directory of snapshots, or the address of a library",
            )
            add_keys(command, of="keys of a sealed store, and of a sealed conversation")
            add_retired_keys(command)
        return command

    add_conversation(add("save", _save, "store a snapshot of a conversation, and print its id"), on_backends=True)
    add_json(
        add(
            "list",
            _list,
            "list the snapshots, newest first",
            "Snapshots that cannot be opened are left out. In a store that is not sealed, unchanged files (inode, size,\n"
            "times) are not read again; verify reads everything.",
        ),
        "one JSON object a line",
    )
    show = add("show", _show, "print a snapshot")
    what = (
        "It is created if it does not exist; else\nits messages are replaced, and the earlier ones stay in its archive."
    )
    restore = add("restore", _restore, "make the conversation in DIR continue from a snapshot", what)
    delete = add("delete", _delete, "permanently remove a snapshot", "Its media stays until collect-media.")
    for command in (show, restore, delete):
        command.add_argument("id", metavar="ID", help="the snapshot's id, or the start of it")
    show.add_argument("--full", action="store_true", help="do not shorten tool calls, results and thinking")
    add_json(show, "the snapshot's JSON form")
    restore.add_argument(
        "--into",
        metavar="DIR",
        type=path,
        required=True,
        help="the conversation's directory, or its address with an id",
    )
    restore.add_argument("--sealed", action="store_true", help="seal a new conversation with the key, too")
    rotate = add(
        "rotate-key",
        _rotate,
        "seal everything with a new key",
        "This also seals a plaintext store. If it is interrupted, run it again.",
    )
    rotate.add_argument("--new-key-file", metavar="FILE", type=path, required=True, help="the new key (see new-key)")
    add_json(
        add(
            "verify",
            _verify,
            "check every snapshot and all media; change nothing",
            "Exit code 1 if anything is damaged.",
        ),
        "one JSON object",
    )
    collect = add("collect-media", _collect, "remove media that no snapshot refers to any more")
    collect.add_argument(
        "--older-than",
        metavar="SECONDS",
        type=whole_number,
        default=86_400,
        help="keep younger media (default 86400, a day)",
    )
    new_key = add("new-key", _new_key, "write a new key to FILE, readable by its owner only", "FILE must not exist.")
    new_key.add_argument("file", metavar="FILE", type=path, help="the new file; keep it apart from the snapshots")


def run(arguments: Namespace) -> int:
    """Run one of the commands."""
    try:
        status: int = arguments.run_snapshot(arguments)
    except _WrongStoreError as error:
        complain(str(error))
        return 1
    return status


def _store(arguments: Namespace, *, creates: bool = False) -> Snapshots:
    if not is_backend_address(arguments.store) and (instead := instead_of_a_store(arguments.store)) is not None:
        raise _WrongStoreError(f"{os.path.abspath(arguments.store)}: {instead}")
    return snapshots_at(arguments.store, creates=creates, **command_keys(arguments).options)


class _WrongStoreError(Exception):
    """The directory is not a snapshot store, needs another key, or does not exist (only ``save`` creates one)."""


def _existing(arguments: Namespace) -> Snapshots:
    store = _store(arguments)
    # the store itself refuses a path that is not a directory
    if not is_backend_address(arguments.store) and not os.path.exists(store.directory):
        raise _WrongStoreError(f"{store.directory}: there is no such directory")
    return store


def _refuse_wrong_key(store: Snapshots, arguments: Namespace) -> None:
    """Raise ``_WrongStoreError`` if the key does not fit the store.

    The library accepts several keys in one store. So without this check ``list`` would silently leave out what it cannot
    open, and ``save`` would put a snapshot sealed with the wrong key beside the others.
    """
    if (why_not := _why_not_opened(store, arguments)) is not None:
        raise _WrongStoreError(why_not)


def _why_not_opened(store: Snapshots, arguments: Namespace) -> str | None:
    """The sentence for a missing or wrong key, with a hint; None if the key opens the snapshots."""
    if store.opens():
        return None
    if not command_keys(arguments):
        return f"{store.directory}: {_NO_KEY}"
    is_plain = snapshots_at(arguments.store).opens()
    return f"{store.directory}: {_KEY_TOO_MANY if is_plain else _OTHER_KEY}"


def _save(arguments: Namespace) -> int:
    store = _store(arguments, creates=True)
    _refuse_wrong_key(store, arguments)
    keys = keys_if_sealed(arguments.directory, command_keys(arguments))
    with conversation_at(arguments.directory, read_only=True, **keys) as conversation:
        conversation.load()
        snapshot = snapshot_of(conversation)
    store.save(snapshot)
    say(snapshot.id)
    return 0


def _list(arguments: Namespace) -> int:
    store = _existing(arguments)
    _refuse_wrong_key(store, arguments)
    for summary in _summaries(store):
        if arguments.json:
            say_json(asdict(summary))
        else:
            of = one_line(" ".join(text for text in (summary.provider, summary.model) if text))
            counts = f"{many(summary.message_count, 'message'):>15}  ~{summary.approximate_tokens:>9,} tokens"
            say(f"{summary.id}  {_when(summary)}  {counts}  {size(summary.size_bytes):>8}  {of}")
    return 0


def _summaries(store: Snapshots) -> list[SnapshotSummary]:
    from transcript_store.search import list_snapshots

    return list_snapshots(store) if isinstance(store, FileStore) else store.list()


def _named(arguments: Namespace) -> tuple[Snapshots, str]:
    """The store, and the id that the argument names, in full or by its start."""
    store, what = _existing(arguments), arguments.id
    if is_id(what) or not BEGINNING.fullmatch(what):
        return store, what  # the store raises the right error
    _refuse_wrong_key(store, arguments)
    found = [summary.id for summary in _summaries(store) if summary.id.startswith(what)]
    if (own_id := the_only(found, what, store.directory)) is None:
        raise SnapshotNotFoundError(path=store.directory, id=what)
    return store, own_id


def _when(summary: SnapshotSummary) -> str:
    """Its time of creation in UTC, as in all commands; ``created_at`` may have another offset."""
    at = summary.created_at_datetime
    with suppress(OverflowError):  # with an offset, a time at either end of the calendar may lie outside it
        at = at.astimezone(UTC)
    return time(at.isoformat())


def _show(arguments: Namespace) -> int:
    store, own_id = _named(arguments)
    snapshot = store.load(own_id)
    if arguments.json:
        say_json_text(snapshot.to_json().decode())
        return 0
    facts = {
        "snapshot": snapshot.id,
        "provider": snapshot.provider,
        "model": snapshot.model,
        "system prompt": snapshot.system_prompt,
        "tools": ", ".join(tool.name for tool in snapshot.tools),
        "created": snapshot.created_at,
        "messages": f"{snapshot.message_count:,}",
        **snapshot.metadata,
    }
    for name, fact in facts.items():
        if fact:
            say(f"{one_line(name):<14} {one_line(fact)}")
    manner = manner_here(full=arguments.full, plain=False)
    for number, message in enumerate(snapshot.messages, 1):
        say()
        say(f"#{number}  {one_line(role_of(message))}")
        for line in message_lines(message, manner):
            say_line(line)
    return 0


def _restore(arguments: Namespace) -> int:
    store, own_id = _named(arguments)
    snapshot = store.load(own_id)
    keys = command_keys(arguments)
    options = keys.options if arguments.sealed else keys_if_sealed(arguments.into, keys)
    if arguments.sealed and not keys:
        raise Misuse(f"--sealed needs the key, in --key-file or {VARIABLE}")
    with conversation_at(arguments.into, creates=True, **options) as conversation:
        restore_snapshot(snapshot, conversation)
        say(one_line(conversation.directory))
    return 0


def _delete(arguments: Namespace) -> int:
    store, own_id = _named(arguments)
    store.delete(own_id)
    return 0


def _rotate(arguments: Namespace) -> int:
    store = _existing(arguments)
    store.rotate_key(key_in(arguments.new_key_file))
    say(f"sealed with the new key: {many(len(store.list()), 'snapshot')}")
    return 0


def _verify(arguments: Namespace) -> int:
    store = _existing(arguments)
    findings = store.verify()
    if arguments.json:
        found = [{"path": finding.path, "kind": finding.kind, "reason": finding.reason} for finding in findings]
        say_json({"directory": store.directory, "is_intact": not findings, "findings": found})
    else:
        for finding in findings:
            say(one_line(finding.path))
            say(f"  {finding.kind}: {one_line(finding.reason)}")
        say(f"damaged: {many(len(findings), 'finding')}" if findings else "intact: no problem found")
        if findings and (why_not := _why_not_opened(store, arguments)) is not None:
            complain(why_not)
    return 1 if findings else 0


def _collect(arguments: Namespace) -> int:
    removed = _existing(arguments).collect_media(older_than_seconds=arguments.older_than)
    say(f"{many(len(removed), 'file')} of media removed")
    return 0


def _new_key(arguments: Namespace) -> int:
    write_key_file(arguments.file)
    return 0
