"""A conversation and its library as a user sees them: the model that ``ConversationMachine`` compares with the disk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple

from hypothesis import strategies as st

from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    PoisonedError,
    Record,
    StorageError,
    TranscriptStoreError,
)
from transcript_store.testing._simulated_machine import FileSystemCall, SimulatedFileSystem, SimulatedStop

__all__ = ["ExpectedConversation", "ModelledConversation", "Operation"]


Records = tuple[str, ...]
"""The JSON text of ``[message, extra]`` of each record."""

_RETRACTED = "retracted"


NO_METADATA = '{"labels": {}, "model": null, "system_prompt": null}'
"""The metadata of a conversation that was begun without any, as a :class:`ExpectedConversation` has it."""


class ExpectedConversation(NamedTuple):
    """Everything that a user sees of a conversation at one moment. Two equal ones cannot be distinguished."""

    records: Records = ()
    """The live records, each as the JSON text of ``[message, extra]``; of an event, the message is null.

    Of a retracted message it is ``[message, extra, "retracted"]``, of a retraction ``[null, null, [first, last]]``.
    """
    metadata: str = "{}"
    """JSON text of the model, the system prompt and the labels."""
    generation: int = 0
    """The number of the live generation."""
    archive: tuple[tuple[int, Records], ...] = ()
    """The earlier generations, the oldest first: number and records."""
    forks: tuple[Records, ...] = ()
    """The records of the other conversations in the library, in the order of their texts."""

    def with_records(self, *entries: tuple[Any, Any]) -> ExpectedConversation:
        """With these records after the others, each a message and an extra."""
        return self._replace(records=_marked([*_unmarked(self.records), *map(list, entries)]))

    def with_metadata(self, changes: Mapping[str, Any]) -> ExpectedConversation:
        """After ``update_metadata(**changes)``."""
        before = json.loads(self.metadata)
        after = {**before, **changes}
        if "labels" in changes:
            merged = {**before.get("labels", {}), **changes["labels"]}
            after["labels"] = {name: text for name, text in merged.items() if text is not None}
        return self._replace(metadata=json.dumps(after, sort_keys=True))

    def replaced_by(self, *entries: tuple[Any, Any]) -> ExpectedConversation:
        """After a replace by these messages and extras: the earlier generation is archived."""
        archive = (*self.archive, (self.generation, self.records))
        fresh = self._replace(records=(), generation=self.generation + 1, archive=archive)
        return fresh.with_records(*entries)

    def keeping(
        self, seqs: Collection[int], changed: Mapping[int, tuple[Any, Any]] | None = None
    ) -> ExpectedConversation:
        """After ``keep_records(seqs, changed=changed)``."""
        entries = dict(enumerate(_unmarked(self.records), 1))
        for seq, contents in (changed or {}).items():
            entries[seq][:2] = contents
        numbers = {old: new for new, old in enumerate(sorted(seqs), 1)}
        kept = [entries[seq] for seq in numbers]
        for entry in kept:
            if entry[2:] and entry[2]:
                first, last = entry[2]
                named = [numbers[seq] for seq in range(first, last + 1) if seq in numbers]
                entry[2] = [named[0], named[-1]] if named else []
        return self.replaced_by()._replace(records=_marked(kept))

    def taking_back(self, count: int) -> ExpectedConversation:
        """After ``retract(count)``, or of all messages if there are fewer; unchanged if there is none."""
        entries = [json.loads(record) for record in self.records]
        there = [seq for seq, entry in enumerate(entries, 1) if _counts(entry)][-count:]
        if not there:
            return self
        return self._replace(records=_marked([*_unmarked(self.records), [None, None, [there[0], there[-1]]]]))

    def without_generation(self, number: int) -> ExpectedConversation:
        """After an archived generation was deleted."""
        return self._replace(archive=tuple(one for one in self.archive if one[0] != number))

    def with_fork(self, through_seq: int) -> ExpectedConversation:
        """After a fork of the first records."""
        return self._replace(forks=tuple(sorted((*self.forks, _marked(_unmarked(self.records)[:through_seq])))))

    def with_forks(self, forks: Iterable[Records]) -> ExpectedConversation:
        """With these conversations beside it too."""
        return self._replace(forks=tuple(sorted((*self.forks, *forks))))

    def without_fork(self, fork: Records) -> ExpectedConversation:
        """After a fork with these records was deleted."""
        forks = list(self.forks)
        if fork in forks:
            forks.remove(fork)
        return self._replace(forks=tuple(forks))

    @property
    def messages(self) -> list[Any]:
        """The live messages that were not retracted."""
        return [entry[0] for entry in map(json.loads, self.records) if _counts(entry)]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call on a conversation, and its effect on a history.

    Args:
        run: makes the call.
        after: what a history becomes by it.
        syncs: on return everything that was written before is durable too, whatever the conversation's durability is.
        stands_alone: on return it is durable itself; earlier writes may not be.
    """

    run: Callable[[], object]
    after: Callable[[ExpectedConversation], ExpectedConversation]
    syncs: bool = False
    stands_alone: bool = False


