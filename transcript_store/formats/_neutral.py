"""The neutral form of a conversation, between two providers' forms: messages of blocks, and what a form has to offer.

``_arranging`` converts messages to neutral form and back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from transcript_store.errors import InvalidMessageError
from transcript_store.formats._blocks import Block, Media, Text
from transcript_store.formats._members import first_text
from transcript_store.messages import as_text, document_in, parse_message

if TYPE_CHECKING:
    from transcript_store.formats._plan import Loss

Role = Literal["user", "assistant", "system"]


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
    except (InvalidMessageError, UnicodeEncodeError):
        return {"": given}


def media_at(
    url: str, kind: str = "image/*", *, own: dict[str, Any] | None = None, provider: str | None = None
) -> Media:
    """What an address holds: its data, if it is a ``data:`` URL in base64."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media(head.removeprefix("data:") or kind, data, own=own, provider=provider)
    return Media(kind, url=url, own=own, provider=provider)


def name_in_path(path: str) -> str:
    """The last name of a path of any system."""
    return re.split(r"[/\\]", path)[-1]


def text_in_file(media: Media) -> Text | None:
    """An attached file of text as text, under its name; None for any other file."""
    if not media.type.startswith("text/"):
        return None
    name = first_text((media.own or {}).get("path"))
    about = {"source": {"media_type": media.type, "data": media.data}}
    document = document_in(about)
    return None if document is None else Text(f"[file: {name_in_path(name) if name else media.type}]\n{document[1]}")


def own_of(block: Block, provider: str) -> dict[str, Any] | None:
    """The provider's own object for a block; None if it has none."""
    return block.own if block.provider == provider else None
