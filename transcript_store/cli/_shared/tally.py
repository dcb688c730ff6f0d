"""What an import did, for a person: a line a session as it comes, and the sum."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, replace

from transcript_store import ConversationLibrary
from transcript_store.cli._shared.redaction import redacted
from transcript_store.cli._shared.terminal import (
    columns,
    complain,
    counted,
    fitting,
    for_shell,
    has_status,
    many,
    one_line,
    say,
    say_json,
    status,
)
from transcript_store.cli._shared.ways_out import sentence
from transcript_store.importing import UNREAD, ImportReport

_SHOWN_FINDINGS = _SHOWN_REASONS = 5
_TITLE_COLUMNS, _LEAST_TITLE_COLUMNS = 80, 10


class Tally:
    """What was imported so far. Prints each report as it comes, except those of what did not change."""

    def __init__(self, *, is_json: bool, is_dry_run: bool, is_redacted: bool = False) -> None:
        self._is_json = is_json
        self._is_dry_run = is_dry_run
        self._is_redacted = is_redacted
        self._actions: Counter[str] = Counter()
        self._lines: Counter[str] = Counter()
        self._findings: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._why: Counter[str] = Counter()
        """Of files that were skipped and nearly are of a format: what they are."""
        self._such_as: dict[str, str] = {}
        self._redacted: Counter[str] = Counter()
        self._empty = 0
        self._last: str | None = None

    @property
    def exit_code(self) -> int:
        """1 if anything was left out, or nothing of what was said was read. What was skipped is no session."""
        lost = (self._actions["refused"], self._actions["diverged"], self._lines["left_out"], self._findings[UNREAD])
        return int(any(lost))

    @property
    def done(self) -> str:
        """How many sessions, by what was done with them."""
        return ", ".join(f"{count:,} {action}" for action, count in self._actions.items()) or "nothing was found"

    def add(self, report: ImportReport) -> None:
        """Count a report, and print it."""
        if report.error is not None:
            report = replace(report, reason=sentence(report.error))
        if report.action == "skipped":
            self._skipped[os.path.splitext(report.source)[1] or "without an ending"] += 1
            if report.reason is not None:
                self._why[report.reason] += 1
                self._such_as.setdefault(report.reason, report.source)
        elif report.action == "empty":
            self._empty += 1
        else:
            self._actions[report.action] += 1
        # The lines of a part were counted with the whole, and those of what was refused, or diverged, are not stored.
        if not report.is_part and report.action not in ("refused", "diverged", "empty"):
            self._lines.update(asdict(report.lines))
            self._findings.update(finding.kind for finding in report.findings)
            self._redacted.update(report.redacted)
        for loss in report.losses:
            self._losses[loss.message] += loss.count
        if report.action not in ("refused", "diverged", "empty", "skipped") and not report.is_part and report.messages:
            self._last = report.id
        if self._is_json:
            members = asdict(report)
            del (
                members["error"],
                members["beside"],
            )  # the one is the reason, the other tells the next import what changed
            say_json(members)
        else:
            self._say(report)

    def _say(self, report: ImportReport) -> None:
        if report.action in ("unchanged", "empty", "skipped"):
            return
        if has_status():
            status("")
        if report.reason is not None and report.action != "replaced":  # of a redaction the sum speaks
            complain(f"{report.source}: {report.action}: {report.reason}")
            return
        counts = f"{many(report.messages, 'message')}, {many(report.events, 'event')}"
        _say_session(f"{report.action:<9} {report.id}  {counts}", report)
        for finding in report.findings[:_SHOWN_FINDINGS]:
            places = (("line", finding.line or None), ("byte", finding.offset))
            where = ", ".join(f"{what} {number}" for what, number in places if number is not None)
            say(f"    {where}{': ' if where else ''}{one_line(finding.message)}")
        if (more := len(report.findings) - _SHOWN_FINDINGS) > 0:
            say(f"    and {many(more, 'finding')} more (--json has all)")

    def say_all(self, library: ConversationLibrary, what: str) -> None:
        """Print the sum: sessions by what was done, behind what was done altogether; and where the lines ended."""
        if self._actions or not (self._skipped or self._empty):
            say(f"{what}{'would be: ' if self._is_dry_run else ''}{self.done}")
        if self._empty:
            say(f"left out: {many(self._empty, 'session')} in which nothing was said (--empty imports the new ones)")
        if number := self._skipped.total():
            endings = ", ".join(f"{count:,} {one_line(ending)}" for ending, count in self._skipped.most_common())
            say(f"skipped: {many(number, 'file')} of no format that is known here: {endings} (--json names each)")
            for reason, count in self._why.most_common(_SHOWN_REASONS):
                others = f" (and {count - 1:,} more)" if count > 1 else ""
                say(f"    {one_line(self._such_as[reason])}: {one_line(reason)}{others}")
        lines = self._lines
        if lines["total"]:
            say(
                f"{many(lines['total'], 'line')}: {lines['in_messages']:,} in messages, {lines['in_events']:,} in events, "
                f"{lines['left_out']:,} left out"
            )
        if self._findings:
            say("findings: " + ", ".join(f"{count:,} {one_line(kind)}" for kind, count in self._findings.items()))
        if self._is_redacted and set(self._actions) - {
            "unchanged",
            "refused",
            "diverged",
        }:  # else nothing was looked at
            say(redacted(self._redacted))
        if self._losses:
            say("what a model is sent differs from the source:")
            for loss in counted(self._losses):
                say(f"    {one_line(loss)}")
        if self._last is not None and not self._is_dry_run:
            name = for_shell(os.path.join(library.directory, self._last))
            say(f"go on with one of them: transcript-store chat {name}")


def _say_session(what: str, report: ImportReport) -> None:
    """On one line; at a terminal where it came from, which is long and not to be cut, has a line of its own."""
    source, title = f"from {report.format}: {one_line(report.source)}", one_line(report.title or "")
    width = columns()
    if width is None:
        say(f"{what}  {source}" + (f"  {fitting(title, _TITLE_COLUMNS)}" if title else ""))
        return
    room = width - len(what) - 2
    say(f"{what}  {fitting(title, room)}" if title and room >= _LEAST_TITLE_COLUMNS else what)
    say(f"    {source}")
