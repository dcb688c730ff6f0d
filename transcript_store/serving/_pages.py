"""How do pages reach browsers within a memory limit? Equal ones are held once, and each connection gets a slice at a time.

A reader may be slow, or stop. A page that was handed to the socket in one piece would be copied for each of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from threading import Lock
from typing import TypeAlias, get_args
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transcript_store.display import many
from transcript_store.library import ConversationSummary
from transcript_store.search import Hit, ListPage, Order, SearchResult
from transcript_store.serving._library import RowFacts
from transcript_store.view.served import Html, day, excerpt_html, full_time, page_document, tag, time_of_day

_MOST_BYTES = 256 * 1024 * 1024
"""Of all pages that are being sent. A larger one is sent if it is the only one."""
SLICE = 65_536
"""What a connection is given before it has read what it got."""


class TooMuchAtOnceError(Exception):
    """Too many bytes of pages are being sent already."""


class _Page:
    """The bytes of a page. It goes with the last answer that sends it."""

    __slots__ = ("__weakref__", "pieces", "size")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = tuple(pieces)
        self.size = sum(map(len, self.pieces))


class Pages:
    """The pages that are being sent. Threads may share it."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._sent: WeakValueDictionary[bytes, _Page] = WeakValueDictionary()

    def answer(self, pieces: Iterable[bytes], *, status: int, headers: Mapping[str, str]) -> Response:
        """An answer that sends a page of HTML.

        Raises:
            TooMuchAtOnceError: the pages that are being sent have too many bytes with this one.
        """
        page = _Page(pieces)
        digest = blake2b(digest_size=32)
        for piece in page.pieces:
            digest.update(piece)
        with self._mutex:
            same = self._sent.get(digest.digest())
            if same is None:
                others = sum(each.size for each in list(self._sent.values()))
                if others and others + page.size > _MOST_BYTES:
                    raise TooMuchAtOnceError
                same = self._sent[digest.digest()] = page
        return _Answer(same, status, headers)


class _Answer(Response):
    media_type = "text/html"

    def __init__(self, page: _Page, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status, {**headers, "Content-Length": str(page.size)})
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._page.pieces:
            for start in range(0, len(piece), SLICE):
                body = piece[start : start + SLICE]
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


# ---- library page ----
# The listing of a library's conversations, and the hits of a search over all of them.

ORDERS: tuple[Order, ...] = get_args(Order)
_NAMES = {"updated": "Newest", "created": "Created", "title": "Title", "records": "Most records", "size": "Largest"}
_NOTHING_YET = (
    "There are no conversations here yet: transcript-store import brings in what other programs keep,"
    " transcript-store chat begins one"
)
_BY_DAY = ("updated", "created")
_SHOWN_ELSEWHERE = frozenset({"title", "cwd", "import", "part_of", "source"})
"""Labels that a row says by other means, or not at all."""
_BESIDE = {"left-branch": "on an abandoned branch", "earlier-generation": "removed by a compaction"}
_ROLES = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool", "model": "Assistant"}


WHERE = {
    "": ("All messages", ""),
    "prompts": ("Prompts", "in:text role:user"),
    "replies": ("Replies", "in:text role:assistant"),
    "calls": ("Calls", "in:call"),
    "results": ("Results", "in:result"),
}
"""Where a search can look, by the name in the address: what it is called, and the query that it is."""
_WITH_COLON = re.compile(r'(?<!\S)-?[a-z]+:(?:"[^"]*"|\S+)')
_CHIPS = 6

Facets: TypeAlias = "Mapping[str, Sequence[tuple[str, int]]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the form has."""

    query: str = ""
    filter: str = ""
    where: str = ""
    sort: Order = "updated"

    @property
    def conversations(self) -> str:
        """The filter as it stands in a search: its words are those of a name."""
        filters = _WITH_COLON.findall(self.filter)
        words = _WITH_COLON.sub(" ", self.filter).split()
        return " ".join((*filters, *(f"title:{word}" for word in words)))

    def address(self, **changes: str) -> str:
        """The address of a page with some of it changed."""
        given = {"q": self.query, "filter": self.filter, "in": self.where, "sort": self.sort, **changes}
        return f"?{urlencode({name: value for name, value in given.items() if value and (name, value) != ('sort', 'updated')})}"


