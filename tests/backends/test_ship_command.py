"""`transcript-store ship`: each night's copy, a copy that keeps up, and the restored disk.

Two notebooks shared a bucket for their copies. One evening the server answered nothing; a program that stopped at the first error had copied the
three conversations whose names came first, and said so nowhere. So each conversation is told of, by itself, and what is left is a number.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.servers import KEY, SECRET, seaweedfs
from tests.cli.conftest import a_cache_of_its_own, cli
from tests.cli.helpers import Cli, damage
from tests.kit.messages import user_message
from tests.kit.postgres import PASSWORD, USER, PostgresServer
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.backends import open_backend, restore, ship, ship_library
from transcript_store.cli._shared.names import backend_at

__all__ = ["a_cache_of_its_own", "cli"]
LONG = pytest.mark.long


@pytest.fixture
def backend() -> str:
    """The address of a new object store in memory, which lives as long as this process."""
    return f"memory:///{uuid.uuid4().hex}"


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    """Three conversations of two messages each."""
    made = ConversationLibrary(tmp_path / "chats")
    for number in range(3):
        with made.create(labels={"title": f"number {number}"}, messages=[user_message("a question")]) as conversation:
            conversation.append_message(user_message("an answer"))
    return made


def files_in(folder: str | Path) -> dict[str, bytes]:
    """The files of a folder by name, without locks."""
    root = Path(folder)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


# ---- there and back --------------------------------------------------------------------------------------------------------


def test_a_library_goes_there_and_comes_back(
    cli: Cli, library: ConversationLibrary, backend: str, tmp_path: Path
) -> None:
    """What is not there yet, all of it sent, nothing new, and the folders again: file for file."""
    code, out, _ = cli("ship", library.directory, backend, "--dry-run")
    assert (code, out.count("2 records"), out.count("still to send")) == (0, 3, 3)
    code, out, err = cli("ship", library.directory, backend)
    assert (code, out.count("2 records"), out.count(" sent")) == (0, 3, 3)
    assert err == f"transcript-store: from {library.directory} to {backend}\n"
    assert cli("ship", library.directory, backend).out.count("nothing new") == 3
    assert cli("ship", library.directory, backend, "--dry-run").out.count("up to date") == 3
    assert cli("list", backend).out.count("number") == 3
    code, out, err = cli("restore", backend, str(tmp_path / "restored"))
    assert (code, out.count("  2 records\n")) == (0, 3)
    assert err == f"transcript-store: from {backend} to {tmp_path}/restored\n"
    assert files_in(tmp_path / "restored") == files_in(library.directory)
    assert "3 unchanged; 0 records restored" in cli("restore", backend, str(tmp_path / "restored")).out


def test_one_conversation_goes_and_comes_by_its_name(
    cli: Cli, library: ConversationLibrary, backend: str, tmp_path: Path
) -> None:
    """The beginning of its id, or ``last``, as all commands take it; what came of it as JSON."""
    newest = library.list()[0]
    name = f"{library.directory}/{(newest.id or '')[:8]}"
    told = json.loads(cli("ship", name, backend, "--json").out)
    assert (told["id"], told["sent_records"], told["left_records"]) == (newest.id, 2, 0)
    told = json.loads(cli("restore", f"{backend}/last", str(tmp_path / "back"), "--json").out)
    assert (told["id"], told["is_new"]) == (newest.id, True)
    assert files_in(tmp_path / "back" / str(newest.id)) == files_in(newest.directory)


def test_folders_that_are_behind_continue(cli: Cli, library: ConversationLibrary, backend: str, tmp_path: Path) -> None:
    """One got a record, one a generation, the third nothing; then one of the folders continues by itself, and stays ahead."""
    restored = str(tmp_path / "restored")
    cli("ship", library.directory, backend)
    cli("restore", backend, restored)
    first, second, _ = sorted(summary.id or "" for summary in library.list())
    with library.open(first) as conversation:
        conversation.append_message(user_message("more"))
    with library.open(second) as conversation:
        conversation.replace_transcript([user_message("summary"), user_message("and more")])
    cli("ship", library.directory, backend)
    code, out, err = cli("restore", backend, restored)
    assert (code, err.count("\n")) == (0, 1)
    assert [line.partition("  ")[2] for line in out.splitlines()[:2]] == ["1 record added", "2 records added"]
    assert "0 new, 2 grew, 1 unchanged" in out
    assert files_in(restored) == files_in(library.directory)
    with ConversationLibrary(restored).open(first) as conversation:
        conversation.append_message(user_message("of here alone"))
    code, out, err = cli("restore", backend, restored)
    assert (code, len(out.splitlines())) == (0, 1)
    with ConversationLibrary(restored).open(first) as conversation:
        assert conversation.get_messages()[-1] == user_message("of here alone")


def test_one_that_cannot_go_does_not_stop_the_others(
    cli: Cli, library: ConversationLibrary, backend: str, tmp_path: Path
) -> None:
    """One is damaged, one continued on the backend: each error has its hint, the third is sent, and the exit code is 1."""
    broken, parted, whole = sorted(summary.id or "" for summary in library.list())
    ship(f"{library.directory}/{parted}", backend_at(backend))
    with ConversationLibrary(backend_at(backend)).open(parted) as other:
        other.append_message(user_message("there"))
    with library.open(parted) as here:
        here.append_message(user_message("here"))
    damage(Path(library.directory) / broken, b"a question", b"a quostion")
    code, out, err = cli("ship", library.directory, backend)
    assert code == 1
    assert out.startswith(whole)
    assert len(out.splitlines()) == 1
    assert f"{broken}/transcript.jsonl" in err
    assert "is not an earlier state of it" in err
    assert "ship it to another backend" in err
    (Path(library.directory) / "notes.txt").write_text("of nobody's")
    reports = {Path(report.directory).name: report for report in ship_library(library.directory, backend_at(backend))}
    assert [type(reports[each]).__name__ for each in (broken, parted, whole)] == ["NotShipped", "NotShipped", "Shipped"]
    code, out, err = cli("restore", backend, library.directory)
    assert (code, out.count(f"a copy, because {parted} diverged there")) == (0, 1)


def test_what_makes_no_sense_is_refused(cli: Cli, library: ConversationLibrary, backend: str, tmp_path: Path) -> None:
    """Two folders, two backends, an id after the backend, a watch that sends nothing: exit code 2, and no password in the error."""
    secret = "postgresql://lovelace:s3cret@db.example/agents"
    one = library.list()[0].id
    for words in (
        (library.directory, str(tmp_path / "back")),
        (secret, secret),
        (library.directory, f"{secret}/{one}"),
        (library.directory, backend, "--follow", "--dry-run"),
        (f"{backend}/{one}", str(tmp_path / "back")),
        (library.directory, backend, "--every", "soon"),
    ):
        code, out, err = cli("ship", *words)
        assert (code, out) == (2, "")
        assert "s3cret" not in err
        assert "lovelace" not in err
    assert cli("ship", str(tmp_path / "nowhere"), backend).code == 1
    assert cli("restore", secret, secret).code == 2
    assert cli("restore", f"{backend}/{one}", str(tmp_path / "back")).code == 1
    assert not list((tmp_path / "back").glob("*"))


def test_a_sealed_conversation_says_that_its_key_stays(cli: Cli, backend: str, tmp_path: Path) -> None:
    """Without ``--with-key`` the copy is reported as unreadable; neither way needs a key."""
    sealed = ConversationLibrary(tmp_path / "chats", encryption_key=bytes(range(32)))
    sealed.create(messages=[user_message("a secret")]).close()
    sealed.create(messages=[user_message("another secret")]).close()
    told = cli("ship", sealed.directory, backend).err.splitlines()
    assert len(told) == 2  # where from and where to, and one line for all that are sealed
    assert "2 conversations are sealed" in told[1]
    assert "--with-key" in told[1]
    told = cli("restore", backend, str(tmp_path / "first")).err.splitlines()
    assert len(told) == 2
    assert "2 are sealed, and came without key.json" in told[1]
    assert cli("ship", sealed.directory, backend, "--with-key").err.count("\n") == 1
    assert cli("restore", backend, str(tmp_path / "second")).err.count("\n") == 1  # the keys are there, and come along
    assert files_in(tmp_path / "second") == files_in(sealed.directory)
    assert not list((tmp_path / "first").rglob("key.json"))


# ---- a copy that keeps up --------------------------------------------------------------------------------------------------


@pytest.fixture
def at_each_pause(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What happens while ``--follow`` waits, one after the other; then Ctrl-C."""

    def happens(*acts: Callable[[], object]) -> None:
        left = iter(acts)

        def sleep(_: float) -> None:
            try:
                next(left)()
            except StopIteration:
                raise KeyboardInterrupt from None

        monkeypatch.setattr("transcript_store.cli.ship.time.sleep", sleep)

    return happens


