"""P20: ``rescue.py`` outlives this project: one file, at most 100 lines, Python alone, and the same messages as the library.

It shares no line with the library. What it prints is held against what the library reads, and against the oracle of repairs.
"""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.damage import KINDS, Randomly
from tests.kit.oracle_of_repair import Salvage, of_line
from tests.kit.scratch import scratch_directory
from transcript_store import ConversationStore, rescue, salvage

PROGRAM = Path(rescue.__file__)
GOLDEN = sorted(path for path in (Path(__file__).parent / "compat/v1").iterdir() if path.is_dir())


def rescued(path: Path) -> tuple[list[str], str, int]:
    """What it prints, what it complains of, and its exit status; run as a copy, beside no package of anybody's."""
    with scratch_directory() as folder:
        copy = shutil.copy(PROGRAM, folder)
        done = subprocess.run(
            [sys.executable, "-I", "-S", copy, path], capture_output=True, text=True, check=False, timeout=60
        )
    return done.stdout.split("\n")[:-1], done.stderr, done.returncode


def test_it_is_one_short_file_of_python_alone() -> None:
    source = PROGRAM.read_text()
    assert source.count("\n") <= 100
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported <= sys.stdlib_module_names
    assert (Path(__file__).parent.parent / "docs/rescue.py").read_text() == source


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda path: path.name)
def test_a_golden_conversation(folder: Path) -> None:
    """The messages of version 1, byte for byte as in their lines; of a torn line, what the library keeps."""
    known = json.loads(folder.with_suffix(".json").read_text())
    printed, complaints, status = rescued(folder)
    if known["conversation"] is None:
        assert (printed, status) == ([], 1)
        assert "no such file" in complaints
        return
    messages = known["conversation"]["messages"]
    assert [json.loads(line) for line in printed][: len(messages)] == messages
    transcript = (folder / "transcript.jsonl").read_text()
    assert all(f'"message":{line}' in transcript for line in printed)
    unfinished = folder.name == "half-a-batch"  # it prints those too, and says so
    assert (len(printed) > len(messages)) == unfinished == ("never acknowledged" in complaints)
    assert status == bool(complaints) == bool(known["findings"])


@pytest.mark.parametrize("folder", [path for path in GOLDEN if (path / "archive").is_dir()], ids=lambda path: path.name)
def test_an_archived_generation(folder: Path) -> None:
    with ConversationStore(folder, read_only=True) as store:
        store.load()
        for file in sorted((folder / "archive").iterdir()):
            printed, complaints, status = rescued(file)
            records = store.get_records(generation=int(file.stem[-6:]))
            counting = [one.message for one in records if one.message is not None and not one.is_retracted]
            assert [json.loads(line) for line in printed] == counting
            assert (complaints, status) == ("", 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [pytest.param(20, id="20"), pytest.param(500, id="500", marks=pytest.mark.long)])
def test_a_damaged_transcript(kind: str, count: int) -> None:
    """It keeps what a repair with ``salvage`` keeps, and says so wherever that leaves a gap."""
    with scratch_directory() as directory:
        randomly = Randomly(20261123, directory)
        for number in range(count):
            data = getattr(randomly, kind)()
            transcript = rescue.Transcript()
            lines = enumerate(io.BytesIO(data), 1)
            found = [of_line(record) for at, line in lines for record in transcript.records(line, at)]
            kept = Salvage(data, "salvage", "").items
            assert found == [item for item in kept if item is not None], f"{kind} {number}"
            assert transcript.missing or None not in kept


def test_a_damaged_folder_as_the_library_salvages_it(tmp_path: Path) -> None:
    """The same of the whole program, beside the library's own call."""
    randomly = Randomly(7, str(tmp_path))
    for number, kind in enumerate(KINDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "metadata.json").write_bytes(randomly.metadata)
        (folder / "transcript.jsonl").write_bytes(getattr(randomly, kind)())
        printed, complaints, status = rescued(folder)
        whole = [one.record for one in salvage(folder).found if one.record is not None and one.damage is None]
        assert [json.loads(line) for line in printed] == [one.message for one in whole if one.message is not None]
        assert status == bool(complaints)


