"""Pages of conversations, and the browser that opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.view import conversations
from transcript_store.view import write_page


@pytest.fixture(
    scope="module"
)  # an event loop runs in this thread as long as it does: nobody else's tests may meet that
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api", reason="needs playwright (no browser download: `apt install chromium`)")
    from tests.view.browser import chromium

    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A page by the name of its conversation; each is made once."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        made = folder / f"{name}.html"
        if not made.exists():
            directory = folder / name
            if name == "showcase":
                conversations.showcase(directory)
            elif name == "hostile":
                conversations.store(directory, conversations.hostile() * 3, **conversations.HOSTILE_METADATA)
            else:
                conversations.store(directory, conversations.long(int(name)))
            write_page(directory, made)
        return made

    return page
