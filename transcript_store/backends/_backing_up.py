"""All conversations of a library: backed up, restored or shipped. A failure of one does not stop the others."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, Protocol

import orjson

from transcript_store._conversation.arguments import Redacting
from transcript_store._conversation.deleting import sweep
from transcript_store._conversation.layout import read_metadata
from transcript_store._conversation.verify import verify
from transcript_store._json.strict import encode
from transcript_store._log.record import GENESIS, Mark, copied, with_contents
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import (
    ARCHIVE,
    QUARANTINE,
    TRANSCRIPT,
    is_generation,
    is_quarantined,
    is_trash,
    stage_of,
)
from transcript_store.backends._backend import Backend, BackendError, patiently
from transcript_store.backends._backup_file import BackupFile
from transcript_store.backends._claims import WAITS_SECONDS, ClaimedLog
from transcript_store.backends._merging import copy_id, is_copy, merge_history, on_medium, rewritten
from transcript_store.backends._restoring import RemoteState, Restored, encoded_document, standing_in, timeless
from transcript_store.backends._shipping import Shipped, Shipper, looks_of
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    KeyNeededError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
)
from transcript_store.redaction import SecretRedactor

__all__ = ["LibraryShipper", "NotShipped", "backup_library", "restore_library", "ship_library"]

_MOST_OPEN = 64
"""How many conversations a library's shipper keeps open: those that changed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShipped:
    """A conversation that failed, and why. Either side is unchanged, or has a part of the new data."""

    directory: str
    error: TranscriptStoreError


class LibraryShipper:
    """Sends the conversations of a library again and again, each time those that changed: ``transcript-store ship --follow``.

    Arguments are those of :func:`ship_library`. :meth:`close` releases what was claimed; a ``with`` block calls it.
    """

    def __init__(
        self,
        directory: filesystem.AnyPath,
        backend: Backend,
        *,
        waits_seconds: Sequence[float] = WAITS_SECONDS,
        file_system: FileSystem | None = None,
        **options: Any,
    ) -> None:
        self._files = filesystem.REAL if file_system is None else file_system
        self._path = filesystem.absolute_path(directory)
        self._backend = backend
        self._options: dict[str, Any] = {"waits_seconds": waits_seconds, "file_system": self._files, **options}
        self._open: dict[str, Shipper] = {}
        self._sent: dict[str, object] = {}
        """The stamps of each completely sent folder before it was sent."""

    def __enter__(self) -> LibraryShipper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self) -> Iterator[Shipped | NotShipped]:
        """Send what changed since the last call; as :func:`ship_library`. A folder in which nothing changed is not opened."""
        return self._each(lambda shipper: shipper.send())

    def lag(self) -> Iterator[Shipped | NotShipped]:
        """Report for each conversation what the backend lacks. Nothing is written, and nothing is claimed."""
        return self._each(lambda shipper: shipper.lag())

    def _each(self, act: Callable[[Shipper], Shipped]) -> Iterator[Shipped | NotShipped]:
        failed_before = False
        for directory, looks in self._changed():
            shipper = self._open.pop(directory, None) or Shipper(directory, self._backend, **self._options)
            try:
                report = act(shipper)
            except TranscriptStoreError as error:
                shipper.close()
                # After two calls without an answer the backend is at fault, and each further conversation would wait
                # half a minute.
                if isinstance(error, BackendError) and failed_before:
                    raise
                failed_before = isinstance(error, BackendError)
                yield NotShipped(directory=directory, error=error)
                continue
            except BaseException:
                shipper.close()
                raise
            failed_before = False
            self._open[directory] = shipper
            if not report.left_records:
                self._sent[directory] = looks
            while len(self._open) > _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            yield report

    def _changed(self) -> list[tuple[str, object]]:
        """The folders with a transcript that changed since they were completely sent."""
        with refusals(self._path, "look into the library"):
            try:
                folder = Folder.open(self._files, self._path)
            except FileNotFoundError:
                raise ConversationNotFoundError(path=self._path, reason="there is no such directory") from None
            with folder:
                looked = [(folder.path_of(name), self._looks(folder, name)) for name in folder.names()]
        return [(path, looks) for path, looks in looked if looks and looks != self._sent.get(path)]

    @staticmethod
    def _looks(library: Folder, name: str) -> object:
        """The stamps of a folder's files; None if it is not a conversation's."""
        if _is_leftover(name):
            return None
        try:
            with library.subfolder(name) as folder:
                return looks_of(folder) or (object() if _has_lost_its_transcript(folder) else None)
        except (NotOursError, FileNotFoundError):
            return None
        except OSError:
            return object()  # unlike all others: opening it reports why it is refused

    def close(self) -> None:
        """Release what was claimed, and close all folders. Never raises."""
        while self._open:
            self._open.popitem()[1].close()


