"""A source must be a regular file, opened for reading. Everything else is refused by name, and nothing outside is written (F1).

The incidents: a FIFO among the sessions stopped an importer for ever; SQLite makes files beside a database that it only
reads; an archive of 42 KB unpacks to petabytes.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sqlite3
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from tests.importing.helpers import files_of
from transcript_store import ConversationLibrary
from transcript_store.formats import SessionPlan
from transcript_store.formats._jsonl import JsonLines
from transcript_store.formats._llm_logs import LlmLogs
from transcript_store.importing import discover, find_sources, import_conversations
from transcript_store.installation import install_command
from transcript_store.sources import FileSource, Rows, UnreadableSourceError, _files, open_parts
from transcript_store.sources._files import open_source

LINE = b'{"role": "user", "content": "hi"}\n'


def only_part(path: Path) -> FileSource | Rows:
    with open_parts(str(path)) as parts:
        for part in parts:
            assert not isinstance(part, UnreadableSourceError), part
            return part[1]
    raise AssertionError("no part")


def stopped_amid_a_transaction(folder: Path) -> Path:
    """A database, and its rollback journal that was not ended."""
    path, live = folder / "logs.db", folder / "live.db"
    with closing(sqlite3.connect(live, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, text TEXT)")
        writer.execute("PRAGMA cache_size=1")
        writer.execute("BEGIN")
        for _ in range(50):
            writer.execute("INSERT INTO log (text) VALUES (?)", ("x" * 2000,))
        for end in ("", "-journal"):
            shutil.copyfile(f"{live}{end}", f"{path}{end}")
        writer.execute("ROLLBACK")
    live.unlink()
    return path


def problems(path: Path) -> list[str]:
    with open_parts(str(path)) as parts:
        return [part.reason for part in parts if isinstance(part, UnreadableSourceError)]


def test_programs_are_found_where_they_keep_their_sessions(tmp_path: Path) -> None:
    """Below the home directory, and where the environment says; links, hidden names and other files are passed over."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    places = {
        home / ".claude/projects/-home-me/0b8f.jsonl": "claude-code",
        home / ".claude/projects/-home-me/0b8f/subagents/agent-1.jsonl": "claude-code",
        home / ".claude/projects/-home-me/0b8f/subagents/workflows/run-1/agent-2.jsonl": "claude-code",
        elsewhere / "sessions/2026/11/23/rollout-1.jsonl": "codex",
        elsewhere / "archived_sessions/rollout-2.jsonl.zst": "codex",
        home / ".pi/agent/sessions/--home-me--/1.jsonl": "pi",
        home / ".gemini/tmp/x/chats/session-1.json": "gemini-cli",
        home / ".kimi/sessions/a/b/wire.jsonl": "kimi",
        home / ".kimi-code/sessions/a/b/agents/main/wire.jsonl": "kimi",
        home / ".config/io.datasette.llm/logs.db": "llm",
    }
    others = [
        home / ".claude/projects/-home-me/notes.txt",
        home / ".claude/projects/.hidden/1.jsonl",
        home / ".codex/sessions/x",
    ]
    for path in (*places, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)
    (home / ".claude/projects/-home-me/link.jsonl").symlink_to(elsewhere / "sessions/2026/11/23/rollout-1.jsonl")
    os.mkfifo(home / ".claude/projects/-home-me/fifo.jsonl")
    found = discover(home, {"CODEX_HOME": str(elsewhere)}, platform="linux")
    assert {Path(one.path): one.program for one in found} == places
    assert all(one.size == len(LINE) for one in found)
    assert discover(tmp_path / "nobody", {}) == []


