"""Where a framework is not installed, its module says what to install, and the rest of the package does not notice."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.integrations.environments import FRAMEWORKS
from transcript_store import MissingExtraError


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_missing_framework_is_told_with_its_extra(framework, monkeypatch):
    """The error names the extra, which is called as the distribution is."""
    monkeypatch.setitem(sys.modules, framework.module, None)
    importlib.import_module("transcript_store.integrations")
    with pytest.raises(MissingExtraError, match="pip install") as caught:
        importlib.import_module(f"transcript_store.integrations.{framework.folder}")
    assert caught.value.extra == framework.name
