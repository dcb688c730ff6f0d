"""``transcript-store list``: list the conversations in a directory."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice

from transcript_store import ConversationSummary, list_conversations
from transcript_store.cli._shared.arguments import add_json, count, path, since
from transcript_store.cli._shared.keys import Keys, add_keys, keys_of
from transcript_store.cli._shared.libraries import libraries, none_in
from transcript_store.cli._shared.places import is_address, library_at
from transcript_store.cli._shared.queries import say_ignored
from transcript_store.cli._shared.sealed import with_titles
from transcript_store.cli._shared.terminal import (
    columns,
    columns_of,
    fitting,
    many,
    one_line,
    padded,
    say,
    say_json,
    say_marked,
    size,
    time,
)
from transcript_store.cli._shared.titles import called
from transcript_store.file_names import TRANSCRIPT
from transcript_store.words import MOMENTS

DESCRIPTION = """\
List every conversation directly under DIR, whatever its folder is called, the one that changed last first: its folder,
when it changed, how many records it has, its size, provider and model, which program it was imported from (the label
`source`), whether it is sealed, and its title (the label `title`), cut to the width of a terminal. There a conversation without a
title is called by its first prompt.
Looks at the metadata and at both ends of each
transcript; a conversation that is seen to be damaged is listed as that, and `transcript-store verify` looks at everything.
Nothing is changed and no lock is taken.

On a terminal, and with any of the options below, the list comes from an index in your cache directory, in which only what
changed is read anew; on a terminal it ends after 50. Otherwise every conversation is read.
"""
EPILOG = """\
examples:
  transcript-store list
  transcript-store list chats
  transcript-store list chats --title house --since 2w
  transcript-store list chats --sort size --limit 10
  transcript-store list chats --filter 'label:project=x -model:opus'
  transcript-store list chats --json | jq -r 'select(.damage) | .directory'
"""

_ON_A_SCREEN = 50
_AT_A_TIME = 1000
_NAME_COLUMNS = 36
"""As many as an id has. What stands behind a longer name is not in line with the others."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        nargs="?",
        type=path,
        help="the directory that holds the conversations, or the address of a place (default: that of `chat`)",
    )
    parser.add_argument(
        "--limit", metavar="N", type=count, help="only the first N; 0 for all (default: 50 on a terminal)"
    )
    parser.add_argument(
        "--sort", choices=("updated", "created", "title", "records", "size"), help="the order (default: updated)"
    )
    parser.add_argument("--title", metavar="TEXT", help="only those whose title contains it")
    parser.add_argument("--model", metavar="TEXT", help="only those whose model contains it")
    parser.add_argument("--label", metavar="NAME[=VALUE]", help="only those with this label")
    parser.add_argument("--since", metavar="WHEN", type=since, help=f"only those that changed since: {MOMENTS}")
    parser.add_argument("--filter", metavar="QUERY", help="only those that a query leaves, as `search` has it")
    add_keys(parser, what="the key, for the titles of sealed conversations")
    add_json(parser, "one JSON object a conversation")


def run(arguments: Namespace) -> int:
    """Print the list."""
    keys = keys_of(arguments)
    if arguments.directory is None:
        (arguments.directory,) = libraries([], on_places=True)
    chosen = (arguments.limit, arguments.sort, arguments.title, arguments.model, arguments.label, arguments.since)
    is_chosen = arguments.filter is not None or any(one is not None for one in chosen)
    if is_address(arguments.directory):
        is_narrowed = arguments.filter is not None or any(one is not None for one in chosen[1:])
        _list_from_the_index(arguments, keys, is_chosen=True) if is_narrowed else _list_a_place(arguments)
        return 0
    if os.path.isdir(arguments.directory) and (is_chosen or (columns() is not None and not arguments.json)):
        shown = _list_from_the_index(arguments, keys, is_chosen=is_chosen)
    else:
        found = with_titles(list_conversations(arguments.directory), keys)
        _say(arguments, found, with_headings=False)
        shown = len(found)
    if not shown and not arguments.json and not is_chosen:
        directory = os.path.abspath(arguments.directory)
        what = none_in(directory) or "there is no conversation"
        if os.path.exists(os.path.join(directory, TRANSCRIPT)):
            what += f"; it is a conversation itself: transcript-store show {shlex.quote(directory)}"
        say(f"{one_line(directory)}: {one_line(what)}")
    return 0


def _list_a_place(arguments: Namespace) -> None:
    """Print what the writers on a place left for lists, the newest first: by page, without an index."""
    library = library_at(arguments.directory)
    limit = (
        _ON_A_SCREEN if arguments.limit is None and columns() is not None and not arguments.json else arguments.limit
    )
    count = 0
    summaries = library.iter_list()
    while page := [*islice(summaries, min(_AT_A_TIME, limit - count) if limit else _AT_A_TIME)]:
        _say(arguments, page, with_headings=not count)
        count += len(page)
        if count == limit:
            break
    if not count and not arguments.json:
        say(f"{one_line(library.directory)}: there is no conversation yet")
    elif count == limit and columns() is not None and not arguments.json:
        say_marked(f"the newest {count:,}; --limit shows more, 0 all of them", looks=("quiet",))