def test_without_a_home_the_environments_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the environment that was given, not of this process."""
    session = tmp_path / "given/.kimi/sessions/a/b/wire.jsonl"
    session.parent.mkdir(parents=True)
    session.write_bytes(LINE)
    monkeypatch.setenv("HOME", str(tmp_path / "of this process"))
    assert [one.path for one in discover(environ={"HOME": str(tmp_path / "given")})] == [str(session)]
    assert discover(environ={}) == []


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, library: ConversationLibrary) -> None:
    """A link, a FIFO, and a name that leads nowhere: each refused, and the next one imported."""
    (tmp_path / "good.jsonl").write_bytes(LINE)
    (tmp_path / "link.jsonl").symlink_to("good.jsonl")
    os.mkfifo(tmp_path / "fifo.jsonl")
    for name in ("link.jsonl", "fifo.jsonl", "nothing.jsonl"):
        with pytest.raises(UnreadableSourceError, match=name):
            only_part(tmp_path / name)
    given = [tmp_path / name for name in ("link.jsonl", "fifo.jsonl", "nothing.jsonl", "good.jsonl")]
    reports = list(import_conversations(given, library))
    assert [report.action for report in reports] == ["refused", "refused", "refused", "created"]
    assert all(report.reason for report in reports[:3])
    assert [one.path for one in find_sources(tmp_path) if not one.path.startswith(library.directory)] == [
        str(given[-1])
    ]


def test_a_source_is_as_long_as_when_it_was_opened(tmp_path: Path) -> None:
    """What a writer adds meanwhile is for the next import."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(LINE)
    with open_parts(str(path)) as parts:
        part = next(parts)
        assert not isinstance(part, UnreadableSourceError)
        source = part[1]
        assert isinstance(source, FileSource)
        with path.open("ab") as file:
            file.write(b"more\n")
        assert source.read(0, 1000) == LINE
        assert source.read(len(LINE), 10) == b""


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_database_is_read_and_nothing_beside_it_is_written(tmp_path: Path, mode: str, is_open: bool) -> None:
    """F1, while a program has it open and when none has: rows that were committed are there, and no file came or changed."""
    path = tmp_path / "logs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode={mode}")
        writer.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, text TEXT, data BLOB)")
        writer.execute("INSERT INTO log VALUES (2, 'b', x'00'), (1, 'a', NULL), (3, CAST(x'ff' AS TEXT), 1.5)")
        if not is_open:
            writer.close()
        before = files_of(tmp_path)
        with open_parts(str(path)) as parts:
            part = next(parts)
            assert not isinstance(part, UnreadableSourceError)
            head, rows = part
            assert isinstance(rows, Rows)
            assert head.tables["log"] == ("n", "text", "data")
            assert list(rows.rows("log", ("text", "data"), ("n",))) == [("a", None), ("b", b"\0"), (b"\xff", 1.5)]
            assert list(rows.rows("log", ("n",), (), {"text": "b"})) == [(2,)]
            assert list(rows.rows("log", ("n",), (), {"n": 1, "text": "b"})) == []
            assert list(rows.rows("log", ("n",), (), {"n": 2**64})) == [], "no row has a number that SQLite cannot hold"
            assert rows.columns("nothing") == ()
            with pytest.raises(UnreadableSourceError, match="no column"):
                list(rows.rows("log", ("n; DROP TABLE log",), ()))
            with pytest.raises(UnreadableSourceError, match="no column"):
                list(rows.rows("log", ("n",), (), {"1 = 1 OR n": 1}))
        assert files_of(tmp_path) == before


def test_of_a_database_one_conversation_is_held_and_not_all(tmp_path: Path) -> None:
    """``llm`` keeps everything that was ever said in one file: here 40 conversations of a megabyte, and as many threads."""
    path = tmp_path / "logs.db"
    with closing(sqlite3.connect(path)) as writer:
        for table in (
            "responses (id TEXT PRIMARY KEY, conversation_id TEXT, prompt TEXT, response TEXT, datetime_utc TEXT)",
            "threads (id TEXT PRIMARY KEY, tip_message_hash TEXT)",
            "messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT)",
            "parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, text TEXT)",
        ):
            writer.execute(f"CREATE TABLE {table}")
        writer.execute("CREATE INDEX hashes ON parts (message_hash, position)")
        for n in range(40):
            response = (f"r{n}", f"c{n}", "Go on.", f"{n}" * 500_000, f"2026-11-23T06:00:{n:02}Z")
            writer.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", response)
            writer.execute("INSERT INTO threads VALUES (?, ?)", (f"t{n}", f"h{n}"))
            writer.execute("INSERT INTO messages VALUES (?, NULL, 'user')", (f"h{n}",))
            writer.execute("INSERT INTO parts VALUES (NULL, ?, 0, 'text', ?)", (f"h{n}", f"{n}" * 500_000))
        writer.commit()
    with open_parts(str(path)) as parts:
        part = next(parts)
        assert not isinstance(part, UnreadableSourceError)
        assert isinstance(part[1], Rows)
        tracemalloc.start()
        try:
            said = 0
            for plan in LlmLogs().plans(part[1]):
                said += sum(len(str(entry.message)) for entry in plan.generations[0]() if entry.message is not None)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert said > 70_000_000
    assert peak < 20_000_000


