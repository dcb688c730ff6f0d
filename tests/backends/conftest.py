"""The backends that many tests use: simulated ones, and a PostgreSQL that starts when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.postgres import PostgresServer, programs
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; a test that kills it starts it again."""
    if programs() is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=[SimulatedBackend, SimulatedObjectStore])
def backend(request: pytest.FixtureRequest) -> SimulatedBackend:
    """A new simulated backend: one that keeps each slot, and one that packs them."""
    made: SimulatedBackend = request.param()
    return made
