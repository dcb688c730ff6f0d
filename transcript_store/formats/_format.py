"""A format that another package adds: what it hands to us through the entry point group ``transcript_store.formats``.

docs/import.md ("Add a format") has a whole example.
"""

from __future__ import annotations

from dataclasses import dataclass

from transcript_store.formats._plan import Reader, Writer


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program keeps its sessions."""

    program: str
    folder: str
    """Below the home directory."""
    patterns: tuple[str, ...]
    """Paths below the folder. ``*`` stands for a part of one name, and never begins with a dot."""
    variable: str | None = None
    """The environment variable that names another folder."""
    below_variable: str = ""
    """What is added to the folder that the variable names."""
    mac_folder: str | None = None
    """On macOS instead of ``folder``."""
    not_sessions: tuple[str, ...] = ()
    """Names of files that match, and hold no session: the program's own logs. They are passed over."""


@dataclass(frozen=True, slots=True)
class Format:
    """What a package adds: a reader, a writer, or both, and where the program keeps its sessions.

    The name of the entry point is the name of the format. The reader, the writer and the places have it too.
    """

    reader: Reader | None = None
    writer: Writer | None = None
    places: tuple[Place, ...] = ()
    """Where ``import`` looks without a PATH. A session is written into the folder of the first."""
