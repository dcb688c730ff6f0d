"""JSON for a person."""

from __future__ import annotations

import json
from typing import Any

_MOST_INDENTED = 20
"""JSON may be so many times as long when it is indented: a list within two hundred lists would be four hundred times as long."""
_LEAST_BOUND = 20_000
"""In characters. What is shorter than this is indented however deep it nests."""


def indented(value: Any) -> str:
    """A value as JSON, indented where that does not make a page of a line."""
    plain = json.dumps(value, ensure_ascii=False)
    left = max(_MOST_INDENTED * len(plain), _LEAST_BOUND)
    pieces: list[str] = []
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            return plain
    return "".join(pieces)