def _list_from_the_index(arguments: Namespace, keys: Keys, *, is_chosen: bool) -> int:
    """Print a list page by page; returns how many conversations are on it."""
    from transcript_store.search import SearchIndex

    limit = arguments.limit
    if limit is None and columns() is not None and not arguments.json:
        limit = _ON_A_SCREEN
    shown, after = 0, None
    with SearchIndex(library_at(arguments.directory)) as index:
        while True:
            page = index.list(
                limit=min(_AT_A_TIME, limit - shown) if limit else _AT_A_TIME,
                after=after,
                sort=arguments.sort or "updated",
                filter=_filter(arguments),
                wait=after is None,
            )
            found = with_titles(list(page), keys)
            if columns() is not None and not arguments.json and len(found) <= _ON_A_SCREEN:  # a person reads it
                found = [replace(one, title=called(one.directory, one.title)) for one in found]
            _say(arguments, found, with_headings=not shown)
            if not shown:
                say_ignored(page.ignored)
            shown, after = shown + len(page), page.next
            if after is None or shown == limit:
                break
    if not arguments.json and columns() is not None and after is not None:
        say_marked(f"{shown:,} of {page.total:,}; --limit shows more, 0 all of them", looks=("quiet",))
    elif not shown and is_chosen and not arguments.json:
        say("no conversation is like that")
    return shown


def _filter(arguments: Namespace) -> str:
    """The options as one query."""
    given = {"title": arguments.title, "model": arguments.model, "label": arguments.label}
    words = [f'{name}:"{text.replace(chr(34), " ")}"' for name, text in given.items() if text]
    words += [f"after:{arguments.since.isoformat()}"] if arguments.since is not None else []
    return " ".join((*words, arguments.filter or ""))


def _say(arguments: Namespace, found: Sequence[ConversationSummary], *, with_headings: bool) -> None:
    if arguments.json:
        for summary in found:
            members = asdict(summary)
            del members["last_extra"]  # nobody asked for it
            say_json(members)
        return
    headings, *lines = lines_of(found)
    if with_headings and lines and (columns() or 0) > len(headings):
        say_marked(headings, looks=("quiet",))
    for line in lines:
        say(line)


def lines_of(found: Sequence[ConversationSummary]) -> Iterator[str]:
    """The headings of a list, and the lines of each conversation: its facts, what it is about, and its damage if there is any."""
    names = [one_line(os.path.basename(summary.directory)) for summary in found]
    room = min(_NAME_COLUMNS, max(map(columns_of, names), default=0))
    yield f"{padded('FOLDER', room)}  {'CHANGED':<23}  {'RECORDS':>13}  {'SIZE':>8}  MODEL, SOURCE, TITLE"
    for name, summary in zip(names, found, strict=True):
        yield from _lines_of_one(padded(name, room), summary)


def _lines_of_one(name: str, summary: ConversationSummary) -> Iterator[str]:
    if summary.size_bytes is None:
        yield name.rstrip()
    else:
        source = (summary.labels or {}).get("source")
        facts = (
            f"{time(summary.updated_at):<23}",
            f"{many(summary.record_count or 0, 'record'):>13}",
            f"{size(summary.size_bytes):>8}",
        )
        about = (
            one_line("/".join(filter(None, (summary.provider, summary.model)))),
            "sealed" if summary.sealed else "",
            f"from {one_line(source)}" if source else "",
            one_line(summary.title or ""),
        )
        yield from _laid_out((name, *facts), "  ".join(filter(None, about)))
    if summary.damage is not None:
        yield f"    damaged: {one_line(summary.damage)}"
    elif summary.torn_bytes:
        yield f"    torn tail: {many(summary.torn_bytes, 'byte')} behind the last whole record (or a writer is at work now)"


def _laid_out(facts: Sequence[str], about: str) -> Iterator[str]:
    """On one line; at a terminal that has no room for it on more, and what it is about is cut to the width."""
    width = columns()
    line = "  ".join(filter(None, (*facts, about)))
    if width is None or fitting(line, width) == line:
        yield line
        return
    name, changed, *others = facts
    if fitting(line := "  ".join(facts), width) != line:
        changed = changed[: len("2026-01-31 12:00")]  # then an id and its facts fit into 80 columns
    line = name
    for fact in (changed, *others):
        if fitting(beside := f"{line}  {fact}", width) == beside:
            line = beside
        else:
            yield line
            line = f"    {fact.lstrip()}"
    yield line
    if about:
        yield f"    {fitting(about, width - 4)}"