@pytest.mark.parametrize("is_library", [False, True])
def test_a_copy_keeps_up_until_ctrl_c(
    cli: Cli, library: ConversationLibrary, backend: str, at_each_pause: Callable[..., None], is_library: bool
) -> None:
    """Appends, replaces and creates are sent, and nothing else is printed; at the end the copy is not claimed."""
    newest = library.list()[0]
    source = library.directory if is_library else newest.directory
    conversation = library.open(newest.id or "")
    at_each_pause(
        lambda: conversation.append_message(user_message("more")),
        lambda: None,
        lambda: conversation.replace_transcript([user_message("summary")]),
        lambda: conversation.update_metadata(labels={"title": "of later"}),
        lambda: library.create(messages=[user_message("another")]).close(),
        conversation.close,
    )
    code, out, err = cli("ship", source, backend, "--follow", "--every", "0")
    assert (code, err.count("\n")) == (130, 1)
    assert out.splitlines()[-(3 if is_library else 2) :][0].endswith("sent")
    assert len(out.splitlines()) == (3 + 2 + 1 if is_library else 1 + 2)
    there = ConversationLibrary(backend_at(backend))
    assert len(there.list()) == (4 if is_library else 1)
    with there.open(newest.id or "") as copy:  # nobody has to be taken over
        assert copy.get_messages() == [user_message("summary")]
        assert copy.get_metadata().labels == {"title": "of later"}


