"""A fork from the middle of a conversation copies every record byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from tests.kit.messages import user_message
from tests.kit.trees import transcript_lines, tree
from tests.library.helpers import UUID, conversation_with_everything, flip_a_byte, make, texts, without_number_and_hash
from transcript_store import ConversationExistsError, ConversationLibrary, CorruptTranscriptError, verify
from transcript_store.testing import SimulatedFileSystem


def test_a_fork_has_every_record_byte_for_byte(library, root):
    """Each record is the original's, except its number, its batch mark and its hash; the metadata is the original's."""
    chat = conversation_with_everything(library, root)
    came_from = {"snapshot": "00000000-0000-4000-8000-000000000000", "metadata": {"theirs": "1"}}
    with library.open(chat) as original:
        storage = original._guard.storage  # a restore would be a transcript of its own
        storage.write_metadata({**storage.members, "restored_from": came_from})  # as restore_snapshot does
        before = original.get_metadata()
        head = original.head
        records = original.get_records()
    files = tree(root / chat)
    fork = library.fork(chat)
    assert UUID.fullmatch(fork)
    assert fork != chat
    assert tree(root / chat) == files
    for old, new in zip(transcript_lines(root / chat)[1:], transcript_lines(root / fork)[1:], strict=True):
        assert without_number_and_hash(new) == re.sub(rb',"batch":\[\d+,\d+\]$', b"", without_number_and_hash(old))
    assert b'"later":[1,[2]]' in transcript_lines(root / fork)[-1]
    assert not any(re.search(rb',"batch":\[\d+,\d+\],"hash"', line) for line in transcript_lines(root / fork))
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
    assert orjson.loads(transcript_lines(root / fork)[0])["metadata"]["forked_from"] == now.forked_from
    assert verify(root / fork).is_intact
    assert sorted(path.name for path in (root / fork).iterdir()) == ["lock", "metadata.json", "transcript.jsonl"]


@pytest.mark.parametrize("through_seq", range(8))
def test_a_fork_through_any_record(library, root, through_seq):
    """From none to all, in the middle of a batch too; the origin names the head of the record at which it parted."""
    chat = conversation_with_everything(library, root)
    fork = library.fork(chat, through_seq=through_seq)
    with library.open(chat, read_only=True) as original, library.open(fork) as copy:
        assert copy.get_records() == original.get_records()[:through_seq]
        head = transcript_lines(root / chat)[through_seq][-35:-3].decode()
        assert copy.get_metadata().forked_from == {
            "conversation": chat,
            "generation": 0,
            "seq": through_seq,
            "head": head,
        }
        copy.append_message(user_message("another way"))
    assert verify(root / fork).is_intact


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
        store.replace_transcript([user_message("summary")], compaction_count=1)
        store.append_message(user_message("d"))
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
        writer.append_message(user_message("b"))
        fork = library.fork(chat)
        writer.append_message(user_message("c"))
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
    flip_a_byte(root / chat / "transcript.jsonl", len(b"".join(transcript_lines(root / chat)[:3])) + 30)
    with pytest.raises(CorruptTranscriptError):
        library.fork(chat, through_seq=1)
    assert len(list(root.iterdir())) == 1


def test_an_empty_conversation_can_be_forked(library):
    """Its metadata is worth a copy."""
    chat = make(library, model="m")
    with library.open(library.fork(chat)) as copy:
        assert (copy.get_messages(), copy.get_metadata().model) == ([], "m")


# ---- into another library --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_a_library", [True, False])
def test_a_fork_into_another_library(library, root, tmp_path, is_a_library):
    """The copy is made there, with its directory if need be; here nothing is added. It knows where it came from."""
    chat = conversation_with_everything(library, root)
    files = tree(root)
    other = ConversationLibrary(tmp_path / "archive" / "2026")
    fork = library.fork(chat, through_seq=6, into=other if is_a_library else tmp_path / "archive" / "2026")
    assert tree(root) == files
    assert [summary.id for summary in other.list()] == [fork]
    with library.open(chat, read_only=True) as original, other.open(fork) as copy:
        assert copy.get_records() == original.get_records()[:6]
        origin = copy.get_metadata().forked_from
        assert origin is not None
        assert (origin["conversation"], origin["seq"]) == (chat, 6)
    assert verify(f"{other.directory}/{fork}").is_intact
    assert sorted(path.name for path in Path(other.directory).iterdir()) == [fork]


def test_a_fork_of_any_folder_into_another_library(library, root, tmp_path):
    """fork_from takes it too: neither the folder nor the library of the copy need be this one's."""
    chat = make(library, "a", "b")
    here = ConversationLibrary(tmp_path / "here")
    fork = here.fork_from(root / chat, into=tmp_path / "there")
    assert not (tmp_path / "here").exists()
    with ConversationLibrary(tmp_path / "there").open(fork) as copy:
        assert texts(copy) == ["a", "b"]


def test_a_fork_into_a_library_on_another_file_system(library):
    """Each of the two is read and written on its own machine."""
    other = ConversationLibrary("/chats", file_system=SimulatedFileSystem())
    chat = make(library, "a", "b")
    fork = library.fork(chat, into=other)
    with other.open(fork) as copy:
        assert texts(copy) == ["a", "b"]
        back = other.fork(fork, into=library)
    with library.open(back) as copy:
        assert texts(copy) == ["a", "b"]


def test_a_fork_into_what_is_no_library(library, root, tmp_path):
    """A file, or a conversation's own folder, is refused; nothing is touched."""
    chat = make(library, "a")
    (tmp_path / "file").write_bytes(b"")
    before = tree(tmp_path)
    with pytest.raises(ConversationExistsError, match="a file is in the place"):
        library.fork(chat, into=tmp_path / "file")
    with pytest.raises(ConversationExistsError, match="inside"):
        library.fork(chat, into=root / chat)
    with pytest.raises(TypeError):
        library.fork(chat, into=7)
    assert tree(tmp_path) == before
