"""``doctor``: which promises hold in a directory? Each probe tries one thing that conversations need."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from transcript_store._os.filesystem import REAL, AnyPath, absolute_path, storage_error
from transcript_store._os.names import METADATA, TRANSCRIPT
from transcript_store.conversation import ConversationStore
from transcript_store.display import many
from transcript_store.errors import TranscriptStoreError
from transcript_store.hints import Hint

_MOUNTINFO = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")

IN_MEMORY = {"tmpfs", "ramfs", "rootfs"}
OVER_A_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "afs",
    "lustre",
    "gfs2",
    "ocfs2",
    "glusterfs",
    "sshfs",
}
TRIED = {"ext4", "xfs", "btrfs", "overlay", "tmpfs"}
"""The file systems on which the crash tests of this package were run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A line of ``/proc/self/mountinfo`` (proc(5))."""

    kind: str
    source: str
    point: str
    options: tuple[str, ...]
    """The options of the mount, then the options of the file system itself."""

    def __str__(self) -> str:
        return f"{self.kind} on {self.source}, mounted at {self.point} ({','.join(self.options)})"


def mount_of(path: str) -> Mount | None:
    """The mount that a directory is on; None without ``/proc/self/mountinfo`` (not Linux, or no /proc)."""
    try:
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [_parsed(line) for line in lines]
    except OSError:
        return None
    real = os.path.realpath(path)
    over = [mount for mount in mounts if os.path.commonpath([mount.point, real]) == mount.point]
    # The longest mount point is the nearest one. Of several mounts on the same point, the last one hides the others.
    return max(reversed(over), key=lambda mount: len(mount.point), default=None)


def _parsed(line: str) -> Mount:
    before, _, after = line.rstrip("\n").partition(" - ")
    point, options = before.split(" ")[4:6]
    kind, source, of_the_file_system = after.split(" ")[:3]
    both = dict.fromkeys([*options.split(","), *of_the_file_system.split(",")])
    return Mount(kind=kind, source=_plain(source), point=_plain(point), options=tuple(both))


def _plain(text: str) -> str:
    """Undo mountinfo's escapes: it writes a space, a tab, a line feed and a backslash as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


Result = Literal["ok", "note", "failed", "skipped"]
POWER = ("P1", "P2", "P4")
"""The promises about a power cut."""

