r"""A line of a source, kept so that its bytes come out again (F3), without keeping the message in it twice.

A packed line is its number and its object, with a hole for everything that the message has: ``{"\u0000": "/content/0"}`` is a path in
the message. The line is rebuilt and compared before the packed form is used. A line that cannot be rebuilt (a
float spelled in another way, a key given twice, spaces) is kept as ``raw``, or as ``raw_base64`` if it is not UTF-8.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from transcript_store.formats._plan import PlannedRecord, SessionPlan

if TYPE_CHECKING:
    from transcript_store.redaction import SecretRedactor


_HOLE = "\x00"
_HOLE_SPELLED = b"\\u0000"
_NESTED = frozenset({dict, list})
_WORTH = 24
"""A text shorter than this is smaller than its hole."""

_ASCII, _UNICODE, _COMPACT = (  # made once: ``json.dumps`` makes one for each call that is given options
    json.JSONEncoder(),
    json.JSONEncoder(ensure_ascii=False),
    json.JSONEncoder(separators=(",", ":")),
)
_SPELLINGS: tuple[Callable[[object], bytes], ...] = (
    orjson.dumps,  # as JavaScript's JSON.stringify
    lambda value: _ASCII.encode(value).encode(),  # Python's default
    lambda value: _UNICODE.encode(value).encode(),
    lambda value: _COMPACT.encode(value).encode(),
)
"""How programs write JSON. Only add at the end: packed lines name theirs by number."""


def pack_line(
    number: int,
    raw: bytes,
    value: dict[str, Any] | None,
    message: Mapping[str, Any] | None = None,
    *,
    part: int = 0,
    places: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """The line as a JSON object: ``{"n", "line", "spelling"?, "end"?}`` or ``{"n", "raw"}`` or ``{"n", "raw_base64"}``.

    ``message`` shares its objects with ``value``: a hole replaces the same object, not an equal one. ``part`` numbers the pieces of
    one line from 0. ``places`` are :func:`places_in` of the message, if several lines are packed with it.
    """
    packed: dict[str, Any] = {"n": number}
    if part:
        packed["part"] = part
    if value is not None:
        try:
            if (spelling := _spelling(value, raw)) is not None:
                packed["line"] = _with_holes(raw, value, message, places)
                if spelling:
                    packed["spelling"] = spelling
                if (end := raw[len(raw.rstrip(b"\r\n")) :]) != b"\n":
                    packed["end"] = end.decode()
                return packed
        except (RecursionError, TypeError, ValueError):
            pass  # too deep for Python, a lone surrogate, or a member that looks like a hole: keep the bytes
    try:
        packed["raw"] = raw.decode()
    except UnicodeDecodeError:
        packed["raw_base64"] = base64.b64encode(raw).decode()
    return packed


def unpack_line(packed: Mapping[str, Any], message: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a packed line, with the message on record.

    Raises:
        ValueError: it was not packed with this message.
    """
    if "raw" in packed:
        return str(packed["raw"]).encode()
    if "raw_base64" in packed:
        return base64.b64decode(packed["raw_base64"], validate=True)
    spelled: Callable[[object], bytes] = _SPELLINGS[packed.get("spelling", 0)]
    return spelled(_filled(packed["line"], message)) + str(packed.get("end", "\n")).encode()


def original_lines(packed: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> Iterator[bytes]:
    """The bytes of a source, line by line, from its packed lines and the messages on record.

    Raises:
        ValueError: one was not packed with this message.
    """
    for line, message in sorted(packed, key=lambda one: (one[0]["n"], one[0].get("part", 0))):
        yield unpack_line(line, message)


def _spelling(value: dict[str, Any], raw: bytes) -> int | None:
    """The spelling that gives the line. The first colon limits the choice: most programs write nothing after it, Python a space."""
    colon = raw.find(b'":') + 2
    spaced = raw[colon : colon + 1] == b" "
    if not spaced and orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE) == raw:
        return 0
    text = raw.rstrip(b"\r\n")
    if spaced:
        # The first of the two writes ASCII alone, and is what programs use that do not care.
        likely = (1, 2) if text.isascii() else (2,)
        return next((number for number in likely if _SPELLINGS[number](value) == text), None)
    if raw[len(text) :] != b"\n" and orjson.dumps(value) == text:
        return 0
    escaped = b"\\u" in text or b"e-0" in text
    return 3 if escaped and _SPELLINGS[3](value) == text else None


