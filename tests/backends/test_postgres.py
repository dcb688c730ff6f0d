"""PostgreSQL as a backend: the contract, the errors of a server, and what no error may contain.

The incident: a queue of 150 seconds behind a row lock, a lock that stayed in a pooler's session, and a server with ``synchronous_commit=off``
that forgot 221 acknowledged messages. Here the fence is the primary key, nothing stays in a session, and such a server is refused.
"""

from __future__ import annotations

import copy
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.backends.judging import placed
from tests.backends.sealed import dies_sealed
from tests.kit.postgres import PASSWORD, USER, PostgresServer
from tests.kit.proxy import Net, Proxy
from tests.sealed.conversations import KEY, OTHER_KEY
from transcript_store import ConversationLibrary, ConversationNotFoundError, MissingExtraError
from transcript_store.backends import (
    BackendConversation,
    BackendError,
    ConversationTakenOverError,
    OutcomeUnknownError,
    PostgresBackend,
    StoredSummary,
)
from transcript_store.backends import _postgres as schema
from transcript_store.backends._postgres_connections import Connections
from transcript_store.testing import check_backend

SERVER = pytest.mark.long
ZEROS = b"0" * 32


def slot(number: int, content: bytes = b"") -> bytes:
    return b'{"slot":%d,"hash":"%032x"}\n' % (number, number) + content


def hash_of(number: int) -> bytes:
    return b"%032x" % number


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A schema of a test's own, with the tables."""
    url = postgres.schema()
    PostgresBackend(url, create=True).conversations()
    return url


@pytest.fixture
def sql(postgres: PostgresServer, url: str) -> Iterator[psycopg.Connection[Any]]:
    with postgres.connect(url) as connection:
        yield connection


# ---- without a server --------------------------------------------------------------------------------------------------


def test_backends_import_their_clients_on_first_use():
    """``PostgresBackend`` is a name of ``transcript_store.backends``; psycopg is imported when one is made."""
    asks = (
        "import sys; from transcript_store.backends import PostgresBackend; print('psycopg' in sys.modules, end=' '); "
    )
    asks += "PostgresBackend('dbname=x'); print('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asks], capture_output=True, check=True).stdout == b"False True\n"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """As everywhere."""
    monkeypatch.delitem(sys.modules, "transcript_store.backends._postgres_connections", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match="postgres") as told:
        PostgresBackend("dbname=x")
    assert told.value.extra == "postgres"


def secrets_of(value: object) -> str:
    """All that a value, and what hangs on it, says of itself."""
    said = [repr(value), str(value)]
    if isinstance(value, BaseException):
        said += [secrets_of(other) for other in (value.__cause__, value.__context__) if other is not None]
        said.append(repr(vars(value)))
    return " ".join(said)


def test_a_connection_string_is_not_repeated():
    """It may contain a password: no error or ``repr`` has it; a backend can be neither pickled nor copied."""
    with pytest.raises(ValueError, match="not a connection string") as told:
        PostgresBackend("postgresql://user:hunter2@host:port:x/y z")
    assert "hunter2" not in secrets_of(told.value)
    backend = PostgresBackend("postgresql://somebody:hunter2@nowhere.example/db", name="main")
    assert repr(backend) == "PostgresBackend('main')"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="password"):
            leak(backend)


def test_a_server_that_is_not_there():
    """No server listens: the session retries, then reports that nothing was stored, without an address."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        backend = PostgresBackend(f"postgresql://somebody:hunter2@127.0.0.1:{port}/db")
        with pytest.raises(OutcomeUnknownError) as unavailable:
            backend.conversations()
        waited: list[float] = []
        log = placed(backend, waits_seconds=(1.0, 2.0), sleep=waited.append)
        with pytest.raises(BackendError) as told:
            log.load()
    assert (told.value.outcome, waited) == ("not stored", [1.0, 2.0])
    for error in (unavailable.value, told.value):
        assert not any(word in secrets_of(error) for word in ("127.0.0.1", str(port), "somebody", "hunter2"))


def test_a_full_disk_of_the_server_is_named():
    """The append may be tried again; the error says what to do first."""
    connections = Connections("postgresql://db", name="main", most=1, timeout_seconds=1.0, prepare_threshold=None)
    failed = connections._judged(psycopg.errors.DiskFull(), "append")
    assert isinstance(failed, OutcomeUnknownError)
    assert "the disk of the server is full: make room there" in str(failed)


# ---- the contract ------------------------------------------------------------------------------------------------------


