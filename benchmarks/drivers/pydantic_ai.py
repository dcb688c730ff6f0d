"""pydantic-ai: the documented pattern, all messages as JSON with ``ModelMessagesTypeAdapter``, written after each step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from benchmarks.drivers.base import Driver, Message, blocks, result_text


class Dump(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "messages.json"
        self._messages: list[Any] | None = None

    def translate(self, message: Message) -> Any:
        if message["role"] == "user":
            return ModelRequest(parts=[_asked(block) for block in blocks(message)])
        return ModelResponse(parts=[_answered(block) for block in blocks(message)], model_name="a-model")

    def prepare(self, given: list[Any]) -> list[Any]:
        if self._messages is None:
            self._messages = [*self.load()]
        return given

    def fill(self, given: list[Any]) -> None:
        self._path.write_bytes(ModelMessagesTypeAdapter.dump_json(given))

    def append(self, given: list[Any]) -> None:
        assert self._messages is not None
        for message in given:
            self._messages.append(message)
            self._path.write_bytes(ModelMessagesTypeAdapter.dump_json(self._messages))

    def replace(self, given: list[Any]) -> None:
        self._messages = given
        self.fill(given)

    def load(self) -> Sequence[Any]:
        loaded: list[Any] = ModelMessagesTypeAdapter.validate_json(self._path.read_bytes())
        return loaded


def _asked(block: dict[str, Any]) -> Any:
    if block["type"] == "text":
        return UserPromptPart(content=block["text"])
    return ToolReturnPart(tool_name="a_tool", content=result_text(block), tool_call_id=block["tool_use_id"])


def _answered(block: dict[str, Any]) -> Any:
    if block["type"] == "text":
        return TextPart(content=block["text"])
    return ToolCallPart(tool_name=block["name"], args=block["input"], tool_call_id=block["id"])
