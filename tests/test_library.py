"""Many conversations in one directory: made, found, listed, copied and thrown away; and the generations of each.

The stories: somebody has a thousand chats and wants the newest ones on top, although two are damaged and one is half
made; somebody tries another way from the middle of a chat; somebody pasted a key into a chat and wants it gone.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    FileStore,
    GenerationNotFoundError,
    InvalidIdError,
    InvalidMessageError,
    InvalidMetadataError,
    ReadOnlyError,
    Snapshot,
    StorageError,
    list_conversations,
    repair,
    verify,
)
from transcript_store._log import log
from transcript_store._log.record import GENESIS, close_line
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.testing import Call, SimulatedFileSystem

ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
OTHER_ID = "ffffffff-0000-4000-8000-000000000001"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    return ConversationLibrary(tmp_path / "chats")


@pytest.fixture
def root(library: ConversationLibrary) -> Path:
    return Path(library.directory)


def says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(store: ConversationStore) -> list[str]:
    return [message["content"] for message in store.get_messages()]


def make(library: ConversationLibrary, *contents: str, **fields: Any) -> str:
    with library.create(messages=map(says, contents), **fields) as store:
        return store.get_metadata().id


def lines_of(path: Path) -> list[bytes]:
    return (path / "transcript.jsonl").read_bytes().splitlines(keepends=True)


def without_number_and_hash(line: bytes) -> bytes:
    return line[line.index(b",") : -44]


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def is_found(secret: bytes, root: Path) -> bool:
    return any(secret in path.read_bytes() for path in root.rglob("*") if path.is_file())


def flip_a_byte(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


# ---- create and open -------------------------------------------------------------------------------------------------


def test_a_conversation_is_created_with_everything_it_begins_with(library, root):
    """create() gives a loaded store on a folder of the new id, with its metadata and first messages."""
    tools = [{"name": "look", "description": "looks", "parameters": {"type": "object"}}]
    with library.create(
        provider="claude",
        model="m",
        system_prompt="be brief",
        tools=tools,
        labels={"title": "t"},
        messages=[says("a"), says("b")],
        extras=[None, {"tokens": 3}],
    ) as store:
        store.append_message(says("c"))
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
        library.create(id=ID, messages=[says("b")])
    assert tree(root) == before


def test_options_go_to_the_store(library):
    """create() and open() take what a ConversationStore takes; a library option is not one of them."""
    chat = make(library, "a")
    with library.open(chat, read_only=True) as reader, library.open(chat, durability="process-crash") as writer:
        writer.append_message(says("b"))
        assert reader.refresh().records_added == 1
        with pytest.raises(ReadOnlyError):
            reader.append_message(says("c"))
        with pytest.raises(ConversationLockedError):
            library.open(chat)
    with library.create(max_line_bytes=1024) as store, pytest.raises(InvalidMessageError):
        store.append_message(says("x" * 2000))
    with pytest.raises(ReadOnlyError):
        library.create(read_only=True)
    with pytest.raises(ValueError, match="durability"):
        library.open(chat, durability="none")
    with pytest.raises(TypeError):
        library.open(chat, file_system=PosixFileSystem())


def test_a_long_conversation_can_be_opened_by_its_tail(library, monkeypatch):
    """``verify`` goes to the load."""
    monkeypatch.setattr(log, "_TAIL_BYTES", 300)
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
    """A create or fork that the disk refuses takes away what it made: nobody was told its id, so nobody could."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)
    before = disk.tree()

    def full(call: Call) -> None:
        if call.name == "write" and "/.tmp-" in call.path:
            raise OSError(errno.ENOSPC, "injected")

    disk.on_call = full
    with pytest.raises(StorageError, match="There is none yet"):
        library.create() if do == "create" else library.fork(ID)
    assert disk.tree() == before
    assert disk.open_handles == []


def test_a_create_that_fails_under_a_known_id_can_be_tried_again():
    """The caller chose the id, so the folder is the caller's: the next create with it goes on there."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)

    def full(call: Call) -> None:
        if call.name == "write" and "/.tmp-" in call.path:
            raise OSError(errno.ENOSPC, "injected")

    disk.on_call = full
    with pytest.raises(StorageError):
        library.create(id=ID)
    disk.on_call = None
    assert f"/chats/{ID}" in disk.tree()
    assert library.list() == []
    assert make(library, "a", id=ID) == ID


# ---- ids and names ---------------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    ".",
    "..",
    "../" + ID,
    ID + "/..",
    ID + "/",
    "/" + ID,
    "/etc/passwd",
    ID.upper(),
    ID + "\n",
    ID + "\0",
    "\0",
    " " + ID,
    ID[:-1],
    ID + "0",
    ID.replace("-", ""),
    "{" + ID + "}",
    "urn:uuid:" + ID,
    ID.replace("0", "٠"),
    ID.replace("a", "\ud800"),
    ".trash-" + "0" * 32,
    "x" * 100_000,
    ID.encode(),
    None,
    7,
    uuid.UUID(ID),
    Path(ID),
    type("Sly", (str,), {"__format__": lambda self, spec: "../../etc"})(ID),
]


@pytest.mark.parametrize("chat", HOSTILE, ids=lambda chat: ascii(chat)[:40])
def test_a_hostile_id_never_reaches_the_disk(chat):
    """P16: an id is looked at before a path is made of it: not one call to the file system is made."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)
    calls = disk.calls_made
    acts: list[Callable[[Any], object]] = [library.open, library.fork, library.delete]
    if chat is not None:  # a create without an id makes one
        acts.append(lambda given: library.create(id=given))
    for act in acts:
        with pytest.raises(InvalidIdError) as refused:
            act(chat)
        assert len(str(refused.value)) < 200
    assert disk.calls_made == calls


