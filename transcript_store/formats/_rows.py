"""A row of somebody's database as a line: what a format of rows keeps of its source, and gives back as JSON lines."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson

from transcript_store.formats._document import parsed
from transcript_store.formats._lines import Line
from transcript_store.formats._plan import Tables

NOTHING: Mapping[str, object] = MappingProxyType({})


def rows_of(
    tables: Tables, table: str, columns: tuple[str, ...], order: tuple[str, ...], where: Mapping[str, object] = NOTHING
) -> Iterator[dict[str, Any]]:
    """The rows of a table as objects. A column that this version of its program does not have is None; no table has no rows."""
    there = tables.columns(table)
    known = tuple(name for name in columns if name in there)
    if known and all(name in there for name in where):
        missing = dict.fromkeys(columns)
        for row in tables.rows(table, known, tuple(name for name in order if name in there), where):
            yield {**missing, **dict(zip(known, row, strict=True))}


def row_line(number: int, row: dict[str, Any]) -> Line:
    """The row as a JSON object on a line, with its values where JSON has them: bytes are base64."""
    value = {name: plain(member) for name, member in row.items()}
    try:
        raw = orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits
        raw = json.dumps(value).encode()
    return Line(number, 0, raw + b"\n", value)


def text_line(number: int, text: object) -> Line:
    """The line of a row whose one column holds all of it, as a JSON text."""
    said = text if isinstance(text, (str, bytes)) else json.dumps(plain(text))
    raw = said if isinstance(said, bytes) else said.encode(errors="surrogatepass")
    return Line(number, 0, raw + b"\n", parsed(raw))


def plain(value: Any) -> Any:
    """A value of SQLite as JSON has it."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return value


def sql_time(value: object) -> str | None:
    """A time that SQLite or Python wrote: with a ``T``, and of UTC unless it says another offset."""
    if not isinstance(value, str) or not value:
        return None if value is None else str(plain(value))
    whole = value.replace(" ", "T", 1)
    zoned = whole.endswith("Z") or "+" in whole[10:] or "-" in whole[10:]
    return whole if zoned else f"{whole}Z"
