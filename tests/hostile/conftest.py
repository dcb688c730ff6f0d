"""Fixtures that many of these tests use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.helpers import conversation_at


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    return conversation_at(tmp_path / "c")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that everybody can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)
