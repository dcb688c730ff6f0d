"""Export a conversation: the bytes it was imported from, JSON lines, Markdown, a page, or a new session of another program.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.exporting import export

    library = ConversationLibrary("chats")
    with library.create(messages=[{"role": "user", "content": "Where were we?"}]) as conversation:
        done = export(conversation, to="markdown", output="conversation.md")
    print(done.paths, done.losses)
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import NamedTuple

from transcript_store.conversation import ConversationMetadata, ConversationStore, Record
from transcript_store.display import many
from transcript_store.exporting._files import (
    ExportError,
    imported_lines,
    json_lines,
    original_bytes,
    write_all,
    write_new,
)
from transcript_store.file_names import absolute_path
from transcript_store.formats import Loss, SessionFolder, SessionWriter, WrittenSession, redacted_extra, redacted_fields
from transcript_store.import_notes import MOST, note_of, session_id
from transcript_store.library import ConversationLibrary
from transcript_store.new_files import require_binary
from transcript_store.redaction import SecretRedactor, require_redactor
from transcript_store.view import Stream, render_conversation

__all__ = ["ExportError", "Exported", "Stream", "export", "fork_for", "imported_lines", "program_folder", "targets"]

_LONGEST_PATH_BYTES = 4096
"""PATH_MAX of Linux, more than that of macOS: no system opens a longer path."""
_OF_OURS = ("original", "jsonl", "markdown", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export."""

    to: str
    paths: tuple[str, ...] = ()
    """The absolute paths of the new files; none if a stream was written to."""
    session: str | None = None
    """The id that the session has in the other program."""
    command: str | None = None
    """The shell command that continues it, in the directory ``cwd``."""
    cwd: str | None = None
    losses: tuple[Loss, ...] = ()
    """What the other form cannot hold."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """The number of removed secrets by kind."""


def targets() -> tuple[str, ...]:
    """The values of ``to``. Packages that add formats are imported."""
    from transcript_store.formats import WRITERS  # imports all formats, which a text does not need
    from transcript_store.sources import added_formats

    theirs = (name for name, added in added_formats()[0].items() if added.writer is not None)
    return (*_OF_OURS, *(writer.name for writer in WRITERS), *theirs)


def program_folder(to: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The folder in which a program keeps its sessions, existing or not; None if it is unknown.

    Raises:
        ValueError: there is no such target.
        UnusableFormatError: the target is a package's, and cannot be used.
    """
    place = None if to in _OF_OURS else _target(to).place
    if place is None:
        return None
    from transcript_store.sources import folder_of

    return folder_of(place, environ=environ)


def export(
    conversation: ConversationStore | ConversationLibrary,
    id: str | None = None,
    *,
    to: str,
    output: str | os.PathLike[str] | Stream | None = None,
    generation: int | None = None,
    through_seq: int | None = None,
    cwd: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    before_writing: Callable[[tuple[Loss, ...]], object] | None = None,
    redact: SecretRedactor | None = None,
    branches: bool = False,
) -> Exported:
    """Write a conversation in another form. The conversation is only read; it may have a live writer.

    A written file is new, readable by its owner only, and complete and synced before it has its name. For another
    program the conversation becomes a new session with a new id, and with the times of the conversation; no existing file is
    changed. An import skips that session as long as nothing is added to it. Retracted messages
    (:meth:`ConversationStore.retract`) are left out, except from the original.

    Args:
        conversation: a store that is loaded, or a library.
        id: the conversation's id in the library.
        to: ``original_bytes``, the bytes that it was imported from; ``jsonl``, a line a record as ``show --json`` prints it;
            ``markdown``, to read; ``html``, a page to look at, which needs the extra ``view``; or the name of a program
            (:func:`targets`), which may be one that an installed package adds.
        output: for a program the folder to use instead of the program's own; else the file to write, or a binary stream.
        generation: an earlier generation; None for the live one.
        through_seq: the number of the last record to export; None for all.
        cwd: for a program the directory in which the session is resumed; it must exist unless ``output`` is given. None for
            the one that the conversation was imported with if it exists, else the current one.
        environ: the environment that names the program's folder; this process's if None.
        before_writing: called with the losses before the first byte is written. What it raises ends the export.
        redact: removes secrets from the written text. The conversation does not change.
        branches: for ``markdown``, True to include messages on abandoned branches.

    Raises:
        TypeError: ``conversation`` is neither a store nor a library, or ``output`` is a text stream. Nothing was written.
        ValueError: there is no such target; ``output``, ``generation`` or ``through_seq`` does not fit it; there is no record
            ``through_seq``; there is no directory ``cwd``. Nothing was written.
        UnusableFormatError: the target is a package's, and cannot be used.
        ExportError: the form cannot hold it, or a file with that name exists; nothing was written.
        TranscriptStoreError: as :meth:`ConversationLibrary.open` and :meth:`ConversationStore.iter_records`.
    """
    target = None if to in _OF_OURS else _target(to)
    if isinstance(conversation, ConversationLibrary):
        if id is None:
            raise ValueError("a conversation of a library needs its id")
        with conversation.open(id, read_only=True) as store:
            return export(
                store,
                to=to,
                output=output,
                generation=generation,
                through_seq=through_seq,
                cwd=cwd,
                environ=environ,
                before_writing=before_writing,
                redact=redact,
                branches=branches,
            )
    if not isinstance(conversation, ConversationStore):
        kind = type(conversation).__name__
        raise TypeError(f"conversation must be a loaded ConversationStore, or a library with an id, not {kind}")
    require_binary(output)
    if to == "original" and redact is not None:
        raise ValueError("the original keeps every byte and cannot be redacted; --to jsonl can")
    if to == "original" and (generation is not None or through_seq is not None):
        raise ValueError("the original is the whole file: it has no generation and no last record")
    records, metadata = _records(conversation, generation, through_seq), conversation.get_metadata()
    clean = None if redact is None else _Clean(redact)
    if clean is not None:
        records, metadata = map(clean.record, records), clean.metadata(metadata)
    counts: Mapping[str, int] = {} if clean is None else clean.counts
    if target is not None:
        done = _to_program(conversation, records, metadata, target, output, cwd, environ, before_writing)
        return replace(done, redacted=dict(counts))
    if output is None:
        raise ValueError(f"{to} needs an output: a path or a binary stream")
    if to in ("markdown", "html"):
        shown = render_conversation(
            conversation,
            to="html" if to == "html" else "markdown",
            generation=generation,
            through_seq=through_seq,
            redact=redact,
            branches=branches and to == "markdown",
        )
        pieces, counts = shown.pieces, shown.redacted
    elif to == "jsonl":
        pieces = json_lines(records, metadata.generation if generation is None else generation)
    else:
        pieces = original_bytes(conversation)
    if before_writing is not None:
        before_writing(())
    if isinstance(output, str | os.PathLike):
        path = absolute_path(output)
        write_new(path, pieces)
        return Exported(to=to, paths=(path,), redacted=dict(counts))
    output.writelines(pieces)
    return Exported(to=to, redacted=dict(counts))


