"""A writer that lives long notes as it goes how far its transcript is on the disk, and not only when it closes.

Damage before that mark is never taken for the torn end of an append (P10), and a load of the tail starts at it, however the
process ended. Nothing that is stored depends on it: where it cannot be written, the append has happened all the same.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from transcript_store import ConversationStore, CorruptTranscriptError, PoisonedError
from transcript_store._conversation.metadata import MetadataDocument, decode_document
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

PATH = "/c"
TRANSCRIPT, METADATA = f"{PATH}/transcript.jsonl", f"{PATH}/metadata.json"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark every four records."""
    monkeypatch.setattr("transcript_store._conversation.writer.MARK_EVERY", 4)


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}"}


def store_on(disk: SimulatedFileSystem, **options: Any) -> ConversationStore:
    return ConversationStore(PATH, file_system=disk, **options)


def marked(disk: SimulatedFileSystem) -> int:
    document = decode_document(disk.tree()[METADATA] or b"")
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    return document.mark.position.seq


def test_the_mark_follows_at_a_distance() -> None:
    """Every so many records, whatever else writes a mark between them; of a batch all or nothing."""
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize(messages=[message(1)])
        seen = []
        for number in range(2, 12):
            store.append_message(message(number))
            seen.append(marked(disk))
        assert seen == [1, 1, 1, 5, 5, 5, 5, 9, 9, 9]
        store.append_messages([message(12), message(13), message(14), message(15)])
        assert marked(disk) == 15
        store.append_event({"marker": 1})
        store.update_metadata(model="m")
        assert marked(disk) == 16
        for number in range(2):
            store.append_message(message(number))
        assert marked(disk) == 16
        store.append_message(message(4))
        assert marked(disk) == 19
        store.replace_transcript([message(1)])
        for number in range(3):
            store.append_message(message(number))
        assert marked(disk) == 1
        store.append_message(message(4))
        assert marked(disk) == 5
        head = store.head
    with store_on(disk) as store:
        store.load()
        assert store.head == head
        for number in range(4):
            assert marked(disk) == 5
            store.append_message(message(number))
        assert marked(disk) == 9


def test_what_is_not_synced_is_not_marked() -> None:
    """P2: a mark says what is on the medium; without a sync nobody knows."""
    disk = SimulatedFileSystem()
    with store_on(disk, durability="process-crash") as store:
        store.initialize()
        for number in range(20):
            store.append_message(message(number))
        assert marked(disk) == 0
    assert marked(disk) == 20


@pytest.mark.parametrize("at", ["the end", "the middle"])
def test_damage_before_a_mark_is_no_torn_tail(at: str) -> None:
    """P10: of a process that was killed, the last records that a disk spoils are lost property, and not taken for a torn end."""
    disk = SimulatedFileSystem()
    store = store_on(disk)
    store.initialize()
    for number in range(8):
        store.append_message(message(number))
    disk = disk.kill_process()
    data = disk.tree()[TRANSCRIPT] or b""
    cut = data.rindex(b"message 7" if at == "the end" else b"message 5")
    disk.write_file(TRANSCRIPT, data[:cut] + bytes(len(data) - cut))
    with pytest.raises(CorruptTranscriptError) as caught:
        store_on(disk).load()
    assert caught.value.kind == "damaged-line"
    assert (disk.tree()[TRANSCRIPT] or b"").startswith(data[:cut])


@pytest.mark.parametrize("refused", ["create", "write", "rename"])
def test_a_mark_that_is_refused_refuses_no_append(refused: str, caplog: pytest.LogCaptureFixture) -> None:
    """P7: the message is stored, a warning says that the mark is not, and it is tried again after as many records."""
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize()
        store.load()  # so that the transcript is open by its name

        def refuse(call: FileSystemCall) -> None:
            if call.name == refused and call.path != TRANSCRIPT:
                raise OSError(errno.ENOSPC, "injected")

        disk.on_call = refuse
        for number in range(11):
            assert store.append_message(message(number)).seq == number + 1
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
        assert "everything acknowledged is stored" in caplog.text
        disk.on_call = None
        assert marked(disk) == 0
        store.append_message(message(11))
        assert marked(disk) == 12
    assert not [name for name in disk.tree() if ".tmp-" in name]


def test_a_sync_of_a_mark_that_fails_is_told() -> None:
    """P6: the append that it came with is on the disk; nothing more is written before a load looks at it."""
    disk = SimulatedFileSystem()
    store = store_on(disk)
    store.initialize(messages=[message(0), message(1), message(2)])
    store.load()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync" and call.path != TRANSCRIPT:
            raise OSError(errno.EIO, "injected")

    for number in (3, 4, 5):
        store.append_message(message(number))
    disk.on_call = refuse
    assert store.append_message(message(6)).seq == 7
    with pytest.raises(PoisonedError):
        store.append_message(message(7))
    disk.on_call = None
    store.load()
    assert store.get_messages() == [message(number) for number in range(7)]
    store.close()


def test_the_default_is_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two syncs more among a thousand; and a load of the tail after a kill has at most a thousand records to verify."""
    monkeypatch.undo()
    disk = SimulatedFileSystem()
    store = store_on(disk)
    store.initialize()
    for number in range(2_100):
        store.append_message(message(number))
    assert marked(disk) == 2_000
