"""The promises F1 to F7 of docs/import.md, each by its number (F4 is in test_killed.py, F8 with the formats).

The incident behind most of them: programs that keep histories delete them after a month, and skip in silence what a crash tore;
an exporter of one rewrote the very file that it was to export.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.importing.helpers import (
    Notebook,
    everything,
    exported_original,
    files_of,
    imported,
    line,
    notebook,
    use_notebooks,
)
from tests.kit.cases import few
from tests.kit.scratch import scratch_directory
from transcript_store import ConversationExistsError, ConversationLibrary, ConversationStore, verify
from transcript_store.exporting import ExportError, export
from transcript_store.formats import READERS, SessionPlan, Source, SourceHead, pack_line
from transcript_store.import_notes import note_of
from transcript_store.importing import import_conversations
from transcript_store.sources import FileSource

pytestmark = pytest.mark.usefixtures("notebooks")

SESSION = (
    notebook()
    + line(say="Where were we?", at="2026-01-01T10:00:00Z")
    + line(say="In the kitchen.", role="assistant", at="2026-01-01T10:00:05Z")
    + line(title="Moving house")
    + "torn by a crash\n"
    + line(compact="We move house.", at="2026-01-02T10:00:00Z")
    + line(say="Which box?", at="2026-01-02T10:00:01Z")
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    path = folder / "one.jsonl"
    path.write_text(SESSION)
    return path


def test_f1_a_source_is_only_read(source: Path, library: ConversationLibrary) -> None:
    """Bytes, inode, time of change and listing are the same afterwards; also where the file could not be written."""
    before = files_of(source.parent)
    source.chmod(0o400)
    assert imported(source, library).action == "created"
    source.chmod(0o600)
    assert files_of(source.parent) == before


def test_f2_twice_changes_nothing(source: Path, library: ConversationLibrary) -> None:
    """No file of the library is written again, not even touched; also if the source was copied elsewhere, or touched."""
    first = imported(source, library)
    before = files_of(Path(library.directory))
    assert imported(source, library).action == "unchanged"
    os.utime(source)
    assert imported(source, library).action == "unchanged"
    copy = source.with_name("copy.jsonl")
    copy.write_bytes(source.read_bytes())
    again = imported(copy, library)
    assert (again.action, again.id) == ("unchanged", first.id)
    assert files_of(Path(library.directory)) == before


def test_f2_from_two_libraries_and_threads_it_is_one(source: Path, library: ConversationLibrary) -> None:
    """A session has the same id everywhere."""
    other = ConversationLibrary(library.directory + "2")
    assert imported(source, library).id == imported(source, other).id


def test_f2_a_folder_that_another_import_has_just_made_is_waited_for(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two imports at once: one reported "the folder is empty; check the path", because the other had made no more than that."""
    create = ConversationLibrary.create
    tries = iter([True])

    def create_second(self: ConversationLibrary, **arguments: Any) -> ConversationStore:
        if next(tries, False):
            raise ConversationExistsError(path=self.directory, reason="another process is making it")
        return create(self, **arguments)

    monkeypatch.setattr(ConversationLibrary, "create", create_second)
    report = imported(source, library)
    assert (report.action, report.reason) == ("created", None)


