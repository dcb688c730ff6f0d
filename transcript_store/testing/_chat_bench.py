"""What the contract of chat clients works on: somebody's clients, a model with scripted replies, and a disk to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from transcript_store import ConversationStore, Record
from transcript_store.testing._simulated import Call, SimulatedFileSystem

__all__ = ["ChatBench", "ScriptedReply", "SentRequest"]

PROMPT = "Be brief."
TOKEN = "token-canary-5f2c"  # noqa: S105 (a canary)

_Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """The model's reply to the next request: a text, tool calls, or both.

    Args:
        text: the text of the reply.
        calls: tool calls, as pairs of name and arguments.
        fails: the request fails instead, with any ``Exception`` of the client's own.
        ends_early: the stream ends after the text, before a stop reason and without ``calls``.
    """

    text: str = ""
    calls: _Calls = ()
    fails: bool = False
    ends_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """The content of a request.

    Args:
        system_prompts: every system prompt that it carried; a correct request has one, or none if none is set.
        messages: its native messages in order, without system prompts.
        unpaired: the number of tool calls without a result and of results without a call.
    """

    system_prompts: list[str]
    messages: list[dict[str, Any]]
    unpaired: int


class ChatBench(Protocol):
    """What the contract needs of a provider: clients that talk to a model with scripted replies."""

    sent: Sequence[SentRequest]
    """Every request that reached the scripted model, in order."""

    def script(self, *replies: ScriptedReply) -> None:
        """Add replies to those of the model. Each request takes the next one."""
        ...

    def client(self, conversation: ConversationStore | None = None, **config: Any) -> Any:
        """Make a client.

        Args:
            conversation: where the client records, if anywhere.
            config: fields of ``ChatConfig``: ``token``, ``system_prompt``, ``max_steps`` and ``initial_history``.
        """
        ...


@dataclass(slots=True)
class Rig:
    """One check: a bench of its own, and a disk of its own."""

    bench: ChatBench
    disk: SimulatedFileSystem = field(default_factory=SimulatedFileSystem)
    as_sent: list[SimulatedFileSystem] = field(default_factory=list)
    """What a power loss leaves if it comes with each request: nothing is written until the client has its reply."""

    def __post_init__(self) -> None:
        self.disk.on_call = self._look

    def _look(self, _: Call) -> None:
        while len(self.as_sent) < len(self.bench.sent):
            self.as_sent.append(self.disk.worst_power_failure())

    @contextmanager
    def conversation(self, path: str = "/c") -> Iterator[ConversationStore]:
        with ConversationStore(path, file_system=self.disk) as conversation:
            yield conversation

    def client(self, conversation: ConversationStore | None = None, **config: Any) -> Any:
        return self.bench.client(conversation, **{"token": TOKEN, "system_prompt": PROMPT, **config})

    def on_disk(self, path: str = "/c") -> list[dict[str, Any]]:
        """The messages that another process would see now."""
        return [record.message for record in records_on(self.disk, path) if record.message is not None]


def records_on(disk: SimulatedFileSystem, path: str = "/c") -> list[Record]:
    with ConversationStore(path, file_system=disk, read_only=True) as reader:
        reader.load()
        return reader.get_records()
