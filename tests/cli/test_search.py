"""``search``, ``index``, ``list`` with options and ``show --around``: what a person finds."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Cli
from transcript_store import ConversationLibrary


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def chats(tmp_path: Path) -> ConversationLibrary:
    library = ConversationLibrary(tmp_path / "chats")
    for number in range(3):
        with library.create(
            provider="claude", model=f"model-{number}", labels={"title": f"Number {number}", "n": str(number)}
        ) as one:
            for seq in range(1, 11):
                one.append_message({"role": "user", "content": f"the socket {number} said {seq}"})
    return library


def test_search_shows_title_place_and_the_command_that_shows_more(cli: Cli, chats: ConversationLibrary) -> None:
    result = cli("search", '"socket 1 said 7"', chats.directory)
    assert (result.code, result.err) == (0, "")
    title, heading, excerpt, command, _, count = result.out.splitlines()
    assert title == "Number 1"
    assert heading.startswith("  #7  user  20")
    assert excerpt == "      the socket 1 said 7"
    assert count == "1 message"
    shown = cli(*shlex.split(command)[1:])
    assert "the socket 1 said 7" in shown.out
    assert [line.split()[0] for line in shown.out.splitlines() if line.startswith("#")] == [
        f"#{seq}" for seq in range(4, 11)
    ]


@pytest.mark.parametrize("number", range(3))
def test_nothing_is_found_only_if_everything_was_looked_at(
    cli: Cli, chats: ConversationLibrary, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first search of a library of a hundred sessions said that nothing was found, and so did the next four."""
    monkeypatch.setattr("transcript_store.search._index.UPDATE_SECONDS", 0.0)
    found = cli("search", f'"socket {number} said 7"', chats.directory)
    assert ("1 message" in found.out, found.err) == (True, "")
    nothing = cli("search", "quagga", chats.directory)
    assert (nothing.out, nothing.err) == ("nothing was found\n", "")


def test_search_of_several_libraries_as_json(cli: Cli, chats: ConversationLibrary, tmp_path: Path) -> None:
    other = ConversationLibrary(tmp_path / "other")
    with other.create(messages=[{"role": "user", "content": "another socket"}]) as one:
        own_id = one.id
    hits = [
        json.loads(line)
        for line in cli("search", "socket", other.directory, chats.directory, "--json").out.splitlines()
    ]
    assert len(hits) == 1 + 20  # the limit is each library's
    assert hits[0]["conversation"] == own_id
    assert {"seq", "at", "role", "where", "excerpt", "highlights", "title", "generation", "directory"} <= hits[0].keys()
    assert hits[0]["excerpt"][slice(*hits[0]["highlights"][0])] == "socket"


def test_search_without_a_library_searches_that_of_chat(cli: Cli, tmp_path: Path) -> None:
    own = ConversationLibrary(tmp_path / "data" / "transcript-store" / "conversations")
    with own.create(messages=[{"role": "user", "content": "a talk about sockets"}]) as one:
        own_id = one.id
    assert f"transcript-store show {own_id[:8]} --around 1" in cli("search", "sockets").out


def test_a_search_reports_that_nothing_was_found(cli: Cli, chats: ConversationLibrary) -> None:
    with chats.create(
        messages=[
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {"c": "xyzzy"}}]}
        ]
    ):
        pass
    assert cli("search", "in:text xyzzy", chats.directory).out == (
        "nothing was found\nfound elsewhere: 1 in calls (in:call)\n"
    )
    assert "not a date (24h, 7d, 2w, 1y, today," in (said := cli("search", "after:soon", chats.directory)).err
    assert said.err.endswith(": after:soon\n")
    assert cli("search", "…", chats.directory).err.endswith("ignored, only punctuation: …\n")
    assert cli("search", "socket", chats.directory + "-not").code == 1
    assert cli("search", "socket", chats.directory, "--regex", "(").code == 2


