"""Reads and writes a conversation on a backend as in a folder: the backend decides, and a mirror holds what was fetched.

A storage of the core reads and writes a folder, here one in the mirror. Invariants, which the tests name:

G1  The mirror is never ahead of the backend: each commit of the writer puts its slot first, and only when that is
    stored does the mirror get the same bytes. A slot that was not put, because another writer claimed or no answer
    came, is not in the mirror either.
G2  What the backend has and the mirror lacks is known (``fresh``), or the mirror is known to be unusable (``is_filled``
    is False). The next call applies it, or fetches everything again.
G3  A write starts only when the claim is held. After a write in doubt the conversation is claimed again (D6), so the
    outcome is known before anything is written after it.

So the core's states apply unchanged. A write without an answer leaves CHANGING: the next call reads before it writes. A
fenced writer stays READY: it reads what it had, and ``require_claim`` refuses to write. Marks belong to the mirror
only, and create no slot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from transcript_store._conversation.arguments import require_bool
from transcript_store._conversation.key_changes import Shredding, plain_files
from transcript_store._conversation.metadata import Sealing, checked_id, document_body
from transcript_store._conversation.storage import Reader, RefreshResult, State, Storage, StorageOptions
from transcript_store._conversation.writer import MARK_EVERY, Writer
from transcript_store._json.times import format_time, parse_time
from transcript_store._log.header import Image, read_header
from transcript_store._log.log import AppendResult, Prepared
from transcript_store._log.record import Copied, Entry, Mark, Position
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY
from transcript_store._sealing.keys import Keyring
from transcript_store.backends._backend import (
    Backend,
    BackendError,
    ConversationTakenOverError,
    UnsupportedByBackendError,
)
from transcript_store.backends._claims import PACK_EACH, WAITS_SECONDS, ClaimedLog
from transcript_store.backends._mirror import Mirror, fill
from transcript_store.backends._slots import LogState, encoded
from transcript_store.backends._summary import keep_summary
from transcript_store.conversation import ConversationStore
from transcript_store.display import safe
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    NotSealedError,
    ReadOnlyError,
    StorageError,
    TranscriptStoreError,
)
from transcript_store.hints import Hint

__all__ = ["BackendConversation"]

_DATA = frozenset({"generation", "append", "metadata"})
"""The kinds of slots that change what a reader sees."""


class MirroredLog(Storage):
    """The base of a reader and a writer: the slots, and the mirror to which they are applied."""

    def __init__(self, slots: ClaimedLog, machine: FileSystem, options: StorageOptions, **more: Any) -> None:
        self.slots = slots
        self.mirror = Mirror(machine)
        self.is_filled = True
        """G2: True if the mirror has everything except ``fresh``."""
        super().__init__(self.mirror, slots.path, options, **more)

    def fetch(self) -> None:
        """Read and verify every slot again; nothing is applied to the mirror yet."""
        self.is_filled = False
        self.slots.load_patiently()
        self._unlock()

    def _unlock(self) -> None:
        """With keys: write the key file into the mirror, and unwrap it: no writer claims a conversation without its key."""
        keys = self.options.keys
        if keys is None:
            return
        if not self.slots.state.is_sealed:
            if self.options.accept_plain:
                self.sealing_ahead = self.slots.key.ahead(keys, self.files, self.slots.opens)
                return
            raise NotSealedError(path=self.path, reason="a key was given, but the conversation is not sealed")
        data = self.slots.key.read()
        with Folder.make(self.mirror, self.path) as folder:
            if data is None:
                folder.discard(KEY)
                # Not with the mirror's path, which no user can inspect.
                reason = (
                    "the backend does not have the key; ship() with with_key=True, or `ship --with-key`, puts it there"
                )
                raise CorruptKeyFileError(path=self.slots.key.path, kind="missing", reason=reason)
            folder.replace_file(KEY, [data])
            self.sealing = Sealing.of(keys, folder, self.slots.id, self.sealing)

    def look(self) -> bool:
        """Read the backend's new slots; True if the mirror has other bytes than before."""
        if self.is_filled:
            self.slots.look_patiently()
        else:
            self.fetch()
        return self.fill()

    def fill(self) -> bool:
        """Apply the new slots to the mirror; True if that changed what a reader sees."""
        slots = self.slots.fresh
        has_news = any(slot.kind in _DATA for slot in slots)
        if has_news:
            self.is_filled = False
            fill(self.mirror, self.path, slots)
        self.slots.fresh, self.is_filled = [], True
        return has_news

    def let_go(self) -> None:
        super().let_go()
        self.mirror.clear()


