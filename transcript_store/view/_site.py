"""What is the index of a folder of pages? A list of them, with a search over their names and prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from transcript_store.display import many
from transcript_store.view._html import Html, day, joined, tag, time_of_day
from transcript_store.view._page import asset, page_head

_LONGEST_SEARCHED = 4000


class SitePage(NamedTuple):
    """A row of the index: one page of the site."""

    file: str
    """Its name, in the same folder."""
    name: str
    said_at: str
    """When something was last said: RFC 3339."""
    facts: tuple[str, ...]
    """Its project, program, model and length, as far as they are known."""
    prompts: str
    """Text that the search looks at, besides the name and the facts."""


def index_page(title: str, pages: Sequence[SitePage]) -> Iterator[bytes]:
    """The index, the page first in which something was said last. It runs nothing of a conversation, and asks the network for nothing."""
    script = Html(asset("site.js"))
    search = tag(
        "input",
        type="search",
        id="search",
        placeholder="Search names and prompts",
        aria_label="Search names and prompts",
    )
    count = tag("p", many(len(pages), "conversation"), class_="count", role="status")
    form = tag("form", search, role="search", class_="controls")
    yield joined(
        Html('<html lang="en">'),
        tag("head", *page_head(title, script)),
        Html('<body class="library">'),
        tag("header", tag("h1", title), form),
        tag("main", count, *_days(pages)),
        tag("script", script),
        Html("</body></html>"),
    ).encode()


def _days(pages: Iterable[SitePage]) -> Iterator[Html]:
    newest_first = sorted(pages, key=lambda page: page.said_at, reverse=True)
    for name, of_day in groupby(newest_first, key=lambda page: day(page.said_at) or "Without a time"):
        yield tag("section", tag("h2", name, class_="day"), tag("ol", *map(_row, of_day)))


def _row(page: SitePage) -> Html:
    facts = " · ".join(filter(None, (time_of_day(page.said_at), *page.facts)))
    link = tag(
        "a", tag("span", page.name, class_="title"), tag("span", facts, class_="meta"), href=page.file, class_="row"
    )
    return tag("li", link, data_said=" ".join(page.prompts.lower().split())[:_LONGEST_SEARCHED])
