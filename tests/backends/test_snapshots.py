"""Snapshots on a backend keep the promises of a directory, without its lock.

The incident is the one of the design: whoever reads, judges and then overwrites loses what another one saved in between. So a write
names the version that it replaces, and the schedules here put the other one exactly there.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.backends.servers import seaweedfs
from tests.kit.postgres import PostgresServer
from tests.snapshots.helpers import BOTH, IMAGE, IMAGE_NAME, KEY, OTHER_KEY, snapshot
from transcript_store import DecryptionError, FileStore, Snapshot, SnapshotNotFoundError
from transcript_store._snapshots.stored import is_mark, is_text
from transcript_store.backends import (
    BackendError,
    BackendSnapshotStore,
    ObjectStoreBackend,
    OutcomeUnknownError,
    PostgresBackend,
    UnsupportedByBackendError,
    open_snapshot_store,
)
from transcript_store.backends._objects import ObjectCells
from transcript_store.testing import (
    BackendRequest,
    Fate,
    SimulatedBackend,
    SimulatedFileSystem,
    SimulatedObjectStore,
    check_snapshot_store,
)


class Between(ObjectCells):
    """Does something between a look and the put of a snapshot, once."""

    def __init__(self, inner: ObjectCells, then: Any) -> None:
        self._bucket, self._require_fit = inner._bucket, inner._require_fit
        self.then = then

    def put(self, name: str, data: bytes, known: Any, holding: Any = ()) -> bool:
        def put() -> bool:
            return ObjectCells.put(self, name, data, known, holding)

        if self.then is None or is_mark(data) or not name.endswith(".json"):
            return put()
        then, self.then = self.then, None
        return bool(then(put))


_processes = count(1)


def made(backend: ObjectStoreBackend, then: Any = None, **options: Any) -> BackendSnapshotStore:
    machine = SimulatedFileSystem()
    machine.random_bytes(64 * next(_processes))  # each has a chance of its own
    store = BackendSnapshotStore(backend, file_system=machine, **options)
    store._cells = Between(store._cells, then)
    return store


@BOTH
def test_objects_keep_the_contract(key: bytes | None) -> None:
    """R13: every numbered line of ``check_snapshot_store``, sealed and plain."""
    check_snapshot_store(lambda: BackendSnapshotStore(ObjectStoreBackend("memory:///x"), encryption_key=key))


def test_a_rotation_puts_back_nothing_that_was_saved_meanwhile() -> None:
    """V1: a save between a rotation's read and its put stays."""
    backend, old = ObjectStoreBackend("memory:///x"), snapshot("old")
    made(backend, encryption_key=KEY).save(old)
    new = snapshot("new", id=old.id)

    def then(put: Any) -> bool:
        made(backend, encryption_key=KEY).save(new)
        return bool(put())

    made(backend, then, encryption_key=KEY).rotate_key(OTHER_KEY)
    assert made(backend, encryption_key=OTHER_KEY).load(old.id) == new


def test_what_the_keys_do_not_open_is_not_replaced() -> None:
    """V1: also if it was saved after the look."""
    backend, one = ObjectStoreBackend("memory:///x"), snapshot("one")
    other = snapshot("other", id=one.id)

    def then(put: Any) -> bool:
        made(backend, encryption_key=OTHER_KEY).save(other)
        return bool(put())

    store = made(backend, then, encryption_key=KEY)
    with pytest.raises(DecryptionError):
        store.save(one)
    assert made(backend, encryption_key=OTHER_KEY).load(one.id) == other


def test_an_answer_that_is_lost() -> None:
    """R6, V4: a completed change is found; without any answer the outcome is unknown, and no address is shown."""
    backend, one = ObjectStoreBackend("memory:///x"), snapshot("one")

    def lost(put: Any) -> bool:
        put()
        raise OutcomeUnknownError("no answer")

    store = made(backend, lost, encryption_key=KEY)
    store.save(one)
    assert store.load(one.id) == one
    silent = made(backend, encryption_key=KEY, waits_seconds=())
    silent._cells.then = lost
    with pytest.raises(BackendError) as told:
        silent.save(snapshot("two"))
    assert told.value.outcome == "unknown"


