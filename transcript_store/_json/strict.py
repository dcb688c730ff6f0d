"""What may a message be, and how does it become bytes?

A message is a JSON object made of exactly ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and ``None``.
Everything else would come back as something else: a tuple as a list, an enum as its value, a UUID as text. Here a value
comes back equal, or it is refused.

``orjson`` does the encoding, and is stricter than ``json`` but not strict enough: it turns NaN and infinities into
null, accepts tuples, enums, UUIDs, datetimes and dataclasses, and lets ``orjson.Fragment`` inject bytes. On reading it
turns integers beyond 64 bits into floats and keeps the last of duplicate keys (all observed with orjson 3.13).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from math import isfinite
from typing import Any, Literal, NamedTuple, NoReturn

import orjson

from transcript_store._json.replies import is_of_a_reply
from transcript_store.errors import InvalidMessageError

MAX_DEPTH = 200
"""Levels of nesting a message may have; the message itself is the first. orjson stops at 254, other readers earlier."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""The integers a message may hold: those that 64 bits carry, signed or unsigned (orjson's own range)."""

_PLAIN = frozenset({str, int, bool, type(None)})
_ALLOWED = _PLAIN | {float, dict, list}


class EncodedMessage(NamedTuple):
    """A checked and encoded message, as a transcript has it; code that receives one does not check it again."""

    text: bytes


