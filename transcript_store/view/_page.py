"""How is a page built, and the index of a folder of pages? Head, sidebar, messages in chunks of 100, one script and style.

The first chunks are plain HTML in the page. The others are inert JSON, which the script puts in when they come near.
What is in the file is all there is: the policy (CSP) allows our script and style by their hashes, images from
``data:``, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import NamedTuple

import orjson

from transcript_store.display import dollars, many
from transcript_store.importing import conversation_id
from transcript_store.view._contents import Earlier, PageContents, said_of_hidden, title_of
from transcript_store.view._files import MARK
from transcript_store.view._html import (
    NOTHING,
    Html,
    attribute,
    day,
    full_time,
    joined,
    listing,
    readable_json,
    span,
    tag,
    time_of_day,
)
from transcript_store.view._messages import Counts, OutlineEntry, Pieces, render_items
from transcript_store.view._rich_text import code, markdown

# ---- head ----
#
# The head of a page: its policy (CSP), its only style, and the hash of its only script.

_POLICY_NAME = "Content-Security-Policy"


def page_head(title: str, script: Html, *, is_served: bool = False) -> Iterator[Html]:
    """The content of ``<head>``, for a page that runs this script."""
    yield tag("meta", charset="utf-8")
    yield tag("meta", http_equiv=_POLICY_NAME, content=policy(script, is_served=is_served))
    yield tag("meta", name="referrer", content="no-referrer")
    yield tag("meta", name="viewport", content="width=device-width, initial-scale=1")
    yield tag("meta", name="color-scheme", content="light dark")
    yield tag("link", rel="icon", href="data:,")
    yield tag("title", title)
    yield tag("style", Html(asset("page.css")))


def policy(script: str, *, is_served: bool) -> Html:
    """The policy of a page that runs this script alone. A served page may connect to its own server only."""
    rules: Mapping[str, str] = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_hash(script)}'",
        "style-src": f"'sha256-{_hash(asset('page.css'))}'",
        "img-src": "data:",
        **({"connect-src": "'self'"} if is_served else {}),
        "base-uri": "'none'",
        "form-action": "'self'" if is_served else "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "page",
    }
    return Html("; ".join(f"{name} {value}" for name, value in rules.items()))


@cache
def asset(name: str) -> str:
    """A file of ``assets/``."""
    from importlib.resources import files  # here: it imports tempfile, and `show` needs no asset

    return files("transcript_store.view").joinpath("assets", name).read_text("utf-8")


@cache
def _hash(said: str) -> str:
    return base64.b64encode(hashlib.sha256(said.encode()).digest()).decode()


# ---- page ----

_SWITCHES = {"Prompts": True, "Answers": True, "Tools": True, "Thinking": True, "Tokens": False}
"""What can be shown, and whether it is at first."""
_CHUNK = 100
_SHOWN_WITHOUT_SCRIPTS = 2
"""In chunks."""
_MOST_LINKS = 8
"""To other generations."""
_END_OF_SCRIPT = "})();\n"
_CHARACTERS_A_PIXEL = 12
"""Roughly: how high a chunk is before anybody has seen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The addresses around a served page, relative to it."""

    home: str
    """The list of all conversations."""
    of_conversation: Callable[[str], str | None]
    """The page of the conversation with an id; None if there is none."""
    of_generation: Callable[[int | None], str]
    """The page of a generation of this one; None is the live one."""
    parts: Sequence[tuple[str, str]] = ()
    """The conversations of its sub-agents: a name and an address each."""


def page(
    contents: PageContents,
    *,
    plain: bool = False,
    served: Served | None = None,
    live: Pieces | None = None,
    position: str | None = None,
    tail: str | None = None,
) -> Iterator[bytes]:
    """The page, in pieces.

    Args:
        contents: what is shown.
        plain: put all messages in, for who has no scripts.
        served: where it stands; None for a file.
        live: the pieces of the records, if they were made already.
        position: how far it goes, for its events; None if nothing follows.
        tail: what is wrong after the last record, in a sentence.
    """
    live = live or render_items(contents.stretches, contents.metadata.provider)
    before = [
        (each, render_items(each.stretches, contents.metadata.provider, prefix=f"g{each.number}-"))
        for each in contents.before
    ]
    title = title_of(contents)
    chunks = _Chunks(plain=plain)
    yield MARK
    yield _encoded(
        Html('<html lang="en" class="show-prompts show-answers show-tools show-thinking"'),
        attribute("data_position", position),
        Html(">"),
        tag("head", *page_head(title, script_of(position is not None), is_served=served is not None)),
        Html("<body>"),
        tag("a", "Skip to the conversation", href="#conversation", class_="skip"),
        _sidebar(live, served),
        Html('<main id="conversation" tabindex="-1">'),
        _top(title, contents, live.counts, served),
    )
    for each, pieces in before:
        if pieces.html:
            yield _encoded(_taken_away(each, chunks.make(pieces.html, is_open=plain)))
    yield from (_encoded(chunk) for chunk in chunks.make(live.html, is_open=True))
    yield _encoded(
        tag("p", tail, class_="gap") if tail else NOTHING,
        tag("p", "End of the conversation" if live.html else "There are no messages.", class_="end"),
        _rest(chunks.waiting),
        Html("</main>"),
        _help(),
        tag("script", script_of(position is not None)),
    )
    yield from (_inert(number, pieces) for number, pieces in chunks.waiting)
    yield b"</body></html>\n"


class _Chunks:
    def __init__(self, *, plain: bool) -> None:
        self.waiting: list[tuple[int, Sequence[Html]]] = []
        """The chunks that are not in the page itself, by their numbers."""
        self._plain = plain
        self._made = 0

    def make(self, pieces: Sequence[Html], *, is_open: bool) -> Iterator[Html]:
        """The pieces as chunks; the first of them filled, if they are seen at once."""
        for place, start in enumerate(range(0, len(pieces), _CHUNK)):
            some = pieces[start : start + _CHUNK]
            self._made += 1
            if self._plain or (is_open and place < _SHOWN_WITHOUT_SCRIPTS):
                yield tag("div", *some, class_="chunk")
            else:
                self.waiting.append((self._made, some))
                height = 24 * len(some) + sum(map(len, some)) // _CHARACTERS_A_PIXEL
                yield tag("div", class_="chunk", data_chunk=self._made, data_height=height)


def script_of(is_live: bool) -> Html:
    """The script of a page. That of a live one continues with its events, within the same function."""
    script = asset("page.js")
    return Html(script.removesuffix(_END_OF_SCRIPT) + asset("live.js") + _END_OF_SCRIPT if is_live else script)


def _top(title: str, contents: PageContents, counts: Counts, served: Served | None) -> Html:
    damage = tag("p", f"This conversation is damaged. {contents.damage}", class_="gap") if contents.damage else NOTHING
    return tag(
        "header",
        tag("h1", title, class_="long" if len(title) > 80 else None),
        tag("dl", facts(contents, counts, served)),
        damage,
        tag("p", said_of_hidden(contents.hidden), class_="gap") if contents.hidden else NOTHING,
        *_setup(contents),
        _parts(served.parts) if served and served.parts else NOTHING,
        class_="top",
    )


def facts(contents: PageContents, counts: Counts, served: Served | None = None) -> Html:
    """The facts about the conversation, as names and values."""
    metadata = contents.metadata
    models = list(counts.models) or ([metadata.model] if metadata.model else [])
    usage = contents.usage
    tokens_in = counts.tokens_in if usage is None else usage.input_tokens
    tokens_out = counts.tokens_out if usage is None else usage.output_tokens
    cached = f" ({usage.cache_read_tokens:,} from the cache)" if usage is not None and usage.cache_read_tokens else ""
    origin = metadata.forked_from
    known = {
        "Model": ", ".join(models) or metadata.provider,
        "When": span(counts.first_at, counts.last_at) or full_time(metadata.created_at),
        "Holds": ", ".join(_amounts(counts)),
        "Tokens": f"{tokens_in:,} in{cached}, {tokens_out:,} out" if tokens_in or tokens_out else "",
        # A part of a sum is no cost: usage has one only if every reply has a price.
        "Cost": dollars(usage.cost_usd) if usage is not None and usage.cost_usd else None,
        "From": metadata.labels.get("source"),
        "In": metadata.labels.get("cwd"),
        "Part of": _whole(metadata.labels, served),
        "Forked from": joined(_linked(str(origin.get("conversation")), served), f", after #{origin.get('seq')}")
        if isinstance(origin, dict)
        else None,
        "Generation": _generation(contents, served),
        "Conversation": metadata.id,
    }
    return joined(*(joined(tag("dt", name), tag("dd", fact)) for name, fact in known.items() if fact))


def _linked(id: str | None, served: Served | None) -> str | None:
    """The id of another conversation; a link to it, where it can be had."""
    address = served.of_conversation(id) if served and id else None
    return tag("a", id, href=address) if address else id


def _whole(labels: Mapping[str, str], served: Served | None) -> str | None:
    """The session that a sub-agent belongs to. Its program calls it by another id than the library."""
    session, program = labels.get("part_of"), labels.get("source")
    address = served.of_conversation(conversation_id(program, session)) if served and session and program else None
    return tag("a", session, href=address) if address else session


def _setup(contents: PageContents) -> Iterator[Html]:
    prompt, tools = contents.metadata.system_prompt, contents.metadata.tools
    if prompt:
        note = tag("span", many(len(prompt), "character"), class_="note")
        summary = tag("summary", tag("h2", "System prompt", class_="name"), note)
        yield tag("details", summary, tag("div", markdown(prompt), class_="said"), class_="tool")
    if tools:
        names = tag("span", ", ".join(str(tool.get("name")) for tool in tools), class_="about")
        summary = tag("summary", tag("span", many(len(tools), "tool"), class_="name"), names)
        yield tag("details", summary, listing(code(readable_json(tools), language="json")), class_="tool")


def _parts(parts: Sequence[tuple[str, str]]) -> Html:
    links = (tag("li", tag("a", name, href=address)) for name, address in parts)
    summary = tag("summary", tag("span", many(len(parts), "sub-agent"), class_="name"))
    return tag("details", summary, tag("ul", *links), class_="tool")


def _amounts(counts: Counts) -> Iterator[str]:
    yield many(counts.messages, "message")
    for number, what in (
        (counts.prompts, "prompt"),
        (counts.calls, "call"),
        (counts.events, "event"),
        (counts.gaps, "gap"),
    ):
        if number:
            yield many(number, what)


def _generation(contents: PageContents, served: Served | None) -> str | None:
    live, shown = contents.metadata.generation, contents.generation
    said = str(live) if live and shown == live else None
    if shown != live:
        said = f"{shown}, which was replaced; the live one is {live}"
    if served is None or said is None:
        return said
    others = [
        tag("a", str(each), href=served.of_generation(None if each == live else each))
        for each in range(live + 1)
        if each != shown and each not in contents.hidden
    ]
    return joined(said, *(joined(", " if at else "; see ", link) for at, link in enumerate(others[-_MOST_LINKS:])))


def _taken_away(earlier: Earlier, chunks: Iterator[Html]) -> Html:
    records = many(len(earlier.stretches), "record")
    said = f"{records} of generation {earlier.number} stood here until {full_time(earlier.ended_at)}"
    summary = tag("summary", tag("span", "Compacted or retracted", class_="name"), tag("span", said, class_="about"))
    return tag("details", summary, *chunks, class_="before")


def _sidebar(live: Pieces, served: Served | None) -> Html:
    outline = [*_outline(live.outline)]
    filters = [
        tag("label", tag("input", type="checkbox", checked=is_shown, data_show=name.lower()), name)
        for name, is_shown in _SWITCHES.items()
        if name != "Tokens" or live.counts.tokens_in or live.counts.tokens_out
    ]
    controls = tag(
        "div",
        tag("input", type="search", id="search", placeholder="Search all messages", aria_label="Search all messages"),
        tag("p", class_="status", role="status"),
        tag("fieldset", tag("legend", "Show"), *filters),
        class_="controls",
    )
    foot = tag(
        "div",
        tag("button", "Theme: system", type="button", id="theme"),
        tag("button", "Keys", type="button", id="keys"),
        class_="controls foot",
    )
    return joined(
        tag("button", "Contents", type="button", id="menu", class_="controls", aria_expanded="false"),
        tag(
            "aside",
            tag("a", "All conversations", href=served.home, class_="home") if served else None,
            controls,
            tag("ol", class_="hits", hidden=True),
            tag("nav", tag("ol", *outline), aria_label="Prompts"),
            foot,
            aria_label="Contents",
        ),
    )


def _outline(prompts: Sequence[OutlineEntry]) -> Iterator[Html]:
    """The prompts, with the days on which they were said if these are several."""
    days = [day(prompt.at) for prompt in prompts]
    shown = ""
    for prompt, said_on in zip(prompts, days, strict=True):
        if said_on and said_on != shown and len(set(days)) > 1:
            yield tag("li", said_on, class_="when")
        shown = said_on or shown
        note = tag("small", prompt.note) if prompt.note else NOTHING
        yield tag("li", tag("a", tag("span", prompt.label), note, href=f"#{prompt.anchor}"))


def _rest(waiting: Sequence[tuple[int, Sequence[Html]]]) -> Html:
    if not waiting:
        return NOTHING
    number = many(sum(len(pieces) for _, pieces in waiting), "more message")
    said = f"{number} can be seen with scripts only. `transcript-store view --plain` makes a page that needs none."
    return tag("noscript", tag("p", said, class_="gap"))


def _help() -> Html:
    keys = {
        "j k": "next and previous message",
        "n p": "next and previous prompt",
        "/": "search in all messages (the browser's own search does not see those that are far away)",
        "t": "unfold, or fold, all thinking",
        "o": "unfold, or fold, all tools",
        "?": "this list",
    }
    listed = [joined(tag("dt", *_keys(names)), tag("dd", what)) for name, what in keys.items() for names in [name]]
    close = tag("form", tag("button", "Close", type="submit"), method="dialog")
    return tag("dialog", tag("h2", "Keys", id="keys-title"), tag("dl", *listed), close, aria_labelledby="keys-title")


def _keys(names: str) -> Iterator[Html]:
    return (tag("kbd", name) for name in names.split())


def _inert(number: int, pieces: Sequence[Html]) -> bytes:
    r"""A chunk as JSON, which no browser runs.

    Only ``</script`` ends the element, and only ``<!--`` hides such an end from the browser (the HTML standard, "restrictions for
    contents of script elements"). So ``</`` is written ``<\/`` and ``<!`` is ``\u003c!``: a page has a hundred thousand other ``<``.
    """
    data = orjson.dumps(pieces).replace(b"</", b"<\\/").replace(b"<!", b"\\u003c!")
    data = data.replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")
    return b'<script type="application/json" id="chunk-%d">%b</script>\n' % (number, data)


def _encoded(*pieces: Html) -> bytes:
    return joined(*pieces).encode()


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
