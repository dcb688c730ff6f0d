"""OpenClaw's database since 2026.8: the lines of pi's sessions as rows of ``transcript_events``, in the order of ``seq``.

A row has the line in ``event_json``. Since 2026.9.6 ``event_zstd`` has a line of 1 KiB or more, packed with zstandard.
The columns are those of schema 23, from OpenClaw's tests and from programs of others that read it; no file that the program wrote was
at hand. What it moved to ``session_transcript_archives`` is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from transcript_store.formats._plan import ImportFinding, SourceHead, Tables
from transcript_store.formats._rows import rows_of, sql_value, unpacked_zstd

_TABLE = "transcript_events"
_COLUMNS = ("session_id", "seq", "event_json", "event_zstd")
_LONGEST_BYTES = 16 << 20
"""The limit of an unpacked row. OpenClaw packs nothing above 4 MiB."""


@dataclass(frozen=True, slots=True)
class SessionLines:
    """The rows of one session as a file of lines: a :class:`Source`."""

    name: str
    data: bytes
    findings: tuple[ImportFinding, ...]
    """Of rows that are no line: each is one all the same, of an entry that pi does not know."""

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


def is_openclaw(head: SourceHead) -> bool:
    """True if a database has OpenClaw's sessions."""
    return {"session_id", "seq", "event_json"} <= set(head.tables.get(_TABLE, ()))


def sessions_of(tables: Tables) -> Iterator[SessionLines]:
    """Each session of a database. None of another one."""
    rows = rows_of(tables, _TABLE, _COLUMNS, ("session_id", "seq"))
    for session, found in groupby(rows, key=lambda row: str(row["session_id"])):
        lines, findings = [], []
        for number, row in enumerate(found, 1):
            line, why_not = _line(row)
            lines.append(line + b"\n")
            if why_not is not None:
                why = f"the row {row['seq']} of {_TABLE} {why_not}"
                findings.append(ImportFinding("unreadable-row", why, number))
        yield SessionLines(f"{tables.name}: {session}", b"".join(lines), tuple(findings))


def _line(row: dict[str, Any]) -> tuple[bytes, str | None]:
    """The line of a row; for an unreadable row a line that keeps its value, and the reason: nothing is dropped (F6)."""
    said, packed, why_not = row["event_json"], row["event_zstd"], "holds no line"
    if said is None and isinstance(packed, bytes):
        said, why_not = unpacked_zstd(packed, _LONGEST_BYTES)
        why_not = why_not or "holds no line"
    raw = said.encode(errors="surrogatepass") if isinstance(said, str) else said
    if isinstance(raw, bytes) and raw.strip() and b"\n" not in raw:
        return raw, None
    kept = sql_value(raw if isinstance(raw, bytes) or said is not None else packed)
    return orjson.dumps({"type": "unreadable_row", "seq": str(sql_value(row["seq"])), "row": kept}), why_not
