"""A change of another program's files: all of it or nothing, with a copy of each file, and undone after a kill.

J1  Before the first change the journal lists every step. The journal, the copies and the new files are synced before it.
J2  A step replaces the bytes of one name, moves one name, or commits one transaction of a database. The database comes last.
J3  The change is complete when the journal has the name of a finished one. Before that, the next call undoes it.
J4  An undo changes only what the change left unchanged since. Later writes stay, and are reported.
J5  A step runs only if the file or the row has not changed since the plan.

A copy is beside its file: ``NAME.before-ID``. The journal is in the program's folder, and one change at a time is made there: the lock
is on the folder itself. A journal names no path for a copy: it is made of the file's own name, so a forged journal can only put back a
file that is called like a copy.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from transcript_store.errors import TranscriptStoreError
from transcript_store.new_files import make_folder, make_folders
from transcript_store.sessions._rows import RowChange, change_rows, copy_database, undo_rows

_JOURNAL = ".transcript-store-session.journal"
_FINISHED = ".transcript-store-session-{}.json"


class SessionChangeError(TranscriptStoreError):
    """The files of a program at ``path`` were not changed; ``reason`` says why, with a hint."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that gets other bytes, is created, or is removed."""

    path: str
    data: bytes | None
    """None removes it; its copy stays."""
    seen: str | None
    """The SHA-256 of the bytes at the time of the plan; None if there was no such file."""
    keeps_time: bool = False
    """True if the new file gets the modification time of the old one."""


