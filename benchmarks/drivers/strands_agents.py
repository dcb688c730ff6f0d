"""Strands Agents: ``FileSessionManager``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strands.session.file_session_manager import FileSessionManager
from strands.types.session import SessionAgent, SessionMessage

from benchmarks.drivers.base import Driver, Message, blocks, result_text

_SESSION, _AGENT = "a-conversation", "an-agent"


class Files(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._manager = FileSessionManager(_SESSION, storage_dir=str(folder))
        if self._manager.read_agent(_SESSION, _AGENT) is None:
            agent = SessionAgent(agent_id=_AGENT, state={}, conversation_manager_state={})
            self._manager.create_agent(_SESSION, agent)
        self._count = len(list(folder.glob("**/message_*.json")))

    def translate(self, message: Message) -> Any:
        return {"role": message["role"], "content": [_block(block) for block in blocks(message)]}

    def append(self, given: list[Any]) -> None:
        for message in given:
            self._manager.create_message(_SESSION, _AGENT, SessionMessage.from_message(message, self._count))
            self._count += 1

    def load(self) -> Sequence[Any]:
        return [found.to_message() for found in self._manager.list_messages(_SESSION, _AGENT)]

    def last(self, count: int) -> Sequence[Any]:
        offset = max(0, self._count - count)
        return [
            found.to_message() for found in self._manager.list_messages(_SESSION, _AGENT, limit=count, offset=offset)
        ]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    """A block of content, as Strands (and Bedrock) name it."""
    if block["type"] == "text":
        return {"text": block["text"]}
    if block["type"] == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
    status = "error" if block["is_error"] else "success"
    content = [{"text": result_text(block)}]
    return {"toolResult": {"toolUseId": block["tool_use_id"], "status": status, "content": content}}
