"""Fixtures that many tests use."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.children import Child
from tests.kit.scratch import scratch_directory
from transcript_store import ConversationLibrary


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory."""
    with scratch_directory() as directory:
        yield Path(directory)


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    """An empty library in a folder. (Where a room needs another one, its own fixture has this name.)"""
    return ConversationLibrary(tmp_path / "library")


@pytest.fixture
def quiet() -> Iterator[None]:
    """For a test that provokes thousands of recoveries: no warning is logged."""
    logger = logging.getLogger("transcript_store")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    """A test that fails may leave children behind; the next one should not meet them."""
    yield
    for child in list(Child.running.values()):
        child.end(signal.SIGKILL)
