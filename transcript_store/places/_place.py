"""What an engine must offer, so that conversations can live on it. ``testing.check_place`` holds an engine to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from transcript_store._doctor.probes import Check
    from transcript_store.library import ConversationLibrary

__all__ = ["PackingPlace", "Piece", "Place", "Summary"]


class Piece(NamedTuple):
    """The bytes of the slots from ``first`` to ``last``, joined. A slot that stands alone has one number for both."""

    first: int
    last: int
    data: bytes
    is_pack: bool = False
    """Whether it was read from a pack. A pack counts, whatever stands in a slot that it holds."""


class Summary(NamedTuple):
    """What a list shows of a conversation, as its writer left it behind a slot. It is a cache: it may be late, and decides nothing."""

    id: str
    updated_at: str
    """As the library writes times: RFC 3339 in UTC with microseconds and ``Z``, 27 characters, so that its order is that of the text."""
    slot: int
    """The slot behind which it was true."""
    data: bytes
    """One compact JSON object of at most 64 KiB. A place may look at the labels in it, ``{"metadata":{"labels":{NAME:VALUE}}}``, and at
    nothing else."""


class Place(Protocol):
    """An engine that keeps slots: values that are written once, under the id of a conversation and a number from 1.

    A class that has these calls inherits from this one; so ``ConversationLibrary(place)`` knows that it is a place.

    Any call may raise ``UnavailableError``: it is not known whether it was done; or ``NotReachedError``, which is one, if no connection
    could be made, so that nothing was done. What the engine refuses for good (a missing table, a wrong password) is a ``PlaceError`` with
    the outcome ``"not stored"``. Both texts hold no address, user, key or bytes.
    Ids are canonical lower-case UUIDs. Calls may come from several threads at the same time.
    """

    name: str
    """What errors call the place. It holds no password, key or user."""

    library_class: ClassVar[type[ConversationLibrary]] = (
        NotImplemented  # ``_library`` sets it, which imports this module
    )
    """What ``ConversationLibrary(place)`` makes. It is inherited."""

    @property
    def identity(self) -> str | None:
        """The same text for the same place, in each process: what is derived from it is called so. It holds no password and no address.

        It is inherited, and None then: nothing that is derived from the place is kept.
        """
        return None

    def examined(self) -> tuple[list[Check], list[float]]:
        """What ``doctor`` finds: the checks, and how many microseconds each committed write of 1 KB took.

        It is inherited, and empty then.
        """
        return [], []

    def ends(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]] | None:  # noqa: ARG002
        """The ids behind ``after`` that have slot 1, each with its last slot, in the order of their text, at most ``limit``.

        What was acknowledged before the call is in it. It is inherited, and None then: the place cannot say so at once.
        """
        return None

    def put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        """Put ``data`` into a slot if nothing is there, as one step of the engine; True if this call did it.

        An engine that can do so in the same step also requires that the slot before has the hash ``previous`` (32 ASCII
        characters; for slot 1 it is 32 zeros, and the conversation must have no slot at all). On return, what was put is as durable as
        the engine makes things.
        False says nothing but "look": after a lost answer it may be this very data that stands there.
        """
        ...

    def read(self, id: str, after: int = 0) -> list[Piece]:
        """Every slot behind ``after``, in any order, with what is in it; packs may begin before. Empty if there is none.

        What was acknowledged before the call is there. What is put meanwhile may be missing, but then so is all behind it.
        """
        ...

    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The ids behind ``after`` that have a slot, in the order of their text, at most ``limit`` of them.

        It may be late: it decides nothing.
        """
        ...

    def put_summary(self, summary: Summary) -> None:
        """Keep it for lists, in the place of the one before, unless one of a later slot is kept already.

        Of what was expunged nothing is kept: a summary that comes late changes nothing.
        """
        ...

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[Summary]:
        """At most ``limit`` summaries, the newest first: by ``(updated_at, id)``, descending.

        ``before`` is ``(updated_at, id)`` of the last one that the caller has: only those behind it are given. ``label`` is ``NAME``, or
        ``NAME=VALUE``: only those that have it. A place that cannot say so raises ``PlaceError`` with the outcome ``"not stored"``.
        """
        ...

    def key(self, id: str) -> bytes | None:
        """What :meth:`put_key` put last; None if there is nothing, or if it was expunged."""
        ...

    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        """Put the key file of a sealed conversation beside its slots, as one step of the engine; True if this call did it.

        It takes the place of ``known``, and of nothing else: None says that nothing may be there, not even what was expunged. So it
        can be replaced, and destroyed, and a put that comes late changes nothing. At most 128 KiB, and as durable as a slot. False
        says nothing but "look".
        """
        ...

    def expunge(self, id: str, keep: int) -> None:
        """Remove the content of every slot below ``keep``, packs too, the key, and the summary. Called twice, it comes to the same.

        ``keep`` is the slot ``deleted``, which stays: whoever loads the conversation is told. What it held cannot be read afterwards.
        An engine that does not look at the slot before keeps the names, with nothing in them, and passes over them when it reads: a
        writer that has stalled must find them taken. A summary that comes late must find that it is too late, also where there was none.
        Cut off, it leaves some of the content; call it again.
        """
        ...


class PackingPlace(Place, Protocol):
    """A place where many slots cost many requests, and are packed into one object."""

    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        """Put a pack if it is not there. Whoever writes the pack of these slots writes the same bytes."""
        ...

    def packs_from(self, id: str, slot: int) -> bool:
        """Whether a pack holds this slot or a later one; a pack that was put before the call counts."""
        ...

    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        """Remove slots that a pack holds. Those that are not there are passed over."""
        ...


def packing(place: Place) -> PackingPlace | None:
    """The place, if it is one that packs. It has ``put_pack`` then; a look at each member would take 50 µs."""
    return cast(PackingPlace, place) if hasattr(place, "put_pack") else None
