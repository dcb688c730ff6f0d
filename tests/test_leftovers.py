"""Leftovers of killed processes and other programs in a conversation's folder: removed or reported, never misread.

The incident: mutants that swept nothing, kept too much or said too little of it passed every plain test.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from hashlib import sha256

import pytest

from tests.kit.cases import for_each
from tests.kit.meanwhile import (
    CHAT,
    ID,
    SAID,
    TRANSCRIPT,
    a_conversation,
    file_content,
    in_folder,
    library_on,
    messages,
    opened,
)
from transcript_store import (
    ConversationStore,
    CorruptTranscriptError,
    GenerationNotFoundError,
    StorageError,
    list_conversations,
    salvage,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log.record import GENESIS, Mark, close_line, header_body
from transcript_store._os.names import temporary_name
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

METADATA = f"{CHAT}/metadata.json"
ARCHIVED = f"{CHAT}/archive/transcript-000000.jsonl"


def killed_before_the_commit(*, has_links: bool = True) -> SimulatedFileSystem:
    """A conversation whose writer was killed in a replace, right before the rename: the archive has the live transcript."""
    disk = a_conversation()
    store = opened(disk)

    def stop(call: FileSystemCall) -> None:
        if call.name == "link" and not has_links:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if (call.name, call.path) == ("rename", TRANSCRIPT):
            raise SimulatedStop

    disk.on_call = stop
    with pytest.raises(SimulatedStop):
        store.replace_transcript(SAID[:1])
    disk = disk.kill_process()
    assert file_content(disk, ARCHIVED) == file_content(disk)
    return disk


# ---- a replace that was killed ------------------------------------------------------------------------------------------


def test_a_generation_that_was_not_replaced_yet_is_no_earlier_one() -> None:
    """P4: a reader comes before the next writer: there is one generation, the live one."""
    disk = killed_before_the_commit()
    with ConversationStore(CHAT, file_system=disk, read_only=True) as reader:
        reader.load()
        assert [found.number for found in reader.generations()] == [0]
        with pytest.raises(GenerationNotFoundError) as refused:
            reader.get_records(generation=7)
        assert refused.value.available == (0,)
    assert verify(CHAT, file_system=disk).is_intact
    assert verify(CHAT, file_system=disk).archived_generations == ()


@pytest.mark.parametrize("has_links", [True, False])
def test_what_a_killed_replace_put_into_the_archive_goes_without_a_word(
    has_links: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """P4: it is what is live, by a link or as a copy: the next writer removes it, quarantines nothing and warns of nothing."""
    disk = killed_before_the_commit(has_links=has_links)
    with caplog.at_level(logging.WARNING), opened(disk) as store:
        assert store.get_messages() == SAID
    assert ARCHIVED not in disk.tree()
    assert not any("/quarantine" in path for path in disk.tree())
    assert caplog.text == ""


def test_a_replace_that_was_refused_can_be_done_again() -> None:
    """P7: it was refused after the archive had its entry; the entry of the second attempt takes its place."""
    disk = a_conversation()
    with opened(disk) as store:

        def refuse(call: FileSystemCall) -> None:
            if (call.name, call.path) == ("rename", TRANSCRIPT):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.on_call = refuse
        with pytest.raises(StorageError):
            store.replace_transcript(SAID[:1])
        disk.on_call = None
        store.append_message(SAID[0])
        store.replace_transcript(SAID[:1])
        assert store.get_messages() == SAID[:1]
        assert [record.message for record in store.get_records(generation=0)] == [*SAID, SAID[0]]
    assert verify(CHAT, file_system=disk).is_intact


def test_a_link_that_the_disk_refuses_is_no_reason_to_copy() -> None:
    """P7: links there are, but no room for the name: the replace is refused, and all is as it was."""
    disk = a_conversation()
    before = file_content(disk)
    with opened(disk) as store:

        def refuse(call: FileSystemCall) -> None:
            if call.name == "link":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        disk.on_call = refuse
        with pytest.raises(StorageError) as refused:
            store.replace_transcript(SAID[:1])
        assert refused.value.errno == errno.ENOSPC
        assert file_content(disk) == before
        assert store.get_messages() == SAID


def test_temporaries_are_swept_wherever_they_are() -> None:
    """Whoever was killed between a write and its rename left a file in the folder, the archive or the quarantine."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID)
    in_folder(disk, CHAT, lambda folder: disk.make_directory(folder, "quarantine"))
    left = [f"{folder}/{temporary_name(disk)}" for folder in (CHAT, f"{CHAT}/archive", f"{CHAT}/quarantine")]
    for path in left:
        disk.write_file(path, b"half of it")
    with opened(disk) as store:
        assert store.get_messages() == SAID
        assert not {*left} & disk.tree().keys()