@SERVER
@pytest.mark.parametrize("options", [{}, {"prepare_threshold": None, "connections": 1}, {"prepare_threshold": 0}])
def test_it_keeps_the_contract(url: str, options: dict[str, Any]):
    """E1 to E17."""
    check_backend(lambda: PostgresBackend(url, **options))


@SERVER
@pytest.mark.parametrize("length", [1, 300_000])
def test_a_column_that_somebody_has_changed_decides_nothing(url: str, sql: psycopg.Connection[Any], length: int):
    """D3: the bytes decide the chain. A reported bug: after an edit of ``ts_slot.hash`` reading found no damage, and a
    write got no answer in time.
    """
    log = placed(PostgresBackend(url), sleep=lambda _: None)
    log.initialize()
    log.append_message({"text": "x" * length})
    sql.execute("UPDATE ts_slot SET hash = 'somebody''s' WHERE conversation = %s", (log.id,))
    assert ConversationLibrary(PostgresBackend(url)).verify(log.id).is_intact
    log.append_message({"n": 2})
    log.append_message({"n": 3})
    assert [len(message) for message in log.get_messages()] == [1, 1, 1]
    last = int(sql.execute("SELECT max(slot) FROM ts_slot WHERE conversation = %s", (log.id,)).fetchall()[0][0])
    # Nor does it let in what stands behind something else.
    assert not PostgresBackend(url).put(log.id, last + 1, slot(last + 1), hash_of(last))
    assert ConversationLibrary(PostgresBackend(url)).verify(log.id).is_intact


@SERVER
def test_what_a_schedule_cannot_show_a_lock_does(url: str, sql: psycopg.Connection[Any], postgres: PostgresServer):
    """Q1: an insert that is under way makes a claim of its slot wait, and lose if it is committed, win if it is not."""
    backend = PostgresBackend(url)
    for commits in (True, False):
        one = str(uuid4())
        assert backend.put(one, 1, slot(1), ZEROS)
        with postgres.connect(url) as writer:
            writer.execute("BEGIN")
            writer.execute("INSERT INTO ts_slot VALUES (%s, 2, %s, %s)", (one, hash_of(2), slot(2, b"writer")))
            claimed: list[bool] = []
            claim = threading.Thread(
                target=lambda one=one, claimed=claimed: claimed.append(
                    backend.put(one, 2, slot(2, b"claim"), hash_of(1))
                )
            )
            claim.start()
            until_somebody_waits(sql)
            writer.execute("COMMIT" if commits else "ROLLBACK")
            claim.join()
        assert claimed == [not commits]
        assert backend.read(one, 1)[0].data == slot(2, b"writer" if commits else b"claim")


@SERVER
def test_nothing_is_put_into_what_is_just_being_expunged(
    url: str, sql: psycopg.Connection[Any], postgres: PostgresServer
):
    """Q2: a writer has stalled before slot 3, which became a claim and was expunged: at this moment, not committed yet."""
    backend, one = PostgresBackend(url), str(uuid4())
    for number in range(1, 6):
        assert backend.put(one, number, slot(number), hash_of(number - 1))
    with postgres.connect(url) as other:
        other.execute("BEGIN")
        other.execute("DELETE FROM ts_summary WHERE id = %s", (one,))
        other.execute("DELETE FROM ts_slot WHERE conversation = %s AND slot < 5", (one,))
        told: list[bool] = []
        stalled = threading.Thread(target=lambda: told.append(backend.put(one, 3, slot(3, b"late"), hash_of(2))))
        stalled.start()
        until_somebody_waits(sql)
        other.execute("COMMIT")
        stalled.join()
    assert told == [False]
    assert [piece.first for piece in backend.read(one)] == [5]
    backend.put_summary(
        StoredSummary(one, "2026-11-24T00:00:00.000000Z", 4, b'{"metadata":{"system_prompt":"secret"}}')
    )
    assert backend.summaries() == []  # a late summary does not bring the conversation back


def until_somebody_waits(sql: psycopg.Connection[Any]) -> None:
    while not sql.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
        pass


