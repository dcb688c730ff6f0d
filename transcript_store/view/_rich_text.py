"""How do Markdown and code become safe HTML?

Two independent safeguards. The parser makes no HTML of the text's own and no image, and a link only of http, https
and mailto. Its output is checked again: each ``<`` must start one of the tags below, spelled as there,
and each tag has to be closed in its turn. Whatever is not so, and every link, goes through an allow-list (nh3) that
knows only these tags and attributes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.token import Token as MarkdownToken

from transcript_store.display import safe
from transcript_store.formats import Media
from transcript_store.view._html import Html, joined, listing, tag, text
from transcript_store.view.markup import PARSER, MarkupSpan, highlight, is_marked, is_safe_link, line_of, parse_markdown

if TYPE_CHECKING:
    from markdown_it.token import Token


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
"""The text between ``<`` and ``>`` of an allowed tag, and that of its closing tag."""
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
    tokens = parse_markdown(said, env)
    if tokens is None:
        return tag("pre", said, class_="wrapped")
    # Again after the parser: it turns &#x202e; into the character.
    made = _RENDERER.render(tokens, PARSER.options, env)
    if is_proper(made):  # quotation marks are written as nh3 writes them, which is shorter
        return Html(safe(made.replace("&quot;", '"').replace("&#x27;", "'")))
    return Html(safe(_SANITIZER.clean(made)))


def _piece(piece: MarkupSpan) -> str:
    said = text(piece.text)
    return f"<{piece.kind}>{said}</{piece.kind}>" if piece.kind else said


def is_proper(made: str) -> bool:
    """True if HTML has only tags of the list, spelled as there, and each is closed in its turn. A link is never proper.

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
    pieces = highlight(said, language=language, file_name=file_name)
    if pieces is None:
        return text(said)
    return Html(
        "".join(f'<span class="{kind}">{text(value)}</span>' if kind else text(value) for value, kind in pieces)
    )


_short_code = lru_cache(maxsize=512)(_code)


def _link(renderer: RendererHTML, tokens: Sequence[MarkdownToken], index: int, options: Any, env: Any) -> str:
    """Without an address, only its text is kept."""
    address = str(tokens[index].attrs.get("href") or "")
    if not address:
        return ""  # the parser never removes an end tag that has no start
    tokens[index].attrs = {"href": address}
    return renderer.renderToken(tokens, index, options, env)


def _image(_: RendererHTML, tokens: Sequence[MarkdownToken], index: int, *__: object) -> str:
    """An image would be fetched from somewhere, so it becomes a link that says where it leads."""
    address = str(tokens[index].attrs.get("src") or "")
    about = tokens[index].content or "image"
    host = urlsplit(address).hostname or address if is_safe_link(address) else ""
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


# ---- media ----
# Images that are in the transcript itself. Other media are named, and never fetched.

_SIGNATURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def media(block: Media) -> Html:
    """The image, if its first bytes say that it is one; else what it claims to be, and where it is."""
    data = _bytes(block.data)
    if data is not None and (kind := _kind(data)) is not None:
        encoded = base64.b64encode(data).decode()
        image = tag("img", src=Html(f"data:{kind};base64,{encoded}"), alt="image in the conversation", loading="lazy")
        return tag("button", image, class_="image", type="button", aria_label="image, show its full size")
    if block.url is not None:
        parts = _split(block.url)
        if parts is not None:
            rel = "noopener noreferrer nofollow"
            link = tag("a", block.url, href=block.url, rel=rel, class_="remote")
            return tag("p", f"{block.type} at {parts}, not fetched: ", link, class_="media")
        return tag("p", f"{block.type}: {block.url[:200]}", class_="media")
    size = f"{len(data):,} bytes" if data is not None else "no base64"
    lies = ", and no image by its first bytes" if block.type.startswith("image/") and data is not None else ""
    return tag("p", joined(f"{block.type}, {size}{lies}: not shown"), class_="media")


def _bytes(data: str | None) -> bytes | None:
    try:
        return None if data is None else base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _kind(data: bytes) -> str | None:
    for kind, signature in _SIGNATURES.items():
        if data.startswith(signature) and (kind != "image/webp" or data[8:12] == b"WEBP"):
            return kind
    return None


def _split(url: str) -> str | None:
    """The host of an address that may be a link; None for any other."""
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None


# ---- excerpt ----
#
# A line of a message with its hits highlighted, rendered: its Markdown is applied, not shown.
#
# The parser gets the line with two characters that no text has around each mark, and its tokens show what is left of
# the line. So nothing needs to know what Markdown is.

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


def excerpt_html(said: str, marks: Sequence[tuple[int, int]], *, is_markdown: bool = True) -> Html:
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
