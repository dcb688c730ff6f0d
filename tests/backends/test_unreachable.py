"""A server that cannot be reached: the error, and how long it takes.

The incident: a create on a server that refuses connections took half a minute and said "unknown", though nothing had been sent. What is not
sent is not stored. A server that has never answered is waited for as long as it may take to start, and no longer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.backends.judging import Waits, placed
from tests.backends.loopback import Answer, Loopback
from tests.kit.cases import for_each
from tests.sealed.conversations import KEY
from tests.snapshots.helpers import snapshot
from transcript_store import ConversationLibrary, ConversationStore, snapshot_of
from transcript_store.backends import (
    BackendError,
    BackendSnapshotStore,
    BackendUnreachableError,
    ObjectStoreBackend,
    OutcomeUnknownError,
    PostgresBackend,
)
from transcript_store.backends._claims import WAITS_SECONDS
from transcript_store.backends._keys import KeyCell
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedFileSystem

HALF_A_MINUTE = sum(WAITS_SECONDS)


@pytest.fixture
def port() -> Iterator[int]:
    """A local port without a listener."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


def on_postgres(port: int) -> PostgresBackend:
    return PostgresBackend(f"postgresql://somebody:hunter2@127.0.0.1:{port}/db")


def on_objects(port: int) -> ObjectStoreBackend:
    given = {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "x",
        "access_key_id": "A",
        "secret_access_key": "hunter2",
    }
    return ObjectStoreBackend("s3://bucket/agents", **given)


class Fates:
    """The fates of the next requests to a simulated backend, one after the other; later requests succeed."""

    def __init__(self, *fates: Fate | Exception) -> None:
        self.left = [*fates]

    def __call__(self, _: BackendRequest) -> Fate | None:
        if not self.left:
            return None
        if isinstance(fate := self.left.pop(0), Exception):
            raise fate
        return fate


UNHEARD, UNHEARD_AGAIN = (
    BackendUnreachableError("nobody there"),
    BackendUnreachableError("nobody there", has_answered=True),
)

REFUSED = BackendError(path="x", doing="put the key", reason="403: the credentials expired", outcome="not stored")


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("make_backend", [on_postgres, on_objects])
def test_nothing_is_stored_where_nobody_listens(make_backend: Any, port: int, key: bytes | None) -> None:
    """R6: a create reports it after some seconds, with the hint; a list too; and the password is not shown."""
    waited: list[float] = []
    machine: Any = Waits(waited.append)
    library = ConversationLibrary(make_backend(port), encryption_key=key, file_system=machine)
    for call in (library.create, library.list):
        waited.clear()
        with pytest.raises(BackendError) as told:
            call()
        assert told.value.outcome == "not stored"
        assert "start the server, or use another" in str(told.value)
        assert "hunter2" not in str(told.value)
        assert 3 <= sum(waited) < 5


def test_a_snapshot_is_not_stored_where_nobody_listens(port: int) -> None:
    """R13: the same of what is kept in cells."""
    waited: list[float] = []
    machine: Any = Waits(waited.append)
    with ConversationStore("/c", file_system=SimulatedFileSystem()) as store:
        store.initialize()
        snapshot = snapshot_of(store)
    with pytest.raises(BackendError) as told:
        BackendSnapshotStore(on_objects(port), file_system=machine).save(snapshot)
    assert told.value.outcome == "not stored"
    assert 3 <= sum(waited) < 5


def test_a_store_of_snapshots_that_goes_silent_is_not_empty_and_not_plain() -> None:
    """It was listed, then stops answering: no snapshot is left out, no key is accepted, and no plaintext is saved."""
    backend, one = SimulatedBackend(), snapshot("one")
    BackendSnapshotStore(backend, file_system=SimulatedFileSystem()).save(one)
    store = BackendSnapshotStore(backend, file_system=SimulatedFileSystem())
    for silent, calls in (
        (f"{one.id}.json", (store.list, store.opens, store.verify, lambda: store.load(one.id))),
        ("sealing", (lambda: store.save(snapshot("two")),)),
        (f"{one.id}.json", (lambda: store.save(snapshot("two")),)),
    ):
        backend.on_request = lambda request: Fate.REFUSED if (request.call, request.name) == ("get", silent) else None  # noqa: B023
        for call in calls:
            with pytest.raises(BackendError):
                call()
    backend.on_request = None
    assert [summary.id for summary in store.list()] == [one.id]