@SERVER
def test_threads_share_a_few_connections(url: str, sql: psycopg.Connection[Any]):
    """Sixteen threads, two connections: each waits for its turn, and none fails.

    They have a name of their own on the server: the backend of another test may still have its connections.
    """
    backend = PostgresBackend(make_conninfo(url, application_name="two for sixteen"), connections=2, timeout_seconds=60)
    logs = [placed(backend) for _ in range(16)]
    most: list[int] = []

    def work(log: BackendConversation) -> None:
        log.initialize()
        for number in range(5):
            log.append_message({"n": number})
        most.append(
            sql.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'two for sixteen'").fetchall()[
                0
            ][0]
        )

    threads = [threading.Thread(target=work, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(log.get_messages()) for log in logs] == [5] * 16
    assert 1 <= max(most) <= 2


@SERVER
def test_the_quick_start_is_true(url: str, monkeypatch: pytest.MonkeyPatch):
    """The example of docs/backends.md; another process continues with only the connection string and the id."""
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    monkeypatch.setenv("DATABASE_URL", url)
    names: dict[str, Any] = {}
    exec(page.split("```py\n")[1].split("```")[0], names)
    goes_on = (
        "import sys; from transcript_store import ConversationLibrary; from transcript_store.backends import *; "
        "log = ConversationLibrary(PostgresBackend(sys.argv[1])).open(sys.argv[2], take_over=True); "
    )
    goes_on += "print(log.append_message({'role': 'assistant', 'content': 'Hi'}).seq)"
    assert (
        subprocess.run([sys.executable, "-c", goes_on, url, names["here"].id], capture_output=True, check=True).stdout
        == b"2\n"
    )
    with pytest.raises(ConversationTakenOverError):
        names["here"].append_message({"role": "user", "content": "Are you there?"})


# ---- tables ------------------------------------------------------------------------------------------------------------


@SERVER
def test_tables_are_made_once_when_that_is_asked_for(postgres: PostgresServer):
    """By eight at the same time too; without ``create`` the error says how, and a later version's tables are left alone."""
    url = postgres.schema()
    with pytest.raises(BackendError, match="create=True") as told:
        PostgresBackend(url).read(str(uuid4()))
    assert told.value.outcome == "not stored"
    errors: list[BaseException] = []

    def make() -> None:
        try:
            PostgresBackend(url, create=True).conversations()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with postgres.connect(url) as sql:
        made = sql.execute("SELECT number FROM ts_migration ORDER BY number").fetchall()
        assert made == [(number + 1,) for number in range(len(made))] != []
        sql.execute("INSERT INTO ts_migration VALUES (1000)")
        for create in (True, False):
            with pytest.raises(BackendError, match="upgrade"):
                PostgresBackend(url, create=create).conversations()
        sql.execute("DELETE FROM ts_migration")
        with pytest.raises(BackendError, match="up to date"):
            PostgresBackend(url).conversations()


@SERVER
def test_tables_of_an_earlier_version(postgres: PostgresServer):
    """What the first migration made is kept, and it gets what it lacks; without ``create=True`` nothing is changed."""
    url = postgres.schema()
    with postgres.connect(url) as sql:
        for statement in (schema.BEGIN, schema.MIGRATIONS[0], "INSERT INTO ts_migration (number) VALUES (1)"):
            sql.execute(statement)
        begun = str(uuid4())
        sql.execute("INSERT INTO ts_slot VALUES (%s, 1, '', 'a slot')", (begun,))
    with pytest.raises(BackendError, match="create=True"):
        PostgresBackend(url).conversations()
    assert PostgresBackend(url, create=True).read(begun) == [(1, 1, b"a slot", False)]
    assert PostgresBackend(url).put_key(begun, b"a key", None)


@SERVER
def test_sealed_on_a_server(url: str, sql: psycopg.Connection[Any]):
    """P17: a whole life of a sealed conversation; no row of any table has a text of it."""

    def all_bytes() -> bytes:
        rows = [sql.execute(f"SELECT * FROM {table}").fetchall() for table in ("ts_slot", "ts_summary", "ts_key")]
        return repr(rows).encode()

    dies_sealed(PostgresBackend(url), KEY, OTHER_KEY, all_bytes)


@SERVER
def test_sql_sees_the_lines(url: str, sql: psycopg.Connection[Any]):
    """The view splits slots into lines, as they were written: also text with U+0000, which jsonb refuses."""
    log = placed(PostgresBackend(url))
    log.initialize(messages=[{"text": "one"}])
    log.append_messages([{"text": "tw\0o\n"}, {"text": "three"}])
    rows = sql.execute(
        "SELECT slot, kind, number, exact FROM ts_line WHERE conversation = %s ORDER BY 1, 3", (log.id,)
    ).fetchall()
    assert [row[:3] for row in rows] == [(1, "generation", 1), (1, "generation", 2), (2, "append", 1), (2, "append", 2)]
    assert "".join(row[3] + "\n" for row in rows).encode() == b"".join(
        piece.data.partition(b"\n")[2] for piece in PostgresBackend(url).read(log.id)
    )


@SERVER
def test_a_conversation_without_a_summary_is_listed(url: str):
    """R11: the incident: an import that was killed there and run again found all on record, and no list ever showed the conversation."""

    class KilledBefore(PostgresBackend):
        def put_summary(self, summary: StoredSummary) -> None:
            raise OutcomeUnknownError("nobody hears it")

    left = ConversationLibrary(KilledBefore(url)).create(messages=[{"role": "user", "content": "Hello"}]).id
    library = ConversationLibrary(PostgresBackend(url))
    (listed,) = library.list()
    assert (listed.id, listed.damage, listed.record_count) == (left, None, None)
    assert library.prune(older_than="2026-01-01T00:00:00Z").items == ()
    with library.open(left, take_over=True):
        pass
    assert [(summary.id, summary.record_count) for summary in library.list()] == [(left, 1)]
    library.delete(left)
    assert library.list() == []


@SERVER
def test_lists_are_found_by_an_index(url: str, sql: psycopg.Connection[Any]):
    """R11: the newest, a page in the middle, a label: no plan reads all rows. (The times of a million rows are in docs/backends.md.)"""
    from transcript_store.backends import _postgres

    sql.execute(
        "INSERT INTO ts_summary SELECT gen_random_uuid(), now() - n * interval '1 s', 1, '{}', jsonb_build_object('n', (n % 1000)::text) FROM generate_series(1, 50000) AS n"
    )
    sql.execute("ANALYZE ts_summary")
    for which in ("", _postgres._BEFORE, _postgres._VALUED):
        given = {"limit": 50, "at": "2026-01-01T00:00:00Z", "id": str(uuid4()), "label": '{"n": "7"}'}
        plan = sql.execute("EXPLAIN " + _postgres._SUMMARIES.format(which=which), given).fetchall()
        assert not any("Seq Scan" in line for (line,) in plan), plan


# ---- what a server refuses ---------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong password": ({"password": "hunter2"}, "password"),
    "a database that is not there": ({"database": "nowhere"}, "does not exist"),
    "a user that is not there": ({"user": "somebody"}, "user"),
    "TLS that the server does not have": ({"sslmode": "require"}, "sslmode"),
    "a server that takes no writes": ({"options": "-cdefault_transaction_read_only=on"}, "primary"),
    "a server that forgets": ({"options": "-csynchronous_commit=off"}, "synchronous_commit = on"),
    "another schema": ({"options": "-csearch_path=nowhere"}, "create=True"),
}