def listing_page(
    library: str, listing: ListPage, asked: Asked, facets: Facets, facts: tuple[Sequence[RowFacts], bool]
) -> bytes:
    """A page of the list, in the order of time by days, with where the next one is. ``facts`` are those of its rows, and whether these
    are all: if not, the page asks again.
    """
    rows = [*zip(listing, listing.names, facts[0], strict=True)]
    count = many(listing.total, "conversation")
    if not listing.total and not listing.not_looked_at:
        count = "No conversation matches" if asked.filter else _NOTHING_YET
    if listing.not_looked_at:
        count += f"; {many(listing.not_looked_at, 'folder')} not looked at yet"
    body = [_count(count, is_unfinished=bool(listing.not_looked_at) or not facts[1])]
    if asked.sort in _BY_DAY:
        days = groupby(rows, key=lambda row: day(_time(row[0], asked.sort)) or "Without a time")
        body += [tag("section", tag("h2", name, class_="day"), _rows(of_day, asked.sort)) for name, of_day in days]
    else:
        body.append(_rows(rows, asked.sort))
    if listing.next:
        body.append(tag("a", "More", href=asked.address(after=listing.next), class_="more"))
    return _page(library, asked, facets, *body)


def hits_page(library: str, answer: SearchResult, asked: Asked, facets: Facets) -> bytes:
    """What a search found, the conversation with the best hit first, each hit in its context."""
    order = list(dict.fromkeys(hit.directory for hit in answer))
    together = sorted(answer, key=lambda hit: order.index(hit.directory))
    body = [_count(_how_many(answer), is_unfinished=bool(answer.not_indexed))]
    for directory, hits in groupby(together, key=lambda hit: hit.directory):
        folder, found = os.path.basename(directory), list(hits)
        body.append(tag("h2", tag("a", found[0].title or folder, href=_address(folder))))
        body.append(tag("ol", *(tag("li", _hit(folder, hit)) for hit in found)))
    return _page(library, asked, facets, *body)


def _rows(rows: Iterable[tuple[ConversationSummary, str, RowFacts]], sort: Order) -> Html:
    return tag("ol", *(tag("li", _row(*row, sort)) for row in rows))


def _time(summary: ConversationSummary, sort: Order) -> str:
    return (summary.created_at if sort == "created" else summary.updated_at) or ""


def _count(said: str, *, is_unfinished: bool) -> Html:
    """How many there are. The page asks again while that is not known."""
    return tag("p", said, class_="count", role="status", data_unfinished=is_unfinished)


def error_page(library: str, said: str) -> bytes:
    """A page that says what is wrong, in a sentence."""
    return page_document(
        "transcript_store", tag("header", tag("h1", library)), tag("main", tag("p", said, class_="gap"))
    )


def _page(library: str, asked: Asked, facets: Facets, *body: Html) -> bytes:
    orders = [tag("option", _NAMES[each], value=each, selected=each == asked.sort) for each in ORDERS]
    places = [tag("option", name, value=each, selected=each == asked.where) for each, (name, _) in WHERE.items()]
    form = tag(
        "form",
        _field("q", asked.query, "Search all messages"),
        tag("select", *places, name="in", aria_label="Search in"),
        _field("filter", asked.filter, "Filter: title, project:shop"),
        tag("select", *orders, name="sort", aria_label="Order"),
        tag("button", "Show", type="submit"),
        method="get",
        role="search",
    )
    title = os.path.basename(library) or library
    header = tag("header", tag("h1", title), form)
    return page_document(title, header, tag("main", _chips(asked, facets), *body))


def _field(name: str, value: str, what: str) -> Html:
    return tag("input", type="search", name=name, value=value, placeholder=what, aria_label=what.partition(":")[0])


def _chips(asked: Asked, facets: Facets) -> Html | None:
    """What the list can be narrowed by, with how many there are; one that is chosen already takes its filter away."""
    groups = []
    for name, values in facets.items():
        chips = []
        for value, number in values[:_CHIPS] if len(values) > 1 else ():
            given = f'{name}:"{value}"' if re.search(r'[\s"]', value) else f"{name}:{value}"
            is_chosen = given in asked.filter
            narrowed = asked.filter.replace(given, "") if is_chosen else f"{asked.filter} {given}"
            shown = os.path.basename(value.rstrip("/")) or value if name == "project" else value
            chip = tag(
                "a",
                shown,
                tag("small", f" {number:,}"),
                href=asked.address(filter=" ".join(narrowed.split())),
                title=value,
            )
            chips.append(tag("li", chip, class_="chosen" if is_chosen else None))
        if chips:
            groups.append(tag("ul", *chips, aria_label=f"By {name}"))
    return tag("nav", *groups, class_="chips", aria_label="Narrow the list") if groups else None


