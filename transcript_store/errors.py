"""Every error this package raises on purpose.

::

    TranscriptStoreError
    ├── ConversationNotLoadedError      RuntimeError   call load() or initialize() first
    ├── ConversationNotFoundError       LookupError    there is nothing at this path
    ├── GenerationNotFoundError         LookupError    there is no such generation (available)
    ├── ConversationExistsError                        something is there; it was not touched
    ├── ConversationLockedError                        another writer holds it (holder_pid)
    ├── ReadOnlyError                                  this store was opened with read_only=True
    ├── CorruptTranscriptError          ValueError     where, what kind, why; it was not touched
    ├── CorruptMetadataError            ValueError     the same for metadata.json
    ├── UnsupportedVersionError         ValueError     written by a later version; it was not touched
    ├── InvalidMessageError             ValueError     which member, and why; nothing was written
    ├── InvalidMetadataError            ValueError     which field, and why; nothing was written
    ├── InvalidIdError                  ValueError     not a canonical lower-case UUID
    ├── InvalidSnapshotIdError          ValueError     not a canonical lower-case UUID
    ├── SnapshotNotFoundError           LookupError    there is no snapshot with this id
    ├── CorruptSnapshotError            ValueError     which file, what kind, why; it was not touched
    ├── DecryptionError                 ValueError     the key does not open it: another key, or damage
    ├── InvalidKeyError                 ValueError     a key has 32 bytes
    ├── ProviderMismatchError           ValueError     a snapshot, or a conversation, of another provider
    ├── StorageError                    OSError        the disk or the operating system refused
    ├── PoisonedError                                  a sync failed before; load() anew
    ├── InvalidBaseUrlError             ValueError     no credential may be sent there; the URL is not repeated
    ├── MissingExtraError               ImportError    the provider's SDK is not installed; what to install
    ├── MissingTokenError                              no token; which variable would hold one
    ├── MaxStepsError                                  the model went on calling tools; all is on record
    └── IncompleteResponseError                        a reply that ended early; what came is on record

Each carries its facts as attributes and survives pickling. Errors of the operating system are translated once, where
files are touched, with the original as ``__cause__``.
"""

from __future__ import annotations

import errno as _errno
from typing import Any


class TranscriptStoreError(Exception):
    """The root of the tree: catch this to catch everything the package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[TranscriptStoreError], args: tuple[Any, ...], state: dict[str, Any]) -> TranscriptStoreError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConversationNotLoadedError(TranscriptStoreError, RuntimeError):
    """The store is not loaded, was closed, or was loaded by another process (a fork). Call ``load()`` first."""


class ConversationNotFoundError(TranscriptStoreError, LookupError):
    """There is no conversation at ``path``. Call ``initialize()`` to create one."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class GenerationNotFoundError(TranscriptStoreError, LookupError):
    """The conversation at ``path`` has no generation of this ``number``; ``available`` are those that it has."""

    def __init__(self, *, path: str, number: int, available: tuple[int, ...]) -> None:
        shown = ", ".join(map(str, available[-20:]))
        only = f"there is only {shown}" if len(available) == 1 else f"there are {shown}"
        super().__init__(f"{path}: there is no generation {number}; {only}")
        self.path = path
        self.number = number
        self.available = available


class ConversationExistsError(TranscriptStoreError):
    """Something is already at ``path``: a conversation, a damaged one, or files that are not ours. Nothing was touched."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class ConversationLockedError(TranscriptStoreError):
    """Another writer holds the conversation at ``path``.

    ``holder_pid`` and ``holder_host`` are what the holder wrote into its lock file, None where that could not be read.
    Wait (``lock_timeout_seconds``), close the other writer, or open with ``read_only=True``.
    """

    def __init__(
        self, message: str, *, path: str, holder_pid: int | None = None, holder_host: str | None = None
    ) -> None:
        super().__init__(message)
        self.path = path
        self.holder_pid = holder_pid
        self.holder_host = holder_host


class ReadOnlyError(TranscriptStoreError):
    """The store was opened with ``read_only=True`` and this call would write."""


def _untouched(kind: str) -> str:
    ways_out = "" if kind == "foreign" else ": verify() says what is whole, repair() what can be kept"
    return f"nothing was touched{ways_out}"


class CorruptTranscriptError(TranscriptStoreError, ValueError):
    """The transcript at ``path`` is damaged, or is not a transcript. It was not touched.

    ``line_number`` (from 1, the header) and ``offset_bytes`` name the first line that is not whole; both are None where
    no line is at fault. ``kind`` is one of the kinds listed in docs/format.md, ``reason`` a sentence.
    """

    def __init__(
        self, *, path: str, kind: str, reason: str, line_number: int | None = None, offset_bytes: int | None = None
    ) -> None:
        where = path if line_number is None else f"{path}, line {line_number}, byte {offset_bytes}"
        super().__init__(f"{where}: {reason} [{kind}]; {_untouched(kind)}")
        self.path = path
        self.kind = kind
        self.reason = reason
        self.line_number = line_number
        self.offset_bytes = offset_bytes


class CorruptMetadataError(TranscriptStoreError, ValueError):
    """The metadata file at ``path`` is missing or damaged. Nothing was touched; the transcript beside it may be whole."""

    def __init__(self, *, path: str, kind: str, reason: str) -> None:
        super().__init__(f"{path}: {reason} [{kind}]; {_untouched(kind)}")
        self.path = path
        self.kind = kind
        self.reason = reason


class UnsupportedVersionError(TranscriptStoreError, ValueError):
    """The file at ``path`` was written by a later version of the format. It was not touched; upgrade to read it.

    ``path`` is empty where what was read is not a file.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class InvalidMessageError(TranscriptStoreError, ValueError):
    """A message or extra that JSON, or this store's limits, cannot carry. Nothing was written.

    ``member`` is the path of the offending value, such as ``message["content"][0]``; ``reason`` says what is wrong.
    """

    def __init__(self, *, member: str, reason: str) -> None:
        super().__init__(f"{member}: {reason} (nothing was stored)")
        self.member = member
        self.reason = reason


