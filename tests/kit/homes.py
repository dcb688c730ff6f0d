"""A home of a test's own, in which the programs whose sessions are read keep everything below it."""

from __future__ import annotations

from pathlib import Path

import pytest

_VARIABLES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "CODEX_SQLITE_HOME",
    "GEMINI_CLI_HOME",
    "PI_CODING_AGENT_DIR",
    "XDG_DATA_HOME",
)


def set_home(monkeypatch: pytest.MonkeyPatch, home: Path | str) -> None:
    """HOME is this folder, and no variable names another one for a program."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
