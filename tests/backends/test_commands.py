"""The command line on a backend: an address replaces a directory, and nothing else changes.

An agent ran in a container. Its conversations were on a database, its tools on the machine of whoever looked after it: each look was a
program of ten lines. Now `transcript-store show postgresql://host/agents/last` is what it is in a folder.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.backends.servers import KEY, SECRET, seaweedfs
from tests.chat.dialects import DIALECTS
from tests.chat.server import serving
from tests.cli.conftest import a_cache_of_its_own, cli
from tests.cli.helpers import COMMAND, Cli
from tests.kit.cases import for_each
from tests.kit.postgres import PASSWORD, USER, PostgresServer
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.backends import ObjectStoreBackend, PostgresBackend, open_backend
from transcript_store.cli._shared.names import library_at, printable_name, taken_apart

__all__ = ["a_cache_of_its_own", "cli"]
LONG = pytest.mark.long
OPENAI = DIALECTS["openai-compatible"]
ONE = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
HELLO = b'{"role": "user", "content": "Hello"}\n{"role": "assistant", "content": "Good evening"}\n'


@pytest.fixture
def backend() -> str:
    """The address of a new object store in memory, which lives as long as this process."""
    return f"memory:///{uuid.uuid4().hex}"


@pytest.fixture
def begun(cli: Cli, backend: str) -> str:
    """The address of a backend with one conversation."""
    assert cli("record", f"{backend}/{ONE}", "--provider", "claude", stdin=HELLO) == (0, "1\n2\n", "")
    return backend


# ---- names -----------------------------------------------------------------------------------------------------------------


@for_each(
    "name, library, what",
    [
        (f"s3://bucket/agents/{ONE}", "s3://bucket/agents", ONE),
        ("s3://bucket/agents/last", "s3://bucket/agents", "last"),
        ("s3://bucket/agents", "s3://bucket/agents", None),
        (f"s3://bucket/{ONE}", "s3://bucket", ONE),
        (
            f"postgresql://lovelace:pw@host/db/{ONE}?sslmode=require",
            "postgresql://lovelace:pw@host/db?sslmode=require",
            ONE,
        ),
        (
            f"postgresql://lovelace:pw@host/db?sslmode=require/{ONE}",
            "postgresql://lovelace:pw@host/db?sslmode=require",
            ONE,
        ),
        ("postgresql://host/last", "postgresql://host/last", None),  # a database may be called so
        ("postgresql://host/db/last", "postgresql://host/db", "last"),
    ],
)
def test_addresses_name_a_library_or_a_conversation(name: str, library: str, what: str | None) -> None:
    """An id or `last` at the end of an address names a conversation; anything else belongs to the address."""
    assert taken_apart(name) == (library, what)


@pytest.mark.parametrize(
    "name", ["postgresql://lovelace:s3cret@host:5/db/x?password=s3cret", "s3://key:s3cret@bucket/agents"]
)
def test_a_password_is_never_shown(name: str) -> None:
    """Q4: what is printed of an address has no user, no password and no options."""
    assert "s3cret" not in printable_name(name)
    assert "lovelace" not in printable_name(name)


@pytest.mark.parametrize(
    "command",
    [
        ("show", "{}", "{}", "{}"),
        ("show", "--lst", "{}"),
        ("import", "{}"),
        ("verify", "{}"),
        ("doctor", "{}"),
        ("chat", "{}", "--resume", "x"),
    ],
)
def test_no_error_of_arguments_tells_the_password(cli: Cli, command: tuple[str, ...]) -> None:
    """Q4: errors repeat arguments, and an address among them has no user then."""
    code, out, err = cli(*(word.format("memory://lovelace:s3cret@x/agents") for word in command))
    assert code in (1, 2)
    assert err
    assert "s3cret" not in out + err
    assert "lovelace" not in out + err


@for_each("url", ["ftp://host/x", "host/x", "", "postgresql://[::1/x", "//host"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """The error lists the schemes, and repeats nothing after the scheme."""
    with pytest.raises(ValueError, match=r"not a backend.s address") as told:
        open_backend(url)
    assert "host" not in str(told.value)


def test_a_backend_by_its_address() -> None:
    """The scheme says which backend it is. Nothing is asked for yet, and errors call it by its address without the secrets."""
    database = open_backend("postgresql://lovelace:s3cret@nowhere.invalid/agents?connect_timeout=1")
    assert isinstance(database, PostgresBackend)
    assert database.name == "postgresql://nowhere.invalid/agents"
    assert isinstance(open_backend("memory:///agents"), ObjectStoreBackend)


# ---- commands --------------------------------------------------------------------------------------------------------------


def test_what_stands_there_is_shown_as_in_a_folder(cli: Cli, begun: str) -> None:
    """show, verify, head, generations, export: the same words, and the address where the folder stood."""
    code, out, _ = cli("show", begun, "last")
    assert code == 0
    assert ONE in out
    assert "Good evening" in out
    found = [json.loads(line)["message"]["content"] for line in cli("show", f"{begun}/last", "--json").out.splitlines()]
    assert found == ["Hello", "Good evening"]
    assert "intact: no problem found" in cli("verify", f"{begun}/{ONE}").out
    assert cli("head", begun, "0b8f").out == cli("head", begun, "last").out
    assert "live" in cli("generations", begun, "last").out
    assert "Good evening" in cli("export", f"{begun}/last", "--to", "markdown").out


def test_a_list_has_the_titles_that_a_key_opens(
    cli: Cli, backend: str, tmp_path: Path, a_cache_of_its_own: None
) -> None:
    """As in a folder, whether or not a query chooses; a key that opens nothing is reported."""
    keys = [str(tmp_path / name) for name in ("right", "wrong")]
    assert [cli("new-key", key).code for key in keys] == [0, 0]
    assert cli("record", f"{backend}/{ONE}", "--provider", "claude", "--key-file", keys[0], stdin=HELLO).code == 0
    assert cli("rename", f"{backend}/{ONE}", "Moving house", "--key-file", keys[0]).code == 0
    for query in ([], ["--model", ""], ["--filter", "id:0b8f"]):
        assert "Moving house" not in cli("list", backend, *query).out
        assert "Moving house" in cli("list", backend, *query, "--key-file", keys[0]).out
        code, out, err = cli("list", backend, *query, "--key-file", keys[1])
        assert (code, "Moving house" in out, "not opened by the key" in err) == (0, False, True)


def test_a_list_has_pages(cli: Cli, begun: str, a_cache_of_its_own: None) -> None:
    """The newest first, as many as are asked for; what only an index can do comes from the index."""
    for _ in range(3):
        assert cli("fork", f"{begun}/last").code == 0
    assert len(cli("list", begun).out.splitlines()) == 4
    assert len(cli("list", begun, "--limit", "2").out.splitlines()) == 2
    assert len({json.loads(line)["id"] for line in cli("list", begun, "--json").out.splitlines()}) == 4
    assert cli("rename", begun, ONE, "Moving house").code == 0
    assert len(cli("list", begun, "--title", "house").out.splitlines()) == 1
    assert ONE in cli("list", begun, "--title", "house").out


def test_each_writing_command_works_on_a_backend(cli: Cli, begun: str, tmp_path: Path) -> None:
    """Record, rename, fork to a folder and back, delete, prune: each as in a folder."""
    assert cli("record", f"{begun}/last", stdin=HELLO).out == "3\n4\n"
    assert cli("rename", begun, "last", "Moving house").code == 0
    assert "Moving house" in cli("list", begun).out
    copied = cli("fork", f"{begun}/{ONE}", "--into", str(tmp_path / "kept")).out.strip()
    with ConversationStore(tmp_path / "kept" / copied, read_only=True) as there:
        there.load()
        assert len(there.get_messages()) == 4
    back = cli("fork", str(tmp_path / "kept" / copied), "--into", begun).out.strip()
    assert cli("delete", begun, ONE, "--yes").out == f"deleted {ONE}\n"
    assert [json.loads(line)["id"] for line in cli("list", begun, "--json").out.splitlines()] == [back]
    assert cli("show", begun, ONE).code == 1
    assert "nothing is expired" in cli("prune", begun, "--older-than", "7d", "--dry-run").out


def test_what_was_said_there_is_found(cli: Cli, begun: str, a_cache_of_its_own: None) -> None:
    """F9: search accepts a backend; the command that it prints shows the hit."""
    found = cli("search", "evening", begun, "--wait")
    assert found.code == 0
    assert "Good evening" in found.out
    shows = next(line.split() for line in found.out.splitlines() if "transcript-store show" in line)[1:]
    assert "Good evening" in cli(*shows).out
    assert "nothing was found" in cli("search", "morning", begun).out


def test_a_page_of_it(cli: Cli, begun: str, tmp_path: Path) -> None:
    """F12: the page of a conversation on a backend has its records."""
    assert cli("view", f"{begun}/last", "--output", str(tmp_path / "it.html")).code == 0
    assert "Good evening" in (tmp_path / "it.html").read_text()


def test_other_programs_histories_go_there(cli: Cli, backend: str, tmp_path: Path, a_cache_of_its_own: None) -> None:
    """F2: importing into a backend twice has the effect of once."""
    (tmp_path / "notes.jsonl").write_bytes(HELLO)
    assert "1 created" in cli("import", str(tmp_path / "notes.jsonl"), "--into", backend).out
    again = cli("import", str(tmp_path / "notes.jsonl"), "--into", backend)
    assert again.code == 0
    assert "created" not in again.out
    assert len(cli("list", backend).out.splitlines()) == 1


# ---- keys ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """Two key files."""
    for name, byte in (("one", b"1"), ("two", b"2")):
        (tmp_path / name).write_bytes(byte * 32)
        (tmp_path / name).chmod(0o600)
    return str(tmp_path / "one"), str(tmp_path / "two")


def test_a_conversation_there_is_sealed_and_unsealed(
    cli: Cli, begun: str, keys: tuple[str, str], a_cache_of_its_own: None
) -> None:
    """Seal and unseal: plaintext that cannot be removed is reported first, and the sealed conversation needs its key."""
    at = f"{begun}/{ONE}"
    assert cli("search", "evening", begun, "--wait").code == 0
    refused = cli("seal", at, "--key-file", keys[0])
    assert (refused.code, refused.out) == (1, "")
    assert "--keep-plain seals it from here on" in refused.err
    assert cli("show", at).code == 0
    sealed = cli("seal", at, "--key-file", keys[0], "--keep-plain")
    assert sealed.code == 0
    assert "can read their plaintext" in sealed.out
    assert "Good evening" not in cli("show", at).out
    assert "Good evening" not in cli("search", "evening", begun, "--wait").out
    assert "Good evening" in cli("show", at, "--key-file", keys[0]).out
    assert "the key opens every record" in cli("verify", at, "--key-file", keys[0]).out
    assert "sealed       these findings need no key" in cli("verify", begun, "last").out
    assert cli("unseal", at, "--key-file", keys[0]).code == 0
    assert "Good evening" in cli("show", at).out


def test_keys_there_are_changed_and_destroyed(cli: Cli, begun: str, keys: tuple[str, str]) -> None:
    """rotate-key of a library and of one conversation, beside one that is plain; shred asks, and says what it does not reach."""
    one, two = keys
    fork = cli("fork", f"{begun}/{ONE}", "--into", begun).out.strip()
    assert cli("seal", f"{begun}/{ONE}", "--key-file", one, "--keep-plain").code == 0
    assert cli("rotate-key", begun, "--key-file", one, "--new-key-file", two) == (
        0,
        "1 conversation now opens with the new key\n",
        "",
    )
    assert "Good evening" in cli("show", f"{begun}/{ONE}", "--key-file", two).out
    assert cli("show", f"{begun}/{ONE}", "--key-file", one).code == 1
    assert cli("rotate-key", f"{begun}/{ONE}", "--key-file", two, "--new-key-file", one).code == 0
    left = cli("rotate-key", begun, "--key-file", two, "--new-key-file", two)
    assert (left.code, ONE in left.err, fork in left.err) == (1, True, False)
    assert cli("shred", f"{begun}/{ONE}").code == 2
    assert "Good evening" in cli("show", f"{begun}/{ONE}", "--key-file", one).out
    done = cli("shred", f"{begun}/{ONE}", "--yes")
    assert done.code == 1  # its plain generation can be read
    assert "not reached: what the server keeps of its key" in done.out
    assert "transcript-000000.jsonl" in done.out
    assert cli("show", f"{begun}/{ONE}", "--key-file", one).code == 1
    assert cli("shred", f"{begun}/{fork}", "--yes").code == 1  # it was never sealed


def test_snapshots_there(cli: Cli, begun: str, keys: tuple[str, str]) -> None:
    """Each command of ``snapshot`` on an address, in which a library is too: saved, listed, shown, restored, sealed, verified, deleted."""
    at = f"{begun}/{ONE}"
    saved = cli("snapshot", "save", at, "--store", begun).out.strip()
    assert saved in cli("snapshot", "list", "--store", begun).out
    assert json.loads(cli("snapshot", "list", "--store", begun, "--json").out)["message_count"] == 2
    assert "Good evening" in cli("snapshot", "show", saved, "--store", begun).out
    assert cli("snapshot", "rotate-key", "--store", begun, "--new-key-file", keys[0]).code == 0
    without = cli("snapshot", "list", "--store", begun)
    assert (without.code, without.out, "its snapshots are sealed" in without.err) == (1, "", True)
    assert cli("snapshot", "save", at, "--store", begun).code == 1
    assert "another --key-file" in cli("snapshot", "list", "--store", begun, "--key-file", keys[1]).err
    sealed = ("--store", begun, "--key-file", keys[0])
    assert cli("snapshot", "verify", *sealed) == (0, "intact: no problem found\n", "")
    again = f"{begun}/7a1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"
    assert cli("snapshot", "restore", saved, "--into", again, *sealed).code == 0
    assert "Good evening" in cli("show", again).out
    refused = cli("snapshot", "collect-media", *sealed)
    assert (refused.code, "copy the objects below snapshots/ into a directory" in refused.err) == (1, True)
    assert cli("snapshot", "delete", saved, *sealed).code == 0
    assert cli("snapshot", "show", saved, *sealed).code == 1
    assert cli("snapshot", "list", *sealed) == (0, "", "")
    misused = cli("snapshot", "list", "--store", at)
    assert (misused.code, "snapshots are kept at the address of a library" in misused.err) == (2, True)


def test_a_prune_there_keeps_snapshots_there(cli: Cli, begun: str, backend: str, keys: tuple[str, str]) -> None:
    """Snapshots may be on this backend or another. With a wrong key nothing is removed."""
    kept = f"{backend}-kept"
    assert cli("snapshot", "save", f"{begun}/{ONE}", "--store", kept, "--key-file", keys[0]).code == 0
    prune = ("prune", begun, "--older-than", "0d", "--yes", "--snapshots", kept, "--key-file")
    assert cli(*prune, keys[1]).code == 2
    assert ONE in cli("list", begun, "--json").out
    assert "snapshot " in cli(*prune, keys[0]).out
    assert cli("list", begun, "--json").out == ""
    assert len(cli("snapshot", "list", "--store", kept, "--key-file", keys[0]).out.splitlines()) == 2


def test_a_prune_there_has_the_keys(cli: Cli, begun: str, keys: tuple[str, str]) -> None:
    """A key in the environment or an option is no reason to refuse a library in which only some are sealed."""
    cli("fork", f"{begun}/{ONE}", "--into", begun)
    assert cli("seal", f"{begun}/{ONE}", "--key-file", keys[0], "--keep-plain").code == 0
    due = cli("prune", begun, "--older-than", "0d", "--yes", "--key-file", keys[0])
    assert (due.code, "2 conversations" in due.out) == (0, True)
    assert cli("list", begun, "--json").out == ""


# ---- copies ----------------------------------------------------------------------------------------------------------------


def test_a_snapshot_of_it(cli: Cli, begun: str, backend: str, keys: tuple[str, str], tmp_path: Path) -> None:
    """Snapshot save of a plain and of a sealed conversation, into a local store; and restore continues a conversation there."""
    store = str(tmp_path / "kept")
    saved = cli("snapshot", "save", begun, "last", "--store", store)
    assert saved.code == 0
    assert "Good evening" in cli("snapshot", "show", saved.out.strip(), "--store", store).out
    other = f"{backend}/6f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"
    assert cli("snapshot", "restore", saved.out.strip(), "--store", store, "--into", other).code == 0
    assert "Good evening" in cli("show", other).out
    assert cli("snapshot", "restore", saved.out.strip(), "--store", store, "--into", backend).code == 2
    assert cli("seal", f"{begun}/{ONE}", "--key-file", keys[0], "--keep-plain").code == 0
    sealed = str(tmp_path / "sealed")
    saved = cli("snapshot", "save", f"{begun}/{ONE}", "--store", sealed, "--key-file", keys[0])
    assert saved.code == 0
    assert "Good evening" in cli("snapshot", "show", saved.out.strip(), "--store", sealed, "--key-file", keys[0]).out
    assert not any(b"Good evening" in file.read_bytes() for file in (tmp_path / "sealed").rglob("*") if file.is_file())


def test_the_first_message_after_which_it_fails(cli: Cli, begun: str) -> None:
    """bisect: the prefixes are local folders, and the backend is read once."""
    assert cli("record", f"{begun}/{ONE}", stdin=HELLO * 3).code == 0
    check = 'test "$(grep -c Hello "$0/transcript.jsonl")" -lt 3'
    code, out, _ = cli("bisect", f"{begun}/{ONE}", "--", "sh", "-c", check)
    assert code == 0
    assert "#5 is the first message after which it fails" in out
    assert f"transcript-store show {begun}/{ONE} --around 5" in out


def test_a_whole_one_is_shown_by_what_shows_what_is_left(cli: Cli, begun: str) -> None:
    """``show --salvage``: the same lines, and the exit code of what is whole."""
    left = cli("show", "--salvage", f"{begun}/{ONE}")
    assert (left.code, left.err) == (0, "")
    assert left.out == cli("show", f"{begun}/{ONE}").out


def test_repair_exports_a_damaged_conversation(cli: Cli, backend: str, tmp_path: Path) -> None:
    """`repair` shows what could be kept and exports it into a folder; repaired there, it comes back."""
    assert cli("record", f"{backend}/{ONE}", stdin=HELLO).code == 0
    assert "intact: nothing to repair" in cli("repair", f"{backend}/{ONE}").out
    damage_on(backend, ONE, b"Hello", b"HELLO")
    assert cli("show", f"{backend}/{ONE}").code == 1
    told = cli("repair", f"{backend}/{ONE}")
    assert told.code == 1
    assert "salvage: would keep" in told.out
    assert "repair URL --into DIR" in told.out
    assert "/tmp" not in told.out
    shown = cli("show", "--salvage", f"{backend}/{ONE}")
    assert shown.code == 1
    assert "HELLO" in shown.out
    assert "Good evening" in shown.out
    assert f"{ONE}: " in shown.err
    assert "/tmp" not in shown.out + shown.err
    assert cli("repair", f"{backend}/{ONE}", "--apply", "--mode", "salvage").code == 2
    left = cli("repair", f"{backend}/{ONE}", "--into", str(tmp_path / "left"))
    assert left.code == 1
    assert cli("repair", str(tmp_path / "left"), "--apply", "--mode", "salvage").code == 0
    back = cli("fork", str(tmp_path / "left"), "--into", backend)
    assert back.code == 0
    assert "Good evening" in cli("show", f"{backend}/{back.out.strip()}").out


def damage_on(address: str, id: str, what: bytes, by: bytes) -> None:
    """Change a slot in memory, as no writer may."""
    bucket = library_at(address)._backend._bucket  # type: ignore[attr-defined]
    slots = [f"c/{id}/s/{number:012}" for number in range(1, 9)]
    key, data = next((key, found.data) for key in slots if (found := bucket.get(key)) and what in found.data)
    bucket.replace(key, data.replace(what, by))


MISTAKES = [
    (("show", "{backend}"), "name a conversation in it"),
    (("show", "{backend}", "zzzz"), "there is no conversation 'zzzz'"),
    (("show", "{backend}", "ffff"), "there is no conversation 'ffff'"),
    (("show", "ftp://host/x/last"), "there is no backend for ftp://"),
    (("record", "{backend}"), "name a conversation in it"),
    (("serve", "ftp://host/x"), "there is no backend for ftp://"),
    (("mcp", "ftp://host/x"), "there is no backend for ftp://"),
    (("repair", "{backend}/last", "--apply"), "a conversation on a backend is not repaired there"),
    (("seal", "{backend}/last"), "seal needs a key"),
]


@pytest.mark.parametrize(("command", "said"), MISTAKES, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_mistakes_of_a_hurried_person(cli: Cli, begun: str, command: tuple[str, ...], said: str) -> None:
    """Each is one line that says what to do; nothing is written."""
    code, out, err = cli(*(word.format(backend=begun) for word in command), stdin=HELLO)
    assert code in (1, 2)
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_the_variable_names_the_library(cli: Cli, begun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSCRIPT_STORE_LIBRARY replaces the library of chat for every command: an address, or a directory."""
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", begun)
    assert ONE in cli("list").out
    assert "Good evening" in cli("show", "last").out
    assert ONE in cli("chat", "--list").out
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path))
    ConversationLibrary(tmp_path).create(messages=[{"n": 1}]).close()
    assert ONE not in cli("list").out
    assert '{"n": 1}' in cli("show", "last", "--plain").out or '"n"' in cli("show", "last").out


