"""A conversation as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from transcript_store.conversation import Record


def json_lines(records: Iterable[Record], generation: int) -> Iterator[bytes]:
    """A line a record, as ``show --json`` prints it."""
    for record in records:
        members = {name: getattr(record, name) for name in ("seq", "at", "message", "extra")}
        if record.retracts is not None:
            members["retracts"] = record.retracts
        yield orjson.dumps({"generation": generation, **members}, option=orjson.OPT_APPEND_NEWLINE)
