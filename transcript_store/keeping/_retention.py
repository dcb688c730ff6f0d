"""The sessions that a program will delete by its own setting, and those of them that the library lacks.

A program deletes what did not change for a number of days, by the time of the file, when it is started. Its setting is read as the
program reads it: from the user's own file, above it from a project's, and above all from those of the machine. A project's setting
deletes the sessions of all projects as soon as the program is started there, so the shortest time of all projects counts. Comments and
trailing commas are allowed; a setting that cannot be parsed is reported, and the program's default is used.
"""

from __future__ import annotations

import glob
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from transcript_store.importing import FoundSource, import_conversations
from transcript_store.library import ConversationLibrary
from transcript_store.sources import PROGRAMS, KnownProgram, Retention, folder_of

_ROOT = "/"
"""Where the files of the machine begin."""
_DAY_SECONDS = 86_400
_WITHIN_DAYS = 7
_CWD = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')
_HEAD_BYTES = 1 << 17
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS = {"": 1.0, "d": 1.0, "day": 1.0, "days": 1.0, "h": 1 / 24, "m": 1 / 1440, "w": 7.0, "week": 7.0, "weeks": 7.0}
_NOT_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*|,(?=\s*[}\]])', re.DOTALL)
_HELD = frozenset({"unchanged", "empty", "deleted"})
"""A dry run's actions for sessions that are completely stored, empty, or deleted by the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOutlook:
    """The sessions that a program will delete soon."""

    program: str
    title: str
    days: float | None
    """After how many days without a change it deletes a session; None if it keeps them."""
    setting: str
    """The file in which that is set."""
    key: str
    is_set: bool
    """True if the file sets it; otherwise it is the program's default."""
    keeps: str
    """The line that makes the program keep its sessions."""
    note: str
    sessions: int
    """How many files of sessions it has now."""
    soon: int
    """How many of them it deletes within ``within_days``, those that are due now with them."""
    within_days: float
    first_at: float | None
    """When the first of them is due, in seconds since 1970; the past if it is due already."""
    missing: tuple[str, ...]
    """The files of these whose sessions are not in the library, or not all of them is."""
    problem: str | None = None
    """Why the file of the setting could not be understood; the default counts then."""

    @property
    def sentence(self) -> str:
        """A sentence for a person."""
        if self.days is None:
            return f"{self.title} keeps its sessions"
        if not self.soon:
            return f"{self.title} deletes sessions after {self.days:g} days: none within {self.within_days:g} days"
        lost = len(self.missing)
        rest = (
            "all of them are in the library"
            if not lost
            else f"{lost:,} of them {'is' if lost == 1 else 'are'} not in the library"
        )
        many = "1 session" if self.soon == 1 else f"{self.soon:,} sessions"
        return f"{self.title} deletes {many} within {self.within_days:g} days; {rest}"


