"""The content of a conversation's page, read without a browser.

The tags of a page are known: a parser that nobody here wrote reads it, and finds no tag, attribute or address that the renderer
does not make. What a browser does with it is in test_browser.py.
"""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cli.helpers import damage, obeyed, tear
from tests.kit.cases import for_each
from tests.view import conversations
from transcript_store import ConversationStore, GenerationNotFoundError, MissingExtraError
from transcript_store.display import dollars
from transcript_store.redaction import SecretRedactor
from transcript_store.testing.strategies import json_values
from transcript_store.usage import conversation_usage
from transcript_store.view import PageError, render_page, write_page


def words(listed: str) -> set[str]:
    return set(listed.split())


TAGS = words(
    "html head meta link title style body a aside div input p fieldset legend label ol li nav button main header h1 h2 h3 h4 h5 h6"
    " dl dt dd details summary span article time pre code ul strong em s table thead tbody tr th td blockquote hr br img noscript"
    " script dialog kbd form small"
)
ATTRIBUTES = words(
    "lang class charset http-equiv content name rel href type id placeholder aria-label role checked data-show hidden aria-expanded"
    " tabindex datetime title open data-chunk data-height start src alt loading method aria-labelledby"
)


def test_f12_what_waits_is_inert(tmp_path):
    """The chunks that are put in later are JSON in which nothing can end its element, and have what the page has."""
    path = conversations.store(tmp_path / "c", conversations.hostile() * 3)
    page = b"".join(render_page(path)).decode()
    waiting = re.findall(r'<script type="application/json" id="chunk-\d+">(.*?)</script>', page)
    assert len(waiting) == 1
    assert "RAN" in waiting[0]
    assert page.count("<script") == 2
    plain = b"".join(render_page(path, plain=True)).decode()
    assert all(html in plain for html in json.loads(waiting[0]))


@for_each("forged", ["</script>", "</SCRIPT ", "<!--<script>", "<!-- ", "<</script", "\\</script", "<\u2028/"])
def test_f12_what_waits_ends_no_element_even_if_the_renderer_is_wrong(forged):
    """A chunk holds nothing that a browser reads as an end or as the beginning of a comment, and says what it said."""
    from transcript_store.view._html import Html
    from transcript_store.view._page import _inert

    element = _inert(7, [Html(f"<p>{forged}<b>")]).decode()
    inside = element.removeprefix('<script type="application/json" id="chunk-7">').removesuffix("</script>\n")
    assert re.search("</|<!|[\u2028\u2029]", inside) is None
    assert json.loads(inside) == [f"<p>{forged}<b>"]


@pytest.mark.long
@pytest.mark.parametrize(
    "piece", ["[", "![", "*a ", "`x``", "> ", "[a](", "_*", "\n", "\n ", "|a", "~~a ~~", "<a ", "- a\n", "\\", " "]
)
def test_f12_no_text_takes_the_renderer_long(piece):
    """Markdown and code that take a parser more than linear time are bounded: a text of any length takes seconds at most."""
    from transcript_store.view._rich_text import code, markdown

    begin = time.process_time()
    for length in (20_000, 99_999, 1_000_000):
        said = (piece * length)[:length]
        markdown(said)
        code(said, language="diff")
    assert time.process_time() - begin < 60


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("language", "piece"),
    [("c", "\n"), ("python", " \n"), ("java", "a "), ("aspectj", "a b\n"), ("autoit", "\t"), ("easytrieve", "\t")],
)
def test_f12_no_code_takes_a_lexer_long(language, piece):
    """Lexers that take the square of blank lines or of words; the author of a text chooses the language."""
    from transcript_store.view._rich_text import code

    said = "\n".join([(piece * 2_000)[:1_900]] * 10)
    begin = time.process_time()
    code(said, language=language)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("link", ["[a]", "![a]"])
def test_f12_a_definition_that_many_links_use_does_not_fill_the_page(link):
    """Links to one address of 50,000 characters: a text of 100,000 would become a page of 400 million."""
    from transcript_store.view._rich_text import markdown

    said = f"{link} for all.\n\n[a]: https://a.b/{'x' * 50_000} '{'y' * 20_000}'\n\n"
    shown = markdown(said + link * 7_000)
    assert len(shown) < 3_000_000
    assert shown.count("https://a.b/x") > 10


