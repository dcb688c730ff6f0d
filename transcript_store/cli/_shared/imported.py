"""What an import left in the records, in few words: a line of the source as its kind, a note as where it came from.

docs/import.md describes both: ``extra.source`` has the lines of the source that a record was made of, ``extra.import`` what the
import did. They are there so that the source's bytes come out again; for a person one line says enough. Whatever has another
form is not ours to shorten: then these functions give None, and the record is shown as any other.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from transcript_store.cli._shared.terminal import many, one_line
from transcript_store.messages import left_of

_MOST_KINDS = 4
_LONGEST_KIND = 40


def without_source(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """An ``extra`` without the lines of the source, if it names them."""
    return {name: value for name, value in extra.items() if name != "source"} if _lines(extra) is not None else extra


def kind_of_event(extra: Mapping[str, Any]) -> str | None:
    """What the lines are that an event keeps, in the source's own words; None if the event is anything else too."""
    if left_of(extra) is not None:
        return "message on a branch that was left"
    lines = _lines(extra) if extra.keys() == {"source"} else None
    return ", ".join(dict.fromkeys(map(_kind, lines))) if lines else None


def what_was_imported(extra: Mapping[str, Any]) -> str | None:
    """A note of an import as one line; None if the event is no such note."""
    note = extra.get("import")
    if extra.keys() != {"import"} or not isinstance(note, dict) or not isinstance(note.get("format"), str):
        return None
    file = note.get("file")
    name = file.get("name") if isinstance(file, dict) else None
    said = f"imported from {note['format']}"
    if isinstance(name, str):
        said += f", {os.path.basename(name)}"
    for counted, what in (("lines", "line"), ("findings_count", "finding")):
        if isinstance(number := note.get(counted), int) and number:
            said += f", {many(number, what)}"
    return one_line(said)


def summary(kinds: Sequence[str]) -> str:
    """Kinds of events, the most frequent first, each with how often it is there if that is more than once."""
    counted = Counter(kinds).most_common()
    if len(counted) == 1:
        return counted[0][0]
    shown = [f"{count:,} {kind}" for kind, count in counted[:_MOST_KINDS]]
    rest = sum(count for _, count in counted[_MOST_KINDS:])
    return ", ".join([*shown, f"{rest:,} others"] if rest else shown)


def _lines(extra: Mapping[str, Any]) -> list[Any] | None:
    source = extra.get("source")
    lines = source.get("lines") if isinstance(source, dict) else None
    return lines if isinstance(lines, list) else None


def _kind(line: object) -> str:
    value = line.get("line") if isinstance(line, dict) else None
    if isinstance(line, dict) and value is None and isinstance(line.get("raw"), str):
        with suppress(ValueError, RecursionError):
            value = _object_in(line["raw"])
    if not isinstance(value, dict):
        # A line that cannot be read, or what stands before the messages of a document.
        is_head = isinstance(line, dict) and str(line.get("raw", "")).rstrip().endswith((":", "[", "{"))
        return "document head" if is_head else "text that is no JSON object"
    inner = value.get("message", value.get("event"))
    kind = next((value[name] for name in ("type", "kind", "role", "sender") if isinstance(value.get(name), str)), None)
    if kind is None or "event" in value:
        named = inner.get("type") if isinstance(inner, dict) else None
        kind = named if isinstance(named, str) else kind or _kind_of_node(value, inner)
    if isinstance(inner, dict) and isinstance(inner.get("role"), str):  # said, and not sent: it failed, or was left
        kind += f" ({inner['role']})"
    return one_line(kind if len(kind) <= _LONGEST_KIND else f"{kind[:_LONGEST_KIND]}…")


def _object_in(raw: str) -> object:
    """The object of a line; of a piece of a document the object behind its name."""
    if raw.lstrip().startswith("{"):
        return json.loads(raw)
    return json.JSONDecoder().raw_decode(raw, max(0, raw.find("{")))[0]


def _kind_of_node(value: dict[str, Any], message: object) -> str:
    """What a node of a tree of messages is, which has no kind of its own; of any other object what it says that it is, or has."""
    if isinstance(message, str):
        return message
    if not isinstance(message, dict):
        is_node = not value.keys().isdisjoint(("parent", "children"))
        return "node" if is_node else ", ".join([*value][:_MOST_KINDS]) or "empty object"
    author, about = message.get("author"), message.get("metadata")
    role = author.get("role") if isinstance(author, dict) else None
    is_hidden = isinstance(about, dict) and about.get("is_visually_hidden_from_conversation") is True
    kind = "hidden message" if is_hidden else "message"
    return f"{kind} ({role})" if isinstance(role, str) else kind