@pytest.mark.parametrize("command", [("search", "socket", "--in"), ("index",)])
def test_what_is_no_library_is_told_with_what_to_name(
    cli: Cli, chats: ConversationLibrary, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Nothing would be found in a conversation or in a file, and an index of it would be kept for good."""
    (tmp_path / "file").write_text("a file")
    inside = chats.list()[0].directory
    for named, says in (
        (inside, f"this is a conversation, not a library; name its library: {chats.directory}\n"),
        (str(tmp_path / "file"), "this is a file, not a library; name a directory\n"),
        (str(tmp_path / "time out"), "there is no such directory; check the path"),
    ):
        code, out, err = cli(*command, named)
        assert (code, out) == (1, "")
        assert err.startswith(f"transcript-store: {named}: {says}")
    assert not (tmp_path / "cache").exists()


def test_what_the_system_refuses_to_read_is_told(
    cli: Cli, chats: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is closed to the user: `search` and `index` said nothing of it."""
    (one, *_), real = chats.list(), os.open

    def refuse(what: str, *arguments: Any, **named: Any) -> int:
        if os.path.basename(os.fsdecode(what)) == one.id:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(what, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    for command in (("search", "socket", chats.directory, "--wait"), ("index", chats.directory)):
        code, out, err = cli(*command)
        assert code == 3
        assert out
        assert (
            f"left out: {one.directory}: cannot read the transcript: Permission denied [EACCES]; check the owner" in err
        )


def test_several_words_are_a_query(
    cli: Cli, chats: ConversationLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind an option. A last word is a library if it is the path of one: a file's name, or a folder's, is a word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text("")
    (tmp_path / "said").mkdir()
    library = os.path.relpath(chats.directory, tmp_path)
    for words in (
        ("socket", "said", library),
        ("said", "socket", chats.directory),
        ("socket", "--limit", "5", "said", library),
        ("socket", "said", "--in", library),
        ("said", "4", library),
    ):
        assert "socket" in cli("search", *words).out
    for words in (("socket", "main.py", library), ("socket", "zebra", "--in", library)):
        assert cli("search", *words).out == "nothing was found\n"
    (tmp_path / "data/transcript-store/conversations").mkdir(parents=True)
    assert f"{tmp_path}/away: there is no such directory, so" in cli("search", "x", f"{tmp_path}/away").err


def test_a_regex_alone_looks_everywhere_and_needs_no_query(cli: Cli, chats: ConversationLibrary) -> None:
    """The library was taken for the query, and with an empty query nothing was found but texts."""
    with chats.create(
        messages=[
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {"c": "xyzzy"}}]}
        ]
    ):
        pass
    for given in (("--regex", "xyz+y", chats.directory), ("", chats.directory, "--regex", "xyz+y")):
        code, out, _ = cli("search", *given)
        assert (code, "Bash c xyzzy" in out) == (0, True)
    assert cli("search").code == 2


