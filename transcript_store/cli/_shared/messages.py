"""A message as lines, for a person: its text with its Markdown where a terminal can show that, and its other parts below their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transcript_store.cli._shared.terminal import Line, Look, Piece, columns, has_looks, many, one_line, safe
from transcript_store.messages import Part, parts_of, typed_of

_LINES, _CHARACTERS = 12, 1200
"""Unless they are shown in full, a tool's arguments and results, thinking and unknown parts are cut after these numbers."""
_PREVIEW = 60
"""In characters: of what a program wrote in the user's name."""
_WIDEST = 100
"""In columns. Longer lines are hard to read, however wide the terminal is."""
_TEXT_INDENT, _PART_INDENT = 4, 6
_TITLES: Mapping[str, tuple[Look, ...]] = {"call": ("strong",), "result": ("strong",)}
_TEXTS: Mapping[str, tuple[Look, ...]] = {"thinking": ("quiet", "italic")}


@dataclass(frozen=True, slots=True)
class Manner:
    """How messages are shown."""

    full: bool
    """Nothing is cut."""
    prose: Callable[[str], Iterable[Line]]
    listing: Callable[[str, str, str], Iterable[Line]]
    """Of a text in a language that is of a part of a kind."""
    arranged: Callable[[str], tuple[str, str]]
    """What a call was given, as a person reads it, and its language."""
    is_spaced: bool = False
    """An empty line stands between the parts of a message."""


def manner_here(*, full: bool, plain: bool) -> Manner:
    """How messages are shown on this standard output: with Markdown on a terminal, if the extra ``view`` is installed."""
    columns_there = columns()
    if not plain and columns_there is not None and has_looks():
        try:
            return _with_markdown(full, min(columns_there, _WIDEST))
        except ModuleNotFoundError:
            pass
    as_it_is = Manner(full, _as_written, lambda text, *_: _as_written(text), lambda text: (text, ""))
    if plain:
        return as_it_is
    from transcript_store.cli._shared.calls import as_typed

    return replace(as_it_is, arranged=as_typed)


def _with_markdown(full: bool, width: int) -> Manner:
    from transcript_store.cli._shared.calls import arranged
    from transcript_store.cli._shared.markdown import code, markdown, output

    def listing(text: str, language: str, kind: str) -> Iterator[Line]:
        if kind in ("result", "error"):
            return output(text, width - _PART_INDENT)
        return code(text, width - _PART_INDENT, language=language, looks=_TEXTS.get(kind, ()))

    return Manner(full, lambda text: markdown(text, width - _TEXT_INDENT), listing, arranged, is_spaced=True)


def lines_of(message: object, manner: Manner) -> Iterator[Line]:
    """The lines for a message. All of them are indented: the first column is for the headings of records."""
    return lines_of_parts(parts_of(message), manner)


@dataclass(frozen=True, slots=True)
class ScaffoldingText:
    """A message of which a program wrote some in the user's name."""

    typed: str
    """What the user typed; empty if the program wrote all of it."""
    others: tuple[Part, ...]
    """What is no text: images, results."""
    said: str
    """All of its texts."""


def written_by_the_program(message: object, extra: Mapping[str, Any] | None) -> ScaffoldingText | None:
    """The message if a program wrote some of it; None for any other."""
    if "scaffolding" not in (extra or {}):
        return None
    parts = parts_of(message)
    said = "\n\n".join(part.text for part in parts if part.kind == "text")
    return ScaffoldingText(typed_of(extra, ""), tuple(part for part in parts if part.kind != "text"), said)


def lines_of_written(written: ScaffoldingText, manner: Manner) -> Iterator[Line]:
    """The lines for such a message: what the user typed, and the beginning of what the program wrote."""
    if written.typed:
        yield from _indented(manner.prose(written.typed), _TEXT_INDENT)
    yield from lines_of_parts(written.others, manner)
    if written.said:
        begins = one_line(written.said.strip())
        shown = begins if len(begins) <= _PREVIEW else f"{begins[:_PREVIEW]}…"
        more = f" ({many(len(written.said), 'character')} that the program wrote; --full shows them)"
        yield [Piece(" " * _TEXT_INDENT), Piece(shown, ("quiet",)), Piece(more, ("quiet",))]


def lines_of_parts(parts: Iterable[Part], manner: Manner) -> Iterator[Line]:
    """The lines for parts of a message."""
    for at, part in enumerate(parts):
        if at and manner.is_spaced:
            yield ()
        if part.kind == "text":
            yield from _indented(manner.prose(part.text) if part.text else (), _TEXT_INDENT)
        else:
            title = one_line(part.title or part.kind)
            yield [Piece(" " * _TEXT_INDENT), Piece(title, _TITLES.get(part.kind, ("quiet",)))]
            if manner.full or part.kind != "besides":
                text, language = manner.arranged(part.text) if part.kind == "call" else (part.text, "")
                text = text if manner.full else _cut(text)
                yield from _indented(manner.listing(text, language, part.kind) if text else (), _PART_INDENT)


def _as_written(text: str) -> Iterator[Line]:
    return ([Piece(line)] for line in safe(text).split("\n"))


def _indented(lines: Iterable[Line], indent: int) -> Iterator[Line]:
    return ((Piece(" " * indent), *line) for line in lines)


def _cut(text: str) -> str:
    kept = "\n".join(text.split("\n", _LINES)[:_LINES])[:_CHARACTERS]
    return text if kept == text else f"{kept}\n… {many(len(text) - len(kept), 'more character')} (--full shows them)"
