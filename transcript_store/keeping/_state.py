"""The state file of a running keep, and the lock that allows one for each library."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import orjson

from transcript_store.errors import TranscriptStoreError
from transcript_store.temporary_files import temporary

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
        members = {name: value for name, value in found.items() if name in known}
        members["programs"] = {name: KeptProgram(**one) for name, one in members["programs"].items()}
        return KeepState(**members)
    return None


def write_state(path: str, state: KeepState) -> None:
    """Replace the state.

    Raises:
        OSError: the system refuses; the earlier state is intact.
    """
    members = asdict(state)
    members["failed"] = dict([*members["failed"].items()][-_MOST_FAILURES:])
    replace_file(path, orjson.dumps({"version": _VERSION, **members}))


def replace_file(path: str, data: bytes) -> None:
    """Replace the file at a path with these bytes; create its folder if it is missing.

    Raises:
        OSError: the system refuses; the earlier file is intact.
    """
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with temporary(folder, f"{name}.") as (file, new):
        file.write(data)
        file.flush()
        os.rename(new, path)


@contextmanager
def only_keeper(library: str, path: str) -> Iterator[None]:
    """Hold the lock of a library's only keeper while the block runs. The kernel releases it with the process.

    Without such a lock there may be two keepers: a repeated import stores nothing twice.

    Raises:
        AlreadyKeptError: another process is it.
    """
    with ExitStack() as stack:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            handle = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
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