@pytest.mark.parametrize("leads_to", ["a conversation", "an empty folder", "nowhere"])
def test_a_link_is_not_followed(tmp_path, library, root, leads_to):
    """P16: a link in the library is not a conversation of it, wherever it leads: not listed, opened, forked, deleted,
    nor created through.
    """
    make(library, "a")
    elsewhere = tmp_path / "elsewhere"
    if leads_to == "a conversation":
        make(ConversationLibrary(elsewhere), "secret", id=ID)
    elif leads_to == "an empty folder":
        (elsewhere / ID).mkdir(parents=True)
    (root / ID).symlink_to(elsewhere / ID)
    before = tree(tmp_path)
    assert [summary.id for summary in library.list()] != [ID]
    assert len(library.list()) == len(list_conversations(root)) == 1
    for act in (library.open, library.fork, library.delete):
        with pytest.raises(CorruptTranscriptError, match="a symbolic link stands where") as refused:
            act(ID)
        assert refused.value.kind == "foreign"
    with pytest.raises(ConversationExistsError, match="symbolic link"):
        library.create(id=ID)
    assert tree(tmp_path) == before


def test_a_file_in_a_folders_place_is_not_ours(library, root):
    """A file that is called like a conversation is passed over, and never overwritten or deleted."""
    make(library, "a")
    (root / ID).write_bytes(b"mine")
    assert len(library.list()) == 1
    for act in (library.open, library.fork, library.delete):
        with pytest.raises(CorruptTranscriptError, match="a file stands where"):
            act(ID)
    with pytest.raises(ConversationExistsError, match="a file stands where"):
        library.create(id=ID)
    assert (root / ID).read_bytes() == b"mine"


def test_a_library_that_is_a_file(tmp_path):
    """A file in the library's place is not an empty library: every call names it, and nothing can be made in it."""
    (tmp_path / "chats").write_bytes(b"mine")
    library = ConversationLibrary(tmp_path / "chats")
    for call in (library.list, lambda: list_conversations(tmp_path / "chats"), lambda: library.open(str(uuid.uuid4()))):
        with pytest.raises(StorageError, match=r"Not a directory .ENOTDIR.; move away the file") as caught:
            call()
        assert caught.value.filename == str(tmp_path / "chats")
    for act in (library.open, library.fork, library.delete, lambda chat: library.create(id=chat)):
        with pytest.raises(StorageError):
            act(ID)
    assert (tmp_path / "chats").read_bytes() == b"mine"


# ---- list ------------------------------------------------------------------------------------------------------------


def test_a_list_says_what_there_is(library, root):
    """Each summary says what the metadata and the last record say, whether the store was closed or is being written."""
    chat = make(library, "a", provider="claude", model="m", labels={"title": "Moving house", "colour": "red"})
    store = library.open(chat)
    store.append_message(says("b"))
    store.append_event({"marker": 1})
    for _ in range(2):  # live, then closed
        [summary] = library.list()
        metadata = store.get_metadata() if store.record_count else None
        assert metadata is not None
        assert summary.id == chat
        assert summary.directory == str(root / chat)
        assert (summary.title, summary.provider, summary.model) == ("Moving house", "claude", "m")
        assert (summary.created_at, summary.updated_at) == (metadata.created_at, metadata.updated_at)
        assert (summary.record_count, summary.generation) == (3, 0)
        assert summary.size_bytes == (root / chat / "transcript.jsonl").stat().st_size
        assert summary.damage is None
        store.close()
        store = library.open(chat)
    store.replace_transcript([], labels={})
    [summary] = library.list()
    assert (summary.title, summary.record_count, summary.generation, summary.damage) == (None, 0, 1, None)
    store.close()


def test_the_newest_comes_first(library):
    """Ordered by the last change, be it a message or the metadata; not by when it was made."""
    first, second, third = (make(library, name, labels={"title": name}) for name in ("1", "2", "3"))
    assert [summary.id for summary in library.list()] == [third, second, first]
    with library.open(first) as store:
        store.append_message(says("news"))
    assert [summary.id for summary in library.list()] == [first, third, second]
    with library.open(second) as store:
        store.update_metadata(labels={"title": "renamed"})
        [found, *_] = library.list()
        assert (found.id, found.title) == (second, "renamed")


def test_folders_of_any_name_are_listed_by_the_function(tmp_path, library, root):
    """list_conversations() lists whatever is a conversation; the library only what it could open by its id."""
    chat = make(library, "a")
    with ConversationStore(root / "my agent") as store:
        store.initialize()
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("mine")
    (root / "empty").mkdir()
    (root / "readme").write_text("mine")
    (root / "other-log").mkdir()
    (root / "other-log" / "transcript.jsonl").write_text('{"role":"user"}\n')
    (root / f".trash-{'0' * 32}").mkdir()
    shutil.copytree(root / chat, root / f".trash-{'1' * 32}")
    assert sorted(Path(found.directory).name for found in list_conversations(root)) == [chat, "my agent"]
    assert [found.id for found in library.list()] == [chat]
    with pytest.raises(ConversationNotFoundError):
        list_conversations(tmp_path / "nowhere")


def test_half_created_folders_are_passed_over(library, root):
    """What a create leaves that was killed before its commit is no conversation."""
    chat = make(library, "a", id=ID)
    shutil.copytree(root / chat, root / OTHER_ID)
    (root / OTHER_ID / "transcript.jsonl").unlink()
    document = (root / OTHER_ID / "metadata.json").read_bytes()
    body = re.sub(rb'"mark": \{[^}]*\}', b'"mark": null', document)[:-44]
    (root / OTHER_ID / "metadata.json").write_bytes(
        body + b',"hash":"' + sha256(body).hexdigest()[:32].encode() + b'"}\n'
    )
    assert [found.id for found in library.list()] == [ID]
    assert len(list_conversations(root)) == 1


