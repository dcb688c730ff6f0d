"""What goes wrong on a place. Each is an error of the core as well, so that who catches those catches these."""

from __future__ import annotations

import errno as _errno
from typing import Any, Literal

from transcript_store.errors import ConversationLockedError, StorageError, TranscriptStoreError
from transcript_store.ways_out import WayOut
from transcript_store.words import safe

__all__ = [
    "ConversationTakenOverError",
    "DivergedError",
    "NotOnAPlaceError",
    "NotReachedError",
    "PlaceError",
    "UnavailableError",
    "UnsuitablePlaceError",
]


_READS = ("list", "read", "look", "load", "fetch")
"""How the name of a call that writes nothing begins."""


class UnavailableError(Exception):
    """A place raises it when it does not know whether a call was done: no answer, a lost answer, a server that is not there.

    The text says what happened, without an address, a user or a key. A conversation catches it and finds out; its callers never see it.
    """


class NotReachedError(UnavailableError):
    """A place raises it when a call did not reach the engine, since no connection could be made. So nothing of it was done.

    ``has_answered`` says whether the engine has answered this process before: then it is worth half a minute.
    """

    def __init__(self, text: str, *, has_answered: bool = False) -> None:
        self.has_answered = has_answered
        super().__init__(text)


class ConversationTakenOverError(ConversationLockedError):
    """Another writer claimed the conversation at ``path``. Nothing of this call is stored. What was read can still be read.

    ``holder`` is what the other one said of itself (``name``, ``host``, ``pid``), ``epoch`` the number of its claim, ``at`` the time
    of it, as text. ``load()`` claims the conversation back, if the store was opened with ``take_over=True``, or if the other one has closed
    it; ask whoever holds it first.
    """

    holder: dict[str, Any]
    epoch: int
    at: str
    way_out: WayOut | None = WayOut.LOAD_ANEW


class PlaceError(StorageError):
    """A place did not do what was asked of it.

    ``outcome`` is ``"not stored"``, or ``"unknown"``: nobody answered in time, and the write may be stored, or may come to be. The
    next call looks before it writes; then ``PlacedConversation.outcome(error)`` tells. ``slot_hash`` names the write that is meant, in
    hex digits; it is None for a call that writes nothing.
    """

    outcome: Literal["not stored", "unknown"]
    slot_hash: str | None

    def __init__(
        self,
        *,
        path: str,
        doing: str,
        reason: str,
        outcome: Literal["not stored", "unknown"],
        slot_hash: str | None = None,
    ) -> None:
        self.outcome = outcome
        self.slot_hash = slot_hash
        nothing = "Nothing was read" if doing.startswith(_READS) else "Nothing was stored"
        consequence = nothing if outcome == "not stored" else _UNKNOWN
        super().__init__(errno=_errno.EIO, strerror=safe(reason), path=path, doing=doing, consequence=consequence)

    def _what(self) -> str:
        """Without the name of an errno: no disk of this machine refused anything."""
        return f"{self.path}: cannot {self.doing}: {self.strerror}. {self.consequence}"


class NotOnAPlaceError(TranscriptStoreError):
    """What was asked of the conversation, or the library, at ``path`` can be done in a folder, and not on a place. Nothing was changed."""

    path: str
    doing: str
    way_out: WayOut | None = WayOut.SAVE_AND_FORK

    _says = "{error.path}: cannot {error.doing}: it is on a place, and not in a folder"


class DivergedError(TranscriptStoreError):
    """The conversation in the folder ``path`` and its copy at ``place`` went on differently. Nothing was changed on either side.

    ``head`` and ``generation`` say where the folder ends, ``place_head`` and ``place_generation`` where the copy does. Whoever opens the
    copy sees what it has; ship the folder to another place, if both are to stay.
    """

    path: str
    place: str
    reason: str
    head: str
    place_head: str
    generation: int
    place_generation: int
    way_out: WayOut | None = WayOut.SHIP_ELSEWHERE

    _says = (
        "{error.path}: {error.place} is not an earlier state of it: {error.reason}. The folder ends in {error.head} (generation "
        "{error.generation}), the place in {error.place_head} (generation {error.place_generation})"
    )


class UnsuitablePlaceError(PlaceError):
    """The server ignores conditions: it writes over what is there already, although it was asked not to. Nothing was stored.

    Two writers would overwrite one another, and neither would be told. Use a server that keeps them; docs/engines.md names some.
    """

    def __init__(self, *, path: str, doing: str) -> None:
        reason = "the server ignores conditions, and two writers would overwrite one another"
        super().__init__(path=path, doing=doing, reason=reason, outcome="not stored")

    def _way_out(self) -> WayOut | None:
        return WayOut.CHOOSE_A_FIT_SERVER


_UNKNOWN = "Whether it is stored is unknown; the next call finds out"
