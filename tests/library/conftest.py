"""A library, and the folder that it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from transcript_store import ConversationLibrary


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    return ConversationLibrary(tmp_path / "chats")


@pytest.fixture
def root(library: ConversationLibrary) -> Path:
    return Path(library.directory)