class InvalidMetadataError(TranscriptStoreError, ValueError):
    """A metadata field was given a value it cannot hold. Nothing was written."""

    def __init__(self, *, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class InvalidIdError(TranscriptStoreError, ValueError):
    """An identifier is not a canonical lower-case UUID."""


class InvalidSnapshotIdError(TranscriptStoreError, ValueError):
    """A snapshot's id is not a canonical lower-case UUID. ``id`` holds at most 32 characters of what was given."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class SnapshotNotFoundError(TranscriptStoreError, LookupError):
    """There is no snapshot with this ``id`` in the store. ``list()`` shows what there is."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class CorruptSnapshotError(TranscriptStoreError, ValueError):
    """A snapshot, or a media file that it refers to, is damaged, or is not one. It was not touched.

    ``path`` names the file, None where what was read is not a file. ``kind`` is ``damaged``, ``foreign`` (not a file of
    ours stands there), ``wrong-id``, ``missing`` (a media file), ``wrong-media`` (its content does not have its hash) or
    ``too-large``; ``reason`` is a sentence.
    """

    def __init__(self, *, path: str | None, kind: str, reason: str, consequence: str = "nothing was touched") -> None:
        super().__init__(f"{path or 'the snapshot'}: {reason} [{kind}]; {consequence}")
        self.path = path
        self.kind = kind
        self.reason = reason


class DecryptionError(TranscriptStoreError, ValueError):
    """The file at ``path`` cannot be opened with the keys that were given, or with none; it was not touched.

    AES-GCM cannot tell a wrong key from changed bytes. Give the key that it was sealed with (``encryption_key`` or
    ``retired_keys``), or restore the file from a backup. A rotation that raises it has sealed other files: the text says so.
    """

    def __init__(self, *, path: str | None, reason: str, consequence: str = "nothing was touched") -> None:
        super().__init__(f"{path or 'the bytes'}: {reason}; {consequence}")
        self.path = path
        self.reason = reason


class InvalidKeyError(TranscriptStoreError, ValueError):
    """An encryption key does not have 32 bytes, but ``length_bytes`` (None: it is no bytes). The key is not shown."""

    def __init__(self, message: str, *, length_bytes: int | None) -> None:
        super().__init__(message)
        self.length_bytes = length_bytes


class ProviderMismatchError(TranscriptStoreError, ValueError):
    """A snapshot, or a conversation, of one provider cannot be continued with another: their messages have other forms.

    Nothing was changed.
    """

    def __init__(self, *, recorded_provider: str, provider: str) -> None:
        super().__init__(
            f"messages of provider {recorded_provider!r:.60} cannot be continued with {provider!r:.60}; nothing was changed"
        )
        self.recorded_provider = recorded_provider
        self.provider = provider


class StorageError(TranscriptStoreError, OSError):
    """The operating system refused a call on ``filename``; ``errno`` and ``strerror`` say why, the message says what holds."""

    def __init__(self, errno: int, message: str, path: str) -> None:
        super().__init__(errno, message, path)

    def __str__(self) -> str:
        name = _errno.errorcode.get(self.errno or 0, str(self.errno))
        return f"{self.strerror} [{name}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errno, self.strerror, self.filename), self.__dict__ or None


class PoisonedError(TranscriptStoreError):
    """An earlier sync failed, so the store no longer knows what the disk holds and refuses to write. ``load()`` anew."""


class InvalidBaseUrlError(TranscriptStoreError, ValueError):
    """A base URL that no credential may be sent to; ``reason`` says why. The URL is nowhere in it: it may hold a token."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid base URL: {reason}")
        self.reason = reason


class MissingExtraError(TranscriptStoreError, ImportError):
    """What ``provider`` needs is not installed: its SDK, which ``pip install 'transcript-store[<extra>]'`` installs, or, for
    ``claude-local``, a ``program`` (then ``extra`` is None).
    """

    def __init__(self, *, provider: str, extra: str | None, program: str | None = None) -> None:
        way_out = (
            f"pip install 'transcript-store[{extra}]'"
            if program is None
            else f"install the program {program!r} on the PATH"
        )
        super().__init__(f"provider {provider!r} needs what is not installed: {way_out}")
        self.provider = provider
        self.extra = extra
        self.program = program


class MissingTokenError(TranscriptStoreError):
    """There is no token for ``provider``: give ``ChatConfig`` one, or set one of the environment ``variables``."""

    def __init__(self, *, provider: str, variables: tuple[str, ...]) -> None:
        super().__init__(
            f"provider {provider!r} needs a token: set {' or '.join(variables)}, or give ChatConfig a token"
        )
        self.provider = provider
        self.variables = variables


class MaxStepsError(TranscriptStoreError):
    """The model still called tools after ``steps`` requests in one turn. All of it is on record, and the next turn goes on from it."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"the model still called tools after {steps} requests (max_steps); all of it is on record")
        self.steps = steps


class IncompleteResponseError(TranscriptStoreError):
    """A reply ended before it was whole; ``reason`` says how, ``text`` is the text that came.

    What can be sent again of it is on record, the rest in the record's ``extra``; the next turn works. If a connection
    broke, the SDK's error is the ``__cause__``.
    """

    def __init__(self, *, reason: str, text: str) -> None:
        super().__init__(f"the reply is incomplete: {reason}; what came is on record")
        self.reason = reason
        self.text = text
