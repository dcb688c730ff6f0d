"""F8: an export read back in the same form is equal; in another program's form its content is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import imported
from transcript_store import ConversationLibrary
from transcript_store.exporting import ExportError, export
from transcript_store.exporting._files import write_all
from transcript_store.formats import WRITERS
from transcript_store.importing import import_conversations
from transcript_store.messages import parts_of

SAID: list[dict[str, Any]] = [
    {"role": "user", "content": "Which box is blue? \u2028 \x1b[31m"},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "the third"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "The third one."}]},
]


@pytest.fixture
def conversation(library: ConversationLibrary) -> str:
    with library.create(provider="claude", messages=SAID[:1], labels={"title": "Boxes"}) as store:
        store.append_event({"tool": "opened"})
        store.append_messages(SAID[1:])
        return store.id


def test_f8_what_is_exported_comes_back(conversation: str, library: ConversationLibrary, tmp_path: Path) -> None:
    """As JSON lines: messages, times and events; again from the conversation that came of it."""
    other = ConversationLibrary(tmp_path / "other")
    export(library, conversation, to="jsonl", output=tmp_path / "a.jsonl")
    first = imported(tmp_path / "a.jsonl", other)
    assert first.id is not None
    export(other, first.id, to="jsonl", output=tmp_path / "b.jsonl")
    second = imported(tmp_path / "b.jsonl", ConversationLibrary(tmp_path / "third"))
    assert (first.messages, first.events, second.messages) == (4, 1, 4)
    with library.open(conversation, read_only=True) as ours, other.open(first.id, read_only=True) as theirs:
        assert theirs.get_messages() == SAID
        assert [record.at for record in theirs.get_records() if record.message] == [
            record.at for record in ours.get_records() if record.message
        ]


@pytest.mark.parametrize("to", [writer.name for writer in WRITERS])
def test_f8_a_session_of_another_program_says_the_same(
    to: str, conversation: str, library: ConversationLibrary, tmp_path: Path
) -> None:
    """Written into a folder of its own, found there, and read by the reader of that program: text, calls and results."""
    home, other = tmp_path / "program", ConversationLibrary(tmp_path / "other")
    done = export(library, conversation, to=to, output=home, cwd=tmp_path)
    assert done.paths
    assert done.command
    assert all(Path(path).stat().st_mode & 0o777 == 0o600 for path in done.paths)
    reports = [report for report in import_conversations([done.paths[-1]], other) if report.id is not None]
    assert [report.format for report in reports] == [to]
    with other.open(str(reports[0].id), read_only=True) as theirs:
        said = "\n".join(part.text for message in theirs.get_messages() for part in parts_of(message))
    for text in ("Which box is blue?", "I look.", "the third", "The third one."):
        assert text in said


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    """Of several files none is written if one of them is there with other bytes; one that is equal is no obstacle."""
    (tmp_path / "a").write_bytes(b"theirs")
    with pytest.raises(ExportError, match="another file exists there"):
        write_all(str(tmp_path), [("new", b"1"), ("a", b"ours")])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert write_all(str(tmp_path), [("deep/er/new", b"1"), ("a", b"theirs")]) == [str(tmp_path / "deep/er/new")]
    for name in ("../b", "/b", "x/../../b", ""):
        with pytest.raises(ExportError, match="not the path"):
            write_all(str(tmp_path), [(name, b"")])
