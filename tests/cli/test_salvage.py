"""A damaged conversation can be read before it is repaired, and a repair is a choice that can be undone.

Found from outside: `show` refused a damaged conversation, so that whoever needed one message of it had to repair it
first; `repair --apply` without a mode took the mode that keeps least, without a word; a repair that kept nothing said
"repaired"; nothing said how to undo it; and neither `show` nor `list` said that a torn tail was there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import ENVIRONMENT, Cli, conversation, damage, tear
from tests.cli.terminal import Terminal
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    CorruptTranscriptError,
    Gap,
    list_conversations,
    repair,
    salvage,
)

MESSAGES = [{"role": "user", "content": f"message {n}"} for n in range(1, 6)]


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """A conversation whose second message was edited, and of whose fourth a disk kept half."""
    directory = conversation(tmp_path / "c", MESSAGES, model="m")
    damage(tmp_path / "c", b"message 2", b"MESSAGE 2")
    damage(tmp_path / "c", b'{"seq":4,"at"', b"\0" * 13)
    return directory


def contents(directory: str) -> dict[str, bytes]:
    files = (path for path in Path(directory).rglob("*") if path.is_file() and path.name != "lock")
    return {str(path): path.read_bytes() for path in files}


def test_what_is_left_can_be_read(cli: Cli, damaged: str) -> None:
    """`show` names the way, and with --salvage each line is printed as far as it holds anything; nothing is changed."""
    before = contents(damaged)
    code, out, err = cli("show", damaged)
    assert (code, out) == (1, "")
    assert (
        f"`transcript-store show {damaged} --salvage` reads the rest of it, and `transcript-store repair {damaged}`"
        in err
    )
    code, out, err = cli("show", damaged, "--salvage")
    assert (code, err) == (1, "")
    assert re.findall(r"^    message \d$|MESSAGE \d", out, re.MULTILINE) == [
        "    message 1",
        "MESSAGE 2",
        "    message 3",
        "    message 5",
    ]
    assert re.search(
        r"^#2 .*\n    damaged \(\d+ bytes at byte \d+\), so this may not be what was stored", out, re.MULTILINE
    )
    assert re.search(r"^-- \d+ bytes at byte \d+ cannot be read: it holds 13 NUL bytes", out, re.MULTILINE)
    assert contents(damaged) == before


def test_salvage_as_json(cli: Cli, damaged: str) -> None:
    """The same as JSON: what is not as it was stored has a `damage`, what cannot be read no message."""
    code, out, _ = cli("show", damaged, "--salvage", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [one["seq"] for one in found] == [1, 2, 3, None, 5]
    assert [bool(one["damage"]) for one in found] == [False, True, False, True, False]
    assert [one["message"] and one["message"]["content"][-1] for one in found] == ["1", "2", "3", None, "5"]
    transcript = Path(damaged, "transcript.jsonl").read_bytes()
    for one in found:
        assert transcript[one["offset_bytes"] :][: one["length_bytes"]].endswith(b'"}')
    last = [json.loads(line) for line in cli("show", damaged, "--salvage", "--json", "--last", "2").out.splitlines()]
    assert last == found[-2:]


def test_salvage_in_python(damaged: str) -> None:
    """`salvage()` gives the same records that a repair with accept-edits keeps, in their order, and where the gaps are."""
    left = salvage(damaged)
    assert not left.is_intact
    assert (left.metadata.model, left.metadata_from) == ("m", "metadata.json")
    read = [found.record.message for found in left.found if found.record is not None]
    gaps = [(found.offset_bytes, found.length_bytes) for found in left.found if found.record is None]
    proposal = repair(damaged, mode="accept-edits")
    assert gaps == [(gap.offset_bytes, gap.length_bytes) for gap in proposal.gaps]
    repair(damaged, mode="accept-edits", dry_run=False)
    with ConversationStore(damaged, read_only=True) as store:
        store.load()
        assert store.get_messages() == read
    left = salvage(damaged)
    assert left.is_intact
    assert [found.record for found in left.found] == store_records(damaged)


def store_records(directory: str) -> list[object]:
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        return list(store.get_records())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n", b"\r\n"),
        (b'{"format"', b'\xef\xbb\xbf{"format"'),
        (b'"}\n{"seq":3', b'"}{"seq":3'),
        (b'{"seq":3', b'  {"seq":3'),
    ],
    ids=["CR LF", "byte order mark", "glued", "indented"],
)
def test_what_an_editor_did_hides_nothing(tmp_path: Path, old: bytes, new: bytes) -> None:
    """Line ends, a byte order mark, glued and indented lines: every message is still read."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", old, new)
    with ConversationStore(directory, read_only=True) as store, pytest.raises(CorruptTranscriptError):
        store.load()
    assert [found.record.message for found in salvage(directory).found if found.record] == MESSAGES


