"""``transcript-store search``: find messages in libraries. ``index``: the index that search and list use."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any, NamedTuple

from transcript_store.cli._shared.arguments import add_json, path, positive
from transcript_store.cli._shared.filters import add_filters, filters_of, say_ignored, say_not_read
from transcript_store.cli._shared.keys import VARIABLE, CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import (
    is_backend_address,
    is_path,
    libraries,
    library_at,
    none_in,
    printable_name,
    query_and_libraries,
    short_ids,
)
from transcript_store.cli._shared.terminal import (
    Look,
    Misuse,
    Span,
    columns,
    complain,
    fitting,
    for_shell,
    has_status,
    many,
    one_line,
    say,
    say_json,
    say_marked,
    size,
    status,
    time,
    wrapped,
)
from transcript_store.search import Hit, IndexStatus, SearchIndex, SearchResult
from transcript_store.transcripts import summary_of

SEARCH_DESCRIPTION = """\
Find messages in one or more libraries (default: that of `chat`). Each hit shows its conversation, the matching text and the
command that prints it. Messages come first, then calls, results and thinking, then text that a program wrote in the user's
name, then abandoned branches, then earlier generations. An index in your cache directory is updated first, for at most 0.2
seconds; with --wait, or if nothing was found, for as long as it takes. Every hit is checked against the transcript. Nothing in a
library is changed and no lock is taken.

The index has nothing of sealed conversations: with the key they are read in memory.

  socket timeout    both words           "socket timeout"    in this order
  socket OR pipe    one of them          -pipe               without it
  time*             starts with it       *out*               contains it
  in:result         in results of tools alone
  in:text  in:call  in:thinking  in:scaffolding
  role:user  title:moving  model:opus  provider:claude  source:codex
  project:shop  label:team=x  id:0b8f  after:2026-01-01  since:7d
  until:november  before:yesterday  since:"last month"

All WORDs together are the query; every text is a valid one. Final words that are libraries (directories of conversations, or
addresses) are searched, as with --in LIBRARY. Write a query that starts with a minus after --.
"""
SEARCH_EPILOG = """\
exit code: 0 if everything was searched; 3 if conversations were not (standard error names them, and why); with --json a
last line for such a library has "complete": false

examples:
  transcript-store search socket timeout
  transcript-store search '"socket timeout"' chats
  transcript-store search flaky test --project shop --since 'last month'
  transcript-store search 'in:result ImportError after:2026-11-01'
  transcript-store search role:user chats --regex 'time(out|d out)'
  transcript-store search --regex 'E[0-9]{4}'
  transcript-store search socket --json | jq -r .excerpt
