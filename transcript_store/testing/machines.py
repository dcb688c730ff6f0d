"""State machines for Hypothesis: long lives at random, beside a model of what must be true.

This needs Hypothesis: ``pip install 'transcript-store[testing]'``. docs/testing.md has an example with rules of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transcript_store.testing._history import History, Operation
from transcript_store.testing._machine import ConversationMachine
from transcript_store.testing._modelled import ModelledConversation
from transcript_store.testing._snapshot_machine import SnapshotStoreMachine

if TYPE_CHECKING:
    from transcript_store.testing._chat_machine import ChatClientMachine

__all__ = [
    "ChatClientMachine",
    "ConversationMachine",
    "History",
    "ModelledConversation",
    "Operation",
    "SnapshotStoreMachine",
]


def __getattr__(name: str) -> Any:
    """The machine of chat clients: whoever takes another one must not import the clients."""
    if name == "ChatClientMachine":
        from transcript_store.testing._chat_machine import ChatClientMachine

        return ChatClientMachine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
