"""How are Markdown and code split into tokens, for a page and a terminal alike?

Nothing of a text becomes markup of its own: its HTML is text, and a link has http, https or mailto, or is none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token as MarkdownToken
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound

from transcript_store.display import safe

__all__ = ["PARSER", "CodeToken", "MarkupSpan", "highlight", "is_marked", "is_safe_link", "line_of", "parse_markdown"]

_LONGEST_MARKDOWN = 100_000
"""In characters. A longer text is shown as it is: some Markdown takes more than linear time."""
_MOST_ADDRESSES = 1_000_000
"""In characters, of all links and images of a text together. A definition may be used by ten thousand, and each would repeat its
address: those for which there is no room have none."""
_MOST_CELLS = 20_000
"""Of tables, in all of a text. One that would have more is shown as it is."""
_LONGEST_CODE = 20_000
"""In characters. Longer code is shown without colours."""
_LONGEST_LINE = 2_000
"""The same of code with a longer line: some lexers take its square."""
_LONGEST_SECONDS = 0.5
"""The same of code that keeps the processor longer: others take the square of words or blank lines. Usual code takes milliseconds."""
_BLANK = re.compile(r"\s{200}")
"""The same of code with so much white space in one place: a pattern of one lexer takes the third power of it, and cannot be stopped."""

_MARKED = re.compile(r"[*_`#\[\]<>|~\\&]|^[ \t]*(?:[-+=]|\d+[.)])|^(?: {4}|\t)|(?: {2}|\\)$|https?:", re.MULTILINE)
_LINE = re.compile(r"[^\W\d_](?:[^\t\n]*\S)?")
"""A line that begins with a letter is a paragraph: every other block begins with something else, or has a second line."""
_PIECE = re.compile(
    r"""(?P<text> (?: [^\n\\`~*_\[\]!<&]++ | !(?!\[) | (?<=[A-Za-z0-9])_(?=[A-Za-z0-9]) )+ )
      | (?P<end> (?<![\ \n])\n(?=[^\s]) )
      | (?<!`)`(?P<code> [^\s`] (?: [^`\n]*+ (?<=[^\s]) )? )`(?!`)
      | (?<![^\ (\n]) (?P<stars> \*\*? ) (?P<stressed> [A-Za-z0-9] (?: [^\n\\`~*_\[\]!<&]*+ (?<=[A-Za-z0-9]) )? )
        (?P=stars) (?![^\ \n.,;:)?])""",
    re.VERBOSE,
)
"""The usual content of a line, if it is unambiguous: words, an end of a line, a span of code, emphasis."""
_ADDRESS = re.compile(r"(?:https?|mailto):", re.IGNORECASE)
_HEAD_ENDS = re.compile(r"^[ \t>]*[|:-](?=[-: \t]*\|)[-:| \t]*$", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


def is_marked(said: str) -> bool:
    """True if a text may be more than short paragraphs."""
    return len(said) > _LONGEST_MARKDOWN or _MARKED.search(said) is not None


def is_safe_link(url: str) -> bool:
    """True if an address is of a kind that a link may lead to."""
    return _ADDRESS.match(url) is not None


def parse_markdown(said: str, env: dict[str, Any]) -> list[MarkdownToken] | None:
    """The tokens of a text without carriage returns; None if it is too long, too deep or too wide, and is shown as it is.

    The parser turns ``&#x202e;`` into the character: code that shows the tokens must make them safe.
    """
    if len(said) > _LONGEST_MARKDOWN or _cells(said) > min(_MOST_CELLS, 500 + len(said) // 2):
        return None
    tokens = _tokens(safe(said), env)
    if any(token.level >= PARSER.options["maxNesting"] - 1 for token in tokens):
        return None  # the parser leaves out what nests deeper
    _leave_out_addresses(tokens)
    return tokens


def _tokens(said: str, env: dict[str, Any]) -> list[MarkdownToken]:
    """The parser's tokens of a text. Most messages of agents are one line, which needs no search for blocks."""
    if _LINE.fullmatch(said) is None:
        return PARSER.parse(said, env)
    begin, end = MarkdownToken("paragraph_open", "p", 1), MarkdownToken("paragraph_close", "p", -1)
    begin.block = end.block = True
    pieces = _inline(said)
    if pieces is None:
        return [begin, *PARSER.parseInline(said, env), end]
    return [begin, MarkdownToken("inline", "", 0, content=said, children=pieces), end]


class MarkupSpan(NamedTuple):
    """A piece of a line."""

    text: str
    kind: str
    """``code``, ``em``, ``strong``, ``br`` the end of a line, or empty."""


def line_of(said: str) -> list[MarkupSpan] | None:
    """The pieces of a text, made safe, that is a paragraph of one line; None if it is, or may be, anything else."""
    if len(said) > _LONGEST_MARKDOWN:
        return None
    said = safe(said)
    return _pieces(said) if _LINE.fullmatch(said) else None


def _pieces(said: str) -> list[MarkupSpan] | None:
    """The content of a block, if it consists only of such tokens; else None. The parser returns the same in ten times
    the time.
    """
    found: list[MarkupSpan] = []
    at, end = 0, len(said)
    while at < end:
        piece = _PIECE.match(said, at)
        if piece is None:
            return None
        at = piece.end()
        kind = piece.lastgroup
        if kind == "text":
            found.append(MarkupSpan(piece[0], ""))
        elif kind == "code":
            found.append(MarkupSpan(piece["code"], "code"))
        elif kind == "end":
            found.append(MarkupSpan("\n", "br"))
        else:
            found.append(MarkupSpan(piece["stressed"], "em" if piece["stars"] == "*" else "strong"))
    return found


