"""What does a page show? The records of a conversation, whole or damaged, and those that only its earlier generations
have.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from transcript_store.conversation import ConversationMetadata, ConversationStore, Record
from transcript_store.display import dollars, line_location, many, title_in
from transcript_store.errors import (
    CorruptMetadataError,
    CorruptTranscriptError,
    GenerationNotFoundError,
    KeyNeededError,
)
from transcript_store.formats import Call, NeutralMessage, Result, Thinking, redacted_extra, with_branches
from transcript_store.import_notes import first_shown
from transcript_store.messages import cost_in, role_of, tokens_in
from transcript_store.naming import is_prompt, label_of, title_among, turn_of

if TYPE_CHECKING:
    from transcript_store.redaction import SecretRedactor
    from transcript_store.usage import UsageTotal


_SEALED = "it is sealed, and the conversation is not: seal it again to read this, or delete this generation"


@dataclass(frozen=True, slots=True)
class PageItem:
    """A record, or bytes that hold none."""

    record: Record | None
    damage: str | None = None
    """What is wrong here, in a sentence."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Records of an earlier generation that the next one lacks: a compaction or a rewind removed them."""

    number: int
    stretches: tuple[PageItem, ...]
    ended_at: str


@dataclass(frozen=True, slots=True)
class PageContents:
    """One generation, and what stood before it."""

    metadata: ConversationMetadata
    generation: int
    stretches: tuple[PageItem, ...]
    before: tuple[Earlier, ...] = ()
    damage: str | None = None
    """What is wrong with the conversation, in a sentence."""
    hidden: tuple[int, ...] = ()
    """Earlier generations that may hold secrets that were taken out later: their records are not in ``before``."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind were taken out."""
    usage: UsageTotal | None = None
    """The tokens of the whole conversation and what they cost; None if it is damaged, or nothing asked for them."""


