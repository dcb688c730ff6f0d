"""`prune` prints what has expired before it removes anything, and removes nothing without a confirmation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation
from transcript_store import ConversationLibrary, ConversationStore, FileStore
from transcript_store.cli import prune


@pytest.fixture
def shelf(tmp_path: Path) -> ConversationLibrary:
    """Two conversations, one of which has an earlier generation, and labels."""
    library = ConversationLibrary(tmp_path / "chats")
    library.create(messages=[{"n": 1}], labels={"title": "One"}).close()
    with library.create(messages=[{"n": 2}], labels={"title": "Two\x1b[31m", "project": "x"}) as store:
        store.replace_transcript([{"n": 3}])
    return library


def test_a_dry_run_only_says(cli: Cli, shelf: ConversationLibrary) -> None:
    code, out, err = cli("prune", shelf.directory, "--older-than", "0h", "--dry-run")
    assert (code, err) == (0, "")
    *each, total = out.splitlines()
    assert len(each) == 2
    assert all(line.startswith("conversation  ") for line in each)
    assert "Two\\x1b[31m" in out
    assert re.fullmatch(r"2 conversations \(.* kB\) would be removed", total)
    assert len(shelf.list()) == 2


def test_without_a_terminal_it_removes_only_with_yes(cli: Cli, shelf: ConversationLibrary) -> None:
    """A yes that stands on a pipe was not meant for this question."""
    code, out, err = cli("prune", shelf.directory, "--older-than", "0h", stdin=b"y\n")
    assert code == 2
    assert "would be removed" in out
    assert err == "transcript-store: nothing was removed; without a terminal, --yes removes it\n"
    assert len(shelf.list()) == 2
    code, out, err = cli("prune", shelf.directory, "--older-than", "0h", "--yes")
    assert (code, err) == (0, "")
    assert re.search(r"2 conversations \(.*\) removed\n$", out)
    assert shelf.list() == []
    assert cli("prune", shelf.directory, "--older-than", "0h", "--yes") == (0, "nothing was removed\n", "")
    assert cli("prune", shelf.directory, "--older-than", "0h", "--dry-run") == (0, "nothing is expired\n", "")


@pytest.mark.parametrize(("answer", "left"), [("y", 1), ("YES ", 1), ("", 2), ("n", 2), ("yes please", 2), (None, 2)])
def test_at_a_terminal_it_asks(
    cli: Cli, shelf: ConversationLibrary, monkeypatch: pytest.MonkeyPatch, answer: str | None, left: int
) -> None:
    def say() -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr(prune, "is_at_a_terminal", lambda: True)
    monkeypatch.setattr("transcript_store.cli._shared.terminal.is_at_a_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", say)
    code, out, err = cli("prune", shelf.directory, "--older-than", "0h", "--label", "project=x")
    assert "remove 1 conversation? [y/N] " in out
    assert (code, len(shelf.list())) == ((0, 1) if left == 1 else (2, 2))
    assert out.endswith(") removed\n") == (left == 1)
    assert err == ("" if left == 1 else "transcript-store: nothing was removed\n")


def test_generations_and_quarantine(cli: Cli, shelf: ConversationLibrary) -> None:
    folder = next(Path(shelf.directory).glob("*/archive")).parent
    with (folder / "transcript.jsonl").open("ab") as file:
        file.write(b"torn")
    shelf.open(folder.name).close()
    arguments = ["prune", shelf.directory, "--keep-generations", "0", "--purge-quarantine"]
    code, out, _ = cli(*arguments, "--yes")
    assert code == 0
    assert re.search(r"^generation 0 .*\nquarantine .*\n1 generation, 1 quarantine \(.*\) removed\n$", out)
    with ConversationStore(folder) as store:
        store.load()
        assert [generation.number for generation in store.generations()] == [1]


def test_what_is_left_unchanged_is_named(cli: Cli, shelf: ConversationLibrary) -> None:
    """And the exit code says so; the other one went, as JSON, into a snapshot."""
    first, second = shelf.list()
    kept = f"{shelf.directory}-kept"
    with shelf.open(str(first.id)):
        code, out, err = cli("prune", shelf.directory, "--older-than", "0h", "--snapshots", kept, "--yes", "--json")
    assert (code, err) == (1, "")
    items = {item["id"]: item for item in map(json.loads, out.splitlines())}
    assert "is writing to it" in items[first.id]["skipped"]
    assert items[second.id]["skipped"] is None
    assert items[second.id]["applied"] is True
    assert [one.id for one in FileStore(kept).list()] == [items[second.id]["snapshot"]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "prune needs --older-than"),
        (["--older-than", "soon"], "is not a time; use 24h"),
        (["--keep-generations", "-1"], "expected one argument|not a number"),
        (["--older-than", "1d", "--label", "x"], "NAME=VALUE"),
        (["--older-than", "1d", "--json"], "--dry-run or --yes"),
        (
            ["--older-than", "2206-11-25", "--yes"],
            "older_than: 2206-.* is in the future .*, so every conversation would be expired",
        ),
    ],
)
def test_misuse(cli: Cli, shelf: ConversationLibrary, arguments: list[str], says: str) -> None:
    code, out, err = cli("prune", shelf.directory, *arguments)
    assert (code, out) == (2, "")
    assert re.search(says, err)


def test_a_conversation_is_no_library(cli: Cli, tmp_path: Path) -> None:
    chat = conversation(tmp_path / "c", [{"n": 1}])
    code, _, err = cli("prune", chat, "--older-than", "0h", "--yes")
    assert code == 1
    assert "this is a conversation, not a library" in err
    assert (tmp_path / "c" / "transcript.jsonl").exists()


def test_what_cannot_be_looked_at_has_no_time(cli: Cli, shelf: ConversationLibrary) -> None:
    """The incident: a conversation that only its owner may read was "changed None  UTC"."""
    folder = next(Path(shelf.directory).glob("*/archive")).parent
    for name in ("transcript.jsonl", "metadata.json"):
        (folder / name).unlink()
        (folder / name).mkdir()
    code, out, _ = cli("prune", shelf.directory, "--older-than", "0h", "--dry-run")
    assert code == 1
    assert re.search(rf"{folder.name}  changed at an unknown time .*- skipped: whether it is expired is unknown", out)
    assert "None" not in out
