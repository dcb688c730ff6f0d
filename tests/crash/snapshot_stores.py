"""Stores of snapshots that something happens to: the rows of the crash matrix for ``FileStore``."""

from __future__ import annotations

from typing import Any

from tests.crash.model import Machine, State, World, insist
from tests.crash.operations import Case, nothing
from tests.kit.machines import machine_of
from transcript_store import DecryptionError, FileStore, Snapshot, TranscriptStoreError
from transcript_store.testing import SimulatedFileSystem

STORE = "/home/agent/snapshots"
OLD_KEY, NEW_KEY, LATER_KEY = bytes(32), bytes([1] * 32), bytes([2] * 32)
IMAGE, OTHER_IMAGE = "chatmedia+sha256:an image", "chatmedia+sha256:another"
"""A text that looks like a reference is kept as media at any length, so these files are short."""


def snapshot(number: int, *messages: Any) -> Snapshot:
    return Snapshot.create(
        id=f"00000000-0000-4000-8000-{number:012d}",
        provider="claude",
        model="a-model",
        messages=messages,
        created_at=f"2026-03-31T12:00:{number:02d}Z",
    )


PROBE = snapshot(59, "are you still there?", IMAGE)


# ---- looked at -------------------------------------------------------------------------------------------------------


def store_on(disk: Machine, key: bytes | None = None, *retired: bytes) -> FileStore:
    return FileStore(STORE, encryption_key=key, retired_keys=retired, file_system=disk)


def state_of(store: FileStore) -> State:
    """Every snapshot that the store has files of, whole: a damaged one is an error here, not a gap."""
    found = [store.load(summary.id) for summary in store.list()]
    names = [name for name in _names(store) if name.endswith(".json")]
    insist(len(names) == len(found), f"{len(names)} files, {len(found)} snapshots")
    return State(tuple(one.id.encode() + one.messages_json for one in found))


def _names(store: FileStore) -> list[str]:
    disk = machine_of(store)
    return [path.removeprefix(f"{STORE}/") for path in disk.tree() if path.startswith(f"{STORE}/")]


def readable(disk: Machine, *keys: bytes) -> FileStore:
    """The store as whoever has these keys opens it."""
    return store_on(disk, *keys)


def observed_with(*keys: bytes) -> Any:
    def observe(disk: Machine) -> State:
        store = readable(disk, *keys)
        state = state_of(store)
        store.save(PROBE)
        insist(store.load(PROBE.id) == PROBE, "what is saved after the crash is not there")
        insist(not any("tmp" in name for name in _names(store)), "leftovers were not swept")
        store.collect_media(older_than_seconds=0)
        insist(store.verify() == [], f"verify finds {store.verify()}")
        insist(state_of(store).records == tuple(sorted_with_probe(state)), "media that is referred to was collected")
        store.delete(PROBE.id)
        store.rotate_key(LATER_KEY)
        insist(
            state_of(store_on(disk.another_process(), LATER_KEY)) == state, "after another rotation it is not the same"
        )
        insist("sealing" not in _names(store), "the sealing is not finished")
        return state

    return observe


def sorted_with_probe(state: State) -> list[bytes]:
    assert state.records is not None
    return sorted([*state.records, PROBE.id.encode() + PROBE.messages_json], reverse=True)


def shown_with(*keys: bytes) -> Any:
    return lambda disk: state_of(readable(disk, *keys))


def go_on(store: FileStore) -> tuple[State, State]:
    before = state_of(store)
    store.save(PROBE)
    return before, state_of(store)


def go_on_sealing(store: FileStore) -> tuple[State, State]:
    """Where a seal was begun nothing is saved in the clear: it is refused, and the seal is made first."""
    before = state_of(store)
    try:
        store.save(PROBE)
    except DecryptionError:
        store.rotate_key(NEW_KEY)
        store.save(PROBE)
    return before, state_of(store)


def plain_opened(disk: Machine, durability: str, load: bool) -> FileStore:
    return store_on(disk)


def sealed_opened(disk: Machine, durability: str, load: bool) -> FileStore:
    return store_on(disk, OLD_KEY)