def test_a_journal_that_names_a_file_does_not_get_it_deleted(tmp_path: Path, library: ConversationLibrary) -> None:
    """Whoever handed a database with a forged journal beside it chose a file of the user's, and the import deleted it.

    SQLite deletes the super-journal that a rollback journal names when it has rolled back, in a private copy too.
    """
    precious = tmp_path / "precious.txt"
    precious.write_text("years of work")
    path = stopped_amid_a_transaction(tmp_path)
    name = os.fsencode(precious)
    with (tmp_path / "logs.db-journal").open("ab") as journal:
        journal.write(struct.pack(">I", 0) + name + struct.pack(">II", len(name), sum(name)))
        journal.write(bytes.fromhex("d9d505f920a163d7"))
    before = files_of(path.parent)
    (report,) = import_conversations([path], library)
    assert files_of(path.parent) == before
    assert (report.action, "several databases" in str(report.reason)) == ("refused", True)


@pytest.mark.parametrize("end", ["-journal", "-wal"])
def test_a_link_beside_a_database_is_not_followed(tmp_path: Path, library: ConversationLibrary, end: str) -> None:
    """The private copy had a link to the same file, and SQLite opened that to write."""
    path = stopped_amid_a_transaction(tmp_path)
    (tmp_path / "logs.db-journal").rename(tmp_path / "elsewhere")
    (tmp_path / f"logs.db{end}").symlink_to(tmp_path / "elsewhere")
    before = files_of(path.parent)
    (report,) = import_conversations([path], library)
    assert files_of(path.parent) == before
    assert (report.action, "symbolic link" in str(report.reason)) == ("refused", True)


def test_what_a_database_would_run_is_not_run(tmp_path: Path) -> None:
    """A view and a virtual table are no tables, and a trigger has nothing to fire at."""
    path = tmp_path / "evil.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (x)")
        writer.execute("CREATE VIEW v AS SELECT load_extension('evil') AS x")
        writer.execute("CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END")
        writer.execute("CREATE VIRTUAL TABLE f USING fts5(x)")
        writer.commit()
    with open_parts(str(path)) as parts:
        part = next(parts)
        assert not isinstance(part, UnreadableSourceError)
        rows = part[1]
        assert isinstance(rows, Rows)
        assert rows.columns("t") == ("x",)
        assert rows.columns("v") == rows.columns("f") == ()
        assert not {"v", "f"} & rows.tables().keys()


def test_a_damaged_database_is_refused(tmp_path: Path, library: ConversationLibrary) -> None:
    """With a reason, not with an error of SQLite's."""
    path = tmp_path / "broken.db"
    path.write_bytes(b"SQLite format 3\x00" + os.urandom(5000))
    (report,) = import_conversations([path], library)
    assert (report.action, "database" in str(report.reason)) == ("refused", True)


def test_a_schema_that_is_no_text_ends_no_import(tmp_path: Path, library: ConversationLibrary) -> None:
    """SQLite quoted the damaged schema in its message, Python could not decode that, and the sessions after it were not imported."""
    with closing(sqlite3.connect(tmp_path / "broken.db")) as writer:
        writer.execute("CREATE TABLE xxxxxxxx (n)")
        writer.commit()
    path = tmp_path / "broken.db"
    data = path.read_bytes().replace(b"tablexxxxxxxx", b"table\xdfxxxxxxx")
    path.write_bytes(data.replace(b"CREATE TABLE", b"CREATE TABLX"))
    (tmp_path / "whole.jsonl").write_bytes(LINE)
    reports = list(import_conversations([tmp_path], library))
    assert [report.action for report in reports] == ["refused", "created"]