@dataclass(frozen=True, slots=True)
class FileMove:
    """A file or folder that gets another name, at which nothing is."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """Rows of one SQLite database, changed in one transaction."""

    path: str
    rows: tuple[RowChange, ...]


Step = FileChange | FileMove | DatabaseChange


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of an undo of an interrupted or finished change."""

    id: str
    what: str
    put_back: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Paths that another program changed since. They are left unchanged; a copy of the earlier bytes is beside each."""


@dataclass(slots=True)
class _JournalEntry:
    """One step in the journal."""

    kind: str
    path: str
    to: str | None = None
    before: str | None = None
    after: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


def bytes_at(path: str) -> bytes | None:
    """The bytes of a regular file; None if it does not exist.

    Raises:
        SessionChangeError: it cannot be read, or is a link or no regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "is a link: name the file that it points to" if error.errno == errno.ELOOP else None
        raise SessionChangeError(path=path, reason=why or f"cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SessionChangeError(path=path, reason="is not a regular file")
        return file.read()


def sha256_at(path: str) -> str | None:
    """The SHA-256 of what :func:`bytes_at` reads; None if it does not exist. Raises as that does."""
    data = bytes_at(path)
    return None if data is None else hashlib.sha256(data).hexdigest()


def copy_name(path: str, change_id: str) -> str:
    """Where the copy of a file is kept."""
    return f"{path}.before-{change_id}"


def change_files(folder: str, what: str, steps: Sequence[Step]) -> str:
    """Make a change below a program's folder, or beside it; returns its id, which :func:`undo_change` takes.

    On return all steps are made and durable. After an error nothing was changed, as far as the system still allows to undo it.

    Raises:
        SessionChangeError: a file or a row is not as planned, something is in the way, or another process makes a change there.
    """
    change_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"
    ordered = sorted(
        steps, key=lambda step: isinstance(step, DatabaseChange)
    )  # J2; the order of the others is the caller's
    with _lock(folder):
        _undo_interrupted(folder)
        entries = [_entry(step) for step in ordered]
        made = _missing_folders(ordered)
        made_of: set[str] = set()
        try:
            for step, entry in zip(ordered, entries, strict=True):
                # Checked before the journal is written, so that a refusal leaves nothing to undo (J5).
                _require_as_planned(step, entry)
            # J1: synced before the first step, so that a kill at any later line can be undone.
            _write_journal(folder, change_id, what, entries, made)
            # After the journal: an undo removes exactly these folders.
            for one in made:
                make_folder(one)
                _sync(os.path.dirname(one))
            for step in ordered:
                _prepare(step, change_id)
            for step in ordered:
                _make(step, change_id)
                made_of.add(step.path)
            # The commit (J3). Killed before it, the next call undoes every step.
            os.rename(os.path.join(folder, _JOURNAL), os.path.join(folder, _FINISHED.format(change_id)))
            _sync(folder)
        except BaseException as error:
            if os.path.lexists(os.path.join(folder, _JOURNAL)):
                # Rows that were not as planned may look as if they were changed: a row that the program deleted itself.
                _undo_interrupted(folder, but_rows_of={entry.path for entry in entries} - made_of)
            if isinstance(error, OSError) and not isinstance(error, TranscriptStoreError):
                where = error.filename if isinstance(error.filename, str) else folder
                raise SessionChangeError(
                    path=where, reason=f"cannot be changed: {error.strerror}; nothing was changed"
                ) from error
            raise
    return change_id


def undo_interrupted(folder: str) -> Undone | None:
    """Undo the change in a folder that was killed before its end; None if there is none.

    Raises:
        SessionChangeError: another process makes a change there right now.
    """
    path = os.path.join(folder, _JOURNAL)
    if not (os.path.lexists(path) or os.path.lexists(f"{path}.tmp")):
        return None
    with _lock(folder):
        return _undo_interrupted(folder)


def interrupted_change(folder: str) -> str | None:
    """The purpose of an interrupted change in a folder that is still to be undone; None without one."""
    journal = _read_journal(os.path.join(folder, _JOURNAL))
    return None if journal is None else str(journal.get("what"))


def finished_changes(folder: str) -> list[str]:
    """The ids of the finished changes in a folder, the newest last."""
    begins, ends = _FINISHED.split("{}")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(name[len(begins) : -len(ends)] for name in names if name.startswith(begins) and name.endswith(ends))


def undo_change(folder: str, change_id: str) -> Undone:
    """Undo a finished change.

    Raises:
        SessionChangeError: there is no such change, or another process makes a change there.
    """
    path = os.path.join(folder, _FINISHED.format(change_id))
    with _lock(folder):
        _undo_interrupted(folder)
        journal = _read_journal(path)
        # The id becomes part of a file name: it must not lead elsewhere.
        if journal is None or "/" in change_id:
            known = ", ".join(finished_changes(folder)) or "none"
            raise SessionChangeError(
                path=folder, reason=f"there is no change {change_id!r} to undo; known changes: {known}"
            )
        os.rename(path, os.path.join(folder, _JOURNAL))  # killed from here on, the next call completes the undo
        _sync(folder)
        return _undo(folder, journal)


# ---- the steps --------------------------------------------------------------------------------------------------------


def _entry(step: Step) -> _JournalEntry:
    match step:
        case FileChange(path, data):
            return _JournalEntry(
                "file", path, before=step.seen, after=None if data is None else hashlib.sha256(data).hexdigest()
            )
        case FileMove(path, to):
            return _JournalEntry("move", path, to=to)
        case DatabaseChange(path, rows):
            return _JournalEntry("rows", path, rows=[row.as_members() for row in rows])


def _require_as_planned(step: Step, entry: _JournalEntry) -> None:
    """J5, for steps that can be checked before."""
    match step:
        case FileChange(path):
            if sha256_at(path) != entry.before:
                raise SessionChangeError(
                    path=path, reason="changed since the plan was made; nothing was changed, run it again"
                )
        case FileMove(path, to):
            if not os.path.lexists(path):
                raise SessionChangeError(path=path, reason="was removed since the plan was made; nothing was changed")
            if os.path.lexists(to):
                raise SessionChangeError(path=to, reason="is in the way; nothing was changed")
        case DatabaseChange():
            pass  # in its transaction


def _missing_folders(steps: Sequence[Step]) -> list[str]:
    """The folders to create, those above first."""
    missing: dict[str, None] = {}
    for step in steps:
        if isinstance(step, DatabaseChange):
            continue
        wanted, above = os.path.dirname(step.to if isinstance(step, FileMove) else step.path), []
        while not os.path.isdir(wanted):
            above.append(wanted)
            wanted = os.path.dirname(wanted)
        missing.update(dict.fromkeys(reversed(above)))
    return [*missing]


def _prepare(step: Step, change_id: str) -> None:
    """The new bytes and the copy, synced, under names of their own."""
    match step:
        case FileChange(path, data):
            old = os.lstat(path) if step.seen is not None else None
            if data is not None:
                _write_synced(_new_name(path, change_id), data, old, keeps_time=step.keeps_time)
            if old is not None:
                _copy(path, copy_name(path, change_id))
            _sync(os.path.dirname(path))
        case DatabaseChange(path):
            # Through SQLite, not as a file: the write-ahead log may hold committed rows.
            copy_database(path, copy_name(path, change_id))
            _sync(os.path.dirname(path))
        case FileMove():
            pass


def _make(step: Step, change_id: str) -> None:
    match step:
        case FileChange(path, None):
            os.unlink(path)
            _sync(os.path.dirname(path))
        case FileChange(path):
            new = _new_name(path, change_id)
            if step.seen is None:
                os.link(new, path, follow_symlinks=False)  # a rename would replace what another process put there
                os.unlink(new)
            else:
                os.rename(new, path)
            _sync(os.path.dirname(path))
        case FileMove(path, to):
            if os.path.lexists(to):
                raise SessionChangeError(path=to, reason="is in the way; nothing was changed")
            os.rename(path, to)
            _sync(os.path.dirname(path))
            _sync(os.path.dirname(to))
        case DatabaseChange(path, rows):
            if reason := change_rows(path, rows):
                raise SessionChangeError(path=path, reason=f"{reason}; nothing was changed")


def _new_name(path: str, change_id: str) -> str:
    return f"{path}.new-{change_id}"


def _write_synced(path: str, data: bytes, old: os.stat_result | None, *, keeps_time: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        like = old if old is not None else os.stat(os.path.dirname(path))
        with suppress(OSError):  # as root: the program's user owns its files
            os.fchown(file.fileno(), like.st_uid, like.st_gid)
        if old is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
            if keeps_time:
                os.utime(file.fileno(), ns=(old.st_atime_ns, old.st_mtime_ns))
        # Owner, mode and time are set before, so that the sync covers them.
        os.fsync(file.fileno())


def _copy(path: str, copy: str) -> None:
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(path, copy, follow_symlinks=False)
        handle = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- the journal ------------------------------------------------------------------------------------------------------


@contextmanager
def _lock(folder: str) -> Iterator[None]:
    try:
        make_folders(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SessionChangeError(path=folder, reason=f"cannot be opened: {error.strerror}") from error
    try:
        try:
            # On the folder itself: a lock file would be a foreign file in another program's folder.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "another `transcript-store session` is changing files there; run it again later"
            raise SessionChangeError(path=folder, reason=reason) from None
        yield
    finally:
        os.close(handle)


def _write_journal(folder: str, change_id: str, what: str, entries: list[_JournalEntry], made: list[str]) -> None:
    path = os.path.join(folder, _JOURNAL)
    members = {"id": change_id, "what": what, "folders": made, "steps": [asdict(entry) for entry in entries]}
    with suppress(FileNotFoundError):
        os.unlink(f"{path}.tmp")
    _write_synced(f"{path}.tmp", json.dumps(members).encode(), None, keeps_time=False)
    os.rename(f"{path}.tmp", path)
    _sync(folder)


def _read_journal(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _undo_interrupted(folder: str, but_rows_of: Set[str] = frozenset()) -> Undone | None:
    path = os.path.join(folder, _JOURNAL)
    with suppress(FileNotFoundError):
        os.unlink(f"{path}.tmp")  # no step was made
    if not os.path.lexists(path):
        return None
    journal = _read_journal(path)
    if journal is None:  # it was synced before it had its name: something else wrote it
        raise SessionChangeError(path=path, reason="is not a readable journal; inspect it, and remove it")
    return _undo(folder, journal, but_rows_of)


def _undo(folder: str, journal: dict[str, Any], but_rows_of: Set[str] = frozenset()) -> Undone:
    """Undo every step, the last first. Each may have been made or not, or be undone already."""
    change_id, put_back, left = str(journal["id"]), [], []
    # In reverse order: a move may have to be undone before the file below it.
    for members in reversed(journal["steps"]):
        entry = _JournalEntry(**members)
        match entry.kind:
            case "rows":
                state = _undo_rows(entry, change_id, is_made=entry.path not in but_rows_of)
            case "move":
                state = _undo_move(entry)
            case _:
                state = _undo_file(entry, change_id)
        if state == "left":
            left.append(entry.path)
        elif state == "put back":
            put_back.append(entry.path)
    for made in reversed(journal["folders"]):
        with suppress(OSError):  # something else is in it by now, or it was not made yet
            os.rmdir(made)
    # The journal last: killed before this, the next call repeats the undo, and each step sees that it is undone.
    os.unlink(os.path.join(folder, _JOURNAL))
    _sync(folder)
    return Undone(change_id, str(journal["what"]), tuple(put_back), tuple(left))


def _undo_rows(entry: _JournalEntry, change_id: str, *, is_made: bool) -> str:
    state = undo_rows(entry.path, [RowChange.of(members) for members in entry.rows]) if is_made else "as it was"
    if state != "left":
        with suppress(FileNotFoundError):
            os.unlink(copy_name(entry.path, change_id))
    return state


def _undo_file(entry: _JournalEntry, change_id: str) -> str:
    path, copy, new = entry.path, copy_name(entry.path, change_id), _new_name(entry.path, change_id)
    with suppress(FileNotFoundError):
        os.unlink(new)
    if not os.path.isdir(os.path.dirname(path)):
        return "as it was"
    state, now = "as it was", sha256_at(path)
    if now == entry.before:  # not made, or undone already
        with suppress(FileNotFoundError):
            if entry.before is not None:
                os.unlink(copy)
    # J4: the program has written since. Its bytes stay, and the copy stays beside them.
    elif now != entry.after:
        return "left"
    elif entry.before is None:
        os.unlink(path)
        state = "put back"
    else:
        os.rename(copy, path)
        state = "put back"
    _sync(os.path.dirname(path))
    return state


def _undo_move(entry: _JournalEntry) -> str:
    assert entry.to is not None
    if os.path.lexists(entry.path):
        # Something is at both names: another program made one of them, and neither may be overwritten (J4).
        return "left" if os.path.lexists(entry.to) else "as it was"
    if not os.path.lexists(entry.to):
        return "left"
    os.rename(entry.to, entry.path)
    _sync(os.path.dirname(entry.path))
    _sync(os.path.dirname(entry.to))
    return "put back"


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