@pytest.mark.parametrize("number", [1, 2])
def test_archived_generations_of_a_restored_backup_are_kept(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """P4, P8: a backup of generation 1 is put back, and the archive has another generation 1, or one that came after it.

    Nothing else may have those messages: they go to quarantine, byte for byte, and that is said.
    """
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID[:1])
    backup = {path: file_content(disk, path) for path in (METADATA, TRANSCRIPT)}
    with opened(disk) as store:
        for n in range(number):
            store.append_message({"role": "user", "content": f"only in the archive {n}"})
            store.replace_transcript(SAID[:2])
    later = {k: file_content(disk, f"{CHAT}/archive/transcript-00000{k}.jsonl") for k in range(1, number + 1)}
    for path, data in backup.items():
        disk.write_file(path, data)
    with caplog.at_level(logging.WARNING), opened(disk) as store:
        assert store.get_messages() == SAID[:1]
        assert [found.number for found in store.generations()] == [0, 1]
    kept = {path: data for path, data in disk.tree().items() if "/quarantine/" in path and not path.endswith(".json")}
    assert sorted(kept.values()) == sorted(later.values())  # type: ignore[type-var]
    assert {path.rpartition("/")[2].rpartition("-")[0] for path in kept} == {f"g{k}-o0" for k in later}
    assert caplog.text.count("a backup was restored; it is kept as") == number


def test_without_its_archive_no_earlier_generation_is_there() -> None:
    """P4: somebody moved the whole archive away: an error that says what there is."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID[:1])
        in_folder(disk, CHAT, lambda folder: disk.rename(folder, "archive", "elsewhere"))
        for number in (0, 7):
            with pytest.raises(GenerationNotFoundError) as refused:
                store.get_records(generation=number)
            assert refused.value.available == (1,)


# ---- damage that is told --------------------------------------------------------------------------------------------------


def test_a_damaged_generation_is_listed_with_the_reason_alone() -> None:
    """P10: its path is that of the archive: what the list says is the reason, and the others are listed as they are."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID[:1])
        disk.write_file(ARCHIVED, file_content(disk, ARCHIVED).replace(b"message 1", b"massage 1"))
        damaged, live = store.generations()
    assert (damaged.number, damaged.is_live, damaged.record_count) == (0, False, None)
    assert damaged.damage is not None
    assert damaged.damage.startswith("bad bytes with a whole record after them (seq 3, byte ")
    assert (live.number, live.is_live, live.record_count, live.damage) == (1, True, 1, None)
    assert live.size_bytes == len(file_content(disk))


def test_a_generation_of_a_later_version_is_listed_as_such() -> None:
    """P20: the error that a program of today gives for it."""
    disk = a_conversation()
    with opened(disk) as store:
        store.replace_transcript(SAID[:1])
        body = header_body(
            conversation=ID, generation=0, at="2026-01-01T00:00:00.000000Z", metadata={}, requires=["more"]
        )
        disk.write_file(ARCHIVED, close_line(GENESIS, body)[0])
        later, live = store.generations()
    assert later.damage is not None
    assert ARCHIVED in later.damage
    assert live.damage is None


def test_a_list_says_how_much_is_torn_and_nothing_of_that_where_it_says_damage() -> None:
    """P8: a tail that the next load cuts is counted in bytes, also behind a header alone; damage is told in words."""
    disk = SimulatedFileSystem()
    library_on(disk).create(id=ID).close()

    def torn_and_damage() -> tuple[int, bool]:
        [summary] = list_conversations("/chats", file_system=disk)
        return summary.torn_bytes, summary.damage is not None

    empty = file_content(disk)
    assert torn_and_damage() == (0, False)
    disk.write_file(TRANSCRIPT, empty + b"torn")
    assert torn_and_damage() == (4, False)
    disk.write_file(TRANSCRIPT, empty)
    with opened(disk) as store:
        store.append_messages(SAID)
    whole = file_content(disk)
    assert torn_and_damage() == (0, False)
    disk.write_file(TRANSCRIPT, whole + b"torn")
    assert torn_and_damage() == (4, False)
    disk.write_file(TRANSCRIPT, whole[:-10])
    assert torn_and_damage() == (0, True)


def test_a_list_takes_the_time_from_the_last_record_where_nothing_else_tells() -> None:
    """Neither metadata nor header can be read: what changed last still stands first."""
    disk = a_conversation()
    with opened(disk) as store:
        last = store.get_records(last=1)[0].at
    disk.write_file(METADATA, b"nothing of ours\n")
    disk.write_file(TRANSCRIPT, b"[" + file_content(disk)[1:])
    [summary] = list_conversations("/chats", file_system=disk)
    assert (summary.created_at, summary.updated_at, summary.record_count) == (None, last, len(SAID))
    assert summary.damage is not None


