"""The public surface as text, a line a name: ``python -m tests.compat.api`` writes it into api.txt, which a test holds the package to."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "api.txt"
MODULES = (
    "",
    ".aio",
    ".messages",
    ".histories",
    ".file_names",
    ".display",
    ".sources",
    ".importing",
    ".keeping",
    ".usage",
    ".secrets",
    ".exporting",
    ".search",
    ".transcripts",
    ".view",
    ".mcp",
    ".backends",
    ".chat",
    ".testing",
    ".testing.strategies",
    ".testing.machines",
    ".testing.profiles",
)
"""The package and the modules whose own names are public (docs/compatibility.md)."""


def surface(modules: Iterable[str] = MODULES) -> list[str]:
    """Every public name with what it takes, in order."""
    return [line for module in modules for line in _of_module(importlib.import_module(f"transcript_store{module}"))]


def _of_module(module: Any) -> Iterator[str]:
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    ]
    for name in sorted(names):
        if not name.startswith("_"):
            yield from _of(f"{module.__name__}.{name}", getattr(module, name))


def _of(path: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield f"{path}{_signature(thing) if callable(thing) else ''}"
        return
    bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object and not _is_inside(base))
    yield f"class {path}({bases})"
    if issubclass(thing, enum.Enum):
        yield from (f"  {member.name} = {member.value!r}" for member in thing)
        return
    if dataclasses.is_dataclass(thing):
        yield from (f"  {field.name}: {_plain(str(field.type))}" for field in dataclasses.fields(thing))
    elif hasattr(thing, "_fields"):
        yield from (f"  {name}: {_plain(str(thing.__annotations__[name]))}" for name in thing._fields)
    elif "__init__" in vars(thing):
        yield f"  __init__{_signature(thing.__init__)}"
    of_public_bases = {part for base in thing.__bases__ if not _is_inside(base) for part in base.__mro__}
    inside = [base for base in thing.__mro__[1:] if _is_inside(base) and base not in of_public_bases]
    members = {name: value for kind in (*reversed(inside), thing) for name, value in vars(kind).items()}
    for name, value in sorted(members.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"  {name} (property)"
        elif isinstance(value, classmethod | staticmethod):
            yield f"  {name}{_signature(getattr(thing, name))} ({type(value).__name__})"
        elif inspect.isfunction(value):
            yield f"  {'async ' if inspect.iscoroutinefunction(value) else ''}{name}{_signature(value)}"


def _is_inside(base: type) -> bool:
    """Whether a base is a part of the class that has a module of its own, inside: nobody can name it, and its members are the class's."""
    return base.__module__.startswith("transcript_store._")


def _signature(thing: Any) -> str:
    try:
        return _plain(str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return ""


def _plain(text: str) -> str:
    """Without what the interpreter's version decides."""
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    return re.sub(r"<([\w.]+) object at 0x\w+>", r"<\1>", text.replace("typing.", "").replace("collections.abc.", ""))


if __name__ == "__main__":
    FILE.write_text("\n".join(surface()) + "\n")
