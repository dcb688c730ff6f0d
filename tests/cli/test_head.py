"""`head`: a fingerprint to keep elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.helpers import Cli, conversation, lines
from transcript_store import ConversationStore


def test_head(cli: Cli, tmp_path: Path) -> None:
    """The head is the one the library gives, and changes with every record."""
    directory = conversation(tmp_path / "c", [{"n": 1}])
    before = cli("head", directory)
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        assert before == (0, f"{store.head}\n", "")
    cli("record", directory, stdin=lines({"n": 2}))
    assert cli("head", directory).out != before.out


def test_head_as_json(cli: Cli, tmp_path: Path) -> None:
    """--json says of what the head is: how many records, which generation, which conversation."""
    directory = conversation(tmp_path / "c")
    empty = json.loads(cli("head", directory, "--json").out)
    with ConversationStore(directory) as store:
        store.load()
        store.replace_transcript([{"n": 1}, {"n": 2}])
        store.append_event({"note": 1})
        expected = {"head": store.head, "seq": 3, "generation": 1, "id": store.get_metadata().id}
    assert json.loads(cli("head", directory, "--json").out) == expected
    assert (empty["seq"], empty["generation"], empty["id"]) == (0, 0, expected["id"])