def test_f12_what_nests_deep_does_not_fill_the_page_with_indentation(tmp_path):
    """A list within 150 lists: each of its lines would begin with 300 blanks."""
    nested: Any = [1] * 20_000
    for _ in range(150):
        nested = [nested]
    call = {"type": "tool_use", "id": "t", "name": "plan", "input": {"steps": nested}}
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.load_or_initialize(
            provider="claude", tools=[{"name": "plan", "input_schema": {"examples": nested}}]
        )
        conversation.append_message({"role": "assistant", "content": [call]})
        conversation.append_event({"kept": nested})
    stored = (tmp_path / "c" / "transcript.jsonl").stat().st_size
    assert len(b"".join(render_page(tmp_path / "c"))) < 10 * stored


@for_each(
    "table",
    [
        "|a" * 200 + "|\n" + "|-" * 200 + "|\n" + "b\n" * 327,
        "> " + "|a" * 200 + "|\n> " + "|-" * 200 + "|\n" + "> b\n" * 327,
        "|a" * 12_000 + "|\n" + "|-" * 12_000 + "|\n" + "b\n" * 10,
        "|a\n|-|-\n" * 12_000,
    ],
)
def test_f12_a_table_has_no_more_cells_than_its_text_can_say(table):
    """The parser fills up each row that ends early: 200 columns and 327 rows of one letter would be 65,000 cells out of 1.5 kB."""
    from transcript_store.view._rich_text import markdown

    assert len(markdown(table)) < 20_000 + 30 * len(table)


def test_a_table_of_a_thousand_rows_is_one():
    from transcript_store.view._rich_text import markdown

    shown = markdown("before\n\n| name | size |\n|:--|--:|\n" + "| a | 1 |\n" * 1000 + "\nbehind")
    assert shown.count("<tr>") == 1001


@for_each("opened", ["> ", "* ", "> * ", "1. "])
def test_what_nests_deeper_than_the_parser_goes_is_on_the_page(opened):
    """The parser of Markdown leaves out what stands in more than twenty quotes or lists; a reader has to see it."""
    from transcript_store.view._rich_text import markdown

    for depth in range(1, 40):
        assert "Remove everything" in markdown(f"Good morning.\n\n{opened * depth}Remove everything")


PIECES = [
    *"<>&\"'`*_[]()!#-:/\\ \n|a",
    *(
        "<script>",
        "](",
        "javascript:x",
        "https://a.b/",
        "&#x202e;",
        "&colon;",
        "\x00",
        "\ud800",
        "\u202e",
        "|-|-|\n",
        "```",
        "    ",
    ),
]
"""What Markdown is made of, and what somebody would like to get through it."""


class Reader(HTMLParser):
    """A page as Python's own parser reads it: tags, attributes, texts; the chunks that wait are read with the rest."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._in = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts.append(data)
        elif self._in != "style":
            self.text += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [a for name, a in self.tags if name == tag and attributes.items() <= a.items()]


def read(directory: Path | str, **options: Any) -> Reader:
    """The page, with the chunks that wait in place."""
    page = b"".join(render_page(directory, **options)).decode()
    waiting = [json.loads(data) for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page)]
    return Reader(page + "".join(html for pieces in waiting for html in pieces))


def test_f12_no_tag_attribute_or_address_is_the_transcripts(tmp_path):
    """F12: every payload in every place of a conversation, its metadata too, is text."""
    page = read(
        conversations.store(tmp_path / "c", conversations.hostile(), **conversations.HOSTILE_METADATA), plain=True
    )
    assert {tag for tag, _ in page.tags} <= TAGS
    assert {name for _, attributes in page.tags for name in attributes} <= ATTRIBUTES
    addresses = {a["href"] or "" for tag, a in page.tags if a.get("href")}
    assert {address.partition(":")[0] for address in addresses if not address.startswith("#")} <= {"https", "data"}
    assert [
        a
        for a in page.all("a")
        if not (a["href"] or "").startswith("#") and a.get("rel") != "noopener noreferrer nofollow"
    ] == []
    assert [a["href"] for a in page.all("link")] == ["data:,"]
    assert all((a["src"] or "").startswith("data:image/png;base64,") for a in page.all("img"))
    assert len(page.scripts) == 1
    assert len(page.all("article", id="1")) == 1
    assert "document.title='RAN'" in page.text


def test_f12_what_a_reader_would_obey_is_shown_as_an_escape(tmp_path):
    """Control characters, OSC 8, and what turns the direction of text: also as Markdown's entities, and in titles."""
    page = b"".join(
        render_page(conversations.store(tmp_path / "c", conversations.hostile(), **conversations.HOSTILE_METADATA))
    ).decode()
    assert obeyed(page) == set()
    assert "\\u202e" in page
    assert "\\x1b]8;;https://evil.example/" in page


