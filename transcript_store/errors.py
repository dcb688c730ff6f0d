"""Every error this package raises on purpose.

::

    TranscriptStoreError
    ├── ConversationNotLoadedError                     call load() or initialize() first
    ├── ConversationNotFoundError                      this path has no conversation
    ├── GenerationNotFoundError                        there is no such generation (available)
    ├── ConversationExistsError                        the path is taken; nothing was changed
    ├── ConversationLockedError                        another writer holds it (holder_pid)
    ├── ConversationChangedError                       the transcript is not the one that was read (head, expected_head)
    ├── FeatureNotEnabledError                         the live generation cannot do this (feature); the next one can
    ├── ReadOnlyError                                  this store was opened with read_only=True
    ├── CorruptTranscriptError                         where, what kind, why; it was not changed
    ├── CorruptMetadataError                           the same for metadata.json
    ├── UnsupportedVersionError                        written by a later version; it was not changed
    ├── InvalidMessageError                            which member, and why; nothing was written
    ├── InvalidMetadataError                           which field, and why; nothing was written
    ├── RedactionError                                 redact= raised, or returned no message; nothing was written
    ├── InvalidIdError                                 not a canonical lower-case UUID
    ├── NotAPathError                                  an address was given instead of a path; it is not repeated
    ├── InvalidSnapshotIdError                         not a canonical lower-case UUID
    ├── SnapshotNotFoundError                          there is no snapshot with this id
    ├── CorruptSnapshotError                           which file, what kind, why; it was not changed
    ├── DecryptionError                                the key does not open it: another key, or damage
    ├── InvalidKeyError                                a key has 32 bytes
    ├── KeyNeededError                                 the conversation is sealed, and no key was given
    ├── WrongKeyError                                  none of the keys that were given opens it (key_id)
    ├── KeyProviderError                               a KeyProvider raised, or returned no key (key_id); nothing was
        written
    ├── CorruptKeyFileError                            key.json is missing, damaged, or another conversation's
    ├── ConversationShreddedError                      its key was destroyed; it can never be read again
    ├── NotSealedError                                 a key was given for a plaintext conversation; it was not read
    ├── DataKeyExhaustedError                          the data key has sealed as much as it may; a fork has another
    ├── ProviderMismatchError                          a snapshot, or a conversation, of another provider
    ├── StorageError                    OSError        the disk or the operating system refused
    ├── PoisonedError                                  a sync failed before; call load() again
    ├── InvalidBaseUrlError                            no credential may be sent there; the URL is not repeated
    ├── MissingExtraError               ImportError    an SDK or another package is not installed; what to install
    ├── MissingTokenError                              no token; which variable would hold one
    ├── MaxStepsError                                  the model continued to call tools; everything is stored
    └── IncompleteResponseError                        a reply ended early; the received part is stored

Errors take their facts as keyword arguments. These are attributes, and so are the two parts of the text: the
``problem`` (what happened and what still holds) and the ``hint``, a value. An error survives pickling. Errors of the
operating system are translated once, where files are touched; the original is the ``__cause__``.

Two are also builtin errors, because code that knows nothing of this package catches them: an ``OSError`` around file
work, and an ``ImportError`` around an optional import. None is a ``ValueError`` or a ``LookupError``: these are for
arguments of the wrong form, which a program mends, and ``except ValueError`` must not hide a damaged file.
"""

from __future__ import annotations

import errno as _errno
from typing import Any, dataclass_transform

from transcript_store.display import line_location
from transcript_store.hints import Hint, hint_of_damage


@dataclass_transform(kw_only_default=True)  # for type checkers: the annotations of a class are its arguments
class TranscriptStoreError(Exception):
    """The root of the tree: catch this to catch everything the package raises on purpose.

    ``problem`` says what happened and what still holds. ``hint`` says what to do; it is None if ``problem`` says that
    already, or if there is nothing to do. ``str()`` has both.
    """

    hint: Hint | None = None
    _says = "{error.path}: {error.reason}"
    """The sentence ``problem``, with the facts to fill in."""

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)
        self.hint = self._hint()
        self.problem: str = self._problem()
        if not self.args:
            super().__init__(str(self))

    def __str__(self) -> str:
        return self.problem if self.hint is None else f"{self.problem}; {self.hint.value.format(error=self)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, vars(self).copy())

    def _problem(self) -> str:
        return self._says.format(error=self)

    def _hint(self) -> Hint | None:
        return self.hint


