"""A message's text as Markdown within our document: headings, lists and tables stay, and nothing in it affects the text around it.

A parser that knows raw HTML reads the text first. Raw HTML, images, links with a scheme other than http, https and mailto, link
definitions and blocks that are open at the end must not be there: they are escaped. If some are left, or the extra ``view`` is not
installed, the text goes into a fence. Its headings are moved below those of the document, so none passes for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


_LONGEST = 100_000
"""In characters. A longer text is put into a fence: some Markdown takes more than linear time."""
_ROUNDS = 4
_BELOW = 4
"""The level of a text's own first heading."""
_CONTAINERS = r"(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))*[ \t]*"
_HEADING = re.compile(rf"^({_CONTAINERS})(#{{1,6}})(?=[ \t]|$)", re.MULTILINE)
_UNDERLINE = re.compile(rf"^({_CONTAINERS})(=+|-+)(?=[ \t]*$)", re.MULTILINE)
_DEFINITION = re.compile(rf"^({_CONTAINERS})\[(?=[^\]\n]*\]:)", re.MULTILINE)
_ALLOWED = ("http://", "https://", "mailto:", "#")
_LINE_ENDS = re.compile("\r\n?")
_SENTINEL = "end of what was said"


def prose(said: str) -> str | None:
    """The text as Markdown that is safe within a document; None if it needs a fence."""
    parser = _parser()
    if parser is None or len(said) > _LONGEST:
        return None
    text = _DEFINITION.sub(r"\1\\[", _LINE_ENDS.sub("\n", said).strip("\n"))
    for _ in range(_ROUNDS):
        env: dict[str, Any] = {}
        tokens = parser.parse(f"{text}\n\n{_SENTINEL}\n", env)
        changed = _escaped(text, tokens)
        if changed == text:
            return text if _is_closed(tokens) and not env.get("references") and _does_nothing(tokens) else None
        text = changed
    return None


@cache
def _parser() -> MarkdownIt | None:
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError:
        return None
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    # Another program may follow what ours would refuse.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    return parser


def _is_closed(tokens: list[Token]) -> bool:
    """True if what follows the text is a paragraph of its own."""
    kinds = [(token.type, token.level, token.content) for token in tokens[-3:]]
    return kinds == [("paragraph_open", 0, ""), ("inline", 1, _SENTINEL), ("paragraph_close", 0, "")]


def _does_nothing(tokens: list[Token]) -> bool:
    """True if no heading is as high as one of the document's, and nothing is left that :func:`_escaped` should have escaped."""
    if any(token.type == "html_block" for token in tokens):
        return False
    if any(int(token.tag[1:]) < _BELOW for token in tokens if token.type == "heading_open"):
        return False
    return not any(True for token in tokens for child in token.children or () for _ in _refused(child))


def _escaped(text: str, tokens: list[Token]) -> str:
    """The text with what the parser sees in it, and must not be there, escaped on its lines."""
    lines = text.split("\n")
    for token in tokens:
        first, end = token.map or (0, 0)
        where = range(first, min(end, len(lines)))
        if token.type == "html_block":
            _change(lines, where, "<", "&lt;")
        elif token.type == "heading_open" and int(token.tag[1:]) < _BELOW:
            for at in where:
                lines[at] = _UNDERLINE.sub(r"\1\\\2", _HEADING.sub(_lower, lines[at]))
        elif token.type == "inline":
            for child in token.children or ():
                for old, new in _refused(child):
                    _change(lines, where, old, new)
    return "\n".join(lines)


def _lower(found: re.Match[str]) -> str:
    return f"{found[1]}{'#' * min(6, len(found[2]) + _BELOW - 1)}"


def _refused(child: Token) -> Iterator[tuple[str, str]]:
    address: Any = child.attrs.get("href", "")
    if child.type == "html_inline":
        yield child.content.split("\n", 1)[0], child.content.split("\n", 1)[0].replace("<", "&lt;")
    elif child.type == "image":
        yield "![", r"\!["
    elif child.type == "link_open" and not str(address).lower().startswith(_ALLOWED) and not _is_relative(str(address)):
        yield "](", r"\]("
        yield "<", "&lt;"


def _is_relative(address: str) -> bool:
    return re.fullmatch(r"[\w./-]*(#[\w.-]*)?", address) is not None and not address.startswith("//")


def _change(lines: list[str], where: range, old: str, new: str) -> None:
    for at in where:
        lines[at] = re.sub(rf"(?<!\\){re.escape(old)}", lambda _: new, lines[at])