def _counts(entry: Sequence[Any]) -> bool:
    """True if a record has a message that was not retracted."""
    return entry[0] is not None and not entry[2:]


def _unmarked(records: Records) -> list[list[Any]]:
    """Records as lists, without what a later record says of them."""
    entries = [json.loads(record) for record in records]
    return [entry[:2] if entry[2:] == [_RETRACTED] else entry for entry in entries]


def _marked(entries: Iterable[list[Any]]) -> Records:
    """Records in the form of :class:`ExpectedConversation`."""
    found: list[list[Any]] = []
    for entry in entries:
        found.append(entry)
        for before in found[entry[2][0] - 1 : entry[2][1]] if entry[2:] and entry[2] else ():
            if _counts(before):
                before.append(_RETRACTED)
    return tuple(map(json.dumps, found))


def _entry_of(record: Record) -> list[Any]:
    if record.retracts is not None:
        return [record.message, record.extra, [*record.retracts]]
    return [record.message, record.extra, *([_RETRACTED] if record.is_retracted else [])]


def observe(conversation: ConversationStore, library: ConversationLibrary) -> ExpectedConversation:
    """The state that a user sees through a loaded conversation, and in its library.

    Raises:
        AssertionError: the listing of the library reports damage.
        TranscriptStoreError: something cannot be read.
    """
    return ExpectedConversation(
        records_of(conversation),
        observed_metadata(conversation),
        conversation.get_metadata().generation,
        tuple(
            (one.number, records_of(conversation, one.number)) for one in conversation.generations() if not one.is_live
        ),
        tuple(sorted(records for records, _ in forks_in(library, conversation.id))),
    )


def forks_in(library: ConversationLibrary, original: str) -> list[tuple[Records, str]]:
    """The other conversations in a library, as records and id."""
    found = []
    for summary in library.list():
        assert summary.damage is None, f"the list says of {summary.id}: {summary.damage}"
        if summary.id != original:
            with library.open(str(summary.id), read_only=True) as fork:
                found.append((records_of(fork), str(summary.id)))
    return found


def observed_metadata(conversation: ConversationStore) -> str:
    """Its metadata, as far as a :class:`ExpectedConversation` has it."""
    metadata = conversation.get_metadata()
    fields = {"model": metadata.model, "system_prompt": metadata.system_prompt, "labels": metadata.labels}
    return json.dumps(fields, sort_keys=True)


def records_of(conversation: ConversationStore, generation: int | None = None) -> Records:
    """The records of the live generation, or of another."""
    return tuple(json.dumps(_entry_of(one)) for one in conversation.get_records(generation=generation))


# ---- modelled ----
# A conversation on a simulated disk, beside a model of what may be true of it. The model is what docs/durability.md
# promises. ``shown`` is the one history that is true now. After a fault several may be true; the next read of the
# conversation must find one of them, and from then on that is the true one.

