"""A writer makes sure of its file before it writes, and of the medium before it lets anybody copy.

The incident: mutants that left out one of these looks passed every plain test; only the long proofs met them.
"""

from __future__ import annotations

import errno
import os

import pytest

from tests.kit.meanwhile import CHAT, ID, SAID, TRANSCRIPT, a_conversation, file_content, in_folder, messages, opened
from transcript_store import (
    ConversationExistsError,
    ConversationStore,
    CorruptTranscriptError,
    PoisonedError,
    StorageError,
    snapshot_of,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log.lines import Cache, CachedLines
from transcript_store._log.log import Log
from transcript_store._log.record import Batch, Mark, Position, close_line, record_body
from transcript_store._os.directory import Folder
from transcript_store._os.names import LOCK
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

METADATA = f"{CHAT}/metadata.json"
TORN = b'{"seq":4,"at"'


def add(disk: SimulatedFileSystem, data: bytes) -> None:
    """What another program leaves at the end of the transcript."""
    disk.write_file(TRANSCRIPT, file_content(disk) + data)


# ---- what stands behind what was stored ---------------------------------------------------------------------------------


def test_nothing_is_appended_behind_a_tail_that_cannot_be_kept() -> None:
    """P7, P8: bytes appear behind the last record, and the full disk has no room to keep them: the append is refused.

    The mutant went on, and appended behind them.
    """
    disk = a_conversation()
    with opened(disk) as store:
        add(disk, TORN)
        before = file_content(disk)

        def refuse(call: FileSystemCall) -> None:
            if "quarantine" in call.path:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        disk.on_call = refuse
        with pytest.raises(StorageError, match="keep its torn tail in quarantine/"):
            store.append_message(SAID[0])
        assert file_content(disk) == before
        disk.on_call = None
        store.append_message(SAID[0])
        assert store.recovery is not None
        assert store.recovery.torn_bytes == len(TORN)
    assert messages(disk.another_process()) == [*SAID, SAID[0]]


@pytest.mark.parametrize("how", ["append_message", "append_messages"])
def test_what_a_refused_write_left_is_cut_back_at_once(how: str) -> None:
    """P7: the disk is full in the middle of a line: the error comes when the file is as it was, not at the next call."""
    disk = a_conversation()
    with opened(disk) as store:
        before = file_content(disk)
        written: list[int] = []

        def fill(call: FileSystemCall) -> int | None:
            if call.name != "write":
                return None
            written.append(7)
            if len(written) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return 7

        disk.on_call = fill
        with pytest.raises(StorageError, match="Nothing of it was stored"):
            getattr(store, how)({"append_message": SAID[0], "append_messages": SAID}[how])
        assert len(written) == 2
        assert file_content(disk) == before
        assert verify(CHAT, file_system=disk.another_process()).is_intact
        disk.on_call = None
        store.append_message(SAID[0])
        assert store.recovery is None
    assert messages(disk.another_process()) == [*SAID, SAID[0]]


def test_a_failed_cut_is_not_reported_as_done() -> None:
    """P7: the disk takes a part of a line, and then neither the rest nor its removal: nothing more is written behind it."""
    disk = a_conversation()
    with opened(disk) as store:

        def fail(call: FileSystemCall) -> int | None:
            if call.name == "write" and fail not in failed:
                failed.append(fail)
                return 7
            if call.name in ("write", "truncate"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return None

        failed: list[object] = []
        disk.on_call = fail
        with pytest.raises(StorageError, match="this store writes nothing more"):
            store.append_message(SAID[0])
        disk.on_call = None
        with pytest.raises(PoisonedError):
            store.append_message(SAID[0])
    with opened(disk.another_process()) as again:
        assert again.recovery is not None
        assert (again.recovery.torn_bytes, again.get_messages()) == (7, SAID)


def test_what_an_interrupted_append_left_in_memory_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """P6, P21: Ctrl-C between two lines of an append, then a sync that fails: what was acknowledged is shown, no more."""
    disk = a_conversation()
    put = Cache.put

    def interrupted(cache: Cache, block: CachedLines) -> None:
        put(cache, block)
        raise KeyboardInterrupt

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with opened(disk) as store:
        store.append_message(SAID[0])
        monkeypatch.setattr(Cache, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append_message({"n": "interrupted"})
        monkeypatch.setattr(Cache, "put", put)
        disk.on_call = refuse
        with pytest.raises(StorageError):
            store.get_messages()
        assert store.get_messages() == [*SAID, SAID[0]]
        assert store.get_messages(last=1) == [SAID[0]]


def test_nothing_is_appended_behind_a_last_record_that_was_damaged_meanwhile() -> None:
    """P10: the bytes that appear are the sign to look; what the next record would be chained to is not whole any more."""
    disk = a_conversation()
    with opened(disk) as store:
        add(disk, TORN)
        disk.write_file(TRANSCRIPT, file_content(disk).replace(b"message 2", b"massage 2"))
        before = file_content(disk)
        with pytest.raises(CorruptTranscriptError) as refused:
            store.append_message(SAID[0])
        assert (refused.value.kind, refused.value.line_number) == ("damaged-line", 4)
        assert file_content(disk) == before


def test_a_transcript_that_was_cut_meanwhile_is_refused() -> None:
    """P10: less is there than was stored: an error, and no record in the place of those that are gone."""
    disk = a_conversation()
    with opened(disk) as store:
        whole = file_content(disk)
        for length in (len(whole) - 1, whole.rindex(b"\n", 0, -1) + 1, 100):
            disk.write_file(TRANSCRIPT, whole[:length])
            with pytest.raises(
                CorruptTranscriptError, match=f"has {length} bytes, and {len(whole)} were stored"
            ) as refused:
                store.append_message(SAID[0])
            assert refused.value.kind == "truncated"
            assert file_content(disk) == whole[:length]


def test_a_place_is_held_only_if_it_is_stored_and_its_hash_is_there() -> None:
    """P22: an interrupted append is told as stored by the hash at its end. Another record of that number is not it.

    Nor is a record that stands there as a part of a batch that was never finished.
    """
    disk = a_conversation()
    lines = file_content(disk).splitlines(keepends=True)
    last = lines[-1][-35:-3]
    begun, head = close_line(last, *record_body(4, b"2026-01-01T00:00:00.000000Z", b"{}", None, batch=Batch(1, 2)))
    add(disk, begun)
    with Folder.open(disk, CHAT) as folder:
        log = Log(folder, writable=False)
        log.open(None)
        log.verify(None)
        for seq in range(1, 4):
            end = len(b"".join(lines[: seq + 1]))
            assert log.holds(Position(seq, end, lines[seq][-35:-3]))
            assert not log.holds(Position(seq, end, b"f" * 32))
            assert not log.holds(Position(seq, end - 1, lines[seq][-35:-3]))
        assert not log.holds(Position(4, len(file_content(disk)), head))
        log.close()


def test_after_a_failed_sync_nothing_is_written_by_any_call() -> None:
    """P6: whether the last message is on the disk is unknown, so metadata.json must not say so either.

    The mutant changed the metadata, with a mark behind the message that the disk had refused.
    """
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID)

        def refuse(call: FileSystemCall) -> None:
            if call.name == "sync_data":
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.on_call = refuse
        with pytest.raises(StorageError):
            store.append_message(SAID[0])
        disk.on_call = None
        before = disk.tree()
        for write in (
            lambda: store.append_message(SAID[0]),
            lambda: store.append_messages(SAID),
            lambda: store.append_event({"event": 1}),
            lambda: store.replace_transcript([]),
            lambda: store.update_metadata(model="another"),
            lambda: store.delete_generation(0),
            store.purge_quarantine,
        ):
            with pytest.raises(PoisonedError):
                write()
        assert disk.tree() == before


def test_metadata_is_not_changed_beside_a_transcript_that_was_cut() -> None:
    """P10: each call that writes looks at the file first; its mark would say that what is gone is stored."""
    disk = a_conversation()
    with opened(disk) as store:
        whole, metadata = file_content(disk), file_content(disk, METADATA)
        disk.write_file(TRANSCRIPT, whole[:-1])
        with pytest.raises(CorruptTranscriptError) as refused:
            store.update_metadata(model="another")
        assert refused.value.kind == "truncated"
        assert file_content(disk, METADATA) == metadata


def test_a_close_changes_nothing_of_a_writer_that_came_after_the_lock_was_removed() -> None:
    """P9: our lock file was removed, and another process opened the conversation: metadata.json is now that process's.

    The mutant noted its mark at the end, in metadata of its own memory: their change of the model was gone.
    """
    disk = a_conversation()
    store = opened(disk)
    store.append_message(SAID[0])
    theirs = disk.another_process()
    in_folder(theirs, CHAT, lambda folder: theirs.unlink(folder, LOCK))
    with ConversationStore(CHAT, file_system=theirs) as other:
        other.load()
        other.update_metadata(model="theirs")
    before = file_content(disk, METADATA)
    disk.write_file(METADATA, before)  # as they left it
    store.close()
    assert file_content(disk, METADATA) == before


# ---- syncs before a copy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [snapshot_of, ConversationStore.state])
def test_what_cannot_be_synced_is_not_copied(copy: object) -> None:
    """P6, P12: an append was not synced, and the sync before a copy fails: no copy, and nothing more is written."""
    disk = a_conversation()
    store = ConversationStore(CHAT, file_system=disk, durability="process-crash")
    with store:
        store.load()
        store.append_message(SAID[0])

        def refuse(call: FileSystemCall) -> None:
            if call.name == "sync_data":
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.on_call = refuse
        with pytest.raises(StorageError, match="sync before the copy"):
            copy(store)  # type: ignore[operator]
        disk.on_call = None
        with pytest.raises(PoisonedError):
            store.append_message(SAID[1])
    assert messages(disk.worst_power_failure()) == SAID


def test_a_reader_syncs_for_a_copy_and_for_nothing_else() -> None:
    """P12: readers cost a writer nothing: what a copy needs is over with the copy."""
    disk = a_conversation()
    theirs = disk.another_process()
    writer = ConversationStore(CHAT, file_system=disk, durability="process-crash")
    with writer, ConversationStore(CHAT, file_system=theirs, read_only=True) as reader:
        writer.load()
        writer.append_message(SAID[0])
        reader.load()
        calls: list[str] = []
        theirs.on_call = lambda call: calls.append(call.name)
        snapshot_of(reader)
        assert "sync" in calls
        calls.clear()
        writer.replace_transcript(SAID)
        assert reader.refresh().started_over
        assert not {"sync", "sync_data", "drop_cache"} & {*calls}
        assert reader.get_messages() == SAID


# ---- the cache of the system ----------------------------------------------------------------------------------------------


def dropped_at_load(disk: SimulatedFileSystem) -> int:
    """How often a load forgets what the system's cache holds."""
    calls: list[str] = []
    disk.on_call = lambda call: calls.append(call.name)
    opened(disk).close()
    return calls.count("drop_cache")


def test_the_cache_is_believed_only_up_to_the_mark_of_its_own_generation() -> None:
    """P6: the length is that of the mark, but the mark is of the generation before: a coincidence, and no proof of a sync."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID)
    assert dropped_at_load(disk) == 0
    document = decode_document(file_content(disk, METADATA))
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    members = {**document.members, "generation": 0}
    disk.write_file(METADATA, encode_document(members, Mark(0, document.mark.position)))
    assert dropped_at_load(disk) == 1
    with opened(disk) as store:
        assert store.get_messages() == SAID
        assert store.get_metadata().generation == 1


# ---- handles --------------------------------------------------------------------------------------------------------------


def test_a_replace_closes_what_it_replaces() -> None:
    """A writer that compacts its history a thousand times a day, and reads what was before, has as many files open as at first."""
    disk = a_conversation()
    with opened(disk) as store:
        before = sorted(disk.open_handles)
        for _ in range(3):
            store.replace_transcript(SAID)
            store.append_message(SAID[0])
            assert len(store.generations()) == store.get_metadata().generation + 1
            assert [record.message for record in store.get_records(generation=0)] == SAID
        assert len(disk.open_handles) == len(before)
    assert disk.open_handles == []


# ---- a reader -------------------------------------------------------------------------------------------------------------


def test_a_reader_forgets_a_torn_tail_that_is_gone() -> None:
    """P12: what was passed over at first was a record that was being written; once it is whole, nothing is passed over."""
    disk = a_conversation()
    with opened(disk) as writer:
        writer.append_message(SAID[0])
    whole = file_content(disk)
    disk.write_file(TRANSCRIPT, whole[:-9])
    disk.write_file(METADATA, file_content(a_conversation(), METADATA))  # its mark is before that record
    with ConversationStore(CHAT, file_system=disk, read_only=True) as reader:
        reader.load()
        assert reader.torn_tail is not None
        assert reader.torn_tail.length_bytes + reader.torn_tail.offset_bytes == len(whole) - 9
        disk.write_file(TRANSCRIPT, whole)
        assert reader.refresh().records_added == 1
        assert reader.torn_tail is None
        assert reader.get_messages() == [*SAID, SAID[0]]


def test_a_reader_is_told_of_damage_that_came_behind_what_it_read() -> None:
    """P10: the next record is damaged and the one after it whole. The mutant said that nothing was new."""
    disk = a_conversation()
    with ConversationStore(CHAT, file_system=disk, read_only=True) as reader:
        reader.load()
        metadata = file_content(disk, METADATA)
        with opened(disk.another_process()) as writer:
            writer.append_message({"role": "user", "content": "next"})
            writer.append_message({"role": "user", "content": "last"})
        disk.write_file(METADATA, metadata)
        disk.write_file(TRANSCRIPT, file_content(disk).replace(b'"next"', b'"text"'))
        with pytest.raises(CorruptTranscriptError) as refused:
            reader.refresh()
        assert (refused.value.kind, refused.value.line_number) == ("hole", 5)
        assert reader.get_messages() == SAID


# ---- create -----------------------------------------------------------------------------------------------------------------


def test_no_lock_is_put_into_a_folder_of_others() -> None:
    """P13: another program creates a folder there after the first check; it stays unchanged, without a lock in it."""
    disk = SimulatedFileSystem()
    disk.make_directory(disk.open_directory("/"), "chats")
    looks: list[FileSystemCall] = []

    def put_a_folder(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("open_directory", CHAT):
            looks.append(call)
            if len(looks) == 2:
                other = disk.another_process()
                in_folder(other, "/chats", lambda folder: other.make_directory(folder, ID))
                other.write_file(f"{CHAT}/notes.txt", b"mine")

    disk.on_call = put_a_folder
    with (
        ConversationStore(CHAT, file_system=disk) as store,
        pytest.raises(ConversationExistsError, match=r"notes\.txt"),
    ):
        store.initialize(messages=SAID)
    assert disk.tree() == {"/chats": None, CHAT: None, f"{CHAT}/notes.txt": b"mine"}
