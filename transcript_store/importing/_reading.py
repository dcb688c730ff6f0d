"""Read sources, some of them at once: choose the reader, plan the sessions, report each."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Event, Thread
from typing import Any, Literal, NamedTuple, TypeVar

from transcript_store.errors import PoisonedError, StorageError, TranscriptStoreError
from transcript_store.formats import (
    READERS,
    SessionPlan,
    SessionReader,
    SourceHead,
    StampingReader,
    in_another_encoding,
    nearly_json_lines,
    redacted_plan,
)
from transcript_store.importing._importer import Importer
from transcript_store.importing._report import ImportReport, is_blank, misnamed, refused_report, revision_of, unknown
from transcript_store.library import ConversationGroup, ConversationLibrary
from transcript_store.redaction import SecretRedactor
from transcript_store.sources import SESSION_FOLDERS, FileSource, FoundSource, Rows, UnreadableSourceError, open_parts

_THREADS = 4
_AHEAD = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def one_by_one(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """The same in this thread: where nothing waits for the disk, threads only wait for each other."""
    yield from map(function, items)


def in_threads(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """The function's results for the items, in their order. One item is done in this thread; at most eight run at once.

    A caller that stops early waits for those that have started.
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        pending: deque[Future[_Result]] = deque()
        try:
            for item in chain(first, remaining):
                pending.append(pool.submit(function, item))
                if len(pending) >= _AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


# ---- processes ----
#
# Several processes at once: where what takes the time is Python, threads only wait for each other.

FEWEST = 200
"""To start two processes takes as long as importing some dozens of sessions."""
_MOST = 500
"""So many items are handed to a process at a time: as many wait for their results if one of them takes long."""
_STOP = signal.SIGUSR1
"""Interrupts a worker process as Ctrl-C would. SIGTERM ends it, by which the pool stops the rest when one was killed."""
_NO_PROCESSES = (OSError, ImportError, NotImplementedError, RuntimeError)
"""Errors at the start if the system has no semaphores, refuses a process or a thread, or kills one at once."""
_log = logging.getLogger(__name__)


def may_fork() -> bool:
    """True if a forked child would be whole: it has one thread, and the locks that the others held. Elsewhere systems forbid it."""
    with suppress(OSError):  # no /proc
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    return False


