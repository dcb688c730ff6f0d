"""``transcript-store list``: list the conversations in a directory."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from transcript_store.cli._shared.arguments import add_json, path, whole_number
from transcript_store.cli._shared.filters import add_filters, filters_of, say_ignored
from transcript_store.cli._shared.keys import CommandKeys, add_keys, command_keys, with_titles
from transcript_store.cli._shared.names import (
    called,
    conversation_at,
    is_backend_address,
    libraries,
    library_at,
    none_in,
    printable_name,
    project_of,
    query_and_libraries,
    short_ids,
)
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    columns,
    columns_of,
    complain,
    fitting,
    many,
    one_line,
    padded,
    say,
    say_json,
    say_marked,
    size,
)
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError

if TYPE_CHECKING:
    from transcript_store import ConversationSummary
    from transcript_store.usage import UsageTotal

DESCRIPTION = """\
List the conversations of a library, the latest message first. Each line has the title (or the first prompt, or the program and
the start time), the time of the last message (UTC), the project (the directory of the session), the program that it was imported
from, and the shortest unambiguous id. --long adds records, size and model.

If the output is not a terminal, a line is complete and separated by tabs: title, time, project, program, id, records, bytes,
model. Visible damage is shown; `transcript-store verify` checks everything. Nothing is changed and no lock is taken. The list
comes from an index in your cache directory, which reads only changed conversations again. On a terminal it ends after 50.
"""
EPILOG = """\
examples:
  transcript-store list
  transcript-store list flaky test                     titles that have both words
  transcript-store list chats --since 'last month' --project shop
  transcript-store list --source codex --until november
  transcript-store list chats --sort size --limit 10
  transcript-store list chats --filter 'flaky label:team=x -model:opus'
  transcript-store list chats --json | jq -r 'select(.damage) | .directory'
