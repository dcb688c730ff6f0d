"""A project whose folder was renamed or moved: one project again in a library, and in the programs that kept sessions of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import orjson

from transcript_store.display import many
from transcript_store.errors import TranscriptStoreError
from transcript_store.library import ConversationLibrary, iter_with_labels
from transcript_store.sessions._journal import (
    DatabaseChange,
    FileChange,
    FileMove,
    SessionChangeError,
    Step,
    change_files,
    sha256_at,
)
from transcript_store.sessions._listed import (
    codex_moves,
    codex_projections,
    codex_steps,
    document_change,
    objects_in,
    opencode_rows,
    read_document,
)
from transcript_store.sessions._programs import Program, folders_of, program_named, project_name, session_files
from transcript_store.sessions._repairing import require_not_running
from transcript_store.sessions._stored_rows import session_database

_SPELLINGS: tuple[Callable[[Any], bytes], ...] = (
    orjson.dumps,
    lambda value: json.dumps(value, separators=(",", ":")).encode(),
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, ensure_ascii=False).encode(),
)
"""How programs write JSON: a changed line keeps the spelling of the original."""
_PATHS = frozenset({"cwd", "directory", "gitRoot", "git_root", "workdir"})
_PATH_LISTS = frozenset({"runtime_workspace_roots", "workspace_roots", "writable_roots", "directories"})
_DEEP: dict[str, dict[str, tuple[str, ...]]] = {
    "codex": {"session_meta": ("payload",), "turn_context": ("payload",), "event_msg": ("payload", "thread_settings")},
    "copilot": {"session.start": ("data", "context"), "session.resume": ("data", "context")},
}
"""Where in a line of this type a program has its directories. Programs that are not here have ``cwd`` in the line itself."""


@dataclass(frozen=True, slots=True)
class MovedFolder:
    """From where to where. Some programs know the old folder by several names, as links make them."""

    old: tuple[str, ...]
    new: str

    def new_path(self, path: str) -> str | None:
        """The new name of a path; None if it was not moved. A folder whose name only starts like the old one was not."""
        if path == self.new or path.startswith(f"{self.new}/"):
            return None  # the new folder may be within the old one
        for old in self.old:
            if path == old:
                return self.new
            if path.startswith(f"{old}/"):
                return self.new + path[len(old) :]
        return None

    def new_line(self, program: str, line: bytes) -> bytes:
        """A line of a program's session file with the new paths; the same line if there is none in it."""
        if not any(old.encode() in line or json.dumps(old)[1:-1].encode() in line for old in self.old):
            return line
        text = line.rstrip(b"\r\n")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return line
        if not isinstance(value, dict) or (wanted := self._new_value(program, value)) == value:
            return line
        return spelled_like(line, value, wanted)

    def new_lines(self, program: str, data: bytes) -> bytes:
        """The same for a file of lines."""
        return b"".join(self.new_line(program, line) for line in lines_with_ends(data))

    def _new_value(self, program: str, value: dict[str, Any]) -> dict[str, Any]:
        deep = _DEEP.get(program)
        if deep is None:
            return self._members(value)
        names = deep.get(str(value.get("type")))
        return value if names is None else self._within(value, names)

    def _within(self, value: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        first, *others = names
        inner: Any = value.get(first)
        if not isinstance(inner, dict):
            return value
        return {**value, first: self._within(inner, others) if others else self._members(inner)}

    def _members(self, value: dict[str, Any]) -> dict[str, Any]:
        return {name: self._member(name, member) for name, member in value.items()}

    def _member(self, name: str, member: Any) -> Any:
        if name in _PATHS and isinstance(member, str):
            return self.new_path(member) or member
        if name in _PATH_LISTS and isinstance(member, list):
            return [self.new_path(one) or one if isinstance(one, str) else one for one in member]
        return member


def spelled_like(line: bytes, value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bytes:
    """Another value as a line, spelled as the line of the first one is."""
    text = line.rstrip(b"\r\n")
    spelled = next((one for one in _SPELLINGS if one(value) == text), orjson.dumps)
    return spelled(wanted) + line[len(text) :]


def lines_with_ends(data: bytes) -> list[bytes]:
    """Lines with their line feeds: a carriage return or U+0085 is a character of a text."""
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


@dataclass(frozen=True, slots=True)
class RelinkedConversation:
    """A conversation of the library whose label ``cwd`` is, or would be, another."""

    id: str
    old: str
    new: str
    applied: bool = False
    reason: str | None = None
    """Why its label could not be changed."""


@dataclass(frozen=True, slots=True)
class RelinkedProgram:
    """The changes, made or planned, in a program's files."""

    program: str
    folder: str
    sessions: int = 0
    steps: tuple[tuple[str, str], ...] = ()
    """Each file or database: its path, and the action."""
    applied: bool = False
    change: str | None = None
    notes: tuple[str, ...] = ()


class _Planned(NamedTuple):
    sessions: int
    steps: list[Step]
    notes: list[str]


def moved_folder(old: str, new: str) -> MovedFolder:
    """From the old to the new folder, as programs name them: absolute, and without links.

    Raises:
        ValueError: the new one does not exist, or both are the same.
    """
    given = os.path.abspath(os.path.expanduser(old))
    there = os.path.realpath(os.path.expanduser(new))
    if not os.path.isdir(there):
        raise ValueError(f"{there} is not a folder: NEW is where the project is now")
    # A link at the old place, which helps until the project is relinked, leads to the new one.
    olds = tuple(old for old in dict.fromkeys((os.path.realpath(given), given)) if old != there)
    if not olds:
        raise ValueError(f"{old} and {new} are the same folder")
    return MovedFolder(olds, there)


def relink_library(
    library: ConversationLibrary, moved: MovedFolder, *, apply: bool = False
) -> Iterator[RelinkedConversation]:
    """Give the conversations of a moved folder its new name as their label ``cwd``. Each is one write; again continues.

    Args:
        library: the library.
        moved: the folder.
        apply: True to write.

    Raises:
        StorageError: the library cannot be listed.
    """
    for summary in iter_with_labels(library):
        old = (summary.labels or {}).get("cwd")
        if old is None or summary.id is None or (new := moved.new_path(old)) is None:
            continue
        found = RelinkedConversation(summary.id, old, new)
        if apply:
            try:
                with library.open(summary.id, verify="tail") as store:
                    store.update_metadata(labels={**store.get_metadata().labels, "cwd": new})
                found = replace(found, applied=True)
            except TranscriptStoreError as error:  # another process writes it, or it is damaged
                found = replace(found, reason=str(error))
        yield found


def relinkable_programs() -> tuple[str, ...]:
    """The programs whose own files can be relinked."""
    return tuple(_PLANS)


def relink_program(name: str, moved: MovedFolder, *, apply: bool = False) -> Iterator[RelinkedProgram]:
    """Make a program list and resume the sessions of a moved folder in the new one: one change for each folder of the program.

    Raises:
        SessionChangeError: the program runs, or a file is in the way.
        ValueError: this program's files cannot be relinked.
    """
    if name not in _PLANS:
        raise ValueError(f"the files of {name!r} cannot be relinked; those of {', '.join(_PLANS)} can")
    program = program_named(name)
    for folder in folders_of(program):
        if not os.path.isdir(folder):
            continue
        planned = _PLANS[name](program, folder, moved)
        found_settings = tuple(_description(step) for step in planned.steps)
        found = RelinkedProgram(name, folder, planned.sessions, found_settings, notes=tuple(planned.notes))
        if apply and planned.steps:
            require_not_running(
                program, folder, [step.path for step in planned.steps if not isinstance(step, FileMove)]
            )
            change = change_files(folder, f"session relink {moved.old[0]} {moved.new}", planned.steps)
            found = replace(found, applied=True, change=change)
        yield found


def _description(step: Step) -> tuple[str, str]:
    match step:
        case FileChange(path, None):
            return path, "remove"
        case FileChange(path, _, None):
            return path, "create"
        case FileChange(path):
            return path, "replace"
        case FileMove(path, to):
            return path, f"move to {to}"
        case DatabaseChange(path, rows):
            return path, f"change {many(len(rows), 'row')}"


# ---- programs with a folder for each project ---------------------------------------------------------------------------


def _by_folders(top: str, sessions: str) -> Callable[[Program, str, MovedFolder], _Planned]:
    """The plan for a program whose project folders are ``top/NAME``, with sessions in ``sessions`` below that."""

    def plan(program: Program, folder: str, moved: MovedFolder) -> _Planned:
        planned, count = _Planned(0, [], []), 0
        name_of = partial(project_name, program.name)
        for project in _folders(os.path.join(folder, top)):
            paths = [path for path in _files(os.path.join(project, sessions)) if path.endswith(".jsonl")]
            for path in paths:
                with open(path, "rb") as file:
                    data = file.read()
                cwd = _first_cwd(data)
                if cwd is None or moved.new_path(cwd) is None:
                    continue
                count += 1
                to = os.path.join(folder, top, _new_name(os.path.basename(project), cwd, moved, name_of))
                _move_session(planned.steps, program.name, project, to, path, data, moved)
            _move_the_rest(planned, program.name, folder, top, project, paths, moved, name_of)
        return planned._replace(sessions=count)

    return plan


def _new_name(name: str, cwd: str, moved: MovedFolder, name_of: Callable[[str], str]) -> str:
    """The new name of a project's folder: the directory that it is named after may lie above the one of a session."""
    above = cwd
    while name_of(above) != name and len(above) > 1:
        above = os.path.dirname(above)
    return name_of(moved.new_path(above if name_of(above) == name else cwd) or moved.new)


def _move_session(
    steps: list[Step], program: str, project: str, to: str, path: str, data: bytes, moved: MovedFolder
) -> None:
    _move_lines(steps, program, path, _moved_path(path, project, to), data, moved)
    for beside in _tree(path.removesuffix(".jsonl")):
        _move_file(steps, program, beside, _moved_path(beside, project, to), moved)


def _move_the_rest(
    planned: _Planned,
    program: str,
    folder: str,
    top: str,
    project: str,
    paths: list[str],
    moved: MovedFolder,
    name_of: Callable[[str], str],
) -> None:
    """Files of the project, such as its memory: they move if all sessions do."""
    own = os.path.basename(project)
    olds = [old for old in moved.old if name_of(old) == own]
    going = {step.path for step in planned.steps}
    if any(path not in going for path in paths):
        if any(path in going for path in paths):
            planned.notes.append(f"{project} has sessions of another folder too: their common files stay there")
        return
    if not olds and not paths:
        return
    target = (
        os.path.join(folder, top, name_of(moved.new))
        if olds
        else next(
            (os.path.dirname(step.path) for step in planned.steps if isinstance(step, FileChange) and step.data),
            project,
        )
    )
    for path in _tree(project):
        if path in going or ".before-" in os.path.basename(path):
            continue
        to = _moved_path(path, project, target)
        if os.path.lexists(to):
            planned.notes.append(f"{to} exists already: {path} stays")
        else:
            _move_file(planned.steps, program, path, to, moved)


def _moved_path(path: str, project: str, to: str) -> str:
    return to + path[len(project) :]


def _move_file(steps: list[Step], program: str, path: str, to: str, moved: MovedFolder) -> None:
    if path.endswith(".jsonl"):
        with open(path, "rb") as file:
            _move_lines(steps, program, path, to, file.read(), moved)
    elif path != to:
        steps.append(FileMove(path, to))


def _move_lines(steps: list[Step], program: str, path: str, to: str, data: bytes, moved: MovedFolder) -> None:
    new = moved.new_lines(program, data)
    seen = hashlib.sha256(data).hexdigest()
    if path == to:
        if new != data:
            steps.append(FileChange(path, new, seen, keeps_time=True))
    elif new == data:
        steps.append(FileMove(path, to))
    elif os.path.lexists(to):
        raise SessionChangeError(path=to, reason=f"is in the way of {path}; nothing was changed")
    else:
        # The new file before the old one goes: killed in between, the journal undoes both (J1).
        steps += [FileChange(to, new, None), FileChange(path, None, seen)]


def _first_cwd(data: bytes) -> str | None:
    return next((value["cwd"] for value in objects_in(data) if isinstance(value.get("cwd"), str)), None)


def _claude_code(program: Program, folder: str, moved: MovedFolder) -> _Planned:
    planned = _by_folders("projects", "")(program, folder, moved)
    history = os.path.join(folder, "history.jsonl")
    with suppress(FileNotFoundError), open(history, "rb") as file:
        data = file.read()
        new = b"".join(_with_project(line, moved) for line in lines_with_ends(data))
        if new != data:
            planned.steps.append(FileChange(history, new, sha256_at(history), keeps_time=True))
    is_own = os.environ.get("CLAUDE_CONFIG_DIR")
    settings = os.path.join(folder if is_own else os.path.dirname(folder), ".claude.json")
    found_settings = read_document(settings)
    if isinstance(projects := found_settings.get("projects"), dict):
        renamed = {_kept(path, projects, moved): value for path, value in projects.items()}
        if list(renamed) != list(projects):
            planned.steps.append(document_change(settings, {**found_settings, "projects": renamed}))
    return planned


def _kept(path: str, projects: Mapping[str, object], moved: MovedFolder) -> str:
    """The new key of a project; the old one if the new one has its own settings already."""
    new = moved.new_path(path)
    return path if new is None or new in projects else new


def _with_project(line: bytes, moved: MovedFolder) -> bytes:
    """A line of the history of prompts: its member is called ``project``."""
    for value in objects_in(line):
        if isinstance(old := value.get("project"), str) and (new := moved.new_path(old)) is not None:
            return spelled_like(line, value, {**value, "project": new})
    return line


# ---- the others -------------------------------------------------------------------------------------------------------


def _codex(program: Program, folder: str, moved: MovedFolder) -> _Planned:
    planned = _Planned(0, [], [])
    rollouts: dict[str, bytes] = {}
    count = 0
    for own, path in session_files(program):
        if own != folder:
            continue
        with open(path, "rb") as file:
            data = file.read()
        new = moved.new_lines(program.name, data)
        if new != data:
            count += 1
            rollouts[path] = new
            planned.steps.append(FileChange(path, new, hashlib.sha256(data).hexdigest(), keeps_time=True))
    planned.steps.extend([*codex_projections(folder, rollouts), *codex_steps(folder, rollouts)])
    for change in codex_moves(folder, moved.new_path):
        same = next(
            (step for step in planned.steps if isinstance(step, DatabaseChange) and step.path == change.path), None
        )
        if same is not None:  # rows that are missing are made with the new directory
            planned.steps.remove(same)
        rows = (*(same.rows if same is not None else ()), *change.rows)
        planned.steps.append(DatabaseChange(change.path, rows))
        count = max(count, len(change.rows))
    return planned._replace(sessions=count)


def _gemini_cli(_program: Program, folder: str, moved: MovedFolder) -> _Planned:
    planned, count = _Planned(0, [], []), 0
    registry = os.path.join(folder, "projects.json")
    found_settings = read_document(registry)
    projects = found_settings.get("projects") if isinstance(found_settings.get("projects"), dict) else {}
    renamed: dict[str, Any] = dict(projects or {})
    for below in ("tmp", "history"):
        for own in _folders(os.path.join(folder, below)):
            marker = os.path.join(own, ".project_root")
            with suppress(OSError, UnicodeDecodeError):
                with open(marker, "rb") as file:
                    root = file.read(1 << 16)
                new = moved.new_path(root.decode().strip())
                if new is None:
                    continue
                chats = [path for path in _tree(os.path.join(own, "chats")) if path.endswith((".json", ".jsonl"))]
                count += len(chats)
                other = renamed.get(new)
                if isinstance(other, str) and other != os.path.basename(own):
                    # Sessions were begun in the new folder already: the program looks in that one's folder alone.
                    target = os.path.join(folder, below, other)
                    for path in chats:
                        to = _moved_path(path, own, target)
                        if os.path.lexists(to):
                            raise SessionChangeError(path=to, reason=f"is in the way of {path}; nothing was changed")
                        planned.steps.append(FileMove(path, to))
                else:
                    planned.steps.append(FileChange(marker, new.encode(), hashlib.sha256(root).hexdigest()))
    for path, name in list(renamed.items()):
        if (new := moved.new_path(path)) is not None:
            del renamed[path]
            # A name that the new folder has already stays: its own sessions are found by it.
            renamed.setdefault(new, name)
    if renamed != (projects or {}):
        planned.steps.append(document_change(registry, {**found_settings, "projects": renamed}))
    return planned._replace(sessions=count)


def _copilot(program: Program, folder: str, moved: MovedFolder) -> _Planned:
    planned, count = _Planned(0, [], []), 0
    for own, path in session_files(program):
        if own != folder:
            continue
        with open(path, "rb") as file:
            data = file.read()
        changed = False
        new = moved.new_lines(program.name, data)
        if new != data:
            changed = True
            planned.steps.append(FileChange(path, new, hashlib.sha256(data).hexdigest(), keeps_time=True))
        about = os.path.join(os.path.dirname(path), "workspace.yaml")
        with suppress(FileNotFoundError, UnicodeDecodeError), open(about, "rb") as file:
            text = file.read()
            if (other := _yaml_paths(text.decode(), moved).encode()) != text:
                changed = True
                planned.steps.append(FileChange(about, other, hashlib.sha256(text).hexdigest(), keeps_time=True))
        count += changed
    return planned._replace(sessions=count)


def _yaml_paths(text: str, moved: MovedFolder) -> str:
    """The plain scalars of ``cwd`` and ``git_root`` at the top of a small YAML file."""

    def changed(found: re.Match[str]) -> str:
        new = moved.new_path(found[3])
        return found[0] if new is None else f"{found[1]}{found[2]}{new}{found[2]}"

    return re.sub(r"^((?:cwd|git_root):[ ]+)(['\"]?)(/[^\n'\"]*?)\2[ ]*$", changed, text, flags=re.MULTILINE)


def _opencode(program: Program, folder: str, moved: MovedFolder) -> _Planned:
    path = session_database(program.name, folder)
    if not os.path.isfile(path):
        return _Planned(0, [], [])
    rows = opencode_rows(path, moved.new_path)
    count = sum(row.table != "project" for row in rows)
    return _Planned(count, [DatabaseChange(path, tuple(rows))] if rows else [], [])


_PLANS: dict[str, Callable[[Program, str, MovedFolder], _Planned]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini_cli,
    "pi": _by_folders("sessions", ""),
    "copilot": _copilot,
    "qwen-code": _by_folders("projects", "chats"),
    "opencode": _opencode,
    "kilo": _opencode,
}


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _files(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        return []


def _tree(path: str) -> Iterable[str]:
    for folder, _, names in sorted(os.walk(path)):
        yield from (os.path.join(folder, name) for name in sorted(names))
