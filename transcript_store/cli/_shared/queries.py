"""What the commands say of a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transcript_store.cli._shared.terminal import complain, many
from transcript_store.cli._shared.ways_out import sentence
from transcript_store.errors import TranscriptStoreError
from transcript_store.words import MOMENTS

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
        complain(f"left out: {sentence(error, command)}")
    if (left := len(refused) - _NAMED) > 0:
        complain(f"left out for the like: {many(left, 'conversation')} more")


def _shortened(pieces: list[str]) -> str:
    said = " ".join(pieces)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
