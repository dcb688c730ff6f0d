"""How do slots become a folder that the core can read? A private in-memory file system, to which slots are applied; so
each is fetched once.

Names, directories and locks are in memory. What a file holds is in memory too as long as it is short, and then in a
file of the system that has no name (mode 0600). So no name of it is on disk, nothing is synced, and it ends with the
process. The clock, random numbers and waiting are those of the underlying file system.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterable, Sequence
from itertools import groupby
from tempfile import TemporaryFile
from typing import IO, NamedTuple, NoReturn

from transcript_store._conversation.metadata import document_body
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import CHECK_MEMBER, Mark, close_line
from transcript_store._log.scan import PIECE_BYTES, first_line
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import DIRECTORY_MODE, FILE_MODE, FileSystem
from transcript_store._os.names import ARCHIVE, METADATA, TRANSCRIPT, archive_name
from transcript_store.backends._slots import LogState, Slot, slot_lines

IN_MEMORY_BYTES = 64 * 1024
"""A longer file takes a file descriptor until it is removed, or the mirror is closed."""

_numbers = itertools.count(1)


class _MirrorStatus(NamedTuple):
    st_mode: int
    st_dev: int
    st_ino: int
    st_nlink: int
    st_size: int
    st_mtime_ns: int


class _File:
    """The content of a file, under any number of names."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.size = 0
        self.names = 1
        self.opened = 0
        self.locked_by: int | None = None
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def read(self, offset: int, length: int) -> bytearray:
        if self._file is None:
            return self._memory[offset : offset + length]
        buffer = bytearray(max(0, min(length, self.size - offset)))
        done = 0
        with memoryview(buffer) as view:
            while done < len(buffer) and (count := os.preadv(self._file.fileno(), [view[done:]], offset + done)):
                done += count
        return buffer

    def append(self, data: bytes | bytearray | memoryview) -> int:
        if self._file is None and self.size + len(data) > IN_MEMORY_BYTES:
            file = TemporaryFile(buffering=0)  # noqa: SIM115 (it lives as long as its content)
            written = 0
            while written < self.size:
                written += os.pwrite(file.fileno(), self._memory[written:], written)
            self._file, self._memory = file, bytearray()
        if self._file is None:
            self._memory += data
            count = len(data)
        else:
            count = os.pwrite(self._file.fileno(), data, self.size)
        self.size += count
        return count

    def truncate(self, size: int) -> None:
        if self._file is None:
            del self._memory[size:]
            self._memory.extend(bytes(size - len(self._memory)))
        else:
            os.ftruncate(self._file.fileno(), size)
        self.size = size

    def discard_unless_used(self) -> None:
        if not self.names and not self.opened:
            self.discard()

    def discard(self) -> None:
        file, self._file, self._memory, self.size = self._file, None, bytearray(), 0
        if file is not None:
            file.close()


class _Directory(dict[str, "_File | _Directory"]):
    """Names and their entries."""

    size = 0
    names = 1

    def __init__(self, above: _Directory | None = None) -> None:
        super().__init__()
        self.number = next(_numbers)
        self.above = self if above is None else above