@given(said=st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@example(said="[]()")
@example(said="[a *b*]() [c](<>)")
def test_f12_no_markdown_makes_a_tag_outside_the_list(said):
    """F12: whatever Markdown says."""
    from transcript_store.view._rich_text import markdown

    page = Reader(markdown(said))
    assert {tag for tag, _ in page.tags} <= TAGS - {"img", "script", "button", "article"}
    assert {name for _, attributes in page.tags for name in attributes} <= {"href", "rel", "class", "start", "tabindex"}
    assert all((a["href"] or "").lower().startswith(("http:", "https:", "mailto:")) for a in page.all("a"))
    assert obeyed(markdown(said)) == set()


LINE_PIECES = [
    *(
        "a",
        "B",
        "é",
        "中",
        "*",
        "**",
        "`",
        "``",
        "[",
        "](",
        ")",
        "http://x.y",
        "<",
        ">",
        "&amp;",
        "\\",
        "_",
        "~~",
        "!",
        "![a](b)",
    ),
    *(
        " ",
        "  ",
        "1.",
        "#",
        "|",
        "-",
        "=",
        ":",
        "\r",
        "\x0b",
        "\x0c",
        "\u2028",
        "\u00a0",
        "\x00",
        "\u3000",
        "[ ] ",
        '"',
    ),
]


@given(said=st.lists(st.sampled_from(LINE_PIECES), max_size=14).map("".join))
def test_a_line_is_read_as_the_whole_parser_reads_it(said):
    """Most messages are one line, in which no block is looked for: it becomes what a search for blocks makes of it."""
    from transcript_store.display import safe
    from transcript_store.view._rich_text import _RENDERER
    from transcript_store.view.markup import PARSER, _tokens

    line = safe(f"A{said}")
    short, full = (
        _RENDERER.render(tokens, PARSER.options, {}) for tokens in (_tokens(line, {}), PARSER.parse(line, {}))
    )
    assert short == full


@pytest.mark.parametrize(
    ("usage", "reply", "head"),
    [
        ({"input_tokens": 2314, "output_tokens": 187}, "2,314 tokens in, 187 out", ["2,314 in, 187 out"]),
        ({"output_tokens": 187, "cost": 0.0031}, "187 tokens out, $0.0031", ["0 in, 187 out", "$0.0031"]),
        ({"cost": {"input": 1, "total": 12.5}}, "$12.50", ["$12.50"]),
        ({"input_tokens": "<b>", "cost": "<b>"}, None, []),
        ({"cost": 1e300}, None, []),
        ({"cost": True}, None, []),
    ],
)
def test_what_a_reply_took_and_cost_is_told(tmp_path, usage, reply, head):
    """With the reply and, as a sum, in the head; nothing where nobody reported it."""
    path = conversations.store(tmp_path / "c", [conversations.OPENAI[3]], extras=[{"usage": usage}], provider="openai")
    shown = read(path)
    assert len(shown.all("span", **{"class": "tokens"})) == (reply is not None)
    assert (reply or "") in shown.text
    assert all(each in shown.text for each in head)
    assert ("Tokens" in shown.text, "Cost" in shown.text) == (
        "_tokens" in str(usage) and reply is not None,
        "$" in (reply or ""),
    )


def test_the_head_says_how_many_tokens_came_from_the_cache(tmp_path):
    usage = {"input_tokens": 5, "cache_read_input_tokens": 2000, "cache_creation_input_tokens": 10, "output_tokens": 1}
    reply = {"role": "assistant", "content": "x"}
    shown = read(conversations.store(tmp_path / "c", [reply], extras=[{"usage": usage}], provider="claude"))
    assert "2,015 in (2,000 from the cache), 1 out" in shown.text


def test_a_long_list_of_things_to_do_says_that_it_continues(tmp_path):
    todos = [{"content": f"Step {number}", "status": "pending"} for number in range(5)]
    call = {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": todos}}
    done = {"type": "tool_result", "tool_use_id": "t", "content": "Todos have been modified."}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [done]}]
    shown = read(conversations.store(tmp_path / "c", said))
    assert "○ Step 3 …" in shown.text
    assert "1 line" not in shown.text


