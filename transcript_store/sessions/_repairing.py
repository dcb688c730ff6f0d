"""Torn session files of other programs: found, and replaced by whole ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from transcript_store.sessions._journal import (
    FileChange,
    SessionChangeError,
    Step,
    bytes_at,
    change_files,
    copy_name,
)
from transcript_store.sessions._listed import codex_projections
from transcript_store.sessions._programs import Program, is_locked, program_of, running_processes, session_files
from transcript_store.sessions._torn import Mend, MendedFile, mend_document, mend_lines

_NOT_TEXT = {
    b"SQLite format 3\x00": "is an SQLite database: `sqlite3 FILE .recover` reads a damaged one",
    b"\x28\xb5\x2f\xfd": "is packed with zstandard: unpack it first",
    b"PK\x03\x04": "is an archive: unpack it first",
}
_SPLITTING_AT_LF = ("claude-code", "codex", "pi")
"""Programs that take U+2028 for a character of a text. Node's readline, which others use, takes it for the end of a line."""


@dataclass(frozen=True, slots=True)
class RepairedFile:
    """A session file, and the faults that are, or would be, repaired in it."""

    path: str
    program: str | None
    mends: tuple[Mend, ...] = ()
    lines: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    reason: str | None = None
    """Why it cannot be repaired; None if it can."""
    applied: bool = False
    change: str | None = None
    """The id of the change, for ``session undo``."""
    original: str | None = None
    """Where the bytes from before are kept."""

    @property
    def needs_repair(self) -> bool:
        """True if it has a fault."""
        return bool(self.mends) or self.reason is not None


def repair_file(path: str, *, apply: bool = False) -> RepairedFile:
    """Report the faults of one session file; with ``apply`` replace it with a repaired one.

    Raises:
        SessionChangeError: it cannot be read; or with ``apply``: its program runs, or the file changes right now.
    """
    path = os.path.abspath(path)
    found = program_of(path)
    program, folder = found or (None, os.path.dirname(path))
    [repaired] = _repair(program, folder, [path], apply=apply)
    return repaired


def repair_program(program: Program, *, apply: bool = False) -> Iterator[RepairedFile]:
    """The same for all session files of a program; those without a fault are only counted in the result.

    With ``apply`` all files below one folder are one change.

    Raises:
        SessionChangeError: as :func:`repair_file`.
    """
    folders: dict[str, list[str]] = {}
    for folder, path in session_files(program):
        folders.setdefault(folder, []).append(path)
    for folder, paths in folders.items():
        yield from _repair(program, folder, paths, apply=apply)


def require_not_running(program: Program | None, folder: str, paths: Sequence[str]) -> None:
    """Raise unless no process uses the files.

    Raises:
        SessionChangeError: one does. Its hint names the process.
    """
    if running := running_processes(program, folder, paths):
        first = running[0]
        reason = (
            f"{first.why} (process {first.pid}: {first.command[:80]}): end it, and run this again; nothing was changed"
        )
        raise SessionChangeError(path=folder, reason=reason)
    for path in paths:
        if path.endswith((".jsonl", ".json")) and is_locked(path):
            raise SessionChangeError(path=path, reason="is locked by another process; nothing was changed")


def _repair(program: Program | None, folder: str, paths: list[str], *, apply: bool) -> Iterator[RepairedFile]:
    changes: list[Step] = []
    results: list[RepairedFile] = []
    name = None if program is None else program.name
    for path in paths:
        raw = bytes_at(path)
        if raw is None:
            raise SessionChangeError(path=path, reason="there is no such file")
        mended = _mended(path, raw, program)
        if isinstance(mended, str):
            results.append(RepairedFile(path, name, bytes_before=len(raw), reason=mended))
            continue
        results.append(RepairedFile(path, name, mended.mends, mended.lines, len(raw), len(mended.data)))
        if mended.mends:
            changes.append(FileChange(path, mended.data, hashlib.sha256(raw).hexdigest(), keeps_time=True))
    if not apply or not changes:
        yield from results
        return
    if name == "codex":
        changes += codex_projections(folder, [change.path for change in changes])
    require_not_running(program, folder, [change.path for change in changes])
    change_id = change_files(folder, f"session repair {program.name if program else paths[0]}", changes)
    changed = {change.path for change in changes}
    for result in results:
        copy = copy_name(result.path, change_id)
        yield replace(result, applied=True, change=change_id, original=copy) if result.path in changed else result


def _mended(path: str, raw: bytes, program: Program | None) -> MendedFile | str:
    """The repaired file, or why there is none."""
    for start, why in _NOT_TEXT.items():
        if raw.startswith(start):
            return why
    if path.endswith(".json"):
        document = mend_document(raw)
        return document or "is one JSON document with a missing part: `session restore` can restore it"
    mended = mend_lines(raw, escapes_separators=program is None or program.name not in _SPLITTING_AT_LF)
    if raw.strip(b"\x00 \t\r\n") and not mended.lines:
        return "has no readable line: `session restore` can restore it"
    return mended
