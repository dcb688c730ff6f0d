"""A torn session file becomes one that its program reads: what the public reports found in files, line by line.

github/copilot-cli#2490, #2658, #2012 (raw U+2028); #2649 (raw line feeds within a text); #1864, #2217, #2927, #3593 (NUL bytes);
#4098 (beginnings glued to whole events); #2209 (a file that is whole is left alone). anthropics/claude-code#49876 (NUL in the midst),
#76059, #81843, #52387 (records glued by two writers, or after a kill), #53821 (a half last line). can1357/oh-my-pi#8596, #273 (a full
disk, then the next append). QwenLM/qwen-code#3606 (what follows a lost line is orphaned). google-gemini/gemini-cli#27276.
cline/cline#954 and openclaw/openclaw#297 asked for repair instead of "delete and reset".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.cases import for_each
from tests.reports.sessions import changed_by
from tests.sessions.kills import ends_before
from transcript_store.sessions import finished_changes, interrupted_change, mend_lines, repair_file


def line(value: dict[str, Any]) -> bytes:
    """As JSON.stringify writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(number: int, content: str = "yes") -> bytes:
    """An event of Copilot CLI."""
    data = {"messageId": f"m{number}", "content": content, "toolRequests": [{"toolCallId": "c", "type": "function"}]}
    parent = f"e{number - 1}" if number else None
    at = f"2026-04-02T10:00:0{number}.000Z"
    return line({"type": "assistant.message", "data": data, "id": f"e{number}", "timestamp": at, "parentId": parent})


def record(number: int, content: str = "yes", **more: Any) -> bytes:
    """A record of Claude Code."""
    parent = f"u{number - 1}" if number else None
    message = {"role": "user", "content": [{"type": "text", "text": content}]}
    return line(
        {"parentUuid": parent, "type": "user", "message": message, "uuid": f"u{number}", "sessionId": "s", **more}
    )


class Torn(NamedTuple):
    report: str
    raw: bytes
    whole: list[bytes]
    """The lines that the file has then."""
    kinds: list[str]


