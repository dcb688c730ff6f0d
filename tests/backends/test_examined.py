"""``doctor`` of a backend: an operator's first look, before conversations are there and after something was changed.

Public reports: a database with ``synchronous_commit = off`` that lost what it acknowledged, a standby behind a load balancer, a bucket of
a server that ignores ``If-None-Match``, a role that may read and not write.
"""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli
from tests.kit.cases import for_each
from tests.kit.postgres import PostgresServer
from transcript_store import ConversationLibrary
from transcript_store.backends import BackendError, ObjectStoreBackend, PostgresBackend, examine, open_backend
from transcript_store.backends._bucket import Bucket
from transcript_store.backends._checks import postgres_checks
from transcript_store.testing import SimulatedBackend

__all__ = ["a_cache_of_its_own", "cli"]


def results(diagnosis):
    return {check.name: check.result for check in diagnosis.checks}


def test_a_database(postgres: PostgresServer):
    """No tables yet is a note; with them, each check is well but fsync, which the tests' server has off. Nothing of it is left."""
    url = postgres.schema()
    found = examine(open_backend(url))
    assert results(found)["tables"] == "note"
    assert found.sync_microseconds is None
    backend = open_backend(url, create=True)
    with ConversationLibrary(backend).create():
        pass
    found = examine(backend)
    expected = dict.fromkeys(
        ("server", "primary", "synchronous_commit", "clock", "tables", "rights", "a commit of 1 KB"), "ok"
    )
    assert results(found) == {**expected, "fsync": "failed"}
    assert found.failed_promises == ("P1", "P2", "P4")
    assert found.sync_microseconds is not None
    assert 0 < found.sync_microseconds[0] <= found.sync_microseconds[1]
    with postgres.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM ts_key").fetchall() == [(0,)]
    assert len(ConversationLibrary(backend).list()) == 1


def test_settings_and_rights_that_do_not_do(postgres: PostgresServer):
    url = postgres.schema()
    open_backend(url, create=True).conversations()
    with postgres.connect(url) as connection:
        schema = connection.execute("SELECT current_schema()").fetchall()[0][0]
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'reader'")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader")
    try:
        found = examine(PostgresBackend(postgres.url(user="reader", password="reader"), schema=str(schema)))
        assert results(found)["rights"] == "failed"
        assert "ts_slot (DELETE, INSERT, UPDATE)" in str(found.checks)
        assert results(found)["a commit of 1 KB"] == "skipped"
    finally:
        with postgres.connect(url) as connection:
            connection.execute("DROP OWNED BY reader")
            connection.execute("DROP ROLE reader")
    found = examine(PostgresBackend(postgres.url(options=f"-csearch_path={schema} -csynchronous_commit=off")))
    assert results(found)["synchronous_commit"] == "failed"
    with postgres.connect(url) as connection:
        connection.execute("INSERT INTO ts_migration (number) VALUES (1000)")
    assert "upgrade" in str(examine(open_backend(url)).checks)


@for_each(
    "row, name, result",
    [
        (("12.1", 120001, False, "on", "on", "on", "", 0), "server", "failed"),
        (("15.1", 150001, True, "on", "on", "on", "", 0), "primary", "failed"),
        (("15.1", 150001, False, "on", "on", "off", "", 0), "full_page_writes", "note"),
        (("15.1", 150001, False, "on", "on", "on", "", 2), "standbys", "note"),
    ],
)
def test_what_the_tests_server_is_not(row, name, result):
    """Of an old server, a standby, and one with asynchronous standbys: by what such a server answers."""

    def ask(statement, _):
        return (
            [(*row, "public", 0.0)]
            if "server_version" in statement
            else [(False,)]
            if "IS NOT NULL" in statement
            else []
        )

    checks, times = postgres_checks(ask, 4)
    found = {check.name: check.result for check in checks}
    assert found[name] == result
    assert found["clock"] == "failed"  # it says 1970
    assert times == []


def test_a_bucket():
    found = examine(ObjectStoreBackend("memory:///examined"))
    assert results(found) == {
        **dict.fromkeys(("conditional writes", "lists", "removal", "a write of 1 KB"), "ok"),
        **dict.fromkeys(("versioning", "lifecycle rules"), "skipped"),
    }
    assert found.is_ok


@pytest.mark.parametrize(
    ("broken", "name"),
    [("create", "conditional writes"), ("swap", "conditional writes"), ("list", "lists"), ("delete", "removal")],
)
def test_a_bucket_that_does_not_do(broken, name, monkeypatch):
    """If-None-Match ignored, If-Match ignored, lists that lag, no right to remove."""
    real_create = Bucket.create
    replaced = {
        "create": lambda bucket, key, data: real_create(bucket, key, data) or True,
        "swap": lambda *_: True,
        "list": lambda *_: iter([[]]),
        "delete": lambda *_: None,
    }
    monkeypatch.setattr(Bucket, broken, replaced[broken])
    found = examine(ObjectStoreBackend("memory:///broken"))
    assert results(found)[name] == ("note" if broken == "delete" else "failed")


def test_nobody_answers():
    with pytest.raises(BackendError, match="examine the"):
        examine(PostgresBackend("postgresql://127.0.0.1:1/none", timeout_seconds=2))
    assert examine(SimulatedBackend()).checks == ()


def test_the_command(postgres: PostgresServer, cli):
    """Each check is a line; the exit code says whether one is ill; an index of a backend has a status."""
    url = postgres.schema()
    open_backend(url, create=True).conversations()
    code, out, _ = cli("doctor", url)
    assert (code, "synchronous_commit" in out, "NO   fsync" in out) == (1, True, True)
    code, out, _ = cli("doctor", url, "--json")
    assert {"name": "rights", "result": "ok"}.items() <= next(
        check for check in json.loads(out)["checks"] if check["name"] == "rights"
    ).items()
    code, out, _ = cli("index", url, "--status")
    assert (code, "conversations" in out) == (0, True)
    assert "s3cret" not in out
