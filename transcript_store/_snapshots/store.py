"""What does every snapshot store do that keeps named files, in a directory or on a backend?

``KeptSnapshots`` has the calls. Subclasses say how files are read and written.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn

from transcript_store._conversation.verify import Finding
from transcript_store._os.filesystem import NOT_ITS_FAULT
from transcript_store._snapshots import media as _media
from transcript_store._snapshots.snapshot import Snapshot, SnapshotSummary, Summaries, with_messages
from transcript_store._snapshots.stored import (
    MAX_FILE_BYTES,
    OVERHEAD_BYTES,
    SAMPLE,
    Failure,
    Key,
    PlainSample,
    StoredFiles,
    StoreKeys,
    file_name,
    is_too_large,
    store_keys,
)
from transcript_store._snapshots.tools import warn_of_tools
from transcript_store.errors import (
    CorruptSnapshotError,
    DecryptionError,
    InvalidMessageError,
    SnapshotNotFoundError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint

# ---- findings ----
# Files of a snapshot store that are damaged, or cannot be opened.

Findings = list[Finding]


def note_damage(files: StoredFiles, findings: Findings) -> None:
    """Add every snapshot and all media that cannot be opened, read or found. Other processes may save and delete
    meanwhile.
    """
    there: set[str] = set()
    with _noted(findings):
        for name in sorted(files.media_names()):
            damage = _damage_of_media(files, name)
            if damage is not None and damage.kind == "missing":
                continue  # it was collected since; a snapshot that still refers to it is found below
            there.add(name)
            if damage is not None:
                findings.append(damage)
    for found in files.ids():
        with _noted(findings), suppress(FileNotFoundError):
            for name in sorted(files.references(found) - there):
                damage = _damage_of_media(files, name)  # it was stored since, or it is missing
                # It is not missing if it was collected together with the snapshot that referred to it.
                if damage and (damage.kind != "missing" or name in files.references(found)):
                    findings.append(damage)


def _damage_of_media(files: StoredFiles, name: str) -> Finding | None:
    """The damage of media; None if it is intact."""
    found: Findings = []
    with _noted(found):
        files.media_text(name)
    return found[0] if found else None


@contextmanager
def _noted(findings: Findings) -> Iterator[None]:
    """Turn an error about one file into a finding."""
    try:
        yield
    except CorruptSnapshotError as error:
        findings.append(_finding(error, kind=error.kind))
    except DecryptionError as error:
        findings.append(_finding(error, kind="unopened"))
    except UnsupportedVersionError as error:
        findings.append(_finding(error, kind="version"))


def _finding(error: CorruptSnapshotError | DecryptionError | UnsupportedVersionError, *, kind: str) -> Finding:
    assert error.hint is not None
    return Finding(kind=kind, path=error.path or "", reason=error.reason, hint=error.hint)


# ---- store ----

Names = list[str]
_EITHER_KEY = "Every file is unchanged or sealed with the new key"


class KeptSnapshots:
    """A ``SnapshotStore`` of files. It has keys, so it cannot be pickled."""

    def __init__(
        self, path: str, encryption_key: bytes | None, retired_keys: Sequence[bytes], logger: logging.Logger
    ) -> None:
        self._path = path
        self.logger = logger
        self.keys = store_keys(encryption_key, retired_keys)
        self.is_prepared = False
        self.witness = PlainSample()

    @property
    def directory(self) -> str:
        """The store's name in errors: its absolute path, or the name of its backend."""
        return self._path

    @property
    def has_key(self) -> bool:
        """True if this object has a key: then it seals the files that it saves, and opens sealed ones."""
        return self.keys.can_seal

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r}{', sealed' if self.keys.can_seal else ''})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied, as it has keys: create another one")

    # ---- how its files are reached -------------------------------------------------------------------------------

    @abstractmethod
    def _reading(self, doing: str) -> AbstractContextManager[StoredFiles | None]:
        """The files; None if there is no store. A refusal is a ``StorageError``."""

    @abstractmethod
    def _writing(
        self, doing: str, consequence: str, hint: Hint | None = None, *, creates: bool = False
    ) -> AbstractContextManager[StoredFiles | None]:
        """The files, for a call that writes. With ``creates`` a missing store is created."""

    # ---- the four calls of a SnapshotStore -----------------------------------------------------------------------

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot; one with the same id is replaced, atomically.

        On return the snapshot and its media survive a power loss. When this raises, either the old one or the new one
        is stored. A tool whose parameters the Go library cannot read is stored too; ``logger`` gets a warning with its
        name.

        ``save`` of a new id works with any key, since a store may use several keys: ``opens`` detects a wrong one.

        Raises:
            DecryptionError: none of the keys opens the snapshot with this id (pass its key, or ``delete`` it), or media
                that is shared with other snapshots; or the store is sealed, perhaps only recently, and this object has
                no key. Nothing was changed.
            InvalidMessageError: the snapshot takes more than 1 GiB.
            CorruptSnapshotError: ``media`` is not a directory.
            ConversationLockedError: another process wrote for more than ten seconds.
            StorageError: the disk refused.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"save() takes a Snapshot, not {type(snapshot).__name__}")
        name = file_name(snapshot.id)
        if is_too_large(len(snapshot.messages_json)):
            raise _too_large()
        media: dict[str, bytes] = {}
        messages = _media.move_out(snapshot.messages_json, media.__setitem__)
        data = (with_messages(snapshot, messages) if media else snapshot).to_json()
        if is_too_large(len(data) + OVERHEAD_BYTES):
            raise _too_large()
        consequence = "The old snapshot with its id is in place, or the new one"
        doing = f"save the snapshot {snapshot.id}"  # a user who looks for it needs its id
        with self._writing(doing, consequence, Hint.LOAD_TO_CHECK, creates=True) as files:
            assert files is not None
            files.refuse_to_save(name, media)
            if not self.is_prepared:
                files.sweep()
                self.is_prepared = True
            files.save(name, data, media)
            if not self.keys.can_seal:
                self.witness.name = name
        warn_of_tools(snapshot.tools, self.logger)

    def load(self, id: str) -> Snapshot:
        """The snapshot with this id, its media back in place.

        Raises:
            SnapshotNotFoundError: there is none.
            InvalidSnapshotIdError: this is not a snapshot's id.
            DecryptionError: the keys do not open it, or its bytes were changed.
            CorruptSnapshotError: it is damaged, or another snapshot; or its media is missing, or is not what its hash says.
            UnsupportedVersionError: a later version of this library wrote it.
            StorageError: it cannot be read.
        """
        file_name(id)
        with self._reading("load the snapshot") as files:
            if files is not None:
                try:
                    return files.load(id)
                except FileNotFoundError:
                    pass
        raise SnapshotNotFoundError(path=self._path, id=id)

    def list(self, ids: Collection[str] | None = None) -> Summaries:
        """All snapshots, or the existing ones of these ids, newest first.

        Damaged and foreign ones, and those sealed with other keys, are skipped; ``verify`` names them.

        Opens every snapshot, but not its media, and decodes no message. Raises ``StorageError`` if the directory cannot
        be read.
        """
        with self._reading("list the snapshots") as files:
            if files is None:
                return []

            def summary(found: str) -> SnapshotSummary | None:
                try:
                    return files.summarize(found)
                except StorageError:
                    raise
                except (TranscriptStoreError, OSError) as error:
                    if isinstance(error, OSError) and error.errno in NOT_ITS_FAULT:
                        raise
                    files.skipped(found, error)
                    return None

            shown = files.ids(files.names_to_show())
            wanted = (found for found in shown if ids is None or found in ids)
            return SnapshotSummary.newest_first([one for one in files.each(summary, wanted) if one is not None])

    def delete(self, id: str) -> None:
        """Remove the snapshot with this id, durably. Its media stays, as other snapshots may use it: see ``collect_media``.

        Raises ``SnapshotNotFoundError``, ``InvalidSnapshotIdError``, ``ConversationLockedError`` and ``StorageError``.
        """
        name = file_name(id)
        with self._writing("delete the snapshot", "Whether it was deleted is unknown", Hint.LOAD_TO_CHECK) as files:
            if files is not None:
                try:
                    files.delete(name)
                except FileNotFoundError:
                    pass
                else:
                    return
        raise SnapshotNotFoundError(path=self._path, id=id)

    # ---- keys, damage and media ----------------------------------------------------------------------

    def rotate_key(self, new_key: bytes) -> None:
        """Seal everything with a new key; a plaintext store becomes a sealed one.

        On return every snapshot and all media are sealed with ``new_key``, and this object opens nothing else. A file
        that cannot be opened is skipped; all others are sealed, and then the first such error is raised. It says how
        many files have the new key.

        An interrupted rotation leaves each file in its old form or its new one. This object opens both, and so does
        another one with the old key among its ``retired_keys``. A second call on either finishes.

        First give other processes the new key, with the old one among ``retired_keys``. Keep both keys until this has
        returned.

        Raises:
            InvalidKeyError: the key is not 32 bytes; nothing was changed.
            DecryptionError: no key opens a file.
            CorruptSnapshotError: a file is not one, or ``media`` is not a directory.
            ConversationLockedError: another process wrote for more than ten seconds.
            StorageError: the disk refused.
        """
        key = Key(new_key)
        with self._writing("seal the store with another key", _EITHER_KEY, Hint.KEEP_BOTH_KEYS) as files:
            if files is not None:
                files.sweep()
                if is_plain := not self.keys.can_seal:
                    files.note_sealing(key)
                # The note is not read again: a failing disk would leave this object without a key beside a sealing
                # note.
                self.keys = self.keys.rotated_to(key, plain_too=is_plain or files.is_being_sealed_with(key))
                sealed, failures = files.reseal()
                if failures:
                    raise _left(failures, sealed)
            self.keys = StoreKeys(key)

    def opens(self) -> bool:
        """True if the keys open the store; False if it has snapshots and they open none of the first ones.

        ``save()`` of a new id does not check this, because a store may use several keys. Call it if your key may be
        wrong. Raises ``StorageError`` if the directory cannot be read.
        """
        with self._reading("read the store") as files:
            if files is None:
                return True
            not_opened = 0
            for one in files.ids():
                try:
                    files.summarize(one)
                    return True
                except FileNotFoundError:
                    continue  # deleted: a backend keeps a placeholder under its name
                except DecryptionError:
                    not_opened += 1
                    if not_opened == SAMPLE:
                        break
                except StorageError:
                    raise
                except (TranscriptStoreError, OSError):
                    return True  # damaged: not a question of the key
            return not not_opened

    def verify(self) -> Findings:
        """Every snapshot and all media that cannot be opened, read or found. Changes nothing.

        The kinds of findings are those of ``CorruptSnapshotError``, ``unopened`` (no key opens it) and ``version``.
        Files under other names are ignored. Raises ``StorageError`` if the directory cannot be read.
        """
        findings: Findings = []
        with self._reading("verify the store") as files:
            if files is not None:
                note_damage(files, findings)
        return findings

    def collect_media(self, *, older_than_seconds: float = 86_400) -> Names:
        """Remove media that no snapshot refers to and that is at least this old; returns the removed names.

        If a snapshot cannot be opened, its references are unknown: nothing is removed, and a warning is logged;
        ``verify`` says more. The age protects files that go-tool-base, which takes no lock, is storing right now.

        Raises:
            ValueError: ``older_than_seconds`` is negative or not finite.
            ConversationLockedError: another process wrote for more than ten seconds.
            CorruptSnapshotError: ``media`` is not a directory.
            StorageError: the disk refused; nothing that a snapshot refers to was removed.
        """
        if not 0 <= older_than_seconds < float("inf"):
            raise ValueError(f"older_than_seconds must be 0 or more, and finite, not {older_than_seconds!r}")
        with self._writing("collect media", "No media that a snapshot refers to was removed") as files:
            return [] if files is None else files.collect(files.in_use, older_than_seconds)


def _too_large() -> InvalidMessageError:
    return InvalidMessageError(member="messages", reason=f"take more than {MAX_FILE_BYTES:,} bytes")


def _left(failures: list[Failure], sealed: int) -> Failure:
    """The error of a rotation that could not open everything: for the first such file, with the state of the others."""
    first, more = failures[0], len(failures) - 1
    what = "it was skipped"
    if more:
        what += f", and so {'was' if more == 1 else 'were'} {more} more"
    consequence, hint = f"{what}; nothing is sealed with the new key", first.hint
    if sealed:
        others = "1 other is" if sealed == 1 else f"{sealed} others are"
        consequence, hint = f"{what}; {others} sealed with the new key now", Hint.KEEP_BOTH_KEYS
    facts: dict[str, Any] = {"path": first.path, "reason": first.reason, "consequence": consequence, "hint": hint}
    if isinstance(first, DecryptionError):
        return DecryptionError(**facts)
    return CorruptSnapshotError(kind=first.kind, **facts)
