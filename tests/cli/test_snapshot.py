"""`snapshot`: the store on the command line. Keys come from files and the environment; what is stored obeys no terminal."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation, obeyed
from transcript_store import ConversationStore, FileStore, Snapshot, generate_encryption_key
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import REAL
from transcript_store._os.lock import Lock

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
IMAGE = "A" * 600


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def key(tmp_path: Path, cli: Cli) -> str:
    file = str(tmp_path / "key")
    assert cli("snapshot", "new-key", file) == (0, "", "")
    return file


def saved(cli: Cli, tmp_path: Path, *options: str) -> str:
    directory = conversation(tmp_path / "c", MESSAGES, provider="claude", model="a-model", system_prompt="Be brief.")
    code, out, err = cli("snapshot", "save", directory, "--store", str(tmp_path / "s"), *options)
    assert (code, err) == (0, "")
    return out.strip()


def test_a_list_says_times_in_utc_and_counts_one(cli: Cli, tmp_path: Path) -> None:
    """Whatever the offset of the machine that made the snapshot; at the end of the calendar too, where UTC would lie behind it."""
    for created_at, said in (
        ("2026-11-25T01:30:00+02:00", "2026-11-24 23:30:00 UTC"),
        ("2026-11-25T01:30:00.123456789Z", "2026-11-25 01:30:00 UTC"),
        ("0001-01-01T00:30:00+01:00", "0001-01-01 00:30:00 UTC"),
    ):
        store = FileStore(tmp_path / created_at[:10] / created_at[-4:])
        snapshot = Snapshot.create(
            provider="claude", messages=[{"role": "user", "content": "hello"}], created_at=created_at
        )
        store.save(snapshot)
        (line,) = cli("snapshot", "list", "--store", store.directory).out.splitlines()
        assert line.startswith(f"{snapshot.id}  {said}        1 message  ~")


def test_a_conversation_moves_from_one_folder_to_another(cli: Cli, tmp_path: Path, key: str) -> None:
    """Save, list, show, restore, delete, all sealed with one key: the messages are the same in the end."""
    store = ("--store", str(tmp_path / "s"), "--key-file", key)
    id = saved(cli, tmp_path, "--key-file", key)  # noqa: A001
    assert b"hello" not in (tmp_path / "s" / f"{id}.json").read_bytes()
    (line,) = cli("snapshot", "list", *store).out.splitlines()
    assert line.startswith(id)
    assert "2 messages" in line
    assert line.endswith("claude a-model")
    (listed,) = map(json.loads, cli("snapshot", "list", *store, "--json").out.splitlines())
    assert (listed["id"], listed["message_count"]) == (id, 2)
    shown = cli("snapshot", "show", id, *store).out
    assert "#1  user\n    hi\n\n#2  assistant\n    hello\n" in shown
    assert "system prompt  Be brief." in shown
    assert cli("snapshot", "restore", id, *store, "--into", str(tmp_path / "d")) == (0, f"{tmp_path}/d\n", "")
    with ConversationStore(tmp_path / "d", read_only=True) as copy:
        copy.load()
        assert copy.get_messages() == MESSAGES
    assert cli("snapshot", "verify", *store) == (0, "intact: no problem found\n", "")
    assert cli("snapshot", "delete", id, *store) == (0, "", "")
    code, out, err = cli("snapshot", "delete", id, *store)
    assert (code, out) == (1, "")
    assert f"there is no snapshot {id}" in err


def test_the_json_form_is_what_a_program_reads(cli: Cli, tmp_path: Path) -> None:
    """--json prints the snapshot as it is stored, big integers and all, without a character that a terminal obeys."""
    text = '[{"n":123456789012345678901234567890,"f":1.0,"s":"\u202e\x7f\\u0007 é"}]'.encode()
    one = Snapshot.create(
        provider="p", model="\x1b]0;m\x07", system_prompt="\u202e", messages=[], metadata={"a\nb": "\x9b"}
    )
    one = Snapshot(
        id=one.id,
        provider=one.provider,
        model=one.model,
        messages_json=text,
        created_at=one.created_at,
        metadata=one.metadata,
    )
    FileStore(tmp_path / "s").save(one)
    out = cli("snapshot", "show", one.id, "--store", str(tmp_path / "s"), "--json").out
    assert json.loads(out) == json.loads(one.to_json())
    assert '"f": 1.0' in out
    for arguments in (("show", one.id), ("show", one.id, "--json"), ("list",), ("list", "--json")):
        assert obeyed(cli("snapshot", *arguments, "--store", str(tmp_path / "s")).out) == set()


def test_a_key_from_the_environment(cli: Cli, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSCRIPT_STORE_KEY in hex; a key file that is given counts instead of it."""
    monkeypatch.setenv("TRANSCRIPT_STORE_KEY", Path(key).read_text().strip())
    id = saved(cli, tmp_path)  # noqa: A001
    store = ("--store", str(tmp_path / "s"))
    assert cli("snapshot", "show", id, *store).code == 0
    monkeypatch.setenv("TRANSCRIPT_STORE_KEY", "0" * 64)
    assert "none of the keys opens it" in cli("snapshot", "show", id, *store).err
    assert cli("snapshot", "show", id, *store, "--key-file", key).code == 0
    monkeypatch.setenv("TRANSCRIPT_STORE_KEY", "canary")
    code, out, err = cli("snapshot", "list", *store)
    assert (code, out) == (1, "")
    assert "TRANSCRIPT_STORE_KEY: a key is 64 hex digits, and a path starts with" in err
    assert "canary" not in err


