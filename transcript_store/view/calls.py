"""The subject of a call in one line: for pages, for Markdown and for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

_ABOUT = (
    *("command", "cmd", "script", "file_path", "path", "filePath", "filename", "notebook_path", "absolute_path"),
    *("pattern", "query", "url", "description", "prompt", "name", "id"),
)
"""The subject of a call: the first of these members that is a text."""
COMMANDS = ("command", "cmd", "script")
_OF_EDITORS = frozenset({"path", "file_path", "old_str", "new_str"})
"""An editor's call may have a `command` too, which is its own."""
_SHELLS = ("-c", "-lc")
_LONGEST = 160


def shell_command_of(arguments: Mapping[str, Any]) -> str:
    """A shell's command as it is typed; empty if the call is none of a shell."""
    given = next((arguments[name] for name in COMMANDS if arguments.get(name)), None)
    return "" if _OF_EDITORS & arguments.keys() else typed(given).strip("\n")


def typed(given: object) -> str:
    """A command as it is typed; of a list for a shell, the text behind -c."""
    if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        return given[2] if len(given) == 3 and given[1] in _SHELLS else shlex.join(given)
    return given if isinstance(given, str) else ""


def summary_of_call(arguments: Mapping[str, Any]) -> str:
    """The subject of a call, on one line; empty if it has none."""
    if pattern := arguments.get("pattern"):
        where = next(
            (arguments[name] for name in ("path", "glob", "include") if isinstance(arguments.get(name), str)), ""
        )
        return _one_line(f"{pattern} in {where}" if where else str(pattern))
    if isinstance(todos := arguments.get("todos"), list):
        return _one_line(_todos(todos))
    return _one_line(next(filter(None, (typed(arguments.get(name)).strip() for name in _ABOUT)), ""))


def _todos(todos: list[Any]) -> str:
    """How many are done, and what is being done."""
    items = [one for one in todos if isinstance(one, dict)]
    done = sum(one.get("status") == "completed" for one in items)
    now = next((one.get("content") for one in items if one.get("status") == "in_progress"), None)
    return f"{done} of {len(items)} done" + (f", now: {now}" if isinstance(now, str) else "")


def _one_line(said: str) -> str:
    line = said.split("\n", 1)[0]
    return line[:_LONGEST] + ("…" if len(said) > min(len(line), _LONGEST) else "")
