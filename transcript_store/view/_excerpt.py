"""A line of a message with what was found in it marked, as the message reads: its Markdown is meant, and not shown.

The parser gets the line with two characters that no text has around each mark, and what it leaves of the line is told by its tokens.
So nothing needs to know what Markdown is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from markdown_it.token import Token

from transcript_store.view._html import Html, joined, tag
from transcript_store.view.markup import PARSER

_BEGIN, _END = "\ufdd0", "\ufdd1"
"""Noncharacters of Unicode: for a program's own use, and never sent to another one."""
_EITHER = re.compile(f"[{_BEGIN}{_END}]")
_LEADS = re.compile(r"^(…?)\s*(?:#{1,6}|[-*+>])\s+")
"""What makes the beginning a heading, an item or a quotation."""
_RULE = re.compile(r"(?:\|\s*)?\|(?:\s*:?-{2,}:?\s*\|)+(?:\s*\|)?")
"""The line below the head of a table."""
_FENCE = re.compile(r"```\w*\s?")
_CLOSES_FIRST = re.compile(r"(?:(?!```).)*```(?!\w)(?:(?!```).)*```\w")
"""A fence without a language, and one with: the first ended code that began before this line."""
_CUT_AFTER = re.compile(r"[`*_]{1,3}…$|(?<!\S)(\*\*|`)(?=\S)(?=(?:(?!\1).)*…$)")
_CUT_BEFORE = re.compile(r"^(…(?:(?!\*\*).)*\S)\*\*(?!\S|.*\*\*)")
"""What begins, or ends, emphasis or code whose other end is not in this line."""


def excerpt(said: str, marks: Sequence[tuple[int, int]], *, is_markdown: bool = True) -> Html:
    """The text with its marks, each from its beginning to its end. A mark in the address of a link shows the address."""
    said = _EITHER.sub("\ufffd", said)
    pieces: list[str] = []
    at = 0
    for start, end in marks:
        pieces += (said[at:start], _BEGIN, said[start:end], _END)
        at = end
    whole = "".join(pieces) + said[at:]
    return joined(*_marked(_read(whole) if is_markdown else [(whole, None)]))


def _read(said: str) -> Iterator[tuple[str, str | None]]:
    """Pieces of a line, each with the element that it is."""
    line = _RULE.sub("|", _LEADS.sub(r"\1", " ".join(said.split())))
    if line.count("```") % 2 or _CLOSES_FIRST.match(line):  # the other end of the code is not in this line
        line = _FENCE.sub("", line)
    line = _CUT_BEFORE.sub(r"\1", _CUT_AFTER.sub(lambda cut: "" if cut[1] else "…", line))
    (inline,) = PARSER.parseInline(line, {})
    return _pieces(inline.children or ())


def _pieces(tokens: Sequence[Token]) -> Iterator[tuple[str, str | None]]:
    addresses: list[Any] = []
    for token in tokens:
        if token.type == "link_open":
            addresses.append(unquote(str(token.attrs.get("href") or "")))
        elif token.type == "link_close":
            address = addresses.pop() if addresses else ""
            if _BEGIN in address:
                yield f" ({address})", None
        elif token.type in ("softbreak", "hardbreak"):
            yield " ", None
        elif token.content:
            yield token.content, "code" if token.type == "code_inline" else None


def _marked(pieces: Iterable[tuple[str, str | None]]) -> Iterator[Html]:
    is_marked = False
    for said, element in pieces:
        shown: list[Html | str] = []
        for piece in re.split(f"([{_BEGIN}{_END}])", said):
            if piece in (_BEGIN, _END):
                is_marked = piece == _BEGIN
            elif piece:
                shown.append(tag("mark", piece) if is_marked else piece)
        yield tag(element, *shown) if element else joined(*shown)
