"""What of a message the user typed, where a program wrote some of it in the user's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