def _rebuild(cls: type[TranscriptStoreError], args: tuple[Any, ...], facts: dict[str, Any]) -> TranscriptStoreError:
    error = cls.__new__(cls)
    super(TranscriptStoreError, error).__init__(*args)  # the builtin's part: OSError keeps its facts elsewhere
    vars(error).update(facts)
    return error


class ConversationNotLoadedError(TranscriptStoreError):
    """The store is not loaded, was closed, or was loaded by another process (a fork). Call ``load()`` first."""

    path: str
    reason: str
    hint: Hint | None = Hint.LOAD


class ConversationNotFoundError(TranscriptStoreError):
    """There is no conversation at ``path``. Check the path; ``initialize()`` starts a new conversation there.

    ``kind`` is ``foreign`` if the path holds something else: other files, or a library. Then pass another path.
    """

    path: str
    reason: str
    kind: str | None = None
    hint: Hint | None = Hint.CHECK_THE_PATH


class GenerationNotFoundError(TranscriptStoreError):
    """The conversation at ``path`` has no generation of this ``number``; ``available`` are the existing ones."""

    path: str
    number: int
    available: tuple[int, ...]

    def _problem(self) -> str:
        shown = ", ".join(map(str, self.available[-20:]))
        only = f"there is only {shown}" if len(self.available) == 1 else f"there are {shown}"
        return f"{self.path}: there is no generation {self.number}; {only}"


class ConversationExistsError(TranscriptStoreError):
    """``path`` is taken: by a conversation, a damaged one, or other files. Nothing was changed."""

    path: str
    reason: str

    _says = "{error.path}: {error.reason}; nothing was changed"


class ConversationLockedError(TranscriptStoreError):
    """Another writer holds the lock, or the lock file was removed.

    ``holder_pid`` and ``holder_host`` are what the holder wrote into its lock file; None if that could not be read. If
    this process itself holds it, ``holder_opened_at`` is the file and line that opened that store, if known. Wait
    (``lock_timeout_seconds``), close the other writer, open both with ``hold_lock=False``, or open with
    ``read_only=True``.
    """

    path: str
    reason: str
    holder_pid: int | None = None
    holder_host: str | None = None
    holder_opened_at: str | None = None
    hint: Hint | None = Hint.WAIT


class ConversationChangedError(TranscriptStoreError):
    """The conversation at ``path`` changed since it was read: an append with ``if_head``, or ``iter_records()``, no
    longer fits.

    ``expected_head`` is the caller's, ``head`` the current one. Nothing was written. Read the new records, and decide
    again.
    """

    path: str
    reason: str
    expected_head: str
    head: str
    hint: Hint | None = Hint.READ_WHAT_CAME

    _says = "{error.path}: {error.reason}"


class FeatureNotEnabledError(TranscriptStoreError):
    """The live generation of the conversation at ``path`` began without this ``feature``. Nothing was written.

    Versions that do not know a feature refuse the files that have it; so a conversation gets it only on request:
    when it is created, or with its next generation (``features=["retract"]``).
    """

    path: str
    feature: str
    hint: Hint | None = Hint.ENABLE_IT

    _says = "{error.path}: its live generation started without the feature {error.feature!r}"


class ReadOnlyError(TranscriptStoreError):
    """The store at ``path`` was opened to read, and this call would write."""

    path: str
    hint: Hint | None = Hint.OPEN_TO_WRITE

    _says = "{error.path}: it is open for reading only"


