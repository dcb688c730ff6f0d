"""Foreign files with any content: each line is accounted for, and the bytes can be exported.

Readers of lines are given the bytes as they are. Readers of rows are given each line as the JSON of a row, under the name of its table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from tests.formats.of_others import Bytes, Rows, assert_nothing_is_lost, original
from transcript_store.formats import READERS, SessionReader

LINES = ("claude-code", "codex", "gemini-cli", "jsonl", "kimi", "pi")
DOCUMENTS = ("claude-ai", "chatgpt")
ROWS = ("openai-agents", "llm")


def _of_lines(reader: SessionReader, data: bytes) -> None:
    for plan in reader.plans(Bytes(data)):
        assert_nothing_is_lost(plan)
        assert plan.is_part or original(plan) == data


def _of_a_document(reader: SessionReader, data: bytes) -> None:
    for plan in reader.plans(Bytes(data)):
        assert_nothing_is_lost(plan)
        assert original(plan) in data


def _of_rows(reader: SessionReader, data: bytes) -> None:
    tables: dict[str, list[dict[str, Any]]] = {}
    for line in data.split(b"\n"):
        try:
            table, row = orjson.loads(line)
        except (orjson.JSONDecodeError, TypeError, ValueError):
            continue
        if not isinstance(table, str) or not isinstance(row, dict) or not row:
            continue
        plain = {name: value for name, value in row.items() if not isinstance(value, (dict, list))}
        rows = tables.setdefault(table, [])
        rows.append({name: plain.get(name) for name in (rows[0] if rows else plain)})
    for plan in reader.plans(Rows({table: rows for table, rows in tables.items() if rows[0]})):
        assert_nothing_is_lost(plan)


def _target(reader: SessionReader) -> Callable[[bytes], None]:
    check = _of_lines if reader.name in LINES else _of_a_document if reader.name in DOCUMENTS else _of_rows
    return partial(check, reader)


FORMATS: dict[str, Callable[[bytes], None]] = {
    f"format-{reader.name}": _target(reader) for reader in READERS if reader.name in (*LINES, *DOCUMENTS, *ROWS)
}
