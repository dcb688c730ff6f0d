"""A conversation on a backend: the same calls as one in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transcript_store._conversation.arguments import require_bool
from transcript_store._conversation.metadata import checked_id
from transcript_store._conversation.storage import Storage, StorageOptions
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store.backends._backend import Backend, BackendError, UnsupportedByBackendError
from transcript_store.backends._claims import PACK_EACH, WAITS_SECONDS, ClaimedLog
from transcript_store.backends._storage import BackendReader, BackendWriter
from transcript_store.conversation import ConversationStore
from transcript_store.errors import ConversationNotLoadedError, ReadOnlyError
from transcript_store.hints import Hint

__all__ = ["BackendConversation"]


class BackendConversation(ConversationStore):
    """A ``ConversationStore`` on a backend: what ``ConversationLibrary(backend)`` opens and creates.

    All calls are those of ``ConversationStore``. What differs:

    * ``load()`` claims the conversation. Another host may take it over; then each call that writes raises
      ``ConversationTakenOverError``, nothing of it is stored, and the records read before stay readable.
    * A call that writes raises ``BackendError`` with the outcome ``"unknown"`` if there is no answer for half a minute.
      The next call that writes resolves it (it claims again), and :meth:`outcome` returns the outcome.
    * ``durability`` is that of the backend. ``verify="tail"`` fetches and verifies everything.
    * ``hold_lock=False``: each call reads what others wrote, and a call that writes claims the conversation if another
      process wrote last.
    * ``delete_generation()`` raises ``UnsupportedByBackendError``, and so does ``seal()`` without ``keep_plain=True``.

    Args:
        backend: its backend.
        id: of the conversation.
        waits_seconds: how long to wait between two attempts of an unanswered call.
        pack_each: on a backend that packs, how many slots are packed together: after a write, and at a close if there are
            a 32nd of them. 0 leaves it to :meth:`pack`.
        options: those of ``ConversationStore``. Of ``file_system`` only the clock, chance and waiting are used.
    """

    def __init__(
        self,
        backend: Backend,
        id: str,
        *,
        waits_seconds: Sequence[float] = WAITS_SECONDS,
        pack_each: int = PACK_EACH,
        **options: Any,
    ) -> None:
        self._own_id = checked_id(id)
        self._machine: FileSystem = options.get("file_system") or filesystem.REAL
        self._slots = ClaimedLog(
            backend, id, waits_seconds=waits_seconds, sleep=self._machine.wait, pack_each=pack_each
        )
        self._writer: BackendWriter | None = None
        """The storage that was opened last."""
        super().__init__(self._slots.path, **options)

    def seal(self, *, keep_plain: bool = False) -> None:
        """Begin a sealed generation with the same records, with ``keep_plain=True``. It is one slot, and the key is
        stored before it.

        The plaintext stays in its slots: they are chained, and none can be removed. So without ``keep_plain`` this is
        refused. ``fork()`` into a library with a key creates a conversation without plaintext; then ``delete()`` this
        one: that empties its slots.

        Raises:
            UnsupportedByBackendError: without ``keep_plain``. Nothing was changed.
            TranscriptStoreError: as :meth:`ConversationStore.seal`.
        """
        require_bool("keep_plain", keep_plain)
        if not keep_plain:
            raise UnsupportedByBackendError(path=self.directory, doing="remove the plaintext", hint=Hint.SEAL_A_COPY)
        super().seal(keep_plain=True)

    @property
    def epoch(self) -> int:
        """The number of the last known claim: a fencing token for the side effects of tools. It only grows.

        It also grows when this store claims again, after a write in doubt. Reading it sends no request.

        Raises:
            ConversationNotLoadedError: nothing was loaded or created yet.
        """
        if self._slots.state.claim is None:
            raise ConversationNotLoadedError(path=self.directory, reason="it is not loaded yet")
        return self._slots.state.epoch

    @property
    def size_bytes(self) -> int:
        """How long the live transcript is, as far as its slots were read; 0 if nothing was loaded or created yet."""
        return self._slots.state.end.offset_bytes

    def outcome(self, error: BackendError) -> bool | None:
        """True if the write that raised this error is stored; None while that is unknown. The next call that writes
        resolves it.
        """
        return None if error.slot_hash is None else self._slots.outcome(error.slot_hash)

    def pack(self, *, tidy: bool = False) -> int:
        """On a backend that packs, join the slots that no pack holds; returns how many. ``tidy`` removes those that are
        then redundant.

        Raises:
            ReadOnlyError: the store was opened with ``read_only=True``.
            TranscriptStoreError: as :meth:`append_message`.
        """
        with self.frozen():
            if self._writer is None:
                raise ReadOnlyError(path=self.directory)
            return self._writer.pack(tidy=tidy)

    # ---- for the base class --------------------------------------------------------------

    @staticmethod
    def _named(directory: Any) -> str:
        return str(directory)

    def _new_storage(self, options: StorageOptions, *, read_only: bool) -> Storage:
        if read_only:
            return BackendReader(self._slots, self._machine, options)
        self._writer = BackendWriter(self._slots, self._machine, options)
        return self._writer

    def _occupant(self) -> str | None:
        return "there is a conversation, or was one" if self._slots.is_there() else None