def test_lost_metadata_and_a_lost_header(tmp_path: Path) -> None:
    """Where the metadata is from is said; a header that is gone hides no message."""
    directory = conversation(tmp_path / "c", MESSAGES, model="m")
    (tmp_path / "c" / "metadata.json").unlink()
    left = salvage(directory)
    assert (left.metadata.model, left.metadata_from, len(left.found)) == ("m", "header", 5)
    damage(tmp_path / "c", b'"format":"transcript-store"', b'"format":"transcript-stowe"')
    read = [found.record.message for found in salvage(directory).found if found.record]
    assert read == MESSAGES


def test_metadata_that_a_person_edited_is_shown_as_edited(tmp_path: Path) -> None:
    """Nobody is asked for a mode before he may read: what stands there counts, as in a repair that accepts edits."""
    directory = conversation(tmp_path / "c", MESSAGES, model="m")
    metadata = tmp_path / "c" / "metadata.json"
    metadata.write_bytes(metadata.read_bytes().replace(b'"model": "m"', b'"model": "mine"'))
    left = salvage(directory)
    assert (left.metadata.model, left.metadata_from) == ("mine", "metadata.json")


def test_apply_without_a_mode_is_a_question(cli: Cli, damaged: str) -> None:
    """Where nobody can be asked, nothing is changed: what each mode keeps is printed, and that one must be chosen."""
    before = contents(damaged)
    for arguments in ((), ("--json",)):
        code, out, err = cli("repair", damaged, "--apply", *arguments)
        assert code == 2
        assert all(mode in out for mode in ("prefix", "salvage", "accept-edits"))
        assert "nothing was changed: these modes keep different records, choose one with --mode" in err
        assert contents(damaged) == before


def test_apply_at_a_terminal_asks(damaged: str) -> None:
    """A person sees what each mode keeps, and chooses; what is no mode changes nothing."""
    command = [sys.executable, "-m", "transcript_store", "repair", damaged, "--apply"]
    before = contents(damaged)
    for answer, code, records in (("\r", 2, None), ("salvage\r", 0, 3)):
        with Terminal(command, ENVIRONMENT) as terminal:
            terminal.wait_for("which of them (prefix, salvage, accept-edits)? ")
            assert "accept-edits: would keep 4 records" in terminal.text
            terminal.type(answer)
            assert terminal.end() == code
        if records is None:
            assert contents(damaged) == before
    with ConversationStore(damaged, read_only=True) as store:
        store.load()
        assert len(store.get_messages()) == records


def test_modes_that_come_to_the_same_need_no_choice(cli: Cli, tmp_path: Path) -> None:
    """Where only the metadata is lost, there is nothing to choose."""
    directory = conversation(tmp_path / "c", MESSAGES)
    (tmp_path / "c" / "metadata.json").unlink()
    assert cli("repair", directory, "--apply").code == 0
    assert cli("verify", directory).code == 0


def test_nothing_left_to_keep(cli: Cli, tmp_path: Path) -> None:
    """A mode that would keep no record at all is not called a repair; which mode would keep some is said."""
    directory = conversation(tmp_path / "c", MESSAGES)
    damage(tmp_path / "c", b'"format":"transcript-store"', b'"format":"transcript-stowe"')
    before = contents(directory)
    code, _, err = cli("repair", directory, "--mode", "prefix", "--apply")
    assert code == 1
    assert "prefix would keep none of its records; choose --mode salvage or --mode accept-edits" in err
    assert contents(directory) == before
    (tmp_path / "c" / "transcript.jsonl").write_bytes(b"\0" * 4096)
    code, _, err = cli("repair", directory, "--apply")
    assert code == 1
    assert "would keep none of its records; restore it from a backup" in err
    (tmp_path / "c" / "transcript.jsonl").unlink()
    assert cli("repair", directory, "--apply").code == 1


