"""What an import would store, before anything is stored: a session of a source as a plan.

A format's reader turns bytes or rows into plans. A plan is data: no file is open behind it, no clock was asked, and nothing of
this library's folders is known. ``importing`` compares it with what is on record and writes the difference.

Every line of a source ends in exactly one place (F6). An entry's ``lines`` names the lines that it accounts for:

* a message: the lines it was made of, often one;
* an event (``message`` is None): a line that no model is sent: a title, a hook, a branch that was left;
* a finding alone: a line that could not be kept, because it is longer than ``max_line_bytes``.

A compaction or a rewind is a generation. What a later generation takes over from an earlier one names no line again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from transcript_store.conversation import ConversationMetadata, Record


class Source(Protocol):
    """A file of somebody else's, opened to read only; or a member of an archive.

    One that is a file by itself, or a member of an archive, may have ``beside(path, longest=)`` too: what a small file beside it holds, or
    None; and ``names_beside()``: the paths of the files of an export.
    """

    @property
    def name(self) -> str:
        """For people: a path, or an archive's path and the member's name. Never opened by this name again."""

    @property
    def size(self) -> int:
        """In bytes, as it was when the source was opened. What a writer adds meanwhile is for the next import."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only where the source ends."""


class Tables(Protocol):
    """A SQLite database of somebody else's, opened to read only: rows by the names of their columns, nothing else of SQL."""

    @property
    def name(self) -> str:
        """For people: its path."""

    def columns(self, table: str) -> tuple[str, ...]:
        """The names of its columns; empty if there is no such table. A view is no table."""

    def rows(
        self, table: str, columns: Iterable[str], order: Iterable[str], where: Mapping[str, object] = ...
    ) -> Iterator[tuple[Any, ...]]:
        """Each row's values for these columns, in the order of those: ints, floats, texts, bytes and None.

        With ``where`` only the rows that have these values.
        """


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """What is not as it should be in a source, and where; nothing of it is dropped in silence."""

    kind: str
    """``torn``, ``nul``, ``not-json``, ``not-an-object``, ``glued``, ``too-long``, ``too-deep``, ``byte-order-mark``, or the
    format's own."""
    message: str
    """A sentence without the place."""
    line: int | None = None
    """From 1; None for what is not of one line."""
    offset: int | None = None
    """Of the line's first byte."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What the other side cannot hold, counted: told before it is written."""

    kind: str
    count: int
    message: str
    """A plain sentence of one of them, without the count: "thinking was left out: …"."""


class PlannedRecord(NamedTuple):
    """One record to be stored: a message as its provider has it, or an event."""

    message: dict[str, Any] | None
    """Ready to be sent to the plan's provider; None for an event."""
    extra: dict[str, Any]
    """What belongs to it and is not sent: usage, model, stop reason under docs/chat.md's names; ``source``: its lines, packed."""
    at: str | None = None
    """The source's own time: RFC 3339 text where it is a time, else whatever stands there. None where the source has none."""
    lines: Sequence[int] = ()
    """The lines of the source that it accounts for, from 1. Empty for what was taken over from an earlier generation."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One session of a source, which becomes one conversation."""

    format: str
    session: str
    """The source's own id of the session. It is hashed and shown, and never part of a path."""
    lines: int
    """How many lines, or rows, the source has of this session."""
    generations: tuple[Callable[[], Iterable[PlannedRecord]], ...]
    """The last is the live one. Each may be asked for its entries more than once, and makes them as they are asked for."""
    version: str | None = None
    """Of the format, or of the program that wrote it; None if neither is said."""
    provider: str | None = None
    """Whose form the messages have; None if there is no message."""
    model: str | None = None
    system_prompt: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """``title``, ``cwd``, ``git_branch``, ``part_of`` where known. ``source`` is added by who imports."""
    findings: tuple[ImportFinding, ...] = ()
    losses: tuple[Loss, ...] = ()
    is_part: bool = False
    """Whether it is a view of lines that another plan of this source accounts for too: a sub-agent in its parent's file, a branch
    that was left. The source's bytes are those of the other plan."""
    tail: bytes = b""
    """What stands behind the last whole line: a line that is still being written. It is left for the next import."""
    redaction: Mapping[str, Any] | None = None
    """What was taken out of it before it is stored. A reader leaves it None."""
    edition: tuple[str, str] | None = None
    """Of a source that always has the session whole, as an export of a site: when the session last changed, and when something
    was last said in it, both RFC 3339 in UTC, or empty where the source does not say. Of two such sources the one with the
    greater edition is the newer one, whatever its file is called. None for a file that a program appends to."""
    is_exported: bool = False
    """Whether it is what an export of this library wrote, and nothing was added to it: an import leaves it alone."""
    revision: int = 1
    """Of the reader, as the import notes it. A reader leaves it alone: its class says ``revision``."""
    former_session: str | None = None
    """An id by which it may be on record, because an earlier version of the reader gave it, or too little of the source was there.
    Such a conversation is gone on with if it is of this very source. Sessions of several sources may share it."""


