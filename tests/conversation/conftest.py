"""What the tests of a conversation begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conversation.helpers import ONE, TWO
from transcript_store import ConversationStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    """A conversation with two messages."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE, TWO])
        yield store