def test_a_reply_that_was_stopped_says_so(tmp_path):
    """What was written until then looks like a reply that ends strangely. A reason from a file is text, and a usual one is not shown."""
    reply = {"role": "assistant", "content": "Calls `invali"}
    for reason, is_early in (("aborted", True), ("MAX_TOKENS", True), ("end_turn", False), ("<b>", False), (7, False)):
        path = conversations.store(tmp_path / str(reason), [reply], extras=[{"stop_reason": reason}], provider="openai")
        shown = read(path)
        assert [each["class"] for each in shown.all("p") if each.get("class") == "state"] == ["state"] * is_early
        assert (f"Stopped early: {reason}" in shown.text) == is_early


def test_a_part_of_a_sum_is_no_cost(tmp_path):
    """The head has a cost if every reply has a price, by itself or by the table: the same figure as the command usage."""
    priced = {"usage": {"input_tokens": 1_000_000, "output_tokens": 0}, "model": "claude-haiku-5-5"}
    unpriced = {"usage": {"input_tokens": 5, "output_tokens": 5}, "model": "of-nobody"}
    replies = [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}]
    whole = conversations.store(tmp_path / "whole", replies, extras=[priced, priced], provider="openai")
    part = conversations.store(tmp_path / "part", replies, extras=[priced, unpriced], provider="openai")
    with ConversationStore(whole, read_only=True) as conversation:
        conversation.load()
        cost = conversation_usage(conversation).cost_usd
    assert cost
    assert f"Cost{dollars(cost)}" in read(whole).text
    assert "1,000,005 in, 5 out" in read(part).text
    assert "Cost" not in read(part).text


def test_what_frameworks_store_in_a_message_is_told_and_counted_once(tmp_path):
    """Claude's own messages have model and usage, and one reply may be several of them; pydantic-ai has other names."""
    usage = {"input_tokens": 1000, "output_tokens": 20}
    parts = [{"type": "text", "text": part} for part in ("one", "two")]
    claude = [{"role": "assistant", "id": "m1", "model": "opus", "content": [part], "usage": usage} for part in parts]
    shown = read(conversations.store(tmp_path / "claude", claude, provider="claude-agent-sdk"))
    assert "1,000 in, 20 out" in shown.text
    assert "1,000 tokens in, 20 out" in shown.text
    response = {
        "kind": "response",
        "parts": [{"part_kind": "text", "content": "x"}],
        "model_name": "gpt",
        "usage": usage,
    }
    shown = read(conversations.store(tmp_path / "pydantic", [response, response], provider="pydantic-ai"))
    assert "2,000 in, 40 out" in shown.text
    assert "gpt" in shown.text


@for_each(
    "said, found, shown",
    [
        ("How long is the **retry** queue?", "retry", "How long is the <mark>retry</mark> queue?"),
        ("…see `fs.retry()` and *now* ~~so~~", "retry", "…see <code>fs.<mark>retry</mark>()</code> and now so"),
        ("## A retry - one", "retry", "A <mark>retry</mark> - one"),
        ("Wait: | a | b | |---|:--:| | 3 | ```python x = 1", "3", "Wait: | a | b | <mark>3</mark> | x = 1"),
        ("See [RFC](https://a.b/#retry-x) now", "RFC", "See <mark>RFC</mark> now"),
        ("See [RFC](https://a.b/#retry-x) now", "retry", "See RFC (https://a.b/#<mark>retry</mark>-x) now"),
        ("![x](javascript:retry)<b>retry", "b", "![x](javascript:retry)&lt;<mark>b</mark>&gt;retry"),
        (
            "…Text(x)); ``` And then `y`: ```typescript const z = 1…",
            "y",
            "…Text(x)); And then <code><mark>y</mark></code>: const z = 1…",
        ),
        ("I see: **one** 2. **R…", "one", "I see: <mark>one</mark> 2. R…"),
        ("…two** and `b` when `ren…", "b", "…two and <code><mark>b</mark></code> when ren…"),
        ("const fn = x; ``…", "fn", "const <mark>fn</mark> = x; …"),
        ("…is 2 ** 3 or f(**x)…", "or", "…is 2 ** 3 <mark>or</mark> f(**x)…"),
        ("a * b_c_d * **", "b", "a * <mark>b</mark>_c_d * **"),
        ("\ufdd0x\ufdd1 &#x202e; y", "y", "\ufffdx\ufffd \\u202e <mark>y</mark>"),
    ],
)
def test_a_hit_reads_as_its_message(said, found, shown):
    """Its Markdown is meant and not shown; what was found is marked wherever it stands; nothing of it is markup of its own."""
    from transcript_store.view.served import excerpt_html

    at = said.index(found)
    assert excerpt_html(said, [(at, at + len(found))]) == shown
    assert "**" in excerpt_html("**x**", [], is_markdown=False)


