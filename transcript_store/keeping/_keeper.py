"""One process that imports, indexes and ships what programs write, continuously. Only a signal ends it.

N1  An imported session is durable before the state says so, and importing it again changes nothing: whatever ends the process, the next
    one takes up what is missing and nothing twice.
N2  Of all that can fail (a source, a conversation, the disk, a backend) nothing ends it: it says so once, and tries again later.
N3  It checks all folders repeatedly, with a bounded share of one core: a change that no watch reported is found minutes later.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson

from transcript_store.display import many
from transcript_store.errors import TranscriptStoreError
from transcript_store.importing import (
    QUIET_SECONDS,
    FoundSource,
    ImportReport,
    SourceFollower,
    discover,
    import_conversations,
)
from transcript_store.keeping._watching import PollingWatcher, Watcher, best_watcher, pause
from transcript_store.library import ConversationLibrary
from transcript_store.new_files import give_to_owner, make_folders, replace_file
from transcript_store.redaction import SecretRedactor
from transcript_store.search import SearchIndex
from transcript_store.sources import session_at

_VERSION = 1
_MOST_FAILURES = 200


class AlreadyKeptError(TranscriptStoreError):
    """Another process (``holder_pid``, None if unknown) already keeps the library at ``path``. Nothing was started."""

    path: str
    holder_pid: int | None

    def _problem(self) -> str:
        holder = "another process" if self.holder_pid is None else f"process {self.holder_pid}"
        return f"{self.path}: {holder} already keeps this library"


@dataclass(slots=True, kw_only=True)
class KeptProgram:
    """The imports of one program since the keeper was first started."""

    sessions: int = 0
    """How many sessions it has on this machine."""
    imports: int = 0
    """How many times a session was created, or something of one was added."""
    last_at: str | None = None
    last_source: str | None = None
    """The source of the last import."""


@dataclass(slots=True, kw_only=True)
class KeepState:
    """The last actions of a keeper, and its failures."""

    library: str
    pid: int = 0
    how: str = "polling"
    started_at: str | None = None
    looked_at: str | None = None
    """When all folders were read last: a live keeper reads them again within a few minutes."""
    looks_every_seconds: float = 0.0
    imported_at: str | None = None
    indexed_at: str | None = None
    waiting: int = 0
    """How many sources changed and were not imported yet: those that a program wrote to just now, and those that failed."""
    programs: dict[str, KeptProgram] = field(default_factory=dict)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each source that could not be imported: ``reason``, ``since`` and ``program``."""
    problem: dict[str, Any] | None = None
    """The current problem: ``doing``, ``reason`` and ``since``; None without one."""
    ship: dict[str, Any] | None = None
    """The copy on a backend: ``to``, ``at``, ``left_records`` and ``failed``; None without one."""
    last_gap: dict[str, Any] | None = None
    """When it was last suspended, or the clock was set: ``at``, ``kind`` and ``seconds``."""


def now() -> str:
    """The time, as a state has it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def state_folder(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> str:
    """Where states are kept: the folder for what a user's programs know of themselves."""
    environ = os.environ if environ is None else environ
    home = environ.get("HOME") or os.path.expanduser("~")
    below = "Library/Application Support" if platform == "darwin" else ".local/state"
    return os.path.join(environ.get("XDG_STATE_HOME") or os.path.join(home, below), "transcript-store")


def state_path(library: str, folder: str | None = None) -> str:
    """The path of a library's state."""
    name = hashlib.sha256(os.fsencode(library)).hexdigest()[:16]
    return os.path.join(state_folder() if folder is None else folder, f"keep-{name}.json")


