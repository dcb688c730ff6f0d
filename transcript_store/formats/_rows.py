"""A row of somebody's database as a line: what a format of rows keeps of its source, and gives back as JSON lines."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson

from transcript_store.formats._document import Json, parse_object
from transcript_store.formats._lines import SourceLine
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


def row_line(number: int, row: dict[str, Any]) -> SourceLine:
    """The row as a JSON object on a line, with its values where JSON has them: bytes are base64."""
    value = {name: sql_value(member) for name, member in row.items()}
    try:
        raw = orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits
        raw = json.dumps(value).encode()
    return SourceLine(number, 0, raw + b"\n", value)


def text_line(number: int, text: object) -> SourceLine:
    """The line of a row whose one column holds all of it, as a JSON text."""
    said = text if isinstance(text, (str, bytes)) else json.dumps(sql_value(text))
    raw = said if isinstance(said, bytes) else said.encode(errors="surrogatepass")
    return SourceLine(number, 0, raw + b"\n", parse_object(raw))


def sql_value(value: Any) -> Any:
    """A value of SQLite as JSON has it."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: sql_value(member) for name, member in value.items()}
    if isinstance(value, list):
        return [sql_value(member) for member in value]
    return value


def sql_time(value: object) -> str | None:
    """A time that SQLite or Python wrote: with a ``T``, and of UTC unless it says another offset."""
    if not isinstance(value, str) or not value:
        return None if value is None else str(sql_value(value))
    whole = value.replace(" ", "T", 1)
    zoned = whole.endswith("Z") or "+" in whole[10:] or "-" in whole[10:]
    return whole if zoned else f"{whole}Z"


# ---- sidecars ----
#
# What a program keeps of a session in small files beside it: its title, its parent. They are read with the session, and not kept.


def text_beside(source: Any, path: str) -> bytes:
    """What a file beside a source holds; empty if there is none, or if the source is no file by itself.

    ``path`` is relative to the folder of the source, with ``/``.
    """
    read = getattr(source, "beside", None)
    return (read(path) if read is not None else None) or b""


def object_beside(source: Any, path: str) -> Json:
    """The JSON object that a file beside a source holds; empty if it holds none."""
    return parse_object(text_beside(source, path)) or {}


def lines_beside(source: Any, path: str) -> list[Json]:
    """The JSON objects on the lines of a file beside a source."""
    values = map(parse_object, text_beside(source, path).split(b"\n"))
    return [value for value in values if value is not None]


def file_of(source: Any) -> str:
    """The name of a source's file, without its folders."""
    return str(source.name).replace("\\", "/").rpartition("/")[2]