@BOTH
def test_an_answer_that_is_lost_while_another_process_seals(key: bytes | None) -> None:
    """R6, V4: the snapshot was stored, and is sealed with a key that this one has not. That is unknown to it, and not "nothing was stored"."""
    backend, one = ObjectStoreBackend("memory:///x"), snapshot("one", IMAGE)

    def lost(put: Any) -> bool:
        put()
        made(backend, encryption_key=key).rotate_key(OTHER_KEY)
        raise OutcomeUnknownError("no answer")

    store = made(backend, lost, encryption_key=key)
    with pytest.raises(BackendError, match="unknown; the next call finds out") as told:
        store.save(one)
    assert told.value.outcome == "unknown"
    assert isinstance(told.value.__cause__, DecryptionError)
    for call in (store.save, lambda one: store.load(one.id)):
        with pytest.raises(DecryptionError):  # it is there, and not this one's
            call(one)
    assert made(backend, encryption_key=OTHER_KEY).load(one.id) == one


@BOTH
def test_an_answer_that_is_lost_before_the_server_refuses(key: bytes | None) -> None:
    """R6, V4: a refusal of what is asked next says nothing of what was asked before."""
    backend, one = ObjectStoreBackend("memory:///x"), snapshot("one")
    store = made(backend, encryption_key=key)

    def lost(put: Any) -> bool:
        put()
        store._cells.get = refused
        raise OutcomeUnknownError("no answer")

    def refused(name: str) -> Any:
        raise BackendError(path=name, doing="read", reason="the role may not read", outcome="not stored")

    store._cells.then = lost
    with pytest.raises(BackendError, match="the role may not read") as told:
        store.save(one)
    assert told.value.outcome == "unknown"
    assert made(backend, encryption_key=key).load(one.id) == one


def test_no_answer_before_the_first_request_means_not_stored() -> None:
    """R6: then it is known that nothing is stored."""
    store = made(ObjectStoreBackend("memory:///x"), encryption_key=KEY)

    def silent(name: str) -> Any:
        raise OutcomeUnknownError(name)

    store._cells.get = silent
    with pytest.raises(BackendError) as told:
        store.save(snapshot("one"))
    assert told.value.outcome == "not stored"


def test_a_store_that_was_sealed_meanwhile_takes_nothing_in_the_clear() -> None:
    """V5: between two saves, and between the look and the put of one."""
    backend, canary = ObjectStoreBackend("memory:///x"), snapshot("canary", IMAGE)
    keyless = made(backend)
    keyless.save(snapshot("one"))

    def then(put: Any) -> bool:
        made(backend).rotate_key(KEY)
        return bool(put())

    keyless._cells.then = then
    for _ in range(2):
        with pytest.raises(DecryptionError):
            keyless.save(canary)
    assert made(backend, encryption_key=KEY).verify() == []
    assert made(backend, encryption_key=KEY).list() == made(backend, encryption_key=KEY).list()
    for cell in backend.cells.list(""):
        found = backend.cells.get(cell.name)
        assert found is not None
        assert is_mark(found.data) or not is_text(found.data)


def test_a_removal_that_comes_late_takes_nothing_that_was_saved_meanwhile() -> None:
    """V1: an object store cannot look at a version when it removes, so nothing is removed there."""
    backend, one = ObjectStoreBackend("memory:///x"), snapshot("one")
    made(backend, encryption_key=KEY).save(one)
    cells = backend.cells
    there = cells.get(f"{one.id}.json")
    store = made(backend, encryption_key=KEY)
    store.delete(one.id)
    with pytest.raises(SnapshotNotFoundError):
        store.delete(one.id)
    with pytest.raises(SnapshotNotFoundError):
        store.load(one.id)
    assert (store.list(), store.verify(), store.opens()) == ([], [], True)
    store.save(one)
    assert not cells.put(f"{one.id}.json", b"nothing", there)
    assert store.load(one.id) == one