@pytest.mark.parametrize("shape", conversations.SHAPES)
def test_every_providers_form_is_shown_alike(tmp_path, shape):
    """A prompt, thinking, a call together with its result, an answer, whatever the provider calls them."""
    provider = {"openai": "openai", "responses": "openai", "gemini": "gemini"}[shape]
    page = read(conversations.store(tmp_path / "c", conversations.SHAPES[shape], provider=provider))
    assert len([a for a in page.all("article") if "prompt" in (a["class"] or "")]) == 1
    assert len(page.all("details", **{"class": "thinking"})) == 1
    assert len(page.all("details", **{"class": "tool"})) == 1
    for said in (
        "What is the weather in Paris?",
        "Ask the tool.",
        "weather",
        "18 degrees",
        "It is 18 degrees in Paris.",
    ):
        assert said in page.text


@pytest.mark.parametrize("shape", ["openai", "gemini"])
def test_a_form_is_told_by_the_message_where_nobody_says_whose_it_is(tmp_path, shape):
    """A conversation needs no provider."""
    page = read(conversations.store(tmp_path / "c", conversations.SHAPES[shape], provider=None))
    assert len(page.all("details", **{"class": "tool"})) == 1


def test_a_message_in_no_known_form_is_shown_all_the_same(tmp_path):
    """Nothing that is stored is missing because nobody knows its form."""
    page = read(
        conversations.store(
            tmp_path / "c",
            [{"kind": "odd", "payload": ["needle"]}, {"role": "user", "content": [{"type": "new", "x": "thread"}]}],
        )
    )
    assert "needle" in page.text
    assert "thread" in page.text


def test_a_compaction_unfolds_what_stood_there(tmp_path):
    """Also a message of a generation that was replaced is on the page, folded, and has an address of its own."""
    page = read(conversations.showcase(tmp_path / "c"))
    assert len(page.all("details", **{"class": "before"})) == 1
    assert page.all("article", id="g0-1")
    assert "2 records of generation 0 stood here until 1 March 2026, 16:00:20 UTC" in page.text
    with pytest.raises(GenerationNotFoundError):
        read(tmp_path / "c", generation=7)
    assert "0, which was replaced; the live one is 1" in read(tmp_path / "c", generation=0).text


def test_what_a_replace_kept_is_not_shown_twice(tmp_path):
    """A rewind of the last message leaves one message behind."""
    path = conversations.store(tmp_path / "c", conversations.CLAUDE)
    with ConversationStore(path) as conversation:
        conversation.load()
        conversation.replace_transcript(conversations.CLAUDE[:-1])
    assert len([a for a in read(path).all("article") if (a["id"] or "").startswith("g0-")]) == 1


def test_the_head_of_the_page_says_what_it_is(tmp_path):
    page = read(conversations.showcase(tmp_path / "c"))
    for said in (
        "Bound the wait between retries",
        "claude-opus-4-8",
        "8 messages, 2 prompts, 3 calls, 1 event",
        "9,256 in, 748 out",
    ):
        assert said in page.text
    for said in ("2 March 2026 – 3 March 2026", "/srv/client", "System prompt", "3 tools"):
        assert said in page.text


