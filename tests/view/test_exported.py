"""A conversation as a page and as Markdown by ``export``: the content of ``view``, in the same order, and inert."""

from __future__ import annotations

import io
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.cli.helpers import COMMAND, ENVIRONMENT, obeyed
from tests.view import conversations
from transcript_store import ConversationStore
from transcript_store.exporting import ExportError, export
from transcript_store.view import render_page, write_page
from transcript_store.view._as_markdown import prose


def exported(directory: str, to: str, output: Path, **options: int) -> str:
    with ConversationStore(directory, read_only=True) as conversation:
        conversation.load()
        export(conversation, to=to, output=output, **options)  # type: ignore[arg-type]
    return output.read_text()


def test_the_page_is_that_of_view(tmp_path):
    """Byte for byte. It is a new file: what stands there is not replaced."""
    path = conversations.showcase(tmp_path / "c")
    assert exported(path, "html", tmp_path / "page.html") == b"".join(render_page(path)).decode()
    with pytest.raises(ExportError, match="the path is taken"):
        exported(path, "html", tmp_path / "page.html")
    page = exported(path, "html", tmp_path / "short.html", through_seq=4)
    assert 'id="4"' in page
    assert 'id="8"' not in page
    old = exported(path, "html", tmp_path / "old.html", generation=0)
    assert old == b"".join(render_page(path, generation=0)).decode()


def test_markdown_has_what_the_page_has_with_each_result_behind_its_call(tmp_path):
    said = exported(conversations.showcase(tmp_path / "c"), "markdown", tmp_path / "c.md")
    places = [
        said.index(piece)
        for piece in (
            "# Bound the wait between retries",
            "compacted or retracted: 2 records of generation 0",
            "Hello! What shall we do?",
            "## generation 1",
            "Our retries wait for minutes",
            "**thinking**",
            "<summary>Read · ",
            "def backoff",
            "<summary>Bash · ",
            "1 failed, 2 passed",
            "<summary>Edit · ",
            "The file was updated.",
            "**image/png**",
            "The bars grow evenly",
        )
    ]
    assert places == sorted(places)
    assert "- left out: 1 event" in said
    assert "result, failed" in said


@pytest.mark.parametrize("name", [*conversations.SHAPES])
def test_markdown_of_each_provider_has_the_call_and_its_result(name, tmp_path):
    path = conversations.store(tmp_path / "c", conversations.SHAPES[name], provider=name)
    said = exported(path, "markdown", tmp_path / "c.md")
    assert re.findall(r"weather|Ask the tool\.|18 degrees", said)[-3:] == ["weather", "18 degrees", "18 degrees"]


def test_nothing_of_a_hostile_transcript_is_markup_in_the_markdown(tmp_path):
    """A parser of Markdown sees no HTML but ours, no image, no link to a script, no heading like ours, and no escape of a terminal."""
    path = conversations.store(tmp_path / "c", conversations.hostile(), **conversations.HOSTILE_METADATA)
    said = exported(path, "markdown", tmp_path / "c.md")
    tokens = MarkdownIt("commonmark", {"html": True}).parse(said)
    inline = [child for token in tokens for child in token.children or ()]
    html = [token.content for token in (*tokens, *inline) if token.type.startswith("html")]
    assert all(re.fullmatch(r"<details>\n<summary>[^<>]*</summary>\n|</details>\n", piece) for piece in html), html
    assert not [token for token in inline if token.type == "image"]
    assert all(str(token.attrs["href"]).startswith("http") for token in inline if token.type == "link_open")
    ours = re.compile(r"(system prompt|generation \d+|[a-z]+ · \d{4}-\d\d-\d\d .*|compacted or .*)")
    headings = [(token.tag, after.content) for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert all(ours.fullmatch(said) for tag, said in headings[1:] if tag in ("h1", "h2", "h3")), headings
    assert obeyed(said) == set()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "# A plan\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |",
            "#### A plan\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        ),
        ("see [the docs](https://x.org) and `<b>`", "see [the docs](https://x.org) and `<b>`"),
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("a <img src=x onerror=y> b", "a &lt;img src=x onerror=y> b"),
        ("![pixel](https://evil/p.png)", "\\![pixel](https://evil/p.png)"),
        ("[x](javascript:alert) [y](java&#115;cript:z)", "[x\\](javascript:alert) [y\\](java&#115;cript:z)"),
        ("<javascript:alert(1)>", "&lt;javascript:alert(1)>"),
        ("[x]\n\n[x]: data:text/html,1", "[x]\n\n\\[x]: data:text/html,1"),
        ("user · 2026-01-01\n---\nsure", "user · 2026-01-01\n\\---\nsure"),
        ("> - ## user", "> - ##### user"),
        ("```\nnever closed", "````markdown\n```\nnever closed\n````"),
    ],
)
def test_what_is_said_is_markdown_that_can_do_nothing(said, shown, tmp_path):
    path = conversations.store(
        tmp_path / "c", [{"role": "user", "content": said}], provider="openai", labels={"title": "t"}
    )
    assert exported(path, "markdown", tmp_path / "c.md").partition("#1\n\n")[2] == f"{shown}\n"


