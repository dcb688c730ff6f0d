"""Sources in memory for a format's reader, and what may become of a source: cut, grown, torn, and wrong in any member."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

__all__ = ["MemorySource", "MemoryTables"]

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 2**63, 10**30, float("nan"), float("inf")),
    *("", "x", "../../etc/passwd", "a/b\u0000c", "0000-00-00T00:00:00Z", "\u2028", "x" * 300),
    *([], {}, [None], [[]], [{}], {"": {}}, {"type": 7, "role": [], "content": {"text": 1}}, [1, "a", {"text": None}]),
)
"""Values that no program writes, but a file may contain."""

VALUES: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, 1e300, float("inf"), "", "x", "../../etc/passwd", "0000-00-00T00:00:00Z"),
    *("[]", "{}", b"\xff\x00"),
)
"""The same, of what SQLite can hold."""

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass
class MemorySource:
    """A file in memory, for ``Reader.plans``."""

    data: bytes
    name: str = "a user's file"

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


@dataclass
class MemoryTables:
    """A database in memory, for ``Reader.plans``: each table's rows as objects, in the order in which they were put in."""

    tables: Rows = field(default_factory=dict)
    name: str = "a user's database"
    size = 0
    """As a file it is empty: a reader of lines that is given a database finds nothing in it."""

    def read(self, _offset: int, _size: int) -> bytes:
        return b""

    def columns(self, table: str) -> tuple[str, ...]:
        rows = self.tables.get(table)
        return tuple(rows[0]) if rows else ()

    def rows(
        self,
        table: str,
        columns: Iterable[str],
        order: Iterable[str],
        where: Mapping[str, object] = MappingProxyType({}),
    ) -> Iterator[tuple[Any, ...]]:
        names, by = tuple(columns), tuple(order)
        found = [row for row in self.tables[table] if all(row[name] == value for name, value in where.items())]
        rows = sorted(found, key=lambda row: [_sortable(row[name]) for name in by])
        return iter([tuple(row[name] for name in names) for row in rows])


def _sortable(value: Any) -> tuple[int, Any]:
    """SQLite's order of values: nothing, numbers, texts, bytes."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, (int, float)) else (2, value) if isinstance(value, str) else (3, value)


def mutated(value: Any, choose: random.Random, junk: tuple[Any, ...] = JUNK) -> Any:
    """The value with one of its members, at any depth, replaced by what no program writes there."""
    places = list(_places(value))
    if not places:
        return choose.choice(junk)
    copy = json.loads(json.dumps(value))
    path = choose.choice(places)
    holder = copy
    for name in path[:-1]:
        holder = holder[name]
    if choose.random() < 0.2 and isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder[path[-1]] = choose.choice(junk)
    return copy


def _places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield (*before, name)
        yield from _places(member, (*before, name))


def wrong_file(data: bytes, choose: random.Random) -> bytes:
    """The file with one to four things wrong: members of its objects, lines, or bytes."""
    for _ in range(choose.randint(1, 4)):
        data = (_wrong_member if choose.random() < 0.7 else _wrong_bytes)(data, choose)
    return data


def _wrong_member(data: bytes, choose: random.Random) -> bytes:
    try:  # one document
        document = json.loads(data)
    except (ValueError, RecursionError):
        lines = data.splitlines(keepends=True)
        at = choose.randrange(len(lines) or 1)
        try:
            wrong = json.dumps(mutated(json.loads(lines[at]), choose)).encode()
        except (ValueError, IndexError, RecursionError):
            return _wrong_bytes(data, choose)
        return b"".join((*lines[:at], wrong, b"\n", *lines[at + 1 :]))
    end = b"\n" if data.endswith(b"\n") else b""
    return json.dumps(mutated(document, choose)).encode() + end


def _wrong_bytes(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(data) + 1)
    to = min(len(data), at + choose.randint(1, 40))
    lines = data.splitlines(keepends=True) or [b""]
    number = choose.randrange(len(lines))
    return choose.choice(
        (
            data[:at] + bytes([data[at] ^ 1 << choose.randrange(8)]) + data[at + 1 :]
            if at < len(data)
            else data + b"\xff",
            data[:at] + bytes(to - at) + data[to:],  # what a power loss leaves
            data[:at] + data[to:],
            data[:at] + b"\n" + data[at:],
            b"".join((*lines[:number], *lines[number + 1 :])),
            b"".join((*lines[: number + 1], *lines[number:])),
            b"".join((*lines[:number], lines[number].rstrip(b"\n"), *lines[number + 1 :])),  # two on one line
            b"\xef\xbb\xbf" + data,
            data.replace(b"\n", b"\r\n"),
        )
    )


def wrong_tables(tables: Rows, choose: random.Random) -> dict[str, list[dict[str, Any]]]:
    """The database with one to four columns wrong, or members within the JSON text of one; or a row less."""
    wrong = {table: [dict(row) for row in rows] for table, rows in tables.items()}
    for _ in range(choose.randint(1, 4)):
        table = choose.choice([name for name, rows in wrong.items() if rows])
        row = choose.choice(wrong[table])
        if choose.random() < 0.1 and len(wrong[table]) > 1:
            wrong[table].remove(row)
            continue
        column = choose.choice(list(row))
        try:
            within = json.loads(row[column])
        except (TypeError, ValueError):
            within = None
        change = isinstance(within, dict) and choose.random() < 0.7
        row[column] = json.dumps(mutated(within, choose)) if change else choose.choice(VALUES)
    return wrong
