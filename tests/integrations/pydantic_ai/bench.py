"""``TranscriptHistory`` as our contract uses it: a value is what a tool returned."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelRequest, ToolReturnPart

from transcript_store.integrations.pydantic_ai import TranscriptHistory
from transcript_store.testing import IntegrationBench


class Bench(IntegrationBench):
    keeps_nan = False

    def item(self, value: Any) -> Any:
        return ModelRequest(parts=[ToolReturnPart("look", value, tool_call_id="1")])

    def value_in(self, item: Any) -> Any:
        return item.parts[0].content

    def _history(self, key: str) -> TranscriptHistory:
        return TranscriptHistory(key, self.directory)

    async def add(self, key: str, items: list[Any]) -> None:
        await self._history(key).append(items)

    async def items(self, key: str) -> list[Any]:
        return await self._history(key).messages()

    def folder(self, key: str) -> str:
        return self._history(key).directory

    def close(self, key: str) -> None:
        self._history(key).close()
