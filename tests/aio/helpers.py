"""Event loops for the tests, and a conversation whose disk waits, so that tasks queue up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.kit.gate import Gate
from transcript_store import ConversationStore, TranscriptStoreError, verify
from transcript_store.aio import AsyncConversationStore

BACKENDS = [
    "asyncio",
    pytest.param("trio", marks=pytest.mark.skipif(find_spec("trio") is None, reason="needs trio, which is in [dev]")),
]


class Behind:
    """A conversation with one append, of a task of its own, whose sync waits at a gate."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory, self.gate, self._options = directory, Gate(), options
        self.called: list[Any] = []
        """What tasks asked to be appended, in the order in which they did."""
        self.outcomes: dict[Any, Any] = {}

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """In the block tasks may be started with ``append``. At its end the sync is let through, and all are waited for."""
        self.store = AsyncConversationStore(self.directory, file_system=self.gate, **self._options)
        async with self.store:
            await self.store.initialize()
            self.syncs_before = self.gate.syncs
            self.gate.armed = True
            async with anyio.create_task_group() as self.tasks:
                self.append("first")
                assert await anyio.to_thread.run_sync(self.gate.arrived.wait, 30)
                try:
                    yield
                    await anyio.wait_all_tasks_blocked()
                finally:
                    self.gate.open.set()

    def append(self, *names: Any, messages: Any = None, **options: Any) -> None:
        """Start a task that appends these, as one."""

        async def call() -> None:
            self.called += names
            try:
                given = [{"n": name} for name in names] if messages is None else messages
                self.outcomes[names[0]] = await self.store.append_messages(given, **options)
            except (TranscriptStoreError, TypeError) as error:
                self.outcomes[names[0]] = error

        self.tasks.start_soon(call)

    def stored(self) -> list[Any]:
        """What a fresh reader finds."""
        assert verify(self.directory).is_intact
        with ConversationStore(self.directory, read_only=True) as fresh:
            fresh.load()
            return [message["n"] for message in fresh.get_messages()]
