"""The screenshots of docs/view.md: ``python -m tests.view.screenshots [FOLDER]`` takes them anew."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.view import conversations
from tests.view.browser import chromium, opened
from tests.view.conversations import showcase
from tests.view.server import serving
from transcript_store.view import write_page

FOLDER = Path(__file__).parents[2] / "docs" / "view"
TITLES = {
    "Move the queue to PostgreSQL": ("claude-opus-4-8", "How long is the **retry** queue at night?", "About 200 jobs; a retry waits a minute at most."),
    "Why is the nightly build slow?": ("gpt-5.2", "The nightly build takes an hour.", "It compiles everything twice: once for the tests, once for the retry of the upload."),
    "Letters to the landlord": ("claude-opus-4-8", "Please make this letter friendlier.", "Here is a draft in which we ask, and do not demand."),
    "A trip to Zürich in May": ("gemini-3-pro", "Which museums are open on Mondays?", "Most are closed; the botanical garden is open."),
}  # fmt: skip


def library(folder: Path) -> Path:
    """A few conversations of different kinds."""
    showcase(folder / "retries")
    for number, (title, (model, asked, answered)) in enumerate(TITLES.items()):
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        conversations.store(folder / f"c{number}", messages, model=model, labels={"title": title})
    return folder


@contextmanager
def places(scratch: Path) -> Iterator[dict[str, tuple[Path | str, str]]]:
    """What is looked at: a place, and the server that may be asked."""
    page = Path(write_page(showcase(scratch / "c"), scratch / "page.html").path)
    chats = scratch / "chats"
    chats.mkdir()
    with serving(library(chats), scratch / "cache") as server:
        yield {
            "page": (page, ""),
            "list": (server.url, server.url),
            "search": (f"{server.url}?q=retry%20OR%20wait", server.url),
        }


def take(folder: Path) -> list[Path]:
    """Light, dark and narrow; small enough for a repository."""
    taken = []
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser, places(Path(scratch)) as there:
        for name, what, scheme, (width, height), anchor in (
            ("light", "page", "light", (1180, 820), ""),
            ("dark", "page", "dark", (1180, 820), "#5"),
            ("narrow", "page", "light", (390, 780), "#2"),
            ("list-dark", "list", "dark", (1000, 560), ""),
            ("search-light", "search", "light", (1000, 720), ""),
        ):
            place, server = there[what]
            size = {"width": width, "height": height}
            with opened(browser, place, server, anchor=anchor, color_scheme=scheme, viewport=size) as seen:
                taken.append(shot(seen.page, folder / f"{name}.png"))
    return taken


def shot(page: Any, file: Path) -> Path:
    from PIL import Image

    page.evaluate("document.activeElement.blur(); document.fonts.ready")
    page.screenshot(path=file)
    Image.open(file).convert("RGB").quantize(192, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)
    return file


if __name__ == "__main__":
    for each in take(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(each, each.stat().st_size)
