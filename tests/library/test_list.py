"""A list of a thousand conversations, the newest first, although two are damaged and one is unfinished."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.kit.machines import Counting
from tests.kit.messages import user_message
from tests.kit.trees import transcript_lines, tree
from tests.library.helpers import ID, OTHER_ID, flip_a_byte, make
from transcript_store import (
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    StorageError,
    list_conversations,
    verify,
)
from transcript_store._log.record import GENESIS, close_line
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

# ---- list ------------------------------------------------------------------------------------------------------------


def test_a_list_says_what_there_is(library, root):
    """Each summary says what the metadata and the last record say, whether the store was closed or is being written."""
    chat = make(library, "a", provider="claude", model="m", labels={"title": "Moving house", "colour": "red"})
    store = library.open(chat)
    store.append_message(user_message("b"))
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
    store.replace_transcript([], replace_labels={})
    [summary] = library.list()
    assert (summary.title, summary.record_count, summary.generation, summary.damage) == (None, 0, 1, None)
    store.close()


def test_a_list_is_read_page_by_page():
    """Behind the last one of a page comes the next, and each comes once, also those that changed at the same moment."""
    files = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=files)
    with library.group() as group:
        for number in range(5):
            group.add(messages=[user_message(str(number))])
    whole, pages = library.list(), []
    page = library.list(limit=2)
    for _ in range(4):
        pages.append(page)
        page = library.list(limit=2, before=page[-1]) if page else []
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [summary for page in pages for summary in page] == whole


def test_labels_are_listed(library):
    """All of them, as they are now; a summary can be told apart by its labels, and is still hashed."""
    plain, labelled = make(library, "a"), make(library, "a", labels={"title": "t", "source": "claude-code"})
    found = {summary.id: summary for summary in library.list()}
    assert (found[plain].labels, found[labelled].labels) == ({}, {"title": "t", "source": "claude-code"})
    assert len(set(found.values())) == 2


def test_the_last_extra_on_demand(library, root):
    """The extra of the last whole record, message or event; None if it has none, or if it was not requested."""
    chat = make(library, "a")
    with library.open(chat) as store:
        for append, expected in (
            (lambda: store.append_message(user_message("b"), extra={"source": {"line": 2}}), {"source": {"line": 2}}),
            (lambda: store.append_message(user_message("c")), None),
            (
                lambda: store.append_messages([user_message("d"), None], extras=[None, {"hash": "x" * 9000}]),
                {"hash": "x" * 9000},
            ),
        ):
            append()
            assert [summary.last_extra for summary in library.list(last_extra=True)] == [expected]
            assert [summary.last_extra for summary in list_conversations(root, last_extra=True)] == [expected]
            assert [summary.last_extra for summary in library.list()] == [None]
    with (root / chat / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":6,"at":"2026-')
    [summary] = library.list(last_extra=True)
    assert (summary.last_extra, summary.damage) == ({"hash": "x" * 9000}, None), "a torn tail is not the last record"


def test_the_last_extra_of_what_is_no_record(library, root):
    """P15: a line may verify and contain anything: its extra is then None, without an error."""
    for body in (
        b'{"seq":2,"at":"2026-11-22T00:00:00.000000Z","extra":[1]',
        b'{"seq":2,"at":"2026-11-22T00:00:00.000000Z",x',
    ):
        chat = make(library, "a")
        path = root / chat / "transcript.jsonl"
        line, _ = close_line(transcript_lines(root / chat)[-1][-35:-3], body)
        path.write_bytes(path.read_bytes() + line)
    assert [summary.last_extra for summary in library.list(last_extra=True)] == [None, None]
    assert [summary.record_count for summary in library.list()] == [2, 2]


def test_the_newest_comes_first(library):
    """Ordered by when something was last said; not by when it was made, and a rename is no news."""
    first, second, third = (make(library, name, labels={"title": name}) for name in ("1", "2", "3"))
    assert [summary.id for summary in library.list()] == [third, second, first]
    with library.open(first) as store:
        store.append_message(user_message("news"))
    assert [summary.id for summary in library.list()] == [first, third, second]
    with library.open(second) as store:
        store.update_metadata(labels={"title": "renamed"})
        found = library.list()
        assert [summary.id for summary in found] == [first, third, second]
        assert found[2].title == "renamed"
        assert (found[2].touched_at or "") > (found[0].touched_at or "")


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
    (path / "transcript.jsonl").write_bytes(b"".join(transcript_lines(path)[:-1]))


def _later_version(path: Path) -> None:
    header, *records = transcript_lines(path)
    body = header[:-44].replace(b'"version":1', b'"version":2')
    (path / "transcript.jsonl").write_bytes(b"".join([close_line(GENESIS, body)[0], *records]))


DAMAGES = {
    _cut_metadata: "metadata.json: its hash does not match",
    _lose_metadata: "metadata.json: it is missing",
    _lose_transcript: "metadata.json remembers a transcript, and it is missing",
    _empty_transcript: "transcript.jsonl: the file is empty",
    _lose_both: "an archive or a quarantine, but no transcript",
    _cut_header: "transcript.jsonl: the first line has no end",
    _overwrite: "transcript.jsonl: the first line is not a header of ours",
    _fill_with_nuls: "transcript.jsonl: the first line is not a header of ours",
    _directory_in_its_place: "transcript.jsonl: a directory is in the place of",
    _link_in_its_place: "transcript.jsonl: a symbolic link is in the place of",
    _directory_in_metadatas_place: "metadata.json: a directory is in the place of",
    _damage_last_record: "the last stored record is missing, or not whole",
    _lose_last_record: "the last stored record is missing, or not whole",
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
    assert not verify(root / ID).is_intact
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
    assert not verify(root / ID).is_intact


def test_a_torn_tail_is_no_damage(library, root):
    """What a crash left behind the last whole record is counted neither as a record nor as damage: a load cuts it."""
    make(library, "a", "b", id=ID)
    with (root / ID / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":3,"at":"2026-')
    [summary] = library.list()
    assert (summary.damage, summary.record_count) == (None, 2)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("size", [100, 16_000, 17_000, 70_000, 3_000_000])
@pytest.mark.parametrize("where", ["header", "first", "last"])
def test_long_lines_are_read_whole(library, size, where):
    """However long the header or the last record is, both are found."""
    with library.create(system_prompt="p" * size if where == "header" else "p") as store:
        store.append_message(user_message("f" * size if where == "first" else "f"))
        store.append_message(user_message("l" * size if where == "last" else "l"))
        [summary] = library.list()
    assert (summary.damage, summary.record_count) == (None, 2)


def test_a_conversation_in_anothers_folder_is_said_to_be(library, root):
    """A copied or renamed folder is listed as damaged, cannot be opened or forked, and can be deleted."""
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
        store.replace_transcript([user_message("c")], labels={"title": "new"})
    (root / ID / "metadata.json").write_bytes(before)
    [summary] = library.list()
    assert (summary.damage, summary.title, summary.record_count, summary.generation) == (None, "new", 1, 1)


def test_a_folder_that_cannot_be_opened_is_listed_as_damaged():
    """One conversation that the disk refuses to show does not hide the others."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    good = make(library, "a")
    make(library, "b", id=ID)

    def refuse(call: FileSystemCall) -> None:
        if call.name == "open_directory" and call.path.endswith(ID):
            raise OSError(errno.EACCES, "injected")

    disk.on_call = refuse
    listed = {summary.id: summary for summary in library.list()}
    assert listed[ID].damage == "it cannot be read: Permission denied"
    assert (listed[ID].record_count, listed[ID].size_bytes) == (None, None)
    assert listed[good].damage is None
    assert disk.open_handles == []


