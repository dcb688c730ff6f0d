"""What a page shows: the records of a conversation, whole or damaged, and those that its earlier generations had besides."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from transcript_store.conversation import ConversationMetadata, ConversationStore, Record
from transcript_store.errors import (
    CorruptMetadataError,
    CorruptTranscriptError,
    GenerationNotFoundError,
    KeyNeededError,
)
from transcript_store.formats import redacted_extra, with_branches
from transcript_store.import_notes import first_shown
from transcript_store.words import many, place

if TYPE_CHECKING:
    from transcript_store.redaction import SecretRedactor

_SEALED = "it is sealed, and the conversation is not: seal it again to read this, or delete this generation"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A record, or bytes that hold none."""

    record: Record | None
    damage: str | None = None
    """What is wrong here, in a sentence."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What stood in an earlier generation and is not in the one behind it: a compaction or a rewind took it away."""

    number: int
    stretches: tuple[Stretch, ...]
    ended_at: str


@dataclass(frozen=True, slots=True)
class Contents:
    """One generation, and what stood before it."""

    metadata: ConversationMetadata
    generation: int
    stretches: tuple[Stretch, ...]
    before: tuple[Earlier, ...] = ()
    damage: str | None = None
    """What is wrong with the conversation, in a sentence."""
    hidden: tuple[int, ...] = ()
    """Earlier generations from before secrets were taken out: their records are not in ``before``."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind were taken out."""


def contents_of_store(
    conversation: ConversationStore,
    *,
    generation: int | None = None,
    through_seq: int | None = None,
    redact: SecretRedactor | None = None,
    with_tail: bool = True,
    branches: bool = False,
) -> Contents:
    """What a loaded conversation has: up to the record ``through_seq`` if that is given, ``with_tail`` what is torn behind the last.

    With ``branches`` what stands on branches that the conversation left is messages, among the others.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.get_records`.
    """
    found = _of_store(conversation, generation, through_seq, with_tail=with_tail)
    if branches:
        shown = (
            stretch if stretch.record is None else replace(stretch, record=next(with_branches([stretch.record])))
            for stretch in found.stretches
        )
        found = replace(found, stretches=tuple(shown))
    return found if redact is None else _redacted(found, redact)


def contents_of(
    directory: str | os.PathLike[str], *, generation: int | None, redact: SecretRedactor | None, keys: Mapping[str, Any]
) -> Contents:
    """Everything that can be read; no lock is taken and nothing is changed. ``keys`` is what the store is given of them.

    Raises:
        GenerationNotFoundError: there is no such generation.
        TranscriptStoreError: as :meth:`ConversationStore.load`, except for damage, which becomes part of what is shown.
    """
    try:
        found = _read(directory, generation, keys)
    except (CorruptTranscriptError, CorruptMetadataError) as error:
        if generation is not None or keys:
            raise  # what is left of a sealed one cannot be told from what somebody put there
        found = _salvaged(directory, error)
    return found if redact is None else _redacted(found, redact)


def _read(directory: str | os.PathLike[str], generation: int | None, keys: Mapping[str, Any]) -> Contents:
    with ConversationStore(directory, read_only=True, **keys) as conversation:
        conversation.load()
        return _of_store(conversation, generation)


def _of_store(
    conversation: ConversationStore, generation: int | None, through_seq: int | None = None, *, with_tail: bool = True
) -> Contents:
    metadata = conversation.get_metadata()
    number = metadata.generation if generation is None else generation
    stretches = [Stretch(record) for record in conversation.get_records(generation=generation) if _is_shown(record)]
    if with_tail and generation is None and (torn := torn_tail_of(conversation)) is not None:
        stretches.append(Stretch(None, torn))
    before, hidden = _before(conversation, number, stretches)
    if through_seq is not None:
        until = conversation.iter_records(through_seq=through_seq, generation=generation)
        stretches = [Stretch(record) for record in until if _is_shown(record)]
    return Contents(metadata, number, tuple(stretches), before, hidden=hidden)


def torn_tail_of(conversation: ConversationStore) -> str | None:
    """What stands behind the last whole record, in a sentence: a crash left it, or a writer is at it."""
    torn = conversation.torn_tail
    return None if torn is None else f"{many(torn.length_bytes, 'byte')} behind the last whole record: {torn.reason}"


