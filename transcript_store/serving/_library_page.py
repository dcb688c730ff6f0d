"""The list of a library's conversations, and what a search over all of them finds."""

from __future__ import annotations

import os
from itertools import groupby
from typing import get_args
from urllib.parse import quote, urlencode

from transcript_store.library import ConversationSummary
from transcript_store.search import Answer, Hit, Listing, Order
from transcript_store.view.served import Html, document, excerpt, full, tag
from transcript_store.words import many

ORDERS: tuple[Order, ...] = get_args(Order)
_NAMES = {"updated": "Newest", "created": "Created", "title": "Title", "records": "Most records", "size": "Largest"}
_NOTHING_YET = (
    "There are no conversations here yet: transcript-store import brings in what other programs keep,"
    " transcript-store chat begins one"
)
_BESIDE = {"left-branch": "on a branch that was left", "earlier-generation": "taken away by a compaction"}
_ROLES = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool", "model": "Assistant"}


def listing_page(library: str, listing: Listing, *, filter: str, sort: Order) -> bytes:
    """A page of the list, with where the next one is."""
    rows = [tag("li", _row(summary, name)) for summary, name in zip(listing, listing.names, strict=True)]
    count = many(listing.total, "conversation")
    if not listing.total and not listing.not_looked_at:
        count = "No title has this" if filter else _NOTHING_YET
    if listing.not_looked_at:
        count += f"; {many(listing.not_looked_at, 'folder')} not looked at yet"
    body = [_count(count, is_unfinished=bool(listing.not_looked_at)), tag("ol", *rows)]
    if listing.next:
        asked = urlencode({"filter": filter, "sort": sort, "after": listing.next})
        body.append(tag("a", "More", href=f"?{asked}", class_="more"))
    return _page(library, "", filter, sort, *body)


def hits_page(library: str, answer: Answer, *, query: str, filter: str, sort: Order) -> bytes:
    """What a search found, the conversation with the best hit first, each hit in its context."""
    order = list(dict.fromkeys(hit.directory for hit in answer))
    together = sorted(answer, key=lambda hit: order.index(hit.directory))
    body = [_count(_how_many(answer), is_unfinished=bool(answer.not_indexed))]
    for directory, hits in groupby(together, key=lambda hit: hit.directory):
        folder, found = os.path.basename(directory), list(hits)
        body.append(tag("h2", tag("a", found[0].title or folder, href=_address(folder))))
        body.append(tag("ol", *(tag("li", _hit(folder, hit)) for hit in found)))
    return _page(library, query, filter, sort, *body)


def _count(said: str, *, is_unfinished: bool) -> Html:
    """How many there are. The page asks again while that is not known."""
    return tag("p", said, class_="count", role="status", data_unfinished=is_unfinished)


def error_page(library: str, said: str) -> bytes:
    """A page that says what is wrong, in a sentence."""
    return document("transcript_store", tag("header", tag("h1", library)), tag("main", tag("p", said, class_="gap")))


def _page(library: str, query: str, filter: str, sort: Order, *body: Html) -> bytes:
    orders = [tag("option", _NAMES[each], value=each, selected=each == sort) for each in ORDERS]
    form = tag(
        "form",
        tag(
            "input",
            type="search",
            name="q",
            value=query,
            placeholder="Search all messages",
            aria_label="Search all messages",
        ),
        tag(
            "input",
            type="search",
            name="filter",
            value=filter,
            placeholder="Filter by title",
            aria_label="Filter by title",
        ),
        tag("select", *orders, name="sort", aria_label="Order"),
        tag("button", "Show", type="submit"),
        method="get",
        role="search",
    )
    title = os.path.basename(library) or library
    return document(title, tag("header", tag("h1", title), form), tag("main", *body))


def _row(summary: ConversationSummary, name: str) -> Html:
    folder = os.path.basename(summary.directory)
    labels = {name: text for name, text in (summary.labels or {}).items() if name not in ("title", "cwd", "import")}
    said = [
        full(summary.updated_at) if summary.updated_at else None,
        summary.model or summary.provider,
        many(summary.record_count, "record") if summary.record_count is not None else None,
        "sealed" if summary.sealed else None,
        *(f"{name}: {text}" for name, text in labels.items()),
    ]
    damage = tag("span", f" · damaged: {summary.damage}", class_="state") if summary.damage else None
    title = tag("span", name or folder, class_="title")
    meta = tag("span", " · ".join(filter(None, said)), damage, class_="meta")
    return tag("a", title, meta, href=_address(folder), class_="row")


def _hit(folder: str, hit: Hit) -> Html:
    where = "" if hit.where == "text" else f" · {hit.where}"
    where += f" · {_BESIDE[hit.beside]}" if hit.beside else ""
    anchor = f"g{hit.generation}-{hit.seq}" if hit.beside == "earlier-generation" else str(hit.seq)
    meta = f"{_ROLES.get(hit.role, hit.role)} · {full(hit.at)} · #{hit.seq}{where}"
    return tag(
        "a",
        tag("span", meta, class_="meta"),
        tag("span", excerpt(hit.excerpt, hit.marks, is_markdown=hit.where == "text"), class_="excerpt"),
        href=f"{_address(folder)}#{anchor}",
        class_="row",
    )


def _address(folder: str) -> str:
    """Relative to the list. What is no UTF-8 in a name stays the bytes that it is."""
    return f"c/{quote(os.fsencode(folder), safe='')}/"


def _how_many(answer: Answer) -> str:
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
        said += f"; {many(len(answer.damaged), 'conversation')} could not be searched behind damage"
    if answer.not_read:
        said += (
            f"; the system refuses to read {many(len(answer.not_read), 'conversation')}: {answer.not_read[0].strerror}"
        )
    return said
