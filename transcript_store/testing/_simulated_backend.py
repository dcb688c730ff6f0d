"""How is an unreliable backend simulated? In-memory backends that lose, delay and repeat requests."""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from transcript_store.backends import (
    Backend,
    KeyValueStore,
    ListedValue,
    OutcomeUnknownError,
    SlotRange,
    StoredSummary,
    StoredValue,
)
from transcript_store.testing._simulated_machine import SimulatedStop

__all__ = ["BackendRequest", "Fate", "SimulatedBackend", "SimulatedObjectStore"]


# ---- simulated values ----
# Versioned values in memory, whose requests a simulated backend loses, delays and repeats.

T = TypeVar("T")
R = TypeVar("R")


class _VersionedBytes(NamedTuple):
    cell: StoredValue
    at: int


class SimulatedCells(KeyValueStore):
    """Cells as a database has them, where each call is one request of one moment; or as an object store has them.

    There a version is a hash of the bytes, a list is made of pages of two names, each a request, and nothing is held or removed.

    Args:
        ask: makes one request of the backend: the call, the name, the action, and whether it changes something.
        can_hold: whether they are those of a database.
    """

    def __init__(self, ask: Callable[..., Any], *, can_hold: bool) -> None:
        self.can_hold = can_hold
        self._ask = ask
        self._there: dict[str, _VersionedBytes] = {}
        self._numbers = count(1)
        """Each put has one: of a database it is the version, and the time as well."""

    # ---- for tests -------------------------------------------------------------------------------------------------------

    @property
    def contents(self) -> dict[str, bytes]:
        """The value under each name."""
        return {name: kept.cell.data for name, kept in self._there.items()}

    def set(self, name: str, data: bytes | None) -> None:
        """Change the value under a name, as no writer may; None removes it."""
        if data is None:
            self._there.pop(name, None)
        else:
            number = next(self._numbers)
            version = number if self.can_hold else sha256(data).hexdigest()
            self._there[name] = _VersionedBytes(StoredValue(data, version), number)

    # ---- Cells -----------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> StoredValue | None:
        """The value under a name."""

        def act() -> StoredValue | None:
            kept = self._there.get(name)
            return None if kept is None else kept.cell

        found: StoredValue | None = self._ask("get", name, act)
        return found

    def put(self, name: str, data: bytes, known: StoredValue | None, holding: Sequence[str] = ()) -> bool:
        """Put ``data`` in the backend of ``known``; of a database, with its content."""
        is_put: bool = self._ask("put", name, partial(self._put, name, data, known, (*holding,)), changes=True)
        return is_put

    def _put(self, name: str, data: bytes, known: StoredValue | None, holding: tuple[str, ...]) -> bool:
        if not self._is(name, known):
            return False
        if self.can_hold:
            if not all(each in self._there for each in holding):
                return False
            for each in holding:
                self.set(each, self._there[each].cell.data)
        self.set(name, data)
        return True

    def _is(self, name: str, known: StoredValue | ListedValue | None) -> bool:
        there = self._there.get(name)
        if there is None or known is None:
            return (there is None) == (known is None)
        return there.cell.version == known.version

    def remove(self, name: str, known: StoredValue | ListedValue) -> bool:
        """Remove the value of a name, if it is ``known``: of a database."""
        if not self.can_hold:
            raise NotImplementedError

        def act() -> bool:
            return self._is(name, known) and self._there.pop(name, None) is not None

        is_gone: bool = self._ask("remove", name, act, changes=True)
        return is_gone

    def list(self, prefix: str) -> Sequence[ListedValue]:
        """The cells whose names begin so, in the order of their names."""
        if self.can_hold:
            found: builtins.list[ListedValue] = self._ask("list", prefix, lambda: self._page(prefix, ""))
            return found
        return [*self._pages(prefix)]

    def _pages(self, prefix: str) -> Iterator[ListedValue]:
        after, size = "", 2
        while True:
            page = self._ask("list", prefix, lambda after=after: self._page(prefix, after)[:size])
            yield from page
            if len(page) < size:
                return
            after = page[-1].name

    def _page(self, prefix: str, after: str) -> builtins.list[ListedValue]:
        last = max((kept.at for kept in self._there.values()), default=0)
        return [
            ListedValue(name, kept.cell.version, float(last - kept.at), len(kept.cell.data))
            for name, kept in sorted(self._there.items())
            if name.startswith(prefix) and name > after
        ]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """``act`` on each, one after another."""
        return map(act, items)


