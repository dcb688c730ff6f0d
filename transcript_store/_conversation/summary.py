"""What does a listing show of a conversation? Its metadata, its header and its last whole record are enough.

A summary is not a verification: the records before the last are not read. Damage that is found is reported, and does
not hide the other conversations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from transcript_store._conversation import layout
from transcript_store._conversation.arguments import require_count
from transcript_store._conversation.layout import metadata_bytes, read_metadata, require_conversation, twice
from transcript_store._conversation.metadata import MetadataDocument, NotADocument, decode_document
from transcript_store._json.parts import left_of
from transcript_store._json.replies import cache_reads_in, cache_writes_in, cost_in, tokens_in
from transcript_store._json.strict import JSONDecodeError, decode
from transcript_store._log import scan
from transcript_store._log.header import NotAHeader, is_header_of, read_header
from transcript_store._log.record import SEALED, Header, Record
from transcript_store._log.scan import first_line
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder, OpenFile
from transcript_store._os.filesystem import NOT_ITS_FAULT, FileSystem, NotOursError, refusals, storage_error
from transcript_store._os.names import METADATA, TRANSCRIPT
from transcript_store.display import title_in
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from transcript_store._conversation.calls import Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """One row of a listing. A fact that damage hides is None."""

    id: str | None = None
    directory: str
    title: str | None = None
    """The label ``title``; None if it is missing or blank."""
    labels: dict[str, str] | None = field(default=None, hash=False)
    provider: str | None = None
    model: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    """The time of the last record, RFC 3339 in UTC; without a record the time of the creation. A rename, a label or an
    import does not change it.
    """
    touched_at: str | None = None
    """The time of the last write: the later of the last record and the last change of the metadata. On a backend an
    import counts too.
    """
    record_count: int | None = None
    """How many records the live generation has, events included: the number of its last whole one."""
    generation: int | None = None
    size_bytes: int | None = None
    """The length of transcript.jsonl."""
    damage: str | None = None
    """The problem that this short check shows, in a sentence; None without one. ``verify()`` reads everything."""
    torn_bytes: int = 0
    """How many bytes follow the last whole record: a torn tail, which the next load that may write cuts off, or a line
    that is being written. 0 if there is damage.
    """
    sealed: bool = False
    """True if the conversation is sealed: then its title and its labels are not shown, and no key is needed to list it."""
    last_extra: dict[str, Any] | None = field(default=None, hash=False)
    """The ``extra`` of the last whole record, if it was asked for. None if that record has none."""


def require_page(limit: object, before: object) -> None:
    """Raise unless this describes a page of a listing: a maximum or None, and the last summary of the page before or None."""
    if limit is not None:
        require_count("limit", limit)
    if before is not None and not isinstance(before, ConversationSummary):
        raise TypeError(f"before must be the last summary of the page before, not {type(before).__name__}")


def summarize(parent: Folder, name: str, last_extra: bool = False) -> ConversationSummary | None:
    """Summarize the conversation in a folder of ``parent``; None if there is none (nor a part of one) with that name.

    With ``last_extra`` the last record is decoded too.

    Raises:
        StorageError: no file can be opened any more, or there is no memory. Any other refusal is reported as damage.
    """
    files, path = parent.files, parent.path_of(name)

    def look() -> ConversationSummary | None:
        try:
            with Folder(files, path, files.open_directory(name, parent.handle)) as folder:
                return _look(folder, last_extra)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            refusal = storage_error(error, path, "look at it")
            if refusal.errno in NOT_ITS_FAULT:
                raise refusal from error
            return ConversationSummary(directory=path, damage=f"it cannot be read: {refusal.strerror}")

    def is_fine(summary: ConversationSummary | None) -> bool:
        return summary is None or (summary.damage is None and not summary.torn_bytes)

    return twice(files, look, is_fine)


def summary_of(directory: filesystem.AnyPath) -> ConversationSummary | None:
    """The summary of the conversation in a folder, as in a listing; None if there is none, nor a part of one.

    Raises:
        StorageError: the parent directory cannot be opened, or no file can be opened any more.
    """
    return summary_in(filesystem.REAL, filesystem.absolute_path(directory))


def summary_in(files: FileSystem, path: str, *, last_extra: bool = False) -> ConversationSummary | None:
    """As :func:`summary_of`, on any file system."""
    parent, _, name = path.rpartition("/")
    with refusals(path, "look at it"):
        try:
            with Folder.open(files, parent or "/") as folder:
                return summarize(folder, name, last_extra)
        except FileNotFoundError:
            return None


def _look(folder: Folder, last_extra: bool) -> ConversationSummary | None:
    try:
        data = metadata_bytes(folder)
        with folder.reading(TRANSCRIPT) as source:
            return _read(folder.path, data, source, last_extra)
    except (FileNotFoundError, NotOursError):
        return _explain(folder, last_extra)


def _explain(folder: Folder, last_extra: bool) -> ConversationSummary | None:
    """The summary of a folder without a file transcript.jsonl: the damage, or None if nothing in it is ours."""
    try:
        require_conversation(folder)
        read_metadata(folder)
        folder.files.close(folder.open_file(TRANSCRIPT)[0])
    except ConversationNotFoundError:
        return None
    except CorruptTranscriptError as error:
        if error.kind == "foreign":
            return None
        reason = error.reason
    except (CorruptMetadataError, UnsupportedVersionError) as error:
        reason = f"{METADATA}: {error.reason}"
    except NotOursError as error:
        reason = f"{TRANSCRIPT}: {error.reason}"
    else:
        return _look(folder, last_extra)  # it appeared just now
    return ConversationSummary(directory=folder.path, damage=reason)


def _read(
    path: str, data: bytes | NotADocument | None, source: OpenFile, last_extra: bool
) -> ConversationSummary | None:
    read, size = source.read, source.size
    start = first_line(read, size)
    begin = start.find(b"\n") + 1
    problems: list[str] = []
    document = decode_document(data, check_members=False)
    # The common case: the two hashes show that a store wrote both, so the header is not parsed and no member is
    # checked. Measured, a listing of 500 takes 0.7 of the time, and 0.35 where the conversations have 20 KB of tools.
    if isinstance(document, MetadataDocument) and is_header_of(
        start[:begin], document.members.get("id"), document.members.get("generation")
    ):
        members, mark, _ = document
        if mark is not None and mark.generation != members["generation"]:
            problems.append(f"{METADATA} has a mark of generation {mark.generation}")
    else:
        checked = decode_document(data)
        known = checked if isinstance(checked, MetadataDocument) else None
        if isinstance(checked, NotADocument):
            problems.append(f"{METADATA}: {checked.reason}")
        header = read_header(start)
        if not isinstance(header, NotAHeader):
            members, mark, _ = _reconcile(header[0], known, problems)
        elif data is None and header.kind == "foreign" and header.version is None:
            return None  # another program's transcript.jsonl
        else:
            problems.append(f"{TRANSCRIPT}: {header.reason}")
            members, mark, _ = known or MetadataDocument({}, None)
    last = scan.last_record(read, size)
    if last is None and begin < size - scan.LONGEST_TAIL_BYTES:
        problems.append(f"{TRANSCRIPT}: no whole record ends in its last {scan.LONGEST_TAIL_BYTES:,} bytes")
    whole_to = begin if last is None else last.end
    # The mark was synced with everything before it, so a shorter whole part is damage, and no torn tail (R2).
    if mark is not None and whole_to < mark.position.offset_bytes:
        problems.append(f"{TRANSCRIPT}: the last stored record is missing, or not whole")
    labels, generation = members.get("labels"), members.get("generation")
    updated_at, last_at = _text(members.get("updated_at")), last.at if last else None
    return ConversationSummary(
        id=_text(members.get("id")),
        directory=path,
        title=title_in(labels) if type(labels) is dict else None,
        labels=labels if type(labels) is dict and {str}.issuperset(map(type, labels.values())) else None,
        provider=_text(members.get("provider")),
        model=_text(members.get("model")),
        created_at=_text(members.get("created_at")),
        updated_at=last_at or _text(members.get("created_at")) or updated_at,
        touched_at=max(updated_at, last_at) if updated_at and last_at else updated_at or last_at,
        record_count=last.seq if last else 0,
        generation=generation if type(generation) is int else None,
        size_bytes=size,
        damage="; ".join(problems) or None,
        torn_bytes=0 if problems else size - whole_to,
        sealed=type(members.get("requires")) is list and SEALED in members["requires"],
        last_extra=_extra_of(last) if last_extra and last else None,
    )


def _extra_of(last: scan.LastRecord) -> dict[str, Any] | None:
    """The extra of a record. A record that is not JSON is foreign, and has none: ``verify()`` reports it."""
    try:
        extra = decode(last.body + b"}").get("extra")
    except JSONDecodeError:
        return None
    return extra if type(extra) is dict else None


def _reconcile(header: Header, document: MetadataDocument | None, problems: list[str]) -> MetadataDocument:
    """The valid metadata: the header's, if metadata.json is not of this generation."""
    if document is None:
        return MetadataDocument(header.metadata, None)
    agreed = layout.of_live(header, document)
    if isinstance(agreed, layout.Mismatch):
        problems.append(f"{TRANSCRIPT}: {agreed.reason}")
        return MetadataDocument(document.members, None)
    return agreed


