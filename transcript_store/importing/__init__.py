"""Other programs' histories, into a library of conversations: whole, with their own times, once and not twice.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.importing import import_conversations

    library = ConversationLibrary("chats")
    for report in import_conversations(["sessions"], library):  # or discover(): this machine's sessions
        print(report.action, report.id, report.messages, report.findings, report.reason)

docs/import.md has the promises F1 to F8.

An overview, before an import, counts a file as a session with its last change as its time, and does not read it. A
database is opened for the times of its sessions, if its reader knows them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Literal

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import READERS, SessionReader, StampingReader, redaction_of
from transcript_store.import_notes import earlier_generations
from transcript_store.importing._reading import FEWEST, ImportOptions, import_together, in_processes, may_fork
from transcript_store.importing._report import UNREAD, Action, ImportReport, LineCounts, conversation_id, refused_report
from transcript_store.importing._stamps import QUIET_SECONDS, SourceFollower, Stamps
from transcript_store.library import ConversationLibrary
from transcript_store.redaction import SecretRedactor, require_redactor
from transcript_store.sources import (
    FoundSource,
    Rows,
    UnusableFormatError,
    added_formats,
    added_names,
    discover,
    find_sources,
    open_parts,
)
from transcript_store.sources._folders import bytes_beside

__all__ = [
    "QUIET_SECONDS",
    "UNREAD",
    "Action",
    "FoundSource",
    "ImportReport",
    "LineCounts",
    "ProgramOverview",
    "SourceFollower",
    "conversation_id",
    "discover",
    "earlier_generations",
    "find_sources",
    "import_conversations",
    "overviews",
]

_DATABASES = (".db", ".sqlite", ".sqlite3", ".vscdb")


@dataclass(frozen=True, slots=True)
class ProgramOverview:
    """What one program keeps."""

    program: str
    sessions: int
    """The number of sessions; 1 for a database whose reader does not count them."""
    size: int
    """In bytes, of all its files."""
    first: datetime | None
    """When the first session began, or else the oldest file changed; None if no session was found."""
    last: datetime | None
    """When one last changed."""


def overviews(found: Iterable[FoundSource]) -> list[ProgramOverview]:
    """What each program keeps of what :func:`discover` found, in that order. What cannot be read counts with its file."""
    files: dict[str, list[FoundSource]] = {}
    for one in found:
        if one.program is not None and one.why_not is None:
            files.setdefault(one.program, []).append(one)
    return [_overview(program, its) for program, its in files.items()]


def _overview(program: str, files: list[FoundSource]) -> ProgramOverview:
    sessions = 0
    times: list[float] = []  # in seconds
    for one in files:
        spans = list(_sessions_in(one)) if one.path.endswith(_DATABASES) else [(one.mtime_ns / 1e9, one.mtime_ns / 1e9)]
        sessions += len(spans)
        for span in spans:
            times += span
    first, last = (datetime.fromtimestamp(at, UTC) for at in (min(times), max(times))) if times else (None, None)
    return ProgramOverview(program, sessions, sum(one.size + bytes_beside(one.path) for one in files), first, last)


def _sessions_in(one: FoundSource) -> Iterator[tuple[float, float]]:
    with suppress(TranscriptStoreError, OSError), open_parts(one.path) as parts:
        for part in parts:
            if isinstance(part, tuple) and isinstance(part[1], Rows):
                reader = next((reader for reader in READERS if reader.recognizes(part[0])), None)
                if isinstance(reader, StampingReader):
                    yield from reader.session_times(part[1])
                    return
    yield one.mtime_ns / 1e9, one.mtime_ns / 1e9


def import_conversations(
    sources: Iterable[FoundSource | str | os.PathLike[str]],
    library: ConversationLibrary,
    *,
    format: str | None = None,
    diverged: Literal["report", "fork"] = "report",
    dry_run: bool = False,
    since: datetime | None = None,
    cache: str | os.PathLike[str] | None = None,
    redact: SecretRedactor | None = None,
    jobs: int = 1,
    empty: bool = False,
    again: bool = False,
) -> Iterator[ImportReport]:
    """Import sessions, and update those that were imported before; one report per session, as soon as it is done.

    Nothing is imported until you iterate over the reports, to the end. A reported session is durable. Sources that ``cache`` knows
    come first.

    A session has the same id in every library, so a second import, one from another process, or one of a copy of the file is the
    same import. New records are appended, a rewritten source becomes a new generation, and records that were added here are never
    overwritten. Sources are opened read-only.

    Formats of installed packages take part; one that cannot be used gives a report (``refused``) and affects no other.

    Args:
        sources: results of :func:`discover` or :func:`find_sources`, or paths of files and folders.
        library: the destination.
        format: the name of the format, one of ours or of an installed package; None to recognize it by the start of each source.
            Packages are imported unless it is one of ours.
        diverged: if the source changed and a user continued the conversation here: ``"report"`` leaves both alone, ``"fork"``
            imports the source as another conversation, and updates that from then on.
        dry_run: report what would be done, and write nothing.
        since: leave out files that did not change after this time, an aware ``datetime``; they have no report.
        cache: a folder for the stamps of sources and conversations, so that unchanged ones are not read again; their reports have
            no findings. It is created if missing, and may be deleted at any time. None for no cache.
        redact: removes secrets before anything is stored. A record that had some counts them in ``extra.redacted``. Later imports
            of these sessions need a redactor that removes as much, or more.
        jobs: the number of processes. With more than one, 200 or more changed sources are shared among forked processes on Linux,
            if the library is a directory and this process has no other thread; otherwise this process does the work. The result is
            the same, except that of two files with one session either may be the first. A :class:`KeyProvider` of the library is
            used by all of them: one that keeps a connection must make another after a fork.
        empty: import sessions without a message too. Otherwise their reports say ``empty``, and they become no conversations. One
            on record is updated either way.
        again: import sessions too whose conversations were deleted, pruned or shredded in this library, and those that an export
            wrote and that did not grow since. Otherwise their reports say ``deleted`` and ``unchanged``. (Delete a shredded one
            first; a backend does not take the id of a deleted one again.)

    Raises:
        TypeError: an argument has another type, such as one path instead of a list; before anything is read.
        ValueError: there is no such format, ``diverged`` is neither, ``since`` has no time zone, or ``jobs`` is less than 1; before
            anything is read.
        UnusableFormatError: the named format of a package cannot be used; before anything is read.
        StorageError: during the iteration; the system refused to write. Everything reported before is intact; import again to
            continue.
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
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs!r}")
    readers, unusable = _readers(format)
    if redact is not None:
        require_redactor(redact)
    redaction = None if redact is None else redaction_of(redact)
    stamps = Stamps(cache, library, redaction=redaction, is_kept=not dry_run)
    how = ImportOptions(library, format, readers, redact, diverged, dry_run, empty, again)
    reports = _run(sources, stamps, how, since=since, jobs=jobs)
    return chain((refused_report(error.distribution, str(error)) for error in unusable), reports)


