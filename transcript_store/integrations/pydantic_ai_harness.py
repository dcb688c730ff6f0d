"""A step store of pydantic-ai-harness that survives a power cut.

.. code-block:: text

    from transcript_store.integrations.pydantic_ai_harness import TranscriptStepStore

    agent = Agent(model, capabilities=[StepPersistence(store=TranscriptStepStore("runs"))])

It needs the extra ``pydantic-ai-harness``.

A run is a conversation. A step event and the state of a tool call are events in its transcript. A snapshot is the messages that count at
its event: saving one retracts the messages that it does not have and appends the ones that are new, and the event stands behind them in
the same commit. So a snapshot costs what is new in it, and earlier ones are read from the same records. The run's own record is a label,
because a list of runs reads labels alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from transcript_store.conversation import ConversationStore, Durability, Record, Redact
from transcript_store.errors import ConversationChangedError, MissingExtraError

try:
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] not in {"pydantic_ai", "pydantic_ai_harness"}:
        raise
    raise MissingExtraError(
        feature="transcript_store.integrations.pydantic_ai_harness", extra="pydantic-ai-harness"
    ) from _error

import anyio.to_thread
from pydantic import TypeAdapter

from transcript_store.integrations._conversations import (
    Conversation,
    Known,
    OpenOptions,
    close_within,
    conversation,
    home_at,
    id_for_key,
    path_of,
    to_read,
)
from transcript_store.integrations._model_messages import message_json, of_json
from transcript_store.integrations._values import of_items, readable, redact_item, restored, restored_extra, stored
from transcript_store.library import ConversationLibrary, iter_with_labels
from transcript_store.messages import EncodedMessage, decode_message

__all__ = ["TranscriptStepStore"]

T = TypeVar("T")

FRAMEWORK = "pydantic-ai-harness"
PROVIDER = "pydantic-ai"
"""Whose messages these are: pages, searches and exports read them as that."""

_RUN = f"{FRAMEWORK}.run"
"""The label that has the run's record, as JSON in ASCII."""
_EVENT, _EFFECT, _SNAPSHOT = (f"{FRAMEWORK}.{name}" for name in ("event", "tool-effect", "snapshot"))
"""The member of an event's extra that says what the event is."""

_RUNS: TypeAdapter[RunRecord] = TypeAdapter(RunRecord)
_EVENTS: TypeAdapter[StepEvent] = TypeAdapter(StepEvent)
_EFFECTS: TypeAdapter[ToolEffectRecord] = TypeAdapter(ToolEffectRecord)
_SNAPSHOTS: TypeAdapter[ContinuableSnapshot] = TypeAdapter(ContinuableSnapshot)


@dataclass
class _StepRecords(Known):
    """The contents of a run's transcript."""

    messages: list[Any] = field(default_factory=list)
    """The messages that count, as JSON, and the number of each one's record."""
    numbers: list[int] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    effects: dict[str, Any] = field(default_factory=dict)
    """The last state of each tool call, by the call's id."""
    snapshots: list[tuple[Any, list[Any]]] = field(default_factory=list)
    """Each snapshot without its messages, and its messages as JSON."""
    keys: set[tuple[str, str]] = field(default_factory=set)
    """The idempotency keys of events and of snapshots."""

    def take(self, record: Record) -> None:
        if record.retracts:
            first, last = record.retracts
            kept = [n for n, number in enumerate(self.numbers) if not first <= number <= last]
            self.messages, self.numbers = [self.messages[n] for n in kept], [self.numbers[n] for n in kept]
        if record.message is not None:
            self.messages.append(restored(record.message))
            self.numbers.append(record.seq)
        for kind, value in restored_extra(record.extra).items():
            if kind == _EFFECT:
                self.effects[value["tool_call_id"]] = value
            elif kind == _EVENT:
                self.events.append(value)
            elif kind == _SNAPSHOT:
                self.snapshots.append((value, [*self.messages]))
            else:
                continue  # the note of a repair
            if (key := _key(kind, value)) is not None:
                self.keys.add((kind, key))


