"""Whose an archived generation is, and whether all of it is there, is known also when the next one is gone.  P10.

The incident: an attack deleted generation 1, which is allowed, and put another conversation's generation 0 in the place of ours.
``verify`` called the conversation whole and its messages were shown as ours. The same with a record cut off the end: what said
how long generation 0 had been was in the header of the generation that was deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.trees import remove_last_line
from transcript_store import ConversationLibrary, ConversationStore, CorruptTranscriptError, repair, verify
from transcript_store.testing import FileSystemCall, SimulatedFileSystem


def said(*texts: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text} for text in texts]


def make(path: Path, who: str) -> Path:
    """Generations 0, 1 and 2 in the archive, 3 is live; each has two records."""
    with ConversationStore(path) as store:
        store.initialize(messages=said(f"{who} a", f"{who} b"))
        for generation in range(1, 4):
            store.replace_transcript(said(f"{who} {generation}", f"{who} {generation} again"))
    return path


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return make(tmp_path / "ours", "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return make(tmp_path / "theirs", "theirs")


def archived(path: Path, number: int) -> Path:
    return path / "archive" / f"transcript-{number:06d}.jsonl"


def delete(path: Path, *numbers: int) -> None:
    with ConversationStore(path) as store:
        store.load()
        for number in numbers:
            store.delete_generation(number)


def assert_noticed(path: Path, number: int, kind: str) -> None:
    """Detected by every way to read it: verify, a list of the generations, a read of it; by the writer and by a reader."""
    findings = [(Path(found.path).name, found.kind) for found in verify(path).findings]
    assert (f"transcript-{number:06d}.jsonl", kind) in findings
    for read_only in (False, True):
        with ConversationStore(path, read_only=read_only) as store:
            store.load()
            [generation] = [one for one in store.generations() if one.number == number]
            assert generation.damage is not None
            with pytest.raises(CorruptTranscriptError) as caught:
                store.get_records(generation=number)
            assert caught.value.kind == kind


# ---- whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deleted", [(), (1,), (1, 2)], ids=str)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_generation_of_another_conversation_is_noticed(
    ours: Path, theirs: Path, number: int, deleted: tuple[int]
) -> None:
    """P10: with its successor there, and without it."""
    delete(ours, *(other for other in deleted if other != number))
    shutil.copy(archived(theirs, number), archived(ours, number))
    assert_noticed(ours, number, "wrong-conversation")


def test_a_generation_under_anothers_number_is_noticed(ours: Path) -> None:
    """P10: generation 2 under the name of generation 0, whose successor was deleted."""
    delete(ours, 1)
    shutil.copy(archived(ours, 2), archived(ours, 0))
    assert_noticed(ours, 0, "wrong-generation")


def test_a_damaged_live_transcript_does_not_hide_it(ours: Path, theirs: Path) -> None:
    """P10: metadata.json says whose the archive is where the live header does not."""
    delete(ours, 1)
    shutil.copy(archived(theirs, 0), archived(ours, 0))
    (ours / "transcript.jsonl").write_bytes(b"hello, world\n")
    assert "wrong-conversation" in [found.kind for found in verify(ours).findings]


def test_a_foreign_successor_says_nothing_of_what_was_replaced(ours: Path, theirs: Path) -> None:
    """Another conversation's generation 1 knows nothing of our generation 0: only the first of the two is damaged."""
    shutil.copy(archived(theirs, 1), archived(ours, 1))
    assert_noticed(ours, 1, "wrong-conversation")
    with ConversationStore(ours, read_only=True) as store:
        store.load()
        assert len(store.get_records(generation=0)) == 2


# ---- how long it was ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deleted", [(), (1,), (1, 2), (2, 1)], ids=str)
def test_a_shortened_generation_is_noticed(ours: Path, deleted: tuple[int, ...]) -> None:
    """P10: what a deleted generation said of the one before it is kept."""
    delete(ours, *deleted)
    assert verify(ours).is_intact
    remove_last_line(archived(ours, 0))
    assert_noticed(ours, 0, "rewritten")


