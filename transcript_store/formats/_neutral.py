"""The neutral form of a conversation, between two providers' forms: turns of blocks. ``_arranging`` converts messages to it and
back.

A block keeps its provider's object (``own``), with all unknown members, and sends this object back to that provider. Blocks and
turns are not changed after they are made; frozen classes would triple the time to make one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from transcript_store.messages import as_text, parse_message

if TYPE_CHECKING:
    from transcript_store.formats._plan import Loss

Role = Literal["user", "assistant", "system"]


@dataclass(slots=True, kw_only=True)
class _Block:
    own: dict[str, Any] | None = None
    """The provider's object for this block, where it has one."""
    provider: str | None = None
    """The form of ``own``, and the provider that may receive the thinking: a name of ``_arranging.FORMS``."""


@dataclass(slots=True)
class Text(_Block):
    text: str
    title: str | None = field(default=None, kw_only=True)
    """The name of a pasted or attached document; None for typed text."""


@dataclass(slots=True)
class Thinking(_Block):
    """Only its own provider is sent it."""

    text: str
    signature: str = ""
    """What proves to the provider that the thinking is its own; encrypted thinking too."""
    redacted: bool = False
    """True if the signature is all that there is."""


@dataclass(slots=True)
class Media(_Block):
    type: str
    """``image/png``; ``image/*`` where only the kind is known."""
    data: str | None = None
    """Base64."""
    url: str | None = None
    """Where it is instead: an address, or the provider's name for a file."""

    @property
    def data_url(self) -> str | None:
        return f"data:{self.type};base64,{self.data}" if self.data is not None else self.url


@dataclass(slots=True)
class Call(_Block):
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class Result(_Block):
    id: str
    """The id of the call; empty if the source has none: then ``name`` tells the call."""
    name: str
    """The name of the tool; empty if it is not stored with the result."""
    content: tuple[Text | Media, ...]
    failed: bool = False

    @property
    def text(self) -> str:
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def media(self) -> tuple[Media, ...]:
        return tuple(block for block in self.content if isinstance(block, Media))


@dataclass(slots=True)
class Other(_Block):
    """What only its provider knows: ``own`` has it."""


Block = Text | Thinking | Media | Call | Result | Other


@dataclass(slots=True)
class NeutralMessage:
    role: Role
    blocks: tuple[Block, ...]
    own: dict[str, Any] | None = None
    """The provider's message, if it is nothing but these blocks."""
    provider: str | None = None


class Form(Protocol):
    """How one provider's messages look."""

    @property
    def name(self) -> str: ...

    @property
    def alternates(self) -> bool:
        """True if user and assistant take turns, the user first, and there is no other role."""

    @property
    def marks_failures(self) -> bool:
        """True if a result has a member for a failed call."""

    @property
    def id_length(self) -> int:
        """How long the id of a call may be. Letters, digits, ``_`` and ``-`` are allowed everywhere."""

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        """The message in neutral form. Never raises: an unknown part becomes :class:`Other`."""

    def holds(self, block: Block, role: Role) -> bool:
        """True if a message of this role can hold the block."""

    def messages_of(self, turn: NeutralMessage) -> Sequence[dict[str, Any]]:
        """A turn of blocks that the form holds, results first, as messages."""


@dataclass(slots=True)
class Losses:
    """Counts losses by kind, each with the sentence of the first one."""

    _counts: Counter[str] = field(default_factory=Counter)
    _messages: dict[str, str] = field(default_factory=dict)

    def note(self, kind: str, message: str, count: int = 1) -> None:
        self._counts[kind] += count
        self._messages.setdefault(kind, message)

    def add(self, losses: Sequence[Loss]) -> None:
        for loss in losses:
            self.note(loss.kind, loss.message, loss.count)

    def found(self) -> tuple[Loss, ...]:
        from transcript_store.formats._plan import Loss  # who only reads a message loses nothing

        return tuple(Loss(kind, count, self._messages[kind]) for kind, count in self._counts.items())


def arguments_of(given: object) -> dict[str, Any]:
    """The arguments of a call as an object: the object itself, else the object in the text, else the text under an empty name."""
    if isinstance(given, dict):
        return given
    if given is None or given == "":
        return {}
    try:
        return parse_message(as_text(given).encode())
    except (ValueError, RecursionError):
        return {"": given}


def media_at(url: str, kind: str = "image/*", *, own: dict[str, Any], provider: str) -> Media:
    """What an address holds: its data, if it is a ``data:`` URL in base64."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media(head.removeprefix("data:") or kind, data, own=own, provider=provider)
    return Media(kind, url=url, own=own, provider=provider)


def own_of(block: Block, provider: str) -> dict[str, Any] | None:
    """The provider's own object for a block; None if it has none."""
    return block.own if block.provider == provider else None
