"""Messages that many tests store."""

from __future__ import annotations

from typing import Any


def user_message(content: Any) -> dict[str, Any]:
    """A message of the user, as most providers have it: its content is a text, or a list of parts."""
    return {"role": "user", "content": content}
