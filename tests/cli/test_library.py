"""`list`, `fork`, `delete`, `generations`, `show --generation`: many conversations from a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation, damage, obeyed
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.cli._shared.terminal import columns_of

UNKNOWN = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"


def make(library: Path, **metadata: object) -> str:
    with ConversationLibrary(library).create(messages=[{"n": 1}, {"n": 2}], **metadata) as store:  # type: ignore[arg-type]
        return store.get_metadata().id


def test_list(cli: Cli, tmp_path: Path) -> None:
    """One line a conversation, whatever its folder is called, the one that changed last first; damage on a line below."""
    conversation(tmp_path / "first", [{"n": 1}], provider="claude", model="m", labels={"title": "A\ttitle\x1b[2J"})
    conversation(tmp_path / "second", [{"n": 1}, {"n": 2}])
    conversation(tmp_path / "third", [{"n": 1}])
    damage(tmp_path / "third", b'"transcript-store"', b'"transcript-STORE"')
    (tmp_path / "no conversation").mkdir()
    (tmp_path / "file").write_text("")
    code, out, err = cli("list", str(tmp_path))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[1].startswith("    damaged: ")
    del lines[1]
    cells = [line.split("\t") for line in lines]
    assert [cell[4] for cell in cells] == ["third", "second", "first"]
    assert cells[1][5] == "2"
    assert (cells[2][0], cells[2][7]) == ("A\\ttitle\\x1b[2J", "claude/m")
    assert not obeyed(out)
    found = [json.loads(line) for line in cli("list", str(tmp_path), "--json").out.splitlines()]
    assert [Path(one["directory"]).name for one in found] == ["third", "second", "first"]
    assert [one["record_count"] for one in found] == [1, 2, 1]
    assert found[0]["damage"]
    assert found[2]["title"] == "A\ttitle\x1b[2J"


def test_list_says_where_each_came_from(cli: Cli, tmp_path: Path) -> None:
    """The labels `source` and `cwd` of an import: the program, and the project by its last name."""
    labels = {"source": "claude-code", "title": "Beams", "cwd": "/home/ada/bridge/"}
    conversation(tmp_path / "a", [{"n": 1}], provider="claude", labels=labels)
    conversation(tmp_path / "b", [{"n": 1}], labels={"source": "evil\x1b[2J", "cwd": "/evil/\t\x1b[2J"})
    mine, other = (line.split("\t") for line in sorted(cli("list", str(tmp_path)).out.splitlines()))
    assert (mine[0], *mine[2:5], mine[7]) == ("Beams", "bridge", "claude-code", "a", "claude")
    assert (other[0][:15], *other[2:4]) == ("evil\\x1b[2J, 20", "\\t\\x1b[2J", "evil\\x1b[2J")
    for option in ("--project", "--cwd"):
        assert cli("list", str(tmp_path), option, "ada/bridge").out.split("\t")[0] == "Beams"
    assert cli("list", str(tmp_path), "--filter", "-cwd:bridge").out.split("\t")[3] == "evil\\x1b[2J"


def test_a_title_of_blanks_is_none(cli: Cli, tmp_path: Path) -> None:
    """It was an empty line behind the facts of a list, and in front of the hits of a search."""
    library = tmp_path / "library"
    for name, labels in (("a", {"title": " \t\u3000"}), ("b", {})):
        conversation(library / name, [{"role": "user", "content": "socket"}], labels=labels)
    assert [line.split("\t")[0] for line in cli("list", str(library)).out.splitlines()] == ["socket", "socket"]
    titles = [json.loads(line)["title"] for line in cli("list", str(library), "--json").out.splitlines()]
    assert titles == [None, None]
    titles = [
        json.loads(line)["title"] for line in cli("list", str(library), "--json", "--limit", "2").out.splitlines()
    ]
    assert titles == [None, None]
    assert (
        cli("search", "socket", str(library)).out.splitlines().count("socket") == 2
    )  # their first prompt is the heading


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_list_is_in_line_and_in_the_terminal(
    cli: Cli, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title that does not fit ends with …; all else stands in line, and ids are as short as they can be. A pipe gets all of it."""
    title = "Ein Café am 河边 " + "e\u0301" * 200
    conversation(tmp_path / "a", [{"n": 1}], model="a-model", labels={"title": title, "cwd": "/srv/" + "p" * 40})
    beside = UNKNOWN[:9] + "ffff" + UNKNOWN[13:]
    for own_id in (UNKNOWN, beside):
        conversation(tmp_path / own_id, [{"n": 1}], labels={"title": "Beams", "source": "claude-code"})
    assert f"{title}\t" in cli("list", str(tmp_path)).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    for options in ((), ("--long",)) if width > 100 else ((),):
        headings, *lines = cli("list", str(tmp_path), *options).out.splitlines()
        at = columns_of(headings[: headings.index("LAST SAID")])
        assert max(map(columns_of, lines)) <= width
        (cut,) = (line for line in lines if "Café" in line)
        assert columns_of(cut[: cut.index("…  20") + 1]) <= at - 2
        assert {line.split()[-1] for line in lines} == {"a", UNKNOWN[:10], beside[:10]}
        assert ("RECORDS" in headings) == bool(options)
        assert ("PROJECT" in headings) == (width >= 80)


