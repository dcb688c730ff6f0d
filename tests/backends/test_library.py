"""A library on a backend, where it differs from a folder: shared writers, waiting, lost answers, and the local disk.

The incident behind most of it: an agent that lives in a pod has no disk to speak of. What it fetched must not be found there, and a full disk must
not make it forget what the backend has.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.backends.schedules import texts
from transcript_store import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptTranscriptError,
    Snapshot,
    StorageError,
    TranscriptStoreError,
)
from transcript_store._conversation.writer import Writer
from transcript_store.aio import AsyncConversationLibrary
from transcript_store.backends import (
    BackendConversation,
    BackendError,
    BackendSnapshotStore,
    ConversationTakenOverError,
    ObjectStoreBackend,
    UnsupportedByBackendError,
)
from transcript_store.backends._claims import ClaimedLog
from transcript_store.backends._mirror import Mirror
from transcript_store.backends._slots import encoded
from transcript_store.backends._storage import BackendWriter
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedFileSystem

ID = "6f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"


@pytest.fixture
def library(backend: SimulatedBackend) -> ConversationLibrary:
    return ConversationLibrary(backend, file_system=SimulatedFileSystem())


def says(text: str) -> dict[str, str]:
    return {"text": text}


def descriptors() -> set[str]:
    """The file descriptors of this process, without that of the look itself."""
    return {fd for fd in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{fd}").exists()}


def nobody_answers(backend: SimulatedBackend, *first: Fate) -> None:
    """The next changing requests have these fates, and then no request is answered."""
    fates = list(first)
    backend.on_request = lambda request: fates.pop(0) if request.changes and fates else Fate.REFUSED


# ---- in turn ------------------------------------------------------------------------------------------------------------


def test_two_that_take_turns_see_each_other(library: ConversationLibrary):
    """R3, R5: ``hold_lock=False``: each call sees the other's records, and claims if another process wrote last."""
    with (
        library.create(id=ID, hold_lock=False, holder="one") as one,
        library.open(ID, hold_lock=False, holder="two") as two,
    ):
        for n in range(3):
            for store in (one, two):
                before = store.record_count
                assert store.append_message(says(f"{n}")).seq == before + 1 == len(two.get_messages())
        one.replace_transcript([says("less")])
        assert texts(two) == ["less"]
        two.update_metadata(model="m")
        assert one.get_metadata().model == "m"
        head = one.head
        two.append_message(says("more"))
        with pytest.raises(ConversationChangedError):
            one.append_message(says("no"), if_head=head)
        with library.open(ID, holder="alone") as alone:  # a lock that is let go between calls keeps nobody away
            alone.append_message(says("mine"))
            with pytest.raises(ConversationLockedError) as told:
                one.append_message(says("no"))
            assert not isinstance(told.value, ConversationTakenOverError)
            assert texts(one) == ["less", "more", "mine"]
        one.append_message(says("again"))
    assert library.verify(ID).records == 4


@pytest.mark.parametrize("is_bound", [False, True])
def test_two_shared_appends_are_stored_one_after_the_other(
    backend: SimulatedBackend, library: ConversationLibrary, is_bound: bool
):
    """R5: between one's read and put, the other claims and appends. With ``if_head`` the call raises, otherwise it
    appends after it.
    """
    with library.create(id=ID, hold_lock=False) as one, library.open(ID, hold_lock=False) as two:
        one.append_message(says("first"))
        head = one.head

        def comes_between(request: BackendRequest) -> None:
            if request.call == "put":
                backend.on_request = None
                two.append_message(says("faster"))

        backend.on_request = comes_between
        if is_bound:
            with pytest.raises(ConversationChangedError):
                one.append_message(says("slower"), if_head=head)
        else:
            assert one.append_message(says("slower")).seq == 3
        assert texts(one) == texts(two) == ["first", "faster", "slower"][: 2 if is_bound else 3]


def test_there_is_one_or_it_is_begun(backend: SimulatedBackend):
    """``load_or_initialize`` and ``exists``."""
    for is_new in (True, False):
        with BackendConversation(backend, ID, take_over=True) as store:
            assert store.exists() is not is_new
            assert store.load_or_initialize(messages=[says("one")]) is is_new
            assert store.exists()
            assert texts(store) == ["one"]
            with pytest.raises(ConversationExistsError):
                store.initialize()