"""

_BY_USAGE = ("tokens", "cost")
_ORDERS = ("updated", "created", "title", "records", "size", *_BY_USAGE)
_ON_A_SCREEN = 50
_AT_A_TIME = 1000
_LEAST_TITLE, _PROJECT_COLUMNS, _PROGRAM_COLUMNS = 20, 16, 12
_NEEDED = {"PROJECT": 72, "PROGRAM": 80}
"""The terminal's width from which these columns are shown."""
_WIDE = 100
"""The terminal's width from which a time has its hour."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "words",
        metavar="WORD|LIBRARY",
        nargs="*",
        default=[],
        help="words of the title; the last may be the library: a directory, or a backend's address (default: that of `chat`)",
    )
    parser.add_argument("--in", dest="directory", metavar="LIBRARY", type=path, help="the library")
    parser.add_argument(
        "-n", "--limit", metavar="N", type=whole_number, help="print the first N; 0 for all (default: 50 on a terminal)"
    )
    parser.add_argument(
        "--sort",
        choices=_ORDERS,
        metavar="ORDER",
        help=f"{', '.join(_ORDERS)} (default: updated); tokens and cost read every conversation",
    )
    parser.add_argument("-l", "--long", action="store_true", help="also records, size, model and whole ids")
    parser.add_argument("--filter", metavar="QUERY", help="only conversations that match a query (see search)")
    add_filters(parser)
    add_keys(parser, what="the key, for the titles of sealed conversations")
    add_json(parser, "one JSON object a conversation")


class ListedConversation(NamedTuple):
    """A conversation of a list, and its name."""

    summary: ConversationSummary
    name: str
    usage: UsageTotal | None = None
    """Its tokens and their cost, if the list is sorted by them."""
    is_counted: bool = True
    """False if they could not be read: they are unknown, and not 0."""


def run(arguments: Namespace) -> int:
    """Print the list."""
    keys = command_keys(arguments)
    words, named = query_and_libraries(arguments.words, needs_query=False, is_of_paths=True)
    named = named if arguments.directory is None else [arguments.directory, *named]
    if len(named) > 1:
        raise Misuse(f"list takes one library, not {len(named)}: {', '.join(map(printable_name, named))}")
    arguments.directory = named[0] if named else None
    try:
        (directory,) = libraries(named, on_backends=True)
    except ConversationNotFoundError:
        _say_no_library(words, named)
        raise
    query = " ".join(filter(None, (words, filters_of(arguments), arguments.filter)))
    if _list(arguments, directory, query, keys):
        return 0
    _say_no_library(words, named)
    if arguments.json:
        return 0
    what = "no conversation matches" if query else "there is no conversation yet"
    if not query and not is_backend_address(directory):
        what = none_in(directory) or what
    say(f"{one_line(printable_name(directory))}: {one_line(what)}")
    return 0


def _say_no_library(words: str, named: Sequence[str]) -> None:
    """Say how words were taken of which the last may be meant as a library."""
    if words:
        where = "" if named else " (no library of this name is here; --project filters by folder)"
        complain(f"looked for in names: {words}{where}")


def list_all(directory: str) -> None:
    """Print the conversations of a library, as `list` does without an option."""
    no_options = Namespace(directory=directory, json=False, limit=None, long=False, sort=None)
    if not _list(no_options, directory, "", CommandKeys(None)):
        say(f"{one_line(printable_name(directory))}: there is no conversation yet")


def _list(arguments: Namespace, directory: str, query: str, keys: CommandKeys) -> int:
    """Print the conversations that match the query, and their number."""
    if is_backend_address(directory) and not query and arguments.sort is None:
        return _list_on_backend(arguments, directory, keys)
    if arguments.sort in _BY_USAGE:
        return _list_by_usage(arguments, directory, query, keys)
    return _list_from_the_index(arguments, directory, query, keys)


def _limit(arguments: Namespace) -> int | None:
    is_read = columns() is not None and not arguments.json
    limit: int | None = _ON_A_SCREEN if arguments.limit is None and is_read else arguments.limit
    return limit


def _list_on_backend(arguments: Namespace, directory: str, keys: CommandKeys) -> int:
    """Print the list summaries of a backend, the newest first: by page, without an index."""
    library, limit, count = library_at(directory), _limit(arguments), 0
    summaries = library.iter_list()
    while page := [*islice(summaries, min(_AT_A_TIME, limit - count) if limit else _AT_A_TIME)]:
        named = [ListedConversation(one, called(one)) for one in with_titles(page, keys, directory)]
        _say(arguments, directory, named, with_headings=not count)
        count += len(page)
        if count == limit:
            break
    if count and count == limit:
        _say_more(arguments, f"the newest {count:,} in {one_line(library.directory)}")
    return count


def _list_from_the_index(arguments: Namespace, directory: str, query: str, keys: CommandKeys) -> int:
    """Print a list page by page; returns how many conversations are on it."""
    from transcript_store.search import SearchIndex

    limit, shown_so_far, after = _limit(arguments), 0, None
    # A new user has no library yet. An existing directory is read without the modules that write.
    with SearchIndex(directory if os.path.isdir(directory) else library_at(directory)) as index:
        while True:
            page = index.list(
                limit=min(_AT_A_TIME, limit - shown_so_far) if limit else _AT_A_TIME,
                after=after,
                sort=arguments.sort or "updated",
                filter=query,
                wait=after is None,
            )
            summaries = with_titles(list(page), keys, directory)
            names = (one.title or name for one, name in zip(summaries, page.names, strict=True))
            _say(arguments, directory, [*map(ListedConversation, summaries, names)], with_headings=not shown_so_far)
            if not shown_so_far:
                say_ignored(page.ignored)
            shown_so_far, after = shown_so_far + len(page), page.next
            if after is None or shown_so_far == limit:
                break
    if after is not None:
        _say_more(arguments, f"{shown_so_far:,} of {page.total:,} in {one_line(printable_name(directory))}")
    elif arguments.directory is None and shown_so_far:
        _say_more(
            arguments, f"{many(shown_so_far, 'conversation')} in {one_line(printable_name(directory))}", is_all=True
        )
    return shown_so_far


def _list_by_usage(arguments: Namespace, directory: str, query: str, keys: CommandKeys) -> int:
    """Print the conversations with the most tokens or the highest cost: each of them is read."""
    from transcript_store.search import SearchIndex
    from transcript_store.usage import UsageTotal, conversation_usage

    found: list[ListedConversation] = []
    with SearchIndex(library_at(directory, **keys.options)) as index, Working("counting tokens"):
        after, is_first = None, True
        while is_first or after is not None:
            page = index.list(limit=_AT_A_TIME, after=after, filter=query, wait=is_first)
            for summary, name in zip(with_titles(list(page), keys, directory), page.names, strict=True):
                usage, is_counted = UsageTotal(key=()), False
                options = keys.options if summary.sealed else {}
                try:
                    # Not by its id: a folder may have any name.
                    with conversation_at(summary.directory, read_only=True, **options) as conversation:
                        conversation.load(verify="tail")
                        usage, is_counted = conversation_usage(conversation), True
                except TranscriptStoreError as error:
                    complain(f"not counted: {error.problem}")
                found.append(ListedConversation(summary, summary.title or name, usage, is_counted))
            after, is_first = page.next, False
    counted = attrgetter("usage.total_tokens" if arguments.sort == "tokens" else "usage.known_cost_usd")
    found.sort(key=counted, reverse=True)
    limit = _limit(arguments) or len(found)
    _say(arguments, directory, found[:limit], with_headings=True)
    if len(found) > limit:
        _say_more(arguments, f"{limit:,} of {len(found):,} in {one_line(printable_name(directory))}")
    return len(found)


def _say_more(arguments: Namespace, what: str, *, is_all: bool = False) -> None:
    if columns() is not None and not arguments.json:
        say_marked(what if is_all else f"{what}; -n N shows more, -n 0 all of them", looks=("quiet",))


def _say(arguments: Namespace, directory: str, rows: Sequence[ListedConversation], *, with_headings: bool) -> None:
    if arguments.json:
        for row in rows:
            members = asdict(row.summary)
            del members["last_extra"]  # it was not requested
            if row.usage is not None:
                known = row.usage if row.is_counted else None
                members |= {"tokens": known and known.total_tokens, "cost_usd": known and known.cost_usd}
            say_json({"name": row.name, **members})
        return
    width = columns()
    if width is None:
        lines = [*map(_in_a_pipe, rows)]
    else:
        headings, *lines = _on_a_terminal(rows, width, short_ids(directory), is_long=arguments.long)
        if with_headings and rows:
            say_marked(headings, looks=("quiet",))
    for row, line in zip(rows, lines, strict=True):
        say(line)
        if row.summary.damage is not None:
            say(f"    damaged: {one_line(row.summary.damage)}")
        elif row.summary.torn_bytes:
            what = many(row.summary.torn_bytes, "byte")
            say(f"    torn tail: {what} after the last whole record (or a writer is appending now)")


def _facts(summary: ConversationSummary) -> tuple[str, str, str]:
    """The project, the program and the folder's name."""
    labels = summary.labels or {}
    program = "sealed" if summary.sealed else labels.get("source") or summary.provider or ""
    return project_of(labels), one_line(program), one_line(os.path.basename(summary.directory))