def test_members_of_an_archive_go_nowhere_by_their_names(tmp_path: Path, library: ConversationLibrary) -> None:
    """``../`` and absolute names are names; what is no conversation is not looked at; nothing is unpacked beside the archive."""
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../evil.jsonl", LINE)
        archive.writestr("/tmp/absolute.jsonl", LINE.replace(b"hi", b"ho"))
        archive.writestr("user.json", b"{}")
    before = files_of(tmp_path)
    reports = list(import_conversations([path], library))
    assert [report.action for report in reports] == ["created", "created"]
    assert [report.source.partition("!")[2] for report in reports] == ["../../evil.jsonl", "/tmp/absolute.jsonl"]
    assert {name: found for name, found in files_of(tmp_path).items() if not name.startswith("library")} == before


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """Neither one that says how large it is, nor one that lies: it is cut where its own size says, and refused."""
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", bytes(50 << 20))
        archive.writestr("good.jsonl", LINE)
    assert len(problems(path)) == 1
    assert "would unpack" in problems(path)[0]
    lying = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = lying.index(signature) + at
        lying[place : place + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(lying)
    assert len(problems(path)) == 1


def test_an_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    """Cut, encrypted, of a method that nobody knows."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("conversations.json", json.dumps([]))
    path = tmp_path / "cut.zip"
    path.write_bytes(whole.getvalue()[:40])
    assert len(problems(path)) == 1
    encrypted = bytearray(whole.getvalue())
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    encrypted[6] |= 1
    path.write_bytes(encrypted)
    assert len(problems(path)) == 1


def test_what_is_packed_needs_the_module_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the file is refused, and the reason says what to install."""
    path = tmp_path / "rollout-1.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert install_command("zstd") in problems(path)[0]


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    """A rollout as Codex packs it; damage is refused."""
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "rollout-1.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd nothing that unpacks")
    assert "cannot be unpacked" in problems(path)[0]
    path.write_bytes(zstandard.compress(LINE * 1000))
    source = only_part(path)
    assert isinstance(source, FileSource)
    assert source.size == 1000 * len(LINE)


def test_a_format_of_which_no_line_is_stores_nothing(tmp_path: Path, library: ConversationLibrary) -> None:
    """Whoever names a wrong format is told the one that it looks like, and no empty conversation comes of it."""
    (tmp_path / "s.jsonl").write_bytes(LINE)
    (tmp_path / "other.jsonl").write_bytes(b'{"a": 1}\n')
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE log (n INTEGER PRIMARY KEY)")
    given = [tmp_path / name for name in ("s.jsonl", "other.jsonl", "a.db")]
    reports = list(import_conversations(given, library, format="codex"))
    assert [report.action for report in reports] == ["refused"] * 3
    said = "not one line is a message of the format codex"
    assert [report.reason for report in reports] == [f"{said}; it looks like jsonl: --format jsonl", said, said]
    assert not Path(library.directory).exists()


def test_a_format_that_is_named_is_believed_where_it_says_something(
    tmp_path: Path, library: ConversationLibrary
) -> None:
    """A file that its own reader does not recognize is read all the same; and one without a message that it does recognize."""
    (tmp_path / "odd.jsonl").write_bytes(b'{"a": 1}\n' + LINE)
    (tmp_path / "begun.jsonl").write_bytes(
        b'{"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {}}\n'
    )
    for name, named, messages in (("odd", "jsonl", 1), ("begun", "codex", 0)):
        (report,) = import_conversations([tmp_path / f"{name}.jsonl"], library, format=named, empty=True)
        assert (report.action, report.messages, report.events) == ("created", messages, 1)


