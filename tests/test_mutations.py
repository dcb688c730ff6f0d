"""P10 beyond the transcript: what is changed, lost, moved, repeated or foreign in snapshots, in media and in metadata.json.

What can be promised differs, and "undetected" is decided here by an oracle that is not the code:

* a sealed file, a medium, and metadata.json carry a tag or a hash over all their bytes: every mutation is an error, of
  ``load`` and in ``verify``;
* a plain snapshot carries none, as its form is go-tool-base's to the byte. Whatever leaves no JSON of a snapshot with this id is an
  error. What is JSON still is read as what it says, by Python's own reader, never as anything else: undetected would be a
  load that gives something that does not stand in the file.
"""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.crash.kernel import Note
from tests.kit.machines import HASTY
from tests.kit.mutations import SEED, Mutations, blocks
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    CorruptMetadataError,
    CorruptSnapshotError,
    CorruptTranscriptError,
    DecryptionError,
    FileStore,
    Snapshot,
    SnapshotNotFoundError,
    ToolSnapshot,
    TranscriptStoreError,
    UnsupportedVersionError,
    verify,
)
from transcript_store._conversation import metadata
from transcript_store._snapshots import snapshot as snapshots
from transcript_store._snapshots import stored as _snapshot_files
from transcript_store._snapshots.file_store import SnapshotFiles
from transcript_store._snapshots.stored import Key

pytestmark = pytest.mark.usefixtures("quiet")

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
REFERENCE = "chatmedia+sha256:"
COUNTS = pytest.mark.parametrize(
    "count", [pytest.param(30, id="30"), pytest.param(1000, id="1000", marks=pytest.mark.long)]
)
WORDS = ["Grüße", "moving", "house,", "kettle;", "\\", '"quoted"', "\u2028", "<b>", "🤖", "1e400", "0.10", "null"]


# ---- stores of snapshots ---------------------------------------------------------------------------------------------


def a_snapshot(number: int) -> Snapshot:
    """Three messages, one of them an image, a tool, and all other members."""
    randomly = Random(number)
    image = "data:image/png;base64," + randomly.randbytes(450).hex()
    text = " ".join(randomly.choices(WORDS, k=20))
    return Snapshot.create(
        id=f"00000000-0000-4000-8000-{number:012d}",
        provider="claude",
        model=f"model-{number}",
        system_prompt="Be brief.\n",
        messages=[
            {"role": "user", "content": [{"type": "text", "text": text}, {"type": "image", "data": image}]},
            {"role": "assistant", "content": "", "usage": {"tokens": number, "cost": 0.25, "cached": None}},
            {"role": "user", "content": f"and a second time: {number}"},
        ],
        tools=[ToolSnapshot("search", "", {"type": "object", "properties": {"q": {"type": "string"}}})],
        metadata={"transcript_store.approximate_tokens": f"{number}", "note": text},
        created_at=f"2026-03-31T12:00:{number:02d}Z",
    )


class Stored(NamedTuple):
    """A store of two snapshots; the files of the first are what is damaged."""

    store: FileStore
    snapshot: Snapshot
    file: Path
    medium: Path
    other_file: Path
    other_medium: Path

    def load(self) -> Snapshot | None:
        """The first snapshot as it is read now; None if that is an error of ours."""
        try:
            return self.store.load(self.snapshot.id)
        except (CorruptSnapshotError, DecryptionError, UnsupportedVersionError):
            return None

    def insist_that_it_is_found(self, damaged: Path, what: str) -> None:
        """``load`` refuses, ``verify`` names the file and no other."""
        assert self.load() is None, f"{what} went undetected"
        assert [finding.path for finding in self.store.verify()] == [str(damaged)], what

    def insist_that_it_is_not_listed(self) -> None:
        """``list`` leaves out what it does not open."""
        assert [summary.id for summary in self.store.list()] == [a_snapshot(2).id]


def stored(path: Path, key: bytes | None) -> Stored:
    store = FileStore(path, encryption_key=key)
    files, media = [], []
    for one in (a_snapshot(1), a_snapshot(2)):
        store.save(one)
        files.append(path / f"{one.id}.json")
        media.append(path / "media" / sha256(one.messages[0]["content"][1]["data"].encode()).hexdigest())
    assert store.verify() == []
    return Stored(store, a_snapshot(1), files[0], media[0], files[1], media[1])


@COUNTS
@pytest.mark.parametrize("which", ["file", "medium"])
def test_sealed_snapshots(scratch: Path, count: int, which: str, record_property: Note) -> None:
    """P10, P17: 1,000 mutations of each kind of a sealed snapshot, and of its sealed media: every one is an error."""
    there = stored(scratch / "store", KEY)
    damaged, other = (there.file, there.other_file) if which == "file" else (there.medium, there.other_medium)
    mutations = Mutations(blocks(damaged.read_bytes()), blocks(other.read_bytes()))
    for kind, mutate in mutations.kinds.items():
        for n in range(count):
            damaged.write_bytes(mutate())
            there.insist_that_it_is_found(damaged, f"{kind} {n} of seed {SEED}, {which}")
        if which == "file":
            there.insist_that_it_is_not_listed()
    damaged.write_bytes(mutations.data)
    assert there.load() == there.snapshot
    record_property("mutations of sealed snapshots and media, all detected", count * len(mutations.kinds))


