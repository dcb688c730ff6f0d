"""A library that an earlier version imported: what this version reads otherwise becomes one new generation, once.

Public readers of such files change what they make of a line, and an import that never looks again keeps the old reading for good.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import Notebook, files_of, line, notebook
from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.formats import READERS, SessionPlan, Source
from transcript_store.import_notes import note_of
from transcript_store.importing import ImportReport, import_conversations

SESSION = notebook() + line(say="one", role="user") + line(aside="two") + line(say="three", role="assistant")


class Earlier(Notebook):
    """What stands in ``aside`` was an event, and the note had no revision."""


class Later(Notebook):
    """It is a message of the user's."""

    revision = 2

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        for plan in super().plans(source):
            generations = tuple(_with_asides(entries) for entries in plan.generations)
            yield replace(plan, generations=generations)


def _with_asides(entries: Callable[[], Iterable[Any]]) -> Callable[[], Iterable[Any]]:
    def told() -> Iterable[Any]:
        for entry in entries():
            said = [line["line"].get("aside") for line in entry.extra["source"]["lines"] if "line" in line]
            yield entry._replace(message={"role": "user", "content": said[0]}) if said and said[0] else entry

    return told


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_text(SESSION)
    return path


@pytest.fixture
def read_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: ConversationLibrary) -> Callable[..., str]:
    def action(reader: Notebook, source: Path, **options: Any) -> str:
        report = whole_report(reader, source, **options)
        return report.action

    def whole_report(reader: Notebook, source: Path, **options: Any) -> ImportReport:
        for module in ("transcript_store.importing", "transcript_store.importing._stamps"):
            monkeypatch.setattr(f"{module}.READERS", (reader, *READERS))
        (report,) = import_conversations([source], library, cache=tmp_path / "cache", **options)
        return report

    return action


def said(library: ConversationLibrary) -> list[str]:
    (summary,) = library.list()
    with library.open(str(summary.id), read_only=True) as store:
        return [str(message["content"]) for message in store.get_messages()]


def open_one(library: ConversationLibrary) -> Any:
    (summary,) = library.list()
    return library.open(str(summary.id))


@pytest.mark.parametrize("is_cached", [True, False])
def test_it_is_reread_once(
    is_cached: bool, source: Path, library: ConversationLibrary, read_by: Callable[..., str], tmp_path: Path
) -> None:
    """The old reading stays as a generation, a title of yours stays, and the source's bytes come out."""
    assert read_by(Earlier(), source) == "created"
    if is_cached:
        assert read_by(Earlier(), source) == "unchanged"
    with open_one(library) as store:
        store.update_metadata(labels={"title": "Mine", **store.get_metadata().labels})
    assert read_by(Later(), source, dry_run=True) == "reread"
    assert read_by(Later(), source) == "reread"
    assert said(library) == ["one", "two", "three"]
    before = files_of(Path(library.directory))
    assert [read_by(Later(), source) for _ in range(2)] == ["unchanged"] * 2
    assert files_of(Path(library.directory)) == before
    with open_one(library) as store:
        assert (store.get_metadata().generation, store.get_metadata().labels["title"]) == (1, "Mine")
        assert len(store.get_records(generation=0)) == 5
        its_id = store.get_metadata().id
    stream = io.BytesIO()
    export(library, its_id, to="original", output=stream)
    assert stream.getvalue() == source.read_bytes()


def test_what_is_read_as_before_is_not_written(
    source: Path, library: ConversationLibrary, read_by: Callable[..., str]
) -> None:
    source.write_text(SESSION.replace("aside", "title"))
    assert read_by(Earlier(), source) == "created"
    before = files_of(Path(library.directory))
    assert [read_by(Later(), source) for _ in range(2)] == ["unchanged"] * 2
    assert files_of(Path(library.directory)) == before


@pytest.mark.parametrize("compacts", [True, False])
def test_where_you_continued_nothing_is_written_and_it_is_no_error(
    compacts: bool, source: Path, library: ConversationLibrary, read_by: Callable[..., str]
) -> None:
    """Until the source goes on too: then the two have diverged, as ever."""
    assert read_by(Earlier(), source) == "created"
    with open_one(library) as store:
        if compacts:
            store.replace_transcript([{"role": "user", "content": "in short"}])
        else:
            store.append_message({"role": "user", "content": "here"})
    before = files_of(Path(library.directory))
    assert [read_by(Later(), source) for _ in range(2)] == ["unchanged"] * 2
    assert files_of(Path(library.directory)) == before
    source.write_text(SESSION + line(say="four"))
    assert read_by(Later(), source) == "diverged"


def test_a_source_that_grew_meanwhile(source: Path, library: ConversationLibrary, read_by: Callable[..., str]) -> None:
    """One generation has both; a later compaction is the next one."""
    assert read_by(Earlier(), source) == "created"
    source.write_text(SESSION + line(say="four") + line(compact="all") + line(aside="five"))
    assert read_by(Later(), source) == "reread"
    assert said(library) == ["all", "five"]
    assert read_by(Later(), source) == "unchanged"
    with open_one(library) as store:
        assert store.get_metadata().generation == 2


