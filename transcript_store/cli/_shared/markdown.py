"""Markdown as lines for a terminal: spans of text with styles, so that no text can control the terminal.

It needs the parser of the extra ``view``. A line is never wider than allowed: a line that the terminal breaks would continue in
the first column, which belongs to the headings of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, zip_longest

from markdown_it.tree import SyntaxTreeNode

from transcript_store.cli._shared.terminal import Line, Look, TerminalSpan, columns_of, fitting, one_line
from transcript_store.view.markup import highlight, is_marked, parse_markdown
from transcript_store.view.output import styled

_NARROWEST = 8
"""In columns: the least width of a text deep in nested lists, even on a narrow terminal."""
_NARROWEST_CELL = 3
_ANSI: tuple[Look, ...] = ("red", "green", "yellow", "blue", "magenta", "cyan")
_LONGEST_ADDRESS = 500
"""A definition may be used by ten thousand links, and each repeats its address."""
_HEADINGS: Mapping[str, tuple[Look, ...]] = {"h1": ("strong", "under", "magenta"), "h2": ("strong", "magenta")}
_INLINE: Mapping[str, Look] = {"strong": "strong", "em": "italic", "s": "struck", "link": "under"}
_CODE: Mapping[str, tuple[Look, ...]] = {
    "k": ("magenta",),
    "t": ("cyan",),
    "s": ("green",),
    "c": ("quiet",),
    "m": ("cyan",),
    "f": ("blue",),
    "ins": ("green",),
    "del": ("red",),
}


def markdown_lines(source: str, width: int) -> Iterator[Line]:
    """The lines of a text with its Markdown, each within the width; a text that is too long to parse is unformatted."""
    source = source.replace("\r\n", "\n").strip("\n")
    tokens = parse_markdown(source, {}) if is_marked(source) else None
    if tokens is None:
        return _wrapped([TerminalSpan(source)], width)
    return _blocks(SyntaxTreeNode(tokens).children, width, source.split("\n"))


def code_lines(source: str, width: int, *, language: str = "", looks: tuple[Look, ...] = ()) -> Iterator[Line]:
    """The lines of code with its colours, or in the given style if its language is unknown."""
    found = highlight(f"{source}\n", language=language) if language else None  # a diff ends its last line too
    if not found:
        return _wrapped([TerminalSpan(source, looks)], width, at_spaces=bool(looks))  # a style means prose: thinking
    pieces = [TerminalSpan(text, _CODE.get(kind, ())) for text, kind in found]
    pieces[-1] = TerminalSpan(pieces[-1].text.removesuffix("\n"), pieces[-1].looks)
    return _wrapped(pieces, width, at_spaces=False)


_OUTPUT: Mapping[str, Look] = {
    **{f"f{number + bright}": look for number, look in enumerate(_ANSI, 1) for bright in (0, 8)},
    "f8": "quiet",
    "bold": "strong",
    "dim": "quiet",
    "italic": "italic",
    "under": "under",
}
"""A page's classes for colours, as styles."""


def output(source: str, width: int) -> Iterator[Line]:
    """The lines of a program's output, in its colours. Every other escape is shown as text."""
    pieces = [
        TerminalSpan(text, tuple(_OUTPUT[one] for one in classes if one in _OUTPUT)) for text, classes in styled(source)
    ]
    return _wrapped(pieces, width)


def _blocks(nodes: Sequence[SyntaxTreeNode], width: int, source: Sequence[str]) -> Iterator[Line]:
    """The lines of blocks, one below the other, with an empty line between them except in a tight list."""
    for at, node in enumerate(nodes):
        is_tight = node.type == "paragraph" and node.hidden
        if at and not is_tight and not nodes[at - 1].hidden:
            yield ()
        yield from _block(node, max(_NARROWEST, width), source)


def _block(node: SyntaxTreeNode, width: int, source: Sequence[str]) -> Iterator[Line]:
    match node.type:
        case "heading":
            yield from _wrapped(_inline(node, _HEADINGS.get(node.tag, ("strong",))), width)
        case "bullet_list" | "ordered_list":
            yield from _list(node, width, source)
        case "blockquote":
            bar = TerminalSpan("│ ", ("quiet",))
            yield from _behind(bar, bar, _blocks(node.children, width - 2, source))
        case "fence" | "code_block":
            language = (node.info.split() or [""])[0]
            lines = code_lines(node.content.removesuffix("\n"), width - 2, language=language, looks=("cyan",))
            yield from _behind(TerminalSpan("  "), TerminalSpan("  "), lines)
        case "hr":
            yield (TerminalSpan("─" * width, ("quiet",)),)
        case "table":
            yield from _table(node, width) or _as_it_is(node, width, source)
        case _:  # a paragraph
            yield from _wrapped(_inline(node), width)


def _as_it_is(node: SyntaxTreeNode, width: int, source: Sequence[str]) -> Iterator[Line]:
    first, end = node.map or (0, 0)
    return _wrapped([TerminalSpan("\n".join(source[first:end]))], width, at_spaces=False)


def _list(node: SyntaxTreeNode, width: int, source: Sequence[str]) -> Iterator[Line]:
    first = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    is_loose = any(not child.hidden for item in node.children for child in item.children if child.type == "paragraph")
    for at, item in enumerate(node.children):
        if at and is_loose:
            yield ()
        mark = "• " if first is None else f"{first + at}. "
        lines = _blocks(item.children, width - len(mark), source)
        yield from _behind(TerminalSpan(mark, ("blue",)), TerminalSpan(" " * len(mark)), lines)