class SessionReader(Protocol):
    """Reads one format. Pure: the same source gives the same plans.

    A reader whose plans change from one version to the next, for the same source, has a greater ``revision`` each time (an int; 1
    where it has none). A session that an older revision read is planned again, and becomes a new generation if it differs.
    """

    @property
    def name(self) -> str:
        """As ``--format`` says it: ``claude-code``."""

    def recognizes(self, head: SourceHead) -> bool:
        """Whether a source that begins so is of this format: by what it holds, never by its name alone."""

    def plans(self, source: Any) -> Iterable[SessionPlan]:
        """The sessions of a :class:`Source`, or of :class:`Tables`, in the order in which they stand in it.

        Never raises for what the source holds: a finding says what could not be read. What ``source.read`` raises comes out.
        """


@runtime_checkable
class StampingReader(Protocol):
    """A reader of a database that says which sessions changed, so that one that grew is read by what is new."""

    def session_stamps(self, source: Any) -> Mapping[str, str]:
        """For each session in it a text that is another one as soon as something of the session changes. No message is read for it."""

    def session_times(self, source: Any) -> Iterable[tuple[float, float]]:
        """For each session in it when it began and when it last changed, in seconds since 1970."""

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        """As :meth:`SessionReader.plans`, without the sessions whose ids are in ``skip``."""


@dataclass(frozen=True, slots=True)
class SourceHead:
    """How a source begins: what a reader recognizes it by."""

    name: str
    start: bytes = b""
    """Its first bytes, at most 64 KiB."""
    objects: tuple[dict[str, Any], ...] = ()
    """The JSON objects of its first lines, at most 20; fewer where lines are long or unreadable, but one if it begins with one."""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a SQLite database: each table's columns."""


@dataclass(frozen=True, slots=True)
class WrittenSession:
    """A conversation in the form of another program: what is to be written, and nothing is written yet."""

    files: tuple[tuple[str, bytes], ...]
    """Each file's path below the program's own folder (``projects/-home-me/<session>.jsonl``), with ``/``, and its bytes.

    The last one is what makes the session visible to the program. A file that is there already with these very bytes is left
    as it is; with others, nothing is written.
    """
    command: str
    """What resumes it in a shell, in the directory ``cwd``; empty if nothing does. ``{file}`` in it stands for the path of the last file,
    where the program takes it by a command."""
    losses: tuple[Loss, ...] = ()
    session: str | None = None
    """The id that the session has there, where ids of that program have another form than the one that was given; else None."""


class SessionWriter(Protocol):
    """Writes a conversation as a new session of one program. Pure: the same arguments give the same bytes."""

    @property
    def name(self) -> str:
        """As ``--to`` says it: ``claude-code``. A reader of this name reads what is written."""

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """The conversation as files.

        Args:
            records: messages and events in order, each with the time at which it was stored.
            metadata: provider, model, system prompt, tools and labels.
            session: a new canonical UUID, for the session and for ids that are made of it.
            cwd: the absolute path of the directory in which the session is to be resumed.
            now: RFC 3339 in UTC, as the records' times are.

        Raises:
            ValueError: this conversation cannot be said in that form at all; the sentence says why.
        """


# ---- format ----
#
# A format that another package adds: what it hands to us through the entry point group ``transcript_store.formats``.
#
# docs/import.md ("Add a format") has a whole example.


@dataclass(frozen=True, slots=True)
class SessionFolder:
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

    The name of the entry point is the name of the format. The reader, the writer and the session folders have it too.
    """

    reader: SessionReader | None = None
    writer: SessionWriter | None = None
    session_folders: tuple[SessionFolder, ...] = ()
    """Where ``import`` looks without a PATH. A session is written into the folder of the first."""
