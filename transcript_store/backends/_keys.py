"""The wrapped key of a conversation on a place: a cell beside its slots, which holds what key.json holds in a folder.

Slots are written once, and a wrapped key is not: a rotation replaces it, a shred destroys it. So it is no slot. Invariants, which the
tests name:

Y1  The cell is there before the first slot that is sealed. A create or a seal that finds one, of another that was cut off or is under way,
    seals with that very data key: whichever of them puts its slot, the key beside it is the right one.
Y2  What stands in the cell is replaced by whoever has read it, as one step of the engine. So a put that comes late changes nothing, and a
    rotation never puts back what a shred took away. Neither needs a claim.
Y3  What is told to be rotated, or shredded, was answered by the place, or read there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from transcript_store._conversation.key_changes import NOT_SEALED, Rotation
from transcript_store._conversation.metadata import Sealing
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY
from transcript_store._sealing.providers import Keyring, Opens
from transcript_store._sealing.wrapped_key import (
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
    """The key file of one conversation on a place."""

    def __init__(
        self, place: Backend, id: str, waits_seconds: Sequence[float], sleep: Callable[[float], None], path: str
    ) -> None:
        self.id = id
        self.path = f"{path}/{KEY}"
        self._place = place
        self._waits, self._sleep = waits_seconds, sleep

    def read(self) -> bytes | None:
        """What stands there; None if nothing does."""
        ask = partial(self._place.key, self.id)
        return patiently(ask, self._waits, self._sleep, path=self.path, doing="read the key")

    def replace(self, data: bytes, known: bytes | None, doing: str) -> bool:
        """Put ``data`` in the place of ``known``; False if something else stands there.

        Raises ``BackendError`` if nobody answers: then either of them may stand there, unless no attempt reached the place.
        """
        was_sent, waited, said = False, 0.0, ""
        for wait in (*self._waits, None):
            try:
                if self._place.put_key(self.id, data, known):
                    return True
                was_sent = True
            except BackendUnreachableError as error:
                if not was_sent and (wait is None or is_in_vain(error, waited)):
                    raise BackendError(path=self.path, doing=doing, reason=str(error), outcome="not stored") from None
                said = str(error)
            except OutcomeUnknownError as error:
                was_sent, said = True, str(error)
            except BackendError as error:
                if not was_sent:
                    raise
                reason = error.strerror or ""  # it says nothing of the attempts before
                raise BackendError(path=self.path, doing=doing, reason=reason, outcome="unknown") from None
            try:
                found = self._place.key(self.id)
            except (OutcomeUnknownError, BackendError):
                pass
            else:
                if found == data:
                    return True
                if found != known:
                    return False
            if wait is not None:
                waited += wait
                self._sleep(wait)
        raise BackendError(path=self.path, doing=doing, reason=said or "no answer came in time", outcome="unknown")

    def begin(self, keys: Keyring, files: FileSystem, opens: Opens, ahead: Sealing | None = None) -> Sealing:
        """Y1: a data key that stands in the cell: what was there, or else ``ahead`` or a fresh one, which this call put there."""
        if (found := self.read()) is None:
            new = ahead or Sealing.new(keys, self.id, files, self.path)
            if self.replace(new.key_file, None, "put the key beside the conversation"):
                return new
            found = self.read() or b""
        return ahead if ahead is not None and ahead.key_file == found else self._unwrapped(keys, found, files, opens)

    def ahead(self, keys: Keyring, files: FileSystem, opens: Opens) -> Sealing:
        """What :meth:`begin` needs of a key provider, before anything is claimed: it may take its time. Nothing is put."""
        found = self.read()
        return (
            Sealing.new(keys, self.id, files, self.path)
            if found is None
            else self._unwrapped(keys, found, files, opens)
        )

    def _unwrapped(self, keys: Keyring, found: bytes, files: FileSystem, opens: Opens) -> Sealing:
        return Sealing.unwrapped(keys, decode_key_file(found, self.path, self.id), files, self.path, opens)

    def is_its_own(self) -> bool:
        """Whether a whole key file of this conversation stands there; the key in it may be destroyed already."""
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
                pass  # whatever stands there may hold the key
            if self.replace(encode_shredded(self.id, at), found, "destroy the key"):
                return at


_LEFT_ALONE = (ConversationShreddedError, CorruptKeyFileError, UnsupportedVersionError, WrongKeyError)


def rotate(cells: Iterable[tuple[KeyCell, Opens]], keys: Keyring) -> Rotation:
    """Wrap the data key in each of these cells with the key of today; raises for what concerns more than one of them.

    Beside each cell stands what says whether a data key opens the conversation.
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
    """Whether it was wrapped anew here; None if there is nothing to wrap."""
    while (data := cell.read()) is not None:
        found = decode_key_file(data, cell.path, cell.id)
        if keys.is_current(found.key_id, cell.path):
            return False
        data_key = keys.unwrap_to_seal(found.key_id, found.wrapped, cell.path, opens)
        new = encode_key_file(WrappedKey(cell.id, *keys.wrap(data_key, cell.path)))
        if cell.replace(new, data, "wrap the key anew"):
            return True
    return None
