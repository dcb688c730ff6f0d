"""What an engine must offer, so that conversations can live on it. ``testing.check_backend`` holds an engine to it."""

from __future__ import annotations

import errno as _errno
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, cast

from transcript_store.display import safe
from transcript_store.errors import ConversationLockedError, StorageError, TranscriptStoreError
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store._doctor.probes import Check
    from transcript_store.library import ConversationLibrary

__all__ = [
    "Backend",
    "BackendError",
    "BackendUnreachableError",
    "ConversationTakenOverError",
    "DivergedError",
    "HasKeyValueStore",
    "KeyValueStore",
    "ListedValue",
    "OutcomeUnknownError",
    "PackingBackend",
    "SlotRange",
    "StoredSummary",
    "StoredValue",
    "UnsuitableBackendError",
    "UnsupportedByBackendError",
]


class SlotRange(NamedTuple):
    """The bytes of the slots from ``first`` to ``last``, joined. A slot that stands alone has one number for both."""

    first: int
    last: int
    data: bytes
    is_pack: bool = False
    """Whether it was read from a pack. A pack counts, whatever stands in a slot that it holds."""


class StoredSummary(NamedTuple):
    """What a list shows of a conversation, as its writer left it behind a slot. It is a cache: it may be late, and decides nothing."""

    id: str
    updated_at: str
    """As the library writes times: RFC 3339 in UTC with microseconds and ``Z``, 27 characters, so that its order is that of the text."""
    slot: int
    """The slot behind which it was true."""
    data: bytes
    """One compact JSON object of at most 64 KiB. A place may look at the labels in it, ``{"metadata":{"labels":{NAME:VALUE}}}``, and at
    nothing else."""


class Backend(Protocol):
    """An engine that keeps slots: values that are written once, under the id of a conversation and a number from 1.

    A class that has these calls inherits from this one; so ``ConversationLibrary(place)`` knows that it is a place.

    Any call may raise ``OutcomeUnknownError``: it is not known whether it was done; or ``BackendUnreachableError``, which is one, if no
    connection
    could be made, so that nothing was done. What the engine refuses for good (a missing table, a wrong password) is a ``BackendError`` with
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

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        """Every slot behind ``after``, in any order, with what is in it; packs may begin before. Empty if there is none.

        What was acknowledged before the call is there. What is put meanwhile may be missing, but then so is all behind it.
        """
        ...

    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The ids behind ``after`` that have a slot, in the order of their text, at most ``limit`` of them.

        It may be late: it decides nothing.
        """
        ...

    def put_summary(self, summary: StoredSummary) -> None:
        """Keep it for lists, in the place of the one before, unless one of a later slot is kept already.

        Of what was expunged nothing is kept: a summary that comes late changes nothing.
        """
        ...

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        """At most ``limit`` summaries, the newest first: by ``(updated_at, id)``, descending.

        ``before`` is ``(updated_at, id)`` of the last one that the caller has: only those behind it are given. ``label`` is ``NAME``, or
        ``NAME=VALUE``: only those that have it. A place that cannot say so raises ``BackendError`` with the outcome ``"not stored"``.
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


class PackingBackend(Backend, Protocol):
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


def packing(place: Backend) -> PackingBackend | None:
    """The place, if it is one that packs. It has ``put_pack`` then; a look at each member would take 50 µs."""
    return cast(PackingBackend, place) if hasattr(place, "put_pack") else None


# ---- errors ----
#
# What goes wrong on a place. Each is an error of the core as well, so that who catches those catches these.

_READS = ("list", "read", "look", "load", "fetch")
"""How the name of a call that writes nothing begins."""


class OutcomeUnknownError(Exception):
    """A place raises it when it does not know whether a call was done: no answer, a lost answer, a server that is not there.

    The text says what happened, without an address, a user or a key. A conversation catches it and finds out; its callers never see it.
    """


class BackendUnreachableError(OutcomeUnknownError):
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
    hint: Hint | None = Hint.RELOAD


class BackendError(StorageError):
    """A place did not do what was asked of it.

    ``outcome`` is ``"not stored"``, or ``"unknown"``: nobody answered in time, and the write may be stored, or may come to be. The
    next call looks before it writes; then ``BackendConversation.outcome(error)`` tells. ``slot_hash`` names the write that is meant, in
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


class UnsupportedByBackendError(TranscriptStoreError):
    """What was asked of the conversation, or the library, at ``path`` can be done in a folder, and not on a place. Nothing was changed."""

    path: str
    doing: str
    hint: Hint | None = Hint.SAVE_AND_FORK

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
    hint: Hint | None = Hint.SHIP_ELSEWHERE

    _says = (
        "{error.path}: {error.place} is not an earlier state of it: {error.reason}. The folder ends in {error.head} (generation "
        "{error.generation}), the place in {error.place_head} (generation {error.place_generation})"
    )


