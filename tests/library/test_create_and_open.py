"""A conversation is created completely or not at all, and opened as by the store."""

from __future__ import annotations

import errno
from inspect import signature

import pytest

from tests.kit.cases import for_each
from tests.kit.messages import user_message
from tests.kit.trees import tree
from tests.library.helpers import ID, OTHER_ID, UUID, make, texts
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    InvalidMessageError,
    InvalidMetadataError,
    ReadOnlyError,
    StorageError,
)
from transcript_store._log import log
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def test_help_shows_what_a_library_takes():
    """``__new__`` takes anything, and chooses the kind of library; Python shows its signature unless another one is declared."""
    (_, *taken), shown = signature(ConversationLibrary.__init__).parameters, signature(ConversationLibrary).parameters
    assert [*shown] == taken
    assert {"encryption_key", "retired_keys", "redact"} <= shown.keys()


@pytest.mark.parametrize("begin", ["load_or_initialize", "initialize", "restore"])
def test_what_a_store_of_the_library_creates_has_the_id_of_its_folder(library, begin):
    """It got another one: ``open`` refused what ``load_or_initialize`` had created and filled."""
    with library.store(ID) as store:
        getattr(store, begin)(*([[user_message("a")]] if begin == "restore" else []))
        store.append_message(user_message("b"))
        assert store.id == ID
    with library.open(ID) as store:
        assert texts(store)[-1] == "b"
    with library.store(OTHER_ID) as store, pytest.raises(ValueError, match=OTHER_ID):
        store.initialize(id=ID)
    assert [summary.id for summary in library.list()] == [ID]


def test_a_conversation_is_created_with_everything_it_begins_with(library, root):
    """create() gives a loaded store on a folder of the new id, with its metadata and first messages."""
    tools = [{"name": "look", "description": "looks", "parameters": {"type": "object"}}]
    with library.create(
        provider="claude",
        model="m",
        system_prompt="be brief",
        tools=tools,
        labels={"title": "t"},
        messages=[user_message("a"), user_message("b")],
        extras=[None, {"tokens": 3}],
    ) as store:
        store.append_message(user_message("c"))
        metadata = store.get_metadata()
        assert [record.extra for record in store.get_records()] == [None, {"tokens": 3}, None]
    assert UUID.fullmatch(metadata.id)
    assert (metadata.provider, metadata.model, metadata.system_prompt, metadata.tools, metadata.labels) == (
        "claude",
        "m",
        "be brief",
        tools,
        {"title": "t"},
    )
    assert metadata.forked_from is None
    assert [path.name for path in root.iterdir()] == [metadata.id]
    assert root.stat().st_mode & 0o777 == (root / metadata.id).stat().st_mode & 0o777 == 0o700
    with library.open(metadata.id) as again:
        assert texts(again) == ["a", "b", "c"]


def test_an_id_can_be_chosen_once(library, root):
    """create(id=...) uses it; a second create with it refuses and touches nothing."""
    assert make(library, "a", id=ID) == ID
    before = tree(root)
    with pytest.raises(ConversationExistsError):
        library.create(id=ID, messages=[user_message("b")])
    assert tree(root) == before


def test_a_subclass_takes_what_it_likes(root):
    """The incident: one whose own argument comes first could not be made, since ``__new__`` took a directory and no more."""

    class Mine(ConversationLibrary):
        def __init__(self, user, directory, *more):
            super().__init__(directory)
            self.user, self.more = user, more

    mine = Mine("somebody", root, 3)
    assert (mine.user, mine.directory, mine.more) == ("somebody", str(root), (3,))
    assert texts(mine.create(messages=[user_message("a")])) == ["a"]


def test_options_go_to_the_store(library):
    """create() and open() take what a ConversationStore takes; a library option is not one of them."""
    chat = make(library, "a")
    with library.open(chat, read_only=True) as reader, library.open(chat, durability="process-crash") as writer:
        writer.append_message(user_message("b"))
        assert reader.refresh().records_added == 1
        with pytest.raises(ReadOnlyError):
            reader.append_message(user_message("c"))
        with pytest.raises(ConversationLockedError):
            library.open(chat)
    with library.create(max_line_bytes=1024) as store, pytest.raises(InvalidMessageError):
        store.append_message(user_message("x" * 2000))
    with pytest.raises(ReadOnlyError):
        library.create(read_only=True)
    with pytest.raises(ValueError, match="durability"):
        library.open(chat, durability="none")
    with pytest.raises(TypeError):
        library.open(chat, file_system=PosixFileSystem())


def test_a_long_conversation_can_be_opened_by_its_tail(library, monkeypatch):
    """``verify`` goes to the load."""
    monkeypatch.setattr(log, "TAIL_BYTES", 300)
    messages = [{"n": n, "text": "x" * 100} for n in range(30)]
    with library.create(messages=messages) as store:
        chat = str(store.get_metadata().id)
    with library.open(chat, verify="tail") as store:
        assert not store.is_fully_verified
        assert store.get_messages(last=3) == messages[-3:]
        assert store.get_messages() == messages
    with library.open(chat) as store:
        assert store.is_fully_verified


