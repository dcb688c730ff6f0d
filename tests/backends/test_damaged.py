"""A damaged conversation on a backend is exported into a folder, and judged and repaired there as any other.

One slot that does not verify, and a conversation of a thousand messages cannot be loaded: right, and of no use to whoever wants the other 999. A
slot is written once, so nothing is repaired where it is; what is kept comes back under another id.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.backends.sealed import ID, library_on
from tests.sealed.conversations import CANARY, KEY, MESSAGES
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    repair,
    salvage,
    verify,
)
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem, SimulatedObjectStore

SAID = [{"role": "user", "content": f"number {number}"} for number in range(1, 9)]


@pytest.fixture
def library(backend: SimulatedBackend) -> ConversationLibrary:
    """One conversation: slot 1 its generation, then slot n + 1 message n."""
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    with library.create(id=ID, labels={"title": "Eight"}) as store:
        for message in SAID:
            store.append_message(message)
    return library


def changed(backend: SimulatedBackend, slot: int, what: bytes, by: bytes) -> None:
    data = backend.object(ID, f"s/{slot}")
    assert what in data
    backend.set_object(ID, f"s/{slot}", data.replace(what, by))


def left(library: ConversationLibrary, tmp_path: Path) -> Path:
    """The folder of the exported conversation, which the backend still refuses."""
    before = library.verify(ID)
    assert not before.is_intact
    library.export_damaged(ID, tmp_path / "left")  # type: ignore[attr-defined]
    with pytest.raises(CorruptTranscriptError):
        library.open(ID, read_only=True)
    assert library.verify(ID) == before
    return tmp_path / "left"


def numbers(folder: Path) -> list[int]:
    with ConversationStore(folder, read_only=True) as store:
        store.load()
        return [int(message["content"].split()[1]) for message in store.get_messages()]


@pytest.mark.parametrize(("mode", "kept"), [("prefix", [1, 2]), ("salvage", [1, 2, 4, 5, 6, 7, 8])])
def test_a_message_that_was_changed(
    backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path, mode: str, kept: list[int]
) -> None:
    """Each mode keeps of it what it keeps of a folder in which that line was changed; nothing else is lost."""
    changed(backend, 4, b"number 3", b"number 9")
    folder = left(library, tmp_path)
    assert [one.record.message["content"] for one in salvage(folder).found if one.record and one.record.message][
        2
    ] == "number 9"
    assert repair(folder, mode=mode, dry_run=False).records_left_out == (0 if mode == "salvage" else 5)  # type: ignore[arg-type]
    assert verify(folder).is_intact
    assert numbers(folder) == kept


@pytest.mark.parametrize("slot", [2, 5, 9])
def test_a_slot_that_is_gone(
    backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path, slot: int
) -> None:
    """Slots after a hole are kept. The record directly after it cannot be verified, as in a file with a missing line, so
    only ``accept-edits`` keeps it.
    """
    backend.set_object(ID, f"s/{slot}", None)
    folder = left(library, tmp_path)
    shutil.copytree(folder, tmp_path / "edited")
    repair(folder, mode="salvage", dry_run=False)
    assert numbers(folder) == [number for number in range(1, 9) if number not in (slot - 1, slot)]
    repair(tmp_path / "edited", mode="accept-edits", dry_run=False)
    assert numbers(tmp_path / "edited") == [number for number in range(1, 9) if number != slot - 1]


def test_an_envelope_that_was_changed(backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path) -> None:
    """Every record is whole then: the folder needs no repair, and goes back as it is, under another id, with its title."""
    changed(backend, 5, b'"kind":"append"', b'"kind":"Append"')
    folder = left(library, tmp_path)
    assert numbers(folder) == list(range(1, 9))
    back = ConversationLibrary(backend).fork_from(folder)
    assert back != ID
    with ConversationLibrary(backend).open(back, read_only=True) as store:
        assert len(store.get_messages()) == 8
        assert store.get_metadata().labels == {"title": "Eight"}


def test_foreign_bytes_in_a_slot_are_a_gap(
    backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path
) -> None:
    """A slot that is no slot at all is a gap, and so is the record that is chained to what stood there."""
    backend.set_object(ID, "s/4", b"\x00\xff not ours\n")
    folder = left(library, tmp_path)
    repair(folder, mode="salvage", dry_run=False)
    assert numbers(folder) == [1, 2, 5, 6, 7, 8]


def test_the_first_slot_is_gone(backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path) -> None:
    """Its messages are kept; its metadata was in that slot, and is reported as new."""
    backend.set_object(ID, "s/1", None)
    folder = left(library, tmp_path)
    assert repair(folder, mode="salvage", dry_run=False).metadata_from == "nothing"
    assert numbers(folder) == list(range(2, 9))


def test_a_generation_that_began_behind_the_damage(
    backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path
) -> None:
    """The live transcript is whole then; of the earlier generation the beginning is in the archive, and a repair takes it out, as any other
    that is not what was archived.
    """
    with library.open(ID) as store:
        store.keep_records([1, 2])
        store.append_message({"role": "user", "content": "number 10"})
    changed(backend, 4, b"number 3", b"number 9")
    folder = left(library, tmp_path)
    done = repair(folder, mode="prefix", dry_run=False)
    assert done.records_left_out == 0
    assert numbers(folder) == [1, 2, 10]
    assert verify(folder).is_intact
    assert b"number 2" in Path(done.originals[-1]).read_bytes()


def test_a_pack_that_is_damaged(tmp_path: Path) -> None:
    """Of a pack whose slots cannot be told apart any more, each line that is whole is kept."""
    backend = SimulatedObjectStore()
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    with library.create(id=ID) as store:
        for message in SAID:
            store.append_message(message)
        store.pack(tidy=True)  # type: ignore[attr-defined]
    (name,) = (name for name in backend.names(ID) if name.startswith("p/"))
    data = backend.object(ID, name)
    backend.set_object(ID, name, data.replace(b"number 3", b"number three"))
    folder = left(library, tmp_path)
    repair(folder, mode="salvage", dry_run=False)
    assert numbers(folder) == [1, 2, 4, 5, 6, 7, 8]


def test_what_is_sealed_stays_sealed(backend: SimulatedBackend, tmp_path: Path) -> None:
    """Nothing plain comes into the folder; with the key, and the word that records may be missing, it is read."""
    with library_on(backend).create(id=ID, messages=MESSAGES[:2]) as store:
        store.append_message(MESSAGES[2])
        store.append_message(MESSAGES[3])
    backend.set_object(ID, "s/2", backend.object(ID, "s/2")[:-9] + b"AAAAAAAA\n")
    folder = left(library_on(backend, None), tmp_path)
    assert not any(CANARY.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    repair(folder, mode="salvage", dry_run=False)
    with ConversationStore(folder, encryption_key=KEY) as store:
        store.load(accept_unkeyed_repair=True)
        assert store.get_messages() == [*MESSAGES[:2], MESSAGES[3]]


def test_nothing_is_written_over(library: ConversationLibrary, tmp_path: Path) -> None:
    """A folder that is there is refused, and so is a conversation that is not there or was deleted."""
    (tmp_path / "there").mkdir()
    with pytest.raises(ConversationExistsError):
        library.export_damaged(ID, tmp_path / "there")  # type: ignore[attr-defined]
    library.delete(ID)
    with pytest.raises(ConversationNotFoundError):
        library.export_damaged(ID, tmp_path / "left")  # type: ignore[attr-defined]
    assert not (tmp_path / "left").exists()