def test_list_of_nothing(cli: Cli, tmp_path: Path) -> None:
    """An empty directory holds no conversation, which is no error; a directory that is not there is one."""
    assert "there is no conversation directly under it" in cli("list", str(tmp_path)).out
    assert cli("list", str(tmp_path), "--json") == (0, "", "")
    code, out, err = cli("list", str(tmp_path / "absent"))
    assert (code, out) == (1, "")
    assert "there is no such directory" in err


def test_a_folder_of_libraries_is_told(cli: Cli, tmp_path: Path) -> None:
    """A Claude Agent has a library for each project, and the one who looks for a conversation names the folder above."""
    conversation(tmp_path / "chats" / "-home-ada-app" / UNKNOWN, [{"n": 1}])
    conversation(tmp_path / "chats" / "-home-ada-web" / UNKNOWN, [{"n": 1}])
    (tmp_path / "chats" / "empty").mkdir()
    (tmp_path / "chats" / "note").write_text("x")
    within = tmp_path / "chats" / "-home-ada-app"
    found = f"2 folders in it have some, such as {within}: name that"
    says = f"{tmp_path}/chats: there is no conversation directly under it; {found}\n"
    assert cli("list", str(tmp_path / "chats")).out == says
    for command in (("search", "x"), ("prune", "--older-than", "7d")):
        assert cli(*command, str(tmp_path / "chats")).err == f"transcript-store: {says}"