OnCall = Callable[[FileSystemCall], int | None]
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
    """The optional features of the conversation."""
    messages: ClassVar[st.SearchStrategy[Message]] = _SIZES.map(lambda size: {"role": "user", "content": "y" * size})
    """The appended records. The machine numbers them, in their extras."""

    def begin(self) -> None:
        """Start again on an empty disk. Extend it with what your own rules need."""
        self.disk = SimulatedFileSystem(page_bytes=256, sector_bytes=64)
        self.numbered = 0
        """How many records were drawn."""
        self.store = self.opened(self.disk, durability=self.durability)
        self.store.initialize(id=self.id, features=self.features)
        self.shown = observe(self.store, self.library)
        """The history that is true now."""
        self.synced = self.shown
        """The oldest history that a power cut may leave; every one of ``steps`` up to ``shown`` is possible too."""
        self.steps: list[ExpectedConversation] = []
        self.may_return: list[Records] = []
        """Forks whose delete did not return: each is gone, and a power cut may bring it back until the library is synced."""

    @property
    def library(self) -> ConversationLibrary:
        """The library, on the disk that there is now."""
        return self.library_on(self.disk)

    def library_on(self, disk: SimulatedFileSystem) -> ConversationLibrary:
        """The library on a disk. Extend it, as :meth:`opened`, with options that both take: an ``encryption_key``."""
        return ConversationLibrary(self.folder, file_system=disk)

    def opened(self, disk: SimulatedFileSystem, **options: Any) -> ConversationStore:
        """The conversation on a disk, not loaded yet."""
        return ConversationStore(f"{self.folder}/{self.id}", file_system=disk, **options)

    def a_record(self, data: st.DataObject) -> tuple[Message, dict[str, int]]:
        """A message that is new, and an extra that says which it is."""
        self.numbered += 1
        return data.draw(self.messages, label="message"), {"n": self.numbered}

    def perform(self, operation: Operation) -> None:
        """Make an undisturbed call; the model is its effect on ``shown``."""
        operation.run()
        self._note(operation)

    def attempt(self, operation: Operation, on_call: OnCall) -> list[ExpectedConversation]:
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

    def look(self, may_be: list[ExpectedConversation], *, loaded: bool) -> None:
        """Insist that what the store shows is one of these histories, which is the true one from now on.

        Args:
            may_be: the histories that are allowed.
            loaded: the store was loaded since it wrote, so what it shows is durable.
        """
        found = observe(self.store, self.library)
        assert found in may_be, difference(found, may_be)
        self.may_return = [*(Counter(self.may_return) - Counter(found.forks)).elements()]
        self._set(found, is_durable=loaded)

    def load(self) -> None:
        """Load the conversation as the next process. A deleted one starts again."""
        self.store = self.opened(self.disk, durability=self.durability)
        if self.store.exists():
            self.store.load(verify="tail" if self.numbered % 2 else "all")
        else:
            self.store.initialize(id=self.id, features=self.features)

    def after_power_cut(self, may_be: list[ExpectedConversation]) -> list[ExpectedConversation]:
        """The possible histories after a power cut, given those before it."""
        return [self.synced, *self.steps, *may_be] if self.durability == "process-crash" else may_be

    def lose_power(self, may_be: list[ExpectedConversation]) -> list[ExpectedConversation]:
        """Cut the power now: replaces the possible states by those after the power cut."""
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

    def _set(self, history: ExpectedConversation, *, is_durable: bool) -> None:
        self.shown = history
        self.steps.append(history)
        if is_durable or self.durability == "power-loss":
            self.synced, self.steps = history, []


def close_after_kill(conversation: ConversationStore) -> None:
    """Close the store of a process that is gone, so that Python does not warn of it. Nothing of it reaches a disk any more."""
    with suppress(SimulatedStop, TranscriptStoreError, OSError):
        conversation.close()


def difference(found: ExpectedConversation, may_be: list[ExpectedConversation]) -> str:
    """The differences, member by member: a history is long."""
    lines = [f"the found state matches no allowed history ({len(may_be)} allowed)"]
    for name, value in found._asdict().items():
        allowed = [getattr(history, name) for history in may_be]
        if value not in allowed:
            lines.append(f"{name}: there is {value!r:.300}; allowed: {allowed!r:.600}")
    return "\n".join(lines)