def contents_of_store(
    conversation: ConversationStore,
    *,
    generation: int | None = None,
    through_seq: int | None = None,
    redact: SecretRedactor | None = None,
    with_tail: bool = True,
    with_usage: bool = False,
    branches: bool = False,
) -> PageContents:
    """The contents of a loaded conversation: up to the record ``through_seq`` if it is given, ``with_tail`` with the
    torn tail, ``with_usage`` with its tokens, for which every generation is read.

    With ``branches`` messages on abandoned branches are included among the others.

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
    if with_usage and through_seq is None:
        from transcript_store.usage import conversation_usage

        found = replace(found, usage=conversation_usage(conversation))
    return found if redact is None else _redacted(found, redact)


def contents_of(
    directory: str | os.PathLike[str], *, generation: int | None, redact: SecretRedactor | None, keys: Mapping[str, Any]
) -> PageContents:
    """Reads everything readable, the tokens too; takes no lock, changes nothing. ``keys`` are the store's key arguments.

    Raises:
        GenerationNotFoundError: there is no such generation.
        TranscriptStoreError: as :meth:`ConversationStore.load`, except for damage, which becomes part of what is shown.
    """
    try:
        found = _read(directory, generation, keys)
    except (CorruptTranscriptError, CorruptMetadataError) as error:
        if generation is not None or keys:
            raise  # damaged records of a sealed one cannot be distinguished from forged ones
        found = _salvaged(directory, error)
    return found if redact is None else _redacted(found, redact)


def _read(directory: str | os.PathLike[str], generation: int | None, keys: Mapping[str, Any]) -> PageContents:
    with ConversationStore(directory, read_only=True, **keys) as conversation:
        conversation.load()
        return contents_of_store(conversation, generation=generation, with_usage=True)


def _of_store(
    conversation: ConversationStore, generation: int | None, through_seq: int | None = None, *, with_tail: bool = True
) -> PageContents:
    metadata = conversation.get_metadata()
    number = metadata.generation if generation is None else generation
    stretches = [PageItem(record) for record in conversation.get_records(generation=generation) if _is_shown(record)]
    if with_tail and generation is None and (torn := torn_tail_of(conversation)) is not None:
        stretches.append(PageItem(None, torn))
    before, hidden = _before(conversation, number, stretches)
    if through_seq is not None:
        until = conversation.iter_records(through_seq=through_seq, generation=generation)
        stretches = [PageItem(record) for record in until if _is_shown(record)]
    return PageContents(metadata, number, tuple(stretches), before, hidden=hidden)


def torn_tail_of(conversation: ConversationStore) -> str | None:
    """The bytes after the last whole record, in a sentence: a crash left them, or a writer is writing them."""
    torn = conversation.torn_tail
    return None if torn is None else f"{many(torn.length_bytes, 'byte')} after the last whole record: {torn.reason}"


def _before(
    conversation: ConversationStore, number: int, later: Iterable[PageItem]
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
            found.append(Earlier(earlier, (PageItem(None, _damage_sentence(error)),), began_at))
            continue
        except KeyNeededError:  # it was unsealed since
            found.append(Earlier(earlier, (PageItem(None, _SEALED),), began_at))
            continue
        if earlier < shown_from:
            hidden.append(earlier)
            continue
        gone = tuple(PageItem(each) for each in records if _is_shown(each) and _fingerprint(each) not in known)
        ended_at = records[-1].at if records else began_at
        found.append(Earlier(earlier, gone, ended_at))
        known = {_fingerprint(record) for record in records}
    return tuple(reversed(found)), tuple(reversed(hidden))


def said_of_hidden(hidden: tuple[int, ...]) -> str:
    """The note on a page about omitted generations."""
    numbers = ", ".join(map(str, hidden))
    return (
        f"{many(len(hidden), 'earlier generation')} ({numbers}) may hold secrets that were taken out later: not shown here. "
        "With --generation and its number each can be shown; `transcript-store secrets --forget` removes those with secrets."
    )


def _is_shown(record: Record) -> bool:
    """True if a page has this record: retracted messages are not passed on."""
    return not record.is_retracted


def _fingerprint(record: Record) -> int:
    """Equal for what a replace took over. Its time and its extra may have changed."""
    return hash(orjson.dumps(record.extra if record.message is None else record.message, option=orjson.OPT_SORT_KEYS))


def _damage_sentence(error: CorruptTranscriptError | CorruptMetadataError) -> str:
    """The damage without local paths: a page is passed on to others."""
    name = os.path.basename(error.path)
    at = line_location(error.line_number, error.offset_bytes) if isinstance(error, CorruptTranscriptError) else ""
    return f"{name}{at}: {error.reason}"


def _salvaged(directory: str | os.PathLike[str], error: CorruptTranscriptError | CorruptMetadataError) -> PageContents:
    from transcript_store.maintenance import salvage  # what is not damaged does not need it

    left = salvage(directory)
    stretches = []
    for found in left.found:
        where = f"{many(found.length_bytes, 'byte')} at byte {found.offset_bytes:,}"
        if found.record is not None and not _is_shown(found.record):
            continue
        if found.record is None:
            stretches.append(PageItem(None, f"{where} cannot be read: {found.damage}"))
        else:
            damage_note = f"Damaged ({where}), so this may not be what was stored: {found.damage}"
            stretches.append(PageItem(found.record, damage_note if found.damage else None))
    said = f"{_damage_sentence(error)}. What can be read is below; transcript-store verify and repair know what can be done."
    return PageContents(left.metadata, left.metadata.generation, tuple(stretches), damage=said)


def _redacted(found: PageContents, redactor: SecretRedactor) -> PageContents:
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

    def stretches(given: Iterable[PageItem]) -> tuple[PageItem, ...]:
        return tuple(replace(each, record=each.record and record(each.record)) for each in given)

    metadata = found.metadata
    fields = {name: clean(getattr(metadata, name)) for name in ("model", "system_prompt", "tools", "labels")}
    return replace(
        found,
        metadata=replace(metadata, **fields),
        stretches=stretches(found.stretches),
        before=tuple(replace(each, stretches=stretches(each.stretches)) for each in found.before),
        redacted=dict(sorted(counts.items())),
    )


# ---- besides ----
# The facts about a record besides its message: who replied, how long it took and what it cost, what a client noted,
# what an event is.


def about_of(record: Record) -> dict[str, Any]:
    """Who replied and what it took: as a client notes it, or as frameworks store it in the message; ``reply`` is the reply's id."""
    extra, message = record.extra or {}, record.message or {}
    if message.get("role") != "assistant" and message.get("kind") != "response":
        return extra
    said = {"model": message.get("model") or message.get("model_name"), "usage": message.get("usage")}
    reply = message.get("id")
    return {**said, "reply": reply if isinstance(reply, str) else None, **extra}


def tokens_shown(extra: dict[str, Any]) -> str:
    """The tokens of a reply, and what it cost, as far as it is known."""
    usage = extra.get("usage")
    if not isinstance(usage, dict):
        return ""
    tokens, cost = tokens_in(usage), cost_in(usage)
    known = [f"{number:,} tokens {way}" for number, way in ((tokens.input, "in"), (tokens.output, "out")) if number]
    said = ", ".join(known).replace(" tokens out", " out") if tokens.input else ", ".join(known)
    return ", ".join(filter(None, [said, dollars(cost) if cost else ""]))


