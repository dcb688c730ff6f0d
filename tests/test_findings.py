"""``verify`` reports the same damage that ``load`` and readers find.

The incident: a mutant of the reader of damage counted lines wrongly behind a blank one, and no test noticed, because each
looked at the first finding alone. A person goes by the second one too, and by the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from transcript_store import ConversationStore, CorruptTranscriptError, Finding, verify
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log import scan
from transcript_store._log.record import Mark, close_line

SAID = [{"role": "user", "content": f"message {n}"} for n in range(8)]
MARKED = 5
"""So many lines, the header's among them, stand before the mark; so many as there are messages and one stand in the file."""


@pytest.fixture
def lines(scratch: Path) -> list[bytes]:
    """The lines of a conversation's transcript, each with its line feed; the conversation is in ``scratch``."""
    with ConversationStore(scratch) as store:
        store.initialize(messages=SAID[: MARKED - 1])
    metadata = (scratch / "metadata.json").read_bytes()
    with ConversationStore(scratch) as store:
        store.load()
        for message in SAID[MARKED - 1 :]:
            store.append_message(message)
    (scratch / "metadata.json").write_bytes(metadata)  # as if it had been killed instead of closed
    return (scratch / "transcript.jsonl").read_bytes().splitlines(keepends=True)


def found_in(scratch: Path, lines: list[bytes]) -> tuple[bytes, tuple[Finding, ...]]:
    """The file that these lines are, and what is found in it."""
    data = b"".join(lines)
    (scratch / "transcript.jsonl").write_bytes(data)
    return data, verify(scratch).findings


def edited(line: bytes) -> bytes:
    return line.replace(b"message ", b"massage ")


def test_each_damaged_line_is_found_under_its_number(scratch: Path, lines: list[bytes]) -> None:
    """P10: also behind blank lines that an editor put in, and behind two records on one line."""
    lines[2] = edited(lines[2])
    lines[3] = lines[3].rstrip(b"\n")
    lines[5] = edited(lines[5])
    lines[6] += b"\n \n\n"
    lines[8] = edited(lines[8])
    data, findings = found_in(scratch, lines)
    assert verify(scratch).records == len(SAID) - 3
    assert [data[found.offset_bytes or 0 :][: found.length_bytes] for found in findings] == [
        lines[number].rstrip(b"\n") for number in (2, 5, 8)
    ]
    assert [found.line_number for found in findings] == [
        data.count(b"\n", 0, found.offset_bytes or 0) + 1 for found in findings
    ]


def test_damaged_lines_in_a_row_are_one_finding(scratch: Path, lines: list[bytes]) -> None:
    """P10: it says where the first of them begins and how many bytes they have together, line feeds between them too."""
    for number in (2, 5, 6, 7):
        lines[number] = edited(lines[number])
    data, (first, second) = found_in(scratch, lines)
    assert (first.line_number, first.length_bytes) == (3, len(lines[2]) - 1)
    assert (second.line_number, second.length_bytes) == (6, len(b"".join(lines[5:8])) - 1)
    assert data[second.offset_bytes or 0 :].startswith(lines[5])


