"""The content of a simulated disk, and its possible states after a power loss.

The model assumes only what POSIX and fsync(2) promise, and nothing that a particular file system adds (Pillai and others, "All
File Systems Are Not Created Equal", OSDI 2014). A change consists of *steps*. A step that was synced is on disk (stable
storage). Of the others, any may reach it, in any order:

* A write is one step for the new size and one for each page of data that it touches. A page may be torn.
* Creating, renaming, linking and removing are each one step of a directory. A rename is atomic, but not durable.
* Syncing a file makes its data and size durable, but not its name. Syncing a directory makes its names durable.

Bytes within the size that no step wrote read as ``fill``: NULs, or what the blocks contained before.
"""

from __future__ import annotations

import stat
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random
from typing import NamedTuple

ROOT = 1
ABSENT, WHOLE = 0, -1
"""How much of a step reached the medium. Any other number is a count of bytes: the page was torn after them."""


@dataclass(slots=True)
class Inode:
    """A file or a directory."""

    number: int
    is_directory: bool
    data: bytearray = field(default_factory=bytearray)
    names: dict[str, int] = field(default_factory=dict)

    @property
    def mode(self) -> int:
        return stat.S_IFDIR | 0o700 if self.is_directory else stat.S_IFREG | 0o600


class NameStep(NamedTuple):
    """Directory entries that change together. Each change is a directory, a name, and its inode afterwards (None: removed)."""

    changes: tuple[tuple[int, str, int | None], ...]


class SizeStep(NamedTuple):
    """A new size of a file, in bytes."""

    inode: int
    size: int


class DataStep(NamedTuple):
    """New bytes within one page of a file."""

    inode: int
    offset: int
    data: bytes


Step = NameStep | SizeStep | DataStep


@dataclass(slots=True)
class PendingStep:
    """A step that may not be on disk yet."""

    step: Step
    durable: bool = False
    lost: bool = False
    """True after a failed sync: the step is in the cache, but will never be on disk."""


