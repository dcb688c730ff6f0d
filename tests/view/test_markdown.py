"""Markdown becomes markup behind two locks, and the second has a short way: what is seen to be proper needs no allow-list's parser.

Also the first has one: a line of words, code and stressed words is cut without the parser. Each short way is held here to the long
one, which others wrote: nh3, which reads HTML as browsers do, and markdown-it.
"""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any

import nh3
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.cli.helpers import obeyed
from tests.kit.cases import for_each
from tests.view import conversations
from transcript_store.display import UNSAFE, safe
from transcript_store.view import markup
from transcript_store.view._html import element, tag
from transcript_store.view._rich_text import _ENDS, _RENDERER, _SANITIZER, is_proper, markdown
from transcript_store.view.markup import _inline, line_of

SAID = [
    *(
        "a",
        "B9",
        "é",
        "中",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "    ",
        "*",
        "**",
        "`",
        "```\n",
        "```python\n",
        "_",
        "~~",
        "!",
        "[",
        "](",
        ")",
    ),
    *(
        "\\",
        "<",
        ">",
        "&",
        "&lt;",
        "&quot;",
        "&#x202e;",
        "'",
        '"',
        "# ",
        "- ",
        "1. ",
        "7) ",
        "> ",
        "|a|b|\n|-|:-|\n",
        "[ ] ",
        "---\n",
    ),
    *(
        "https://a.b/",
        "<https://a.b>",
        "<script>",
        "</div>",
        "<!--",
        "*a*",
        "**b c**",
        "`x`",
        " *d* ",
        " **e f** ",
        "a_b",
        "x = 1\n",
    ),
    *(".", ",", ":", "?", "(", "$", "“", "\u00a0", "\u3000", "\x0b", "\x0c", "\u2003", "\x00", "\u202e"),
]
MADE = [f"<{each}>" for each in (*_ENDS, *sorted({*_ENDS.values()}), "br", "br /", "hr")]
IMPROPER = [
    *(
        "<",
        ">",
        "</",
        "<p",
        "<P>",
        "<p >",
        "<p\n>",
        "<a>",
        '<a href="https://a.b">',
        "</a>",
        "<script>",
        "<!-- -->",
        "<!--",
        "<![CDATA[",
    ),
    *(
        '<p onclick="x">',
        '<span class="bad">',
        "<span class='k'>",
        "<svg>",
        "</article>",
        "</section>",
        "</>",
        "<>",
        "< p>",
        "<?",
        '"',
        "&",
        "x",
    ),
]
PLAIN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
PLAIN.validateLink = markup.is_safe_link  # type: ignore[method-assign]


def rendered(said: str) -> str:
    """What the parser makes of a text, before the second lock."""
    env: dict[str, Any] = {}
    return _RENDERER.render(markup.parse_markdown(said, env) or [], markup.PARSER.options, env)


@given(said=st.lists(st.sampled_from(SAID), max_size=30).map("".join))
def test_f12_what_is_proper_is_what_the_allow_list_makes_of_it(said):
    """F12: with the allow-list and without it a browser reads the same."""
    made = rendered(said)
    if markup.is_marked(said) and is_proper(made):
        assert _SANITIZER.clean(markdown(said)) == safe(_SANITIZER.clean(made))
        assert nh3.clean(markdown(said)) == nh3.clean(safe(_SANITIZER.clean(made)))


@for_each("payload", conversations.PAYLOADS)
def test_f12_a_hostile_text_is_the_same_with_the_allow_list_and_without(payload):
    """F12: each payload by itself, in a list, a quotation, a table, a heading, stressed, and in code."""
    for form in ("{}", "- {}", "> {}", "|a|\n|-|\n|{}|", "# {}", "**{}**", "`{}`", "```\n{}\n```", "```html\n{}\n```"):
        said = form.format(payload).replace("\r\n", "\n")
        if markup.is_marked(said):
            assert _SANITIZER.clean(markdown(said)) == _SANITIZER.clean(safe(_SANITIZER.clean(rendered(said))))
        assert obeyed(markdown(said)) == set()


def balanced(steps: list[str]) -> str:
    """Each tag among the steps opened, each ``end`` closes the last that is open, and so does the end of all."""
    made, open_ = "", []
    for step in [*steps, *["end"] * len(steps)]:
        if step in _ENDS:
            open_.append(step)
            made += f"<{step}>"
        elif step != "end":
            made += step
        elif open_:
            made += f"<{_ENDS[open_.pop()]}>"
    return made


BALANCED = st.lists(st.sampled_from([*_ENDS, *["end"] * 12, "x", "<br>", "<hr />", "&lt;", '"']), max_size=24).map(
    balanced
)
AROUND = nh3.Cleaner(
    tags={*(name.split()[0] for name in _ENDS), "br", "hr", "section", "u"}, attributes={}, link_rel=None
)


@given(made=st.one_of(BALANCED, st.lists(st.sampled_from([*MADE, *IMPROPER]), max_size=6).map("".join)))
@example(made='<p><div class="block"></div></p>')
@example(made="<em><p></em></p>")
@example(made="<li><em><li>x</li></em></li>")
@example(made="</p><p>")
def test_f12_proper_html_stays_within_what_is_around_it(made):
    """F12: whatever a renderer with an error made. A parser of HTML finds no other tag, and nothing that closes what is around it."""
    if is_proper(made):
        assert obeyed(made) == set()
        read = AROUND.clean(f"<section>{made}</section><u>behind</u>")
        assert read.startswith("<section>")
        assert read.count("</section>") == 1
        assert read.index("</section>") < read.index("behind")