def ship_library(
    directory: filesystem.AnyPath, backend: Backend, *, dry_run: bool = False, **options: Any
) -> Iterator[Shipped | NotShipped]:
    """Send every conversation directly under a directory, in the order of their names, each as :func:`ship` does.

    It yields one report for each. A failed one is a :class:`NotShipped`, and the others continue.

    Args:
        directory: the library.
        backend: where to.
        dry_run: send nothing, and report the number of records still to send.
        options: ``take_over``, ``with_key``, ``waits_seconds``, ``file_system``, as of :func:`ship`.

    Raises:
        ConversationNotFoundError: there is no such directory.
        BackendError: two conversations in a row got no answer, or the backend refused both. Call it again.
        StorageError: the directory cannot be read.
    """
    with LibraryShipper(directory, backend, **options) as shipper:
        yield from shipper.lag() if dry_run else shipper.send()


_BATCH = re.compile(rb',"batch":\[\d+,\d+\]\Z')
_LOOKED_AT = ("model", "system_prompt", "tools", "labels", "restored_from")
_MOST_BYTES = 2**31


def redacted_copy(standing: RemoteState, redact: SecretRedactor, path: str) -> RemoteState:
    """A history without its secrets, under an id that follows from the original's: more of the original is more of the copy.

    ``forked_from`` names the original's id, and the record and the head in which it ends. Raises ``KeyNeededError`` for one that is
    sealed: its secrets cannot be seen.
    """
    standing = on_medium(standing)
    original = standing.state.conversation
    if standing.state.is_sealed:
        reason = "it is sealed, so its secrets cannot be seen: unseal it, or leave it out"
        raise KeyNeededError(path=path, reason=reason)
    redacting = Redacting(redact, path, _MOST_BYTES)

    def change(members: dict[str, Any], seq: int = 0, head: str = GENESIS.decode()) -> dict[str, Any]:
        fields = {name: redact.redact(members[name]).value for name in _LOOKED_AT if members.get(name)}
        origin = {"conversation": original, "generation": members["generation"], "seq": seq, "head": head}
        return {**members, **fields, "forked_from": origin}

    def without_secrets(body: bytes) -> bytes:
        members = orjson.loads(body + b"}")
        given = tuple(
            None if members.get(name) is None else encode(members[name], name, _MOST_BYTES)
            for name in ("message", "extra")
        )
        ((message, extra, _),) = redacting.entries([(given[0], given[1], None)])
        if (message, extra) == given:
            return body
        record, batch = copied(body), _BATCH.search(body)
        made = with_contents(record, message, extra)
        return b'{"seq":%d%b%b' % (members["seq"], made.members, batch[0] if batch else b"")

    made = rewritten(standing, copy_id(original, "redacted"), change, path, without_secrets)
    end = standing.state.end
    members = {**change(standing.state.members, end.seq, end.head.decode()), "id": made.state.conversation}
    document = encoded_document(members, Mark(made.state.generation, made.state.end))
    return made._replace(
        state=made.state._replace(members=members), earlier_metadata=frozenset({timeless(members)}), document=document
    )