class Disk:
    """The inodes as processes see them, and the changes that may not be on disk."""

    def __init__(self, page_bytes: int, sector_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.sector_bytes = sector_bytes
        self.inodes: dict[int, Inode] = {ROOT: Inode(ROOT, is_directory=True)}
        self.next_inode = ROOT + 1
        self.changes: list[PendingStep] = []
        self.mapped: set[int] = set()
        """Files that some process has mapped."""
        self._medium: dict[int, Inode] = {ROOT: Inode(ROOT, is_directory=True)}
        self._links: Counter[int] | None = None
        self._mutex = threading.Lock()
        """Threads of one process make and name files at once."""

    # ---- what the kernel does ------------------------------------------------------------------------------------

    def new_inode(self, *, is_directory: bool) -> int:
        with self._mutex:
            number = self.next_inode
            self.next_inode += 1
            self.inodes[number] = Inode(number, is_directory)
            return number

    def name(self, *changes: tuple[int, str, int | None]) -> None:
        with self._mutex:
            self._links = None
            for directory, name, inode in changes:
                names = self.inodes[directory].names
                if inode is None:
                    del names[name]
                else:
                    names[name] = inode
            self.changes.append(PendingStep(NameStep(changes)))

    def append(self, inode: int, data: bytes) -> None:
        content = self.inodes[inode].data
        offset = len(content)
        content += data
        self.changes.append(PendingStep(SizeStep(inode, len(content))))
        end = offset + len(data)
        while offset < end:
            page_end = min(end, offset - offset % self.page_bytes + self.page_bytes)
            self.changes.append(PendingStep(DataStep(inode, offset, bytes(content[offset:page_end]))))
            offset = page_end

    def truncate(self, inode: int, size: int) -> None:
        content = self.inodes[inode].data
        if size != len(content):
            del content[size:]
            content.extend(bytes(size - len(content)))
            self.changes.append(PendingStep(SizeStep(inode, size)))

    def sync(self, inode: int) -> None:
        self._settle(self._pending_of(inode))

    def sync_all(self) -> None:
        self._settle(self.pending())

    def lose_all(self) -> None:
        """Do what a failed sync of the file system may do: the same as a failed sync of each file."""
        for inode in self.inodes:
            self.lose(inode)

    def _settle(self, changes: list[PendingStep]) -> None:
        for change in changes:
            change.durable = True
        while self.changes and (self.changes[0].durable or self.changes[0].lost):
            change = self.changes.pop(0)
            if change.durable:
                self._apply(self._medium, change.step, WHOLE, b"\0")

    def lose(self, inode: int) -> None:
        """Do what a failed sync does: dirty pages are marked clean and stay in the cache, but never reach the medium."""
        for change in self._pending_of(inode):
            if isinstance(change.step, DataStep):
                change.lost = True

    def drop_cache(self, inode: int) -> None:
        """Drop the cached pages, so that reads show the medium without the lost writes. A mapped file's pages stay."""
        if inode not in self.mapped:
            self.inodes[inode].data[:] = self.on_medium(inode)

    def on_medium(self, inode: int) -> bytearray:
        """The contents of a file once all pending changes are on disk, without those that a failed sync lost."""
        lasting = self._medium.get(inode)
        found = {inode: Inode(inode, is_directory=False, data=bytearray(lasting.data if lasting else b""))}
        for change in self.changes:
            if not change.lost and not isinstance(change.step, NameStep) and change.step.inode == inode:
                self._apply(found, change.step, WHOLE, b"\0")
        data, size = found[inode].data, len(self.inodes[inode].data)
        data.extend(bytes(max(0, size - len(data))))
        return data[:size]

    def links(self, inode: int) -> int:
        """How many names an inode has."""
        with self._mutex:
            if self._links is None:
                self._links = Counter(named for holder in self.inodes.values() for named in holder.names.values())
            return self._links[inode]

    def _pending_of(self, inode: int) -> list[PendingStep]:
        return [change for change in self.changes if not change.durable and not change.lost and _touches(change, inode)]

    def _apply(self, inodes: dict[int, Inode], step: Step, fate: int, fill: bytes) -> None:
        """Put a step on a medium. A missing inode is made, even without a name: its name may reach the medium later."""
        numbers = [number for number, _, _ in step.changes] if isinstance(step, NameStep) else [step.inode]
        if isinstance(step, NameStep):
            numbers += [number for _, _, number in step.changes if number is not None]
        for number in numbers:
            if number not in inodes:
                inodes[number] = Inode(number, self.inodes[number].is_directory)
        if isinstance(step, NameStep):
            for directory, name, named in step.changes:
                if named is None:
                    inodes[directory].names.pop(name, None)
                else:
                    inodes[directory].names[name] = named
            return
        content = inodes[step.inode].data
        if isinstance(step, SizeStep):
            del content[step.size :]
            _fill(content, step.size, fill)
        else:
            data = step.data if fate == WHOLE else step.data[:fate]
            room = max(0, len(content) - step.offset)  # bytes beyond the size are not part of the file
            content[step.offset : step.offset + len(data)] = data[:room]

    # ---- what a power loss may leave -----------------------------------------------------------------------------

    def pending(self) -> list[PendingStep]:
        """The changes that may or may not survive a power loss, in the order in which they were made."""
        return [change for change in self.changes if not change.durable and not change.lost]

    def fates(self, change: PendingStep) -> list[int]:
        """The possible remains of a pending change after a power loss: nothing, all of it, or some of its bytes."""
        fates = [ABSENT, WHOLE]
        if isinstance(change.step, DataStep):
            _, offset, data = change.step
            sectors = range(self.sector_bytes - offset % self.sector_bytes, len(data), self.sector_bytes)
            torn = {*sectors, 1, len(data) // 2, len(data) - 1}
            fates += sorted(count for count in torn if 0 < count < len(data))
        return fates

    def after_power_failure(self, fates: Sequence[int], fill: bytes) -> Disk:
        """The disk after a power loss that left this much of each pending change. ``fates`` has one for each, in order."""
        chosen = dict(zip(map(id, self.pending()), fates, strict=True))
        medium = _copy(self._medium)
        for change in self.changes:
            fate = WHOLE if change.durable else ABSENT if change.lost else chosen[id(change)]
            if fate != ABSENT:
                self._apply(medium, change.step, fate, fill)
        disk = Disk(self.page_bytes, self.sector_bytes)
        disk.next_inode = self.next_inode
        disk._medium = medium
        disk.inodes = _copy(medium)
        return disk

    def all_fates(self, limit: int, random: Random) -> Iterator[tuple[int, ...]]:
        """Every combination of fates. If there are more than ``limit``, a sample of that size.

        The sample begins with the combinations that reveal most bugs: each prefix of the changes, the same with its last change
        torn, and the same with one change added or missing. The rest is random.
        """
        options = [self.fates(change) for change in self.pending()]
        if prod(map(len, options)) <= limit:
            yield from product(*options)
            return
        seen: set[tuple[int, ...]] = set()
        for fates in _telling(options):
            if len(seen) < limit and fates not in seen:
                seen.add(fates)
                yield fates
        while len(seen) < limit:
            fates = tuple(random.choice(option) for option in options)
            if fates not in seen:
                seen.add(fates)
                yield fates


def _telling(options: list[list[int]]) -> Iterator[tuple[int, ...]]:
    count = len(options)
    for length in range(count, -1, -1):
        prefix = [WHOLE] * length + [ABSENT] * (count - length)
        yield tuple(prefix)
        for torn in options[length - 1][2:] if length else ():
            yield (*prefix[: length - 1], torn, *prefix[length:])
        for other in range(count):
            flipped = list(prefix)
            flipped[other] = ABSENT if prefix[other] == WHOLE else WHOLE
            yield tuple(flipped)


def _touches(change: PendingStep, inode: int) -> bool:
    if isinstance(change.step, NameStep):
        return any(directory == inode for directory, _, _ in change.step.changes)
    return change.step.inode == inode


def _copy(inodes: dict[int, Inode]) -> dict[int, Inode]:
    return {
        number: Inode(number, inode.is_directory, bytearray(inode.data), dict(inode.names))
        for number, inode in inodes.items()
    }


def _fill(content: bytearray, size: int, fill: bytes) -> None:
    start = len(content)
    if size > start:
        repeated = fill * (size // len(fill) + 1)
        content += repeated[start:size]