@pytest.mark.parametrize("held", [1 << 20, 0])
def test_f3_a_file_that_is_rewritten_while_it_is_read_is_imported_anew(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """The old lines were stored with the sum of the new bytes: "unchanged" for ever, and no original came out."""
    monkeypatch.setattr("transcript_store.sources._files._HELD_BYTES", held, raising=False)
    summed = FileSource.sha256

    def rewritten_before(self: FileSource, size: int | None = None) -> str:
        source.write_text(SESSION.replace("kitchen", "cellars"))
        os.utime(source, ns=(0, 0))
        return summed(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "sha256", rewritten_before)
        imported(source, library)
    report = imported(source, library)
    assert report.id is not None
    assert exported_original(library, report.id) == source.read_bytes()


def test_f3_a_large_file_that_grows_while_it_is_imported_has_its_sum(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum was left out, for the file's time had moved. Only what stood there at the opening was read, and that is as it was."""
    monkeypatch.setattr("transcript_store.sources._files._HELD_BYTES", 0)
    before, summed = source.read_bytes(), FileSource.sha256

    def grown_before(self: FileSource, size: int | None = None) -> str:
        with source.open("ab") as file:
            file.write(line(say="more").encode())
        os.utime(source, ns=(0, 0))
        return summed(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "sha256", grown_before)
        report = imported(source, library)
    assert report.id is not None
    assert exported_original(library, report.id) == before
    assert imported(source, library).action == "grew"
    assert exported_original(library, report.id) == source.read_bytes()


def test_f3_a_sum_that_could_not_be_had_is_noted_the_next_time(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes changed and are as before: "unchanged" for ever, and no original came out. One note is written, and then none (F2)."""
    monkeypatch.setattr("transcript_store.sources._files._HELD_BYTES", 0)
    before, summed = source.read_bytes(), FileSource.sha256

    def changed_for_a_moment(self: FileSource, size: int | None = None) -> str:
        source.write_bytes(before.replace(b"kitchen", b"cellars"))
        found = summed(self, size)
        source.write_bytes(before)
        os.utime(source, ns=(0, 0))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "sha256", changed_for_a_moment)
        first = imported(source, library)
    assert first.id is not None
    with pytest.raises(ExportError, match="import the file again"):
        exported_original(library, first.id)
    (dry,) = import_conversations([source], library, dry_run=True)
    second = imported(source, library)
    assert (dry.action, second.action, second.reason is not None) == ("grew", "grew", True)
    assert exported_original(library, first.id) == before
    assert second.messages == first.messages
    assert imported(source, library).action == "unchanged"


def test_f3_a_sum_is_not_noted_behind_what_was_added_here(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody went on with the conversation: nothing is written behind it (F5)."""
    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "sha256_of_what_was_read", lambda _: None)
        report = imported(source, library)
    assert report.id is not None
    with library.open(report.id) as store:
        store.append_message({"role": "user", "content": "mine"})
        head = store.head
    assert imported(source, library).action == "unchanged"
    with library.open(report.id, read_only=True) as store:
        assert store.head == head


def test_f3_the_original_bytes_come_out(source: Path, library: ConversationLibrary) -> None:
    """With what was torn, and what stands behind the last line end; also after it grew."""
    with source.open("ab") as file:
        file.write(b'{"say": "half a l')
    report = imported(source, library)
    assert report.id is not None
    assert exported_original(library, report.id) == source.read_bytes()
    with source.open("ab") as file:
        file.write(b'ine"}\r\n\x00\x00\n\xff\xfe\n' + line(say="more").encode())
    assert imported(source, library).action == "grew"
    assert exported_original(library, report.id) == source.read_bytes()
    with library.open(report.id, read_only=True) as store:
        note = note_of(store.get_records(last=1)[0])
    assert note is not None
    assert note["file"]["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()


def test_f3_the_lines_come_in_the_order_of_the_source(library: ConversationLibrary) -> None:
    """Whatever the order of the records: a tree's branches are on record one after the other, and lie mixed in the source."""
    pieces = [(number, part, b"%d %d\n" % (number, part)) for number in range(1, 60) for part in range(1 + number % 3)]
    whole = b"".join(raw for _, _, raw in pieces)
    Random(0).shuffle(pieces)
    with library.create() as store:
        for number, part, raw in pieces:
            store.append_event({"source": {"lines": [pack_line(number, raw, None, part=part)]}})
        store.append_event({"import": {"generation": 0, "file": {"sha256": hashlib.sha256(whole).hexdigest()}}})
        own_id = store.id
    assert exported_original(library, own_id) == whole


def test_f3_an_original_comes_out_in_pieces(tmp_path: Path, library: ConversationLibrary) -> None:
    """Of a source of 6 MB not a half is held at a time: 2 GB once took 4 GB of memory."""
    source, out = tmp_path / "long.jsonl", tmp_path / "out.jsonl"
    source.write_text(notebook() + "".join(line(say=f"{number} {'x' * 2000}") for number in range(3000)))
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id, read_only=True, cache_bytes=0) as store:
        tracemalloc.start()
        export(store, to="original", output=str(out))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert out.read_bytes() == source.read_bytes()
    assert most < 3_000_000


def test_f5_what_was_added_here_is_never_overwritten(source: Path, library: ConversationLibrary) -> None:
    """The source grew, and was rewritten: reported, and both are as they were; imported as another if that is asked for."""
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id) as store:
        store.append_message({"role": "assistant", "content": "The blue one."})
        store.update_metadata(title="My own title")
    assert imported(source, library).action == "unchanged"
    before = files_of(Path(library.directory))
    for changed in (
        SESSION + line(say="And the red one?"),
        SESSION.replace("Which box?", "What?"),
        notebook() + line(say="x"),
    ):
        source.write_text(changed)
        found = imported(source, library)
        assert (found.action, found.id) == ("diverged", report.id)
        assert found.reason
        assert files_of(Path(library.directory)) == before
    forked = imported(source, library, diverged="fork")
    assert forked.action == "created"
    assert forked.id != report.id
    with library.open(report.id, read_only=True) as store:
        assert store.get_messages()[-1] == {"role": "assistant", "content": "The blue one."}
        assert store.get_metadata().labels["title"] == "My own title"


def test_f5_a_fork_once_made_is_kept_up(source: Path, library: ConversationLibrary) -> None:
    """Without being asked for again: the session's conversation is the one that still follows it."""
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id) as store:
        store.append_message({"role": "assistant", "content": "The blue one."})
    with source.open("a") as file:
        file.write(line(say="And the red one?"))
    forked = imported(source, library, diverged="fork")
    with source.open("a") as file:
        file.write(line(say="And the green one?"))
    again = imported(source, library)
    assert (forked.action, again.action, again.id) == ("created", "grew", forked.id)
    with library.open(str(forked.id), read_only=True) as store:
        assert store.get_metadata().labels["diverged_from"] == report.id


