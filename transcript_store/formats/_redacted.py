"""A plan without secrets: its messages, what is kept of its lines, and what it says of itself.

The same plan with the same redactor is always the same, so an import again meets what is on record. What a reader tells apart,
a session by its id and a line by its number, stays.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from transcript_store.formats._plan import Entry, Plan

if TYPE_CHECKING:
    from transcript_store.redaction import SecretRedactor


def redacted_plan(plan: Plan, redactor: SecretRedactor) -> Plan:
    """The plan as it may be stored. A line that is still being written is not kept: half a secret has no form."""

    def clean(value: Any) -> Any:
        return redactor.redact(value).value

    return replace(
        plan,
        generations=tuple(partial(_entries, generation, redactor) for generation in plan.generations),
        model=clean(plan.model),
        system_prompt=clean(plan.system_prompt),
        tools=tuple(clean(list(plan.tools))),
        labels=clean(dict(plan.labels)),
        findings=tuple(replace(finding, message=clean(finding.message)) for finding in plan.findings),
        tail=b"",
        redaction=redaction_of(redactor),
    )


def redacted_extra(extra: Mapping[str, Any], redactor: SecretRedactor) -> tuple[dict[str, Any], Mapping[str, int]]:
    """A record's ``extra`` without secrets, also in what is kept of its lines; and how many of each kind there were."""
    counts: Counter[str] = Counter()

    def clean(value: Any) -> Any:
        found = redactor.redact(value)
        counts.update(found.counts)
        return found.value

    def without_names(members: Mapping[str, Any], *kept: str) -> dict[str, Any]:
        """The names of these members are ours, whatever a pattern matches."""
        return {name: value if name in kept else clean(value) for name, value in members.items()}

    now = without_names(extra, "source")
    if isinstance(source := extra.get("source"), dict):
        now["source"] = without_names(source, "lines")
        if isinstance(lines := source.get("lines"), list):
            now["source"]["lines"] = [_line(line, clean) for line in lines]
    return now, dict(counts)


def redacted_record(
    message: dict[str, Any] | None, extra: Mapping[str, Any] | None, redactor: SecretRedactor
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, Mapping[str, int]]:
    """A message and its extra without secrets, and how many of each kind there were."""
    said, in_message = redactor.redact(message)
    beside, in_extra = (None, {}) if extra is None else redacted_extra(extra, redactor)
    return said, beside, _most(in_message, in_extra)


def _most(*found: Mapping[str, int]) -> dict[str, int]:
    """The counts of one record, from those of its parts: a secret of the message may stand in its line too, and is one."""
    return {kind: max(counts.get(kind, 0) for counts in found) for kind in sorted({*chain(*found)})}


def _line(packed: Any, clean: Callable[[Any], Any]) -> Any:
    if not isinstance(packed, dict):
        return clean(packed)
    now = {name: clean(packed[name]) for name in ("line", "raw") if name in packed}
    now |= {name: clean({name: packed[name]})[name] for name in ("raw_base64",) if name in packed}
    return {**packed, **now}


def redaction_of(redactor: SecretRedactor) -> dict[str, Any]:
    """By what is seen whether two redactors take out the same. A pattern may be a secret itself: 32 bits of its hash tell nothing."""
    patterns = {hashlib.sha256(text.encode()).hexdigest()[:8] for text in redactor.patterns}
    from transcript_store.redaction import KNOWN  # its patterns take a while, and most of what is read is not redacted

    return {"known": KNOWN, "patterns": sorted(patterns)}


def _entries(entries: Callable[[], Iterable[Entry]], redactor: SecretRedactor) -> Iterator[Entry]:
    for entry in entries():
        yield _entry(entry, redactor)


def _entry(entry: Entry, redactor: SecretRedactor) -> Entry:
    message, extra, in_record = redacted_record(entry.message, entry.extra, redactor)
    at, in_at = redactor.redact(entry.at)
    if not (in_record or in_at):
        return entry
    return entry._replace(message=message, extra={**(extra or {}), "redacted": _most(in_record, in_at)}, at=at)