@SERVER
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_for_good_says_so_at_once(postgres: PostgresServer, url: str, what: str):
    """Nothing is stored, and the error has a hint. No retry, and no address, user, password or byte in the error."""
    changed, hint = REFUSED[what]
    waited: list[float] = []
    options = f"-csearch_path={url.rpartition('%3D')[2]} {changed.get('options', '')}"
    log = placed(PostgresBackend(postgres.url(**(changed | {"options": options}))), sleep=waited.append)
    with pytest.raises(BackendError, match=hint) as told:
        log.initialize(messages=[{"text": "the secret of the message"}])
    assert (told.value.outcome, waited) == ("not stored", [])
    leaks = ("127.0.0.1", str(postgres.port), USER, PASSWORD, "hunter2", "somebody", "nowhere", "secret")
    assert not [word for word in leaks if word in secrets_of(told.value)]
    assert PostgresBackend(url).conversations() == []


@SERVER
def test_a_table_that_is_gone_in_the_middle(url: str, sql: psycopg.Connection[Any]):
    """It is refused at once, with nothing of the message in the error; what was read can be read."""
    log = placed(PostgresBackend(url))
    log.initialize(messages=[{"text": "one"}])
    sql.execute("DROP TABLE ts_slot CASCADE")
    with pytest.raises(BackendError, match="tables of transcript_store are missing") as told:
        log.append_message({"text": "the secret"})
    assert "secret" not in secrets_of(told.value)
    assert told.value.outcome == "not stored"
    assert log.get_messages() == [{"text": "one"}]


@SERVER
def test_a_child_is_refused_at_once(url: str):
    """Two processes never share connections. A child opens its own backend; one that was only created before the fork works."""
    backend, fresh, one = PostgresBackend(url), PostgresBackend(url), str(uuid4())
    assert backend.put(one, 1, slot(1), ZEROS)
    child = os.fork()
    if child == 0:
        try:
            fresh.read(one)
            backend.read(one)
        except BackendError as error:
            os._exit(7 if "fork" in str(error) and error.outcome == "not stored" else 2)
        except BaseException:
            os._exit(3)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert backend.put(one, 2, slot(2), hash_of(1))
    backend.close()