def _cut_metadata(path: Path) -> None:
    (path / "metadata.json").write_bytes((path / "metadata.json").read_bytes()[:-5])


def _lose_metadata(path: Path) -> None:
    (path / "metadata.json").unlink()


def _lose_transcript(path: Path) -> None:
    (path / "transcript.jsonl").unlink()


def _empty_transcript(path: Path) -> None:
    (path / "transcript.jsonl").write_bytes(b"")


def _lose_both(path: Path) -> None:
    (path / "archive").mkdir()
    _lose_metadata(path)
    _lose_transcript(path)


def _cut_header(path: Path) -> None:
    content = (path / "transcript.jsonl").read_bytes()
    (path / "transcript.jsonl").write_bytes(content[: content.index(b"\n") - 3])


def _overwrite(path: Path) -> None:
    (path / "transcript.jsonl").write_bytes(b"hello, world\n")


def _fill_with_nuls(path: Path) -> None:
    (path / "transcript.jsonl").write_bytes(bytes(100_000))


def _directory_in_its_place(path: Path) -> None:
    _lose_transcript(path)
    (path / "transcript.jsonl").mkdir()


def _link_in_its_place(path: Path) -> None:
    (path / "transcript.jsonl").rename(path.parent.parent / "elsewhere")
    (path / "transcript.jsonl").symlink_to("../../elsewhere")


def _directory_in_metadatas_place(path: Path) -> None:
    _lose_metadata(path)
    (path / "metadata.json").mkdir()


def _damage_last_record(path: Path) -> None:
    flip_a_byte(path / "transcript.jsonl", (path / "transcript.jsonl").stat().st_size - 60)


def _lose_last_record(path: Path) -> None:
    (path / "transcript.jsonl").write_bytes(b"".join(lines_of(path)[:-1]))


def _later_version(path: Path) -> None:
    header, *records = lines_of(path)
    body = header[:-44].replace(b'"version":1', b'"version":2')
    (path / "transcript.jsonl").write_bytes(b"".join([close_line(GENESIS, body)[0], *records]))


