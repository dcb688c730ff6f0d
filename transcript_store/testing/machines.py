"""State machines for Hypothesis: long lives at random, beside a model of what must be true.

This needs Hypothesis, which the extra ``testing`` installs. docs/testing.md has an example with more rules.
"""

from __future__ import annotations

from transcript_store.testing import _with_hypothesis  # isort: skip  # noqa: F401  (first: it says what to install)
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from transcript_store import MemorySnapshotStore, Snapshot, SnapshotNotFoundError, SnapshotStore, SnapshotSummary
from transcript_store.testing._conversation_machine import ConversationMachine
from transcript_store.testing._model import ExpectedConversation, ModelledConversation, Operation
from transcript_store.testing.strategies import snapshots

if TYPE_CHECKING:
    from transcript_store.testing._backend_machine import BackendMachine
    from transcript_store.testing._chat_machine import ChatClientMachine

__all__ = [
    "BackendMachine",
    "ChatClientMachine",
    "ConversationMachine",
    "ExpectedConversation",
    "ModelledConversation",
    "Operation",
    "SnapshotStoreMachine",
]

_UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


class SnapshotStoreMachine(RuleBasedStateMachine):
    """A ``SnapshotStore`` and what must be in it. Make a subclass that makes your store, and give its ``TestCase`` to your test runner.

    ``check_snapshot_store`` has each rule of the contract alone; this finds what happens between many calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make_store()
        self.saved: dict[str, Snapshot] = {}

    def make_store(self) -> SnapshotStore:
        """A new store with nothing in it."""
        return MemorySnapshotStore()

    def reopened(self, store: SnapshotStore) -> SnapshotStore:
        """The same snapshots as the next process finds them. Unless you extend it, the same store."""
        return store

    @rule(snapshot=snapshots())
    def save(self, snapshot: Snapshot) -> None:
        self.store.save(snapshot)
        self.saved[snapshot.id] = snapshot

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), other=snapshots())
    def save_again(self, data: st.DataObject, other: Snapshot) -> None:
        """One with the same id takes its place."""
        taken = self._one(data)
        self.save(
            Snapshot(
                id=taken,
                provider=other.provider,
                model=other.model,
                messages_json=other.messages_json,
                created_at=other.created_at,
            )
        )

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        found = self._one(data)
        assert self.store.load(found) == self.saved[found]

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        gone = self._one(data)
        self.store.delete(gone)
        del self.saved[gone]
        self._insist_is_unknown(gone)

    @rule()
    def ask_for_unknown_id(self) -> None:
        self._insist_is_unknown(_UNKNOWN_ID)

    @rule()
    def reopen(self) -> None:
        self.store = self.reopened(self.store)
        for snapshot in self.saved.values():
            assert self.store.load(snapshot.id) == snapshot

    @invariant()
    def is_listed(self) -> None:
        """A list has the saved snapshots, the newest first, each with its description."""
        listed = list(self.store.list())
        assert {summary.id for summary in listed} == set(self.saved)
        assert len(listed) == len(self.saved)
        for summary in listed:
            expected = SnapshotSummary.of(self.saved[summary.id])
            assert (summary.provider, summary.model, summary.created_at, summary.message_count) == (
                expected.provider,
                expected.model,
                expected.created_at,
                expected.message_count,
            )
        times = [self.saved[summary.id].created_at_datetime for summary in listed]
        assert times == sorted(times, reverse=True)

    def _one(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.saved)), label="id")

    def _insist_is_unknown(self, id: str) -> None:
        for call in (self.store.load, self.store.delete):
            try:
                call(id)
            except SnapshotNotFoundError:
                continue
            raise AssertionError(f"{call.__name__}() of an unknown id raised nothing")


_MODULES = {"ChatClientMachine": "_chat_machine", "BackendMachine": "_backend_machine"}
"""Imported on first use: a test of another machine must not import the chat clients or the backends."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"transcript_store.testing.{_MODULES[name]}"), name)