def _behind(first: TerminalSpan, others: TerminalSpan, lines: Iterable[Line]) -> Iterator[Line]:
    """Lines with a prefix; the first one has its own."""
    at = -1
    for at, line in enumerate(lines):
        yield (others if at else first, *line)
    if at < 0:
        yield (first,)


def _inline(node: SyntaxTreeNode, looks: tuple[Look, ...] = ()) -> Iterator[TerminalSpan]:
    """The spans of a line. A link's address is shown, unless it is the link's text."""
    for child in node.children:
        match child.type:
            case "text":
                yield TerminalSpan(child.content, looks)
            case "code_inline":
                yield TerminalSpan(child.content, (*looks, "cyan"))
            case "softbreak" | "hardbreak":
                yield TerminalSpan("\n", looks)
            case "link":
                pieces = [*_inline(child, (*looks, "under"))]
                yield from pieces
                yield from _address(str(child.attrs.get("href", "")), "".join(piece.text for piece in pieces))
            case "image":
                yield TerminalSpan(f"[image: {child.content or 'without a name'}]", looks)
                yield from _address(str(child.attrs.get("src", "")), "")
            case _:
                yield from _inline(child, (*looks, _INLINE[child.type]) if child.type in _INLINE else looks)


def _address(address: str, shown: str) -> Iterator[TerminalSpan]:
    if address and address not in (shown, f"mailto:{shown}"):
        yield TerminalSpan(f" ({fitting(address, _LONGEST_ADDRESS)})", ("quiet",))


def _table(node: SyntaxTreeNode, width: int) -> list[Line]:
    """The lines of a table; none if it has too many columns for the width."""
    rows = [row.children for part in node.children for row in part.children]
    cells = [[_flat(_inline(cell, ("strong",) if cell.type == "th" else ())) for cell in row] for row in rows]
    wanted = [
        max(sum(columns_of(piece.text) for piece in cell) for cell in column) for column in zip(*cells, strict=True)
    ]
    room = width - 3 * (len(wanted) - 1)
    if room < _NARROWEST_CELL * len(wanted):
        return []
    widths = _fitted(wanted, room)
    bar, lines = TerminalSpan(" │ ", ("quiet",)), list[Line]()
    for at, (row, nodes) in enumerate(zip(cells, rows, strict=True)):
        broken = [list(_wrapped(cell, width)) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*broken, fillvalue=()):
            padded = [_padded(part, width, node) for part, width, node in zip(parts, widths, nodes, strict=True)]
            lines.append(tuple(chain(*(([bar] if at else []) + part for at, part in enumerate(padded)))))
        if at == 0:
            lines.append((TerminalSpan("─┼─".join("─" * width for width in widths), ("quiet",)),))
    return lines


def _padded(line: Line, width: int, cell: SyntaxTreeNode) -> list[TerminalSpan]:
    """A line of a cell, padded on the right, or on the left in a right-aligned column."""
    blank = TerminalSpan(" " * (width - _columns(line)))
    return [blank, *line] if cell.attrs.get("style") == "text-align:right" else [*line, blank]


def _fitted(wanted: Sequence[int], room: int) -> list[int]:
    """The widths of columns: the wanted ones, with the widest cut to one width until all fit."""
    left, widths = room, [0] * len(wanted)
    for done, at in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        widths[at] = max(1, min(wanted[at], left // (len(wanted) - done)))
        left -= widths[at]
    return widths


def _flat(pieces: Iterable[TerminalSpan]) -> list[TerminalSpan]:
    return [TerminalSpan(one_line(piece.text.replace("\n", " ")), piece.looks) for piece in pieces]


def _columns(line: Line) -> int:
    return sum(columns_of(piece.text) for piece in line)


def _wrapped(pieces: Iterable[TerminalSpan], width: int, *, at_spaces: bool = True) -> Iterator[Line]:
    """Spans as lines: broken at line feeds; too wide ones at spaces, or anywhere if there is none."""
    for line in _at_line_feeds(pieces):
        cells = [(character, piece.looks) for piece in line for character in piece.text]
        begin = 0
        while True:
            end = _end_of_line(cells, begin, max(2, width), at_spaces=at_spaces)
            yield _joined(cells[begin:end])
            if end == len(cells):
                break
            begin = end + (at_spaces and cells[end][0] == " ")


_Cell = tuple[str, tuple[Look, ...]]


def _end_of_line(cells: Sequence[_Cell], begin: int, width: int, *, at_spaces: bool) -> int:
    used, space = 0, 0
    for at in range(begin, len(cells)):
        character = cells[at][0]
        used += columns_of(character)
        if used > width:
            return at if character == " " and at_spaces else space or at
        if character == " " and at_spaces and at > begin:
            space = at
    return len(cells)


def _at_line_feeds(pieces: Iterable[TerminalSpan]) -> Iterator[list[TerminalSpan]]:
    line: list[TerminalSpan] = []
    for piece in pieces:
        first, *others = piece.text.split("\n")
        for at, text in enumerate((first, *others)):
            if at:
                yield line
                line = []
            line.append(TerminalSpan(one_line(text.replace("\t", "    ")), piece.looks))
    yield line


def _joined(cells: Sequence[_Cell]) -> Line:
    pieces = groupby(cells, key=lambda cell: cell[1])
    return tuple(TerminalSpan("".join(character for character, _ in piece), looks) for looks, piece in pieces)
