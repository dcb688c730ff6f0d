"""A folder that is moved or replaced between two calls: the next call notices.

The incident: no plain test ran the lines that notice it, so a mutant of any of them passed. ``rm -r``, ``mv`` and a restored
backup ask nobody for a lock, so each moment is tried here.
"""

from __future__ import annotations

import errno
import os
from unittest import mock

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
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    GenerationNotFoundError,
    StorageError,
    verify,
)
from transcript_store._os.directory import Folder
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def remove(other: SimulatedFileSystem) -> None:
    """``rm -r`` of the conversation."""
    with Folder.open(other, "/chats") as parent:
        parent.remove_tree(ID)


def put_another_in_its_place(other: SimulatedFileSystem) -> None:
    """``rm -r``, and a conversation that is shorter is restored from a backup."""
    remove(other)
    with ConversationStore(CHAT, file_system=other) as store:
        store.initialize(id=ID, messages=SAID[:1])


def test_a_folder_that_is_filled_again_and_again_is_given_up() -> None:
    """A program that logs into a folder while it is removed: after ten times the error says that it is not empty."""
    disk = a_conversation()
    theirs = disk.another_process()
    tries: list[FileSystemCall] = []

    def fill(call: FileSystemCall) -> None:
        if call.name == "remove_directory" and call.path == CHAT:
            tries.append(call)
            in_folder(theirs, CHAT, lambda folder: theirs.close(theirs.create(folder, f"log-{len(tries)}")))

    disk.on_call = fill
    with pytest.raises(OSError, match="not empty") as refused:
        remove(disk)
    assert (refused.value.errno, len(tries)) == (errno.ENOTEMPTY, 10)
    disk.on_call = None
    remove(disk)
    assert CHAT not in disk.tree()


