"""Rows of another program's SQLite database: read, changed in one transaction, and changed back.

A change says which rows a table has for some values, and which it shall have. It is made only if the first is true, so what the program
wrote since a plan is never overwritten. Columns that a plan does not name keep what the database gives them.
"""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Row = dict[str, Any]

_BUSY_SECONDS = 0.2
"""A database that is in use for longer belongs to a program that runs."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows of a table that have these values, before and after."""

    table: str
    where: Mapping[str, Any]
    before: tuple[Row, ...]
    after: tuple[Row, ...]

    def as_members(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "table": self.table,
            "where": _to_json(self.where),
            "before": [_to_json(row) for row in self.before],
            "after": [_to_json(row) for row in self.after],
        }

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> RowChange:
        """From :meth:`as_members`."""
        before, after = (tuple(map(_from_json, members[name])) for name in ("before", "after"))
        return cls(members["table"], _from_json(members["where"]), before, after)

    def reversed(self) -> RowChange:
        """The change that undoes it."""
        return RowChange(self.table, self.where, self.after, self.before)


def table_columns(connection: sqlite3.Connection, table: str) -> dict[str, bool]:
    """The columns of a table, each with whether a new row needs a value for it; empty if there is no such table."""
    found = connection.execute('SELECT name, "notnull", dflt_value FROM pragma_table_info(?)', (table,))
    return {name: bool(notnull) and default is None for name, notnull, default in found}


def keys_of_table(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table's primary key; all columns if it has none."""
    found = connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    return [name for name, key in found if key] or [name for name, _ in found]


def rows_where(connection: sqlite3.Connection, table: str, where: Mapping[str, Any]) -> list[Row]:
    """The rows that have these values, with all columns."""
    cursor = connection.execute(f"SELECT * FROM {_name(table)} {_where(where)}", tuple(where.values()))  # noqa: S608
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


@contextmanager
def open_database(path: str, *, writes: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a database that exists, in one transaction that the caller commits.

    Raises:
        sqlite3.Error: it is not a database, or it is in use.
    """
    mode = "rw" if writes else "ro"
    with closing(
        sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    ) as connection:
        # Not trusted_schema=OFF: SQLite 3.40 then refuses the whole database of Kilo, for an index on json_extract().
        for pragma in ("cell_size_check=ON", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        yield connection
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def change_rows(path: str, changes: Sequence[RowChange]) -> str | None:
    """Make the changes in one transaction. Returns None when they are durable, or else why nothing was changed."""
    try:
        with open_database(path, writes=True) as connection:
            for change in changes:
                # Checked in the transaction that changes them, so that no other process can write in between (J5).
                if not _are(rows_where(connection, change.table, change.where), change.before, change.after):
                    return f"the rows of {change.table} changed since the plan was made"
                _change(connection, change)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        return f"the database cannot be changed: {error}"
    return None


def undo_rows(path: str, changes: Sequence[RowChange]) -> str:
    """Undo the changes of :func:`change_rows`, if they were made: ``put back``, ``as it was``, or ``left`` where a row changed since.

    All rows are as the one transaction left them, or it was not made, or something else wrote since.
    """
    if not os.path.lexists(path):
        return "as it was"
    with open_database(path, writes=True) as connection:
        now = [rows_where(connection, change.table, change.where) for change in changes]
        if all(_are(rows, change.before, change.after) for rows, change in zip(now, changes, strict=True)):
            return "as it was"
        # Any row that changed since is the program's, so nothing is undone: part of an undo would mix two states (J4).
        if not all(_are(rows, change.after, change.before) for rows, change in zip(now, changes, strict=True)):
            return "left"
        for change in reversed(changes):
            _change(connection, change.reversed())
        connection.execute("COMMIT")
    return "put back"


def copy_database(path: str, copy: str) -> None:
    """Copy a database with all that is committed, its write-ahead log too; synced.

    Raises:
        OSError: the copy cannot be written, or the database is in use.
    """
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        with suppress(OSError):
            os.unlink(copy)
        raise OSError(0, f"the database cannot be copied: {error}", path) from error
    handle = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _change(connection: sqlite3.Connection, change: RowChange) -> None:
    if len(change.before) == len(change.after) == 1:
        [before], [after] = change.before, change.after
        other = {name: value for name, value in after.items() if before.get(name) != value}
        if other:
            assigned = ", ".join(f"{_name(name)} = ?" for name in other)
            connection.execute(
                f"UPDATE {_name(change.table)} SET {assigned} {_where(change.where)}",  # noqa: S608
                (*other.values(), *change.where.values()),
            )
        return
    if change.before:
        connection.execute(
            f"DELETE FROM {_name(change.table)} {_where(change.where)}",  # noqa: S608
            tuple(change.where.values()),
        )
    for row in change.after:
        names, marks = ", ".join(map(_name, row)), ", ".join("?" * len(row))
        connection.execute(
            f"INSERT INTO {_name(change.table)} ({names}) VALUES ({marks})",  # noqa: S608
            tuple(row.values()),
        )


def _are(now: Sequence[Row], wanted: Sequence[Row], others: Sequence[Row]) -> bool:
    """True if these are the rows, as far as the change is about them: where one row becomes another, in the columns that differ."""
    if len(now) != len(wanted):
        return False
    if len(wanted) == len(others) == 1:
        [row], [one], [other] = now, wanted, others
        return all(row.get(name) == one.get(name) for name in one if one.get(name) != other.get(name))
    left = list(now)
    for row in wanted:
        found = next((one for one in left if all(one.get(name) == value for name, value in row.items())), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _where(where: Mapping[str, Any]) -> str:
    return f"WHERE {' AND '.join(f'{_name(name)} IS ?' for name in where)}" if where else ""


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _to_json(row: Mapping[str, Any]) -> Row:
    return {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in row.items()
    }


def _from_json(row: Mapping[str, Any]) -> Row:
    return {
        name: base64.b64decode(value["base64"]) if isinstance(value, dict) else value for name, value in row.items()
    }
