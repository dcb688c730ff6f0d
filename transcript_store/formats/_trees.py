"""What the formats whose entries name their parents have in common: the way from a leaf to its root, and its generations."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from transcript_store.conversation import Record
from transcript_store.formats._lines import KeptLines, object_on
from transcript_store.formats._members import Json
from transcript_store.formats._packing import pack_line, unpack_line
from transcript_store.formats._plan import ImportFinding, PlannedRecord, Source
from transcript_store.formats._replay import Draft, Replay, left_finding
from transcript_store.messages import left_of

# ---- left ----
#
# Messages on a branch that the conversation left: events keep them, so that they can be shown, found and exported.
#
# Such an event has ``extra.left_branch``: the ``message`` in its provider's form, and what belongs to it beside (model, usage,
# scaffolding).


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


# ---- chain ----
#
# Lines that name the line before them: the conversation is the way from the last line to its root, cut where it was compacted.
#
# A reader interprets the lines; this module links them.


@dataclass(slots=True)
class Link:
    """A line of the chain."""

    place: int
    id: str
    parent: str
    """Empty at a root."""
    says: bool = True
    """True if a model is sent it."""
    begins: bool = False
    """True if a compaction starts here: a model receives only what follows."""
    kept_behind: str = ""
    """In a compaction: the id of the last line that it dropped; empty if it kept no earlier line."""
    kept_from: str | int = ""
    """In a compaction: the id, or the place, of the first line that it kept; empty if no line is named."""
    kind: str = ""
    """By which :meth:`Chain.generations` joins a line to the message before it."""


@dataclass(slots=True)
class Chain:
    """The links of a file, and the way from its last one to the root."""

    lines: KeptLines
    links: list[Link] = field(default_factory=list)
    more: dict[str, list[Link]] = field(default_factory=lambda: defaultdict(list))
    """Further lines of an id: they are one message."""
    findings: list[ImportFinding] = field(default_factory=list)
    first: str = ""
    """The SHA-256 of the first line."""
    way: list[Link] = field(default_factory=list)

    def places(self) -> set[int]:
        """The places of the lines on the path."""
        return {one.place for link in self.way for one in (link, *self.more.get(link.id, ()))}

    def generations(
        self,
        made: Callable[[TreeMessage[Link], bool], Iterable[PlannedRecord]],
        joined: Container[tuple[str, str]] = (),
    ) -> Replay:
        """The records of each generation. ``made`` takes the lines of a message, and True if they were taken over.

        ``joined`` are pairs of kinds: a line of the second kind joins the message of a line of the first kind before it. A message
        beside the path becomes an event that keeps it, and a finding counts these.
        """
        found: list[Segment[Link]] = [Segment(begins=0)]
        positions: dict[str | int, int] = {}  # on the way: by a line's id, and by its place
        for at, link in enumerate(self.way):
            if link.begins:
                kept = self.way[self._first_kept(link, positions) : at]
                taken = [TreeMessage([one]) for one in kept if one.says and not one.begins]
                found.append(Segment(max(link.place, found[-1].begins), taken_over=taken, taken_at=1))
            said = found[-1].said
            lines = [one for one in (link, *self.more.get(link.id, ())) if one.says]
            if lines and said and (said[-1].nodes[-1].kind, link.kind) in joined:
                said[-1].nodes += lines
            elif lines:
                said.append(TreeMessage(lines))
            positions[link.place] = at
            if link.id:
                positions[link.id] = at
        there = self.places()
        beside = (one for link in self.links for one in (link, *self.more.get(link.id, ())))
        left = {one.place: one for one in beside if one.says and one.place not in there}
        generations = planned_records(self.lines, found, range(len(self.lines)), made, left)
        return Replay(generations, (*self.findings, *left_finding(len(left))))

    def _first_kept(self, compaction: Link, positions: Mapping[str | int, int]) -> int:
        """The index on the way of the first line that a compaction kept; past the end if it kept none."""
        if compaction.kept_behind in positions:
            return positions[compaction.kept_behind] + 1
        if compaction.kept_from in positions:
            return positions[compaction.kept_from]
        if compaction.kept_from != "":
            lost = "the lines that this compaction kept are not before it: nothing was taken over"
            self.findings.append(self.lines.finding("kept-missing", lost, compaction.place))
        return len(self.way)


def chain_of(source: Source, link_of: Callable[[int, Json], Link | None], *, last_counts: bool = False) -> Chain:
    """Read every line once. ``link_of`` returns a line's link; None for a line outside the chain.

    With ``last_counts`` a later line of the same id replaces the earlier one, and where lines have ids one without is never a parent
    or the last line. Else all lines of an id are one message.
    """
    chain = Chain(KeptLines(source))
    by_id: dict[str, Link] = {}
    for place, line in enumerate(chain.lines.read()):
        chain.first = chain.first or hashlib.sha256(line.raw).hexdigest()
        link = None if line.value is None else link_of(place, line.value)
        if link is None:
            continue
        if (parent := by_id.get(link.parent)) is not None:
            link.parent = parent.id  # one object for each id, however many lines have it
        if link.id in by_id and last_counts:
            why = "the id of an earlier entry: the last one counts"
            chain.findings.append(chain.lines.finding("duplicate-id", why, place))
        elif link.id in by_id:
            chain.more[link.id].append(link)
            continue
        chain.links.append(link)
        if link.id:
            by_id[link.id] = link
    if last_counts and by_id:
        chain.links = [link for link in chain.links if by_id.get(link.id) is link]
    if chain.links:
        chain.way = way_through(chain.links, by_id, chain.links[-1], chain.lines, chain.findings)
    return chain