def fork_for(
    conversation: ConversationStore,
    provider: str,
    into: ConversationLibrary,
    *,
    before_writing: Callable[[tuple[Loss, ...]], object] | None = None,
) -> str:
    """Copy a conversation into a new one that another provider can continue; return its id. The original is only read.

    The messages have the form of that provider, and the times of the original; the system prompt, the tools and the labels are the
    original's, and the model is left open. What that form cannot hold stays in the original, and so do events.

    Args:
        conversation: a store that is loaded.
        provider: whose form the copy has, as :meth:`ConversationStore.initialize` takes it.
        into: the library for the copy.
        before_writing: called with the losses, before anything is written. Its exceptions end the call.

    Raises:
        ValueError: no form is known for the provider.
        ExportError: the conversation has no message that could be sent. Nothing was written.
        TranscriptStoreError: as :meth:`ConversationStore.iter_records` and :meth:`ConversationLibrary.create`.
    """
    from transcript_store.formats import handed, is_form_known

    if not is_form_known(provider):
        raise ValueError(f"no form is known for the provider {provider!r}")
    metadata = conversation.get_metadata()
    records = [record for record in _records(conversation, None, None) if note_of(record) is None]
    records = [record for record in records if record.retracts is None]
    try:
        found = handed(records, replace(metadata, tools=None), provider, metadata.created_at, keeps_prompt=True)
    except ValueError as error:
        raise ExportError(path=conversation.directory, reason=str(error)) from error
    if before_writing is not None:
        before_writing(found.losses)
    left = ("source", "import", "part_of")  # the copy is not an import
    with into.create(
        provider=provider,
        system_prompt=metadata.system_prompt,
        tools=metadata.tools,
        labels={name: text for name, text in metadata.labels.items() if name not in left}
        | {"forked_from": metadata.id},
        messages=[message for message, _ in found.messages],
        times=[at for _, at in found.messages],
    ) as fork:
        return fork.id


class _Clean:
    """Redacted records and metadata, and the number of secrets."""

    def __init__(self, redactor: SecretRedactor) -> None:
        require_redactor(redactor)
        self._redactor = redactor
        self.counts: Counter[str] = Counter()

    def record(self, record: Record) -> Record:
        message, in_message = self._redactor.redact(record.message)
        extra, in_extra = (None, {}) if record.extra is None else redacted_extra(record.extra, self._redactor)
        self.counts.update(Counter(in_message) | Counter(in_extra))  # a secret in both counts once
        return replace(record, message=message, extra=extra)

    def metadata(self, metadata: ConversationMetadata) -> ConversationMetadata:
        fields = {name: getattr(metadata, name) for name in ("model", "system_prompt", "tools", "labels")}
        clean, counts = redacted_fields(fields, self._redactor)
        self.counts.update(counts)
        return replace(metadata, **clean)


class _Target(NamedTuple):
    """A program as a target."""

    writer: SessionWriter
    place: SessionFolder | None
    """Its session folder; None if that is unknown."""


