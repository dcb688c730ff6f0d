"""What a call was given, as a person reads it: an edit as its diff, a text of several lines as these lines, all else as JSON."""

from __future__ import annotations

import json
from typing import Any

from transcript_store.view.calls import COMMANDS, shell_command_of
from transcript_store.view.diffs import diff_of


def as_typed(arguments: str) -> tuple[str, str]:
    """A call of a shell as it is typed at a prompt, ``$ pytest -q``, with its language; all others as they are."""
    return (command, "bash") if (command := _command(_object(arguments) or {})) else (arguments, "")


def _command(given: dict[str, Any]) -> str | None:
    """The command of a call of a shell, with its description and its other arguments as a comment behind it."""
    if not (command := shell_command_of(given)).strip():
        return None
    first, *others = command.split("\n")
    beside = {key: value for key, value in given.items() if key not in COMMANDS and value not in (None, "", False)}
    said = beside.pop("description", "")
    about = [said] if isinstance(said, str) and said else []
    about += [json.dumps(beside, ensure_ascii=False)] if beside else []
    behind = f"  # {' '.join(about)}" if about else ""
    return "\n".join((f"$ {first}{behind}", *(f"  {line}" for line in others)))


def arranged(arguments: str) -> tuple[str, str]:
    """The arguments, which are JSON or any other text, and the language in which they stand there."""
    given = _object(arguments)
    if given is not None and (command := _command(given)) is not None:
        return command, "bash"
    told = None if given is None else diff_of(given)
    if given is None:
        return arguments, "json"
    if told is not None:
        diff, names = told
        return "\n".join((*_others(given, names), *diff.lines)), "diff"
    texts = {name: text for name, text in given.items() if isinstance(text, str) and "\n" in text.strip("\n")}
    if not texts:
        return arguments, "json"
    blocks = (f"{name}:\n{_indented(text)}" for name, text in texts.items())
    return "\n".join((*_others(given, frozenset(texts)), *blocks)), ""


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _others(given: dict[str, Any], names: frozenset[str]) -> list[str]:
    """The members that have no form of their own, on one line."""
    rest = {name: value for name, value in given.items() if name not in names}
    return [json.dumps(rest, ensure_ascii=False)] if rest else []


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.strip("\n").split("\n"))