def _run(
    sources: Iterable[FoundSource | str | os.PathLike[str]],
    stamps: Stamps,
    how: ImportOptions,
    *,
    since: datetime | None,
    jobs: int,
) -> Iterator[ImportReport]:
    """Those that look as they did; then the others."""
    changed: list[FoundSource] = []
    own = f"{how.library.directory}/"
    for one in _looked_at(sources):
        if isinstance(one, ImportReport):
            yield one
        elif one.path.startswith(own):
            continue  # a folder that is imported may hold the library
        elif one.why_not is not None:
            yield refused_report(one.path, one.why_not)
        elif since is not None and one.mtime_ns < since.timestamp() * 1e9:
            continue
        elif (known := stamps.unchanged(one, how.format, takes_empty=how.takes_empty)) is not None:
            yield from known
        else:
            changed.append(one)
    if not changed:
        return
    of_sessions = partial(stamps.sessions, format=how.format, takes_empty=how.takes_empty)
    import_all = partial(import_together, how._replace(known=of_sessions, is_first=_is_empty(how.library)))
    is_shared = jobs > 1 and len(changed) >= FEWEST and os.path.isabs(how.library.directory) and may_fork()
    done = in_processes(import_all, changed, jobs) if is_shared else import_all(changed)
    try:
        with closing(done):
            for found, reports in zip(changed, done, strict=True):
                stamps.note(found, reports)
                yield from reports
    finally:
        stamps.save()


def _is_empty(library: ConversationLibrary) -> bool:
    """True if the library has no conversation. Anything else that is at its path reports itself later.

    Raises:
        StorageError: the library cannot be listed.
    """
    try:
        with os.scandir(library.directory) as there:  # a list would read all that is there
            return next(there, None) is None
    except OSError:
        return next(iter(library.iter_list()), None) is None


def _looked_at(sources: Iterable[FoundSource | str | os.PathLike[str]]) -> Iterator[FoundSource | ImportReport]:
    """The sources at the given paths; a report for a path without any."""
    for given in sources:
        if isinstance(given, FoundSource):
            yield given
            continue
        try:
            yield from list(find_sources(given))
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            yield refused_report(os.fspath(given), f"cannot be checked: {getattr(error, 'strerror', None) or error}")


def _readers(format: str | None) -> tuple[list[SessionReader], list[UnusableFormatError]]:
    """The readers in their order, and the formats of installed packages that cannot be used.

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
