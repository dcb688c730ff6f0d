"""What is said in a conversation, in no provider's form: turns of blocks. ``_turns`` makes them of messages, and messages of them.

A block keeps the object that its provider has for it (``own``). Whoever sends it back to that provider sends this very object,
with all that we do not know of it. Blocks and turns are not changed once they are made; to have them frozen would triple what it
takes to make one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from transcript_store.errors import InvalidMessageError
from transcript_store.messages import as_text, parse_message

if TYPE_CHECKING:
    from transcript_store.formats._plan import Loss

Role = Literal["user", "assistant", "system"]


@dataclass(slots=True, kw_only=True)
class _Block:
    own: dict[str, Any] | None = None
    """The provider's object for this block, where it has one."""
    provider: str | None = None
    """In whose form ``own`` is, and to whom thinking may be sent: a name of ``_turns.FORMS``."""


@dataclass(slots=True)
class Text(_Block):
    text: str
    title: str | None = field(default=None, kw_only=True)
    """Of a document, which was pasted or attached: what it is called. None for what was typed or written."""


@dataclass(slots=True)
class Thinking(_Block):
    """Only its own provider is sent it."""

    text: str
    signature: str = ""
    """What proves to the provider that the thinking is its own; encrypted thinking too."""
    redacted: bool = False
    """Whether the signature is all that there is."""


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
    """Of the call. Empty if the source gives none: then the name says which call is meant."""
    name: str
    """Of the tool; empty if the source does not say it beside the result."""
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
        """Whether user and assistant take turns, the user first, and nobody else speaks. Else each may speak twice."""

    @property
    def marks_failures(self) -> bool:
        """Whether a result can say that the call failed."""

    @property
    def id_length(self) -> int:
        """How long the id of a call may be. Letters, digits, ``_`` and ``-`` are allowed everywhere."""

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        """What a message says. Never raises: what is not understood is :class:`Other`."""

    def holds(self, block: Block, role: Role) -> bool:
        """Whether it has a place for a block in what this role says."""

    def messages_of(self, turn: NeutralMessage) -> Sequence[dict[str, Any]]:
        """A turn whose blocks it holds, and in which results stand first, as messages."""


@dataclass(slots=True)
class Losses:
    """Counts what is lost. The sentences are those of the first of a kind."""

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
    """A call's arguments as an object: the very object if it is one, else what its text says, else the text under an empty name."""
    if isinstance(given, dict):
        return given
    if given is None or given == "":
        return {}
    try:
        return parse_message(as_text(given).encode())
    except (InvalidMessageError, UnicodeEncodeError):
        return {"": given}


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; nothing of what is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_in(members: Mapping[str, Any], *names: str) -> str:
    """The first of the members that is a text; empty if none is."""
    for name in names:
        found = members.get(name)
        if found.__class__ is str:
            return found
    return ""


def media_at(url: str, kind: str = "image/*", *, own: dict[str, Any], provider: str) -> Media:
    """What an address holds: its data, if it is a ``data:`` URL in base64."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media(head.removeprefix("data:") or kind, data, own=own, provider=provider)
    return Media(kind, url=url, own=own, provider=provider)


def own_of(block: Block, provider: str) -> dict[str, Any] | None:
    """The provider's own object for a block; None if it has none."""
    return block.own if block.provider == provider else None