def test_a_bucket_is_a_directory_of_snapshots(tmp_path: Path) -> None:
    """The bytes are those that a ``FileStore`` writes, under the same names."""
    backend, one = ObjectStoreBackend("memory:///x"), snapshot("one", IMAGE)
    store, gone = BackendSnapshotStore(backend), snapshot("gone")
    store.save(one)
    FileStore(tmp_path / "store").save(one)
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file() and path.name != "lock":
            found = backend.cells.get(str(path.relative_to(tmp_path / "store")))
            assert found is not None
            assert found.data == path.read_bytes()
    store.save(gone)
    store.delete(gone.id)  # and so does what stands where nothing is any more
    mark = backend.cells.get(f"{gone.id}.json")
    assert mark is not None
    (tmp_path / "store" / f"{gone.id}.json").write_bytes(mark.data)
    for each in (store, FileStore(tmp_path / "store")):
        assert (each.verify(), [summary.id for summary in each.list()]) == ([], [one.id])
        with pytest.raises(SnapshotNotFoundError):
            each.load(gone.id)
    with pytest.raises(UnsupportedByBackendError):
        BackendSnapshotStore(backend).collect_media(older_than_seconds=0)


def test_a_store_by_its_address(tmp_path: Path) -> None:
    """An address as that of a library, or a directory; with its keys. What cannot be one is refused without repeating it."""
    stores = [
        open_snapshot_store(where, encryption_key=KEY) for where in (tmp_path / "a", str(tmp_path / "b"), "memory:///x")
    ]
    assert [type(store) for store in stores] == [FileStore, FileStore, BackendSnapshotStore]
    for store in stores:
        store.save(one := snapshot("one"))
        assert (store.has_key, store.load(one.id)) == (True, one)
    postgres = open_snapshot_store("postgresql://ada:s3cret@nowhere.example/agents", create=True)
    assert isinstance(postgres, BackendSnapshotStore)
    assert postgres.directory == "postgresql://nowhere.example/agents/snapshots"
    with pytest.raises(ValueError, match="there is no backend for ftp://") as told:
        open_snapshot_store("ftp://ada:s3cret@host/x")
    assert "s3cret" not in str(told.value)


@pytest.mark.long
@BOTH
def test_postgresql_keeps_the_contract(postgres: PostgresServer, key: bytes | None) -> None:
    """R13: every numbered line, each in a schema of its own."""

    def make() -> BackendSnapshotStore:
        return BackendSnapshotStore(PostgresBackend(postgres.schema(), create=True, connections=2), encryption_key=key)

    check_snapshot_store(make)


@pytest.mark.long
def test_media_that_a_save_is_about_to_refer_to_is_not_collected(postgres: PostgresServer) -> None:
    """V2, V3: a save that comes behind the look at snapshots has given its media another version; then the unused goes."""
    backend = PostgresBackend(postgres.schema(), create=True)
    store, first, second = BackendSnapshotStore(backend), snapshot("first", IMAGE), snapshot("second", IMAGE)
    store.save(first)
    store.delete(first.id)
    with store._reading("collect") as files:
        assert files is not None
        looked = files.in_use

        def then_saved() -> set[str] | None:
            found = looked()
            store.save(second)
            return found

        assert files.collect(then_saved, 0) == []
    assert store.load(second.id) == second
    store.delete(second.id)
    assert store.collect_media(older_than_seconds=0) == [IMAGE_NAME]
    with pytest.raises(SnapshotNotFoundError):
        store.load(second.id)


@pytest.mark.long
@BOTH
def test_seaweedfs_keeps_the_contract(tmp_path: Path, key: bytes | None) -> None:
    """R13: every numbered line, each under a prefix of its own."""
    server = seaweedfs(tmp_path)
    made: list[int] = []

    def make() -> BackendSnapshotStore:
        made.append(1)
        return BackendSnapshotStore(server.backend(f"store-{len(made)}"), encryption_key=key)

    try:
        check_snapshot_store(make)
    finally:
        server.kill()