class UnsuitableBackendError(BackendError):
    """The server ignores conditions: it writes over what is there already, although it was asked not to. Nothing was stored.

    Two writers would overwrite one another, and neither would be told. Use a server that keeps them; docs/engines.md names some.
    """

    def __init__(self, *, path: str, doing: str) -> None:
        reason = "the server ignores conditions, and two writers would overwrite one another"
        super().__init__(path=path, doing=doing, reason=reason, outcome="not stored")

    def _way_out(self) -> Hint | None:
        return Hint.CHOOSE_A_FIT_SERVER


_UNKNOWN = "Whether it is stored is unknown; the next call finds out"


# ---- patience ----
#
# A call of a place that changes nothing, made until somebody answers; and how long anybody is waited for.

FIRST_SECONDS = 3.0
"""How long a server is waited for that has never answered. Its address may be mistyped, or it is not started."""

T = TypeVar("T")


def is_in_vain(error: OutcomeUnknownError, waited: float) -> bool:
    """Whether no further attempt is worth its wait, after so many seconds."""
    return isinstance(error, BackendUnreachableError) and not error.has_answered and waited >= FIRST_SECONDS


def patiently(
    call: Callable[[], T], waits: Sequence[float], sleep: Callable[[float], None], *, path: str, doing: str
) -> T:
    """Make a call that changes nothing until it is answered; ``BackendError`` if the attempts are over."""
    waited = 0.0
    for wait in (*waits, None):
        try:
            return call()
        except OutcomeUnknownError as error:
            if wait is None or is_in_vain(error, waited):
                raise BackendError(
                    path=path, doing=doing, reason=str(error) or "no answer", outcome="not stored"
                ) from error
            waited += wait
            sleep(wait)
    raise AssertionError("the last attempt returns or raises")


# ---- cells ----
#
# What an engine must offer so that snapshots can be kept on it: values under names, each with a version.
#
# A name is that of a file in a directory of snapshots: ``<id>.json``, ``media/<SHA-256>``, ``sealing``. What stands under it are the bytes
# of that file. So a copy of the cells is a directory of snapshots, and the other way round.

R = TypeVar("R")


class StoredValue(NamedTuple):
    """What stands under a name."""

    data: bytes
    version: object
    """What the engine compares: another one after each put. Two puts of the same bytes may have one, on an object store."""


class ListedValue(NamedTuple):
    """A name as a list shows it."""

    name: str
    version: object
    age_seconds: float
    """Since it was put or held last, by the engine's clock."""
    size_bytes: int
    """Of its data. By it a mark of what was deleted is known, and not asked for."""


class KeyValueStore(Protocol):
    """The cells of a place. Each call but :meth:`each` may raise ``OutcomeUnknownError``: it is not known whether it was done; or
    ``BackendError``: it was not.
    """

    can_hold: bool
    """Whether :meth:`put` can hold other cells in the same step, and :meth:`remove` can look at a version. Without that media stays."""

    def get(self, name: str) -> StoredValue | None:
        """What stands under a name; None if nothing does."""
        ...

    def put(self, name: str, data: bytes, known: StoredValue | None, holding: Sequence[str] = ()) -> bool:
        """Put ``data`` in the place of ``known``, as one step of the engine; True if this call did it. None: nothing may be there.

        Where the engine can, that step also requires that the cells ``holding`` are there, and gives each another version. False: this
        call did not do it, and nothing of it will be there. Whoever is not sure of that raises ``OutcomeUnknownError``.
        """
        ...

    def remove(self, name: str, known: StoredValue | ListedValue) -> bool:
        """Remove what stands under a name, if it is ``known``, as one step of the engine. False: this call did not.

        It is called where the cells :attr:`can_hold`.
        """
        ...

    def list(self, prefix: str) -> Sequence[ListedValue]:
        """The cells whose names begin so. What was put before the call is there; of what is put meanwhile, some."""
        ...

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """``act`` on each, several at the same time where that is faster."""
        ...


class HasKeyValueStore(Protocol):
    """What a ``BackendSnapshotStore`` is made of: a place that has cells, or anything else with a name and cells."""

    @property
    def name(self) -> str:
        """What errors call it. It holds no password, key or user."""
        ...

    @property
    def cells(self) -> KeyValueStore:
        """The cells of its snapshots, and of nothing else."""
        ...
