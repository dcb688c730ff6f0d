"""Addresses in a hurry: a password with signs in it, and an address where a path is needed.

The incidents: of ``postgresql://ada:s3/cret@host/db`` errors told all of the password, as ``/`` ends the host; of one with ``#`` or ``?`` they
told the user and half of it. ``ConversationLibrary("postgresql://ada:s3cret@host/db")`` made a folder on this disk that was called by the
password, and nobody was told that nothing had gone to the database.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import cli
from tests.cli.helpers import Cli
from tests.kit.cases import for_each
from transcript_store import ConversationLibrary, ConversationStore, FileStore, NotAPathError, verify
from transcript_store.backends import BackendError, open_backend
from transcript_store.cli._shared.names import printable_name
from transcript_store.cli._shared.terminal import without_credentials
from transcript_store.search import SearchIndex
from transcript_store.testing import SimulatedBackend

__all__ = ["cli"]

SIGNS = ["/", "?", "#", "@", "/@", "?@", "@/", ":", "?x=", "/?#@", "12/", "12?", "12#", "12?x="]
TORN = [
    f"{scheme}://ada:s3{sign}cret@host{port}/db"
    for sign in SIGNS
    for port in ("", ":5")
    for scheme in ("postgresql", "s3")
]


@for_each("address", TORN)
def test_no_part_of_a_password_with_signs_is_told(address: str) -> None:
    """Q4, B1: whatever a password contains unescaped, no part of it or of the user is in a backend's name or an error."""
    told = [printable_name(address), without_credentials(f"refused: {address} [1]")]
    try:
        told += [repr(backend := open_backend(address)), backend.name]
    except (ValueError, BackendError) as error:
        told += [str(error)]
    for text in told:
        assert "ada" not in text
        assert "s3/" not in text.replace("s3://", "")
        assert "cret" not in text


def test_an_address_that_can_be_told_is_told() -> None:
    """An address without a password is shown in full, so that an error says which backend it means."""
    whole = [
        "postgresql://[::1]:5432/db",
        "postgresql://a:1,b:2/db",
        "s3://bucket/a@b/c",
        "postgresql:///db",
        "memory:///x",
    ]
    assert [printable_name(address) for address in whole] == whole
    assert printable_name("postgresql://ada:s3%2Fcret@host:5/db?sslmode=require") == "postgresql://host:5/db"


@pytest.mark.parametrize("address", ["postgresql://ada:s3/cret@host/db", "postgresql://ada:s3cret@host:port/db"])
def test_an_address_that_libpq_would_take_apart_elsewhere_is_refused_with_the_hint(address: str) -> None:
    """The client library would look for a host called ``ada`` for half a minute and report that it does not answer."""
    with pytest.raises(ValueError, match="%2F"):
        open_backend(address)