def test_f5_a_title_that_a_user_gave_stays(source: Path, library: ConversationLibrary) -> None:
    """One that the source gave follows the source."""
    report = imported(source, library)
    assert report.id is not None

    def title_after(text: str) -> str:
        with source.open("a") as file:
            file.write(line(title=text))
        assert imported(source, library).action == "grew"
        with library.open(str(report.id), read_only=True) as store:
            return store.get_metadata().labels["title"]

    assert title_after("Second") == "Second"
    with library.open(report.id) as store:
        store.update_metadata(title="Mine")
    assert title_after("Third") == "Mine"


def test_f5_a_generation_that_was_deleted_does_not_come_back(source: Path, library: ConversationLibrary) -> None:
    """A leaked secret is removed with its generation; what the source adds, or rewrites later, brings it back in no way."""
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id) as store:
        store.delete_generation(0)
    for changed in (SESSION + line(say="more"), SESSION.replace("Which box?", "What?")):
        source.write_text(changed)
        assert imported(source, library).action in ("grew", "replaced")
    with library.open(report.id, read_only=True) as store:
        said = [
            str(record.message)
            for generation in store.generations()
            for record in store.get_records(generation=generation.number)
        ]
        assert not [text for text in said if "In the kitchen" in text]


def test_f5_a_compaction_here_counts_as_going_on(source: Path, library: ConversationLibrary) -> None:
    """What we replaced stays replaced; the source's own growth is reported."""
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id) as store:
        store.replace_transcript([{"role": "user", "content": "a summary"}])
    assert imported(source, library).action == "unchanged"
    with source.open("a") as file:
        file.write(line(say="more"))
    assert imported(source, library).action == "diverged"


