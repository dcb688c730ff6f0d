"""Which sources changed since their last comparison? Unchanged files are not read again.

Stamps are in a JSON file in a cache folder, which is derived and disposable: a missing or wrong stamp costs only time.
A stamp counts only while both the source's file and the transcript are unchanged. So a conversation that was deleted,
continued or restored from a backup is compared again. There is one file per library; it is removed with the library.

A source has to be quiet first: a program writes a reply line by line, over seconds, and a source that was imported in
between would look rewritten later.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from transcript_store.file_names import TRANSCRIPT, absolute_path
from transcript_store.formats import READERS
from transcript_store.import_notes import redaction_covers
from transcript_store.importing._report import ImportReport, LineCounts, encodable, revision_of
from transcript_store.library import ConversationLibrary
from transcript_store.new_files import give_to_owner, make_folders
from transcript_store.sources import FoundSource, how_it_looks

_VERSION = 7
_SETTLED_NS = 2 * 10**9
"""A file that was written this shortly before may be written again without another size or time to show for it."""
_OF_OURS = re.compile(r"imports-[0-9a-f]{32}\.json(\.[0-9a-f]{16})?")
_ABANDONED_SECONDS = 24 * 60 * 60
"""A temporary file of this age is no running import's: that one was killed."""


def _looks(source: FoundSource) -> list[int]:
    """How a source looks. A program may put a file's mtime back, and not its ctime."""
    return [source.size, source.mtime_ns, source.ctime_ns, source.inode]


_LASTING = ("created", "grew", "replaced", "reread", "unchanged", "empty")


