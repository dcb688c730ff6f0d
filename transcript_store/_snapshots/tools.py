"""How does a snapshot store a tool, and what can the Go library read of it?"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transcript_store._json import verbatim
from transcript_store._json.verbatim import NotJSONError
from transcript_store.errors import InvalidMetadataError

# ---- schemas ----
# What the Go library can read of a tool's JSON schema, and the equal form that it can read, where one exists.
#
# go-tool-base decodes ``tools[].parameters`` into a struct with one Go type for each keyword of JSON Schema 2020-12
# (``Schema`` in ``invopop/jsonschema`` 0.14). If a keyword has a value of another type, Go's ``Load`` fails, and its
# ``List`` silently leaves the snapshot out. Unknown keywords are ignored, whatever they hold. Names match in any case.
# tests/vectors/schemas.json has that program's own verdict on each keyword. Nothing here does I/O.


class _Go(Enum):
    """The values that Go accepts for a keyword, besides null."""

    TEXT = "a text"
    FLAG = "true or false"
    NUMBER = "a number"
    COUNT = "a whole number from 0 to 2^64 - 1"
    TEXTS = "a list of texts"
    TEXTS_BY_NAME = "an object of lists of texts"
    SCHEMA = "a schema"
    SCHEMAS = "a list of schemas"
    SCHEMAS_BY_NAME = "an object of schemas"
    LIST = "a list"
    ANYTHING = "anything"


_KEYWORDS = {
    **dict.fromkeys(("$schema", "$id", "$anchor", "$ref", "$dynamicRef", "$comment", "type"), _Go.TEXT),
    **dict.fromkeys(("pattern", "format", "contentEncoding", "contentMediaType", "title", "description"), _Go.TEXT),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _Go.FLAG),
    **dict.fromkeys(("multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"), _Go.NUMBER),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains"), _Go.COUNT),
    **dict.fromkeys(("maxProperties", "minProperties"), _Go.COUNT),
    "required": _Go.TEXTS,
    "dependentRequired": _Go.TEXTS_BY_NAME,
    **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "additionalProperties"), _Go.SCHEMA),
    **dict.fromkeys(("propertyNames", "contentSchema"), _Go.SCHEMA),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _Go.SCHEMAS),
    **dict.fromkeys(("$defs", "dependentSchemas", "properties", "patternProperties"), _Go.SCHEMAS_BY_NAME),
    **dict.fromkeys(("enum", "examples"), _Go.LIST),
    **dict.fromkeys(("const", "default"), _Go.ANYTHING),
}
_IN_ANY_CASE = {name.lower(): name for name in _KEYWORDS}
_LONG_S = "\u017f"  # to Go it equals an s, as the Kelvin sign equals a k; lower() changes only the latter
_NUMERAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def to_go_form(schema: dict[str, Any]) -> None:
    """Change a schema in place to an equal one with values that Go can read; all else stays, and the order of members.

    * several types (``"type": ["string", "null"]``): ``anyOf`` of one type each; one type in a list: that type;
    * a count with a fraction of zero (``"minLength": 1.0``): the whole number.

    Keywords of another dialect of JSON Schema are not translated (``items`` as a list, ``exclusiveMinimum`` as a flag):
    its meaning depends on ``$schema``, and on the reader.
    """
    for one in _walk(schema, lambda name: name):
        for name, value in one.items():
            if _KEYWORDS.get(name) is _Go.COUNT and type(value) is float and value.is_integer():
                one[name] = int(value)
        types = one.get("type")
        if type(types) is list and types and all(type(kind) is str for kind in types):
            _separate(one, types)


def unreadable_for_go(schema: dict[str, Any]) -> list[str]:
    """Why Go cannot read a schema, each reason once. A reason repeats only keywords of the schema."""
    reasons: dict[str, None] = {}
    for one in _walk(schema, _as_go_finds_it):
        for key, value in one.items():
            name = _as_go_finds_it(key)
            kind = _KEYWORDS.get(name)
            if kind is None or value is None:
                continue
            if not _fits(kind, value):
                reasons[f"{name} is not {kind.value}"] = None
            elif kind in (_Go.LIST, _Go.ANYTHING) and not _is_within_floats(value):
                reasons[f"{name} holds a number beyond those of 64-bit floats"] = None
    return list(reasons)


def _walk(schema: dict[str, Any], keyword: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it, outer ones first; ``keyword`` returns the keyword for a member's name.

    Without recursion, because a schema may nest more deeply than Python's calls can.
    """
    found = [schema]
    for one in found:
        yield one
        for name, value in one.items():
            kind = _KEYWORDS.get(keyword(name))
            if kind is _Go.SCHEMA:
                inner: Iterable[Any] = (value,)
            elif kind is _Go.SCHEMAS and type(value) is list:
                inner = value
            elif kind is _Go.SCHEMAS_BY_NAME and type(value) is dict:
                inner = value.values()
            else:
                continue
            found += (child for child in inner if type(child) is dict)


def _as_go_finds_it(name: str) -> str:
    """The keyword that Go reads a member's name as; the name itself if there is none."""
    return _IN_ANY_CASE.get(name.lower().replace(_LONG_S, "s"), name)


