"""Each test of this folder runs on asyncio and on trio."""

from __future__ import annotations

from typing import Any

import pytest

from tests.aio.helpers import BACKENDS


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Asked for by anyio's own plugin of pytest, which runs tests that are coroutines."""
    return request.param
