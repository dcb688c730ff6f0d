"""A delete removes everything of a conversation, and nothing else."""

from __future__ import annotations

import errno
import os

import pytest

from tests.kit.messages import user_message
from tests.kit.trees import tree
from tests.library.helpers import ID, make, texts
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    StorageError,
    delete_conversation,
)
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def test_a_deleted_conversation_is_gone_with_all_it_had(library, root):
    """Archive and quarantine too; its id may be used again."""
    other = make(library, "b")
    chat = make(library, "a")
    with library.open(chat) as store:
        store.replace_transcript([])
    with (root / chat / "transcript.jsonl").open("ab") as file:
        file.write(b"torn")
    library.open(chat).close()
    assert (root / chat / "quarantine").is_dir()
    library.delete(chat)
    assert [path.name for path in root.iterdir()] == [other]
    assert [summary.id for summary in library.list()] == [other]
    with pytest.raises(ConversationNotFoundError):
        library.delete(chat)
    assert make(library, "new", id=chat) == chat


def test_a_live_writer_is_not_deleted_under_its_feet(library, root):
    """delete() meets its lock and touches nothing; a reader is no obstacle, and keeps what it has read."""
    chat = make(library, "a")
    with library.open(chat) as writer:
        before = tree(root)
        with pytest.raises(ConversationLockedError):
            library.delete(chat)
        assert tree(root) == before
        writer.append_message(user_message("b"))
    with library.open(chat, read_only=True) as reader:
        library.delete(chat)
        assert texts(reader) == ["a", "b"]
        with pytest.raises(ConversationNotFoundError):
            reader.refresh()


def test_a_foreign_folder_is_left_unchanged(library, root):
    """A folder that is called like a conversation and holds something else is not ours to delete."""
    make(library, "a")
    (root / ID).mkdir()
    (root / ID / "thesis.tex").write_text("years of work")
    with pytest.raises(ConversationNotFoundError, match=r"thesis\.tex") as refused:
        library.delete(ID)
    assert refused.value.kind == "foreign"
    (root / ID / "thesis.tex").rename(root / ID / "transcript.jsonl")
    with pytest.raises(CorruptTranscriptError, match="not ours"):
        library.delete(ID)
    assert (root / ID / "transcript.jsonl").read_text() == "years of work"


def test_a_directory_in_the_locks_place_is_an_error(library, root):
    """Then any process could be a writer: nothing is deleted, and delete() raises an error instead of trying for ever."""
    chat = make(library, "a")
    (root / chat / "lock").unlink()
    (root / chat / "lock").mkdir()
    with pytest.raises(StorageError, match=r"lock: cannot take .* a directory is in the place"):
        library.delete(chat)
    assert (root / chat / "transcript.jsonl").exists()


def test_delete_takes_nothing_along_that_is_not_of_the_conversation(library, root):
    """P13: notes of the user's, a backup, another conversation with a writer at work: they are named, and nothing goes.

    The incident: a live conversation inside the folder of another went with it, and its writer's next append was lost.
    """
    chat = make(library, "a")
    (root / chat / "transcript.jsonl.bak").write_text("a copy")
    with ConversationStore(root / "sub") as inner:
        inner.initialize(messages=[{"n": 1}])
        (root / "sub").rename(root / chat / "sub")
        with pytest.raises(CorruptTranscriptError, match=r"other files: 'sub', 'transcript\.jsonl\.bak'") as caught:
            library.delete(chat)
        assert caught.value.kind == "foreign"
        inner.append_message({"n": 2})
    with library.open(chat) as store:
        store.append_message({"n": 3})
    (root / chat / "sub").rename(root / "sub")
    (root / chat / "transcript.jsonl.bak").unlink()
    (root / chat / f".tmp-{'0' * 32}").write_text("a replace that was killed")
    library.delete(chat)
    assert [path.name for path in root.iterdir()] == ["sub"]


