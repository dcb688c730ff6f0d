"""Changes in the middle of a call: another process, a signal, a new file, a failing disk.

The incident: each of these looks and releases could be left out, and no quick test noticed.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from tests.kit.cases import for_each
from tests.kit.meanwhile import (
    CHAT,
    ID,
    SAID,
    TRANSCRIPT,
    a_conversation,
    in_folder,
    library_on,
    meanwhile,
    messages,
    opened,
)
from transcript_store import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    PoisonedError,
    StorageError,
)
from transcript_store.hints import Hint
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

METADATA = f"{CHAT}/metadata.json"


def content(disk: SimulatedFileSystem, path: str = TRANSCRIPT) -> bytes:
    found = disk.tree()[path]
    assert found is not None
    return found


# ---- another process ---------------------------------------------------------------------------------------------------


def test_a_folder_that_is_moved_away_before_it_is_locked_is_made_again() -> None:
    """P9: a create goes on in a folder that it locked, and in no other."""
    disk = SimulatedFileSystem()
    disk.make_directory(disk.open_directory("/"), "chats")

    def move(other: SimulatedFileSystem) -> None:
        in_folder(other, "/chats", lambda folder: other.rename(folder, ID, "moved"))

    seen = meanwhile(disk, "create", f"{CHAT}/lock", move)
    with ConversationStore(CHAT, file_system=disk) as store:
        store.initialize(messages=SAID)
        with pytest.raises(ConversationLockedError):
            opened(disk.another_process())
    assert seen
    assert messages(disk) == SAID


@pytest.mark.parametrize("read_only", [False, True])
def test_a_transcript_that_appears_while_a_load_looks_is_loaded(read_only: bool) -> None:
    """A create is under way: the folder was listed before its transcript had its name, and metadata.json was read behind that."""
    disk = a_conversation()
    whole = content(disk)
    in_folder(disk, CHAT, lambda folder: disk.unlink(folder, "transcript.jsonl"))
    seen = meanwhile(disk, "open_read", METADATA, lambda other: other.write_file(TRANSCRIPT, whole))
    with ConversationStore(CHAT, file_system=disk, read_only=read_only) as store:
        store.load()
        assert seen
        assert store.get_messages() == SAID


def test_what_somebody_saw_of_an_interrupted_change_is_there_after_a_close() -> None:
    """Ctrl-C between the commit of new metadata and what memory knows of it: the mark of the close does not bring the old ones back."""
    disk = a_conversation()
    store = opened(disk)
    store.append_message(SAID[0])  # so that there is a mark to renew
    is_renamed = False

    def interrupt(call: FileSystemCall) -> None:
        nonlocal is_renamed
        if call.name == "sync" and is_renamed:
            disk.on_call = None
            raise KeyboardInterrupt
        is_renamed = is_renamed or (call.name == "rename" and call.path == METADATA)

    disk.on_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        store.update_metadata(model="new")
    [seen] = library_on(disk).list()
    assert seen.model == "new"
    store.close()
    [left] = library_on(disk).list()
    assert left.model == "new"


@for_each(
    "change",
    [
        lambda store: store.update_metadata(model="m"),
        lambda store: store.replace_transcript(SAID),
        lambda store: store.delete_generation(0),
        lambda store: store.purge_quarantine(),
    ],
)
def test_a_writer_without_its_lock_file_changes_nothing(change: Callable[[ConversationStore], object]) -> None:
    """P9: somebody removed it, so another process may write. An append is told by the size of the file; a change has only the lock."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID)
        in_folder(disk, CHAT, lambda folder: disk.unlink(folder, "lock"))
        before = disk.tree()
        with pytest.raises(ConversationLockedError) as told:
            change(store)
        assert told.value.hint is Hint.RELOAD
        assert disk.tree() == before


def create_while_another_does(look: int, stop: int) -> tuple[str, bool]:
    """Before call ``look`` of a create another process begins the same one, and is paused before its call ``stop``.

    Returns how the create ended, and whether it reached that call. If it says "exists", there is a conversation to load.
    """
    disk = SimulatedFileSystem()
    disk.make_directory(disk.open_directory("/"), "chats")
    other, seen, others = disk.another_process(), count(1), count(1)

    def pause(call: FileSystemCall) -> None:
        if next(others) >= stop:
            raise SimulatedStop

    def begin(call: FileSystemCall) -> None:
        if next(seen) == look:
            other.on_call = pause
            with suppress(SimulatedStop):
                ConversationStore(CHAT, file_system=other).initialize(messages=SAID)

    disk.on_call = begin
    how = "created"
    try:
        ConversationStore(CHAT, file_system=disk, lock_timeout_seconds=0).initialize(messages=SAID)
    except ConversationLockedError:
        how = "locked"
    except ConversationExistsError as error:
        how = "exists" if TRANSCRIPT in disk.tree() else f"{look}, {stop}: {error}"
    return how, next(seen) > look


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_two_processes_create_one_conversation(step: int) -> None:
    """P9: at every pair of moments the create succeeds, meets the lock, or reports a conversation that can be loaded.

    A framework's test began one run in two stores, and one of them reported a symbolic link that leads nowhere.
    """
    ended: Counter[str] = Counter()
    for stop in range(1, 60, step):
        for look in count(1):
            how, reached = create_while_another_does(look, stop)
            if not reached:
                break
            ended[how] += 1
    assert ended.keys() == {"created", "locked", "exists"}
    assert min(ended.values()) > 30 / step


