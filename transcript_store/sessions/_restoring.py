"""Restore a session from a library, so that its program lists and resumes it."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from transcript_store.conversation import ConversationStore
from transcript_store.display import many
from transcript_store.errors import GenerationNotFoundError
from transcript_store.exporting import ExportError, export, imported_lines
from transcript_store.import_notes import note_of
from transcript_store.importing import conversation_id
from transcript_store.library import ConversationLibrary, iter_with_labels
from transcript_store.sessions._journal import (
    FileChange,
    SessionChangeError,
    Step,
    bytes_at,
    change_files,
    copy_name,
)
from transcript_store.sessions._listed import codex_projections, codex_steps, gemini_folder, objects_in
from transcript_store.sessions._programs import Program, program_folders, program_named, project_name, session_files
from transcript_store.sessions._repairing import require_not_running
from transcript_store.sessions._stored_rows import (
    ROW_PROGRAMS,
    StoredRows,
    row_steps,
    rows_of_document,
    rows_of_lines,
    said_of_rows,
    session_database,
)
from transcript_store.sources import folder_of

_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9._-]")
_COMMANDS = {
    "claude-code": "claude --resume {session}",
    "codex": "codex resume {session}",
    "gemini-cli": "gemini --resume {session}",
    "pi": "pi --session {path}",
    "copilot": "copilot --resume={session}",
    "qwen-code": "qwen --resume {session}",
    "omp": "omp --resume {path}",
    "opencode": "opencode --session {session}",
    "kilo": "kilo --session {session}",
}
_WHY = {
    "same": "the file exists with these bytes",
    "longer": "the program's file has these bytes and more: `transcript-store import` imports them",
}


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """One file or database of a restore, and the action."""

    path: str
    action: str
    """``create``, ``replace`` (it had a beginning of these bytes), ``rows``, or ``keep`` (nothing is to be done)."""
    reason: str = ""
    copy: str | None = None


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """The result of a restore, or of a dry run."""

    id: str
    program: str
    session: str | None
    files: tuple[RestoredFile, ...]
    command: str | None
    cwd: str | None
    applied: bool = False
    change: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_listed(self) -> bool:
        """True if the program has everything already, so that nothing is done."""
        return all(file.action == "keep" for file in self.files)


class _Wanted(NamedTuple):
    path: str
    data: bytes


def restore_session(
    library: ConversationLibrary,
    id: str,
    *,
    to: str | None = None,
    environ: Mapping[str, str] | None = None,
    apply: bool = False,
) -> RestoredSession:
    """Put a session back into its program, with its sub-agents; or, with ``to``, into another program as a new session.

    The files have the bytes that were imported. What the program lists already is left alone. Without ``apply`` only says what would
    be done.

    Args:
        library: where the conversation is.
        id: its id.
        to: the program; None for the one that it was imported from.
        environ: the environment that says where the program keeps its sessions; this process's if None.
        apply: True to write.

    Raises:
        SessionChangeError: the program runs, a file with other bytes is in the way, or the place of the file is not known.
        ExportError: its bytes are not known here; the reason names another way.
        ValueError: there is no such program.
        TranscriptStoreError: as :meth:`ConversationLibrary.open`.
    """
    with library.open(id, read_only=True) as conversation:
        note, labels = _last_note(conversation), conversation.get_metadata().labels
        cwd = labels.get("cwd")
        own = note["format"] if note else None
        target = to or own
        if target is None:
            reason = "was not imported, so it belongs to no program: --to PROGRAM makes it a new session there"
            raise SessionChangeError(path=conversation.directory, reason=reason)
        folder_kept = next((folder_kept for folder_kept in program_folders() if folder_kept.program == target), None)
        if folder_kept is None:
            raise ValueError(
                f"{target!r} is not a known program; use one of "
                f"{', '.join(dict.fromkeys(folder_kept.program for folder_kept in program_folders()))}"
            )
        program, folder = program_named(target), folder_of(folder_kept, environ=environ)
        plan = _planned_rows if target in ROW_PROGRAMS else _planned_files
        try:
            planned = plan(library, conversation, note if target == own else None, program, folder, environ)
        except ExportError:
            # Only where the user named the program: a new session is not what a plain restore promises.
            if to is None or note is None or target != own:
                raise
            planned = plan(library, conversation, None, program, folder, environ)  # a new session, as the error says
    files, steps, session, cwd, notes = planned
    if cwd and not os.path.isdir(cwd):
        notes.append(f"{cwd} does not exist: if it was moved, `session relink {cwd} NEW --in {target}` after this")
    first = files[0].path if files else ""
    command = _COMMANDS.get(target, "").format(session=shlex.quote(session), path=shlex.quote(first)) or None
    if session.startswith("-"):
        command = None  # the program would take it for an option
    result = RestoredSession(id, target, session, tuple(files), command, cwd, notes=tuple(notes))
    if not apply or not steps:
        return result
    # A running program would write its own state over the change.
    require_not_running(program, folder, [step.path for step in steps])
    change_id = change_files(folder, f"session restore {id}", steps)
    kept = [
        replace(file, copy=copy) if os.path.exists(copy := copy_name(file.path, change_id)) else file for file in files
    ]
    return replace(result, applied=True, change=change_id, files=tuple(kept))


class _PlannedRestore(NamedTuple):
    files: list[RestoredFile]
    """The first is the one that is resumed."""
    steps: list[Step]
    session: str
    cwd: str | None
    notes: list[str]


def _planned_files(
    library: ConversationLibrary,
    conversation: ConversationStore,
    note: dict[str, Any] | None,
    program: Program,
    folder: str,
    environ: Mapping[str, str] | None,  # noqa: ARG001 (the other plan needs it)
) -> _PlannedRestore:
    """For a program with a file a session; ``note`` is that of the import if the session is the program's own, None for a new one."""
    cwd, notes = conversation.get_metadata().labels.get("cwd"), []
    extra: list[FileChange] = []
    if note is not None:
        wanted, extra = _own_files(conversation, note, cwd, folder, program)
        session = str(note["session"])
        for part, part_note in _parts(library, session, program.name):
            wanted += _part_files(library, part, part_note, folder, program)
        notes = _notes_on_more(conversation)
        if (there := _there_already(program, wanted[0].path, session)) is not None:
            wanted[0], extra = wanted[0]._replace(path=there), []
    else:
        wanted, session, cwd = _as_new(conversation, program.name, cwd)
        wanted = [_Wanted(os.path.join(folder, one.path), one.data) for one in wanted]
    files, steps, data = _steps(wanted, extra)
    if program.name == "codex":
        rollouts = {one.path: data[one.path] for one in wanted if one.path.endswith(".jsonl") and one.path in data}
        rewritten = [step.path for step in steps if isinstance(step, FileChange) and step.seen is not None]
        for change in (*codex_projections(folder, rewritten), *codex_steps(folder, rollouts)):
            steps.append(change)
            files.append(RestoredFile(change.path, "rows", many(len(change.rows), "row")))
    return _PlannedRestore(files, steps, session, cwd, notes)