# ---- simulated backend ----


class Fate(Enum):
    """The outcome of one request. Each but the first three is for a request that changes something."""

    DONE = "it is done, and answered"
    REFUSED = "it is not done, and the caller gets no answer"
    KILLED = "it is not done, and the caller is killed"
    LOST = "it is done, and its answer is lost"
    LATE = "it is done later, when land() is called, and the caller gets no answer"
    TWICE = "it is done and answered, and done once more when land() is called"
    KILLED_AFTER = "it is done, and the caller is killed"
    KILLED_LATE = "it is done later, and the caller is killed now"


class BackendRequest(NamedTuple):
    """One request of a backend: its number, counted from 1, the call that it is part of, what it does, and to which name."""

    number: int
    call: str
    """As the call's method is named: ``put``, ``read``, ``conversations``, ``put_summary``, ``put_pack``, ``packs_from`` and so on. Of its
    cells: ``get``, ``put``, ``remove``, ``list``."""
    name: str
    """What it is about: ``s/3`` is a slot, ``p/1-7`` a pack, ``k`` the key, ``m`` the summary; of a cell, its name; of a list, what names
    begin with."""
    changes: bool
    """True if it changes something, so that it may land late."""


_SILENT = frozenset({Fate.REFUSED, Fate.LOST, Fate.LATE})
_KILLED = frozenset({Fate.KILLED, Fate.KILLED_AFTER, Fate.KILLED_LATE})
_NOT_NOW = frozenset({Fate.REFUSED, Fate.KILLED, Fate.LATE, Fate.KILLED_LATE})
_AGAIN = frozenset({Fate.LATE, Fate.TWICE, Fate.KILLED_LATE})


class _Object(NamedTuple):
    tag: int
    data: bytes