@pytest.mark.parametrize("backend", [SimulatedBackend, SimulatedObjectStore])
def test_what_was_deleted_hides_no_sealing(backend: type[SimulatedBackend], tmp_path: Path) -> None:
    """V5, P17, a reported bug: the first eight snapshots were all deleted, so the store saved plaintext and accepted any key."""
    cells = backend()
    sealed = BackendSnapshotStore(cells, encryption_key=KEY)
    ids = [f"{number:08}-0000-4000-8000-000000000000" for number in range(10)]
    for each in ids:
        sealed.save(snapshot({"role": "user", "content": "secret"}, id=each))
    for each in ids[:8]:
        sealed.delete(each)
    for name, data in cells.cells.contents.items():
        tmp_path.joinpath(name).write_bytes(data)  # a directory that is a copy of what is there

    def another(key: bytes | None) -> list[BackendSnapshotStore | FileStore]:
        return [BackendSnapshotStore(cells, encryption_key=key), FileStore(tmp_path, encryption_key=key)]

    assert [store.opens() for store in another(OTHER_KEY)] == [False, False]
    assert [store.opens() for store in another(KEY)] == [True, True]
    for store in another(None):
        with pytest.raises(DecryptionError, match="sealed and no key was given"):
            store.save(snapshot({"role": "user", "content": "in the clear"}))
    for each in ids[8:]:
        sealed.delete(each)
    assert BackendSnapshotStore(cells, encryption_key=OTHER_KEY).opens()


def test_media_whose_removal_nobody_answered_may_be_gone() -> None:
    """V4: it said that nothing was stored, and the media was gone."""
    backend = SimulatedBackend()
    store = BackendSnapshotStore(backend, file_system=SimulatedFileSystem())
    saved = snapshot({"role": "user", "content": [IMAGE]})
    store.save(saved)
    store.delete(saved.id)
    fates = iter([Fate.LOST])
    backend.on_request = lambda request: next(fates, Fate.REFUSED) if request.call == "remove" else None
    with pytest.raises(BackendError) as told:
        store.collect_media(older_than_seconds=0)
    assert told.value.outcome == "unknown"


def test_a_save_that_was_refused_for_its_media_may_be_done_by_a_late_repeat() -> None:
    """V4: a collection took its media, and the request came once more when the media was back. It was told as not stored."""
    backend = SimulatedBackend()
    store = BackendSnapshotStore(backend, file_system=SimulatedFileSystem())
    saved = snapshot({"role": "user", "content": [IMAGE]})
    store.save(saved)
    (media,) = [(name, data) for name, data in backend.cells.contents.items() if name.startswith("media/")]

    def refused_and_then_silence(request: BackendRequest) -> Fate | None:
        if request.call != "put" or not request.name.endswith(".json"):
            return None
        backend.cells.set(media[0], None)
        backend.on_request = lambda _: Fate.REFUSED
        return Fate.TWICE

    backend.on_request = refused_and_then_silence
    changed = snapshot({"role": "user", "content": [IMAGE]}, id=saved.id, model="another")
    with pytest.raises(BackendError) as told:
        store.save(changed)
    assert told.value.outcome == "unknown"
    backend.on_request = None
    backend.cells.set(*media)
    backend.land()
    assert store.load(saved.id).model == "another"


@pytest.mark.parametrize("backend", [SimulatedBackend, SimulatedObjectStore])
def test_a_list_asks_for_nothing_that_was_deleted(backend: type[SimulatedBackend]) -> None:
    """A mark is known by its size: it cost every list one request, for ever. What is damaged to that size is for ``verify``."""
    cells = backend()
    store = BackendSnapshotStore(cells, file_system=SimulatedFileSystem())
    kept, *gone = (snapshot("a message", id=f"{number:08}-0000-4000-8000-000000000000") for number in range(4))
    for each in (kept, *gone):
        store.save(each)
    for each in gone:
        store.delete(each.id)
    asked: list[str] = []

    def note(request: BackendRequest) -> None:
        if request.call == "get":
            asked.append(request.name)

    cells.on_request = note
    assert [each.id for each in store.list()] == [kept.id]
    assert asked == [f"{kept.id}.json"]
    cells.cells.set(f"{kept.id}.json", bytes(49))
    assert store.list() == []
    assert len(store.verify()) == 1


def test_no_snapshot_that_is_written_has_the_size_of_a_mark() -> None:
    """A list passes over what has that size (49 bytes): the shortest snapshot, of messages of no provider, has more than twice as much."""
    shortest = Snapshot.create(provider="", model="", messages=[], created_at="0001-01-01T00:00:00Z")
    backend = SimulatedBackend()
    store = BackendSnapshotStore(backend, file_system=SimulatedFileSystem())
    store.save(shortest)
    (written,) = backend.cells.contents.values()
    store.delete(shortest.id)
    (mark,) = backend.cells.contents.values()
    assert len(written) > 2 * len(mark)