@pytest.mark.parametrize("command", [("search", "socket"), ("index",), ("list",)])
def test_without_a_library_it_is_that_of_chat_and_none_yet_is_told(
    cli: Cli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The three commands mean the same library, and say the same where there is none."""
    own = ConversationLibrary(tmp_path / "data" / "transcript-store" / "conversations")
    code, out, err = cli(*command)
    assert (code, out) == (1, "")
    assert f"{own.directory}: there is no conversation yet; `transcript-store chat` starts one, " in err
    with own.create(messages=[{"role": "user", "content": "socket"}], labels={"title": "A talk"}):
        pass
    code, out, err = cli(*command)
    assert (code, err) == (0, "")
    assert "A talk" in out or own.directory in out


def test_a_terminal_gets_marks_and_never_what_was_stored(
    cli: Cli, chats: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P18: a stored escape sequence is shown; what the command sends itself is taken away by NO_COLOR."""
    evil = "plugh \x1b]0;title\x07\u202e and a tail that is long enough for another line of the terminal"
    with chats.create(labels={"title": evil}, messages=[{"role": "user", "content": evil}]):
        pass
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = cli("search", "plugh", chats.directory).out
    assert "\x1b[1;33mplugh\x1b[0m \\u202e and" in out  # what a terminal obeys is no part of what was said
    assert "\x07" not in out
    assert "\x1b]" not in out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("search", "plugh", chats.directory).out


def test_index_says_what_it_has_and_is_thrown_away(cli: Cli, chats: ConversationLibrary) -> None:
    def facts(*options: str) -> dict[str, object]:
        return dict(json.loads(cli("index", chats.directory, "--json", *options).out))

    assert facts()["messages"] == 30
    chats.delete(str(chats.list()[0].id))
    cli("search", "socket", chats.directory)
    assert (facts("--status")["messages"], facts("--status")["forgotten"]) == (20, 10)
    assert facts("--rebuild")["forgotten"] == 0
    assert facts("--purge")["messages"] == 0
    assert "messages       20" in cli("index", chats.directory).out


def test_list_with_options_comes_from_the_index(cli: Cli, chats: ConversationLibrary) -> None:
    def titles(*options: str) -> list[str]:
        return [json.loads(line)["title"] for line in cli("list", chats.directory, "--json", *options).out.splitlines()]

    assert titles() == ["Number 2", "Number 1", "Number 0"]
    assert titles("--sort", "title") == ["Number 0", "Number 1", "Number 2"]
    assert titles("--limit", "1") == ["Number 2"]
    assert titles("--title", "number 1") == titles("--model", "model-1") == titles("--label", "n=1") == ["Number 1"]
    assert titles("--filter", "-label:n=1 number") == ["Number 2", "Number 0"]
    assert titles("--since", "2001-01-01") == titles("--limit", "0") == titles()
    assert titles("--since", "2100-01-01") == []
    assert cli("list", chats.directory, "--title", "x").out == f"{chats.directory}: no conversation matches\n"
    assert cli("list", chats.directory, "--filter", "(((").err.endswith("only punctuation: (((\n")
    assert cli("list", chats.directory, "--filter", "after:soon", "--since", "7d").err.endswith(": after:soon\n")


def test_a_search_of_a_library_without_conversations_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    result = cli("search", "socket", str(tmp_path / "empty"))
    assert (result.code, result.out) == (0, "nothing was found\n")
    assert result.err == f"transcript-store: {tmp_path}/empty: there is no conversation directly under it\n"


def test_a_search_says_what_it_left_out_and_where_it_looked(
    cli: Cli, chats: ConversationLibrary, tmp_path: Path
) -> None:
    """The incidents: a damaged line was searched in silence, and in a folder with a library somebody searched that of ``chat``."""
    damaged = sorted(Path(chats.directory).glob("*/transcript.jsonl"))[0]
    damaged.write_bytes(damaged.read_bytes().replace(b"said 4", b"said X"))
    result = cli("search", '"said 9"', chats.directory)
    assert (result.code, result.out.splitlines()[-1]) == (3, "2 messages")
    *_, last = map(json.loads, cli("search", '"said 9"', chats.directory, "--json").out.splitlines())
    assert (last["complete"], last["damaged"]) == (False, [str(damaged.parent)])
    assert (
        f"1 conversation not searched after damage; `transcript-store verify {damaged.parent}` says where" in result.err
    )
    with ConversationLibrary(tmp_path / "data/transcript-store/conversations").create() as one:
        one.append_message({"role": "user", "content": "something"})
    assert (
        "transcript-store/conversations: searched this library; --in LIBRARY searches another one"
        in cli("search", "said").err
    )
    assert cli("search", "something").err == ""


def test_a_conversation_without_a_title_is_shown_by_its_first_prompt(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P18. The incident: imported sessions were bare ids in a list, and the pages called them by what was asked. A program gets facts."""
    library = ConversationLibrary(tmp_path / "chats")
    asked = {"role": "user", "content": "What is\x1b[2J WAL?"}
    library.create(provider="openai", messages=[{"role": "system", "content": "Be brief."}, asked]).close()
    sealed = ConversationLibrary(tmp_path / "chats", encryption_key=bytes(range(32)))
    sealed.create(provider="openai", messages=[{"role": "user", "content": "A secret"}]).close()
    assert "What is\\x1b[2J WAL?\t" in cli("list", library.directory).out
    assert cli("search", "WAL", library.directory).out.startswith("What is\\x1b[2J WAL?\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")
    out = cli("list", library.directory).out
    assert (out.count("What is\\x1b[2J WAL?"), "secret" in out, "sealed" in out) == (1, False, True)
    names = [json.loads(line)["name"] for line in cli("list", library.directory, "--json").out.splitlines()]
    assert "What is\x1b[2J WAL?" in names
    assert cli("list", library.directory, "--title", "wal?").out.count("WAL") == 1


def test_a_terminal_gets_the_first_fifty(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ConversationLibrary(tmp_path / "chats")
    for _ in range(52):
        library.create(durability="process-crash").close()
    assert len(cli("list", library.directory).out.splitlines()) == 52
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("NO_COLOR", "1")
    headings, *lines, more = cli("list", library.directory).out.splitlines()
    assert headings.split() == ["TITLE", "LAST", "SAID", "PROJECT", "PROGRAM", "ID"]
    assert (len(lines), more) == (50, f"50 of 52 in {library.directory}; -n N shows more, -n 0 all of them")


def test_show_around_a_record_that_is_not_there(cli: Cli, chats: ConversationLibrary) -> None:
    result = cli("show", chats.list()[0].directory, "--around", "11")
    assert result.out == ""
    assert (result.code, result.err) == (
        2,
        "transcript-store: there is no record 11: the conversation has 10 records\n",
    )