def test_an_empty_variable_is_no_key(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TRANSCRIPT_STORE_KEY=` (a unit file's empty line, a secret that CI does not hand to a fork) once ended every command."""
    monkeypatch.setenv("TRANSCRIPT_STORE_KEY", "")
    path = conversation(tmp_path / "c", [{"role": "user", "content": "hi"}])
    assert cli("snapshot", "save", path, "--store", str(tmp_path / "s")).code == 0
    code, out, err = cli("snapshot", "list", "--store", str(tmp_path / "s"))
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    "content", [bytes(range(32)), bytes(range(32)).hex().encode(), bytes(range(32)).hex().upper().encode() + b"\r\n"]
)
def test_a_key_file_holds_bytes_or_hex(cli: Cli, tmp_path: Path, content: bytes) -> None:
    """32 bytes as they are, or 64 hex digits and white space."""
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_bytes(content)
    id = saved(cli, tmp_path, "--key-file", str(file))  # noqa: A001
    assert FileStore(tmp_path / "s", encryption_key=bytes(range(32))).load(id).messages == MESSAGES


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33, b"g" * 64, b"0" * 63, b"\xff" * 64, b"0" * 10_000])
def test_a_file_that_holds_no_key(cli: Cli, tmp_path: Path, content: bytes) -> None:
    """One line that names the file and the length, and shows nothing of it."""
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_bytes(content)
    code, out, err = cli("snapshot", "list", "--store", str(tmp_path / "s"), "--key-file", str(file))
    assert (code, out) == (1, "")
    assert err.startswith(f"transcript-store: {file}: a key is 32 bytes or 64 hex digits")
    assert err.count("\n") == 1
    assert content[:31].decode("latin-1") not in err or not content


def test_a_key_that_others_may_read_is_refused(cli: Cli, tmp_path: Path, key: str) -> None:
    """In one line with the way out; a key of its owner only is taken."""
    (tmp_path / "s").mkdir()
    store = ("--store", str(tmp_path / "s"), "--key-file", key)
    assert cli("snapshot", "list", *store).err == ""
    Path(key).chmod(0o640)
    code, _, err = cli("snapshot", "list", *store)
    assert code == 1
    assert err.startswith(f"transcript-store: {key}: other users may read this key (mode 640); chmod 600 it")
    assert err.count("\n") == 1


def test_a_new_key_never_overwrites(cli: Cli, tmp_path: Path) -> None:
    """0600 whatever the umask, 64 hex digits, another each time; a file or a link that is there stays."""
    before = os.umask(0)
    try:
        assert cli("snapshot", "new-key", str(tmp_path / "one")).code == 0
    finally:
        os.umask(before)
    cli("snapshot", "new-key", str(tmp_path / "two"))
    one, two = (tmp_path / "one").read_text(), (tmp_path / "two").read_text()
    assert len(bytes.fromhex(one)) == len(bytes.fromhex(two)) == 32
    assert one != two
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("one", "link"):
        assert cli("snapshot", "new-key", str(tmp_path / name)).code == 1
    assert (tmp_path / "one").read_text() == one
    assert not (tmp_path / "nowhere").exists()
    assert cli("snapshot", "new-key", str(tmp_path / "none/key")).code == 1


def test_a_key_that_could_not_be_stored_is_not_there(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a key in a file would be a surprise later."""

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "sync", refuse)
    code, out, err = cli("snapshot", "new-key", str(tmp_path / "key"))
    assert (code, out) == (1, "")
    assert "cannot write a new key" in err
    assert not (tmp_path / "key").exists()


def test_another_key(cli: Cli, tmp_path: Path, key: str) -> None:
    """A plain store is sealed, a sealed one sealed anew; the old key, retired, opens what a crash left."""
    new = str(tmp_path / "new")
    cli("snapshot", "new-key", new)
    id, store = saved(cli, tmp_path), ("--store", str(tmp_path / "s"))  # noqa: A001
    assert cli("snapshot", "rotate-key", *store, "--new-key-file", key).code == 0
    assert cli("snapshot", "rotate-key", *store, "--key-file", key, "--new-key-file", new).code == 0
    assert cli("snapshot", "show", id, *store, "--key-file", new).code == 0
    assert cli("snapshot", "show", id, *store, "--key-file", key).code == 1
    assert cli("snapshot", "show", id, *store, "--key-file", key, "--retired-key-file", new).code == 0
    assert cli("snapshot", "rotate-key", *store, "--new-key-file", key).code == 1


def test_verify_and_collect(cli: Cli, tmp_path: Path) -> None:
    """Damage is exit code 1 with the file and why; media goes when nothing refers to it."""
    store = ("--store", str(tmp_path / "s"))
    one = Snapshot.create(provider="p", messages=[IMAGE])
    FileStore(tmp_path / "s").save(one)
    assert cli("snapshot", "collect-media", *store, "--older-than", "0").out == "0 files of media removed\n"
    path = tmp_path / "s" / f"{one.id}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    code, out, _ = cli("snapshot", "verify", *store)
    assert code == 1
    assert out.startswith(f"{path}\n  damaged: ")
    found = json.loads(cli("snapshot", "verify", *store, "--json").out)
    assert (found["is_intact"], [finding["kind"] for finding in found["findings"]]) == (False, ["damaged"])
    code, out, err = cli("snapshot", "collect-media", *store, "--older-than", "0")
    assert (code, out) == (0, "0 files of media removed\n")
    assert one.id in err
    path.unlink()
    assert cli("snapshot", "collect-media", *store, "--older-than", "0").out == "1 file of media removed\n"


def test_verify_says_which_key_is_missing(cli: Cli, tmp_path: Path, key: str) -> None:
    """A store that is sealed is not damaged: whoever forgot the key is told so, as a list tells it."""
    saved(cli, tmp_path, "--key-file", key)
    store = ("--store", str(tmp_path / "s"))
    code, out, err = cli("snapshot", "verify", *store)
    assert (code, "unopened: " in out) == (1, True)
    assert err == cli("snapshot", "list", *store).err
    assert "give the key, in --key-file" in err
    assert cli("snapshot", "verify", *store, "--key-file", key) == (0, "intact: no problem found\n", "")


def test_errors_are_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad id, another provider, another writer, a command that makes no sense."""
    store = ("--store", str(tmp_path / "s"))
    id = saved(cli, tmp_path)  # noqa: A001
    other = conversation(tmp_path / "other", provider="openai")
    for arguments, said in (
        (
            ("show", "../../etc/passwd\x1b"),
            "is not a canonical lower-case UUID; `transcript-store snapshot list` lists the stored ones",
        ),
        (("restore", id, "--into", other), "messages of provider 'claude' cannot be continued with 'openai'"),
    ):
        code, out, err = cli("snapshot", *arguments, *store)
        assert (code, out) == (1, "")
        assert said in err
        assert err.count("\n") == 1
        assert obeyed(err) == set()
    monkeypatch.setattr("transcript_store._snapshots.file_store.LOCK_TIMEOUT_SECONDS", 0.0)
    with Folder.open(REAL, str(tmp_path / "s")) as folder:
        lock = Lock(folder)
        lock.take(0)
        code, _, err = cli("snapshot", "delete", id, *store)
        lock.release()
    assert code == 1
    assert "try again when it is done" in err
    misuse: list[tuple[str, ...]] = [(), ("show",), ("list",), ("forget", "x"), ("new-key", "")]
    for words in misuse:
        assert cli("snapshot", *words).code == 2


def test_no_command_takes_a_key_as_an_argument(cli: Cli) -> None:
    """Whoever may list processes could read it there."""
    for command in ("save", "list", "show", "restore", "delete", "rotate-key", "verify", "collect-media"):
        out = cli("snapshot", command, "--help").out
        assert "--key-file FILE" in out
        assert "--key " not in out
    assert generate_encryption_key().hex() not in out


def test_a_key_that_was_forgotten(cli: Cli, tmp_path: Path, key: str) -> None:
    """Nothing is saved in the clear, or with another key, beside what is sealed; a list of nothing says why it is empty."""
    directory = conversation(tmp_path / "c", [{"role": "user", "content": "hello"}])
    store = ("--store", str(tmp_path / "s"))
    other = str(tmp_path / "other")
    assert cli("snapshot", "new-key", other).code == 0
    assert cli("snapshot", "save", directory, *store, "--key-file", key).code == 0
    before = sorted((tmp_path / "s").iterdir())
    hints = {
        (): "its snapshots are sealed: give the key",
        ("--key-file", other): "this key does not open its snapshots",
        ("--retired-key-file", key): "--retired-key-file needs the current key too",
        ("--key-file", str(tmp_path / "typo")): "there is no such key file; `transcript-store new-key",
    }
    for command in (("save", directory), ("list",)):
        for keys, hint in hints.items():
            code, out, err = cli("snapshot", *command, *store, *keys)
            assert (code, out) == (1, "")
            assert hint in err
    assert sorted((tmp_path / "s").iterdir()) == before
    assert cli("snapshot", "list", *store, "--key-file", other, "--retired-key-file", key).out.count("\n") == 1