def _model_of(summary: ConversationSummary) -> str:
    return one_line("/".join(filter(None, (summary.provider, summary.model))))


def _in_a_pipe(row: ListedConversation) -> str:
    summary = row.summary
    project, program, name = _facts(summary)
    facts = ("" if number is None else str(number) for number in (summary.record_count, summary.size_bytes))
    when = one_line((summary.updated_at or "")[:19])
    return "\t".join((one_line(row.name), when, project, program, name, *facts, _model_of(summary), *_usage(row)))


def _on_a_terminal(
    rows: Sequence[ListedConversation], width: int, short: Callable[[str], str], *, is_long: bool
) -> Iterator[str]:
    """The headings, and a line for each conversation: its title takes the remaining width."""
    found = [_facts(row.summary) for row in rows]
    ids = [short(name) for _, _, name in found]
    more = [(*(_more(row.summary) if is_long else ()), *_usage(row)) for row in rows]
    counts = ("TOKENS", "COST") if rows and rows[0].usage is not None else ()
    times = [one_line((row.summary.updated_at or "")[: 16 if width >= _WIDE else 10].replace("T", " ")) for row in rows]
    table = [
        ("LAST SAID", "PROJECT", "PROGRAM", *(("RECORDS", "SIZE", "MODEL") if is_long else ()), *counts, "ID"),
        *(
            (at, fitting(project, _PROJECT_COLUMNS), fitting(program, _PROGRAM_COLUMNS), *facts, name)
            for at, (project, program, _), facts, name in zip(times, found, more, ids, strict=True)
        ),
    ]
    left_out = {heading for heading, least in _NEEDED.items() if width < least}
    kept = [at for at, heading in enumerate(table[0]) if heading not in left_out]
    table = [tuple(row[at] for at in kept) for row in table]
    widths = [max(map(columns_of, column)) for column in zip(*table, strict=True)]
    room = max(_LEAST_TITLE, width - sum(widths) - 2 * len(widths))
    names = [one_line(row.name) for row in rows]
    room = min(room, max(map(columns_of, ("TITLE", *names))))
    for name, cells in zip(("TITLE", *names), table, strict=True):
        cells_padded = (padded(cell, column) for cell, column in zip(cells, widths, strict=True))
        yield "  ".join((padded(fitting(name, room), room), *cells_padded)).rstrip()


def _usage(row: ListedConversation) -> tuple[str, ...]:
    if row.usage is None:
        return ()
    if not row.is_counted:
        return "?", "?"
    known = row.usage.known_cost_usd
    unknown = f"≥ ${known:,.2f}" if known else "?"
    return f"{row.usage.total_tokens:,}", unknown if row.usage.cost_usd is None else f"${known:,.2f}"


def _more(summary: ConversationSummary) -> tuple[str, str, str]:
    records, length = summary.record_count, summary.size_bytes
    return (
        "" if records is None else f"{records:,}",
        "" if length is None else size(length),
        _model_of(summary),
    )
