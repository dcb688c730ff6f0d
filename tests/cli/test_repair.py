"""`repair` shows its plan first, and carries it out on request."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation, damage
from transcript_store import ConversationStore

MESSAGES = [{"text": f"message {n}"} for n in range(1, 6)]


def test_it_says_what_each_mode_would_keep(cli: Cli, tmp_path: Path) -> None:
    """Without --apply every mode is shown with what it keeps and leaves out, and no byte is changed."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b"message 2", b"MESSAGE 2")
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    code, out, err = cli("repair", directory)
    assert (code, err) == (1, "")
    assert "transcript.jsonl, line 3 (record 2), byte " in out
    assert "prefix: would keep 1 record, leaving out 3 whole records" in out
    assert "salvage: would keep 4 records\n    gap: " in out
    assert "accept-edits: would keep 5 records" in out
    assert out.endswith("nothing was changed: choose one with --mode, and add --apply\n")
    assert before == {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    found = [json.loads(line) for line in cli("repair", directory, "--json").out.splitlines()]
    assert [one["mode"] for one in found] == ["prefix", "salvage", "accept-edits"]
    assert [one["records_kept"] for one in found] == [1, 4, 5]


def test_it_repairs(cli: Cli, tmp_path: Path) -> None:
    """With --apply the chosen mode is done, the original is where it says, and then there is nothing to repair."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b"message 2", b"MESSAGE 2")
    original = (tmp_path / "c" / "transcript.jsonl").read_bytes()
    code, out, err = cli("repair", directory, "--mode", "salvage", "--apply")
    assert (code, err) == (0, "")
    assert "salvage: kept 4 records" in out
    assert out.endswith("repaired\n")
    (line,) = [line for line in out.splitlines() if line.startswith("transcript.jsonl as it was is kept: ")]
    assert Path(line.partition(": ")[2]).read_bytes() == original
    assert cli("verify", directory).code == 0
    code, out, _ = cli("repair", directory)
    assert code == 0
    assert "intact: nothing to repair" in out
    with ConversationStore(directory) as store:
        store.load()
        assert store.get_messages() == [MESSAGES[0], *MESSAGES[2:]]


@pytest.mark.parametrize("mode", ["prefix", "salvage", "accept-edits"])
def test_the_printed_commands_undo_a_repair(cli: Cli, tmp_path: Path, mode: str) -> None:
    """The damage is as it was, to the byte, with the same findings; then another mode can be taken.

    Incident: the transcript came back without its metadata. It was of another generation than that, and without a mark an
    edited record was called a torn tail.
    """
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b"message 5", b"MESSAGE 5")
    before = {path: path.read_bytes() for path in (tmp_path / "c").glob("*.json*")}
    found = cli("verify", directory, "--json").out
    out = cli("repair", directory, "--mode", mode, "--apply").out
    undo = [line.strip() for line in out.splitlines() if line.startswith("  cp -p ")]
    assert len(undo) == 2
    subprocess.run("\n".join(undo), shell=True, check=True)
    assert {path: path.read_bytes() for path in (tmp_path / "c").glob("*.json*")} == before
    again = json.loads(cli("verify", directory, "--json").out)
    assert again["findings"] == json.loads(found)["findings"]
    assert "kept 5 records" in cli("repair", directory, "--mode", "accept-edits", "--apply").out
    assert cli("verify", directory).code == 0


def test_metadata_from_the_header(cli: Cli, tmp_path: Path) -> None:
    """A lost metadata.json is rebuilt, and it is said that later changes are not in it."""
    directory = conversation(tmp_path / "c", MESSAGES, model="m")
    (tmp_path / "c" / "metadata.json").unlink()
    code, out, _ = cli("repair", directory, "--apply")
    assert code == 0
    assert "metadata is from: the transcript's first line, which lacks later changes" in out
    assert cli("verify", directory).code == 0


def test_a_live_writer(cli: Cli, tmp_path: Path) -> None:
    """What has a live writer is looked at, and not repaired."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        assert cli("repair", str(tmp_path / "c")).code == 0
        code, _, err = cli("repair", str(tmp_path / "c"), "--apply")
        assert code == 1
        assert "is writing to it" in err


def test_mistakes(cli: Cli, tmp_path: Path) -> None:
    """A folder that is no conversation's, or not there, and an unknown mode: one line each."""
    (tmp_path / "file").write_text("mine")
    for directory in (tmp_path, tmp_path / "absent", tmp_path / "file"):
        code, out, err = cli("repair", str(directory), "--apply")
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
    assert cli("repair", str(tmp_path), "--mode", "hope").code == 2
