"""The blocks of neutral form: text, thinking, media, a call, a result. ``_neutral`` has the messages that are made of them.

A block keeps its provider's object (``own``), with all unknown members, and sends this object back to that provider. Blocks are not
changed after they are made; frozen classes would triple the time to make one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
