"""Sealed conversations on the command line: each command with the key, without it, with another one; and a day of use.

What is held (P17): without the key no command prints or writes anything of the content; with another key none says that something is
damaged; and with the key nothing of the content comes to a disk, unless somebody asks for a page, an export or an unseal.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Cli, conversation, lines
from transcript_store import ConversationLibrary, ConversationStore, read_key_file
from transcript_store.mcp._tools import LibraryTools
from transcript_store.search import SearchIndex

WORD = "zebrafish"
MESSAGES = [
    {"role": "user", "content": f"what do {WORD} eat?"},
    {"role": "assistant", "content": f"a {WORD} eats worms"},
]
VARIABLE = "TRANSCRIPT_STORE_KEY"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and a folder for temporary files that can be searched afterwards."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def key(cli: Cli, tmp_path: Path) -> str:
    return new_key(cli, tmp_path / "keys" / "one")


@pytest.fixture
def other(cli: Cli, tmp_path: Path) -> str:
    return new_key(cli, tmp_path / "keys" / "other")


def new_key(cli: Cli, file: Path) -> str:
    file.parent.mkdir(exist_ok=True)
    assert cli("new-key", str(file)).code == 0
    return str(file)


@pytest.fixture
def chats(tmp_path: Path, key: str) -> Path:
    """A library with one sealed conversation."""
    with ConversationLibrary(tmp_path / "chats", encryption_key=read_key_file(key)).create(
        provider="claude", system_prompt=f"you know {WORD}", labels={"title": f"of {WORD}"}
    ) as store:
        for message in MESSAGES:
            store.append_message(message)
    return tmp_path / "chats"


@pytest.fixture
def sealed(chats: Path) -> str:
    return str(next(chats.iterdir()))


def holding(word: str, *places: Path) -> list[str]:
    """The files below these places in which a word stands, in any letters: as it is, in base64, in hex, in UTF-16, or backwards.

    ``strings`` finds the first and the last of these, and a name of a file is looked at too.
    """
    plain = word.encode()
    # In base64 a word has three forms, for it begins at any of three places; its ends depend on what stands beside it.
    in_base64 = {base64.b64encode(bytes(shift) + plain)[shift * 4 // 3 + 2 : -4].lower() for shift in range(3)}
    forms = {plain, plain.hex().encode(), word.encode("utf-16-le"), plain[::-1], *in_base64}
    files = (file for place in places for file in place.rglob("*") if file.is_file())
    return [
        str(file)
        for file in files
        if any(form in file.read_bytes().lower() or form in file.name.lower().encode() for form in forms)
    ]


@pytest.mark.parametrize("before", [b"", b"x", b"xy", b"xyz"])
def test_the_search_for_content_finds_it_in_base64(tmp_path: Path, before: bytes) -> None:
    """Or what it does not find means nothing."""
    for name, form in (("a", base64.b64encode(before + WORD.encode() + b" more")), ("b", WORD.upper().encode())):
        (tmp_path / name).write_bytes(form)
    assert len(holding(WORD, tmp_path)) == 2


# ---- each command ----------------------------------------------------------------------------------------------------

CONTENT = [
    ("show", "{}"),
    ("show", "{}", "--json"),
    ("export", "{}", "--to", "jsonl"),
    ("export", "{}", "--to", "markdown"),
    ("export", "{}", "--to", "original"),
    ("view", "{}", "--output", "-"),
    ("fork", "{}"),
    ("rename", "{}", "title"),
    ("bisect", "{}", "--", "true"),
    ("snapshot", "save", "{}", "--store", "{}-snapshots"),
]
"""Commands that need the content. ``{}`` stands for the conversation."""
PLAINTEXT_MEMBERS = [
    ("list", "{}/.."),
    ("list", "{}/..", "--json", "--limit", "5"),
    ("verify", "{}"),
    ("repair", "{}"),
    ("head", "{}"),
    ("generations", "{}"),
    ("search", WORD, "{}/.."),
    ("index", "{}/.."),
    ("doctor", "{}/.."),
    ("prune", "{}/..", "--older-than", "2w", "--dry-run"),
]
"""Commands that say something without the key."""


def on(command: tuple[str, ...], directory: str) -> list[str]:
    return [word.replace("{}", directory) for word in command]


@pytest.mark.parametrize("command", CONTENT, ids=" ".join)
def test_without_the_key_there_is_no_content(cli: Cli, sealed: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    """One line that says that it is sealed, and how a key is given; nothing is written."""
    code, out, err = cli(*on(command, sealed))
    assert (code, out) == (1, "")
    assert "it is sealed, and no key was given" in err
    assert f"--key-file FILE (repeat it for earlier keys), or {VARIABLE}" in err
    assert err.count("\n") == 1
    assert WORD not in err
    assert not Path(f"{sealed}-snapshots").exists()


@pytest.mark.parametrize("command", CONTENT, ids=" ".join)
def test_with_another_key_it_is_another_key(cli: Cli, sealed: str, other: str, command: tuple[str, ...]) -> None:
    """Which file was tried is said, and nothing is told as damaged. A snapshot store has no key of its own then."""
    words = on(command, sealed)
    at = words.index("--") if "--" in words else len(words)
    code, out, err = cli(*words[:at], "--key-file", other, *words[at:])
    assert (code, out) == (1, "")
    assert "which was not given" in err
    assert f"(given: {other})" in err
    assert "damage" not in err
    assert WORD not in err


@pytest.mark.parametrize("command", PLAINTEXT_MEMBERS, ids=" ".join)
def test_what_needs_no_key_shows_no_content(cli: Cli, sealed: str, other: str, command: tuple[str, ...]) -> None:
    """Nothing is damaged, whichever key is at hand."""
    code, out, err = cli(*on(command, sealed))
    assert code == (3 if command[0] == "search" else 0)
    said = out + err
    if command[0] != "index":
        keyed = cli(*on(command, sealed), *(("--key-file", other) if command[0] != "doctor" else ()))
        said += keyed.out + keyed.err
    assert "damaged" not in said
    assert WORD not in said


@pytest.mark.parametrize("given", ["option", "variable", "second file"])
def test_the_key_opens(
    cli: Cli, sealed: str, key: str, other: str, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """By option, by variable, and as an earlier key behind the one of today."""
    options = {"option": ["--key-file", key], "variable": [], "second file": ["--key-file", other, "--key-file", key]}
    if given == "variable":
        monkeypatch.setenv(VARIABLE, key)
    keys = options[given]
    assert f"a {WORD} eats worms" in cli("show", sealed, *keys).out
    assert f"of {WORD}" in cli("list", f"{sealed}/..", *keys).out
    assert "the key opens every record" in cli("verify", sealed, *keys).out
    found = cli("search", "worms", f"{sealed}/..", *keys)
    assert f"a {WORD} eats worms" in found.out
    assert found.err == ""
    assert cli("rename", sealed, f"more of {WORD}", *keys) == (0, "", "")
    assert f"more of {WORD}" in cli("list", f"{sealed}/..", *keys).out


def test_commands_show_sealed_conversations(cli: Cli, sealed: str, key: str) -> None:
    """By `list`, `verify` and `doctor`; a search says how many it could not read."""
    library = os.path.dirname(sealed)
    conversation(Path(library) / "plain", [{"role": "user", "content": "hi"}])
    assert [json.loads(line)["sealed"] for line in cli("list", library, "--json").out.splitlines()].count(True) == 1
    (line,) = (line for line in cli("list", library).out.splitlines() if "sealed" in line)
    assert os.path.basename(sealed) in line
    assert json.loads(cli("verify", sealed, "--json").out)["is_sealed"]
    assert "  sealed  " in cli("verify", sealed).out
    assert "without the key, the sealed records were not opened" in cli("verify", sealed).out
    assert "sealed: 1 of 2 conversations" in cli("doctor", library).out
    assert "1 sealed conversation not read: give the key" in cli("search", WORD, library).err
    assert "sealed" not in cli("search", WORD, library, "--key-file", key).err


def test_a_wrong_key_of_mcp_is_said_at_its_start(
    cli: Cli, sealed: str, key: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's program shows what a server says on standard error; later nobody would look."""
    monkeypatch.setattr(
        "transcript_store.cli.mcp.make_server", lambda past: type("S", (), {"run": lambda self: None})()
    )
    library = os.path.dirname(sealed)
    assert "1 sealed conversation not read: give the key" in cli("mcp", library).err
    assert "1 sealed conversation not opened by the key that was given" in cli("mcp", library, "--key-file", other).err
    assert cli("mcp", library, "--key-file", key) == (0, "", "")