def test_open_waits_until_the_claim_is_released(backend: SimulatedBackend, library: ConversationLibrary):
    """``lock_timeout_seconds``: as long as the other one writes, and not a minute more."""
    first = library.create(id=ID)
    with pytest.raises(ConversationLockedError, match="take_over=True"):
        library.open(ID)
    reads = 0

    def on_request(request: BackendRequest) -> None:
        nonlocal reads
        reads += request.call == "read"
        if reads == 4:
            backend.on_request = None
            first.append_message(says("last word"))
            first.close()

    backend.on_request = on_request
    with library.open(ID, lock_timeout_seconds=30) as second:
        assert texts(second) == ["last word"]


def test_a_writer_that_was_deposed_reads_on_and_claims_again(library: ConversationLibrary):
    """R4: each writing call names the new writer; fetched records can be read, and ``load()`` continues."""
    with (
        library.create(id=ID, messages=[says("one")], take_over=True) as here,
        library.open(ID, take_over=True) as there,
    ):
        there.append_message(says("two"))
        calls: list[Callable[[], object]] = [
            lambda: here.append_message(says("no")),
            lambda: here.replace_transcript([]),
            lambda: here.keep_records([1]),
            lambda: here.update_metadata(model="no"),
            here.retract,
        ]
        for call in calls:
            with pytest.raises(ConversationTakenOverError if call is not calls[-1] else TranscriptStoreError):
                call()
            assert texts(here) == ["one"]
            assert here.get_metadata().model is None
            assert [each.number for each in here.generations()] == [0]
        here.load()
        assert texts(here) == ["one", "two"]
        here.append_message(says("three"))
        with pytest.raises(ConversationTakenOverError):
            there.append_message(says("no"))
        assert isinstance(here, BackendConversation)
        assert here.epoch == 3


# ---- what nobody answered -----------------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[Callable[[ConversationStore], object], Callable[[ConversationStore], bool]]] = {
    "append": (lambda store: store.append_message(says("two")), lambda store: store.record_count == 2),
    "replace": (lambda store: store.replace_transcript([says("two")]), lambda store: len(store.generations()) == 2),
    "keep": (lambda store: store.keep_records([1]), lambda store: len(store.generations()) == 2),
    "metadata": (lambda store: store.update_metadata(model="m"), lambda store: store.get_metadata().model == "m"),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LATE, Fate.REFUSED])
@pytest.mark.parametrize("is_read_between", [True, False])
def test_each_change_without_an_answer(backend: SimulatedBackend, change: str, fate: Fate, is_read_between: bool):
    """R2, R6: whole or absent, what was known can be read meanwhile, and the next call that writes knows."""
    make, is_made = CHANGES[change]
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    with library.create(id=ID, messages=[says("one")]) as store:
        assert isinstance(store, BackendConversation)
        nobody_answers(backend, fate)
        with pytest.raises(BackendError) as told:
            make(store)
        assert (told.value.outcome, store.outcome(told.value)) == ("unknown", None)
        if is_read_between:
            assert texts(store) == ["one"]
            assert store.get_metadata().model is None
        backend.on_request = None
        if fate is Fate.LATE and is_read_between:
            assert not is_made(store)  # a read looked, and nothing was there: it is for the next write to find out
        while backend.late:
            backend.land()
        seen = is_made(store)
        store.update_metadata(system_prompt="p")
        assert store.outcome(told.value) is is_made(store) is (fate is not Fate.REFUSED)
        assert seen is is_made(store) or (fate is Fate.LATE and is_read_between)
        known = (store.get_records(), store.generations(), store.get_metadata(), store.position)
    with library.open(ID, read_only=True) as reader:
        assert (reader.get_records(), reader.generations(), reader.get_metadata(), reader.position) == known
    assert library.verify(ID).is_intact


def test_a_claim_that_nobody_answered_is_not_taken_for_the_message(backend: SimulatedBackend):
    """R6: the second append has to claim first, and that gets no answer. So its message is not stored, though the claim is.

    A random schedule of turns found it (seed 1894): the claim's outcome was told as that of the message.
    """
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    with library.create(id=ID) as store:
        assert isinstance(store, BackendConversation)
        nobody_answers(backend, Fate.REFUSED)
        with pytest.raises(BackendError) as first:
            store.append_message(says("one"))
        answered = [True]

        def only_the_look(request: BackendRequest) -> Fate:
            if request.call == "put":
                return Fate.LOST
            return Fate.DONE if answered and answered.pop() else Fate.REFUSED

        backend.on_request = only_the_look
        with pytest.raises(BackendError) as second:
            store.append_message(says("two"))
        assert (first.value.outcome, second.value.outcome) == ("unknown", "not stored")
        backend.on_request = None
        store.append_message(says("three"))
        assert (store.outcome(first.value), store.outcome(second.value)) == (False, None)
        assert texts(store) == ["three"]


