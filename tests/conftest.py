"""What many tests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.scratch import scratch_directory


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory."""
    with scratch_directory() as directory:
        yield Path(directory)
