"""A folder of the real file system that stands in for a machine's root, so that a case runs on the kernel as it is.

What a crash test asks of ``SimulatedFileSystem`` beside the calls of the store is here too: the judge and the cases take
either. Clock and random numbers are counted out, so that the same run leaves the same bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from random import Random

from tests.crash import sync_sites
from transcript_store._os import filesystem
from transcript_store._os.filesystem import PosixFileSystem

_START_US = 1_790_000_000_000_000
_TICK_US = 1_000


class RealDisk(PosixFileSystem):
    """One process on the kernel's file system; every absolute path is taken from ``root`` on."""

    def __init__(self, root: Path, *, seed: int = 0) -> None:
        super().__init__()
        self.root = root
        self._random = Random(seed)
        self.clock_us = _START_US

    @classmethod
    def holding(cls, root: Path, tree: dict[str, bytes | None]) -> RealDisk:
        """A new folder with these contents, as ``tree`` gives them."""
        root.mkdir()
        for path, data in sorted(tree.items()):
            there = root / path.lstrip("/")
            if data is None:
                there.mkdir(mode=0o700)
            else:
                there.write_bytes(data)
                there.chmod(0o600)
        return cls(root)

    def tree(self) -> dict[str, bytes | None]:
        """Path → content, None for a directory."""
        return {
            f"/{path.relative_to(self.root)}": None if path.is_dir() else path.read_bytes()
            for path in sorted(self.root.rglob("*"))
        }

    def write_file(self, path: str, data: bytes) -> None:
        """As another program would."""
        (self.root / path.lstrip("/")).write_bytes(data)

    def copy(self) -> RealDisk:
        """The same on a folder of its own, beside this one."""
        root = Path(tempfile.mkdtemp(dir=self.root.parent, prefix="copy-"))
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return RealDisk(root, seed=self._random.getrandbits(32))

    def another_process(self) -> RealDisk:
        return RealDisk(self.root, seed=self._random.getrandbits(32))

    def worst_power_failure(self) -> RealDisk:
        """No power fails here; what another process finds."""
        return self.another_process()

    def sync_path(self, path: str) -> None:
        """Nothing: on a real disk the fate of what is not synced is not enumerated."""

    @property
    def open_handles(self) -> list[int]:
        return sorted(self._handles)  # those of the file system that it is

    # ---- the FileSystem protocol, where it differs ---------------------------------------------------------------

    def open_directory(self, path: str, parent: int | None = None) -> int:
        return super().open_directory(f"{self.root}{path}" if parent is None else path, parent)

    def path_status(self, path: str) -> os.stat_result:
        return super().path_status(f"{self.root}{path}")

    def _sync(self, handle: int) -> None:
        sync_sites.announce()
        os.fsync(handle)

    def sync_data(self, handle: int) -> None:
        sync_sites.announce()
        super().sync_data(handle)

    def _can_sync_all(self, handle: int) -> bool:
        return handle in self._handles  # in memory a sync of all is as good as any other, and costs nothing

    def _sync_all(self, handle: int) -> None:
        sync_sites.announce()
        filesystem.sync_file_system(handle)

    def now_us(self) -> int:
        self.clock_us += _TICK_US
        return self.clock_us

    def _random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    can_sync_all = _can_sync_all
    sync_all = _sync_all
    sync = _sync  # type: ignore[assignment]  # methods where the real ones are static
    random_bytes = _random_bytes
