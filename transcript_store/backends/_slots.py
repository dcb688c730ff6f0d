"""Slots, and the state after a log of slots. Nothing here does I/O.

::

    slot     := envelope LF lines
    envelope := {"slot":N,"epoch":E,"kind":K,"at":TIME,"seq":S,"offset":O,"head":H,"bytes":B[,…],"hash":HASH}
    K        := generation | claim | append | metadata | release | deleted
    lines    := B bytes: whole lines of transcript.jsonl, each with its LF

==========  ======================================  ==========================================================
kind        more members                            lines
==========  ======================================  ==========================================================
generation  ``token``, ``holder`` in slot 1 alone   the header of the generation, and the records it begins with
claim       ``token``, ``holder``                   none
append      none                                    the records of one batch
metadata    ``metadata``                            none
release     none                                    none
deleted     none                                    none
==========  ======================================  ==========================================================

Of a sealed conversation, ``generation``, ``metadata`` and ``release`` have a keyed ``check``: that of metadata.json
(``_conversation/metadata``) with the mark after this slot. ``metadata`` is stored as in metadata.json: the plaintext
members, and the others sealed.

``hash`` is that of a line of a transcript (``_log/record``), chained over the envelope of the slot before. ``seq``,
``offset`` and ``head`` say where the transcript ends after the slot, and ``head`` vouches for the lines. The lines
since the last ``generation``, joined, are a transcript.jsonl, byte for byte.

Invariants, which the tests name:

C1  A slot is applied only after the slot whose hash it is chained to. So two readers that applied slot n applied the
    same n slots.
C2  An epoch starts with a claim (slot 1 is one), whose number is one more than the last. All slots up to the next claim
    are of that epoch.
C3  The writer of slot n + 1 has applied slot n.

Together: between a writer's last slot and its next one only a claim can come, and the claim is the fence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store._conversation.metadata import problem_with_members
from transcript_store._json.times import is_time
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import (
    GENESIS,
    HASH_MEMBER,
    SUFFIX_BYTES,
    Mark,
    Position,
    body_batch,
    chain_hash,
    close_line,
)
from transcript_store._log.scan import PIECE_BYTES, scan
from transcript_store._sealing.data_key import CHECK_BYTES
from transcript_store.backends._backend import SlotRange

Kind = Literal["generation", "claim", "append", "metadata", "release", "deleted"]
KINDS: tuple[Kind, ...] = ("generation", "claim", "append", "metadata", "release", "deleted")

_LENGTH = re.compile(
    rb'\{"slot":\d+,"epoch":\d+,"kind":"[^"]*","at":"[^"]*","seq":\d+,"offset":\d+,"head":"[0-9a-f]*","bytes":(\d+),'
)
"""The start of an envelope. Packs are split by it; each part is verified as a slot is."""
_TIME_BYTES = 27
_new = tuple.__new__
"""Makes a named tuple in a third of the time: a load makes three for each slot."""

START = Position(0, 0, GENESIS)
"""The end of a transcript that has not started."""


class NotASlotError(Exception):
    """These bytes are not the next slot. ``kind`` is one of those of docs/format.md, or ``version``."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Claim(NamedTuple):
    """The current claim: the one that no other follows."""

    epoch: int
    token: str
    """32 random hex digits."""
    holder: dict[str, Any]
    at: str


class Slot(NamedTuple):
    """An applied slot."""

    number: int
    kind: Kind
    epoch: int
    data: bytes
    after: LogState
    """The state of the log with it."""


class LogState(NamedTuple):
    """The state after the slots up to ``slot``, without the messages. It starts with no slot."""

    conversation: str
    slot: int = 0
    hash: bytes = GENESIS
    """The hash of the last slot's envelope."""
    at: str = ""
    """When the last slot was written, by its writer's clock."""
    claim: Claim | None = None
    is_released: bool = False
    is_deleted: bool = False
    generation: int = 0
    members: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """The metadata."""
    end: Position = START
    """Where the transcript of the live generation ends."""
    is_sealed: bool = False
    """True if the live generation is sealed."""
    sealed_members: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """The metadata that the last sealed generation started with, whatever followed it."""
    checked: tuple[Mark, bytes] | None = None
    """If it is: the last keyed check, of the metadata and this mark. None if the current metadata was written without
    the key.
    """

    @property
    def epoch(self) -> int:
        """The number of the claim; 0 before the first."""
        return self.claim.epoch if self.claim else 0


def encoded(
    state: LogState, kind: Kind, at: str, *, lines: bytes = b"", end: Position | None = None, **more: Any
) -> bytes:
    """The slot that follows: ``lines`` lead the transcript to ``end``. A ``token`` among ``more`` starts an epoch."""
    seq, offset, head = end or state.end
    members = {
        "slot": state.slot + 1,
        "epoch": state.epoch + ("token" in more),
        "kind": kind,
        "at": at,
        "seq": seq,
        "offset": offset,
        "head": head.decode(),
        "bytes": len(lines),
        **more,
    }
    envelope, _ = close_line(state.hash, orjson.dumps(members)[:-1])
    return envelope + lines


