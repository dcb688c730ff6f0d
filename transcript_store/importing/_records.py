"""Planned records as they are stored: the parts that the store accepts, and their times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from transcript_store.conversation import DEFAULT_MAX_LINE_BYTES, Record
from transcript_store.errors import InvalidMessageError
from transcript_store.formats import ImportFinding, PlannedRecord, SessionPlan, moment_of, pack_line, unpack_line
from transcript_store.messages import encode_message

_ONE_BATCH_BYTES = 64 << 20
"""A source up to this size is stored as one batch, a larger one in several: memory holds one of them."""
_BATCH_RECORDS = 1000
_RESTATED_BYTES = 1 << 20
"""The limit of one event, unless one line is longer."""
UNSTORABLE = "unstorable"
_UNSTORABLE = (
    "a message that is nested deeper, or is longer, than a record may be: it is kept as an event with its bytes, and no model is "
    "sent it; shorten it, and import the file again"
)


class Lists(NamedTuple):
    """Records as the store's calls take them: lists of one length."""

    messages: list[dict[str, Any] | None]
    extras: list[dict[str, Any] | None]
    times: list[datetime | None]


class ImportBatch(NamedTuple):
    """Entries that are stored together, each with its time."""

    entries: list[PlannedRecord]
    own_times: list[datetime | None]
    """The time of each record in the source, as far as it is a time."""
    times: list[datetime | None]
    is_last: bool
    not_before: datetime | None = None
    """The time of the record before it."""

    def lists(self, note: dict[str, Any], *, checked: bool = False) -> Lists:
        """The records, and the note behind them. ``checked`` replaces what the store would refuse."""
        entries = [storable(entry) for entry in self.entries] if checked else self.entries
        now = datetime.now(UTC)
        extras = [
            _extra(entry, is_its_own=time is not None and time == own and time <= now and _has_zone(entry.at))
            for entry, own, time in zip(entries, self.own_times, self.times, strict=True)
        ]
        # The note stands at the time of the record before it: records of that moment may follow in the next batch.
        noted_at = self.times[-1] if self.times else self.not_before
        return Lists([*(entry.message for entry in entries), None], [*extras, note], [*self.times, noted_at])


def refused_of(entries: Iterable[PlannedRecord]) -> list[ImportFinding]:
    """A finding for each message that the store does not take: its line becomes an event."""
    return [
        ImportFinding(UNSTORABLE, _UNSTORABLE, entry.lines[0] if entry.lines else None)
        for entry in entries
        if entry.message is not None and storable(entry).message is None
    ]


def as_stored(plan: SessionPlan, findings: Iterable[ImportFinding]) -> SessionPlan:
    """The plan as the store accepted it, with the findings meanwhile."""
    generations = tuple(partial(_stored, entries) for entries in plan.generations)
    return replace(plan, generations=generations, findings=(*plan.findings, *findings))


def _stored(entries: Callable[[], Iterable[PlannedRecord]]) -> Iterator[PlannedRecord]:
    return map(storable, entries())


def batches(
    entries: Iterable[PlannedRecord], source_size: int, not_before: datetime | None = None
) -> Iterator[ImportBatch]:
    """The entries in batches, at least one. None of them is before ``not_before``."""
    remaining = iter(entries)
    size = None if source_size <= _ONE_BATCH_BYTES else _BATCH_RECORDS
    taken = list(islice(remaining, size))
    while True:
        following = [] if size is None else list(islice(remaining, size))
        own_times = [record_time(entry.at) for entry in taken]
        batch = ImportBatch(taken, own_times, _times(taken, own_times, not_before), not following, not_before)
        not_before = batch.times[-1] if taken else not_before
        yield batch
        if not following:
            return
        taken = following


def same(record: Record, entry: PlannedRecord) -> bool:
    """True if a record was imported from this planned one. Other members of ``extra`` may change with a reader."""
    return _equals(record, entry) or _equals(record, storable(entry))


def behind(record: Record, entry: PlannedRecord) -> tuple[PlannedRecord, ...] | None:
    """The planned record without the part on record: nothing if all of it is. Of a run of empty lines that grew these are the new
    lines.

    None if the record is another one.
    """
    if same(record, entry):
        return ()
    run, grown = _empty_lines(record.message, record.extra), _empty_lines(entry.message, entry.extra)
    if run is None or grown is None or run[0] != grown[0] or not grown[1].startswith(run[1]):
        return None
    at, rest = run[0] + run[1].count(b"\n"), grown[1][len(run[1]) :]
    return (
        PlannedRecord(
            None, {"source": {"lines": [pack_line(at, rest, None)]}}, entry.at, range(at, at + rest.count(b"\n"))
        ),
    )


def _empty_lines(message: object, extra: Mapping[str, Any] | None) -> tuple[int, bytes] | None:
    """The number of the first of the empty lines that a record or an entry keeps, and their bytes; None if it keeps anything else."""
    found = [*lines_in(extra, None)] if message is None else []
    if len(found) != 1 or not found[0][1].isspace():
        return None
    (number, _), raw = found[0]
    return number, raw


