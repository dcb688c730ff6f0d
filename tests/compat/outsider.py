"""What somebody outside writes, under mypy --strict and pyright strict: .ci/release runs and checks it beside the installed wheel."""

import tempfile
from pathlib import Path
from typing import assert_type

from transcript_store import (
    AppendResult,
    ConversationLibrary,
    ConversationMetadata,
    ConversationStore,
    Diagnosis,
    FileStore,
    Hint,
    Record,
    Snapshot,
    TranscriptStoreError,
    Verification,
    doctor,
    generate_encryption_key,
    restore_snapshot,
    snapshot_of,
    verify,
)
from transcript_store.testing import SimulatedFileSystem


def main(folder: Path) -> None:
    with ConversationStore(folder / "chat", durability="process-crash", cache_bytes=0) as conversation:
        conversation.load_or_initialize(provider="openai", model="gpt", labels={"title": "typed"})
        result = conversation.append_message({"role": "user", "content": "Hello"}, extra={"usage": {"input_tokens": 1}})
        assert_type(result, AppendResult)
        assert_type(result.head, str)
        assert_type(conversation.append_messages([{"role": "assistant", "content": "Hi."}]), tuple[AppendResult, ...])
        records = conversation.get_records(last=1)
        assert_type(records, list[Record])
        assert_type(conversation.get_metadata(), ConversationMetadata)
        snapshot = snapshot_of(conversation)
        assert_type(snapshot, Snapshot)
    store = FileStore(folder / "sealed", encryption_key=generate_encryption_key())
    store.save(snapshot)
    with ConversationStore(folder / "again") as another:
        restore_snapshot(store.load(snapshot.id), another)
        assert another.get_messages() == [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
    library = ConversationLibrary(folder / "library")
    with library.create(provider="claude") as created:
        created.append_event({"note": "begun"})
    for found in library.list():
        assert_type(found.id, str | None)
    verification = verify(folder / "chat")
    assert_type(verification, Verification)
    assert verification.is_intact
    assert_type(doctor(folder), Diagnosis)
    try:
        ConversationStore("/nowhere/at/all", read_only=True).load()
    except TranscriptStoreError as error:
        assert_type(error.hint, Hint | None)
    disk = SimulatedFileSystem()
    with ConversationStore("/agent", file_system=disk) as simulated:
        simulated.initialize(provider="claude")
    disk.kill_process()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