# ---- connections that break --------------------------------------------------------------------------------------------


@SERVER
def test_connections_that_the_server_ends(url: str, sql: psycopg.Connection[Any]):
    """R5, R6: all of them at once, before each message. Each is stored once."""
    backend = PostgresBackend(url)
    log = placed(backend, waits_seconds=(0.0,) * 5)
    log.initialize()
    for number in range(20):
        sql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'transcript_store'"
        )
        log.append_message({"n": number})
    reader = placed(PostgresBackend(url), log.id, read_only=True)
    reader.load()
    assert [message["n"] for message in reader.get_messages()] == list(range(20))


@SERVER
@pytest.mark.parametrize("fate", [Net.LOST, Net.REFUSED, Net.LATE, Net.SILENT])
@pytest.mark.parametrize("threshold", [0, None])
def test_an_exchange_that_the_network_breaks(postgres: PostgresServer, url: str, fate: Net, threshold: int | None):
    """R5, R6: cut after the commit, before it, delivered later, or never answered: the append is stored once, and the next one behind it."""
    with Proxy(postgres.port) as proxy:
        backend = PostgresBackend(
            url.replace(str(postgres.port), str(proxy.port)), timeout_seconds=1, prepare_threshold=threshold
        )
        log = placed(backend, waits_seconds=(0.0,) * 4)
        log.initialize()
        log.append_message({"n": 0})
        fates = [fate]
        proxy.on_exchange = lambda: fates.pop() if fates else Net.DONE
        log.append_message({"n": 1})
        assert fates == []
        log.append_message({"n": 2})
        proxy.land()
        log.append_message({"n": 3})
        reader = placed(PostgresBackend(url), log.id, read_only=True)
        reader.load()
        assert [message["n"] for message in reader.get_messages()] == [0, 1, 2, 3]
        backend.close()


@SERVER
def test_an_append_that_nobody_answers_is_unknown_and_then_known(postgres: PostgresServer, url: str):
    """R6: every exchange hangs or is cut until the attempts are over, in no more time than was given."""
    with Proxy(postgres.port) as proxy:
        backend = PostgresBackend(url.replace(str(postgres.port), str(proxy.port)), timeout_seconds=0.5)
        log = placed(backend, waits_seconds=(0.0,))
        log.initialize()
        proxy.on_exchange = lambda: Net.SILENT
        with pytest.raises(BackendError) as told:
            log.append_message({"n": 0})
        assert told.value.outcome == "unknown"
        proxy.on_exchange = None
        other = placed(PostgresBackend(url), log.id)
        other.load()
        with pytest.raises(ConversationTakenOverError):
            log.append_message({"n": 1})
        assert log.outcome(told.value) is True  # SILENT: the server did it
        assert [message["n"] for message in other.get_messages()] == [0]
        backend.close()


@SERVER
def test_a_server_that_forgot_is_refused(url: str, sql: psycopg.Connection[Any]):
    """R8: a backup was restored; the writer remembers a slot that is not there, and writes nothing behind the hole."""
    log = placed(PostgresBackend(url))
    log.initialize()
    log.append_message({"n": 0})
    one = log.id
    sql.execute("DELETE FROM ts_slot WHERE conversation = %s AND slot = 2", (one,))
    with pytest.raises(Exception, match="is now missing"):
        log.append_message({"n": 1})
    assert sql.execute("SELECT max(slot) FROM ts_slot WHERE conversation = %s", (one,)).fetchall() == [(1,)]


@SERVER
def test_a_deleted_conversation_is_forgotten(url: str, sql: psycopg.Connection[Any]):
    """Retention: one row is left, and a load gets an error. ``expunge`` of a missing slot removes nothing."""
    backend = PostgresBackend(url)
    log = placed(backend)
    log.initialize(messages=[{"text": "one"}])
    backend.expunge(log.id, 99)
    assert len(backend.read(log.id)) == 1
    one = log.id
    log.close()
    ConversationLibrary(backend).delete(one)
    assert sql.execute("SELECT count(*) FROM ts_slot WHERE conversation = %s", (one,)).fetchall() == [(1,)]
    with pytest.raises(ConversationNotFoundError, match="was deleted"):
        placed(backend, one).load()
