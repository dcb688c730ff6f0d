"""Formats that other packages bring: the entry points of the group ``transcript_store.formats``.

A name is known from a package's metadata alone. Its code is imported when a format of that name is asked for, or when the format has to
be told from the bytes. A package that is broken is an error with its name, and hinders nobody else.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import READERS, WRITERS, Format

GROUP = "transcript_store.formats"
BUILT_IN = frozenset({*(reader.name for reader in READERS), *(writer.name for writer in WRITERS)})
_TAKEN = BUILT_IN | {"original", "markdown", "html", "openclaw"}  # names that mean something else here
_A_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class UnusableFormatError(TranscriptStoreError):
    """The format ``name`` that the package ``distribution`` adds cannot be used. Without it all goes on."""

    name: str
    distribution: str
    reason: str
    _says = "the format {error.name}, which the package {error.distribution} adds, cannot be used: {error.reason}"


class _WrongError(Exception):
    """What was loaded is not what it has to be; the sentence says why."""


def added_names() -> tuple[str, ...]:
    """The names under which installed packages add formats. None of their code is imported."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)} - _TAKEN))


def added_formats(name: str | None = None) -> tuple[dict[str, Format], list[UnusableFormatError]]:
    """The formats that installed packages add, by their names, and why others cannot be used.

    Args:
        name: import only the package that adds this one; None for all.
    """
    points = [point for point in entry_points(group=GROUP) if name in (None, point.name)]
    owners = Counter(point.name for point in points)
    formats: dict[str, Format] = {}
    unusable: list[UnusableFormatError] = []
    for point in sorted(points, key=lambda point: (point.name, _distribution(point))):
        try:
            if owners[point.name] > 1:
                others = [_distribution(one) for one in points if one.name == point.name]
                raise _WrongError(f"several packages add it ({', '.join(sorted(others))}): uninstall all but one")
            formats[point.name] = _loaded(point)
        except (Exception, SystemExit) as error:  # whatever the import of another package raises
            reason = str(error) if isinstance(error, _WrongError) else f"{type(error).__name__}: {error}"
            unusable.append(UnusableFormatError(name=point.name, distribution=_distribution(point), reason=reason))
    return formats, unusable


def _loaded(point: EntryPoint) -> Format:
    if point.name in _TAKEN:
        raise _WrongError("that name is taken by a format of transcript-store itself")
    if not _A_NAME.fullmatch(point.name):
        raise _WrongError("a name is of small letters, digits, '.', '_' and '-', at most 64")
    found = point.load()
    if not isinstance(found, Format):
        raise _WrongError(f"{point.value} is no transcript_store.formats.Format, but {type(found).__name__}")
    if found.reader is None and found.writer is None:
        raise _WrongError(f"{point.value} has neither a reader nor a writer")
    parts: list[tuple[str, Any]] = [("reader", found.reader), ("writer", found.writer)]
    names = [(kind, part.name) for kind, part in parts if part is not None]
    for place in found.places:
        if isinstance(place.patterns, str):  # its letters would be patterns
            raise _WrongError("the patterns of a place are a tuple of texts")
        names.append(("place", place.program))
    for kind, name in names:
        if name != point.name:
            raise _WrongError(f"its {kind} has another name, {name!r}")
    return found


def _distribution(point: EntryPoint) -> str:
    return "that nobody names" if point.dist is None else f"{point.dist.name} {point.dist.version}"