def test_follow_reports_a_problem_once_and_its_end(
    cli: Cli, library: ConversationLibrary, backend: str, at_each_pause: Callable[..., None]
) -> None:
    """A conversation is damaged while its library is followed, for three looks; then it is put right."""
    newest = library.list()[0]
    path = Path(newest.directory) / "transcript.jsonl"
    whole = path.read_bytes()
    with library.open(newest.id or "") as conversation:
        conversation.append_message(user_message("more"))
    longer = path.read_bytes()
    path.write_bytes(whole)

    at_each_pause(
        lambda: path.write_bytes(longer.replace(b"more", b"mire")),
        lambda: None,
        lambda: None,
        lambda: path.write_bytes(longer),
    )
    path.write_bytes(longer.replace(b"more", b"mire"))
    code, out, err = cli("ship", library.directory, backend, "--follow", "--every", "0")
    assert (code, err.count("transcript.jsonl")) == (130, 1)
    assert len(out.splitlines()) == 3


# ---- servers ---------------------------------------------------------------------------------------------------------------

CHILD = """
import sys
from transcript_store.backends import open_backend, ship

backend = open_backend(sys.argv[2], create=True)
put = backend.put

def told(*arguments):
    print("put", flush=True)
    sys.stdin.readline()
    result = put(*arguments)
    print("done", flush=True)
    sys.stdin.readline()
    return result

backend.put = told
print(ship(sys.argv[1], backend).left_records, flush=True)
"""