def test_damage_is_shown_where_it_is(tmp_path):
    """A damaged conversation has a page: what verifies, what was changed, and that bytes behind the end are no record."""
    path = conversations.store(
        tmp_path / "c", [{"role": "user", "content": said} for said in ("first", "second", "third")]
    )
    tear(tmp_path / "c")
    assert "after the last whole record" in read(path).text
    damage(tmp_path / "c", b"second", b"sec0nd")
    page = read(path)
    assert "This conversation is damaged. transcript.jsonl, line 3 (record 2)" in page.text
    assert str(tmp_path) not in page.text, "a page is handed on"
    shown = page.text[page.text.index("#1") :]
    assert shown.index("first") < shown.index("so this may not be what was stored") < shown.index("third")


def test_the_page_is_replaced_and_nothing_else_is(tmp_path):
    path = conversations.store(tmp_path / "c", conversations.CLAUDE)
    output = tmp_path / "page.html"
    assert write_page(path, output).path == str(output)
    assert output.stat().st_mode & 0o777 == 0o600
    write_page(path, output)
    letter = tmp_path / "letter.html"
    letter.write_text("<!doctype html>Dear all")
    with pytest.raises(PageError, match="not a page of this program"):
        write_page(path, letter)
    assert letter.read_text() == "<!doctype html>Dear all"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c", "letter.html", "page.html"]


def test_a_secret_stands_nowhere_on_a_redacted_page(tmp_path):
    """Not in messages, arguments, names of members, titles or prompts, nor in what was replaced; and how many there were is said."""
    secret = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "AA"
    call = {
        "type": "tool_use",
        "id": "t1",
        "name": "Bash",
        "input": {"command": f"export KEY={secret}", secret: [secret]},
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": secret}, {"role": "assistant", "content": [call]}]
    given: dict[str, Any] = {"labels": {"title": secret}, "system_prompt": secret, "model": f"of {secret}"}
    path = conversations.store(tmp_path / "c", messages, **given)
    with ConversationStore(path) as conversation:
        conversation.load()
        conversation.append_event({"note": secret, secret: 1})
        conversation.replace_transcript(messages[:1])
    by_name = SecretRedactor(patterns=["model|labels"])  # which are names of fields, too
    written = write_page(path, tmp_path / "page.html", redact=by_name)
    page = Path(written.path).read_text()
    assert secret[8:40] not in page
    assert "[redacted:" in page
    assert sum(written.redacted.values()) >= 6
    assert secret in b"".join(render_page(path)).decode()


def test_without_the_extra_the_error_says_what_to_install(tmp_path, monkeypatch):
    """The extra is asked for when a page is made, and not before."""
    monkeypatch.setitem(__import__("sys").modules, "transcript_store.view._page", None)
    with pytest.raises(
        MissingExtraError,
        match=r"a page needs the extra 'view', which is not installed; pip install .*\[view\]'$",
    ):
        render_page(conversations.store(tmp_path / "c", conversations.CLAUDE))


@for_each(
    "arguments, lines",
    [
        ({"old_string": "a\nb\nc", "new_string": "a\nB\nc"}, [" a", "-b", "+B", " c"]),
        ({"oldText": "", "newText": "new"}, ["+new"]),
        (
            {"edits": [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d"}]},
            ["-a", "+b", "@@", "-c", "+d"],
        ),
        ({"input": "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"}, None),
        ({"old_string": "x\n" * 1500, "new_string": "y\n" * 1500}, None),
    ],
)
def test_an_edit_is_a_diff(arguments, lines):
    """Whatever the members of a tool are called."""
    from transcript_store.view.diffs import diff_of

    found = diff_of(arguments)
    assert found is not None
    assert lines is None or list(found[0].lines) == lines
    assert found[0].added > 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "a", "old_string": "kept", "new_string": "kept"},
        {"file_path": "a", "old_string": "kept", "new_string": "kept\n"},
        {"file_path": "a", "old_string": "", "new_string": ""},
        {"file_path": "a", "edits": [{"oldText": "kept", "newText": "kept"}, {"oldText": "", "newText": ""}]},
    ],
    ids=["same", "another line end", "empty", "several"],
)
def test_an_edit_that_changes_no_line_is_shown_as_it_was_given(tmp_path, arguments):
    """Models make such calls. The whole page of two real sessions was refused for one: ``zip() argument 2 is longer``."""
    calls = [{"type": "tool_use", "id": "e", "name": "Edit", "input": arguments}]
    path = conversations.store(tmp_path / "c", [{"role": "assistant", "content": calls}])
    page = b"".join(render_page(path)).decode()
    assert '<span class="about">a</span>' in page
    for name in arguments:
        assert f"&quot;{name}&quot;" in page or f'"{name}"' in page
    assert '<pre class="diff"' not in page


