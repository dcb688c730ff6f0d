"""The fixtures of the import: a library, and the format of the tests."""

from __future__ import annotations

import pytest

from tests.importing.helpers import use_notebooks


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_notebooks(monkeypatch)
