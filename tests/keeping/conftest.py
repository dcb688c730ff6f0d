"""A home of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import cli as cli  # noqa: PLC0414 (the fixture)
from transcript_store.sources import session_folders


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, with the caches and states below it; no variable leads elsewhere."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in (*(place.variable for place in session_folders() if place.variable), "TRANSCRIPT_STORE_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("HOME", str(folder))
    return folder
