"""Conversations on object stores of others, with a network that loses answers, and writers and servers that are killed.

SeaweedFS keeps conditions and what it acknowledged; rclone's server ignores conditions. A loopback stands before the first one and loses, refuses, delays
and repeats. Each writer says what it is told, and the end is judged by that: acknowledged, lost, twice, out of order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.backends.judging import placed
from tests.backends.loopback import Answer, Ask, Fate, Loopback
from tests.backends.sealed import dies_sealed
from tests.backends.servers import SECRET, Server, options_for, rclone, seaweedfs
from tests.backends.storm import Storm, texts
from tests.sealed.conversations import KEY, OTHER_KEY
from transcript_store.backends import (
    BackendConversation,
    BackendError,
    ConversationTakenOverError,
    ObjectStoreBackend,
    UnsuitableBackendError,
)
from transcript_store.backends._bucket import Bucket
from transcript_store.testing import check_backend

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = seaweedfs(tmp_path_factory.mktemp("seaweedfs"))
    yield server
    server.kill()


@pytest.fixture
def between(server: Server) -> Iterator[Loopback]:
    """The loopback before the server, without any fault yet."""
    with Loopback(server.port) as loopback:
        yield loopback


def backend_through(loopback: Loopback, **more: Any) -> ObjectStoreBackend:
    return ObjectStoreBackend("s3://tests/through", **options_for(loopback.port), **more)


def begun(backend: ObjectStoreBackend, *written: str) -> BackendConversation:
    log = placed(backend, holder="first", waits_seconds=(0.01, 0.01, 0.01))
    log.initialize()
    for text in written:
        log.append_message({"text": text})
    return log


def read(backend: ObjectStoreBackend, id: str) -> list[str]:
    log = placed(backend, id, read_only=True)
    log.load()
    return texts(log)


def test_the_contract(server: Server):
    """E1 to E17."""
    prefix = str(uuid4())
    check_backend(lambda: server.backend(prefix))


def test_sealed_on_a_server(server: Server):
    """P17: a whole life of a sealed conversation; no object has a text of it."""
    prefix = str(uuid4())

    def all_bytes() -> bytes:
        bucket = Bucket(f"s3://tests/{prefix}", server.options, None)
        found = [bucket.get(listed.key) for page in bucket.list("") for listed in page]
        assert len(found) > 10
        return b"".join(each.data for each in found if each)

    dies_sealed(server.backend(prefix), KEY, OTHER_KEY, all_bytes)


def test_a_message_of_megabytes(server: Server):
    """One request, as a small one; with every byte there is."""
    backend = server.backend("large")
    text = "".join(map(chr, range(256))) * 40_000
    log = begun(backend, text, "after")
    assert read(backend, log.id) == [text, "after"]


def test_an_append_is_one_request(between: Loopback):
    """And nothing else is asked of the server meanwhile."""
    log = begun(backend_through(between), "one")
    between.asked.clear()
    for number in range(5):
        log.append_message({"text": str(number)})
    assert [(ask.method, ask.path.rpartition("/")[2]) for ask in between.asked] == [
        ("PUT", f"{slot:012}") for slot in range(3, 8)
    ]


@pytest.mark.parametrize(
    "fate",
    [
        Fate.LOST,
        Fate.REFUSED,
        Fate.LATE,
        Answer(503),
        Answer(503, is_done=True),
        Answer(500, is_done=True),
        Answer(409),
        Answer(409, is_done=True),
        Answer(412),
        Answer(429),
    ],
    ids=str,
)
@pytest.mark.parametrize("times", [1, 2])
def test_what_a_network_does_to_an_append(between: Loopback, fate: Fate | Answer, times: int):
    """R5, R6: each message is stored once, in order, whatever happened to first attempts and the client library's own retries."""
    backend = backend_through(between)
    log = begun(backend, "one")
    fates = [fate] * times
    between.on_request = lambda ask: fates.pop() if ask.method == "PUT" and "/s/" in ask.path and fates else None
    log.append_message({"text": "two"})
    log.append_message({"text": "three"})
    while between.late:
        assert between.land() == 412
    log.append_message({"text": "four"})
    assert not fates
    assert read(backend, log.id) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("is_late", [True, False])
