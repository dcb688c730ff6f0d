"""What the contract of an integration works on: a bench, and the conversations under it, in a directory or on a place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcript_store import ConversationLibrary, ConversationStore, repair, verify
from transcript_store.errors import ConversationNotFoundError

if TYPE_CHECKING:  # whoever has no place needs none
    from transcript_store.places import Place

__all__ = ["IntegrationBench"]


class IntegrationBench(ABC):
    """How the contract uses an integration: yours to write, a few lines each. All in one library; each key is a conversation.

    Args:
        directory: of the library; or a library on a place, if the contract is given a place.
    """

    keeps_nan: bool = True
    """Whether the framework's own encoding keeps NaN and infinities. (pydantic's writes null.)"""

    def __init__(self, directory: str | ConversationLibrary) -> None:
        self.directory = directory

    @abstractmethod
    def item(self, value: Any) -> Any:
        """An item of the framework that carries a value which ``json`` can write."""

    @abstractmethod
    def value_in(self, item: Any) -> Any:
        """The value that an item carries."""

    @abstractmethod
    async def add(self, key: str, items: list[Any]) -> None:
        """Add items by one call of the framework's protocol, with an object of the integration made for this call."""

    @abstractmethod
    async def items(self, key: str) -> list[Any]:
        """All items, read by the framework's protocol, with an object made for this call; none if nothing was added."""

    @abstractmethod
    def folder(self, key: str) -> str:
        """The conversation's folder. On a place, any path that ends with the conversation's id."""

    @abstractmethod
    def close(self, key: str) -> None:
        """Close the conversation's files. Nobody else waits for this."""


MakeBench = Callable[[Any], IntegrationBench]


class Underneath:
    """A bench, and what is under it: a directory, or a place on which each rule has keys of its own."""

    def __init__(self, make_bench: MakeBench, directory: str, place: Callable[[], Place] | None, prefix: str) -> None:
        self._make_bench, self._open_place = make_bench, place
        self._prefix = "" if place is None else prefix
        self.directory = directory
        self.open()

    def open(self) -> None:
        """Make the bench, also anew in another process: what a place had open cannot be handed on."""
        self.place = None if self._open_place is None else self._open_place()
        self.library = None if self.place is None else ConversationLibrary(self.place)
        self.bench = self._make_bench(self.directory if self.library is None else self.library)

    async def add(self, key: str, *values: Any) -> None:
        await self.bench.add(self._prefix + key, [self.bench.item(value) for value in values])

    async def values(self, key: str) -> list[Any]:
        return [self.bench.value_in(item) for item in await self.bench.items(self._prefix + key)]

    def close(self, key: str) -> None:
        self.bench.close(self._prefix + key)

    def folder(self, key: str) -> Path:
        return Path(self.bench.folder(self._prefix + key))

    def holding(self, key: str) -> ConversationLibrary:
        """The library in which the conversation is."""
        return self.library or ConversationLibrary(self.folder(key).parent)

    def is_there(self, key: str) -> bool:
        try:
            self.read(key).close()
        except ConversationNotFoundError:
            return False
        return True

    def read(self, key: str) -> ConversationStore:
        return self.holding(key).open(self.folder(key).name, read_only=True)

    def is_whole(self, key: str) -> bool:
        verification = self.holding(key).verify(self.folder(key).name) if self.library else verify(self.folder(key))
        return verification.is_whole and not verification.findings

    def damage(self, key: str) -> Callable[[], None]:
        """Change what is stored; returns what brings back the rest. On a place nothing can: its slots are written once."""
        if self.place is not None:
            name = self.folder(key).name
            last = max(self.place.read(name), key=lambda piece: piece.last)
            data = last.data[last.data.rindex(b'{"slot":') :]
            envelope, _, lines = data.partition(b"\n")
            assert self.place.put(name, last.last + 1, envelope + b"\n" + lines, envelope[-34:-2])
            return lambda: None
        transcript = self.folder(key) / "transcript.jsonl"
        lines_of_it = transcript.read_bytes().splitlines(keepends=True)
        lines_of_it[10] = lines_of_it[10].replace(b'"seq"', b'"sEq"')
        transcript.write_bytes(b"".join(lines_of_it))
        return lambda: self._repair(transcript, b"".join(lines_of_it))

    @staticmethod
    def _repair(transcript: Path, damaged: bytes) -> None:
        assert transcript.read_bytes() == damaged, "a read changed it"
        repair(transcript.parent, mode="salvage", dry_run=False)