def test_threads_whose_batch_nobody_answered_are_all_told(backend: SimulatedBackend):
    """R5, R6: a batch of several threads is stored once, or not: no leader stores its own part again."""
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    with library.create(id=ID) as store:
        assert isinstance(store, BackendConversation)
        told: list[BackendError] = []
        is_first, others_wait = threading.Event(), threading.Event()

        def append(n: int) -> None:
            try:
                store.append_message(says(f"{n}"))
            except BackendError as error:
                told.append(error)

        def on_request(request: BackendRequest) -> Fate:
            if request.call == "put" and not is_first.is_set():
                is_first.set()
                others_wait.wait(30)
                return Fate.DONE
            return Fate.LOST if request.changes else Fate.REFUSED

        backend.on_request = on_request
        threads = [threading.Thread(target=append, args=(n,)) for n in range(5)]
        threads[0].start()
        is_first.wait(30)
        for thread in threads[1:]:
            thread.start()
        others_wait.set()
        for thread in threads:
            thread.join()
        backend.on_request = None
        store.append_message(says("last"))
        assert sorted(set(texts(store))) == sorted(texts(store))
        for error in told:
            assert store.outcome(error) is not None
        assert texts(store)[0] == "0"
        assert texts(store)[-1] == "last"


# ---- the mirror ----------------------------------------------------------------------------------------------------------