def test_a_mark_of_another_generation_is_damage_in_a_list_too() -> None:
    """P10: load refuses it, and a list says so."""
    disk = a_conversation()
    document = decode_document(file_content(disk, METADATA))
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    disk.write_file(METADATA, encode_document(document.members, Mark(7, document.mark.position)))
    [summary] = list_conversations("/chats", file_system=disk)
    assert summary.damage is not None
    assert "a mark of generation 7" in summary.damage


@for_each(
    "nonsense",
    [
        {"generation": -1},
        {"seq": "4"},
        {"offset": 1.5},
        {"seq": 4.0},
        {"generation": True},
        {"head": "abc"},
        {"head": 7},
        None,
    ],
)
def test_a_mark_that_is_none_is_damage_of_the_metadata(nonsense: dict[str, object] | None) -> None:
    """P10: metadata.json is whole and its hash is right, but no mark of ours says this: nothing is concluded from it."""
    disk = a_conversation()
    whole = file_content(disk, METADATA)
    document = json.loads(whole)
    del document["hash"]
    document["mark"] = {**document["mark"], **nonsense} if nonsense else [1]
    body = json.dumps(document, indent=2).encode()[:-1]
    disk.write_file(METADATA, b'%b,"hash":"%b"}\n' % (body, sha256(body).hexdigest()[:32].encode()))
    [found] = verify(CHAT, file_system=disk).findings
    assert found.path == METADATA
    assert "its mark is not one" in found.reason


@pytest.mark.parametrize("name", ["archive", "quarantine"])
def test_a_file_in_the_place_of_a_folder_is_found(name: str) -> None:
    """P16: what is no folder is of somebody else; verify names it and goes on."""
    disk = a_conversation()
    disk.write_file(f"{CHAT}/{name}", b"mine")
    [found] = verify(CHAT, file_system=disk).findings
    assert (found.path, found.kind) == (f"{CHAT}/{name}", "foreign")
    assert found.reason.startswith("a file is in the place of")


def test_a_header_that_is_whole_and_says_nonsense_is_damaged() -> None:
    """P15: the chain is not keyed: anybody can write a header that verifies, with labels that are a list."""
    disk = a_conversation()
    document = decode_document(file_content(disk, METADATA))
    assert isinstance(document, MetadataDocument)
    members = {**document.members, "labels": [1]}
    line = close_line(
        GENESIS, header_body(conversation=ID, generation=0, at="2026-01-01T00:00:00.000000Z", metadata=members)
    )[0]
    disk.write_file(TRANSCRIPT, line)
    disk.write_file(METADATA, encode_document(document.members, None))
    [found] = verify(CHAT, file_system=disk).findings
    assert (found.kind, found.line_number, found.offset_bytes) == ("damaged-header", 1, 0)
    assert "labels: must be a dict of str to str" in found.reason
    with pytest.raises(CorruptTranscriptError, match="labels: must be a dict of str to str"):
        opened(disk)


def test_damaged_lines_in_a_row_are_one_stretch_to_salvage() -> None:
    """What cannot be read between two records is there once, with all of its bytes."""
    disk = a_conversation()
    lines = file_content(disk).splitlines(keepends=True)
    disk.write_file(TRANSCRIPT, b"".join([*lines[:2], b"nothing\n", b"of\n", b"ours\n", *lines[2:]]))
    found = salvage(CHAT, file_system=disk).found
    assert [one.record.message if one.record else None for one in found] == [SAID[0], None, *SAID[1:]]
    assert (found[1].offset_bytes, found[1].length_bytes) == (len(lines[0] + lines[1]), len("nothing\nof\nours"))


# ---- what cannot be removed -------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_removed_is_said_to_stay() -> None:
    """P7: somebody put a folder into the quarantine, and the disk refuses to remove it: an error, at once."""
    disk = a_conversation()
    in_folder(disk, CHAT, lambda folder: disk.make_directory(folder, "quarantine"))
    in_folder(disk, f"{CHAT}/quarantine", lambda folder: disk.make_directory(folder, "mine"))
    tried: list[FileSystemCall] = []

    def refuse(call: FileSystemCall) -> None:
        if call.name == "remove_directory":
            tried.append(call)
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with opened(disk) as store:
        disk.on_call = refuse
        with pytest.raises(StorageError) as refused:
            store.purge_quarantine()
        disk.on_call = None
        assert refused.value.errno == errno.EACCES
        assert len(tried) == 1
        assert f"{CHAT}/quarantine/mine" in disk.tree()
        assert store.purge_quarantine() == 1
    assert messages(disk.another_process()) == SAID
