"""What callers of a store give, as it may be stored: checked, encoded, and through the caller's ``redact`` if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from transcript_store._conversation import arguments
from transcript_store._conversation.metadata import checked_fields
from transcript_store._json.strict import EncodedMessage
from transcript_store._log.record import Entry

if TYPE_CHECKING:
    from transcript_store._conversation.redacting import Redacting


class Contents(NamedTuple):
    """What a conversation begins with."""

    fields: dict[str, Any]
    entries: list[Entry]
    features: Sequence[str]


class Storable:
    """One store's way from arguments to what may be stored. Each method raises for what cannot be; nothing is written then."""

    def __init__(self, redact: Callable[[dict[str, Any]], dict[str, Any]] | None, path: str, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.redacting: Redacting | None = None
        """What the store's ``redact`` goes through, if there is one."""
        if redact is not None:
            # Here: its patterns are a twentieth of the import.
            from transcript_store._conversation.redacting import Redacting

            self.redacting = Redacting(redact, path, max_bytes)

    def contents(self, given: Mapping[str, Any]) -> Contents:
        """What a conversation begins with."""
        fields, entries, features = arguments.new_conversation(given, self._max_bytes)
        if self.redacting is not None:
            fields, entries = self.redacting.fields(fields), self.redacting.entries(entries)
        return Contents(fields, entries, features)

    def entries(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
        extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None,
        times: Iterable[str | datetime | None] | None = None,
    ) -> list[Entry]:
        """Messages with their extras and times, one record each."""
        entries = arguments.entries(messages, extras, times, self._max_bytes)
        return entries if self.redacting is None else self.redacting.entries(entries)

    def one(self, entry: Entry) -> Sequence[Entry]:
        """A single record, which is encoded already."""
        return (entry,) if self.redacting is None else self.redacting.entries((entry,), "message", "extra")

    def fields(self, given: dict[str, Any]) -> dict[str, Any]:
        """Fields of the metadata, also those that a caller cannot change."""
        fields = checked_fields(given, self._max_bytes)
        return fields if self.redacting is None else self.redacting.fields(fields)

    def changes(self, given: dict[str, Any]) -> arguments.MetadataChanges:
        """Changes of the metadata that a caller makes."""
        changes = arguments.changes(given, self._max_bytes)
        return changes if self.redacting is None else changes._replace(fields=self.redacting.fields(changes.fields))
