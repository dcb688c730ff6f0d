"""How is a snapshot store listed quickly? Only changed files are read; the other summaries are kept in a file of the
cache directory.

It is derived and disposable, as an index is: if anything is wrong with it, every snapshot is read. It has the stamp of
each file (inode, size, times) before it was read; a file that was written a moment ago may have the same stamp after
another write, so it is not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from transcript_store.file_names import absolute_path
from transcript_store.search._catalogue import SETTLED_NS
from transcript_store.search._database import cache_folder, path_in

if TYPE_CHECKING:
    from transcript_store.snapshots import FileStore, SnapshotSummary

_SUFFIX = ".json"
_VERSION = 1

Known = dict[str, tuple[str, "SnapshotSummary"]]
"""By the id of a snapshot: the stamp of its file, and its summary."""


def list_snapshots(store: FileStore, *, cache: str | os.PathLike[str] | None = None) -> list[SnapshotSummary]:
    """The result of ``store.list()``, the newest first; unchanged files are not read again.

    So a file with changed bytes but unchanged size and times is listed unchanged; ``store.verify()`` reads
    everything. Nothing is kept of a store that has a key: every snapshot is read.

    Args:
        store: the store.
        cache: the directory of the file, 0600; None for ``transcript-store`` in the user's cache directory.

    Raises:
        StorageError: the store cannot be read.
    """
    from transcript_store.snapshots import SnapshotSummary  # a search need not import it

    if store.has_key:
        return store.list()
    path = path_in(cache_folder() if cache is None else absolute_path(cache), store.directory, "snapshots-{}")
    looks = _looks(store.directory)
    if looks is None:
        return store.list()  # which raises the right error
    known = {its_id: one for its_id, one in _read(path).items() if looks.get(its_id) == one[0]}
    read = store.list(looks.keys() - known.keys())
    summaries = SnapshotSummary.newest_first([*(summary for _, summary in known.values()), *read])
    fresh = {summary.id: (looks[summary.id], summary) for summary in read if looks.get(summary.id)}
    if fresh:
        with suppress(OSError):  # it costs time, never an answer
            _write(path, known | fresh)
    return summaries


def _looks(directory: str) -> dict[str, str] | None:
    """The stamp of each snapshot's file; "" if another write may leave the same one. None if the system refuses."""
    settled = time.time_ns() - SETTLED_NS
    found = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX):
                    status = entry.stat(follow_symlinks=False)
                    is_settled = status.st_mtime_ns < settled and status.st_ctime_ns < settled
                    stamp = f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"
                    found[entry.name.removesuffix(_SUFFIX)] = stamp if is_settled else ""
    except OSError:
        return None
    return found


def _read(path: str) -> Known:
    """The stored summaries; none if the file is not intact."""
    from transcript_store.snapshots import SnapshotSummary

    try:
        # The name may be anything: a pipe must not block, and a link is not followed.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            digest, _, data = file.read().partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(data).hexdigest():
            return {}
        kept = json.loads(data)
        if kept["version"] != _VERSION:
            return {}
        names = kept["names"]
        return {
            values[0]: (stamp, SnapshotSummary(**dict(zip(names, values, strict=True)))) for stamp, values in kept["of"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(path: str, known: Known) -> None:
    of = [[stamp, astuple(summary)] for stamp, summary in known.values()]
    names = [field.name for field in fields(next(iter(known.values()))[1])]
    data = json.dumps({"version": _VERSION, "names": names, "of": of}).encode()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}-{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    os.replace(temporary, path)
