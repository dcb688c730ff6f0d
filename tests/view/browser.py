"""A page in a real browser, which records each violation: a request, a script that ran, what the policy blocked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserType, Dialog, Page, Route, sync_playwright

from tests.kit.tools import tool

CHROMIUM = "chromium"
_NOTE_VIOLATIONS = (
    "window.blocked = []; addEventListener('securitypolicyviolation', e => blocked.push(e.violatedDirective))"
)


@dataclass
class Seen:
    """A page that is open, and what was noted of it."""

    page: Page
    requests: list[str] = field(default_factory=list)
    """What it asked for, except itself and what is in it."""
    errors: list[str] = field(default_factory=list)

    @property
    def blocked(self) -> list[str]:
        """The directives of the policy that something met."""
        blocked: list[str] = self.page.evaluate("window.blocked")
        return blocked

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium."""
    with sync_playwright() as playwright, _launched(playwright.chromium) as browser:
        yield browser


@contextmanager
def chromium_with(browser: Browser, *arguments: str) -> Iterator[Browser]:
    """Another one beside it, with these arguments."""
    with _launched(browser.browser_type, *arguments) as another:
        yield another


@contextmanager
def _launched(chromium: BrowserType, *arguments: str) -> Iterator[Browser]:
    path = tool(CHROMIUM)
    assert path is not None
    own = ["--no-sandbox"] if os.geteuid() == 0 else []  # root, as in CI, has no sandbox; the page is ours
    running = chromium.launch(executable_path=path, args=[*own, *arguments])
    try:
        yield running
    finally:
        running.close()


@contextmanager
def opened(
    browser: Browser, place: Path | str, server: str = "", *, anchor: str = "", **options: Any
) -> Iterator[Seen]:
    """The page of a file, or at an address, loaded. No request leaves, except to ``server``: each is refused, and noted."""
    address = place.as_uri() if isinstance(place, Path) else place
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    try:
        seen = Seen(context.new_page())

        def refuse(route: Route) -> None:
            asked = route.request.url.partition("#")[0]
            if asked == address or (server and asked.startswith(server)):
                route.continue_()
            else:
                seen.requests.append(route.request.url)
                route.abort()

        context.route("**/*", refuse)
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))

        def dismiss(dialog: Dialog) -> None:
            seen.errors.append(f"a dialog: {dialog.message}")
            dialog.dismiss()

        seen.page.on("dialog", dismiss)
        seen.page.on("popup", lambda popup: seen.errors.append(f"a window: {popup.url}"))
        if options.get("java_script_enabled", True):
            seen.page.add_init_script(_NOTE_VIOLATIONS)
        seen.page.goto(address + anchor)
        yield seen
    finally:
        context.close()


def axe_violations(page: Page) -> list[Any]:
    """What axe-core finds on a page whose policy is bypassed, with everything unfolded: rule, how often, the first place."""
    folder = os.environ.get("TRANSCRIPT_STORE_AXE")
    if not folder:
        pytest.skip("needs axe-core: npm install --prefix FOLDER axe-core; export TRANSCRIPT_STORE_AXE=FOLDER")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # everything is put in, and unfolded
    page.add_style_tag(content="article { content-visibility: visible !important } .copy { opacity: 1 !important }")
    page.evaluate(Path(folder, "node_modules/axe-core/axe.min.js").read_text())
    found: list[Any] = page.evaluate(
        "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200)]))"
    )
    return found
