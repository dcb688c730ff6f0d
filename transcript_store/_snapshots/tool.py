"""A tool as a snapshot remembers it, and its JSON form."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from transcript_store._json import verbatim
from transcript_store._json.verbatim import NotJSONError
from transcript_store._snapshots import schemas
from transcript_store.errors import InvalidMetadataError


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """A tool as a snapshot has it: what the model was told of it, without the function behind it.

    ``parameters`` is its JSON Schema: an object, True (every value is valid), False (none is), or None if it has no schema. An
    object is copied, in its order. It is written in an equal form that the Go library can read, if there is one: ``{}`` becomes
    True, ``"type": ["string", "null"]`` becomes ``anyOf`` of the two, ``"minLength": 1.0`` becomes 1 (docs/snapshots.md).

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
        schemas.to_go_form(equal)
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
        return schemas.unreadable_for_go(self.parameters) if isinstance(self.parameters, dict) else []


def warn_of_tools(tools: Iterable[ToolSnapshot], logger: logging.Logger) -> None:
    """Log a warning for each tool that the Go library cannot read: its name, and why. No value of the schema is logged."""
    for tool in tools:
        if reasons := tool.unreadable_for_go:
            what = "go-tool-base cannot load a snapshot with these parameters, and its list leaves the snapshot out"
            logger.warning("tool %.100r: %s: %s (docs/snapshots.md)", tool.name, what, "; ".join(reasons))


def tool_json(tool: ToolSnapshot) -> bytes:
    """A tool in compact form."""
    string = verbatim.encode_string
    parameters = b"" if tool.parameters is None else b',"parameters":' + verbatim.encode(tool.parameters)
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
        return verbatim.encode(parameters)
    except NotJSONError as error:
        raise InvalidMetadataError(field="tools", reason=str(error)) from None