def test_a_lost_end_is_said(tmp_path: Path) -> None:
    """Every line verifies, and fewer are there than were synced; a metadata.json that is gone is said too."""
    with ConversationStore(tmp_path / "chat") as store:
        store.initialize(provider="claude")
        store.append_messages([{"role": "user", "content": "one"}])
        store.append_message({"role": "user", "content": "two"})
    file = tmp_path / "chat/transcript.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    printed, complaints, status = rescued(tmp_path / "chat")
    assert (len(printed), status) == (1, 1)
    assert "there were 2 records at least" in complaints
    (tmp_path / "chat/metadata.json").unlink()
    assert "metadata.json cannot be read" in rescued(tmp_path / "chat")[1]


def test_a_total_loss_is_said(tmp_path: Path) -> None:
    """A transcript that was emptied, or lost its beginning and its end: the mark remembers; of a lone file the header is missed.

    It printed nothing, and its exit status said that all was well.
    """
    with ConversationStore(tmp_path / "chat") as store:
        store.initialize(provider="claude", messages=[{"role": "user", "content": str(n)} for n in range(6)])
    file = tmp_path / "chat/transcript.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    for left, count in (([], 0), ([b"\n"], 0), (lines[:1], 0), (lines[1:-1], 5)):
        file.write_bytes(b"".join(left))
        printed, complaints, status = rescued(tmp_path / "chat")
        assert (len(printed), status) == (count if left != lines[1:-1] else len(printed), 1)
        assert "there were 6 records at least" in complaints
    file.write_bytes(b"")
    assert rescued(file)[1:] == ("line 1: there is no header\n", 1)


def test_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    previous = b"0" * 32
    body = b'{"format":"transcript-store","version":2,"conversation":"x"'
    (tmp_path / "file").write_bytes(body + b',"hash":"' + rescue.chained(previous, body) + b'"}\n')
    printed, complaints, status = rescued(tmp_path / "file")
    assert (printed, status) == ([], 1)
    assert "a later version" in complaints


def test_a_sealed_one_is_not_said_to_be_of_a_later_version_alone(tmp_path: Path) -> None:
    with ConversationStore(tmp_path / "chat", encryption_key=bytes(range(32))) as store:
        store.initialize(messages=[{"role": "user", "content": "a secret"}])
    printed, complaints, status = rescued(tmp_path / "chat")
    assert (printed, status) == ([], 1)
    assert complaints.startswith("it is sealed, or a later version ")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-16"])
def test_what_is_printed_is_utf_8_whatever_the_system_s_encoding_is(tmp_path: Path, encoding: str) -> None:
    """The incident: it ended, with a traceback, at the first character that the code page of a Windows machine lacks."""
    with ConversationStore(tmp_path / "chat") as store:
        store.initialize(messages=[{"t": "one"}, {"t": "a \u2192 b"}, {"t": "\U0001f600"}])
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "chat"], capture_output=True, timeout=60, check=True, env=environment
    )
    assert done.stdout == '{"t":"one"}\n{"t":"a \u2192 b"}\n{"t":"\U0001f600"}\n'.encode()


def test_a_terminal_gets_no_control_characters(tmp_path: Path) -> None:
    """P18: what a message holds is data; a pipe gets it as it is."""
    with ConversationStore(tmp_path / "chat") as store:
        store.initialize(provider="claude")
        store.append_message({"role": "user", "content": "\x9b2J\u202e\x7f"})
    mine, its = pty.openpty()
    subprocess.run([sys.executable, PROGRAM, tmp_path / "chat"], stdout=its, check=True, timeout=60)
    os.close(its)
    shown = os.read(mine, 4096)
    os.close(mine)
    assert b"\\u009b2J\\u202e" in shown
    assert shown.isascii()


def test_misuse_says_what_to_give() -> None:
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "rescue.py FOLDER|FILE" in done.stderr


@pytest.mark.parametrize("what", ["a library", "a FIFO", "nothing"])
def test_what_is_no_transcript_is_said(tmp_path: Path, what: str) -> None:
    """A folder of conversations, or a pipe without a writer: an error with a hint, and no waiting."""
    path = tmp_path / "it"
    if what == "a library":
        ConversationStore(path / "one").initialize()
    elif what == "a FIFO":
        os.mkfifo(path)
    done = subprocess.run([sys.executable, PROGRAM, path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pass the folder of one conversation, or its transcript.jsonl" in done.stderr