def test_an_agent_reads_what_is_sealed_with_the_key_alone(sealed: str, key: str) -> None:
    """Listed as sealed without the key; with it a search and a page by page reading find what was said."""
    library, name = os.path.split(sealed)
    with LibraryTools(library) as past:
        (listed,) = past.list_conversations()["conversations"]
        assert listed["is_sealed"]
        assert listed["quoted"]["title"].startswith("sealed, ")
        found = past.search_conversations("worms")
        assert (found["hits"], found["not_searched"]) == ([], 1)
    with LibraryTools(library, encryption_key=read_key_file(key)) as past:
        (hit,) = past.search_conversations("worms")["hits"]
        assert WORD in hit["quoted"]["excerpt"]
        first = past.read_conversation(name, limit=1)
        assert WORD in json.dumps(first["messages"])
        second = past.read_conversation(cursor=first["cursor"])
        assert [message["seq"] for message in second["messages"]] == [2]
        assert "worms" in json.dumps(past.read_record(name, 2))


# ---- ten mistakes of a person in a hurry ------------------------------------------------------------------------------


def test_a_key_and_a_conversation_that_is_plain(cli: Cli, tmp_path: Path, key: str) -> None:
    """It is not read as if it had been sealed, and nothing is added; both ways out are named."""
    plain = conversation(tmp_path / "plain", [{"role": "user", "content": "hi"}])
    for command in (("show", plain), ("record", plain), ("view", plain, "--output", "-"), ("rename", plain, "x")):
        code, out, err = cli(*command, "--key-file", key, stdin=lines(*MESSAGES))
        assert (code, out) == (1, "")
        assert f"`transcript-store seal {plain}` seals it" in err
        assert "--no-key" in err
    assert cli("show", plain).out.count("#") == 1