def test_nothing_of_it_has_a_name_on_the_disk(
    backend: SimulatedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Fetched slots are in memory, or in an unnamed file that no other process can open. A close releases it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library = ConversationLibrary(backend)
    before = descriptors()
    with library.create(id=ID, messages=[says("x" * 100_000)]) as store:
        for n in range(5):
            store.append_message(says(f"{n}" * 50_000))
        store.replace_transcript([says("y" * 100_000)])
        with library.open(ID, read_only=True, cache_bytes=0) as reader:
            assert len(reader.get_messages()[0]["text"]) == 100_000
            assert [len(record.message["text"]) for record in reader.iter_records(generation=0) if record.message] == [
                100_000,
                *[50_000] * 5,
            ]
        assert list(tmp_path.rglob("*")) == []
        opened = [os.fstat(int(fd)) for fd in descriptors() - before]
        files = [status for status in opened if status.st_size >= 100_000]
        assert len(files) == len(opened) == 2
        assert all((status.st_nlink, status.st_mode & 0o777) == (0, 0o600) for status in files)
    assert descriptors() == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_full_disk_here_does_not_lose_what_is_there(
    backend: SimulatedBackend, change: str, monkeypatch: pytest.MonkeyPatch
):
    """G2: the backend has it, and the mirror refuses. The outcome is unknown, and the next call fetches everything again."""
    make, is_made = CHANGES[change]
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    with library.create(id=ID, messages=[says("one")]) as store:
        assert isinstance(store, BackendConversation)
        is_put: list[bool] = []
        backend.on_request = lambda request: is_put.append(True) if request.call == "put" else None

        def full(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                if is_put:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*given)

            return call

        for name in ("write", "rename"):
            monkeypatch.setattr(Mirror, name, full(getattr(Mirror, name)))
        with pytest.raises(StorageError) as told:
            make(store)
        monkeypatch.undo()
        assert isinstance(told.value, BackendError)
        assert is_made(store)
        store.append_message(says("after"))
        assert store.outcome(told.value) is True
        known = store.get_records()
    assert library.verify(ID).is_intact
    with library.open(ID, read_only=True) as reader:
        assert reader.get_records() == known


# ---- rules, left out ----------------------------------------------------------------------------------------------------


def test_without_p1_a_deposed_writer_shows_what_is_not_stored(
    library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
):
    """The slot first, then the mirror. In the other order a fenced writer reads its own message, which no other process has."""

    def spool_first(self: BackendWriter, prepared: Any) -> None:
        Writer.store(self, prepared)
        lines, end = prepared.data, prepared.end
        self.slots.write(lambda state: encoded(state, "append", state.at, lines=lines, end=end), "append")
        del self.slots.fresh[0]

    for is_left_out in (False, True):
        one = f"{ID[:-1]}{int(is_left_out)}"
        if is_left_out:
            monkeypatch.setattr(BackendWriter, "store", spool_first)
        with library.create(id=one) as here, library.open(one, take_over=True):
            with pytest.raises(ConversationTakenOverError):
                here.append_message(says("lost"))
            assert texts(here) == (["lost"] if is_left_out else [])


def test_without_d6_a_late_message_breaks_the_next_one(backend: SimulatedBackend, monkeypatch: pytest.MonkeyPatch):
    """A claim after each write in doubt. Without it, a late write takes the slot that the next message was made for."""
    for is_left_out in (False, True):
        if is_left_out:
            monkeypatch.setattr(ClaimedLog, "is_held", property(lambda log: log.is_ours))
        one = f"{ID[:-1]}{int(is_left_out)}"
        library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
        with library.create(id=one) as store:
            nobody_answers(backend, Fate.LATE)
            with pytest.raises(BackendError):
                store.append_message(says("one"))

            def lands(request: BackendRequest) -> None:
                if request.call == "put" and backend.late:
                    backend.land()

            backend.on_request = lands
            if is_left_out:
                with pytest.raises(AssertionError, match="D6"):
                    store.append_message(says("two"))
            else:
                store.append_message(says("two"))
                assert texts(store) == ["one", "two"]
            backend.on_request = None


# ---- the door -----------------------------------------------------------------------------------------------------------


def test_a_library_on_a_backend_is_a_library(backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path):
    """``ConversationLibrary(backend)``, its name, a group, a fork by the backend, and that paths work as before."""
    assert isinstance(library, ConversationLibrary)
    assert (library.directory, repr(library)) == ("simulated", "ConversationLibrary('simulated')")
    assert type(ConversationLibrary(tmp_path)) is ConversationLibrary
    with library.group() as group:
        ids = {group.add(messages=[says("a")]), group.add()}
    assert {summary.id for summary in library.list()} == ids
    with library.open(one := ids.pop()) as store:
        assert store.directory == f"simulated/{one}"
    other = SimulatedBackend(name="other")
    forked = library.fork(one, into=other)
    assert [summary.id for summary in ConversationLibrary(other).list()] == [forked]
    with pytest.raises(TypeError):
        ConversationLibrary(object())  # type: ignore[arg-type]


def test_what_needs_a_folder_says_so(backend: SimulatedBackend, library: ConversationLibrary):
    """Each error has a hint, and nothing is changed."""
    with library.create(id=ID, messages=[says("one")]) as store:
        store.replace_transcript([says("two")])
        before = backend.names(ID)
        calls: list[Callable[[], object]] = [
            lambda: store.delete_generation(0),
            lambda: library.delete_folder("x"),
            lambda: library.shred_folder("x"),
            lambda: library.prune(keep_generations=0),
            lambda: library.list(last_extra=True),
            store.seal,
        ]
        for call in calls:
            with pytest.raises(UnsupportedByBackendError) as told:
                call()
            assert told.value.hint is not None
            assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)
        with pytest.raises(ValueError, match="live"):
            store.delete_generation(1)
        assert backend.names(ID) == before


def snapshots_in_memory(then: Callable[[], object] | None = None) -> BackendSnapshotStore:
    """A store on its own backend; ``then`` runs after each save, before it returns."""

    class Store(BackendSnapshotStore):
        def save(self, snapshot: Snapshot) -> None:
            super().save(snapshot)
            if then is not None:
                then()

    return Store(ObjectStoreBackend("memory:///x"), file_system=SimulatedFileSystem())


