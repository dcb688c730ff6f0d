"""LangGraph: ``SqliteSaver``, whose checkpoint holds the whole list of messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.drivers.base import Driver, Message

_THREAD = {"configurable": {"thread_id": "a-conversation", "checkpoint_ns": ""}}


class Checkpoints(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = ExitStack()
        self._saver = self._stack.enter_context(SqliteSaver.from_conn_string(str(folder / "checkpoints.db")))
        found = self._saver.get_tuple(_THREAD)
        self._config = _THREAD if found is None else found.config
        self._messages: list[Any] = [] if found is None else found.checkpoint["channel_values"]["messages"]
        self._step = len(self._messages)

    def translate(self, message: Message) -> Any:
        make = HumanMessage if message["role"] == "user" else AIMessage
        return make(content=message["content"])

    def fill(self, given: list[Any]) -> None:
        self._messages.extend(given)
        self._put()

    def append(self, given: list[Any]) -> None:
        for message in given:
            self._messages.append(message)
            self._put()

    def replace(self, given: list[Any]) -> None:
        self._messages = given
        self._put()

    def load(self) -> Sequence[Any]:
        found = self._saver.get_tuple(_THREAD)
        assert found is not None
        loaded: list[Any] = found.checkpoint["channel_values"]["messages"]
        return loaded

    def close(self) -> None:
        self._stack.close()

    def _put(self) -> None:
        self._step += 1
        checkpoint = create_checkpoint(empty_checkpoint(), None, self._step)
        checkpoint["channel_values"] = {"messages": self._messages}
        checkpoint["channel_versions"] = {"messages": self._step}
        config = {"configurable": {"checkpoint_ns": "", **self._config["configurable"]}}
        self._config = self._saver.put(
            config, checkpoint, {"source": "loop", "step": self._step}, {"messages": self._step}
        )