LONG = 'Contents of https://www.example.com/pricing:\n\n# Plans\n"Pro"\t20\n'
CASES = [
    Torn(
        "github/copilot-cli#2490, #2658: a raw U+2028 in a message",
        event(0) + b"\n" + event(1, "effects\u2028vector\u2029s") + b"\n" + event(2) + b"\n",
        [event(0), event(1, "effects\u2028vector\u2029s"), event(2)],
        ["separator", "separator"],
    ),
    Torn(
        "github/copilot-cli#2649: a tool's result with raw line feeds, on five lines",
        b"\n".join([event(0), event(1, LONG).replace(b"\\n", b"\n"), event(2), b""]),
        [event(0), event(1, LONG), event(2)],
        ["control"],
    ),
    Torn(
        "github/copilot-cli#2217, #2927: 1,728 NUL bytes after the last line",
        event(0) + b"\n" + event(1) + b"\n" + b"\x00" * 1728,
        [event(0), event(1)],
        ["nul"],
    ),
    Torn(
        "github/copilot-cli#1864, #3593: a line of NUL bytes, as a power loss leaves it",
        event(0) + b"\n" + b"\x00" * 511 + b"\n" + event(1) + b"\n",
        [event(0), event(1)],
        ["nul"],
    ),
    Torn(
        "github/copilot-cli#4098: the beginning of an event, and a whole one with the same id",
        event(0) + b"\n" + event(1, "x" * 90)[:150] + event(1, "x" * 90) + b"\n" + event(2) + b"\n",
        [event(0), event(1, "x" * 90), event(2)],
        ["torn"],
    ),
    Torn(
        "anthropics/claude-code#49876: NUL in the midst, and the next record behind it on the line",
        record(0) + b"\n" + b"\x00" * 700 + record(1) + b"\n" + record(2) + b"\n",
        [record(0), record(1), record(2)],
        ["nul"],
    ),
    Torn(
        "anthropics/claude-code#76059, #81843: two whole records on a line",
        record(0) + record(1) + b"\n" + record(2) + b"\n",
        [record(0), record(1), record(2)],
        ["glued"],
    ),
    Torn(
        "anthropics/claude-code#52387: a stub of another kind, and a record glued to it",
        record(0) + b"\n" + b'{"type":"pr-link","sessionId":"s","prNu' + record(1) + b"\n",
        [record(0), record(1)],
        ["torn"],
    ),
    Torn(
        "anthropics/claude-code#53821: the last line is half",
        record(0) + b"\n" + record(1)[:70],
        [record(0)],
        ["torn"],
    ),
    Torn(
        "can1357/oh-my-pi#8596: a full disk cut a line within a message, and the next append went on there",
        record(0) + b"\n" + record(1)[:100] + record(2) + b"\n",
        [record(0), record(2).replace(b'"u1"', b'"u0"')],
        ["torn", "parent"],
    ),
    Torn(
        "QwenLM/qwen-code#3606: what follows a lost line has no parent any more, so the history ends there",
        record(0) + b"\n" + record(1)[:-30] + b"\n" + record(2) + b"\n" + record(3) + b"\n",
        [record(0), record(2).replace(b'"u1"', b'"u0"'), record(3)],
        ["torn", "parent"],
    ),
    Torn(
        "a byte order mark, and CR LF, as an editor leaves them",
        b"\xef\xbb\xbf" + record(0) + b"\r\n" + record(1) + b"\r\n",
        [record(0), record(1)],
        ["byte-order-mark", "line-end", "line-end"],
    ),
    Torn(
        "UTF-16, as a redirection of PowerShell writes it",
        b"\xff\xfe" + (record(0) + b"\r\n" + record(1) + b"\r\n").decode().encode("utf-16-le"),
        [record(0), record(1)],
        ["utf-16", "line-end", "line-end"],
    ),
    Torn(
        "the last record has no line end: the next one would be glued to it",
        record(0) + b"\n" + record(1),
        [record(0), record(1)],
        ["line-end"],
    ),
    Torn(
        "google-gemini/gemini-cli#27276: the first line is torn, so the whole session is hidden",
        b'{"sessionId":"s","projectHash":"00","startTime":"2026-05-19T10:00:00Z","lastUp'
        + b"\n"
        + line({"id": "1", "type": "user"})
        + b"\n",
        [
            line({"sessionId": "s", "projectHash": "00", "startTime": "2026-05-19T10:00:00Z"}),
            line({"id": "1", "type": "user"}),
        ],
        ["torn"],
    ),
    Torn(
        "the same of Codex: a rollout whose instructions were cut, and the next line behind them",
        b'{"timestamp":"t","ordinal":0,"type":"session_meta","payload":{"id":"s","cwd":"/x","git":{"branch":"main"},"text":"You a'
        + line({"timestamp": "t", "type": "event_msg", "payload": {}})
        + b"\n"
        + line({"timestamp": "t", "type": "event_msg", "payload": {}})
        + b"\n",
        [
            line(
                {
                    "timestamp": "t",
                    "ordinal": 0,
                    "type": "session_meta",
                    "payload": {"id": "s", "cwd": "/x", "git": {"branch": "main"}},
                }
            ),
            line({"timestamp": "t", "type": "event_msg", "payload": {}}),
            line({"timestamp": "t", "type": "event_msg", "payload": {}}),
        ],
        ["torn"],
    ),
    Torn(
        "several at once",
        record(0)
        + record(1)
        + b"\n"
        + b"\x00" * 9
        + b"\n\n"
        + record(2, "a\nb").replace(b"\\n", b"\n")
        + record(3)[:40],
        [record(0), record(1), record(2, "a\nb")],
        ["glued", "nul", "empty", "control", "torn"],
    ),
]


@for_each("case", CASES)
def test_a_torn_file_becomes_whole(case: Torn) -> None:
    """Every whole line stays, in order, once, with the same value; what was done has its kind, and is done once."""
    mended = mend_lines(case.raw)
    assert [json.loads(each) for each in mended.data.split(b"\n")[:-1]] == [*map(json.loads, case.whole)]
    assert [mend.kind for mend in mended.mends] == case.kinds
    assert not any(separator in mended.data for separator in ("\u2028".encode(), b"\x00", b"\r"))
    assert mend_lines(mended.data).mends == ()


