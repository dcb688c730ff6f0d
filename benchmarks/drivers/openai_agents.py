"""OpenAI Agents SDK: ``SQLiteSession``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from benchmarks.drivers.base import THREADS, Driver


class Session(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._runner = asyncio.Runner()
        self._session = SQLiteSession("a-conversation", folder / "sessions.db")

    def fill(self, given: list[Any]) -> None:
        self._runner.run(self._session.add_items(given))

    def append(self, given: list[Any]) -> None:
        async def each() -> None:
            for item in given:
                await self._session.add_items([item])

        self._runner.run(each())

    def append_by_threads(self, given: list[Any]) -> None:
        async def share(number: int) -> None:
            for item in given[number::THREADS]:
                await self._session.add_items([item])  # which takes a thread for it

        async def group() -> None:
            await asyncio.gather(*map(share, range(THREADS)))

        self._runner.run(group())

    def replace(self, given: list[Any]) -> None:
        async def both() -> None:
            await self._session.clear_session()
            await self._session.add_items(given)

        self._runner.run(both())

    def load(self) -> Sequence[Any]:
        loaded: list[Any] = self._runner.run(self._session.get_items())
        return loaded

    def last(self, count: int) -> Sequence[Any]:
        loaded: list[Any] = self._runner.run(self._session.get_items(limit=count))
        return loaded

    def close(self) -> None:
        self._session.close()
        self._runner.close()