def test_f6_every_line_is_accounted_for(source: Path, library: ConversationLibrary) -> None:
    """Messages, events and findings are the lines, in the report and in the note of the import."""
    source.write_bytes(
        SESSION.encode() + b"\xff\xfe no text\n\n" + b"\x00" * 10 + b"\n" + b"[1,2]\n" + b'{"a":1}{"b":2}\n'
    )
    report = imported(source, library)
    lines = report.lines
    assert lines.total == source.read_bytes().count(b"\n") == lines.in_messages + lines.in_events + lines.left_out
    assert {finding.kind for finding in report.findings} == {"not-json", "empty", "nul", "not-an-object", "glued"}
    assert all(finding.line for finding in report.findings)


@settings(max_examples=few(25), deadline=None)
@given(cut=st.integers(0, len(SESSION)))
def test_f6_cut_at_any_byte_no_line_is_lost(cut: int) -> None:
    """Cut anywhere, then whole: each time all lines are accounted for, and the end is as if it had never been cut."""
    with pytest.MonkeyPatch.context() as patch, scratch_directory() as folder:
        use_notebooks(patch)
        path, library = Path(folder, "s.jsonl"), ConversationLibrary(Path(folder, "library"))
        path.write_text(SESSION[:cut])
        for report in import_conversations([path], library):
            assert report.lines.in_messages + report.lines.in_events + report.lines.left_out == report.lines.total
        path.write_text(SESSION)
        if cut >= len(notebook()):
            report = imported(path, library)
            assert report.id is not None
            assert exported_original(library, report.id) == SESSION.encode()
            with library.open(report.id, read_only=True) as store:
                assert [message["content"] for message in store.get_messages()] == ["We move house.", "Which box?"]


def test_times_are_the_sources_own(source: Path, library: ConversationLibrary) -> None:
    """A time that goes backwards, lies in the future or cannot be read is kept beside the one that the record has."""
    source.write_text(
        notebook()
        + line(say="a", at="2026-01-01T10:00:00Z")
        + line(say="b", at="2025-01-01T10:00:00Z")
        + line(say="c", at="9999-01-01T00:00:00Z")
        + line(say="d", at="0000-00-00")
    )
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        records = [record for record in store.get_records() if record.message]
    assert [record.at[:10] for record in records[:2]] == ["2026-01-01", "2026-01-01"]
    assert records[2].at_datetime.timestamp() <= time.time()
    kept = [(record.extra or {})["source"].get("at") for record in records]
    assert kept == [None, "2025-01-01T10:00:00Z", "9999-01-01T00:00:00Z", "0000-00-00"]


def test_f6_a_message_that_the_store_does_not_take_is_named(library: ConversationLibrary, tmp_path: Path) -> None:
    """Nested as deep as JSON is read, which is deeper than a record may be: it became an event, and was counted as a message."""
    path = tmp_path / "session.jsonl"
    deep = '{"role": "user", "content": %s}\n' % ("[" * 1015 + "]" * 1015)
    path.write_text('{"role": "user", "content": "Hi"}\n' + deep)
    (report,) = import_conversations([path], library)
    assert (report.messages, report.events, report.lines.in_messages, report.lines.in_events) == (1, 1, 1, 1)
    assert [(finding.kind, finding.line) for finding in report.findings] == [("unstorable", 2)]
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert [message["content"] for message in store.get_messages()] == ["Hi"]
        note = note_of(store.get_records(last=1)[0])
    assert note is not None
    assert [finding["kind"] for finding in note["findings"]] == ["unstorable"]
    assert exported_original(library, report.id) == path.read_bytes()
    (again,) = import_conversations([path], library)
    assert again == replace(report, action="unchanged")


