"""How is a log of slots claimed, written and read, and how is a write without an answer resolved?

Invariants, which the tests name:

D1  Memory holds a verified prefix of the log. It grows by slots that were read, or for which ``put`` returned True.
D2  A write is noted as in doubt before it is sent, and the note is removed when its slot is known. So an interruption,
    an error and a lost answer are one case: the next call reads.
D3  Only the bytes in its slot prove that a write is stored. "The slot is taken" may mean our own write; a missing
    answer may mean success.
D4  A claim counts if no pack holds its slot: it may have been put under a freed name.
D5  A pack is built from memory (D1). A slot is removed only if a pack that was read back has it; never one that starts
    an epoch, and never one whose next slot is of another epoch. A writer that stalled before such a slot must find it
    taken.
D6  After a write in doubt only a claim is put: either the claim takes the slot first, and the write can never be
    stored; or the write is stored, and the claim follows it. So a writer that puts a message knows every slot before
    it.
D7  A failed pack is not an error of a write: its content is in the slots.

It uses no clock: the caller passes a :class:`Backend`, and the function that waits between two attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import pairwise
from os import PathLike
from typing import Any, NoReturn, TypeVar

from transcript_store._conversation.metadata import opens
from transcript_store._sealing.data_key import DataKey
from transcript_store.backends._backend import (
    Backend,
    BackendError,
    BackendUnreachableError,
    ConversationTakenOverError,
    OutcomeUnknownError,
    is_in_vain,
    packing,
    patiently,
)
from transcript_store.backends._keys import KeyCell
from transcript_store.backends._slots import (
    LogState,
    NotASlotError,
    Slot,
    all_taken_in,
    flattened,
    is_expunged,
    slot_hash,
    taken_in,
)
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint

WAITS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 14.0)
"""How long to wait between two attempts: half a minute together."""

PACK_EACH = 1000
"""How many slots are packed together, on a backend that packs."""
SHORT = 32
"""At a release, a pack may be so many times shorter. If every close packed, a conversation of short sessions would have
a pack for each.
"""

_KEPT_OUTCOMES = 1000

T = TypeVar("T")


class WriteOutcome(Enum):
    """The known state of a write after one attempt."""

    STORED = "the slot holds it"
    BEATEN = "the slot holds something else, which was applied"
    ABSENT = "the slot is empty: the write may still be stored later"
    SILENT = "no answer"


class _RefusedError(Exception):
    """The backend refused an attempt permanently."""

    def __init__(self, error: BackendError, *, nothing_was_put: bool) -> None:
        super().__init__()
        self.error = error
        self.nothing_was_put = nothing_was_put


class ClaimedLog:
    """The slots of one conversation that were read, and the right to write the next one, if it was claimed."""

    def __init__(
        self,
        backend: Backend,
        id: str,
        *,
        waits_seconds: Sequence[float] = WAITS_SECONDS,
        sleep: Callable[[float], None],
        pack_each: int = PACK_EACH,
    ) -> None:
        if isinstance(backend, str | PathLike):
            raise TypeError(
                f"expected a backend, not {type(backend).__name__}: backends.open_backend(address) opens one"
            )
        self.backend = backend
        self.id = id
        self.path = f"{backend.name}/{id}"
        self.state = LogState(conversation=id)
        self.fresh: list[Slot] = []
        """The slots applied since the list was last emptied; the code that empties it stores their content."""
        self.deleted_in: int | None = None
        """The slot in which it was deleted; None if none was seen."""
        self._waits: tuple[float, ...] = tuple(waits_seconds)
        self._sleep = sleep
        self._tokens: set[str] = set()
        """The holder of the claims made here."""
        self._confirmed = ""
        """The token of the last confirmed claim made here (D4)."""
        self._unsure: list[tuple[int, bytes]] = []
        """D2: slot and bytes of the write in doubt."""
        self._last_reason = ""
        """The reason for the last failed attempt to write, as far as known."""
        self._outcomes: dict[str, bool] = {}
        """For the resolved writes: the hash of the slot, and whether it is stored."""
        self._packed_to = 0
        """The last slot that a pack was seen to hold."""
        self._pack_each = pack_each
        self._packing = packing(backend)
        self._unpacked: list[Slot] = []
        """For a backend that packs: the verified slots after that."""

    # ---- read ------------------------------------------------------------------------------------------------------------

    @property
    def is_ours(self) -> bool:
        """True if the last known claim was made here."""
        return self.state.claim is not None and self.state.claim.token in self._tokens and not self.state.is_released

    @property
    def is_held(self) -> bool:
        """True if the next slot may be put: the last known claim was made here and is confirmed, and no write of ours
        is in doubt (D6).
        """
        claim = self.state.claim
        return claim is not None and claim.token == self._confirmed and not self._unsure

    def load(self) -> None:
        """Read every slot again and verify it."""
        state, taken = self._verified_twice(lambda: self._read(LogState(conversation=self.id), 0))
        if state.slot == 0:
            raise ConversationNotFoundError(path=self.path, reason="there is no conversation")
        self.begin()
        self._accept(state, taken)
        if state.is_deleted:
            self._refuse_deleted(state.slot)

    @property
    def key(self) -> KeyCell:
        """Its wrapped key, if it is sealed."""
        return KeyCell(self.backend, self.id, self._waits, self._sleep, self.path)

    def is_there(self) -> bool:
        """True if there is any slot."""
        return bool(self._patiently(lambda: self.backend.read(self.id), "look for the conversation"))

    def opens(self, data_key: bytes) -> bool | None:
        """True if a data key unseals the last sealed data; None if there is none, or nothing was read."""
        return opens(DataKey(data_key, self.id), self.state.sealed_members, None)

    def begin(self) -> None:
        """Forget what was read, for a new conversation or a new read."""
        self.state, self.fresh, self._unpacked = LogState(conversation=self.id), [], []

    def look(self) -> list[Slot]:
        """Apply the slots after the last known one; returns them.

        Raises ``CorruptTranscriptError`` of the kind ``truncated`` if the last known slot is missing: the backend lost
        acknowledged data.
        """
        before = self.state
        # From the last known slot, not after it: if that one is missing or has other bytes, the backend lost
        # acknowledged data.
        state, taken = self._verified_twice(lambda: self._read(before, max(before.slot - 1, 0)))
        self._accept(state, taken)
        if state.is_deleted:
            self._refuse_deleted(state.slot)
        return taken

    def _read(self, state: LogState, after: int) -> tuple[LogState, list[Slot]]:
        pieces = self.backend.read(self.id, after)
        # Never lowered: a listing that raced with a pack may show only the single slots.
        self._packed_to = max([self._packed_to, *(piece.last for piece in pieces if piece.is_pack)])
        slots = flattened(pieces, after)
        if is_expunged(state, slots):
            self._refuse_deleted(slots[-1][0])
        if state.slot:
            number, known = slots.pop(0) if slots else (0, b"")
            if number != state.slot:
                raise NotASlotError("truncated", f"slot {state.slot} was stored and is now missing")
            if slot_hash(known) != state.hash:
                raise NotASlotError("rewritten", f"slot {state.slot} does not have the bytes that were stored")
        return all_taken_in(state, slots)

    def _verified_twice(self, read: Callable[[], tuple[LogState, list[Slot]]]) -> tuple[LogState, list[Slot]]:
        """Damage counts when two reads in a row see it: beside a writer, a listing may mix two moments."""
        try:
            return read()
        except NotASlotError:
            try:
                return read()
            except NotASlotError as error:
                self._refuse(error)

    def _refuse(self, error: NotASlotError) -> NoReturn:
        if error.kind == "version":
            raise UnsupportedVersionError(path=self.path, reason=error.reason) from error
        raise CorruptTranscriptError(path=self.path, kind=error.kind, reason=error.reason, hint=Hint.RESTORE) from error

    def _refuse_deleted(self, slot: int) -> NoReturn:
        self.deleted_in = slot
        reason = "the conversation was deleted"
        raise ConversationNotFoundError(path=self.path, reason=reason, hint=Hint.FORK_WHAT_IS_LEFT)

    def _accept(self, state: LogState, taken: Sequence[Slot]) -> None:
        """Adopt verified slots. Nothing here can fail."""
        self.fresh += taken
        if self._packing is not None:
            self._unpacked += taken
        # A pack of another session may hold the first of them: the rest must stay without a hole.
        self._unpacked = [slot for slot in self._unpacked if slot.number > self._packed_to]
        self.state = state
        if not self._unsure:
            return
        known = {slot.data for slot in taken}
        for number, data in self._unsure:
            if number <= state.slot:
                self._outcomes[slot_hash(data).decode()] = data in known
        # A later slot is known, so its number was used, by us or by another writer: the write is not in doubt any more
        # (D2).
        self._unsure = [unsure for unsure in self._unsure if unsure[0] > state.slot]
        while len(self._outcomes) > _KEPT_OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]

    def outcome(self, slot_hash: str) -> bool | None:
        """True if a write in doubt was stored; None while it is unresolved."""
        return self._outcomes.get(slot_hash)

    # ---- write -----------------------------------------------------------------------------------------------------------

    def write(self, make: Callable[[LogState], bytes], doing: str) -> bytes:
        """Write the slot that ``make`` builds from the state; returns what was stored.

        The caller holds the claim (``is_held``). So if the slot gets other content, it is another writer's claim (D6,
        C2).

        Raises:
            ConversationTakenOverError: another writer claimed; nothing of this is stored.
            BackendError: the outcome is unknown.
        """
        self.require_claim()
        data = make(self.state)
        answer = self._put(data, doing)
        # Only a claim can follow our slots (C2), so the state read by _put() names the new holder.
        if answer is WriteOutcome.BEATEN:
            self.require_claim()
            raise AssertionError("D6: what follows our own slots is ours, or a claim")
        if answer is not WriteOutcome.STORED:
            raise self.unknown(data, doing)
        self._pack_if_due()
        return data

    def claim(self, make: Callable[[LogState, str], bytes], token: str, may: Callable[[LogState], None]) -> bool:
        """Put the claim that ``make`` builds with this token into the next free slot, and confirm it.

        ``may`` raises if the claim must not follow a state. False if the claim is void (D4): load, and claim again.
        """
        self._tokens.add(token)
        doing = "claim the conversation"
        while True:
            may(self.state)
            data = make(self.state, token)
            answer = self._put(data, doing)
            if answer is WriteOutcome.STORED:
                break
            if answer is not WriteOutcome.BEATEN:
                raise self.unknown(data, doing)
        # D4. On an object store a stalled claimer can put into a name that was packed and deleted since: put-if-absent
        # succeeds, but readers take the slot from the pack. A pack that covers our slot means that the claim was never
        # seen.
        # A void claim is harmless: no reader applies it. The caller loads, and claims the next slot.
        if not self.is_confirmed():
            return False
        self._confirmed = token
        return True

    def is_confirmed(self) -> bool:
        """D4: True if no pack holds the slot of the claim that was just put."""
        backend, slot = self._packing, self.state.slot
        if backend is None:
            return True
        return not self._patiently(lambda: backend.packs_from(self.id, slot), "confirm the claim")

    def require_claim(self) -> None:
        """Raise ``ConversationTakenOverError`` unless the last known claim was made here."""
        claim = self.state.claim
        if self.state.is_deleted:
            self._refuse_deleted(self.state.slot)
        # By the tokens made here, not by the holder's name: two writers may have one name.
        if claim is None or claim.token in self._tokens:
            return
        raise ConversationTakenOverError(
            path=self.path,
            reason=f"{_named(claim.holder)} claimed the conversation at {claim.at}; nothing of this call is stored",
            holder_pid=claim.holder.get("pid"),
            holder_host=claim.holder.get("host"),
            holder=claim.holder,
            epoch=claim.epoch,
            at=claim.at,
        )

    def _put(self, data: bytes, doing: str) -> WriteOutcome:
        """Put a slot; retry until its content is known or the attempts are used up.

        If the backend permanently refuses the first attempt that reached it, nothing is stored. A later refusal says
        nothing about earlier attempts. If no attempt reached it, nothing is stored.
        """
        slot, previous = self.state.slot + 1, self.state.hash
        # Registered before the first attempt: an interruption (Ctrl-C) after the request must leave a write in doubt,
        # not a forgotten one.
        self._unsure.append((slot, data))  # D2
        self._last_reason = ""
        answer, was_sent, waited = WriteOutcome.SILENT, False, 0.0
        for wait in (*self._waits, None):
            try:
                answer = self._attempt(slot, data, previous)
            except _RefusedError as refused:
                # A refusal counts only if no earlier attempt may have reached the server: that one could still be
                # stored.
                if not was_sent and refused.nothing_was_put:
                    self._unsure.remove((slot, data))
                    raise refused.error from None
                raise self.unknown(data, doing, refused.error.strerror or "") from None
            except BackendUnreachableError as error:
                # No connection was made by any attempt, so the outcome is known: nothing is stored, and the caller
                # may repeat the call.
                if not was_sent and (wait is None or is_in_vain(error, waited)):
                    self._unsure.remove((slot, data))
                    raise BackendError(path=self.path, doing=doing, reason=str(error), outcome="not stored") from None
                self._last_reason = str(error)
            else:
                was_sent = True
                if answer in (WriteOutcome.STORED, WriteOutcome.BEATEN):
                    break
            if wait is None:
                break
            waited += wait
            self._sleep(wait)
        return answer

    def _attempt(self, slot: int, data: bytes, previous: bytes) -> WriteOutcome:
        try:
            # The backend's conditional write is the commit. It succeeds once for each slot, whatever the network
            # repeats.
            if self.backend.put(self.id, slot, data, previous):
                state, taken = taken_in(self.state, data)
                self._accept(state, [taken])
                return WriteOutcome.STORED
        except BackendUnreachableError:
            raise  # this attempt put nothing; the next one resolves those before it
        except OutcomeUnknownError as error:
            self._last_reason = str(error)
        except BackendError as error:
            raise _RefusedError(error, nothing_was_put=True) from None
        # D3: neither "the slot is taken" nor a missing answer says what the slot contains.
        try:
            news = self.look()
        except OutcomeUnknownError as error:
            self._last_reason = str(error)
            return WriteOutcome.SILENT
        except BackendError as error:
            raise _RefusedError(error, nothing_was_put=False) from None
        if not news:
            return WriteOutcome.ABSENT
        # By its bytes, not by its number: a repeated request may have stored our slot before this answer (D3).
        return WriteOutcome.STORED if news[0].data == data else WriteOutcome.BEATEN

    def unknown(self, data: bytes, doing: str, reason: str = "") -> BackendError:
        """The error for a write in doubt; :meth:`outcome` returns its outcome later."""
        why = reason or self._last_reason or "no answer came in time"
        return BackendError(
            path=self.path, doing=doing, reason=why, outcome="unknown", slot_hash=slot_hash(data).decode()
        )

    @contextmanager
    def trying_once(self) -> Iterator[None]:
        """Within the block, each call is attempted once: for optional calls that are not worth half a minute."""
        waits, self._waits = self._waits, ()
        try:
            yield
        finally:
            self._waits = waits

    def load_patiently(self) -> None:
        """:meth:`load`, repeated until the backend answers."""
        self._patiently(self.load, "load the conversation")

    def look_patiently(self) -> list[Slot]:
        """:meth:`look`, repeated until the backend answers."""
        return self._patiently(self.look, "read the new slots")

    def expunge_patiently(self, keep: int) -> None:
        """Remove every slot below the one that deleted it, repeated until the backend answers."""
        self._patiently(lambda: self.backend.expunge(self.id, keep), "remove deleted records")

    def pack_patiently(self, *, tidy: bool) -> int:
        """:meth:`pack`, repeated until the backend answers: a repetition has the same result."""
        return self._patiently(lambda: self.pack(tidy=tidy), "pack the slots")

    def _patiently(self, call: Callable[[], T], doing: str) -> T:
        return patiently(call, self._waits, self._sleep, path=self.path, doing=doing)

    # ---- pack ------------------------------------------------------------------------------------------------------------

    def pack(self, *, tidy: bool) -> int:
        """Pack the slots that no pack holds yet; returns how many there were. With ``tidy``, remove those that D5 permits."""
        backend, slots = self._packing, self._unpacked
        if backend is None or len(slots) < 2:
            return 0
        first, last = slots[0].number, slots[-1].number
        backend.put_pack(self.id, first, last, b"".join(slot.data for slot in slots))
        # Read back before the slots go: from then on the pack is the only copy.
        if tidy and self._holds_pack(slots):
            backend.delete_slots(self.id, removable(slots))
        self._packed_to, self._unpacked = last, []
        return len(slots)

    def _pack_if_due(self) -> None:
        """Pack after every so many slots, and at a release if there are enough for a request (D7)."""
        each, count = self._pack_each, len(self._unpacked)
        if each and count and (count % each == 0 or (self.state.is_released and count >= each // SHORT)):
            # A pack only saves requests. Its slots are stored already, so nothing that was acknowledged depends on it.
            with suppress(OutcomeUnknownError, BackendError):
                self.pack(tidy=False)

    def _holds_pack(self, slots: Sequence[Slot]) -> bool:
        before = slots[0].number - 1
        found = dict(flattened([piece for piece in self.backend.read(self.id, before) if piece.is_pack], before))
        return all(found.get(slot.number) == slot.data for slot in slots)


def removable(slots: Sequence[Slot]) -> list[int]:
    """D5: which of the slots in a pack may be removed. The last one may not: the owner of the next one is unknown."""
    return [
        slot.number
        for slot, following in pairwise(slots)
        if slot.kind != "claim" and slot.number != 1 and following.epoch == slot.epoch
    ]


def _named(holder: dict[str, Any]) -> str:
    name = holder.get("name")
    where = f"process {holder.get('pid')} on {holder.get('host')}"
    return f"{name!r:.60} ({where:.80})" if name else f"{where:.80}"
