"""``secrets``, and what ``import --redact`` says of earlier generations: how many, and the one command that removes them."""

from __future__ import annotations

import json
import os
import shlex
from argparse import Namespace
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, conversation
from tests.importing.helpers import line, notebook, use_notebooks
from tests.kit.trees import bytes_below
from transcript_store import ConversationLibrary, ConversationStore, read_key_file
from transcript_store.cli.secrets import _forgetting
from transcript_store.search import SearchIndex

pytestmark = pytest.mark.usefixtures("a_cache_of_its_own")

TOKEN = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without programs, and the format of the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    use_notebooks(monkeypatch)
    (tmp_path / "home").mkdir()
    return tmp_path


def sessions(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.jsonl").write_text(notebook(f"s{number}") + line(say=f"Use {TOKEN}") + line(title=TOKEN))
    (folder / "clean.jsonl").write_text(notebook("clean") + line(say="hi") + line(compact="hi"))
    return folder


def test_import_says_in_one_line_what_is_kept_and_that_command_removes_it(cli: Cli, home: Path) -> None:
    source, library = sessions(home / "sessions", 3), home / "library"
    assert cli("import", str(source), "--into", str(library)).code == 0
    fork = cli("fork", str(library / "last"))
    assert fork.code == 0
    for _ in range(2):  # also when nothing is new
        done = cli("import", str(source), "--into", str(library), "--redact", "--redact-pattern", "the kit.hen")
        (said,) = [each for each in done.out.splitlines() if "earlier generation" in each]
        assert said.startswith("3 conversations keep an earlier generation with the removed secrets: `")
        assert done.err == ""
    assert "1 conversation" not in said
    program, *command = shlex.split(said.split("`")[1])
    assert program == "transcript-store"
    assert command[-2:] == ["--redact-pattern", "the kit.hen"]
    assert cli(*command, "--yes").code == 0
    assert TOKEN.encode() not in bytes_below(library)
    done = cli("import", str(source), "--into", str(library), "--redact", "--redact-pattern", "the kit.hen")
    assert "earlier generation" not in done.out


def test_import_forgets_at_once(cli: Cli, home: Path) -> None:
    source, library = sessions(home / "sessions", 2), home / "library"
    cli("import", str(source), "--into", str(library))
    done = cli("import", str(source), "--into", str(library), "--redact", "--forget")
    assert (done.code, "removed 8 secrets from 2 conversations" in done.out) == (0, True), done.out
    assert TOKEN.encode() not in bytes_below(library)
    for wrong in (["--forget"], ["--forget", "--redact", "--dry-run"], ["--forget", "--redact", "--follow"]):
        assert cli("import", str(source), "--into", str(library), *wrong).code == 2


def test_secrets_are_counted_and_never_printed(cli: Cli, home: Path) -> None:
    """In words and as JSON; exit code 1. Words of it are not in the search index afterwards."""
    library = home / "library"
    named = conversation(library / "today", [{"role": "user", "content": TOKEN}], labels={"title": f"A {TOKEN}"})
    assert cli("search", TOKEN, str(library)).code == 0
    done = cli("secrets", str(library))
    assert done.code == 1
    assert f"{named}  live  2 github-token  A [redacted:github-token]" in done.out
    assert f"`transcript-store secrets {library} --forget`" in done.out
    assert TOKEN not in done.out
    found = json.loads(cli("secrets", str(library), "--json").out)
    assert (found["part"], found["counts"], found["forgotten"]) == ("live", {"github-token": 2}, False)
    done = cli("secrets", str(library), "--forget")
    assert (done.code, done.err) == (2, "transcript-store: nothing was removed; without a terminal, --yes removes it\n")
    assert TOKEN.encode() in bytes_below(library)
    assert cli("secrets", str(library), "--forget", "--json").code == 2
    forgotten = json.loads(cli("secrets", str(library), "--forget", "--json", "--yes").out)
    assert forgotten == {**found, "forgotten": True}
    assert TOKEN.encode() not in bytes_below(home)
    done = cli("secrets", str(library))
    assert (done.code, done.out) == (0, "no secrets were found\n")


def test_the_command_of_an_address_with_a_user_is_not_printed_without_it() -> None:
    given = Namespace(snapshots=[], redact_pattern=None, key_file=None)
    assert _forgetting(given, ["postgresql://db/chats"]) == "`transcript-store secrets postgresql://db/chats --forget`"
    assert _forgetting(given, ["postgresql://ada:secret@db/chats"]) == "this command with --forget"


def test_sessions_of_other_programs_are_named_and_stay(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported or not, and with no library at all."""
    monkeypatch.setenv("TRANSCRIPT_STORE_HOME", str(home / "none"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "none"))
    sessions_folder = home / "home" / ".claude" / "projects" / "p"
    sessions_folder.mkdir(parents=True)
    said = {"role": "user", "content": f"Use {TOKEN}"}
    members = {"sessionId": "00000003-0000-4000-8000-000000000003", "version": "2.1.278", "cwd": "/tmp/p"}
    text = line(**members, type="user", uuid="00000bb9-0000-4000-8000-000000000bb9", parentUuid=None, message=said)
    file = sessions_folder / "00000003-0000-4000-8000-000000000003.jsonl"
    file.write_text(text)
    done = cli("secrets")
    assert done.code == 1
    assert f"{file}  claude-code  1 github-token" in done.out
    assert "1 secret in 1 session of other programs" in done.out
    (found,) = map(json.loads, cli("secrets", "--json").out.splitlines())
    file.write_text(f"no JSON {TOKEN}\n")  # it cannot be read: whether it holds secrets is unknown
    done = cli("secrets")
    assert (done.code, f"{file}: is of no format" in done.err) == (1, True)
    assert done.out == "no secrets were found in what could be read\n"
    (unknown,) = map(json.loads, cli("secrets", "--json").out.splitlines())
    assert unknown.keys() == found.keys()
    assert (found["reason"], unknown["counts"]) == (None, {})
    file.write_text(text)
    library = home / "library"
    conversation(library / "today", [{"role": "user", "content": "hi"}])
    assert cli("secrets", str(library), "--forget", "--yes").code == 0
    assert file.read_text() == text
    assert cli("secrets", str(library), "--no-programs").code == 0


def test_a_secret_that_was_not_removed_is_not_one_that_was_not_found(cli: Cli, home: Path) -> None:
    """A writer has the conversation open, so it stays as it is."""
    named = conversation(home / "library" / "today", [{"role": "user", "content": TOKEN}])
    with ConversationStore(named) as store:
        store.load()
        done = cli("secrets", str(home / "library"), "--forget", "--yes")
    assert (done.code, done.out, named in done.err) == (1, "nothing was removed\n", True)


def test_snapshots_go_only_if_their_store_is_named(cli: Cli, home: Path) -> None:
    library, store = home / "library", home / "snapshots"
    named = conversation(library / "today", [{"role": "user", "content": TOKEN}])
    assert cli("snapshot", "save", named, "--store", str(store)).code == 0
    assert cli("secrets", str(library), "--forget", "--yes").code == 0
    assert cli("secrets", str(library)).code == 0
    done = cli("secrets", str(library), "--snapshots", str(store))
    assert (done.code, f"{store} " in done.out, "snapshot  1 github-token" in done.out) == (1, True, True)
    assert cli("secrets", str(library), "--snapshots", str(store), "--forget", "--yes").code == 0
    assert cli("secrets", str(library), "--snapshots", str(store)).code == 0
    assert ConversationLibrary(library).list() == []  # its one conversation has a name of its own


def test_a_run_that_was_killed_before_it_removed_the_index_is_completed(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has words of the deleted text. The second run finds no secret, and has to remove it all the same."""
    library, cache = home / "library", Path(os.environ["XDG_CACHE_HOME"])
    with ConversationStore(library / "chat") as store:
        store.initialize(messages=[{"role": "user", "content": f"Use {TOKEN} here."}])
    assert cli("search", "here", "--in", str(library)).code == 0
    assert TOKEN.encode() in bytes_below(cache)
    command = ("secrets", str(library), "--no-programs", "--forget", "--yes")

    def killed(_: SearchIndex) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SearchIndex, "purge", killed)
        assert cli(*command).code == 130
    assert TOKEN.encode() not in bytes_below(library)
    assert cli(*command).code == 0
    assert TOKEN.lower().encode() not in bytes_below(cache).lower()


def test_a_library_with_plaintext_and_sealed_conversations_is_cleaned_with_one_key(cli: Cli, home: Path) -> None:
    library, key = home / "library", home / "key"
    cli("new-key", str(key))
    for name, options in (("plain", {}), ("sealed", {"encryption_key": read_key_file(key)})):
        with ConversationStore(library / name, **options) as store:  # type: ignore[arg-type]
            store.initialize(messages=[{"role": "user", "content": f"Use {TOKEN}, ACME-1."}])
    given = ("--key-file", str(key), "--redact-pattern", r"ACME-\d")
    found = cli("secrets", str(library), "--no-programs", *given)
    assert (found.code, found.err) == (1, "")
    assert "4 secrets in 2 parts of 2 conversations: `" in found.out
    # The command in the answer has what it needs to remove all that was found.
    program, *command = shlex.split(found.out.split("`")[1])
    assert program == "transcript-store"
    done = cli(*command, "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "removed 4 secrets from 2 conversations"
    assert cli("secrets", str(library), "--no-programs", *given).out == "no secrets were found\n"