@COUNTS
def test_media_of_plain_snapshots(scratch: Path, count: int, record_property: Note) -> None:
    """P10: the same of media in the clear: their names are the SHA-256 of what is in them."""
    there = stored(scratch / "store", None)
    mutations = Mutations(blocks(there.medium.read_bytes()), blocks(there.other_medium.read_bytes()))
    for kind, mutate in mutations.kinds.items():
        for n in range(count):
            there.medium.write_bytes(mutate())
            there.insist_that_it_is_found(there.medium, f"{kind} {n} of seed {SEED}")
    there.medium.write_bytes(mutations.data)
    assert there.load() == there.snapshot
    record_property("mutations of media in the clear, all detected", count * len(mutations.kinds))


@COUNTS
def test_plain_snapshots(scratch: Path, count: int, record_property: Note) -> None:
    """P10: 1,000 mutations of each kind of a plain snapshot: refused, or read as exactly what stands in the file. A lost end
    and zeroed bytes are always refused.
    """
    there = stored(scratch / "store", None)
    mutations = Mutations(*(path.read_bytes().splitlines(keepends=True) for path in (there.file, there.other_file)))
    read: dict[str, int] = {}
    for kind, mutate in mutations.kinds.items():
        for n in range(count):
            data = mutate()
            there.file.write_bytes(data)
            found = there.load()
            if found is None:
                assert there.store.verify() != [], f"{kind} {n} of seed {SEED} went undetected"
            else:
                assert as_read(found) == as_written(data, there.medium.parent), f"{kind} {n} of seed {SEED} was misread"
                read[kind] = read.get(kind, 0) + 1
    print(f"valid JSON of a snapshot still, and read as that, of {count}: {read}")
    assert read.keys() == mutations.kinds.keys() - {"lose_the_tail", "zero"}
    record_property("mutations of plain snapshots, none misread", count * len(mutations.kinds))
    record_property("mutations of plain snapshots that left another valid snapshot", sum(read.values()))


def as_read(snapshot: Snapshot) -> dict[str, Any]:
    tools = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in snapshot.tools]
    names = ("id", "provider", "model", "system_prompt", "messages", "metadata", "version")
    at = snapshot.created_at_datetime
    return {**{name: getattr(snapshot, name) for name in names}, "tools": tools, "created_at": at}


def as_written(data: bytes, media: Path) -> dict[str, Any]:
    """What the JSON says, by docs/format.md and Python's own reader: members that are absent, or null, are empty."""
    members = json.loads(data.decode("utf-8"))
    empty = {"id": "", "provider": "", "model": "", "system_prompt": "", "messages": [], "metadata": {}, "version": 0}
    said = {name: absent if members.get(name) is None else members[name] for name, absent in empty.items()}
    no_tool = {"name": "", "description": "", "parameters": None}
    said["tools"] = [
        {name: absent if tool.get(name) is None else tool[name] for name, absent in no_tool.items()}
        for tool in members.get("tools") or []
    ]
    said["messages"] = with_media(said["messages"], media)
    said["created_at"] = datetime.fromisoformat(members.get("created_at") or "0001-01-01T00:00:00Z")
    return said


def with_media(value: Any, media: Path) -> Any:
    """References replaced by what has their hash."""
    if isinstance(value, dict):
        return {key: with_media(one, media) for key, one in value.items()}
    if isinstance(value, list):
        return [with_media(one, media) for one in value]
    if isinstance(value, str) and value.startswith(REFERENCE):
        text = (media / value.removeprefix(REFERENCE)).read_bytes()
        assert value == f"{REFERENCE}{sha256(text).hexdigest()}"
        return text.decode()
    return value


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_files_of_a_store_lost_moved_and_foreign(scratch: Path, key: bytes | None) -> None:
    """P10, P17: a whole file in the place of another, of another store, or gone: an error, and never another snapshot."""
    there = stored(scratch / "store", key)
    elsewhere = stored(scratch / "elsewhere", OTHER_KEY if key else KEY)
    in_the_clear = stored(scratch / "plain", None)
    foreign = [elsewhere, *([in_the_clear] if key else [])]
    for damaged, others in (
        (there.file, [there.other_file, there.medium, *(one.file for one in foreign)]),
        (there.medium, [there.other_medium, there.file, *(one.medium for one in foreign)]),
    ):
        sound = damaged.read_bytes()
        for other in others:
            shutil.copyfile(other, damaged)
            there.insist_that_it_is_found(damaged, f"{other} in the place of {damaged.name}")
        damaged.write_bytes(sound)
    there.medium.unlink()
    there.insist_that_it_is_found(there.medium, "a medium lost")
    there.file.unlink()
    with pytest.raises(SnapshotNotFoundError):
        there.store.load(there.snapshot.id)