class BackendReader(MirroredLog, Reader):
    """A conversation as one reader sees it. It claims nothing."""

    def load(self) -> None:
        self.fetch()
        self.fill()
        super().load()

    def refresh(self) -> RefreshResult:
        self.look()
        return super().refresh()


logger = logging.getLogger("transcript_store.backends")

IDLE_SECONDS = 60
"""A writer that wrote nothing for so long may be taken over without `take_over=True`. A courtesy only: no guarantee
needs it.
"""
_POLL_SECONDS = 0.5
"""How long a writer that waits for another one sleeps between two looks."""


class BackendWriter(MirroredLog, Writer):
    """A conversation as one writer sees it, which holds the claim from the load on; a shared writer claims in each call
    after another one wrote.
    """

    def __init__(self, slots: ClaimedLog, machine: FileSystem, options: StorageOptions) -> None:
        super().__init__(slots, machine, options)
        self._sealing_of_next: Sealing | None = None
        """The key that seals the new generation."""
        self._required_head: str | None = None
        """The head that the current call requires (``if_head``)."""
        self._summary_due = 0
        """The record with this number renews the summary."""

    @property
    def is_in_doubt(self) -> bool:
        return self.state is not State.READY

    # ---- begin -----------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        self._open()
        self._summarize()

    def _open(self) -> None:
        self.fetch()
        if self.options.hold_lock:
            self._claim_in_time()
        self.fill()
        super().load()

    def create(
        self,
        members_at: Callable[[str], dict[str, Any]],
        entries: Iterable[Entry | Copied],
        features: Sequence[str] = (),
        count: int | None = None,
    ) -> None:
        self.slots.begin()
        super().create(members_at, entries, features, count)
        self._summarize()

    def _new_sealing(self, keys: Keyring, conversation: str) -> Sealing:  # noqa: ARG002 (the backend knows which)
        return self.slots.key.begin(keys, self.files, self.slots.opens)

    def meet_key(self, keys: Keyring) -> None:
        """No-op: the fetch did it, before the claim."""

    def sealing_to_begin_with(self, keys: Keyring, conversation: str) -> Sealing:  # noqa: ARG002
        return self.slots.key.begin(keys, self.files, self.slots.opens, self.sealing_ahead)

    def seal(self, keys: Keyring, *, keep_plain: bool) -> None:
        super().seal(keys, keep_plain=keep_plain)
        # The earlier list summary has the plaintext title.
        self._summarize()  # title and labels are no longer plaintext

    def delete(self, agreed: Callable[[], bool] = lambda: True) -> bool:
        """Delete the conversation, if no writer is active, and if ``agreed()`` is true once it is claimed; returns that.

        Otherwise, and if that raises, the conversation is released and stays.

        From the slot ``deleted`` on it is deleted. Then the content of its other slots is removed.
        """
        try:
            self._open()
            is_agreed = False
            try:
                is_agreed = agreed()
            finally:
                if not is_agreed:
                    self._release()
            if not is_agreed:
                return False
            # This slot is the commit of the delete. The contents are removed after it, and a killed delete is
            # continued by the next one.
            self.slots.write(lambda state: encoded(state, "deleted", self._at(state)), "delete the conversation")
            self.slots.deleted_in = self.slots.state.slot
        finally:
            if self.slots.deleted_in is not None:  # also slots that an earlier delete could not remove
                self._expunge(self.slots.deleted_in)
        return True

    def shred(self) -> Shredding:
        """Destroy the data key, if no writer is active; on return it is destroyed.

        The conversation is claimed first, so that its writer gets an error. A damaged one is shredded without a claim,
        and so is one of which only the key exists.
        """
        readable: tuple[str, ...] = (self.path,)  # unknown for a damaged one
        key = self.slots.key
        try:
            self._open()
            readable = tuple(plain_files(self.folder))
        except ConversationNotFoundError:
            if not key.is_its_own():
                raise
            readable = ()
        except (CorruptTranscriptError, CorruptMetadataError) as error:
            logger.warning("%s: its key is destroyed, and it was not claimed: %s", self.path, error)
        if not self.slots.state.is_sealed and key.read() is None:
            reason = "it was never sealed, so it has no key to destroy"
            raise NotSealedError(path=self.path, reason=reason, hint=None)
        # The key is replaced by compare-and-swap, after the claim: a writer that held it gets an error with its next
        # write.
        at = key.shred(format_time(self.files.now_us()))
        self.close()
        return Shredding(id=self.slots.id, shredded_at=at, still_readable=readable)

    def _expunge(self, keep: int) -> None:
        try:
            self.slots.expunge_patiently(keep)
        except BackendError as error:
            raise StorageError(
                errno=error.errno or 0,
                strerror=error.strerror or "",
                path=self.path,
                doing="remove deleted slots",
                consequence="The conversation is deleted; delete() again removes its slots",
            ) from error

    # ---- the claim -------------------------------------------------------------------------------------------------------

    def _claim(self, may: Callable[[LogState], None]) -> None:
        """Claim the conversation; ``may`` raises if it must not be claimed. Then G2 holds, and there may be new slots."""

        def make(state: LogState, token: str) -> bytes:
            return encoded(state, "claim", self._at(state), token=token, holder=self._holder)

        try:
            while not self.slots.claim(make, self._token(), may):
                self.fetch()
        except BackendError as error:
            # The claim may be in doubt. The call's own write is not: it was never sent.
            reason = error.strerror or "no answer"
            raise BackendError(path=self.path, doing="claim it", reason=reason, outcome="not stored") from error

    def _claim_in_time(self) -> None:
        """Claim it as soon as no active writer would be displaced; wait at most as long as the caller said."""
        waited = 0.0
        while True:
            try:
                # may() runs for each attempt: between two attempts another writer may have claimed.
                self._claim(self._is_polite)
                return
            except ConversationLockedError:
                if waited >= self.options.lock_timeout_seconds:
                    raise
            self.files.wait(_POLL_SECONDS)
            waited += _POLL_SECONDS
            self.slots.look_patiently()

    def _is_polite(self, state: LogState) -> None:
        """Raise if an active writer would be displaced."""
        if not (self.options.take_over or self.slots.is_ours):
            require_no_active_writer(state, self.files.now_us(), self.path)

    @property
    def _holder(self) -> dict[str, Any]:
        turns = {} if self.options.hold_lock else {"turns": True}
        files = self.files
        return {"name": self.options.holder, "host": files.host_name(), "pid": files.process_id(), **turns}

    def _token(self) -> str:
        return self.files.random_bytes(16).hex()

    def _at(self, state: LogState) -> str:
        return max(format_time(self.files.now_us()), state.at)

    # ---- before a call ---------------------------------------------------------------------------------------------------

    def begin_read(self) -> None:
        self.begin_call()
        self.resolve()

    def begin_call(self) -> None:
        """Read what other shared writers have stored."""
        if not self.options.hold_lock and self.look():
            self.state = State.CHANGING
            super()._ensure_writable()

    def begin_write(self) -> None:
        """G3: a call starts from the backend's current state, including late writes."""
        self.begin_call()
        self.was_looked_at, self._required_head = False, None
        if self.state is not State.READY or not self.slots.is_held:
            self._ensure_writable()

    def _ensure_writable(self) -> None:
        if self.state is State.CHANGING:
            self.look()
        if not self.slots.is_held:
            # With hold_lock we had the claim: claim again only to resolve a write in doubt (D6), and refuse if another
            # writer came. A shared writer expects others, so it waits for them and claims after them.
            if self.options.hold_lock:
                self._claim(lambda _: self.slots.require_claim())
            else:
                self._claim_in_time()
            # Slots that came before our claim are applied first, so that the call starts from the current state (G3).
            if self.fill():
                self.state = State.CHANGING
        super()._ensure_writable()

    def resolve(self) -> None:
        """Before a read: resolve a write in doubt, if the backend answers now. The records read before stay readable."""
        if self.state is State.READY and self.log.is_current:
            return
        # A read must not wait half a minute for a backend that is down: the verified records are still true.
        with suppress(BackendError, ConversationLockedError), self.slots.trying_once():
            self.slots.require_claim()
            self.look()
            super()._ensure_writable()

    def holds(self, generation: int, position: Position) -> bool:
        self._ensure_writable()  # an append without an answer is in doubt: its outcome must not be guessed
        return super().holds(generation, position)

    # ---- commits ---------------------------------------------------------------------------------------------------------

    def require_head(self, head: str) -> None:
        super().require_head(head)
        self._required_head = head

    def append(self, entries: Sequence[Entry]) -> list[AppendResult]:
        """A shared writer may lose to a faster one: then it claims and prepares again, after what that one wrote."""
        while True:
            try:
                return super().append(entries)
            except ConversationTakenOverError:
                if self.options.hold_lock:
                    raise
            self.was_looked_at = False  # so that it is claimed again
            self.begin_call()
            # The other writer's records came between: the caller's condition has to hold for what is there now.
            if self._required_head is not None:
                self.require_head(self._required_head)

    def store(self, prepared: Prepared) -> None:
        def make(state: LogState) -> bytes:
            return encoded(state, "append", self._at(state), lines=prepared.data, end=prepared.end)

        with self._put("append", make):
            super().store(prepared)
        if prepared.end.seq >= self._summary_due:
            self._summarize()

    def _before_commit(self, image: Image, handle: int) -> None:
        # Called directly before the mirror's rename: the slot is the commit, and the mirror follows (G1).
        lines = bytes(self.files.read(handle, 0, image.end.offset_bytes))

        header, _ = read_header(lines)  # type: ignore[misc]  # it was written here
        sealing, mark = self._sealing_of_next, Mark(header.generation, image.end)

        def make(state: LogState, **more: Any) -> bytes:
            checked = _checked(sealing, header.metadata, mark)
            return encoded(state, "generation", self._at(state), lines=lines, end=image.end, **checked, **more)

        # The first slot is create and claim in one, so no conversation ever exists without a claim.
        if self.slots.state.slot == 0:
            self._claim_new(lambda state, token: make(state, token=token, holder=self._holder))
        else:
            self._store_slot("replace the transcript", make)

    def _put_in_place(self, image: Image, members: dict[str, Any], sealing: Sealing | None) -> None:
        self._sealing_of_next = sealing
        with self._in_step("replace the transcript"):
            super()._put_in_place(image, members, sealing)

    def _claim_new(self, make: Callable[[LogState, str], bytes]) -> None:
        def may(state: LogState) -> None:
            if state.slot:
                raise ConversationExistsError(path=self.path, reason="there is a conversation, or was one")

        if not self.slots.claim(make, self._token(), may):
            raise ConversationExistsError(path=self.path, reason="there was a conversation")
        self.is_filled = False

    def _remember(self, members: dict[str, Any], document: bytes | None = None) -> None:
        sealing = self.sealing
        stored = members if sealing is None else sealing.stored(members)

        def make(state: LogState) -> bytes:
            checked = _checked(sealing, stored, Mark(state.generation, state.end))
            return encoded(state, "metadata", self._at(state), metadata=stored, **checked)

        with self._put("write the metadata", make):
            super()._remember(members, document)
        self._summarize()

    def pack(self, *, tidy: bool) -> int:
        """Join the slots that no pack holds, on a backend that packs; returns how many."""
        self._ensure_writable()
        return self.slots.pack_patiently(tidy=tidy)

    @contextmanager
    def _put(self, doing: str, make: Callable[[LogState], bytes]) -> Iterator[None]:
        """G1: store a slot, then change the mirror in the block."""
        self._store_slot(doing, make)
        with self._in_step(doing):
            yield

    def _store_slot(self, doing: str, make: Callable[[LogState], bytes]) -> None:
        try:
            self.slots.write(make, doing)
        except ConversationTakenOverError:
            raise  # nothing of it is stored, and everything is unchanged
        except BaseException:
            # In doubt: the slot may be stored.
            self.state = State.CHANGING  # the next call reads first
            raise
        self.is_filled = False

    @contextmanager
    def _in_step(self, doing: str) -> Iterator[None]:
        """G2: the mirror has the first ``fresh`` slot if the block ends without an error."""
        try:
            yield
        except BaseException as error:
            if not self.is_filled:
                self.state = State.CHANGING
                if isinstance(error, OSError):
                    # The backend has it, but the local disk refused. So the next call fetches everything.
                    raise self.slots.unknown(self.slots.fresh[0].data, doing, str(error.strerror)) from error
            raise
        # Only at the end of the block: until then the slot counts as not applied (G2).
        del self.slots.fresh[0]
        self.is_filled = True

    def _summarize(self) -> None:
        """Store the list summary: best effort."""
        self._summary_due = self.log.end.seq + MARK_EVERY
        keep_summary(self.slots, self.files, self.path, self.updated_at)

    # ---- unsupported calls ------------------------------------------------------------------------------------------

    def delete_generation(self, number: int) -> None:
        if number == self.log.header.generation:
            super().delete_generation(number)  # raises the right error
        raise UnsupportedByBackendError(path=self.path, doing="delete an earlier generation", hint=Hint.FORK_AND_DELETE)

    # ---- end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the claim, if it is ours, and close everything. Acknowledged writes are stored already."""
        try:
            if self.state in (State.READY, State.CHANGING) and self.slots.is_ours:
                self._release()
        finally:
            self.let_go()

    def _made_release(self, state: LogState) -> bytes:
        checked = _checked(self.sealing, state.members, Mark(state.generation, state.end))
        return encoded(state, "release", self._at(state), **checked)

    def _release(self) -> None:
        try:
            with self.slots.trying_once():
                self._ensure_writable()
                self.slots.write(self._made_release, "release the conversation")
            self._summarize()
        except (ConversationTakenOverError, ConversationNotFoundError):
            # A release is a courtesy: without it the next writer waits for the idle time.
            pass  # another writer has it, or no one
        except TranscriptStoreError as error:
            logger.warning("%s: closed without releasing the claim: %s", self.path, error)


