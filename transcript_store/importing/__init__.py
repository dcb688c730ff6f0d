"""Other programs' histories, into a library of conversations: whole, with their own times, once and not twice.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.importing import import_conversations

    library = ConversationLibrary("chats")
    for report in import_conversations(["sessions"], library):  # or discover(): what is on this machine
        print(report.action, report.id, report.messages, report.findings, report.reason)

docs/import.md has the promises F1 to F8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from transcript_store.errors import PoisonedError, StorageError
from transcript_store.formats import READERS, Head, Plan, Reader, redacted_plan, redaction_of
from transcript_store.importing._committed import committed
from transcript_store.importing._importer import Importer
from transcript_store.importing._note import conversation_id, note_of
from transcript_store.importing._report import Action, ImportReport, Lines, misnamed, refused, unknown
from transcript_store.importing._stamps import Stamps
from transcript_store.importing._threads import in_threads, one_by_one
from transcript_store.library import ConversationGroup, ConversationLibrary
from transcript_store.redaction import SecretRedactor, require_redactor
from transcript_store.sources import (
    FileSource,
    Found,
    Rows,
    UnreadableSourceError,
    UnusableFormatError,
    added_formats,
    added_names,
    discover,
    find,
    parts_of,
)

__all__ = [
    "Action",
    "Found",
    "ImportReport",
    "Lines",
    "conversation_id",
    "discover",
    "find",
    "import_conversations",
    "note_of",
]


def import_conversations(
    sources: Iterable[Found | str | os.PathLike[str]],
    library: ConversationLibrary,
    *,
    format: str | None = None,
    diverged: Literal["report", "fork"] = "report",
    dry_run: bool = False,
    since: datetime | None = None,
    cache: str | os.PathLike[str] | None = None,
    redact: SecretRedactor | None = None,
) -> Iterator[ImportReport]:
    """Import sessions, and keep up with those that were imported before; a report a session, as soon as it is done.

    Nothing is imported before somebody asks for the reports: iterate over them, to the end.
    When a report has come, what it tells of is durable. Those of sources that ``cache`` knows come first. A session has the
    same id in every library, so importing it twice, or from two processes, or from a copy of the file, is importing it once.
    What grew since is added, what was rewritten becomes a new generation, and what was added here is never overwritten. A
    source is opened to read only. The formats that installed packages add are asked too; one that cannot be used gives a report
    (``refused``), and hinders nobody else.

    Args:
        sources: what :func:`discover` or :func:`find` found, or paths of files and folders.
        library: where the conversations go.
        format: the name of the format to read, one of ours or one that an installed package adds; None to tell it from how each
            source begins. The packages are imported unless it is one of ours.
        diverged: what is done where the source changed and somebody went on with the conversation here: ``"report"`` leaves both
            as they are, ``"fork"`` imports the source as another conversation, and keeps up with that.
        dry_run: only say what would be done.
        since: leave out files that did not change after this moment, an aware ``datetime``; no report comes for them.
        cache: a folder in which is kept how sources and conversations looked, so that what looks the same is not read again; its
            report has no findings. It is made if it is not there, and can be deleted at any time. None for no such folder.
        redact: takes secrets out before anything is stored. A record from which some were taken counts them in ``extra.redacted``.
            Later imports of these sessions need a redactor that takes out as much, or more.

    Raises:
        TypeError: an argument is of another type: one path instead of a list, a directory instead of a library; before anything is read.
        ValueError: there is no such format, ``diverged`` is neither, or ``since`` has no time zone; before anything is read.
        UnusableFormatError: the format that was named is a package's, and cannot be used; before anything is read.
        StorageError: while it is iterated; the system refused to write. What was reported before is whole; go on by
            importing again.
        PoisonedError: the same, after a failed sync.
    """
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(f"sources must be a list of paths, not {type(sources).__name__}: give [path]")
    if not isinstance(library, ConversationLibrary):
        kind = type(library).__name__
        raise TypeError(f"library must be a ConversationLibrary, not {kind}: ConversationLibrary(directory) makes one")
    if since is not None and not isinstance(since, datetime):
        raise TypeError(f"since must be an aware datetime, not {type(since).__name__}")
    if since is not None and since.tzinfo is None:
        raise ValueError("since has no time zone: it does not say which moment it means")
    if diverged not in ("report", "fork"):
        raise ValueError(f"diverged must be 'report' or 'fork', not {diverged!r}")
    readers, unusable = _readers(format)
    if redact is not None:
        require_redactor(redact)
    redaction = None if redact is None else redaction_of(redact)
    stamps = Stamps(cache, library, redaction=redaction, is_kept=not dry_run)
    reading = _Reading(format, readers, redact)
    reports = _run(sources, library, stamps, reading, diverged=diverged, dry_run=dry_run, since=since)
    return chain((refused(error.distribution, str(error)) for error in unusable), reports)


class _Reading(NamedTuple):
    """How sources are read."""

    format: str | None
    """The name that was given; None to tell the format from how each source begins."""
    readers: list[Reader]
    """Those that are asked, in this order; of a format that was named the only one."""
    redactor: SecretRedactor | None


def _run(
    sources: Iterable[Found | str | os.PathLike[str]],
    library: ConversationLibrary,
    stamps: Stamps,
    reading: _Reading,
    *,
    diverged: Literal["report", "fork"],
    dry_run: bool,
    since: datetime | None,
) -> Iterator[ImportReport]:
    """Those that look as they did; then the others, in a group."""
    changed: list[Found] = []
    own = f"{library.directory}/"
    for one in _looked_at(sources):
        if isinstance(one, ImportReport):
            yield one
        elif one.path.startswith(own):
            continue  # a folder that is imported may hold the library
        elif one.why_not is not None:
            yield refused(one.path, one.why_not)
        elif since is not None and one.mtime_ns < since.timestamp() * 1e9:
            continue
        elif (known := stamps.unchanged(one, reading.format)) is not None:
            yield from known
        else:
            changed.append(one)
    if not changed:
        return
    try:
        with nullcontext() if dry_run else library.together() as group:
            is_first = _is_empty(library)
            importer = Importer(library, group, diverged=diverged, dry_run=dry_run, is_first=is_first)
            # Threads are for what waits for the disk: an append, a replace, a conversation that is created by itself.
            waits = not is_first or group is None or group.creates_alone
            at_once = in_threads if waits else one_by_one
            yield from _Import(importer, library, group, stamps, reading, at_once).run(changed)
    finally:
        stamps.save()


class _Import:
    """Sources that are read, in one call of :func:`import_conversations`. Without a group nothing is written."""

    def __init__(
        self,
        importer: Importer,
        library: ConversationLibrary,
        group: ConversationGroup | None,
        stamps: Stamps,
        reading: _Reading,
        at_once: Callable[[Callable[[Any], Any], Iterable[Any]], Generator[Any, None, None]],
    ) -> None:
        self._importer, self._library, self._group = importer, library, group
        self._format, self._readers, self._redactor = reading
        self._stamps = stamps
        self._at_once = at_once

    def run(self, changed: list[Found]) -> Iterator[ImportReport]:
        """The reports, each when what it tells of is durable."""
        with closing(self._at_once(self._of_one, changed)) as done:
            for found, reports in committed(zip(changed, done, strict=True), self._group, self._of_one):
                self._stamps.note(found, reports)
                yield from reports

    def _of_one(self, found: Found) -> list[ImportReport]:
        return list(self._of_file(found.path, is_expected=found.is_expected))

    def _of_file(self, path: str, *, is_expected: bool) -> Iterator[ImportReport]:
        try:
            with parts_of(path) as parts:
                for part in parts:
                    if isinstance(part, UnreadableSourceError):
                        yield refused(part.path, part.reason)
                    else:
                        yield from self._of_part(*part, is_expected=is_expected)
        except UnreadableSourceError as error:
            yield refused(error.path, error.reason)

    def _of_part(self, head: Head, source: FileSource | Rows, *, is_expected: bool) -> Iterator[ImportReport]:
        reader, failures = self._reader_for(head)
        for why in failures:
            yield refused(source.name, self._without_secrets(why))
        if reader is None:
            yield unknown(head, source.name, is_expected=is_expected)
            return
        try:
            if self._format is not None and not reader.recognizes(head) and not _says_anything(reader, source):
                yield refused(source.name, misnamed(reader, _recognized(READERS, head)[0], head))
            else:
                yield from self._of_sessions(reader, source)
        except (StorageError, PoisonedError, UnreadableSourceError):
            raise
        except Exception as error:  # a reader met what nobody thought of: the other sources are imported all the same
            if (
                isinstance(source, FileSource) and source.is_rewritten
            ):  # its second look was at another file than its first
                yield refused(source.name, "was rewritten or cut while it was read; import it again")
                return
            yield refused(source.name, self._without_secrets(f"cannot be read as {_said_by(reader, error)}"))

    def _without_secrets(self, sentence: str) -> str:
        return sentence if self._redactor is None else str(self._redactor.redact(sentence).value)

    def _reader_for(self, head: Head) -> tuple[Reader | None, list[str]]:
        return (self._readers[0], []) if self._format is not None else _recognized(self._readers, head)

    def _of_sessions(self, reader: Reader, source: FileSource | Rows) -> Iterator[ImportReport]:
        plans = map(partial(_of_its_own_format, reader), reader.plans(source))
        if self._redactor is not None:
            plans = map(partial(redacted_plan, redactor=self._redactor), plans)
        # The bytes of a file are those of its only session. Its parts are views of the same lines.
        first: list[Plan] = []
        while sum(not plan.is_part for plan in first) < 2 and (plan := next(plans, None)) is not None:
            first.append(plan)
        if not first:
            yield refused(source.name, f"holds no session that {reader.name} can read")
        is_only_one = sum(not plan.is_part for plan in first) == 1

        def put(plan: Plan) -> ImportReport:
            return self._importer.put(plan, source, is_alone=is_only_one and not plan.is_part)

        seen: set[str] = set()
        again: list[Plan] = []

        def each_once() -> Iterator[Plan]:
            for plan in chain(first, plans):
                if plan.session in seen:
                    again.append(plan)
                else:
                    seen.add(plan.session)
                    yield plan

        # A connection to a database is used in the thread that opened it.
        at_once = one_by_one if isinstance(source, Rows) else self._at_once
        yield from at_once(put, each_once())
        if again and self._group is not None:
            self._group.commit()
        # Now the first one is on record: put beside it, the second would replace it, and the first that one the next time (F2).
        for plan in again:
            yield self._of_second(plan, source)

    def _of_second(self, plan: Plan, source: FileSource | Rows) -> ImportReport:
        """A session whose id another one in the same source has: left out, unless it is the same one."""
        looker = Importer(self._library, None, diverged="report", dry_run=True)
        report = looker.put(plan, source, is_alone=False)
        if report.action in ("unchanged", "refused"):
            return report
        reason = "another session in this source has the same id, and came first; this one was left out"
        return replace(report, action="diverged", reason=reason)


def _is_empty(library: ConversationLibrary) -> bool:
    try:
        with os.scandir(library.directory) as there:
            return next(there, None) is None
    except FileNotFoundError:
        return True


def _looked_at(sources: Iterable[Found | str | os.PathLike[str]]) -> Iterator[Found | ImportReport]:
    """What stands at the given paths; a report for one at which there is nothing."""
    for given in sources:
        if isinstance(given, Found):
            yield given
            continue
        try:
            yield from list(find(given))
        except OSError as error:
            yield refused(os.fspath(given), f"cannot be looked at: {error.strerror}")


def _says_anything(reader: Reader, source: FileSource | Rows) -> bool:
    entries = (entry for plan in reader.plans(source) for generation in plan.generations for entry in generation())
    return any(entry.message is not None for entry in entries)


def _readers(format: str | None) -> tuple[list[Reader], list[UnusableFormatError]]:
    """The readers to be asked, in this order, and the formats of installed packages that cannot be used.

    Raises:
        ValueError: there is no such format.
        UnusableFormatError: it is a package's, and cannot be used.
    """
    ours = [reader for reader in READERS if format in (None, reader.name)]
    if format is not None and ours:
        return ours, []
    added, unusable = added_formats(format)
    theirs = [one.reader for one in added.values() if one.reader is not None]
    if format is None:
        return [*ours[:-1], *theirs, ours[-1]], unusable  # the generic one last
    if unusable:
        raise unusable[0]
    if not theirs:
        names = [*(reader.name for reader in READERS), *added_names()]
        raise ValueError(f"there is no format {format!r} to read; there are {', '.join(names)}")
    return theirs, []


def _recognized(readers: Iterable[Reader], head: Head) -> tuple[Reader | None, list[str]]:
    """The first reader that recognizes it, and why others could not say whether they do."""
    failures: list[str] = []
    for reader in readers:
        try:
            if reader.recognizes(head):
                return reader, failures
        except Exception as error:  # somebody else's reader; the next one is asked
            failures.append(f"was not looked at as {_said_by(reader, error)}")
    return None, failures


def _of_its_own_format(reader: Reader, plan: Plan) -> Plan:
    if plan.format != reader.name:  # its conversations would take the ids of another format's
        raise ValueError(f"it gives a plan of the format {plan.format!r}")
    return plan


def _said_by(reader: Reader, error: Exception) -> str:
    return f"{reader.name} ({type(error).__name__}: {error}); this should not happen, please report it"