def being_sealed(disk: Machine) -> State:
    """A plain store that was being sealed: each file opens without a key or with the new one, and a second call finishes.

    Who finishes has the new key already, or none yet; both must do.
    """
    plain, sealed = store_on(disk), store_on(disk, NEW_KEY)
    either: dict[str, Snapshot] = {}
    for name in _names(plain):
        if name.endswith(".json"):
            wanted = name.removesuffix(".json")
            for store in (plain, sealed, _mixed(disk)):
                try:
                    either[wanted] = store.load(wanted)
                    break
                except TranscriptStoreError:
                    continue
            insist(wanted in either, f"neither form opens {name}")
    state = State(tuple(one.id.encode() + one.messages_json for _, one in sorted(either.items(), reverse=True)))
    for key in (None, NEW_KEY):
        finisher = store_on(disk.copy(), key)
        if key is not None and "sealing" not in _names(finisher) and not sealed.list():
            continue  # it had not begun
        finisher.rotate_key(NEW_KEY)
        insist(
            state_of(store_on(machine_of(finisher).another_process(), NEW_KEY)) == state, "a second call did not finish"
        )
    return state


def _mixed(disk: Machine) -> FileStore:
    """A snapshot that is not sealed yet may refer to media that is, for as long as the rotation lasts."""
    copy = disk.copy()
    store = store_on(copy)
    store.rotate_key(NEW_KEY)
    return store


PLAIN = World(f"{STORE}/lock", plain_opened, observed_with(), shown_with(), go_on)
SEALED = World(f"{STORE}/lock", sealed_opened, observed_with(NEW_KEY, OLD_KEY), shown_with(NEW_KEY, OLD_KEY), go_on)
BEING_SEALED = World(f"{STORE}/lock", plain_opened, being_sealed, being_sealed, go_on_sealing)


# ---- stores that something happens to --------------------------------------------------------------------------------


def _two(key: bytes | None) -> SimulatedFileSystem:
    disk = nothing()
    store = store_on(disk, key)
    store.save(snapshot(1, "one", IMAGE))
    store.save(snapshot(2, "two"))
    return disk.copy()


def two() -> SimulatedFileSystem:
    return _two(None)


def two_sealed() -> SimulatedFileSystem:
    return _two(OLD_KEY)


def unsynced_media() -> SimulatedFileSystem:
    """Another program stored a medium and synced nothing: it is in the cache, and may go."""
    disk = two()
    folder = disk.open_directory(f"{STORE}/media")
    from transcript_store._snapshots.media import media_hash

    disk.write(disk.create(folder, media_hash(OTHER_IMAGE.encode())), OTHER_IMAGE.encode())
    return disk.kill_process()


def unsynced_folder() -> SimulatedFileSystem:
    """Another program, or a process that was killed, has just made the directory of media: its name may go."""
    disk = nothing()
    store_on(disk).save(snapshot(1, "one"))
    disk = disk.copy()
    disk.make_directory(disk.open_directory(STORE), "media")
    return disk.kill_process()


# ---- what happens ----------------------------------------------------------------------------------------------------


def save(store: FileStore) -> None:
    store.save(snapshot(3, "three"))


def save_media(store: FileStore) -> None:
    store.save(snapshot(4, "four", IMAGE, OTHER_IMAGE))


def overwrite(store: FileStore) -> None:
    store.save(snapshot(1, "one, again", OTHER_IMAGE))


def delete(store: FileStore) -> None:
    store.delete(snapshot(1).id)


def collect(store: FileStore) -> None:
    store.collect_media(older_than_seconds=0)


def rotate(store: FileStore) -> None:
    store.rotate_key(NEW_KEY)


CASES = [
    Case(nothing, (save, save_media), world=PLAIN),
    Case(two, (overwrite, delete, collect), world=PLAIN),
    Case(unsynced_media, (save_media,), world=PLAIN),
    Case(unsynced_folder, (overwrite,), world=PLAIN),
    Case(two_sealed, (save_media, rotate), world=SEALED),
    Case(two, (rotate,), world=BEING_SEALED),
]
