"""Messages and a tool, for conversations that need some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

ONE, TWO, THREE = ({"role": "user", "content": text} for text in ("one", "two", "three"))
TOOL = {"name": "search", "description": "finds things", "parameters": {"type": "object"}}


def both(*makes: Callable[[Path], object]) -> Callable[[Path], None]:
    """One after the other, to the same folder."""

    def build(path: Path) -> None:
        for make in makes:
            make(path)

    return build