def _row(summary: ConversationSummary, name: str, facts: RowFacts, sort: Order) -> Html:
    folder, labels = os.path.basename(summary.directory), summary.labels or {}
    shown = {key: text for key, text in labels.items() if key not in _SHOWN_ELSEWHERE}
    at = _time(summary, sort)
    said = [
        (time_of_day(at) if sort in _BY_DAY else full_time(at)) if at else None,
        _duration(summary.created_at, summary.updated_at),
        os.path.basename(labels.get("cwd", "").rstrip("/")),
        labels.get("source"),
        summary.model or summary.provider,
        many(summary.record_count, "record") if summary.record_count is not None else None,
        *facts.said,
        "sub-agent" if labels.get("part_of") else None,
        "sealed" if summary.sealed else None,
        *(f"{key}: {text}" for key, text in shown.items()),
    ]
    damage = tag("span", f" · damaged: {summary.damage}", class_="state") if summary.damage else None
    title = tag("span", name or folder, class_="title")
    meta = tag("span", " · ".join(filter(None, said)), damage, class_="meta")
    last = facts.last_prompt if facts.last_prompt != name else ""  # a conversation with one prompt is called by it
    shown_last = tag("span", tag("span", "Last: ", class_="name"), last, class_="last") if last else None
    return tag("a", title, shown_last, meta, href=_address(folder), class_="row")


def _duration(begin: str | None, end: str | None) -> str:
    """The time from the first record to the last; empty below a minute."""
    try:
        seconds = (datetime.fromisoformat(end or "") - datetime.fromisoformat(begin or "")).total_seconds()
    except (ValueError, TypeError):  # in a forged file
        return ""
    hours, minutes = divmod(int(seconds // 60), 60)
    if hours >= 24:
        return many(hours // 24, "day")
    return " ".join(f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min")) if number > 0)


def _hit(folder: str, hit: Hit) -> Html:
    where = "" if hit.where == "text" else f" · {hit.where}"
    where += f" · {_BESIDE[hit.beside]}" if hit.beside else ""
    anchor = f"g{hit.generation}-{hit.seq}" if hit.beside == "earlier-generation" else str(hit.seq)
    meta = f"{_ROLES.get(hit.role, hit.role)} · {full_time(hit.at)} · #{hit.seq}{where}"
    return tag(
        "a",
        tag("span", meta, class_="meta"),
        tag("span", excerpt_html(hit.excerpt, hit.highlights, is_markdown=hit.where == "text"), class_="excerpt"),
        href=f"{_address(folder)}#{anchor}",
        class_="row",
    )


def _address(folder: str) -> str:
    """Relative to the list. What is no UTF-8 in a name stays the bytes that it is."""
    return f"c/{quote(os.fsencode(folder), safe='')}/"


def _how_many(answer: SearchResult) -> str:
    if not answer.hits:
        where = ", ".join(f"{count:,} in {name}s (in:{name})" for name, count in answer.elsewhere.items() if count)
        said = "No message has this" + (f", but there are {where}" if where else "")
    elif answer.total is None or answer.total <= len(answer):
        said = many(len(answer), "message")
    else:
        said = f"{len(answer):,} of {f'more than {answer.total - 1:,}' if answer.total > 2000 else f'{answer.total:,}'} messages"
    if answer.not_indexed:
        said += f"; there may be more: {many(answer.not_indexed, 'conversation')} not indexed yet"
    if answer.not_searched:
        said += (
            f"; {many(answer.not_searched, 'sealed conversation')} could not be read: the key is not there, or another"
        )
    if answer.damaged:
        said += f"; {many(len(answer.damaged), 'conversation')} could not be searched after damage"
    if answer.not_read:
        said += (
            f"; the system refuses to read {many(len(answer.not_read), 'conversation')}: {answer.not_read[0].strerror}"
        )
    return said
