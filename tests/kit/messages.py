"""Messages that many tests store."""

from __future__ import annotations

from typing import Any


def user_message(text: str) -> dict[str, Any]:
    """A message of the user, as most providers have it."""
    return {"role": "user", "content": text}
