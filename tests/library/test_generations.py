"""The life of a transcript: each generation, damaged or not; and a pasted key that has to go from all of them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.kit.messages import user_message
from tests.kit.trees import remove_last_line, replace_by_folder, transcript_lines, tree
from tests.library.helpers import flip_a_byte, is_found, make, texts
from transcript_store import CorruptTranscriptError, GenerationNotFoundError, ReadOnlyError, verify
from transcript_store._log.record import GENESIS, close_line


def test_generations_tell_the_life_of_a_transcript(library, root):
    """After several replaces: number, when, how many records, head and size of each; the live one last."""
    chat = make(library, "a", "b")
    with library.open(chat) as store:
        heads, counts = [store.head], [2]
        for count in (3, 0, 1):
            store.replace_transcript([user_message(f"{count} {k}") for k in range(count)])
            store.append_event({"after": count})
            heads.append(store.head)
            counts.append(count + 1)
        found = store.generations()
        assert [generation.number for generation in found] == [0, 1, 2, 3]
        assert [generation.head for generation in found] == heads
        assert [generation.record_count for generation in found] == counts
        assert [generation.is_live for generation in found] == [False, False, False, True]
        assert [generation.damage for generation in found] == [None] * 4
        assert found[-1].began_at == orjson.loads(transcript_lines(root / chat)[0])["at"]
        assert sorted(str(generation.began_at) for generation in found) == [g.began_at for g in found]
        archived = [root / chat / "archive" / f"transcript-{number:06d}.jsonl" for number in range(3)]
        files = [*archived, root / chat / "transcript.jsonl"]
        assert [generation.size_bytes for generation in found] == [file.stat().st_size for file in files]
        assert [record.message for record in store.get_records(generation=0)] == [user_message("a"), user_message("b")]
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


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _another(path: Path) -> None:
    path.write_bytes((path.parent / "transcript-000000.jsonl").read_bytes())


ARCHIVE_DAMAGES = {
    _flip: "",
    _cut: "its last record is cut",
    remove_last_line: "not what generation 2 says it replaced",
    _empty: "the file is empty",
    _another: "its name says generation 1, its header 0",
    replace_by_folder: "a directory is in the place of",
}


@pytest.mark.parametrize("damage", ARCHIVE_DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_archive_file_says_so_and_hides_no_other(library, root, damage):
    """Its generation is listed as damaged and cannot be read; the one before it and the one after it can."""
    chat = make(library, "a", "b")
    with library.open(chat) as store:
        store.replace_transcript([user_message("c"), user_message("d")])
        store.replace_transcript([user_message("e")])
        path = root / chat / "archive" / "transcript-000001.jsonl"
        damage(path)
        before, damaged, live = store.generations()
        assert ARCHIVE_DAMAGES[damage] in (damaged.damage or "no damage")
        assert (damaged.number, damaged.record_count, damaged.head, damaged.size_bytes) == (1, None, None, None)
        assert (before.damage, before.record_count, live.damage) == (None, 2, None)
        with pytest.raises(CorruptTranscriptError) as refused:
            store.get_records(generation=1)
        assert refused.value.path == str(path)
        assert [record.message for record in store.get_records(generation=0)] == [user_message("a"), user_message("b")]
        assert texts(store) == ["e"]
        assert not verify(root / chat).is_intact
        store.delete_generation(1)
        assert [generation.number for generation in store.generations()] == [0, 2]
    assert verify(root / chat).is_intact


def test_the_last_archived_generation_is_held_against_the_live_header(library, root):
    """A record removed from the end of the last archived generation is reported as missing."""
    chat = make(library, "a", "b")
    with library.open(chat) as store:
        store.replace_transcript([])
        remove_last_line(root / chat / "archive" / "transcript-000000.jsonl")
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
        store.replace_transcript([user_message("a summary that still has " + secret.decode())])
    with (root / chat / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":2,"at":"2026-11-22T00:00:00.000000Z","message":{"content":"' + secret)
    with library.open(chat) as store:
        clean = [user_message(text.replace(secret.decode(), "[removed]")) for text in texts(store)]
        store.replace_transcript(clean, system_prompt="use the key")
        assert is_found(secret, root)
        for generation in store.generations()[:-1]:
            store.delete_generation(generation.number)
        assert is_found(secret, root)  # the torn tail
        assert store.purge_quarantine() == 1
        assert not is_found(secret, root)
        assert texts(store) == ["a summary that still has [removed]"]
    assert not is_found(secret, root)
    assert verify(root / chat).is_intact


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
