"""Readers beside a writer: no lock, no waiting, never a part of anything.

A dashboard that follows an agent reads while the agent writes. What it must never show is half a message, half a batch,
two generations mixed, or an empty conversation where there is a full one; and what it must never do is stand in the
writer's way. Here a reader looks at every byte that arrives, and between any two system calls of a writer's work.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.machines import Between
from tests.kit.trees import times, tree
from tests.kit.unprivileged import as_nobody
from transcript_store import (
    ConversationNotFoundError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    GenerationNotFoundError,
    RefreshResult,
    TranscriptStoreError,
    repair,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log.record import Mark, Position

pytestmark = pytest.mark.usefixtures("quiet")

OLD = [{"n": 1}, {"n": 2}, {"n": 3}]


def reader_of(directory: Path, **options: Any) -> ConversationStore:
    reader = ConversationStore(directory, read_only=True, **options)
    reader.load()
    return reader


# ---- what a refresh tells --------------------------------------------------------------------------------------------


def test_refresh_tells_what_was_added(scratch):
    """P12: refresh() counts the records that came, events too; a replace starts over; the metadata comes along."""
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD)
        reader = reader_of(scratch / "c")
        assert reader.refresh() == RefreshResult(0, False)
        writer.append_message({"n": 4})
        assert reader.get_messages() == OLD, "a reader changes only when it is told to"
        assert reader.refresh() == RefreshResult(1, False)
        writer.append_messages([{"n": 5}, {"n": 6}])
        writer.append_event({"e": 1})
        writer.update_metadata(model="m")
        assert reader.refresh() == RefreshResult(3, False)
        assert reader.get_messages() == writer.get_messages()
        assert reader.get_records() == writer.get_records()
        assert reader.get_metadata() == writer.get_metadata()
        assert reader.head == writer.head
        writer.replace_transcript([{"n": 0}], model="n")
        writer.append_event({"e": 2})
        assert reader.refresh() == RefreshResult(2, True)
        assert reader.get_messages() == [{"n": 0}]
        assert reader.get_metadata() == writer.get_metadata()
        assert reader.refresh() == RefreshResult(0, False)
        for n in range(3):
            writer.replace_transcript([{"n": n}])
        assert reader.refresh() == RefreshResult(1, True)
        assert reader.get_messages() == [{"n": 2}]
        assert writer.refresh() == RefreshResult(0, False), "a writer is always up to date"
        reader.close()


def test_a_reader_takes_no_lock_and_changes_nothing(scratch):
    """P12: loading, reading, refreshing and closing change not a byte, a mode or a time, with a torn tail there or not."""
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD)
    for torn in (b"", b'{"seq":4,"at":"20'):
        with open(scratch / "c/transcript.jsonl", "ab") as file:
            file.write(torn)
        (scratch / "c/lock").unlink(missing_ok=True)
        (scratch / "c" / (".tmp-" + "0" * 32)).write_bytes(b"left behind")
        before = tree(scratch / "c"), times(scratch / "c")
        reader = reader_of(scratch / "c")
        assert reader.get_messages() == OLD
        assert reader.recovery is None
        assert reader.refresh() == RefreshResult(0, False)
        assert reader.load_or_initialize() is False
        reader.close()
        assert (tree(scratch / "c"), times(scratch / "c")) == before


def test_a_reader_does_not_keep_a_writer_out(scratch):
    """P12: with any number of readers loaded, a writer loads, appends, replaces and recovers."""
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD)
    readers = [reader_of(scratch / "c") for _ in range(5)]
    with open(scratch / "c/transcript.jsonl", "ab") as file:
        file.write(b"torn")
    with ConversationStore(scratch / "c") as writer:
        writer.load()
        assert writer.recovery is not None
        writer.append_message({"n": 4})
        writer.replace_transcript([{"n": 5}])
        writer.update_metadata(model="m")
    for reader in readers:
        assert reader.refresh() == RefreshResult(1, True)
        reader.close()


def test_every_byte_that_arrives(scratch):
    """P12, P3: as a transcript grows byte by byte, a refresh after each shows exactly the appends that are complete."""
    with ConversationStore(scratch / "a", durability="process-crash") as writer:
        writer.initialize(messages=OLD[:1])
        path = scratch / "a/transcript.jsonl"
        ends = [path.stat().st_size]
        counts = [1]
        for append, count in (
            (lambda: writer.append_message({"text": "ü" * 20}), 1),
            (lambda: writer.append_messages([{"n": 1}, {"n": 2}, {"n": 3}], extras=[None, {"e": []}, None]), 3),
            (lambda: writer.append_event({}), 1),
            (lambda: writer.append_messages([{}, {"last": 1}]), 2),
        ):
            append()
            ends.append(path.stat().st_size)
            counts.append(counts[-1] + count)
        whole = path.read_bytes()
        records = writer.get_records()
    shutil.copytree(scratch / "a", scratch / "c")
    document = decode_document((scratch / "a/metadata.json").read_bytes())
    assert isinstance(document, MetadataDocument)
    mark = Mark(0, Position(1, ends[0], whole[ends[0] - 35 : ends[0] - 3]))  # as before the first append
    (scratch / "c/metadata.json").write_bytes(encode_document(document.members, mark))
    (scratch / "c/transcript.jsonl").write_bytes(whole[: ends[0]])
    reader = reader_of(scratch / "c")
    with open(scratch / "c/transcript.jsonl", "ab", buffering=0) as file:
        for size in range(ends[0] + 1, len(whole) + 1):
            file.write(whole[size - 1 : size])
            shown = counts[max(i for i, end in enumerate(ends) if end <= size)]
            before = len(reader.get_records())
            assert reader.refresh() == RefreshResult(shown - before, False), f"at byte {size}"
            assert reader.get_records() == records[:shown], f"at byte {size}"
    reader.close()
    assert counts == [1, 2, 5, 6, 8], "two batches were waited for"


def test_a_torn_tail_is_passed_over_and_then_replaced_by_what_the_writer_appends(scratch):
    """P12: a reader that saw a conversation with a torn tail sees the recovered one go on, without starting over."""
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD)
    with open(scratch / "c/transcript.jsonl", "ab") as file:
        file.write(b'{"seq":4,"at":"2026-01-01T00:00:00.000000Z","message":{"n":"never acknowledged"')
    reader = reader_of(scratch / "c")
    assert reader.get_messages() == OLD
    with ConversationStore(scratch / "c") as writer:
        writer.load()
        assert reader.refresh() == RefreshResult(0, False)
        writer.append_message({"n": 4})
        assert reader.refresh() == RefreshResult(1, False)
        assert reader.get_messages() == [*OLD, {"n": 4}]
    reader.close()


def test_records_that_are_gone_make_a_reader_start_over(scratch):
    """P12: what was read and is not there any more (unsynced, before a power cut) is not shown for ever: it starts over."""
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD)
        size = (scratch / "c/transcript.jsonl").stat().st_size
        writer.append_message({"n": 4})
        writer.append_message({"n": 5})
        reader = reader_of(scratch / "c")
        os.truncate(scratch / "c/transcript.jsonl", size)
        assert reader.refresh() == RefreshResult(3, True)
        assert reader.get_messages() == OLD
        reader.close()


def test_another_conversation_at_the_same_path(scratch):
    """P12: a conversation that was removed is reported as gone; another in its place is read from its start."""
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD)
    reader = reader_of(scratch / "c")
    (scratch / "c").rename(scratch / "old")
    with pytest.raises(ConversationNotFoundError):
        reader.refresh()
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=[{"other": 1}])
        assert reader.refresh() == RefreshResult(1, True)
        assert reader.get_messages() == [{"other": 1}]
        assert reader.get_metadata() == writer.get_metadata()
    reader.close()


def _remove_transcript(directory: Path) -> None:
    (directory / "transcript.jsonl").unlink()


def _damage_transcript(directory: Path) -> None:
    (directory / "other").write_bytes(b"garbage\n")
    os.replace(directory / "other", directory / "transcript.jsonl")


def _damage_metadata(directory: Path) -> None:
    (directory / "metadata.json").write_bytes(b"{}")


def _remove_folder(directory: Path) -> None:
    shutil.rmtree(directory)


@pytest.mark.parametrize("damage", [_remove_transcript, _damage_transcript, _damage_metadata, _remove_folder])
def test_a_refresh_that_is_refused_does_not_leave_the_reader_empty(scratch, damage):
    """P12: when refresh() raises, the reader shows what it showed or raises too, never nothing; it works again once the
    cause is gone.
    """
    with ConversationStore(scratch / "c") as writer:
        writer.initialize(messages=OLD, model="m")
    shutil.copytree(scratch / "c", scratch / "backup")
    reader = reader_of(scratch / "c")
    damage(scratch / "c")
    for _ in range(2):
        with pytest.raises((CorruptTranscriptError, CorruptMetadataError, ConversationNotFoundError)):
            reader.refresh()
        with suppress(CorruptTranscriptError, CorruptMetadataError):
            assert reader.get_messages() == OLD
        with suppress(CorruptTranscriptError, CorruptMetadataError):
            assert reader.get_metadata().model == "m"
    shutil.rmtree(scratch / "c", ignore_errors=True)
    (scratch / "backup").rename(scratch / "c")
    with suppress(CorruptMetadataError):  # the reader may have looked by itself already
        assert reader.get_messages() == OLD
    assert reader.refresh().records_added in (0, 3)
    assert reader.get_messages() == OLD
    reader.close()


# ---- between any two system calls ------------------------------------------------------------------------------------


WORK: dict[str, tuple[Callable[[ConversationStore], object], list[Any]]] = {
    "append_message": (lambda w: w.append_message({"n": 4}), [*OLD, {"n": 4}]),
    "append_messages": (
        lambda w: w.append_messages([{"n": 4}, {"n": 5}, {"n": 6}]),
        [*OLD, *({"n": n} for n in (4, 5, 6))],
    ),
    "update_metadata": (lambda w: w.update_metadata(model="new"), OLD),
    "replace_transcript": (lambda w: w.replace_transcript([{"new": 1}], model="new"), [{"new": 1}]),
    "close": (lambda w: w.close(), OLD),
    "load": (lambda w: w.load(), OLD),
}


@pytest.mark.parametrize("work", WORK)
def test_a_reader_looks_between_any_two_calls_of_a_writer(scratch, work):
    """P12: at every moment of a writer's work a new reader, and one that follows, see the state before or after; verify()
    finds nothing worse than the line that is being written; and the writer is not disturbed.
    """
    operate, after = WORK[work]
    looks = 0
    for nth in range(1, 1000):
        directory = scratch / str(nth)
        files: Any = Between()
        writer = ConversationStore(directory, file_system=files)
        writer.initialize(messages=OLD, model="old")
        follower = reader_of(directory)

        def look(directory: Path = directory, follower: ConversationStore = follower) -> None:
            fresh = reader_of(directory)
            for reader in (fresh, follower):
                refreshed = reader.refresh()
                assert reader.get_messages() in (OLD, after)
                assert refreshed.started_over == (
                    work == "replace_transcript" and reader.get_messages() == after and reader is follower
                )
                model = reader.get_metadata().model
                assert model in ("old", "new")
                if work == "replace_transcript":
                    assert (model == "new") == (reader.get_messages() == after)
            assert fresh.get_messages() == follower.get_messages()
            fresh.close()
            assert verify(directory).is_intact

        files.calls, files.nth, files.happen = 0, nth, look
        operate(writer)
        struck = files.calls >= nth
        files.nth = 0
        follower.refresh()
        assert follower.get_messages() == after
        follower.close()
        writer.close()
        shutil.rmtree(directory)
        if not struck:
            break
        looks += 1
    assert looks >= 3


@pytest.mark.parametrize("work", ["append_messages", "replace_transcript", "update_metadata", "twice replaced"])
@pytest.mark.parametrize("reads", ["load", "refresh"])
def test_a_writer_works_between_any_two_calls_of_a_reader(scratch, work, reads):
    """P12: whatever a writer does in the middle of a reader's load() or refresh(), the reader sees before or after."""

    def operate(writer: ConversationStore) -> None:
        if work == "twice replaced":
            writer.replace_transcript([{"between": 1}], model="between")
            writer.append_message({"between": 2})
            writer.replace_transcript([{"new": 1}], model="new")
        else:
            WORK[work][0](writer)

    after = [{"new": 1}] if work == "twice replaced" else WORK[work][1]
    looks = 0
    for nth in range(1, 1000):
        directory = scratch / str(nth)
        writer = ConversationStore(directory)
        writer.initialize(messages=OLD, model="old")
        files: Any = Between()
        reader = ConversationStore(directory, read_only=True, file_system=files)
        if reads == "refresh":
            reader.load()
            writer.append_event({"so": "that there is something to read"})
        files.calls, files.nth, files.happen = 0, nth, lambda writer=writer: operate(writer)
        try:
            getattr(reader, reads)()
        except TranscriptStoreError as error:
            pytest.fail(f"with the writer at work before call {nth}: {type(error).__name__}: {error}")
        struck = files.calls >= nth
        assert reader.get_messages() in (OLD, after)
        if work == "twice replaced" or work == "replace_transcript":
            model = reader.get_metadata().model
            assert (model == "new") == (reader.get_messages() == after), f"mixed, before call {nth}"
        files.nth = 0
        if not struck:
            operate(writer)
        reader.refresh()
        assert reader.get_messages() == after
        assert reader.get_metadata() == writer.get_metadata()
        reader.close()
        writer.close()
        shutil.rmtree(directory)
        if not struck:
            break
        looks += 1
    assert looks > 5