def _planned_rows(
    library: ConversationLibrary,
    conversation: ConversationStore,
    note: dict[str, Any] | None,
    program: Program,
    folder: str,
    environ: Mapping[str, str] | None,
) -> _PlannedRestore:
    """The same for a program with a database of all sessions."""
    cwd, notes = conversation.get_metadata().labels.get("cwd"), []
    if note is not None:
        rows = [_own_rows(conversation, note)]
        for part, part_note in _parts(library, rows[0].id, program.name):
            # A sub-agent whose rows are not known here must not keep the session itself from coming back.
            with suppress(ExportError), library.open(part, read_only=True) as of_part:
                rows.append(_own_rows(of_part, part_note))
        notes = _notes_on_more(conversation)
    else:
        wanted, _, cwd = _as_new(conversation, program.name, cwd)
        rows = [rows_of_document(wanted[0].data, cwd or os.getcwd())]
    database = session_database(program.name, folder, environ)
    change = row_steps(database, rows)
    if change is None:
        files = [RestoredFile(database, "keep", "the program has this session")]
        return _PlannedRestore(files, [], rows[0].id, cwd, notes)
    return _PlannedRestore([RestoredFile(database, "rows", said_of_rows(change))], [change], rows[0].id, cwd, notes)


def _own_rows(conversation: ConversationStore, note: Mapping[str, Any]) -> StoredRows:
    """The rows of a session that came from such a program's database, or from a document that it exported."""
    labels = conversation.get_metadata().labels
    if (cwd := labels.get("cwd")) is None:
        reason = (
            "has no folder on record, by which the program lists it: `session restore ID --to PROGRAM` makes a new one"
        )
        raise ExportError(path=conversation.directory, reason=reason)
    try:
        if (note.get("file") or {}).get("sha256") is not None:
            return rows_of_document(_bytes_of(conversation), cwd)
        return rows_of_lines(imported_lines(conversation), note, labels, cwd)
    except ValueError as error:
        raise _without_original(conversation, str(error)) from error
    except ExportError as error:
        raise _without_original(conversation, error.reason) from error


