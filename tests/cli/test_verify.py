"""`verify`: intact and damaged conversations, and a hint that works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation, damage, lines, tear
from transcript_store import ConversationLibrary, ConversationStore, FileStore, Snapshot

MESSAGES = [{"role": "user", "content": f"message {number}"} for number in range(1, 6)]


def test_whole(cli: Cli, tmp_path: Path) -> None:
    """A whole conversation is exit code 0, with its records, generations and head."""
    directory = conversation(tmp_path / "c", MESSAGES)
    with ConversationStore(directory) as store:
        store.load()
        store.replace_transcript(MESSAGES[:1])
        head = store.head
    code, out, err = cli("verify", directory)
    assert (code, err) == (0, "")
    assert f"1 whole record, generation 1, head {head}\n" in out
    assert "1 earlier generation: 0\n" in out
    assert out.endswith("\nintact: no problem found\n")


def test_torn_tail_and_after(cli: Cli, tmp_path: Path) -> None:
    """A torn tail is a finding that needs nothing done; once recovered, its bytes are named and all is whole."""
    directory = conversation(tmp_path / "c", MESSAGES)
    tear(tmp_path / "c")
    code, out, _ = cli("verify", directory)
    assert code == 1
    assert "torn-tail:" in out
    assert "hint: the next writer that opens the conversation cuts it" in out
    assert cli("record", directory).code == 0
    code, out, _ = cli("verify", directory)
    assert code == 0
    assert "1 file of bytes that recovery removed (not damage):\n" in out
    assert f"{directory}/quarantine/g0-" in out


def test_findings(cli: Cli, tmp_path: Path) -> None:
    """Each finding has its file, line, byte, length, kind, reason and way out; the exit code is 1."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b"message 2", b"MESSAGE 2")
    damage(tmp_path / "c", b"message 4", b"MESSAGE 4")
    code, out, err = cli("verify", directory)
    assert (code, err) == (1, "")
    for line in (3, 5):
        assert f"{directory}/transcript.jsonl, line {line} (record {line - 1}), byte " in out
    assert "\n  damaged-line: its hash does not match" in out
    assert f"\n  hint: restore it from a backup, or see what `transcript-store repair {directory}` can keep" in out
    assert out.endswith("\ndamaged: 2 findings\n")


def test_findings_as_json(cli: Cli, tmp_path: Path) -> None:
    """--json has the same, one object on one line."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b"message 2", b"MESSAGE 2")
    code, out, _ = cli("verify", directory, "--json")
    found = json.loads(out)
    assert code == 1
    assert out.count("\n") == 1
    assert (found["is_intact"], found["records"], found["generation"], found["directory"]) == (False, 4, 0, directory)
    (finding,) = found["findings"]
    assert (finding["kind"], finding["line_number"]) == ("damaged-line", 3)
    assert finding["path"] == f"{directory}/transcript.jsonl"
    assert finding["offset_bytes"] > 0
    assert finding["length_bytes"] > 0
    assert finding["reason"]
    assert finding["hint"]


def test_no_header_no_metadata(cli: Cli, tmp_path: Path) -> None:
    """Where the first line cannot be read, that is said instead of numbers; so it is with no files at all."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b'"transcript-store"', b'"transcript-STORE"')
    (tmp_path / "c" / "metadata.json").unlink()
    code, out, _ = cli("verify", directory)
    assert code == 1
    assert "cannot be read, from its first line" in out
    assert out.endswith("\ndamaged: 2 findings\n")
    (tmp_path / "empty").mkdir()
    assert cli("verify", str(tmp_path / "empty")).code == 1


def test_the_hint_works(cli: Cli, tmp_path: Path) -> None:
    """The command that verify prints for a damaged line can be run as it stands, whatever the path looks like."""
    directory = conversation(tmp_path / "it's a folder", MESSAGES)
    damage(tmp_path / "it's a folder", b"message 4", b"MESSAGE 4")
    (finding,) = json.loads(cli("verify", directory, "--json").out)["findings"]
    _, command, _ = finding["hint"].split("`")
    command = command.replace("transcript-store", f"'{sys.executable}' -m transcript_store")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} --mode prefix --apply"], cwd=tmp_path, check=True, capture_output=True
    )
    assert b"prefix: kept 3 records, leaving out 1 whole record" in done.stdout
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        assert store.get_messages() == MESSAGES[:3]


def test_beside_a_writer(cli: Cli, tmp_path: Path) -> None:
    """Verify takes no lock and changes nothing: a writer at work goes on as before."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=MESSAGES)
        before = sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "c").iterdir())
        assert cli("verify", str(tmp_path / "c")).code == 0
        assert before == sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "c").iterdir())
        store.append_message({"n": 6})
    assert cli("record", str(tmp_path / "c"), stdin=lines({"n": 7})).out == "7\n"


@pytest.mark.parametrize("name", [None, "today"])
def test_a_library_or_a_store_of_snapshots(cli: Cli, tmp_path: Path, name: str | None) -> None:
    """All conversations of a library are verified; what else is no conversation is told as what it is, with the command for it."""
    library = ConversationLibrary(tmp_path / "chats")
    if name is None:
        library.create().close()
    else:
        with ConversationStore(tmp_path / "chats" / name) as store:
            store.initialize()
    FileStore(tmp_path / "snapshots").save(Snapshot.create(provider="p", messages=[]))
    (tmp_path / "others").mkdir()
    (tmp_path / "others/file").write_text("")
    code, out, _ = cli("verify", str(tmp_path / "chats"))
    assert (code, out) == (0, f"{tmp_path}/chats: 1 conversation: 1 intact\n")
    for directory, way in (
        ("snapshots", f"`transcript-store snapshot verify --store {tmp_path}/snapshots`"),
        ("others", "these files are not ours"),
    ):
        code, out, _ = cli("verify", str(tmp_path / directory))
        assert code == 1
        assert way in out
        assert out.endswith("\nnothing was checked\n")
        assert ("not ours" in out) is (directory == "others")