"""


def configure_search(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("words", metavar="WORD", nargs="*", default=[], help="the query")
    parser.add_argument(
        "--in",
        dest="libraries",
        metavar="LIBRARY",
        action="append",
        default=[],
        type=path,
        help="the library (default: that of `chat`); may be repeated",
    )
    parser.add_argument(
        "-n", "--limit", metavar="N", type=positive, default=20, help="at most N messages (default: 20)"
    )
    parser.add_argument(
        "--sort", choices=("rank", "newest"), help="best or newest first (default: rank, if there are few)"
    )
    parser.add_argument(
        "--regex",
        metavar="PATTERN",
        help="a Python regular expression that must match too; no query needed",
    )
    parser.add_argument(
        "-i",
        "--ignore-case",
        action="store_true",
        help="for --regex: ignore case (words always do)",
    )
    parser.add_argument("--wait", action="store_true", help="first update the index completely")
    add_filters(parser)
    add_keys(parser)
    add_json(parser, "one JSON object a message, with conversation, seq, where, excerpt and highlights")


def run_search(arguments: Namespace) -> int:
    """Print what is found."""
    keys = command_keys(arguments)
    filters = filters_of(arguments)
    words, libraries_named = query_and_libraries(arguments.words, needs_query=arguments.regex is None and not filters)
    arguments.libraries = [*arguments.libraries, *libraries_named]
    if not words.strip() and not arguments.regex and not filters:
        raise Misuse("nothing to search for: give WORDs, or --regex PATTERN")
    arguments.query = f"{words} {filters}".strip()
    directories = libraries(arguments.libraries, on_backends=True)
    if arguments.regex is not None:
        try:
            arguments.regex = f"(?i){arguments.regex}" if arguments.ignore_case else arguments.regex
            re.compile(arguments.regex)
        except re.error as error:
            raise Misuse(f"--regex {arguments.regex!r} is not a regular expression: {error}") from None
    is_complete = True
    for place, directory in enumerate(directories):
        answer = _answer(arguments, directory, keys)
        is_complete = is_complete and answer.is_complete
        if arguments.json:
            for hit in answer:
                say_json(asdict(hit))
            if not answer.is_complete:
                say_json(_what_is_missing(answer, directory))
        else:
            library = (
                printable_name(arguments.libraries[place]) if arguments.libraries else ""
            )  # as it was given: a path may be long
            say_found(answer, library, of_several=len(directories) > 1)
            is_last = len(arguments.words) > 1 and not libraries_named and is_path(last := arguments.words[-1])
            if not answer.hits and is_last:
                complain(f"{last}: there is no such directory, so it was searched for as a word")
            if not answer.hits and not arguments.libraries:
                complain(f"{printable_name(directory)}: searched this library; --in LIBRARY searches another one")
        say_what_is_missing(answer, directory, keys)
    return 0 if is_complete else 3


def _what_is_missing(answer: SearchResult, directory: str) -> dict[str, Any]:
    return {
        "library": printable_name(directory),
        "complete": False,
        "not_indexed": answer.not_indexed,
        "not_searched": answer.not_searched,
        "damaged": list(answer.damaged),
        "not_read": [error.path for error in answer.not_read],
    }


def say_found(answer: SearchResult, library: str, *, of_several: bool = False) -> None:
    """Print the hits of a library with its name for commands; ``of_several``: after a line with its name and the count."""
    for line in _lines(answer, library, of_several=of_several):
        say_marked(line.text, line.highlights, looks=line.looks)


def _answer(arguments: Namespace, directory: str, keys: CommandKeys) -> SearchResult:
    with SearchIndex(
        library_at(directory, **keys.options) if is_backend_address(directory) else directory, **keys.options
    ) as index:
        answer = _search(index, arguments, directory, wait=arguments.wait)
        if (
            not answer.hits and answer.not_indexed and not answer.is_busy
        ):  # the index of a new library is still incomplete: "nothing" would be wrong
            answer = _search(index, arguments, directory, wait=True)
        return answer


def _search(index: SearchIndex, arguments: Namespace, directory: str, *, wait: bool) -> SearchResult:
    if wait and has_status():
        while (left := index.update(seconds=0.5, refresh=is_backend_address(directory))).not_indexed:
            status(f"indexing: {many(left.not_indexed, 'conversation')} to go")
        status("")
    return index.search(
        arguments.query,
        limit=arguments.limit,
        sort=arguments.sort,
        regex=arguments.regex,
        wait=wait,
        refresh=wait and is_backend_address(directory),
    )


class _MarkedLine(NamedTuple):
    """A line of output, and its matching spans."""

    text: str
    highlights: tuple[Span, ...] = ()
    looks: tuple[Look, ...] = ()


def _lines(answer: SearchResult, library: str, *, of_several: bool) -> Iterator[_MarkedLine]:
    if of_several:
        yield _MarkedLine(f"{one_line(library)}: {_how_many(answer)}")
        yield _MarkedLine("")
    order = list(dict.fromkeys(hit.directory for hit in answer))
    together = sorted(
        answer, key=lambda hit: order.index(hit.directory)
    )  # the best conversation first, its hits in their order
    for folder, hits in groupby(together, key=lambda hit: hit.directory):
        yield from _conversation(_named(library, folder), list(hits))
        yield _MarkedLine("")
    if not of_several:
        where = (
            ""
            if library or columns() is None or not answer.hits
            else f" in {one_line(os.path.dirname(answer.hits[0].directory))}"
        )
        yield _MarkedLine(f"{_how_many(answer)}{where}", looks=("quiet",) if answer.hits else ())
    if not answer.hits and answer.elsewhere:
        where = " and ".join(f"{count:,} in {_PLACES[name]} (in:{name})" for name, count in answer.elsewhere.items())
        yield _MarkedLine(f"found elsewhere: {where}")


def _named(library: str, directory: str) -> str:
    """The name of a conversation for a command, under the library as the user named it; "" for the default one."""
    above, name = os.path.split(directory)
    return for_shell(os.path.join(library, short_ids(above)(name)))


_BESIDE = {"left-branch": "on an abandoned branch", "earlier-generation": "earlier generation {}"}
_PLACES = {
    "text": "texts",
    "thinking": "thinking",
    "call": "calls",
    "result": "results",
    "scaffolding": "what programs wrote",
}


def _conversation(name: str, hits: list[Hit]) -> Iterator[_MarkedLine]:
    """The lines for a conversation with its hits; ``name`` is its name for commands."""
    width = columns()
    title = one_line(hits[0].title or os.path.basename(name))
    yield _MarkedLine(title if width is None else fitting(title, width), looks=("strong",))
    if (whole := _part_of(hits[0].directory)) is not None:
        yield _MarkedLine(f"  a part of the session {one_line(whole)}, which it may repeat", looks=("quiet",))
    for hit in hits:
        where = "" if hit.where == "text" else f"  {hit.where}"
        where += f"  {_BESIDE[hit.beside].format(hit.generation)}" if hit.beside else ""
        yield _MarkedLine(f"  #{hit.seq}  {one_line(hit.role)}  {time(hit.at)}{where}", looks=("quiet",))
        for text, marks in wrapped(hit.excerpt, hit.highlights, None if width is None else max(20, width - 6)):
            yield _MarkedLine(f"      {text}", tuple((start + 6, end + 6) for start, end in marks))
    how = {"left-branch": " --branches", "earlier-generation": f" --generation {hits[0].generation}"}
    options = f"{how.get(hits[0].beside or '', '')} --around {hits[0].seq}"
    yield _MarkedLine(f"  transcript-store show {name}{options}", looks=("quiet",))


def _part_of(directory: str) -> str | None:
    """The session that a sub-agent's conversation belongs to."""
    summary = None if is_backend_address(directory) else summary_of(directory)
    return ((summary.labels if summary else None) or {}).get("part_of")