DAMAGES = {
    _cut_metadata: "metadata.json: its hash does not match",
    _lose_metadata: "metadata.json: it is missing",
    _lose_transcript: "metadata.json remembers a transcript, and there is none",
    _empty_transcript: "transcript.jsonl: the file is empty",
    _lose_both: "an archive or a quarantine, but no transcript",
    _cut_header: "transcript.jsonl: the first line has no end",
    _overwrite: "transcript.jsonl: the first line is not a header of ours",
    _fill_with_nuls: "transcript.jsonl: the first line is not a header of ours",
    _directory_in_its_place: "transcript.jsonl: a directory stands where",
    _link_in_its_place: "transcript.jsonl: a symbolic link stands where",
    _directory_in_metadatas_place: "metadata.json: a directory stands where",
    _damage_last_record: "the last record that was stored is not there, or not whole",
    _lose_last_record: "the last record that was stored is not there, or not whole",
    _later_version: "this program reads version 1",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_conversation_is_listed_as_damaged_and_breaks_nothing(library, root, damage):
    """It is listed under its folder's id, says what is wrong, and the others are listed as ever; it can be deleted."""
    good = make(library, "a")
    make(library, "b", "c" * 30_000, id=ID, labels={"title": "t"})
    damage(root / ID)
    before = tree(root)
    listed = {summary.id: summary for summary in library.list()}
    assert set(listed) == {good, ID}
    assert listed[good].damage is None
    assert DAMAGES[damage] in (listed[ID].damage or "")
    assert not verify(root / ID).is_whole
    by_folder = {Path(summary.directory).name: summary for summary in list_conversations(root)}
    assert by_folder[ID].damage == listed[ID].damage
    assert tree(root) == before
    library.delete(ID)
    assert [path.name for path in root.iterdir()] == [good]


def test_a_damage_in_the_middle_is_not_looked_at(library, root):
    """A list is not a verification: it says what is damaged at the two ends, and verify() says the rest."""
    make(library, *(f"{number:03} " + "x" * 300 for number in range(200)), id=ID)
    flip_a_byte(root / ID / "transcript.jsonl", 30_000)
    [summary] = library.list()
    assert (summary.damage, summary.record_count) == (None, 200)
    assert not verify(root / ID).is_whole


def test_a_torn_tail_is_no_damage(library, root):
    """What a crash left behind the last whole record is counted neither as a record nor as damage: a load cuts it."""
    make(library, "a", "b", id=ID)
    with (root / ID / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":3,"at":"2026-')
    [summary] = library.list()
    assert (summary.damage, summary.record_count) == (None, 2)


@pytest.mark.parametrize("size", [100, 16_000, 17_000, 70_000, 3_000_000])
@pytest.mark.parametrize("where", ["header", "first", "last"])
def test_long_lines_are_read_whole(library, size, where):
    """However long the header or the last record is, both are found."""
    with library.create(system_prompt="p" * size if where == "header" else "p") as store:
        store.append_message(says("f" * size if where == "first" else "f"))
        store.append_message(says("l" * size if where == "last" else "l"))
        [summary] = library.list()
    assert (summary.damage, summary.record_count) == (None, 2)


def test_a_conversation_in_anothers_folder_is_said_to_be(library, root):
    """A folder that somebody copied or renamed is listed as damaged, is not opened or forked, and can be deleted."""
    make(library, "a", id=ID)
    shutil.copytree(root / ID, root / OTHER_ID)
    listed = {Path(summary.directory).name: summary for summary in library.list()}
    assert listed[ID].damage is None
    assert listed[OTHER_ID].id == OTHER_ID
    assert f"conversation {ID} is in the folder that belongs to {OTHER_ID}" in (listed[OTHER_ID].damage or "")
    for act in (library.open, library.fork):
        with pytest.raises(CorruptTranscriptError, match="belongs to") as refused:
            act(OTHER_ID)
        assert refused.value.kind == "wrong-conversation"
    with library.open(ID):
        pass
    library.delete(OTHER_ID)
    assert [summary.id for summary in library.list()] == [ID]


def test_a_mixed_up_conversation_is_said_to_be(library, root):
    """Metadata of one conversation beside the transcript of another, or of an earlier generation."""
    make(library, "a", id=ID)
    make(library, "b", id=OTHER_ID)
    shutil.copy(root / OTHER_ID / "metadata.json", root / ID / "metadata.json")
    damages = {Path(found.directory).name: found.damage for found in library.list()}
    assert f"transcript.jsonl: it is of conversation {ID}, metadata.json of {OTHER_ID}" in (damages[ID] or "")
    with library.open(OTHER_ID) as store:
        store.replace_transcript([])
    shutil.copy(root / OTHER_ID / "archive" / "transcript-000000.jsonl", root / OTHER_ID / "transcript.jsonl")
    damages = {Path(found.directory).name: found.damage for found in library.list()}
    assert "transcript.jsonl: it is of generation 0, metadata.json of 1" in (damages[OTHER_ID] or "")


def test_a_replace_that_was_cut_off_after_its_commit_is_listed_as_the_load_shows_it(library, root):
    """The header is ahead of metadata.json, so what it says holds."""
    make(library, "a", "b", id=ID, labels={"title": "old"})
    before = (root / ID / "metadata.json").read_bytes()
    with library.open(ID) as store:
        store.replace_transcript([says("c")], labels={"title": "new"})
    (root / ID / "metadata.json").write_bytes(before)
    [summary] = library.list()
    assert (summary.damage, summary.title, summary.record_count, summary.generation) == (None, "new", 1, 1)


def test_a_folder_that_cannot_be_opened_is_listed_as_damaged():
    """One conversation that the disk refuses to show does not hide the others."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    good = make(library, "a")
    make(library, "b", id=ID)

    def refuse(call: Call) -> None:
        if call.name == "open_directory" and call.path.endswith(ID):
            raise OSError(errno.EACCES, "injected")

    disk.on_call = refuse
    listed = {summary.id: summary for summary in library.list()}
    assert listed[ID].damage == "it cannot be looked at: Permission denied"
    assert (listed[ID].record_count, listed[ID].size_bytes) == (None, None)
    assert listed[good].damage is None
    assert disk.open_handles == []


def test_a_library_that_cannot_be_read_is_an_error():
    """An empty list would be a lie."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a")

    def refuse(call: Call) -> None:
        if call.name == "list_directory":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    with pytest.raises(StorageError, match="list the conversations"):
        library.list()
    assert disk.open_handles == []


CHANGES: dict[str, Callable[[ConversationLibrary], object]] = {
    "create": lambda library: make(library, "new", id=ID),
    "delete": lambda library: library.delete(ID),
    "replace": lambda library: _replace(library, ID),
    "delete and create": lambda library: _delete_and_create(library, ID),
}


def _delete_and_create(library: ConversationLibrary, chat: str) -> None:
    library.delete(chat)
    make(library, "new", id=chat)


def _replace(library: ConversationLibrary, chat: str) -> None:
    with library.open(chat) as store:
        store.replace_transcript([says("shorter")], labels={})


@pytest.mark.parametrize("change", CHANGES)
def test_a_list_beside_a_writer_shows_before_or_after(change):
    """Whatever another process does between any two calls of a list, the list has what was there before or after it."""
    seen = set()
    nth = 1
    while True:
        disk = SimulatedFileSystem()
        library = ConversationLibrary("/chats", file_system=disk)
        make(library, id=OTHER_ID)
        if change != "create":
            make(library, "a", "b", id=ID)
        else:
            folder = disk.open_directory("/chats")
            disk.make_directory(folder, ID)  # the half of a create
            disk.close(folder)
        called = disk.calls_made

        def on_call(call: Call, called: int = called, nth: int = nth, disk: SimulatedFileSystem = disk) -> None:
            if call.number == called + nth:
                CHANGES[change](ConversationLibrary("/chats", file_system=disk.another_process()))

        disk.on_call = on_call
        found = {summary.id: (summary.record_count, summary.damage) for summary in library.list()}
        assert found.pop(OTHER_ID) == (0, None)
        seen.add(tuple(found.items()))
        if disk.calls_made < called + nth:
            break
        nth += 1
    before, after = {
        "create": ((), ((ID, (1, None)),)),
        "delete": (((ID, (2, None)),), ()),
        "replace": (((ID, (2, None)),), ((ID, (1, None)),)),
        "delete and create": (((ID, (2, None)),), ((ID, (1, None)),)),
    }[change]
    assert seen >= {before, after}
    between = {()} if change == "delete and create" else set()
    assert seen <= {before, after} | between


class CountingFiles(PosixFileSystem):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        found = super().read(handle, offset, length)
        self.bytes_read += len(found)
        return found


def test_a_list_reads_little(tmp_path):
    """What is read of a conversation does not grow with its length: metadata, the beginning and the end."""
    files = CountingFiles()
    read = []
    for count in (100, 1_000, 10_000):
        library = ConversationLibrary(tmp_path / str(count), file_system=files)
        with library.create() as store:
            store.append_messages([says("x" * 200)] * count)
        files.bytes_read = 0
        [summary] = library.list()
        assert summary.record_count == count
        assert summary.size_bytes is not None
        assert summary.size_bytes > 200 * count
        read.append(files.bytes_read)
    assert max(read) <= 34_000
    assert read[1] <= read[2] <= read[1] + 100


# ---- fork ------------------------------------------------------------------------------------------------------------


def conversation_with_everything(library: ConversationLibrary, root: Path) -> str:
    """Extras, events, a batch, big numbers, every script, and members that this version does not know."""
    with library.create(provider="claude", model="m", system_prompt="p", labels={"title": "t", "k": "v"}) as store:
        chat = store.get_metadata().id
        store.append_message(says("плотность 密度 🎈 \\u0000 \u2028"), extra={"usage": {"tokens": 2**60}})
        store.append_event({"marker": [1, 2]})
        store.append_messages([says("b1"), says("b2"), {"content": [{"batch": [1, 2]}]}], extras=[None, {"e": 1}, None])
        store.append_message({"a": {"batch": [3, 3]}, "n": 1e300})
    path = root / chat / "transcript.jsonl"
    *lines, last = lines_of(root / chat)
    known = last[-35:-3]
    body = b'{"seq":7,"at":"2026-11-22T00:00:00.000000Z","clock":"2026-11-20T00:00:00.000000Z","message":{"x":1},"later":[1,[2]]'
    line, _ = close_line(known, body)
    path.write_bytes(b"".join([*lines, last, line]))
    return chat


def test_a_fork_has_every_record_byte_for_byte(library, root):
    """Each record is the original's but for its number, its batch mark and its hash; the metadata is the original's."""
    chat = conversation_with_everything(library, root)
    came_from = {"snapshot": "00000000-0000-4000-8000-000000000000", "metadata": {"theirs": "1"}}
    with library.open(chat) as original:
        storage = original._storage
        storage.write_metadata({**storage.members, "restored_from": came_from})  # as restore_snapshot does
        before = original.get_metadata()
        head = original.head
        records = original.get_records()
    files = tree(root / chat)
    fork = library.fork(chat)
    assert UUID.fullmatch(fork)
    assert fork != chat
    assert tree(root / chat) == files
    for old, new in zip(lines_of(root / chat)[1:], lines_of(root / fork)[1:], strict=True):
        assert without_number_and_hash(new) == re.sub(rb',"batch":\[\d+,\d+\]$', b"", without_number_and_hash(old))
    assert b'"later":[1,[2]]' in lines_of(root / fork)[-1]
    assert not any(re.search(rb',"batch":\[\d+,\d+\],"hash"', line) for line in lines_of(root / fork))
    with library.open(fork) as copy:
        assert copy.get_records() == records
        now = copy.get_metadata()
        assert copy.recovery is None
    for field in ("provider", "model", "system_prompt", "tools", "labels", "compaction_count"):
        assert getattr(now, field) == getattr(before, field)
    assert (now.id, now.generation) == (fork, 0)
    assert now.created_at > before.created_at
    assert now.forked_from == {"conversation": chat, "generation": 0, "seq": 7, "head": head}
    assert now.restored_from == before.restored_from
    assert now.restored_from is not None
    assert orjson.loads(lines_of(root / fork)[0])["metadata"]["forked_from"] == now.forked_from
    assert verify(root / fork).is_whole
    assert sorted(path.name for path in (root / fork).iterdir()) == ["lock", "metadata.json", "transcript.jsonl"]


@pytest.mark.parametrize("through_seq", range(8))
def test_a_fork_through_any_record(library, root, through_seq):
    """From none to all, in the middle of a batch too; the origin names the head of the record at which it parted."""
    chat = conversation_with_everything(library, root)
    fork = library.fork(chat, through_seq=through_seq)
    with library.open(chat, read_only=True) as original, library.open(fork) as copy:
        assert copy.get_records() == original.get_records()[:through_seq]
        head = lines_of(root / chat)[through_seq][-35:-3].decode()
        assert copy.get_metadata().forked_from == {
            "conversation": chat,
            "generation": 0,
            "seq": through_seq,
            "head": head,
        }
        copy.append_message(says("another way"))
    assert verify(root / fork).is_whole


@pytest.mark.parametrize("through_seq", [-1, 4, 10**30, 1.0, True, "1"])
def test_a_fork_beyond_the_end_is_refused(library, root, through_seq):
    """And makes nothing."""
    chat = make(library, "a", "b", "c")
    with pytest.raises(ValueError, match="through_seq"):
        library.fork(chat, through_seq=through_seq)
    assert len(list(root.iterdir())) == 1


def test_a_fork_of_a_fork_remembers_the_fork(library):
    """The chain of origins can be followed; each fork remembers one step."""
    first = make(library, "a", "b")
    second = library.fork(first)
    third = library.fork(second, through_seq=1)
    with library.open(third) as store:
        origin = store.get_metadata().forked_from
        assert texts(store) == ["a"]
    assert origin is not None
    assert (origin["conversation"], origin["seq"]) == (second, 1)


def test_a_fork_of_a_replaced_conversation_begins_a_history_of_its_own(library, root):
    """It copies the live generation into its generation 0, without an archive."""
    chat = make(library, "a", "b", "c")
    with library.open(chat) as store:
        store.replace_transcript([says("summary")], compaction_count=1)
        store.append_message(says("d"))
    fork = library.fork(chat)
    with library.open(fork) as copy:
        metadata = copy.get_metadata()
        assert texts(copy) == ["summary", "d"]
        assert (metadata.generation, metadata.compaction_count) == (0, 1)
        assert metadata.forked_from is not None
        assert metadata.forked_from["generation"] == 1
        assert [generation.number for generation in copy.generations()] == [0]
    assert not (root / fork / "archive").exists()


def test_a_fork_needs_no_lock(library, root):
    """The original may have a live writer, even a torn tail: the fork has the whole records that there were."""
    chat = make(library, "a")
    with library.open(chat, durability="process-crash") as writer:
        writer.append_message(says("b"))
        fork = library.fork(chat)
        writer.append_message(says("c"))
        assert texts(writer) == ["a", "b", "c"]
    with (root / chat / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":4,"at"')
    before = tree(root / chat)
    with library.open(fork) as first, library.open(library.fork(chat)) as second:
        assert (texts(first), texts(second)) == (["a", "b"], ["a", "b", "c"])
    assert tree(root / chat) == before


def test_a_damaged_conversation_is_not_forked(library, root):
    """A copy would hide the damage."""
    chat = make(library, *"abcdefgh")
    flip_a_byte(root / chat / "transcript.jsonl", len(b"".join(lines_of(root / chat)[:3])) + 30)
    with pytest.raises(CorruptTranscriptError):
        library.fork(chat, through_seq=1)
    assert len(list(root.iterdir())) == 1


def test_an_empty_conversation_can_be_forked(library):
    """Its metadata is worth a copy."""
    chat = make(library, model="m")
    with library.open(library.fork(chat)) as copy:
        assert (copy.get_messages(), copy.get_metadata().model) == ([], "m")


# ---- delete ----------------------------------------------------------------------------------------------------------


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
        writer.append_message(says("b"))
    with library.open(chat, read_only=True) as reader:
        library.delete(chat)
        assert texts(reader) == ["a", "b"]
        with pytest.raises(ConversationNotFoundError):
            reader.refresh()


def test_a_foreign_folder_is_left_alone(library, root):
    """A folder that is called like a conversation and holds something else is not ours to delete."""
    make(library, "a")
    (root / ID).mkdir()
    (root / ID / "thesis.tex").write_text("years of work")
    with pytest.raises(CorruptTranscriptError, match=r"thesis\.tex") as refused:
        library.delete(ID)
    assert refused.value.kind == "foreign"
    (root / ID / "thesis.tex").rename(root / ID / "transcript.jsonl")
    with pytest.raises(CorruptTranscriptError, match="not ours"):
        library.delete(ID)
    assert (root / ID / "transcript.jsonl").read_text() == "years of work"


def test_a_directory_in_the_locks_place_is_an_error(library, root):
    """Nobody can be told apart from a writer then: nothing is deleted, and delete() says why instead of trying for ever."""
    chat = make(library, "a")
    (root / chat / "lock").unlink()
    (root / chat / "lock").mkdir()
    with pytest.raises(StorageError, match=r"lock: cannot take .* a directory stands"):
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
        with pytest.raises(CorruptTranscriptError, match=r"holds 'sub', 'transcript\.jsonl\.bak' beside") as caught:
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
    """P13: what somebody put beside the earlier generations, or beside what recovery kept, is not the conversation's."""
    chat = make(library, "a")
    with library.open(chat) as store:
        store.replace_transcript([])
    with (root / chat / "transcript.jsonl").open("ab") as transcript:
        transcript.write(b'{"seq":1,')
    library.open(chat).close()  # keeps that in quarantine
    (root / chat / folder / "notes.txt").write_text("mine")
    with pytest.raises(CorruptTranscriptError, match=rf"holds '{folder}/notes\.txt' beside"):
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


@pytest.mark.parametrize("act", ["create", "fork", "delete"])
def test_trash_is_swept_by_the_next_change(library, root, act):
    """What a delete left that was cut off goes with the next create, fork or delete; a list or an open changes nothing."""
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
    assert trash.exists()
    {"create": make, "fork": lambda library: library.fork(chat), "delete": lambda library: library.delete(chat)}[act](
        library
    )
    assert [path.name for path in root.iterdir() if path.name.startswith(".trash")] == [mine.name]


def test_a_lock_put_into_the_trash_does_not_keep_it_there(library, root, monkeypatch):
    """Who opened the folder just before it was moved away puts a lock file into it; the delete removes that too."""
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


def test_what_cannot_be_removed_is_deleted_all_the_same():
    """A disk that refuses to remove files costs room, not the answer: the conversation is gone, the rest is swept later."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)

    def refuse(call: Call) -> None:
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


# ---- generations -----------------------------------------------------------------------------------------------------


def test_generations_tell_the_life_of_a_transcript(library, root):
    """After several replaces: number, when, how many records, head and size of each; the live one last."""
    chat = make(library, "a", "b")
    with library.open(chat) as store:
        heads, counts = [store.head], [2]
        for count in (3, 0, 1):
            store.replace_transcript([says(f"{count} {k}") for k in range(count)])
            store.append_event({"after": count})
            heads.append(store.head)
            counts.append(count + 1)
        found = store.generations()
        assert [generation.number for generation in found] == [0, 1, 2, 3]
        assert [generation.head for generation in found] == heads
        assert [generation.record_count for generation in found] == counts
        assert [generation.is_live for generation in found] == [False, False, False, True]
        assert [generation.damage for generation in found] == [None] * 4
        assert found[-1].began_at == orjson.loads(lines_of(root / chat)[0])["at"]
        assert sorted(str(generation.began_at) for generation in found) == [g.began_at for g in found]
        archived = [root / chat / "archive" / f"transcript-{number:06d}.jsonl" for number in range(3)]
        files = [*archived, root / chat / "transcript.jsonl"]
        assert [generation.size_bytes for generation in found] == [file.stat().st_size for file in files]
        assert [record.message for record in store.get_records(generation=0)] == [says("a"), says("b")]
        assert [record.extra for record in store.get_records(generation=1, last=1)] == [{"after": 3}]
        assert store.get_records(generation=3) == store.get_records()
    with library.open(chat, read_only=True) as reader:
        assert reader.generations() == found
        assert len(reader.get_records(generation=1)) == 4


@pytest.mark.parametrize("number", [-1, True, 1.0, "0"])
def test_a_generation_is_a_number(library, number):
    with library.create() as store:
        for act in (store.delete_generation, lambda number: store.get_records(generation=number)):
            with pytest.raises(ValueError, match="generation must be an int"):
                act(number)


def test_a_generation_that_is_not_there(library):
    """The error names those that are."""
    with library.create() as store:
        store.replace_transcript([])
        store.replace_transcript([])
        store.delete_generation(0)
        for act in (store.delete_generation, lambda number: store.get_records(generation=number)):
            for number in (0, 3):
                with pytest.raises(GenerationNotFoundError, match=f"no generation {number}; there are 1, 2") as missing:
                    act(number)
                assert missing.value.available == (1, 2)
        with pytest.raises(ValueError, match="the live one"):
            store.delete_generation(2)
        assert len(store.generations()) == 2


def _flip(path: Path) -> None:
    flip_a_byte(path, path.stat().st_size - 60)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _cut_a_record(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _another(path: Path) -> None:
    path.write_bytes((path.parent / "transcript-000000.jsonl").read_bytes())


def _a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


ARCHIVE_DAMAGES = {
    _flip: "",
    _cut: "its last record is cut",
    _cut_a_record: "not what generation 2 says it replaced",
    _empty: "the file is empty",
    _another: "its name says generation 1, its header 0",
    _a_directory: "a directory stands where",
}


@pytest.mark.parametrize("damage", ARCHIVE_DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_archive_file_says_so_and_hides_no_other(library, root, damage):
    """Its generation is listed as damaged and cannot be read; the one before it and the one after it can."""
    chat = make(library, "a", "b")
    with library.open(chat) as store:
        store.replace_transcript([says("c"), says("d")])
        store.replace_transcript([says("e")])
        path = root / chat / "archive" / "transcript-000001.jsonl"
        damage(path)
        before, damaged, live = store.generations()
        assert ARCHIVE_DAMAGES[damage] in (damaged.damage or "no damage")
        assert (damaged.number, damaged.record_count, damaged.head, damaged.size_bytes) == (1, None, None, None)
        assert (before.damage, before.record_count, live.damage) == (None, 2, None)
        with pytest.raises(CorruptTranscriptError) as refused:
            store.get_records(generation=1)
        assert refused.value.path == str(path)
        assert [record.message for record in store.get_records(generation=0)] == [says("a"), says("b")]
        assert texts(store) == ["e"]
        assert not verify(root / chat).is_whole
        store.delete_generation(1)
        assert [generation.number for generation in store.generations()] == [0, 2]
    assert verify(root / chat).is_whole


def test_the_last_archived_generation_is_held_against_the_live_header(library, root):
    """A record that somebody took off the end of the last archived generation is missed."""
    chat = make(library, "a", "b")
    with library.open(chat) as store:
        store.replace_transcript([])
        _cut_a_record(root / chat / "archive" / "transcript-000000.jsonl")
        [damaged, _] = store.generations()
        assert "says it replaced: 2 records" in (damaged.damage or "")


def test_a_later_version_in_the_archive_is_not_read(library, root):
    chat = make(library, "a")
    with library.open(chat) as store:
        store.replace_transcript([])
        path = root / chat / "archive" / "transcript-000000.jsonl"
        header = path.read_bytes().splitlines(keepends=True)[0]
        path.write_bytes(close_line(GENESIS, header[:-44].replace(b'"version":1', b'"version":2'))[0])
        [later, _] = store.generations()
        assert "this program reads version 1" in (later.damage or "")


def test_other_files_in_the_archive_are_no_generations(library, root):
    chat = make(library, "a")
    with library.open(chat) as store:
        store.replace_transcript([])
        archive = root / chat / "archive"
        for name in ("transcript-0.jsonl", "transcript-٠٠٠٠٠٠.jsonl", "notes", "transcript-000000.jsonl.gz"):
            (archive / name).write_bytes(b"x")
        assert [generation.number for generation in store.generations()] == [0, 1]


def test_a_reader_cannot_remove_anything(library, root):
    chat = make(library, "a")
    with library.open(chat) as store:
        store.replace_transcript([])
    before = tree(root)
    with library.open(chat, read_only=True) as reader:
        for act in (lambda: reader.delete_generation(0), reader.purge_quarantine):
            with pytest.raises(ReadOnlyError):
                act()
    assert tree(root) == before


def test_purging_says_how_many_pieces_there_were(library, root):
    """Each torn tail was one piece, with its note; a second purge finds none; recovery can use the folder again."""
    chat = make(library, "a")
    for number in range(3):
        with (root / chat / "transcript.jsonl").open("ab") as file:
            file.write(b"torn %d" % number)
        library.open(chat).close()
    with library.open(chat) as store:
        assert len(verify(root / chat).quarantined) == 3
        assert store.purge_quarantine() == 3
        assert store.purge_quarantine() == 0
        assert list((root / chat / "quarantine").iterdir()) == []
    with (root / chat / "transcript.jsonl").open("ab") as file:
        file.write(b"torn 0")
    with library.open(chat) as store:
        assert store.recovery is not None
        assert store.purge_quarantine() == 1
    with library.create() as store:
        assert store.purge_quarantine() == 0


def test_a_secret_can_be_rewritten_away(library, root):
    """Replace without it, delete the generations that have it, purge the quarantine: no file of the folder has it."""
    secret = b"sk-live-0123456789"
    chat = make(library, "hello", f"my key is {secret.decode()}", "thanks", system_prompt=f"use {secret.decode()}")
    with library.open(chat) as store:
        store.append_event({"seen": secret.decode()})
        store.replace_transcript([says("a summary that still has " + secret.decode())])
    with (root / chat / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":2,"at":"2026-11-22T00:00:00.000000Z","message":{"content":"' + secret)
    with library.open(chat) as store:
        clean = [says(text.replace(secret.decode(), "[removed]")) for text in texts(store)]
        store.replace_transcript(clean, system_prompt="use the key")
        assert is_found(secret, root)
        for generation in store.generations()[:-1]:
            store.delete_generation(generation.number)
        assert is_found(secret, root)  # the torn tail
        assert store.purge_quarantine() == 1
        assert not is_found(secret, root)
        assert texts(store) == ["a summary that still has [removed]"]
    assert not is_found(secret, root)
    assert verify(root / chat).is_whole


def test_an_undo_is_found_in_the_archive(library):
    """Rewind: what a replace dropped is in the earlier generation."""
    chat = make(library, "a", "b", "c")
    with library.open(chat) as store:
        store.replace_transcript(store.get_messages()[:1])
        assert texts(store) == ["a"]
        assert [record.message["content"] for record in store.get_records(generation=0) if record.message] == [
            "a",
            "b",
            "c",
        ]


# ---- ways out --------------------------------------------------------------------------------------------------------


WRITING = {"create", "write", "open_append", "make_directory", "rename", "unlink", "truncate"}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_way_out_is_one_that_the_call_has(number):
    """P7: on a read-only mount only who opens a conversation is told of read_only=True; no other call has it."""
    disk = SimulatedFileSystem()
    library, snapshots = ConversationLibrary("/l", file_system=disk), FileStore("/s", file_system=disk)
    for chat in (ID, OTHER_ID):
        library.create(id=chat).close()
    snapshots.save(Snapshot.create(provider="p", messages=[]))
    handle = disk.open_append(disk.open_directory(f"/l/{OTHER_ID}"), "transcript.jsonl")
    disk.write(handle, b"garbage")

    def refuse(call: Call) -> None:
        if call.name in WRITING:
            raise OSError(number, os.strerror(number))

    disk.on_call = refuse
    with pytest.raises(StorageError, match="read_only=True"):
        library.open(ID)
    for call in (
        library.create,
        lambda: library.delete(ID),
        lambda: repair(f"/l/{ID}", dry_run=False, file_system=disk),
        lambda: repair(f"/l/{OTHER_ID}", dry_run=False, file_system=disk),
        lambda: snapshots.save(Snapshot.create(provider="p", messages=[])),
    ):
        with pytest.raises(StorageError) as caught:
            call()
        assert "read_only" not in str(caught.value)
        assert "quarantine" not in str(caught.value)
        assert caught.value.errno == number


def test_who_meets_a_lock_is_told_what_can_be_done(library, root):
    """Who opens can wait, or read; who repairs or deletes can do neither, and is not told so."""
    chat = make(library, "a")
    with library.open(chat):
        with pytest.raises(ConversationLockedError, match="lock_timeout_seconds"):
            library.open(chat)
        for call in (lambda: library.delete(chat), lambda: repair(root / chat, dry_run=False)):
            with pytest.raises(ConversationLockedError, match="close that writer, or try again") as caught:
                call()
            assert "lock_timeout_seconds" not in str(caught.value)
            assert "read_only" not in str(caught.value)


def test_a_repair_that_is_refused_half_way_says_where_the_original_is():
    """Before anything is moved, nothing was; from then on, the damaged files are in place or in quarantine."""
    for name, said in (("open_append", "Nothing of it was changed"), ("rename", "in place or in quarantine/")):
        disk = SimulatedFileSystem()
        ConversationLibrary("/l", file_system=disk).create(id=ID).close()
        disk.write(disk.open_append(disk.open_directory(f"/l/{ID}"), "transcript.jsonl"), b"garbage\n")

        def refuse(call: Call, name: str = name) -> None:
            if call.name == name:
                raise OSError(errno.EIO, "injected")

        disk.on_call = refuse
        with pytest.raises(StorageError, match=said):
            repair(f"/l/{ID}", dry_run=False, file_system=disk)


def test_a_tail_of_nuls_of_any_size_is_listed_as_damaged(library, root, monkeypatch):
    """A listing looks back so far for the last record, and no farther: a sparse file would take all memory."""
    monkeypatch.setattr("transcript_store._log.tail.LONGEST_TAIL_BYTES", 2**20)
    with library.create(messages=[says("hello")]) as store:
        chat = store.id
    whole = library.create(messages=[says("x" * 3 * 2**18)])
    whole.close()
    os.truncate(root / chat / "transcript.jsonl", 8 * 2**20)
    damage = {summary.id: summary.damage for summary in library.list()}
    assert "no whole record ends in its last 1,048,576 bytes" in str(damage[chat])
    assert [found for chat_id, found in damage.items() if chat_id != chat] == [None]
