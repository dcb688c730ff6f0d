"""State machines for Hypothesis: long lives at random, beside a model of what must be true.

This needs Hypothesis, which the extra ``testing`` installs. docs/testing.md has an example with more rules.
"""

from __future__ import annotations

from transcript_store.testing import _with_hypothesis  # isort: skip  # noqa: F401  (first: it says what to install)

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transcript_store.testing._conversation_machine import ConversationMachine
from transcript_store.testing._model import ExpectedConversation, ModelledConversation, Operation
from transcript_store.testing._snapshot_machine import SnapshotStoreMachine

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


_MODULES = {"ChatClientMachine": "_chat_machine", "BackendMachine": "_backend_machine"}
"""Imported on first use: a test of another machine must not import the chat clients or the backends."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"transcript_store.testing.{_MODULES[name]}"), name)