def test_seal_without_a_key(cli: Cli, tmp_path: Path) -> None:
    """Misuse, and how a key is made."""
    plain = conversation(tmp_path / "plain", [{"role": "user", "content": "hi"}])
    for command in (("seal", plain), ("unseal", plain), ("rotate-key", str(tmp_path), "--new-key-file", "x")):
        code, out, err = cli(*command)
        assert (code == 2 or "there is no such key file" in err, out) == (True, "")
        assert err.count("\n") == 1
    assert "`transcript-store new-key FILE` makes one" in cli("seal", plain).err


def test_seal_and_its_words_in_the_index(cli: Cli, tmp_path: Path, key: str) -> None:
    """What was plain is gone from the library and from the index; a second time there is nothing to do; and it is open to the key."""
    plain = conversation(tmp_path / "chats" / "today", MESSAGES, labels={"title": f"of {WORD}"})
    assert "2 messages" in cli("search", WORD, str(tmp_path / "chats"), "--wait").out
    assert holding(WORD, tmp_path / "chats")
    for _ in range(2):
        code, out, err = cli("seal", plain, "--key-file", key)
        assert (code, err) == (0, "")
        assert "the disk may keep deleted bytes" in out
    assert holding(WORD, tmp_path / "chats", tmp_path / "cache", tmp_path / "tmp") == []
    assert "nothing was found" in cli("search", WORD, str(tmp_path / "chats"), "--wait").out
    assert "worms" in cli("show", plain, "--key-file", key).out
    assert holding(WORD, tmp_path / "cache") == []


