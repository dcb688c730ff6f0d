"""What a writer of another program's sessions needs of a conversation: messages in that program's form, each with its time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._arranging import messages_of, to_neutral
from transcript_store.formats._neutral import Losses
from transcript_store.formats._plan import Loss

_ITS_OWN = "what a program said of its surroundings stays here: the other program says its own"


@dataclass(frozen=True, slots=True)
class OutgoingConversation:
    """A conversation in a provider's form."""

    messages: tuple[tuple[dict[str, Any], str], ...]
    """Each with the time of the record that it was made of; of the one before, if it was made up."""
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record that has a message."""

    message: dict[str, Any]
    extra: dict[str, Any]
    at: str


def outgoing_records(
    records: Iterable[Record], metadata: ConversationMetadata, losses: Losses, *, keeps_prompt: bool = False
) -> list[OutgoingRecord]:
    """What is said in a conversation. What stays behind whoever it is handed to is counted."""
    found: list[OutgoingRecord] = []
    for record in records:
        if record.message is None:
            losses.note(
                "events", "an event stays here, as no model is sent one: a hook, a title, a branch that was left"
            )
        elif (record.extra or {}).get("scaffolding") is True:
            losses.note("scaffolding", _ITS_OWN)
        else:
            found.append(OutgoingRecord(record.message, record.extra or {}, record.at))
    if metadata.system_prompt and not keeps_prompt:
        losses.note("prompt", "the system prompt stays here: the other program has its own")
    if metadata.tools:
        losses.note(
            "tools", "the description of a tool stays here: the other program has its own tools", len(metadata.tools)
        )
    return found


def handed(
    records: Iterable[Record], metadata: ConversationMetadata, form: str, now: str, *, keeps_prompt: bool = False
) -> OutgoingConversation:
    """The records' messages as this form has them.

    Raises:
        ValueError: there is no message.
    """
    losses = Losses()
    said = outgoing_records(records, metadata, losses, keeps_prompt=keeps_prompt)
    found = messages_of(to_neutral([one.message for one in said], metadata.provider or "openai"), form)
    if not found.messages:
        raise ValueError("the conversation has no message that could be sent")
    losses.add(found.losses)
    timed: list[tuple[dict[str, Any], str]] = []
    at = said[0].at if said else now
    for message, origin in zip(found.messages, found.origins, strict=True):
        at = said[origin[0]].at if origin else at
        timed.append((message, at))
    return OutgoingConversation(tuple(timed), losses.found())


def json_line(value: object) -> bytes:
    """As JavaScript and Rust write it, with its line end."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def id_within(session: str, number: int) -> str:
    """An id that is always the same for the same place of a session."""
    return str(uuid.uuid5(uuid.UUID(session), str(number)))
