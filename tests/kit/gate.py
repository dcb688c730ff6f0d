"""A disk whose sync or lock waits at a gate until the right callers are in line, and that counts its calls."""

from __future__ import annotations

import errno
import os
import threading

from transcript_store._os.filesystem import PosixFileSystem


class Gate(PosixFileSystem):
    """A file system whose next sync waits until the test lets it through, and that refuses the calls that the test names."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.arrived = threading.Event()
        self.open = threading.Event()
        self.synced_bytes = 0
        self.syncs = 0
        self.refuse_sync = False
        self.refuse_longer_than: int | None = None
        self.refused = 0

    def sync_data(self, handle: int) -> None:
        if self.armed:
            self.armed = False
            self.arrived.set()
            assert self.open.wait(30)
        elif self.refuse_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        size = os.fstat(handle).st_size
        os.fdatasync(handle)
        self.synced_bytes = max(self.synced_bytes, size)
        self.syncs += 1

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        if self.refuse_longer_than is not None and len(data) > self.refuse_longer_than:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(handle, data)


class LockGate(Gate):
    """A gate before a lock that another process holds: the next wait for it stops there. Other waits take no time, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_seconds = 0.0

    def wait(self, seconds: float) -> None:  # type: ignore[override]  # a method where the real one is static
        self.waited_seconds += seconds
        if self.armed:
            self.armed = False
            self.arrived.set()
            assert self.open.wait(30)