def _inline(said: str) -> list[MarkdownToken] | None:
    """The same as the parser's tokens."""
    pieces = _pieces(said)
    return None if pieces is None else [token for piece in pieces for token in _tokens_of(piece)]


def _tokens_of(piece: MarkupSpan) -> Iterator[MarkdownToken]:
    text, kind = piece
    if not kind:
        yield MarkdownToken("text", "", 0, content=text)
    elif kind == "code":
        yield MarkdownToken("code_inline", "code", 0, markup="`", content=text)
    elif kind == "br":
        yield MarkdownToken("softbreak", "br", 0)
    else:
        stars = "*" if kind == "em" else "**"
        yield MarkdownToken(f"{kind}_open", kind, 1, markup=stars)
        yield MarkdownToken("text", "", 0, content=text, level=1)
        yield MarkdownToken(f"{kind}_close", kind, -1, markup=stars)


def _leave_out_addresses(tokens: Iterable[MarkdownToken]) -> None:
    """Take the addresses away for which there is no room."""
    room = _MOST_ADDRESSES
    for child in chain.from_iterable(token.children or () for token in tokens):
        if not child.attrs:
            continue
        for name in ("href", "src"):
            room -= len(str(child.attrs.get(name, "")))
            if room < 0:
                child.attrs.pop(name, None)


def _cells(said: str) -> int:
    """How many cells the tables of a text may have, or enough to refuse it.

    The parser fills up each row that ends early, so a kilobyte can ask for sixty thousand: more than it can say, which is
    one in two characters.
    """
    cells = 0
    if "|" not in said:
        return cells
    for rule in _HEAD_ENDS.finditer(said):
        end = _BLANK_LINE.search(said, rule.end())
        rows = said.count("\n", rule.end(), end.start() if end else len(said))
        cells += (rows + 1) * rule[0].count("|")
        if cells > _MOST_CELLS:
            break
    return cells


class CodeToken(NamedTuple):
    """A piece of code."""

    text: str
    kind: str
    """``k`` keyword, ``t`` type, ``s`` string, ``c`` comment, ``m`` number, ``f`` name that is defined, ``ins``, ``del``, or empty."""


def highlight(said: str, *, language: str = "", file_name: str = "") -> list[CodeToken] | None:
    """Code in pieces; None if the language is not known, or finding them takes too long."""
    is_short = len(said) <= _LONGEST_CODE and max(map(len, said.split("\n"))) <= _LONGEST_LINE
    lexer = _lexer(language.lower(), file_name) if is_short and not _BLANK.search(said) else None
    if lexer is None:
        return None
    pieces: list[CodeToken] = []
    end, of_processor = time.perf_counter() + _LONGEST_SECONDS, time.thread_time() + _LONGEST_SECONDS
    for kind, value in lexer.get_tokens(safe(said.replace("\r\n", "\n"))):
        pieces.append(CodeToken(value, _class_of(kind)))
        # A thread's processor time is never more than what passed, which costs a fiftieth to ask for.
        if time.perf_counter() > end and time.thread_time() > of_processor:
            return None
    return pieces


@lru_cache(maxsize=256)
def _lexer(language: str, file_name: str) -> Lexer | None:
    """None for an unknown language, and for plain text."""
    options = {"stripnl": False, "ensurenl": False}
    try:
        found = get_lexer_by_name(language, **options) if language else get_lexer_for_filename(file_name, **options)
    except (ClassNotFound, ValueError):
        return None
    return None if found.name == "Text only" else found


_KINDS = {
    Token.Keyword: "k",
    Token.Keyword.Type: "t",
    Token.Literal.String: "s",
    Token.Comment: "c",
    Token.Literal.Number: "m",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Name.Tag: "k",
    Token.Name.Attribute: "f",
    Token.Name.Builtin: "t",
    Token.Name.Decorator: "t",
    Token.Name.Exception: "t",
    Token.Generic.Inserted: "ins",
    Token.Generic.Deleted: "del",
    Token.Generic.Heading: "f",
    Token.Operator.Word: "k",
}


@lru_cache(maxsize=1024)
def _class_of(kind: Any) -> str:
    while kind is not None:
        if kind in _KINDS:
            return _KINDS[kind]
        kind = kind.parent
    return ""


_BOXES = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}


def _tick(state: StateCore) -> None:
    """Items of a list that begin with ``[ ]`` or ``[x]`` begin with a box."""
    for item, inline in zip(state.tokens, state.tokens[2:], strict=False):  # a paragraph opens between them
        if item.type == "list_item_open" and inline.type == "inline" and inline.children:
            first = inline.children[0]
            box = _BOXES.get(first.content[:4]) if first.type == "text" else None
            if box:
                first.content = box + first.content[4:]


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline"])  # without HTML they never find any, and are asked at each line
    parser.core.ruler.push("tick", _tick)
    parser.validateLink = is_safe_link  # type: ignore[method-assign]
    whole = parser.inline.parse

    def parse(src: str, md: MarkdownIt, env: Any, tokens: list[MarkdownToken]) -> list[MarkdownToken]:
        pieces = _inline(src)
        if pieces is None:
            return whole(src, md, env, tokens)
        tokens += pieces
        return tokens

    parser.inline.parse = parse  # type: ignore[method-assign]
    return parser


PARSER = _parser()
"""It makes no HTML of the text's own."""