def _text(member: Any) -> str | None:
    """A member that should be text. Only a hash was checked, and another program may have computed it."""
    return member if type(member) is str else None


# ---- usage ----
# The stored tokens, by day and model. A reply that several records, generations or conversations hold counts once.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """The tokens of some replies. A number that a provider did not report counts as 0."""

    day: str | None
    """``2026-11-27``, in UTC; None for all days."""
    model: str | None
    """The reply's model, else the conversation's; None if neither names one, or for all models."""
    replies: int = 0
    """How many replies have a stored usage."""
    input_tokens: int = 0
    """All of the input, including what was read from a cache and what was written to one."""
    cache_read_tokens: int = 0
    """How many of them came from the provider's cache."""
    cache_write_tokens: int = 0
    """How many of them were written to the cache, where the provider says so (Claude, Codex)."""
    output_tokens: int = 0
    """Including thinking."""
    cost_usd: float | None = None
    """The cost of the replies that state one, in US dollars; None if none does."""

    def __add__(self, other: UsageRow) -> UsageRow:
        costs = [row.cost_usd for row in (self, other) if row.cost_usd is not None]
        return UsageRow(
            day=self.day,
            model=self.model,
            replies=self.replies + other.replies,
            input_tokens=self.input_tokens + other.input_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=sum(costs) if costs else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The stored tokens of a conversation with its earlier generations, or of a library."""

    rows: tuple[UsageRow, ...]
    """One for each day and model, in this order."""
    skipped: tuple[str, ...] = ()
    """What could not be read and is not counted, one sentence each: damaged generations or conversations, or sealed
    ones without the key.
    """

    @property
    def total(self) -> UsageRow:
        """All rows as one, without a day and a model."""
        return sum(self.rows, UsageRow(day=None, model=None))


class UsageCount:
    """Counts replies, each once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], UsageRow] = {}
        self._seen: dict[object, int] = {}
        """The output tokens of each counted reply."""
        self.skipped: list[str] = []

    def add_conversation(self, conversation: Reads) -> None:
        """Count the replies of all generations; raises what reading raises. Called again, it counts what came since."""
        for row, _ in self.new_rows(conversation):
            key = (row.day or "", row.model or "")
            self._rows[key] = self._rows[key] + row if key in self._rows else row

    def new_rows(self, conversation: Reads) -> Iterator[tuple[UsageRow, dict[str, Any]]]:
        """A row for each reply of all generations that was not counted yet, with the ``usage`` that it was read from; raises what reading
        raises. They are not in the result.

        A reply that was counted before it was whole gives a row of no reply, with the output tokens that were not counted.
        """
        model = conversation.get_metadata().model
        for generation in conversation.generations():
            if generation.damage is not None:
                self.skipped.append(f"{conversation.id}, generation {generation.number}: {generation.damage}")
            else:  # by its number: if it is replaced meanwhile, it is read in the archive
                yield from self.rows_in(conversation.iter_records(generation=generation.number), model)

    def rows_in(self, records: Iterable[Record], model: str | None) -> Iterator[tuple[UsageRow, dict[str, Any]]]:
        """The same of some records. ``model`` is the conversation's, for replies that name none."""
        alike: Counter[object] = Counter()
        for record in records:
            about = _about(record)
            usage = about.get("usage")
            if type(usage) is not dict:
                continue
            # A reply of several records has an id. A copy of a record keeps its time: in a fork, and in a generation that keeps records;
            # but two replies of one generation may have the same time and the same usage, where the times are those of an import.
            reply = about.get("response_id")
            if type(reply) is not str:
                same = (record.at, orjson.dumps(usage))
                alike[same] += 1
                reply = (same, alike[same])
            named = about.get("model")
            row = _row(record.at[:10], named if type(named) is str else model, usage)
            counted = self._seen.get(reply)
            if counted is not None and row.output_tokens <= counted:
                continue
            self._seen[reply] = row.output_tokens
            if counted is not None:
                # A program was writing the reply when it was imported: a later line, or generation, has its final figure.
                row = UsageRow(day=row.day, model=row.model, output_tokens=row.output_tokens - counted)
            yield row, usage

    def result(self) -> TokenUsage:
        """The count so far."""
        return TokenUsage(rows=tuple(row for _, row in sorted(self._rows.items())), skipped=tuple(self.skipped))


def _about(record: Record) -> dict[str, Any]:
    """As a client notes it beside the message; frameworks store it in the message. A reply on a branch that was left was paid for too."""
    left = left_of(record.extra or {}) if record.message is None else None
    message, extra = left or (record.message, record.extra)
    message, extra = message or {}, extra or {}
    if "usage" in extra:
        return extra
    # One reply may be several messages of Claude's SDK, each with the id and the usage of all of it.
    named = message.get("model") or message.get("model_name")
    return {"model": named, "usage": message.get("usage"), "response_id": message.get("id")}


def _row(day: str, model: str | None, usage: dict[str, Any]) -> UsageRow:
    tokens = tokens_in(usage)
    return UsageRow(
        day=day,
        model=model,
        replies=1,
        input_tokens=tokens.input or 0,
        cache_read_tokens=cache_reads_in(usage),
        cache_write_tokens=cache_writes_in(usage),
        output_tokens=tokens.output or 0,
        cost_usd=cost_in(usage),
    )
