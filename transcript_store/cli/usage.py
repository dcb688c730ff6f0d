"""``transcript-store usage``: tokens and cost, by day, model, program, project and session."""

from __future__ import annotations

import csv
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import (
    NOT_ITS_ID,
    folders_without_ids,
    libraries,
    library_at,
    printable_name,
)
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    columns,
    columns_of,
    complain,
    fitting,
    one_line,
    padded,
    say,
    say_json,
    say_marked,
)
from transcript_store.display import MOMENTS, period

if TYPE_CHECKING:
    from transcript_store import ConversationSummary
    from transcript_store.usage import Dimension, LibraryUsage, PriceTable, UsageTotal

DESCRIPTION = """\
Sum the recorded tokens of a library, and their cost: by day, model, program, project or session, or by several of these. Each
reply counts once, even if several lines, generations, forks or copies have it. Tokens read from and written to a provider's cache
have their own columns. A sub-agent's session counts with the session that started it.

A cost is the API's price, by a dated table of prices; --prices takes another one. A sum has a cost only if every reply in it has
a price. It excludes subscriptions, discounts and taxes. Days are in UTC.
"""
EPILOG = """\
exit code: 0 if everything was counted, 1 if something could not be read

examples:
  transcript-store usage                                by day, in the library of `chat`
  transcript-store usage chats --by model --since 'last month'
  transcript-store usage chats --by day,model --csv > usage.csv
  transcript-store usage chats --by session --project shop
  transcript-store usage chats --by program --json | jq 'select(.total | not)'
  transcript-store usage --show-prices > mine.json      change it, then: usage --prices mine.json
"""
_BY = ("day", "model", "program", "project", "session")
_COUNTS = {
    "replies": "REPLIES",
    "uncached_input_tokens": "INPUT",
    "cache_write_tokens": "CACHE WRITE",
    "cache_read_tokens": "CACHE READ",
    "output_tokens": "OUTPUT",
    "total_tokens": "TOTAL",
}
_NO_MODEL = "(no model)"
_SESSION_COLUMNS, _LEAST_KEY = 40, 8
_MOST_OF_A_REASON = 3
"""Of more conversations that were not counted for one reason, only the first has a line."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "libraries", metavar="LIBRARY", nargs="*", type=path, help="the libraries (default: that of `chat`)"
    )
    parser.add_argument(
        "--by", metavar="WHAT", type=_dimensions, default=("day",), help=f"some of {','.join(_BY)} (default: day)"
    )
    parser.add_argument("--since", metavar="WHEN", type=_first_day, help=f"replies from that day on: {MOMENTS}")
    parser.add_argument("--until", metavar="WHEN", type=_last_day, help="replies up to the end of that day or month")
    parser.add_argument("--project", "--cwd", metavar="TEXT", help="only sessions in a folder whose path contains this")
    parser.add_argument("--source", "--program", metavar="PROGRAM", help="only sessions imported from this program")
    parser.add_argument(
        "--subagents",
        choices=("with-parent", "alone"),
        default="with-parent",
        help="count a sub-agent with the session that started it (default), or separately",
    )
    parser.add_argument("--prices", metavar="FILE", type=path, help="another table of prices")
    parser.add_argument("--show-prices", action="store_true", help="print the table of prices, and count nothing")
    add_keys(parser, what="the key of sealed conversations")
    how = parser.add_mutually_exclusive_group()
    add_json(how, "one JSON object a row, and one for the total")  # type: ignore[arg-type]
    how.add_argument("--csv", action="store_true", help="print comma-separated values, with a line of names")


def run(arguments: Namespace) -> int:
    """Count, and print the sums."""
    from transcript_store.usage import bundled_prices, count_usage, read_prices

    prices = bundled_prices() if arguments.prices is None else read_prices(arguments.prices)
    if arguments.show_prices:
        say_json({"date": prices.date, "currency": "USD", "per_tokens": 1_000_000, "models": prices.models})
        return 0
    if others := [word for word in arguments.libraries if word.removesuffix("s") in _BY and not os.path.lexists(word)]:
        raise Misuse(f"--by takes several names with a comma between them: --by {','.join((*arguments.by, *others))}")
    worst = 0
    for directory in libraries(arguments.libraries, on_backends=True):
        with Working("counting tokens"):
            found = count_usage(
                library_at(directory, **command_keys(arguments).options),
                by=arguments.by,
                prices=prices,
                is_asked_for=lambda summary: _is_asked_for(arguments, summary),
                since=arguments.since,
                until=arguments.until,
                subagents_alone=arguments.subagents == "alone",
            )
        skipped = (*found.skipped, *_in_other_folders(arguments, directory))
        worst = max(worst, bool(skipped))
        if arguments.json or arguments.csv:
            _write(arguments, directory, found, prices)
        else:
            if len(arguments.libraries) > 1:
                say(one_line(printable_name(directory)))
            _say(arguments.by, found, prices)
        _say_skipped(skipped)
    return worst


def _in_other_folders(arguments: Namespace, directory: str) -> Iterator[str]:
    for summary in folders_without_ids(directory):
        if _is_asked_for(arguments, summary):
            yield f"{printable_name(summary.directory)}: {NOT_ITS_ID}"


def _say_skipped(sentences: Sequence[str]) -> None:
    """Say what was not counted: of many for one reason, such as a missing key, the first and their number."""
    by_reason: dict[str, list[str]] = {}
    for sentence in sentences:
        by_reason.setdefault(sentence.partition(": ")[2], []).append(sentence)
    for same in by_reason.values():
        for sentence in same if len(same) <= _MOST_OF_A_REASON else same[:1]:
            complain(f"not counted: {sentence}")
        if len(same) > _MOST_OF_A_REASON:
            complain(f"not counted: {len(same) - 1:,} more for the same reason")


def _dimensions(text: str) -> tuple[Dimension, ...]:
    words: Any = tuple(word.strip().removesuffix("s") for word in text.split(","))
    if not set(words) <= set(_BY) or len(set(words)) < len(words):
        raise ArgumentTypeError(f"{text!r}: use some of {','.join(_BY)}, separated by commas")
    return words  # type: ignore[no-any-return]


def _times(text: str) -> tuple[datetime, datetime]:
    if (times := period(text)) is None:
        raise ArgumentTypeError(f"{text!r} is not a time; use {MOMENTS}")
    return times


def _first_day(text: str) -> str:
    return f"{_times(text)[0]:%Y-%m-%d}"


def _last_day(text: str) -> str:
    begin, end = _times(text)
    return f"{max(begin, end - timedelta(microseconds=1)):%Y-%m-%d}"


def _is_asked_for(arguments: Namespace, summary: ConversationSummary) -> bool:
    labels = summary.labels or {}
    is_of_project = (arguments.project or "").lower() in labels.get("cwd", "").lower()
    return is_of_project and arguments.source in (None, labels.get("source"))


def _members(total: UsageTotal) -> dict[str, Any]:
    counts = {name: getattr(total, name) for name in ("replies", "input_tokens", *[*_COUNTS][1:])}
    return {
        **counts,
        "cost_usd": None if total.cost_usd is None else round(total.cost_usd, 6),
        "known_cost_usd": round(total.known_cost_usd, 6),
        "unpriced": sorted(total.unpriced),
    }


def _write(arguments: Namespace, directory: str, found: LibraryUsage, prices: PriceTable) -> None:
    """Print the rows for programs: all of them have the same members, and none is cut."""
    about = {"library": printable_name(directory), "prices": prices.date}
    rows = [dict(zip(arguments.by, total.key, strict=True)) | _members(total) for total in found.rows]
    if arguments.json:
        for row in rows:
            say_json({**about, **row})
        say_json({**about, "total": True, **_members(found.total)})
        return
    names = [*about, *arguments.by, *_members(found.total)]
    lines = csv.DictWriter(_CsvOutput(), names, lineterminator="")
    lines.writeheader()
    for row in rows:
        unpriced = " ".join(row["unpriced"])
        cells = {**about, **row, "unpriced": unpriced}
        # Names of models and projects come from other programs' files. A spreadsheet would take such a text for a formula.
        lines.writerow({name: f"'{cell}" if str(cell).startswith(_FORMULA) else cell for name, cell in cells.items()})


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _CsvOutput:
    """The file that :mod:`csv` writes to: it prints safely, as everything stored is printed."""

    def write(self, text: str) -> int:
        say(text)
        return len(text)


def _say(by: Sequence[Dimension], found: LibraryUsage, prices: PriceTable) -> None:
    if not found.rows:
        say("no reply with a token count was found")
        return
    headings = (*(name.upper() for name in by), *_COUNTS.values(), "COST")
    table = [headings, *(_cells(by, total, found) for total in found.rows)]
    if len(found.rows) > 1:
        table.append(("total", *[""] * (len(by) - 1), *_numbers(found.total)))
    width, keys = columns(), len(by)
    widths = [max(map(columns_of, column)) for column in zip(*table, strict=True)]
    if width is not None and (over := sum(widths) + 2 * len(widths) - 2 - width) > 0:
        longest = max(range(keys), key=widths.__getitem__)
        widths[longest] = max(_LEAST_KEY, widths[longest] - over)
    for at, row in enumerate(table):
        cells = [padded(fitting(cell, room), room) for cell, room in zip(row[:keys], widths, strict=False)]
        cells += [" " * (room - columns_of(cell)) + cell for cell, room in zip(row[keys:], widths[keys:], strict=True)]
        say_marked("  ".join(cells).rstrip(), looks=("quiet",) if not at else ())
    say()
    total = found.total
    if total.cost_usd is not None:
        say(f"cost: the API's prices of {prices.date}")
        return
    models = ", ".join(_NO_MODEL if name == "?" else one_line(name) for name in sorted(total.unpriced))
    say(
        f"the table of prices (dated {prices.date}) has none for {models}: ≥ marks a sum without their cost, ? an unknown cost"
    )
    say(f"the cost of the others: {_dollars(total.known_cost_usd)}; --prices FILE takes a larger table (--show-prices)")


def _cells(by: Sequence[Dimension], total: UsageTotal, found: LibraryUsage) -> tuple[str, ...]:
    keys = []
    for name, value in zip(by, total.key, strict=True):
        shown = one_line(value or (_NO_MODEL if name == "model" else "?"))
        if name == "session" and value is not None and columns() is not None and (title := found.titles.get(value)):
            shown = f"{shown[:8]} {fitting(one_line(title), _SESSION_COLUMNS)}"
        elif name == "project" and columns() is not None:
            shown = one_line(os.path.basename((value or "?").rstrip("/")) or "/")
        keys.append(shown)
    return (*keys, *_numbers(total))


def _numbers(total: UsageTotal) -> tuple[str, ...]:
    counts = (f"{getattr(total, name):,}" for name in _COUNTS)
    unknown = f"≥ {_dollars(total.known_cost_usd)}" if total.known_cost_usd else "?"
    return (*counts, unknown if total.cost_usd is None else _dollars(total.cost_usd))


def _dollars(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 0.1 or not cost else f"${cost:.4f}"