def test_f6_a_message_that_was_not_taken_before_is_named_again(library: ConversationLibrary, tmp_path: Path) -> None:
    """The incident: the second import of it told the message as stored, and so did the note of what the session grew by."""
    path = tmp_path / "session.jsonl"
    said = '{"role": "user", "content": "Hi"}\n'
    path.write_text(2 * said + '{"role": "user", "content": %s}\n' % ("[" * 1015 + "]" * 1015))
    assert len([*import_conversations([path], library)]) == 1
    with path.open("a") as file:
        file.write(said)
    (report,) = import_conversations([path], library)
    assert (report.action, report.messages, report.events) == ("grew", 3, 1)
    assert [(finding.kind, finding.line) for finding in report.findings] == [("unstorable", 3)]
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        note = note_of(store.get_records(last=1)[0])
    assert note is not None
    assert (note["findings_count"], note["findings"][0]["kind"]) == (1, "unstorable")


NESTED = "[" * 100_000 + "]" * 100_000
SAY = '"Hi"'
BOMBS = {
    "jsonl": '{"role":"user","content":%s}',
    "claude-code": '{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","message":{"role":"user","content":%s}}',
    "codex": '{"timestamp":"2026-01-01T00:00:00Z","type":"response_item","payload":{"type":"message","role":"user",'
    '"content":[{"type":"input_text","text":%s}]}}',
    "pi": '{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":%s}}',
    "kimi": '{"type":"context.append_message","message":{"role":"user","content":%s}}',
    "gemini-cli": '{"id":"a","type":"user","content":%s}',
    "claude-ai": '[{"uuid":"c","chat_messages":[{"uuid":"m","sender":"human","text":"Hi","content":%s}]}]',
    "chatgpt": '[{"conversation_id":"c","create_time":1.5,"current_node":"n","mapping":{"n":{"id":"n","parent":null,"message":'
    '{"author":{"role":"user"},"content":{"content_type":"text","parts":[%s]}}}}}]',
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("format", BOMBS)
def test_f6_what_is_nested_too_deep_is_named_with_its_place_and_a_hint(
    library: ConversationLibrary, tmp_path: Path, format: str
) -> None:
    """A hundred thousand levels, in each format: one finding with the line and the byte, and the bytes come out again."""
    path = tmp_path / "source"
    first = BOMBS[format] % NESTED
    whole = first + "\n" if format in ("claude-ai", "chatgpt") else first + "\n" + BOMBS[format] % SAY + "\n"
    path.write_text(whole)
    (report,) = (
        import_conversations([path], library, format=format)
        if whole.count("\n") > 1
        else import_conversations([path], library)
    )
    (finding,) = [finding for finding in report.findings if finding.kind == "too-deep"]
    assert (finding.line, finding.offset) == (1, first.startswith("["))
    assert "1,024 levels" in finding.message
    assert "import the file again" in finding.message
    assert report.lines.in_messages + report.lines.in_events + report.lines.left_out == report.lines.total
    assert report.id is not None
    assert exported_original(library, report.id) == path.read_bytes()


def test_a_compaction_is_a_generation(source: Path, library: ConversationLibrary) -> None:
    """The messages are what a model would be sent; what was before stays readable, and what a rewrite changed too."""
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert store.get_metadata().generation == 1
        assert [message["content"] for message in store.get_messages()] == ["We move house.", "Which box?"]
    source.write_text(SESSION.replace("In the kitchen", "In the cellar"))
    assert imported(source, library).action == "replaced"
    assert exported_original(library, report.id) == source.read_bytes()
    with library.open(report.id, read_only=True) as store:
        assert store.get_metadata().generation == 3
        assert store.get_records(generation=0)[2].message == {"role": "assistant", "content": "In the kitchen."}
        assert store.get_records(generation=2)[2].message == {"role": "assistant", "content": "In the cellar."}
    assert imported(source, library).action == "unchanged"
    assert verify(f"{library.directory}/{report.id}").is_intact


def test_two_sessions_that_claim_one_id_are_told_apart(source: Path, library: ConversationLibrary) -> None:
    """The first stays; the second is reported, and does not take turns with it. An older copy of the first is the first."""
    report = imported(source, library)
    other = source.with_name("other.jsonl")
    other.write_text(notebook() + line(say="Somebody else."))
    found = imported(other, library)
    assert found.action == "diverged"
    assert str(source) in str(found.reason)
    other.write_text(SESSION[: SESSION.index("Which box?") - len('{"say": "')])
    assert imported(other, library).action == "unchanged"
    assert imported(source, library).action == "unchanged"
    assert report.action == "created"


def test_two_sessions_of_one_id_in_one_file_do_not_replace_each_other(
    tmp_path: Path, library: ConversationLibrary
) -> None:
    """Each import of such an export replaced the one by the other and back: two generations more each time (F2)."""
    path = tmp_path / "conversations.json"
    first, second = (
        {"uuid": "one", "name": "", "chat_messages": [{"sender": "human", "text": text}]} for text in ("hi", "ho")
    )
    path.write_text(json.dumps([first, second, first]))
    reports = list(import_conversations([path], library))
    assert [report.action for report in reports] == ["created", "diverged", "unchanged"]
    assert "same id" in str(reports[1].reason)
    before = files_of(Path(library.directory))
    reports = list(import_conversations([path], library))
    assert [report.action for report in reports] == ["unchanged", "diverged", "unchanged"]
    assert files_of(Path(library.directory)) == before


def claiming_one_id(path: Path, *sessions: str) -> list[Path]:
    """An export of conversations of one id. Each letter of a session is a message."""
    said = ([{"uuid": letter, "sender": "human", "text": letter} for letter in session] for session in sessions)
    path.write_text(json.dumps([{"uuid": "one", "name": "", "chat_messages": messages} for messages in said]))
    return [path]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("diverged", ["report", "fork"])
@pytest.mark.parametrize("is_gone_on_with", [False, True])
@pytest.mark.parametrize("before", ["", "a", "ab", "x"])
def test_a_dry_run_says_of_two_sessions_of_one_id_what_is_done(
    before: str,
    is_gone_on_with: bool,
    diverged: Literal["report", "fork"],
    tmp_path: Path,
    library: ConversationLibrary,
) -> None:
    """It compared the second one with what is on record, and the first is not there yet: the same once more was "another session"."""
    path = tmp_path / "conversations.json"
    if before:
        report = imported(claiming_one_id(path, before), library)
        if is_gone_on_with:
            with library.open(str(report.id)) as store:
                store.append_message({"role": "assistant", "content": "Said here."})
    sources = claiming_one_id(path, "ab", "ab", "a", "abc", "x", "ab")
    told, done = (
        [
            (report.action, report.id, report.reason)
            for report in import_conversations(sources, library, diverged=diverged, dry_run=dry_run)
        ]
        for dry_run in (True, False)
    )
    assert told == done
    assert done[1] == done[-1]
    assert done[1][0] == ("diverged" if done[0][0] == "diverged" else "unchanged")


def test_the_same_session_once_more_is_refused_as_the_first_one_is(
    tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes the conversation. It was told that another session came first, and nothing of that one was on record."""
    # Why private: how long an import waits is no argument, and the test would wait as long.
    monkeypatch.setattr("transcript_store.importing._importer._WAIT_SECONDS", 0.01)
    path = tmp_path / "conversations.json"
    report = imported(claiming_one_id(path, "a"), library)
    with library.open(str(report.id)):
        first, same, other = import_conversations(claiming_one_id(path, "ab", "ab", "x"), library)
    assert first.action == "refused"
    assert (same.action, same.reason) == (first.action, first.reason)
    assert (other.action, "an earlier session" in str(other.reason)) == ("diverged", True)


def test_a_message_that_cannot_be_stored_is_an_event(source: Path, library: ConversationLibrary) -> None:
    """A message too deep: its line is kept as it is, the others are messages."""
    deep = "[" * 5000 + "]" * 5000
    source.write_text(notebook() + f'{{"say": {deep}}}\n' + line(say="fine"))
    report = imported(source, library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert store.get_messages() == [{"role": "user", "content": "fine"}]
    assert exported_original(library, report.id) == source.read_bytes()
    assert imported(source, library).action == "unchanged"


def test_a_dry_run_writes_nothing(source: Path, library: ConversationLibrary) -> None:
    """It says what an import would do."""
    assert imported(source, library, dry_run=True).action == "created"
    assert not Path(library.directory).exists()
    imported(source, library)
    before = files_of(Path(library.directory))
    with source.open("a") as file:
        file.write(line(say="more"))
    assert imported(source, library, dry_run=True).action == "grew"
    assert files_of(Path(library.directory)) == before


def test_an_import_of_a_kind_that_is_not_there_is_refused(library: ConversationLibrary, source: Path) -> None:
    """A misspelled argument raises before anything is read."""
    with pytest.raises(ValueError, match="notebook"):
        import_conversations([source], library, format="notebok")
    with pytest.raises(ValueError, match="diverged"):
        import_conversations([source], library, diverged="no")  # type: ignore[arg-type]
    assert everything(library) == {}


def test_f6_a_part_of_a_file_is_counted_with_the_whole(tmp_path: Path, library: ConversationLibrary) -> None:
    """A sub-agent's lines within its parent's file: a conversation of its own, whose lines are not counted twice."""

    def entry(
        number: int, parent: int | None, *, side: bool, session: str = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
    ) -> str:
        return line(
            type="user" if number % 2 else "assistant",
            uuid=f"u{number}",
            parentUuid=None if parent is None else f"u{parent}",
            isSidechain=side,
            sessionId=session,
            timestamp=f"2026-01-01T10:00:{number:02}Z",
            message={"role": "user" if number % 2 else "assistant", "content": f"text {number}"},
        )

    path = tmp_path / "s.jsonl"
    path.write_text(
        entry(1, None, side=False)
        + entry(2, 1, side=False)
        + entry(3, None, side=True)
        + entry(4, 3, side=True)
        + entry(5, 2, side=False)
    )
    whole, *parts = import_conversations([path], library)
    assert (whole.lines.total, whole.lines.left_out, whole.is_part) == (5, 0, False)
    assert whole.id is not None
    assert exported_original(library, whole.id) == path.read_bytes()
    assert [(part.lines.total, part.lines.left_out, part.is_part) for part in parts] == [(2, 0, True)]
    assert not [finding for report in (whole, *parts) for finding in report.findings]
    assert [report.action for report in import_conversations([path], library)] == ["unchanged", "unchanged"]


class Broken:
    """A reader that fails, as none should."""

    name = "broken"

    def recognizes(self, head: SourceHead) -> bool:
        return head.name.endswith("broken.jsonl")

    def plans(self, source: Source) -> Iterator[SessionPlan]:
        raise LookupError(source.name)


def test_a_reader_that_fails_stops_nobody_else(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source that it failed on is refused, with the error; the others are imported."""
    (source.parent / "broken.jsonl").write_text("{}\n")
    monkeypatch.setattr("transcript_store.importing.READERS", (Broken(), Notebook(), *READERS))
    reports = list(import_conversations([source.parent], library))
    assert [report.action for report in reports] == ["refused", "created"]
    assert "LookupError" in str(reports[0].reason)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", [reader.name for reader in READERS if reader.name != "jsonl"])
def test_a_wrong_format_is_no_session(name: str, tmp_path: Path, library: ConversationLibrary) -> None:
    """A file of lines, an empty one and a database, each read as everything that it is not: never an error."""
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n[]\nno\n')
    (tmp_path / "b.jsonl").touch()
    with closing(sqlite3.connect(tmp_path / "c.db")) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()
    for report in import_conversations([tmp_path], library, format=name):
        assert "should not happen" not in (report.reason or ""), report
        assert report.lines.left_out == 0