def test_a_key_too_many(cli: Cli, tmp_path: Path, key: str) -> None:
    """A key that is set, and a store that is plain: the way out is to leave it out, or to seal."""
    store = ("--store", str(tmp_path / "s"))
    saved(cli, tmp_path)
    code, out, err = cli("snapshot", "list", *store, "--key-file", key)
    assert (code, out) == (1, "")
    assert "its snapshots are not sealed: leave the key out" in err
    assert cli("snapshot", "rotate-key", *store, "--new-key-file", key).out == "sealed with the new key: 1 snapshot\n"
    assert cli("snapshot", "list", *store, "--key-file", key).out.count("\n") == 1


def test_what_is_no_store(cli: Cli, tmp_path: Path, key: str) -> None:
    """A conversation, or a library of them, is not taken for a store in which nothing is wrong and all is sealed."""
    chat = conversation(tmp_path / "library" / "c", [{"role": "user", "content": "hello"}])
    library = str(tmp_path / "library")
    before = sorted(tmp_path.rglob("*"))
    for directory, what in ((chat, "this is a conversation"), (library, "this is a library of conversations")):
        for command in (
            ("verify",),
            ("list",),
            ("collect-media",),
            ("save", chat),
            ("rotate-key", "--new-key-file", key),
        ):
            code, out, err = cli("snapshot", *command, "--store", directory)
            assert (code, out) == (1, "")
            assert f"{directory}: {what}, not a snapshot store" in err
    assert sorted(tmp_path.rglob("*")) == before
    id = saved(cli, tmp_path)  # noqa: A001
    (tmp_path / "s" / f"{id}.json").rename(tmp_path / "library" / f"{id}.json")
    assert cli("snapshot", "list", "--store", library).out.startswith(id)  # both at once is nobody's mistake