def test_the_note_says_which_revision_read_it(
    source: Path, library: ConversationLibrary, read_by: Callable[..., str]
) -> None:
    for reader, revision in ((Earlier(), 1), (Later(), 2)):
        read_by(reader, source)
        with open_one(library) as store:
            note = note_of(store.get_records(last=1)[0])
        assert note is not None
        assert note["reader"] == revision


MADE = Path(__file__).with_name("imported_by_0_2_0")


@pytest.mark.parametrize(
    ("name", "actions", "messages"),
    [("blank.jsonl", ["reread"], 2), ("pi.jsonl", ["unchanged"], 2), ("chatgpt.zip", ["unchanged"], 2)],
)
def test_a_library_that_0_2_0_made(name: str, actions: list[str], messages: int, tmp_path: Path) -> None:
    """What is read as before is as it was; a run of empty lines is one event now. Then nothing is written any more."""
    shutil.copytree(MADE, tmp_path / "made")
    library = ConversationLibrary(tmp_path / "made" / "library")
    source = tmp_path / "made" / name

    def imported() -> list[tuple[str, int]]:
        return [(report.action, report.messages) for report in import_conversations([source], library)]

    assert imported() == [(action, messages) for action in actions]
    before = files_of(Path(library.directory))
    assert imported() == [("unchanged", messages)] * len(actions)
    assert files_of(Path(library.directory)) == before
    assert len(list(library.list())) == 6


def test_what_0_2_0_imported_of_an_export_continues(tmp_path: Path) -> None:
    """Its note has no edition. Conversations without a message that are on record stay."""
    shutil.copytree(MADE, tmp_path / "made")
    library = ConversationLibrary(tmp_path / "made" / "library")
    (conversation,) = json.loads(zipfile.ZipFile(MADE / "chatgpt.zip").read("conversations.json"))
    later = {"id": "u2", "author": {"role": "user"}, "create_time": 1.785e9, "recipient": "all", "metadata": {}}
    later["content"] = {"content_type": "text", "parts": ["second question"]}
    conversation["mapping"]["a1"]["children"] = ["u2"]
    conversation["mapping"]["u2"] = {"id": "u2", "message": later, "parent": "a1", "children": []}
    (tmp_path / "later.json").write_text(json.dumps([{**conversation, "current_node": "u2", "update_time": 1.791e9}]))
    sources = [tmp_path / "later.json", MADE / "chatgpt.zip", tmp_path / "later.json", MADE / "claude.json"]
    actions = [report.action for source in sources for report in import_conversations([source], library)]
    assert actions == ["grew", "unchanged", "unchanged", *["unchanged"] * 3]


MISREAD: dict[str, list[dict[str, Any]]] = {
    "claude-code": [
        {"uuid": "a", "parentUuid": None, "sessionId": "s9", "type": "user", "notebook": "s9", "say": "zebra",
         "message": {"role": "user", "content": "zebra"}},
    ],
    "jsonl": [{"role": "user", "content": "zebra", "notebook": "s9", "say": "zebra"}],
}  # fmt: skip


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("format", MISREAD)
def test_a_conversation_of_a_misread_source_is_superseded(
    format: str,
    is_moved: bool,
    goes_on: bool,
    tmp_path: Path,
    library: ConversationLibrary,
    read_by: Callable[..., str],
) -> None:
    """It has a label with the id of the one that is read right, and is as it was else. One with which you went on is left alone."""
    source = tmp_path / "s.jsonl"
    source.write_text("".join(json.dumps(value) + "\n" for value in MISREAD[format]))
    (misread,) = import_conversations([source], library)
    assert misread.format == format
    if goes_on:
        with library.open(str(misread.id)) as store:
            store.append_message({"role": "user", "content": "mine"})
    if is_moved:
        source = source.rename(tmp_path / "moved.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text(SESSION)
    assert [read_by(Later(), one, dry_run=True) for one in (other, source)] == ["created"] * 2
    before = files_of(Path(library.directory))
    assert [read_by(Later(), one) for one in (other, source)] == ["created"] * 2
    assert [read_by(Later(), one) for one in (other, source)] == ["unchanged"] * 2
    right = {str(one.id) for one in library.list() if (one.labels or {}).get("source") == "notebook"}
    with library.open(str(misread.id), read_only=True) as store:
        label = store.get_metadata().labels.get("superseded")
        said = [message["content"] for message in store.get_messages()]
    assert (label in right, said) == (not goes_on, ["zebra", "mine"] if goes_on else ["zebra"])
    changed = {name for name, was in before.items() if files_of(Path(library.directory))[name] != was}
    assert changed <= {f"{misread.id}/metadata.json", f"{misread.id}/lock"}


def test_another_file_of_the_same_session_id_is_not_superseded(
    tmp_path: Path, library: ConversationLibrary, read_by: Callable[..., str]
) -> None:
    """Two programs may give two sessions one id."""
    mine, theirs = tmp_path / "mine.jsonl", tmp_path / "theirs.jsonl"
    mine.write_text("".join(json.dumps(value) + "\n" for value in MISREAD["claude-code"]))
    theirs.write_text(notebook("s9") + line(say="quagga", role="user"))
    (report,) = import_conversations([mine], library)
    assert read_by(Later(), theirs) == "created"
    with library.open(str(report.id), read_only=True) as store:
        assert "superseded" not in store.get_metadata().labels
