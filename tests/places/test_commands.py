"""The command line on a place: an address stands where a directory stands, and nothing else changes.

An agent ran in a container. Its conversations were on a database, its tools on the machine of whoever looked after it: each look was a
program of ten lines. Now `transcript-store show postgresql://host/agents/last` is what it is in a folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.chat.dialects import DIALECTS
from tests.chat.server import serving
from tests.cli.conftest import a_cache_of_its_own, cli
from tests.cli.helpers import Cli
from tests.kit.postgres import PASSWORD, USER, PostgresServer
from tests.places.servers import KEY, SECRET, seaweedfs
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.cli._shared.places import shown, taken_apart
from transcript_store.places import ObjectPlace, PostgresPlace, open_place

__all__ = ["a_cache_of_its_own", "cli"]
LONG = pytest.mark.long
OPENAI = DIALECTS["openai-compatible"]
ONE = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
HELLO = b'{"role": "user", "content": "Hello"}\n{"role": "assistant", "content": "Good evening"}\n'


@pytest.fixture
def place() -> str:
    """The address of a new object store in memory, which lives as long as this process."""
    return f"memory:///{uuid.uuid4().hex}"


@pytest.fixture
def begun(cli: Cli, place: str) -> str:
    """The address of a place with one conversation."""
    assert cli("record", f"{place}/{ONE}", "--provider", "claude", stdin=HELLO) == (0, "1\n2\n", "")
    return place


# ---- names -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "library", "what"),
    [
        (f"s3://bucket/agents/{ONE}", "s3://bucket/agents", ONE),
        ("s3://bucket/agents/last", "s3://bucket/agents", "last"),
        ("s3://bucket/agents", "s3://bucket/agents", None),
        (f"s3://bucket/{ONE}", "s3://bucket", ONE),
        (f"postgresql://ada:pw@host/db/{ONE}?sslmode=require", "postgresql://ada:pw@host/db?sslmode=require", ONE),
        (f"postgresql://ada:pw@host/db?sslmode=require/{ONE}", "postgresql://ada:pw@host/db?sslmode=require", ONE),
        ("postgresql://host/last", "postgresql://host/last", None),  # a database may be called so
        ("postgresql://host/db/last", "postgresql://host/db", "last"),
    ],
)
def test_what_an_address_names(name: str, library: str, what: str | None) -> None:
    """An id or `last` behind an address is a conversation there; what else stands there belongs to the place."""
    assert taken_apart(name) == (library, what)


@pytest.mark.parametrize(
    "name", ["postgresql://ada:s3cret@host:5/db/x?password=s3cret", "s3://key:s3cret@bucket/agents"]
)
def test_a_password_is_never_shown(name: str) -> None:
    """Q4: what is printed of an address has no user, no password and no options."""
    assert "s3cret" not in shown(name)
    assert "ada" not in shown(name)


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
    code, out, err = cli(*(word.format("memory://ada:s3cret@x/agents") for word in command))
    assert code in (1, 2)
    assert err
    assert "s3cret" not in out + err
    assert "ada" not in out + err


@pytest.mark.parametrize("url", ["ftp://host/x", "host/x", "", "postgresql://[::1/x", "//host"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """The error says which schemes there are, and repeats nothing of what stands behind it."""
    with pytest.raises(ValueError, match="no address of a place") as told:
        open_place(url)
    assert "host" not in str(told.value)


def test_a_place_by_its_address() -> None:
    """The scheme says which engine it is. Nothing is asked for yet, and errors call it by its address without the secrets."""
    database = open_place("postgresql://ada:s3cret@nowhere.invalid/agents?connect_timeout=1")
    assert isinstance(database, PostgresPlace)
    assert database.name == "postgresql://nowhere.invalid/agents"
    assert isinstance(open_place("memory:///agents"), ObjectPlace)


# ---- commands --------------------------------------------------------------------------------------------------------------


def test_what_stands_there_is_shown_as_in_a_folder(cli: Cli, begun: str) -> None:
    """show, verify, head, generations, export: the same words, and the address where the folder stood."""
    code, out, _ = cli("show", begun, "last")
    assert code == 0
    assert ONE in out
    assert "Good evening" in out
    found = [json.loads(line)["message"]["content"] for line in cli("show", f"{begun}/last", "--json").out.splitlines()]
    assert found == ["Hello", "Good evening"]
    assert "whole: nothing is wrong" in cli("verify", f"{begun}/{ONE}").out
    assert cli("head", begun, "0b8f").out == cli("head", begun, "last").out
    assert "live" in cli("generations", begun, "last").out
    assert "Good evening" in cli("export", f"{begun}/last", "--to", "markdown").out


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


def test_what_is_written_there(cli: Cli, begun: str, tmp_path: Path) -> None:
    """Record goes on, rename, fork to a folder and back, delete, prune: each as in a folder."""
    assert cli("record", f"{begun}/last", stdin=HELLO).out == "3\n4\n"
    assert cli("rename", begun, "last", "Moving house").code == 0
    assert "Moving house" in cli("list", begun).out
    copied = cli("fork", f"{begun}/{ONE}", "--into", str(tmp_path / "kept")).out.strip()
    with ConversationStore(tmp_path / "kept" / copied, read_only=True) as there:
        there.load()
        assert len(there.get_messages()) == 4
    back = cli("fork", str(tmp_path / "kept" / copied), "--into", begun).out.strip()
    assert cli("delete", begun, ONE).out == f"deleted {ONE}\n"
    assert [json.loads(line)["id"] for line in cli("list", begun, "--json").out.splitlines()] == [back]
    assert cli("show", begun, ONE).code == 1
    assert "nothing is due" in cli("prune", begun, "--older-than", "7d", "--dry-run").out


def test_what_was_said_there_is_found(cli: Cli, begun: str, a_cache_of_its_own: None) -> None:
    """F9: search knows a place; the command that it prints shows what was found."""
    found = cli("search", "evening", begun, "--wait")
    assert found.code == 0
    assert "Good evening" in found.out
    shows = next(line.split() for line in found.out.splitlines() if "transcript-store show" in line)[1:]
    assert "Good evening" in cli(*shows).out
    assert "nothing was found" in cli("search", "morning", begun).out


def test_a_page_of_it(cli: Cli, begun: str, tmp_path: Path) -> None:
    """F12: the page of a conversation on a place is the page of its records."""
    assert cli("view", f"{begun}/last", "--output", str(tmp_path / "it.html")).code == 0
    assert "Good evening" in (tmp_path / "it.html").read_text()


def test_other_programs_histories_go_there(cli: Cli, place: str, tmp_path: Path, a_cache_of_its_own: None) -> None:
    """F2: an import into a place, twice, is once."""
    (tmp_path / "notes.jsonl").write_bytes(HELLO)
    assert "1 created" in cli("import", str(tmp_path / "notes.jsonl"), "--into", place).out
    again = cli("import", str(tmp_path / "notes.jsonl"), "--into", place)
    assert again.code == 0
    assert "created" not in again.out
    assert len(cli("list", place).out.splitlines()) == 1


@pytest.mark.parametrize("command", [("repair",), ("seal",), ("unseal",), ("bisect",), ("show", "--salvage")])
def test_what_needs_a_folder_says_so(cli: Cli, begun: str, command: tuple[str, ...]) -> None:
    """A command that cannot work there names the way that can: a copy in a folder."""
    behind = ("--", "true") if command == ("bisect",) else ()
    code, out, err = cli(*command, f"{begun}/{ONE}", *behind)
    assert (code, out) == (2, "")
    assert "needs a folder" in err
    assert "fork URL --into DIR" in err


MISTAKES = [
    (("show", "{place}"), "name a conversation in it"),
    (("show", "{place}", "zzzz"), "there is no conversation 'zzzz'"),
    (("show", "{place}", "ffff"), "there is no conversation 'ffff'"),
    (("show", "ftp://host/x/last"), "there is no engine for ftp://"),
    (("record", "{place}"), "name a conversation in it"),
    (("serve", "{place}"), "needs the directory of a library"),
    (("mcp", "{place}"), "needs the directory of a library"),
]


@pytest.mark.parametrize(("command", "said"), MISTAKES, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_mistakes_of_a_hurried_person(cli: Cli, begun: str, command: tuple[str, ...], said: str) -> None:
    """Each is one line that says what to do; nothing is written."""
    code, out, err = cli(*(word.format(place=begun) for word in command), stdin=HELLO)
    assert code in (1, 2)
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_the_variable_names_the_library(cli: Cli, begun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSCRIPT_STORE_LIBRARY stands in for the library of chat, for every command: an address, or a directory."""
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", begun)
    assert ONE in cli("list").out
    assert "Good evening" in cli("show", "last").out
    assert ONE in cli("chat", "--list").out
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path))
    ConversationLibrary(tmp_path).create(messages=[{"n": 1}]).close()
    assert ONE not in cli("list").out
    assert '{"n": 1}' in cli("show", "last", "--plain").out or '"n"' in cli("show", "last").out


def test_a_chat_goes_on_there(cli: Cli, begun: str, a_cache_of_its_own: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """P2, R1: the history of the place is sent, and the answer is on it before it is printed."""
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
def test_an_agent_goes_on_from_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    resumed_elsewhere(tmp_path, postgres.schema())


@LONG
def test_an_agent_goes_on_from_an_object_store(tmp_path: Path) -> None:
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
    place = postgres.schema()
    said = [cli("list", place), cli("show", place, "last"), cli("record", f"{place}/{ONE}", stdin=HELLO)]
    said += [cli(name, f"{place}/{ONE}") for name in ("show", "verify", "head", "generations", "repair", "seal")]
    said += [cli("list", place), cli("fork", f"{place}/{ONE}"), cli("show", place, "ffff"), cli("search", "x", place)]
    said += [
        cli("show", f"{postgres.url(database='no_such')}/{ONE}"),
        cli("show", f"{postgres.url(password='wrong')}/{ONE}"),
    ]
    assert said[2] == (0, "1\n2\n", "")
    assert all(one.code == 0 for one in said[3:7])
    for one in said:
        assert PASSWORD not in one.out + one.err
        assert USER not in one.out + one.err
