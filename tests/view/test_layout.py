"""The layout of the page: nothing covers a text, lines fit, and cut texts say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.view.conversations import store
from transcript_store import ConversationStore
from transcript_store.view import render_page, write_page

LONG = "An answer that goes on over the whole width of the page and further. " * 8


def answer(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*content]}


def call(number: int, result: str) -> list[dict[str, Any]]:
    """A reply that is nothing but a call, and its result."""
    its = {"type": "tool_use", "id": f"call{number}", "name": "Bash", "input": {"command": "ls"}}
    back = {"type": "tool_result", "tool_use_id": f"call{number}", "content": result}
    return [answer(its), {"role": "user", "content": [back]}]


def box_of(place: Any) -> dict[str, float]:
    found: dict[str, float] | None = place.bounding_box()
    assert found is not None
    return found


SAID = [
    {"role": "user", "content": "/mode"},
    {"role": "user", "content": "Please mend the test"},
    answer({"type": "text", "text": LONG}),
    answer({"type": "text", "text": LONG}),
    *call(1, "x" * 300),
    *call(2, "\n".join(f"line {number}" for number in range(30))),
    answer({"type": "thinking", "thinking": LONG, "signature": "s"}, {"type": "text", "text": LONG}),
]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    store(tmp_path / "c", SAID, provider="claude")
    return Path(write_page(tmp_path / "c", tmp_path / "page.html").path)


def test_the_title_is_the_first_prompt_that_is_no_slash_command(tmp_path: Path) -> None:
    """If all of them are, it is the first; a path is no command."""
    for number, (prompts, title) in enumerate(
        (
            (["/mode", "/model opus", "Mend it"], "Mend it"),
            (["/mode", "/exit"], "/mode"),
            (["/usr/bin/env is missing", "Mend it"], "/usr/bin/env is missing"),
        )
    ):
        directory = tmp_path / str(number)
        store(directory, [{"role": "user", "content": said} for said in prompts])
        assert f"<title>{title}</title>" in b"".join(render_page(directory)).decode()


def test_what_is_cut_says_so(page: Path) -> None:
    """The preview of a result that has more lines, and that of thinking; the rest of a long line is the style's."""
    shown = page.read_text()
    assert "line 3 …</span>" in shown
    assert f"{LONG[:160]}…</span>" in shown
    assert "text-overflow: ellipsis" in shown


@pytest.mark.needs("chromium")
def test_nothing_covers_the_text_of_an_answer(browser: Any, page: Path) -> None:
    """The button that copies an answer without a heading has its own room; calls begin where those beneath a text do."""
    from tests.view.browser import opened

    with opened(browser, page) as seen:
        article = seen.page.locator("article.goes-on.has-text").first
        article.hover()
        copy = box_of(article.locator("header .copy"))
        lines = article.locator(".said p").evaluate(
            "p => { const all = new Range(); all.selectNodeContents(p); return [...all.getClientRects()].map(r => r.toJSON()) }"
        )
        for line in lines:
            is_beside = line["right"] <= copy["x"] or copy["x"] + copy["width"] <= line["left"]
            assert is_beside or line["bottom"] <= copy["y"] or copy["y"] + copy["height"] <= line["top"]
        lefts = {box_of(one)["x"] for one in seen.page.locator("article summary").all()}
        assert len(lefts) == 1
        reply = seen.page.locator("article.has-tools").first
        name, note, at = (box_of(reply.locator(one)) for one in (".name", "summary .note", ".link"))
        middles = [box["y"] + box["height"] / 2 for box in (name, note, at)]
        assert max(middles) - min(middles) < 3


@pytest.mark.needs("chromium")
def test_on_a_narrow_screen_what_is_scrolled_goes_under_a_bar(browser: Any, page: Path) -> None:
    """Around the button Contents, nothing of the conversation is seen."""
    from tests.view.browser import opened

    with opened(browser, page, viewport={"width": 400, "height": 800}) as seen:
        seen.page.evaluate("scrollTo(0, 340)")
        button = box_of(seen.page.get_by_role("button", name="Contents"))
        bar = seen.page.evaluate(
            "(() => { const s = getComputedStyle(document.body, '::before'); return [s.position, s.width, parseFloat(s.height)] })()"
        )
        assert bar[:2] == ["fixed", "400px"]
        assert bar[2] >= button["y"] + button["height"]