def encode(value: Any, name: str, max_bytes: int) -> bytes:
    """Encode a JSON object strictly, on one line, keeping the order of its keys.

    ``name`` is what error messages call the value (``message``, ``extra``).

    Raises:
        InvalidMessageError: it would not come back equal, nests deeper than ``MAX_DEPTH``, or takes more than ``max_bytes``;
            the error names the member, and says how to convert it.
    """
    if type(value) is not dict:
        remedy = "; append_messages() takes several" if isinstance(value, list | tuple) else _remedy(value)
        raise InvalidMessageError(
            member=name, reason=f"must be a JSON object (a dict), not {_type_name(value)}{remedy}"
        )
    # A value that is shared many times over (or that holds itself) is written out each time. A node takes at least two bytes,
    # so the walk ends where nothing could be stored any more.
    found = outside_json(value, max_depth=MAX_DEPTH, max_nodes=max_bytes // 2)
    if found == "length":
        _too_long(name, max_bytes)
    if found is not None:
        _explain(value, name)
    try:
        encoded = orjson.dumps(value)
    except orjson.JSONEncodeError:
        _explain(value, name)
    if len(encoded) > max_bytes:
        _too_long(name, max_bytes)
    return encoded


def fitted(encoded: bytes) -> bytes:
    """A copy of the bytes, to keep them: what ``orjson.dumps`` returns takes ten times its length (orjson 3.13)."""
    return bytes(memoryview(encoded))


def outside_json(value: Any, *, max_depth: int, max_nodes: int) -> Literal["kind", "depth", "length"] | None:
    """Why an object or a list cannot be stored as JSON; None if it can.

    ``kind``: it holds something other than exactly ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and
    ``None``, or a float that JSON does not have. ``depth`` and ``length``: it is deeper or longer than it may be. Keys,
    lone surrogates and integers beyond 64 bits are not checked: ``orjson`` refuses those itself.
    """
    containers: list[Any] = [value]
    depth, nodes = 1, 0
    while containers:
        deeper: list[Any] = []
        for container in containers:
            children = [*container.values()] if type(container) is dict else container
            nodes += len(children)
            if nodes > max_nodes:
                return "length"
            for child in children:
                kind = type(child)
                if kind is str:
                    continue
                if kind is dict or kind is list:
                    deeper.append(child)
                elif kind not in _PLAIN and (kind is not float or not isfinite(child)):
                    return "kind"
        if deeper and depth == max_depth:
            return "depth"
        containers = deeper
        depth += 1
    return None


JSONDecodeError = orjson.JSONDecodeError

decode = orjson.loads
"""Decode bytes that :func:`encode` made, or that a transcript vouches for."""


def parse(text: bytes, name: str = "message") -> dict[str, Any]:
    """Parse one JSON object that another program wrote, and refuse what reading would silently change.

    A number with a fraction or an exponent becomes a float, as RFC 8259 section 6 expects.

    Raises:
        InvalidMessageError: the text is not UTF-8, or not a JSON object. Or it has one of the two things that a JSON parser
            normally swallows: a key that appears twice in one object, or an integer that 64 bits cannot carry.
    """
    try:
        decoded = text.decode("utf-8")
        if decoded.startswith("\ufeff"):
            raise InvalidMessageError(member=name, reason="starts with a byte order mark: write the file without one")
    except UnicodeDecodeError as error:
        raise InvalidMessageError(member=name, reason=f"is not UTF-8 at byte {error.start}") from None

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, member in pairs:
            if key in members:
                raise InvalidMessageError(member=name, reason=f"has the key {_shorten(key)} twice in one object")
            members[key] = member
        return members

    def refuse_constant(constant: str) -> NoReturn:
        raise InvalidMessageError(member=name, reason=f"holds {constant}, which JSON cannot carry")

    def refuse_big_integers(digits: str) -> int:
        if len(digits) > 20 or not MIN_INTEGER <= int(digits) <= MAX_INTEGER:
            raise InvalidMessageError(
                member=name, reason=f"holds the integer {_shorten(digits)}, which 64 bits cannot carry"
            )
        return int(digits)

    try:
        value = json.loads(
            decoded, object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant, parse_int=refuse_big_integers
        )
    except json.JSONDecodeError as error:
        raise InvalidMessageError(member=name, reason=f"is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise InvalidMessageError(member=name, reason=f"nests more than {MAX_DEPTH} levels deep") from None
    if type(value) is not dict:
        raise InvalidMessageError(member=name, reason=f"must be a JSON object, not {_json_name(value)}")
    return value


def _explain(value: Any, name: str) -> NoReturn:
    """Find the first value that cannot be stored and raise the error that names it."""
    too_deep = InvalidMessageError(member=name, reason=f"nests more than {MAX_DEPTH} levels deep")
    seen: set[int] = set()  # containers may be shared many times over
    path: list[int] = []
    stack: list[Iterator[tuple[str, Any]]] = [iter([(name, value)])]
    while stack:
        for member, node in stack[-1]:
            if problem := _problem_with(node):
                raise InvalidMessageError(member=member, reason=problem)
            if type(node) in (dict, list):
                if id(node) in path:
                    raise InvalidMessageError(member=member, reason="contains itself")
                if len(stack) > MAX_DEPTH:
                    raise too_deep
                if id(node) not in seen:
                    seen.add(id(node))
                    path.append(id(node))
                    stack.append(_children(node, member))
                    break
        else:
            stack.pop()
            del path[-1:]
    # A shared container is too deep only where it occurs again; or another thread fixed the value between the walks.
    raise too_deep


def _problem_with(node: Any) -> str | None:
    """Why a value cannot be stored, whatever it holds; None if that depends on its contents."""
    kind = type(node)
    if kind not in _ALLOWED:
        return f"is {_type_name(node)}, not a plain JSON value{_remedy(node)}"
    if kind is str and not _is_unicode(node):
        return "holds a lone surrogate, which UTF-8 cannot carry"
    if kind is float and not isfinite(node):
        return f"is {node}, which JSON cannot carry; store None, or text"
    if kind is int and not MIN_INTEGER <= node <= MAX_INTEGER:
        return "is an integer that 64 bits cannot carry (-2^63 to 2^64-1); store it as text"
    for key in node if kind is dict else ():
        if type(key) is not str:
            return f"has a key that is {_type_name(key)}, not a str; convert it first, with str()"
        if not _is_unicode(key):
            return "has a key with a lone surrogate, which UTF-8 cannot carry"
    return None


def _children(node: Any, member: str) -> Iterator[tuple[str, Any]]:
    if type(node) is dict:
        for key, child in node.items():
            yield f"{member}[{_shorten(key)}]", child
    else:
        for index, child in enumerate(node):
            yield f"{member}[{index}]", child


def _too_long(name: str, max_bytes: int) -> NoReturn:
    raise InvalidMessageError(
        member=name, reason=f"takes more than {max_bytes:,} bytes, the limit for one line (max_line_bytes)"
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shorten(text: str) -> str:
    quoted = json.dumps(text)
    return quoted if len(quoted) <= 40 else f'{quoted[:36]}…"'


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


FROM_REPLY = (
    "transcript_store.messages.from_reply(reply) makes messages of an SDK's reply, and append_messages() takes them"
)


def _remedy(value: Any) -> str:
    """Conversion hints for the types that people most often pass."""
    if isinstance(value, tuple):
        return "; make a list of it"
    if isinstance(value, bytes | bytearray):
        return "; decode it, or store base64 text"
    if isinstance(value, Enum):
        return "; store its .value"
    if is_of_a_reply(value):  # its dump has members that the provider refuses in the next request
        return f"; {FROM_REPLY}"
    for method, call in (
        ("model_dump", '.model_dump(mode="json")'),
        ("isoformat", ".isoformat()"),
        ("__dataclass_fields__", "dataclasses.asdict()"),
        ("__fspath__", "str()"),  # a path
        ("urn", "str()"),  # a UUID; importing these types takes longer than the whole store
        ("as_tuple", "str()"),  # a Decimal
    ):
        if hasattr(value, method):
            return f"; convert it first, with {call}"
    if isinstance(value, Mapping):
        return "; make a dict of it"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "; make a list of it"
    return ""


def _json_name(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
