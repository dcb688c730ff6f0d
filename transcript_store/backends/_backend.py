"""What must a backend offer, and how do calls to it fail? ``testing.check_backend`` checks a backend."""

from __future__ import annotations

import errno as _errno
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, cast

from transcript_store.display import safe
from transcript_store.errors import ConversationLockedError, StorageError, TranscriptStoreError
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store._doctor import Check
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
    """The bytes of the slots from ``first`` to ``last``, joined. A single slot has one number for both."""

    first: int
    last: int
    data: bytes
    is_pack: bool = False
    """True if it was read from a pack. A pack wins over a slot with a number that it covers."""


class StoredSummary(NamedTuple):
    """The list summary that a conversation's writer stores after a slot. It is a cache: it may be late, and decides
    nothing.
    """

    id: str
    updated_at: str
    """As the library writes times: RFC 3339 in UTC with microseconds and ``Z``, 27 characters, so that its order is that of the text."""
    slot: int
    """The slot after which it was true."""
    data: bytes
    """One compact JSON object of at most 64 KiB. A backend may read only the labels in it,
    ``{"metadata":{"labels":{NAME:VALUE}}}``.
    """


class Backend(Protocol):
    """A store of slots: values that are written once, under the id of a conversation and a number from 1.

    Implementations inherit from this class, so that ``ConversationLibrary(backend)`` recognizes them.

    Any call may raise ``OutcomeUnknownError``: it is in doubt whether the call took effect; or its subclass
    ``BackendUnreachableError``, if no connection could be made, so that nothing was done. A permanent refusal (a
    missing table, a wrong password) is a ``BackendError`` with the outcome ``"not stored"``. The texts contain no
    address, user, key or bytes. Ids are canonical lower-case UUIDs. Calls may come from several threads at the same
    time.
    """

    name: str
    """The backend's name in errors. It contains no password, key or user."""

    library_class: ClassVar[type[ConversationLibrary]] = (
        NotImplemented  # ``_library`` sets it, which imports this module
    )
    """The class that ``ConversationLibrary(backend)`` creates. Optional to override."""

    @property
    def identity(self) -> str | None:
        """The same text for the same backend, in each process; names derived data. It contains no password and no address.

        Optional; by default None: then no derived data is kept.
        """
        return None

    def examined(self) -> tuple[list[Check], list[float]]:
        """The result of ``doctor``: the checks, and how many microseconds each committed write of 1 KB took.

        Optional; by default empty.
        """
        return [], []

    def ends(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]] | None:  # noqa: ARG002
        """The ids after ``after`` that have slot 1, each with its last slot, in the order of their text, at most
        ``limit``.

        Everything acknowledged before the call is in it. Optional; by default None: the backend cannot list them at
        once.
        """
        return None

    def put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        """Put ``data`` into an empty slot, as one atomic step of the backend; True if this call did it.

        A backend that can do so in the same step also requires that the slot before has the hash ``previous`` (32 ASCII
        characters; for slot 1 it is 32 zeros, and the conversation must have no slot at all). On return, the data is as
        durable as the backend makes it. False only means that the caller must read: after a lost answer the slot may
        contain this same data.
        """
        ...

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        """Every slot after ``after`` with its content, in any order; packs may start before. Empty if there is none.

        Everything acknowledged before the call is included. A slot put during the call may be missing, but then so is every
        later one.
        """
        ...

    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The ids after ``after`` that have a slot, in the order of their text, at most ``limit`` of them.

        It may be late: it decides nothing.
        """
        ...

    def put_summary(self, summary: StoredSummary) -> None:
        """Store the list summary, replacing the previous one, unless one of a later slot is stored already.

        Nothing is stored for an expunged conversation: a late summary changes nothing.
        """
        ...

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        """At most ``limit`` summaries, the newest first: by ``(updated_at, id)``, descending.

        A conversation whose slot 1 was put, and no summary yet, has one with slot 0 and no data; its time is about that
        of the put. Its writer may have been killed, and a listing must show it.

        ``before`` is ``(updated_at, id)`` of the caller's last one: only later ones are returned. ``label`` is
        ``NAME``, or ``NAME=VALUE``: only those that have it. A backend without that ability raises ``BackendError``
        with the outcome ``"not stored"``.
        """
        ...

    def key(self, id: str) -> bytes | None:
        """The value that :meth:`put_key` put last; None if there is none, or if it was expunged."""
        ...

    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        """Put the key file of a sealed conversation beside its slots, as one atomic step of the backend; True if this
        call did it.

        It replaces only ``known``: None means that nothing may be stored, not even an expunged value. So it can be
        replaced and destroyed, and a late put changes nothing. At most 128 KiB, and as durable as a slot. False only
        means that the caller must read.
        """
        ...

    def expunge(self, id: str, keep: int) -> None:
        """Remove the content of every slot below ``keep``, packs too, the key, and the summary. A repeated call has the
        same result.

        ``keep`` is the slot ``deleted``, which stays, so that a load reports the deletion. The content is unreadable
        afterwards. A backend that does not check the previous slot keeps the names, without content, and skips them
        when it reads: a stalled writer must find them taken. A late summary must be refused, also if there was none. An
        interrupted call leaves some of the content; repeat it.
        """
        ...


class PackingBackend(Backend, Protocol):
    """A backend on which many slots cost many requests, and are packed into one object."""

    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        """Put a pack if it does not exist. Every writer of the pack of these slots writes the same bytes."""
        ...

    def packs_from(self, id: str, slot: int) -> bool:
        """True if a pack holds this slot or a later one; a pack that was put before the call counts."""
        ...

    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        """Remove slots that a pack holds. Missing ones are skipped."""
        ...


def packing(backend: Backend) -> PackingBackend | None:
    """The backend, if it packs. Only ``put_pack`` is checked; a check of each member would take 50 µs."""
    return cast(PackingBackend, backend) if hasattr(backend, "put_pack") else None


# ---- errors ----
# What goes wrong on a backend. Each error is also an error of the core, so code that catches those catches these.

_READS = ("list", "read", "look", "load", "fetch")
"""The first words of calls that write nothing."""


class OutcomeUnknownError(Exception):
    """The backend does not know whether the call took effect (no answer, a lost answer, no server).

    The text says what happened, without an address, a user or a key. A conversation catches it and resolves it; its
    callers never see it.
    """


class BackendUnreachableError(OutcomeUnknownError):
    """The call did not reach the server, since no connection could be made. So it had no effect.

    ``has_answered`` is True if the server has answered this process before: then retries for half a minute are
    worthwhile.
    """

    def __init__(self, text: str, *, has_answered: bool = False) -> None:
        self.has_answered = has_answered
        super().__init__(text)


class ConversationTakenOverError(ConversationLockedError):
    """Another writer claimed the conversation at ``path``. Nothing of this call is stored. The records read before stay
    readable.

    ``holder`` describes the other writer (``name``, ``host``, ``pid``), ``epoch`` the number of its claim, ``at`` the
    time of it, as text. ``load()`` claims the conversation back, if the store was opened with ``take_over=True``, or if
    the other one has closed it; ask its holder first.
    """

    holder: dict[str, Any]
    epoch: int
    at: str
    hint: Hint | None = Hint.RELOAD


class BackendError(StorageError):
    """A backend did not complete a request.

    ``outcome`` is ``"not stored"``, or ``"unknown"``: no answer came in time, and the write may be stored now or later.
    The next call reads before it writes; then ``BackendConversation.outcome(error)`` returns the outcome. ``slot_hash``
    names the write, in hex digits; it is None for a call that writes nothing.
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

    def _problem(self) -> str:
        """Without the name of an errno: no local disk refused anything."""
        return f"{self.path}: cannot {self.doing}: {self.strerror}. {self.consequence}"


