"""Which files a repair and a salvage accept as this conversation, and whose metadata they trust.

The incident: no plain test reached the lines that decide it when transcript and metadata are both gone, or of a later version.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from transcript_store import (
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    UnsupportedVersionError,
    repair,
    salvage,
    verify,
)

SAID = [{"role": "user", "content": f"message {n}"} for n in range(4)]


@pytest.fixture
def conversation(scratch: Path) -> Path:
    """A conversation with one earlier generation."""
    with ConversationStore(scratch / "c") as store:
        store.initialize(messages=SAID, model="m")
        store.replace_transcript(SAID[:2])
    return scratch / "c"


def test_an_archive_tells_that_a_folder_is_ours(conversation: Path) -> None:
    """P13: nothing in metadata or transcript is ours any more; the archive is, and the metadata comes from there."""
    for name in ("metadata.json", "transcript.jsonl"):
        (conversation / name).write_bytes(b"nothing of ours\n")
    assert salvage(conversation).metadata_from == "archive"
    assert salvage(conversation).metadata.model == "m"
    done = repair(conversation, mode="salvage", dry_run=False)
    assert (done.metadata_from, done.records_kept, done.generation) == ("archive", 0, 1)
    assert verify(conversation).is_intact
    with ConversationStore(conversation) as store:
        store.load()
        assert store.get_metadata().model == "m"
        assert [record.message for record in store.get_records(generation=0)] == SAID


def test_without_one_it_is_not(conversation: Path) -> None:
    """P13: the same files without the archive may be of any program: they are left alone."""
    (conversation / "archive/transcript-000000.jsonl").unlink()
    (conversation / "archive").rmdir()
    for name in ("metadata.json", "transcript.jsonl"):
        (conversation / name).write_bytes(b"nothing of ours\n")
    for look in (salvage, repair):
        with pytest.raises(CorruptTranscriptError, match="none of its files is recognizable as ours") as refused:
            look(conversation)
        assert refused.value.kind == "foreign"


def test_a_library_is_told_as_one_by_all(conversation: Path) -> None:
    """What reads, repairs or salvages a conversation says the same sentence of a folder of conversations."""
    library = conversation.parent / "library"
    library.mkdir()
    conversation.rename(library / "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51")
    for look in (salvage, repair, lambda directory: ConversationStore(directory, read_only=True).load()):
        with pytest.raises(
            ConversationNotFoundError, match="the folder is a library of conversations, each in its own folder"
        ):
            look(library)


def test_metadata_of_a_later_version_is_not_read_as_ours(conversation: Path) -> None:
    """P20: it could be misread: neither a salvage nor a repair goes by it, whatever the transcript is."""
    path = conversation / "metadata.json"
    body = path.read_bytes()[:-44].replace(b'"version": 1', b'"version": 2')
    later = body + b',"hash":"' + sha256(body).hexdigest()[:32].encode() + b'"}\n'
    path.write_bytes(later)
    for look in (salvage, repair):
        with pytest.raises(UnsupportedVersionError):
            look(conversation)
    assert path.read_bytes() == later