def test_bytes_of_a_plain_snapshot_that_nothing_vouches_for(scratch: Path) -> None:
    """P10, and its limit: a letter of a message changed in a plain snapshot is read as it stands; in a sealed one it is an error."""
    there = stored(scratch / "store", None)
    changed = there.file.read_bytes().replace(b"and a second time", b"or a second time")
    there.file.write_bytes(changed)
    found = there.load()
    assert found is not None
    assert found.messages[2]["content"] == "or a second time: 1"
    assert there.store.verify() == []


# ---- metadata.json ---------------------------------------------------------------------------------------------------


def a_conversation(library: ConversationLibrary, number: int) -> Path:
    with library.create(
        provider="claude",
        model=f"model-{number}",
        system_prompt="Be brief.\n",
        tools=[{"name": "search", "input_schema": {"type": "object"}}],
        labels={"title": f"Number {number}", "note": " ".join(WORDS)},
        messages=[{"role": "user", "content": f"{number}"}],
    ) as store:
        return Path(store.directory)


@COUNTS
def test_metadata(scratch: Path, count: int, record_property: Note) -> None:
    """P10, P13: 1,000 mutations of each kind of metadata.json: refused by ``load``, found by ``verify``, shown by ``list``, and
    nothing is touched.
    """
    library = ConversationLibrary(scratch / "library", file_system=HASTY)
    folder, other = (a_conversation(library, number) for number in (1, 2))
    file = folder / "metadata.json"
    mutations = Mutations(*((path / file.name).read_bytes().splitlines(keepends=True) for path in (folder, other)))
    transcript = (folder / "transcript.jsonl").read_bytes()
    for kind, mutate in mutations.kinds.items():
        for n in range(count):
            data = mutate()
            file.write_bytes(data)
            what = f"{kind} {n} of seed {SEED} went undetected"
            with pytest.raises(CorruptMetadataError):
                ConversationStore(folder, file_system=HASTY).load()
            assert [finding.path for finding in verify(folder, file_system=HASTY).findings] == [str(file)], what
            assert {one.id for one in library.list() if one.damage} == {folder.name}, what
            assert file.read_bytes() == data
    assert (folder / "transcript.jsonl").read_bytes() == transcript
    file.write_bytes(mutations.data)
    with library.open(folder.name) as store:
        assert store.get_metadata().model == "model-1"
    record_property("mutations of metadata.json, all detected", count * len(mutations.kinds))


def test_a_metadata_file_lost_and_foreign(scratch: Path) -> None:
    """P10: metadata.json of another conversation, of none, or gone."""
    library = ConversationLibrary(scratch / "library", file_system=HASTY)
    folder, other = (a_conversation(library, number) for number in (1, 2))
    file = folder / "metadata.json"
    shutil.copyfile(other / file.name, file)
    for damage in ("another's", "somebody else's", "lost"):
        with pytest.raises((CorruptMetadataError, CorruptTranscriptError)):
            ConversationStore(folder, file_system=HASTY).load()
        assert not verify(folder, file_system=HASTY).is_intact
        assert {one.id for one in library.list() if one.damage} == {folder.name}
        if damage == "another's":
            file.write_text('{"name": "a package"}\n')
        else:
            file.unlink(missing_ok=True)


# ---- does the oracle object? -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "which", ["media not compared", "tag not checked", "misread", "hash of the metadata not compared"]
)
def test_a_store_that_believes_what_it_finds_is_noticed(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The harness itself: each of these bugs fails a test above."""
    with pytest.raises((AssertionError, pytest.fail.Exception, TranscriptStoreError)):
        if which == "media not compared":
            monkeypatch.setattr(SnapshotFiles, "media_text", lambda self, name: self.opened(f"media/{name}")[0])
            test_media_of_plain_snapshots(scratch, 5, lambda *_: None)
        elif which == "tag not checked":
            monkeypatch.setattr(Key, "open", lambda self, sealed: opened_without_its_tag(self._bytes, bytes(sealed)))
            test_sealed_snapshots(scratch, 30, "file", lambda *_: None)
        elif which == "misread":
            read = snapshots.read
            monkeypatch.setattr(
                _snapshot_files, "read", lambda data, **more: read(data.replace(b"Be brief", b"Be long"), **more)
            )
            test_plain_snapshots(scratch, 30, lambda *_: None)
        else:
            monkeypatch.setattr(metadata, "chain_hash", lambda *_: b"0" * 32)
            monkeypatch.setattr(metadata, "close_line", lambda _, body: (b'%b,"hash":"%b"}\n' % (body, b"0" * 32), b""))
            test_metadata(scratch, 5, lambda *_: None)


def opened_without_its_tag(key: bytes, sealed: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    counter = sealed[:12].ljust(12, b"\0") + (2).to_bytes(4)
    return Cipher(algorithms.AES(key), modes.CTR(counter)).decryptor().update(sealed[12:-16])