@pytest.mark.parametrize("name", ["events.jsonl", "0b8f.jsonl"])
def test_a_large_file_that_is_whole_is_left_unchanged(tmp_path: Path, name: str) -> None:
    """github/copilot-cli#2209: A long session without a fault. Nothing is said and nothing written."""
    path = tmp_path / name
    path.write_bytes(b"".join(event(number % 10) + b"\n" for number in range(500)))
    before = path.stat()
    assert not repair_file(str(path), apply=True).needs_repair
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_the_command_says_what_was_cut_and_keeps_the_original(tmp_path: Path) -> None:
    """Without --apply nothing is written. With it the file is whole, the original is beside it, and undo puts it back."""
    path = tmp_path / "events.jsonl"
    torn = event(0) + b"\n" + event(1)[:60] + event(2) + b"\n" + b"\x00" * 20
    path.write_bytes(torn)
    told_of = changed_by("repair", str(path), code=1)
    assert "line 2, byte" in told_of
    assert "60 bytes of a torn line were cut" in told_of
    assert "nothing was changed: add --apply" in told_of
    assert path.read_bytes() == torn
    assert "as it was: " in changed_by("repair", str(path), "--apply")
    [change] = finished_changes(str(tmp_path))
    assert (tmp_path / f"events.jsonl.before-{change}").read_bytes() == torn
    assert [json.loads(each)["id"] for each in path.read_bytes().splitlines()] == ["e0", "e2"]
    assert "nothing to repair" in changed_by("repair", str(path))
    changed_by("undo", str(path), "--apply")
    assert path.read_bytes() == torn


def test_json_has_every_cut(tmp_path: Path) -> None:
    """Line, offset and length of each, in the file as it was; text that others wrote is data."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(event(0) + b"\n" + b'{"type":"\x1b[31m' + event(1) + b"\n")
    [found] = map(json.loads, changed_by("repair", str(path), "--json", code=1).splitlines())
    [mend] = [each for each in found["mends"] if each["kind"] == "torn"]
    assert (mend["line"], mend["offset"], mend["length"]) == (2, len(event(0)) + 1, 14)
    assert "\x1b" not in changed_by("repair", str(path), code=1)


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("state.db", b"SQLite format 3\x00" + b"\x00" * 100, "SQLite database"),
        ("messages.json", b'{"messages": [{"role": "user"', "session restore"),
        ("rollout.jsonl.zst", b"\x28\xb5\x2f\xfd....", "zstandard"),
        ("notes.jsonl", b"hello\nworld\n", "no readable line"),
    ],
)
def test_files_that_cannot_be_repaired_are_named_and_kept(tmp_path: Path, name: str, raw: bytes, said: str) -> None:
    """A database, half a document, a packed file, a text: each has its hint, and nothing is written."""
    path = tmp_path / name
    path.write_bytes(raw)
    assert said in changed_by("repair", str(path), "--apply", code=1)
    assert path.read_bytes() == raw
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_document_with_nul_bytes_is_whole_again(tmp_path: Path) -> None:
    """cline/cline#954, #335: a file that is one JSON value, with what a power loss left behind it."""
    path = tmp_path / "api_conversation_history.json"
    path.write_bytes(b'[\n  {"role": "user", "content": "hi"}\n]\n' + b"\x00" * 100)
    changed_by("repair", str(path), "--apply")
    assert json.loads(path.read_bytes()) == [{"role": "user", "content": "hi"}]


@pytest.mark.long
def test_a_change_that_was_killed_is_undone_by_the_next_command(tmp_path: Path) -> None:
    """Without --apply it is reported. With it, and by ``undo``, the files are first as they were."""
    path = tmp_path / "events.jsonl"
    torn = event(0) + b"\n" + event(1)[:60]
    path.write_bytes(torn)
    nth = 0
    while path.read_bytes() == torn:
        nth += 1
        changed_by("undo", str(path), "--apply", code=0 if nth > 1 and interrupted_change(str(tmp_path)) else 2)
        assert not ends_before(nth, lambda: repair_file(str(path), apply=True))
    assert interrupted_change(str(tmp_path)) == f"session repair {path}"
    assert "was interrupted" in changed_by("repair", str(path), code=0)
    assert "is undone: 1 file put back" in changed_by("undo", str(path), "--apply")
    assert path.read_bytes() == torn
    assert [each.name for each in tmp_path.iterdir()] == ["events.jsonl"]
