"""Sources whose program changes what it wrote before: rows updated in place, a turn that is taken out of a file.

Public reports: nicosuave/memex#195 (97.7 % of the rows of a live database are updates in place), anomalyco/opencode#16101 and #36523
(databases of gigabytes), github/copilot-cli's ``/undo``, which removes lines.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLibrary, verify
from transcript_store.formats import SessionPlan
from transcript_store.formats._opencode import OpenCode
from transcript_store.importing import ImportReport, conversation_id, discover, import_conversations, overviews

T = 1795773215303
SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, title text, version text, revert text,
  time_created integer, time_updated integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, time_updated integer, data text);
CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer, time_updated integer, data text);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer);
CREATE INDEX by_role ON message (id, json_extract("data", '$.role'));
"""
"""With an index on an expression, as Kilo's: SQLite refuses the whole database to a connection that trusts no schema."""


class Program:
    """A database in the form of OpenCode's, and its program, which has it open."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.executescript(SCHEMA)
        self._count = 0

    def begin(self, session: str) -> None:
        row = (session, None, "/home/ada", f"About {session}", "1.18.33", None, T, T, None)
        self.database.execute(f"INSERT INTO session VALUES ({', '.join('?' * len(row))})", row)
        self.database.execute("INSERT INTO event_sequence VALUES (?, 1)", (session,))

    def say(self, session: str, role: str, said: str, **data: Any) -> str:
        self._count += 1
        at, number = T + self._count, f"msg_{self._count:012x}AbCdEfGhIjKlMn"
        whole = json.dumps({"role": role, "time": {"created": at}, "modelID": "m", "providerID": "lab", **data})
        self.database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (number, session, at, at, whole))
        part = json.dumps({"type": "compaction"} if not said else {"type": "text", "text": said})
        row = (number.replace("msg", "prt"), number, session, at, at, part)
        self.database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
        self.touch(session)
        return number

    def change(self, table: str, number: str, **members: Any) -> None:
        ((session, data),) = self.database.execute(f"SELECT session_id, data FROM {table} WHERE id = ?", (number,))
        changed = json.dumps(json.loads(data) | members)
        self.database.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (changed, number))
        self.touch(session)

    def touch(self, session: str) -> None:
        self.database.execute("UPDATE event_sequence SET seq = seq + 1 WHERE aggregate_id = ?", (session,))
        self.database.execute("UPDATE session SET time_updated = time_updated + 1 WHERE id = ?", (session,))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path / "home/.local/share/opencode/opencode.db")
    with closing(made.database):
        yield made


class Here:
    """A library that keeps up with it."""

    def __init__(self, tmp_path: Path, path: Path) -> None:
        self.library, self._path, self._cache = ConversationLibrary(tmp_path / "chats"), path, tmp_path / "cache"

    def imported(self) -> dict[str | None, ImportReport]:
        found = import_conversations([self._path], self.library, cache=self._cache)
        return {report.session: report for report in found}

    def actions(self) -> dict[str | None, str]:
        return {session: report.action for session, report in self.imported().items()}

    def said(self, session: str, generation: int | None = None, format: str = "opencode") -> list[Any]:
        with self.library.open(conversation_id(format, session), read_only=True) as store:
            records = store.get_records(generation=generation)
            return [record.message["content"] for record in records if record.message is not None]


@pytest.fixture
def here(tmp_path: Path, program: Program) -> Here:
    for session in ("ses_a", "ses_b"):
        program.begin(session)
        program.say(session, "user", f"Hello {session}")
        program.say(session, "assistant", "Hi")
    return Here(tmp_path, program.path)


def test_what_is_updated_beside_the_messages_begins_no_generation(here: Here, program: Program, tmp_path: Path) -> None:
    """The patches that a prompt led to come minutes later; they are no part of what was said."""
    assert here.actions() == {"ses_a": "created", "ses_b": "created"}
    first = f"msg_{1:012x}AbCdEfGhIjKlMn"
    program.change("message", first, summary={"diffs": [{"file": "a"}]})
    assert here.actions() == {"ses_a": "unchanged", "ses_b": "unchanged"}
    program.change("message", f"msg_{2:012x}AbCdEfGhIjKlMn", cost=3)
    assert here.actions()["ses_a"] == "grew", "what changed of the line is told behind it"
    with here.library.open(conversation_id("opencode", "ses_a"), read_only=True) as store:
        assert len(store.generations()) == 1
    assert verify(tmp_path / "chats" / conversation_id("opencode", "ses_a")).is_intact


def test_of_a_database_that_grew_only_what_is_new_is_read(
    here: Here, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public report: a reader read all of a database of gigabytes at each look."""
    here.imported()
    planned: list[str] = []
    plan_of = OpenCode._plan  # what is planned is seen nowhere else

    def counting(reader: OpenCode, session: Any) -> SessionPlan:
        plan = plan_of(reader, session)
        planned.append(plan.session)
        return plan

    monkeypatch.setattr(OpenCode, "_plan", counting)
    program.say("ses_b", "user", "One more")
    reports = here.imported()
    assert {session: report.action for session, report in reports.items()} == {"ses_a": "unchanged", "ses_b": "grew"}
    assert planned == ["ses_b"]
    assert (reports["ses_a"].messages, reports["ses_a"].title) == (2, "About ses_a")
    assert here.said("ses_b") == ["Hello ses_b", "Hi", "One more"]
    planned.clear()
    here.library.delete(conversation_id("opencode", "ses_a"))
    program.say("ses_b", "assistant", "And more")
    assert here.actions() == {"ses_a": "deleted", "ses_b": "grew"}
    assert sorted(planned) == ["ses_a", "ses_b"], "a conversation that was deleted here is looked at"