def _replace(store: ConversationStore) -> None:
    store.replace_transcript(said("later"))


def _delete_all_that_is_later(store: ConversationStore) -> None:
    store.delete_generation(2)


@pytest.mark.parametrize(
    "go_on",
    [ConversationStore.close, lambda store: store.update_metadata(model="m"), _replace, _delete_all_that_is_later],
)
def test_it_is_kept_for_as_long_as_the_generation_is(ours: Path, go_on: Callable[[ConversationStore], None]) -> None:
    """P10: through a close, a change of the metadata, a replace and another deletion."""
    delete(ours, 1)
    with ConversationStore(ours) as store:
        store.load()
        go_on(store)
    remove_last_line(archived(ours, 0))
    assert_noticed(ours, 0, "rewritten")


def test_a_kept_end_is_removed_with_the_next_deletion(ours: Path) -> None:
    """It does not pile up, and the head of what was deleted for a secret in it does not stay for ever."""
    delete(ours, 1)
    assert '"replaced"' in (ours / "metadata.json").read_text()
    delete(ours, 0)
    delete(ours, 2)
    assert '"replaced"' not in (ours / "metadata.json").read_text()
    assert verify(ours).is_intact


def test_a_fork_has_no_archive_and_none_of_it(tmp_path: Path) -> None:
    """Its own generation 0 is not the original's."""
    library = ConversationLibrary(tmp_path)
    with library.create(messages=said("a", "b")) as store:
        store.replace_transcript([])
        store.replace_transcript(said("c"))
        store.delete_generation(1)
        origin = store.id
    fork = library.fork(origin)
    assert '"replaced"' not in (tmp_path / fork / "metadata.json").read_text()
    assert '"replaced"' not in (tmp_path / fork / "transcript.jsonl").read_text()


def test_the_oldest_generation_can_be_deleted_on_a_full_disk() -> None:
    """Whoever deletes to make room begins with the oldest: there is nothing to keep of the one before it, and nothing is
    written.
    """
    disk = SimulatedFileSystem()
    with ConversationStore("/c", file_system=disk) as store:
        store.initialize(messages=said("a"))
        store.replace_transcript(said("b"))
        store.replace_transcript(said("c"))
        made: list[FileSystemCall] = []
        disk.on_call = made.append
        store.delete_generation(0)
        store.delete_generation(1)
        disk.on_call = None
    assert "unlink" in [call.name for call in made]
    assert "write" not in [call.name for call in made]


# ---- a repair takes generations out of the archive too ------------------------------------------------------------------


def damage(path: Path) -> None:
    """One byte of the last record changed; the header is as it was."""
    content = bytearray(path.read_bytes())
    content[-60] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damaged", [("archive",), ("live",), ("archive", "live")], ids="+".join)
def test_a_repair_keeps_what_a_damaged_generation_said_of_the_one_before_it(
    ours: Path, damaged: tuple[str, ...]
) -> None:
    """P10: generation 1 or the live one goes to quarantine, and the one before it is still known to its last record."""
    if "archive" in damaged:
        damage(archived(ours, 1))
    if "live" in damaged:
        damage(ours / "transcript.jsonl")
    repair(ours, mode="prefix", dry_run=False)
    assert verify(ours).is_intact
    if "archive" in damaged:
        remove_last_line(archived(ours, 0))
        assert_noticed(ours, 0, "rewritten")
    if "live" in damaged:
        remove_last_line(archived(ours, 2))
        assert_noticed(ours, 2, "rewritten")


def test_a_repair_takes_another_conversations_generation_out(ours: Path, theirs: Path) -> None:
    """It goes to quarantine, and all else is as it was."""
    shutil.copy(archived(theirs, 0), archived(ours, 0))
    repair(ours, dry_run=False)
    assert verify(ours).is_intact
    assert verify(ours).archived_generations == (1, 2)
    assert archived(theirs, 0).read_bytes() in [path.read_bytes() for path in (ours / "quarantine").iterdir()]