_PAGE = 200
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors that prevent every other conversation too."""


class _Histories(Protocol):
    """The source of the conversations."""

    name: str

    def ids(self) -> Iterable[str]: ...

    def opened(self, id: str) -> AbstractContextManager[list[RemoteState]]: ...


class _FolderHistories:
    """The conversations directly under a directory, by the names of their folders; or the one that the directory is."""

    def __init__(self, files: FileSystem, path: str, *, with_key: bool) -> None:
        self.name, self._files, self._with_key = path, files, with_key

    def ids(self) -> list[str]:
        with refusals(self.name, "read the library"):
            try:
                folder = Folder.open(self._files, self.name)
            except FileNotFoundError:
                raise ConversationNotFoundError(path=self.name, reason="there is no such directory") from None
            with folder:
                if folder.status(TRANSCRIPT) is not None:
                    return [""]
                return [name for name in folder.names() if not _is_leftover(name) and _holds_one(folder, name)]

    @contextmanager
    def opened(self, id: str) -> Iterator[list[RemoteState]]:
        path = self.path_of(id)
        with standing_in(self._files, path, with_key=self._with_key) as standing:
            folder = path.rpartition("/")[2]
            is_its_id = folder == standing.state.conversation or not folder.isprintable()
            yield [standing if is_its_id else standing._replace(folder=folder)]

    def path_of(self, id: str) -> str:
        """The folder of that name."""
        return f"{self.name}/{id}" if id else self.name


def _is_leftover(name: str) -> bool:
    """True for a folder that is deleted, or not created yet. Any other name may start with a dot: ``record`` accepts it."""
    return is_trash(name) or stage_of(name) is not None


def _has_lost_its_transcript(folder: Folder) -> bool:
    """True if a folder without a transcript has the metadata.json of a conversation, and not another program's; or else
    generations or quarantined bytes. A lock alone is also what a create leaves for a moment, and holds no message.
    """
    try:
        read_metadata(folder)
    except (CorruptMetadataError, UnsupportedVersionError):
        return _has(folder, ARCHIVE, is_generation) or _has(folder, QUARANTINE, is_quarantined)
    except StorageError:
        return True  # the error says why when it is opened
    return True


def _has(folder: Folder, name: str, is_ours: Callable[[str], bool]) -> bool:
    """True if a subfolder has a file with a name of ours."""
    with suppress(FileNotFoundError, NotOursError), folder.subfolder(name) as inner:
        return any(map(is_ours, inner.names()))
    return False


def _holds_one(library: Folder, name: str) -> bool:
    """True if a folder holds a conversation or a part of one, which cannot be copied and must not be passed over."""
    try:
        with library.subfolder(name) as folder:
            return folder.status(TRANSCRIPT) is not None or _has_lost_its_transcript(folder)
    except (NotOursError, FileNotFoundError):
        return False
    except OSError:
        return True  # the error says why when it is opened


class _BackendHistories:
    """The conversations on a backend."""

    def __init__(self, backend: Backend, waits: Sequence[float], files: FileSystem, *, with_key: bool) -> None:
        self.name, self._backend, self._waits, self._files, self._with_key = (
            backend.name,
            backend,
            waits,
            files,
            with_key,
        )

    def ids(self) -> Iterator[str]:
        after = ""
        while True:
            ask = partial(self._backend.conversations, after=after, limit=_PAGE)
            page = patiently(ask, self._waits, self._files.wait, path=self.name, doing="list the conversations")
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1]

    @contextmanager
    def opened(self, id: str) -> Iterator[list[RemoteState]]:
        slots = ClaimedLog(self._backend, id, waits_seconds=self._waits, sleep=self._files.wait)
        slots.load_patiently()
        key = slots.key.read() if self._with_key and slots.state.is_sealed else None
        yield [RemoteState.of(slots.fresh, key)]


Source = Backend | BackupFile | filesystem.AnyPath
"""A source or a target: a backend, an open backup file, or the path of a library or of a conversation."""


def _histories(source: Source, waits: Sequence[float], files: FileSystem, *, with_key: bool) -> _Histories:
    if isinstance(source, BackupFile):
        return source
    if isinstance(source, str | PathLike):
        return _FolderHistories(files, filesystem.absolute_path(source), with_key=with_key)
    return _BackendHistories(source, waits, files, with_key=with_key)


def _each(
    histories: _Histories, only: Collection[str] | None
) -> Generator[tuple[str, RemoteState] | tuple[str, TranscriptStoreError], None, None]:
    """Every history, copies after their originals; or the error of one."""
    # A copy names its original, so the original has to be in the target before the copy is compared with it.
    later: list[str] = []
    for is_again in (False, True):
        for name in later if is_again else histories.ids():
            if only is not None and name not in only:
                continue
            try:
                with histories.opened(name) as standings:
                    for standing in standings:
                        if is_copy(standing) and not is_again:
                            later.append(name)
                            break
                        yield name, standing
            except BackendError:
                raise
            except ConversationNotFoundError:
                continue  # deleted in between
            except TranscriptStoreError as error:
                yield name, error


def restore_library(
    source: Source,
    directory: filesystem.AnyPath,
    *,
    only: Collection[str] | None = None,
    with_key: bool = True,
    waits_seconds: Sequence[float] = WAITS_SECONDS,
    file_system: FileSystem | None = None,
) -> Generator[Restored | NotShipped, None, None]:
    """Restore conversations into a library, under their ids. A conversation that the library has gets the missing records; nothing of
    it is removed.

    If the two histories diverge, both are kept: the incoming one becomes a copy, whose ``forked_from`` names the record where they
    diverge, and it is the same copy in every restore. The labels of both are kept; of two values for one label, the later change wins.
    So a second restore changes nothing, and several diverged libraries end with the same histories, in any order.

    A conversation that cannot be restored is reported as :class:`NotShipped`, and the others continue. Each written folder is
    verified. Conversations that were deleted on a backend are skipped. The work is done while you iterate over the results: iterate
    to the end. If it is killed, each folder is a state that its conversation had, and the next call continues.

    Args:
        source: a backend, an open :class:`BackupFile`, or the path of a library or of a conversation.
        directory: the library. It is created if it is missing.
        only: the ids to restore (of folders: their names); None for all.
        with_key: restore the wrapped keys of sealed conversations, if the source has them. An existing key.json stays.
        waits_seconds: how long to wait between two attempts of a call without an answer.
        file_system: for tests.

    Raises:
        BackendError: no answer came, or the backend refused. Call it again to continue.
        ConversationNotFoundError: the source is not a directory.
        StorageError: the library cannot be written.
    """
    files = filesystem.REAL if file_system is None else file_system
    histories = _histories(source, waits_seconds, files, with_key=with_key)
    seen = set[str]()
    for report in _into_folders(histories, files, filesystem.absolute_path(directory), only, mirrors=False):
        seen |= {report.directory.rpartition("/")[2], getattr(report, "copy_of", None) or ""}
        yield report
    for missing in sorted({*(only or ())} - seen):
        path = f"{histories.name}/{missing}"
        error = ConversationNotFoundError(path=path, reason="there is no such conversation")
        yield NotShipped(directory=path, error=error)


def _into_folders(
    histories: _Histories,
    files: FileSystem,
    library: str,
    only: Collection[str] | None,
    *,
    mirrors: bool,
    redact: SecretRedactor | None = None,
) -> Generator[Restored | NotShipped, None, None]:
    with refusals(library, "create the library"), Folder.make(files, library):
        sweep(files, library)  # the leftovers of a killed run; names that it gave are synced too

    is_full = False

    def put(standing: RemoteState) -> Restored:
        nonlocal is_full
        try:
            report = merge_history(files, library, standing, mirrors=mirrors)
        except StorageError as error:
            # Only a full or read-only disk stops the run: another refusal may concern this one folder alone.
            is_full = error.errno in _FULL
            raise
        # A new folder was verified before it got its name.
        if report.is_changed and not report.is_new:
            _require_whole(files, report.directory)
        return report

    yield from _copied(histories, only, redact, put, lambda: is_full)


def _require_whole(files: FileSystem, path: str) -> None:
    if findings := verify(path, file_system=files).findings:
        first = findings[0]
        raise CorruptTranscriptError(path=first.path, kind=first.kind, reason=first.reason)


def backup_library(
    source: Source,
    target: Source,
    *,
    only: Collection[str] | None = None,
    with_key: bool = True,
    redact: SecretRedactor | None = None,
    waits_seconds: Sequence[float] = WAITS_SECONDS,
    file_system: FileSystem | None = None,
) -> Generator[Restored | NotShipped, None, None]:
    """Copy conversations to a backup: new records are appended to it, and verified.

    Each conversation is copied in a consistent state, and may have a live writer. The backup never loses anything, even if the library
    does. If a library was set back and then continued differently, a folder and a file keep both histories, and a backend reports
    :class:`NotShipped`. If it is killed, the next call continues. The work is done while you iterate over the results: iterate to the end.

    Args:
        source: as in :func:`restore_library`; for a backend as target it must be a path.
        target: the path of a folder, which becomes a library that any command reads; a :class:`BackupFile`, opened to write; or a backend.
        only: the ids to copy (of folders: their names); None for all.
        with_key: copy the wrapped keys of sealed conversations, each time in their current form. Without them the backup alone cannot
            be opened; with them, a key that is destroyed later stays in a backup file.
        redact: copy without secrets. Each copy is a separate conversation, and names the original and its head.
        waits_seconds: how long to wait between two attempts of a call without an answer.
        file_system: for tests.

    Raises:
        BackendError: no answer came, or the backend refused. Call it again.
        ConversationNotFoundError: the source is not a directory.
        StorageError: the backup cannot be written. Call it again.
        ValueError: the source or ``redact`` does not go with this target.
    """
    files = filesystem.REAL if file_system is None else file_system
    histories = _histories(source, waits_seconds, files, with_key=with_key)
    if isinstance(target, BackupFile):
        yield from _into_file(histories, target, only, redact)
    elif isinstance(target, str | PathLike):
        path = filesystem.absolute_path(target)
        # The real paths: a link to the library would pass a comparison of names.
        is_of_folders = isinstance(histories, _FolderHistories)  # the name of another source is not a path
        if is_of_folders and filesystem.real_path(path) == filesystem.real_path(histories.name):
            raise ValueError(f"{path} is the library itself: name another folder for its backup")
        yield from _into_folders(histories, files, path, only, mirrors=True, redact=redact)
    elif not isinstance(histories, _FolderHistories) or redact is not None:
        raise ValueError(
            "a backend takes unchanged copies of a folder only: make the backup in a folder first, and ship that"
        )
    else:
        yield from _to_backend(histories, target, only, with_key, waits_seconds, files)


def _copied(
    histories: _Histories,
    only: Collection[str] | None,
    redact: SecretRedactor | None,
    put: Callable[[RemoteState], Restored],
    is_broken: Callable[[], bool],
) -> Generator[Restored | NotShipped, None, None]:
    """Copy each history; a failure of one does not stop the others, unless every other one would fail too."""
    with closing(_each(histories, only)) as each:
        for name, found in each:
            path = f"{histories.name}/{name}" if name else histories.name
            if isinstance(found, TranscriptStoreError):
                yield NotShipped(directory=path, error=found)
                continue
            try:
                report = put(found if redact is None else redacted_copy(found, redact, path))
            except TranscriptStoreError as error:
                if isinstance(error, BackendError) or is_broken():
                    raise
                yield NotShipped(directory=path, error=error)
            else:
                yield report


def _into_file(
    histories: _Histories, target: BackupFile, only: Collection[str] | None, redact: SecretRedactor | None
) -> Generator[Restored | NotShipped, None, None]:
    is_changed = False

    def put(standing: RemoteState) -> Restored:
        nonlocal is_changed
        report = target.add(standing)
        is_changed |= report.is_changed
        return report

    yield from _copied(histories, only, redact, put, lambda: target.is_broken)
    target.finish()
    if is_changed:
        # Read the file again after its sync: a backup that cannot be read is worse than none.
        target.check()


def _to_backend(
    histories: _FolderHistories,
    backend: Backend,
    only: Collection[str] | None,
    with_key: bool,
    waits: Sequence[float],
    files: FileSystem,
) -> Generator[Restored | NotShipped, None, None]:
    for name in histories.ids():
        if only is not None and name not in only:
            continue
        path = histories.path_of(name)
        try:
            with Shipper(path, backend, with_key=with_key, waits_seconds=waits, file_system=files) as shipper:
                sent = shipper.send()
            # Read back only what this run changed: reading a whole library again would cost as much as the first
            # backup.
            if sent.sent_bytes:
                slots = ClaimedLog(backend, sent.id, waits_seconds=waits, sleep=files.wait)
                slots.load_patiently()  # each slot is verified
        except BackendError:
            raise
        except TranscriptStoreError as error:
            yield NotShipped(directory=path, error=error)
            continue
        yield Restored(
            id=sent.id,
            directory=f"{backend.name}/{sent.id}",
            generation=sent.generation,
            record_count=sent.record_count,
            head=sent.head,
            is_new=bool(sent.sent_bytes) and sent.sent_records >= sent.record_count,
            added_records=sent.sent_records,
            key_is_missing=sent.key_is_missing,
            is_changed=bool(sent.sent_bytes),
        )