def with_line(number: int, change: Callable[[bytes], bytes]) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [*lines[:number], change(lines[number]), *lines[number + 1 :]]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("damage", "kind", "number", "reason"),
    [
        # before the mark
        (with_line(2, edited), "damaged-line", 2, "its hash does not match"),
        (with_line(2, lambda line: line.replace(b"\n", b"\r\n")), "damaged-line", 2, "it ends in CR LF"),
        (with_line(2, lambda line: b"\xef\xbb\xbf" + line), "damaged-line", 2, "a byte order mark"),
        (with_line(2, lambda line: b"\n" + line), "damaged-line", 2, "an empty line"),
        (with_line(2, lambda line: line.rstrip(b"\n")), "damaged-line", 2, "two records are glued together"),
        (with_line(2, lambda line: line[:30] + b"\0\0\0" + line[33:]), "damaged-line", 2, "it holds 3 NUL bytes"),
        (with_line(2, lambda line: line[:30] + b"\xff" + line[31:]), "damaged-line", 2, "not UTF-8 at its byte 30"),
        (with_line(2, lambda line: line[:-9] + b"\n"), "damaged-line", 2, "it does not end in a hash"),
        (
            with_line(2, lambda line: line.replace(b'"message 1"', b'"","hash":""')),
            "damaged-line",
            2,
            "hash does not match",
        ),
        (
            with_line(2, lambda line: line.replace(b'"message 1"', b'{"seq":7}')),
            "damaged-line",
            2,
            "hash does not match",
        ),
        (lambda lines: lines[:4], "truncated", 4, "the transcript ends here, but 4 records and"),
        (lambda lines: [*lines[:4], lines[4][:30]], "truncated", 4, "it does not end in a hash"),
        (lambda lines: [*lines[:4], lines[4][:-1]], "truncated", 4, "something trimmed the file; add the line feed"),
        (lambda lines: [*lines[:4], edited(lines[4])[:-1]], "truncated", 4, "its hash does not match"),
        (lambda lines: [*lines[:3], lines[4][:-1]], "truncated", 3, "its hash does not match"),
        # behind it
        (with_line(6, edited), "hole", 6, "bad bytes with a whole record after them (seq 7, byte "),
        (with_line(7, lambda line: b"x" + line), "hole", 7, "a stored record has other bytes before or after it"),
        (with_line(7, lambda line: b""), "torn-tail", 7, "it was changed, or a line before it is missing"),
        (lambda lines: [*lines, b'{"note":1}\n', b'{"note":2}\n'], "foreign", 9, "a person appended them"),
        (lambda lines: [*lines, b'{"note":1}\n', b'{"note":2}'], "torn-tail", 9, "it does not end in a hash"),
        (lambda lines: [*lines, b"[1]\n"], "torn-tail", 9, "it does not end in a hash"),
        (lambda lines: [*lines, lines[0]], "torn-tail", 9, "its hash does not match"),
        (lambda lines: [*lines[:8], lines[8][:-20]], "torn-tail", 8, "it does not end in a hash"),
        (lambda lines: [*lines[:8], lines[8][:-1]], "torn-tail", 8, "the last record lacks only its line feed"),
        (with_line(8, edited), "torn-tail", 8, "the line is terminated, so it may have been acknowledged"),
        (lambda lines: [*lines, bytes(20)], "torn-tail", 9, "it holds 20 NUL bytes"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [40, scan.PIECE_BYTES])
def test_verify_and_load_say_what_is_there(
    scratch: Path,
    lines: list[bytes],
    damage: Callable[[list[bytes]], list[bytes]],
    kind: str,
    number: int,
    reason: str,
    piece_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P8, P10: the kind, the line, the byte and the words, at a damaged place before the mark and behind it.

    They are the same if the line does not fit into what is read at a time.
    """
    monkeypatch.setattr(scan, "PIECE_BYTES", piece_bytes)
    data, (first, *_) = found_in(scratch, damage(lines))
    assert (first.kind, first.line_number) == (kind, number + 1)
    assert first.offset_bytes == len(b"".join(data.splitlines(keepends=True)[:number]))
    assert reason in first.reason
    with ConversationStore(scratch) as store:
        if kind == "torn-tail":
            store.load()
            assert store.recovery is not None
            assert reason in store.recovery.reason
            kept = [store.recovery.quarantine] if store.recovery.quarantine else []
            assert list(verify(scratch).quarantined) == kept
        else:
            with pytest.raises(CorruptTranscriptError, match=re.escape(reason)) as refused:
                store.load()
            found = refused.value
            assert (found.kind, found.line_number, found.offset_bytes) == (kind, number + 1, first.offset_bytes)
            assert first.hint == found.hint is not None
            assert (scratch / "transcript.jsonl").read_bytes() == data


def test_another_history_at_the_mark_is_found_where_the_mark_is(scratch: Path, lines: list[bytes]) -> None:
    """P10: every line verifies, but the mark remembers another hash there: the line behind the mark is named."""
    document = decode_document((scratch / "metadata.json").read_bytes())
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    other = Mark(0, document.mark.position._replace(head=b"f" * 32))
    (scratch / "metadata.json").write_bytes(encode_document(document.members, other))
    [found] = verify(scratch).findings
    assert (found.kind, found.line_number, found.offset_bytes, found.length_bytes) == (
        "rewritten",
        MARKED + 1,
        len(b"".join(lines[:MARKED])),
        None,
    )
    with pytest.raises(CorruptTranscriptError) as refused:
        ConversationStore(scratch).load()
    assert (refused.value.kind, refused.value.line_number) == ("rewritten", MARKED + 1)


@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (lambda header: b"[" + header[1:], "damaged-header", "the header's hash does not match"),
        (lambda header: header.replace(b'"hash"', b'"bash"'), "damaged-header", "the header's hash does not match"),
        (
            lambda header: header.replace(b"transcript-store", b"transcript-story"),
            "damaged-header",
            "hash does not match",
        ),
        (lambda header: b'{"role":"user"}\n', "foreign", "the first line is not a header of ours"),
        (lambda header: b"", "damaged-header", "the header's hash does not match"),
    ],
)
def test_a_damaged_header_is_not_taken_for_another_programs(
    scratch: Path, lines: list[bytes], damage: Callable[[bytes], bytes], kind: str, reason: str
) -> None:
    """P10, P13: a header of which the beginning or the hash is left is a damaged one; what has neither is foreign."""
    _, (first, *_) = found_in(scratch, [damage(lines[0]), *lines[1:]])
    assert (first.kind, first.line_number, first.offset_bytes) == (kind, 1, 0)
    assert reason in first.reason
    with pytest.raises(CorruptTranscriptError, match=reason) as refused:
        ConversationStore(scratch).load()
    assert refused.value.kind == kind


@pytest.mark.parametrize(
    ("lines_left", "reason"), [(0, "the file is empty"), (1, "the first line has no end: the header was cut")]
)
def test_a_header_that_was_cut_is_said_to_be(scratch: Path, lines: list[bytes], lines_left: int, reason: str) -> None:
    """P10: nothing of the file is left, or the header without its line feed."""
    _, (first, *_) = found_in(scratch, [line[:-1] for line in lines[:lines_left]])
    assert (first.kind, first.line_number, first.offset_bytes) == ("damaged-header", 1, 0)
    assert reason in first.reason


# ---- what verifies and is no record --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":9,"at":"2026-01-01T00:00:00.000000Z","message":{nope}',
        b'{"seq":9,"at":"2026-01-01T00:00:00.000000Z","message":[1]',
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        ConversationStore.get_messages,
        ConversationStore.get_records,
        partial(ConversationStore.get_messages, last=2),
        partial(ConversationStore.get_records, last=2),
    ],
)
def test_a_forged_record_is_named_whoever_reads_it(
    scratch: Path, lines: list[bytes], read: Callable[[ConversationStore], object], body: bytes
) -> None:
    """P15: the chain is not keyed: a line that verifies may hold anything. Its number and its place are told."""
    forged, _ = close_line(lines[-1][-35:-3], body)
    data, findings = found_in(scratch, [*lines, forged])
    assert findings == ()  # no JSON is parsed to verify
    with ConversationStore(scratch, read_only=True) as store:
        store.load()
        with pytest.raises(CorruptTranscriptError) as refused:
            read(store)
    found = refused.value
    assert (found.kind, found.line_number, found.offset_bytes) == ("foreign", 10, data.index(forged))
