"""Checks a caller's arguments and encodes them for storage, before anything is changed.

A wrong type is a ``TypeError``, a wrong value a ``ValueError``. Where a count or one of several words is expected,
anything else is a wrong value, of whatever type. A message or a metadata field that cannot be stored raises an error of
ours, which names the member at fault. :class:`Storable` also passes them through the caller's ``redact``, if there is
one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar

from transcript_store._conversation.metadata import CHANGEABLE, checked_fields, family
from transcript_store._json.replies import is_of_a_reply
from transcript_store._json.strict import FROM_REPLY, EncodedMessage, encode, fitted
from transcript_store._json.times import given_time
from transcript_store._log.record import ENABLED_BY_USERS, Entry
from transcript_store.display import TITLE
from transcript_store.errors import InvalidMessageError, InvalidMetadataError

if TYPE_CHECKING:
    from transcript_store._conversation.redacting import Redacting


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


def changes(given: dict[str, Any], max_bytes: int) -> MetadataChanges:
    """Changes of the metadata, checked; a deep copy."""
    for name in given:
        if name not in (*CHANGEABLE, *_LABEL_CHANGES):
            raise TypeError(f"cannot change {name!r}; what can change: {', '.join((*CHANGEABLE, *_LABEL_CHANGES))}")
    if given.keys().isdisjoint(_OF_LABELS):
        return MetadataChanges(checked_fields(given, max_bytes))
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
    if type(labels) is not dict or not {str}.issuperset(map(type, labels)):
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
            from transcript_store._conversation.redacting import Redacting

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

    def changes(self, given: dict[str, Any]) -> MetadataChanges:
        """Changes of the metadata that a caller makes."""
        found = changes(given, self._max_bytes)
        return found if self.redacting is None else found._replace(fields=self.redacting.fields(found.fields))
