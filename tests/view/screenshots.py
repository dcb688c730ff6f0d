"""The pictures of README and docs/view.md: ``python -m tests.view.screenshots`` takes them; test_screenshots.py holds them true."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page

from tests.view import conversations
from tests.view.browser import chromium, opened
from tests.view.conversations import showcase
from tests.view.server import serving
from transcript_store.view import write_page

FOLDER = Path(__file__).parents[2] / "docs" / "view"
SHOWN = Path(__file__).with_name("screenshots.json")
"""What each picture shows: the words of the page, and a hash of its styles. A picture is as old as this file."""


class Talk(NamedTuple):
    """A conversation of the library in the pictures."""

    at: str
    program: str
    folder: str
    model: str
    title: str
    asked: str
    answered: str
    turns: int
    last: str


TALKS = (
    Talk("2026-03-04T10:41", "claude-code", "shop", "claude-opus-4-8", "Move the queue to PostgreSQL",
         "How long is the **retry** queue at night?", "About 200 jobs; a retry waits a minute at most.", 31,
         "And if PostgreSQL restarts while a job runs?"),
    Talk("2026-03-04T09:02", "codex", "shop", "gpt-5.2", "Why is the nightly build slow?",
         "The nightly build takes an hour.", "It compiles everything twice: for the tests, and for the retry of the upload.", 12,
         "Cache the wheels between the two jobs, please."),
    Talk("2026-03-03T17:20", "opencode", "site", "gpt-5.2", "Dark mode for the price list",
         "The price list is white at night.", "I moved its colours into variables; both modes have them now.", 8,
         "Check the contrast of the crossed-out prices."),
    Talk("2026-03-03T08:55", "chatgpt", "", "gpt-5.2", "A trip to Zürich in May",
         "Which museums are open on Mondays?", "Most are closed; the botanical garden is open.", 3,
         "One that is good with children, on a rainy day."),
    Talk("2026-03-02T20:14", "cursor", "site", "claude-opus-4-8", "Flaky test of the checkout",
         "test_checkout fails once in ten runs.", "It waits for wall time. I let it wait for the order's event.", 17,
         "Run it 200 times, and show me the slowest."),
    Talk("2026-03-01T19:30", "claude-ai", "", "claude-opus-4-8", "Letters to the landlord",
         "Please make this letter friendlier.", "Here is a draft in which we ask, and do not demand.", 5,
         "Shorter, and with the date of the first letter."),
)  # fmt: skip


def library(folder: Path) -> Path:
    """A week of conversations, from several programs."""
    showcase(folder / "retries")
    for number, talk in enumerate(TALKS):
        messages = [("user", talk.asked), ("assistant", talk.answered)]
        for turn in range(2, talk.turns + 1):
            asked = talk.last if turn == talk.turns else "What is next?"
            messages += [("user", asked), ("assistant", f"Part {turn} of {talk.turns} is done.")]
        begin = datetime.fromisoformat(f"{talk.at}+00:00") - timedelta(minutes=2 * talk.turns - 1)
        times = [begin + timedelta(minutes=minute) for minute in range(2 * talk.turns)]
        labels = {"title": talk.title, "source": talk.program}
        if talk.folder:
            labels["cwd"] = f"/home/ada/src/{talk.folder}"
        conversations.store(
            folder / f"c{number}",
            [{"role": role, "content": text} for role, text in messages],
            times=times,
            model=talk.model,
            provider="openai",
            labels=labels,
        )
    return folder


class Picture(NamedTuple):
    """What is pictured, in which colours, how large, and from which record on."""

    what: str
    scheme: str
    size: tuple[int, int]
    anchor: str = ""


PICTURES = {
    "list-light": Picture("list", "light", (1000, 640)),
    "list-dark": Picture("list", "dark", (1000, 640)),
    "page-light": Picture("page", "light", (1000, 760), "#2"),
    "page-dark": Picture("page", "dark", (1000, 760), "#2"),
    "search-light": Picture("search", "light", (1000, 640)),
    "narrow": Picture("page", "light", (390, 780), "#2"),
}


@contextmanager
def places(scratch: Path) -> Iterator[dict[str, tuple[Path | str, str]]]:
    """What is looked at: a place, and the server that may be asked."""
    page = Path(write_page(showcase(scratch / "c"), scratch / "page.html").path)
    chats = scratch / "sessions"
    chats.mkdir()
    with serving(library(chats), scratch / "cache") as server:
        yield {
            "page": (page, ""),
            "list": (server.url, server.url),
            "search": (f"{server.url}?q=retry%20OR%20wait", server.url),
        }


def pictured(browser: Browser) -> Iterator[tuple[str, Page]]:
    """Each picture's name with its page, open in the browser."""
    with tempfile.TemporaryDirectory() as scratch, places(Path(scratch)) as there:
        for name, (what, scheme, (width, height), anchor) in PICTURES.items():
            place, server = there[what]
            size = {"width": width, "height": height}
            with opened(
                browser, place, server, anchor=anchor, color_scheme=scheme, viewport=size, device_scale_factor=1.5
            ) as seen:
                seen.page.evaluate("document.activeElement.blur(); document.fonts.ready")
                yield name, seen.page


def shown(page: Page) -> dict[str, Any]:
    """The page's words in their order, without ids, which are random, and a hash of its styles."""
    words: str = page.evaluate("document.body.innerText")
    styles: str = page.evaluate("[...document.querySelectorAll('style')].map(s => s.textContent).join()")
    words = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", words)
    return {
        "words": re.findall(r"\S.*\S|\S", words),
        "styles": hashlib.sha256(styles.encode()).hexdigest()[:16],
    }


def take(folder: Path) -> list[Path]:
    """Light, dark and narrow; small enough for a repository."""
    taken, notes = [], {}
    with chromium() as browser:
        for name, page in pictured(browser):
            file = folder / f"{name}.png"
            page.screenshot(path=file)
            finish(file, PICTURES[name].scheme)
            taken.append(file)
            if PICTURES[name].scheme == "light":  # the dark ones show the same
                notes[name] = shown(page)
    SHOWN.write_text(json.dumps(notes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return taken


def finish(file: Path, scheme: str) -> None:
    """An edge, since a page around it may have its colour, and fewer colours."""
    from PIL import Image, ImageOps  # only this command needs it

    framed = ImageOps.expand(Image.open(file).convert("RGB"), 2, "#d8d4cc" if scheme == "light" else "#3c3c40")
    framed.quantize(192, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)


if __name__ == "__main__":
    for each in take(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(each, each.stat().st_size)
