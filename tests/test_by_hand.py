"""A line appended by hand, and a damaged line: the error, and what can be done.

The incident: `echo '{"role": …}' >> transcript.jsonl` was cut as a torn tail by the next load, and `verify` stated that a crash had left
"the beginning of a message that was never acknowledged". The same was said of one flipped bit in the last record that was synced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from transcript_store import ConversationStore, CorruptTranscriptError, repair, verify

SAID = {"role": "user", "content": "said"}


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[SAID, SAID])
    return tmp_path / "c"


def append(chat: Path, line: bytes) -> None:
    with (chat / "transcript.jsonl").open("ab") as file:
        file.write(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"role": "user", "content": "by hand"}\n',
        b'{"message": {"role": "user", "content": "by hand"}}\n',
        b'{"role": "user", "content": "by hand"}\n{"role": "user", "content": "by hand"}\n',
        b'\n{"message": {"role": "user", "content": "by hand"}}\n',
        b' \r\n\n{"message": {"role": "user", "content": "by hand"}}\n\n{"message": {"role": "user", "content": "by hand"}}\n\n',
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_line_that_a_person_appended_is_refused_and_can_be_taken(chat: Path, line: bytes, read_only: bool) -> None:
    """P8, P13: it is nobody's torn write. Nothing is cut; the error names the line and the way out, and that works."""
    append(chat, line)
    before = (chat / "transcript.jsonl").read_bytes()
    with pytest.raises(CorruptTranscriptError, match="accept-edits") as caught:
        ConversationStore(chat, read_only=read_only).load()
    assert (caught.value.kind, caught.value.line_number) == ("foreign", 4)
    assert (chat / "transcript.jsonl").read_bytes() == before
    assert [finding.kind for finding in verify(chat).findings] == ["foreign"]
    repair(chat, mode="accept-edits", dry_run=False)
    with ConversationStore(chat) as store:
        store.load()
        assert store.get_messages() == [SAID, SAID] + [{"role": "user", "content": "by hand"}] * line.count(b"by hand")


@pytest.mark.parametrize(
    "lines",
    [
        b'{\n  "role": "user",\n  "content": "by jq"\n}\n',
        b"\n" * 100 + b'{"a": 1} {"b": 2}\n{\n}\n',
        b'{"digits": ' + b"1" * 5000 + b"}\n",
    ],
)
def test_other_json_is_refused_and_stays(chat: Path, lines: bytes) -> None:
    """P8, P13: as jq prints it, behind blank lines, with a number that Python does not read as an int."""
    append(chat, lines)
    before = (chat / "transcript.jsonl").read_bytes()
    with pytest.raises(CorruptTranscriptError, match="another program or a person appended them") as caught:
        ConversationStore(chat).load()
    assert caught.value.kind == "foreign"
    assert (chat / "transcript.jsonl").read_bytes() == before
    (found,) = verify(chat).findings
    assert (found.kind, found.length_bytes) == ("foreign", len(lines) - 1)


@pytest.mark.parametrize(
    "tail",
    [
        b'{"role": "user", "content": "no end"}',
        b" \n\n",
        b'{"a": 1}\n[1]\n',
        b'{\n"a": NaN}\n',
        b'{"a": ' * 100_000 + b"\n",
        b'{"seq":3,"at":"2026-01-01T00:00:00.000000Z","message":{}}\n',
        b'{"seq":1,"message":{}}\n',
        b'{"seqxxxxxxt":"2026-01-01T00:00:00.000000Z","message":{},"hash":"9250c183307dd509d6263a98ecfa4cd2"}\n',
        b'{"sat":"stale"}\n{"sat":"st',
        b"[1]\n",
        b"\0" * 100 + b"\n",
    ],
)
def test_a_torn_tail_is_cut_and_quarantined(chat: Path, tail: bytes) -> None:
    """P8: lines that begin or end as a record of ours, are no object, or end anywhere are a torn tail.

    The one that ends so has bytes of an older block in its first member. The enumeration of power cuts found it.
    """
    append(chat, tail)
    with ConversationStore(chat) as store:
        store.load()
        assert store.get_messages() == [SAID, SAID]
        assert store.recovery is not None
        assert Path(store.recovery.quarantine or "").read_bytes() == tail


def test_a_record_that_was_damaged_behind_the_mark_may_have_been_acknowledged(chat: Path) -> None:
    """Nothing tells it from a write that was cut off. So that is said, wherever the tail is spoken of, and its bytes are kept."""
    with ConversationStore(chat) as store:
        store.load()
        before = (chat / "metadata.json").read_bytes()
        store.append_message({"role": "user", "content": "synced"})
    (chat / "metadata.json").write_bytes(before)  # as after a kill
    transcript = (chat / "transcript.jsonl").read_bytes()
    (chat / "transcript.jsonl").write_bytes(transcript.replace(b"synced", b"rynced"))
    assert "may have been acknowledged" in verify(chat).findings[0].reason
    with ConversationStore(chat) as store:
        store.load()
        assert store.recovery is not None
        assert "may have been acknowledged" in store.recovery.reason
        kept = Path(store.recovery.quarantine or "")
    assert b"rynced" in kept.read_bytes()
    assert "may have been acknowledged" in kept.with_name(kept.name + ".json").read_text()


def test_damage_that_a_read_finds_is_not_archived(tmp_path: Path) -> None:
    """A line that was whole at load, and is damaged later, is refused by the read that finds it, and by a replace after that."""
    with ConversationStore(tmp_path / "c", cache_bytes=0) as store:
        store.initialize(messages=[{"n": n, "text": "x" * 100} for n in range(1000)])
        path = tmp_path / "c" / "transcript.jsonl"
        data = bytearray(path.read_bytes())
        data[20_000] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        with pytest.raises(CorruptTranscriptError):
            store.get_messages()
        assert not store.is_fully_verified
        with pytest.raises(CorruptTranscriptError):
            store.replace_transcript([SAID])
        store.append_message(SAID)  # what it chains to is whole
        assert store.get_messages(last=1) == [SAID]