def _target(to: str) -> _Target:
    from transcript_store.formats import WRITERS
    from transcript_store.sources import SESSION_FOLDERS, added_formats

    for writer in WRITERS:
        if writer.name == to:
            return _Target(writer, next(place for place in SESSION_FOLDERS if place.program == to))
    added, unusable = added_formats(to)
    if unusable:
        raise unusable[0]
    if to not in added or (found := added[to].writer) is None:
        raise ValueError(f"there is no target {to!r}; use one of {', '.join(targets())}")
    return _Target(found, next(iter(added[to].session_folders), None))


def _to_program(
    conversation: ConversationStore,
    records: Iterator[Record],
    metadata: ConversationMetadata,
    target: _Target,
    output: object,
    cwd: str | os.PathLike[str] | None,
    environ: Mapping[str, str] | None,
    before_writing: Callable[[tuple[Loss, ...]], object] | None,
) -> Exported:
    writer = target.writer
    if output is not None and not isinstance(output, str | os.PathLike):
        raise ValueError(f"for {writer.name} the output must be a folder")
    if output is None and target.place is None:
        raise ValueError(f"the session folder of {writer.name} is unknown: name the folder (output)")
    where = _directory(cwd, metadata.labels.get("cwd"), must_exist=output is None)
    live_records = [record for record in records if note_of(record) is None and record.retracts is None]
    began = live_records[0].at if live_records else metadata.created_at
    folder = _folder(target, output, environ)
    try:
        session, written = _written(
            lambda session: writer.write(live_records, metadata, session=session, cwd=where, now=f"{began[:23]}Z"),
            folder,
        )
    except ValueError as error:
        raise ExportError(
            path=conversation.directory, reason=f"cannot become a session of {writer.name}: {error}"
        ) from error
    if before_writing is not None:
        before_writing(written.losses)
    paths = tuple(write_all(folder, written.files))
    return Exported(
        to=writer.name,
        paths=paths,
        session=written.session or session,
        command=written.command.replace("{file}", shlex.quote(paths[-1])) or None,
        cwd=where,
        losses=written.losses,
    )


def _folder(target: _Target, output: str | os.PathLike[str] | None, environ: Mapping[str, str] | None) -> str:
    """The folder of the session: the named one, or the program's own."""
    if output is not None:
        return absolute_path(output)
    from transcript_store.sources import folder_of

    assert target.place is not None
    return folder_of(target.place, environ=environ)


def _written(write: Callable[[str], WrittenSession], folder: str) -> tuple[str, WrittenSession]:
    """A session with a recognizable new id: an import skips it while it is unchanged."""
    visible = write(str(uuid.uuid4())).files[-1][1]
    for number in range(MOST):
        session = session_id(visible, number)
        written = write(session)
        if not os.path.lexists(os.path.join(folder, written.files[-1][0])):
            break
    return session, written


def _records(conversation: ConversationStore, generation: int | None, through_seq: int | None) -> Iterator[Record]:
    """The records to export, without retracted messages. Missing records raise here, before anything is written.

    Raises:
        ValueError: there is no record of that number.
        TranscriptStoreError: as :meth:`ConversationStore.iter_records`.
    """
    found = conversation.iter_records(through_seq=through_seq, generation=generation)
    found = chain(list(islice(found, 1)), found)
    records = (record for record in found if not record.is_retracted)
    if through_seq is None:
        return records
    is_live = generation in (None, conversation.get_metadata().generation)
    count = conversation.record_count if is_live else sum(1 for _ in conversation.iter_records(generation=generation))
    if through_seq > count:
        whose = "the conversation" if is_live else f"generation {generation}"
        raise ValueError(f"there is no record {through_seq}: {whose} has {many(count, 'record')}")
    return records


def _directory(cwd: str | os.PathLike[str] | None, label: str | None, *, must_exist: bool) -> str:
    """Where the session is to be resumed: as the program itself will see it, without links and without ``..``.

    The label comes from another program's file. It counts only if such a directory exists here.

    Raises:
        ValueError: there is no such directory, or no session can name it.
    """
    if cwd is not None:
        given = os.fspath(cwd)
        if "\0" in given or len(os.fsencode(given)) > _LONGEST_PATH_BYTES or not _is_utf8(given):
            raise ValueError(
                f"{given[:40]!a} is not a directory that a session can name: too long, not UTF-8, or with a NUL"
            )
        where = os.path.realpath(os.path.expanduser(given))
        if must_exist and not os.path.isdir(where):
            raise ValueError(
                f"there is no directory {where}, in which the session would be resumed: create it, or name a folder for the session "
                "(output; --output in a shell)"
            )
        return where
    if label and os.path.isabs(label) and os.path.isdir(label):
        return os.path.realpath(label)
    if not _is_utf8(here := os.getcwd()):
        raise ValueError("the name of this directory is not UTF-8, so no session can name it: name another (cwd)")
    return here


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # a surrogate is Python's form of a byte of a name that is not UTF-8
        return False
    return True
