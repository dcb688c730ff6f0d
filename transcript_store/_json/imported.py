"""What an import notes beside a message: what of it the user typed, what was said on a branch that was left, when it was imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transcript_store._json.times import is_time


def typed_of(extra: Mapping[str, Any] | None, said: str) -> str:
    """What the user typed of a message that says ``said``: all of it, unless ``extra.scaffolding`` marks it.

    Returns:
        The text that the user typed; empty if a program wrote all of the message.
    """
    mark = (extra or {}).get("scaffolding")
    if isinstance(mark, dict):
        typed = mark.get("typed")
        return typed if isinstance(typed, str) else ""
    return "" if mark is True else said


def imported_at(extra: Mapping[str, Any] | None) -> str:
    """When an import wrote the record with this ``extra``, if it is one of its notes; empty otherwise. Its records have the times of the
    source.
    """
    note = (extra or {}).get("import")
    at = note.get("at") if isinstance(note, dict) else None
    return at if isinstance(at, str) and is_time(at) else ""


def left_of(extra: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The message that an event keeps of a branch that the conversation left, and what belongs to it beside; None for any other event."""
    left = (extra or {}).get("left_branch")
    message = left.get("message") if isinstance(left, dict) else None
    if not isinstance(left, dict) or not isinstance(message, dict):
        return None
    return message, {name: value for name, value in left.items() if name != "message"}
