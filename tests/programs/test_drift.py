"""The report on drift sees a type of line, a member, a table and a column that were not there, and nothing else."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.programs.drift import shapes


def lines(path: Path, *values: dict[str, Any]) -> set[str]:
    path.write_text("".join(json.dumps(value) + "\n" for value in values) + "torn{")
    return shapes(path)


def test_what_is_new_in_lines(tmp_path: Path) -> None:
    old = lines(tmp_path / "a", {"type": "message", "data": {"text": "x"}}, {"type": "end"})
    same = lines(tmp_path / "b", {"type": "end"}, {"type": "message", "data": {"text": "another"}})
    new = lines(tmp_path / "c", {"type": "message", "data": {"text": "x", "mood": 1}}, {"type": "begin", "id": 1})
    assert old == same
    assert sorted(new - old) == ["begin{}", "begin{}.id", "begin{}.type", "message{}.data {}.mood"]


def test_what_is_new_in_a_database(tmp_path: Path) -> None:
    found = []
    for name, columns, value in (
        ("a", "id, data", '{"type": "text"}'),
        ("b", "id, data, seq", '{"type": "text", "by": 1}'),
    ):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute(f"CREATE TABLE part ({columns})")
            database.execute("INSERT INTO part (id, data) VALUES (1, ?)", (value,))
            database.commit()
        found.append(shapes(tmp_path / name))
    assert sorted(found[1] - found[0]) == ["part.data text{}.by", "part.seq"]
