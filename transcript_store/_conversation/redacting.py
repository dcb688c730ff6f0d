"""What a caller's ``redact`` removes from everything that is about to be stored.

It runs after the checks and before the log: it gets values that could be stored, and returns values that may be. So
no code that writes to a transcript or to metadata.json has to call it itself, and the function gets its own copies,
which it may change.

Where it removed something, the record's ``extra`` says how much: ``redacted``, an object of kinds and counts. A
``SecretRedactor`` counts by itself; for any other function the new marks ``[redacted:kind]`` are counted, and a
change without such a mark is one ``changed``. The same counts are logged. Neither ever contains the text.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transcript_store._conversation.arguments import require_redact
from transcript_store._conversation.metadata import checked_fields
from transcript_store._json.strict import decode, encode, fitted
from transcript_store._log.record import Entry
from transcript_store.errors import InvalidMessageError, InvalidMetadataError, RedactionError
from transcript_store.redaction import SecretRedactor

logger = logging.getLogger("transcript_store.redaction")

MEMBER = "redacted"
"""The member of an extra that has the counts."""
_MARK = re.compile(rb"\[redacted:([a-z0-9-]{1,40})\]")
_NOT_LOOKED_AT = frozenset({"provider", "compaction_count"})
"""Fields of the metadata without a user's text: the name that decides the form of the messages, and a number."""


class Redacting:
    """Applies ``redact`` to everything that enters one conversation.

    Every method raises ``RedactionError`` if the function raises, or returns a value that cannot be stored instead of
    its argument. The error contains neither the text nor the function's own error, whose message may contain it.
    """

    def __init__(self, redact: Callable[[dict[str, Any]], dict[str, Any]], path: str, max_bytes: int) -> None:
        require_redact(redact)
        self._redact = redact
        self._path = path
        self._max_bytes = max_bytes

    def entries(
        self, entries: Sequence[Entry], message: str = "messages[{}]", extra: str = "extras[{}]"
    ) -> list[Entry]:
        """Redacted records. ``message`` and ``extra`` give the names of their halves, by number, for errors."""
        total: Counter[str] = Counter()
        done = [
            self._entry(entry, message.format(number), extra.format(number), total)
            for number, entry in enumerate(entries)
        ]
        self._log(total)
        return done

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Redacted fields of the metadata, which were checked already."""
        given = {name: value for name, value in fields.items() if value and name not in _NOT_LOOKED_AT}
        if not given:
            return fields
        counts: Counter[str] = Counter()
        now = decode(self._object(encode(given, "metadata", self._max_bytes), "metadata", counts))
        if now.keys() != given.keys():
            raise RedactionError(member="metadata", reason="redact returned other fields than it got")
        try:
            checked = checked_fields(now, self._max_bytes)
        except InvalidMetadataError as error:
            problem = error.field  # its reason may show a part of the value
        else:
            self._log(counts)
            return {**fields, **checked}
        raise RedactionError(member=problem, reason="redact returned a value that this field cannot hold")

    def _entry(self, entry: Entry, message_name: str, extra_name: str, total: Counter[str]) -> Entry:
        message, extra, at = entry
        counts: Counter[str] = Counter()
        if message is not None:
            message = self._object(message, message_name, counts)
        if extra is not None:
            _require_counts(decode(extra), extra_name)
            extra = self._object(extra, extra_name, counts)
        if counts:
            extra = self._noted(extra, counts, extra_name)
            total.update(counts)
        return message, extra, at

    def _noted(self, extra: bytes | None, counts: Counter[str], name: str) -> bytes:
        members = {} if extra is None else decode(extra)
        there = _require_counts(members, name)
        both = Counter(there) + counts
        return fitted(encode({**members, MEMBER: dict(sorted(both.items()))}, name, self._max_bytes))

    def _object(self, encoded: bytes, name: str, counts: Counter[str]) -> bytes:
        """One redacted JSON object; removals are added to ``counts``."""
        now, found = self._called(encoded, name)
        try:
            again = encode(now, name, self._max_bytes)
        except InvalidMessageError as error:
            # A reason about its contents may name a member, whose name may be the secret.
            reason = (
                f"returned a value that {error.reason}"
                if error.member == name
                else "returned a value that is not plain JSON"
            )
        else:
            if again == encoded:
                return encoded
            marks = Counter(kind.decode() for kind in _MARK.findall(again))
            marks -= Counter(kind.decode() for kind in _MARK.findall(encoded))
            counts.update(marks or {"changed": 1} if found is None else found)
            return fitted(again)
        raise RedactionError(member=name, reason=f"redact {reason}")

    def _called(self, encoded: bytes, name: str) -> tuple[Any, Mapping[str, int] | None]:
        """The function's result for an object; and the counts of removals, if it reports them."""
        try:
            if isinstance(self._redact, SecretRedactor):
                value, counts = self._redact.redact(decode(encoded))
                return value, counts
            return self._redact(decode(encoded)), None
        except Exception as error:
            problem = f"redact raised {type(error).__name__}{_where(error)}"
        # Outside of the handler: the error below must not carry that one as its context.
        raise RedactionError(member=name, reason=problem)

    def _log(self, counts: Counter[str]) -> None:
        if counts:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
            logger.info("%s: removed before it was stored: %s", self._path, kinds)


def _require_counts(members: Mapping[str, Any], name: str) -> dict[str, int]:
    """The counts that an extra has already; raises if that member holds something else, which our note would replace."""
    there = members.get(MEMBER, {})
    if type(there) is not dict or not all(type(count) is int for count in there.values()):
        reason = "must be an object of counts: a store with redact= notes its removals there"
        raise InvalidMessageError(member=f'{name}["{MEMBER}"]', reason=reason)
    return there


def _where(error: Exception) -> str:
    """The line of the caller's function that raised, so that it can be found without its message."""
    ours = error.__traceback__
    at = None if ours is None else ours.tb_next
    if at is None:
        return " when it was called with one JSON object"  # for example it takes more arguments: none of its lines was reached
    while at.tb_next is not None:
        at = at.tb_next
    return f" in {at.tb_frame.f_code.co_filename}, line {at.tb_lineno}"