class Mirror:
    """A ``FileSystem`` for one process and one conversation. Calls must not overlap: the owner has a lock of its own.

    Args:
        machine: the file system whose clock, random numbers, waiting and names are used.
    """

    def __init__(self, machine: FileSystem) -> None:
        self.now_us = machine.now_us
        self.random_bytes = machine.random_bytes
        self.wait = machine.wait
        self.process_id = machine.process_id
        self.host_name = machine.host_name
        self.boot_id = machine.boot_id
        self._root = _Directory()
        self._handles: dict[int, _File | _Directory] = {}
        self._last = 0

    def clear(self) -> None:
        """Release everything: every file, every handle."""
        for node in [*self._handles.values(), self._root]:
            _discard(node)
        self._root.clear()
        self._handles.clear()

    # ---- names -----------------------------------------------------------------------------------------------------------

    def open_directory(self, path: str, parent: int | None = None) -> int:
        node = self._resolve(path, self._root if parent is None else self._directory(parent))
        if not isinstance(node, _Directory):
            _refuse(errno.ENOTDIR, path)
        return self._open(node)

    def open_read(self, parent: int, name: str) -> int:
        node = _entry(self._directory(parent), name)
        if isinstance(node, _Directory):
            _refuse(errno.EISDIR, name)
        node.opened += 1
        return self._open(node)

    open_append = open_read

    def create(self, parent: int, name: str) -> int:
        node = _File()
        self._name(parent, name, node)
        node.opened += 1
        return self._open(node)

    def make_directory(self, parent: int, name: str) -> None:
        self._name(parent, name, _Directory(self._directory(parent)))

    def list_directory(self, handle: int) -> list[str]:
        return list(self._directory(handle))

    def rename(self, parent: int, old: str, new: str) -> None:
        directory = self._directory(parent)
        node = _entry(directory, old)
        if new in directory:
            if isinstance(node, _Directory):
                self.remove_directory(parent, new)
            else:
                self.unlink(parent, new)
        directory[new] = directory.pop(old)

    def link(self, parent: int, name: str, to_parent: int, to_name: str) -> None:
        node = self._file_named(parent, name)
        self._name(to_parent, to_name, node)
        node.names += 1

    def unlink(self, parent: int, name: str) -> None:
        node = self._file_named(parent, name)
        del self._directory(parent)[name]
        node.names -= 1
        node.discard_unless_used()

    def remove_directory(self, parent: int, name: str) -> None:
        node = _entry(self._directory(parent), name)
        if not isinstance(node, _Directory):
            _refuse(errno.ENOTDIR, name)
        if node:
            _refuse(errno.ENOTEMPTY, name)
        del self._directory(parent)[name]

    def status(self, parent: int, name: str) -> _MirrorStatus:
        return self._status(_entry(self._directory(parent), name))

    def path_status(self, path: str) -> _MirrorStatus:
        return self._status(self._resolve(path, self._root))

    def _resolve(self, path: str, node: _File | _Directory) -> _File | _Directory:
        for name in path.split("/"):
            if not isinstance(node, _Directory):
                _refuse(errno.ENOTDIR, path)
            node = node.above if name == ".." else node if name in ("", ".") else _entry(node, name)
        return node

    # ---- handles ---------------------------------------------------------------------------------------------------------

    def close(self, handle: int) -> None:
        node = self._handles.pop(handle, None)
        if node is None:
            _refuse(errno.EBADF, str(handle))
        if isinstance(node, _File):
            node.opened -= 1
            if node.locked_by == handle:
                node.locked_by = None
            node.discard_unless_used()

    def handle_status(self, handle: int) -> _MirrorStatus:
        return self._status(self._node(handle))

    def read(self, handle: int, offset: int, length: int) -> bytearray:
        return self._file(handle).read(offset, length)

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> int:
        return self._file(handle).append(data)

    def truncate(self, handle: int, size: int) -> None:
        self._file(handle).truncate(size)

    def try_lock(self, handle: int) -> bool:
        file = self._file(handle)
        if file.locked_by is None:
            file.locked_by = handle
        return file.locked_by == handle

    def unlock(self, handle: int) -> None:
        file = self._file(handle)
        if file.locked_by == handle:
            file.locked_by = None

    def can_sync_all(self, handle: int) -> bool:  # noqa: ARG002
        return False

    def sync(self, handle: int) -> None:
        """No-op: the backend already has it, and the mirror dies with the process."""

    sync_data = sync_all = drop_cache = sync

    # ---- within ----------------------------------------------------------------------------------------------------------

    def _open(self, node: _File | _Directory) -> int:
        self._last += 1
        self._handles[self._last] = node
        return self._last

    def _node(self, handle: int) -> _File | _Directory:
        node = self._handles.get(handle)
        if node is None:
            _refuse(errno.EBADF, str(handle))
        return node

    def _directory(self, handle: int) -> _Directory:
        node = self._node(handle)
        if not isinstance(node, _Directory):
            _refuse(errno.ENOTDIR, str(handle))
        return node

    def _file(self, handle: int) -> _File:
        node = self._node(handle)
        if not isinstance(node, _File):
            _refuse(errno.EISDIR, str(handle))
        return node

    def _file_named(self, parent: int, name: str) -> _File:
        node = _entry(self._directory(parent), name)
        if not isinstance(node, _File):
            _refuse(errno.EISDIR, name)
        return node

    def _name(self, parent: int, name: str, node: _File | _Directory) -> None:
        directory = self._directory(parent)
        if name in directory:
            _refuse(errno.EEXIST, name)
        directory[name] = node

    @staticmethod
    def _status(node: _File | _Directory) -> _MirrorStatus:
        mode = stat.S_IFDIR | DIRECTORY_MODE if isinstance(node, _Directory) else stat.S_IFREG | FILE_MODE
        return _MirrorStatus(mode, 0, node.number, node.names, node.size, 0)