def taken_in(state: LogState, data: bytes) -> tuple[LogState, Slot]:
    """Apply a slot: returns the new state and the slot; raises ``NotASlotError`` if it is not the next one."""
    envelope, members = _envelope(data)
    if chain_hash(state.hash, [envelope[:-SUFFIX_BYTES]]) != slot_hash(data):
        raise NotASlotError("damaged-line", f"slot {state.slot + 1} does not follow the slot before it")
    # From here on the bytes come from a writer of ours: a hash vouches for them. Remaining causes are another version,
    # or a bug.
    lines = data[len(envelope) + 1 :]
    if members.get("kind") not in KINDS:
        raise NotASlotError("version", f"slot {state.slot + 1} is of the kind {members.get('kind')!r:.40}")
    if len(lines) != members.get("bytes"):
        raise NotASlotError(
            "damaged-line", f"slot {state.slot + 1} holds {len(lines):,} bytes of lines, and says otherwise"
        )
    begins = "token" in members
    if (
        state.is_deleted
        or (members.get("slot"), members.get("epoch")) != (state.slot + 1, state.epoch + begins)
        or begins != (members["kind"] == "claim" or state.slot == 0)
        or (state.slot == 0) > (members["kind"] == "generation")
        or not is_time(members.get("at"))
    ):
        raise NotASlotError("rewritten", f"slot {state.slot + 1} is not allowed at this position")
    facts = _content(state, members, lines)
    if begins:
        facts["claim"] = Claim(
            members["epoch"], str(members["token"]), dict(members.get("holder") or {}), members["at"]
        )
    end: Position = facts.get("end", state.end)
    if (members.get("seq"), members.get("offset"), members.get("head")) != (*end[:2], end.head.decode()):
        raise NotASlotError("damaged-line", f"the lines of slot {state.slot + 1} do not lead to where it says")
    check = members.get("check")
    if type(check) is str and len(check) == CHECK_BYTES and check.isascii():
        facts["checked"] = Mark(facts.get("generation", state.generation), end), check.encode()
    elif members["kind"] in ("generation", "metadata"):
        facts["checked"] = None
    after = state._replace(slot=state.slot + 1, hash=slot_hash(data), at=members["at"], **facts)
    return after, Slot(after.slot, members["kind"], members["epoch"], data, after)


def _content(state: LogState, members: dict[str, Any], lines: bytes) -> dict[str, Any]:
    """The changes of a state by the content of the next slot."""
    kind, slot = members["kind"], state.slot + 1
    if kind == "generation":
        found = read_header(lines)
        if isinstance(found, NotAHeader):
            raise NotASlotError("version" if found.version is not None else found.kind, found.reason)
        header, begin = found
        if header.conversation != state.conversation:
            raise NotASlotError("wrong-conversation", f"slot {slot} is of the conversation {header.conversation}")
        # A shipped copy may lack earlier generations: they were deleted from the folder's archive before.
        if slot > 1 and header.generation <= state.generation:
            raise NotASlotError("wrong-generation", f"slot {slot} begins generation {header.generation}")
        if (problem := problem_with_members(header.metadata)) is not None:
            raise NotASlotError("damaged-header", f"the header is whole, but {problem}")
        end = _verified(lines[begin.offset_bytes :], begin)
        return {
            "generation": header.generation,
            "members": header.metadata,
            "end": end,
            "is_sealed": header.is_sealed,
            "sealed_members": header.metadata if header.is_sealed else state.sealed_members,
        }
    if kind == "append":
        return {"end": _verified(lines, state.end)}
    if kind == "metadata":
        metadata = members.get("metadata")
        if (
            not isinstance(metadata, dict)
            or problem_with_members(metadata) is not None
            or (metadata["id"], metadata["generation"]) != (state.conversation, state.generation)
        ):
            raise NotASlotError("damaged", f"the metadata of slot {slot} is not that of the conversation")
        return {"members": metadata}
    return {"is_released": kind == "release", "is_deleted": kind == "deleted"}


def _verified(lines: bytes, begin: Position) -> Position:
    end = scan(lines, begin).end
    if end.offset_bytes != begin.offset_bytes + len(lines):
        raise NotASlotError("damaged-line", f"the line after record {end.seq} does not verify")
    return end


# ---- bytes --------------------------------------------------------------------------------------------------------------


def slot_hash(data: bytes) -> bytes:
    """The hash in an envelope, as stored."""
    end = data.find(b"\n")
    return data[end - 34 : end - 2]


def slot_lines(data: bytes) -> bytes:
    """The lines after an envelope."""
    return data[data.index(b"\n") + 1 :]


def _envelope(data: bytes) -> tuple[bytes, dict[str, Any]]:
    end = data.find(b"\n")
    envelope = data[: max(end, 0)]
    try:
        members = orjson.loads(envelope)
    except orjson.JSONDecodeError:
        members = None
    if type(members) is not dict or not envelope.startswith(b'{"slot":') or envelope[-43:-34] != HASH_MEMBER:
        raise NotASlotError("foreign", "these bytes are not a slot of this format")
    return envelope, members