TEXTS = st.sampled_from(["", "\n", "kept", "kept\n", "a\nb\nc\n", "a\nB\nc", "--- a", "@@ ", "\x1b[1m", " "])
EDIT = st.dictionaries(st.sampled_from(["old_string", "new_string", "x"]), TEXTS)
VALUES = TEXTS | EDIT | st.lists(EDIT, max_size=3) | json_values()
NAMES = words("old_string new_string edits changes patch diff input file_path path content command query text id")


@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["Edit", "Read", "x"]), st.dictionaries(st.sampled_from(sorted(NAMES)), VALUES))
    )
)
def test_no_call_keeps_a_page_from_being_made(calls):
    """Whatever a model puts into the arguments of a tool."""
    blocks = [
        {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(calls)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": next(iter(block["input"]), "")}
        for block in blocks
    ]
    said = [{"role": "assistant", "content": blocks or "none"}, {"role": "user", "content": results or "none"}]
    with TemporaryDirectory() as folder:
        page = b"".join(render_page(conversations.store(Path(folder, "c"), said))).decode()
    assert page.count('<details class="tool"') == len(calls)


def test_what_is_folded_shows_its_first_lines(tmp_path):
    """Those of a long edit from the first change on; of a file that was read in the colours of its code; no blank line before the …."""
    old = "".join(f"line {number}\n" for number in range(60))
    edit = {
        "file_path": "a.txt",
        "old_string": old,
        "new_string": old.replace("line 9\n", "nine\n").replace("line 4", "four"),
    }
    read_file = "import os\nx = 1\n\n\ny = 2\n"
    calls = [
        {"type": "tool_use", "id": "e", "name": "Edit", "input": edit},
        {"type": "tool_use", "id": "r", "name": "Read", "input": {"file_path": "a.py"}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "e", "content": "done"},
        {"type": "tool_result", "tool_use_id": "r", "content": read_file},
    ]
    path = conversations.store(
        tmp_path / "c", [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    )
    peeks = re.findall(
        r'<span class="peek">(.*?)</summary>', "".join(piece.decode() for piece in render_page(path)), re.DOTALL
    )
    assert peeks[0].startswith('<span class="line del">-line 4\n</span><span class="line ins">+four\n</span>')
    assert peeks[0].endswith(" …</span>")
    assert peeks[0].count("\n") == 3
    assert peeks[1].startswith('<span class="k">import</span>')
    assert peeks[1].endswith(" …</span>")
    assert "\n …" not in peeks[1]


def test_an_edit_of_lines_that_come_again_and_again_takes_no_time_by_the_third_power():
    """An edit of 8 KB, every other line of which is the same: four seconds for each such call."""
    from transcript_store.view.diffs import diff_of

    old, new = ("\n".join(f"x\n{which}{number}" for number in range(490)) for which in "ab")
    begin = time.process_time()
    found = diff_of({"old_string": old, "new_string": new})
    assert time.process_time() - begin < 3
    assert found is not None
    assert found[0].added == found[0].removed


@for_each(
    "said, shown",
    [
        ("\x1b[31mred\x1b[0m plain", '<span class="f1">red</span> plain'),
        ("\x1b[1;4;92mgood\x1b[m", '<span class="bold under f10">good</span>'),
        ("\x1b[38;5;196mred\x1b[39m.", '<span class="f9">red</span>.'),
        ("\x1b[48;2;0;0;200mblue", '<span class="b12">blue</span>'),
        ("\x1b[2Jgone \x1b]0;title\x07", "\\x1b[2Jgone \\x1b]0;title\\x07"),
        ("\x1b[" + "1;" * 5000 + "m<b>", "&lt;b&gt;"),
        ("\x1b[38;5;999999999999mx", '<span class="f0">x</span>'),
    ],
)
def test_colours_of_a_terminal_are_classes_and_all_else_is_text(said, shown):
    from transcript_store.view.output import terminal

    assert terminal(said) == shown
