"""A conversation is named as a person has it at hand: its folder, its id, the beginning of its id, or `last`.

Found by a newcomer: `list` printed folders, `fork` and `delete` wanted a library and a whole id, `show` a path, and
`chat --resume` an id of another library. And a title could be set by `chat` alone, once.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Cli, conversation, damage
from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    FileStore,
    delete_conversation,
)

FIRST, SECOND, THIRD = (
    "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51",
    "0b8f5c2e-4f6d-4f0e-9d5b-2f6f0f3c9a52",
    "77aa5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a53",
)


@pytest.mark.parametrize(
    "command",
    [("fork", "chats/today", "new"), ("view", "chats/today", "x.html")],
)
def test_a_second_word_that_was_meant_as_something_else_is_told(
    cli: Cli, chats: Path, command: tuple[str, ...]
) -> None:
    """A library, a file: each was "no conversation", of a path that nobody had written."""
    code, _, err = cli(*command)
    assert (code, "two words mean a library, and a conversation in it" in err) == (1, True)


@pytest.mark.parametrize("command", [("import", "s.jsonl"), ("fork", "chats/today")])
def test_no_library_is_made_that_is_called_last(cli: Cli, chats: Path, command: tuple[str, ...]) -> None:
    """Every other command takes it for the conversation that changed last, so nothing in it could be named."""
    Path("s.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    code, _, err = cli(*command, "--into", "chats/last")
    assert (code, "name a library" in err) == (2, True)
    assert not (chats / "last").exists()


@pytest.mark.parametrize("name", ["chats/last", "chats/0b8f5c1e", f"chats/{FIRST}"])
@pytest.mark.parametrize("command", [("list",), ("search", "flaky"), ("usage",)])
def test_a_conversation_in_place_of_a_library(cli: Cli, chats: Path, command: tuple[str, ...], name: str) -> None:
    """`list` and `search` looked for it as a word, in the library of `chat`, and ended with 0."""
    code, out, err = cli(*command, name)
    assert (code, out) == (1, "")
    assert "a conversation" in err
    assert "looked for" not in err
    assert cli("search", "chats/none").code == 1, "there is no library of `chat` yet: it was a word"


@pytest.fixture
def chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of two conversations, and a third in a folder with a name; the second is the last one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    library = ConversationLibrary(tmp_path / "chats")
    library.create(id=FIRST, messages=[{"n": 1}]).close()
    with ConversationStore(tmp_path / "chats" / "today") as store:
        store.initialize(id=THIRD, messages=[{"n": 3}])
    library.create(id=SECOND, messages=[{"n": 2}]).close()
    return tmp_path / "chats"


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("chats/today", 3),
        (f"chats/{FIRST}", 1),
        (f"chats/{THIRD}", 3),
        ("chats/77aa", 3),
        ("chats/0b8f5c1e", 1),
        ("./chats/0b8f5c2", 2),
        ("chats/last", 2),
    ],
)
def test_every_command_takes_every_name(cli: Cli, chats: Path, name: str, n: int) -> None:
    """One conversation, whichever name it is given, and whichever command is asked."""
    shown = json.loads(cli("show", name, "--json").out)
    assert shown["message"] == {"n": n}
    assert cli("verify", name).code == 0
    assert cli("repair", name).code == 0
    assert json.loads(cli("head", name, "--json").out)["seq"] == 1
    assert cli("generations", name).code == 0
    snapshot = cli("snapshot", "save", name, "--store", "snapshots").out.strip()
    assert list(FileStore("snapshots").load(snapshot).messages) == [{"n": n}]
    fork = json.loads(cli("fork", name, "--json").out)
    assert Path(fork["directory"]).parent == chats
    assert json.loads(cli("show", fork["directory"], "--json").out)["message"] == {"n": n}
    assert cli("delete", fork["directory"], "--yes").out == f"deleted {fork['id']}\n"
    assert cli("rename", name, f"Number {n}").code == 0
    assert cli("show", name).out.startswith(f"Number {n}  ")


def test_without_a_directory_the_library_is_meant_that_list_shows(
    cli: Cli, chats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incident: `delete last` took the last conversation of the working directory, though TRANSCRIPT_STORE_LIBRARY named a library."""
    from transcript_store.cli._shared.names import chat_library

    own, other = "cafe5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51", "beef5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
    chat_library().create(id=own, messages=[{"n": 4}]).close()
    ConversationLibrary(tmp_path / "named").create(id=other, messages=[{"n": 5}]).close()
    monkeypatch.chdir(chats)
    for variable, meant, n in ((None, own, 4), (str(tmp_path / "named"), other, 5)):
        if variable is not None:
            monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", variable)
        assert meant in cli("list").out
        for name in ("last", meant[:4]):
            assert json.loads(cli("show", name, "--json").out)["message"] == {"n": n}
    assert json.loads(cli("show", "./last", "--json").out)["message"] == {"n": 2}
    assert cli("delete", "last", "--yes").out == f"deleted {other}\n"
    for name in ("last", "77aa", THIRD):
        code, _, err = cli("delete", name)
        assert code == 1
        assert f"{tmp_path / 'named'}: there is no conversation" in err
        assert f"; the one in this directory is ./{name}" in err
    assert cli("delete", "0b8f").code == 2  # which is the beginning of two here, and of none there
    assert len(list(chats.iterdir())) == 3