def test_rows_are_read_beside_a_program_that_writes_and_nothing_of_it_is_touched(here: Here, program: Program) -> None:
    folder = program.path.parent
    assert (folder / "opencode.db-shm").exists()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}
    assert here.actions() == {"ses_a": "created", "ses_b": "created"}
    assert {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")} == before


def test_a_reply_that_was_still_written_and_an_undo_are_generations(here: Here, program: Program) -> None:
    here.imported()
    number = program.say("ses_a", "assistant", "Half")
    assert here.actions()["ses_a"] == "grew"
    program.change("part", number.replace("msg", "prt"), text="Half and whole")
    assert here.actions()["ses_a"] == "replaced"
    program.database.execute("UPDATE session SET revert = ? WHERE id = 'ses_a'", (json.dumps({"messageID": number}),))
    program.touch("ses_a")
    assert here.actions()["ses_a"] == "replaced"
    program.database.execute("DELETE FROM message WHERE id = ?", (number,))
    program.database.execute("UPDATE session SET revert = NULL WHERE id = 'ses_a'")
    program.say("ses_a", "user", "Instead")
    assert here.actions()["ses_a"] == "grew"
    assert here.said("ses_a") == ["Hello ses_a", "Hi", "Instead"]
    assert [here.said("ses_a", generation)[2:] for generation in (0, 1)] == [["Half"], ["Half and whole"]]


def test_a_compaction_after_the_import_and_updates_around_it(here: Here, program: Program) -> None:
    here.imported()
    marker = program.say("ses_a", "user", "")
    program.say("ses_a", "assistant", "Summary", summary=True, parentID=marker)
    assert here.actions()["ses_a"] == "grew"
    assert here.said("ses_a") == ["What did we do so far?", "Summary"]
    program.change("message", f"msg_{2:012x}AbCdEfGhIjKlMn", cost=3)
    program.say("ses_a", "user", "On")
    assert here.actions()["ses_a"] == "grew"
    assert here.said("ses_a") == ["What did we do so far?", "Summary", "On"]
    with here.library.open(conversation_id("opencode", "ses_a"), read_only=True) as store:
        assert len(store.generations()) == 2
    assert here.said("ses_a", 0) == ["Hello ses_a", "Hi"]


def test_an_older_copy_of_the_database_changes_nothing(here: Here, program: Program, tmp_path: Path) -> None:
    older = tmp_path / "older.db"
    with closing(sqlite3.connect(older)) as copy:
        program.database.backup(copy)
    program.say("ses_a", "user", "Newer")
    here.imported()
    assert [one.action for one in import_conversations([older], here.library)] == ["unchanged", "unchanged"]
    assert here.said("ses_a")[-1] == "Newer"


def test_what_is_here_is_found_and_counted_before_anything_is_imported(
    here: Here, program: Program, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert here is not None
    events = home / ".copilot/session-state/x/events.jsonl"
    events.parent.mkdir(parents=True)
    events.write_text("{}\n")
    os.utime(events, (86400, 86400))
    found = discover(home=home, environ={})
    assert [(one.program, Path(one.path).name) for one in found] == [
        ("opencode", "opencode.db"),
        ("copilot", "events.jsonl"),
    ]
    shown = [(one.program, one.sessions, f"{one.first:%Y-%m-%d}", f"{one.last:%Y-%m-%d}") for one in overviews(found)]
    assert shown == [("opencode", 2, "2026-11-27", "2026-11-27"), ("copilot", 1, "1970-01-02", "1970-01-02")]
    elsewhere = {"OPENCODE_DB": str(program.path), "XDG_DATA_HOME": str(tmp_path / "other")}
    assert [one.path for one in discover(home=tmp_path, environ=elsewhere)] == [str(program.path)]


def test_json_folders_come_in_as_one_session(tmp_path: Path) -> None:
    """OpenCode before 1.2: a file for the session, for each message and for each part."""
    storage = tmp_path / "home/.local/share/opencode/storage"
    files = {
        "session/global/ses_old.json": {
            "id": "ses_old",
            "directory": "/x",
            "title": "Old",
            "time": {"created": T, "updated": T},
        },
        "message/ses_old/msg_1.json": {"id": "msg_1", "role": "user", "time": {"created": T}},
        "message/ses_old/msg_2.json": {"id": "msg_2", "role": "assistant", "modelID": "m", "time": {"created": T}},
        "part/msg_1/prt_1.json": {"id": "prt_1", "type": "text", "text": "Where were we?"},
        "part/msg_2/prt_2.json": {"id": "prt_2", "type": "text", "text": "In the kitchen."},
    }
    for name, value in files.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_text(json.dumps(value))
    (storage / "part/msg_2/prt_3.json").write_text("torn by a cra")
    found = discover(home=tmp_path / "home", environ={})
    library = ConversationLibrary(tmp_path / "chats")
    (report,) = import_conversations(found, library)
    assert (report.action, report.format, report.title, report.lines.total) == ("created", "opencode", "Old", 2)
    assert [finding.kind for finding in report.findings] == ["not-json"]
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert [message["content"] for message in store.get_messages()] == ["Where were we?", "In the kitchen."]
    assert [one.action for one in import_conversations(found, library)] == ["unchanged"]


def test_a_session_that_a_migration_left_without_its_parts_comes_from_the_folder(
    here: Here, program: Program, tmp_path: Path
) -> None:
    """Public reports: anomalyco/opencode#13818, #13560: the database has the messages, and what they say stands in the files alone."""
    program.begin("ses_c")
    number = program.say("ses_c", "user", "What the file says")
    program.database.execute("DELETE FROM part WHERE message_id = ?", (number,))
    storage = program.path.parent / "storage"
    times = {"created": T, "updated": T + 1}
    for name, value in {
        "session/global/ses_c.json": {"id": "ses_c", "directory": "/x", "title": "C", "time": times},
        f"message/ses_c/{number}.json": {"id": number, "role": "user", "time": {"created": T}},
        f"part/{number}/prt_1.json": {"id": "prt_1", "type": "text", "text": "What the file says"},
    }.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_text(json.dumps(value))
    found = discover(home=tmp_path / "home", environ={})
    list(import_conversations(found, here.library))
    assert here.said("ses_c") == ["What the file says"]
    assert {one.action for one in import_conversations(found, here.library)} == {"unchanged"}
    assert here.said("ses_c") == ["What the file says"]
    program.say("ses_c", "user", "Behind it")
    list(import_conversations(found, here.library))
    with here.library.open(conversation_id("opencode", "ses_c"), read_only=True) as store:
        numbers = [generation.number for generation in store.generations()]
    assert [here.said("ses_c", number) for number in numbers] == [["What the file says"], ["Behind it"]]


def events(*said: tuple[str, str]) -> str:
    start = {"sessionId": "s1", "producer": "copilot-agent", "copilotVersion": "1.0.102"}
    lines: list[dict[str, Any]] = [{"type": "session.start", "data": start}]
    lines += [{"type": f"{who}.message", "data": {"content": text}} for who, text in said]
    envelope = ({"id": f"e{n}", "timestamp": f"2026-11-27T10:00:{n:02}Z", "parentId": None} for n in range(99))
    return "".join(json.dumps({**line, **about}) + "\n" for line, about in zip(lines, envelope, strict=False))


def test_a_turn_that_undo_took_out_of_a_file_is_in_the_generation_before(tmp_path: Path) -> None:
    """Copilot CLI's /undo removes lines from events.jsonl: what was once imported stays."""
    path = tmp_path / "events.jsonl"
    here = Here(tmp_path, path)
    path.write_text(events(("user", "One"), ("assistant", "Two"), ("user", "Regretted"), ("assistant", "Four")))
    assert here.actions() == {"s1": "created"}
    path.write_text(events(("user", "One"), ("assistant", "Two"), ("user", "Instead")))
    assert here.actions() == {"s1": "replaced"}
    assert here.said("s1", format="copilot") == ["One", "Two", "Instead"]
    assert here.said("s1", 0, format="copilot") == ["One", "Two", "Regretted", "Four"]
    path.write_text(events(("user", "One"), ("assistant", "Two"), ("user", "Instead"), ("assistant", "On")))
    assert here.actions() == {"s1": "grew"}
