"""The filter options of `list` and `search`, and their form in a query."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence

from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.terminal import complain, many
from transcript_store.display import MOMENTS, period
from transcript_store.errors import TranscriptStoreError

FILTER_OPTIONS = {
    "since": ("WHEN", "after", f"changed since (for `search`: messages since): {MOMENTS}"),
    "until": ("WHEN", "until", "up to that time, or the end of that day or month"),
    "project": ("TEXT", "project", "in a folder whose path contains this"),
    "source": ("PROGRAM", "source", "imported from this program"),
    "model": ("TEXT", "model", "with a model whose name contains this"),
    "label": ("NAME[=VALUE]", "label", "with this label"),
    "title": ("TEXT", "title", "whose title or first prompt contains this"),
}
"""Each option: its value, its filter in a query, and its help."""


def add_filters(parser: ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("only conversations")
    for name, (metavar, _, what) in FILTER_OPTIONS.items():
        of_time = {"type": _period} if metavar == "WHEN" else {}
        also = ["--program"] if name == "source" else ["--cwd"] if name == "project" else []
        group.add_argument(f"--{name}", *also, metavar=metavar, help=what, **of_time)  # type: ignore[arg-type]


def filters_of(arguments: Namespace) -> str:
    """The options that were given, as a query."""
    given = ((name, getattr(arguments, option)) for option, (_, name, _) in FILTER_OPTIONS.items())
    return " ".join(f'{name}:"{text.replace(chr(34), " ")}"' for name, text in given if text)


def _period(text: str) -> str:
    if period(text) is None:
        raise ArgumentTypeError(f"{text!r} is not a time; use {MOMENTS}")
    return text


# ---- queries ----
#
# What the commands report about a query.

_TIMES = ("after", "before", "since", "until")
_PLACES = ("text", "thinking", "call", "result", "scaffolding", "all")
_LONGEST = 60
"""In characters."""
_NAMED = 3


def say_ignored(pieces: Iterable[str]) -> None:
    """Report on standard error which parts of a query are ignored, and why. ``pieces`` is ``ignored`` of an answer or a list."""
    dates: list[str] = []
    filters: list[str] = []
    of_messages: list[str] = []
    without_value: list[str] = []
    joins: list[str] = []
    others: list[str] = []
    for piece in pieces:
        name, colon, value = piece.removeprefix("-").partition(":")
        if name in _TIMES:
            dates.append(piece)
        elif name == "role" or (name == "in" and value in _PLACES):  # a search uses these, or nothing is left
            of_messages.append(piece)
        elif colon and name.isalpha():
            (filters if value.strip() else without_value).append(piece)
        else:
            (joins if piece == "OR" else others).append(piece)
    if of_messages:
        complain(f"ignored, it selects messages, not conversations: {_shortened(of_messages)}")
    if without_value:
        complain(f"ignored, a filter without a value: {_shortened(without_value)}")
    if joins:
        complain("ignored, OR joins two words or phrases, not filters")
    if dates:
        complain(f"ignored, not a date ({MOMENTS}): {_shortened(dates)}")
    if filters:
        from transcript_store.search import FILTERS

        known = " ".join(f"{name}:" for name in FILTERS)
        complain(f"ignored, unknown filter: {_shortened(filters)} (use {known}; text in quotes is searched)")
    if others:
        complain(f"ignored, only punctuation: {_shortened(others)}")


def say_not_read(refused: Sequence[TranscriptStoreError], command: str) -> None:
    """Report on standard error which unreadable conversations were left out, with a hint for the first."""
    for error in refused[:_NAMED]:
        complain(f"left out: {error_sentence(error, command)}")
    if (left := len(refused) - _NAMED) > 0:
        complain(f"left out for similar reasons: {many(left, 'conversation')} more")


def _shortened(pieces: list[str]) -> str:
    joined = " ".join(pieces)
    return joined if len(joined) <= _LONGEST else f"{joined[:_LONGEST]}…"
