"""`transcript-store backup` and `restore`: each night's copy, the restored disk, and two machines merged into one.

First an engineer's way: a cron job, a pipe over ssh, a laptop whose projects stand in other folders than those of the server.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli
from tests.cli.helpers import ENVIRONMENT, Cli, damage
from tests.kit.messages import user_message
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store._conversation import archive
from transcript_store._os.directory import Folder
from transcript_store.backends import LibraryShipper, NotShipped
from transcript_store.cli._shared.health import StatusFile
from transcript_store.cli._shared.names import printable_name
from transcript_store.testing import SimulatedBackend

__all__ = ["a_cache_of_its_own", "cli"]
COMMAND = [sys.executable, "-m", "transcript_store"]


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    """Three conversations of a message, of two projects."""
    made = ConversationLibrary(tmp_path / "chats")
    for number in range(3):
        made.create(
            labels={"title": f"number {number}", "cwd": f"/Users/ada/{'web' if number else 'data'}"},
            messages=[user_message(f"a question {number}")],
        ).close()
    return made


def files_in(folder: str | Path) -> dict[str, bytes]:
    """The files of a folder by name, without locks."""
    root = Path(folder)
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def key_file(tmp_path: Path) -> str:
    path = tmp_path / "backup.key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("target", ["copy", "chats.backup", "folder/"])
def test_a_copy_again_and_back(cli: Cli, library: ConversationLibrary, tmp_path: Path, target: str) -> None:
    """All of it, then what is new, then nothing; and back to the byte, once, whatever is restored again."""
    to = f"{tmp_path}/{target}"
    code, out, err = cli("backup", library.directory, to)
    assert (code, "3 new" in out, err.startswith(f"transcript-store: from {library.directory} to the ")) == (
        0,
        True,
        True,
    )
    with library[library.list()[0].id or ""] as conversation:
        conversation.append_message(user_message("more"))
    code, out, _ = cli("backup", library.directory, to)
    assert (code, out.count("1 record added"), "1 grew, 2 unchanged" in out) == (0, 1, True)
    assert "0 records copied" in cli("backup", library.directory, to).out
    back = str(tmp_path / "back")
    assert "3 new" in cli("restore", to, back).out
    assert files_in(back) == files_in(library.directory)
    assert "3 unchanged" in cli("restore", to, back).out
    if target != "chats.backup":
        assert cli("list", to).out.count("number") == 3
        assert cli("verify", to).code == 0


def test_a_key_seals_it(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """A file as a whole; in a folder one file; without the key it says what is needed."""
    key = key_file(tmp_path)
    for target in ("sealed.backup", "folder"):
        to = f"{tmp_path}/{target}"
        assert cli("backup", library.directory, to, "--key-file", key).code == 0
        assert not any(b"question" in data for data in _contents(Path(to)))
        code, _, err = cli("restore", to, f"{to}-back")
        assert (code, "the backup is sealed, and no key was given" in err) == (1, True)
        assert cli("restore", to, f"{to}-back", "--key-file", key).code == 0
        assert files_in(f"{to}-back") == files_in(library.directory)
    assert cli("backup", library.directory, "postgresql://db.example/agents", "--key-file", key).code == 2


def _contents(path: Path) -> list[bytes]:
    return [path.read_bytes()] if path.is_file() else [each.read_bytes() for each in path.rglob("*") if each.is_file()]


def test_a_key_that_is_missing_comes_and_one_that_is_there_stays(cli: Cli, tmp_path: Path) -> None:
    """A library that lost its key files gets them back, even if it has continued; a rotated key stays."""
    old, new = key_file(tmp_path), str(tmp_path / "new.key")
    chats, copy, without = (str(tmp_path / name) for name in ("chats", "copy", "without"))
    key = Path(old).read_bytes()
    with ConversationLibrary(chats, encryption_key=key).create(messages=[user_message("a")]) as conversation:
        own_id = str(conversation.id)
    assert cli("backup", chats, copy).code == 0
    assert "came without key.json" in cli("backup", chats, without, "--without-keys").err
    for _ in range(2):
        code, _, err = cli("restore", copy, without)
        assert (code, "key.json" in err) == (0, False)
        assert cli("verify", without, "--key-file", old).code == 0
    assert files_in(without) == files_in(copy)

    with ConversationLibrary(chats, encryption_key=key).open(own_id) as conversation:
        conversation.append_message(user_message("b"))
    whole = files_in(chats)
    (Path(chats) / own_id / "key.json").unlink()
    assert "1 grew" in cli("restore", copy, chats).out
    assert files_in(chats) == whole

    assert cli("new-key", new).code == 0
    assert cli("rotate-key", chats, "--key-file", old, "--new-key-file", new).code == 0
    rotated = files_in(chats)
    assert "1 unchanged" in cli("restore", copy, chats).out
    assert files_in(chats) == rotated


def test_a_backup_of_an_address_in_a_folder(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """What is on a backend is copied into a folder as into a file."""
    at, to = f"memory:///{uuid.uuid4().hex}", str(tmp_path / "copy")
    assert cli("backup", library.directory, at).code == 0
    assert "3 new" in cli("backup", at, to).out
    assert "3 unchanged" in cli("backup", at, to).out
    assert cli("verify", to).code == 0


def test_chosen_ones_and_their_folders_here(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """A query chooses; `--cwd` names the folder that a project has here, also when it is given later, and restored twice is once."""
    to, back = str(tmp_path / "web.backup"), str(tmp_path / "back")
    assert "2 new" in cli("backup", library.directory, to, "--project", "web").out
    assert cli("restore", to, back).code == 0
    moved = ("--cwd", "/Users/ada=/home/ada", "--cwd", "/Users/adam=/home/adam")
    for _ in range(2):
        assert cli("restore", to, back, *moved).code == 0
        found = [json.loads(line) for line in cli("list", back, "--json").out.splitlines()]
        assert [one["labels"]["cwd"] for one in found] == ["/home/ada/web"] * 2
    before = files_in(back)
    cli("restore", to, back, *moved)
    assert files_in(back) == before
    assert cli("restore", to, back, "--cwd", "nowhere").code == 2
    code, _, err = cli("restore", to, back, "--only", str(uuid.uuid4()))
    assert (code, "there is no such conversation" in err) == (1, True)


def test_two_machines_become_one(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """A diverged conversation is reported, listed, and is a fork of the right origin."""
    laptop = str(tmp_path / "laptop")
    cli("backup", library.directory, laptop)
    parted = library.list()[0].id or ""
    for directory, text in ((library.directory, "here"), (laptop, "there")):
        with ConversationLibrary(directory).open(parted) as conversation:
            conversation.append_message(user_message(text))
    code, out, _ = cli("restore", laptop, library.directory)
    assert (code, f"a copy, because {parted} diverged there" in out) == (0, True)
    assert "1 of them as copies of conversations that diverged" in out
    assert len(library.list()) == 4
    assert "4 conversations" in cli("backup", library.directory, str(tmp_path / "again")).out


def test_a_damaged_one_does_not_stop_the_others(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """It is named with its hint, the exit code is 1, and what the backup has of it stays."""
    to = str(tmp_path / "copy")
    cli("backup", library.directory, to)
    before = files_in(to)
    broken = library.list()[0].id or ""
    damage(Path(library.directory) / broken, b"a question", b"a quostion")
    code, out, err = cli("backup", library.directory, to)
    assert (code, "2 unchanged, 1 failed" in out, f"{broken}/transcript.jsonl" in err) == (1, True, True)
    assert files_in(to) == before


def test_what_makes_no_sense_is_refused(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """The library itself, nothing there, a file that is no backup, two addresses: a sentence, and nothing is written."""
    own = library.directory
    (tmp_path / "notes.txt").write_text("of nobody's\n")
    for code, *words in (
        (2, "backup", own, own),
        (2, "restore", own, own),
        (2, "restore", own, "s3://bucket/x"),
        (1, "restore", str(tmp_path / "nothing"), str(tmp_path / "new")),
        (1, "restore", str(tmp_path / "notes.txt"), str(tmp_path / "new")),
        (1, "backup", str(tmp_path / "nothing"), str(tmp_path / "new")),
        (2, "backup", str(tmp_path / "notes.txt"), str(tmp_path / "new")),
        (1, "backup", own, str(tmp_path / "notes.txt")),
    ):
        found = cli(*words)
        assert (found.code, found.out) == (code, ""), (words, found)
        assert not (tmp_path / "new").exists(), words
    assert (tmp_path / "notes.txt").read_text() == "of nobody's\n"
    (tmp_path / "empty").mkdir()
    for code, command in ((1, "restore"), (0, "backup")):  # a new library is backed up, and has nothing to give back
        found = cli(command, str(tmp_path / "empty"), str(tmp_path / "new"))
        assert (found.code, "there is no conversation in it" in found.err) == (code, True), found


@pytest.mark.long
def test_a_folder_of_a_project_is_no_backup(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """The incident: folders with ids were put among the files of a project."""
    project = tmp_path / "garden"
    project.mkdir()
    (project / "notes.txt").write_text("pears: 5")
    answer = cli("backup", library.directory, str(project))
    assert (answer.code, "has other files, and no conversation" in answer.err) == (2, True), answer.err
    assert [*files_in(project)] == ["notes.txt"]
    (project / "notes.txt").unlink()
    for _ in range(2):
        assert cli("backup", library.directory, str(project)).code == 0


@pytest.mark.parametrize("option", ["--json", "--no-key"])
def test_a_backup_means_the_library_of_chat_if_none_is_named(
    cli: Cli, library: ConversationLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Of two words around an option, the first is still the library that is copied, or the backup that is restored."""
    monkeypatch.chdir(tmp_path)
    default = tmp_path / "named"
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(default))
    assert cli("backup", "copy").code == 1  # there is no library yet
    assert cli("restore", "chats", option).code == 0
    code, _, err = cli("backup", "copy")
    assert (code, f"from {default} to the folder copy" in err) == (0, True)
    ids = {summary.id for summary in library.list()}
    assert {summary.id for summary in ConversationLibrary(default).list()} == ids
    assert {summary.id for summary in ConversationLibrary("copy").list()} == ids
    assert cli("backup", "copy", option, "second").code == cli("restore", "second", option, "third").code == 0
    assert {summary.id for summary in ConversationLibrary("third").list()} == ids
    assert cli("ship", "copy").err.endswith("`backup` copies to a folder or a file\n")
    assert "unrecognized arguments: more" in cli("backup", "copy", "second", "more").err


