"""`transcript-store import` and `export`: what they print, what they ask, and what becomes of every line."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli, lines, obeyed
from transcript_store import ConversationLibrary, CorruptTranscriptError
from transcript_store.formats import READERS, WRITERS
from transcript_store.importing import import_conversations
from transcript_store.sources import discover

pytestmark = pytest.mark.usefixtures("a_cache_of_its_own")

HI, HELLO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which another program keeps two sessions."""
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "PI_CODING_AGENT_DIR",
        "PI_CODING_AGENT_SESSION_DIR",
        "KIMI_CODE_HOME",
        "GEMINI_CLI_HOME",
        "KIMI_SHARE_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".kimi/sessions/a"
    for number in (1, 2):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "wire.jsonl").write_bytes(lines({**HI, "n": number}, HELLO))
    return tmp_path


def test_without_a_terminal_import_only_lists(cli: Cli, home: Path) -> None:
    """Where nobody can be asked, nothing is imported, and it says how."""
    code, out, err = cli("import", "--into", str(home / "chats"))
    assert (code, err) == (0, "")
    assert out.startswith("kimi                2 sessions")
    assert "--yes imports it" in out
    assert cli("import", "--json").code == 2
    assert not (home / "chats").exists()


def test_all_of_it_is_imported_once(cli: Cli, home: Path) -> None:
    """--all imports, a second time there is nothing to do, and --dry-run only says it."""
    into = ("--into", str(home / "chats"), "--format", "jsonl")
    assert "dry run: 2 would be created" in cli("import", "--all", "--dry-run", *into).out
    assert not (home / "chats").exists()
    code, out, _ = cli("import", "--all", *into)
    assert (code, "2 created" in out, "4 lines: 4 in messages" in out) == (0, True, True)
    assert "created   " not in out
    assert "created   " in cli("import", "--all", "-v", "--into", str(home / "other"), *into[2:]).out
    assert "2 unchanged" in cli("import", "--all", *into).out
    assert len(ConversationLibrary(home / "chats").list()) == 2