ADDRESSES = [
    "postgresql://ada:s3cret@host/db",
    "s3://bucket/agents",
    "POSTGRES://host/db",
    "s3:/bucket/agents",
    Path("postgresql://ada:s3cret@host/db"),  # pathlib leaves one slash of two
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("door", [ConversationLibrary, ConversationStore, FileStore, SearchIndex, verify])
def test_an_address_is_no_path(
    door: type, address: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made on this disk; the error says how an address is used, and does not repeat it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotAPathError, match=r"open_backend|with both \(pathlib") as caught:
        door(address)
    assert "s3cret" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


def test_a_backend_is_no_folder() -> None:
    """A store on a backend comes from its library, and the error says so."""
    with pytest.raises(TypeError, match=r"ConversationLibrary\(backend\)"):
        ConversationStore(SimulatedBackend())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "command",
    [
        ("view", "chats/a", "--output", "s3://ada:s3cret@bucket/page.html"),
        ("export", "chats/a", "--to", "jsonl", "--output", "s3://ada:s3cret@bucket/x"),
        ("new-key", "s3://ada:s3cret@bucket/key"),
    ],
)
def test_a_command_that_needs_a_path_refuses_an_address(
    command: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Misuse, in one line that has no password; no folder is made that is called ``s3:``."""
    monkeypatch.chdir(tmp_path)
    with ConversationStore("chats/a") as store:
        store.initialize()
    code, out, err = cli(*command)
    assert (code, out) == (2, "")
    assert "an address was given instead of a path" in err
    assert "s3cret" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["chats"]


@pytest.mark.parametrize(
    "command",
    [
        ("list", "{}"),
        ("show", "{}/last"),
        ("record", "{}/x"),
        ("search", "x", "{}"),
        ("import", "session.jsonl", "--into", "{}"),
        ("fork", "chats/a", "--into", "{}"),
        ("ship", "{}", "s3://bucket"),
        ("ship", "s3://bucket", "{}"),
        ("backup", "{}", "copy"),
        ("backup", "chats", "{}"),
        ("backup", "chats", "{}.backup"),
        ("restore", "{}", "copy"),
        ("restore", "chats", "{}"),
        ("chat", "{}/x"),
        ("list",),
    ],
)
def test_an_address_that_lost_a_slash_makes_no_folder(
    command: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``import --into s3:/bucket/agents`` said "1 created", and wrote into a folder ``s3:`` on this disk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", torn := "s3:/ada:s3cret@bucket/agents")
    (tmp_path / "session.jsonl").write_text('{"role": "user", "content": "Hello"}\n')
    with ConversationStore("chats/a") as store:
        store.initialize()
    code, out, err = cli(*(word.format(torn) for word in command), stdin=b'{"role": "user", "content": "Hello"}\n')
    assert (code, out) == (2, "")
    assert "an address has lost one of its slashes; write both" in err
    assert "s3cret" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chats", "session.jsonl"]


def test_a_folder_that_is_called_as_an_address_begins_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any folder can: from its root, or as the error says."""
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "x:" / "a", "./x:/b"):
        with ConversationStore(path) as store:
            store.initialize()
    assert sorted(path.name for path in (tmp_path / "x:").iterdir()) == ["a", "b"]


def test_the_beginning_of_an_id_in_an_address_is_told_how_to_be_given(cli: Cli) -> None:
    """``URL/0b8f`` may be a folder of a bucket: the error says how the beginning of an id is written."""
    code, _, err = cli("show", "postgresql://host/db/0b8f")
    assert code == 2
    assert "as a second word: postgresql://host/db 0b8f" in err


def test_an_error_of_a_backend_names_no_errno_of_this_machine() -> None:
    """``[EIO]`` made people look at their disk."""
    error = BackendError(
        path="postgresql://host/db", doing="list", reason="the server did not answer", outcome="not stored"
    )
    assert str(error) == "postgresql://host/db: cannot list: the server did not answer. Nothing was read"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{}/file", "is not a directory"),
        ("mysql://ada:s3cret@host/db", "there is no backend for mysql://"),
        ("postgresql://ada:s3/cret@host/db", "%2F"),
        (
            "postgresql://ada:s3cret@host/db/0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51",
            "name the library: postgresql://host/db",
        ),
        ("s3://bucket/agents/last", "name the library: s3://bucket/agents"),
    ],
)
@pytest.mark.parametrize("command", [("list",), ("show", "last"), ("search", "x"), ("chat",)])
def test_a_variable_that_names_no_library_is_refused_by_its_name(
    value: str, told: str, command: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable that has the address or path, and no part of the password."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", value.format(tmp_path))
    code, out, err = cli(*command)
    assert (code, out) == (2, "")
    assert "TRANSCRIPT_STORE_LIBRARY" in err
    assert told in err
    assert "s3cret" not in err
    assert "cret@" not in err


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("postgresql://", "postgresql://db.example/agents"),
        ("postgresql://ada:s3cret@other", "postgresql://other/agents"),
        ("postgresql:///mine?schema=copies", "postgresql://db.example/mine?schema=copies"),
        ("postgresql://other/mine", "postgresql://other/mine"),
    ],
)
def test_what_the_environment_adds_is_in_the_name(address: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``PGDATABASE=agents transcript-store list postgresql://`` said of no database which one it was."""
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGDATABASE", "agents")
    assert open_backend(address).name == named
