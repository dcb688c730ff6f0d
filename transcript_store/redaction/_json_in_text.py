"""How is JSON within a text read, and changed in part?

Unchanged parts keep their spelling: ``1e400`` and ``1.10`` are numbers that Python would write differently, and an
indentation is intentional.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}\[\]]|[^\s"{}\[\],:]++')
"""A text, a bracket, a number or a word."""


def parse_json_text(text: str) -> Any:
    """The object or list that a text is.

    Raises:
        ValueError: it is not JSON, or has an object with a repeated name: the first value would not be checked.
        RecursionError: it nests more deeply than Python goes.
    """
    return json.loads(text, object_pairs_hook=_each_name_once)


def _each_name_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    each = dict(members)
    if len(each) < len(members):
        raise ValueError
    return each


def respelled(text: str, value_read: Any, now: Any) -> str:
    """A text that said one value, with each part of it that is another object now spelled again."""
    tokens = _TOKEN.finditer(text)
    pieces: list[str] = []
    done = 0

    def value(value_read: Any, now: Any) -> None:
        nonlocal done
        first = last = next(tokens)
        is_held = isinstance(value_read, (dict, list)) and type(value_read) is type(now) and len(value_read) == len(now)
        if value_read is not now and is_held:
            for part, part_now in zip(_parts(value_read), _parts(now), strict=True):
                value(part, part_now)
            next(tokens)  # its closing bracket
            return
        level = int(first[0] in "{[")
        while level:
            last = next(tokens)
            level += (last[0] in "{[") - (last[0] in "}]")
        if value_read is not now:
            pieces.extend((text[done : first.start()], json.dumps(now, ensure_ascii="\\u" in first[0])))
            done = last.end()

    value(value_read, now)
    return "".join((*pieces, text[done:]))


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return chain.from_iterable(value.items()) if isinstance(value, dict) else value
