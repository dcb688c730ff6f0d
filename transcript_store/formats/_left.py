"""What was said on a branch that the conversation left: events that keep it, so that it can be shown, found and exported.

Such an event has ``extra.left_branch``: the ``message`` in its provider's form, and what belongs to it beside (model, usage, scaffolding).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from transcript_store.conversation import Record
from transcript_store.formats._lines import object_on
from transcript_store.formats._original import pack, unpack
from transcript_store.formats._plan import Entry, Finding
from transcript_store.messages import left_of


def left_finding(count: int) -> list[Finding]:
    """What is told of messages on branches that were left."""
    if not count:
        return []
    said = "1 message stands on a branch" if count == 1 else f"{count:,} messages stand on branches"
    return [Finding("left-branch", f"{said} that the conversation left: kept beside it, and shown by --branches")]


def left_entry(entry: Entry) -> Entry:
    """A message on a branch that was left: an event that keeps what was said, and its lines as they are."""
    if entry.message is None:
        return entry
    source = entry.extra.get("source", {})
    lines = [
        pack(line["n"], raw, object_on(raw), part=line.get("part", 0))
        for line in source.get("lines", ())
        for raw in (unpack(line, entry.message),)
    ]
    about = {name: value for name, value in entry.extra.items() if name != "source"}
    left = {"left_branch": {**about, "message": entry.message}}
    return Entry(None, {**left, "source": {**source, "lines": lines}}, entry.at, entry.lines)


def with_branches(records: Iterable[Record]) -> Iterator[Record]:
    """The records; what events keep of branches that the conversation left are messages, with ``extra.left_branch`` True."""
    for record in records:
        left = left_of(record.extra) if record.message is None else None
        yield record if left is None else replace(record, message=left[0], extra={**left[1], "left_branch": True})