def places_in(message: Mapping[str, Any]) -> dict[int, str]:
    """The path in the message of each object, and of each text that is worth a hole, by identity; the first path counts."""
    return _places(message, frozenset())


def _places(message: Mapping[str, Any], whole: Container[int]) -> dict[int, str]:
    """As :func:`places_in`. An object in ``whole`` becomes one hole, so its members are skipped."""
    places = {id(message): ""}
    _walk(message, "", places, whole)
    return places


def _walk(value: Any, pointer: str, places: dict[int, str], whole: Container[int]) -> None:
    members: Iterable[tuple[Any, Any]] = enumerate(value) if value.__class__ is list else value.items()
    for name, member in members:
        kind = member.__class__
        if kind in _NESTED or (kind is str and len(member) >= _WORTH):
            place = f"{pointer}/{name if name.__class__ is int else name.replace('~', '~0').replace('/', '~1')}"
            number = id(member)
            places.setdefault(number, place)
            if kind is not str and number not in whole:
                _walk(member, place, places, whole)


def _with_holes(
    raw: bytes, value: dict[str, Any], message: Mapping[str, Any] | None, places: Mapping[int, str] | None
) -> dict[str, Any]:
    """The line's object with a hole for everything that the message has.

    A hole replaces the very object at its path, so filling restores ``value``; the comparison of ``value``'s spelling with the line
    is sufficient. Raises ``ValueError`` for a member that looks like a hole.
    """
    if message is value:
        return {_HOLE: ""}
    if _HOLE_SPELLED not in raw:  # nearly always: then no member can look like a hole
        if message is None:
            return value
        if (found := _with_one_member_holed(value, message)) is not None:
            return found
    if places is None:
        places = {} if message is None else _places(message, _near(value))
    if (place := places.get(id(value))) is not None:
        return {_HOLE: place}
    holed: dict[str, Any] = _holed(value, places)
    return holed


def _with_one_member_holed(value: dict[str, Any], message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The line of most programs: one member is the message, or has everything of it that is worth a hole. None for any other."""
    worth: dict[str, Any] | None = None
    for name, member in value.items():
        if member is message:
            return {**value, name: {_HOLE: ""}}
        if member.__class__ is not dict:
            continue
        if worth is None:
            worth = {inner: part for inner, part in message.items() if _is_worth_a_hole(part)}
            if not worth or any("~" in inner or "/" in inner for inner in worth):
                return None
        if all(member.get(inner) is part for inner, part in worth.items()):
            return {**value, name: {**member, **{inner: {_HOLE: f"/{inner}"} for inner in worth}}}
    return None


def _is_worth_a_hole(value: Any) -> bool:
    kind = value.__class__
    return kind in _NESTED or (kind is str and len(value) >= _WORTH)


def _near(value: Mapping[str, Any]) -> set[int]:
    """Objects near a line's root, where most formats have the message."""
    near = set(map(id, value.values()))
    near.update(id(member) for inner in value.values() if inner.__class__ is dict for member in inner.values())
    return near


def _holed(value: Any, places: Mapping[int, str]) -> Any:
    """The same object if there is no hole in it."""
    holed = value
    if value.__class__ is dict and _HOLE in value:
        raise ValueError("a member that looks like a hole")
    for name, member in enumerate(value) if value.__class__ is list else value.items():
        # Most members are short texts and numbers: they are passed over here, without a call for each.
        kind = member.__class__
        if kind in _NESTED:
            place = places.get(id(member))
            new = {_HOLE: place} if place is not None else _holed(member, places)
        elif kind is str and len(member) >= _WORTH and (place := places.get(id(member))) is not None:
            new = {_HOLE: place}
        else:
            continue
        if new is not member:
            if holed is value:
                holed = value.copy()
            holed[name] = new
    return holed


def _filled(value: Any, message: Mapping[str, Any] | None) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and _HOLE in value:
            return _at(message, value[_HOLE])
        return {name: _filled(member, message) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled(member, message) for member in value]
    return value


def _at(message: Any, pointer: str) -> Any:
    found = message
    try:
        for name in pointer.split("/")[1:]:
            found = found[int(name) if isinstance(found, list) else name.replace("~1", "/").replace("~0", "~")]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"the message has no {pointer}") from None
    return found


# ---- redacted ----
#
# A plan without secrets: its messages, its packed lines, and its own facts.
#
# The same plan with the same redactor gives the same result, so a later import matches the record. Ids of sessions and numbers of
# lines stay.


