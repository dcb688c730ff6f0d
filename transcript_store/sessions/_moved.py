"""A folder that was renamed or moved: what a path below it is called now, in labels and in the lines of programs. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_SPELLINGS: tuple[Callable[[Any], bytes], ...] = (
    orjson.dumps,
    lambda value: json.dumps(value, separators=(",", ":")).encode(),
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, ensure_ascii=False).encode(),
)
"""How programs write JSON: a changed line keeps the spelling of the original."""
_PATHS = frozenset({"cwd", "directory", "gitRoot", "git_root", "workdir"})
_PATH_LISTS = frozenset({"runtime_workspace_roots", "workspace_roots", "writable_roots", "directories"})
_DEEP: dict[str, dict[str, tuple[str, ...]]] = {
    "codex": {"session_meta": ("payload",), "turn_context": ("payload",), "event_msg": ("payload", "thread_settings")},
    "copilot": {"session.start": ("data", "context"), "session.resume": ("data", "context")},
}
"""Where in a line of this type a program has its directories. Programs that are not here have ``cwd`` in the line itself."""


@dataclass(frozen=True, slots=True)
class MovedFolder:
    """From where to where. Some programs know the old folder by several names, as links make them."""

    old: tuple[str, ...]
    new: str

    def new_path(self, path: str) -> str | None:
        """The new name of a path; None if it was not moved. A folder whose name only starts like the old one was not."""
        if path == self.new or path.startswith(f"{self.new}/"):
            return None  # the new folder may be within the old one
        for old in self.old:
            if path == old:
                return self.new
            if path.startswith(f"{old}/"):
                return self.new + path[len(old) :]
        return None

    def new_line(self, program: str, line: bytes) -> bytes:
        """A line of a program's session file with the new paths; the same line if there is none in it."""
        if not any(old.encode() in line or json.dumps(old)[1:-1].encode() in line for old in self.old):
            return line
        text = line.rstrip(b"\r\n")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return line
        if not isinstance(value, dict) or (wanted := self._new_value(program, value)) == value:
            return line
        return spelled_like(line, value, wanted)

    def new_lines(self, program: str, data: bytes) -> bytes:
        """The same for a file of lines."""
        return b"".join(self.new_line(program, line) for line in lines_with_ends(data))

    def _new_value(self, program: str, value: dict[str, Any]) -> dict[str, Any]:
        deep = _DEEP.get(program)
        if deep is None:
            return self._members(value)
        names = deep.get(str(value.get("type")))
        return value if names is None else self._within(value, names)

    def _within(self, value: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        first, *others = names
        inner: Any = value.get(first)
        if not isinstance(inner, dict):
            return value
        return {**value, first: self._within(inner, others) if others else self._members(inner)}

    def _members(self, value: dict[str, Any]) -> dict[str, Any]:
        return {name: self._member(name, member) for name, member in value.items()}

    def _member(self, name: str, member: Any) -> Any:
        if name in _PATHS and isinstance(member, str):
            return self.new_path(member) or member
        if name in _PATH_LISTS and isinstance(member, list):
            return [self.new_path(one) or one if isinstance(one, str) else one for one in member]
        return member


def spelled_like(line: bytes, value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bytes:
    """Another value as a line, spelled as the line of the first one is."""
    text = line.rstrip(b"\r\n")
    spelled = next((one for one in _SPELLINGS if one(value) == text), orjson.dumps)
    return spelled(wanted) + line[len(text) :]


def lines_with_ends(data: bytes) -> list[bytes]:
    """Lines with their line feeds: a carriage return or U+0085 is a character of a text."""
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]
