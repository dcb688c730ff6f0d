"""llm: ``response.log_to_db()``, which is given the whole chain of messages each time, and stores what is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import llm
import sqlite_utils
from llm.logs import LogStore

from benchmarks.drivers.base import Driver, Message, blocks, result_text


class _Model(llm.Model):
    """A model that says nothing: only the log of it is measured."""

    model_id = "benchmark"

    def execute(self, *_: Any, **__: Any) -> Iterator[str]:
        yield ""


class Logs(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._conversation = llm.Conversation(model=_Model(), id="a-conversation")
        self._database = sqlite_utils.Database(folder / "logs.db")
        LogStore(self._database)
        self._chain: list[Any] | None = None

    def translate(self, message: Message) -> Any:
        parts = [_part(block) for block in blocks(message)]
        role = "tool" if parts[0]["type"] == "tool_result" else message["role"]
        return {"role": role, "parts": parts}

    def prepare(self, given: list[Any]) -> list[Any]:
        if self._chain is None:
            self._chain = [message.to_dict() for message in self.load()]
        made = []
        for message in given:
            made.append(self._response(self._chain, message))
            self._chain.append(message)
        return made

    def fill(self, given: list[Any]) -> None:
        self._response(given[:-1], given[-1]).log_to_db(self._database)

    def append(self, given: list[Any]) -> None:
        for response in given:
            response.log_to_db(self._database)

    def load(self) -> Sequence[Any]:
        loaded: list[Any] = LogStore(self._database).thread_messages(self._conversation.id)
        return loaded

    def close(self) -> None:
        self._database.close()

    def _response(self, before: list[Any], message: Any) -> Any:
        data = {"model": _Model.model_id, "prompt": {"messages": before}, "messages": [message]}
        response = llm.Response.from_dict(data, model=self._conversation.model)
        response.conversation = self._conversation
        return response


def _part(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] == "tool_use":
        return {"type": "tool_call", "name": block["name"], "arguments": block["input"], "tool_call_id": block["id"]}
    call_id = block["tool_use_id"]
    return {"type": "tool_result", "name": "a_tool", "output": result_text(block), "tool_call_id": call_id}