_PIECES = (
    *(
        "# ",
        "## user",
        "\n",
        "\n\n",
        "\r",
        "```",
        "~~~",
        "`",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<b",
        "onx=1>",
        "![a](",
        "[a](",
    ),
    *(
        "javascript:x)",
        "http://h)",
        "[r]: ",
        "[r]",
        "> ",
        "- ",
        "1. ",
        "    ",
        "|a|b|\n|-|-|\n",
        "---",
        "===",
        "</details>",
        "&#60;",
    ),
    *(
        "\\",
        "*",
        "<http://a>",
        "<javascript:a>",
        "<?php",
        "<![CDATA[",
        "]]>",
        "<!X",
        "text",
        "<a\n",
        "href='x'>",
        "]",
        "(",
        ")",
    ),
)


@given(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join))
@example(
    '\r*---"[r]<details>1. http://x\n[a]([^1]: --><a\n"[a]('
)  # line ends that a parser counts, and a split at line feeds does not
def test_no_text_reaches_what_stands_around_it(said: str) -> None:
    """In a document the headings around it are all that are so high; no HTML, no image, no link that runs, and nothing stays open."""
    if (shown := prose(said)) is None:
        return  # it stands in a fence
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(f"## one\n\n{shown}\n\n## two\n\nend\n")
    inline = [child for token in tokens for child in token.children or ()]
    high = [after.content for token, after in pairwise(tokens) if token.type == "heading_open" and token.tag < "h4"]
    assert (high, tokens[-2].content, tokens[-3].level) == (["one", "two"], "end", 0)
    assert not [token for token in (*tokens, *inline) if token.type.startswith("html") or token.type == "image"]
    links = [str(token.attrs["href"]).lower() for token in inline if token.type == "link_open"]
    assert all(link.startswith(("http://", "https://", "mailto:", "#")) or ":" not in link for link in links)


def test_the_command_prints_the_page_as_it_is(tmp_path):
    path = conversations.store(tmp_path / "c", conversations.OPENAI, provider="openai")
    done = subprocess.run((*COMMAND, "export", path, "--to", "html"), env=ENVIRONMENT, capture_output=True, check=True)
    assert done.stdout == b"".join(render_page(path))


def test_a_page_takes_a_binary_stream_and_a_redactor(tmp_path):
    """What belongs there is said, before a byte is written."""
    with ConversationStore(tmp_path / "c") as conversation:
        conversation.initialize()
    with pytest.raises(TypeError, match=r"binary stream, but this is a text stream: pass its \.buffer"):
        write_page(tmp_path / "c", io.TextIOWrapper(io.BytesIO()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="redact must be a SecretRedactor, not bool"):
        write_page(tmp_path / "c", tmp_path / "page.html", redact=True)  # type: ignore[arg-type]
    assert not (tmp_path / "page.html").exists()
