"""A conversation on a simulated disk, beside a model of what may be true of it.

The model is what docs/durability.md promises. ``shown`` is the one history that is true now. After a fault there are several
that may be; the next look at the conversation must find one of them, and from then on that is the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, ClassVar, Literal

from hypothesis import strategies as st

from transcript_store import ConversationLibrary, ConversationStore, PoisonedError, StorageError, TranscriptStoreError
from transcript_store.testing._history import History, Operation, Records, history_of
from transcript_store.testing._simulated import Call, SimulatedFileSystem, SimulatedStop

__all__ = ["ModelledConversation"]

OnCall = Callable[[Call], int | None]
Message = dict[str, Any]
_SIZES = st.sampled_from([0, 10, 100, 300, 900])


class ModelledConversation:
    """One conversation in a library on a simulated disk, and the histories that may be true of it.

    ``ConversationMachine`` is one with rules. Those, and rules of your own, use what is here. ``store`` is the conversation as its
    writer has it now, ``disk`` the disk; both change with each crash.
    """

    durability: ClassVar[Literal["power-loss", "process-crash"]] = "power-loss"
    """That of the conversation. With ``"process-crash"`` a power cut may leave any prefix since the last sync."""
    folder: ClassVar[str] = "/library"
    """Where the library is."""
    id: ClassVar[str] = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
    """That of the conversation."""
    features: ClassVar[Sequence[Literal["retract"]]] = ("retract",)
    """What the conversation can besides."""
    messages: ClassVar[st.SearchStrategy[Message]] = _SIZES.map(lambda size: {"role": "user", "content": "y" * size})
    """What is appended. The machine numbers the records, in their extras."""

    def begin(self) -> None:
        """Begin anew on an empty disk. Extend it with what your own rules need."""
        self.disk = SimulatedFileSystem(page_bytes=256, sector_bytes=64)
        self.numbered = 0
        """How many records were drawn."""
        self.store = self.opened(self.disk, durability=self.durability)
        self.store.initialize(id=self.id, features=self.features)
        self.shown = history_of(self.store, self.library)
        """The history that is true now."""
        self.synced = self.shown
        """What a power cut may fall back to. Between it and ``shown`` every history of ``steps`` may be left."""
        self.steps: list[History] = []
        self.may_return: list[Records] = []
        """Forks whose delete did not return: each is gone, and a power cut may bring it back until the library is synced."""

    @property
    def library(self) -> ConversationLibrary:
        """The library, on the disk that there is now."""
        return self.library_on(self.disk)

    def library_on(self, disk: SimulatedFileSystem) -> ConversationLibrary:
        """The library on a disk: give it a key here, and in :meth:`opened`, if your conversations are sealed."""
        return ConversationLibrary(self.folder, file_system=disk)

    def opened(self, disk: SimulatedFileSystem, **options: Any) -> ConversationStore:
        """The conversation on a disk, not loaded yet."""
        return ConversationStore(f"{self.folder}/{self.id}", file_system=disk, **options)

    def a_record(self, data: st.DataObject) -> tuple[Message, dict[str, int]]:
        """A message that is new, and an extra that says which it is."""
        self.numbered += 1
        return data.draw(self.messages, label="message"), {"n": self.numbered}

    def perform(self, operation: Operation) -> None:
        """Make a call that nothing disturbs; the model is what it makes of ``shown``."""
        operation.run()
        self._note(operation)

    def attempt(self, operation: Operation, on_call: OnCall) -> list[History]:
        """Make a call into a fault. Returns the histories that may be true afterwards: without it, and with it."""
        before = self.shown
        self.disk.on_call = on_call
        try:
            operation.run()
        except (SimulatedStop, StorageError, PoisonedError, KeyboardInterrupt):
            if operation.stands_alone:
                self.steps += map(operation.after, [self.synced, *self.steps])
            self.may_return += (Counter(before.forks) - Counter(operation.after(before).forks)).elements()
            return [before, operation.after(before)]
        finally:
            self.disk.on_call = None
        self._note(operation)
        return [self.shown]

    def look(self, may_be: list[History], *, loaded: bool) -> None:
        """Insist that what the store shows is one of these histories, which is the true one from now on.

        Args:
            may_be: the histories that are allowed.
            loaded: the store was loaded since it wrote, so what it shows is durable.
        """
        found = history_of(self.store, self.library)
        assert found in may_be, difference(found, may_be)
        self.may_return = [*(Counter(self.may_return) - Counter(found.forks)).elements()]
        self._set(found, is_durable=loaded)

    def load(self) -> None:
        """Load the conversation as the next process. One that was deleted begins anew."""
        self.store = self.opened(self.disk, durability=self.durability)
        if self.store.exists():
            self.store.load(verify="tail" if self.numbered % 2 else "all")
        else:
            self.store.initialize(id=self.id, features=self.features)

    def after_power_cut(self, may_be: list[History]) -> list[History]:
        """What may be true after a power cut, if these histories may be true before it."""
        return [self.synced, *self.steps, *may_be] if self.durability == "process-crash" else may_be

    def lose_power(self, may_be: list[History]) -> list[History]:
        """What may be true after a power cut that happens now, in the place of what may be true before it."""
        forks, self.may_return = self.may_return, []
        subsets = [chosen for count in range(len(forks) + 1) for chosen in combinations(forks, count)]
        return [history.with_forks(chosen) for history in self.after_power_cut(may_be) for chosen in subsets]

    def _note(self, operation: Operation) -> None:
        """An operation returned."""
        if operation.after(self.shown).forks != self.shown.forks:
            self.may_return = []  # it synced the library
        if operation.stands_alone:
            self.synced, self.steps = operation.after(self.synced), list(map(operation.after, self.steps))
        self._set(operation.after(self.shown), is_durable=operation.syncs)

    def _set(self, history: History, *, is_durable: bool) -> None:
        self.shown = history
        self.steps.append(history)
        if is_durable or self.durability == "power-loss":
            self.synced, self.steps = history, []


def close_after_kill(conversation: ConversationStore) -> None:
    """Close the store of a process that is gone, so that Python does not warn of it. Nothing of it reaches a disk any more."""
    with suppress(SimulatedStop, TranscriptStoreError, OSError):
        conversation.close()


def difference(found: History, may_be: list[History]) -> str:
    """What is wrong, member by member: a history is long."""
    lines = [f"what was found matches no allowed history ({len(may_be)} allowed)"]
    for name, value in found._asdict().items():
        allowed = [getattr(history, name) for history in may_be]
        if value not in allowed:
            lines.append(f"{name}: there is {value!r:.300}; allowed: {allowed!r:.600}")
    return "\n".join(lines)
