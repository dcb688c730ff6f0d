"""Real logs of Claude Code and of the pi agent can be stored and read back unchanged.

The data is not part of this repository. TRANSCRIPT_STORE_SHARED names a folder that has ``corpora/claude-code/*.jsonl`` and
``corpora/pi/*.jsonl``, whose lines have a ``message`` member; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Cli, lines, obeyed

SHARED = os.environ.get("TRANSCRIPT_STORE_SHARED")
CORPORA = sorted(
    path for kind in ("claude-code", "pi") for path in Path(SHARED or "nowhere", "corpora", kind).glob("*.jsonl")
)


@pytest.mark.skipif(SHARED is None, reason="TRANSCRIPT_STORE_SHARED is not set")
def test_there_are_corpora() -> None:
    """If the variable is set, there is something to test with."""
    assert CORPORA


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.name)
def test_a_real_conversation(cli: Cli, tmp_path: Path, corpus: Path) -> None:
    """Recorded, verified, shown and read back equal."""
    entries = [json.loads(line) for line in corpus.read_bytes().split(b"\n") if line]
    messages: list[dict[str, Any]] = [entry["message"] for entry in entries if entry.get("message")]
    assert messages
    directory = str(tmp_path / "c")
    recorded = cli("record", directory, stdin=lines(*messages))
    assert recorded == (0, "".join(f"{seq}\n" for seq in range(1, len(messages) + 1)), "")
    assert cli("verify", directory).code == 0
    code, shown, err = cli("show", directory, "--full")
    assert (code, err) == (0, "")
    assert obeyed(shown) == set()
    assert f"\nmessages       {len(messages):,}\n" in shown
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text" and block["text"].isprintable():
                assert block["text"] in shown
    as_json = [json.loads(line) for line in cli("show", directory, "--json").out.split("\n") if line]
    assert [record["message"] for record in as_json] == messages