def test_a_name_that_begins_with_a_dash(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken for an option; how it is written instead is said."""
    conversation(tmp_path / "-home-ada-app" / UNKNOWN, [{"n": 1}])
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("list", "-home-ada-app")
    assert code == 2
    assert "; write a name that starts with a dash as ./-home-ada-app" in err
    assert UNKNOWN in cli("list", "./-home-ada-app").out


def test_list_of_something_else(cli: Cli, tmp_path: Path) -> None:
    """A file is told as a file; a conversation is told as one, with the command that shows it."""
    (tmp_path / "file").write_text("a file")
    for command, hint in (
        (("list", str(tmp_path / "file")), "this is a file, not a library; name a directory"),
        (
            ("snapshot", "list", "--store", str(tmp_path / "file")),
            "move away the file or the symbolic link at that path",
        ),
    ):
        code, out, err = cli(*command)
        assert (code, out) == (1, "")
        assert str(tmp_path / "file") in err
        assert err.endswith(f"{hint}\n") or f"; {hint}," in err
    directory = str(tmp_path / make(tmp_path))
    assert "this is a conversation, not a library; name its library" in cli("list", directory).err


def test_fork_and_delete(cli: Cli, tmp_path: Path) -> None:
    """Fork prints the id of the copy, which show tells the origin of; delete removes one and leaves the other."""
    original = make(tmp_path)
    code, out, _ = cli("fork", str(tmp_path), original, "--through-seq", "1")
    assert code == 0
    fork = out.strip()
    shown = cli("show", str(tmp_path / fork)).out
    assert f"forked from    {original}, after its record 1" in shown
    assert '"n": 1' in shown
    assert '"n": 2' not in shown
    assert cli("delete", str(tmp_path), original, "--yes").out == f"deleted {original}\n"
    assert [path.name for path in tmp_path.iterdir()] == [fork]
    again = json.loads(cli("fork", str(tmp_path), fork, "--json").out)
    assert again["directory"] == str(tmp_path / again["id"])
    assert json.loads(cli("delete", str(tmp_path), again["id"], "--json", "--yes").out) == {"deleted": again["id"]}


def test_delete_takes_nothing_of_the_users_along(cli: Cli, tmp_path: Path) -> None:
    """What stands beside the conversation in its folder is named, and nothing goes."""
    original = make(tmp_path)
    (tmp_path / original / "notes.txt").write_text("mine")
    code, out, err = cli("delete", str(tmp_path), original, "--yes")
    assert (code, out) == (1, "")
    assert err.endswith(
        "the folder also holds other files: 'notes.txt' [foreign]; nothing was changed; move that away first\n"
    )
    assert (tmp_path / original / "notes.txt").exists()
    assert cli("show", str(tmp_path / original)).code == 0


def test_mistakes(cli: Cli, tmp_path: Path) -> None:
    """What is no id and a number that is too great are misuse; what is not there, or is being written, fails. One line each."""
    original = make(tmp_path)
    for command in ("fork", "delete"):
        code, out, err = cli(command, str(tmp_path), "../etc")
        assert (code, out) == (2, "")
        assert "'../etc' is not an id, the start of one, a folder's name, or 'last'" in err
        code, _, err = cli(command, str(tmp_path), UNKNOWN)
        assert code == 1
        assert f"{tmp_path}/{UNKNOWN}: there is no " in err
    code, out, err = cli("fork", str(tmp_path), original, "--through-seq", "3")
    assert (code, out) == (2, "")
    assert "there is no record 3: the conversation has fewer" in err
    (tmp_path / "file").write_text("a file")
    for into, says in (
        ("file", "this is a file, not a library"),
        (original, "this is a conversation, not a library"),
    ):
        code, out, err = cli("fork", str(tmp_path), original, "--into", str(tmp_path / into))
        assert (code, out, f"{tmp_path / into}: {says}; " in err) == (1, "", True)
    with ConversationLibrary(tmp_path).open(original):
        code, _, err = cli("delete", str(tmp_path), original, "--yes")
        assert code == 1
        assert "is writing to it" in err
        assert err.endswith("; try again when it is done\n")
    assert cli("delete", str(tmp_path), original, "--yes").code == 0


def test_generations(cli: Cli, tmp_path: Path) -> None:
    """Each generation is a line, with its head; show prints any of them; a damaged one is exit code 1."""
    directory = tmp_path / "c"
    with ConversationStore(directory) as store:
        store.initialize(messages=[{"text": "before"}])
        store.replace_transcript([{"text": "after"}, {"text": "more"}])
        head = store.head
    code, out, _ = cli("generations", str(directory))
    assert code == 0
    first, second = out.splitlines()
    assert first.split()[0] == "0"
    assert "1 record " in first
    assert second.split()[0] == "1"
    assert "2 records" in second
    assert second.endswith(f"head {head}  live")
    shown = cli("show", str(directory), "--generation", "0").out
    assert "before" in shown
    assert "after" not in shown
    assert "generation     0 (the live one is 1)" in shown
    (record,) = [
        json.loads(line) for line in cli("show", str(directory), "--generation", "0", "--json").out.splitlines()
    ]
    assert (record["generation"], record["message"]) == (0, {"text": "before"})
    assert cli("show", str(directory), "--generation", "5").code == 1
    assert cli("show", str(directory), "--generation", "0", "--follow").code == 2
    archived = directory / "archive" / "transcript-000000.jsonl"
    archived.write_bytes(archived.read_bytes().replace(b"before", b"BEFORE"))
    code, out, _ = cli("generations", str(directory))
    assert code == 1
    assert "damaged: " in out
    found = [json.loads(line) for line in cli("generations", str(directory), "--json").out.splitlines()]
    assert [one["number"] for one in found] == [0, 1]
    assert found[0]["damage"]
    assert found[1]["head"] == head


def test_a_secret_is_removed_for_good(cli: Cli, tmp_path: Path) -> None:
    """`--delete` and `--purge-quarantine` leave no copy of it in the folder; the live generation is not deleted."""
    directory = tmp_path / "c"
    with ConversationStore(directory) as store:
        store.initialize(messages=[{"text": "secret"}])
        store.replace_transcript([{"text": "harmless"}])
    with (directory / "transcript.jsonl").open("ab") as file:
        file.write(b"secret, torn")
    cli("record", str(directory), stdin=b"")
    assert sum(b"secret" in path.read_bytes() for path in directory.rglob("*") if path.is_file()) == 2
    code, out, err = cli("generations", str(directory), "--delete", "1")
    assert (code, out) == (2, "")
    assert "this generation is the live one; only archived ones can be deleted" in err
    code, out, _ = cli("generations", str(directory), "--delete", "0", "--purge-quarantine")
    assert code == 0
    assert out.split()[0] == "1"
    assert not any(b"secret" in path.read_bytes() for path in directory.rglob("*") if path.is_file())
    code, _, err = cli("generations", str(directory), "--delete", "0")
    assert code == 1
    assert "generation 0" in err


@pytest.mark.parametrize("command", ["prune --keep-generations 1 --dry-run", "writers"])
def test_what_skips_folders_that_are_not_named_by_an_id_says_so(cli: Cli, tmp_path: Path, command: str) -> None:
    """A reader of the documents found it: `writers chats` reported no writer, while `chats/today` had one."""
    library = tmp_path / "chats"
    make(library)
    name, *options = command.split()
    assert cli(name, str(library), *options).err == ""
    for folder in ("today", "tomorrow", ".hidden"):
        with ConversationStore(library / folder) as store:
            store.initialize(messages=[{"role": "user", "content": "here"}])
    (library / "notes").mkdir()
    code, _, err = cli(name, str(library), *options)
    said = f"transcript-store: {name} skips 2 folders, such as {library}/today: the folder's name"
    assert (code, said in err) == (0, True)
