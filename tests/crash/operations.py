"""What is done when the crash comes, and on which conversations: the rows of the crash matrix."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.crash.model import CONVERSATION, DIRECTORY, World, store_on
from transcript_store import ConversationStore, Snapshot, StorageError, restore_snapshot
from transcript_store._folder import Folder
from transcript_store._storage import Storage
from transcript_store.testing import Call, SimulatedFileSystem

TRANSCRIPT = f"{DIRECTORY}/transcript.jsonl"
LOCK = f"{DIRECTORY}/lock"

Step = Callable[[Any], object]


def message(number: int, size: int = 20) -> dict[str, object]:
    return {"role": "user" if number % 2 else "assistant", "content": f"message {number} " + "x" * size}


# ---- conversations that something happens to --------------------------------------------------------------------------


def nothing() -> SimulatedFileSystem:
    """An empty disk. Small pages, so that a short line can be torn in many places."""
    return SimulatedFileSystem(page_bytes=256, sector_bytes=64)


def unsynced_parents() -> SimulatedFileSystem:
    """The parents are there, made by somebody who was killed before they were synced."""
    disk = nothing()
    root = disk.open_directory("/")
    disk.make_directory(root, "home")
    disk.make_directory(disk.open_directory("home", root), "agent")
    return disk.kill_process()


def empty() -> SimulatedFileSystem:
    disk = nothing()
    with store_on(disk) as store:
        store.initialize(provider="claude", model="first", system_prompt="be brief", labels={"title": "a test"})
    return disk.copy()


def grown() -> SimulatedFileSystem:
    """Three messages, one of them longer than a page, and the mark at their end."""
    disk = empty()
    with store_on(disk) as store:
        store.load()
        for number in range(3):
            store.append_message(message(number, size=300 if number == 1 else 20))
    return disk.copy()


def unmarked() -> SimulatedFileSystem:
    """The same, but killed before the mark was renewed."""
    disk = grown()
    store = store_on(disk)
    store.load()
    store.append_message(message(3), extra={"usage": 7})
    store.append_messages([message(4), message(5)])
    return disk.kill_process().copy()


TORN = b'{"seq":7,"at":"2026-09-21T14:13:20.004000Z","mess'


def torn() -> SimulatedFileSystem:
    """A line that a crash cut off: recovery has something to do."""
    disk = unmarked()
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"") + TORN)
    return disk


def without_line_feed() -> SimulatedFileSystem:
    """The last line lacks only its LF."""
    disk = unmarked()
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"")[:-1])
    return disk


def half_a_batch() -> SimulatedFileSystem:
    """The first of the two lines of a batch is whole, the second is not there."""
    disk = unmarked()
    content = disk.tree()[TRANSCRIPT] or b""
    disk.write_file(TRANSCRIPT, b"".join(content.splitlines(keepends=True)[:-1]))
    return disk


def replaced() -> SimulatedFileSystem:
    disk = grown()
    with store_on(disk) as store:
        store.load()
        store.replace_transcript([message(10)], compaction_count=1)
        store.append_message(message(11))
    return disk.copy()


def interrupted_replace() -> SimulatedFileSystem:
    """Killed after the commit of a replace, before its metadata: the transcript is a generation ahead."""
    disk = grown()
    store = store_on(disk)
    store.load()
    old = disk.tree()[f"{DIRECTORY}/metadata.json"] or b""
    store.replace_transcript([message(10), message(11)], compaction_count=1)
    disk = disk.kill_process().copy()
    disk.write_file(f"{DIRECTORY}/metadata.json", old)
    return disk


# ---- what happens ------------------------------------------------------------------------------------------------------


def initialize(store: ConversationStore) -> None:
    store.initialize(provider="claude", model="first", messages=[message(0), message(1)])


def append(store: ConversationStore) -> None:
    store.append_message(message(20))


def append_long(store: ConversationStore) -> None:
    store.append_message(message(21, size=700), extra={"usage": {"tokens": 3}})


def append_event(store: ConversationStore) -> None:
    store.append_event({"marker": "compacting"})


def batch(store: ConversationStore) -> None:
    store.append_messages([message(22), message(23, size=200), message(24)])


def replace(store: ConversationStore) -> None:
    store.replace_transcript([message(30), message(31, size=300)], compaction_count=2, model="second")


RESTORED = Snapshot.create(
    id="00000000-0000-4000-8000-000000000001",
    provider="claude",
    model="restored",
    system_prompt="be brief again",
    messages=[message(40), message(41, size=300)],
    metadata={"transcript_store.labels": '{"title":"restored"}', "transcript_store.compaction_count": "4"},
)


def restore(store: ConversationStore) -> None:
    restore_snapshot(RESTORED, store)


def restore_anew(store: ConversationStore) -> None:
    """There is no conversation yet."""
    restore_snapshot(RESTORED, store)


def interrupted_append(store: ConversationStore) -> None:
    """Ctrl-C between the write and the sync; what is shown afterwards has to stay."""

    def write_and_be_interrupted(folder: Folder, handle: int, data: bytes) -> None:
        folder.files.write(handle, data)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Folder, "write_all", write_and_be_interrupted)
        store.append_message(message(25))
    assert store.get_messages()[-1] == message(25)


def replace_without_mark(store: ConversationStore) -> None:
    """The replace commits, and the metadata that should remember it is refused: the mark stays the old one's."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "_write_document", refuse)
        store.replace_transcript([message(32)], compaction_count=3)


