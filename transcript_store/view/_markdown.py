"""Markdown and code as HTML.

Two locks, one behind the other. The parser makes no HTML of the text's own and no image, and a link only of http, https and
mailto. What it makes is looked at again: each ``<`` has to begin one of the tags below as they are spelled there, and each tag has to
be closed in its turn. Whatever is not so, and every link, goes through an allow-list (nh3) that knows only these tags and attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MethodType
from typing import Any
from urllib.parse import urlsplit

import nh3
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token as MarkdownToken

from transcript_store.view._html import Html, joined, listing, tag, text
from transcript_store.view.markup import PARSER, Piece, coloured, is_address, is_marked, line_of, parsed
from transcript_store.words import safe

_TAGS = {
    *(
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "div",
        "em",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "span",
    ),
    *("strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_CLASSES = {"span": {"k", "s", "c", "m", "f", "t", "ins", "del"}, "a": {"remote"}, "div": {"block"}}
_SANITIZER = nh3.Cleaner(
    tags=_TAGS,
    attributes={"a": {"href"}, "ol": {"start"}, "pre": {"tabindex"}, "table": {"tabindex"}},
    allowed_classes=_CLASSES,
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
    strip_comments=True,
)
_VOID = frozenset({"br", "br /", "hr", "hr /"})
_ENDS = {
    **{name: f"/{name}" for name in _TAGS - {"a", "br", "hr"}},
    **{f'span class="{kind}"': "/span" for kind in _CLASSES["span"]},
    'div class="block"': "/div",
    'pre tabindex="0"': "/pre",
    'table tabindex="0"': "/table",
}
"""What stands between ``<`` and ``>`` of a tag that may be here, and the same of the tag that has to close it."""
_PARAGRAPHS = re.compile(r"\n\s*\n")
_SHORT_CODE = 512
"""In characters. Agents give the same commands again and again, so as many of those as this are kept with their colours."""


def markdown(said: str) -> Html:
    """A text with its Markdown. Whatever it says, the result has only tags and attributes of the list above."""
    said = said.replace("\r\n", "\n")
    if not is_marked(said):
        return joined(*(tag("p", paragraph) for paragraph in _PARAGRAPHS.split(said.strip()) if paragraph.strip()))
    if (line := line_of(said)) is not None:
        return Html(f"<p>{''.join([_piece(piece) for piece in line])}</p>\n")
    env: dict[str, Any] = {}
    tokens = parsed(said, env)
    if tokens is None:
        return tag("pre", said, class_="wrapped")
    # Once more behind the parser: it turns &#x202e; into the character.
    made = _RENDERER.render(tokens, PARSER.options, env)
    if is_proper(made):  # quotation marks are written as nh3 writes them, which is shorter
        return Html(safe(made.replace("&quot;", '"').replace("&#x27;", "'")))
    return Html(safe(_SANITIZER.clean(made)))


def _piece(piece: Piece) -> str:
    said = text(piece.text)
    return f"<{piece.kind}>{said}</{piece.kind}>" if piece.kind else said


def is_proper(made: str) -> bool:
    """Whether HTML has only tags of the list, spelled as there, and each is closed in its turn. A link is never proper.

    Such HTML cannot be read in another way: a ``<`` that is text is written ``&lt;``, and no end tag is left over to close what stands
    around it.
    """
    ends: list[str] = []
    for piece in made.split("<")[1:]:
        name, bracket, _ = piece.partition(">")
        if end := _ENDS.get(name):
            ends.append(end)
        elif name not in _VOID and not (ends and ends.pop() == name):
            return False
        if not bracket:
            return False
    return not ends


def code(said: str, *, language: str = "", file_name: str = "") -> Html:
    """Code with its colours, where the language is known: spans of the classes above. Without ``pre``."""
    if len(said) > _SHORT_CODE:
        return _code(said, language, file_name)
    return _short_code(said, language, file_name)


def _code(said: str, language: str, file_name: str) -> Html:
    pieces = coloured(said, language=language, file_name=file_name)
    if pieces is None:
        return text(said)
    return Html(
        "".join(f'<span class="{kind}">{text(value)}</span>' if kind else text(value) for value, kind in pieces)
    )


_short_code = lru_cache(maxsize=512)(_code)


def _link(renderer: RendererHTML, tokens: Sequence[MarkdownToken], index: int, options: Any, env: Any) -> str:
    """Without an address, its text stands alone."""
    address = str(tokens[index].attrs.get("href") or "")
    if not address:
        return ""  # nobody's end tag is taken out behind the parser
    tokens[index].attrs = {"href": address}
    return renderer.renderToken(tokens, index, options, env)


def _image(_: RendererHTML, tokens: Sequence[MarkdownToken], index: int, *__: object) -> str:
    """An image would be fetched from somewhere, so it becomes a link that says where it leads."""
    address = str(tokens[index].attrs.get("src") or "")
    about = tokens[index].content or "image"
    host = urlsplit(address).hostname or address if is_address(address) else ""
    return tag("a", f"{about} (image at {host})", href=address, class_="remote") if host else text(f"[image: {about}]")


def _fence(_: RendererHTML, tokens: Sequence[MarkdownToken], index: int, *__: object) -> str:
    token = tokens[index]
    language = (token.info.split() or [""])[0]
    return listing(code(token.content.removesuffix("\n"), language=language))


def _table(*_: object) -> str:
    """A wide table scrolls by itself, as code does: so a key can reach it."""
    return '<table tabindex="0">\n'


def _heading(_: RendererHTML, tokens: Sequence[MarkdownToken], index: int, *__: object) -> str:
    """The page has the first two levels, so a message's headings begin with the third."""
    token = tokens[index]
    level = min(6, int(token.tag[1]) + 2)
    return f"<{'/' if token.nesting < 0 else ''}h{level}>"


def _renderer() -> RendererHTML:
    renderer = RendererHTML()
    rules: Mapping[str, Any] = {
        "link_open": _link,
        "image": _image,
        "fence": _fence,
        "code_block": _fence,
        "table_open": _table,
        "heading_open": _heading,
        "heading_close": _heading,
    }
    renderer.rules.update({name: MethodType(rule, renderer) for name, rule in rules.items()})
    return renderer


_RENDERER = _renderer()