def test_through_a_pipe(library: ConversationLibrary, tmp_path: Path) -> None:
    """One process writes, another reads; a broken pipe is reported, and the next run completes the copy."""
    back = str(tmp_path / "back")
    writes = subprocess.run([*COMMAND, "backup", library.directory, "-"], capture_output=True, check=True)
    assert b"3 new" in writes.stderr
    cut = writes.stdout[: len(writes.stdout) * 2 // 3]
    reads = subprocess.run([*COMMAND, "restore", "-", back], input=cut, capture_output=True, check=False)
    assert (reads.returncode, b"is cut off" in reads.stderr) == (1, True)
    reads = subprocess.run([*COMMAND, "restore", "-", back], input=writes.stdout, capture_output=True, check=True)
    assert files_in(back) == files_in(library.directory)
    reads = subprocess.run([*COMMAND, "restore", "-", back], input=b"", capture_output=True, check=False)
    assert (reads.returncode, b"Traceback" in reads.stderr) == (1, False)


@pytest.mark.parametrize(
    "words",
    [
        ("--filter", "titel:number"),
        ("--filter", "after:yesterdya"),
        ("--filter", "*"),
        ("--filter", ""),
        ("--filter", "in:all"),
        ("--filter", "in:text"),
        ("--filter", "role:user"),
        ("--filter", "OR"),
        ("--filter", "title:a OR title:b"),
        ("--filter", 'title:""'),
        ("--label", ""),
    ],
)
def test_a_filter_that_says_nothing_chooses_nothing(
    cli: Cli, library: ConversationLibrary, tmp_path: Path, words: tuple[str, str]
) -> None:
    """A mistyped filter was ignored: a backup to give away had every conversation, and exit code 0."""
    code, out, err = cli("backup", library.directory, str(tmp_path / "given-away"), *words)
    assert (code, out, "nothing was copied" in err) == (2, "", True)
    assert not (tmp_path / "given-away").exists()


def test_a_status_file_that_cannot_be_written_is_named(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """A full disk under it was "cannot continue: No space left on device", as if the target of the backup were full."""
    (folder := tmp_path / "status").mkdir()
    code, _, err = cli("backup", library.directory, str(tmp_path / "copy"), "--status-file", str(folder))
    assert (code, err) == (1, f"transcript-store: cannot continue: {folder}: Is a directory\n")


def test_the_status_file_is_what_prometheus_reads(cli: Cli, library: ConversationLibrary, tmp_path: Path) -> None:
    """Readable by the exporter's user, replaced as a whole, with the last success and what fails."""
    status = tmp_path / "backup.prom"
    assert cli("backup", library.directory, str(tmp_path / "copy"), "--status-file", str(status)).code == 0
    values = _values(status)
    assert values["records_total"] == 3
    assert values["failing_conversations"] == 0
    assert values["last_success_timestamp_seconds"] == values["last_round_timestamp_seconds"] > 1e9
    assert status.stat().st_mode & 0o777 == 0o644
    for _ in range(2):  # one in which nothing is new is a success, too
        before = values["last_success_timestamp_seconds"]
        assert cli("backup", library.directory, str(tmp_path / "copy"), "--status-file", str(status)).code == 0
        values = _values(status)
        assert values["last_success_timestamp_seconds"] > before
    damage(Path(library.directory) / (library.list()[0].id or ""), b"a question", b"a quostion")
    cli("backup", library.directory, str(tmp_path / "copy"), "--status-file", str(status))
    after = _values(status)
    assert after["failing_conversations"] == 1
    assert after["last_success_timestamp_seconds"] == values["last_success_timestamp_seconds"]
    assert after["last_round_timestamp_seconds"] > after["last_success_timestamp_seconds"]
    # An error that ends a command is a failed round, too, and a later start does not hide it.
    for command, source, target in (
        ("backup", str(tmp_path / "nowhere"), str(tmp_path / "copy")),
        ("backup", library.directory, str(tmp_path / "copy/key.json/x")),
        ("ship", str(tmp_path / "nowhere"), f"memory:///{uuid.uuid4().hex}"),
    ):
        ended = tmp_path / "ended.prom"
        assert cli(command, source, target, "--status-file", str(ended)).code == 1, command
        values = _values(ended)
        assert (values["failing_conversations"], values["last_success_timestamp_seconds"]) == (1, 0), command
        StatusFile(str(ended), command, source=printable_name(source), target=printable_name(target))
        assert _values(ended)["failing_conversations"] == 1
        ended.unlink()
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["backup.prom"]
    assert cli("backup", library.directory, str(tmp_path / "copy"), "--status-file", "/nowhere/x.prom").code == 1


def _values(status: Path) -> dict[str, float]:
    lines = [line for line in status.read_text().splitlines() if not line.startswith("#")]
    return {line.partition("{")[0].removeprefix("transcript_store_"): float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize("target", ["copy", "chats.backup"])
def test_folders_with_names_of_their_own_keep_them(cli: Cli, tmp_path: Path, target: str) -> None:
    """An agent opens `agent/main`, and finds it again; a name that is taken by another conversation falls back to the id."""
    for name in ("main", "Ünicode name", "bad\nname"):
        with ConversationStore(tmp_path / "agent" / name) as conversation:
            conversation.initialize(messages=[user_message(name)])
    to, back = str(tmp_path / target), tmp_path / "back"
    for _ in range(2):
        assert cli("backup", str(tmp_path / "agent"), to).code == 0
        assert cli("restore", to, str(back)).code == 0
        assert sorted(path.name for path in back.iterdir())[1:] == ["main", "Ünicode name"]
        assert len([*back.iterdir()]) == 3
    assert files_in(back / "main") == files_in(tmp_path / "agent/main")
    other = tmp_path / "other"
    with ConversationStore(other / "main") as conversation:
        conversation.initialize(messages=[user_message("another")])
        before = files_in(other / "main")
    assert cli("restore", to, str(other)).code == 0
    assert len([*other.iterdir()]) == 4
    assert files_in(other / "main").keys() == before.keys()
    assert cli("backup", str(tmp_path / "agent/main"), str(tmp_path / "one")).code == 0
    assert files_in(tmp_path / "one/main") == files_in(tmp_path / "agent/main")


@pytest.mark.parametrize("target", ["copies", "one.backup"])
def test_a_conversation_that_cannot_be_copied_is_named_and_stops_no_other(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """One lost its transcript: it had been passed over with exit code 0. The archive of another one was closed to this user, which
    had ended the whole backup. A folder of another program is no conversation.
    """
    first, second, third = sorted((str(each.id) for each in library.list()), key=uuid.UUID)
    os.unlink(tmp_path / "chats" / first / "transcript.jsonl")
    (tmp_path / "chats" / "package").mkdir()
    (tmp_path / "chats" / "package" / "metadata.json").write_text('{"name": "of another program"}')
    true_numbers = archive.numbers

    def numbers(folder: Folder) -> list[int]:
        if folder.path.endswith(second):
            raise PermissionError(errno.EACCES, "Permission denied")
        return true_numbers(folder)

    with monkeypatch.context() as patch:
        patch.setattr(archive, "numbers", numbers)
        done = cli("backup", library.directory, str(tmp_path / target))
    assert (done.code, first in done.err, second in done.err, "package" in done.err) == (1, True, True, False)
    assert cli("restore", str(tmp_path / target), str(tmp_path / "back")).code == 0
    assert [str(each.id) for each in ConversationLibrary(tmp_path / "back").list()] == [third]


@pytest.mark.parametrize("target", ["copies", "one.backup"])
def test_a_folder_with_nothing_but_generations_or_a_quarantine_is_named(
    cli: Cli, tmp_path: Path, library: ConversationLibrary, target: str
) -> None:
    """Both the transcript and metadata.json are lost: it was passed over with exit code 0, and an archive may have all messages."""
    first, second, third = sorted((str(one.id) for one in library.list()), key=uuid.UUID)
    for each in (first, second):
        with library.open(each) as conversation:
            conversation.replace_transcript([user_message("again")])
    quarantine = tmp_path / "chats" / second / "quarantine"
    quarantine.mkdir()
    with (tmp_path / "chats" / second / "transcript.jsonl").open("ab") as file:
        file.write(b"torn")
    library.open(second).close()
    shutil.rmtree(tmp_path / "chats" / second / "archive")
    for each in (first, second):
        for name in ("transcript.jsonl", "metadata.json"):
            os.unlink(tmp_path / "chats" / each / name)
    (tmp_path / "chats" / "package" / "archive").mkdir(parents=True)
    (tmp_path / "chats" / "package" / "archive" / "1.zip").write_text("of another program")
    done = cli("backup", library.directory, str(tmp_path / target))
    assert (done.code, first in done.err, second in done.err, "package" in done.err) == (1, True, True, False)
    assert cli("restore", str(tmp_path / target), str(tmp_path / "back")).code == 0
    assert [str(one.id) for one in ConversationLibrary(tmp_path / "back").list()] == [third]


def test_a_stream_that_is_closed_is_an_error_of_ours(tmp_path: Path, library: ConversationLibrary) -> None:
    for command, said in (
        (f"backup '{library.directory}' - 2>&1 >&-", "writes a stream to standard output"),
        (f"restore - '{tmp_path}/restored' 2>&1 <&-", "standard input is cut off"),
    ):
        shell = ["/bin/sh", "-c", f"'{sys.executable}' -m transcript_store {command} | cat"]
        assert said in subprocess.run(shell, capture_output=True, text=True, check=False, env=ENVIRONMENT).stdout


def test_a_shipper_names_a_conversation_without_its_transcript(library: ConversationLibrary) -> None:
    """It had been passed over, as by `backup`."""
    one = next(iter(library.list())).directory
    os.unlink(Path(one, "transcript.jsonl"))
    with LibraryShipper(library.directory, SimulatedBackend()) as shipper:
        reports = [*shipper.send()]
    assert [report.directory for report in reports if isinstance(report, NotShipped)] == [one]
    assert len(reports) == 3


@pytest.mark.parametrize("target", ["copies", "one.backup"])
def test_a_folder_whose_name_starts_with_a_dot_is_copied(cli: Cli, tmp_path: Path, target: str) -> None:
    """`record` accepts the name, so a backup must not pass over it; what a killed delete left is no conversation."""
    source = tmp_path / "agent"
    for name in ("main", ".main", f".trash-{0:032x}"):
        with ConversationStore(source / name) as conversation:
            conversation.initialize(messages=[user_message(name)])
    done = cli("backup", str(source), str(tmp_path / target))
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "2 conversations: 2 new, 0 grew, 0 unchanged; 2 records copied, and verified",
    )
    assert cli("restore", str(tmp_path / target), str(tmp_path / "back")).out.count("1 record\n") == 2


def test_a_shipper_sends_a_folder_whose_name_starts_with_a_dot(tmp_path: Path) -> None:
    with ConversationStore(tmp_path / ".main") as conversation:
        conversation.initialize(messages=[user_message("hi")])
    with LibraryShipper(tmp_path, SimulatedBackend()) as shipper:
        reports = [*shipper.send()]
    assert [isinstance(one, NotShipped) for one in reports] == [False]


@pytest.mark.parametrize("inside", ["", "/sub", "/sub.backup"])
def test_a_library_is_not_backed_up_into_itself(
    cli: Cli, library: ConversationLibrary, tmp_path: Path, inside: str
) -> None:
    """There the copy would be lost with the library; a link to it is no other place."""
    (tmp_path / "link").symlink_to(library.directory)
    before = files_in(tmp_path)
    for name in (library.directory, str(tmp_path / "link")):
        done = cli("backup", library.directory, f"{name}{inside}")
        assert (done.code, "name a place outside of it" in done.err) == (2, True)
    assert files_in(tmp_path) == before


def test_a_stream_that_cannot_be_kept_names_the_folder(library: ConversationLibrary, tmp_path: Path) -> None:
    backup = subprocess.run(
        [*COMMAND, "backup", library.directory, "-"], check=True, capture_output=True, env=ENVIRONMENT
    )
    program = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    program += "runpy.run_module('transcript_store', run_name='__main__')"
    command = [sys.executable, "-c", program, "restore", "-", str(tmp_path / "back")]
    done = subprocess.run(command, check=False, input=backup.stdout, capture_output=True, env=ENVIRONMENT)
    assert done.returncode == 1
    assert f"{tmp_path}/back: cannot keep the stream there".encode() in done.stderr
    assert b"ulimit -f" in done.stderr
    assert list((tmp_path / "back").iterdir()) == []