def test_an_unknown_outcome_and_the_next_call(between: Loopback, is_late: bool):
    """R6: the server cannot be reached for a while; what became of the append is known by the next one."""
    backend = backend_through(between, retry_config={"max_retries": 0})
    log = begun(backend, "one")
    first = [Fate.LATE if is_late else Fate.REFUSED]
    between.on_request = lambda ask: first.pop() if first else Answer(503)
    with pytest.raises(BackendError) as told:
        log.append_message({"text": "two"})
    assert (told.value.outcome, log.outcome(told.value)) == ("unknown", None)
    assert not [word for word in (SECRET, "127.0.0.1", str(between.port)) if word in str(told.value)]
    between.on_request = None
    while between.late:
        assert between.land() == 200
    log.append_message({"text": "three"})
    assert log.outcome(told.value) is is_late
    assert read(backend, log.id) == (["one", "two", "three"] if is_late else ["one", "three"])


def test_a_claim_whose_answer_is_lost(between: Loopback):
    """R3, R4: it is stored once, and the earlier writer gets an error that names the new one."""
    backend = backend_through(between)
    first = begun(backend, "one")
    fates: list[Fate] = [Fate.LOST]
    between.on_request = lambda ask: fates.pop() if ask.method == "PUT" and fates else None
    second = placed(backend, first.id, holder="second")
    second.load()
    assert (second.epoch, fates) == (2, [])
    with pytest.raises(ConversationTakenOverError) as told:
        first.append_message({"text": "late"})
    assert told.value.holder["name"] == "second"
    second.append_message({"text": "two"})
    assert read(backend, first.id) == ["one", "two"]


def test_a_get_is_bound_to_its_listing(between: Loopback, server: Server):
    """R9: a name was freed behind a pack, and taken by another, between a reader's list and its get. It reads the pack."""
    backend = backend_through(between)
    log = begun(server.backend("through"), "one", "two", "three", "four")

    def before(ask: Ask) -> None:
        if ask.method == "GET" and ask.path.endswith("/s/000000000003"):
            between.on_request = None
            log.pack(tidy=True)
            assert server.backend("through").put(log.id, 3, b"of a late writer", b"")

    between.on_request = before
    assert read(backend, log.id) == ["one", "two", "three", "four"]
    assert between.on_request is None


def test_a_server_that_ignores_conditions_is_refused(tmp_path: Path):
    """R12: rclone's server answers 200 to both puts of a probe; nothing of a conversation is written."""
    server = rclone(tmp_path)
    try:
        backend = server.backend("agents")
        for _ in range(2):
            with pytest.raises(UnsuitableBackendError):
                placed(backend).initialize()
        assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
    finally:
        server.kill()


@pytest.mark.parametrize("tidy", [False, True])
def test_a_storm(server: Server, tidy: bool, record_property):
    """R1, R3, R4, R5, R7, R9: writers take over from one another and are killed, with packs in between, with and without tidying."""
    log = begun(server.backend("storm"))
    storm = Storm("s3://tests/storm", server.options, log.id, tidy=tidy)
    storm.until(240, kill_each=30, meanwhile={})
    for name, count in storm.judge(read(server.backend("storm"), log.id)).items():
        record_property(name, count)


def test_a_storm_in_which_the_server_is_killed(tmp_path: Path, record_property):
    """R1, R3, R4, R5, R6, R7, R9: the same, and the server is killed twice and begun again."""
    server = seaweedfs(tmp_path)
    try:

        def killed() -> None:
            server.kill()
            server.start()

        log = begun(server.backend("storm"))
        storm = Storm("s3://tests/storm", server.options, log.id)
        storm.until(180, kill_each=40, meanwhile={60: killed, 120: killed})
        for name, count in storm.judge(read(server.backend("storm"), log.id)).items():
            record_property(name, count)
        record_property("servers killed in storms", 2)
    finally:
        server.kill()