ARCHIVE_READS: dict[str, Callable[[ConversationStore, Any], bool]] = {
    "generations": lambda reader, _: all(found.damage is None for found in reader.generations()),
    "get_records": lambda reader, _: reader.get_records(generation=0)[0].message == OLD[0],
    "verify": lambda reader, files: verify(reader.directory, file_system=files).is_intact,
    "repair": lambda reader, files: not repair(reader.directory, file_system=files).findings,
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["plain", "sealed"])
@pytest.mark.parametrize("deleted", [(1,), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("read", ARCHIVE_READS)
def test_a_writer_deletes_generations_between_any_two_calls_of_whoever_reads_them(scratch, read, deleted, key):
    """P12: a generation is there, whole, or it is not there. No damage and no error of the system is told of what was only deleted.

    The incident: a reader with the key was told that an archived generation is not genuine, since it had read the metadata before
    the generation behind that one was deleted; and verify() met a file that had just gone, and raised.
    """
    options: dict[str, Any] = {"encryption_key": key} if key else {}
    with ConversationStore(scratch / "c", **options) as writer:
        writer.initialize(messages=OLD)
        for n in range(3):
            writer.replace_transcript([{"new": n}])
    looks = 0
    for nth in range(1, 1000):
        directory = scratch / str(nth)
        shutil.copytree(scratch / "c", directory)
        files: Any = Between()
        with ConversationStore(directory, **options) as writer:
            writer.load()
            with ConversationStore(directory, read_only=True, file_system=files, **options) as reader:
                reader.load()
                files.calls, files.nth = 0, nth
                files.happen = lambda writer=writer: [writer.delete_generation(number) for number in deleted]
                try:
                    assert ARCHIVE_READS[read](reader, files), f"before call {nth}"
                except GenerationNotFoundError:
                    assert read == "get_records"
                    assert 0 in deleted
                finally:
                    struck, files.nth = files.calls >= nth, 0
                if not struck:
                    files.happen()
                assert [found.damage for found in reader.generations()] == [None] * (4 - len(deleted))
        shutil.rmtree(directory)
        if not struck:
            break
        looks += 1
    assert looks > 5


# ---- beside a writer that is killed ----------------------------------------------------------------------------------

WRITER = """
    import random, sys
    from transcript_store import ConversationStore
    path, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    randomly = random.Random(seed)
    store = ConversationStore(path, durability="process-crash")
    store.load_or_initialize(messages=[{"generation": 0, "n": 0}])
    n = store.get_messages()[-1]["n"]
    for _ in range(calls):
        kind = randomly.random()
        if kind < 0.04:
            generation = store.get_metadata().generation + 1
            store.replace_transcript([{"generation": generation, "n": n}], compaction_count=generation)
        elif kind < 0.4:
            store.append_messages([{"n": n + k, "of": k} for k in (1, 2, 3)])
            n += 3
        else:
            pad = "x" * (400_000 if kind > 0.97 else 10)
            store.append_message({"n": n + 1, "pad": pad})
            n += 1
    store.close()
    """


@pytest.mark.parametrize(("kills", "calls"), [(2, 400), pytest.param(40, 2000, marks=pytest.mark.long)])
def test_a_reader_beside_a_writer_that_is_killed_and_recovers(scratch, kills, calls):
    """P12: beside a writer that appends, batches, replaces, is killed and recovers, a reader sees every message whole, in
    order, batches in one piece, never fewer than before without saying that it started over.
    """
    seed = 5
    print(f"seed {seed}")
    randomly = random.Random(seed)
    directory = scratch / "c"
    reader: ConversationStore | None = None
    refreshes = started_over = added = 0
    last = -1
    for number in range(kills + 1):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(directory), str(seed + number), str(calls)]
        writer = subprocess.Popen(command)
        looks = randomly.randrange(100, 300) if number < kills else 10**9
        while looks > 0 and (running := writer.poll() is None or number == kills):
            if reader is None:
                with suppress(ConversationNotFoundError):
                    reader = reader_of(directory)
                time.sleep(0.001)
                continue
            before = len(reader.get_records())
            refreshed = reader.refresh()
            messages = reader.get_messages()
            refreshes += 1
            started_over += refreshed.started_over
            added += refreshed.records_added
            looks -= 1 if refreshed.records_added else 0
            if refreshed.started_over:
                assert refreshed.records_added == len(messages)
            else:
                assert refreshed.records_added == len(messages) - before
            first, *rest = messages
            assert first["generation"] == reader.get_metadata().generation
            numbers = [message["n"] for message in messages]
            assert numbers == list(range(first["n"], first["n"] + len(messages)))
            assert numbers[-1] >= last, "what was seen is gone, though nothing was lost"
            last = numbers[-1]
            parts = [message["of"] for message in rest if "of" in message]
            assert parts == [1, 2, 3] * (len(parts) // 3), "a part of a batch"
            if writer.poll() is not None:
                running = False
            if not running and not refreshed.records_added:
                break
        writer.send_signal(signal.SIGKILL)
        code = writer.wait(60)
        assert code in (0, -signal.SIGKILL)
    assert reader is not None
    reader.refresh()
    with ConversationStore(directory) as store:
        store.load()
        assert store.recovery is None, "the last writer ended well"
        assert reader.get_messages() == store.get_messages()
    print(f"{refreshes} refreshes, {added} records, started over {started_over} times")
    assert refreshes > 100
    assert started_over > 0, "no replace was seen: this proved too little"
    reader.close()
    assert verify(directory).is_intact


# ---- without permission to write -------------------------------------------------------------------------------------


@pytest.mark.root
def test_a_reader_in_a_folder_that_it_may_only_read():
    """P12: another user, with permission to read and nothing more, loads and follows a writer as it goes on."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = Path(directory, "c")
        with ConversationStore(path) as writer:
            writer.initialize(messages=OLD)
            path.chmod(0o555)
            for file in path.iterdir():
                file.chmod(0o444)
            script = """
                import os, sys
                from transcript_store import ConversationStore, verify
                assert not os.access(sys.argv[1], os.W_OK)
                with ConversationStore(sys.argv[1], read_only=True) as reader:
                    reader.load()
                    print(len(reader.get_messages()), flush=True)
                    sys.stdin.readline()
                    print(*reader.refresh(), len(reader.get_messages()), verify(sys.argv[1]).is_intact, flush=True)
                """
            command = [sys.executable, "-c", as_nobody(script), str(path)]
            reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert reader.stdout is not None
            assert reader.stdout.readline() == "3\n"
            writer.append_messages([{"n": 4}, {"n": 5}])
            out, _ = reader.communicate("go on\n", timeout=60)
            assert out == "2 False 5 True\n"
            assert reader.returncode == 0