@pytest.mark.parametrize("folder", ["archive", "quarantine"])
def test_delete_takes_nothing_along_from_the_archive_and_the_quarantine(library, root, folder):
    """P13: foreign files beside the earlier generations, or in quarantine, are not the conversation's."""
    chat = make(library, "a")
    with library.open(chat) as store:
        store.replace_transcript([])
    with (root / chat / "transcript.jsonl").open("ab") as transcript:
        transcript.write(b'{"seq":1,')
    library.open(chat).close()  # keeps that in quarantine
    (root / chat / folder / "notes.txt").write_text("mine")
    with pytest.raises(CorruptTranscriptError, match=rf"other files: '{folder}/notes\.txt'"):
        library.delete(chat)
    (root / chat / folder / "notes.txt").unlink()
    library.delete(chat)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("below", ["sub", "sub/deeper", "archive/sub"])
def test_no_conversation_is_created_inside_anothers_folder(library, root, below):
    """P13: it would be gone with that one. The refusal names the conversation around, and nothing was made."""
    chat = make(library, "a")
    inside = ConversationStore(root / chat / below)
    before = tree(root)
    for create in (inside.initialize, inside.load_or_initialize):
        with pytest.raises(ConversationExistsError, match=f"inside that of another conversation, {root / chat};"):
            create()
    assert inside.exists()
    with pytest.raises(ConversationExistsError, match="inside that of another"):
        ConversationLibrary(root / chat).create()
    assert tree(root) == before


@pytest.mark.parametrize("folder", ["/c", "/chats/mine"])
def test_a_conversation_in_any_folder_is_deleted_by_its_path(folder):
    """A folder in the root of the file system too. The second delete says that nothing is there."""
    disk = SimulatedFileSystem()
    with ConversationStore(folder, file_system=disk) as store:
        store.initialize(messages=[user_message("a")])
    delete_conversation(folder, file_system=disk)
    assert not [path for path in disk.tree() if path.startswith(folder)]
    with pytest.raises(ConversationNotFoundError):
        delete_conversation(folder, file_system=disk)


@pytest.mark.parametrize("act", ["create", "fork", "delete", "prune"])
def test_trash_is_swept_by_the_next_change(library, root, act):
    """What a delete left that was cut off goes with the next create, fork, delete or prune, though nothing is expired to go.

    A list, an open or a dry run changes nothing.
    """
    chat, doomed = make(library, "a"), make(library, "b")
    trash = root / f".trash-{'a' * 32}"
    (root / doomed).rename(trash)
    (trash / "metadata.json").unlink()
    (trash / "sub").mkdir()
    (trash / "sub" / "file").write_bytes(b"x")
    (root / f".trash-{'b' * 32}").write_bytes(b"a file will do")
    mine = root / ".trash-mine"
    mine.mkdir()
    library.list()
    library.open(chat).close()
    library.prune(keep_generations=0)
    assert trash.exists()
    acts = {
        "create": make,
        "fork": lambda library: library.fork(chat),
        "delete": lambda library: library.delete(chat),
        "prune": lambda library: library.prune(keep_generations=0, dry_run=False),
    }
    acts[act](library)
    assert [path.name for path in root.iterdir() if path.name.startswith(".trash")] == [mine.name]


def test_a_lock_put_into_the_trash_does_not_keep_it_there(library, root, monkeypatch):
    """A process that opened the folder just before it was moved creates a lock file in it; the delete removes that too."""
    chat = make(library, "a")
    real = PosixFileSystem.remove_directory
    late = [True]

    def remove_directory(self: PosixFileSystem, parent: int, name: str) -> None:
        if late and name.startswith(".trash-"):
            late.pop()
            os.close(os.open(root / name / "lock", os.O_CREAT | os.O_WRONLY))
        real(self, parent, name)

    monkeypatch.setattr(PosixFileSystem, "remove_directory", remove_directory)
    library.delete(chat)
    assert not late
    assert list(root.iterdir()) == []


def test_a_delete_succeeds_if_files_cannot_be_removed():
    """A disk that refuses to remove files costs room, not the answer: the conversation is gone, the rest is swept later."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)

    def refuse(call: FileSystemCall) -> None:
        if call.name == "unlink":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    library.delete(ID)
    disk.on_call = None
    assert library.list() == []
    assert any("/.trash-" in path for path in disk.tree())
    make(library, "b", id=ID)
    assert not any("/.trash-" in path for path in disk.tree())
    assert disk.open_handles == []
