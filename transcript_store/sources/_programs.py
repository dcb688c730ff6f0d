"""The session folders of each program, and the sessions on this machine.

A row is a folder below the home directory, or the one that an environment variable names instead, and patterns of paths in it.
``*`` matches a part of one name, and never starts with a dot. The place of a file only suggests its format: its first bytes decide.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any

from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import READERS, WRITERS, Format, SessionFolder
from transcript_store.sources._folders import ANCHORS, without_parts

# ---- added ----
#
# Formats that other packages bring: the entry points of the group ``transcript_store.formats``.
#
# A name is known from a package's metadata alone. Its code is imported when a format of that name is asked for, or when the format has to
# be told from the bytes. A broken package raises an error that names it; the others keep working.

GROUP = "transcript_store.formats"
BUILT_IN = frozenset({*(reader.name for reader in READERS), *(writer.name for writer in WRITERS)})
_TAKEN = BUILT_IN | {"original", "markdown", "html", "openclaw"}  # names that mean something else here
_A_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class UnusableFormatError(TranscriptStoreError):
    """The format ``name`` of the package ``distribution`` cannot be used. Other formats are not affected."""

    name: str
    distribution: str
    reason: str
    _says = "the format {error.name}, which the package {error.distribution} adds, cannot be used: {error.reason}"


class _WrongError(Exception):
    """A package's format is invalid; the message gives the reason."""