def test_a_rotation_that_leaves_something_behind(cli: Cli, tmp_path: Path, key: str) -> None:
    """The error says what holds: the new key is needed from now on, and so is the old one."""
    directory = conversation(tmp_path / "c", [{"role": "user", "content": "hello"}])
    store, new = ("--store", str(tmp_path / "s")), str(tmp_path / "new")
    assert cli("snapshot", "new-key", new).code == 0
    assert cli("snapshot", "save", directory, *store, "--key-file", key).code == 0
    (tmp_path / "s" / f"{Snapshot.create(provider='p', messages=[]).id}.json").write_bytes(b"\xff" * 100)
    code, out, err = cli("snapshot", "rotate-key", *store, "--key-file", key, "--new-key-file", new)
    assert (code, out) == (1, "")
    assert err.endswith(
        "it was skipped; 1 other is sealed with the new key now; keep both key files, and run `transcript-store snapshot rotate-key` again to continue\n"
    )
    assert cli("snapshot", "list", *store, "--key-file", new).out.count("\n") == 1


def test_a_store_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    """A typo in the name of the store is an error; only a save makes a store."""
    for command in ("list", "verify", "collect-media"):
        code, out, err = cli("snapshot", command, "--store", str(tmp_path / "typo"))
        assert (code, out) == (1, "")
        assert "there is no such directory" in err


