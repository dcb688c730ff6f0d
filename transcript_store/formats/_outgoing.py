"""Shared by the writers of other programs' sessions: the messages of a conversation in a program's form, each with its time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._arranging import arranged_for, messages_of, to_neutral
from transcript_store.formats._blocks import Block, Result
from transcript_store.formats._neutral import Form, Losses, NeutralMessage, Role
from transcript_store.formats._plan import Loss

_MadeT = TypeVar("_MadeT")
_ITS_OWN = "what a program wrote about its surroundings stays here: the other program writes its own"


@dataclass(frozen=True, slots=True)
class OutgoingConversation:
    """A conversation in a provider's form."""

    messages: tuple[tuple[dict[str, Any], str], ...]
    """Each with the time of its record; an added one has the time of the message before."""
    losses: tuple[Loss, ...]


class ProgramForm:
    """Base class for the form of a program that is only written. Override ``messages_of`` if a turn is a list of messages there."""

    name: str
    alternates = False
    marks_failures = True
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        raise NotImplementedError("the program's reader reads its files")

    def holds(self, block: Block, role: Role) -> bool:
        raise NotImplementedError

    def messages_of(self, turn: NeutralMessage) -> Sequence[dict[str, Any]]:
        raise NotImplementedError("a turn is not a list of messages there")


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record that has a message."""

    message: dict[str, Any]
    extra: dict[str, Any]
    at: str


def outgoing_records(
    records: Iterable[Record], metadata: ConversationMetadata, losses: Losses, *, keeps_prompt: bool = False
) -> list[OutgoingRecord]:
    """The messages of a conversation. Everything else stays here, and is counted as a loss."""
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
    """The records' messages in this form.

    Raises:
        ValueError: there is no message.
    """
    losses = Losses()
    said = outgoing_records(records, metadata, losses, keeps_prompt=keeps_prompt)
    found = messages_of(turns_said(said, metadata.provider or "openai"), form)
    losses.add(found.losses)
    timed = timed_records(found.messages, found.origins, said, now)
    return OutgoingConversation(tuple((message, at) for message, _, at in timed), losses.found())


def timed_records(
    made: Sequence[_MadeT], origins: Sequence[tuple[int, ...]], said: list[OutgoingRecord], now: str
) -> list[tuple[_MadeT, dict[str, Any], str]]:
    """Messages or turns, each with the extra and the time of its record. An added one has no extra and the time of the one before.

    Raises:
        ValueError: there is none.
    """
    if not made:
        raise ValueError("the conversation has no message that could be sent")
    at, found = said[0].at if said else now, []
    for one, origin in zip(made, origins, strict=True):
        record = said[origin[0]] if origin else None
        at = at if record is None else record.at
        found.append((one, {} if record is None else record.extra, at))
    return found


def turns_said(said: list[OutgoingRecord], provider: str) -> list[NeutralMessage]:
    """The messages in neutral form. A failure that a record notes in ``extra`` is marked on its result."""
    turns = to_neutral((one.message for one in said), provider)
    return [_failed(turn) if one.extra.get("failed") is True else turn for one, turn in zip(said, turns, strict=True)]


def _failed(turn: NeutralMessage) -> NeutralMessage:
    blocks = (replace(block, failed=True) if isinstance(block, Result) else block for block in turn.blocks)
    return replace(turn, blocks=tuple(blocks))


def arranged_records(
    records: Iterable[Record], metadata: ConversationMetadata, form: Form, losses: Losses, now: str
) -> list[tuple[NeutralMessage, dict[str, Any], str]]:
    """The turns for a program without a system role whose turns need not alternate, each with its extra and time.

    Raises:
        ValueError: there is no message.
    """
    said = outgoing_records(records, metadata, losses)
    turns: list[NeutralMessage] = []
    for turn in turns_said(said, metadata.provider or ""):
        if turn.role == "system":
            losses.note("system", "a system message in the conversation was handed on as the user's")
        turns.append(NeutralMessage("user", turn.blocks) if turn.role == "system" else turn)
    arranged = arranged_for(turns, form, join=False)
    losses.add(arranged.losses)
    return timed_records(arranged.turns, arranged.origins, said, now)


def json_line(value: object) -> bytes:
    """As JavaScript and Rust write it, with its line end."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def id_within(session: str, number: int) -> str:
    """An id that depends only on the session and the number."""
    return str(uuid.uuid5(uuid.UUID(session), str(number)))