@pytest.mark.needs("chromium")
def test_on_a_narrow_screen_who_speaks_stands_on_one_line(browser: Any, tmp_path: Path) -> None:
    """The name of a model is cut, and no column of pieces; the tokens stand below, and the time where it always does."""
    from tests.view.browser import opened

    reply = {"role": "assistant", "content": "Hello."}
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(messages=[{"role": "user", "content": "Hi"}])
        usage = {"input_tokens": 120_000, "output_tokens": 25_000}
        conversation.append_message(reply, extra={"model": "claude-3-sonnet-20240229-with-a-long-name", "usage": usage})
    page = Path(write_page(tmp_path / "c", tmp_path / "page.html").path)
    with opened(browser, page, viewport={"width": 390, "height": 800}) as seen:
        seen.page.evaluate("document.documentElement.classList.add('show-tokens')")  # as the switch does
        header = seen.page.locator("article > header").last
        who, model, at, tokens = (box_of(header.locator(one)) for one in ("h2, h3", ".model", ".link", ".tokens"))
        middles = [box["y"] + box["height"] / 2 for box in (who, model, at)]
        assert max(middles) - min(middles) < 4
        assert model["x"] + model["width"] < at["x"]
        assert max(box["height"] for box in (model, at, tokens)) < 24
        assert tokens["y"] >= who["y"] + who["height"] - 2
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.needs("chromium")
def test_on_a_phone_what_came_of_a_call_has_the_whole_width(browser: Any, tmp_path: Path) -> None:
    """Beside the time of a further call it had 232 of 358 pixels."""
    from tests.view.browser import opened

    calls = [{"type": "tool_use", "id": f"t{at}", "name": "Bash", "input": {"command": "ls"}} for at in range(3)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    for call in calls:
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "a line that is long " * 9}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    page = Path(write_page(store(tmp_path / "c", messages), tmp_path / "page.html").path)
    with opened(browser, page, viewport={"width": 390, "height": 800}) as seen:
        widths = seen.page.evaluate(
            "[...document.querySelectorAll('.peek')].map(peek => Math.round(peek.getBoundingClientRect().width))"
        )
        assert (len(widths), set(widths)) == (3, {358})
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390


WIDE = " | ".join(f"column {number}" for number in range(14))
TABLE = f"| {WIDE} |\n|{'---|' * 14}\n| {WIDE} |"


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
def test_a_wide_table_keeps_its_words_and_scrolls_by_itself(browser: Any, tmp_path: Path, width: int) -> None:
    """No word is broken into letters, the page itself does not scroll sideways, and a key can reach the table."""
    from tests.view.browser import opened

    store(tmp_path / "c", [{"role": "user", "content": "Compare them"}, answer({"type": "text", "text": TABLE})])
    page = Path(write_page(tmp_path / "c", tmp_path / "page.html").path)
    with opened(browser, page, viewport={"width": width, "height": 800}) as seen:
        table = seen.page.locator(".said table")
        assert table.evaluate("table => table.scrollWidth > table.clientWidth + 100")
        assert box_of(table.locator("th").first)["height"] < 80  # two lines: "column", "0"
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        table.focus()
        assert table.evaluate("table => table === document.activeElement")


def test_a_time_and_the_first_line_of_thinking_are_said_once_and_plainly(tmp_path: Path) -> None:
    """A conversation of one minute has no span, and the stars of a bold line are no part of what was thought."""
    thinking = {"type": "thinking", "thinking": "**Looking at the retry**\n\nIt doubles.", "signature": "s"}
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize(
            provider="claude",
            messages=[{"role": "user", "content": "Look"}, answer(thinking)],
            times=["2026-03-01T16:00:02Z", "2026-03-01T16:00:40Z"],
        )
    page = b"".join(render_page(tmp_path / "c")).decode()
    assert "<dd>1 March 2026, 16:00 UTC</dd>" in page
    assert '<span class="about">Looking at the retry It doubles.</span>' in page