class UnsupportedByBackendError(TranscriptStoreError):
    """The call works on a conversation or a library in a folder, but not on a backend. Nothing was changed."""

    path: str
    doing: str
    hint: Hint | None = Hint.SAVE_AND_FORK

    _says = "{error.path}: cannot {error.doing}: it is on a backend, not in a folder"


class DivergedError(TranscriptStoreError):
    """The conversation in the folder ``path`` and its copy at ``backend`` have diverged. Nothing was changed on either side.

    ``head`` and ``generation`` say where the folder ends, ``backend_head`` and ``backend_generation`` where the copy does.
    Open the copy to see its records; ship the folder to another backend if both should stay.
    """

    path: str
    backend: str
    reason: str
    head: str
    backend_head: str
    generation: int
    backend_generation: int
    hint: Hint | None = Hint.SHIP_ELSEWHERE

    _says = (
        "{error.path}: {error.backend} is not an earlier state of it: {error.reason}. The folder ends in {error.head} (generation "
        "{error.generation}), the copy in {error.backend_head} (generation {error.backend_generation})"
    )


class UnsuitableBackendError(BackendError):
    """The server ignores conditions: it overwrites existing objects although it was asked not to. Nothing was stored.

    Two writers would overwrite each other without noticing. Use a server that honours them; docs/backends.md names some.
    """

    def __init__(self, *, path: str, doing: str) -> None:
        reason = "the server ignores conditions, so two writers would overwrite each other"
        super().__init__(path=path, doing=doing, reason=reason, outcome="not stored")

    def _hint(self) -> Hint | None:
        return Hint.CHOOSE_A_FIT_SERVER