def storable(entry: PlannedRecord) -> PlannedRecord:
    """The planned record, or an event with its lines if the store refuses the message: too deep, too long, not JSON. If it refuses
    the lines too, their numbers.
    """
    lines = _lines(entry)
    for candidate in (entry, _with(entry, [_raw(line, entry) for line in lines])):
        if _is_taken(candidate):
            return candidate
    return _with(entry, [{"n": line.get("n")} for line in lines])


def lines_in(
    extra: Mapping[str, Any] | None, message: Mapping[str, Any] | None
) -> Iterator[tuple[tuple[Any, Any], bytes]]:
    """The lines of the source that a record or an entry keeps: number and piece, and the bytes; no bytes if they were not kept."""
    source = (extra or {}).get("source")
    lines = source.get("lines") if isinstance(source, dict) else None
    for line in lines if isinstance(lines, list) else ():
        try:
            raw = unpack_line(line, message)
        except (KeyError, ValueError, TypeError):
            raw = b""
        yield (line.get("n"), line.get("part", 0)), raw


def restated(lines: Iterable[tuple[tuple[Any, Any], bytes]]) -> Iterator[PlannedRecord]:
    """Events with the current bytes of lines on record."""
    packed: list[dict[str, Any]] = []
    size = 0
    for (number, part), raw in lines:
        if packed and size + len(raw) > _RESTATED_BYTES:
            yield _restated(packed)
            packed, size = [], 0
        packed.append(pack_line(number, raw, None, part=part))
        size += len(raw)
    if packed:
        yield _restated(packed)


def _restated(packed: list[dict[str, Any]]) -> PlannedRecord:
    return PlannedRecord(
        None, {"source": {"lines": packed, "restated": True}}, None, tuple(line["n"] for line in packed)
    )


def record_time(text: str | None) -> datetime | None:
    """A source's time, if it is one that a record can have. One without a zone is UTC."""
    if not text:
        return None
    try:
        moment = moment_of(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _has_zone(text: str | None) -> bool:
    return text is not None and moment_of(text).tzinfo is not None


def _times(
    entries: list[PlannedRecord], own_times: list[datetime | None], not_before: datetime | None
) -> list[datetime | None]:
    """A time for each record: its own, else that of the one before; at the start that of the first that has one.

    Events do not delay later messages: the header of a copy is younger than its content.
    """
    own_times, soonest = [*own_times], None
    for place in range(len(entries) - 1, -1, -1):
        time = own_times[place]
        if entries[place].message is not None:
            soonest = time or soonest
        elif time is not None and soonest is not None:
            own_times[place] = min(time, soonest)
    last = not_before or next((time for time in own_times if time is not None), None)
    times: list[datetime | None] = []
    for time in own_times:
        last = last if time is None else time if last is None else max(time, last)
        times.append(last)
    return times


def _extra(entry: PlannedRecord, *, is_its_own: bool) -> dict[str, Any]:
    """The extra of a record, with its own time unless the record has it."""
    source = {**_source(entry), "lines": _lines(entry)}
    if entry.at is not None and not is_its_own:
        source["at"] = entry.at  # it goes backwards, lies in the future, or is no time: the record has another
    return {**entry.extra, "source": source}


def _equals(record: Record, entry: PlannedRecord) -> bool:
    return record.message == entry.message and _lines(entry) == (record.extra or {})["source"]["lines"]


def _source(entry: PlannedRecord) -> dict[str, Any]:
    source = entry.extra.get("source")
    return source if isinstance(source, dict) else {}


def _lines(entry: PlannedRecord) -> list[Any]:
    lines = _source(entry).get("lines")
    return lines if isinstance(lines, list) else []


def _raw(line: dict[str, Any], entry: PlannedRecord) -> dict[str, Any]:
    try:
        return pack_line(line["n"], unpack_line(line, entry.message), None)
    except (KeyError, ValueError, TypeError):
        return {"n": line.get("n")}


def _with(entry: PlannedRecord, lines: list[dict[str, Any]]) -> PlannedRecord:
    return PlannedRecord(None, {"source": {"lines": lines, "unstorable": True}}, _plain_time(entry.at), entry.lines)


def _plain_time(at: str | None) -> str | None:
    return None if at is None else at.encode("utf-8", "backslashreplace").decode()[:100]


def _is_taken(entry: PlannedRecord) -> bool:
    try:
        length = len(encode_message(_extra(entry, is_its_own=False), "extra", DEFAULT_MAX_LINE_BYTES))
        if entry.message is not None:
            length += len(encode_message(entry.message, "message", DEFAULT_MAX_LINE_BYTES))
    except InvalidMessageError:
        return False
    return length < DEFAULT_MAX_LINE_BYTES - 1024
