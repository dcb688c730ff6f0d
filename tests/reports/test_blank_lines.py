"""A run of empty lines costs as little as it says.

The report: each of 300,000 empty lines in a file took 31 microseconds, 1.6 kB of memory and 147 bytes stored, so one megabyte of
line feeds took half a minute and 1.6 GB.
"""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path

import pytest

from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.formats import _lines
from transcript_store.importing import import_conversations

AT = "2026-09-01T10:00:00.000Z"
SESSIONS: dict[str, tuple[dict[str, object], ...]] = {
    "jsonl": ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}),
    "claude-code": tuple(
        {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "s",
            "timestamp": AT,
            "message": {"role": kind, "content": kind},
        }
        for kind, uuid, parent in (("user", "a", None), ("assistant", "b", "a"))
    ),
    "pi": (
        {"type": "session", "version": 3, "id": "s", "timestamp": AT, "cwd": "/p"},
        {"type": "message", "id": "a", "parentId": None, "timestamp": AT, "message": {"role": "user", "content": "hi"}},
    ),
    "codex": (
        {"timestamp": AT, "type": "session_meta", "payload": {"id": "s", "cwd": "/p"}},
        {
            "timestamp": AT,
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        },
    ),
    "gemini-cli": (
        {"sessionId": "s", "projectHash": "ab", "startTime": AT, "lastUpdated": AT},
        {"id": "m", "timestamp": AT, "type": "user", "content": [{"text": "hi"}]},
    ),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n"], ids=repr)
@pytest.mark.parametrize("format", SESSIONS)
def test_a_run_of_empty_lines_is_one_event(format: str, blank: bytes, tmp_path: Path) -> None:
    """In front, between and behind the lines. Each line is counted, and the bytes come out again."""
    first, second = (json.dumps(value).encode() + b"\n" for value in SESSIONS[format])
    source, count = tmp_path / "s.jsonl", 3_000
    source.write_bytes(blank * count + first + blank * count + second + blank * count)
    library = ConversationLibrary(tmp_path / "library")
    tracemalloc.start()
    (report,) = import_conversations([source], library, format=format)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.action, report.format) == ("created", format)
    assert report.lines.total == report.lines.in_messages + report.lines.in_events == 3 * count + 2
    assert report.events <= 4
    assert [(finding.kind, finding.line) for finding in report.findings] == [
        ("empty", 1),
        ("empty", count + 2),
        ("empty", 2 * count + 3),
    ]
    assert f"{count:,} empty lines" in report.findings[0].message
    size = source.stat().st_size
    assert sum(path.stat().st_size for path in Path(library.directory).rglob("*.jsonl")) < 4 * size + 20_000
    assert most < 100 * size, most / size
    stream = io.BytesIO()
    export(library, str(report.id), to="original", output=stream)
    assert stream.getvalue() == source.read_bytes()
    assert [each.action for each in import_conversations([source], library, format=format)] == ["unchanged"]


def test_a_run_that_is_longer_than_a_record_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept in several; one that grows is kept whole."""
    longest = 1 << 14
    monkeypatch.setattr(_lines, "_LONGEST_RUN_BYTES", longest)
    source = tmp_path / "s.jsonl"
    source.write_bytes(b'{"role": "user", "content": "hi"}\n' + b"\n" * (2 * longest + 5))
    library = ConversationLibrary(tmp_path / "library")
    (report,) = import_conversations([source], library)
    assert (report.action, report.events, report.lines.in_events) == ("created", 3, 2 * longest + 5)
    with source.open("ab") as file:
        file.write(b'\n\n{"role": "assistant", "content": "ho"}\n')
    for action in ("grew", "unchanged"):
        (report,) = import_conversations([source], library)
        assert (report.action, report.messages) == (action, 2)
    stream = io.BytesIO()
    export(library, str(report.id), to="original", output=stream)
    assert stream.getvalue() == source.read_bytes()


GROWN = (b"\n", b"\n\n\n", b" \r\n", b"\nLINE", b"LINE", b"\nLINE\n", b"  ", b"\n ", b"\n")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("format", SESSIONS)
def test_a_run_at_the_end_of_a_file_that_grows(format: str, tmp_path: Path) -> None:
    """It grew, and begins no generation; an older copy of the file changes nothing, and the bytes come out each time."""
    first, second = (json.dumps(value).encode() + b"\n" for value in SESSIONS[format])
    source, older = tmp_path / "s.jsonl", tmp_path / "copy" / "s.jsonl"
    source.write_bytes(first + second + b"\n\n")
    older.parent.mkdir()
    older.write_bytes(source.read_bytes())
    library = ConversationLibrary(tmp_path / "library")

    def imported(path: Path) -> str:
        (report,) = import_conversations([path], library, format=format)
        with library.open(str(report.id), read_only=True) as store:
            assert store.get_metadata().generation == 0
        return report.action

    assert [imported(source), imported(source)] == ["created", "unchanged"]
    for grown in GROWN:
        with source.open("ab") as file:
            file.write(grown.replace(b"LINE", b'{"type": "summary", "role": "user", "content": "again"}\n'))
        assert [imported(source), imported(older), imported(source)] == ["grew", "unchanged", "unchanged"], grown
        (summary,) = library.list()
        stream = io.BytesIO()
        export(library, str(summary.id), to="original", output=stream)
        assert stream.getvalue() == source.read_bytes()
