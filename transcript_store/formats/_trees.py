"""What the formats whose entries name their parents have in common: the way from a leaf to its root, and its generations."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from transcript_store.conversation import Record
from transcript_store.formats._lines import KeptLines, object_on
from transcript_store.formats._packing import pack_line, unpack_line
from transcript_store.formats._plan import ImportFinding, PlannedRecord
from transcript_store.formats._replay import Draft
from transcript_store.messages import left_of

# ---- left ----
#
# Messages on a branch that the conversation left: events keep them, so that they can be shown, found and exported.
#
# Such an event has ``extra.left_branch``: the ``message`` in its provider's form, and what belongs to it beside (model, usage,
# scaffolding).


def left_finding(count: int) -> list[ImportFinding]:
    """The finding about messages on branches that the conversation left."""
    if not count:
        return []
    said = "1 message is on a branch" if count == 1 else f"{count:,} messages are on branches"
    return [ImportFinding("left-branch", f"{said} that the conversation left: kept beside it, and shown by --branches")]


def left_entry(entry: PlannedRecord) -> PlannedRecord:
    """The event for a message on a branch that was left: it keeps the message, and its lines unchanged."""
    if entry.message is None:
        return entry
    source = entry.extra.get("source", {})
    lines = [
        pack_line(line["n"], raw, object_on(raw), part=line.get("part", 0))
        for line in source.get("lines", ())
        for raw in (unpack_line(line, entry.message),)
    ]
    about = {name: value for name, value in entry.extra.items() if name != "source"}
    left = {"left_branch": {**about, "message": entry.message}}
    return PlannedRecord(None, {**left, "source": {**source, "lines": lines}}, entry.at, entry.lines)


def left_draft(draft: Draft) -> Draft:
    """As :func:`left_entry`, for a message that is not packed yet."""
    if draft.message is None:
        return draft
    return Draft(None, {"left_branch": {**draft.extra, "message": draft.message}}, draft.at, draft.lines)


def with_branches(records: Iterable[Record]) -> Iterator[Record]:
    """The records; what events keep of branches that the conversation left are messages, with ``extra.left_branch`` True."""
    for record in records:
        left = left_of(record.extra) if record.message is None else None
        yield record if left is None else replace(record, message=left[0], extra={**left[1], "left_branch": True})


# ---- trees ----


class Placed(Protocol):
    """A line of a tree."""

    @property
    def place(self) -> int:
        """Among the pieces of the source."""

    @property
    def id(self) -> str: ...

    @property
    def parent(self) -> str:
        """Empty at a root."""


NodeT = TypeVar("NodeT", bound=Placed)


@dataclass(slots=True)
class TreeMessage(Generic[NodeT]):
    """A message: the lines that it was made of."""

    nodes: list[NodeT]


@dataclass(slots=True)
class Segment(Generic[NodeT]):
    """The messages between two compactions."""

    begins: int
    """Events from this place on are its own. Never less than in the generation before."""
    said: list[TreeMessage[NodeT]] = field(default_factory=list)
    taken_over: list[TreeMessage[NodeT]] = field(default_factory=list)
    """The messages kept from earlier generations, which account for their lines."""
    taken_at: int = 0
    """The number of messages before those taken over."""


def way_to(
    leaf: NodeT, by_id: Mapping[str, NodeT], before: Sequence[NodeT], lines: KeptLines, findings: list[ImportFinding]
) -> list[NodeT]:
    """The path from the root to a leaf. If a parent is missing, the line before replaces it, and a finding reports that.

    ``before`` are the candidates, in the order of the source.
    """
    way: list[NodeT] = []
    seen: set[int] = set()
    node: NodeT | None = leaf
    while node is not None:
        seen.add(node.place)
        way.append(node)
        if not node.parent:
            break
        parent = by_id.get(node.parent)
        if parent is None:
            at = bisect_left(before, node.place, key=attrgetter("place")) - 1
            while at >= 0 and before[at].place in seen:
                at -= 1
            parent = before[at] if at >= 0 else None
            why = "it follows the line before it" if parent is not None else "the conversation starts here"
            findings.append(lines.finding("dangling-parent", f"its parent is not in this file: {why}", node.place))
        elif parent.place in seen:
            why = "its parent is one of its descendants: the conversation starts here"
            findings.append(lines.finding("cycle", why, node.place))
            parent = None
        node = parent
    return way[::-1]


def way_through(
    nodes: Sequence[NodeT], by_id: Mapping[str, NodeT], leaf: NodeT, lines: KeptLines, findings: list[ImportFinding]
) -> list[NodeT]:
    """The path from the root to a leaf among these nodes; all of them in order if none has a parent here."""
    ids = {node.id for node in nodes if node.id}
    if any(node.parent in ids for node in nodes):
        return way_to(leaf, by_id, nodes, lines, findings)
    why = "its parent is not in this file, and no line here has one that is: the order of the lines counts"
    findings += [lines.finding("dangling-parent", why, node.place) for node in nodes if node.parent]
    return list(nodes)


def planned_records(
    lines: KeptLines,
    generations: Sequence[Segment[NodeT]],
    places: Iterable[int],
    made: Callable[[TreeMessage[NodeT], bool], Iterable[PlannedRecord]],
    left: Mapping[int, NodeT],
) -> tuple[Callable[[], Iterator[PlannedRecord]], ...]:
    """The records of each generation: messages in the order of the conversation, events in the order of the source.

    ``places`` are those that the plan accounts for, in order. ``made`` makes a message, and gets True if it was taken over: then it
    has no lines. ``left`` has the messages of branches that were left, by place: they become events.
    """
    used = {node.place for generation in generations for said in generation.said for node in said.nodes}
    events = array("q", (place for place in places if place not in used))
    cuts = [0, *(bisect_left(events, generation.begins) for generation in generations[1:]), len(events)]
    return tuple(
        partial(_entries, lines, generation, events, range(*cut), made, left)
        for generation, cut in zip(generations, pairwise(cuts), strict=True)
    )


def _entries(
    lines: KeptLines,
    generation: Segment[NodeT],
    events: Sequence[int],
    own: range,
    made: Callable[[TreeMessage[NodeT], bool], Iterable[PlannedRecord]],
    left: Mapping[int, NodeT],
) -> Iterator[PlannedRecord]:
    def event(place: int) -> Iterator[PlannedRecord]:
        node = left.get(place)
        return lines.event(place) if node is None else map(left_entry, made(TreeMessage([node]), False))

    next_event = own.start
    for at, said in enumerate(generation.said):
        while next_event < own.stop and events[next_event] < said.nodes[0].place:
            yield from event(events[next_event])
            next_event += 1
        if at == generation.taken_at:
            for kept in generation.taken_over:
                yield from made(kept, True)
        yield from made(said, False)
    if generation.taken_at >= len(generation.said):
        for kept in generation.taken_over:
            yield from made(kept, True)
    for number in range(next_event, own.stop):
        yield from event(events[number])
