"""transcript_store, with each of its two durabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drivers.base import Driver, Message, by_threads
from transcript_store import ConversationLibrary, ConversationStore, list_conversations
from transcript_store.conversation import Durability


class PowerLoss(Driver):
    durability: Durability = "power-loss"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "conversation"
        self._store: ConversationStore | None = None

    def fill(self, given: list[Message]) -> None:
        with ConversationStore(self._path) as store:
            store.initialize(messages=given)

    def append(self, given: list[Message]) -> None:
        store = self._writer()
        for message in given:
            store.append_message(message)

    def append_by_threads(self, given: list[Message]) -> None:
        self._writer()
        by_threads(self.append, given)

    def replace(self, given: list[Message]) -> None:
        self._writer().replace_transcript(given)

    def create(self, count: int) -> None:
        library = ConversationLibrary(self.folder)
        for number in range(count):
            library.create(labels={"title": f"chat {number}"}).close()

    def load(self) -> Sequence[Any]:
        with ConversationStore(self._path, read_only=True) as store:
            store.load()
            return store.get_messages()

    def last(self, count: int) -> Sequence[Any]:
        with ConversationStore(self._path, read_only=True) as store:
            store.load(verify="tail")
            return store.get_messages(last=count)

    def list(self) -> int:
        return len(list_conversations(self.folder))

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _writer(self) -> ConversationStore:
        if self._store is None:
            self._store = ConversationStore(self._path, durability=self.durability)
            self._store.load()
        return self._store


class ProcessCrash(PowerLoss):
    durability = "process-crash"
