"""The fixtures of the import: a library, and the format of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.helpers import use_notebooks
from transcript_store import ConversationLibrary


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    return ConversationLibrary(tmp_path / "library")


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_notebooks(monkeypatch)
