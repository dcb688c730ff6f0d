"""How do a framework's items become messages, and back? Each comes back as ``json.loads(json.dumps(item))`` returns it.

A message may hold less than ``json`` writes. Enums, tuples and subclasses of ``str`` become what ``json.dumps`` makes
of them. NaN, infinities, lone surrogates, integers beyond 64 bits, deep nesting, and an item that is not an object are
stored as ``{"transcript_store.json": "<the item as ASCII JSON>"}``. The stores of the frameworks take all of these, so
a run that switches to ours must not fail on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from transcript_store.conversation import Redact
from transcript_store.errors import InvalidMessageError, RedactionError
from transcript_store.messages import EncodedMessage, encode_message
from transcript_store.redaction import Redacted, SecretRedactor

_AS_TEXT = "transcript_store.json"


def stored(item: Any, name: str, max_bytes: int) -> EncodedMessage:
    """The stored form of an item: a copy, which later changes of the item do not reach.

    Raises:
        TypeError: JSON cannot carry it, as ``json.dumps`` says. The message begins with ``name``.
        ValueError: it contains itself.
        InvalidMessageError: it takes more than ``max_bytes``.
    """
    if not _is_marked(item):
        with suppress(InvalidMessageError):
            return EncodedMessage(encode_message(item, name, max_bytes))
    try:
        text = json.dumps(item)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    plain = json.loads(text)
    if not _is_marked(plain):
        with suppress(InvalidMessageError):
            return EncodedMessage(encode_message(plain, name, max_bytes))
    return EncodedMessage(encode_message({_AS_TEXT: text}, name, max_bytes))


def of_items(redact: Redact | None) -> Redact | None:
    """The caller's function, so that it gets the item itself, even if the transcript stores it as text."""
    if redact is None or not callable(redact):  # the store refuses it
        return redact
    return _SecretsOfItems(redact) if isinstance(redact, SecretRedactor) else partial(_redacted, redact)


def _redacted(redact: Redact, message: dict[str, Any]) -> dict[str, Any]:
    item = restored(message)
    if item is message or not isinstance(item, dict):
        return redact(message)
    now = redact(item)
    return {_AS_TEXT: json.dumps(now)} if isinstance(now, dict) else now  # the store refuses a non-object


class _SecretsOfItems(SecretRedactor):
    """The same for a function that reports its removals."""

    def __init__(self, redactor: SecretRedactor) -> None:
        super().__init__()
        self._redactor = redactor

    def redact(self, value: Any) -> Redacted:
        item = restored(value) if isinstance(value, dict) else value
        if item is value:
            return self._redactor.redact(value)
        now, counts = self._redactor.redact(item)
        return Redacted(value if now is item else {_AS_TEXT: json.dumps(now)}, counts)


def redact_item(redact: Redact, message: dict[str, Any], name: str) -> dict[str, Any]:
    """The caller's redacted message; the function's own error may contain the text, so only its type is reported.

    Raises:
        RedactionError: it raised, or gave no object.
    """
    try:
        now = redact(message)
    except Exception as error:
        reason = f"redact raised {type(error).__name__}"
    else:
        if isinstance(now, dict):
            return now
        reason = f"redact gave {type(now).__name__}, and no object"
    raise RedactionError(member=name, reason=reason)


def require_items(name: str, items: object) -> None:
    """Refuse one item instead of a list: its letters, or the names of its members, would be stored as items.

    Raises:
        TypeError: it is a text or an object.
    """
    if isinstance(items, (str, bytes, Mapping)):
        raise TypeError(f"{name} must be a list, not {type(items).__name__}: give [item]")


def restored(message: dict[str, Any]) -> Any:
    """The item that was stored as this message. A text that we did not write stays the message that it is."""
    if _is_marked(message):
        with suppress(TypeError, ValueError):
            return json.loads(message[_AS_TEXT])
    return message


def restored_extra(extra: dict[str, Any] | None) -> Any:
    """The same of a record's extra, in which the store counts what a redactor took out."""
    given = {name: value for name, value in (extra or {}).items() if name != "redacted"}
    return restored(given) if _is_marked(given) else extra or {}


def _is_marked(item: Any) -> bool:
    return isinstance(item, dict) and item.keys() == {_AS_TEXT}


def readable(key: str) -> str:
    """A key as a label: what a person recognizes it by. Lone surrogates are escaped, and of a long one the beginning is left."""
    shown = key if len(key) <= 200 else f"{key[:199]}…"
    return shown.encode("utf-8", "backslashreplace").decode()
