"""The report of a session, counted over the lines of its source, so that no line is lost silently (F6)."""

from __future__ import annotations

import base64
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import (
    ImportFinding,
    Loss,
    PlannedRecord,
    SessionPlan,
    SessionReader,
    SourceHead,
    nearly_json_lines,
)
from transcript_store.sources import FileSource, Rows

Action = Literal[
    "created", "grew", "unchanged", "replaced", "reread", "diverged", "empty", "deleted", "refused", "skipped"
]
_IN_MESSAGE, _IN_EVENT = 1, 2
UNREAD = "unread"
_UNREAD = (
    "this file has text of a speaker, and no line is a message as {} writes it: the lines are kept as events. Another program may "
    "have written the file, or a newer version"
)
_SPEAKERS = frozenset({"user", "human", "assistant", "model", "gemini"})


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Where the lines of a source ended. ``in_messages + in_events + left_out == total`` (F6)."""

    total: int = 0
    in_messages: int = 0
    in_events: int = 0
    left_out: int = 0
    """Each of these is in a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do, with one session; or why it did nothing with a source."""

    action: Action
    """``created``; ``grew``: records were appended; ``unchanged``: nothing was written; ``replaced``: the source was rewritten, and
    a new generation has its current content; ``reread``: the same, because this version reads the source better; ``diverged``: both
    the source and the conversation changed, nothing was written; ``empty``: it has no message, or only the program's own if the
    session is on record, nothing was written; ``deleted``: its conversation was deleted, pruned or shredded in this library,
    nothing was written; ``refused``: it could not be read or stored; ``skipped``: a file of an unknown format in a named
    folder.
    """
    source: str
    """The path, or an archive's path and the member's name."""
    id: str | None = None
    """The conversation's; None where there is no session."""
    format: str | None = None
    session: str | None = None
    title: str | None = None
    is_part: bool = False
    """True if its lines are another session's of this source too: a sub-agent, a branch that was left."""
    messages: int = 0
    """How many messages the live generation has of the source."""
    events: int = 0
    lines: LineCounts = LineCounts()
    findings: tuple[ImportFinding, ...] = ()
    losses: tuple[Loss, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets were taken out, by their kind."""
    reason: str | None = None
    """Why it diverged or was refused, as a sentence. For a skipped file the format that it nearly has, or None."""
    beside: Mapping[str, tuple[int, int, int] | None] = field(default_factory=dict, repr=False, compare=False)
    """The files beside the source that were read for its title and its parent, by path: size, mtime in nanoseconds and inode; None
    for a missing one.
    """
    stamp: str | None = field(default=None, repr=False, compare=False)
    """For a session of a database a text that changes with anything in it; None if unknown."""
    error: TranscriptStoreError | None = field(default=None, compare=False)
    """The library's refusal: ``reason`` is its sentence, and its ``hint`` is data."""


def plan_report(plan: SessionPlan, *, source: str) -> ImportReport:
    """The report on a plan, whatever is done with it. Goes through all its entries."""
    seen = bytearray(plan.lines + 1)
    messages = events = 0
    redacted: Counter[str] = Counter()
    for entries in plan.generations:
        messages, events = _count(entries(), seen, redacted if plan.redaction else None)
    in_messages = seen.count(_IN_MESSAGE) + seen.count(_IN_MESSAGE | _IN_EVENT)
    in_events = seen.count(_IN_EVENT)
    found = {finding.line for finding in plan.findings if finding.line is not None}
    left_out = plan.lines - in_messages - in_events
    said = sum(number < len(seen) and not seen[number] for number in found) if left_out else 0
    findings = plan.findings
    if left_out > said:  # a defect of the reader; but no line is lost in silence
        findings = (*findings, ImportFinding("unaccounted", f"the reader says nothing of {left_out - said:,} lines"))
    if not in_messages and any(_says_something(entry) for entries in plan.generations for entry in entries()):
        findings = (*findings, ImportFinding(UNREAD, _UNREAD.format(plan.format)))
    return ImportReport(
        action="unchanged",
        source=source,
        format=plan.format,
        session=plan.session,
        title=plan.labels.get("title"),
        is_part=plan.is_part,
        messages=messages,
        events=events,
        lines=LineCounts(plan.lines, in_messages, in_events, left_out),
        findings=findings,
        losses=plan.losses,
        redacted=dict(redacted),
    )


def refused_report(source: str, reason: str) -> ImportReport:
    """The report on what could not be imported."""
    return ImportReport(action="refused", source=source, reason=reason)


def is_blank(head: SourceHead) -> bool:
    """True for a source that starts with only white space, or with an empty array."""
    return not head.tables and head.start.strip(b"\xef\xbb\xbf \t\r\n\v\f") in (b"", b"[]")


def unknown(head: SourceHead, name: str, *, is_expected: bool) -> ImportReport:
    """The report on what no reader knows: an error, unless it may be anything."""
    reason: str | None
    if head.objects and head.objects[0].get("format") == "transcript-store":
        reason = (
            "is a conversation of this library's own, which needs no import: `transcript-store fork`, in Python "
            "ConversationLibrary.fork_from(directory, into=), copies it"
        )
    else:
        reason = nearly_json_lines(head)
    if not is_expected:
        return replace(refused_report(name, ""), action="skipped", reason=reason)
    return refused_report(
        name, reason or "is of no format that is known here; if you know its format, name it (--format)"
    )


def misnamed(reader: SessionReader, other: SessionReader | None, head: SourceHead) -> str:
    """Why a source without any message of the named format is not imported: its conversation would be empty."""
    said = nearly_json_lines(head) or f"not one line is a message of the format {reader.name}"
    return said if other is None else f"{said}; it looks like {other.name}: --format {other.name}"


def _says_something(entry: PlannedRecord) -> bool:
    """True for a line that is not a message and names a speaker, with text."""
    source = entry.extra.get("source")
    lines = source.get("lines") if isinstance(source, dict) and "left_branch" not in entry.extra else None
    return any(_speaks(line.get("line")) for line in lines or () if isinstance(line, dict))


def _speaks(value: object) -> bool:
    if not isinstance(value, dict) or value.get("isApiErrorMessage") is True:  # a program's own words
        return False
    inner = value.get("message")
    for said in (value, inner):
        if isinstance(said, dict) and not _SPEAKERS.isdisjoint(
            name for name in (said.get("role"), said.get("type"), said.get("sender")) if isinstance(name, str)
        ):
            spoken = inner if isinstance(inner, (str, dict)) else value
            members = spoken if isinstance(spoken, dict) else {"text": spoken}
            return any(members.get(name) for name in ("content", "parts", "text"))
    return False


def _count(entries: Iterable[PlannedRecord], seen: bytearray, redacted: Counter[str] | None) -> tuple[int, int]:
    messages = events = 0
    for entry in entries:
        if redacted is not None:
            redacted.update(entry.extra.get("redacted", ()))
        if entry.message is None:
            events += 1
        else:
            messages += 1
        mark = _IN_EVENT if entry.message is None else _IN_MESSAGE
        for number in entry.lines:
            if number >= len(seen):  # of a part: its lines stand between others
                seen.extend(bytes(number + 1 - len(seen)))
            seen[number] |= mark
    return messages, events


# ---- note ----
#
# What an import notes in the transcript itself, as the last record of each batch that it writes.
#
# The note is an event, ``extra.import``. It becomes durable together with what it speaks of, so the two cannot disagree, whatever
# interrupts an import; and it travels with the conversation into backups and forks. Its members:
#
# ::
#
# format, version, session   whose session it is
# generation, generations    which of the source's generations the batch belongs to, of how many
# complete                   whether the batch ends the generation
# lines                      how many lines the source has of the session
# file                       name, size, mtime_ns, inode, and the sha256 of what was read (null where it has other
# sessions too, for tables, and where its bytes changed meanwhile)
# findings, losses           at most 100 of each; findings_count and losses_count say how many there were
# tail_base64                what stands behind the last line end
# reader                     the revision of the reader; 1 where it is missing
# redaction                  what was taken out, if it was imported so: the version of the known forms, and marks of the patterns
# edition                    of an export: when the session last changed, and when something was last said in it
# metadata                   what was put into the metadata: what differs from it now, a user changed
# at                         when it was imported

_NAMESPACE = uuid.UUID("5a1c3f0e-8f0b-5d38-9f3c-0c6f3b6f7f64")
_MOST = 100
_LONGEST_TAIL_BYTES = 16 << 20


def conversation_id(format: str, session: str, copy: int = 1) -> str:
    """The id that a session has in every library. Later copies are those that ``diverged="fork"`` makes."""
    name = f"{format}\0{session}" + (f"\0{copy}" if copy > 1 else "")
    return str(uuid.uuid5(_NAMESPACE, name.encode("utf-8", "surrogatepass").decode("latin-1")))


def revision_of(reader: SessionReader) -> int:
    """The revision of a reader, which grows when its plans change."""
    return int(getattr(reader, "revision", 1))


def file_facts(source: FileSource | Rows, *, is_alone: bool) -> dict[str, Any]:
    """A source as the note has it; ``sha256`` where the session is the whole file."""
    # None if it may not be that of the lines on record: the next import compares them all, and notes it then.
    sha256 = source.sha256_of_what_was_read() if is_alone and isinstance(source, FileSource) else None
    return {"name": encodable(source.name), **source.stamp._asdict(), "sha256": sha256}


def new_note(
    plan: SessionPlan, file: Mapping[str, Any], metadata: Mapping[str, Any], *, generation: int, complete: bool
) -> dict[str, Any]:
    """The note for a batch, as the ``extra`` of its record."""
    return {
        "import": {
            "format": plan.format,
            "version": None if plan.version is None else encodable(plan.version),
            "session": encodable(plan.session),
            "reader": plan.revision,
            "generation": generation,
            "generations": len(plan.generations),
            "complete": complete,
            "lines": plan.lines,
            "file": dict(file),
            "findings_count": len(plan.findings),
            "findings": [_plain_members(finding) for finding in plan.findings[:_MOST]],
            "losses_count": len(plan.losses),
            "losses": [_plain_members(loss) for loss in plan.losses[:_MOST]],
            "tail_base64": tail_of(plan),
            **({} if plan.redaction is None else {"redaction": dict(plan.redaction)}),
            **({} if plan.edition is None else {"edition": list(plan.edition)}),
            "metadata": {"provider": plan.provider, **metadata},
            "at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
    }


def tail_of(plan: SessionPlan) -> str | None:
    """The bytes after the last line end, in base64; None if they are too long for the note."""
    return base64.b64encode(plan.tail).decode() if len(plan.tail) <= _LONGEST_TAIL_BYTES else None


def encodable(text: str) -> str:
    """A text that JSON can hold: a path that is not UTF-8, or half a surrogate pair, gets escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _plain_members(what: ImportFinding | Loss) -> dict[str, Any]:
    return {name: encodable(value) if isinstance(value, str) else value for name, value in asdict(what).items()}
