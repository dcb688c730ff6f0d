"""A row of a foreign database as a line: what a format of rows keeps of its source, and returns as JSON lines."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import orjson

from transcript_store.formats._document import parse_object, read_object, why_unread
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, obj
from transcript_store.formats._plan import ImportFinding, Tables


def is_file_source(source: Any) -> bool:
    """True for a :class:`Source`; False for :class:`Tables`."""
    return bool(source.size) or not hasattr(source, "columns")


NOTHING: Mapping[str, object] = MappingProxyType({})


def rows_of(
    tables: Tables, table: str, columns: str, order: str = "", where: Mapping[str, object] = NOTHING
) -> Iterator[dict[str, Any]]:
    """The rows of a table as objects. A column that this version of its program does not have is None; no table has no rows.

    ``columns`` and ``order`` are names with blanks between them.
    """
    there = tables.columns(table)
    known = tuple(name for name in columns.split() if name in there)
    if known and all(name in there for name in where):
        missing = dict.fromkeys(columns.split())
        for row in tables.rows(table, known, tuple(name for name in order.split() if name in there), where):
            yield {**missing, **dict(zip(known, row, strict=True))}


def sessions_in(tables: Tables, columns: str, order: str, skip: Container[str]) -> Iterator[dict[str, Any]]:
    """The rows of ``sessions``, and one for each deleted session whose ``messages`` remain.

    Holds one row at a time, and all ids: a row may include a prompt.
    """
    ids = dict.fromkeys(row["id"] for row in rows_of(tables, "sessions", "id", order))
    ids.update(dict.fromkeys(row["session_id"] for row in rows_of(tables, "messages", "session_id", "session_id")))
    for session in ids:
        if str(session) not in skip:
            found = rows_of(tables, "sessions", columns, "", {"id": session})
            yield next(found, {**dict.fromkeys(columns.split()), "id": session})


def stamps_in(tables: Tables, about: str, of_messages: str) -> dict[str, str]:
    """For each session of :func:`sessions_in` a hash of these columns of ``sessions``, and of each of its rows in ``messages``."""
    found: dict[str, Any] = defaultdict(hashlib.sha256)
    for table, session, columns in (("sessions", "id", about), ("messages", "session_id", of_messages)):
        for row in rows_of(tables, table, f"{session} {columns}", f"{session} {columns.split()[0]}"):
            found[str(row[session])].update(repr([*row.values()]).encode(errors="replace"))
    return {session: digest.hexdigest() for session, digest in found.items()}


def seconds_of(value: object) -> float | None:
    """A time that SQLite, Python or a clock wrote, in seconds since 1970; None if it is none."""
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    try:
        return datetime.fromisoformat(sql_time(value) or "").timestamp()
    except (ValueError, OverflowError):
        return None


def spans_of(times: Iterable[tuple[object, object]], *, per_second: int = 1) -> list[tuple[float, float]]:
    """From when to when, in seconds since 1970: of the times that are some. The second is the first where it is none."""
    found = ((seconds_of(began), seconds_of(changed)) for began, changed in times)
    spans = (
        (began, began if changed is None else max(began, changed)) for began, changed in found if began is not None
    )
    return [(began / per_second, changed / per_second) for began, changed in spans]


def as_texts(row: dict[str, Any], findings: list[ImportFinding], number: int | None = None) -> dict[str, Any]:
    """The row with text in place of bytes, for a table that has texts alone: SQLite stores a text that is not UTF-8 too.

    :func:`row_line` of the row itself keeps the bytes.
    """
    if any(isinstance(value, bytes) for value in row.values()):
        why = "a text is not UTF-8: the message has U+FFFD in its place, and the bytes are kept"
        findings.append(ImportFinding("not-utf8", why, number))
    return {name: value.decode(errors="replace") if isinstance(value, bytes) else value for name, value in row.items()}


def row_line(number: int, row: dict[str, Any]) -> SourceLine:
    """The row as a JSON object on a line, with its values where JSON has them: bytes are base64."""
    value = {name: sql_value(member) for name, member in row.items()}
    try:
        raw = orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits
        raw = json.dumps(value).encode()
    return SourceLine(number, 0, raw + b"\n", value)


def text_line(number: int, text: object) -> SourceLine:
    """The line of a row whose one column has all of it, as JSON text."""
    said = text if isinstance(text, (str, bytes)) else json.dumps(sql_value(text))
    raw = said if isinstance(said, bytes) else said.encode(errors="surrogatepass")
    return SourceLine(number, 0, raw + b"\n", parse_object(raw))


def json_column(value: object) -> tuple[dict[str, Any] | None, tuple[str, str] | None]:
    """The object in a JSON column, and how its text breaks JSON's grammar; or None, and the reason as a finding's kind and message."""
    raw = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    found, odd = read_object(raw)
    if found is not None or value is None:
        return found, next(iter(odd), None)
    return None, why_unread(raw, "a row that is", "a row holds no JSON object: it is kept, and not read")


def object_in(value: object) -> Json:
    """The object that a value is, or that its JSON text has; empty if there is none."""
    raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    return parse_object(raw) or {} if isinstance(raw, bytes) else obj(value)


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
    """A time of SQLite or Python: with a ``T``, and UTC unless it has an offset."""
    if not isinstance(value, str) or not value:
        return None if value is None else str(sql_value(value))
    whole = value.replace(" ", "T", 1)
    zoned = whole.endswith("Z") or "+" in whole[10:] or "-" in whole[10:]
    return whole if zoned else f"{whole}Z"


def unpacked_zstd(packed: bytes, longest: int) -> tuple[bytes | None, str]:
    """The content of a column packed with zstandard; or None, and the reason as the end of a sentence about the row."""
    try:
        import zstandard
    except ImportError:
        return None, "is packed with zstandard: install the extra zstd"
    try:
        if zstandard.frame_content_size(packed) > longest:
            return None, f"unpacks to more than {longest:,} bytes"
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=longest), ""
    except zstandard.ZstdError:
        return None, "is packed, and damaged"


# ---- sidecars ----
#
# What a program keeps of a session in small files beside it: its title, its parent. They are read with the session, and not kept.


def text_beside(source: Any, path: str) -> bytes:
    """The bytes of a file beside a source; empty if there is none, or if the source is not a file.

    ``path`` is relative to the source's folder, with ``/``.
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
