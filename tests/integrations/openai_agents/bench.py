"""``TranscriptSession`` as our contract uses it."""

from __future__ import annotations

from typing import Any

from transcript_store.integrations.openai_agents import TranscriptSession
from transcript_store.testing import IntegrationBench


class Bench(IntegrationBench):
    def item(self, value: Any) -> Any:
        return {"role": "user", "content": value}

    def value_in(self, item: Any) -> Any:
        return item["content"]

    def _session(self, key: str) -> TranscriptSession:
        return TranscriptSession(key, self.directory)

    async def add(self, key: str, items: list[Any]) -> None:
        await self._session(key).add_items(items)

    async def items(self, key: str) -> list[Any]:
        return await self._session(key).get_items()

    def folder(self, key: str) -> str:
        return self._session(key).directory

    def close(self, key: str) -> None:
        self._session(key).close()
