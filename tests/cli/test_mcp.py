"""``mcp`` on the command line. What it answers an agent is in tests/mcp."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.helpers import Cli
from transcript_store.installation import install_command


def test_the_command_says_what_is_wrong_with_its_arguments(cli: Cli, tmp_path: Path) -> None:
    missing = cli("mcp", str(tmp_path / "nowhere"))
    assert missing.code == 1
    assert "there is no such directory" in missing.err
    for label in ("=x", 'a="b"'):
        refused = cli("mcp", str(tmp_path), "--label", label)
        assert refused.code == 2
        assert "NAME=VALUE" in refused.err


def test_without_the_extra_the_way_to_it_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transcript_store.mcp._server", None)
    missing = cli("mcp", str(tmp_path))
    assert missing.code == 1
    assert install_command("mcp") in missing.err
