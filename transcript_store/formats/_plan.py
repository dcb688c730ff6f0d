"""What an import would store, before anything is stored: a session of a source as a plan.

A reader turns bytes or rows into plans. A plan is data: it opens no file, uses no clock, and knows nothing of this library's folders.
``importing`` compares it with the record and writes the difference.

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
    """A foreign file, opened read-only; or a member of an archive.

    It may also have ``beside(path, longest=)``, the bytes of a small file beside it or None, and ``names_beside()``, the paths of
    the files of an export.
    """

    @property
    def name(self) -> str:
        """For people: a path, or an archive's path and the member's name. Never opened by this name again."""

    @property
    def size(self) -> int:
        """In bytes, at the time of opening. Later bytes are for the next import."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only where the source ends."""


class Tables(Protocol):
    """A foreign SQLite database, opened read-only: rows by the names of their columns, and no other SQL."""

    @property
    def name(self) -> str:
        """For people: its path."""

    def columns(self, table: str) -> tuple[str, ...]:
        """The names of its columns; empty if there is no such table. A view is no table."""

    def rows(
        self, table: str, columns: Iterable[str], order: Iterable[str], where: Mapping[str, object] = ...
    ) -> Iterator[tuple[Any, ...]]:
        """The values of these columns for each row, in this order: ints, floats, texts, bytes and None.

        With ``where`` only the rows that have these values.
        """


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """A fault of a source, and its place. Nothing is dropped without one."""

    kind: str
    """``torn``, ``nul``, ``not-json``, ``not-an-object``, ``glued``, ``too-long``, ``too-deep``, ``byte-order-mark``, or the
    format's own.
    """
    message: str
    """A sentence without the place."""
    line: int | None = None
    """From 1; None if it is not about one line."""
    offset: int | None = None
    """Of the line's first byte."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that the other form cannot hold, with its count; reported before anything is written."""

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
    """The source's time: RFC 3339 if it is a time, else its text; None if there is none."""
    lines: Sequence[int] = ()
    """The source lines that it accounts for, from 1. Empty if an earlier generation accounts for them."""


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
    """The version of the format, or of the program that wrote it; None if unknown."""
    provider: str | None = None
    """The form of the messages; None if there is no message."""
    model: str | None = None
    system_prompt: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """``title``, ``cwd``, ``git_branch``, ``part_of`` where known. ``source`` is added by who imports."""
    findings: tuple[ImportFinding, ...] = ()
    losses: tuple[Loss, ...] = ()
    is_part: bool = False
    """True if another plan of this source accounts for its lines too: a sub-agent in its parent's file, a branch that was left. The
    source's bytes belong to the other plan.
    """
    tail: bytes = b""
    """The bytes after the last whole line: a line that is still being written, left for the next import."""
    redaction: Mapping[str, Any] | None = None
    """How it was redacted. A reader leaves it None."""
    edition: tuple[str, str] | None = None
    """For a source that always has the whole session, such as an export: when the session changed and when its last message was
    sent, both RFC 3339 in UTC or empty. The greater edition is the newer one. None for a file that a program appends to.
    """
    is_exported: bool = False
    """True if it is what an export of this library wrote, and nothing was added to it: an import leaves it alone."""
    revision: int = 1
    """The reader's, stored by the import. A reader class sets ``revision`` and leaves this alone."""
    former_session: str | None = None
    """An id under which an earlier version of the reader may have stored it, or an import of a shorter source. Such a conversation
    is continued if it has the same source. Sessions of several sources may share it.
    """


class SessionReader(Protocol):
    """Reads one format. Pure: the same source gives the same plans.

    Increase ``revision`` (an int, 1 by default) whenever plans change for the same source. A session that an older revision read is
    planned again, and becomes a new generation if it differs.
    """

    @property
    def name(self) -> str:
        """The value of ``--format``: ``claude-code``."""

    def recognizes(self, head: SourceHead) -> bool:
        """True for a source of this format, decided by its content and not by its name alone."""

    def plans(self, source: Any) -> Iterable[SessionPlan]:
        """The sessions of a :class:`Source`, or of :class:`Tables`, in their order there.

        Never raises for the content: a finding reports what cannot be read. Errors of ``source.read`` are passed on.
        """


