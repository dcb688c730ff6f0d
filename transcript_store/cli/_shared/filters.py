"""The options by which `list` and `search` are narrowed, the same for both, and what they are in a query."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence

from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.terminal import complain, many
from transcript_store.display import MOMENTS, period
from transcript_store.errors import TranscriptStoreError

_OPTIONS = {
    "since": ("WHEN", "after", f"from then on: {MOMENTS}"),
    "until": ("WHEN", "until", "up to the end of that day or month, or up to that moment"),
    "project": ("TEXT", "project", "held in a folder whose path contains it"),
    "source": ("PROGRAM", "source", "imported from this program"),
    "model": ("TEXT", "model", "with a model whose name contains it"),
    "label": ("NAME[=VALUE]", "label", "with this label"),
    "title": ("TEXT", "title", "whose title, or first prompt, contains it"),
}
"""Each option: what it takes, the filter of a query that it is, and what it leaves."""


def add_filters(parser: ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("only what is …")
    for name, (metavar, _, what) in _OPTIONS.items():
        of_time = {"type": _period} if metavar == "WHEN" else {}
        also = ["--program"] if name == "source" else ["--cwd"] if name == "project" else []
        group.add_argument(f"--{name}", *also, metavar=metavar, help=what, **of_time)  # type: ignore[arg-type]


def filters_of(arguments: Namespace) -> str:
    """The options that were given, as a query."""
    given = ((name, getattr(arguments, option)) for option, (_, name, _) in _OPTIONS.items())
    return " ".join(f'{name}:"{text.replace(chr(34), " ")}"' for name, text in given if text)


def _period(text: str) -> str:
    if period(text) is None:
        raise ArgumentTypeError(f"{text!r} is no time; give {MOMENTS}")
    return text


# ---- queries ----
#
# What the commands say of a query.

_TIMES = ("after", "before", "since", "until")
_LONGEST = 60
"""In characters."""
_NAMED = 3


def say_ignored(pieces: Iterable[str]) -> None:
    """Say on standard error which pieces of a query mean nothing, and why. ``pieces`` is ``ignored`` of an answer or of a list."""
    dates: list[str] = []
    filters: list[str] = []
    others: list[str] = []
    for piece in pieces:
        name, colon, _ = piece.partition(":")
        kind = dates if name in _TIMES else filters if colon and name.isalpha() else others
        kind.append(piece)
    if dates:
        complain(f"ignored, since it is no date ({MOMENTS}): {_shortened(dates)}")
    if filters:
        from transcript_store.search import FILTERS

        known = " ".join(f"{name}:" for name in FILTERS)
        complain(
            f"ignored, since there is no such filter: {_shortened(filters)} (there are {known} - what stands in quotes is searched)"
        )
    if others:
        complain(f"ignored, since nothing can be looked for that is only punctuation: {_shortened(others)}")


def say_not_read(refused: Sequence[TranscriptStoreError], command: str) -> None:
    """Say on standard error which conversations were left out because they cannot be read, and what to do about the first."""
    for error in refused[:_NAMED]:
        complain(f"left out: {error_sentence(error, command)}")
    if (left := len(refused) - _NAMED) > 0:
        complain(f"left out for the like: {many(left, 'conversation')} more")


def _shortened(pieces: list[str]) -> str:
    said = " ".join(pieces)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
