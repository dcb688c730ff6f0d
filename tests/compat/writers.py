"""How the golden conversations were made: on the simulated disk, whose clock and random numbers are always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.crash.model import DIRECTORY, store_on
from tests.crash.operations import TORN, TRANSCRIPT
from transcript_store import ConversationStore, Snapshot, repair, restore_snapshot
from transcript_store._log.record import GENESIS, close_line
from transcript_store.testing import SimulatedFileSystem

METADATA = f"{DIRECTORY}/metadata.json"
Tree = dict[str, bytes | None]

TOOLS = [{"name": "search", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}]
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": [{"type": "text", "text": "Grüße,\u2028 \u0085 \x00\x1b[31m 🤖 \u202e"}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "", "": None}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [], "is_error": False}]},
    {"n": [0, -1, 9007199254740993, -9223372036854775808, 18446744073709551615, 0.1, -0.0, 1e300, 5e-324]},
    {},
]


def empty() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize()
    return disk


def plain() -> SimulatedFileSystem:
    """Every kind of record: single, with extra, an event, a batch."""
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize(
            provider="claude",
            model="m-1",
            system_prompt="Be brief.\n",
            tools=TOOLS,
            labels={"title": "A test", "": "x"},
        )
        for message in MESSAGES:
            store.append_message(message)
        store.append_message({"role": "user", "content": "x" * 5000}, extra={"usage": {"input_tokens": 3}, "id": None})
        store.append_event({"marker": "an event"})
        store.append_messages(MESSAGES[:3], extras=[None, {"k": 1}, None])
    return disk


def clock_jumped() -> SimulatedFileSystem:
    """A clock that went back two days: its reading is kept in the record."""
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize(messages=MESSAGES[:1])
        disk.clock_us -= 2 * 86_400_000_000
        store.append_message(MESSAGES[1])
    return disk


def archived() -> SimulatedFileSystem:
    """Two earlier generations, and metadata that changed."""
    disk = plain()
    with _loaded(disk) as store:
        store.replace_transcript(MESSAGES[2:4], compaction_count=1, model="m-2")
        store.append_message(MESSAGES[0])
        store.update_metadata(replace_labels={"title": "Renamed"}, tools=None)
        store.replace_transcript([], compaction_count=2)
        store.append_messages(MESSAGES[:2])
    return disk


def torn() -> SimulatedFileSystem:
    """A crash cut the last line off; nobody has loaded it since."""
    disk = plain()
    with _loaded(disk) as store:
        store.append_message(MESSAGES[0])
    disk.write_file(TRANSCRIPT, (disk.tree()[TRANSCRIPT] or b"") + TORN)
    return disk


def recovered() -> SimulatedFileSystem:
    """The same, loaded by a writer: the torn bytes are in quarantine."""
    disk = torn()
    with _loaded(disk) as store:
        store.append_message(MESSAGES[1])
    return disk


def repaired() -> SimulatedFileSystem:
    """A line in the middle was damaged, and salvaged around: a record stands for the gap, the damaged file is in quarantine."""
    disk = archived()
    lines = (disk.tree()[TRANSCRIPT] or b"").splitlines(keepends=True)
    disk.write_file(TRANSCRIPT, b"".join([lines[0], lines[1].replace(b"Hello", b"Hallo"), *lines[2:]]))
    assert repair(DIRECTORY, mode="salvage", dry_run=False, file_system=disk).gaps
    return disk


def repaired_remembering() -> SimulatedFileSystem:
    """The same as it is written since a repair remembers what the damaged header said that it replaced."""
    return repaired()


def repaired_undoable() -> SimulatedFileSystem:
    """The same as it is written since a repair keeps the metadata that went with the damaged transcript."""
    return repaired()


def restored() -> SimulatedFileSystem:
    """Made from a snapshot of another conversation, which remembers where it is from."""
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        restore_snapshot(SNAPSHOT, store)
        store.append_message(MESSAGES[1])
    return disk


SNAPSHOT = Snapshot.create(
    id="00000000-0000-4000-8000-000000000001",
    provider="claude",
    model="m-1",
    system_prompt="Be brief.\n",
    messages=MESSAGES[:3],
    metadata={
        "transcript_store.conversation": "00000000-0000-4000-8000-000000000002",
        "transcript_store.generation": "0",
        "transcript_store.seq": "3",
        "transcript_store.head": "0123456789abcdef" * 2,
        "transcript_store.labels": '{"title":"A test"}',
        "transcript_store.compaction_count": "1",
        "ours": "no",
    },
)


def half_a_batch() -> SimulatedFileSystem:
    """Two lines of a batch of three: it counts as absent."""
    disk = plain()
    store = _loaded(disk)
    store.append_messages(MESSAGES[:3])
    disk = disk.kill_process()
    lines = (disk.tree()[TRANSCRIPT] or b"").splitlines(keepends=True)
    disk.write_file(TRANSCRIPT, b"".join(lines[:-1]))
    return disk


def interrupted_replace() -> SimulatedFileSystem:
    """Killed between the two renames of a replace: the transcript is a generation ahead of the metadata."""
    disk = plain()
    old = disk.tree()[METADATA] or b""
    with _loaded(disk) as store:
        store.replace_transcript(MESSAGES[:2], compaction_count=1, model="m-2")
    disk.write_file(METADATA, old)
    return disk


def members_from_later() -> SimulatedFileSystem:
    """Members that version 1 does not know, in the header, in records and in the metadata: kept, and passed over."""
    disk = plain()
    head, lines = GENESIS, []
    for line in (disk.tree()[TRANSCRIPT] or b"").splitlines():
        body = line[:-43]
        extra, batch = b',"later":{"a":[1]}', b""
        if b',"batch":[' in body:
            at = body.rindex(b',"batch":[')
            body, batch = body[:at], body[at:]
        sealed, head = close_line(head, body, extra, batch)
        lines.append(sealed)
    disk.write_file(TRANSCRIPT, b"".join(lines))
    disk.write_file(METADATA, _unmarked(disk.tree()[METADATA] or b""))
    return disk


def _unmarked(data: bytes) -> bytes:
    from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document

    document = decode_document(data)
    assert isinstance(document, MetadataDocument)
    return encode_document({**document.members, "later": {"b": [2]}}, None)


def unfinished_create() -> SimulatedFileSystem:
    """Killed before the commit of an initialize(): there is no conversation, and one may be created."""
    disk = empty()
    tree = disk.tree()
    fresh = SimulatedFileSystem()
    folder = fresh.open_directory("/")
    for name in DIRECTORY.strip("/").split("/"):
        fresh.make_directory(folder, name)
        folder = fresh.open_directory(name, folder)
    fresh.write_file(METADATA, _unmarked(tree[METADATA] or b""))
    fresh.write_file(f"{DIRECTORY}/lock", tree[f"{DIRECTORY}/lock"] or b"")
    return fresh


def _loaded(disk: SimulatedFileSystem) -> ConversationStore:
    store = store_on(disk)
    store.load()
    return store


def retracted() -> SimulatedFileSystem:
    """Messages that were taken back, before and after others and an event; then some of the records, numbered anew."""
    disk = SimulatedFileSystem()
    with store_on(disk) as store:
        store.initialize(messages=MESSAGES[:3], features=["retract"])
        store.retract()
        store.append_event({"marker": "an event"})
        store.append_messages(MESSAGES[3:])
        store.retract(4)
        store.append_message(MESSAGES[3])
        store.keep_records([1, 2, 4, 6, 7, 9, 10])
        store.append_message(MESSAGES[0])
        store.retract()
    return disk


GOLDEN: dict[str, Callable[[], SimulatedFileSystem]] = {
    writer.__name__.replace("_", "-"): writer
    for writer in (
        empty,
        plain,
        clock_jumped,
        archived,
        torn,
        recovered,
        repaired,
        repaired_remembering,
        repaired_undoable,
        restored,
        half_a_batch,
        interrupted_replace,
        members_from_later,
        unfinished_create,
        retracted,
    )
}


def files(disk: SimulatedFileSystem) -> dict[str, bytes]:
    """What is in the conversation's folder: path below it → content."""
    return {
        path.removeprefix(f"{DIRECTORY}/"): data
        for path, data in disk.tree().items()
        if data is not None and path.startswith(f"{DIRECTORY}/")
    }