@runtime_checkable
class StampingReader(Protocol):
    """A reader of a database that tells which sessions changed, so that only these are read again."""

    def session_stamps(self, source: Any) -> Mapping[str, str]:
        """For each session a text that changes with anything in it. No message is read for it."""

    def session_times(self, source: Any) -> Iterable[tuple[float, float]]:
        """For each session in it when it began and when it last changed, in seconds since 1970."""

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        """As :meth:`SessionReader.plans`, without the sessions in ``skip``."""


@dataclass(frozen=True, slots=True)
class SourceHead:
    """The start of a source, by which a reader recognizes it."""

    name: str
    start: bytes = b""
    """Its first bytes, at most 64 KiB."""
    objects: tuple[dict[str, Any], ...] = ()
    """The JSON objects of its first lines, at most 20; fewer if lines are long or unreadable, but the first object at least."""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a SQLite database: each table's columns."""

    def has_table(self, table: str, columns: str) -> bool:
        """True if it is a database with this table, which has these columns: names with blanks between them."""
        return set(columns.split()) <= set(self.tables.get(table, ()))

    def is_document_with(self, *members: str, opening: bytes | tuple[bytes, ...] = b"{") -> bool:
        """True if it begins as a JSON object, or with ``opening``, and its first bytes name all these members.

        If its first line is an object by itself, the members must be its own: a line of JSON Lines may quote a document.
        """
        text = self.start.removeprefix(b"\xef\xbb\xbf").lstrip()
        first, end, _ = text.partition(b"\n")
        if self.objects and first.startswith(b"{") and (not end or first.rstrip().endswith(b"}")):
            return set(members) <= self.objects[0].keys()
        return text.startswith(opening) and all(f'"{name}"'.encode() in self.start for name in members)


@dataclass(frozen=True, slots=True)
class WrittenSession:
    """A conversation in the form of another program, not written yet."""

    files: tuple[tuple[str, bytes], ...]
    """Each file's path below the program's folder (``projects/-home-me/<session>.jsonl``), with ``/``, and its bytes.

    The last one makes the session visible to the program. A file that exists with the same bytes is left alone; with other bytes,
    nothing is written.
    """
    command: str
    """The shell command that resumes it in the directory ``cwd``; empty if there is none. ``{file}`` in it is the path of the last
    file.
    """
    losses: tuple[Loss, ...] = ()
    session: str | None = None
    """The id that the session has there, where ids of that program have another form than the one that was given; else None."""


class SessionWriter(Protocol):
    """Writes a conversation as a new session of one program. Pure: the same arguments give the same bytes."""

    @property
    def name(self) -> str:
        """The value of ``--to``: ``claude-code``. The reader of this name reads the result."""

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """The conversation as files.

        Args:
            records: messages and events in order, each with the time when it was stored.
            metadata: provider, model, system prompt, tools and labels.
            session: a new canonical UUID, for the session and the ids made from it.
            cwd: the absolute path of the directory in which the session will be resumed.
            now: RFC 3339 in UTC, as the records' times are.

        Raises:
            ValueError: this form cannot hold the conversation; the message gives the reason.
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
    """Paths below the folder. ``*`` matches a part of one name, without a dot at the start."""
    variable: str | None = None
    """The environment variable that names another folder."""
    below_variable: str = ""
    """Appended to the folder in the variable."""
    mac_folder: str | None = None
    """On macOS instead of ``folder``."""
    not_sessions: tuple[str, ...] = ()
    """Names of files that match, and hold no session: the program's own logs. They are passed over."""


@dataclass(frozen=True, slots=True)
class Format:
    """What a package adds: a reader, a writer or both, and the program's session folders.

    The entry point's name is the format's name; the reader, the writer and the session folders have it too.
    """

    reader: SessionReader | None = None
    writer: SessionWriter | None = None
    session_folders: tuple[SessionFolder, ...] = ()
    """Where ``import`` looks without a PATH. A session is written into the folder of the first."""