def read_state(path: str) -> KeepState | None:
    """The stored state; None if it is missing or invalid."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError), open(path, "rb") as file:
        found = orjson.loads(file.read())
        if found.pop("version") != _VERSION:
            return None
        known = {one.name for one in fields(KeepState)}
        # Unknown members are left out: a later version of the same format may have added some.
        members = {name: value for name, value in found.items() if name in known}
        members["programs"] = {name: KeptProgram(**one) for name, one in members["programs"].items()}
        return KeepState(**members)
    return None


def write_state(path: str, state: KeepState) -> None:
    """Replace the state.

    Raises:
        OSError: the system refuses; the earlier state is intact.
    """
    # Not synced: a state that a power cut takes is only a report, and the next import finds the same sessions (N1).
    members = asdict(state)
    members["failed"] = dict([*members["failed"].items()][-_MOST_FAILURES:])
    replace_file(path, orjson.dumps({"version": _VERSION, **members}))


@contextmanager
def only_keeper(library: str, path: str) -> Iterator[None]:
    """Hold the lock of a library's only keeper while the block runs. The kernel releases it with the process.

    Without such a lock there may be two keepers: a repeated import stores nothing twice.

    Raises:
        AlreadyKeptError: another process is it.
    """
    with ExitStack() as stack:
        try:
            make_folders(folder := os.path.dirname(path))
            handle = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            give_to_owner(handle, folder)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = read_state(path)
            raise AlreadyKeptError(path=library, holder_pid=(state and state.pid) or None) from None
        except OSError:
            pass  # a read-only folder: the keeper reports it when it writes its state
        yield


def is_kept(path: str) -> bool:
    """True if a keeper runs now."""
    try:
        handle = os.open(_lock_of(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _lock_of(path: str) -> str:
    return f"{path.removesuffix('.json')}.lock"


_SHARE = 0.005
"""The share of one core for reading all folders, on average."""
_LEAST_SECONDS, _MOST_SECONDS = 5.0, 300.0
"""The time between two reads of all folders."""
_STAMP_SECONDS = 3600.0
"""How often stamps are stored for the next start, if anything was imported."""
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 5.0, 300.0
_GAP_SECONDS = 30.0
"""A longer gap between two steps means: the process was stopped, the machine slept, or the clock was set."""
_WHOLE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that would meet every source."""
_TAKEN = ("created", "grew", "replaced", "reread")
_LEFT = ("refused", "diverged")


class ShipsConversations(Protocol):
    """Sends the conversations of the library to a backend: a ``LibraryShipper``."""

    def send(self) -> Iterator[Any]:
        """Send what changed since the last call; a report for each conversation."""

    def close(self) -> None:
        """Release the claim."""


@dataclass(slots=True, kw_only=True)
class KeepEvent:
    """Something that a keeper did, or could not do."""

    kind: str
    """``imported``, ``failed``, ``recovered``, ``indexed``, ``shipped``, ``problem``, ``gap``, ``began`` or ``caught-up``."""
    text: str
    """A sentence for a person."""
    facts: dict[str, Any] = field(default_factory=dict)