def _separate(schema: dict[str, Any], types: list[str]) -> None:
    """Give each of a schema's types a schema of its own."""
    if len(types) == 1:
        schema["type"] = types[0]
        return
    choice = [{"type": kind} for kind in types]
    if "anyOf" not in schema:  # then it replaces the types
        members = [("anyOf", choice) if name == "type" else (name, value) for name, value in schema.items()]
        schema.clear()
        schema.update(members)
    elif type(others := schema.get("allOf", [])) is list:
        del schema["type"]
        schema["allOf"] = [*others, {"anyOf": choice}]


def _fits(kind: _Go, value: Any) -> bool:
    """True if Go accepts a value, which is not null, as this kind. Inner schemas are not checked."""
    given = type(value)
    match kind:
        case _Go.TEXT:
            return given is str
        case _Go.FLAG:
            return given is bool
        case _Go.NUMBER:
            return given in (int, float) or (given is str and _NUMERAL.fullmatch(value) is not None)
        case _Go.COUNT:
            return given is int and 0 <= value < 2**64
        case _Go.TEXTS:
            return given is list and all(one is None or type(one) is str for one in value)
        case _Go.TEXTS_BY_NAME:
            return given is dict and all(one is None or _fits(_Go.TEXTS, one) for one in value.values())
        case _Go.SCHEMA:
            return given in (dict, bool)
        case _Go.SCHEMAS:
            return given is list and all(one is None or _fits(_Go.SCHEMA, one) for one in value)
        case _Go.SCHEMAS_BY_NAME:
            return given is dict and all(one is None or _fits(_Go.SCHEMA, one) for one in value.values())
        case _Go.LIST:
            return given is list
        case _Go.ANYTHING:
            return True


def _is_within_floats(value: Any) -> bool:
    values = [value]
    for one in values:
        if type(one) is int:
            try:
                float(one)
            except OverflowError:
                return False
        elif type(one) is dict:
            values += one.values()
        elif type(one) is list:
            values += one
    return True


# ---- tool ----


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """A tool as a snapshot has it: its description for the model, without its function.

    ``parameters`` is its JSON Schema: an object, True (every value is valid), False (none is), or None if it has no
    schema. An object is copied, in its order. It is written in an equal form that the Go library can read, if there is
    one: ``{}`` becomes True, ``"type": ["string", "null"]`` becomes ``anyOf`` of the two, ``"minLength": 1.0`` becomes
    1 (docs/snapshots.md).

    Raises:
        InvalidMetadataError: name or description is not a text that UTF-8 can carry, or the parameters are not JSON.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] | bool | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        check_text("tools", "a tool's name", self.name)
        check_text("tools", "a tool's description", self.description)
        if self.parameters is None or type(self.parameters) is bool:
            return
        if not isinstance(self.parameters, dict):
            kind = type(self.parameters).__name__
            raise InvalidMetadataError(
                field="tools", reason=f"a tool's parameters must be a dict or a bool, not {kind}"
            )
        encoded = _encoded(self.parameters)
        equal = verbatim.decode(encoded)
        to_go_form(equal)
        try:
            _encoded(equal)
        except InvalidMetadataError:  # the equal form has two levels more, and nests too deeply
            equal = verbatim.decode(encoded)
        object.__setattr__(self, "parameters", equal or True)

    @property
    def unreadable_for_go(self) -> list[str]:
        """Why the Go library cannot read the parameters, as a list of reasons; empty if it can.

        Every store here keeps a snapshot with such a tool. Go's ``Load`` fails on it, and Go's ``List`` leaves it out
        (docs/snapshots.md).
        """
        return unreadable_for_go(self.parameters) if isinstance(self.parameters, dict) else []


def warn_of_tools(tools: Iterable[ToolSnapshot], logger: logging.Logger) -> None:
    """Log a warning for each tool that the Go library cannot read: its name, and why. No value of the schema is logged."""
    for tool in tools:
        if reasons := tool.unreadable_for_go:
            what = "go-tool-base cannot load a snapshot with these parameters, and its list leaves the snapshot out"
            logger.warning("tool %.100r: %s: %s (docs/snapshots.md)", tool.name, what, "; ".join(reasons))


def tool_json(tool: ToolSnapshot) -> bytes:
    """A tool in compact form."""
    string = verbatim.encode_string
    parameters = b"" if tool.parameters is None else b',"parameters":' + verbatim.encode_compact(tool.parameters)
    return b'{"name":' + string(tool.name) + b',"description":' + string(tool.description) + parameters + b"}"


def read_tool(value: Any) -> ToolSnapshot:
    """The tool in a decoded JSON value; raises ``NotJSONError`` and ``InvalidMetadataError``."""
    if type(value) is not dict:
        raise NotJSONError("has a tool that is not an object")
    absent: dict[str, Any] = {"name": "", "description": "", "parameters": None}
    known = {name: absent[name] if value.get(name) is None else value[name] for name in absent}
    return ToolSnapshot(**known)


def check_text(field: str, what: str, text: Any) -> None:
    """Raise ``InvalidMetadataError`` unless this is a text that UTF-8 can carry."""
    if type(text) is not str:
        raise InvalidMetadataError(field=field, reason=f"{what} must be a str, not {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidMetadataError(field=field, reason=f"{what} holds a lone surrogate") from None


def _encoded(parameters: dict[str, Any]) -> bytes:
    try:
        return verbatim.encode_compact(parameters)
    except NotJSONError as error:
        raise InvalidMetadataError(field="tools", reason=str(error)) from None
