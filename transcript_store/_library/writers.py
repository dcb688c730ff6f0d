"""Who writes to which conversations of a library right now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import orjson

from transcript_store._os.directory import Folder, identity
from transcript_store._os.held import is_alive, locked_files
from transcript_store._os.names import LOCK
from transcript_store._os.refusals import NotOursError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationWriter:
    """A writer that has a conversation open, as it calls itself. What it does not say is None."""

    id: str
    """The conversation's."""
    pid: int | None
    host: str | None
    since: str | None
    """When it took the lock, or on a backend claimed the conversation: RFC 3339, by its own clock."""
    name: str | None = None
    """On a backend the ``holder=`` that it was opened with."""
    last_write_at: str | None = None
    """On a backend when it wrote last, by its own clock."""
    takes_turns: bool = False
    """Whether it was opened with ``hold_lock=False`` on a backend: then others may write too."""


def writers_in(library: Folder, ids: list[str]) -> Iterator[ConversationWriter]:
    """The writers that hold the lock of a conversation in a directory. No lock is taken."""
    locked, host = locked_files(), library.files.host_name()
    for its_id in sorted(ids):
        with suppress(FileNotFoundError, NotOursError):
            with library.subfolder(its_id) as folder, folder.reading(LOCK) as source:
                pid, at_host, since = _name_in(bytes(source.read(0, min(source.size, 4096))))
                file = identity(source.status)
            if locked is None:
                is_held = pid is not None and at_host == host and is_alive(pid)
            else:
                is_held = file in locked or (pid is not None and (-pid, file[1]) in locked)
            if is_held:
                yield ConversationWriter(id=its_id, pid=pid, host=at_host, since=since)


def _name_in(content: bytes) -> tuple[int | None, str | None, str | None]:
    try:
        holder = orjson.loads(content.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        holder = None
    if type(holder) is not dict:
        return None, None, None
    pid, host, at = (holder.get(part) for part in ("pid", "host", "at"))
    return (pid if type(pid) is int else None), (host if type(host) is str else None), (at if type(at) is str else None)