def test_a_server_that_has_answered_before_is_worth_half_a_minute() -> None:
    """R6: it restarts. A write is stored if it comes back in time, otherwise known not to be: the next call continues."""
    waited: list[float] = []
    backend, all_of_them = SimulatedBackend(), len(WAITS_SECONDS)
    log = placed(backend, sleep=waited.append)
    log.initialize()
    backend.on_request = Fates(*[UNHEARD_AGAIN] * all_of_them)
    log.append_message({"n": 1})
    assert sum(waited) == pytest.approx(HALF_A_MINUTE)
    backend.on_request = Fates(*[UNHEARD_AGAIN] * (all_of_them + 1))
    with pytest.raises(BackendError, match="nobody there") as told:
        log.append_message({"n": 2})
    assert told.value.outcome == "not stored"
    log.append_message({"n": 3})
    assert log.get_messages() == [{"n": 1}, {"n": 3}]
    assert log.epoch == 1  # nothing was unsure, so nothing had to be claimed anew


def test_what_was_sent_once_stays_unknown() -> None:
    """R6: an answer was lost, and then the server was unreachable: the write may be stored, and here it is."""
    backend = SimulatedBackend()
    log = placed(backend, sleep=lambda _: None)
    log.initialize()
    backend.on_request = Fates(Fate.LOST, *[UNHEARD] * 100)
    with pytest.raises(BackendError) as told:
        log.append_message({"n": 1})
    assert told.value.outcome == "unknown"
    backend.on_request = None
    log.append_message({"n": 2})
    assert log.get_messages() == [{"n": 1}, {"n": 2}]
    assert log.outcome(told.value) is True


def test_what_a_server_says_of_a_write_that_it_did_not_do_is_told() -> None:
    """The incident: the disk of a server was full, and it said so at each attempt. What was told was that no answer came in time."""
    backend, full = SimulatedBackend(), OutcomeUnknownError("the server did not do it now (DiskFull, SQLSTATE 53100)")
    log = placed(backend, sleep=lambda _: None)
    log.initialize()
    backend.on_request = lambda request: Fates(full)(request) if request.call == "put" else None  # it reads as ever
    with pytest.raises(BackendError, match="DiskFull") as told:
        log.append_message({"n": 1})
    assert told.value.outcome == "unknown"
    backend.on_request = Fates(*[Fate.LOST] * 100)  # nothing is said any more
    with pytest.raises(BackendError) as silent:
        log.append_message({"n": 2})
    assert "DiskFull" not in str(silent.value)
    backend.on_request = lambda request: Fates(full)(request) if request.call == "put_key" else None
    with pytest.raises(BackendError, match="DiskFull"):
        KeyCell(backend, str(uuid4()), WAITS_SECONDS, lambda _: None, "simulated/x").replace(
            b"new", None, "put the key"
        )


@for_each(
    "fates, outcome, seconds",
    [
        ([UNHEARD] * 100, "not stored", 3.9),
        ([UNHEARD_AGAIN] * 100, "not stored", HALF_A_MINUTE),
        ([Fate.LOST, *[UNHEARD] * 100], "unknown", HALF_A_MINUTE),
        ([Fate.LOST, UNHEARD, REFUSED], "unknown", WAITS_SECONDS[0]),
        ([Fate.LOST, REFUSED, REFUSED], "unknown", WAITS_SECONDS[0]),
        ([REFUSED], "not stored", 0),
    ],
)
def test_a_key_that_was_not_sent_is_not_stored(fates: list[Fate | Exception], outcome: str, seconds: float) -> None:
    """Y2: of a rotation whose put was never sent nothing came; where one answer was lost, either key may stand there."""
    backend, waited = SimulatedBackend(), list[float]()
    cell = KeyCell(backend, str(uuid4()), WAITS_SECONDS, waited.append, "simulated/x")
    backend.on_request = Fates(*fates)
    with pytest.raises(BackendError) as told:
        cell.replace(b"new", None, "put the key beside the conversation")
    assert told.value.outcome == outcome
    assert sum(waited) == pytest.approx(seconds)


def test_a_bucket_that_has_answered_is_asked_again_by_its_client(port: int) -> None:
    """B3: from then on its client repeats a request by itself, so what failed at last may have been done before."""
    with Loopback(on_request=lambda ask: Answer(404)) as server:
        options = {"region": "x", "access_key_id": "A", "secret_access_key": "B"}
        backend = ObjectStoreBackend("s3://bucket/agents", endpoint=server.endpoint, **options)
        with pytest.raises(BackendError):
            backend.put(str(uuid4()), 1, b"", b"")
    with pytest.raises(OutcomeUnknownError) as told:
        backend.put(str(uuid4()), 1, b"", b"")
    assert not isinstance(told.value, BackendUnreachableError)
