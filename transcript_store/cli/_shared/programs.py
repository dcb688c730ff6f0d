"""Programs as a person names them on a command line."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST_NAME = 2


def programs_meant(text: str, programs: Iterable[str]) -> list[str | None]:
    """Which of the programs the names in a text mean, with commas between them; None for each that means none.

    A name is that of a program, whatever its case, or the beginning of only one.
    """
    known = dict.fromkeys(programs)
    return [_meant(name.strip().lower().replace(" ", "-"), known) for name in text.split(",")]


def _meant(name: str, known: Iterable[str]) -> str | None:
    if name in known:
        return name
    begin_so = [program for program in known if program.startswith(name)]
    return begin_so[0] if len(begin_so) == 1 and len(name) >= _LEAST_NAME else None
