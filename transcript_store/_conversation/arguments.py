"""Checks a caller's arguments, redacts them and encodes them for storage, before anything is changed.

A wrong type is a ``TypeError``, a wrong value a ``ValueError``. Where a count or one of several words is expected,
anything else is a wrong value, of whatever type. A message or a metadata field that cannot be stored raises an error of
ours, which names the member at fault.

:class:`Storable` also passes what is about to be stored through the caller's ``redact``, if there is one. It runs after
the checks and before the log: it gets values that could be stored, and returns values that may be. So no code that
writes to a transcript or to metadata.json has to call it itself, and the function gets its own copies, which it may
change.

Where it removed something, the record's ``extra`` says how much: ``redacted``, an object of kinds and counts. A
``SecretRedactor`` counts by itself; for any other function the new marks ``[redacted:kind]`` are counted, and a
change without such a mark is one ``changed``. The same counts are logged. Neither ever contains the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from transcript_store._conversation.metadata import CHANGEABLE, checked_fields, family
from transcript_store._json.replies import is_of_a_reply
from transcript_store._json.strict import FROM_REPLY, EncodedMessage, decode, encode, fitted
from transcript_store._json.times import given_time
from transcript_store._log.record import ENABLED_BY_USERS, Entry
from transcript_store.display import TITLE
from transcript_store.errors import InvalidMessageError, InvalidMetadataError, RedactionError

Feature = Literal["retract"]
_T = TypeVar("_T")


class NewConversation(TypedDict, total=False):
    """The initial contents of a conversation. Every member is optional."""

    provider: str | None
    """The provider whose form the messages have: ``claude``, ``openai``, ``openai-compatible``, ``gemini``, or a name
    of your own.
    """
    model: str | None
    system_prompt: str | None
    tools: Sequence[Mapping[str, Any]] | None
    """JSON objects with ``name``, ``description`` and ``parameters`` (a JSON schema)."""
    title: str | None
    """The conversation's name. It is stored as the label ``title``."""
    labels: dict[str, str] | None
    """Texts of your own; ``ConversationLibrary.list()`` shows ``labels["title"]`` as the title."""
    messages: Iterable[Mapping[str, Any] | EncodedMessage | None]
    """None where a record has no message and only an extra (an event)."""
    extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None
    """One for each message."""
    times: Iterable[str | datetime | None] | None
    """One for each message, as in :meth:`ConversationStore.append_messages`. The conversation was created at the first of them."""
    features: Sequence[Feature] | None
    """Optional abilities. Versions of this library that do not know one refuse to read the conversation. ``retract``:
    messages can be retracted (:meth:`ConversationStore.retract`).
    """


class RestoredMetadata(TypedDict, total=False):
    """Changes of the metadata in :meth:`ConversationStore.restore`. Members that are not given stay as they are."""

    model: str | None
    compaction_count: int
    """How often the messages were replaced by shorter ones."""
    system_prompt: str | None
    tools: Sequence[Mapping[str, Any]] | None
    """As in :class:`NewConversation`. They are replaced whole."""
    title: str | None
    """The label ``title``; None removes it."""
    labels: Mapping[str, str | None]
    """Merged with the stored ones; None removes a label."""
    replace_labels: Mapping[str, str]
    """Replaces all labels; not together with ``labels``."""


class MetadataUpdate(RestoredMetadata, total=False):
    """Changes of a conversation's metadata. Members that are not given stay as they are."""

    provider: str | None
    """Within its family, or any other one in a call that also replaces the messages."""


def require_count(name: str, number: object, *, least: int = 0) -> None:
    """Raise ``ValueError`` unless a number is an ``int``, and not less than the least."""
    if type(number) is not int or number < least:
        raise ValueError(f"{name} must be an int from {least:,}, not {number!r}")