_UNKNOWN = "Whether it is stored is unknown; the next call finds out"


# ---- patience ----
# Repeats a call that changes nothing until the backend answers, and limits how long it waits.

FIRST_SECONDS = 3.0
"""How long to wait for a server that has never answered. Its address may be mistyped, or it is not started."""

T = TypeVar("T")


def is_in_vain(error: OutcomeUnknownError, waited: float) -> bool:
    """True if no further attempt is worth its wait, after so many seconds."""
    return isinstance(error, BackendUnreachableError) and not error.has_answered and waited >= FIRST_SECONDS


def patiently(
    call: Callable[[], T], waits: Sequence[float], sleep: Callable[[float], None], *, path: str, doing: str
) -> T:
    """Repeat a call that changes nothing until it is answered; ``BackendError`` if the attempts are used up."""
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


# ---- versioned values ----
# What a backend must offer to keep snapshots: values under names, each with a version.
#
# A name is that of a file in a directory of snapshots: ``<id>.json``, ``media/<SHA-256>``, ``sealing``. Its value has
# the bytes of that file. So a copy of the values is a directory of snapshots, and the other way round.

R = TypeVar("R")


class StoredValue(NamedTuple):
    """The value under a name."""

    data: bytes
    version: object
    """The version that the backend compares: a new one after each put. On an object store two puts of the same bytes
    may have the same version.
    """


class ListedValue(NamedTuple):
    """A name in a listing."""

    name: str
    version: object
    age_seconds: float
    """Seconds since it was put or held last, by the server's clock."""
    size_bytes: int
    """The length of its data. It identifies placeholders, so that they need not be fetched."""


class KeyValueStore(Protocol):
    """The versioned values of a backend. Each call but :meth:`each` may raise ``OutcomeUnknownError`` (in doubt) or
    ``BackendError`` (not done).
    """

    can_hold: bool
    """True if :meth:`put` can hold other values in the same step, and :meth:`remove` can check a version. Otherwise
    media is never removed.
    """

    def get(self, name: str) -> StoredValue | None:
        """The value under a name; None if there is none."""
        ...

    def put(self, name: str, data: bytes, known: StoredValue | None, holding: Sequence[str] = ()) -> bool:
        """Replace ``known`` by ``data``, as one atomic step of the backend; True if this call did it. None: the name
        must be empty.

        If the backend can, that step also requires that the values ``holding`` exist, and gives each a new version.
        False: this call did not do it, and never will. An implementation that is not sure raises
        ``OutcomeUnknownError``.
        """
        ...

    def remove(self, name: str, known: StoredValue | ListedValue) -> bool:
        """Remove the value under a name, if it is ``known``, as one atomic step of the backend. False: this call did not.

        It is called only if :attr:`can_hold`.
        """
        ...

    def list(self, prefix: str) -> Sequence[ListedValue]:
        """The values whose names start so. Everything put before the call is included; of later puts, some."""
        ...

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """Call ``act`` for each, several at the same time if that is faster."""
        ...


class HasKeyValueStore(Protocol):
    """The argument of a ``BackendSnapshotStore``: a backend with versioned values, or any object with a name and such
    values.
    """

    @property
    def name(self) -> str:
        """Its name in errors. It contains no password, key or user."""
        ...

    @property
    def cells(self) -> KeyValueStore:
        """The values of its snapshots only."""
        ...