class CorruptTranscriptError(TranscriptStoreError):
    """The transcript at ``path`` is damaged, or is not a transcript. It was not changed.

    ``line_number`` (from 1, the header) and ``offset_bytes`` name the first line that is not whole; both are None where
    no line is at fault. ``kind`` is one of the kinds listed in docs/format.md, ``reason`` a sentence.
    """

    path: str
    kind: str
    reason: str
    line_number: int | None = None
    offset_bytes: int | None = None
    hint: Hint | None = None

    def _problem(self) -> str:
        where = line_location(self.line_number, self.offset_bytes)
        return f"{self.path}{where}: {self.reason} [{self.kind}]; nothing was changed"

    def _hint(self) -> Hint:
        return self.hint or hint_of_damage(self.kind, self.path, self.line_number)


class CorruptMetadataError(TranscriptStoreError):
    """The metadata file at ``path`` is missing or damaged. Nothing was changed. The transcript beside it may be whole."""

    path: str
    kind: str
    reason: str

    _says = "{error.path}: {error.reason} [{error.kind}]; nothing was changed"

    def _hint(self) -> Hint:
        return hint_of_damage(self.kind, self.path)


class UnsupportedVersionError(TranscriptStoreError):
    """The file at ``path`` was written by a later version of the format. It was not changed; upgrade to read it.

    ``path`` is empty if it was not read from a file.
    """

    path: str
    reason: str
    hint: Hint | None = Hint.UPGRADE

    def _problem(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class InvalidMessageError(TranscriptStoreError):
    """A message or extra that is not JSON, or exceeds the store's limits. Nothing was written.

    ``member`` is the path of the offending value, such as ``message["content"][0]``; ``reason`` says what is wrong.
    """

    member: str
    reason: str

    _says = "{error.member}: {error.reason} (nothing was stored)"


class InvalidMetadataError(TranscriptStoreError):
    """A metadata field was given a value it cannot hold. Nothing was written."""

    field: str
    reason: str

    _says = "{error.field}: {error.reason}"


class RedactionError(TranscriptStoreError):
    """The store's ``redact`` function raised, or returned something other than a message. Nothing was written.

    ``member`` is its argument: ``message``, ``extras[3]``, ``metadata``. ``reason`` has the type of its error and the
    line that raised it. Neither contains the text, or the function's own error, which may contain it.
    """

    member: str
    reason: str
    hint: Hint | None = Hint.FIX_REDACT

    _says = "{error.member}: {error.reason} (nothing was stored)"


class InvalidIdError(TranscriptStoreError):
    """An identifier is not a canonical lower-case UUID."""

    reason: str
    _says = "{error.reason}"


class NotAPathError(TranscriptStoreError):
    """An address (``postgresql://…``), or one that lost a slash, was given instead of a path.

    It is not repeated, as it may hold a password.
    """

    reason: str = "an address was given instead of a path"
    hint: Hint | None = Hint.OPEN_BACKEND
    _says = "{error.reason}"


class InvalidSnapshotIdError(TranscriptStoreError):
    """A snapshot's id is not a canonical lower-case UUID. ``id`` holds at most 32 characters of the given text."""

    id: str
    reason: str
    hint: Hint | None = Hint.LIST_SNAPSHOTS
    _says = "{error.reason}"


class SnapshotNotFoundError(TranscriptStoreError):
    """There is no snapshot with this ``id`` in the store at ``path`` (None: it is not in a directory)."""

    id: str
    path: str | None = None
    hint: Hint | None = Hint.LIST_SNAPSHOTS

    def _problem(self) -> str:
        return f"{self.path or 'the store'}: there is no snapshot {self.id}"


class CorruptSnapshotError(TranscriptStoreError):
    """A snapshot, or a media file that it refers to, is damaged, or is not one. It was not changed.

    ``path`` names the file; it is None if a snapshot was not read from a file. ``kind`` is ``damaged``, ``foreign``
    (the path holds something else), ``wrong-id``, ``missing`` (a media file), ``wrong-media`` (its content does not
    have its hash) or ``too-large``. ``reason`` and ``consequence`` are sentences: what is wrong, and what still holds.
    """

    path: str | None
    kind: str
    reason: str
    consequence: str = "nothing was changed"
    hint: Hint | None = None

    def _problem(self) -> str:
        return f"{self.path or 'the snapshot'}: {self.reason} [{self.kind}]; {self.consequence}"

    def _hint(self) -> Hint:
        return self.hint or (Hint.MOVE_AWAY if self.kind == "foreign" else Hint.RESTORE)


class DecryptionError(TranscriptStoreError):
    """The file at ``path`` cannot be opened with the keys that were given, or with none; it was not changed.

    AES-GCM cannot distinguish a wrong key from changed bytes. Pass the key that it was sealed with (``encryption_key``
    or ``retired_keys``), or restore the file from a backup. If a rotation raises it, other files are sealed already:
    ``consequence`` says so.
    """

    path: str | None
    reason: str
    consequence: str = "nothing was changed"
    hint: Hint | None = Hint.GIVE_THE_KEY

    def _problem(self) -> str:
        return f"{self.path or 'the bytes'}: {self.reason}; {self.consequence}"


class InvalidKeyError(TranscriptStoreError):
    """An encryption key has ``length_bytes``, and not 32 (None: it is not ``bytes``). The key is not shown."""

    reason: str
    length_bytes: int | None
    hint: Hint | None = Hint.MAKE_A_KEY
    _says = "{error.reason}"


class KeyNeededError(TranscriptStoreError):
    """The conversation at ``path`` is sealed, and this call needs its key. Its plaintext parts are readable without it.

    Open it with ``encryption_key``. Nothing was written.
    """

    path: str
    reason: str = "it is sealed, and no key was given"
    hint: Hint | None = Hint.GIVE_THE_KEY


class WrongKeyError(TranscriptStoreError):
    """None of the keys that were given opens the key file at ``path``, which names the key ``key_id``. Nothing was written."""

    path: str
    key_id: str
    reason: str
    hint: Hint | None = Hint.GIVE_THE_KEY


class KeyProviderError(TranscriptStoreError):
    """A ``KeyProvider`` raised, or returned something other than the key. Nothing was written: existing key files are
    unchanged.

    If it raised, its own error is the ``__cause__``. A provider that does not unwrap what it wrapped, or unwraps
    another data key than the conversation's, is refused before anything is stored with it:
    ``testing.check_key_provider`` finds its faults.

    ``key_id`` is the provider's id; empty if unknown.
    """

    path: str
    key_id: str
    reason: str
    hint: Hint | None = Hint.LOOK_AT_THE_PROVIDER

    _says = "{error.path}: the key provider failed: {error.reason}"


class CorruptKeyFileError(TranscriptStoreError):
    """The file at ``path`` that holds a conversation's wrapped key is missing or damaged, or is not its own. Nothing
    was changed.

    ``kind`` is ``missing``, ``damaged``, ``foreign`` or ``wrong-conversation``.
    """

    path: str
    kind: str
    reason: str
    hint: Hint | None = Hint.RESTORE_THE_KEY_FILE

    _says = "{error.path}: {error.reason} [{error.kind}]; nothing was changed"


class ConversationShreddedError(TranscriptStoreError):
    """The key of the conversation was destroyed (``ConversationLibrary.shred``). It can never be read again."""

    path: str
    shredded_at: str

    _says = "{error.path}: its key was destroyed at {error.shredded_at}; it can never be read again"


class NotSealedError(TranscriptStoreError):
    """A key was given, but ``path`` is not sealed: it was never sealed, or was put there without the key. It was not read."""

    path: str
    reason: str
    hint: Hint | None = Hint.SEAL_THE_CONVERSATION


class DataKeyExhaustedError(TranscriptStoreError):
    """The data key of the conversation at ``path`` has sealed ``count`` texts, the maximum. Nothing was written."""

    path: str
    count: int
    hint: Hint | None = Hint.FORK_IT

    _says = "{error.path}: its data key has sealed {error.count:,} texts, and may seal no more"


class ProviderMismatchError(TranscriptStoreError):
    """The messages of a snapshot or a conversation have one provider's form, and cannot be continued with another's.

    Nothing was changed.
    """

    recorded_provider: str
    provider: str

    def _problem(self) -> str:
        recorded = f"of provider {self.recorded_provider!r:.60}" if self.recorded_provider else "without a provider"
        return f"messages {recorded} cannot be continued with {self.provider!r:.60}; nothing was changed"


class StorageError(TranscriptStoreError, OSError):
    """The operating system refused what the store was ``doing`` at ``path``.

    ``errno`` and ``strerror`` say why. ``consequence`` is a sentence that says what still holds, or empty.
    """

    path: str
    doing: str
    consequence: str

    def __init__(
        self, *, errno: int, strerror: str, path: str, doing: str, consequence: str = "", hint: Hint | None = None
    ) -> None:
        OSError.__init__(self, errno, strerror, path)
        super().__init__(path=path, doing=doing, consequence=consequence, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), (self.errno, self.strerror, self.filename), vars(self).copy())

    def _problem(self) -> str:
        name = _errno.errorcode.get(self.errno or 0, str(self.errno))
        holds = f". {self.consequence}" if self.consequence else ""
        return f"{self.path}: cannot {self.doing}: {self.strerror} [{name}]{holds}"


