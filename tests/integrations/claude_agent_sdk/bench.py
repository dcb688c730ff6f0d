"""``TranscriptSessionStore`` as our contract uses it: the key is the session's, in one project."""

from __future__ import annotations

from typing import Any

from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore
from transcript_store.testing import IntegrationBench

PROJECT = "-home-ada-project"


def key_of(session: str) -> dict[str, str]:
    return {"project_key": PROJECT, "session_id": session}


class Bench(IntegrationBench):
    def item(self, value: Any) -> Any:
        return {"type": "x", "value": value}

    def value_in(self, item: Any) -> Any:
        return item["value"]

    @property
    def store(self) -> TranscriptSessionStore:
        return TranscriptSessionStore(self.directory)

    async def add(self, key: str, items: list[Any]) -> None:
        await self.store.append(key_of(key), items)

    async def items(self, key: str) -> list[Any]:
        return await self.store.load(key_of(key)) or []

    def folder(self, key: str) -> str:
        return self.store.directory(key_of(key))

    def close(self, key: str) -> None:
        self.store.close()


class InTheMessage(Bench):
    """The same with the value inside a message of the model's."""

    def item(self, value: Any) -> Any:
        return {"type": "user", "message": {"role": "user", "content": value}, "last": 1}

    def value_in(self, item: Any) -> Any:
        assert [*item] == ["type", "message", "last"]
        return item["message"]["content"]