def retention_outlook(
    found: Iterable[FoundSource],
    library: ConversationLibrary | None,
    *,
    cache: str | None = None,
    within_days: float = _WITHIN_DAYS,
    at: float | None = None,
    home: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[RetentionOutlook]:
    """The sessions that each program with a retention setting will delete. Nothing is written.

    Args:
        found: the sources of this machine, as :func:`sources.discover` finds them.
        library: where the sessions should be; None if there is no library yet.
        cache: the folder in which an import notes what did not change.
        within_days: how far ahead it looks.
        at: the time, in seconds since 1970; now if None.
        home: the home directory; the one that ``environ`` names if None.
        environ: the environment; this process's if None.
    """
    at = time.time() if at is None else at
    its = [one for one in found if one.why_not is None]
    outlooks = []
    for program in PROGRAMS:
        sources = [one for one in its if one.program == program.program]
        if program.retention is not None and sources:
            outlooks.append(
                _outlook(program, program.retention, sources, library, cache, within_days, at, home, environ)
            )
    return outlooks


def _outlook(
    program: KnownProgram,
    retention: Retention,
    sources: list[FoundSource],
    library: ConversationLibrary | None,
    cache: str | None,
    within_days: float,
    at: float,
    home: str | None,
    environ: Mapping[str, str] | None,
) -> RetentionOutlook:
    days, setting, is_set, problem = _setting_of(program, retention, sources, home, environ)
    soon: list[FoundSource] = []
    if days is not None:
        before = at - (days - within_days) * _DAY_SECONDS
        soon = sorted((one for one in sources if one.mtime_ns <= before * 1e9), key=lambda one: one.mtime_ns)
    return RetentionOutlook(
        program=program.program,
        title=program.title,
        days=days,
        setting=setting,
        key=retention.key,
        is_set=is_set,
        keeps=retention.keeps,
        note=retention.note,
        sessions=len(sources),
        soon=len(soon),
        within_days=within_days,
        first_at=soon[0].mtime_ns / 1e9 + (days or 0) * _DAY_SECONDS if soon else None,
        missing=_missing(soon, library, cache),
        problem=problem,
    )


def _missing(soon: list[FoundSource], library: ConversationLibrary | None, cache: str | None) -> tuple[str, ...]:
    """The sources of which an import would store something, or that it could not read: a dry run says it."""
    if library is None:
        return tuple(one.path for one in soon)
    lacking: dict[str, None] = {}
    if soon:
        for report in import_conversations(soon, library, dry_run=True, cache=cache, diverged="fork"):
            if report.action not in _HELD:
                lacking[report.source] = None
    return tuple(lacking)


class _Setting(NamedTuple):
    days: float | None
    """After how many days the program deletes; None if it keeps its sessions."""
    path: str
    """The file that says so, or the one in which the user can."""
    is_set: bool
    problem: str | None


class _Layer(NamedTuple):
    path: str
    settings: dict[str, Any]
    problem: str | None


def _setting_of(
    program: KnownProgram,
    retention: Retention,
    sources: Iterable[FoundSource],
    home: str | None,
    environ: Mapping[str, str] | None,
) -> _Setting:
    """The setting by which most is deleted: in no project, or in one of them."""
    environ = os.environ if environ is None else environ
    folder = folder_of(program.session_folders[0], home, environ)
    user = _layer(os.path.join(folder, retention.file))
    machine = [_layer(path) for path in _managed_files(retention, folder, environ)]
    found = [_decided([user, *machine], retention)]
    for project in _projects(program, retention, sources, home, environ):
        layers = [_layer(os.path.join(project, name)) for name in reversed(retention.in_project)]
        if any(layer.settings or layer.problem for layer in layers):
            found.append(_decided([user, *layers, *machine], retention))
    return min(found, key=lambda one: float("inf") if one.days is None else one.days)


def _managed_files(retention: Retention, folder: str, environ: Mapping[str, str]) -> list[str]:
    """The files of the machine that are there, the one that counts last."""
    patterns = retention.managed_on_macos if sys.platform == "darwin" else retention.managed
    paths = [os.path.join(_ROOT, each[1:]) if each.startswith("/") else os.path.join(folder, each) for each in patterns]
    if named := environ.get(retention.managed_variable or ""):
        paths[0] = named
    return [path for each in paths for path in sorted(glob.glob(each))]


def _projects(
    program: KnownProgram,
    retention: Retention,
    sources: Iterable[FoundSource],
    home: str | None,
    environ: Mapping[str, str],
) -> list[str]:
    """The folders of the projects in which the program was started: those that it lists, and those that its sessions name."""
    if not retention.in_project:
        return []
    place = program.session_folders[0]
    above = home or environ.get("HOME") or os.path.expanduser("~")
    if environ.get(place.variable or ""):
        above = folder_of(place, home, environ)
    listed = _layer(os.path.join(above, retention.projects)).settings.get("projects")
    found = dict.fromkeys(listed if isinstance(listed, dict) else ())
    newest = {os.path.dirname(one.path): one.path for one in sorted(sources, key=lambda one: one.mtime_ns)}
    found |= dict.fromkeys(folder for path in newest.values() if (folder := _cwd_in(path)) is not None)
    return [path for path in found if os.path.isabs(path)]


def _cwd_in(path: str) -> str | None:
    """The first ``cwd`` in the beginning of a session; None if none is there."""
    with suppress(OSError, ValueError), open(path, "rb") as file:
        if (named := _CWD.search(file.read(_HEAD_BYTES))) is not None and isinstance(
            cwd := orjson.loads(named[1]), str
        ):
            return cwd
    return None


def _layer(path: str) -> _Layer:
    """The settings in a file; none if there is no such file, or if it cannot be understood."""
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return _Layer(path, {}, None)
    except (OSError, ValueError) as error:
        return _Layer(path, {}, f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        settings = orjson.loads(_NOT_JSON.sub(lambda match: match[1] or "", text) or "{}")
    except ValueError as error:
        return _Layer(path, {}, f"{path}: cannot be parsed: {error}")
    return _Layer(path, settings if isinstance(settings, dict) else {}, None)


def _decided(layers: list[_Layer], retention: Retention) -> _Setting:
    """What the settings say together: each member as the last file has it, and the file that decided."""
    problem = next((layer.problem for layer in layers if layer.problem is not None), None)
    settings: dict[str, Any] = {}
    path, is_set = layers[0].path, False
    for layer in layers:
        settings = _merged(settings, layer.settings)
        if _says_keep(layer.settings, retention) or _member(layer.settings, retention.key) is not None:
            path, is_set = layer.path, True
    if _says_keep(settings, retention):
        return _Setting(None, path, True, problem)
    if not is_set or (setting := _member(settings, retention.key)) is None:
        return _Setting(retention.days, path, False, problem)
    days = _length(setting)
    if days is None or days < retention.least:
        wrong = "is not a number of days" if days is None else f"must be {retention.least:g} at least"
        return _Setting(retention.days, path, False, f"{path}: {retention.key} {wrong}: {setting!r:.40}")
    return _Setting(days, path, True, problem)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for name, value in above.items():
        there = both.get(name)
        both[name] = _merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return both


def _says_keep(settings: Any, retention: Retention) -> bool:
    """True if the settings have the table's line for keeping sessions, if that is not a number of days."""
    wanted = orjson.loads(f"{{{retention.keeps}}}")
    path, value = [], wanted
    while isinstance(value, dict) and len(value) == 1:
        name, value = next(iter(value.items()))
        path.append(name)
    return (
        not isinstance(value, dict) and ".".join(path) != retention.key and _member(settings, ".".join(path)) == value
    )


def _member(settings: Any, key: str) -> Any:
    for name in key.split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings


def _length(setting: object) -> float | None:
    """A number of days, or a text such as ``30d`` and ``12h``."""
    if isinstance(setting, int | float) and not isinstance(setting, bool):
        return float(setting) if setting >= 0 else None
    if isinstance(setting, str) and (found := _LENGTH.fullmatch(setting)) and (unit := found[2].lower()) in _UNITS:
        return float(found[1]) * _UNITS[unit]
    return None