def killed_again_and_again(tmp_path: Path, url: str, restart: Callable[[], None], **environment: str) -> int:
    """Each run is killed one event later, while the conversation continues; once the server is killed too.

    Returns how many runs were killed before one came to its end.
    """
    library = ConversationLibrary(tmp_path / "chats")
    conversation = library.create(messages=[user_message("first")], labels={"title": "for the server"})
    directory = conversation.directory
    kills = 0
    while True:
        conversation.append_messages([user_message("x" * 300_000), user_message(f"of run {kills}")])
        if kills % 3 == 2:
            conversation.replace_transcript([user_message("summary"), user_message(f"of run {kills}")])
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, directory, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        ) as run:
            assert run.stdin is not None
            assert run.stdout is not None
            last = 2 * kills + kills % 2  # before a put, or behind one
            for event in range(last + 1):
                line = run.stdout.readline().strip()
                if line not in ("put", "done"):
                    break
                if kills == 3 and event == 2:
                    restart()
                if event < last:
                    run.stdin.write("go on\n")
                    run.stdin.flush()
            if line not in ("put", "done"):
                assert line == "0"
                break
            run.send_signal(signal.SIGKILL)
        kills += 1
    conversation.close()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        backend = open_backend(url)
        ship(directory, backend)
        restore(backend, conversation_id(directory), tmp_path / "back")
        assert files_in(tmp_path / "back") == files_in(directory)
        assert ConversationLibrary(backend).verify(conversation_id(directory)).findings == ()
    return kills


def conversation_id(directory: str) -> str:
    with ConversationStore(directory, read_only=True) as conversation:
        conversation.load()
        return conversation.id


def test_a_dry_run_needs_no_tables(
    postgres: PostgresServer, cli: Cli, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that they are missing, and creates none."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    backend = f"postgresql://{USER}@127.0.0.1:{postgres.port}/postgres?schema=not_there"
    code, out, _ = cli("ship", library.directory, backend, "--dry-run")
    assert (code, "the database has no tables yet" in out) == (0, True)
    assert "tables of transcript_store are missing" in cli("list", backend).err


@LONG
def test_runs_that_are_killed_on_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    """R5, R6: SIGKILL before and after each statement, and the server killed once."""
    assert killed_again_and_again(tmp_path, postgres.schema(), postgres.restart) > 2


@LONG
def test_runs_that_are_killed_on_an_object_store(tmp_path: Path) -> None:
    """R5, R6: SIGKILL before and after each request, and the server killed once."""
    server = seaweedfs(tmp_path)

    def restart() -> None:
        server.kill()
        server.start()

    try:
        given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        given["AWS_ENDPOINT"] = f"http://127.0.0.1:{server.port}"
        assert killed_again_and_again(tmp_path, "s3://tests/copies", restart, **given) > 2
    finally:
        server.kill()


@LONG
def test_a_copy_that_keeps_up_ends_with_its_process(postgres: PostgresServer, tmp_path: Path) -> None:
    """The real command follows a writer until Ctrl-C, and leaves no claim."""
    library = ConversationLibrary(tmp_path / "chats")
    conversation = library.create(messages=[user_message("first")])
    url = postgres.schema()
    words = [
        sys.executable,
        "-m",
        "transcript_store",
        "ship",
        conversation.directory,
        url,
        "--follow",
        "--every",
        "0.05",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for number in range(5):
            assert " sent" in run.stdout.readline()
            conversation.append_message(user_message(f"number {number}"))
        assert " sent" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err.count("\n")) == (130, 1)
    with ConversationLibrary(open_backend(url)).open(conversation.id) as copy:
        assert len(copy.get_messages()) == 6
    assert PASSWORD not in err
    assert USER not in err
    conversation.close()