def redacted_plan(plan: SessionPlan, redactor: SecretRedactor) -> SessionPlan:
    """The plan without secrets. The tail is dropped: half a secret has no recognizable form."""

    def clean(value: Any) -> Any:
        return redactor.redact(value).value

    return replace(
        plan,
        generations=tuple(partial(_entries, generation, redactor) for generation in plan.generations),
        model=clean(plan.model),
        system_prompt=clean(plan.system_prompt),
        tools=tuple(clean(list(plan.tools))),
        labels=clean(dict(plan.labels)),
        findings=tuple(replace(finding, message=clean(finding.message)) for finding in plan.findings),
        tail=b"",
        redaction=redaction_of(redactor),
    )


def redacted_fields(fields: Mapping[str, Any], redactor: SecretRedactor) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Fields of the metadata without secrets, and the number of each kind. Their names are ours, whatever a pattern matches."""
    counts: Counter[str] = Counter()
    now = {}
    for name, value in fields.items():
        found = redactor.redact(value)
        counts.update(found.counts)
        now[name] = found.value
    return now, dict(sorted(counts.items()))


def redacted_extra(extra: Mapping[str, Any], redactor: SecretRedactor) -> tuple[dict[str, Any], Mapping[str, int]]:
    """A record's ``extra`` without secrets, including its packed lines; and the number of each kind."""
    from transcript_store.redaction import SecretRedactor  # its patterns take a while to load

    counts: Counter[str] = Counter()

    def clean(value: Any) -> Any:
        found = redactor.redact(value)
        counts.update(found.counts)
        return found.value

    source = extra.get("source")
    # The names of members are ours here, whatever a pattern matches. A secret with a known form is never such a name: it
    # is removed as a name too, and in a value that its name reveals.
    values = {name: None if name == "source" else clean(value) for name, value in extra.items()}
    by_form = SecretRedactor().redact(values)
    counts.update(by_form.counts)
    now = dict(by_form.value)
    if isinstance(source, dict) and isinstance(source.get("lines"), list) and source.keys() <= _OF_A_SOURCE:
        now["source"] = {
            name: [_line(line, clean) for line in value] if name == "lines" else clean(value)
            for name, value in source.items()
        }
    elif source is not None:
        now["source"] = clean(source)
    return now, dict(counts)


def redacted_record(
    message: dict[str, Any] | None, extra: Mapping[str, Any] | None, redactor: SecretRedactor
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, Mapping[str, int]]:
    """A message and its extra without secrets, and how many of each kind there were."""
    said, in_message = redactor.redact(message)
    beside, in_extra = (None, {}) if extra is None else redacted_extra(extra, redactor)
    return said, beside, _most(in_message, in_extra)


def _most(*found: Mapping[str, int]) -> dict[str, int]:
    """The counts of one record, from those of its parts: a secret in the message and in its line counts once."""
    return {kind: max(counts.get(kind, 0) for counts in found) for kind in sorted({*chain(*found)})}


_OF_A_SOURCE = {"lines", "restated", "unstorable"}
_OF_A_LINE = {"n": int, "part": int, "spelling": int, "end": str, "line": dict, "raw": str, "raw_base64": str}


def _line(packed: Any, clean: Callable[[Any], Any]) -> Any:
    """A packed line; anything else that stands in its place is an ordinary value."""
    if not isinstance(packed, dict) or not all(isinstance(v, _OF_A_LINE.get(k, ())) for k, v in packed.items()):
        return clean(packed)
    # The name says that it is base64.
    return {
        name: clean({name: value})[name] if name == "raw_base64" else clean(value) for name, value in packed.items()
    }


def redaction_of(redactor: SecretRedactor) -> dict[str, Any]:
    """What identifies a redactor's patterns. A pattern may be a secret, so 32 bits of its hash are stored."""
    patterns = {hashlib.sha256(text.encode()).hexdigest()[:8] for text in redactor.patterns}
    from transcript_store.redaction import KNOWN  # its patterns take a while to load, and most imports are not redacted

    return {"known": KNOWN, "patterns": sorted(patterns)}


def _entries(entries: Callable[[], Iterable[PlannedRecord]], redactor: SecretRedactor) -> Iterator[PlannedRecord]:
    for entry in entries():
        message, extra, in_record = redacted_record(entry.message, entry.extra, redactor)
        at, in_at = redactor.redact(entry.at)
        redacted = {**(extra or {}), "redacted": _most(in_record, in_at)}
        yield entry._replace(message=message, extra=redacted, at=at) if in_record or in_at else entry
