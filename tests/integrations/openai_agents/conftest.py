"""A server that the processes of a test share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.postgres import PostgresServer, programs


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Tables of a test's own. What this process does with them it does on places of its own, so that children can be forked."""
    from transcript_store.backends import PostgresBackend

    url = server.schema()
    place = PostgresBackend(url, create=True)
    place.conversations()
    place.close()
    return url
