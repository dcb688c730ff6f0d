"""A PostgreSQL of the tests' own, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.postgres import PostgresServer, programs


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; whoever kills it starts it again."""
    if programs() is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    with PostgresServer() as server:
        yield server
