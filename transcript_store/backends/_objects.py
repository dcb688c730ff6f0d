"""How are conversations stored in an object store: S3, GCS, Azure, and S3-compatible servers?

::

    <root>/c/<id>/s/<slot, 12 digits>       one slot                             put if absent
    <root>/c/<id>/p/<last>-<first>          slots joined, 12 digits each         put if absent: the same bytes from any
        writer
    <root>/k/<id>                           the key file, if it is sealed        put if the one before it is the one
        that was read
    <root>/m/<id>                           the summary: JSON; empty if expunged put if the one before it is the one
        that was read
    <root>/d/<YYYY-MM-DD>/<id>              empty: it was written to on this day put once
    <root>/snapshots/<file>                 a file of a store of snapshots       put if the one before it is the one
        that was read
    <root>/probe/<random>                   what the server was tried with       removed again

Ids are random, so names spread over a store's partitions. The slots alone decide: a summary and the object of a day may
be late, or missing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson

from transcript_store._json.times import is_time
from transcript_store.backends._backend import (
    BackendError,
    KeyValueStore,
    ListedValue,
    OutcomeUnknownError,
    PackingBackend,
    SlotRange,
    StoredSummary,
    StoredValue,
    UnsuitableBackendError,
)
from transcript_store.backends._bucket import Bucket, ListedObject, StoredObject, same_tag

if TYPE_CHECKING:
    from transcript_store._doctor import Check

__all__ = ["ObjectStoreBackend"]


# ---- versioned values ----
# Snapshots in an object store: a value is an object below ``snapshots/``, under the name that it has in a directory. No
# object store checks a version when it removes an object, but each does when it puts one. So nothing is removed here.

T = TypeVar("T")
R = TypeVar("R")
_FOLDER = "snapshots"


class ObjectCells(KeyValueStore):
    """``require_fit`` refuses a server that ignores conditions."""

    can_hold = False

    def __init__(self, bucket: Bucket, require_fit: Callable[[], None]) -> None:
        self._bucket = bucket
        self._require_fit = require_fit

    def get(self, name: str) -> StoredValue | None:
        found = self._bucket.get(f"{_FOLDER}/{name}")
        return StoredValue(found.data, found) if found else None

    def put(self, name: str, data: bytes, known: StoredValue | None, holding: Sequence[str] = ()) -> bool:  # noqa: ARG002
        self._require_fit()
        key = f"{_FOLDER}/{name}"
        if known is None:
            return self._bucket.create(key, data)
        return self._bucket.swap(key, data, cast(StoredObject, known.version))

    def remove(self, name: str, known: StoredValue | ListedValue) -> bool:
        raise NotImplementedError  # see can_hold

    def list(self, prefix: str) -> Sequence[ListedValue]:
        folder = f"{_FOLDER}/{prefix}".rstrip("/")
        now = datetime.now(UTC)
        return [
            ListedValue(
                each.key.removeprefix(f"{_FOLDER}/"),
                each.tag,
                (now - each.modified).total_seconds(),
                each.size,
            )
            for page in self._bucket.list(folder)
            for each in page
        ]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return self._bucket.at_once(act, [*items])


# ---- objects ----

# Objects with other names are foreign, and skipped.
_SLOT = re.compile(r"c/[^/]+/s/(\d{12})")
_PACK = re.compile(r"c/[^/]+/p/(\d{12})-(\d{12})")
_OF_A_CONVERSATION = re.compile(r"c/([0-9a-f-]{36})/[sp]/.*")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ROUNDS = 10
_REMEMBERED = 10_000
_LAST = "~"
"""Comes after every digit and letter in a name."""


class ObjectStoreBackend(PackingBackend):
    """A backend in a bucket of an object store. It is a ``PackingBackend``.

    An append is one request. Any number of threads may use it, but one process: it is refused in a child that was
    forked from a process that had used an object store. Open it after the fork, or start the child by ``spawn``.

    The server must keep conditions (``If-None-Match``): before the first write of a process this is tested: an object
    is put a second time under one name.

    Args:
        url: ``s3://bucket/prefix``, ``gs://…``, ``az://…``, or any URL that obstore's ``from_url`` accepts;
            ``memory:///`` for tests. TLS is required unless the address is of this machine.
        name: its name in errors; by default the scheme, the bucket and the prefix.
        options: as obstore has them: ``endpoint``, ``region``, ``access_key_id``, ``credential_provider``,
            ``client_options``, ``retry_config`` … Missing ones are taken from the environment, as obstore does it. It
            repeats a request twice, within ten seconds.

    Raises:
        MissingExtraError: obstore is not installed.
        BackendError: the address, or an option, cannot be used.
    """

    def __init__(self, url: str, *, name: str | None = None, **options: Any) -> None:
        self._bucket = Bucket(url, options, name)
        self.name = self._bucket.name
        self._is_fit = False
        self._marked: dict[str, str] = {}
        """By conversation: the last day whose object was written."""

    # ---- slots -----------------------------------------------------------------------------------------------------------

    def put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:  # noqa: ARG002 (no object store can look at another)
        """Put a slot if it is absent. The day's object is written before the first slot, so that a listing finds it
        even if the writer is killed.
        """
        self._require_fit()
        if slot == 1:
            self._mark(id, datetime.now(UTC).date().isoformat())
        return self._bucket.create(_slot_key(id, slot), data)

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        """List packs, then the slots behind them, then get what was listed. Slots that vanish in between were packed:
        then this starts again.

        Of slots removed between the two listings the last one still exists, as a pack's last one is never removed (D5).
        So there is a hole before it, and packs are listed a second time.
        """
        for _ in range(_ROUNDS):
            packs = self._listed_packs(id, after + 1)
            packed = _reach(packs, after)
            slots = self._listed_slots(id, packed)
            if [slot for _, slot in slots] != [*range(packed + 1, packed + 1 + len(slots))]:
                packs = self._listed_packs(id, after + 1)
            held = {slot for _, first, last in packs for slot in range(first, last + 1)}
            wanted = [(listed, first, last, True) for listed, first, last in _uncovered(packs)]
            wanted += [(listed, slot, slot, False) for listed, slot in slots if slot not in held]
            found = self._bucket.at_once(lambda one: self._piece(*one), wanted)
            pieces = [piece for piece in found if piece is not None]
            if len(pieces) == len(wanted):
                return pieces
        raise OutcomeUnknownError("the listed objects had vanished each time")

    def _piece(self, listed: ListedObject, first: int, last: int, is_pack: bool) -> SlotRange | None:
        """The listed object, if it is unchanged: a freed name may have been taken again."""
        found = self._bucket.get(listed.key)
        return SlotRange(first, last, found.data, is_pack) if found and same_tag(listed.tag, found.tag) else None

    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The ids that have a slot. A conversation of more objects than a page has costs another request."""
        found: list[str] = []
        begin: str | None = f"c/{after}/{_LAST}" if after else ""
        while begin is not None and len(found) < limit:
            begin = self._some_conversations(begin, found, limit)
        return found

    def _some_conversations(self, begin: str, found: list[str], limit: int) -> str | None:
        """Add ids after a name. Returns the name to continue from, as soon as a page had only one conversation; None at
        the end.
        """
        for page in self._bucket.list("c", begin):
            named = (_OF_A_CONVERSATION.fullmatch(listed.key) for listed in page)
            ids = sorted({name[1] for name in named if name})
            for each in ids:
                if each not in found[-1:]:
                    found.append(each)
                    if len(found) == limit:
                        return None
            if len(ids) == 1:
                return f"c/{ids[0]}/{_LAST}"
        return None

    # ---- packs -----------------------------------------------------------------------------------------------------------

    def put_pack(self, id: str, first: int, last: int, data: bytes) -> None:
        """Put a pack if it is absent."""
        self._require_fit()
        self._bucket.create(f"c/{id}/p/{last:012}-{first:012}", data)

    def packs_from(self, id: str, slot: int) -> bool:
        """True if a pack holds this slot or a later one."""
        return bool(self._listed_packs(id, slot))

    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        """Remove slots, each with a request."""
        self._bucket.delete(_slot_key(id, slot) for slot in slots)

    def examined(self) -> tuple[list[Check], list[float]]:
        """Conditional writes, lists, removal, and how long a write takes; what is written is removed again."""
        from transcript_store.backends._checks import object_checks

        return object_checks(self._bucket)

    @property
    def identity(self) -> str:
        """A hash of the bucket's address and of its server's."""
        return self._bucket.identity

    @property
    def cells(self) -> KeyValueStore:
        """The cells of its snapshots."""
        return ObjectCells(self._bucket, self._require_fit)

    # ---- listings and deletion --------------------------------------------------------------------------------------------

    def put_summary(self, summary: StoredSummary) -> None:
        """Write the day's object, once, and the summary, unless one of a later slot is stored already, or ``expunge``
        came before.
        """
        self._require_fit()
        key, head = f"m/{summary.id}", {"updated_at": summary.updated_at, "slot": summary.slot}
        data = orjson.dumps(head) + b"\n" + summary.data
        for _ in range(_ROUNDS):
            there = self._bucket.get(key)
            if there is not None and _is_final(summary, there.data):
                return
            self._mark(
                summary.id, summary.updated_at[:10]
            )  # first: a summary without the day's object would be in no listing
            # Compare-and-swap: of two writers the one with the later slot wins, and expunge() wins over both.
            if self._bucket.create(key, data) if there is None else self._bucket.swap(key, data, there):
                return

    def _mark(self, id: str, day: str) -> None:
        if self._marked.get(id) != day:
            # Created once and never removed but by expunge(): a conversation is listed under the day of its summary.
            self._bucket.create(f"d/{day}/{id}", b"")
            self._marked[id] = day
            if len(self._marked) > _REMEMBERED:
                del self._marked[next(iter(self._marked))]

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        """The newest summaries after ``before``. Every summary of their days is read: one request each.

        Raises ``BackendError`` if a label is given: objects have no index of labels.
        """
        if label is not None:
            raise self._bucket.refused(
                "list by a label",
                "an object store has no index of labels: PostgreSQL has one, and so has the search index",
            )
        last = before[0][:10] if before else _LAST
        found: list[StoredSummary] = []
        for day in sorted((day for day in self._days() if day <= last), reverse=True):
            of_the_day: list[StoredSummary] = []
            for page in self._bucket.list(f"d/{day}"):
                ids = [listed.key.rpartition("/")[2] for listed in page]
                # If it is of a later day, it was listed already.
                is_due = (
                    each
                    for each in self._bucket.at_once(partial(self._summary, day), ids)
                    if each and each.updated_at[:10] == day
                )
                of_the_day += [each for each in is_due if before is None or (each.updated_at, each.id) < before]
                of_the_day = nlargest(limit, of_the_day, key=lambda each: (each.updated_at, each.id))
            found += of_the_day
            if len(found) >= limit:
                break
        return found[:limit]

    def _days(self) -> list[str]:
        return [day for day in self._bucket.folders("d") if _DAY.fullmatch(day)]

    def _summary(self, day: str, id: str) -> StoredSummary | None:
        """The summary; an empty one of that day if its writer stored the first slot but no summary (R11)."""
        if there := self._bucket.get(f"m/{id}"):
            return _as_summary(id, there.data)
        begun = self._bucket.get(_slot_key(id, 1))
        return StoredSummary(id, f"{day}T00:00:00.000000Z", 0, b"") if begun and begun.data else None

    def key(self, id: str) -> bytes | None:
        """The key file, if there is one."""
        there = self._bucket.get(f"k/{id}")
        return (there.data or None) if there else None

    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        """Replace the key file ``known``."""
        self._require_fit()
        name = f"k/{id}"
        if known is None:
            return self._bucket.create(name, data)
        # Read again for the version that swap() compares.
        there = self._bucket.get(name)
        return there is not None and there.data == known and self._bucket.swap(name, data, there)

    def expunge(self, id: str, keep: int) -> None:
        """Empty the summary, remove the days' objects, then empty the key, slots and packs.

        Their names stay: a stalled writer must find them taken, and a late summary must find the empty one, also if
        there was none.
        """
        # First: from here on no summary is accepted, and a day's object that is left shows nothing.
        self._bucket.replace(f"m/{id}", b"")
        self._bucket.delete(f"d/{day}/{id}" for day in self._days())
        self._marked.pop(id, None)
        full = [listed for page in self._bucket.list(f"c/{id}") for listed in page if listed.size]
        firsts = [(listed.key, _PACK.fullmatch(listed.key), _SLOT.fullmatch(listed.key)) for listed in full]
        below = [key for key, pack, slot in firsts if (pack and int(pack[2]) < keep) or (slot and int(slot[1]) < keep)]
        keys = [f"k/{id}"] if self.key(id) else []
        # Emptied, not deleted: a stalled writer's put-if-absent must fail.
        self._bucket.at_once(lambda key: self._bucket.replace(key, b""), [*keys, *below])

    # ---- names -----------------------------------------------------------------------------------------------------------

    def _listed(self, folder: str, after: str) -> list[ListedObject]:
        """The objects that are not empty: expunged ones have only a name."""
        return [listed for page in self._bucket.list(folder, after) for listed in page if listed.size]

    def _listed_slots(self, id: str, after: int) -> list[tuple[ListedObject, int]]:
        """The single slots after this one, each with its number."""
        named = [(listed, _SLOT.fullmatch(listed.key)) for listed in self._listed(f"c/{id}/s", f"c/{id}/s/{after:012}")]
        return [(listed, int(name[1])) for listed, name in named if name]

    def _listed_packs(self, id: str, slot: int) -> list[tuple[ListedObject, int, int]]:
        """The packs that hold this slot or a later one, each with the first and the last of its slots."""
        found = self._listed(f"c/{id}/p", f"c/{id}/p/{slot - 1:012}-{_LAST}")
        named = [(listed, _PACK.fullmatch(listed.key)) for listed in found]
        return [(listed, int(name[2]), int(name[1])) for listed, name in named if name]

    # ---- the server ------------------------------------------------------------------------------------------------------

    def _require_fit(self) -> None:
        """R12: refuse a server that ignores conditions, before any real data is written."""
        if self._is_fit:
            return
        for _ in range(_ROUNDS):
            key = f"probe/{secrets.token_hex(16)}"
            if self._bucket.create(key, b"1"):  # otherwise its state is unknown: another name is used
                # Some S3-compatible servers accept `If-None-Match` and ignore it: then two writers could both store
                # one slot.
                is_kept = not self._bucket.create(key, b"2")
                with suppress(
                    BackendError, OutcomeUnknownError
                ):  # a user without the right to remove may write all the same
                    self._bucket.delete([key])
                if not is_kept:
                    raise UnsuitableBackendError(path=self.name, doing="write to the backend")
                self._is_fit = True
                return
        raise OutcomeUnknownError("the object store reports every new name as taken")