def test_unseal_is_the_way_back(cli: Cli, sealed: str, key: str, other: str) -> None:
    """With the key, and with no other one."""
    assert cli("unseal", sealed, "--key-file", other).code == 1
    assert cli("unseal", sealed, "--key-file", key) == (0, f"plain {sealed}\n", "")
    assert "worms" in cli("show", sealed).out
    # What it was before is sealed, and no call gives both: a page says so, and the error says the ways out.
    page = cli("export", sealed, "--to", "markdown")
    assert (page.code, "seal it again to read this, or delete this generation" in page.out) == (0, True)
    was = cli("show", sealed, "--generation", "0")
    assert (was.code, f"`transcript-store generations {sealed} --delete 0` deletes" in was.err) == (1, True)
    assert cli("seal", sealed, "--key-file", key).code == 0
    assert cli("show", sealed).code == 1
    assert "worms" in cli("show", sealed, "--generation", "0", "--key-file", key).out


def test_shred_asks_and_says_what_it_does_not_reach(cli: Cli, sealed: str, key: str, tmp_path: Path) -> None:
    """Nobody at a terminal: nothing is done without --yes. Then nobody reads it again, and it can be deleted."""
    code, out, err = cli("shred", sealed)
    assert (code, out) == (2, "")
    assert "without a terminal, --yes does it" in err
    assert cli("show", sealed, "--key-file", key).code == 0
    code, out, err = cli("shred", sealed, "--yes")
    assert (code, err) == (0, "")
    assert "not reached: backups of its key.json" in out
    code, out, err = cli("show", sealed, "--key-file", key)
    assert (code, out) == (1, "")
    assert "its key was destroyed at" in err
    code, out, err = cli("verify", sealed, "--key-file", key)
    assert (code, "intact" in out, "its key was destroyed at" in err) == (1, False, True)
    assert "sealed" in cli("list", os.path.dirname(sealed)).out
    assert cli("delete", sealed, "--yes").code == 0
    plain = conversation(tmp_path / "chats" / "plain", MESSAGES)
    assert cli("shred", plain, "--yes").code in (1, 2)
    assert "worms" in cli("show", plain).out


NAMED = ("{}", "{}/../0LD", "{}/../last", "called")
"""As any command is told which conversation is meant: its folder, the beginning of its id, the last one, and a folder of another name."""