def record_numbers(seqs: Iterable[int]) -> frozenset[int] | range:
    """Record numbers; raises ``TypeError`` if this is not a list, ``ValueError`` for other values. The log checks which
    ones exist.

    A range stays a range: its numbers might not fit in memory.
    """
    if isinstance(seqs, range):
        for end in ends_of(seqs):
            require_count("seqs", end, least=1)
        return seqs
    numbers = frozenset(_listed("seqs", seqs, "numbers of records"))
    for number in numbers:
        require_count("seqs", number, least=1)
    return numbers


def ends_of(numbers: Collection[int]) -> Collection[int]:
    """Numbers that include the least and the greatest: the two ends of a range, otherwise all numbers."""
    if isinstance(numbers, range):
        return (numbers[0], numbers[-1]) if numbers else ()
    return numbers


def require_one_of(name: str, choice: object, choices: Sequence[str]) -> None:
    """Raise ``ValueError`` for an unknown choice."""
    if choice not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {choice!r}")


def require_bool(name: str, choice: object) -> None:
    """Raise ``TypeError`` unless this is True or False: ``"no"`` would count as True."""
    if type(choice) is not bool:
        raise TypeError(f"{name} must be a bool, not {type(choice).__name__}")


def require_redact(redact: object) -> None:
    """Raise ``TypeError`` unless this is a function that returns a message (not a class, not an async function)."""
    if isinstance(redact, type) and hasattr(redact, "redact"):
        raise TypeError(f"redact must be a function from message to message, not a class: pass {redact.__name__}()")
    if iscoroutinefunction(redact):
        raise TypeError("redact must be a function from message to message, not an async one: nothing awaits it")
    if not callable(redact):
        raise TypeError(f"redact must be a function from message to message, not {type(redact).__name__}")


def require_timeout(name: str, seconds: Any) -> None:
    """Raise unless this is a number of seconds, 0 or more, and not NaN."""
    try:
        is_a_timeout = seconds >= 0
    except TypeError:
        raise TypeError(f"{name} must be a number, not {type(seconds).__name__}") from None
    if not is_a_timeout:
        raise ValueError(f"{name} must be 0 or more, not {seconds!r}")


def require_head(name: str, head: object) -> None:
    """Raise ``TypeError`` unless this is text, as ``ConversationStore.head`` is; the log compares it with the head."""
    if type(head) is not str:
        raise TypeError(f"{name} must be a str, as head is, not {type(head).__name__}")


def new_conversation(
    contents: Mapping[str, Any], max_bytes: int
) -> tuple[dict[str, Any], list[Entry], tuple[str, ...]]:
    """The metadata, records and features of a new conversation; raises for an unknown name or a value that cannot be
    stored.
    """
    if unknown := contents.keys() - NewConversation.__annotations__.keys():
        known = ", ".join(NewConversation.__annotations__)
        names = ", ".join(map(repr, sorted(unknown)))
        raise TypeError(f"a conversation cannot start with {names}; it can start with {known}")
    given = {**contents}
    if (title := given.pop("title", None)) is not None:
        given["labels"] = {**_labels_in({"labels": given.get("labels") or {}}), TITLE: _checked_title(title)}
    messages, extras, times = given.pop("messages", ()), given.pop("extras", None), given.pop("times", None)
    enabled = features(given.pop("features", None))
    return checked_fields(given, max_bytes), entries(messages, extras, times, max_bytes), enabled


def features(names: Iterable[str] | None) -> tuple[str, ...]:
    """Feature names without repeats; ``ValueError`` for an unknown one."""
    if isinstance(names, str):
        raise TypeError("features must be a list of names, not str")
    found = tuple(dict.fromkeys(names or ()))
    for name in found:
        require_one_of("features", name, sorted(ENABLED_BY_USERS))
    return found


