"""What a user sees of a conversation, and beside it in its library: the model that ``ConversationMachine`` compares with the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transcript_store import ConversationLibrary, ConversationStore, Record

__all__ = ["History", "Operation"]

Records = tuple[str, ...]
"""The JSON text of ``[message, extra]`` of each record."""

_TAKEN_BACK = "taken back"


NO_METADATA = '{"labels": {}, "model": null, "system_prompt": null}'
"""The metadata of a conversation that was begun without any, as a :class:`History` has it."""


class History(NamedTuple):
    """Everything that a user sees of a conversation at one moment. Two that are equal cannot be told apart."""

    records: Records = ()
    """The live records, each as the JSON text of ``[message, extra]``; of an event, the message is null.

    Of a message that was taken back it is ``[message, extra, "taken back"]``, of what took it back ``[null, null, [first, last]]``.
    """
    metadata: str = "{}"
    """JSON text of the model, the system prompt and the labels."""
    generation: int = 0
    """The number of the live generation."""
    archive: tuple[tuple[int, Records], ...] = ()
    """The earlier generations, the oldest first: number and records."""
    forks: tuple[Records, ...] = ()
    """The records of the other conversations in the library, in the order of their texts."""

    def with_records(self, *entries: tuple[Any, Any]) -> History:
        """With these records behind the others, each a message and an extra."""
        return self._replace(records=_marked([*_unmarked(self.records), *map(list, entries)]))

    def with_metadata(self, changes: Mapping[str, Any]) -> History:
        """After ``update_metadata(**changes)``."""
        before = json.loads(self.metadata)
        after = {**before, **changes}
        if "labels" in changes:
            merged = {**before.get("labels", {}), **changes["labels"]}
            after["labels"] = {name: text for name, text in merged.items() if text is not None}
        return self._replace(metadata=json.dumps(after, sort_keys=True))

    def replaced_by(self, *entries: tuple[Any, Any]) -> History:
        """After a replace by these messages and extras: what was there is archived."""
        archive = (*self.archive, (self.generation, self.records))
        fresh = self._replace(records=(), generation=self.generation + 1, archive=archive)
        return fresh.with_records(*entries)

    def keeping(self, seqs: Collection[int], changed: Mapping[int, tuple[Any, Any]] | None = None) -> History:
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

    def taking_back(self, count: int) -> History:
        """After ``retract(count)``, or of all messages if there are fewer; as it is if there is none."""
        entries = [json.loads(record) for record in self.records]
        there = [seq for seq, entry in enumerate(entries, 1) if _counts(entry)][-count:]
        if not there:
            return self
        return self._replace(records=_marked([*_unmarked(self.records), [None, None, [there[0], there[-1]]]]))

    def without_generation(self, number: int) -> History:
        """After an archived generation was deleted."""
        return self._replace(archive=tuple(one for one in self.archive if one[0] != number))

    def with_fork(self, through_seq: int) -> History:
        """After a fork of the first records."""
        return self._replace(forks=tuple(sorted((*self.forks, _marked(_unmarked(self.records)[:through_seq])))))

    def with_forks(self, forks: Iterable[Records]) -> History:
        """With these conversations beside it too."""
        return self._replace(forks=tuple(sorted((*self.forks, *forks))))

    def without_fork(self, fork: Records) -> History:
        """After a fork with these records was deleted."""
        forks = list(self.forks)
        if fork in forks:
            forks.remove(fork)
        return self._replace(forks=tuple(forks))

    @property
    def messages(self) -> list[Any]:
        """The live messages that were not taken back."""
        return [entry[0] for entry in map(json.loads, self.records) if _counts(entry)]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call on a conversation, and what it makes of a history.

    Args:
        run: makes the call.
        after: what a history becomes by it.
        syncs: on return everything that was written before is durable too, whatever the conversation's durability is.
        stands_alone: on return it is durable itself, and says nothing of what was written before.
    """

    run: Callable[[], object]
    after: Callable[[History], History]
    syncs: bool = False
    stands_alone: bool = False


def _counts(entry: Sequence[Any]) -> bool:
    """Whether a record has a message that was not taken back."""
    return entry[0] is not None and not entry[2:]


def _unmarked(records: Records) -> list[list[Any]]:
    """Records as lists, without what a later record says of them."""
    entries = [json.loads(record) for record in records]
    return [entry[:2] if entry[2:] == [_TAKEN_BACK] else entry for entry in entries]


def _marked(entries: Iterable[list[Any]]) -> Records:
    """Records as they stand in a :class:`History`."""
    found: list[list[Any]] = []
    for entry in entries:
        found.append(entry)
        for before in found[entry[2][0] - 1 : entry[2][1]] if entry[2:] and entry[2] else ():
            if _counts(before):
                before.append(_TAKEN_BACK)
    return tuple(map(json.dumps, found))


def _entry_of(record: Record) -> list[Any]:
    if record.retracts is not None:
        return [record.message, record.extra, [*record.retracts]]
    return [record.message, record.extra, *([_TAKEN_BACK] if record.is_retracted else [])]


def history_of(conversation: ConversationStore, library: ConversationLibrary) -> History:
    """What a user sees now through a conversation that is loaded, and in its library.

    Raises:
        AssertionError: the list of the library tells of damage.
        TranscriptStoreError: something cannot be read.
    """
    return History(
        records_of(conversation),
        metadata_of(conversation),
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


def metadata_of(conversation: ConversationStore) -> str:
    """Its metadata, as far as a :class:`History` has it."""
    metadata = conversation.get_metadata()
    fields = {"model": metadata.model, "system_prompt": metadata.system_prompt, "labels": metadata.labels}
    return json.dumps(fields, sort_keys=True)


def records_of(conversation: ConversationStore, generation: int | None = None) -> Records:
    """The records of the live generation, or of another."""
    return tuple(json.dumps(_entry_of(one)) for one in conversation.get_records(generation=generation))