def _without_original(conversation: ConversationStore, reason: str) -> ExportError:
    hint = "`session restore ID --to PROGRAM` makes a new session of its messages"
    return ExportError(path=conversation.directory, reason=reason if hint in reason else f"{reason}. {hint}")


def _notes_on_more(conversation: ConversationStore) -> list[str]:
    if not _is_continued(conversation):
        return []
    return ["messages that were added here are not in the restored session: `export` makes a session of all"]


def find_session(library: ConversationLibrary, session: str) -> str | None:
    """The id of the conversation of a session, by the id that its program gave it; None if the library has none."""
    there = {summary.id for summary in library.iter_list()}
    names = dict.fromkeys(folder_kept.program for folder_kept in program_folders())
    return next((own for name in names if (own := conversation_id(name, session)) in there), None)


def _last_note(conversation: ConversationStore) -> dict[str, Any] | None:
    live = conversation.get_metadata().generation
    # From the newest: a later import notes the current state of the session's file.
    for number in range(live, -1, -1):
        found = None
        try:
            for record in conversation.iter_records(generation=number):
                found = note_of(record) or found
        except GenerationNotFoundError:
            continue
        if found is not None:
            return found
    return None


def _is_continued(conversation: ConversationStore) -> bool:
    """True if a message follows the last note."""
    added = False
    for record in conversation.iter_records():
        if note_of(record) is not None:
            added = False
        elif record.message is not None:
            added = True
    return added


def _bytes_of(conversation: ConversationStore) -> bytes:
    pieces: list[bytes] = []

    class Pieces:
        def writelines(self, lines: Iterable[bytes], /) -> None:
            pieces.extend(lines)

    try:
        export(conversation, to="original", output=Pieces())
    except ExportError as error:
        raise _without_original(conversation, error.reason) from error
    return b"".join(pieces)


def _own_files(
    conversation: ConversationStore, note: Mapping[str, Any], cwd: str | None, folder: str, program: Program
) -> tuple[list[_Wanted], list[FileChange]]:
    """The session's own file; the first is the one that is resumed."""
    data = _bytes_of(conversation)
    below = _path_below(note, program, data, cwd)
    extra: list[FileChange] = []
    if program.name == "gemini-cli" and cwd:
        parts = below.split("/")
        parts[1], extra = gemini_folder(folder, cwd, parts[1])
        below = "/".join(parts)
    return [_Wanted(os.path.join(folder, *below.split("/")), data)], extra


def _path_below(note: Mapping[str, Any], program: Program, data: bytes, cwd: str | None) -> str:
    """Where the file was in the program's folder, by the end of its path; or where the program would have put it.

    Raises:
        ExportError: neither is known.
    """
    name = str((note.get("file") or {}).get("name") or "").removesuffix(".zst")
    parts = [part for part in name.split("/") if part]
    for folder_kept in program_folders():
        if folder_kept.program == program.name:
            for pattern in folder_kept.patterns:
                wanted = pattern.split("/")
                if len(parts) >= len(wanted) and all(map(_fits, parts[-len(wanted) :], wanted)):
                    return "/".join(parts[-len(wanted) :])
    session = str(note["session"])
    if not _UNSAFE_NAME.search(session) and (made := _made_path(program.name, session, data, cwd)):
        return made
    reason = f"the folder of {program.name} for this file is unknown (imported as {name or 'a stream'})"
    raise ExportError(path=name, reason=f"{reason}: --to {program.name} makes a new session of it")


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and not name.startswith(".") and "\0" not in name


def _made_path(program: str, session: str, data: bytes, cwd: str | None) -> str | None:
    """The path that a program gives the file of a session."""
    head = next(objects_in(data), {})
    meta = head["payload"] if isinstance(head.get("payload"), dict) else head
    at = re.sub(r"[^0-9T-]", "-", str(meta.get("timestamp") or meta.get("startTime") or ""))
    if program == "claude-code" and cwd:
        return f"projects/{project_name(program, cwd)}/{session}.jsonl"
    if program == "codex" and re.match(r"\d{4}-\d\d-\d\dT", at):
        return f"sessions/{at[:4]}/{at[5:7]}/{at[8:10]}/rollout-{at[:19]}-{session}.jsonl"
    if program == "gemini-cli" and cwd and re.match(r"\d{4}-\d\d-\d\dT", at):
        slug = re.sub(r"[^a-z0-9]+", "-", os.path.basename(cwd).lower()).strip("-") or "project"
        return f"tmp/{slug}/chats/session-{at[:16]}-{session[:8]}.jsonl"
    if program in ("pi", "omp") and cwd and at:
        return f"sessions/{project_name(program, cwd)}/{at}_{session}.jsonl"
    if program == "copilot":
        return f"session-state/{session}/events.jsonl"
    if program == "qwen-code" and cwd:
        return f"projects/{project_name(program, cwd)}/chats/{session}.jsonl"
    return None