@pytest.mark.parametrize(
    ("answer", "imported"), [("y", 2), ("kimi", 2), ("n", 0), ("", 0), ("codex\x1b[2J", 0), ("YES", 2)]
)
def test_at_a_terminal_it_asks(
    cli: Cli, home: Path, answer: str, imported: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yes, no, or the names of programs; what is no answer is no."""
    monkeypatch.setattr("transcript_store.cli.import_.is_at_a_terminal", lambda: True)
    code, out, _ = cli("import", "--into", str(home / "c"), "--format", "jsonl", stdin=f"{answer}\n".encode())
    assert (code, len(ConversationLibrary(home / "c").list())) == (0, imported)
    assert "? [y, n, or names of programs]" in out
    assert ("codex\\x1b[2J: the list above has no such program" in out) == answer.startswith("codex")


def test_two_processes_import_everything_once(tmp_path: Path) -> None:
    """F2: at the same time, the same sessions: each is there once and whole, and neither process fails."""
    (tmp_path / "s").mkdir()
    for number in range(8):
        (tmp_path / "s" / f"{number}.jsonl").write_bytes(lines({**HI, "n": number}, HELLO))
    command = (*COMMAND, "import", str(tmp_path / "s"), "--into", str(tmp_path / "chats"))
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    library = ConversationLibrary(tmp_path / "chats")
    assert [(summary.record_count, summary.damage) for summary in library.list()] == [(3, None)] * 8


def test_only_what_changed_since(cli: Cli, home: Path) -> None:
    """--since takes hours, days or weeks, a day or a time, and what is asked about is what would be imported."""
    os.utime(home / ".kimi/sessions/a/1/wire.jsonl", (0, 0))
    for number, when in enumerate(
        ("7d", "24h", "2w", "yesterday", "1971-01-31", "1971-01-31T12:00", "1971-01-31T12:00+02:00")
    ):
        into = ("--into", str(home / f"c{number}"))
        code, out, _ = cli("import", "--all", "--since", when, *into, "--format", "jsonl")
        assert (code, "1 created" in out) == (0, True)
        assert len(ConversationLibrary(home / f"c{number}").list()) == 1
        assert cli("import", "--since", when, *into).out.startswith("kimi                 1 session ")


@pytest.mark.parametrize(
    "when", ["soon", "7", "d", "-7d", "7m", "1e3d", "٧d", "999999w", "2026-13-01", "0001-01-01T00:00+02:00", ""]
)
def test_an_invalid_time_is_refused(cli: Cli, home: Path, when: str) -> None:
    """And the error lists all that is one."""
    code, out, err = cli("import", f"--since={when}", "--into", str(home / "c"))
    assert (code, out) == (2, "")
    for form in ("24h", "7d", "2w", "yesterday", "2026-01-31", "2026-01-31T12:00"):
        assert form in err


def test_contradicting_options_are_refused(cli: Cli, home: Path) -> None:
    """--all beside a PATH would leave out one of them, --follow beside --dry-run would say the same for ever."""
    for words in (("--all", str(home)), ("--all", "--dry-run", "--follow")):
        code, out, err = cli("import", *words, "--into", str(home / "c"))
        assert (code, out, "give" in err) == (2, "", True)
    assert not (home / "c").exists()


def test_what_was_left_out_is_said_and_counts(cli: Cli, tmp_path: Path) -> None:
    """A finding has its line and offset; a file of no format is refused, and the exit code is 1."""
    (tmp_path / "s.jsonl").write_bytes(lines(HI) + b'{"torn by a cra\n' + lines(HELLO))
    (tmp_path / "other.json").write_text("{}")
    given = (str(tmp_path / "s.jsonl"), str(tmp_path / "other.json"))
    code, out, err = cli("import", *given, "--into", str(tmp_path / "chats"))
    assert code == 1
    where = f"line 2, byte {len(lines(HI))}: this is not readable JSON"
    assert f"{where}: unexpected end of data, at character 16\n" in out
    assert "3 lines: 2 in messages, 1 in events, 0 left out" in out
    assert "other.json: refused" in err
    assert "--format" in err
    (transcript,) = (tmp_path / "chats").glob("*/transcript.jsonl")
    transcript.write_bytes((before := transcript.read_bytes()).replace(b"hi", b"ho", 1))
    code, out, err = cli("import", str(tmp_path / "s.jsonl"), "--into", str(tmp_path / "chats"))
    assert (code, out) == (1, "1 refused\n"), "lines of which none is stored were counted"
    assert "transcript.jsonl" in err
    transcript.write_bytes(before)
    (tmp_path / "same.jsonl").write_bytes((tmp_path / "s.jsonl").read_bytes().replace(b"hello", b"hallo"))
    code, out, err = cli("import", str(tmp_path / "same.jsonl"), "--into", str(tmp_path / "chats"))
    assert (code, out) == (1, "1 diverged\n"), "lines of which none is stored were counted"
    assert "--diverged fork" in err
    code, out, _ = cli("import", str(tmp_path / "s.jsonl"), "--into", str(tmp_path / "chats"), "--json")
    report = json.loads(out)
    assert (code, report["action"], report["lines"]["total"]) == (0, "unchanged", 3)


def test_what_was_imported_is_named(cli: Cli, tmp_path: Path) -> None:
    """The line of a session says by which program it was written, and in which file."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(HI))
    created, *_ = cli("import", str(path), "--into", str(tmp_path / "chats")).out.splitlines()
    (summary,) = ConversationLibrary(tmp_path / "chats").list()
    assert created == f"created   {summary.id}  1 message, 0 events  from jsonl: {path}"


def test_a_damaged_conversation_is_told_with_commands(cli: Cli, tmp_path: Path) -> None:
    """What it could not be added to says how to repair it in a shell, also as JSON; in Python the error is data."""
    path, chats = tmp_path / "s.jsonl", tmp_path / "chats"
    path.write_bytes(lines(HI))
    command = ("import", str(path), "--into", str(chats))
    assert cli(*command).code == 0
    (transcript,) = chats.glob("*/transcript.jsonl")
    transcript.write_bytes(transcript.read_bytes().replace(b'"hi"', b'"ho"'))
    path.write_bytes(lines(HI, HELLO))
    code, out, err = cli(*command)
    assert (code, out) == (1, "1 refused\n")
    assert err.endswith(f"see what `transcript-store repair {transcript.parent}` can keep\n")
    assert err.count("repair") == 1
    (report,) = map(json.loads, cli(*command, "--json").out.splitlines())
    assert report["reason"] in err
    assert "error" not in report
    (report,) = import_conversations([path], ConversationLibrary(chats))
    assert isinstance(report.error, CorruptTranscriptError)
    assert report.reason == str(report.error)


def test_at_a_terminal_no_path_is_cut(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it has a line of its own; the title gets what room there is."""
    path = tmp_path / ("x" * 100 + ".jsonl")
    path.write_bytes(
        lines(
            {"type": "summary", "summary": "Beams and more beams"},
            {"type": "user", "uuid": "u", "sessionId": "s", "message": HI},
        )
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for width, title in ((77, ""), (80, "  Beams and m…"), (200, "  Beams and more beams")):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = cli("import", str(path), "--into", str(tmp_path / str(width))).out.splitlines()
        assert shown[0].endswith(f"1 message, 1 event{title}")
        assert len(shown[0]) <= width
        assert shown[1] == f"    from claude-code: {path}"


def test_a_wrong_format_is_an_error_that_names_the_right_one(cli: Cli, tmp_path: Path) -> None:
    """Nothing is stored of a file in which no line is understood, and the exit code says so."""
    (tmp_path / "s.jsonl").write_bytes(lines(HI))
    into = ("--into", str(tmp_path / "chats"))
    code, out, err = cli("import", str(tmp_path / "s.jsonl"), "--format", "codex", *into)
    assert (code, "created" in out) == (1, False)
    assert "not one line is a message of the format codex; it looks like jsonl: --format jsonl" in err
    assert not (tmp_path / "chats").exists()


def test_a_session_without_a_message_is_not_proposed_to_continue_with(cli: Cli, tmp_path: Path) -> None:
    """A program that was opened and closed leaves a session of settings: it is kept if one asks, and no command leads there."""
    begun = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "s"}}
    (tmp_path / "s.jsonl").write_bytes(lines(begun))
    empty = cli("import", str(tmp_path / "s.jsonl"), "--empty", "--into", str(tmp_path / "chats")).out
    assert ("1 created" in empty, "0 messages" in empty, "go on with" in empty) == (True, True, False)
    (tmp_path / "s.jsonl").write_bytes(lines(HI))
    full = cli("import", str(tmp_path / "s.jsonl"), "--into", str(tmp_path / "chats")).out
    assert "continue one of them: transcript-store chat" in full


def test_a_programs_folder_holds_more_than_sessions(cli: Cli, home: Path) -> None:
    """Settings, histories and databases beside the sessions are counted by their endings, and are no error."""
    codex = home / ".codex/sessions/2026/01/01"
    codex.mkdir(parents=True)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    rollout = [{"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": item}]
    (codex / "rollout-1.jsonl").write_bytes(lines(*rollout))
    (home / ".codex/auth.json").write_text('{"key": "k"}')
    (home / ".codex/history.jsonl").write_bytes(lines({"text": "hi", "ts": 1}))
    with closing(sqlite3.connect(home / ".codex/state_5.sqlite")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE threads (id TEXT)")
    into = ("--into", str(home / "chats"))
    code, out, err = cli("import", str(home / ".codex"), *into)
    assert (code, err, "1 created" in out) == (0, "", True)
    skipped = "skipped: 3 files of an unknown format: 1 .json, 1 .jsonl, 1 .sqlite (--json names each)"
    assert skipped in out.splitlines()
    for name in ("a", "b"):
        (codex / f"{name}.json").write_text('[{"role": "user", "content": "Hi"}]')
    out = cli("import", str(home / ".codex"), *into).out
    assert "skipped: 5 files of an unknown format: 3 .json, 1 .jsonl, 1 .sqlite (--json names each)" in out
    assert (
        f"    {codex}/a.json: is one JSON array, and not an object a line: jq -c '.[]' makes lines of it (and 1 more)\n"
        in out
    )
    for name in ("a", "b"):
        (codex / f"{name}.json").unlink()
    reports = map(json.loads, cli("import", str(home / ".codex"), *into, "--json").out.splitlines())
    assert sorted(report["action"] for report in reports) == ["skipped"] * 3 + ["unchanged"]
    (codex / "rollout-2.jsonl").write_bytes(b"\0" * 100)  # as a power cut leaves it, where only sessions are
    code, _, err = cli("import", str(home / ".codex"), *into)
    assert (code, "rollout-2.jsonl: refused" in err) == (1, True)


def test_a_path_that_is_not_there_says_what_to_look_at(cli: Cli, tmp_path: Path) -> None:
    """A failure, as in every command. A blank in a path that nobody quoted makes two of it."""
    (tmp_path / "my sessions").mkdir()
    code, out, err = cli("import", *f"{tmp_path}/my sessions".split(), "--into", str(tmp_path / "chats"))
    assert (code, out) == (1, "")
    assert f"{tmp_path}/my: there is no such file or folder; check the path; quote it if it has a blank" in err


def test_a_library_of_our_own_needs_no_import(cli: Cli, tmp_path: Path) -> None:
    """Named as a source it is misuse, with the command that copies; nothing is written."""
    with ConversationLibrary(tmp_path / "mine").create(messages=[HI]) as store:
        directory, its_id = store.directory, store.get_metadata().id
    into = ("--into", str(tmp_path / "chats"))
    code, out, err = cli("import", str(tmp_path / "mine"), *into)
    assert (code, out, f"`transcript-store fork {tmp_path / 'mine'} ID --into LIBRARY`" in err) == (2, "", True)
    code, out, err = cli("import", directory, *into)
    assert (code, out, f"`transcript-store fork {directory} --into LIBRARY`" in err) == (2, "", True)
    code, out, err = cli("import", f"{directory}/transcript.jsonl", *into)
    assert (code, out, f"`transcript-store fork {directory} --into LIBRARY`" in err) == (2, "", True)
    assert not (tmp_path / "chats").exists()
    (tmp_path / "session.jsonl").write_text('{"role": "user", "content": "hi"}\n')  # whoever writes it as `cp` has it
    code, out, err = cli("import", str(tmp_path / "session.jsonl"), str(tmp_path / "mine"))
    assert (code, out) == (2, "")
    assert err.endswith(f"to import into it, use --into {tmp_path / 'mine'}\n")
    copy = cli("fork", directory, *into).out.strip()
    (summary,) = ConversationLibrary(tmp_path / "chats").list()
    assert (summary.id, copy == its_id) == (copy, False)


def test_every_format_is_named_in_the_help_and_in_the_documents(cli: Cli) -> None:
    """What --format takes is what a reader can look up."""
    (paragraph,) = re.findall(r"(?ms)^formats: (.*?)\n\n", cli("import", "--help").out)
    shown = " ".join(paragraph.split())  # a name is never cut where a line ends
    document = Path(__file__).parents[2].joinpath("docs/import.md").read_text()
    for reader in READERS:
        assert reader.name in shown.split(", ")
        assert f"`{reader.name}`" in document
    unknown = cli("import", "--format", "word", "x")
    assert (unknown.code, "claude-code" in unknown.err) == (2, True)


def test_hostile_names_and_texts_are_shown_as_escapes(cli: Cli, tmp_path: Path) -> None:
    """P18 for what others wrote: file names, and what is exported to a terminal."""
    path = tmp_path / "evil\x1b]0;\x07\u202e.jsonl"
    path.write_bytes(lines({"role": "user", "content": "\x1b[2J\u202e<script>```\n# Heading"}) + b"{torn\n")
    result = cli("import", str(path), "--into", str(tmp_path / "chats"))
    assert obeyed(result.out + result.err) == set()
    (summary,) = ConversationLibrary(tmp_path / "chats").list()
    for to in ("jsonl", "markdown"):
        shown = cli("export", summary.directory, "--to", to)
        assert (shown.code, obeyed(shown.out)) == (0, set())
    assert "&lt;script>```\n#### Heading\n" in shown.out
    assert cli("import", str(tmp_path / "no\x1b[2J"), "--into", str(tmp_path / "chats")).code == 1


def test_export_writes_new_files_and_never_over_one(cli: Cli, tmp_path: Path) -> None:
    """original, jsonl and markdown into files, 0600; what stands there stays."""
    source = tmp_path / "s.jsonl"
    source.write_bytes(lines(HI, HELLO) + b'{"tail')
    cli("import", str(source), "--into", str(tmp_path / "chats"))
    for to in ("original", "jsonl", "markdown"):
        output = tmp_path / "out" / to
        assert cli("export", str(tmp_path / "chats/last"), "--to", to, "--output", str(output)).out == f"{output}\n"
        assert output.stat().st_mode & 0o777 == 0o600
        again = cli("export", str(tmp_path / "chats"), "last", "--to", to, "--output", str(output))
        assert (again.code, "the path is taken" in again.err) == (1, True)
    assert (tmp_path / "out/original").read_bytes() == source.read_bytes()
    assert len((tmp_path / "out/jsonl").read_bytes().splitlines()) == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["jsonl", "markdown", "original"]
    through = cli("export", str(tmp_path / "chats/last"), "--to", "jsonl", "--through", "1")
    assert json.loads(through.out)["message"] == HI
    assert cli("export", str(tmp_path / "chats/last"), "--to", "original", "--through", "1").code == 2


TAKEN_BY_A_COMMAND = ("opencode", "kilo", "copilot")


@pytest.mark.parametrize("to", TAKEN_BY_A_COMMAND)
def test_a_program_is_handed_a_file_that_its_own_command_takes(cli: Cli, home: Path, to: str) -> None:
    """The command that is printed names the file; an import finds no session there, and takes the file if it is named."""
    with ConversationLibrary(home / "chats").create(provider="claude", messages=[HI, HELLO]) as store:
        directory = store.directory
    before = {one.path for one in discover()}
    code, out, _ = cli("export", directory, "--to", to, "--cwd", str(home))
    assert code == 0
    *paths, resume = out.splitlines()
    assert f" import {paths[-1]} && {to} --" in resume
    assert {one.path for one in discover()} == before
    assert "1 created" in cli("import", paths[-1], "--into", str(home / "again")).out
    elsewhere = cli("export", directory, "--to", to, "--cwd", str(home), "--output", str(home / "else where"))
    assert f" import '{home}/else where/" in elsewhere.out
    assert "reads its own folder" not in elsewhere.err


@pytest.mark.parametrize("to", [writer.name for writer in WRITERS if writer.name not in TAKEN_BY_A_COMMAND])
def test_a_program_finds_what_was_handed_on(cli: Cli, home: Path, to: str) -> None:
    """In its own place below the home directory; the command that resumes it is printed, and an import finds it there."""
    with ConversationLibrary(home / "chats").create(provider="claude", messages=[HI, HELLO]) as store:
        directory = store.directory
    before = {one.path for one in discover()}
    code, out, _ = cli("export", directory, "--to", to, "--cwd", str(home))
    assert code == 0
    *paths, resume = out.splitlines()
    assert f"cd {home} && " in resume
    found = {one.path for one in discover() if one.program == to} - before
    assert found
    assert found <= set(paths)
    assert all(Path(path).stat().st_mode & 0o777 == 0o600 for path in paths)
    assert "1 created" in cli("import", paths[-1], "--into", str(home / "again")).out
    again = cli("export", directory, "--to", to, "--cwd", str(home), "--output", str(home / "elsewhere"))
    assert all(path.startswith(str(home / "elsewhere")) for path in again.out.splitlines()[:-1])


def test_what_was_not_imported_has_no_original(cli: Cli, tmp_path: Path) -> None:
    """And says so."""
    with ConversationLibrary(tmp_path).create(messages=[HI]) as store:
        directory = store.directory
    code, _, err = cli("export", directory, "--to", "original", "--output", str(tmp_path / "o"))
    assert (code, "was not imported" in err) == (1, True)
    assert "the form jsonl has all that is stored" in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("is_json", [False, True])
def test_follow_keeps_up_until_ctrl_c(tmp_path: Path, is_json: bool) -> None:
    """It says first how it ends; what is appended meanwhile is imported; and at the end it says what it did, exit code 0."""
    source = tmp_path / "s.jsonl"
    source.write_bytes(lines(HI))
    os.utime(source, (1, 1))
    options = ("--follow", "--json") if is_json else ("--follow",)
    command = (*COMMAND, "import", str(source), "--into", str(tmp_path / "chats"), *options)
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr if is_json else process.stdout  # JSON is for another program: people are told beside it
        assert "Ctrl-C stops" in said.readline()
        assert "created" in process.stdout.readline()
        assert "so far: 1 created; waiting for more" in said.readline()
        with source.open("ab") as file:
            file.write(lines(HELLO))
            file.flush()
            os.utime(source, (2, 2))  # it has been quiet for long
        assert "grew" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0
    assert re.search(r"followed for \d+ seconds?: 1 created, 1 grew", err if is_json else out)
    assert is_json or err == ""


def test_follow_waits_for_a_file_that_is_being_replaced(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks the file is gone, and then there again, longer: it is imported. A path that never was is misuse at once."""
    source = tmp_path / "s.jsonl"
    source.write_bytes(lines(HI))
    os.utime(source, (1, 1))

    def put_back() -> None:
        source.write_bytes(lines(HI, HELLO))
        os.utime(source, (2, 2))

    def interrupt() -> None:
        raise KeyboardInterrupt

    steps = iter((source.unlink, lambda: None, put_back, interrupt))
    monkeypatch.setattr("transcript_store.cli.import_.time.sleep", lambda _: next(steps)())
    code, out, err = cli("import", str(source), "--into", str(tmp_path / "chats"), "--follow")
    assert (code, err, "1 created, 1 grew" in out) == (0, "", True)
    nowhere = cli("import", str(tmp_path / "nowhere"), "--into", str(tmp_path / "chats"), "--follow")
    assert (nowhere.code, nowhere.out) == (1, "")


def test_follow_keeps_up_with_a_file_whose_time_lies_ahead(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incident: the clock was a year ahead and was put right; what a program added was imported a year later. Now when it looks the same
    for as long as a file has to be quiet.
    """
    source, ahead = tmp_path / "s.jsonl", 1 << 34
    source.write_bytes(lines(HI))
    os.utime(source, (ahead, ahead))
    said = [HELLO, HELLO, *[None] * 6]
    grown = [HI]
    seconds = 0.0

    def step(waits: float) -> None:
        nonlocal seconds
        seconds += waits
        if not said:
            raise KeyboardInterrupt
        if (message := said.pop(0)) is not None:  # it is written to at two looks, and is quiet from then on
            grown.append(message)
            source.write_bytes(lines(*grown))
            os.utime(source, (ahead, ahead))

    monkeypatch.setattr("transcript_store.cli.import_.time.sleep", step)
    monkeypatch.setattr("transcript_store.cli.import_.time.monotonic", lambda: seconds)
    code, out, err = cli("import", str(source), "--into", str(tmp_path / "chats"), "--follow")
    assert (code, err, "1 created, 1 grew" in out) == (0, "", True)


def test_follow_keeps_up_with_a_database_that_is_never_quiet(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its sessions is always at work: it is imported ten seconds after its first change, whatever comes behind that."""
    path, seconds = tmp_path / "s.db", 0.0
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        insert = "INSERT INTO agent_messages (session_id, message_data) VALUES ('s', ?)"
        database.execute(insert, (json.dumps(HI),))

        def step(waits: float) -> None:
            nonlocal seconds
            seconds += waits
            if seconds > 14:
                raise KeyboardInterrupt
            database.execute(insert, (json.dumps(HELLO),))  # at each look

        monkeypatch.setattr("transcript_store.cli.import_.time.sleep", step)
        monkeypatch.setattr("transcript_store.cli.import_.time.monotonic", lambda: seconds)
        code, out, err = cli("import", str(path), "--into", str(tmp_path / "chats"), "--follow")
    assert (code, err, "1 created, 1 grew" in out) == (0, "", True)


def test_secrets_are_taken_out_if_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    """Counts are said, and never the text. A pattern alone is enough. What is no pattern is misuse."""
    token = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"
    path, chats = tmp_path / "s.jsonl", str(tmp_path / "chats")
    path.write_bytes(lines({**HI, "content": f"{token} ACME-1234"}, HELLO))
    into = ("import", str(path), "--into", chats)
    said = cli(*into, "--redact", "--redact-pattern", r"ACME-\d+", "--redact-pattern", "xyz")
    assert "redacted: 1 github-token, 1 pattern" in said.out
    assert token not in said.out + said.err
    again = cli(*into, "--redact-pattern", r"ACME-\d+", "--redact-pattern", "xyz").out
    assert ("1 unchanged" in again, "redacted" in again) == (True, False)  # it was not looked at anew
    assert "[redacted:github-token] [redacted:pattern]" in cli("show", f"{chats}/last").out
    assert "was redacted" in cli("export", f"{chats}/last", "--to", "original", "--output", str(tmp_path / "o")).err
    path.write_bytes(path.read_bytes() + lines(HELLO))
    code, _, err = cli(*into)
    assert (code, "--redact" in err) == (1, True)
    other = str(tmp_path / "other")
    cli("import", str(path), "--into", other)
    done = cli("export", f"{other}/last", "--to", "jsonl", "--redact")
    assert token not in done.out
    assert "redacted: 1 github-token" in done.err
    assert cli(*into, "--redact-pattern", "(").code == 2
    assert cli("export", f"{other}/last", "--to", "original", "--redact", "--output", str(tmp_path / "o")).code == 2