def test_a_list_keeps_what_it_read_and_nothing_of_a_sealed_store(
    cli: Cli, tmp_path: Path, cache: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time_ns() + 3600 * 10**9  # what was written a moment ago is not kept
    monkeypatch.setattr("time.time_ns", lambda: later)
    saved(cli, tmp_path, "--key-file", key)
    assert cli("snapshot", "list", "--store", str(tmp_path / "s"), "--key-file", key).out.count("\n") == 1
    assert not cache.exists()
    (tmp_path / "s").rename(tmp_path / "sealed")
    (tmp_path / "c").rename(tmp_path / "before")
    saved(cli, tmp_path)
    first = cli("snapshot", "list", "--store", str(tmp_path / "s"))
    assert first.out.count("\n") == 1
    assert list((cache / "transcript-store").glob("snapshots-*"))
    assert cli("snapshot", "list", "--store", str(tmp_path / "s")) == first


def test_a_snapshot_is_named_by_the_beginning_of_its_id(cli: Cli, tmp_path: Path, key: str) -> None:
    """As a conversation is: at least four characters, and one that is not the beginning of several ids."""
    store = FileStore(tmp_path / "s")
    for own_id, text in (("1a2b3c4d", "the first"), ("1a2b3c4e", "the second"), ("77777777", "the third")):
        made = Snapshot.create(provider="claude", messages=[{"role": "user", "content": text}])
        store.save(replace(made, id=f"{own_id}-0000-4000-8000-000000000000"))
    at = ("--store", store.directory)
    assert "the second" in cli("snapshot", "show", "1a2b3c4e", *at).out
    assert cli("snapshot", "restore", "7777", *at, "--into", str(tmp_path / "back")).code == 0
    with ConversationStore(tmp_path / "back", read_only=True) as back:
        back.load()
        assert [message["content"] for message in back.get_messages()] == ["the third"]
    several = cli("snapshot", "delete", "1a2b3c4", *at)
    assert (several.code, "ids start with 1a2b3c4" in several.err) == (2, True)
    for nothing in ("777", "7777-", "8888"):
        refused = cli("snapshot", "delete", nothing, *at)
        assert (refused.code, refused.out, len(refused.err.splitlines())) == (1, "", 1)
    assert len(store.list()) == 3
    assert cli("snapshot", "delete", "7777", *at).code == 0
    assert len(store.list()) == 2
    cli("snapshot", "rotate-key", *at, "--new-key-file", key)
    assert "its snapshots are sealed" in cli("snapshot", "show", "1a2b3c4e", *at).err
    assert "the second" in cli("snapshot", "show", "1a2b3c4e", *at, "--key-file", key).out


def test_a_snapshot_that_could_not_be_saved_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence said that `snapshot show` tells, and nobody knew of which id."""
    directory = conversation(tmp_path / "c", MESSAGES)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(REAL, "write", full)
    refused = cli("snapshot", "save", directory, "--store", str(tmp_path / "s"))
    assert refused.code == 1
    (own_id,) = re.findall(r"cannot save the snapshot ([0-9a-f-]{36}): ", refused.err)
    assert cli("snapshot", "show", own_id, "--store", str(tmp_path / "s")).code == 1
