"""FUSE, where it is installed; where it is not, whatever needs it is skipped with the reason, and all else is collected.

``mfusepy`` looks for libfuse when it is imported, and raises ``OSError`` if there is none: that ended a whole run at its
collection, for two files of it.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.tools import looks_elsewhere

mfusepy: Any
missing: str | None = None
"""Why there is no FUSE here; None if there is."""

try:
    if not looks_elsewhere():
        raise OSError("libfuse is not looked for")
    mfusepy = import_module("mfusepy")
except (ImportError, OSError) as error:
    mfusepy = SimpleNamespace(Operations=object, FuseOSError=OSError)  # enough to define a file system, not to serve it
    missing = str(error)


def need() -> None:
    """Skip the test that asks for a file system of ours if there is no FUSE."""
    if missing is not None:
        pytest.skip(f"needs libfuse and mfusepy: {missing}")