def _before(
    conversation: ConversationStore, number: int, later: Iterable[Stretch]
) -> tuple[tuple[Earlier, ...], tuple[int, ...]]:
    """What each earlier generation has that the next one has not, the oldest first; and the numbers of those that are not shown."""
    found, hidden = [], []
    shown_from = first_shown(conversation) if number else 0
    known = {_fingerprint(stretch.record) for stretch in later if stretch.record}
    began_at = next((stretch.record.at for stretch in later if stretch.record), "")
    for earlier in range(number - 1, -1, -1):
        try:
            records = conversation.get_records(last=1 if earlier < shown_from else None, generation=earlier)
        except GenerationNotFoundError:
            continue  # it was deleted
        except CorruptTranscriptError as error:
            found.append(Earlier(earlier, (Stretch(None, _told(error)),), began_at))
            continue
        except KeyNeededError:  # it was unsealed since
            found.append(Earlier(earlier, (Stretch(None, _SEALED),), began_at))
            continue
        if earlier < shown_from:
            hidden.append(earlier)
            continue
        gone = tuple(Stretch(each) for each in records if _is_shown(each) and _fingerprint(each) not in known)
        ended_at = records[-1].at if records else began_at
        found.append(Earlier(earlier, gone, ended_at))
        known = {_fingerprint(record) for record in records}
    return tuple(reversed(found)), tuple(reversed(hidden))


def said_of_hidden(hidden: tuple[int, ...]) -> str:
    """What a page says of the generations that it leaves out."""
    numbers = ", ".join(map(str, hidden))
    return (
        f"{many(len(hidden), 'earlier generation')} ({numbers}) from before secrets were taken out: not shown here. "
        "With --generation and its number each can be shown; `transcript-store secrets --forget` removes those with secrets."
    )


def _is_shown(record: Record) -> bool:
    """Whether a page has this record: nobody who took a message back wants to hand it on."""
    return not record.is_retracted


def _fingerprint(record: Record) -> int:
    """Equal for what a replace took over. Its time and its extra may have changed."""
    return hash(orjson.dumps(record.extra if record.message is None else record.message, option=orjson.OPT_SORT_KEYS))


def _told(error: CorruptTranscriptError | CorruptMetadataError) -> str:
    """What is damaged, without where it stands on this machine: a page is handed on."""
    name = os.path.basename(error.path)
    at = place(error.line_number, error.offset_bytes) if isinstance(error, CorruptTranscriptError) else ""
    return f"{name}{at}: {error.reason}"


def _salvaged(directory: str | os.PathLike[str], error: CorruptTranscriptError | CorruptMetadataError) -> Contents:
    from transcript_store.maintenance import salvage  # what is not damaged does not need it

    left = salvage(directory)
    stretches = []
    for found in left.found:
        where = f"{many(found.length_bytes, 'byte')} at byte {found.offset_bytes:,}"
        if found.record is not None and not _is_shown(found.record):
            continue
        if found.record is None:
            stretches.append(Stretch(None, f"{where} cannot be read: {found.damage}"))
        else:
            told = f"Damaged ({where}), so this may not be what was stored: {found.damage}"
            stretches.append(Stretch(found.record, told if found.damage else None))
    said = f"{_told(error)}. What can be read is below; transcript-store verify and repair know what can be done."
    return Contents(left.metadata, left.metadata.generation, tuple(stretches), damage=said)


def _redacted(found: Contents, redactor: SecretRedactor) -> Contents:
    from transcript_store.redaction import require_redactor

    require_redactor(redactor)
    counts: Counter[str] = Counter()

    def clean(value: Any) -> Any:
        value, more = redactor.redact(value)
        counts.update(more)
        return value

    def record(given: Record) -> Record:
        extra, more = (None, {}) if given.extra is None else redacted_extra(given.extra, redactor)
        counts.update(more)
        return replace(given, message=clean(given.message), extra=extra)

    def stretches(given: Iterable[Stretch]) -> tuple[Stretch, ...]:
        return tuple(replace(each, record=each.record and record(each.record)) for each in given)

    metadata = found.metadata
    prompt, tools, labels = clean([metadata.system_prompt, metadata.tools, metadata.labels])
    return replace(
        found,
        metadata=replace(metadata, system_prompt=prompt, tools=tools, labels=labels),
        stretches=stretches(found.stretches),
        before=tuple(replace(each, stretches=stretches(each.stretches)) for each in found.before),
        redacted=dict(sorted(counts.items())),
    )