class SimulatedBackend(Backend):
    """A backend in memory as a database is one: each call is one request, of one moment, and ``put`` requires the slot before.

    ``on_request`` is called before each request and may return its :class:`Fate`; None is ``DONE``. It may raise as well: then the request
    is not done. A test may switch to another session in it, so that the other one comes in between. ``late`` has what will land
    later.

    Args:
        name: what errors call it.
    """

    _holds = True

    def __init__(self, *, name: str = "simulated") -> None:
        self.name = name
        self.on_request: Callable[[BackendRequest], Fate | None] | None = None
        self.requests = 0
        self.late: list[Callable[[], object]] = []
        self._objects: dict[tuple[str, str], _Object] = {}
        self._summaries: dict[str, StoredSummary | None] = {}
        """Expunged values never return."""
        self._keys: dict[str, bytes] = {}
        self._tags = 0
        self._identity = f"simulated:{uuid4()}"
        self._lock = threading.RLock()
        self.cells = SimulatedCells(self._request, can_hold=self._holds)
        """The values of a snapshot store: ``BackendSnapshotStore(backend)``."""

    # ---- for tests -------------------------------------------------------------------------------------------------------

    def land(self, index: int = 0) -> None:
        """Do the delayed requests now: a put whose name is taken changes nothing."""
        self.late.pop(index)()

    def names(self, id: str) -> list[str]:
        """The objects of a conversation: ``s/<slot>`` and ``p/<first>-<last>``."""
        return sorted(name for of, name in self._objects if of == id)

    def object(self, id: str, name: str) -> bytes:
        """The bytes under a name."""
        return self._objects[id, name].data

    def set_key(self, id: str, data: bytes | None) -> None:
        """Change the key file of a conversation, as no writer may; None removes it."""
        if data is None:
            self._keys.pop(id, None)
        else:
            self._keys[id] = data

    def set_object(self, id: str, name: str, data: bytes | None) -> None:
        """Change the value under a name, as no writer may; None removes it. So does a server that lost a commit."""
        if data is None:
            self._objects.pop((id, name), None)
        else:
            self._tags += 1
            self._objects[id, name] = _Object(self._tags, data)

    # ---- Place -----------------------------------------------------------------------------------------------------------

    def put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        """Put a slot if it is absent, and if the one before has this hash."""
        return self._request("put", f"s/{slot}", lambda: self._put(id, slot, data, previous), changes=True)

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        if slot == 1:
            return not self.names(id) and self._create(id, "s/1", data) and self._begin(id)
        before = self._objects.get((id, f"s/{slot - 1}"))
        if before is None or before.data.partition(b"\n")[0][-34:-2] != previous:
            return False
        return self._create(id, f"s/{slot}", data)

    def _begin(self, id: str) -> bool:
        """R11: a writer that is killed before the first summary leaves a conversation that a listing must show."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._summaries.setdefault(id, StoredSummary(id, now, 0, b""))
        return True

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        """The slots of one moment."""
        return self._request("read", "s/", lambda: [_piece(name, o.data) for name, o in self._listed(id, "s/", after)])

    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The ids that have a slot."""
        return self._request("conversations", "", lambda: sorted({of for of, _ in self._objects if of > after})[:limit])

    @property
    def identity(self) -> str:
        """Compared by identity: another object is another backend."""
        return self._identity

    def ends(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]] | None:
        """The last slots of the conversations that were not expunged."""

        def act() -> list[tuple[str, int]]:
            ids = sorted({of for of, name in self._objects if name == "s/1" and of > after})[:limit]
            return [(each, max(_numbers(name)[-1] for of, name in self._objects if of == each)) for each in ids]

        return self._request("ends", "", act)

    def put_summary(self, summary: StoredSummary) -> None:
        """Keep a summary, unless one of a later slot is kept already, or the conversation was expunged."""
        self._request("put_summary", "m", lambda: self._put_summary(summary), changes=True)

    def _put_summary(self, summary: StoredSummary) -> None:
        there = self._summaries.setdefault(summary.id, summary)
        if there is not None and there.slot <= summary.slot:
            self._summaries[summary.id] = summary

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        """The newest summaries after ``before``."""
        return self._request("summaries", "m", lambda: self._newest(before, label)[:limit])

    def _newest(self, before: tuple[str, str] | None, label: str | None) -> list[StoredSummary]:
        kept = [summary for summary in self._summaries.values() if summary is not None]
        found = sorted(kept, key=lambda summary: (summary.updated_at, summary.id), reverse=True)
        return [
            summary
            for summary in found
            if (before is None or (summary.updated_at, summary.id) < before) and (label is None or _has(summary, label))
        ]

    def key(self, id: str) -> bytes | None:
        """The key file, if there is one."""
        return self._request("key", "k", lambda: self._keys.get(id) or None)

    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        """Replace the key file ``known``."""
        return self._request("put_key", "k", lambda: self._put_key(id, data, known), changes=True)

    def _put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        if self._keys.get(id) != known:
            return False
        self._keys[id] = data
        return True

    def _expunge_key(self, id: str) -> None:
        if id in self._keys:
            self._keys[id] = b""

    def expunge(self, id: str, keep: int) -> None:
        """Remove the slots below ``keep``, the key and the summary, in one step."""
        self._request("expunge", "s/", lambda: self._expunge(id, keep), changes=True)

    def _expunge(self, id: str, keep: int) -> None:
        for name in self._below(id, keep):
            self.set_object(id, name, None)
        self._expunge_key(id)
        self._expunge_summary(id)

    def _expunge_summary(self, id: str) -> None:
        self._summaries[id] = None

    # ---- requests --------------------------------------------------------------------------------------------------------

    def _request(self, call: str, name: str, act: Callable[[], T], *, changes: bool = False) -> T:
        self.requests += 1
        fate = (self.on_request and self.on_request(BackendRequest(self.requests, call, name, changes))) or Fate.DONE
        with self._lock:
            if fate in _AGAIN and changes:
                self.late.append(act)
            result = None if fate in _NOT_NOW else act()
        if fate in _KILLED:
            raise SimulatedStop
        if fate in _SILENT:
            raise OutcomeUnknownError("the simulated backend did not answer")
        return result  # type: ignore[return-value]

    def _create(self, id: str, name: str, data: bytes) -> bool:
        if (id, name) in self._objects:
            return False
        self.set_object(id, name, data)
        return True

    def _listed(self, id: str, kind: str, after: int) -> list[tuple[str, _Object]]:
        return [
            (name, there)
            for (of, name), there in self._objects.items()
            if of == id and name.startswith(kind) and _numbers(name)[-1] > after
        ]

    def _below(self, id: str, keep: int) -> list[str]:
        return [name for name in self.names(id) if _numbers(name)[0] < keep]