def test_a_repair_can_be_undone(cli: Cli, damaged: str) -> None:
    """The printed commands put the damaged files back, byte for byte; then another mode can be chosen."""
    before = Path(damaged, "transcript.jsonl").read_bytes()
    code, out, _ = cli("repair", damaged, "--mode", "prefix", "--apply")
    assert code == 0
    commands = re.findall(r"^  (cp -p .*)$", out, re.MULTILINE)
    assert commands
    for command in commands:
        subprocess.run(["/bin/sh", "-c", command], check=True)
    assert Path(damaged, "transcript.jsonl").read_bytes() == before
    assert cli("repair", damaged, "--mode", "accept-edits", "--apply").code == 0
    with ConversationStore(damaged, read_only=True) as store:
        store.load()
        assert len(store.get_messages()) == 4
        assert store.get_metadata().model == "m"


def test_the_undo_of_every_file(cli: Cli, tmp_path: Path) -> None:
    """So it is with metadata.json and with a generation in the archive."""
    directory = conversation(tmp_path / "c", MESSAGES)
    with ConversationStore(directory) as store:
        store.load()
        store.replace_transcript(MESSAGES[:1])
    for name in ("metadata.json", "archive/transcript-000000.jsonl", "transcript.jsonl"):
        path = tmp_path / "c" / name
        path.write_bytes(path.read_bytes().replace(b"message 1", b"MESSAGE 1").replace(b'"labels"', b'"LABELS"'))
    before = contents(directory)
    code, out, _ = cli("repair", directory, "--mode", "accept-edits", "--apply")
    assert code == 0
    for command in re.findall(r"^  (cp -p .*)$", out, re.MULTILINE):
        subprocess.run(["/bin/sh", "-c", command], check=True)
    after = contents(directory)
    assert {path: after[path] for path in before} == before


def test_a_torn_tail_is_told_of(cli: Cli, tmp_path: Path) -> None:
    """`show` and `list` say that one is there, and of how many bytes; once it is cut they say nothing."""
    library = ConversationLibrary(tmp_path)
    with library.create(messages=MESSAGES) as store:
        directory = Path(store.directory)
    size = (directory / "transcript.jsonl").stat().st_size
    tear(directory)
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        torn = store.torn_tail
        assert isinstance(torn, Gap)
        assert (torn.offset_bytes, torn.length_bytes) == (size, 29)
        assert store.get_messages() == MESSAGES
    (summary,) = library.list()
    assert (summary.damage, summary.torn_bytes, summary.record_count) == (None, 29, 5)
    code, out, err = cli("show", str(directory))
    assert code == 0
    assert "torn tail: 29 bytes after the last whole record" in err
    assert "message 5" in out
    assert "    torn tail: 29 bytes after the last whole record" in cli("list", str(tmp_path)).out
    with ConversationStore(directory) as store:
        store.load()
        assert store.torn_tail is None
    assert cli("show", str(directory)).err == ""
    assert [found.torn_bytes for found in list_conversations(tmp_path)] == [0]


def test_a_reader_that_reads_on_sees_a_torn_tail_come_and_go(tmp_path: Path) -> None:
    """What a reader says of the tail is what it saw at its last look."""
    directory = Path(conversation(tmp_path / "c", MESSAGES))
    with ConversationStore(directory, read_only=True) as reader:
        reader.load()
        assert reader.torn_tail is None
        tear(directory)
        reader.refresh()
        assert reader.torn_tail is not None
        with ConversationStore(directory) as store:
            store.load()
            store.append_message({"n": 6})
        reader.refresh()
        assert reader.torn_tail is None
        assert reader.get_messages()[-1] == {"n": 6}