def _checked(sealing: Sealing | None, stored: dict[str, Any], mark: Mark) -> dict[str, Any]:
    """The keyed check of metadata.json from the slots, as a member of an envelope; none without the key."""
    return {} if sealing is None else {"check": sealing.key.check(document_body(stored, mark)).decode()}


def holder_shown(holder: dict[str, Any]) -> str:
    """A writer on a backend, for a message: its name, its process and its host."""
    name, pid, host = (holder.get(part) for part in ("name", "pid", "host"))
    by = f"process {pid}" if type(pid) is int else "a process"
    by += f" on {str(host)[:80]}" if host else ""
    return safe(f"{str(name)[:80]!r}, {by}," if name else by)


def require_no_active_writer(state: LogState, now_us: int, path: str) -> None:
    """Raise ``ConversationLockedError`` if a conversation was neither released nor idle, and its writer is not a shared
    writer.
    """
    claim = state.claim
    # A shared writer claims for each call, and expects to be displaced.
    if claim is None or state.is_released or claim.holder.get("turns"):
        return
    if now_us - parse_time(state.at) < IDLE_SECONDS * 1_000_000:
        raise ConversationLockedError(
            path=path,
            reason=f"{holder_shown(claim.holder)} has been writing to it since {claim.at}, last at {state.at}",
            holder_pid=claim.holder.get("pid"),
            holder_host=claim.holder.get("host"),
            hint=Hint.TAKE_OVER,
        )


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