class Keeper:
    """Keeps a library up with the programs of this machine.

    Args:
        library: opens the library; called for each import, because a store that met a failing disk is not used again.
        state_path: the file in which it reports its work.
        say: is given each event.
        programs: which programs' sessions; None for all that are known.
        cache: a folder in which it is noted what did not change, for the next start.
        redact: takes secrets out before anything is stored.
        shipper: sends conversations to a backend, whose name for people is ``ships_to``; None if nothing is sent.
        watcher: says which files may have changed; the best that there is here if None.
        quiet_seconds: how long a source does not change before it is imported.
        jobs: how many processes may share the first import.
    """

    def __init__(
        self,
        library: Callable[[], ConversationLibrary],
        *,
        state_path: str,
        say: Callable[[KeepEvent], None],
        programs: Iterable[str] | None = None,
        cache: str | None = None,
        redact: SecretRedactor | None = None,
        shipper: ShipsConversations | None = None,
        ships_to: str = "",
        watcher: Watcher | None = None,
        quiet_seconds: float = QUIET_SECONDS,
        jobs: int = 1,
    ) -> None:
        self._library, self._say, self._cache, self._redact = library, say, cache, redact
        self._programs = None if programs is None else frozenset(programs)
        self._shipper, self._jobs = shipper, jobs
        self._watcher = best_watcher() if watcher is None else watcher
        self._follower = SourceFollower(quiet_seconds=quiet_seconds)
        self._state_path = state_path
        name = library().directory
        before = read_state(state_path)
        self.state = before if before is not None and before.library == name else KeepState(library=name)
        self.state.pid, self.state.how, self.state.started_at = os.getpid(), self._watcher.how, now()
        self.state.problem, self.state.failed = None, {}
        self.state.ship = None if shipper is None else {"to": ships_to, "at": None, "left_records": 0, "failed": {}}
        self._look_at = self._retry_at = self._stamp_at = self._ship_at = 0.0
        self._retries = self._ship_retries = 0
        self._again: dict[str, tuple[int, float]] = {}
        """For each source that failed alone: how often, and when it is tried again."""
        self._has_news = True
        self._index_at = float("inf")
        """When an index that failed, or left conversations out, is tried again."""
        self._has_unstamped = False
        self._state_said = ""
        self._clocks = _clocks()

    # ---- the life of it ----------------------------------------------------------------------------------------------

    def run(self, *, once: bool = False) -> None:
        """Import all sessions, then follow them until the process is ended; with ``once`` only import.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM. Imported sessions stay.
        """
        self._tell("began", f"keeps {self.state.library}, by {self.state.how}")
        try:
            found = self._look(watches=False)  # a process with another thread does not share the work among several
            self._import(found if once else self._follower.due(), cache=self._cache, jobs=self._jobs)
            self._look_at = 0.0
            self._after_imports()
            self._clocks = _clocks()
            self._tell("caught-up", self._standing())
            while not once:
                self._step()
        finally:
            self._watcher.close()
            if self._shipper is not None:
                self._shipper.close()
            self.state.pid = 0
            self._save()

    def _step(self) -> None:
        """Wait until there is something to do, and do it."""
        seconds = self._seconds_to_wait(time.monotonic())
        changed = self._wait(seconds)
        self._note_gap(seconds)
        if changed:
            found = [one for path in sorted(changed) if (one := session_at(path)) is not None and self._is_kept(one)]
            self._follower.look(found, is_all=False)
        if time.monotonic() >= self._look_at:
            self._look()
        self._try_failed_again()
        if time.monotonic() >= self._retry_at and (due := self._follower.due()):
            self._import(due)
        elif self._has_unstamped and time.monotonic() >= self._stamp_at:
            self._stamp()
        self._after_imports()

    def _seconds_to_wait(self, at: float) -> float:
        moments = [self._look_at]
        if (until_due := self._follower.seconds_until_due()) is not None:
            moments.append(max(at + until_due, self._retry_at))
        if self._shipper is not None:
            moments.append(self._ship_at)
        moments += [moment for _, moment in self._again.values()]
        return max(0.0, min(moments) - at)

    def _wait(self, seconds: float) -> set[str]:
        try:
            return self._watcher.wait(seconds)
        except OSError as error:
            pause(_LEAST_SECONDS)  # whatever fails at once would fail again at once
            self._tell("problem", f"{error}; polling from now on", doing="watch folders", reason=str(error))
            self._watcher.close()
            # A failed watch is not retried: polling is complete, only later.
            self._watcher = PollingWatcher()
            self.state.how = self._watcher.how
            self._look_at = 0.0
            return set()

    def _note_gap(self, waited: float) -> None:
        """Report that the machine slept or the clock was set, and check everything: a watch may have missed changes.

        Compared is what passed since the last call: by the wall clock, by the monotonic clock, and of the process's own time.
        """
        before, self._clocks = self._clocks, _clocks()
        wall, steady, busy = (later - earlier for later, earlier in zip(self._clocks, before, strict=True))
        idle = steady - waited - busy
        if idle > _GAP_SECONDS or wall - steady > _GAP_SECONDS:
            kind, length = "stopped", max(idle, wall - steady)
            text = f"the process stood still for {length:,.0f} seconds, or the clock was set forward"
        elif steady - wall > _GAP_SECONDS:
            kind, length = "clock", steady - wall
            text = f"the clock was set back by {length:,.0f} seconds"
        else:
            return
        # Kept in the state: `keep status` explains late imports with it.
        self.state.last_gap = {"at": now(), "kind": kind, "seconds": round(length)}
        self._look_at = 0.0
        self._tell("gap", f"{text}: comparing everything again", cause=kind, seconds=round(length))

    # ---- looking and importing ---------------------------------------------------------------------------------------

    def _is_kept(self, found: FoundSource) -> bool:
        return self._programs is None or found.program in self._programs

    def _look(self, *, watches: bool = True) -> list[FoundSource]:
        """Look at all folders."""
        began = time.process_time()
        found = [one for one in discover() if self._is_kept(one)]
        unread = [one for one in found if one.why_not is not None]
        for one in unread:
            self._fail(one.path, one.program, one.why_not or "")
        found = [one for one in found if one.why_not is None]
        self._follower.look(found, is_all=True)
        if watches:
            self._watcher.know(found)
        counts = dict.fromkeys(self.state.programs, 0)
        for one in found:
            counts[one.program or "?"] = counts.get(one.program or "?", 0) + 1
        for program, count in counts.items():
            self.state.programs.setdefault(program, KeptProgram()).sessions = count
        for path in [path for path in self.state.failed if not os.path.lexists(path.partition("!")[0])]:
            del self.state.failed[path]
        took = time.process_time() - began
        # N3: the pause follows the processor time of the last read, so a large machine costs the same share of a
        # core.
        pause = min(max(took / _SHARE, _LEAST_SECONDS), _MOST_SECONDS)
        if not isinstance(self._watcher, PollingWatcher):
            pause = max(pause, _MOST_SECONDS / 2)  # the system tells of the rest
        self._look_at = time.monotonic() + pause
        self.state.looked_at, self.state.looks_every_seconds = now(), round(pause, 1)
        self._save()
        return found

    def _import(self, found: list[FoundSource], *, cache: str | None = None, jobs: int = 1) -> None:
        """Import sources; each that fails by itself is left, and the others are imported."""
        left = {one.path: one for one in found}
        while left:
            try:
                for report in self._reports([*left.values()], cache=cache, jobs=jobs):
                    source = report.source.partition("!")[0]
                    self._note(report, left.get(source) or left.get(report.source))
                # Only after the reports are read to their end: what was not reported is due again (N1).
                self._follower.imported(left.values())
                break
            except (TranscriptStoreError, OSError) as error:
                # With a full disk every other source fails too; trying each of them would only repeat the error.
                if self._is_whole_disk(error) or len(left) == 1:
                    self._give_up(left, error)
                    return
                # The error does not name the session, so each is tried by itself.
                for one in [*left.values()]:
                    self._import([one], cache=None)
                    del left[one.path]
                return
        self._retries = 0
        self._have_no_problem("import")
        if found:
            self._has_unstamped = cache is None
            self._stamp_at = time.monotonic() + _STAMP_SECONDS
            self._save()

    def _try_failed_again(self) -> None:
        """Take those that failed by themselves, and whose time has come, for changed."""
        for path in [path for path, (_, moment) in self._again.items() if moment <= time.monotonic()]:
            # Not due again until this attempt has failed.
            self._again[path] = self._again[path][0], float("inf")
            self._follower.forget(path)
            self._follower.look(filter(None, [session_at(path)]), is_all=False)

    def _reports(self, found: list[FoundSource], *, cache: str | None, jobs: int) -> Iterator[ImportReport]:
        # A source and its conversation may both have grown: with the source as another conversation, both are whole.
        return import_conversations(
            found, self._library(), redact=self._redact, cache=cache, jobs=jobs, diverged="fork"
        )

    def _note(self, report: ImportReport, found: FoundSource | None) -> None:
        program = (None if found is None else found.program) or report.format or "?"
        if report.action in _LEFT:
            self._fail(report.source, program, report.reason or report.action)
            return
        self._again.pop(report.source, None)
        if self.state.failed.pop(report.source, None) is not None:
            self._tell("recovered", f"{report.source}: imported now", source=report.source)
        if report.action not in _TAKEN:
            return
        self._has_news = True
        its = self.state.programs.setdefault(program, KeptProgram())
        its.imports += 1
        its.last_at = self.state.imported_at = now()
        its.last_source = report.source
        facts = {"id": report.id, "action": report.action, "messages": report.messages, "source": report.source}
        self._tell("imported", f"{program}: {report.action} {report.id} from {report.source}", program=program, **facts)

    def _fail(self, source: str, program: str | None, reason: str) -> None:
        if (known := self.state.failed.get(source)) is None or known["reason"] != reason:
            self.state.failed[source] = {"reason": reason, "since": now(), "program": program}
            self._tell("failed", f"{source}: {reason}", source=source, program=program, reason=reason)

    @staticmethod
    def _is_whole_disk(error: BaseException) -> bool:
        return (error.errno if isinstance(error, OSError) else None) in _WHOLE_DISK

    def _give_up(self, left: dict[str, FoundSource], error: BaseException) -> None:
        """Leave what could not be imported for later."""
        reason = error.problem if isinstance(error, TranscriptStoreError) else str(error)
        if self._is_whole_disk(error):
            self._retries += 1
            self._retry_at = time.monotonic() + _pause(self._retries)
            self._have_problem("import", reason)
        else:
            for one in left.values():
                tries = self._again.get(one.path, (0, 0.0))[0] + 1
                self._again[one.path] = tries, time.monotonic() + _pause(tries)
                # Otherwise the follower would offer it again at once.
                self._follower.imported([one])  # until then
                self._fail(one.path, one.program, reason)
        self._save()

    def _have_problem(self, doing: str, reason: str) -> None:
        known = self.state.problem
        # Said once, and not with each attempt (N2).
        if known is None or (known["doing"], known["reason"]) != (doing, reason):
            self.state.problem = {"doing": doing, "reason": reason, "since": now()}
            self._tell("problem", f"cannot {doing}: {reason}; will retry", doing=doing, reason=reason)

    def _have_no_problem(self, doing: str) -> None:
        if self.state.problem is not None and self.state.problem["doing"] == doing:
            self.state.problem = None
            self._tell("recovered", f"the {doing} works again")

    def _stamp(self) -> None:
        """Note how everything looks, for the next start."""
        self._has_unstamped = False
        self._import([one for one in self._look() if not self._follower.is_waiting(one.path)], cache=self._cache)

    # ---- after an import ---------------------------------------------------------------------------------------------

    def _after_imports(self) -> None:
        if self._has_news or time.monotonic() >= self._index_at:
            self._has_news = False
            self._index()
            self._ship_at = 0.0
        if self._shipper is not None and time.monotonic() >= self._ship_at:
            self._ship()

    def _index(self) -> None:
        if not os.path.isdir(self.state.library) and "://" not in self.state.library:
            return  # nothing was imported yet
        self._index_at = time.monotonic() + _MOST_RETRY_SECONDS
        try:
            with SearchIndex(self._library()) as index:
                not_read = index.update().not_read
        except (TranscriptStoreError, OSError) as error:
            self._have_problem("index", error.problem if isinstance(error, TranscriptStoreError) else str(error))
            return
        self.state.indexed_at = now()
        if not_read:
            others = f" (and {many(len(not_read) - 1, 'conversation')} more)" if len(not_read) > 1 else ""
            self._have_problem("index", f"{not_read[0].problem}{others}")
            return
        self._index_at = float("inf")
        self._have_no_problem("index")

    def _ship(self) -> None:
        """Send new records. Failed sends are retried at growing intervals."""
        assert self._shipper is not None
        ship = self.state.ship = self.state.ship or {}
        left, failed, sent = 0, {}, 0
        try:
            for report in self._shipper.send():
                if (error := getattr(report, "error", None)) is not None:
                    failed[report.directory] = error.problem
                else:
                    left += report.left_records
                    sent += report.sent_records
        except TranscriptStoreError as error:
            failed[""] = error.problem
        # The same failures as the last time were said already (N2).
        if failed != ship.get("failed") and failed:
            reason = next(iter(failed.values()))
            self._tell("problem", f"cannot ship: {reason}; will retry", doing="ship", reason=reason)
        if failed or left:
            self._ship_retries += 1
            self._ship_at = time.monotonic() + _pause(self._ship_retries)
        else:
            self._ship_retries = 0
            self._ship_at = self._look_at + _MOST_SECONDS  # what others wrote into the library
        ship.update(at=now(), left_records=left, failed=failed)
        if sent:
            self._tell("shipped", f"{sent:,} records sent to {ship.get('to')}", records=sent, left_records=left)
        self._save()

    # ---- reports -----------------------------------------------------------------------------------------------------

    def _standing(self) -> str:
        sessions = sum(one.sessions for one in self.state.programs.values())
        failed = f"; {len(self.state.failed):,} failed" if self.state.failed else ""
        waiting = f"; {len(self._follower):,} are being written to" if len(self._follower) else ""
        return f"{many(sessions, 'session')} here{failed}{waiting}"

    def _tell(self, kind: str, text: str, **facts: Any) -> None:
        self._say(KeepEvent(kind=kind, text=text, facts=facts))

    def _save(self) -> None:
        self.state.waiting = len(self._follower)
        try:
            write_state(self._state_path, self.state)
        except OSError as error:
            if self._state_said != (reason := f"{self._state_path}: {error.strerror}"):
                self._state_said = reason
                with suppress(OSError):
                    self._tell("problem", f"cannot write the state: {reason}", doing="write the state", reason=reason)
        else:
            self._state_said = ""


def _clocks() -> tuple[float, float, float]:
    """The time by the wall clock and by the monotonic clock, and for how long this process has worked."""
    return time.time(), time.monotonic(), time.process_time()


def _pause(tries: int) -> float:
    """How long to wait after so many failures."""
    return float(min(_RETRY_SECONDS * 2 ** min(tries - 1, 10), _MOST_RETRY_SECONDS))