def in_processes(
    function: Callable[[list[_Item]], Iterable[_Result]], items: list[_Item], processes: int
) -> Generator[_Result, None, None]:
    """The function's results for the items, in their order. It gets some items at a time, and returns a result for each.

    The processes are forked, so the function needs no pickling; items, results and errors do. If the system refuses or kills a
    process, this process does the rest. All have ended on return. A caller that stops early interrupts them, as Ctrl-C would. If
    this process is killed they end at once.
    """
    size = max(1, min(_MOST, len(items) // (4 * processes)))
    parts = (items[first : first + size] for first in range(0, len(items), size))
    pending: deque[Future[tuple[list[_Result], TranscriptStoreError | None]]] = deque()
    others, pool, reported = {*active_children()}, None, 0
    ours: set[BaseProcess] = set()
    try:
        try:
            pool = ProcessPoolExecutor(processes, get_context("fork"), _begin, (function,))
            with _without_ctrl_c():  # it is this process's to handle, in which it is pending meanwhile
                pending.extend(pool.submit(_all_of, part) for part in islice(parts, 2 * processes))
                ours = {*active_children()} - others  # a pool that forks has all of its processes now
        except _NO_PROCESSES as error:
            _log.warning("the work is not shared among processes: %s", error)
            for child in {*active_children()} - others:
                child.kill()
                child.join()
            pool = None
            yield from function(items)
            return
        while pending:
            results, ended_by = pending.popleft().result()
            pending.extend(pool.submit(_all_of, part) for part in islice(parts, 1))
            for result in results:
                yield result
                reported += 1
            if ended_by is not None:
                raise ended_by
    except BrokenProcessPool:
        _log.warning("a process that shared the work was killed; this one continues alone with what was not reported")
        yield from function(items[reported:])
    finally:
        if pool is not None:
            for child in ours.intersection(active_children()):
                with suppress(ProcessLookupError):
                    if child.pid is not None:
                        os.kill(child.pid, _STOP)
            pool.shutdown(cancel_futures=True)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C in new processes, which a terminal sends to all, and a stop until they are ready."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, _STOP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _WorkerProcess:
    """The work of one process."""

    def __init__(self, function: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._function = function
        self._is_stopped = self._is_at_work = False
        Thread(target=_end_with_the_parent, daemon=True).start()
        signal.signal(_STOP, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {_STOP})

    def all_of(self, items: list[Any]) -> tuple[list[Any], TranscriptStoreError | None]:
        """The results, up to the error that ended them.

        Raises:
            KeyboardInterrupt: the process was stopped.
        """
        results: list[Any] = []
        try:
            self._is_at_work = True
            if self._is_stopped:
                raise KeyboardInterrupt
            results.extend(self._function(items))  # one by one: those before an error stay
        except TranscriptStoreError as error:
            return results, error
        finally:
            self._is_at_work = False
        return results, None

    def _stop(self, *_: object) -> None:
        self._is_stopped = True
        if self._is_at_work:
            self._is_at_work = False  # what it interrupts is cleaned up undisturbed
            raise KeyboardInterrupt


_work: _WorkerProcess
"""That of this process."""


def _begin(function: Callable[[list[Any]], Iterable[Any]]) -> None:
    global _work  # noqa: PLW0603 - a process has one
    _work = _WorkerProcess(function)


def _all_of(items: list[Any]) -> tuple[list[Any], TranscriptStoreError | None]:
    return _work.all_of(items)


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# ---- committed ----
#
# A report is given when what it tells of is durable: it waits for the commit of the group that its conversation is in.

_Done = tuple[FoundSource, list[ImportReport]]


def committed(
    done: Iterable[_Done], group: ConversationGroup | None, import_again: Callable[[FoundSource], list[ImportReport]]
) -> Iterator[_Done]:
    """The reports of each source, in its order, as soon as nothing of it waits in the group.

    The group commits when it is full, and here at the end. A session that another process created meanwhile is imported again, and
    compared.
    """
    if group is None:
        yield from done
        return
    waiting: deque[_Done] = deque()
    for one in chain(done, [None]):
        if one is not None:
            waiting.append(one)
        else:
            group.commit()
        while waiting and not any(report.id in group for report in waiting[0][1]):
            found, reports = waiting.popleft()
            while theirs := {report.id for report in reports if report.action == "created"} & group.existing_ids:
                again = import_again(found)
                group.commit()
                reports = [_seen_again(report, again) if report.id in theirs else report for report in reports]
            yield found, reports


def _seen_again(before: ImportReport, again: list[ImportReport]) -> ImportReport:
    """The report of a session that another process created, from reading its source again. It never says created."""
    for report in again:
        if report.id == before.id:
            return report
    for report in again:  # it could not be added to, or the source could not be read any more
        if report.id is None and report.session in (None, before.session):
            return report
    reason = "another import created it just now, and the source holds it no more; import it again"
    return replace(before, action="refused", id=None, reason=reason)


# ---- reading ----


class ImportOptions(NamedTuple):
    """How sources are imported, the same for all of one call."""

    library: ConversationLibrary
    format: str | None
    """The name of the format; None to recognize it by the start of each source."""
    readers: list[SessionReader]
    """Those that are asked, in this order; of a format that was named the only one."""
    redactor: SecretRedactor | None
    diverged: Literal["report", "fork"]
    dry_run: bool
    takes_empty: bool
    """True if a session without a message becomes a conversation."""
    takes_deleted: bool = False
    """True if a session is imported although its conversation was deleted in the library."""
    known: Callable[[str], Mapping[str, ImportReport]] = lambda _path: {}
    """The known sessions of a database, by id: reports with their stamps."""
    is_first: bool = False
    """True if the library was empty at the start: then no conversation is searched before its creation."""


def import_together(how: ImportOptions, sources: list[FoundSource]) -> Generator[list[ImportReport], None, None]:
    """Import these; the reports on each, in their order, when what they tell of is durable."""
    with nullcontext() if how.dry_run else how.library.group() as group:
        yield from _Import(how, group).run(sources)


_OF_PROGRAMS = {pattern.rpartition("/")[2] for place in SESSION_FOLDERS for pattern in place.patterns} - {"*.json"}


def _shared_name(found: FoundSource) -> str | None:
    """Equal for sources that may hold the same session: exports, and files called alike. None if a program calls all its files so."""
    name = os.path.basename(found.path)
    # An export may have been renamed: each document that the user named may be one.
    is_named = found.program is None and not any(fnmatchcase(name, pattern) for pattern in _OF_PROGRAMS)
    if name.endswith(".zip") or (name.endswith(".json") and is_named):
        return ".zip"
    return name if any(map(str.isdigit, name)) else None


class _Import:
    """Sources that are read, and written as one group. Without a group nothing is written."""

    def __init__(self, how: ImportOptions, group: ConversationGroup | None) -> None:
        self._format, self._readers, self._redactor = how.format, how.readers, how.redactor
        self._library, self._group, self._known = how.library, group, how.known
        self._importer = Importer(
            how.library,
            group,
            diverged=how.diverged,
            dry_run=how.dry_run,
            takes_empty=how.takes_empty,
            is_first=how.is_first,
            takes_deleted=how.takes_deleted,
        )
        # Threads are for what waits for the disk: an append, a replace, a conversation that is created by itself.
        waits = not how.is_first or group is None or group.creates_alone
        self._at_once = in_threads if waits else one_by_one
        self._turns: dict[int, tuple[Event | None, Event]] = {}

    def run(self, sources: list[FoundSource]) -> Iterator[list[ImportReport]]:
        """The reports on each, when what they tell of is durable."""
        # Exports of one account hold the same sessions, and so do copies of a file. A newer one in front of an older one
        # would leave nothing to replace, and what was edited between the two would be stored nowhere: each waits for
        # the one before it.
        last: dict[str, Event] = {}
        for found in sources:
            if (name := _shared_name(found)) is not None:
                before, last[name] = last.get(name), Event()
                self._turns[id(found)] = (before, last[name])
        with closing(self._at_once(self._of_one, sources)) as done:
            for _, reports in committed(zip(sources, done, strict=True), self._group, self._of_one):
                yield reports

    def _of_one(self, found: FoundSource) -> list[ImportReport]:
        before, done = self._turns.get(id(found), (None, None))
        if before is not None:
            before.wait()
        try:
            return list(self._of_file(found.path, is_expected=found.is_expected))
        finally:
            if done is not None:
                done.set()

    def _of_file(self, path: str, *, is_expected: bool) -> Iterator[ImportReport]:
        try:
            with open_parts(path) as parts:
                for part in parts:
                    if isinstance(part, UnreadableSourceError):
                        yield refused_report(part.path, part.reason)
                    else:
                        yield from self._of_part(*part, is_expected=is_expected)
        except UnreadableSourceError as error:
            yield refused_report(error.path, error.reason)
        except (StorageError, PoisonedError):  # of the library: nothing more can be written
            raise
        except Exception as error:  # it cannot be opened or unpacked, for a reason that no check expects
            yield refused_report(path, self._without_secrets(f"cannot be read{_why(error)}"))

    def _of_part(self, head: SourceHead, source: FileSource | Rows, *, is_expected: bool) -> Iterator[ImportReport]:
        if source.stamp.size <= len(head.start) and is_blank(head):
            yield ImportReport(action="empty", source=source.name, reason=nearly_json_lines(head))
            return
        reader, failures = self._reader_for(head)
        for why in failures:
            yield refused_report(source.name, self._without_secrets(why))
        if reader is None:
            yield unknown(head, source.name, is_expected=is_expected)
            return
        try:
            is_misnamed = self._format is not None and not reader.recognizes(head)
            if is_misnamed and (in_another_encoding(head) or not _says_anything(reader, source)):
                yield refused_report(source.name, misnamed(reader, _recognized(READERS, head)[0], head))
            else:
                yield from self._of_sessions(reader, source)
        except (StorageError, PoisonedError, UnreadableSourceError):
            raise
        except (Exception, SystemExit) as error:  # of the reader: the other sources are imported all the same
            # The file of the second look may be another than that of the first.
            if isinstance(source, FileSource) and source.is_rewritten:
                yield refused_report(source.name, "was rewritten or cut while it was read; import it again")
                return
            yield refused_report(source.name, self._without_secrets(f"cannot be read as {reader.name}{_why(error)}"))

    def _without_secrets(self, sentence: str) -> str:
        return sentence if self._redactor is None else str(self._redactor.redact(sentence).value)

    def _reader_for(self, head: SourceHead) -> tuple[SessionReader | None, list[str]]:
        return (self._readers[0], []) if self._format is not None else _recognized(self._readers, head)

    def _of_sessions(self, reader: SessionReader, source: FileSource | Rows) -> Iterator[ImportReport]:
        stamps: Mapping[str, str] = {}
        as_they_were: dict[str, ImportReport] = {}
        cut = _Damaged()
        if isinstance(source, Rows) and isinstance(reader, StampingReader):
            with suppress(
                UnreadableSourceError
            ):  # one bad page: its other sessions are read all the same, each as a new one
                stamps = reader.session_stamps(source)
            known = self._known(source.name)
            as_they_were = {
                one: known[one] for one, stamp in stamps.items() if one in known and known[one].stamp == stamp
            }
            yield from as_they_were.values()

        def planned() -> Iterator[SessionPlan]:
            found = (
                cut.plans(reader, source, as_they_were.keys())
                if isinstance(source, Rows) and isinstance(reader, StampingReader)
                else reader.plans(source)
            )
            plans = map(partial(_of_its_own_format, reader), found)
            return plans if self._redactor is None else map(partial(redacted_plan, redactor=self._redactor), plans)

        plans = planned()
        # The bytes of a file are those of its only session. Its parts are views of the same lines.
        first: list[SessionPlan] = []
        while sum(not plan.is_part for plan in first) < 2 and (plan := next(plans, None)) is not None:
            first.append(plan)
        if not first:
            yield from cut.reports(source)
            if as_they_were or cut.unread:
                return
            if isinstance(source, Rows) and isinstance(reader, StampingReader) and not stamps:
                yield ImportReport(action="empty", source=source.name)  # a program that was never used yet
                return
            yield refused_report(source.name, f"holds no session that {reader.name} can read")
        is_only_one = sum(not plan.is_part for plan in first) == 1

        def put(plan: SessionPlan) -> ImportReport:
            report = self._importer.put(plan, source, is_alone=is_only_one and not plan.is_part)
            beside = source.seen_beside if isinstance(source, FileSource) else {}
            stamp = stamps.get(plan.session)
            return replace(report, beside=beside, stamp=stamp) if beside or stamp else report

        seen: dict[str, tuple[str, str] | None] = {}
        """The edition of each session."""
        twice: set[str] = set()

        def each_once() -> Iterator[SessionPlan]:
            for plan in chain(first, plans):
                if plan.session in seen:
                    twice.add(plan.session)
                else:
                    seen[plan.session] = plan.edition
                    yield plan

        done: dict[str | None, ImportReport] = {}
        # A connection to a database is used in the thread that opened it.
        at_once = one_by_one if isinstance(source, Rows) else self._at_once
        for report in at_once(put, each_once()):
            done[report.session] = report
            yield report
        yield from cut.reports(source)
        if not twice:
            return
        if self._group is not None:
            self._group.commit()
        sums: dict[str, bytes] = {}
        for plan in planned():
            if plan.session in sums:
                is_same = _sum_of(plan) == sums[plan.session]
                before = seen[plan.session]
                seen[plan.session] = max(before or ("", ""), plan.edition or ("", ""))
                yield self._of_second(plan, source, done[plan.session], before, is_same=is_same)
            elif plan.session in twice:
                sums[plan.session] = _sum_of(plan)

    def _of_second(
        self,
        plan: SessionPlan,
        source: FileSource | Rows,
        first: ImportReport,
        before: tuple[str, str] | None,
        *,
        is_same: bool,
    ) -> ImportReport:
        """Report a session whose id an earlier one of the same source has: left out, unless both are equal.

        Stored beside the first, each would replace the other at the next import (F2). It is compared with the first plan itself,
        because a dry run or a refusal stores nothing. ``before`` is the newest edition of it so far.
        """
        is_written = first.action in ("created", "grew", "replaced", "reread")  # or would be, in a dry run
        if is_same:
            return replace(first, action="unchanged", reason=None) if is_written else first
        looker = Importer(self._library, None, diverged="report", dry_run=True)
        report = looker.put(plan, source, is_alone=False)
        if plan.edition is not None and plan.edition == before and report.action == "grew":
            # Of one edition neither is the newer one. What stands around the messages may differ.
            if report.messages == first.messages:
                return replace(report, action="unchanged")
        elif plan.edition is not None and plan.edition != before:
            # Two exports in one document: the newer one counts, wherever it stands.
            report = self._importer.put(plan, source, is_alone=False)
            return replace(report, action="unchanged") if report.action == "created" else report  # in a dry run
        if report.action == "refused" or (report.action == "unchanged" and not is_written):
            return report
        reason = "an earlier session in this source has the same id; this one was left out"
        return replace(report, action="diverged", id=first.id, reason=reason)


class _Damaged:
    """Reads the sessions of a database of which some cannot be read: one bad page costs those that are on it."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}
        """The reason, by session."""

    def plans(self, reader: StampingReader, source: Rows, skip: Iterable[str]) -> Iterator[SessionPlan]:
        seen = {*skip}
        while True:
            try:
                for plan in reader.plans(source, skip=seen | self.unread.keys()):
                    yield plan
                    seen.add(plan.session)
                return
            except UnreadableSourceError as error:
                session = source.unread.get("session_id", source.unread.get("id"))
                if session is None or str(session) in self.unread:
                    raise
                self.unread[str(session)] = error.reason

    def reports(self, source: Rows | FileSource) -> Iterator[ImportReport]:
        for session, reason in self.unread.items():
            yield refused_report(source.name, f"the session {session} was left out: {reason}")


def _says_anything(reader: SessionReader, source: FileSource | Rows) -> bool:
    entries = (entry for plan in reader.plans(source) for generation in plan.generations for entry in generation())
    return any(entry.message is not None for entry in entries)


def _sum_of(plan: SessionPlan) -> bytes:
    """The same for two sessions of one source if all their entries are."""
    found = hashlib.sha256()
    for number, entries in enumerate(plan.generations):
        for entry in entries():
            found.update(repr((number, entry)).encode())
    return found.digest()


def _recognized(readers: Iterable[SessionReader], head: SourceHead) -> tuple[SessionReader | None, list[str]]:
    """The first reader that recognizes it, and the errors of those that could not decide."""
    failures: list[str] = []
    for reader in readers:
        try:
            if reader.recognizes(head):
                return reader, failures
        except (Exception, SystemExit) as error:  # another package's reader; the next one is asked
            failures.append(f"was not looked at as {reader.name}{_why(error)}")
    return None, failures


def _of_its_own_format(reader: SessionReader, plan: SessionPlan) -> SessionPlan:
    if plan.format != reader.name:  # its conversations would take the ids of another format's
        raise ValueError(f"it gives a plan of the format {plan.format!r}")
    return replace(plan, revision=revision_of(reader))


def _why(error: BaseException) -> str:
    """The end of the sentence on a source that could not be read."""
    if isinstance(error, MemoryError):
        return ": this process may not take enough memory for it"
    if isinstance(error, OSError) and error.strerror:
        return f": {error.strerror}"
    return f" ({type(error).__name__}: {error}); this should not happen, please report it"