def test_a_library_that_cannot_be_read_is_an_error():
    """An empty list would be a lie."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a")

    def refuse(call: FileSystemCall) -> None:
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
        store.replace_transcript([user_message("shorter")], replace_labels={})


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

        def on_call(
            call: FileSystemCall, called: int = called, nth: int = nth, disk: SimulatedFileSystem = disk
        ) -> None:
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


def test_a_list_reads_little(tmp_path):
    """What is read of a conversation does not grow with its length: metadata, the beginning and the end."""
    files = Counting()
    read = []
    for count in (100, 1_000, 10_000):
        library = ConversationLibrary(tmp_path / str(count), file_system=files)
        with library.create() as store:
            store.append_messages([user_message("x" * 200)] * count)
        files.bytes_read = 0
        [summary] = library.list()
        assert summary.record_count == count
        assert summary.size_bytes is not None
        assert summary.size_bytes > 200 * count
        read.append(files.bytes_read)
        files.bytes_read = 0
        library.list(last_extra=True)
        assert files.bytes_read == read[-1], "the last record is read anyhow"
    assert max(read) <= 34_000
    assert read[1] <= read[2] <= read[1] + 100


# ---- ways out --------------------------------------------------------------------------------------------------------


def test_a_conversation_with_much_metadata_and_no_message_is_listed_as_whole(library):
    """A listing reads the last 4 KiB; a header that is longer than that has no record in it, and is no damage."""
    for length in (10, 5_000, 20_000, 300_000):
        library.create(labels={"title": "x" * length}).close()
    assert [(summary.damage, summary.record_count, summary.torn_bytes) for summary in library.list()] == [
        (None, 0, 0)
    ] * 4


def test_a_tail_of_nuls_of_any_size_is_listed_as_damaged(library, root, monkeypatch):
    """A listing looks back so far for the last record, and no farther: a sparse file would take all memory."""
    monkeypatch.setattr("transcript_store._log.scan.LONGEST_TAIL_BYTES", 2**20)
    with library.create(messages=[user_message("hello")]) as store:
        chat = store.id
    whole = library.create(messages=[user_message("x" * 3 * 2**18)])
    whole.close()
    os.truncate(root / chat / "transcript.jsonl", 8 * 2**20)
    damage = {summary.id: summary.damage for summary in library.list()}
    assert "no whole record ends in its last 1,048,576 bytes" in str(damage[chat])
    assert [found for chat_id, found in damage.items() if chat_id != chat] == [None]


def test_a_first_line_that_was_changed_is_told(tmp_path: Path) -> None:
    """P10: also if all that a list asks of it is still there. A header that is whole is not looked at any closer than its hash."""
    library = ConversationLibrary(tmp_path)
    with library.create(messages=[{"n": 1}], provider="claude", model="m-1") as store:
        path = Path(store.directory, "transcript.jsonl")
    (whole,) = library.list()
    assert whole.damage is None
    path.write_bytes(path.read_bytes().replace(b'"model":"m-1"', b'"model":"m-2"', 1))
    (changed,) = library.list()
    assert changed.damage is not None
    assert "transcript.jsonl" in changed.damage
    assert changed.model == "m-1"


@pytest.mark.parametrize("limit", [-1, True, 1.5, "1"])
def test_a_page_of_no_count_is_refused(library, limit):
    """A slice would accept any of them, and return a plausible but wrong list."""
    make(library, "a")
    with pytest.raises(ValueError, match="limit must be an int from 0"):
        library.list(limit=limit)
    assert library.list(limit=0) == []
    with pytest.raises(TypeError, match="the last summary of the page before, not str"):
        library.list(before=ID)