class TranscriptStepStore:
    """A ``StepStore`` of pydantic-ai-harness: each run is a conversation.

    When a call returns, what it stored survives a power loss: all of it or, after a crash before that, none. Several processes may use one
    run; they take turns. An event or a snapshot whose ``idempotency_key`` the run has already is left out. All snapshots of a run are kept.

    Args:
        directory: the folder with the runs, a library, which is created if it is missing. Or a ``ConversationLibrary``, which may be on a
            backend; there the list of runs is as late as a list of the library is.
        durability: as of ``ConversationStore``.
        lock_timeout_seconds: how long a call waits for the turns of other writers.
        redact: as of ``ConversationStore``: removes from a message, an event or a run's record what must not be stored. Give the same
            function each time.

    Raises:
        TypeError: a run's id is not text, or ``redact`` is not callable.
        ValueError: ``directory`` is a file, or there is no such ``durability``.
        CorruptTranscriptError: any call about a run; it is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationLockedError: any call about a run; a store that holds its lock (``hold_lock=True``) has it open.
        TranscriptStoreError: any call, as ``ConversationStore``.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | ConversationLibrary,
        *,
        durability: Durability = "power-loss",
        lock_timeout_seconds: float = 10.0,
        redact: Redact | None = None,
    ) -> None:
        self._home = home_at(directory)
        self._options = OpenOptions.of(self._home, durability, lock_timeout_seconds, redact)
        self._max_bytes = self._options.store(
            self._home, id_for_key(FRAMEWORK)
        ).max_line_bytes  # which checks the options

    def __repr__(self) -> str:
        return f"TranscriptStepStore({path_of(self._home)!r})"

    # ---- the protocol --------------------------------------------------------------------------------------------

    async def register_run(self, record: RunRecord) -> None:
        """Store a run's record; on return it is durable. The same record again changes nothing.

        Raises:
            ValueError: the store has another record with this ``run_id``.
            TranscriptStoreError: as ``ConversationStore.initialize``.
        """
        label = self._label(record)

        def register(store: ConversationStore) -> None:
            labels = store.get_metadata().labels
            if labels.get(_RUN, label) != label:
                raise ValueError(f"run_id {record.run_id!r} is already in the store")
            if _RUN not in labels:  # it began with an event
                store.update_metadata(labels={**labels, **self._labels(record.run_id, record)})

        await self._call(record.run_id, lambda _, store: register(store), partial(self._begin, record.run_id, record))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """The run's record; None if it was not registered."""
        return await self._call(run_id, lambda _, store: _run_in(store.get_metadata().labels))

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """The records of the runs, the earliest first.

        Args:
            parent_run_id: only runs that this one began.
            conversation_id: only runs of this conversation of the framework.

        Raises:
            StorageError: the folder cannot be read.
        """
        library = ConversationLibrary(self._home) if isinstance(self._home, str) else self._home
        summaries = await anyio.to_thread.run_sync(lambda: [*iter_with_labels(library)])
        runs = [run for one in summaries if (run := _run_in(one.labels or {})) is not None]
        return sorted(
            (
                run
                for run in runs
                if parent_run_id in {None, run.parent_run_id} and conversation_id in {None, run.conversation_id}
            ),
            key=lambda run: run.started_at,
        )

    async def append_event(self, event: StepEvent) -> None:
        """Store an event; on return it is durable.

        Raises:
            InvalidMessageError: it is too long. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        await self._append(event.run_id, _EVENT, _EVENTS.dump_python(event, mode="json"))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """The run's events, in the order in which they were stored."""
        run = await self._read(run_id)
        return [_EVENTS.validate_python(value) for value in run.events]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Store a snapshot; on return it is durable.

        Raises:
            TypeError: JSON cannot carry a message. Nothing was stored.
            InvalidMessageError: a message is too long. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        messages = [
            stored(message_json(message), f"messages[{k}]", self._max_bytes)
            for k, message in enumerate(snapshot.messages)
        ]
        value = _SNAPSHOTS.dump_python(replace(snapshot, messages=[]), mode="json", exclude={"messages"})
        await self._append(snapshot.run_id, _SNAPSHOT, value, messages)

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """The run's last snapshot that is complete, or its last one with ``include_interrupted``; None if it has none."""
        run = await self._read(run_id)
        found = (_snapshot(*each) for each in reversed(run.snapshots) if include_interrupted or _is_complete(each[0]))
        return next(found, None)

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """The run's snapshots, in the order in which they were stored; ``conversation_search`` of the harness reads these."""
        run = await self._read(run_id)
        return [_snapshot(*each) for each in run.snapshots if include_interrupted or _is_complete(each[0])]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Store the state of a tool call; on return it is durable. Earlier states of the call stay in the transcript.

        Raises:
            InvalidMessageError: it is too long. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        await self._append(record.run_id, _EFFECT, _EFFECTS.dump_python(record, mode="json"))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """The last state of a tool call; None if it has none."""
        run = await self._read(run_id)
        value = run.effects.get(tool_call_id)
        return None if value is None else _EFFECTS.validate_python(value)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """The tool calls that began and did not end, as far as the store knows."""
        run = await self._read(run_id)
        return [_EFFECTS.validate_python(value) for value in run.effects.values() if value["status"] == "started"]

    # ---- besides -------------------------------------------------------------------------------------------------

    def directory(self, run_id: str) -> str:
        """The folder of the run's conversation; on a backend, what errors call it."""
        return f"{path_of(self._home)}/{id_for_key(FRAMEWORK, run_id)}"

    def conversation(self, run_id: str) -> ConversationStore:
        """The conversation underneath, loaded to read: use it in a ``with`` statement, or close it.

        Raises:
            ConversationNotFoundError: nothing was stored for this run.
            TranscriptStoreError: as ``ConversationStore.load``.
        """
        return to_read(self._home, id_for_key(FRAMEWORK, run_id))

    def close(self) -> None:
        """Close the runs' files. The next call opens what it needs again. No other process waits for this."""
        close_within(self._home)

    # ---- within --------------------------------------------------------------------------------------------------

    async def _call(
        self,
        run_id: str,
        function: Callable[[Conversation, ConversationStore], T],
        begin: Callable[[ConversationStore], T] | None = None,
    ) -> T | None:
        async with conversation(self._home, id_for_key(FRAMEWORK, run_id), self._options) as found:
            return await found.call(partial(function, found), begin)

    async def _read(self, run_id: str) -> _StepRecords:
        return await self._call(run_id, _known) or _StepRecords()

    async def _append(
        self, run_id: str, kind: str, value: Any, messages: Sequence[EncodedMessage] | None = None
    ) -> None:
        extra = stored({kind: value}, kind, self._max_bytes)
        await self._call(
            run_id,
            partial(self._add, kind, _key(kind, value), extra, messages),
            lambda store: self._begin(run_id, None, store, messages or (), extra),
        )

    def _add(
        self,
        kind: str,
        key: str | None,
        extra: EncodedMessage,
        messages: Sequence[EncodedMessage] | None,
        found: Conversation,
        store: ConversationStore,
    ) -> None:
        read = [self._as_read(message) for message in messages or ()]
        while True:
            run = _known(found, store)
            if key is not None and (kind, key) in run.keys:
                return
            same = _equal(run.messages, read)
            with suppress(ConversationChangedError):  # another process wrote since
                head = run.head
                if messages is not None and same < len(run.messages):
                    # If killed after this, the earlier snapshots still count at their events.
                    head = store.retract(len(run.messages) - same, if_head=head).head
                new = [*(messages or ())[same:]]
                store.append_messages([*new, None], extras=[*[None] * len(new), extra], if_head=head)
                return

    def _as_read(self, message: EncodedMessage) -> Any:
        plain = decode_message(message.text)
        redact = of_items(self._options.redact)
        return restored(plain if redact is None else redact_item(redact, plain, "messages"))

    def _begin(
        self,
        run_id: str,
        record: RunRecord | None,
        store: ConversationStore,
        messages: Sequence[EncodedMessage] = (),
        extra: EncodedMessage | None = None,
    ) -> None:
        events = [] if extra is None else [extra]
        store.initialize(
            id=id_for_key(FRAMEWORK, run_id),
            provider=PROVIDER,
            labels=self._labels(run_id, record),
            messages=[*messages, *[None] * len(events)],
            extras=[*[None] * len(messages), *events],
            features=["retract"],
        )

    def _labels(self, run_id: str, record: RunRecord | None) -> dict[str, str]:
        return {"title": readable(run_id), **({} if record is None else {_RUN: self._label(record)})}

    def _label(self, record: RunRecord) -> str:
        value = _RUNS.dump_python(record, mode="json")
        redact = of_items(self._options.redact)
        if redact is not None:
            value = redact_item(redact, {_RUN: value}, "record")[_RUN]
        return json.dumps(value)


def _known(found: Conversation, store: ConversationStore) -> _StepRecords:
    """The current contents of the run's transcript; known records are not read again."""
    run: _StepRecords | None = found.memo
    if run is None or run.head != store.head:
        found.memo = run = _StepRecords.read(store, run)
    return run


def _key(kind: str, value: Any) -> str | None:
    """What makes an event or a snapshot the same one. The key of a tool effect is the tool's, and each state of the call has it."""
    key: str | None = value.get("idempotency_key")
    return None if kind == _EFFECT else key


def _equal(messages: Sequence[Any], others: Sequence[Any]) -> int:
    """With how many equal messages both begin."""
    pairs = enumerate(zip(messages, others, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(messages), len(others)))


def _run_in(labels: dict[str, str]) -> RunRecord | None:
    return _RUNS.validate_python(json.loads(labels[_RUN])) if _RUN in labels else None


def _is_complete(snapshot: Any) -> bool:
    return bool(snapshot["state"] == "complete")


def _snapshot(snapshot: Any, messages: Sequence[Any]) -> ContinuableSnapshot:
    return replace(_SNAPSHOTS.validate_python({**snapshot, "messages": []}), messages=of_json(messages))
