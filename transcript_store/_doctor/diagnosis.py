"""``doctor``: which promises hold in a directory, and why the others do not."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass

from transcript_store._doctor.probes import PROBES, Check, file_system, mount_of, sync_latency
from transcript_store._os.filesystem import REAL, AnyPath, absolute_path
from transcript_store._os.names import METADATA, TRANSCRIPT
from transcript_store._os.os_errors import storage_error
from transcript_store.hints import Hint

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
