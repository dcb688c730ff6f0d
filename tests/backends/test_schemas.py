"""One database is one library: two services, or an original and its copy, in one database need a schema each.

Public reports: rows of two applications in one table (LangGraph's and Strands' savers), a restore over the original.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.cases import for_each
from tests.kit.postgres import PostgresServer
from transcript_store import ConversationLibrary, CorruptKeyFileError
from transcript_store.backends import BackendError, PostgresBackend, open_backend, ship
from transcript_store.display import printable_address
from transcript_store.testing import SimulatedBackend

SAID = {"role": "user", "content": "Hello"}


@for_each(
    "address, told",
    [
        ("postgresql://ada:s3cret@db/agents?schema=copies", "postgresql://db/agents?schema=copies"),
        ("postgresql://ada@db/agents?sslmode=require&schema=copies", "postgresql://db/agents?schema=copies"),
        ("postgresql://db/agents?schema=copies&password=s3cret", "postgresql://db/agents?schema=copies"),
        ("postgresql://db/agents?schema=s3cret%20x", "postgresql://db/agents"),
        ("postgresql://db/agents?password=s3cret", "postgresql://db/agents"),
        ("s3://bucket/agents?secret=x", "s3://bucket/agents"),
    ],
)
def test_an_address_is_told_with_its_schema_and_no_secret(address, told):
    assert printable_address(address) == told


@for_each("name", ["", "Copies", "a-b", "1a", "a b", "a;drop", "x" * 64, "a,public"])
def test_a_schema_has_a_plain_name(name):
    """It becomes a part of a statement, so nothing else is let in."""
    for make in (
        lambda: PostgresBackend("postgresql://db/agents", schema=name),
        lambda: open_backend(f"postgresql://db/a?schema={name}"),
    ):
        with pytest.raises(ValueError, match="schema"):
            make()


def test_an_address_and_an_argument_that_differ():
    with pytest.raises(ValueError, match="another schema"):
        PostgresBackend("postgresql://db/agents?schema=a", schema="b")
    assert PostgresBackend("postgresql://db/agents?schema=a&sslmode=prefer", schema="a")


def test_two_libraries_in_one_database(postgres: PostgresServer):
    """Neither sees the other, nor the one without a schema; each has its own tables, views and index; a schema is made when it is missing."""
    url = postgres.url()
    with postgres.connect() as connection:
        connection.execute("DROP SCHEMA IF EXISTS one CASCADE")
        connection.execute("DROP SCHEMA IF EXISTS two CASCADE")
    missing = ConversationLibrary(open_backend(f"{url}?schema=one"))
    with pytest.raises(BackendError, match=r"schema=one.*tables of transcript_store are missing.*Nothing was read"):
        missing.list()
    first, second = open_backend(f"{url}?schema=one", create=True), PostgresBackend(url, schema="two", create=True)
    with ConversationLibrary(first).create(messages=[SAID], title="First") as conversation:
        conversation.append_message(SAID)
    assert ConversationLibrary(second).list() == []
    with ConversationLibrary(second).create(
        id=conversation.id, title="Second"
    ):  # the same id, and another conversation
        pass
    assert [summary.title for summary in ConversationLibrary(first)] == ["First"]
    assert [summary.title for summary in ConversationLibrary(second)] == ["Second"]
    assert first.identity != second.identity
    with postgres.connect() as connection:
        assert connection.execute("SELECT count(*) FROM one.ts_line WHERE kind <> 'claim'").fetchall()[0][0]
        connection.execute("DROP SCHEMA one CASCADE")
        connection.execute("DROP SCHEMA two CASCADE")


def test_a_copy_without_its_key_says_where_the_key_is_missing(tmp_path):
    """A reported bug: the error named ``/backend/ID/key.json``, a file in memory that no user could find."""
    library = ConversationLibrary(tmp_path / "chats", encryption_key=b"k" * 32)
    with library.create(messages=[SAID]) as conversation:
        pass
    backend = SimulatedBackend()
    ship(conversation.directory, backend)
    copy = ConversationLibrary(backend, encryption_key=b"k" * 32)
    both: tuple[Any, ...] = ({"read_only": True}, {"take_over": True})
    for options in both:
        with pytest.raises(CorruptKeyFileError, match=r"the backend does not have the key; .*with_key=True") as refused:
            copy.open(conversation.id, **options)
        assert not refused.value.path.startswith("/")
    ship(conversation.directory, backend, with_key=True)
    with copy.open(conversation.id, read_only=True) as opened:
        assert opened.get_messages() == [SAID]