@given(made=BALANCED)
def test_balanced_html_of_the_list_is_proper(made):
    """So the test above has something to look at."""
    assert is_proper(made)


@for_each("improper", [each for each in IMPROPER if "<" in each])
def test_what_is_not_on_the_list_is_not_proper(improper):
    """By itself, within a paragraph and behind one; and a tag that is not closed, or closed twice, is none either."""
    assert not any(map(is_proper, (improper, f"<p>{improper}</p>", f"<p>x</p>{improper}")))
    assert not any(map(is_proper, ("<p>", "</p>", "<p></p></p>", "<p><em></p></em>", "<p>x</p")))
    assert all(
        map(
            is_proper,
            ("", "a > b", "<p>a<br />b</p>\n<hr />", '<pre tabindex="0"><code><span class="k">if</span></code></pre>'),
        )
    )


@pytest.mark.parametrize("payload", conversations.PAYLOADS)
def test_f12_the_second_lock_holds_by_itself(payload, monkeypatch):
    """F12: also a parser that lets all HTML of a text through makes nothing that a browser obeys."""
    said = f"{payload}\n\n*so* {payload}"
    monkeypatch.setitem(markup.PARSER.options, "html", True)
    with markup.PARSER.reset_rules():
        markup.PARSER.enable(["html_block", "html_inline"])
        assert payload != conversations.SCRIPT or payload in rendered(said), "the first lock is not open"
        assert obeyed(markdown(said)) == set()


@given(said=st.lists(st.sampled_from(SAID), max_size=10).map("".join))
@example(said="`a``b`")
@example(said="*a**b*")
@example(said="a *b c* **d** `e`, f_g\nh!")
def test_a_line_of_plain_pieces_is_cut_as_the_parser_cuts_it(said):
    """The same tokens, except empty ones."""
    pieces = _inline(said)
    if pieces is not None:
        full = [each for each in PLAIN.inline.parse(said, PLAIN, {}, []) if each.type != "text" or each.content]
        assert [each.as_dict() for each in pieces] == [each.as_dict() for each in full]


@given(said=st.lists(st.sampled_from(SAID), max_size=10).map("".join))
@example(said='I say "it\'s" > `a <b> & c`, *d* **e f**')
def test_f12_a_line_is_the_markup_of_the_whole_way(said):
    """F12: without the parser, the renderer and the allow-list the same stands on the page, and a browser reads the same."""
    if line_of(said) is not None:
        env: dict[str, Any] = {}
        whole = _RENDERER.render(PLAIN.parse(safe(said), env), PLAIN.options, env)
        assert is_proper(whole)
        whole = whole.replace("&quot;", '"').removesuffix("" if markup.is_marked(said) else "\n")
        assert markdown(said) == whole
        assert nh3.clean(markdown(said)) == nh3.clean(whole)


class _Read(HTMLParser):
    """What a parser that nobody here wrote makes of one element."""

    def __init__(self, made: str) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.feed(made)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.seen.append(data)


@given(said=st.text(st.one_of(st.characters(), st.sampled_from("<>&\"'=/ \r\n\x1b\u202e\x7fx")), min_size=1).flatmap(
    lambda said: st.sampled_from([said, said * 50])
))  # fmt: skip
def test_f12_what_is_said_is_one_text_and_one_value(said):
    """F12: in an element, in its attribute, and in an element that is prepared, short or long; characters that are obeyed are escapes."""
    shown = safe(said.replace("\r\n", "\n"))
    for made in (tag("p", said, title=said), element("p", title=said)(said)):
        assert _Read(made).seen == [("p", [("title", shown)]), shown, "p"]
        assert UNSAFE.search(made) is None


def test_a_number_is_no_truth():
    """0 and 1 are values, False is no attribute, True one without a value; whichever was asked for first."""
    for values in ((False, 0, True, 1), (1, True, 0, False)):
        made = {repr(value): tag("p", tabindex=value) + element("p", open=value)() for value in values}
        assert made == {
            "False": "<p></p><p></p>",
            "True": "<p tabindex></p><p open></p>",
            "0": '<p tabindex="0"></p><p open="0"></p>',
            "1": '<p tabindex="1"></p><p open="1"></p>',
        }


def test_a_usual_line_takes_the_short_way():
    """The tests above would say nothing of a way that nothing takes."""
    assert line_of("I look at `a.py`, where *it* may be: **here** or in some_name!") is not None
    assert _inline("I look at `a.py`, where *it* may be: **here** or in some_name!") is not None
    assert is_proper(rendered("## Done\n\nIt is **mended**:\n\n```python\nif x: pass\n```\n\n- one\n- `two`\n"))


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("piece", ["*a ", "`a ", "**a b ", "a_b", "! ", "*a", "` ", "a\n", "*a* "])
def test_a_long_line_is_cut_in_linear_time(piece):
    """No pattern goes back: a text of the longest that is parsed takes a fraction of a second, its square would take minutes."""
    begin = time.process_time()
    _inline(piece * (100_000 // len(piece)))
    _inline("a" + piece * (100_000 // len(piece)) + "[")
    assert time.process_time() - begin < 3
