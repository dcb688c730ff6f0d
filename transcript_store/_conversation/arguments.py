"""What callers give, checked before anything is touched.

A wrong type is a ``TypeError``, a wrong value a ``ValueError``. A message or a metadata field that cannot be stored is an error
of ours, which names the place in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transcript_store._conversation.metadata import CHANGEABLE, checked_fields, family
from transcript_store._json.strict import EncodedMessage, encode, fitted
from transcript_store._log.record import Entry


def require_count(name: str, number: object, *, least: int = 0) -> None:
    """Raise ``ValueError`` unless a number is an ``int``, and not less than the least."""
    if type(number) is not int or number < least:
        raise ValueError(f"{name} must be an int from {least:,}, not {number!r}")


def require_one_of(name: str, choice: object, choices: Sequence[str]) -> None:
    """Raise ``ValueError`` for a choice that there is not."""
    if choice not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {choice!r}")


def require_timeout(name: str, seconds: Any) -> None:
    """Raise unless this is a number of seconds from 0; NaN is none."""
    try:
        is_a_timeout = seconds >= 0
    except TypeError:
        raise TypeError(f"{name} must be a number, not {type(seconds).__name__}") from None
    if not is_a_timeout:
        raise ValueError(f"{name} must be 0 or more, not {seconds!r}")


def entries(
    messages: Iterable[Mapping[str, Any] | EncodedMessage],
    extras: Iterable[Mapping[str, Any] | None] | None,
    max_bytes: int,
) -> list[Entry]:
    """Messages and their extras, encoded; without extras no message has one."""
    wrong = TypeError(f"messages must be a list of JSON objects, not {type(messages).__name__}")
    if isinstance(messages, (dict, str, bytes)):  # they can be iterated too
        raise wrong
    try:
        given = iter(messages)
    except TypeError:
        raise wrong from None
    messages = list(given)  # what the caller's own iterator raises is not ours to explain
    extras = [None] * len(messages) if extras is None else list(extras)
    if len(extras) != len(messages):
        raise ValueError(f"there are {len(messages)} messages and {len(extras)} extras")
    return [
        (
            message.text
            if isinstance(message, EncodedMessage)
            else fitted(encode(message, f"messages[{k}]", max_bytes)),
            None if extra is None else fitted(encode(extra, f"extras[{k}]", max_bytes)),
        )
        for k, (message, extra) in enumerate(zip(messages, extras, strict=True))
    ]


def changes(given: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """Changes of the metadata, checked; a deep copy."""
    for name in given:
        if name not in CHANGEABLE:
            raise TypeError(f"cannot change {name!r}; what can change: {', '.join(CHANGEABLE)}")
    return checked_fields(given, max_bytes)


def changed(members: dict[str, Any], checked: dict[str, Any]) -> dict[str, Any]:
    """The metadata with these changes. A provider that is set changes only within its family: the messages have its form."""
    recorded = members.get("provider")
    if recorded is not None and family(checked.get("provider", recorded)) != family(recorded):
        others = ", ".join(name for name in CHANGEABLE if name != "provider")
        raise TypeError(f"cannot change 'provider', which is {recorded!r}; what can change: {others}")
    return {**members, **checked}
