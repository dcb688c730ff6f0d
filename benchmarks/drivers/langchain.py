"""langchain-community: ``FileChatMessageHistory`` and ``SQLChatMessageHistory``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_community.chat_message_histories import FileChatMessageHistory, SQLChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

from benchmarks.drivers.base import Driver, Message, by_threads


class File(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "history.json"
        self._history = FileChatMessageHistory(str(self._path))

    def translate(self, message: Message) -> Any:
        make = HumanMessage if message["role"] == "user" else AIMessage
        return make(content=message["content"])

    def fill(self, given: list[Any]) -> None:
        # What add_message() writes; calling it for each would read and write all of them each time.
        self._path.write_text(json.dumps(messages_to_dict(given)), encoding="utf-8")

    def append(self, given: list[Any]) -> None:
        for message in given:
            self._history.add_message(message)

    def load(self) -> Sequence[Any]:
        loaded: list[Any] = self._history.messages
        return loaded


class Sql(File):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._history = SQLChatMessageHistory("a-conversation", connection=f"sqlite:///{folder / 'history.db'}")

    def fill(self, given: list[Any]) -> None:
        self._history.add_messages(given)

    def append_by_threads(self, given: list[Any]) -> None:
        by_threads(self.append, given)

    def replace(self, given: list[Any]) -> None:
        self._history.clear()
        self._history.add_messages(given)

    def close(self) -> None:
        self._history.engine.dispose()
