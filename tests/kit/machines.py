"""The real file system with one change: waits take no time, reads are counted, the clock is set, or something happens before a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from transcript_store import ConversationLibrary
from transcript_store._os.filesystem import PosixFileSystem


class Hasty(PosixFileSystem):
    """A reader that wants a second look at damage does not wait for it."""

    def wait(self, seconds: float) -> None:  # type: ignore[override]
        pass


HASTY = Hasty()


class Counting(Hasty):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        data = super().read(handle, offset, length)
        self.bytes_read += len(data)
        return data


class Clock(PosixFileSystem):
    """A clock that the test sets, in microseconds since 1970."""

    NOON = 1_800_000_000_000_000

    def __init__(self, now: int = NOON) -> None:
        super().__init__()
        self.now = now

    def now_us(self) -> int:
        return self.now


def machine_of(store: Any) -> Any:
    """What a store works on. It tells nobody: whoever makes one knows. Here it has passed through many hands since."""
    return store._folders.files if isinstance(store, ConversationLibrary) else store._files  # nobody else tells


class Between:
    """Something happens just before the nth call. Waits take no time. ``calls`` and ``nth`` can be reset."""

    def __init__(self, nth: int = 0, happen: Callable[[], object] = lambda: None) -> None:
        self._files = PosixFileSystem()
        self.nth = nth
        self.happen = happen
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)

        def call(*arguments: Any) -> Any:
            if name not in ("process_id", "host_name", "now_us", "random_bytes", "wait"):
                self.calls += 1
                if self.calls == self.nth:
                    self.happen()
            return None if name == "wait" else method(*arguments)

        return call


class SyncedWhole(PosixFileSystem):
    """The real file system, treated as one that can be synced as a whole; its syncs are counted and not made."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def _sync(self, handle: int) -> None:
        self.counted["sync"] += 1

    def _sync_all(self, handle: int) -> None:
        self.counted["sync_all"] += 1

    def _can_sync_all(self, handle: int) -> bool:
        return handle >= 0

    sync = sync_data = _sync  # type: ignore[assignment]  # methods where the real ones are static
    sync_all = _sync_all
    can_sync_all = _can_sync_all