def _how_many(answer: SearchResult) -> str:
    shown = many(len(answer), "message")
    if not answer.hits:
        return "nothing was found"
    if answer.total is None or answer.total <= len(answer):
        return shown
    total = f"more than {answer.total - 1:,}" if answer.total > 2000 else f"{answer.total:,}"
    return f"{shown} of {total}; -n N shows more"


def say_what_is_missing(answer: SearchResult, directory: str, keys: CommandKeys) -> None:
    """Report on standard error what was not searched, and which parts of the query were ignored."""
    if answer.not_indexed:
        left = many(answer.not_indexed, "conversation")
        why = "another process is at it" if answer.is_busy else "--wait indexes them first"
        complain(f"{printable_name(directory)}: there may be more: {left} not indexed yet; {why}")
    if answer.not_searched:
        left = many(answer.not_searched, "sealed conversation")
        give = f"not read: give the key, in --key-file or {VARIABLE}"
        why = "not opened by the key that was given: `verify` says why" if keys else give
        complain(f"{printable_name(directory)}: there may be more: {left} {why}")
    if answer.damaged:
        left = f"{many(len(answer.damaged), 'conversation')} not searched after damage"
        where = f"`transcript-store verify {for_shell(answer.damaged[0])}` says where"
        complain(f"{printable_name(directory)}: there may be more: {left}; {where}")
    say_not_read(answer.not_read, "search")
    say_ignored(answer.ignored)
    if is_backend_address(directory):
        if not answer.hits:
            asked = "not read completely yet" if answer.as_of is None else f"searched as it was at {time(answer.as_of)}"
            complain(f"{printable_name(directory)}: {asked}; --wait reads all of it again")
    elif not answer.hits and (none := none_in(directory)) is not None:
        complain(f"{directory}: {none}")


INDEX_DESCRIPTION = """\
Update the index of a library, however long that takes, and print what it has. It is a file in your cache directory
that `search` and `list` use. You can delete it at any time.

If a secret got into a conversation: replace the transcript (or delete the conversation), delete the generation that
had it, then --rebuild. Until then the index keeps words of deleted messages. The disk may still keep the deleted file's bytes.
"""
INDEX_EPILOG = """\
exit code: 0 if all of the library is indexed, 1 if an index is damaged, 3 if conversations were left out (standard error names
them, and why); --status and --purge index nothing

examples:
  transcript-store index chats
  transcript-store index chats --status
  transcript-store index --rebuild
"""


def configure_index(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("libraries", metavar="LIBRARY", nargs="*", type=path, help="of which (default: that of `chat`)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--status", action="store_true", help="read and check all of it, and print what it has")
    which.add_argument("--rebuild", action="store_true", help="delete it, and build it again")
    which.add_argument("--purge", action="store_true", help="delete it; the next search builds a new one")
    add_json(parser, "one JSON object a library")


def run_index(arguments: Namespace) -> int:
    """Update, rebuild or purge the indexes, and print what they have.

    The exit code is 1 if an index is damaged; else 3 if conversations were left out, as of a search.
    """
    is_intact = is_complete = True
    for directory in libraries(arguments.libraries, on_backends=True):
        with SearchIndex(library_at(directory)) if is_backend_address(directory) else SearchIndex(directory) as index:
            if arguments.rebuild or arguments.purge:
                index.purge()
            if not (arguments.status or arguments.purge):
                is_complete = _update(index) and is_complete
            found = index.status()
        is_intact = is_intact and found.is_intact
        if arguments.json:
            say_json({"library": printable_name(directory), **asdict(found)})
        else:
            _say(directory, found)
    return 1 if not is_intact else 0 if is_complete else 3


def _update(index: SearchIndex) -> bool:
    """Update an index, with progress in the status line. False if conversations were left out."""
    while has_status() and (left := index.update(seconds=0.5)).not_indexed:
        status(f"indexing: {many(left.not_indexed, 'conversation')} to go")
    done = index.update()
    if has_status():
        status("")
    say_not_read(done.not_read, "index")
    return not (done.not_read or done.not_indexed)


def _say(directory: str, found: IndexStatus) -> None:
    say(one_line(printable_name(directory)))
    facts = {
        "index": one_line(found.path or "none is kept: its file is locked, or cannot be written"),
        "size": size(found.size_bytes),
        "conversations": f"{found.conversations:,}",
        "messages": f"{found.messages:,}",
        "forgotten": f"{many(found.forgotten, 'message')}, their words stay until --rebuild" if found.forgotten else "",
        "not indexed": f"{found.not_indexed:,}" if found.not_indexed else "",
        "damaged": "" if found.is_intact else "its checksum is wrong; the next search builds it again",
    }
    for name, fact in facts.items():
        if fact:
            say(f"  {name:<14} {fact}")