def _slot_key(id: str, slot: int) -> str:
    return f"c/{id}/s/{slot:012}"


def _is_final(summary: StoredSummary, there: bytes) -> bool:
    """True if the existing summary stays: it is of a later slot, or the empty one that ``expunge`` leaves."""
    kept = _as_summary(summary.id, there)
    return not there or (kept is not None and kept.slot > summary.slot)


def _as_summary(id: str, data: bytes) -> StoredSummary | None:
    """Decode a summary. None if these bytes are not one of ours; those that ``expunge`` leaves are empty."""
    head, _, rest = data.partition(b"\n")
    try:
        members = orjson.loads(head)
        at, slot = members["updated_at"], members["slot"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return StoredSummary(id, at, slot, rest) if is_time(at) and type(slot) is int else None


def _reach(packs: list[tuple[ListedObject, int, int]], last: int) -> int:
    """The last slot up to which packs hold every slot behind ``last``."""
    for _, first, end in sorted(packs, key=lambda pack: pack[1]):
        if first <= last + 1:
            last = max(last, end)
    return last


def _uncovered(packs: list[tuple[ListedObject, int, int]]) -> list[tuple[ListedObject, int, int]]:
    """Those packs that no other one holds whole."""
    kept: list[tuple[ListedObject, int, int]] = []
    for pack in sorted(packs, key=lambda pack: (pack[1], -pack[2])):
        if not kept or pack[2] > kept[-1][2]:
            kept.append(pack)
    return kept