class Stamps:
    """The stamps of one library. Without a folder nothing is known; unless they are to be kept, nothing is written."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        library: ConversationLibrary,
        *,
        redaction: Mapping[str, Any] | None = None,
        is_kept: bool = True,
    ) -> None:
        self._redaction = redaction
        self._readers = {reader.name: revision_of(reader) for reader in READERS}
        """What another revision read is read again."""
        self._is_kept = is_kept and folder is not None
        self._library = library.directory
        self._known: dict[str, str] = {}
        """For each source's path its entry as JSON: Python's collector would traverse decoded objects."""
        self._looked_at: dict[str, list[int] | None] = {}
        self._path: str | None = None
        self._is_changed = False
        if folder is not None:
            self._path = os.path.join(absolute_path(folder), _file_name(self._library))
            with suppress(OSError, ValueError, TypeError, KeyError), open(self._path, "rb") as file:
                found = orjson.loads(file.read())
                is_ours = found["version"] == _VERSION and found["library"] == encodable(self._library)
                if is_ours and found["readers"] == self._readers:
                    self._known = dict(found["sources"])

    def unchanged(
        self, source: FoundSource, format: str | None, *, takes_empty: bool = False
    ) -> list[ImportReport] | None:
        """The reports on a source that looks as it did, and its conversations too; None if it has to be read."""
        noted = self._known.get(encodable(source.path))
        if noted is None:
            return None
        try:
            looks, sessions, redaction, beside = orjson.loads(noted)
            if looks != _looks(source) or any(self._beside(path) != before for path, before in beside):
                return None
            if not redaction_covers(redaction, self._redaction):
                return None  # what is on record may have the secrets
            if not all(self._is_as_it_was(said, format, takes_empty=takes_empty) for said in sessions):
                return None
            return [_report(source.path, *said) for said in sessions]
        except (IndexError, ValueError, TypeError):  # another program wrote it
            return None

    def sessions(self, path: str, format: str | None, *, takes_empty: bool = False) -> dict[str, ImportReport]:
        """The reports of unchanged sessions in a changed database whose conversations are unchanged; each has its ``stamp``."""
        noted = self._known.get(encodable(path))
        if noted is None:
            return {}
        try:
            _, sessions, redaction, _ = orjson.loads(noted)
            if not redaction_covers(redaction, self._redaction):
                return {}
            kept = [said for said in sessions if self._is_as_it_was(said, format, takes_empty=takes_empty)]
            reports = [_report(path, *said) for said in kept]
        except (IndexError, ValueError, TypeError):
            return {}
        return {report.session: report for report in reports if report.session is not None and report.stamp is not None}

    def _is_as_it_was(self, said: list[Any], format: str | None, *, takes_empty: bool) -> bool:
        transcript, its_id, its_format, *_ = said
        # A session without messages has no conversation yet. With `empty` it gets one, so it is read again.
        if transcript is None and takes_empty:
            return False
        return self._transcript(its_id) == transcript and format in (None, its_format)

    def note(self, source: FoundSource, reports: list[ImportReport]) -> None:
        """Remember a source that was imported whole, unless it was written just now."""
        self._is_changed |= self._known.pop(encodable(source.path), None) is not None
        beside = {path: looks for report in reports for path, looks in report.beside.items()}
        written = max([source.mtime_ns, *(looks[1] for looks in beside.values() if looks is not None)])
        if not self._is_kept or not reports:
            return
        lasting = [report for report in reports if report.action in _LASTING]
        noted_for = {report.session: self._transcript(report.id) for report in lasting}
        kept = [
            one for one in lasting if one.action == "empty" or noted_for[one.session] is not None
        ]  # else it is no directory here
        is_settled = len(kept) == len(reports) and written <= time.time_ns() - _SETTLED_NS
        if not is_settled:  # the rows of a session are of one moment all the same
            kept = [report for report in kept if report.stamp is not None]
        if not kept:
            return
        said = [[noted_for[report.session], *_said(source.path, report)] for report in kept]
        redaction = None if self._redaction is None else dict(self._redaction)
        noted = [
            _looks(source) if is_settled else None,
            said,
            redaction,
            [[path, looks] for path, looks in beside.items() if encodable(path) == path],
        ]
        self._known[encodable(source.path)] = orjson.dumps(noted).decode()
        self._is_changed = True

    def _beside(self, path: str) -> list[int] | None:
        """How a file beside a source looks now. Many sources of a folder share one."""
        if path not in self._looked_at:
            looks = how_it_looks(path)
            self._looked_at[path] = None if looks is None else [*looks]
        return self._looked_at[path]

    def save(self) -> None:
        """Write the stamps. If that fails, the next import takes longer."""
        if self._path is None or not self._is_kept or not self._is_changed:
            return
        document = {
            "version": _VERSION,
            "library": encodable(self._library),
            "readers": self._readers,
            "sources": self._known,
        }
        folder = os.path.dirname(self._path)
        temporary = f"{self._path}.{os.urandom(8).hex()}"
        with suppress(OSError):
            make_folders(folder)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                give_to_owner(handle, folder)
                with os.fdopen(handle, "wb") as file:
                    file.write(orjson.dumps(document))
                # Not synced: after a power cut the stamps may be gone or unreadable, and then the sources are read
                # again.
                os.rename(temporary, self._path)
            except OSError:
                os.unlink(temporary)
                raise
            _sweep(folder)

    def _transcript(self, id: str | None) -> list[int] | None:
        """The stamp of a conversation's transcript; None if it has none, because the session is empty."""
        if id is None:
            return None
        try:
            status = os.stat(f"{self._library}/{id}/{TRANSCRIPT}", follow_symlinks=False)
        except OSError:
            return None
        return [status.st_size, status.st_mtime_ns, status.st_ino]


def _file_name(library: str) -> str:
    return f"imports-{hashlib.sha256(os.fsencode(library)).hexdigest()[:32]}.json"


