"""A log of operations on one JSON object, as Visual Studio Code writes it: ``{"kind", "k", "v", "i"}``, each on a line.

Kind 0 is the whole object, 1 sets a member (``k`` is the path), 2 adds to an array, of which ``i`` are kept, and 3 deletes a member.

Source: ``objectMutationLog.ts`` of microsoft/vscode.
"""

from __future__ import annotations

from typing import Any

from transcript_store.formats._members import Json

WHOLE, SET, PUSH, DELETE = range(4)
_DEEPEST = 64


def is_operation(value: Json) -> bool:
    """True if it is one of the four, by its members."""
    kind, path = value.get("kind"), value.get("k")
    if type(kind) is not int or not WHOLE <= kind <= DELETE:
        return False
    return isinstance(value.get("v"), dict) if kind == WHOLE else isinstance(path, list) and bool(path)


def operation_path(value: Json) -> list[Any]:
    """Where an operation works; empty for the whole."""
    path = value.get("k")
    return path if isinstance(path, list) else []


def applied(state: Json, value: Json) -> Json | None:
    """The object after an operation, which may be the same one, changed; None if it does not fit the object."""
    if not is_operation(value):
        return None
    if value["kind"] == WHOLE:
        whole: Json = value["v"]
        return whole
    *way, last = operation_path(value)
    at: Any = state
    for name in way[:_DEEPEST]:
        at = at.get(name) if isinstance(at, dict) and isinstance(name, str) else _item(at, name)
    if isinstance(at, dict) and isinstance(last, str):
        return state if _in_object(at, last, value) else None
    if isinstance(at, list) and type(last) is int and 0 <= last <= len(at) and value["kind"] == SET:
        at[last : last + 1] = [value.get("v")]
        return state
    if isinstance(_item(at, last), list) and value["kind"] == PUSH:
        return state if _pushed(at[last], value) else None
    return None


def _in_object(at: Json, last: str, value: Json) -> bool:
    if value["kind"] == DELETE:
        at.pop(last, None)
    elif value["kind"] == SET:
        at[last] = value.get("v")
    else:
        if not isinstance(at.get(last), list):
            at[last] = []
        return _pushed(at[last], value)
    return True


def _pushed(array: list[Any], value: Json) -> bool:
    kept, added = value.get("i"), value.get("v")
    if kept is not None:
        if type(kept) is not int or kept < 0:
            return False
        del array[kept:]
    array += added if isinstance(added, list) else []
    return True


def _item(at: Any, name: Any) -> Any:
    return at[name] if isinstance(at, list) and type(name) is int and 0 <= name < len(at) else None