def test_between_two_commits_of_a_call_the_file_is_looked_at_again() -> None:
    """P10: a seal is a commit, and the removal of each plain generation one more. The transcript goes behind the first: none is removed."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID)
    renamed: list[str] = []

    def remove(call: FileSystemCall) -> None:
        if call.name == "rename":
            renamed.append(call.path)
            if renamed[-2:] == [TRANSCRIPT, METADATA]:
                other = disk.another_process()
                in_folder(other, CHAT, lambda folder: other.unlink(folder, "transcript.jsonl"))

    disk.on_call = remove
    with ConversationStore(CHAT, file_system=disk, encryption_key=bytes(32)) as store:
        with pytest.raises(CorruptTranscriptError) as told:
            store.seal()
        disk.on_call = None
        assert told.value.kind == "replaced"
        assert f"{CHAT}/archive/transcript-000000.jsonl" in disk.tree()


def test_the_name_of_a_folder_without_a_lock_file_is_synced_before_it_has_one() -> None:
    """P5: its maker may have been killed before it synced that name."""
    disk = a_conversation()
    in_folder(disk, CHAT, lambda folder: disk.unlink(folder, "lock"))
    calls: list[tuple[str, str]] = []
    disk.on_call = lambda call: calls.append((call.name, call.path))
    opened(disk).close()
    synced = [at for at, (name, path) in enumerate(calls) if name.startswith("sync") and path == f"{CHAT}/.."]
    assert synced
    assert synced[0] < calls.index(("create", f"{CHAT}/lock"))


def test_a_folder_that_goes_while_its_name_is_synced_is_not_there() -> None:
    """Whoever deletes it is faster: there is no conversation, and that is no fault of the disk."""
    disk = a_conversation()
    in_folder(disk, CHAT, lambda folder: disk.unlink(folder, "lock"))

    seen = meanwhile(disk, "open_directory", f"{CHAT}/..", lambda other: library_on(other).delete(ID))
    with pytest.raises(ConversationNotFoundError):
        opened(disk)
    assert seen


# ---- turns -----------------------------------------------------------------------------------------------------------


def test_the_mark_follows_what_others_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes to its turn notes how far the transcript is synced, if others wrote so much and noted nothing."""
    monkeypatch.setattr("transcript_store._conversation.shared_writer.MARK_EVERY", 3)
    disk = a_conversation()
    reads = ConversationStore(CHAT, file_system=disk, hold_lock=False)
    reads.load()

    def mark() -> int:
        return int(json.loads(content(disk, METADATA))["mark"]["seq"])

    writes = ConversationStore(CHAT, file_system=disk.another_process(), hold_lock=False)
    writes.load()
    begin = mark()
    for n in range(1, 4):
        writes.append_message({"n": n})
        assert mark() == begin
        assert reads.get_messages()[-1] == {"n": n}
        assert mark() == (begin + 3 if n == 3 else begin)
    writes.close()
    reads.close()


def test_a_writer_that_takes_turns_has_none_behind_a_failed_sync() -> None:
    """P5: what was acknowledged can be read; nothing is looked at anew, and nothing more is written."""
    disk = a_conversation()
    store = ConversationStore(CHAT, file_system=disk, hold_lock=False)
    store.load()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            raise OSError(errno.EIO, "refused")

    disk.on_call = refuse
    with pytest.raises(StorageError):
        store.append_message({"n": "lost?"})
    disk.on_call = None
    before = disk.tree()
    assert store.get_messages() == SAID
    with pytest.raises(PoisonedError):
        store.append_message({"n": 1})
    assert store.get_messages() == SAID
    assert disk.tree() == before
    opened(disk.another_process()).close()


# ---- the system refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_list_that_cannot_look_is_no_shorter_list(number: int) -> None:
    """No descriptor, no memory: that says nothing of a conversation, so none is left out."""
    disk = a_conversation()

    def refuse(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("open_directory", CHAT):
            raise OSError(number, "refused")

    disk.on_call = refuse
    with pytest.raises(StorageError) as told:
        library_on(disk).list()
    assert told.value.errno == number


def test_a_close_says_that_what_was_not_synced_may_be_lost() -> None:
    """A writer that takes turns, and syncs at its end: it is told of the sync that failed, and the lock is free."""
    disk = a_conversation()
    store = ConversationStore(CHAT, file_system=disk, hold_lock=False, durability="process-crash")
    store.load()
    store.append_message(SAID[0])

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync_data":
            raise OSError(errno.EIO, "refused")

    disk.on_call = refuse
    with pytest.raises(StorageError, match="whether the last ones are on the disk is unknown"):
        store.close()
    disk.on_call = None
    opened(disk.another_process()).close()


# ---- one look --------------------------------------------------------------------------------------------------------------


def test_a_call_looks_at_its_file_once() -> None:
    """Behind a head as without one: what was looked at in a call is not looked at again before its write."""
    disk = a_conversation()
    store = opened(disk)
    looks: list[str] = []

    def look(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("status", TRANSCRIPT):
            looks.append(call.path)

    disk.on_call = look
    store.append_message(SAID[0], if_head=store.head)
    assert looks == [TRANSCRIPT]
    store.append_message(SAID[0], if_head=store.head)
    assert looks == 2 * [TRANSCRIPT]
    store.close()


@pytest.mark.parametrize(
    ("count", "shown"), [(3, "'1', '2', '3'"), (4, "'1', '2', '3' and 1 more"), (5, "'1', '2', '3' and 2 more")]
)
def test_three_of_the_files_that_are_not_ours_are_named(count: int, shown: str) -> None:
    """Of a folder in which others keep their files."""
    disk = SimulatedFileSystem()
    disk.make_directory(disk.open_directory("/"), "c")
    for n in range(count):
        disk.write_file(f"/c/{n + 1}", b"mine")
    with ConversationStore("/c", file_system=disk) as store, pytest.raises(ConversationExistsError) as told:
        store.initialize()
    assert told.value.reason == f"the folder is not empty ({shown})"
