"""The sessions that a program will delete by its own setting, and those of them that the library lacks.

A program deletes what did not change for a number of days, by the time of the file, when it is started. Its setting is read from its own
file, with comments and trailing commas where the program allows them; a setting that cannot be parsed is reported, and the program's
default is used.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from transcript_store.importing import FoundSource, import_conversations
from transcript_store.library import ConversationLibrary
from transcript_store.sources import PROGRAMS, KnownProgram, Retention, folder_of

_DAY_SECONDS = 86_400
_WITHIN_DAYS = 7
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
    setting = os.path.join(folder_of(program.session_folders[0], home, environ), retention.file)
    days, is_set, problem = _days_in(setting, retention)
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


def _days_in(path: str, retention: Retention) -> tuple[float | None, bool, str | None]:
    """After how many days a program deletes, whether that is set, and why the setting could not be understood."""
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except FileNotFoundError:
        return retention.days, False, None
    except (OSError, ValueError) as error:
        return retention.days, False, f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
    try:
        settings = orjson.loads(_NOT_JSON.sub(lambda match: match[1] or "", text) or "{}")
    except ValueError as error:
        return retention.days, False, f"{path}: cannot be parsed: {error}"
    if _says_keep(settings, retention):
        return None, True, None
    setting = _member(settings, retention.key)
    if setting is None:
        return retention.days, False, None
    if (days := _length(setting)) is None:
        return retention.days, False, f"{path}: {retention.key} is not a number of days: {setting!r:.40}"
    return days, True, None


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