def split(piece: SlotRange) -> Iterator[tuple[int, bytes]]:
    """The slots in a range of bytes, each with its number. Only their lengths are verified."""
    if not piece.is_pack:
        yield piece.first, piece.data
        return
    start = 0
    for slot in range(piece.first, piece.last + 1):
        end, found = piece.data.find(b"\n", start), _LENGTH.match(piece.data, start)
        if end < 0 or found is None:
            raise NotASlotError("damaged-line", f"slot {slot} in a pack has no length")
        stop = end + 1 + int(found[1])
        yield slot, piece.data[start:stop]
        start = stop
    if start != len(piece.data):
        raise NotASlotError("damaged-line", f"the pack of slots {piece.first} to {piece.last} has another length")


def flattened(pieces: Sequence[SlotRange], after: int) -> list[tuple[int, bytes]]:
    """The slots after ``after`` in these ranges, in order.

    A pack contains verified slots. So it wins over a single slot with the same number, which a late writer may have put
    under a freed name.
    """
    found: dict[int, bytes] = {}
    for piece in sorted(pieces, key=lambda piece: (not piece.is_pack, piece.first, -piece.last)):
        for slot, data in split(piece):
            if slot > after:
                found.setdefault(slot, data)
    return sorted(found.items())


def is_expunged(state: LogState, slots: Sequence[tuple[int, bytes]]) -> bool:
    """True if slots are the rest of a deleted conversation: some are missing, and the last one is ``deleted``.

    Nothing vouches for that slot any more, and it is not applied. ``slots`` are those from the last of ``state`` on.
    """
    if not slots:
        return False
    number, data = slots[-1]
    first = max(state.slot, 1)
    if number == first + len(slots) - 1 and slots[0][0] == first:
        return False
    try:
        _, members = _envelope(data)
    except NotASlotError:
        return False
    return members.get("kind") == "deleted" and members.get("slot") == number


def all_taken_in(state: LogState, slots: Iterable[tuple[int, bytes]]) -> tuple[LogState, list[Slot]]:
    """Apply these slots: returns the new state and the slots. A slot that is missing between others is damage."""
    due, taken = [*slots], list[Slot]()
    while len(taken) < len(due):
        number, data = due[len(taken)]
        if number != state.slot + 1:
            raise NotASlotError("missing", f"slot {state.slot + 1} is missing, but slot {number} exists")
        found = _appends(state, due, len(taken)) or [taken_in(state, data)[1]]
        taken += found
        state = found[-1].after
    return state, taken


def _appends(state: LogState, slots: Sequence[tuple[int, bytes]], first: int) -> list[Slot]:
    """The appends from the index ``first`` on, as :func:`taken_in` takes in each of them; none if they must be applied
    one by one.

    Most slots are appends, and everything in one except the time follows from the state and its lines. So no envelope
    is decoded, and the lines of many are verified at once: a third of the time.
    """
    found, joined, now = list[Slot](), bytearray(), state
    for index in range(first, len(slots)):
        number, data = slots[index]
        feed = data.find(b"\n")
        begin = b'{"slot":%d,"epoch":%d,"kind":"append","at":"' % (now.slot + 1, now.epoch)
        said_at = len(begin) + _TIME_BYTES
        at, lines = data[len(begin) : said_at].decode("ascii", "replace"), data[feed + 1 :]
        # Where it must say that the transcript ends. The scan of all lines checks that they lead there.
        seq, offset, _ = now.end
        end = _new(Position, (seq + lines.count(b"\n"), offset + len(lines), lines[-35:-3]))
        chained = chain_hash(now.hash, (data[: max(feed - SUFFIX_BYTES, 0)],))
        says = b'","seq":%d,"offset":%d,"head":"%b","bytes":%d,"hash":"%b"}' % (*end, len(lines), chained)
        if (
            (number, data[said_at:feed]) != (now.slot + 1, says)
            or not data.startswith(begin)
            or not (is_time(at) and at[10:11] == "T")
            or not lines.endswith(b"\n")
            or now.is_deleted
            or len(joined) > PIECE_BYTES
            or not _is_closed(lines)
        ):
            break
        now = _new(LogState, (now.conversation, number, chained, at, *now[4:9], end, *now[10:]))
        found.append(_new(Slot, (number, "append", now.epoch, data, now)))
        joined += lines
    # Up to where the lines verify: after the first that does not, each slot is applied by itself, which reports what is
    # wrong with it.
    verified = scan(joined, state.end).end.offset_bytes
    return [slot for slot in found if slot.after.end.offset_bytes <= verified]


def _is_closed(lines: bytes) -> bool:
    """True if the last line ends an append: a batch is in one slot."""
    batch = body_batch(lines, 0, len(lines) - SUFFIX_BYTES - 1)
    return batch.k == batch.n