def test_a_folder_may_hold_anything(tmp_path: Path, library: ConversationLibrary) -> None:
    """What is no session in a folder that is named is skipped, whatever it is; the same file named itself is refused."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/s.jsonl").write_bytes(LINE)
    (tmp_path / "a/settings.json").write_text('{"theme": "dark"}')
    (tmp_path / "a/b/empty.jsonl").touch()
    for name, mode in (("state.sqlite", "WAL"), ("logs.db", "DELETE")):
        with closing(sqlite3.connect(tmp_path / "a" / name)) as database:
            database.execute(f"PRAGMA journal_mode={mode}")
            database.execute("CREATE TABLE log (n INTEGER PRIMARY KEY)")
    reports = {Path(report.source).name: report for report in import_conversations([tmp_path / "a"], library)}
    assert {name: report.action for name, report in reports.items()} == {
        **dict.fromkeys(("settings.json", "state.sqlite", "logs.db"), "skipped"),
        "empty.jsonl": "empty",
        "s.jsonl": "created",
    }
    assert reports["state.sqlite"].reason == reports["settings.json"].reason
    (report,) = import_conversations([tmp_path / "a/settings.json"], library)
    assert report.action == "refused"


def test_a_conversation_of_ours_is_told_as_that(tmp_path: Path, library: ConversationLibrary) -> None:
    """It needs no import: it is copied."""
    with ConversationLibrary(tmp_path / "other").create(messages=[{"role": "user", "content": "hi"}]) as store:
        transcript = Path(store.directory, "transcript.jsonl")
    (report,) = import_conversations([transcript], library)
    assert (report.action, "fork_from(directory, into=)" in str(report.reason)) == ("refused", True)


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a folder that somebody names, and among those of a program; the sessions beside it are there all the same."""
    projects = tmp_path / ".claude/projects"
    for name in ("mine", "root's"):
        (projects / name).mkdir(parents=True)
        (projects / name / "1.jsonl").write_bytes(LINE)
    scandir = os.scandir

    def as_another_user(folder: str) -> object:  # whoever runs this may be root, for whom no mode of a folder counts
        if folder.endswith("root's"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", as_another_user)
    for found in (list(find_sources(tmp_path)), discover(tmp_path, {})):
        reports = list(import_conversations(found, library))
        refused = [report for report in reports if report.action == "refused"]
        assert [(report.source, report.reason) for report in refused] == [
            (str(projects / "root's"), "cannot be listed: Permission denied")
        ]
        assert len(reports) == 2


def test_a_folder_that_is_too_deep_is_named(tmp_path: Path) -> None:
    """Nobody keeps sessions there; but it is not passed over in silence."""
    deep = tmp_path.joinpath(*["d"] * 66)
    deep.mkdir(parents=True)
    (found,) = find_sources(tmp_path)
    assert (found.path, "64 folders deep" in str(found.why_not)) == (str(deep.parent), True)


def test_a_database_that_is_swapped_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the copy somebody puts another database there, or only while it is copied: neither is read."""
    path, other = tmp_path / "logs.db", tmp_path / "other.db"
    for name, text in ((path, "mine"), (other, "theirs")):
        with closing(sqlite3.connect(name, isolation_level=None)) as database:
            database.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, text TEXT)")
            database.execute("INSERT INTO log (text) VALUES (?)", (text,))
    (tmp_path / "logs.db-journal").write_bytes(b"x")  # a program has it open: it is copied
    aside = tmp_path / "aside"

    @contextmanager
    def swapped(name: str) -> Iterator[int]:
        path.rename(aside)
        other.rename(path)
        with open_source(name) as handle:
            path.rename(other)
            aside.rename(path)
            yield handle

    with open_source(str(path)) as handle:
        stamp = FileSource(str(path), handle).stamp
        with monkeypatch.context() as patch:
            patch.setattr(_files, "open_source", swapped)
            with (
                pytest.raises(UnreadableSourceError, match="keeps writing"),
                _files.database(str(path), handle, stamp),
            ):
                raise AssertionError("another database was believed to be this one")
        path.rename(aside)
        other.rename(path)
        with pytest.raises(UnreadableSourceError, match="took its place"), _files.database(str(path), handle, stamp):
            raise AssertionError("another database was believed to be this one")


@pytest.mark.long
def test_an_archive_of_many_members_is_looked_through_once(
    tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incident: with 100,000 members their list was read again for each of the thousand that are looked at, which took hours."""
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(1200):
            archive.writestr(f"{number}.jsonl", json.dumps({"role": "user", "content": f"{number}"}) + "\n")
    opened_times = []

    class Counted(zipfile.ZipFile):
        def __init__(self, *arguments: object) -> None:
            opened_times.append(1)
            super().__init__(*arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    reports = list(import_conversations([path], library))
    assert len(opened_times) == 1
    assert [report.action for report in reports] == ["created"] * 1000 + ["refused"]
    assert "more than 1,000 members" in (reports[-1].reason or "")


@pytest.mark.parametrize("held_bytes", [0, 1 << 24])
def test_a_source_that_is_cut_while_it_is_read_is_named(
    tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    """Between the first look at its lines and the second, and before the first. The incident: «this should not happen, please report it»."""
    path = tmp_path / "session.jsonl"
    lines = [
        {"type": "user", "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, "sessionId": "s", "message": {"role": "user", "content": f"{n}"}}
        for n in range(50)
    ]  # fmt: skip
    whole = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(whole)
    monkeypatch.setattr(_files, "_HELD_BYTES", held_bytes)
    reads, read = [], FileSource.read

    def cutting(source: FileSource, offset: int, size: int) -> bytes:
        reads.append(offset)
        if len(reads) == (
            3 if held_bytes == 0 else 1
        ):  # behind the head and the first walk; or before anything is held
            os.truncate(path, len(whole) // 3)
        return read(source, offset, size)

    monkeypatch.setattr(FileSource, "read", cutting)
    (report,) = import_conversations([path], library)
    assert "should not happen" not in (report.reason or "")
    assert report.action == "created" or "while it was read" in (report.reason or "")
    monkeypatch.setattr(FileSource, "read", read)
    (report,) = import_conversations([path], library)
    assert report.action in ("created", "unchanged", "replaced", "grew")
    assert report.id is not None
    with library.open(report.id, read_only=True) as conversation:
        assert [message["content"] for message in conversation.get_messages()] == [
            f"{n}" for n in range(report.lines.total)
        ]


def test_a_reader_that_fails_on_a_cut_source_is_not_blamed(
    tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text('{"role": "user", "content": "a"}\n' * 10)
    monkeypatch.setattr(_files, "_HELD_BYTES", 0)

    def failing(_reader: object, _source: object) -> Iterator[SessionPlan]:
        os.truncate(path, 40)
        os.utime(path, (1, 1))
        raise IndexError("list index out of range")

    monkeypatch.setattr(JsonLines, "plans", failing)
    (report,) = import_conversations([path], library)
    assert (report.action, report.reason) == ("refused", "was rewritten or cut while it was read; import it again")


def test_what_is_no_list_of_sources_and_no_library(tmp_path: Path) -> None:
    """One path would be taken apart into its letters: ``/`` is a folder, and all of it would be imported."""
    source = tmp_path / "s.jsonl"
    source.write_bytes(LINE)
    library = ConversationLibrary(tmp_path / "library")
    for one in (str(source), source):
        with pytest.raises(TypeError, match=r"sources must be a list of paths, not \w+: give \[path\]"):
            import_conversations(one, library)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"library must be a ConversationLibrary, not str: ConversationLibrary\(directory\) makes one"
    ):
        import_conversations([source], library.directory)  # type: ignore[arg-type]
    assert not Path(library.directory).exists()


def test_a_moment_without_a_time_zone_is_none(tmp_path: Path) -> None:
    """It would mean another moment on each machine; and nothing would be said."""
    library = ConversationLibrary(tmp_path / "library")
    with pytest.raises(ValueError, match="since has no time zone: it does not say which moment it means"):
        import_conversations([tmp_path], library, since=datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="since must be an aware datetime, not str"):
        import_conversations([tmp_path], library, since="7d")  # type: ignore[arg-type]


def test_no_function_in_a_foreign_schema_runs(tmp_path: Path) -> None:
    """A schema may have indexes on expressions, as Kilo's, columns that are computed, and views: the rows are read, and none of those."""
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE t (a text, b text GENERATED ALWAYS AS (upper(a)) VIRTUAL);"
            "CREATE INDEX by_a ON t (lower(a)); CREATE INDEX some ON t (a) WHERE json_valid(a);"
            "CREATE VIEW v AS SELECT upper(a) AS a FROM t; INSERT INTO t (a) VALUES ('x'), ('y');"
        )
    with open_parts(str(path)) as parts:
        for part in parts:
            assert isinstance(part, tuple)
            rows = part[1]
            assert isinstance(rows, Rows)
            assert rows.columns("t") == ("a",)
            assert list(rows.rows("t", ("a",), ("a",), {"a": "x"})) == [("x",)]
            for table, column in (("t", "b"), ("v", "a")):
                with pytest.raises(UnreadableSourceError):
                    list(rows.rows(table, (column,), ()))