class SimulatedObjectStore(SimulatedBackend):
    """A ``PackingBackend`` in memory as an object store is one: put if absent, list, get, delete, each a separate request."""

    _holds = False

    def _put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:  # noqa: ARG002 (no object store can look at another)
        return self._create(id, f"s/{slot}", data) and (slot > 1 or self._begin(id))

    def ends(self, *, after: str = "", limit: int = 1000) -> None:  # noqa: ARG002
        """An object store cannot say so at once."""
        return

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        """List slots, then packs, then get what was listed. Slots that vanish in between were packed before: then this
        starts again.
        """
        while True:
            slots = self._request("read", "s/", lambda: self._listed(id, "s/", after))
            packs = self._request("read", "p/", lambda: self._listed(id, "p/", after))
            held = {slot for name, _ in packs for slot in _numbers(name)}
            wanted = [*packs, *(listed for listed in slots if _numbers(listed[0])[0] not in held)]
            pieces = [self.get(id, name, listed.tag) for name, listed in wanted]
            found = [piece for piece in pieces if piece is not None]
            if len(found) == len(wanted):
                return [piece for piece in found if piece.data]  # an expunged value has only a name left

    def get(self, id: str, name: str, tag: int) -> SlotRange | None:
        """One object, if it is still the one that was listed; None if it was removed or replaced."""

        def act() -> SlotRange | None:
            there = self._objects.get((id, name))
            return None if there is None or there.tag != tag else _piece(name, there.data)

        return self._request("read", name, act)

    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        """Put a pack if it is absent."""
        name = f"p/{first}-{last}"
        self._request("put_pack", name, lambda: self._create(id, name, data), changes=True)

    def packs_from(self, id: str, slot: int) -> bool:
        """True if a pack holds this slot or a later one."""
        return self._request("packs_from", "p/", lambda: bool(self._listed(id, "p/", slot - 1)))

    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        """Remove slots, each with a request."""
        for slot in slots:
            self._request("delete_slots", f"s/{slot}", partial(self.set_object, id, f"s/{slot}", None), changes=True)

    def expunge(self, id: str, keep: int) -> None:
        """Empty the summary, the key, slots and packs, each with a request: it may be cut off anywhere."""
        self._request("expunge", "m", partial(self._expunge_summary, id), changes=True)
        self._request("expunge", "k", partial(self._expunge_key, id), changes=True)
        for name in self._request("expunge", "", lambda: self._below(id, keep)):
            self._request("expunge", name, partial(self.set_object, id, name, b""), changes=True)


def _numbers(name: str) -> range:
    first, _, last = name[2:].partition("-")
    return range(int(first), int(last or first) + 1)


def _piece(name: str, data: bytes) -> SlotRange:
    numbers = _numbers(name)
    return SlotRange(numbers[0], numbers[-1], data, name.startswith("p/"))


def _has(summary: StoredSummary, label: str) -> bool:
    labels: dict[str, Any] = json.loads(summary.data or b"{}").get("metadata", {}).get("labels", {})
    name, equals, value = label.partition("=")
    return labels.get(name) == value if equals else name in labels