def test_retention_behind_snapshots(library: ConversationLibrary):
    """What goes is kept before: the snapshot that is named has all of it. A dry run keeps none."""
    with library.create(id=ID, messages=[says("one")]) as store:
        store.append_message(says("two"))
        expected = store.get_messages()
    kept = snapshots_in_memory()
    rule: dict[str, Any] = {"older_than": timedelta(0), "snapshots": kept}
    assert [item.snapshot for item in library.prune(**rule).items] == [None]
    assert kept.list() == []
    (item,) = library.prune(**rule, dry_run=False).pruned
    assert item.snapshot is not None
    assert kept.load(item.snapshot).messages == expected
    assert (library.list(), [summary.id for summary in kept.list()]) == ([], [item.snapshot])
    with pytest.raises(TypeError, match="SnapshotStore"):
        library.prune(older_than=timedelta(0), snapshots=object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        BackendError(path="x", doing="save the snapshot", reason="no answer", outcome="unknown"),
        ConversationLockedError(path="x", reason="process 1 is writing to it"),
        ConversationNotFoundError(path="x", reason="it is not mounted"),
        OSError(28, "full"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_conversation_goes_only_behind_a_snapshot_that_was_acknowledged(
    library: ConversationLibrary, error: Exception
):
    """R1: without an acknowledgment it stays, unclaimed. A second prune saves it under the same id.

    What the store of snapshots raised is told as it was raised, and not as if it were about the conversation.
    """
    with library.create(id=ID, messages=[says("one")]):
        pass

    def unanswered() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        library.prune(older_than=timedelta(0), snapshots=snapshots_in_memory(unanswered), dry_run=False)
    assert raised.value is error
    with library.open(ID) as store:  # which would be refused if it were claimed
        assert store.get_messages() == [says("one")]
        head = store.head
    (item,) = library.prune(older_than=timedelta(0), snapshots=snapshots_in_memory(), dry_run=False).pruned
    assert (item.snapshot or "").replace("-", "") == head


def test_a_conversation_that_continues_behind_its_snapshot_stays(library: ConversationLibrary):
    """R3, R4: another process takes it over between the snapshot and the delete, and none of its messages is lost."""
    with library.create(id=ID, messages=[says("one")]):
        pass

    def takes_over() -> None:
        with library.open(ID, take_over=True) as late:
            late.append_message(says("late"))

    done = library.prune(older_than=timedelta(0), snapshots=snapshots_in_memory(takes_over), dry_run=False)
    assert [item.id for item in done.skipped] == [ID]
    with library.open(ID) as store:
        assert store.get_messages() == [says("one"), says("late")]


def test_a_sealed_conversation_is_not_pruned_into_a_snapshot_without_its_key(backend: SimulatedBackend):
    """P17: what cannot be read cannot be kept, so it stays."""
    machine = SimulatedFileSystem()
    library = ConversationLibrary(backend, file_system=machine)
    sealed = ConversationLibrary(backend, encryption_key=bytes(32), file_system=machine)
    with sealed.create(id=ID, messages=[says("one")]):
        pass
    kept = snapshots_in_memory()
    done = library.prune(older_than=timedelta(0), snapshots=kept, dry_run=False)
    assert ([item.id for item in done.skipped], kept.list()) == ([ID], [])
    assert len(sealed.prune(older_than=timedelta(0), snapshots=kept, dry_run=False).pruned) == 1
    assert [found.message_count for found in kept.list()] == [1]


def test_retention(backend: SimulatedBackend, library: ConversationLibrary):
    """Conversations without recent writes are removed, as listed and checked again when claimed; open, damaged or
    otherwise labelled ones stay.
    """
    ids = [f"{ID[:-1]}{n}" for n in range(6)]
    for n, one in enumerate(ids):
        with library.create(id=one, labels={"team": "a" if n else "b"}) as store:
            store.append_message(says("secret"))
    library.open(ids[4]).close()
    backend.set_object(ids[5], "s/2", backend.object(ids[5], "s/2").replace(b"secret", b"public"))
    with library.create(id=ID[:-1] + "a", labels={"team": "a"}) as newer, library.open(ids[3]) as opened:
        rule: dict[str, Any] = {"older_than": newer.get_metadata().created_at, "labels": {"team": "a"}}
        dry = library.prune(**rule)
        assert ({item.id for item in dry.pruned}, dry.applied) == ({*ids[1:]}, False)

        def comes_between(request: BackendRequest) -> None:
            if request.call == "summaries":
                backend.on_request = None
                with library.open(ids[2]) as late:
                    late.append_message(says("late"))

        backend.on_request = comes_between
        done = library.prune(**rule, dry_run=False)
        assert {item.id for item in done.pruned} == {ids[1], ids[4]}
        assert {item.id for item in done.skipped} == {ids[3], ids[5]}
        opened.append_message(says("goes on"))
    assert {summary.id for summary in library.list()} == {ids[0], ids[2], ids[3], ids[5], ID[:-1] + "a"}
    assert not any(b"secret" in piece.data for piece in backend.read(ids[1]))
    with library.open(ids[2]) as store:
        assert texts(store) == ["secret", "late"]


def test_damage_is_found_by_verify_and_refused_by_open(backend: SimulatedBackend, library: ConversationLibrary):
    """R7."""
    library.create(id=ID, messages=[says("one")]).close()
    data = backend.object(ID, "s/1")
    backend.set_object(ID, "s/1", data.replace(b"one", b"two"))
    (finding,) = library.verify(ID).findings
    assert finding.kind == "damaged-line"
    with pytest.raises(CorruptTranscriptError):
        library.open(ID)
    with pytest.raises(ConversationNotFoundError):
        library.verify(ID[:-1] + "0")


def test_a_summary_that_is_none_is_listed_as_damaged(backend: SimulatedBackend, library: ConversationLibrary):
    """A list shows what anybody may have written there, and is not broken by it."""
    library.create(id=ID).close()
    (summary,) = backend.summaries()
    for data in (b"", b"[]", b"{}", b'{"metadata":[]}', b'{"metadata":{"labels":{"title":7}},"seq":"x"}', b"\xff"):
        backend.put_summary(summary._replace(data=data))
        (shown,) = library.list()
        assert (shown.id, shown.title, shown.record_count) == (ID, None, None)
        assert (shown.damage is None) == data.startswith(b'{"metadata":{')


def test_it_can_be_awaited(backend: SimulatedBackend):
    """``aio`` is the same door."""

    async def main() -> list[Any]:
        library = AsyncConversationLibrary(backend)
        async with await library.create(id=ID, messages=[says("one")]) as store:
            await store.append_message(says("two"))
        async with await library.open(ID, take_over=True) as store:
            return [message["text"] for message in await store.get_messages()]

    assert asyncio.run(main()) == ["one", "two"]


def test_a_fork_of_the_process_has_to_open_it_anew(backend: SimulatedBackend) -> None:
    """What was fetched and claimed is the parent's, whose mirror the child does not touch."""
    library = ConversationLibrary(backend)
    with library.create(id=ID, messages=[says("x" * 100_000)]) as store:
        child = os.fork()
        if child == 0:
            try:
                store.get_messages()
            except TranscriptStoreError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.append_message(says("two"))
        assert len(store.get_messages()) == 2


def test_a_label_of_an_earlier_moment_prunes_nothing(backend: SimulatedBackend, library: ConversationLibrary):
    """The list lagged behind: it said ``temp`` of a conversation that had become one to keep, and that was deleted."""
    with library.create(id=ID, labels={"temp": "yes"}) as store:
        store.append_message(says("one"))
    backend.on_request = lambda request: Fate.REFUSED if request.call == "put_summary" else None
    with library.open(ID) as store:
        store.update_metadata(replace_labels={"keep": "yes"})
    backend.on_request = None
    assert library.prune(older_than=timedelta(0), labels={"temp": "yes"}, dry_run=False).pruned == ()
    assert len(library.prune(older_than=timedelta(0), labels={"keep": "yes"}, dry_run=False).pruned) <= 1


def test_a_summary_that_comes_late_brings_nothing_back(backend: SimulatedBackend, library: ConversationLibrary):
    """A reported bug: after a delete, the writer of a released conversation put its summary, with title and labels."""
    store = library.create(id=ID, labels={"title": "Not for you"}, messages=[says("one")])

    def deleted_before(request: BackendRequest) -> Fate:
        if request.call == "put_summary":
            backend.on_request = None
            library.delete(ID)
        return Fate.TWICE

    backend.on_request = deleted_before
    store.close()
    assert library.list() == []
    with pytest.raises(ConversationNotFoundError, match="was deleted"):
        library.open(ID)
    while backend.late:
        backend.land()
    assert library.list() == []
    assert library.prune(older_than=timedelta(0)).items == ()


def test_a_page_begins_behind_a_summary_and_not_behind_an_id(tmp_path):
    """In a directory and on a backend."""
    for library in (ConversationLibrary(tmp_path), ConversationLibrary(SimulatedBackend())):
        library.create().close()
        (only,) = library.list()
        assert library.list(before=only) == []
        with pytest.raises(TypeError, match="before must be the last summary of the page before, not str"):
            library.list(before=only.id)  # type: ignore[arg-type]


def test_a_backend_that_was_not_made_yet():
    """A class instead of an instance."""
    with pytest.raises(
        TypeError, match=r"SimulatedBackend is a class, not a backend: SimulatedBackend\(…\) creates one"
    ):
        ConversationLibrary(SimulatedBackend)
