"""Fixtures that pytest finds by itself where this package is installed: ``conversation_library`` and ``simulated_disk``.

::

    def test_my_agent(conversation_library):
        with conversation_library.create(provider="claude") as conversation:
            run_my_agent(conversation)
        assert len(conversation_library.list()) == 1

``pytest -p no:transcript_store`` switches it off. docs/testing.md has more to test with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from transcript_store import ConversationLibrary
    from transcript_store.testing import SimulatedFileSystem


@pytest.fixture
def simulated_disk() -> SimulatedFileSystem:
    """A disk in memory that can lose power, refuse calls and show each of them: pass it as ``file_system``."""
    from transcript_store.testing import SimulatedFileSystem  # here: every run of pytest loads this file

    return SimulatedFileSystem()


@pytest.fixture
def conversation_library(tmp_path: Path) -> ConversationLibrary:
    """An empty library in the test's temporary folder; its folder does not exist before the first conversation."""
    from transcript_store import ConversationLibrary

    return ConversationLibrary(tmp_path / "conversations")