def append_with_failed_sync(store: ConversationStore) -> None:
    """The disk refuses a sync, and loses what was written; the store is loaded anew and goes on without it."""
    disk = store._files
    assert isinstance(disk, SimulatedFileSystem)
    on_call = disk.on_call

    def refuse(call: Call) -> None:
        if call.name == "sync_data":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    try:
        with pytest.raises(StorageError):
            store.append_message(message(33))
    finally:
        disk.on_call = on_call
    store.load()


def update_metadata(store: ConversationStore) -> None:
    store.update_metadata(model="third", labels={"title": "renamed"})


def load(store: ConversationStore) -> None:
    store.load()


def close(store: ConversationStore) -> None:
    store.close()


@dataclass(frozen=True)
class Case:
    """Steps on a conversation; each returns before the next begins, and is acknowledged when it returns."""

    base: Callable[[], SimulatedFileSystem]
    steps: tuple[Step, ...]
    keeps: bytes = b""
    """Bytes that must stay in some file, whatever happens: a torn tail goes to quarantine before it is cut."""
    world: World = CONVERSATION

    @property
    def name(self) -> str:
        return f"{self.base.__name__}-{'-'.join(step.__name__ for step in self.steps)}"

    @property
    def durabilities(self) -> tuple[str, ...]:
        """What the case can be run with: one that needs a sync to fail needs appends that sync."""
        always = self.world is not CONVERSATION or append_with_failed_sync in self.steps
        return ("power-loss",) if always else ("power-loss", "process-crash")

    @property
    def starts_loaded(self) -> bool:
        """Whether the conversation is loaded before the first step: not where that step is about loading."""
        return self.steps[0] not in (initialize, load, restore_anew)


CASES = [
    Case(nothing, (initialize, append)),
    Case(unsynced_parents, (initialize,)),
    Case(empty, (append, append, close)),
    Case(grown, (append,)),
    Case(grown, (append_long, append)),
    Case(grown, (append_event, batch)),
    Case(unmarked, (batch, append)),
    Case(grown, (interrupted_append, append)),
    Case(grown, (append, replace)),
    Case(grown, (append_with_failed_sync, append)),
    Case(unmarked, (replace_without_mark, append, append_with_failed_sync, append)),
    Case(grown, (replace, append, close)),
    Case(replaced, (replace,)),
    Case(unmarked, (update_metadata,)),
    Case(grown, (append, update_metadata, append)),
    Case(torn, (load, append), keeps=TORN),
    Case(without_line_feed, (load, append)),
    Case(half_a_batch, (load, batch)),
    Case(torn, (load, replace), keeps=TORN),
    Case(interrupted_replace, (load, append)),
    Case(nothing, (restore_anew,)),
    Case(grown, (restore,)),
]