_SYNCS = 100
_TOO_FAST_US = 5.0
"""A median below this, in microseconds, is ``failed``: no medium that keeps data without power is known to sync so fast."""
_CACHED_BYTES = 1 << 20
_LITTLE_BYTES = 100 << 20
_FEW_FILES = 1000
_LOCKER = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("refused", flush=True)
else:
    print("taken", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried, and what was found."""

    name: str
    result: Result
    """``ok``: it works. ``note``: worth knowing. ``failed``: a promise does not hold. ``skipped``: it could not be tried."""
    found: str
    promises: tuple[str, ...] = ()
    """The promises of docs/durability.md that do not hold here; empty unless ``result`` is ``failed``."""


def file_system(mount: Mount | None) -> Check:
    """True if this kind of file system, mounted in this way, is known to break a promise."""
    name = "file system"
    if mount is None:
        return Check(name=name, result="skipped", found="the system does not report its kind")
    found_here = str(mount)
    if mount.kind in IN_MEMORY:
        return Check(
            name=name,
            result="failed",
            found=f"{found_here}: it is in memory, and is lost without power",
            promises=POWER,
        )
    if mount.kind.removeprefix("fuse.") in OVER_A_NETWORK:
        why = "over a network neither locks nor syncs are promised"
        return Check(name=name, result="failed", found=f"{found_here}: {why}", promises=("P6", "P11", *POWER))
    for option in ("volatile", "fsync=volatile", "nobarrier", "barrier=0"):
        if option in mount.options:
            why = f"with {option} a sync does not reach the disk"
            return Check(name=name, result="failed", found=f"{found_here}: {why}", promises=POWER)
    if "errors=remount-ro" in mount.options:
        why = "after an internal error it may acknowledge one last sync falsely (docs/durability.md)"
        return Check(name=name, result="note", found=f"{found_here}: {why}; errors=panic does not")
    if mount.kind not in TRIED:
        return Check(name=name, result="note", found=f"{found_here}: this package was not tested on it")
    return Check(name=name, result="ok", found=found_here)


def permissions(folder: str) -> Check:
    """Check that new files and directories are private, independent of the umask."""
    name = "permissions"
    with _directory(folder) as handle:
        REAL.make_directory(handle, "d")
        REAL.close(REAL.create(handle, "f"))
        modes = [stat.S_IMODE(os.stat(entry, dir_fd=handle).st_mode) for entry in ("f", "d")]
    if modes != [0o600, 0o700]:
        found = f"a file has mode {modes[0]:04o} and a directory {modes[1]:04o}, whatever mode is requested"
        return Check(name=name, result="failed", found=found, promises=("P16",))
    umask = os.umask(0o077)  # a process can read its umask only by setting another one
    os.umask(umask)
    return Check(name=name, result="ok", found=f"files are 0600 and directories 0700; the umask is {umask:04o}")


def names(folder: str) -> Check:
    """Check that a rename replaces a file, and that a file can have two names (a hard link)."""
    name = "rename and link"
    with _directory(folder) as handle:
        for entry in ("old", "new"):
            made = REAL.create(handle, entry)
            REAL.write(made, entry.encode())
            REAL.close(made)
        REAL.rename(handle, "new", "old")
        if sorted(REAL.list_directory(handle)) != ["old"]:
            return Check(name=name, result="failed", found="a rename left both names", promises=("P4", "P9"))
        REAL.link(handle, "old", handle, "again")
        REAL.unlink(handle, "again")
    return Check(name=name, result="ok", found="a rename replaces a file; a file can have two names")


def directory_sync(folder: str) -> Check:
    """Check that a directory can be synced."""
    with _directory(folder) as handle:
        REAL.close(REAL.create(handle, "f"))
        REAL.sync(handle)
    return Check(
        name="directory sync", result="ok", found="accepted; only a power cut shows whether it reached the disk"
    )


def lock(folder: str) -> Check:
    """Check that the kernel's lock excludes another process, and is released when its process ends."""
    name = "kernel lock"
    with _directory(folder) as handle:
        file = REAL.create(handle, "lock")
        try:
            assert REAL.try_lock(file)
            with _locker(f"{folder}/lock") as (outcome, _):
                if outcome != "refused":
                    found = "two processes held it at once: two writers could open a conversation"
                    return Check(name=name, result="failed", found=found, promises=("P11",))
            REAL.unlock(file)
            with _locker(f"{folder}/lock") as (outcome, kill):
                while_held = REAL.try_lock(file)
                kill()
                if outcome != "taken" or while_held or not REAL.try_lock(file):
                    found = "it did not pass from one process to the other"
                    return Check(name=name, result="failed", found=found, promises=("P11",))
        finally:
            REAL.close(file)
    return Check(name=name, result="ok", found="refused to a second process; free when its process is killed")


def cache(folder: str) -> Check:
    """Check that a file can be read from the disk, bypassing the page cache.

    After a failed sync, the page cache may show bytes that are not on disk. Only a direct read tells the difference.
    """
    name = "reads past the cache"
    if sys.platform != "linux":
        return Check(name=name, result="skipped", found="this system has no such call")
    data = os.urandom(_CACHED_BYTES)
    with _directory(folder) as handle:
        file = REAL.create(handle, "f")
        try:
            while data[REAL.handle_status(file).st_size :]:
                REAL.write(file, data[REAL.handle_status(file).st_size :])
            REAL.sync_data(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            left = _pages_in_the_cache(file)
            try:
                direct = os.open("f", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC, dir_fd=handle)
                try:
                    # A direct read needs an aligned buffer. An anonymous mapping begins at a page.
                    with mmap.mmap(-1, _CACHED_BYTES) as aligned:
                        aligned[:] = bytes(_CACHED_BYTES)
                        is_same = os.preadv(direct, [aligned], 0) == _CACHED_BYTES and aligned[:] == data
                finally:
                    os.close(direct)
            except OSError as error:
                found = (
                    f"refused ({error.strerror}): after a failed sync, another process's mapped pages would be trusted"
                )
                return Check(name=name, result="failed", found=found, promises=("P6",))
        finally:
            REAL.close(file)
    if not is_same:
        return Check(
            name=name, result="failed", found="they return other bytes than were synced", promises=("P1", "P6")
        )
    kept = "nothing" if not left else f"{many(left, 'page')} of {_CACHED_BYTES // mmap.PAGESIZE}"
    return Check(name=name, result="ok", found=f"accepted; after a drop the cache kept {kept} of a file")


def sync_latency(folder: str) -> tuple[Check, list[float]]:
    """How long the sync of 1 KB takes: the check, and all measured times in microseconds, the shortest first."""
    name = "sync"
    data = bytes(1024)
    times: list[float] = []
    with _directory(folder) as handle:
        file = REAL.create(handle, "f")
        try:
            for _ in range(_SYNCS):
                REAL.write(file, data)
                begin = time.perf_counter()
                REAL.sync_data(file)
                times.append((time.perf_counter() - begin) * 1e6)
        finally:
            REAL.close(file)
    times.sort()
    half, most = times[len(times) // 2], times[len(times) * 99 // 100]
    found = f"{half:,.0f} µs for 1 KB (median of {_SYNCS}; 99 of 100 within {most:,.0f} µs)"
    if half < _TOO_FAST_US:
        found = f"{found}: too fast to be true, so a power cut would lose acknowledged records"
        return Check(name=name, result="failed", found=found, promises=POWER), times
    return Check(name=name, result="ok", found=found), times


def write_that_syncs(folder: str) -> Check:
    """How long a write with ``O_DSYNC`` takes.

    This package does not use ``O_DSYNC``. The time is shown for comparison with a write and a sync: if they differ much,
    the two do different things here.
    """
    name = "O_DSYNC"
    if not hasattr(os, "O_DSYNC"):
        return Check(name=name, result="skipped", found="this system has no such flag")
    times = []
    handle = os.open(f"{folder}/f", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DSYNC | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_SYNCS):
            begin = time.perf_counter()
            os.write(handle, bytes(1024))
            times.append((time.perf_counter() - begin) * 1e6)
    finally:
        os.close(handle)
    return Check(name=name, result="ok", found=f"{sorted(times)[_SYNCS // 2]:,.0f} µs for 1 KB (median of {_SYNCS})")


def space(folder: str) -> Check:
    """How much space and how many files are left for this user."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    files = "" if not found.f_files else f", {many(found.f_favail, 'more file')}"
    is_little = free < _LITTLE_BYTES or (found.f_files > 0 and found.f_favail < _FEW_FILES)
    return Check(name="space", result="note" if is_little else "ok", found=f"{free / 1e9:,.1f} GB free{files}")


def clock(folder: str) -> Check:
    """Compare the system's clock with the file system's.

    No promise depends on the clock, so a difference is a ``note``. Records have times, and people read them.
    """
    path = f"{folder}/f"
    before = time.time()
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    apart = os.stat(path).st_mtime - before
    found_here = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before))
    if abs(apart) > 2:
        return Check(
            name="clock", result="note", found=f"{found_here}; the file system's is {abs(apart):,.0f} s apart from it"
        )
    return Check(name="clock", result="ok", found=f"{found_here}, and the file system's agrees")


def conversation(folder: str) -> Check:
    """Check that a conversation can be created, appended to, closed and loaded."""
    name = "a conversation"
    outcome = {"role": "user", "content": "Is this stored?"}
    try:
        with ConversationStore(f"{folder}/c") as store:
            store.initialize(provider="claude")
            store.append_message(outcome)
        with ConversationStore(f"{folder}/c") as store:
            store.load()
            is_there = store.get_messages() == [outcome]
    except TranscriptStoreError as error:
        return Check(name=name, result="failed", found=str(error), promises=("P1", "P2"))
    if not is_there:
        return Check(
            name=name, result="failed", found="the stored records could not be read back", promises=("P1", "P2")
        )
    return Check(name=name, result="ok", found="created, appended to, closed and loaded")


Probe = Callable[[str], Check]
PROBES: dict[str, Probe] = {
    "permissions": permissions,
    "rename and link": names,
    "directory sync": directory_sync,
    "kernel lock": lock,
    "reads past the cache": cache,
    "O_DSYNC": write_that_syncs,
    "space": space,
    "clock": clock,
    "a conversation": conversation,
}
"""The probes by name, in the order in which they run. ``doctor()`` itself runs :func:`file_system` and :func:`sync_latency`."""


@contextmanager
def _directory(path: str) -> Iterator[int]:
    handle = REAL.open_directory(path)
    try:
        yield handle
    finally:
        REAL.close(handle)


@contextmanager
def _locker(path: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Start a process that tries to take a lock. Yields what it said (``taken`` or ``refused``) and a call that kills it."""
    command = [sys.executable, "-I", "-S", "-c", _LOCKER, path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603 - a program of ours

        def kill() -> None:
            process.kill()
            process.wait()

        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), kill
        finally:
            kill()


def _pages_in_the_cache(handle: int) -> int:
    """How many pages of a file are in memory (mincore(2))."""
    with mmap.mmap(handle, _CACHED_BYTES) as mapped:
        answers = (ctypes.c_ubyte * (_CACHED_BYTES // mmap.PAGESIZE))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(_CACHED_BYTES), answers)
    return 0 if failed else sum(answer & 1 for answer in answers)


_SCRATCH = re.compile(r"\.doctor-[0-9a-f]{16}")
_PROMISES = tuple(f"P{number}" for number in range(1, 23))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The findings about a directory."""

    directory: str
    checks: tuple[Check, ...]
    sync_microseconds: tuple[float, float] | None
    """How long a sync of 1 KB takes: the median and the 99th percentile. None if no sync could be tried."""

    @property
    def failed_promises(self) -> tuple[str, ...]:
        """The numbers of the promises in docs/durability.md that do not hold here."""
        ill = {promise for check in self.checks if check.result == "failed" for promise in check.promises}
        return tuple(promise for promise in _PROMISES if promise in ill)

    @property
    def is_ok(self) -> bool:
        """True if no check is ``failed``. A disk that acknowledges syncs falsely is found only if it is too fast to be true."""
        return not any(check.result == "failed" for check in self.checks)


def doctor(directory: AnyPath) -> Diagnosis:
    """Test what conversations need in a directory: its file system, syncs, locks, renames, cache, space and clock.

    It works in a new folder ``.doctor-<hex>`` inside the directory, and removes that folder at the end, and any that a killed one
    left. It changes nothing else. If the directory is a conversation's own, its parent is tried. It makes 200 syncs: that takes
    a second or less, and longer on a slow disk. It cannot prove that the disk is honest: only a power cut shows whether a
    sync reached the medium.

    Raises:
        StorageError: there is no such directory, or it cannot be listed; check the path and its permissions. A call that is
            refused *inside* the directory raises nothing: its check is ``failed`` or ``skipped``.
    """
    path = absolute_path(directory)
    try:
        names = os.listdir(path)
        if METADATA in names or TRANSCRIPT in names:  # a conversation's folder must have no other files
            path = os.path.dirname(path)
            names = os.listdir(path)
    except OSError as error:
        raise storage_error(error, path, "look at the directory", hint=Hint.CHECK_THE_PATH) from error
    for name in filter(_SCRATCH.fullmatch, names):  # left by a killed doctor
        shutil.rmtree(os.path.join(path, name), ignore_errors=True)
    checks = [file_system(mount_of(path))]
    scratch = os.path.join(path, f".doctor-{REAL.random_bytes(8).hex()}")
    try:
        os.mkdir(scratch, 0o700)
    except OSError as error:
        reason = storage_error(error, path, "write here")
        checks.append(
            Check(name="writing", result="failed", found=f"refused: {reason.strerror}; what is here can be read")
        )
        return Diagnosis(directory=path, checks=tuple(checks), sync_microseconds=None)
    times: list[float] = []
    try:
        try:
            check, times = sync_latency(_folder(scratch, "sync"))
        except OSError as error:
            check = _refused("sync", error)
        checks.append(check)
        for name, probe in PROBES.items():
            try:
                checks.append(probe(_folder(scratch, name)))
            except OSError as error:
                checks.append(_refused(name, error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    middle = (times[len(times) // 2], times[len(times) * 99 // 100]) if times else None
    return Diagnosis(directory=path, checks=tuple(checks), sync_microseconds=middle)


_NEEDED_BY = {
    "sync": ("P1", "P2", "P4"),
    "permissions": ("P16",),
    "rename and link": ("P4", "P9"),
    "directory sync": ("P1", "P4"),
    "kernel lock": ("P11",),
    "reads past the cache": ("P6",),
}


def _refused(name: str, error: OSError) -> Check:
    """The check for a call that was refused: ``failed`` if a promise depends on the call, else ``skipped``."""
    needed = _NEEDED_BY.get(name, ())
    return Check(
        name=name, result="failed" if needed else "skipped", found=f"refused: {error.strerror}", promises=needed
    )


def _folder(scratch: str, name: str) -> str:
    path = os.path.join(scratch, name.replace(" ", "-"))
    os.mkdir(path, 0o700)
    return path