def _sweep(folder: str) -> None:
    """Remove stamps of missing libraries, and leftovers of a killed import."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if _OF_OURS.fullmatch(entry.name)]
    for entry in found:
        with suppress(OSError, ValueError, TypeError, KeyError):
            if not entry.name.endswith(".json"):
                if entry.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    os.unlink(entry.path)
                continue
            with open(entry.path, "rb") as file:
                library = orjson.loads(file.read())["library"]
            # A path that is not UTF-8 is noted with escapes, and is another path then: its file's name gives that away.
            if _file_name(library) == entry.name and not os.path.lexists(library):
                os.unlink(entry.path)


def _said(source: str, report: ImportReport) -> list[Any]:
    """The report in the order of :func:`_report`, as lists without repeated paths: ten thousand are read at each import."""
    member = None if report.source == source else report.source
    texts = (report.id, report.format, member, report.session, report.title)
    lines = report.lines
    counts = (report.messages, report.events, lines.total, lines.in_messages, lines.in_events, lines.left_out)
    return [*(text if text is None else encodable(text) for text in texts), report.is_part, report.stamp, *counts]


def _report(source: str, transcript: list[int] | None, *said: Any) -> ImportReport:
    its_id, its_format, member, session, title, is_part, stamp, messages, events, *lines = said
    return ImportReport(
        action="empty" if transcript is None else "unchanged",
        source=member or source,
        id=its_id,
        format=its_format,
        session=session,
        title=title,
        is_part=is_part,
        stamp=stamp,
        messages=messages,
        events=events,
        lines=LineCounts(*lines),
    )


QUIET_SECONDS = 10.0
"""How long a source does not change before it is imported."""
_DATABASES = (".db", ".sqlite", ".sqlite3", ".vscdb")


class SourceFollower:
    """Remembers each source as it was imported, and finds those that changed since.

    Args:
        imported: the sources that were imported, as they were then.
        quiet_seconds: how long a source must not change before it is due.
    """

    def __init__(self, imported: Iterable[FoundSource] = (), *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._imported = {one.path: one for one in imported}
        self._waiting: dict[str, tuple[FoundSource, float]] = {}
        """The sources that changed, each as it is now, and since when it looks so, by the monotonic clock."""
        self._quiet_seconds = quiet_seconds

    def __len__(self) -> int:
        """How many sources changed and were not imported since."""
        return len(self._waiting)

    def look(self, found: Iterable[FoundSource], *, is_all: bool) -> None:
        """Compare sources with those that were imported.

        With ``is_all`` missing ones are noted as removed. They may return, when a program replaces its file or a disk is mounted,
        and are then compared with their import.
        """
        now, paths = time.monotonic(), set()
        for one in found:
            paths.add(one.path)
            if self._imported.get(one.path) == one:
                self._waiting.pop(one.path, None)
            elif (before := self._waiting.get(one.path)) is None or (
                before[0] != one and not one.path.endswith(_DATABASES)
            ):
                self._waiting[one.path] = one, now
            else:
                # Some session of a database may always be at work, so it waits since its first change, whatever comes after it:
                # only its sessions that changed are read.
                self._waiting[one.path] = one, before[1]
        if is_all:
            for path in [path for path in self._waiting if path not in paths]:
                del self._waiting[path]

    def due(self) -> list[FoundSource]:
        """The sources that changed and have been quiet long enough, by their own time or by ours: theirs may lie ahead of the clock."""
        now, quiet_since = time.monotonic(), time.time_ns() - int(self._quiet_seconds * 10**9)
        return [
            one
            for one, since in self._waiting.values()
            if one.mtime_ns <= quiet_since or since <= now - self._quiet_seconds
        ]

    def seconds_until_due(self) -> float | None:
        """How long until the next source may be due; None if nothing changed."""
        if not self._waiting:
            return None
        first = min(since for _, since in self._waiting.values())
        return max(0.0, first + self._quiet_seconds - time.monotonic())

    def is_waiting(self, path: str) -> bool:
        """True if the source at a path changed and was not imported since."""
        return path in self._waiting

    def imported(self, found: Iterable[FoundSource]) -> None:
        """Note that sources were imported as they were found."""
        for one in found:
            self._imported[one.path] = one
            if (waiting := self._waiting.get(one.path)) is not None and waiting[0] == one:
                del self._waiting[one.path]

    def forget(self, path: str) -> None:
        """Take a source for one that was never imported: the next look at it finds it changed."""
        self._imported.pop(path, None)