def added_names() -> tuple[str, ...]:
    """The names under which installed packages add formats. None of their code is imported."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)} - _TAKEN))


def added_formats(name: str | None = None) -> tuple[dict[str, Format], list[UnusableFormatError]]:
    """The formats that installed packages add, by name, and those that cannot be used.

    Args:
        name: import only the package that adds this one; None for all.
    """
    points = [point for point in entry_points(group=GROUP) if name in (None, point.name)]
    owners = Counter(point.name for point in points)
    formats: dict[str, Format] = {}
    unusable: list[UnusableFormatError] = []
    for point in sorted(points, key=lambda point: (point.name, _distribution(point))):
        try:
            if owners[point.name] > 1:
                others = [_distribution(one) for one in points if one.name == point.name]
                raise _WrongError(f"several packages add it ({', '.join(sorted(others))}): uninstall all but one")
            formats[point.name] = _loaded(point)
        except (Exception, SystemExit) as error:  # whatever the import of another package raises
            reason = str(error) if isinstance(error, _WrongError) else f"{type(error).__name__}: {error}"
            unusable.append(UnusableFormatError(name=point.name, distribution=_distribution(point), reason=reason))
    return formats, unusable


def _loaded(point: EntryPoint) -> Format:
    if point.name in _TAKEN:
        raise _WrongError("that name is taken by a format of transcript-store itself")
    if not _A_NAME.fullmatch(point.name):
        raise _WrongError("a name is of small letters, digits, '.', '_' and '-', at most 64")
    found = point.load()
    if not isinstance(found, Format):
        raise _WrongError(f"{point.value} is not a transcript_store.formats.Format, but {type(found).__name__}")
    if found.reader is None and found.writer is None:
        raise _WrongError(f"{point.value} has neither a reader nor a writer")
    parts: list[tuple[str, Any]] = [("reader", found.reader), ("writer", found.writer)]
    names = [(kind, part.name) for kind, part in parts if part is not None]
    for place in found.session_folders:
        if isinstance(place.patterns, str):  # its letters would be patterns
            raise _WrongError("the patterns of a place are a tuple of texts")
        names.append(("place", place.program))
    for kind, name in names:
        if name != point.name:
            raise _WrongError(f"its {kind} has another name, {name!r}")
    return found


def _distribution(point: EntryPoint) -> str:
    return "without a name" if point.dist is None else f"{point.dist.name} {point.dist.version}"


# ---- places ----

_DEEPEST = 64
"""The limit of levels below a named folder."""
_NO_DATABASES = (".jsonl", ".json", ".zst", ".zip")
_ENDINGS = (".jsonl", ".json", ".zst", ".zip", ".db", ".sqlite", ".sqlite3", ".vscdb")
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_NAMES = frozenset({*ANCHORS, ".aider.chat.history.md"})
"""Files that hold sessions, whatever they end in."""
_MAC = "Library/Application Support"
_OF_VSCODE = tuple(
    f"{folder}/*.{end}"
    for folder in (
        "workspaceStorage/*/chatSessions",
        *(f"globalStorage/{kind}ChatSessions" for kind in ("emptyWindow", "transferred")),
    )
    for end in ("jsonl", "json")
)
# fmt: off
SESSION_FOLDERS: tuple[SessionFolder, ...] = (
    SessionFolder("claude-code", ".claude",
        ("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl", "projects/*/*/subagents/*/*/*.jsonl"), "CLAUDE_CONFIG_DIR"),
    SessionFolder("codex", ".codex",
        tuple(f"{where}/rollout-*.jsonl{end}" for where in ("sessions/*/*/*", "archived_sessions") for end in ("", ".zst")),
        "CODEX_HOME"),
    SessionFolder("pi", ".pi/agent", ("sessions/*/*.jsonl",), "PI_CODING_AGENT_DIR"),
    SessionFolder("pi", ".pi/agent/sessions", ("*.jsonl", "*/*.jsonl"), "PI_CODING_AGENT_SESSION_DIR"),
    SessionFolder("openclaw", ".openclaw", ("agents/*/sessions/*.jsonl", "agents/*/agent/*.sqlite"), "OPENCLAW_STATE_DIR",
        not_sessions=("*.trajectory.jsonl",)),
    SessionFolder("gemini-cli", ".gemini",
        ("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl", "tmp/*/chats/*/*.jsonl"), "GEMINI_CLI_HOME", ".gemini"),
    SessionFolder("qwen-code", ".qwen",
        ("projects/*/chats/*.jsonl", "projects/*/subagents/*/agent-*.jsonl", "tmp/*/chats/session-*.json"), "QWEN_HOME"),
    *(SessionFolder("cline", ".cline/data/sessions", ("*/*.messages.json",), variable, below) for variable, below in
        (("CLINE_SESSION_DATA_DIR", ""), ("CLINE_DATA_DIR", "sessions"), ("CLINE_DIR", "data/sessions"))),
    *(SessionFolder(program, f"{folder}/User/globalStorage/{extension}", ("tasks/*/api_conversation_history.json",),
        mac_folder=f"{folder.replace('.config', _MAC)}/User/globalStorage/{extension}")
        for program, extension in (("cline", "saoudrizwan.claude-dev"), ("roo", "rooveterinaryinc.roo-cline"))
        for folder in (*(f".config/{editor}" for editor in _EDITORS), ".vscode-server/data")),
    SessionFolder("droid", ".factory", ("sessions/*/*.jsonl", "sessions/*.jsonl")),
    SessionFolder("cursor", ".cursor", ("chats/*/*/store.db",
        *(f"projects/*/agent-transcripts/{where}*.jsonl" for where in ("", "*/", "*/subagents/"))), "CURSOR_CONFIG_DIR"),
    SessionFolder("cursor", ".config/Cursor/User/globalStorage", ("state.vscdb",),
        mac_folder=f"{_MAC}/Cursor/User/globalStorage"),
    SessionFolder("hermes", ".hermes", ("state.db", "profiles/*/state.db", "sessions/session_*.json"), "HERMES_HOME"),
    *(SessionFolder("goose", ".local/share/goose", ("sessions/sessions.db", "sessions/*.jsonl"), variable, below)
        for variable, below in (("GOOSE_PATH_ROOT", "data"), ("XDG_DATA_HOME", "goose"))),
    SessionFolder("kiro", ".local/share/kiro-cli", ("data.sqlite3",), "XDG_DATA_HOME", "kiro-cli", f"{_MAC}/kiro-cli"),
    SessionFolder("kiro", ".kiro", ("sessions/cli/*.jsonl", "sessions/*/sess_*/messages.jsonl"), "KIRO_HOME"),
    SessionFolder("kimi", ".kimi-code", ("sessions/*/*/agents/*/wire.jsonl",), "KIMI_CODE_HOME"),
    SessionFolder("kimi", ".kimi", ("sessions/*/*/wire.jsonl", "sessions/*/*/subagents/*/wire.jsonl"), "KIMI_SHARE_DIR"),
    SessionFolder("llm", ".config/io.datasette.llm", ("logs.db",), "LLM_USER_PATH", mac_folder=f"{_MAC}/io.datasette.llm"),
    SessionFolder("omp", ".omp/agent", ("sessions/*/*.jsonl", "sessions/*/*/*.jsonl")),
    SessionFolder("mistral-vibe", ".vibe", tuple(f"logs/session/{path}" for path in
        ("session_*/messages.jsonl", "session_*/agents/*/messages.jsonl", "unified/*/CURRENT")), "VIBE_HOME"),
    SessionFolder("openhands", ".openhands",
        ("conversations/*/base_state.json", "conversations/*/subagents/*/base_state.json"), "OPENHANDS_PERSISTENCE_DIR"),
    SessionFolder("continue", ".continue", ("sessions/*.json",), "CONTINUE_GLOBAL_DIR", not_sessions=("sessions.json",)),
    *(SessionFolder("vscode-chat", f".config/{code}/User", _OF_VSCODE, mac_folder=f"{_MAC}/{code}/User")
        for code in ("Code", "Code - Insiders", "VSCodium")),
    SessionFolder("vscode-chat", ".vscode-server/data/User", _OF_VSCODE),
    *(SessionFolder("antigravity", f".gemini/{name}", ("brain/*/.system_generated/logs/transcript.jsonl",))
        for name in ("antigravity", "antigravity-cli")),
    SessionFolder("gptme", ".local/share/gptme/logs", ("*/conversation.jsonl",), "GPTME_LOGS_HOME"),
    SessionFolder("zed", ".local/share/zed", ("threads/threads.db",), "XDG_DATA_HOME", "zed", f"{_MAC}/Zed"),
    SessionFolder("grok", ".grok", ("sessions/*/*/updates.jsonl",), "GROK_HOME"),
    *(SessionFolder(program, f".local/share/{program}", patterns, variable, below)
        for program in ("opencode", "kilo", "mimocode")
        for patterns, variable, below in (
            ((f"{program}*.db", "storage/session/*/*.json"), "XDG_DATA_HOME", program), ((), f"{program.upper()}_DB", ""))),
    SessionFolder("copilot", ".copilot",
        ("session-state/*/events.jsonl", "session-state/*.jsonl", "history-session-state/*.json"), "COPILOT_HOME"),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A file that may hold sessions: its path, and how it was when it was found. Or a folder that could not be looked through."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    program: str | None = None
    """The program whose folder has it; None if the user named it."""
    is_expected: bool = True
    """True if it should hold sessions: a program keeps them there, or the user named this file. Other files below a named folder
    may be anything.
    """
    why_not: str | None = None
    """Why a folder could not be listed; its files are then missing from the result."""
    ctime_ns: int = 0


def session_folders() -> tuple[SessionFolder, ...]:
    """The session folders of known programs, and of formats that installed packages add."""
    return (*SESSION_FOLDERS, *(place for added in added_formats()[0].values() for place in added.session_folders))


def discover(
    home: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    platform: str = sys.platform,
) -> list[FoundSource]:
    """The sessions of other programs on this machine, grouped by program, the newest last.

    Programs are those of ``SESSION_FOLDERS``, and those whose formats installed packages add. This lists directories and stats
    regular files; it opens nothing. A link is followed only as a program's own folder. An unreadable folder is in the result, with
    ``why_not``.

    Args:
        home: the home directory; the one that ``environ`` names if None.
        environ: the environment; this process's if None.
        platform: as ``sys.platform``.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, FoundSource] = {}
    known = session_folders()
    for place in known:
        folder = folder_of(place, home, environ, platform=platform)
        for one in _named(folder, place):
            found.setdefault(one.path, one)
        for pattern in place.patterns:
            for one in _matching(folder, pattern.split("/"), place):
                found.setdefault(one.path, one)
    order = list(dict.fromkeys(place.program for place in known))
    return sorted(found.values(), key=lambda one: (order.index(one.program or ""), one.mtime_ns, one.path))