def test_a_chat_continues_there(
    cli: Cli, begun: str, a_cache_of_its_own: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2, R1: the history on the backend is sent, and the answer is stored there before it is printed."""
    monkeypatch.setattr("transcript_store.search._index.UPDATE_SECONDS", 60.0)  # a busy machine is no event
    with serving() as server:
        server.answers += [OPENAI.stream("It is."), OPENAI.stream("Still.")]
        where = (
            "--provider",
            "openai-compatible",
            "--base-url",
            server.url,
            "--allow-insecure-base-url",
            "--model",
            "m",
        )
        assert cli("chat", begun, "--new", *where, stdin=b"Is it there?\n").code == 0
        assert cli("chat", f"{begun}/last", *where, stdin=b"And now?\n").code == 0
        assert "Is it there?" in cli("chat", begun, *where, stdin=b"/search there\n").out
    assert [len(body["messages"]) for body in server.bodies] == [1, 3]
    assert "And now?" in cli("show", begun, "last").out


# ---- servers ---------------------------------------------------------------------------------------------------------------

AGENT = """
import os, signal, sys
from transcript_store.cli import main
sys.exit(main(["chat", *sys.argv[1:]]))
"""


def told(home: Path, library: str, url: str, line: str, **more: str) -> subprocess.Popen[bytes]:
    """A chat of another process, with a home of its own; it was given a line, and its input stays open."""
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), **more}
    environment |= {"TRANSCRIPT_STORE_LIBRARY": library, "PYTHONUNBUFFERED": "1"}
    where = ("--provider", "openai-compatible", "--base-url", url, "--allow-insecure-base-url", "--model", "m")
    process = subprocess.Popen(
        (sys.executable, "-c", AGENT, *where), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=home
    )
    assert process.stdin is not None
    process.stdin.write(line.encode())
    process.stdin.flush()
    return process


def resumed_elsewhere(tmp_path: Path, library: str, **more: str) -> None:
    """R1, R4: killed, its home gone; another process with another home has every message, with one variable and nothing else."""
    with serving() as server:
        server.answers += [OPENAI.stream(f"The {which} answer") for which in ("first", "second", "third")]
        first = told(tmp_path / "first", library, server.url, "Remember: plum.\nAnd pear.\n", **more)
        assert first.stdout is not None
        said = b""
        while b"The second answer" not in said:  # so the first one is on record; the second one may be
            piece = first.stdout.read(1)
            assert piece, said
            said += piece
        first.send_signal(signal.SIGKILL)
        first.communicate()
        subprocess.run(("rm", "-rf", tmp_path / "first"), check=True)
        second = told(tmp_path / "second", library, server.url, "What was it?\n", **more)
        out, _ = second.communicate()
    assert second.returncode == 0, out
    sent = [message["content"] for message in server.bodies[-1]["messages"]]
    assert sent[:2] == ["Remember: plum.", "The first answer"]
    assert sent[-1] == "What was it?"


@LONG
def test_an_agent_continues_from_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    resumed_elsewhere(tmp_path, postgres.schema())


@LONG
def test_an_agent_continues_from_an_object_store(tmp_path: Path) -> None:
    server = seaweedfs(tmp_path)
    try:
        resumed_elsewhere(
            tmp_path,
            "s3://tests/agents",
            AWS_ACCESS_KEY_ID=KEY,
            AWS_SECRET_ACCESS_KEY=SECRET,
            AWS_ENDPOINT=f"http://127.0.0.1:{server.port}",
            AWS_REGION="us-east-1",
        )
    finally:
        server.kill()


@LONG
def test_no_command_tells_the_password(postgres: PostgresServer, cli: Cli) -> None:
    """Q4: neither a result nor an error of any command has the user or the password of the address."""
    backend = postgres.schema()
    said = [cli("list", backend), cli("show", backend, "last"), cli("record", f"{backend}/{ONE}", stdin=HELLO)]
    said += [cli(name, f"{backend}/{ONE}") for name in ("show", "verify", "head", "generations", "repair", "seal")]
    said += [
        cli("list", backend),
        cli("fork", f"{backend}/{ONE}"),
        cli("show", backend, "ffff"),
        cli("search", "x", backend),
    ]
    said += [
        cli("show", f"{postgres.url(database='no_such')}/{ONE}"),
        cli("show", f"{postgres.url(password='wrong')}/{ONE}"),
    ]
    assert said[2] == (0, "1\n2\n", "")
    assert all(one.code == 0 for one in said[3:7])
    for one in said:
        assert PASSWORD not in one.out + one.err
        assert USER not in one.out + one.err


# ---- whole lives on servers ------------------------------------------------------------------------------------------------


def every_command(cli: Cli, backend: str, keys: tuple[str, str], tmp_path: Path) -> list[str]:
    """What is done to a library on a server from a shell, with all that was printed."""
    at, one, two = f"{backend}/{ONE}", *keys
    said: list[str] = []

    def do(*words: str, code: int = 0, stdin: bytes = b"") -> str:
        answer = cli(*words, stdin=stdin)
        said.append(answer.out + answer.err)
        assert answer.code == code, (words, answer)
        return answer.out

    do("record", at, "--provider", "claude", stdin=HELLO)
    assert "intact: nothing to repair" in do("repair", at)
    assert "#2 is the first" in do("bisect", at, "--", "sh", "-c", '! grep -q evening "$0/transcript.jsonl"')
    for kept in (str(tmp_path / "kept"), backend):
        saved = do("snapshot", "save", at, "--store", kept).strip()
        assert "Good evening" in do("snapshot", "show", saved, "--store", kept)
        assert saved in do("snapshot", "list", "--store", kept)
        do("snapshot", "delete", saved, "--store", kept)
    do("seal", at, "--key-file", one, code=1)
    do("seal", at, "--key-file", one, "--keep-plain")
    assert "Good evening" not in do("show", at, code=1)
    do("rotate-key", backend, "--key-file", one, "--new-key-file", two)
    assert "the key opens every record" in do("verify", at, "--key-file", two)
    do("unseal", at, "--key-file", two)
    assert "Good evening" in do("show", at)
    do("seal", at, "--key-file", two, "--keep-plain")
    do("shred", at, "--yes", code=1)  # it was plain once, and those slots can be read
    do("show", at, "--key-file", two, code=1)
    due = ("prune", backend, "--older-than", "0d", "--yes")
    assert "it can never be read again" in do(
        *due, "--key-file", two, "--snapshots", backend, code=1
    )  # so it is not kept
    do(*due)
    assert do("list", backend, "--json") == ""
    return said


def served(backend: str, tmp_path: Path, **more: str) -> bytes:
    """The list and the one conversation of a library, as ``transcript-store serve`` answers in a process of its own."""
    from tests.view.server import serving as pages

    with pages(backend, tmp_path / "cache", environment=more) as server:
        (own_id,) = set(re.findall(rb"c/([0-9a-f-]{36})/", (listed := server.get()).body))
        page = server.get(f"c/{own_id.decode()}/")
        missing = server.get("c/0b8f5c1e-4f6d-4f0e-9d5b-000000000000/")
    assert (listed.status, page.status, missing.status) == (200, 200, 404)
    assert b"Good evening" in page.body
    return listed.body + page.body + missing.body


def asked(backend: str, tmp_path: Path, **more: str) -> str:
    """What ``transcript-store mcp`` answers to an agent, in a process of its own."""
    anyio, client = pytest.importorskip("anyio"), pytest.importorskip("mcp.client", reason="needs the extra `mcp`")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = [*COMMAND, "mcp", backend]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "agent"), **more}
    answers: list[str] = []

    async def ask() -> None:
        process = StdioServerParameters(command=command[0], args=command[1:], env=environment)
        with (tmp_path / "agent.log").open("w") as log:
            async with client.Client(stdio_client(process, errlog=log)) as agent:
                listed = await agent.call_tool("list_conversations", {})
                (one,) = listed.structured_content["conversations"]
                read = await agent.call_tool("read_conversation", {"id": one["id"]})
                refused = await agent.call_tool("read_conversation", {"id": "../x"})
                answers.extend(str(each.content) for each in (listed, read, refused))

    anyio.run(ask)
    assert "Good evening" in answers[1]
    return "".join(answers)


@LONG
def test_every_command_on_postgresql(
    postgres: PostgresServer, cli: Cli, keys: tuple[str, str], tmp_path: Path, a_cache_of_its_own: None
) -> None:
    """Q4: each command works there, and nothing that any of them prints, serves or answers has the user or the password."""
    said = every_command(cli, postgres.schema(), keys, tmp_path)
    backend = postgres.schema()
    assert cli("record", f"{backend}/{ONE}", stdin=HELLO).code == 0
    said += [served(backend, tmp_path).decode(), asked(backend, tmp_path)]
    for text in said:
        assert PASSWORD not in text
        assert USER not in text


@LONG
def test_every_command_on_an_object_store(
    cli: Cli, keys: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_cache_of_its_own: None
) -> None:
    """B3: the same on an object store; no key of the server is shown."""
    server = seaweedfs(tmp_path)
    try:
        environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT": f"http://127.0.0.1:{server.port}",
            "AWS_REGION": "us-east-1",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        said = every_command(cli, "s3://tests/one", keys, tmp_path)
        backend = "s3://tests/two"
        assert cli("record", f"{backend}/{ONE}", stdin=HELLO).code == 0
        said += [served(backend, tmp_path, **environment).decode(), asked(backend, tmp_path)]
    finally:
        server.kill()
    for text in said:
        assert KEY not in text
        assert SECRET not in text
