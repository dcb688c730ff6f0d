"""Lines that name the line before them: the conversation is the way from the last line to its root, cut where it was compacted.

A reader interprets the lines; this module links them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from transcript_store.formats._lines import KeptLines
from transcript_store.formats._members import Json
from transcript_store.formats._plan import ImportFinding, PlannedRecord, Source
from transcript_store.formats._replay import Replay
from transcript_store.formats._trees import Segment, TreeMessage, left_finding, planned_records, way_through


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
    kind: str = ""
    """By which :meth:`Chain.generations` joins a line to the message before it."""
    is_aside: bool = False
    """True if it never is the last line of the conversation."""


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
        positions = {link.id: at for at, link in enumerate(self.way, 1)}
        for at, link in enumerate(self.way):
            if link.begins:
                kept = self.way[positions.get(link.kept_behind, at) : at] if link.kept_behind else []
                taken = [TreeMessage([one]) for one in kept if one.says and not one.begins]
                found.append(Segment(max(link.place, found[-1].begins), taken_over=taken, taken_at=1))
            said = found[-1].said
            lines = [one for one in (link, *self.more.get(link.id, ())) if one.says]
            if lines and said and (said[-1].nodes[-1].kind, link.kind) in joined:
                said[-1].nodes += lines
            elif lines:
                said.append(TreeMessage(lines))
        there = self.places()
        beside = (one for link in self.links for one in (link, *self.more.get(link.id, ())))
        left = {one.place: one for one in beside if one.says and one.place not in there}
        generations = planned_records(self.lines, found, range(len(self.lines)), made, left)
        return Replay(generations, (*self.findings, *left_finding(len(left))))


def chain_of(source: Source, link_of: Callable[[int, Json], Link | None]) -> Chain:
    """Read every line once. ``link_of`` returns a line's link; None for a line outside the chain."""
    chain = Chain(KeptLines(source))
    by_id: dict[str, Link] = {}
    for place, line in enumerate(chain.lines.read()):
        chain.first = chain.first or hashlib.sha256(line.raw).hexdigest()
        link = None if line.value is None else link_of(place, line.value)
        if link is None:
            continue
        if (parent := by_id.get(link.parent)) is not None:
            link.parent = parent.id  # one object for each id, however many lines have it
        if link.id and link.id in by_id:
            chain.more[link.id].append(link)
            continue
        chain.links.append(link)
        if link.id:
            by_id[link.id] = link
    may_be_last: Sequence[Link] = [link for link in chain.links if not link.is_aside] or chain.links
    if may_be_last:
        chain.way = way_through(may_be_last, by_id, may_be_last[-1], chain.lines, chain.findings)
    return chain
