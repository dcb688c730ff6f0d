"""What became of a session: counted over the lines of its source, so that none is lost in silence (F6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import Entry, Finding, Head, Loss, Plan, Reader, nearly_lines

Action = Literal[
    "created", "grew", "unchanged", "replaced", "reread", "diverged", "empty", "deleted", "refused", "skipped"
]
_IN_MESSAGE, _IN_EVENT = 1, 2
UNREAD = "unread"
_UNREAD = (
    "somebody speaks here, and no line is a message as {} writes it: the lines are kept as events. Another program may have written "
    "the file, or a newer version"
)
_SPEAKERS = frozenset({"user", "human", "assistant", "model", "gemini"})


@dataclass(frozen=True, slots=True)
class Lines:
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
    """``created``; ``grew``: records were added; ``unchanged``: nothing was written; ``replaced``: the source was rewritten, and a
    new generation has what it says now; ``reread``: the same, because this version reads more of the source, or otherwise;
    ``diverged``: it changed, and so did the conversation: nothing was written;
    ``empty``: no message stands in it, or none but the program's own where the session is on record: nothing was written;
    ``deleted``: its conversation was deleted, pruned or shredded in this library: nothing was written;
    ``refused``: it could not be read, or not be stored; ``skipped``: a file in a folder that somebody named is of no format that
    is known here."""
    source: str
    """The path, or an archive's path and the member's name."""
    id: str | None = None
    """The conversation's; None where there is no session."""
    format: str | None = None
    session: str | None = None
    title: str | None = None
    is_part: bool = False
    """Whether its lines are another session's of this source too: a sub-agent, a branch that was left."""
    messages: int = 0
    """How many messages the live generation has of the source."""
    events: int = 0
    lines: Lines = Lines()
    findings: tuple[Finding, ...] = ()
    losses: tuple[Loss, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets were taken out, by their kind."""
    reason: str | None = None
    """Of what diverged or was refused: why, in a sentence. Of what was skipped: what it nearly is; None if it is nothing like a session."""
    beside: Mapping[str, tuple[int, int, int] | None] = field(default_factory=dict, repr=False, compare=False)
    """The files beside the source that were looked at for its title and its parent, by their paths: size, mtime in nanoseconds and inode;
    None where there was none."""
    error: TranscriptStoreError | None = field(default=None, compare=False)
    """What the library refused it with, if it did: ``reason`` is its sentence, and its ``way_out`` is data."""


def counted(plan: Plan, *, source: str) -> ImportReport:
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
        findings = (*findings, Finding("unaccounted", f"the reader says nothing of {left_out - said:,} lines"))
    if not in_messages and any(_says_something(entry) for entries in plan.generations for entry in entries()):
        findings = (*findings, Finding(UNREAD, _UNREAD.format(plan.format)))
    return ImportReport(
        action="unchanged",
        source=source,
        format=plan.format,
        session=plan.session,
        title=plan.labels.get("title"),
        is_part=plan.is_part,
        messages=messages,
        events=events,
        lines=Lines(plan.lines, in_messages, in_events, left_out),
        findings=findings,
        losses=plan.losses,
        redacted=dict(redacted),
    )


def refused(source: str, reason: str) -> ImportReport:
    """The report on what could not be imported."""
    return ImportReport(action="refused", source=source, reason=reason)


def is_blank(head: Head) -> bool:
    """True if a source that begins so has no byte but white space, or an array of nothing, as far as its beginning says."""
    return not head.tables and head.start.strip(b"\xef\xbb\xbf \t\r\n\v\f") in (b"", b"[]")


def unknown(head: Head, name: str, *, is_expected: bool) -> ImportReport:
    """The report on what no reader knows: an error, unless it may be anything."""
    reason: str | None
    if head.objects and head.objects[0].get("format") == "transcript-store":
        reason = (
            "is a conversation of this library's own, which needs no import: `transcript-store fork`, in Python "
            "ConversationLibrary.fork_from(directory, into=), copies it"
        )
    else:
        reason = nearly_lines(head)
    if not is_expected:
        return replace(refused(name, ""), action="skipped", reason=reason)
    return refused(name, reason or "is of no format that is known here; if you know its format, name it (--format)")


def misnamed(reader: Reader, other: Reader | None, head: Head) -> str:
    """Why a source that holds not one message of the format that somebody named is not imported: it would be an empty conversation."""
    said = nearly_lines(head) or f"not one line is a message of the format {reader.name}"
    return said if other is None else f"{said}; it looks like {other.name}: --format {other.name}"


def _says_something(entry: Entry) -> bool:
    """Whether a line that is no message names who speaks, and has what was said."""
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


def _count(entries: Iterable[Entry], seen: bytearray, redacted: Counter[str] | None) -> tuple[int, int]:
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