@pytest.mark.parametrize("named", NAMED)
def test_one_conversation_is_named_as_for_any_command(
    cli: Cli, sealed: str, key: str, other: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rotate-key` and `shred` take a folder of any name, the beginning of an id, and `last`; a rotation leaves all others as they are."""
    library, name = os.path.split(sealed)
    neighbour = ("e" if name.startswith("f") else "f") + name[1:]
    if named == "called":
        os.rename(sealed, sealed := f"{library}/{named}")
    with ConversationLibrary(library, encryption_key=read_key_file(key)).create(
        id=neighbour, messages=MESSAGES
    ) as store:
        before = Path(store.directory, "key.json").read_bytes()
    if named == "{}/../last":
        with ConversationStore(sealed, encryption_key=read_key_file(key)) as last:
            last.load()
            last.append_message(MESSAGES[0])
    monkeypatch.chdir(library)
    given = named.replace("{}", sealed).replace("0LD", name[:8])
    done = cli("rotate-key", given, "--key-file", key, "--new-key-file", other, "--json")
    assert (done.code, json.loads(done.out)["rotated"]) == (0, [os.path.basename(sealed)])
    assert Path(library, neighbour, "key.json").read_bytes() == before
    assert "worms" in cli("show", sealed, "--key-file", other).out
    done = cli("shred", given, "--yes", "--json")
    assert (done.code, json.loads(done.out)["id"]) == (0, name)
    assert "its key was destroyed" in cli("show", sealed, "--key-file", other).err
    assert cli("rotate-key", library, "--key-file", key, "--new-key-file", other).code == 0, "there is no key to keep"


def test_another_key_for_a_library(cli: Cli, sealed: str, key: str, other: str, tmp_path: Path) -> None:
    """A wrong earlier key leaves alone and says so; the right one wraps anew; a second call has nothing to do."""
    library, third = os.path.dirname(sealed), new_key(cli, tmp_path / "keys" / "third")
    rotate = ("rotate-key", library, "--new-key-file", other)
    code, _, err = cli(*rotate, "--key-file", third)
    assert code == 1
    assert ": skipped: " in err
    before = (Path(sealed) / "transcript.jsonl").read_bytes()
    assert cli(*rotate, "--key-file", key).out == "1 conversation now opens with the new key\n"
    assert cli(*rotate, "--key-file", key).out == "nothing to do: 1 conversation had the new key already\n"
    assert (Path(sealed) / "transcript.jsonl").read_bytes() == before
    assert cli("show", sealed, "--key-file", key).code == 1
    assert "worms" in cli("show", sealed, "--key-file", other).out


def test_a_folder_that_is_closed_to_this_user_is_named(
    cli: Cli, sealed: str, key: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell whether it is sealed, so its earlier key may still be needed. The one beside it is wrapped anew."""
    library, name = os.path.split(sealed)
    with ConversationLibrary(library, encryption_key=read_key_file(key)).create(messages=MESSAGES):
        pass
    real = os.open

    def closed(path: Any, *arguments: Any, **named: Any) -> int:
        if os.path.basename(os.fsdecode(path)) == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", closed)
        code, out, err = cli("rotate-key", library, "--new-key-file", other, "--key-file", key)
    assert (code, out) == (1, "1 conversation now opens with the new key\n")
    assert f"{name}: skipped: this user may not access it: Permission denied; keep its earlier key" in err


def test_a_repair_without_the_key_is_accepted_by_hand(cli: Cli, sealed: str, key: str) -> None:
    """`repair` needs no key; whoever has it is told, and takes it as it is or does not."""
    path = Path(sealed) / "transcript.jsonl"
    *kept, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept))  # the mark says that there was one more
    assert cli("verify", sealed).code == 1
    assert cli("repair", sealed, "--mode", "prefix", "--apply").code == 0
    code, out, err = cli("show", sealed, "--key-file", key)
    assert (code, out) == (1, "")
    assert "--accept-unkeyed-repair` accepts it" in err
    assert cli("repair", sealed, "--accept-unkeyed-repair").code == 2
    assert "with 1 record" in cli("repair", sealed, "--accept-unkeyed-repair", "--key-file", key).out
    assert "what do" in cli("show", sealed, "--key-file", key).out


def test_a_snapshot_of_what_is_sealed_is_sealed(cli: Cli, sealed: str, key: str, tmp_path: Path) -> None:
    """One key for both. What is restored is plain if nobody says otherwise, and sealed with --sealed."""
    store = ("--store", str(tmp_path / "snapshots"), "--key-file", key)
    id = cli("snapshot", "save", sealed, *store).out.strip()  # noqa: A001
    assert holding(WORD, tmp_path / "snapshots") == []
    again = str(tmp_path / "again")
    assert cli("snapshot", "restore", id, *store, "--into", again, "--sealed").code == 0
    assert holding(WORD, tmp_path / "again") == []
    assert "worms" in cli("show", again, "--key-file", key).out
    assert cli("prune", os.path.dirname(sealed), "--older-than", "0h", "--snapshots", *store[1:], "--yes").code == 0
    assert not Path(sealed).exists()
    assert holding(WORD, tmp_path / "snapshots") == []


# ---- a day of use -----------------------------------------------------------------------------------------------------

_LOOK = (
    "import pathlib, sys; "
    "sys.exit(any(b'zebrafish' in f.read_bytes() for f in pathlib.Path(sys.argv[1]).parents[1].rglob('*') if f.is_file()))"
)


@pytest.mark.long  # a process for each step of a bisect
def test_a_day_of_use_leaves_nothing_of_the_content(
    cli: Cli, tmp_path: Path, key: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that writes or reads, with the key: nothing of the content is in the library, the cache or a temporary file."""
    monkeypatch.setenv(VARIABLE, key)
    library, source = tmp_path / "chats", tmp_path / "source" / "wire.jsonl"
    source.parent.mkdir()
    source.write_bytes(lines(*MESSAGES))
    today = str(library / "today")
    assert cli("record", today, "--system", f"you know {WORD}", stdin=lines(*MESSAGES)).code == 0
    assert "1 created" in cli("import", str(source), "--format", "jsonl", "--into", str(library)).out
    assert "1 unchanged" in cli("import", str(source), "--format", "jsonl", "--into", str(library)).out
    fork = cli("fork", today).out.strip()
    assert cli("rename", today, f"about {WORD}").code == 0
    for command in (
        ("show", today),
        ("list", str(library)),
        ("list", str(library), "--title", WORD),
        ("search", WORD, str(library), "--wait"),
        ("search", WORD, str(library), "--regex", "worms?"),
        ("index", str(library)),
        ("index", str(library), "--rebuild"),
        ("export", today, "--to", "jsonl"),
        ("view", today, "--output", "-"),
        ("verify", today),
        ("head", today),
        ("generations", today),
        ("doctor", str(library)),
        ("bisect", today, "--", sys.executable, "-c", _LOOK),
        ("snapshot", "save", today, "--store", str(tmp_path / "snapshots")),
        ("snapshot", "list", "--store", str(tmp_path / "snapshots")),
        ("unseal", today),
        ("seal", today),
        ("prune", str(library), "--keep-generations", "0", "--purge-quarantine", "--yes"),
        ("rotate-key", str(library), "--new-key-file", other, "--key-file", key),
        ("shred", str(library / fork), "--yes"),
        ("delete", str(library / fork), "--yes"),
    ):
        code, _, err = cli(*command)
        is_left_alone = command[0] == "bisect" and code == 1
        assert code == 0 or is_left_alone, (command, err)
    with ConversationStore(today, read_only=True, encryption_key=read_key_file(other)) as store:
        store.load()
        assert [message["content"] for message in store.get_messages()] == [one["content"] for one in MESSAGES]
    with SearchIndex(library) as index:
        assert index.update().not_indexed == 0
    assert holding(WORD, library, tmp_path / "cache", tmp_path / "tmp", tmp_path / "snapshots") == []
    assert holding(WORD, tmp_path) == [str(source)]


def test_a_key_that_opens_no_conversation_is_named_once(cli: Cli, sealed: str, key: str, other: str) -> None:
    """A wrong key is one mistake, however many conversations the library has."""
    library = os.path.dirname(sealed)
    assert cli("fork", sealed, "--key-file", key).code == 0
    code, out, err = cli("verify", library, "--key-file", other)
    assert (code, err.count("\n"), "(and 1 other conversation)" in err, "2 failed" in out) == (1, 1, True, True)
    for command in ("unseal", "seal"):
        code, out, err = cli(command, library, "--key-file", other)
        assert (code, err.count("\n"), "(and 1 other conversation)" in err, "2 failed" in out) == (1, 1, True, True)
    each = [json.loads(line) for line in cli("verify", library, "--key-file", other, "--json").out.splitlines()]
    assert [sorted(one) for one in each] == [["conversation", "error"]] * 2  # and no line that calls one intact
    assert cli("verify", sealed, "--key-file", other, "--json")[:2] == (1, "")
    assert cli("verify", library, "--key-file", key)[::2] == (0, "")
    assert "2 are sealed, and their records were not opened" in cli("verify", library).err
