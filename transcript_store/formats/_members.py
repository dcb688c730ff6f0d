"""Members of foreign JSON, whatever their types: a reader asks for a text, a count or an object, and gets one or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def obj(value: object) -> Json:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The objects of a list; none of any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def first_text(*values: object) -> str | None:
    """The value, or the first of several, that is a text and not empty."""
    for value in values:
        if isinstance(value, str) and value:
            return value
    return None


def text_in(members: Mapping[str, Any], *names: str) -> str:
    """The first of these members that is a text; empty if none is."""
    for name in names:
        found = members.get(name)
        if found.__class__ is str:
            return found
    return ""


def count_member(value: object) -> int | None:
    """The value, if it is an integer from 0; a bool is not."""
    return value if type(value) is int and value >= 0 else None


def counts_of(given: Json, names: Mapping[str, str]) -> Json:
    """The counts among the members, under other names: ``names`` maps theirs to ours."""
    return {ours: given[theirs] for theirs, ours in names.items() if count_member(given.get(theirs)) is not None}


def labels(**found: object) -> dict[str, str]:
    """Those that are texts and not empty, without the name that programs give to every session that has none."""
    given = {name: value for name, value in found.items() if isinstance(value, str) and value}
    return {name: value for name, value in given.items() if name != "title" or not _UNNAMED.fullmatch(value.strip())}


_UNNAMED = re.compile(
    r"\(?(?:new|untitled) (?:session|chat|thread|conversation|agent|composer|task)\)?|untitled|cli session",
    re.IGNORECASE,
)
"""What Continue, Crush, Goose, Kimi, Zed, Cursor and the sites call a session until it has a title."""


def present(**found: object) -> Json:
    """Those that are not None, and no empty text or object."""
    return {name: value for name, value in found.items() if value is not None and value not in ("", {})}