# ---- create ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_a_folder_that_goes_as_it_is_made_is_made_anew(times: int) -> None:
    """P1: a process that cleans up removes the empty folder once or twice; the conversation is there all the same."""
    disk = SimulatedFileSystem()
    gone: list[FileSystemCall] = []

    def clean_up(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("open_directory", CHAT) and CHAT in disk.tree() and len(gone) < times:
            gone.append(call)
            remove(disk.another_process())

    disk.on_call = clean_up
    with ConversationStore(CHAT, file_system=disk) as store:
        store.initialize(id=ID, messages=SAID)
    assert len(gone) == times
    assert messages(disk.another_process()) == SAID


def test_where_no_folder_stays_a_create_ends() -> None:
    """P7: a file system in which nothing that is made stays gives an error of ours, and no endless loop."""
    disk = SimulatedFileSystem()

    def clean_up(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("open_directory", CHAT) and CHAT in disk.tree():
            remove(disk.another_process())

    disk.on_call = clean_up
    with ConversationStore(CHAT, file_system=disk) as store, pytest.raises(StorageError) as refused:
        store.initialize(messages=SAID)
    assert refused.value.errno == errno.ENOENT
    assert disk.tree() == {"/chats": None}
    assert disk.open_handles == []


def test_where_not_even_the_root_is_there_a_create_ends() -> None:
    """P7: the same of a process whose root was taken away."""
    disk = SimulatedFileSystem()

    def refuse(call: FileSystemCall) -> None:
        if call.name == "open_directory":
            raise FileNotFoundError(errno.ENOENT, "gone")

    disk.on_call = refuse
    with ConversationStore(CHAT, file_system=disk) as store, pytest.raises(StorageError):
        store.initialize(messages=SAID)


def test_a_file_that_is_put_where_the_folder_is_to_be_is_left_unchanged() -> None:
    """P13: another program creates a file there after the check, and before the folder is created."""
    disk = SimulatedFileSystem()
    looks: list[FileSystemCall] = []

    def put_a_file(call: FileSystemCall) -> None:
        if (call.name, call.path) == ("open_directory", CHAT):
            looks.append(call)
            if len(looks) == 2:
                disk.another_process().write_file(CHAT, b"mine")

    library_on(disk).create().close()  # so that the library's folder is there
    disk.on_call = put_a_file
    with (
        ConversationStore(CHAT, file_system=disk) as store,
        pytest.raises(ConversationExistsError, match="a file is in the place of a conversation's folder"),
    ):
        store.initialize(messages=SAID)
    assert disk.tree()[CHAT] == b"mine"


# ---- load -----------------------------------------------------------------------------------------------------------


@for_each(
    "moment, path",
    [
        ("status", f"{ID}/metadata.json"),
        ("try_lock", "/lock"),
        ("open_read", "/metadata.json"),
        ("open_append", "/transcript.jsonl"),
    ],
)
def test_a_load_takes_what_stands_at_the_path_when_it_has_the_lock(moment: str, path: str) -> None:
    """P11: another conversation comes to stand at the path while this one is opened: that one is opened, and locked.

    The mutants loaded what had no name any more, or reported what was gone as damaged.
    """
    disk = a_conversation()
    seen = meanwhile(disk, moment, path, put_another_in_its_place)
    with opened(disk) as store:
        assert seen
        assert store.get_messages() == SAID[:1]
        with pytest.raises(ConversationLockedError):
            opened(disk.another_process())
        store.append_message(SAID[1])
    assert messages(disk.another_process()) == SAID[:2]
    assert disk.open_handles == []


@pytest.mark.parametrize("moment", ["try_lock", "open_append"])
def test_a_load_of_what_is_removed_meanwhile_finds_nothing(moment: str) -> None:
    """P11: nothing comes to stand there: it is said not to be there, and no lock is left behind."""
    disk = a_conversation()
    seen = meanwhile(disk, moment, {"try_lock": "/lock", "open_append": "/transcript.jsonl"}[moment], remove)
    with pytest.raises(ConversationNotFoundError):
        opened(disk)
    assert seen
    assert disk.tree() == {"/chats": None}
    assert disk.open_handles == []


# ---- verify, delete, generations --------------------------------------------------------------------------------------


def test_a_verify_of_what_is_removed_meanwhile_says_that_it_was_deleted() -> None:
    """P11: no finding, and no error of the disk: there is no conversation any more."""
    disk = a_conversation()
    seen = meanwhile(disk, "open_read", "/transcript.jsonl", remove)
    with pytest.raises(ConversationNotFoundError, match="deleted just now"):
        verify(CHAT, file_system=disk)
    assert seen


def test_a_verify_whose_file_goes_alone_says_which() -> None:
    """P10: the folder exists and the transcript has just been removed: it is checked again, and reported as missing, not as deleted."""
    disk = a_conversation()

    def lose(other: SimulatedFileSystem) -> None:
        in_folder(other, CHAT, lambda folder: other.unlink(folder, "transcript.jsonl"))

    seen = meanwhile(disk, "open_read", "/transcript.jsonl", lose)
    (finding,) = verify(CHAT, file_system=disk).findings
    assert seen
    assert (finding.kind, finding.path) == ("missing", f"{CHAT}/transcript.jsonl")


def test_a_delete_of_what_is_removed_meanwhile_finds_nothing() -> None:
    """P11: it was there when the library was looked into, and is gone when it is opened."""
    disk = a_conversation()
    seen = meanwhile(disk, "open_directory", ID, remove)
    with pytest.raises(ConversationNotFoundError):
        library_on(disk).delete(ID)
    assert seen
    assert disk.tree() == {"/chats": None}


def test_a_delete_waits_for_no_writer() -> None:
    """P11: a conversation with a live writer is refused at once, and is left as it is."""
    disk = a_conversation()
    with opened(disk) as store:
        other = disk.another_process()
        waited: list[float] = []
        with mock.patch.object(other, "wait", waited.append), pytest.raises(ConversationLockedError):
            library_on(other).delete(ID)
        assert waited == []
        assert store.append_message(SAID[0]).seq == len(SAID) + 1


def test_a_generation_that_is_deleted_meanwhile_is_not_listed() -> None:
    """P4: another program removes an archived generation while all are listed: the others are, without an error."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID[:1])
        store.replace_transcript(SAID[:2])
        path = f"{CHAT}/archive"
        seen = meanwhile(
            disk,
            "status",
            "transcript-000000.jsonl",
            lambda other: in_folder(other, path, lambda folder: other.unlink(folder, "transcript-000000.jsonl")),
        )
        assert [(found.number, found.damage) for found in store.generations()] == [(1, None), (2, None)]
        assert seen


def test_without_an_archive_there_is_no_generation_to_delete() -> None:
    """P4: the error names what there is."""
    with opened(a_conversation()) as store:
        for number in (1, 7):
            with pytest.raises(GenerationNotFoundError) as refused:
                store.delete_generation(number)
            assert (refused.value.number, refused.value.available) == (number, (0,))


# ---- a writer at work -------------------------------------------------------------------------------------------------


def test_a_writer_whose_transcript_is_gone_is_told_so() -> None:
    """P11: ``rm transcript.jsonl`` under an open store: nothing is written into a file that has no name."""
    disk = a_conversation()
    with opened(disk) as store:
        in_folder(disk, CHAT, lambda folder: disk.unlink(folder, "transcript.jsonl"))
        with pytest.raises(CorruptTranscriptError, match="the transcript was removed") as refused:
            store.append_message(SAID[0])
        assert refused.value.kind == "replaced"
        assert store.get_messages() == SAID
    assert TRANSCRIPT not in disk.tree()


@pytest.mark.parametrize("hold_lock", [True, False])
def test_a_file_that_was_replaced_behind_a_call_that_looked_and_wrote_nothing(tmp_path, hold_lock):
    """P11, L3: what one call saw of the file says nothing to the next one, which looks for itself."""
    with ConversationStore(tmp_path / "c", hold_lock=hold_lock) as store:
        store.initialize(messages=[{"n": 1}])
        with pytest.raises(ConversationChangedError):
            store.append_message({"n": 2}, if_head="0" * 32)
        content = (tmp_path / "c/transcript.jsonl").read_bytes()
        (tmp_path / "other").write_bytes(content)
        os.replace(tmp_path / "other", tmp_path / "c/transcript.jsonl")
        if hold_lock:
            with pytest.raises(CorruptTranscriptError) as caught:
                store.append_message({"n": 2})
            assert caught.value.kind == "replaced"
            assert (tmp_path / "c/transcript.jsonl").read_bytes() == content
        else:
            assert store.append_message({"n": 2}).seq == 2, "the turn loads what stands there"
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert [message["n"] for message in store.get_messages()] == ([1] if hold_lock else [1, 2])