def test_making_a_library_touches_nothing(tmp_path):
    """A library may be named before its directory is there: it is empty, and only a create makes the directory."""
    library = ConversationLibrary(tmp_path / "a" / "b")
    assert library.list() == []
    for act in (library.open, library.fork, library.delete):
        with pytest.raises(ConversationNotFoundError, match=ID):
            act(ID)
    assert list(tmp_path.iterdir()) == []
    chat = make(library, "x")
    assert (tmp_path / "a" / "b" / chat / "transcript.jsonl").is_file()
    assert repr(library) == f"ConversationLibrary('{tmp_path}/a/b')"


def test_a_library_may_be_the_root_directory():
    """The path of a conversation in ``/`` has one slash."""
    library = ConversationLibrary("/", file_system=SimulatedFileSystem())
    with library.create(id=ID) as store:
        assert store.directory == f"/{ID}"
    assert [summary.directory for summary in library.list()] == [f"/{ID}"]


def test_the_users_path_may_go_through_a_link(tmp_path, library, root):
    """P16: only the user's own path may; the conversations in it may not be links."""
    chat = make(library, "a")
    (tmp_path / "link").symlink_to(root)
    through = ConversationLibrary(tmp_path / "link")
    assert [summary.id for summary in through.list()] == [chat]
    fork = through.fork(chat)
    through.delete(chat)
    assert [summary.id for summary in library.list()] == [fork]


def test_what_is_not_there_is_not_found(library, root):
    """An unknown id, an empty folder and the beginning of a create hold no conversation, for any call."""
    make(library, "a")
    (root / OTHER_ID).mkdir()
    for chat in (ID, OTHER_ID):
        for act in (library.open, library.fork, library.delete):
            with pytest.raises(ConversationNotFoundError):
                act(chat)
    assert make(library, "b", id=OTHER_ID) == OTHER_ID  # an empty folder may be used


@pytest.mark.parametrize("error", [InvalidMessageError, InvalidMetadataError])
def test_a_create_that_is_refused_leaves_nothing(library, root, error):
    """Bad arguments are found before anything is made."""
    make(library)
    before = tree(root)
    with pytest.raises(error):
        library.create(messages=[{"n": float("nan")}]) if error is InvalidMessageError else library.create(model=3)
    assert tree(root) == before


@pytest.mark.parametrize("do", ["create", "fork"])
def test_a_full_disk_leaves_nothing_under_an_id_that_nobody_knows(do):
    """A create or fork that the disk refuses removes its files: the caller never got the id, so the caller could not."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)
    before = disk.tree()

    def full(call: FileSystemCall) -> None:
        if call.name == "write" and "/.tmp-" in call.path:
            raise OSError(errno.ENOSPC, "injected")

    disk.on_call = full
    with pytest.raises(StorageError, match="There is none yet"):
        library.create() if do == "create" else library.fork(ID)
    assert disk.tree() == before
    assert disk.open_handles == []


def test_a_create_that_fails_under_a_known_id_can_be_tried_again():
    """The caller chose the id, so the folder stays: the next create with that id continues there."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)

    def full(call: FileSystemCall) -> None:
        if call.name == "write" and "/.tmp-" in call.path:
            raise OSError(errno.ENOSPC, "injected")

    disk.on_call = full
    with pytest.raises(StorageError):
        library.create(id=ID)
    disk.on_call = None
    assert f"/chats/{ID}" in disk.tree()
    assert library.list() == []
    assert make(library, "a", id=ID) == ID


def names_on(disk: SimulatedFileSystem) -> set[str]:
    """What the library holds, by name."""
    return {path.split("/")[2] for path in disk.tree() if path.startswith("/chats/")}


def test_a_half_that_the_disk_would_not_remove_is_removed_by_the_next_create():
    """The disk refused to finish a conversation, and to remove it. A note tells of the half, until that is gone."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)

    def refuse(call: FileSystemCall) -> None:
        if call.name in ("write", "rename"):
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    with pytest.raises(StorageError):
        library.create()
    disk.on_call = None
    (half,) = (name for name in names_on(disk) - {ID} if UUID.fullmatch(name))
    assert names_on(disk) == {ID, half, f".new-{half}"}
    make(library, "b", id=OTHER_ID)
    assert names_on(disk) == {ID, OTHER_ID}


@for_each("is_committed", [False, True])
@for_each("name", ["create", "try_lock", "status", "write", "unlink", "close"])
def test_a_note_that_the_disk_refuses_stops_no_create(name, is_committed):
    """It only helps to sweep. One that stays goes with the next create, and the conversation stays."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)

    def refuse(call: FileSystemCall) -> None:
        if (
            call.name == name
            and "/.new-" in call.path
            and sum(path.endswith("/transcript.jsonl") for path in disk.tree()) > is_committed
        ):
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    chat = make(library, "b")
    assert disk.open_handles == []
    disk.on_call = None
    make(library, "c", id=OTHER_ID)
    assert names_on(disk) == {ID, chat, OTHER_ID}
