"""The sessions of programs on this machine before an import: how many, from when to when, how large.

A file is a session with its last change as its time, and is not read. A database is opened for the times of its sessions, if its
reader knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import READERS, StampingReader
from transcript_store.sources import FoundSource, Rows, open_parts

_DATABASES = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True, slots=True)
class ProgramOverview:
    """What one program keeps."""

    program: str
    sessions: int
    """The number of sessions; 1 for a database whose reader does not count them."""
    size: int
    """In bytes, of all its files."""
    first: datetime | None
    """When the first session began, or else the oldest file changed; None if no session was found."""
    last: datetime | None
    """When one last changed."""


def overviews(found: Iterable[FoundSource]) -> list[ProgramOverview]:
    """What each program keeps of what :func:`discover` found, in that order. What cannot be read counts with its file."""
    files: dict[str, list[FoundSource]] = {}
    for one in found:
        if one.program is not None and one.why_not is None:
            files.setdefault(one.program, []).append(one)
    return [_overview(program, its) for program, its in files.items()]


def _overview(program: str, files: list[FoundSource]) -> ProgramOverview:
    sessions = 0
    times: list[float] = []  # in seconds
    for one in files:
        spans = list(_sessions_in(one)) if one.path.endswith(_DATABASES) else [(one.mtime_ns / 1e9, one.mtime_ns / 1e9)]
        sessions += len(spans)
        for span in spans:
            times += span
    first, last = (datetime.fromtimestamp(at, UTC) for at in (min(times), max(times))) if times else (None, None)
    return ProgramOverview(program, sessions, sum(one.size for one in files), first, last)


def _sessions_in(one: FoundSource) -> Iterator[tuple[float, float]]:
    with suppress(TranscriptStoreError, OSError), open_parts(one.path) as parts:
        for part in parts:
            if isinstance(part, tuple) and isinstance(part[1], Rows):
                reader = next((reader for reader in READERS if reader.recognizes(part[0])), None)
                if isinstance(reader, StampingReader):
                    yield from reader.session_times(part[1])
                    return
    yield one.mtime_ns / 1e9, one.mtime_ns / 1e9