def _named(path: str, place: SessionFolder) -> Iterator[FoundSource]:
    """The file itself, where a variable names one instead of a folder: ``OPENCODE_DB``."""
    if place.patterns:
        return
    with suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            yield _found(path, status, place.program)


def folder_of(
    place: SessionFolder,
    home: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    platform: str = sys.platform,
) -> str:
    """The absolute path of a program's folder on this machine, whether it is there or not."""
    environ = os.environ if environ is None else environ
    if named := environ.get(place.variable or ""):
        return os.path.abspath(os.path.join(os.path.expanduser(named), place.below_variable))
    folder = place.mac_folder if platform == "darwin" and place.mac_folder else place.folder
    above = os.fspath(home) if home is not None else environ.get("HOME") or os.path.expanduser("~")
    return os.path.abspath(os.path.join(above, folder))


def session_at(
    path: str, home: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> FoundSource | None:
    """The source at a path, as :func:`discover` would return it; None if no program keeps sessions there, or nothing exists there.

    ``path`` is absolute. Only this file is checked, and a database's write-ahead log.
    """
    for place in session_folders():
        folder = folder_of(place, home, environ)
        if not path.startswith(f"{folder}/"):
            continue
        names = path[len(folder) + 1 :].split("/")
        if any(name.startswith(".") for name in names) or any(fnmatchcase(names[-1], no) for no in place.not_sessions):
            continue
        for pattern in place.patterns:
            parts = pattern.split("/")
            if len(parts) == len(names) and all(map(fnmatchcase, names, parts)):
                try:
                    status = os.lstat(path)
                except OSError:
                    return None  # deleted just now, or its folder cannot be listed, which discover() reports
                return _found(path, status, place.program) if stat.S_ISREG(status.st_mode) else None
    return None


def find_sources(path: str | os.PathLike[str]) -> Iterator[FoundSource]:
    """The file at a path that the user named; of a folder all files below it that may hold sessions.

    A named file may have any name; in a folder its ending counts. Links below the folder are not followed. An unreadable folder
    below it is in the result, with ``why_not``.

    Raises:
        OSError: nothing exists at the path, or the folder cannot be read.
    """
    top = os.path.abspath(os.path.expanduser(os.fspath(path)))
    status = os.lstat(top)
    if not stat.S_ISDIR(status.st_mode):
        yield _found(top, status)
        return
    os.listdir(top)  # raises, where the user named what cannot be read
    sessions = _sessions_around(top)
    below = sorted(_below(top, _DEEPEST), key=attrgetter("path"))
    whole = without_parts(one.path for one in below if one.why_not is None)
    for one in below:
        if one.path in sessions:
            yield replace(one, is_expected=True)
        elif one.why_not is not None or (one.path in whole and _may_hold_sessions(one.path)):
            yield one


def _may_hold_sessions(path: str) -> bool:
    return path.endswith(_ENDINGS) or os.path.basename(path) in _NAMES


def _sessions_around(top: str) -> frozenset[str]:
    """Where programs of this user keep sessions, in a folder, or above it: the paths of those."""
    found: set[str] = set()
    for place in SESSION_FOLDERS:
        folder = folder_of(place)
        if os.path.commonpath((folder, top)) in (folder, top):
            for pattern in place.patterns:
                found.update(one.path for one in _matching(folder, pattern.split("/"), place))
    return frozenset(found)


def _found(path: str, status: os.stat_result, program: str | None = None, *, is_expected: bool = True) -> FoundSource:
    size, mtime_ns, ctime_ns = status.st_size, status.st_mtime_ns, status.st_ctime_ns
    if not path.endswith(_NO_DATABASES):
        with suppress(OSError):  # the newest rows of a database are in its write-ahead log, which changes alone
            wal = os.lstat(f"{path}-wal")
            size, mtime_ns = size + wal.st_size, max(mtime_ns, wal.st_mtime_ns)
            ctime_ns = max(ctime_ns, wal.st_ctime_ns)
    return FoundSource(path, size, mtime_ns, status.st_ino, program, is_expected, None, ctime_ns)


def _looked_at(
    entry: os.DirEntry[str], program: str | None = None, *, is_expected: bool = True
) -> Iterator[FoundSource]:
    """A file of a folder. An error is this file's own: the others of the folder are found all the same."""
    try:
        yield _found(entry.path, entry.stat(follow_symlinks=False), program, is_expected=is_expected)
    except FileNotFoundError:
        pass  # deleted just now
    except OSError as error:
        yield _unread(entry.path, f"cannot be checked: {error.strerror}", program)


def _unread(folder: str, why_not: str, program: str | None = None) -> FoundSource:
    return FoundSource(folder, 0, 0, 0, program, why_not=why_not)


def _matching(folder: str, pattern: list[str], place: SessionFolder) -> Iterator[FoundSource]:
    name, *rest = pattern
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_hidden = entry.name.startswith(".") and not name.startswith(".")
                if is_hidden or not fnmatchcase(entry.name, name):
                    continue
                if rest and entry.is_dir(follow_symlinks=False):
                    yield from _matching(entry.path, rest, place)
                elif any(fnmatchcase(entry.name, other) for other in place.not_sessions):
                    continue
                elif not rest and entry.is_file(follow_symlinks=False):
                    yield from _looked_at(entry, place.program)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the program is not used here, or a file was deleted just now
    except OSError as error:
        yield _unread(folder, f"cannot be listed: {error.strerror}", place.program)


def _below(folder: str, deepest: int) -> Iterator[FoundSource]:
    if deepest < 0:
        yield _unread(folder, f"is more than {_DEEPEST} folders deep, and was not looked through; name it")
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _below(entry.path, deepest - 1)
                elif entry.is_file(follow_symlinks=False):
                    yield from _looked_at(entry, is_expected=False)
    except FileNotFoundError:
        pass  # deleted just now
    except OSError as error:
        yield _unread(folder, f"cannot be listed: {error.strerror}")
