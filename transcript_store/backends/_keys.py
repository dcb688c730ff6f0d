"""How is the wrapped key of a conversation kept on a backend? In a versioned value beside its slots, with the bytes of
key.json.

Slots are written once, and a wrapped key is not: a rotation replaces it, a shred destroys it. So it is not a slot.
Invariants, which the tests name:

Y1  The value is stored before the first sealed slot. A create or a seal that finds one, left by an interrupted or a
    concurrent call, seals with that same data key: whichever of them puts its slot, the key beside it is the right one.
Y2  Only a process that has read the value replaces it, in one atomic step of the backend. So a late put changes
    nothing, and a rotation never restores a shredded key. Neither needs a claim.
Y3  A key is reported as rotated or shredded only after the backend answered so, or the result was read there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from transcript_store._conversation.key_changes import NOT_SEALED, Rotation
from transcript_store._conversation.metadata import Sealing
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY
from transcript_store._sealing.keys import (
    Keyring,
    Opens,
    WrappedKey,
    conversation_of,
    decode_key_file,
    encode_key_file,
    encode_shredded,
)
from transcript_store.backends._backend import (
    Backend,
    BackendError,
    BackendUnreachableError,
    OutcomeUnknownError,
    is_in_vain,
    patiently,
)
from transcript_store.errors import (
    ConversationShreddedError,
    CorruptKeyFileError,
    UnsupportedVersionError,
    WrongKeyError,
)


class KeyCell:
    """The key file of one conversation on a backend."""

    def __init__(
        self, backend: Backend, id: str, waits_seconds: Sequence[float], sleep: Callable[[float], None], path: str
    ) -> None:
        self.id = id
        self.path = f"{path}/{KEY}"
        self._backend = backend
        self._waits, self._sleep = waits_seconds, sleep

    def read(self) -> bytes | None:
        """The stored value; None if there is none."""
        ask = partial(self._backend.key, self.id)
        return patiently(ask, self._waits, self._sleep, path=self.path, doing="read the key")

    def replace(self, data: bytes, known: bytes | None, doing: str) -> bool:
        """Replace ``known`` by ``data``; False if something else is stored.

        Raises ``BackendError`` without an answer: then either of them may be stored, unless no attempt reached the
        backend.
        """
        was_sent, waited, last_reason = False, 0.0, ""
        for wait in (*self._waits, None):
            try:
                if self._backend.put_key(self.id, data, known):
                    return True
                was_sent = True
            except BackendUnreachableError as error:
                if not was_sent and (wait is None or is_in_vain(error, waited)):
                    raise BackendError(path=self.path, doing=doing, reason=str(error), outcome="not stored") from None
                last_reason = str(error)
            except OutcomeUnknownError as error:
                was_sent, last_reason = True, str(error)
            except BackendError as error:
                if not was_sent:
                    raise
                reason = error.strerror or ""  # it says nothing about earlier attempts
                raise BackendError(path=self.path, doing=doing, reason=reason, outcome="unknown") from None
            try:
                found = self._backend.key(self.id)
            except (OutcomeUnknownError, BackendError):
                pass
            else:
                # Our own bytes: the answer of an earlier attempt was lost, and nothing has to be repeated.
                if found == data:
                    return True
                # Another process replaced it first. Its value counts, and ours was never stored.
                if found != known:
                    return False
            if wait is not None:
                waited += wait
                self._sleep(wait)
        raise BackendError(
            path=self.path, doing=doing, reason=last_reason or "no answer came in time", outcome="unknown"
        )

    def begin(self, keys: Keyring, files: FileSystem, opens: Opens, ahead: Sealing | None = None) -> Sealing:
        """Y1: the stored data key: the existing one, or else ``ahead`` or a fresh one, which this call stored."""
        if (found := self.read()) is None:
            new = ahead or Sealing.new(keys, self.id, files, self.path)
            # Y1: before slot 1, so that a sealed slot never exists without its key.
            if self.replace(new.key_file, None, "put the key beside the conversation"):
                return new
            # Another create was faster. Its data key is used, and ours was never used to seal anything.
            found = self.read() or b""
        return ahead if ahead is not None and ahead.key_file == found else self._unwrapped(keys, found, files, opens)

    def ahead(self, keys: Keyring, files: FileSystem, opens: Opens) -> Sealing:
        """The data that :meth:`begin` needs from a key provider, fetched before the claim, because a provider may be
        slow. Nothing is put.
        """
        found = self.read()
        return (
            Sealing.new(keys, self.id, files, self.path)
            if found is None
            else self._unwrapped(keys, found, files, opens)
        )

    def _unwrapped(self, keys: Keyring, found: bytes, files: FileSystem, opens: Opens) -> Sealing:
        return Sealing.unwrapped(keys, decode_key_file(found, self.path, self.id), files, self.path, opens)

    def is_its_own(self) -> bool:
        """True if a whole key file of this conversation is stored; its key may be destroyed already."""
        try:
            return conversation_of(self.read() or b"", self.path) == self.id
        except CorruptKeyFileError:
            return False

    def shred(self, at: str) -> str:
        """Destroy the key; returns when that was done."""
        while True:
            found = self.read()
            try:
                decode_key_file(found or b"", self.path, self.id)
            except ConversationShreddedError as error:
                return error.shredded_at
            except (CorruptKeyFileError, UnsupportedVersionError):
                pass  # any value there may hold the key
            # Only the value that was judged is replaced; a rotation in between repeats the loop.
            if self.replace(encode_shredded(self.id, at), found, "destroy the key"):
                return at


_LEFT_ALONE = (ConversationShreddedError, CorruptKeyFileError, UnsupportedVersionError, WrongKeyError)


def rotate(cells: Iterable[tuple[KeyCell, Opens]], keys: Keyring) -> Rotation:
    """Wrap each of these data keys with the current key; raises for what concerns more than one of them.

    Each comes with a function that says whether a data key opens the conversation.
    """
    rotated: list[str] = []
    already: list[str] = []
    skipped: list[tuple[str, str]] = []
    for cell, opens in cells:
        try:
            is_new = _rotate(cell, opens, keys)
        except _LEFT_ALONE as error:
            skipped.append((cell.id, getattr(error, "reason", None) or str(error)))
        else:
            if is_new is None:
                skipped.append((cell.id, NOT_SEALED))
            else:
                (rotated if is_new else already).append(cell.id)
    return Rotation(rotated=tuple(rotated), already_current=tuple(already), skipped=tuple(skipped))


def _rotate(cell: KeyCell, opens: Opens, keys: Keyring) -> bool | None:
    """True if it was wrapped again here; None if there is nothing to wrap."""
    while (data := cell.read()) is not None:
        found = decode_key_file(data, cell.path, cell.id)
        if keys.is_current(found.key_id, cell.path):
            return False
        data_key = keys.unwrap_to_seal(found.key_id, found.wrapped, cell.path, opens)
        new = encode_key_file(WrappedKey(cell.id, *keys.wrap(data_key, cell.path)))
        # A shred in between wins: then the loop reads the destroyed key, and raises.
        if cell.replace(new, data, "wrap the key again"):
            return True
    return None