def notes_of(extra: dict[str, Any]) -> Iterator[str]:
    """A client's notes on a reply that a person should know."""
    incomplete = extra.get("incomplete")
    if isinstance(incomplete, dict) and isinstance(incomplete.get("reason"), str):
        yield f"Interrupted: {incomplete['reason']}"
    refused = extra.get("refused")
    if isinstance(refused, dict) and isinstance(refused.get("reason"), str):
        yield f"Refused: {refused['reason']}"
    lost = extra.get("interrupted")
    if isinstance(lost, list):
        yield f"Interrupted: unknown outcome of {', '.join(map(str, lost))}"
    if extra.get("compaction") is True:
        yield "This replaces compacted messages."


def event_of(extra: dict[str, Any]) -> tuple[str, Any]:
    """An event's name and text; for an imported line the line."""
    source = extra.get("source")
    lines = source.get("lines") if isinstance(source, dict) else None
    first = lines[0] if isinstance(lines, list) and len(lines) == 1 else None
    if isinstance(first, dict):
        line = first.get("line", first.get("raw", first))
        return (role_of(line) if isinstance(line, dict) else "a line that is no message"), line
    return ", ".join(extra) or "event", extra


# ---- turns ----
# The messages in the neutral form: each record with its turn, and which result answers which call.


@dataclass(slots=True)
class ShownMessage:
    stretch: PageItem
    turn: NeutralMessage | None
    """None for what is not a message."""


def shown_messages(stretches: Iterable[PageItem], provider: str | None) -> list[ShownMessage]:
    """The stretches with the turns of those that are messages, in their order."""
    return [ShownMessage(each, _turn_of(each, provider)) for each in stretches]


def _turn_of(stretch: PageItem, provider: str | None) -> NeutralMessage | None:
    record = stretch.record
    if record is None or record.message is None:
        return None
    turn, extra = turn_of(record.message, provider), record.extra or {}
    # What the provider's form has no place for stands beside the message: thinking that it is not sent, and that a call failed.
    if isinstance(thought := extra.get("thinking"), str):
        turn = replace(turn, blocks=(Thinking(thought), *turn.blocks))
    if extra.get("failed") is True:
        results = (replace(block, failed=True) if isinstance(block, Result) else block for block in turn.blocks)
        turn = replace(turn, blocks=tuple(results))
    return turn


def answers_in(said: Sequence[ShownMessage]) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each call that has a result, the place of the result: the number of its message, and of the block in it.

    A result belongs to the first call before it with its id that has none yet; one without an id to the last such call of its name.
    """
    waiting: dict[tuple[str, str], deque[tuple[int, int]]] = defaultdict(deque)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for number, each in enumerate(said):
        for index, block in enumerate(each.turn.blocks if each.turn else ()):
            if isinstance(block, Call):
                waiting["id", block.id].append((number, index))
                waiting["name", block.name].append((number, index))
            elif isinstance(block, Result):
                calls = waiting["id", block.id] if block.id else waiting["name", block.name]
                while calls and calls[0] in found:
                    calls.popleft()
                if calls:
                    found[calls.popleft()] = (number, index)
    return found


# ---- titles ----
# The title of a conversation's page.


def title_of(contents: PageContents) -> str:
    """Its title, or else the first prompt of what is shown, or else its program and when it began."""
    metadata = contents.metadata
    parts = (*(earlier.stretches for earlier in contents.before), contents.stretches)
    found = (title_among(_prompts(stretches, metadata.provider)) for stretches in parts)
    if name := title_in(metadata.labels) or next(filter(None, found), None):
        return name
    program = metadata.labels.get("source") or metadata.provider or "conversation"
    return f"{program}, {metadata.created_at[:10]} {metadata.created_at[11:16]}"


def prompts_of(contents: PageContents) -> Iterator[str]:
    """The shown prompts, the start of each on one line."""
    return _prompts(contents.stretches, contents.metadata.provider)


def _prompts(stretches: Iterable[PageItem], provider: str | None) -> Iterator[str]:
    for each in shown_messages(stretches, provider):
        extra = each.stretch.record.extra if each.stretch.record else None
        if each.turn is not None and is_prompt(each.turn, extra):
            yield label_of(each.turn, extra)