class PoisonedError(TranscriptStoreError):
    """An earlier sync failed. The store no longer knows what the disk holds, and refuses to write. Call ``load()`` again."""

    path: str
    reason: str
    hint: Hint | None = Hint.LOAD_TO_SEE

    _says = "{error.path}: a sync failed before ({error.reason}), so nothing more is written"


class InvalidBaseUrlError(TranscriptStoreError):
    """No credential may be sent to this base URL; ``reason`` says why. The URL is not repeated, because it may hold a token."""

    reason: str
    hint: Hint | None = None

    _says = "invalid base URL: {error.reason}"


class MissingExtraError(TranscriptStoreError, ImportError):
    """A package or program that ``provider``, or a ``feature``, needs is not installed.

    It is what the ``extra`` installs; ``install`` is the command for this installation. For ``claude-local`` it is a
    ``program``, and ``extra`` is None.
    """

    provider: str | None = None
    extra: str | None
    program: str | None = None
    feature: str | None = None
    """What needs it, if not a provider, in words: ``a page``."""

    @property
    def install(self) -> str | None:
        """The line for a shell that installs the extra, into this Python and from where this package came; None for a program."""
        if self.extra is None:
            return None
        from transcript_store.installation import install_command  # it takes 15 ms to import, and few need it

        return install_command(self.extra)

    def _problem(self) -> str:
        missing = f"the program {self.program!r}" if self.program is not None else f"the extra {self.extra!r}"
        return f"{self.feature or f'provider {self.provider!r}'} needs {missing}, which is not installed"

    def _hint(self) -> Hint:
        return Hint.INSTALL_EXTRA if self.program is None else Hint.INSTALL_PROGRAM


class MissingTokenError(TranscriptStoreError):
    """There is no token for ``provider``: pass one to ``ChatConfig``, or set one of the environment ``variables``."""

    provider: str
    variables: tuple[str, ...]
    hint: Hint | None = Hint.SET_THE_TOKEN

    def _problem(self) -> str:
        return f"provider {self.provider!r} needs a token; set {' or '.join(self.variables)}"


class MaxStepsError(TranscriptStoreError):
    """The model still called tools after ``steps`` requests in one turn. Everything is stored; the next turn continues it."""

    steps: int

    _says = "the model still called tools after {error.steps} requests (max_steps); everything is stored"


class IncompleteResponseError(TranscriptStoreError):
    """The reply ended early: ``reason`` says why, ``text`` is the part that arrived.

    The part that can be sent again is stored as a message, the rest in the record's ``extra``. The next turn works. If
    a connection broke, the SDK's error is the ``__cause__``.
    """

    reason: str
    text: str

    _says = "the reply is incomplete: {error.reason}; the received part is stored"
