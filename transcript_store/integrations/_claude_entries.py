"""The entries of Claude's Agent SDK as records, and back; and what an append must know of those that are stored.

An entry is a record. What the model was told or said, an entry's ``message``, is the record's message, in Claude's form; the entry
around it is the record's extra. An entry without a message is an event. The last record of a batch has the SDK's summary of the
session too, in the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transcript_store.conversation import AppendResult, ConversationStore, Record, Redact
from transcript_store.errors import ConversationChangedError
from transcript_store.integrations._conversations import Known
from transcript_store.integrations._values import redacted, restored, restored_extra, stored
from transcript_store.messages import EncodedMessage, decode_message

Entry = dict[str, Any]


class Given(NamedTuple):
    """An entry that a call was given, encoded and so copied: the model's message, and the record's extra around it."""

    name: str
    message: EncodedMessage | None
    around: EncodedMessage
    redact: Redact | None

    @classmethod
    def of(cls, entry: Entry, name: str, max_bytes: int, redact: Redact | None) -> Given:
        """Raises as ``stored()``."""
        message = entry.get("message")
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            return cls(name, None, stored({"entry": entry}, name, max_bytes), redact)
        around = {**entry, "message": None}  # which keeps the place, so that the members keep their order
        said = stored(message, f"{name}.message", max_bytes)
        return cls(name, said, stored({"entry": around}, name, max_bytes), redact)

    def read(self) -> Read:
        """The entry as it will be read again. The SDK cuts texts for its summary, and half a secret would not be known as one."""
        message = None if self.message is None else self._read(self.message)
        entry = _joined(restored(self._read(self.around)), message) or {}
        return Read(self, entry, _uuid(entry))

    def _read(self, encoded: EncodedMessage) -> dict[str, Any]:
        plain = decode_message(encoded.text)
        return plain if self.redact is None else redacted(self.redact, plain, self.name)

    def with_summary(self, summary: Any, max_bytes: int) -> EncodedMessage:
        extra = restored(decode_message(self.around.text))
        return self.around if summary is None else stored({**extra, "summary": summary}, "summary", max_bytes)


class Read(NamedTuple):
    """What was given, and what comes back of it."""

    given: Given
    entry: Entry
    uuid: str | None


def _joined(extra: dict[str, Any], message: dict[str, Any] | None) -> Entry | None:
    """The entry of a record; None if the record is the note of a repair."""
    entry: Entry | None = extra.get("entry")
    if entry is not None and message is not None:
        entry["message"] = restored(message)
    return entry


def entries_of(store: ConversationStore) -> list[Entry]:
    while True:
        with suppress(ConversationChangedError):  # it was replaced while it was read, which are many turns
            return [entry for entry in map(_entry, store.iter_records()) if entry is not None]


def _entry(record: Record) -> Entry | None:
    return _joined(restored_extra(record.extra), record.message)


@dataclass
class Memo(Known):
    """The ``uuid`` of each entry that is stored, and the SDK's summary of them."""

    uuids: set[str] = field(default_factory=set)
    summary: Any = None

    def take(self, record: Record) -> None:
        extra = restored_extra(record.extra)
        if (uuid := _uuid(extra.get("entry") or {})) is not None:
            self.uuids.add(uuid)
        if extra.get("summary") is not None:
            self.summary = extra["summary"]

    def new_ones(self, given: Iterable[Read]) -> list[Read]:
        new, seen = [], set[str]()
        for one in given:
            if one.uuid is None:
                new.append(one)
            elif one.uuid not in self.uuids and one.uuid not in seen:
                new.append(one)
                seen.add(one.uuid)
        return new

    def note(self, new: Iterable[Read], last: AppendResult, summary: Any) -> None:
        self.uuids.update(one.uuid for one in new if one.uuid is not None)
        self.head, self.seq, self.at = last.head, last.seq, last.at
        self.summary = summary


def _uuid(entry: Entry) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) else None