def test_a_library_that_this_user_may_not_list_is_no_word_of_the_query(
    chats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`list chats` as another user said that no library of this name was there, and searched the titles of the default one."""
    from transcript_store.cli._shared.names import query_and_libraries

    scandir = os.scandir

    def as_another_user(folder: str) -> Any:  # the user of the tests may be root, whom no mode stops
        if folder == chats.name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return scandir(folder)

    monkeypatch.chdir(chats.parent)
    monkeypatch.setattr("os.scandir", as_another_user)
    assert query_and_libraries([chats.name], needs_query=False, is_of_paths=True) == ("", [chats.name])
    assert query_and_libraries(["house", chats.name]) == ("house", [chats.name])


@pytest.mark.parametrize(
    "words",
    [
        ("show", "closed", "today"),
        ("delete", "closed/0b8", "-y"),
        ("rename", "closed", "today", "x"),
        ("usage", "closed/in"),
    ],
)
def test_a_library_that_this_user_may_not_enter_is_not_an_empty_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """That "there is no conversation" was said of one that was there: in a closed folder `lexists` finds nothing."""
    lstat, closed = os.lstat, str(tmp_path / "closed")
    os.mkdir(closed)

    def as_another_user(path: Any, *arguments: Any, **named: Any) -> Any:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return lstat(path, *arguments, **named)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.lstat", as_another_user)
    code, out, err = cli(*words)
    assert (code, out) == (1, "")
    assert err.startswith(f"transcript-store: {closed}: cannot look into the folder: Permission denied [EACCES]; check")


def test_a_beginning_of_several(cli: Cli, chats: Path) -> None:
    """What may mean two is misuse, with both of them; nothing is deleted."""
    for command in ("delete", "fork", "show", "verify"):
        code, out, err = cli(command, "chats/0b8f")
        assert (code, out) == (2, "")
        assert f"2 ids start with 0b8f: {SECOND}, {FIRST}" in err
    assert cli("rename", "chats/0b8f", "x").code == 2
    assert sorted(path.name for path in chats.iterdir()) == sorted([FIRST, SECOND, "today"])


@pytest.mark.parametrize("name", ["chats/0b", "chats/tody", "chats/toda", "chats/dead", "nowhere/last", "chats/LAST"])
def test_a_mistyped_name_means_none(cli: Cli, chats: Path, name: str) -> None:
    """A name that is none, and one that is too short to be the beginning of an id, is nothing; where to look is said."""
    for command in ("delete", "fork", "show"):
        code, out, err = cli(command, name)
        assert (code, out) == (1, "")
        assert "there is no" in err
        assert "`transcript-store list" in err
    assert len(list(chats.iterdir())) == 3


def test_a_folder_comes_first(cli: Cli, chats: Path) -> None:
    """A folder that is called like the beginning of an id, or `last`, is meant before the ids are."""
    for name in ("77aa", "last"):
        conversation(chats / name, [{"name": name}])
        assert json.loads(cli("show", f"chats/{name}", "--json").out)["message"] == {"name": name}


def test_in_two_words(cli: Cli, chats: Path) -> None:
    """Every command takes LIBRARY ID, with the beginning of an id too; nothing leads out of it."""
    for command in ("show", "head", "generations", "verify", "repair"):
        assert cli(command, "chats", "77aa").out == cli(command, "chats/77aa").out != ""
    assert cli("snapshot", "save", "chats", "77aa", "--store", str(chats.parent / "store")).code == 0
    assert cli("rename", "chats", "77aa", "A title").code == 0
    assert cli("show", "chats", "77aa").out.startswith("A title  ")
    assert cli("rename", "chats/77aa", "Another").code == 0
    fork = cli("fork", "chats", "77aa").out.strip()
    assert cli("delete", "chats", fork, "--yes").code == 0
    (chats.parent / "etc").mkdir()
    for name in ("../etc", "..", ".", ""):
        for command in ("fork", "delete"):
            assert cli(command, "chats", name).code == 2
    assert (chats.parent / "etc").exists()


def test_delete_of_a_folder_with_a_name(chats: Path) -> None:
    """`delete_conversation` takes any folder, with what `ConversationLibrary.delete` refuses refused."""
    with ConversationStore(chats / "today") as store:
        store.load()
        with pytest.raises(ConversationLockedError):
            delete_conversation(chats / "today")
    (chats / "link").symlink_to(chats / "today")
    with pytest.raises(CorruptTranscriptError):
        delete_conversation(chats / "link")
    (chats / "mine").mkdir()
    (chats / "mine" / "file").write_text("mine")
    with pytest.raises(ConversationNotFoundError):
        delete_conversation(chats / "mine")
    with pytest.raises(ConversationNotFoundError):
        delete_conversation(chats / "nothing")
    delete_conversation(chats / "today")
    assert sorted(path.name for path in chats.iterdir()) == sorted([FIRST, SECOND, "link", "mine"])


def test_fork_from_a_folder_with_a_name(chats: Path) -> None:
    """`fork_from` takes a conversation from anywhere, and its origin is the conversation, not the folder."""
    library = ConversationLibrary(chats.parent / "elsewhere")
    with library.open(library.fork_from(chats / "today")) as fork:
        assert fork.get_messages() == [{"n": 3}]
        origin = fork.get_metadata().forked_from
    assert origin is not None
    assert origin["conversation"] == THIRD


def test_a_title(cli: Cli, chats: Path) -> None:
    """`rename` sets the title that `list` shows, keeps the other labels, and takes it away again."""
    with ConversationStore(chats / "today") as store:
        store.load()
        store.update_metadata(labels={"colour": "blue"})
    assert cli("rename", "chats/77aa", "Moving house") == (0, "", "")
    assert "Moving house" in cli("list", "chats").out
    assert cli("rename", "chats/today", "Moving out").code == 0
    with ConversationStore(chats / "today", read_only=True) as store:
        store.load()
        assert store.get_metadata().labels == {"colour": "blue", "title": "Moving out"}
    assert cli("rename", "chats/today", "").code == 0
    assert "Moving" not in cli("list", "chats").out
    damage(chats / "today", b'{"n":3}', b'{"n":4}')
    code, _, err = cli("rename", "chats/today", "x")
    assert code == 1
    assert "damaged-line" in err


def test_a_damaged_one_is_found_too(cli: Cli, chats: Path) -> None:
    """What a repair is for can be named in the same ways, also when its metadata is gone."""
    (chats / FIRST / "metadata.json").unlink()
    assert cli("verify", "chats/0b8f5c1").code == 1
    assert cli("repair", "chats/0b8f5c1", "--apply").code == 0
    assert cli("verify", "chats/0b8f5c1").code == 0


@pytest.mark.parametrize("command", [("show",), ("verify",), ("rename", "x"), ("view",), ("fork",)])
def test_a_beginning_that_is_too_short_is_told_as_that(cli: Cli, chats: Path, command: tuple[str, ...]) -> None:
    """Three characters are what one types for a commit; here they could be a mistyped folder, so they name nothing."""
    name, *others = command
    code, out, err = cli(name, "chats/77a", *others)
    assert (code, out) == (1, "")
    assert (
        f"{chats}/77a: the start of an id has at least four characters, and there is no conversation of this name; "
        in err
    )
    conversation(chats / "77a")
    assert cli("show", "chats/77a").code == 0, "a folder of that name is meant, as ever"


def test_an_id_may_follow_an_option(cli: Cli, chats: Path) -> None:
    for words in (("chats", "--dry-run", "77aa"), ("--dry-run", "chats", "77aa"), ("chats", "77aa", "--dry-run")):
        code, out, err = cli("delete", *words)
        assert (code, "would be deleted" in out, err) == (0, True, "")
    for more in (("../77aa",), ("77aa", "more")):
        assert cli("delete", "chats", "--dry-run", *more).code == 2


def positionals(words: list[str]) -> Iterator[tuple[str, argparse.Action]]:
    """The positional arguments of a command and of the commands below it, each with its command."""
    from transcript_store.cli import _parser

    todo = [(words[0], _parser(words)._subparsers._group_actions[0].choices[words[0]])]  # type: ignore[union-attr, index]
    while todo:
        name, parser = todo.pop()
        for action in parser._get_positional_actions():
            if isinstance(action, argparse._SubParsersAction):
                todo += [(f"{name} {below}", command) for below, command in action.choices.items()]
            else:
                yield name, action


def test_every_command_that_takes_a_library_takes_the_default_one() -> None:
    from transcript_store.cli import _COMMANDS

    taking = [
        (command, action.nargs)
        for name in _COMMANDS.keys() - {"chat"}  # which takes none, and may be absent: `.ci/alone`
        for command, action in positionals([name])
        if "LIBRARY" in str(action.metavar).split("|")
    ]
    assert {"backup", "restore", "ship", "list", "usage", "prune", "session relink"} <= {name for name, _ in taking}
    assert [name for name, nargs in taking if nargs not in ("?", "*")] == []


def test_verify_means_the_library_of_chat_if_none_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transcript_store.cli._shared.names import chat_library

    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path / "named"))
    chat_library().create(messages=[{"n": 4}]).close()
    code, out, err = cli("verify")
    assert (code, "1 conversation: 1 intact" in out, "as no library is named" in err) == (0, True, True)
