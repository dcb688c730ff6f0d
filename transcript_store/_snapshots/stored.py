"""How does a snapshot store seal, open, check and judge its files, wherever they are?

``StoredFiles`` decides; a directory (``file_store``) and a backend (``backends/_snapshots``) say how a file is read and
written. A file is one value under one name, and damage is an error of ours that names the file. Errors of the system or
the backend pass through, for the caller to translate.

A sealed file is AES-256-GCM::

    sealed := nonce (12 bytes) ciphertext tag (16 bytes)

There is no associated data, because go-tool-base has none. The sealed content binds a file to its name: a snapshot's
id, or the hash that names media. Nonces are random and passed in; with random nonces a key may seal 2^32 files (NIST SP
800-38D, section 8.3).
"""

from __future__ import annotations

import codecs
import hmac
import logging
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NoReturn, TypeVar

from transcript_store._os.names import MEDIA, SEALING
from transcript_store._sealing.keys import checked_key
from transcript_store._snapshots import media as _media
from transcript_store._snapshots.snapshot import (
    Snapshot,
    SnapshotSummary,
    as_corrupt,
    read,
    read_summary,
    validate_snapshot_id,
    with_messages,
)
from transcript_store.errors import (
    CorruptSnapshotError,
    DecryptionError,
    InvalidSnapshotIdError,
    StorageError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES
_LOOKED_AT_BYTES = 4096
BEGINNING_BYTES = _LOOKED_AT_BYTES + 1
"""So many bytes of a file show whether it is sealed."""


def generate_encryption_key() -> bytes:
    """A fresh key of 32 random bytes. Store it apart from the snapshots; without it they cannot be opened."""
    return secrets.token_bytes(KEY_BYTES)


class NotOpenedError(Exception):
    """No key opens these bytes. ``reason`` is a predicate without its subject, and reveals nothing of the content."""

    def __init__(self, reason: str, hint: Hint) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Key:
    """One key, which neither ``repr`` nor pickling shows. Raises ``InvalidKeyError`` for anything but 32 bytes."""

    __slots__ = ("_bytes", "_cipher")

    def __init__(self, key: bytes) -> None:
        self._bytes = checked_key(key)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow, and not needed without a key

        self._cipher = AESGCM(self._bytes)

    def seal(self, nonce: bytes, plain: bytes) -> bytes:
        return nonce + self._cipher.encrypt(nonce, plain, None)

    def open(self, sealed: bytes) -> bytes | None:
        """Unseal; None if it was sealed with another key, changed, or never sealed."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < OVERHEAD_BYTES:
            return None
        view = memoryview(sealed)
        try:
            return self._cipher.decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], None)
        except InvalidTag:
            return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and hmac.compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<Key>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an encryption key cannot be pickled or copied: pass it on yourself")


class StoreKeys:
    """The keys of a store: the first one seals, each of them opens. Without a key nothing is sealed.

    ``plain_too`` is for a plaintext store that is being sealed: files that are not sealed yet open too.
    """

    def __init__(self, *keys: Key, plain_too: bool = False) -> None:
        self._keys = keys
        self._plain_too = plain_too or not keys

    @property
    def can_seal(self) -> bool:
        return bool(self._keys)

    @property
    def takes_plain(self) -> bool:
        """True if plaintext files open too: without a key, and while a plaintext store is being sealed."""
        return self._plain_too

    def seal(self, nonce: bytes, plain: bytes) -> bytes:
        """The bytes sealed with the first key; unchanged without a key."""
        return self._keys[0].seal(nonce, plain) if self._keys else plain

    def open(self, data: bytes) -> bytes:
        """The content of the bytes; raises ``NotOpenedError``."""
        for key in self._keys:
            plain = key.open(data)
            if plain is not None:
                return plain
        is_plain = is_text(data)
        if self._plain_too and is_plain:
            return data
        if not self._keys:
            raise NotOpenedError("it is not text, so it is sealed", Hint.GIVE_THE_KEY)
        if not data:
            raise NotOpenedError("it is empty: it was cut, or never written", Hint.RESTORE)
        if is_plain:
            raise NotOpenedError(
                "it is not sealed, but this store has a key: another program put it there, or it was stored without a key",
                Hint.SEAL_IT,
            )
        raise NotOpenedError(
            "none of the keys opens it: it was sealed with another key, or it was changed or cut", Hint.GIVE_THE_KEY
        )

    def is_of_others(self, data: bytes) -> bool:
        """True if these bytes are sealed with none of these keys. Without a key the first bytes of a file are enough."""
        return not is_text(data) and not any(key.open(data) is not None for key in self._keys)

    def open_current(self, data: bytes) -> bytes | None:
        """The content of the bytes if :meth:`seal` would seal them with the same key; None otherwise."""
        return self._keys[0].open(data) if self._keys else data

    def rotated_to(self, key: Key, *, plain_too: bool) -> StoreKeys:
        """The keys during a rotation: the new one seals, all of them open."""
        others = [other for other in self._keys if other != key]
        return StoreKeys(key, *others, plain_too=plain_too or not self._keys or self._plain_too)

    def __repr__(self) -> str:
        return f"<{len(self._keys)} keys>"


def is_text(data: bytes) -> bool:
    """True if these bytes are not sealed: sealed bytes are random, and do not start like UTF-8, except for a few short
    ones.
    """
    try:
        codecs.utf_8_decode(data[:_LOOKED_AT_BYTES], "surrogatepass", len(data) <= _LOOKED_AT_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def store_keys(encryption_key: Any, retired_keys: Any) -> StoreKeys:
    """The keys that a caller passes to a store. Raises ``InvalidKeyError``, and ``ValueError`` for retired keys alone."""
    if isinstance(retired_keys, bytes | bytearray | str):
        raise TypeError(f"retired_keys is a sequence of keys, not {type(retired_keys).__name__}")
    retired = [Key(key) for key in retired_keys]
    if encryption_key is None:
        if retired:
            raise ValueError("retired_keys only open earlier snapshots; a store with them needs an encryption_key")
        return StoreKeys()
    return StoreKeys(Key(encryption_key), *retired)


T = TypeVar("T")
R = TypeVar("R")

MAX_FILE_BYTES = 2**30
"""The maximum size of a snapshot with its media, so that no file can fill the memory of the loading process."""

SAMPLE = 8
"""How many snapshots are checked to see whether a store is sealed, and whether a key opens it."""

_SUFFIX = ".json"

Failure = CorruptSnapshotError | DecryptionError

_MARK = b"nothing is here: "
MARK_BYTES = 16


def mark(random: bytes) -> bytes:
    """A placeholder, which a backend keeps under a name where nothing is stored but a value is needed: 16 random bytes
    make it unique.
    """
    return _MARK + random.hex().encode()


def is_mark(data: bytes) -> bool:
    """True if these bytes are a placeholder. No snapshot, no media and no sealed file starts so."""
    return has_size_of_mark(len(data)) and data.startswith(_MARK)


def has_size_of_mark(size: int) -> bool:
    """True if a value of this size may be a placeholder.

    Every snapshot that is written, by us or by Go, takes more than twice as many. So other bytes of this size are
    damaged, or written by hand.
    """
    return size == len(_MARK) + 2 * MARK_BYTES


class PlainSample:
    """A snapshot that was plaintext when a store without a key checked last, so that the next save need not check others.

    Sealing the store seals it too. As long as it exists in plaintext, and no sealing is under way, the store is not
    sealed.
    """

    name: str | None = None


def file_name(id: str) -> str:
    """The name of a snapshot's file. Raises ``InvalidSnapshotIdError`` unless this is an id."""
    validate_snapshot_id(id)
    name = f"{id}{_SUFFIX}"
    # No accepted id could do this. It is checked again because a mistake there would open any file of the machine.
    if "/" in name or "\0" in name or name.startswith("."):
        raise InvalidSnapshotIdError(reason="a snapshot's id must not lead out of its store", id=id[:32])
    return name


def is_too_large(size: int) -> bool:
    """True if this is more than a snapshot can have."""
    return size > MAX_FILE_BYTES


def require_size(path: str, size: int) -> None:
    """Raise ``CorruptSnapshotError`` for a file that is larger than a snapshot can be."""
    if is_too_large(size):
        reason = f"it has {size:,} bytes, more than a snapshot can have ({MAX_FILE_BYTES:,})"
        raise CorruptSnapshotError(path=path, kind="too-large", reason=reason)


def media_file(name: str) -> str:
    """The name of the file that holds this media."""
    return f"{MEDIA}/{name}"


class StoredFiles:
    """The files of a store. ``keys`` returns the store's keys, which a rotation may change at any time; ``witness`` is
    the store's.

    Subclasses implement the abstract members, which say where the files are. A name is ``<id>.json``, ``media/<hash>``
    or ``sealing``.
    """

    def __init__(self, keys: Callable[[], StoreKeys], witness: PlainSample, logger: logging.Logger) -> None:
        self.keys = keys
        self._witness = witness
        self.logger = logger

    # ---- for subclasses ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def path(self) -> str:
        """The store's name in errors."""

    def path_of(self, name: str) -> str:
        """A file's name in errors."""
        return f"{self.path}/{name}"

    @abstractmethod
    def names(self) -> Iterable[str]:
        """The names other than media, in any order. Some may be foreign."""

    def names_to_show(self) -> Iterable[str]:
        """The same without names that, judging from outside, hold no readable snapshot."""
        return self.names()

    @abstractmethod
    def media_names(self) -> list[str]:
        """The names of all media, without their folder, also of those that no snapshot refers to."""

    @abstractmethod
    def _raw(self, name: str, at_most_bytes: int | None = None) -> bytes:
        """The bytes of a file, or its first ones. Raises ``FileNotFoundError``, and ``CorruptSnapshotError`` for what
        is not a file.
        """

    @abstractmethod
    def _seal_again(self, name: str) -> None:
        """Seal a file with the current key, unless it is sealed with it, if it still exists at the end."""

    @abstractmethod
    def save(self, name: str, data: bytes, media: dict[str, bytes]) -> None:
        """Store media, then the snapshot that refers to it; on return all of it is durable."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a snapshot. Raises ``FileNotFoundError``."""

    @abstractmethod
    def collect(self, in_use: Callable[[], set[str] | None], older_than_seconds: float) -> list[str]:
        """Remove media that is not in use and as old as this; returns the names. ``None`` for the used ones: unknown,
        so nothing is removed.
        """

    @abstractmethod
    def note_sealing(self, key: Key) -> None:
        """Write the sealing note of a plaintext store, which is sealed itself: it cannot be forged without the key."""

    @abstractmethod
    def discard_note(self) -> None:
        """Remove that note, if it exists."""

    def refuse_to_save(self, name: str, media: Iterable[str]) -> None:
        """Raise ``DecryptionError`` if this may not be saved, where that is known beforehand. Elsewhere ``save`` raises
        it.
        """

    def sweep(self) -> None:
        """Remove the leftovers of killed processes, if there can be any."""

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """Call ``act`` for each. A remote backend runs several at the same time."""
        return map(act, items)

    # ---- ids -------------------------------------------------------------------------------------------

    def ids(self, names: Iterable[str] | None = None) -> Iterator[str]:
        """The ids of the snapshots, from the names of their files: of all, or of these."""
        for name in self.names() if names is None else names:
            if name.endswith(_SUFFIX):
                found = name.removesuffix(_SUFFIX)
                try:
                    validate_snapshot_id(found)
                except InvalidSnapshotIdError as error:
                    self.skipped(error.id, error)
                else:
                    yield found

    def skipped(self, name: str, error: Exception) -> None:
        """Log at DEBUG what a listing skips: of the error only its class, because its text may hold contents."""
        self.logger.debug("%s: skipped %r: %s", self.path, name, type(error).__name__)

    # ---- read ----------------------------------------------------------------------------------------------------

    def load(self, id: str) -> Snapshot:
        """A snapshot with its media in place. Raises ``FileNotFoundError``, and an error of ours for damage."""
        snapshot = self._without_media(id)
        texts: dict[str, bytes] = {}
        size = 0

        def get(name: str) -> bytes:
            nonlocal size
            if name not in texts:
                texts[name] = self.media_text(name)
            size += len(texts[name])
            if is_too_large(size):
                reason = "with its media it is larger than a snapshot can be"
                raise CorruptSnapshotError(path=self._path(id), kind="too-large", reason=reason)
            return texts[name]

        try:
            with as_corrupt(self._path(id)):
                messages = _media.move_in(snapshot.messages_json, get)
        except CorruptSnapshotError as error:
            # Readers take no lock, so media may be collected between the two reads.
            if error.kind == "missing" and self._without_media(id) != snapshot:
                return self.load(id)  # it was replaced, and its media collected, while it was read
            raise
        return with_messages(snapshot, messages) if texts else snapshot

    def summarize(self, id: str) -> SnapshotSummary:
        """The summary of a snapshot. Raises what :meth:`load` raises; no media is read."""
        data, size = self.opened(file_name(id))
        return read_summary(data, path=self._path(id), id=id, size_bytes=size)

    def references(self, id: str) -> set[str]:
        """The names of the media that a snapshot refers to. Raises what :meth:`summarize` raises."""
        with as_corrupt(self._path(id)):
            return _media.references(self._without_media(id).messages_json)

    def media_text(self, name: str) -> bytes:
        """The text of media, whose hash is its name. Raises ``CorruptSnapshotError`` and ``DecryptionError``."""
        try:
            text, _ = self.opened(media_file(name))
        except FileNotFoundError:
            reason = "a snapshot refers to this media, but it is missing"
            raise CorruptSnapshotError(path=self.path_of(media_file(name)), kind="missing", reason=reason) from None
        # The name is the hash, so exchanged media are detected without a signature.
        if _media.media_hash(text) != name:
            reason = "its content does not have the hash in its name: it was changed, or put there by another program"
            raise CorruptSnapshotError(path=self.path_of(media_file(name)), kind="wrong-media", reason=reason)
        return text

    def _without_media(self, id: str) -> Snapshot:
        data, _ = self.opened(file_name(id))
        return read(data, path=self._path(id), id=id)

    def _path(self, id: str) -> str:
        return self.path_of(file_name(id))

    def opened(self, name: str) -> tuple[bytes, int]:
        """The content of a file, opened with our keys, and the size of the file."""
        while True:
            keys = self.keys()
            raw = self._raw(name)
            if is_mark(raw):  # in a directory: from a copy of a backend
                raise FileNotFoundError
            try:
                return keys.open(raw), len(raw)
            except NotOpenedError as error:
                if keys is self.keys():  # otherwise another thread has started a rotation: these keys may open it
                    raise DecryptionError(path=self.path_of(name), reason=error.reason, hint=error.hint) from None

    def in_use(self) -> set[str] | None:
        """The names of the media that snapshots refer to; None, with a warning, if one of them cannot be opened."""
        found: set[str] = set()
        for id in self.ids():  # noqa: A001
            try:
                found |= self.references(id)
            except FileNotFoundError:
                continue
            except (CorruptSnapshotError, DecryptionError, UnsupportedVersionError) as error:
                what = "cannot be opened, so its media is unknown and none was removed"
                self.logger.warning("%s: snapshot %s %s (%s)", self.path, id, what, type(error).__name__)
                # Fail safe: with one unreadable snapshot, every medium may be in use.
                return None
        return found

    # ---- before a write -----------------------------------------------------------------------------

    def refuse_to_save_in_the_clear(self) -> None:
        """Raise ``DecryptionError`` if there is no key and the store is sealed: if ``sealing`` exists, or a snapshot is
        sealed.

        It reads the start of the witness. Without a witness it reads some of the first snapshots, and one of them
        becomes the witness. Unreadable files are ignored.
        """
        if self.keys().can_seal:
            return
        self._is_plain(SEALING)
        if (known := self._witness.name) is not None and self._is_plain(known):
            return
        looked_at = [*islice((name for name in map(file_name, self.ids()) if self._is_plain(name)), SAMPLE)]
        self._witness.name = next(iter(looked_at), None)

    def _is_plain(self, name: str) -> bool:
        """True if a file exists and is not sealed; False as well if it is unreadable. Raises ``DecryptionError`` if it
        is sealed.
        """
        try:
            raw = self._raw(name, BEGINNING_BYTES)
        except StorageError:
            raise  # no answer: then nothing is known of any file
        except (OSError, CorruptSnapshotError):
            return False
        if not is_text(raw):
            reason = "the store is sealed and no key was given (is the variable set?); saving now would put plaintext beside it"
            hint = Hint.GIVE_THE_KEY_OR_SAVE_ELSEWHERE
            raise DecryptionError(path=self.path_of(name), reason=reason, hint=hint)
        return not is_mark(raw)

    def not_ours(self, name: str) -> DecryptionError:
        """The error for a file that may not be replaced, because the keys do not open it."""
        is_media = name.startswith(MEDIA)
        what = "media that this snapshot shares with others" if is_media else "a snapshot with this id"
        reason = f"{what} exists but does not open {'with these keys' if self.keys().can_seal else 'without a key'}"
        hint = Hint.GIVE_THE_KEY_OR_SAVE_ELSEWHERE if is_media else Hint.GIVE_THE_KEY_OR_DELETE
        return DecryptionError(path=self.path_of(name), reason=reason, hint=hint)

    # ---- another key ---------------------------------------------------------------------------------------------

    def is_being_sealed_with(self, key: Key) -> bool:
        """True if a plaintext store was being sealed with this key. Then a file that is not sealed yet is accepted."""
        try:
            # Sealed with the key itself: a planted note could otherwise make a sealed store accept plaintext.
            return key.open(self._raw(SEALING)) == SEALING.encode()  # not just any sealed file that was copied there
        except (FileNotFoundError, CorruptSnapshotError):
            return False

    def reseal(self) -> tuple[int, list[Failure]]:
        """Seal everything with the current key; returns how many files are sealed with it, and the errors of the others."""
        sealed = 0
        failures: list[Failure] = []
        try:
            # Media first: a snapshot that is sealed must not refer to plaintext media.
            sealed += sum(self._reseal(media_file(name), failures) for name in self.media_names())
        except CorruptSnapshotError as error:
            failures.append(error)
        sealed += sum(self._reseal(file_name(one), failures) for one in self.ids())
        # The note stays while a file is plaintext, so that the next rotation continues.
        if not failures:
            self.discard_note()
        return sealed, failures

    def _reseal(self, name: str, failures: list[Failure]) -> bool:
        """Seal a file with the current key, unless it is sealed with it; returns whether it is now."""
        try:
            self._seal_again(name)
            return True
        except FileNotFoundError:
            return False  # it was deleted since
        except (CorruptSnapshotError, DecryptionError) as error:
            failures.append(error)
            return False