def _discard(node: _File | _Directory) -> None:
    if isinstance(node, _File):
        node.discard()
    else:
        for below in node.values():
            _discard(below)


def _entry(directory: _Directory, name: str) -> _File | _Directory:
    node = directory.get(name)
    if node is None:
        _refuse(errno.ENOENT, name)
    return node


def _refuse(number: int, name: str) -> NoReturn:
    raise OSError(number, os.strerror(number), name)


# ---- applying ----
# Applies slots to the mirror: transcript.jsonl, metadata.json and archive/, as a writer on a disk would have left them.


def fill(files: FileSystem, path: str, slots: Sequence[Slot]) -> None:
    """Apply slots to a folder that has all earlier ones. Slot 1 starts it again.

    If this is interrupted, the folder is unusable: start again.
    """
    with Folder.make(files, path) as folder:
        for kind, run in groupby(slots, lambda slot: slot.kind):
            if kind == "append":
                _append(folder, run)
            elif kind == "generation":
                for slot in run:
                    _begin(folder, slot)
        _note(folder, slots[-1].after)


def _begin(folder: Folder, slot: Slot) -> None:
    if slot.number == 1:
        folder.remove_tree(ARCHIVE)
    else:
        with folder.reading(TRANSCRIPT) as source:
            before = read_header(first_line(source.read, source.size))
        assert not isinstance(before, NotAHeader)  # it was verified, and written here
        name = archive_name(before[0].generation)
        with folder.subfolder(ARCHIVE, create=True) as archive:
            archive.discard(name)  # of a replace that never stored its slot
            folder.files.link(folder.handle, TRANSCRIPT, archive.handle, name)
    folder.replace_file(TRANSCRIPT, [slot_lines(slot.data)])


def _append(folder: Folder, slots: Iterable[Slot]) -> None:
    handle, _ = folder.open_file(TRANSCRIPT, to_append=True)
    try:
        piece = bytearray()
        for slot in slots:
            piece += slot_lines(slot.data)
            if len(piece) >= PIECE_BYTES:
                folder.write_all(handle, piece)
                piece = bytearray()
        folder.write_all(handle, piece)
    finally:
        folder.files.close(handle)


def _note(folder: Folder, state: LogState) -> None:
    folder.replace_file(METADATA, [slot_metadata(state)])


def slot_metadata(state: LogState) -> bytes:
    """metadata.json. For a sealed conversation it is the document that the last writer with the key checked: marks
    belong to the mirror only.
    """
    if state.checked is None:
        body = document_body(state.members, Mark(state.generation, state.end))
    else:
        mark, check = state.checked
        body = b'%b%b%b"' % (document_body(state.members, mark), CHECK_MEMBER, check)
    return close_line(b"", body)[0]