def entries(
    messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
    extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None,
    times: Iterable[str | datetime | None] | None,
    max_bytes: int,
) -> list[Entry]:
    """Messages with their extras and times, encoded; without extras no message has one, without times each has the
    current time.
    """
    messages = _listed("messages", messages, "JSON objects")
    extras = [None] * len(messages) if extras is None else _listed("extras", extras, "JSON objects")
    if len(extras) != len(messages):
        raise ValueError(f"there are {len(messages)} messages and {len(extras)} extras; pass one for each")
    times = [None] * len(messages) if times is None else _listed("times", times, "times")
    if len(times) != len(messages):
        raise ValueError(f"there are {len(messages)} messages and {len(times)} times; pass one for each")
    return [
        (
            _message(message, extra, f"messages[{k}]", max_bytes),
            None if extra is None else _encoded(extra, f"extras[{k}]", max_bytes),
            None if time is None else _microseconds(time, f"times[{k}]"),
        )
        for k, (message, extra, time) in enumerate(zip(messages, extras, times, strict=True))
    ]


def _listed(name: str, values: Iterable[_T], what: str) -> list[_T]:
    """The values of a caller's iterable; raises ``TypeError`` for a single value, which may be iterable too."""
    wrong = TypeError(f"{name} must be a list of {what}, not {type(values).__name__}")
    if isinstance(values, (dict, str, bytes)):
        raise wrong
    if is_of_a_reply(values):  # which is iterable too, over its fields
        raise TypeError(f"{wrong}; {FROM_REPLY}")
    try:
        given = iter(values)
    except TypeError:
        raise wrong from None
    return list(given)  # an error of the caller's own iterator passes unchanged


def _message(
    message: Mapping[str, Any] | EncodedMessage | None, extra: object, member: str, max_bytes: int
) -> bytes | None:
    if message is None:
        if extra is None:
            raise InvalidMessageError(
                member=member, reason="it is None, and it has no extra: there is nothing to store"
            )
        return None
    return _encoded(message, member, max_bytes)


def _encoded(value: Mapping[str, Any] | EncodedMessage, member: str, max_bytes: int) -> bytes:
    return value.text if isinstance(value, EncodedMessage) else fitted(encode(value, member, max_bytes))


def _microseconds(time: object, member: str) -> int:
    try:
        return given_time(time)
    except ValueError as error:
        raise InvalidMessageError(member=member, reason=str(error)) from None


class MetadataChanges(NamedTuple):
    """A caller's changes of the metadata, checked."""

    fields: dict[str, Any]
    removed_labels: frozenset[str] | None = None
    """The labels to remove, if those in ``fields`` are merged with the stored ones; None if they replace those."""


def changes(given: Mapping[str, Any], max_bytes: int) -> MetadataChanges:
    """Changes of the metadata, checked; a deep copy."""
    for name in given:
        if name not in (*CHANGEABLE, *_LABEL_CHANGES):
            raise TypeError(f"cannot change {name!r}; what can change: {', '.join((*CHANGEABLE, *_LABEL_CHANGES))}")
    if given.keys().isdisjoint(_OF_LABELS):
        return MetadataChanges(checked_fields({**given}, max_bytes))
    fields = {name: value for name, value in given.items() if name not in _OF_LABELS}
    named = [name for name in ("labels", "replace_labels") if name in given]
    if len(named) == 2:
        raise TypeError("labels are merged with the stored ones, and replace_labels replaces them: pass one of the two")
    labels = _labels_in(given, *named)
    if "title" in given:
        labels[TITLE] = _checked_title(given["title"])
    fields["labels"] = {name: text for name, text in labels.items() if text is not None}
    checked = checked_fields(fields, max_bytes)
    return MetadataChanges(
        checked, None if "replace_labels" in given else frozenset(labels.keys() - checked["labels"].keys())
    )


_LABEL_CHANGES = ("replace_labels", "title")
_OF_LABELS = ("labels", *_LABEL_CHANGES)