def _parts(library: ConversationLibrary, session: str, own: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The conversations of the session's sub-agents, by id, with their notes."""
    for summary in iter_with_labels(library):
        labels = summary.labels or {}
        if labels.get("part_of") == session and labels.get("source") == own and summary.id is not None:
            with library.open(summary.id, read_only=True) as part:
                if (note := _last_note(part)) is not None:
                    yield summary.id, note


def _part_files(
    library: ConversationLibrary,
    id: str,
    note: Mapping[str, Any],
    folder: str,
    program: Program,
) -> list[_Wanted]:
    if (note.get("file") or {}).get("sha256") is None:
        return []  # its lines are in the parent's file
    with library.open(id, read_only=True) as part:
        try:
            return _own_files(part, note, part.get_metadata().labels.get("cwd"), folder, program)[0]
        except (ExportError, SessionChangeError):
            return []


def _as_new(conversation: ConversationStore, target: str, cwd: str | None) -> tuple[list[_Wanted], str, str | None]:
    """The files of a new session of another program, by their paths below its folder."""
    # Exported elsewhere first: the journal must know each file's bytes before the first one is changed.
    with tempfile.TemporaryDirectory(prefix="transcript-store-restore-") as scratch:
        there = cwd if cwd and os.path.isdir(cwd) else os.getcwd()
        done = export(conversation, to=target, output=scratch, cwd=there)
        found = []
        for path in reversed(done.paths):  # the last one is the session
            with open(path, "rb") as file:
                found.append(_Wanted(os.path.relpath(path, scratch), file.read()))
        return found, str(done.session), done.cwd


def _there_already(program: Program, path: str, session: str) -> str | None:
    """Where the program has the session's file, if that is not where it was imported from: archived, say, or in a renamed folder."""
    name = os.path.basename(path)
    if os.path.lexists(path) or session not in name:
        return None
    return next(
        (
            other
            for _, other in session_files(program, packed=True)
            if os.path.basename(other).removesuffix(".zst") == name
        ),
        None,
    )


def _steps(
    wanted: Iterable[_Wanted], extra: Iterable[FileChange]
) -> tuple[list[RestoredFile], list[Step], dict[str, bytes]]:
    """The action for each file. An existing file is replaced only if it is a prefix of the imported one.

    Raises:
        SessionChangeError: a file with other bytes is in the way.
    """
    files: list[RestoredFile] = []
    steps: list[Step] = []
    data: dict[str, bytes] = {}
    for step in extra:
        steps.append(step)
        files.append(RestoredFile(step.path, "create", "tells the program to which project the folder belongs"))
    for path, bytes_wanted in wanted:
        data[path] = bytes_wanted
        if path.endswith(".zst"):
            files.append(RestoredFile(path, "keep", "the file exists, packed"))
            continue
        if (there := bytes_at(path)) is None:
            steps.append(FileChange(path, bytes_wanted, None))
            files.append(RestoredFile(path, "create", f"{len(bytes_wanted):,} bytes, exactly as imported"))
            continue
        if there == bytes_wanted:
            files.append(RestoredFile(path, "keep", _WHY["same"]))
        # The program continued the session after the import: its file has everything that would be restored.
        elif there.startswith(bytes_wanted):
            data[path] = there
            files.append(RestoredFile(path, "keep", _WHY["longer"]))
        # A crash can leave a file that is cut, or padded with NUL bytes.
        elif bytes_wanted.startswith(there.rstrip(b"\x00")):
            steps.append(FileChange(path, bytes_wanted, hashlib.sha256(there).hexdigest()))
            files.append(RestoredFile(path, "replace", f"it has {len(there):,} of {len(bytes_wanted):,} bytes"))
        elif os.path.basename(path) == ".project_root":
            files.append(RestoredFile(path, "keep", "another folder's"))
        else:
            reason = (
                "has other bytes than the imported ones: `transcript-store import` imports them, "
                "`session repair` repairs a torn file; to restore anyway, move it away first"
            )
            raise SessionChangeError(path=path, reason=reason)
    return files, steps, data
