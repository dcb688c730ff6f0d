"""The result of an import, for a person: a line for each program or session, and a total."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace

from transcript_store import (
    ConversationLibrary,
)
from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.names import (
    command_name,
)
from transcript_store.cli._shared.redaction import redaction_counts
from transcript_store.cli._shared.terminal import (
    columns,
    complain,
    count_lines,
    fitting,
    has_status,
    many,
    one_line,
    say,
    say_json,
    status,
)
from transcript_store.importing import UNREAD, ImportReport

_SHOWN_FINDINGS = _SHOWN_REASONS = 5
_TITLE_COLUMNS, _LEAST_TITLE_COLUMNS = 80, 10
_NOT_STORED = ("refused", "diverged", "deleted", "empty")
_CHANGED = ("created", "grew", "replaced", "reread")
_IN_A_DRY_RUN = {
    "created": "would be created",
    "grew": "would grow",
    "replaced": "would be replaced",
    "reread": "would be read again",
}


class ImportTally:
    """The result so far.

    With ``is_verbose`` each report of a change is printed as it comes; otherwise only those with something left out.
    """

    def __init__(
        self,
        programs: Mapping[str, str],
        *,
        is_json: bool,
        is_dry_run: bool,
        is_verbose: bool,
        is_redacted: bool = False,
    ) -> None:
        self._programs = programs
        """The program of each source, by path."""
        self._is_json = is_json
        self._is_dry_run = is_dry_run
        self._is_verbose = is_verbose
        self._is_redacted = is_redacted
        self._actions: Counter[str] = Counter()
        self._of_program: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._lines: Counter[str] = Counter()
        self._findings: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._why: Counter[str] = Counter()
        """Skipped files that resemble a format, by reason."""
        self._such_as: dict[str, str] = {}
        self._redacted: Counter[str] = Counter()
        self._empty = 0
        self._parts: Counter[str] = Counter()
        """For each program, how many sessions are inside the file of another one, such as a sub-agent's."""
        self._last: str | None = None

    @property
    def exit_code(self) -> int:
        """1 if anything was left out, or no message was read. Skipped files are not sessions."""
        lost = (self._actions["refused"], self._actions["diverged"], self._lines["left_out"], self._findings[UNREAD])
        return int(any(lost))

    @property
    def done(self) -> str:
        """The number of sessions by action."""
        return self._counted(self._actions) or "nothing was found"

    def _counted(self, actions: Counter[str]) -> str:
        return ", ".join(f"{count:,} {self._word(action)}" for action, count in actions.items() if count)

    def _word(self, action: str) -> str:
        if action == "empty":
            return "without a message"
        return _IN_A_DRY_RUN.get(action, action) if self._is_dry_run else action

    def add(self, report: ImportReport) -> None:
        """Count a report, and print it if it is to be."""
        if report.error is not None:
            report = replace(report, reason=error_sentence(report.error))
        if report.action == "skipped":
            self._skipped[os.path.splitext(report.source)[1] or "without a suffix"] += 1
            if report.reason is not None:
                self._why[report.reason] += 1
                self._such_as.setdefault(report.reason, report.source)
        else:
            program = self._programs.get(report.source) or report.format or "other files"
            self._of_program[program][report.action] += 1
            self._parts[program] += report.is_part
            if report.action == "empty":
                self._empty += 1
            else:
                self._actions[report.action] += 1
        # The lines of a part were counted with the whole; those of refused and diverged sessions are not stored.
        if not report.is_part and report.action not in _NOT_STORED:
            self._lines.update(asdict(report.lines))
            self._findings.update(finding.kind for finding in report.findings)
            self._redacted.update(report.redacted)
        for loss in report.losses:
            self._losses[loss.message] += loss.count
        if report.action in _CHANGED and not report.is_part and report.messages:
            self._last = report.id
        if self._is_json:
            members = asdict(report)
            del (
                members["error"],
                members["beside"],
            )  # one is the reason, the other shows the next import what changed
            say_json(members)
        else:
            self._say(report)

    def _say(self, report: ImportReport) -> None:
        if report.action in ("unchanged", "empty", "skipped", "deleted"):
            return
        if report.reason is not None and report.action != "replaced":  # the total reports redactions
            self._clear()
            complain(f"{report.source}: {report.action}: {report.reason}")
        elif self._is_verbose or (report.lines.left_out and not report.is_part):
            self._clear()
            counts = f"{many(report.messages, 'message')}, {many(report.events, 'event')}"
            _say_session(f"{self._word(report.action):<9} {report.id}  {counts}", report)
            for finding in report.findings[:_SHOWN_FINDINGS]:
                places = (("line", finding.line or None), ("byte", finding.offset))
                where = ", ".join(f"{what} {number}" for what, number in places if number is not None)
                say(f"    {where}{': ' if where else ''}{one_line(finding.message)}")
            if (more := len(report.findings) - _SHOWN_FINDINGS) > 0:
                say(f"    and {many(more, 'finding')} more (--json has all)")

    @staticmethod
    def _clear() -> None:
        if has_status():
            status("")

    def say_all(self, library: ConversationLibrary, what: str) -> None:
        """Print the totals: a line for each program, sessions by action, and what became of the lines. ``what`` is a prefix."""
        if len(self._of_program) > 1 and self._actions:
            width = max(map(len, self._of_program))
            for program, actions in self._of_program.items():
                say(f"{one_line(program):<{width}}  {self._counted(actions)}{_inside(self._parts[program])}")
        if self._actions or not (self._skipped or self._empty):
            say(f"{what}{'dry run: ' if self._is_dry_run else ''}{self.done}{_inside(self._parts.total())}")
        if self._actions["deleted"]:
            say("deleted: their conversations were deleted here; --again imports them again, but not on a backend")
        if self._empty:
            say(f"left out: {many(self._empty, 'session')} without a message (--empty imports the new ones)")
        if number := self._skipped.total():
            endings = ", ".join(f"{count:,} {one_line(ending)}" for ending, count in self._skipped.most_common())
            say(f"skipped: {many(number, 'file')} of an unknown format: {endings} (--json names each)")
            for reason, count in self._why.most_common(_SHOWN_REASONS):
                others = f" (and {count - 1:,} more)" if count > 1 else ""
                say(f"    {one_line(self._such_as[reason])}: {one_line(reason)}{others}")
        lines = self._lines
        if lines["total"] and set(self._actions) - {"unchanged"}:
            say(
                f"{many(lines['total'], 'line')}: {lines['in_messages']:,} in messages, {lines['in_events']:,} in events, "
                f"{lines['left_out']:,} left out"
            )
        self._say_notes()
        if self._is_redacted and set(self._actions) - {"unchanged", *_NOT_STORED}:  # else nothing was read
            say(redaction_counts(self._redacted))
        if self._last is not None and not self._is_dry_run:
            say(f"continue one of them: transcript-store chat {command_name(library.directory, self._last)}")

    def _say_notes(self) -> None:
        """The findings of the readers, and what a model will be sent differently: in full with ``-v``."""
        if not self._is_verbose:
            notes = [many(self._findings.total(), "finding")] if self._findings else []
            notes += [f"{many(self._losses.total(), 'part')} that a model is sent differently"] if self._losses else []
            if notes:
                say(f"{' and '.join(notes)} (-v lists them)")
            return
        if self._findings:
            say("findings: " + ", ".join(f"{count:,} {one_line(kind)}" for kind, count in self._findings.items()))
        if self._losses:
            say("what a model is sent differs from the source:")
            for loss in count_lines(self._losses):
                say(f"    {one_line(loss)}")


def _inside(count: int) -> str:
    return f" ({count:,} of them inside another session's file)" if count else ""


def _say_session(what: str, report: ImportReport) -> None:
    """Print a session on one line; on a terminal its long source has a line of its own."""
    source, title = f"from {report.format}: {one_line(report.source)}", one_line(report.title or "")
    width = columns()
    if width is None:
        say(f"{what}  {source}" + (f"  {fitting(title, _TITLE_COLUMNS)}" if title else ""))
        return
    room = width - len(what) - 2
    say(f"{what}  {fitting(title, room)}" if title and room >= _LEAST_TITLE_COLUMNS else what)
    say(f"    {source}")
