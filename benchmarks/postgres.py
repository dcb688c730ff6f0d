"""What PostgreSQL costs as a backend, beside bare statements on the same server: ``python -m benchmarks.postgres [ROWS]``.

It starts a server of its own, with ``fsync`` on. Appends and bare INSERTs take turns, so that both meet the same disk. docs/backends.md has
the figures. ``ROWS`` is how many conversations the list has (default 1,000,000).
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from uuid import uuid4

from psycopg.conninfo import make_conninfo

from tests.kit.postgres import PostgresServer
from transcript_store.backends import BackendConversation, PostgresBackend, _postgres

MESSAGE = {"role": "user", "content": "x" * 1000}
TURNS, CLIENTS, EACH = 1000, 32, 100
ROWS = """
INSERT INTO ts_summary SELECT gen_random_uuid(), now() - n * interval '1 s', 1,
    convert_to('{"metadata":{"labels":{"team":"' || n %% 1000 || '"}},"seq":10}', 'UTF8'), jsonb_build_object('team', (n %% 1000)::text)
  FROM generate_series(1, %s) AS n
"""
BARE = "INSERT INTO bare VALUES (%s, %s, %s)"


def taken_ms(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return (time.perf_counter() - begin) * 1000


def shown(name: str, times: Sequence[float]) -> None:
    ordered = sorted(times)
    print(f"{name:45} p50 {median(ordered):8.2f} ms   p99 {ordered[int(len(ordered) * 0.99)]:8.2f} ms")


def alternate(server: PostgresServer, url: str) -> None:
    backend = PostgresBackend(url, create=True)
    log = BackendConversation(backend, str(uuid4()))
    log.initialize()
    log.append_message(MESSAGE)
    size = len(backend.read(log.id, 1)[0].data)
    other, previous = str(uuid4()), b"0" * 32
    appends, puts, bares = list[float](), list[float](), list[float]()
    with server.connect(url) as sql:
        sql.execute("CREATE TABLE bare (id uuid, number bigint, data bytea, PRIMARY KEY (id, number))")
        for turn in range(1, TURNS + 1):
            slot = b'{"slot":%d,"hash":"%032x"}\n' % (turn, turn)
            slot += b"x" * (size - len(slot))
            bares.append(taken_ms(partial(sql.execute, BARE, (log.id, turn, slot))))
            puts.append(taken_ms(partial(backend.put, other, turn, slot, previous)))
            appends.append(taken_ms(partial(log.append_message, MESSAGE)))
            previous = b"%032x" % turn
    shown(f"bare committed INSERT of {size:,} bytes", bares[10:])
    shown("PostgresBackend.put", puts[10:])
    shown("append_message", appends[10:])
    print(f"{'append / bare':45} {median(appends[10:]) / median(bares[10:]):.2f}")
    reader = BackendConversation(backend, log.id, read_only=True)
    shown(f"open {TURNS + 1:,} messages", [taken_ms(reader.load) for _ in range(9)])


def processors(server: PostgresServer, url: str) -> None:
    """Processor time for one append, in turns of a hundred, the least of each: it says what 32 clients on few processors can reach."""
    backend = PostgresBackend(make_conninfo(url, application_name="measured"), connections=1)
    log = BackendConversation(backend, str(uuid4()))
    log.initialize()
    log.append_message(MESSAGE)
    data, own, other = backend.read(log.id, 1)[0].data, str(uuid4()), str(uuid4())
    numbers, previous = count(1), b"0" * 32
    with server.connect(url) as sql:

        def bare() -> None:
            sql.execute(BARE, (own, next(numbers), data))

        def statement() -> None:
            given = {"id": other, "slot": next(numbers), "hash": previous, "data": data, "previous": previous}
            sql.cursor(binary=True).execute(_postgres._PUT_NEXT, given)

        def append() -> None:
            log.append_message(MESSAGE)

        sql.execute("INSERT INTO ts_slot VALUES (%s, 0, %s, '')", (other, previous))
        where = "SELECT pid FROM pg_stat_activity WHERE application_name = 'measured'"
        of_backend: int = sql.execute(where).fetchall()[0][0]  # type: ignore[assignment]
        for name, act, server_process in (
            ("bare committed INSERT", bare, sql.info.backend_pid),
            ("the statement of a put alone", statement, sql.info.backend_pid),
            ("append_message", append, of_backend),
        ):
            numbers = count(1)
            taken = [processor_us(act, server_process) for _ in range(30)]
            client, at_server = (min(each) for each in zip(*taken, strict=True))
            print(f"{name:45} client {client:5.0f} us, server {at_server:5.0f} us of a processor")


def processor_us(act: Callable[[], object], server_process: int) -> tuple[float, float]:
    """What a hundred calls take of a processor, for each: here, and in the server's process for the connection."""
    at_server, here = on_processor_ns(server_process), time.process_time_ns()
    for _ in range(100):
        act()
    return (time.process_time_ns() - here) / 1e5, (on_processor_ns(server_process) - at_server) / 1e5


def on_processor_ns(process: int) -> int:
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0])


def at_once(name: str, client: Callable[[], Callable[[], object]]) -> float:
    """How many a second ``CLIENTS`` processes do together; ``client`` prepares one in its process."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(CLIENTS + 1)

    def run() -> None:
        work = client()
        barrier.wait()
        for _ in range(EACH):
            work()

    processes = [fork.Process(target=run) for _ in range(CLIENTS)]
    for process in processes:
        process.start()
    barrier.wait()
    begin = time.perf_counter()
    for process in processes:
        process.join()
    rate = CLIENTS * EACH / (time.perf_counter() - begin)
    print(f"{name:45} {rate:8.0f} a second")
    return rate


def clients(server: PostgresServer, url: str) -> None:
    data = b"x" * 1400

    def bare() -> Callable[[], object]:
        sql, numbers, own = server.connect(url), iter(range(1 << 30)), str(uuid4())
        return lambda: sql.execute(BARE, (own, next(numbers), data))

    def append() -> Callable[[], object]:
        log = BackendConversation(PostgresBackend(url), str(uuid4()))
        log.initialize()
        return lambda: log.append_message(MESSAGE)

    for _ in range(3):
        bare_rate = at_once(f"bare INSERTs, {CLIENTS} processes", bare)
        rate = at_once(f"appends, {CLIENTS} processes", append)
        print(f"{'appends / bare':45} {rate / bare_rate:.2f}")


def lists(server: PostgresServer, url: str, rows: int) -> None:
    backend = PostgresBackend(url)
    with server.connect(url) as sql:
        sql.execute(ROWS, (rows,))
        sql.execute("VACUUM ANALYZE ts_summary")
        ((middle,),) = sql.execute(
            "SELECT to_char(now() - %s * interval '1 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')", (rows // 2,)
        ).fetchall()
    before = (str(middle), str(uuid4()))
    for name, act in (
        ("newest 50", lambda: backend.summaries(limit=50)),
        ("50 in the middle", lambda: backend.summaries(before=before, limit=50)),
        ("newest 50 with a label", lambda: backend.summaries(label="team=7", limit=50)),
    ):
        act()
        shown(f"{name} of {rows:,}", [taken_ms(act) for _ in range(101)])


if __name__ == "__main__":
    with PostgresServer() as server:
        server.restart(fsync="on")
        url = server.schema()
        alternate(server, url)
        processors(server, url)
        clients(server, url)
        lists(server, url, int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