def _labels_in(given: Mapping[str, Any], name: str = "labels") -> dict[str, Any]:
    """A copy of the labels in this argument; a text may be None."""
    labels = given.get(name, {})
    if labels is None:
        raise InvalidMetadataError(
            field=name, reason="is None; a label is removed by None, and all by replace_labels={}"
        )
    if not isinstance(labels, Mapping) or not {str}.issuperset(map(type, labels)):
        raise InvalidMetadataError(field=name, reason=f"must be a dict of str to str, not {labels!r:.40}")
    return {**labels}


def _checked_title(title: object) -> Any:
    if title is not None and type(title) is not str:
        raise InvalidMetadataError(field=TITLE, reason=f"must be a str or None, not {type(title).__name__}")
    return title


def changed(members: dict[str, Any], changes: MetadataChanges, *, with_messages: bool = False) -> dict[str, Any]:
    """The metadata with these changes.

    Once set, the provider changes only within its family, because the messages have its form. It changes to any other
    one only ``with_messages``, when the same commit replaces all messages.
    """
    recorded = members.get("provider")
    provider = changes.fields.get("provider", recorded)
    is_other = provider != recorded is not None and (provider is None or family(provider) != family(recorded))
    if is_other and (provider is None or not with_messages):
        others = ", ".join(name for name in CHANGEABLE if name != "provider")
        raise TypeError(f"cannot change 'provider', which is {recorded!r}; what can change: {others}")
    now = {**members, **changes.fields}
    if changes.removed_labels is not None:
        labels = {**(members.get("labels") or {}), **changes.fields["labels"]}
        now["labels"] = {name: text for name, text in labels.items() if name not in changes.removed_labels}
    return now


class NewContents(NamedTuple):
    """The checked initial contents of a conversation."""

    fields: dict[str, Any]
    entries: list[Entry]
    features: Sequence[str]


class Storable:
    """Turns one store's arguments into what is stored: checked, encoded, redacted. Raises for what cannot be stored;
    nothing is written then.
    """

    def __init__(self, redact: Callable[[dict[str, Any]], dict[str, Any]] | None, path: str, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.redacting: Redacting | None = None
        """Applies the store's ``redact``, if there is one."""
        if redact is not None:
            # Here: its patterns are a twentieth of the import.

            self.redacting = Redacting(redact, path, max_bytes)

    def contents(self, given: Mapping[str, Any]) -> NewContents:
        """The initial contents of a conversation, checked, encoded and redacted."""
        fields, entries, features = new_conversation(given, self._max_bytes)
        if self.redacting is not None:
            fields, entries = self.redacting.fields(fields), self.redacting.entries(entries)
        return NewContents(fields, entries, features)

    def entries(
        self,
        messages: Iterable[Mapping[str, Any] | EncodedMessage | None],
        extras: Iterable[Mapping[str, Any] | EncodedMessage | None] | None,
        times: Iterable[str | datetime | None] | None = None,
    ) -> list[Entry]:
        """Messages with their extras and times, one record each."""
        found = entries(messages, extras, times, self._max_bytes)
        return found if self.redacting is None else self.redacting.entries(found)

    def one(self, entry: Entry) -> Sequence[Entry]:
        """A single record, which is encoded already."""
        return (entry,) if self.redacting is None else self.redacting.entries((entry,), "message", "extra")

    def fields(self, given: dict[str, Any]) -> dict[str, Any]:
        """Fields of the metadata, also those that a caller cannot change."""
        fields = checked_fields(given, self._max_bytes)
        return fields if self.redacting is None else self.redacting.fields(fields)

    def changes(self, given: Mapping[str, Any]) -> MetadataChanges:
        """Changes of the metadata that a caller makes."""
        found = changes(given, self._max_bytes)
        return found if self.redacting is None else found._replace(fields=self.redacting.fields(found.fields))


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
        from transcript_store.redaction import SecretRedactor  # here: most stores redact nothing

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
            import logging  # here: an index reads conversations without it

            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
            logging.getLogger("transcript_store.redaction").info(
                "%s: removed before it was stored: %s", self._path, kinds
            )


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
