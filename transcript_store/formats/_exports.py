"""What the exports of chat sites have in common: one document with all conversations, each a tree of messages.

The way from the root to the leaf that was seen last is the conversation. What is beside it was answered anew, or asked otherwise:
those messages are events that keep what was said. A line of such a format is one message of the tree with its bytes; the first line
of a conversation is what stands before its messages: its name, its times.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from transcript_store.formats._attached import AttachedFiles
from transcript_store.formats._blocks import Losses
from transcript_store.formats._document import (
    LONGEST_BYTES,
    TOO_DEEP,
    Oddity,
    Span,
    is_too_deep,
    objects_of,
    pieces_within,
    read_all,
    read_object,
)
from transcript_store.formats._generations import Draft
from transcript_store.formats._left import left_entry, left_finding
from transcript_store.formats._lines import Line
from transcript_store.formats._members import Json, labels, obj, text, time_of_member
from transcript_store.formats._plan import Entry, Finding, Head, Plan, Source

_LONGEST_GAP_BYTES = 1 << 16
_NOTHING = b"\xef\xbb\xbf \t\r\n,[]"
"""What stands between conversations."""


@dataclass(frozen=True, slots=True)
class Node:
    """A message of the tree."""

    id: str
    parent: str | None
    value: Json


class Export(ABC):
    """Reads the conversations of one site's export."""

    name: str
    provider: str
    member: str
    """Of a conversation: what its messages stand in."""
    in_order = False
    """Whether they stand there as they were said, so that one may follow the one before it where its parent is not there."""

    @abstractmethod
    def recognizes(self, head: Head) -> bool:
        """Whether a source that begins so is of this site."""

    @abstractmethod
    def session(self, conversation: Json) -> str | None:
        """Its id."""

    @abstractmethod
    def nodes(self, conversation: Json) -> list[Node]:
        """A node for each object in ``member``, in the order of the document."""

    @abstractmethod
    def leaf(self, conversation: Json, nodes: list[Node]) -> str | None:
        """Where the conversation ends; None if its messages are no tree, but stand in order."""

    @abstractmethod
    def times(self, conversation: Json, nodes: list[Node]) -> tuple[object, Iterable[object]]:
        """When the conversation last changed, and when its messages were said, as they stand there."""

    @abstractmethod
    def told(self, path: list[Node], losses: Losses, files: AttachedFiles) -> list[list[Draft]]:
        """For each node its messages; none if it is an event."""

    @abstractmethod
    def model(self, conversation: Json, path: list[Node]) -> str | None:
        """Which model answered last."""

    def title(self, conversation: Json) -> str | None:
        return text(conversation.get("name"))

    def plans(self, source: Source) -> Iterable[Plan]:
        spans = list(objects_of(source))
        beside, files = tuple(_beside(source, spans)), AttachedFiles(source)
        for span in spans:
            plan = self._plan(source, files, span, Span(0, source.size) if len(spans) == 1 else span)
            yield replace(plan, findings=(*plan.findings, *beside)) if beside and span is spans[-1] else plan

    def _plan(self, source: Source, files: AttachedFiles, span: Span, whole: Span) -> Plan:
        """The conversation at ``span``. ``whole`` is what its lines have: of an only one the document with its brackets."""
        if span.size > LONGEST_BYTES:
            message = f"a conversation longer than {LONGEST_BYTES:,} bytes was left out"
            session = hashlib.sha256(read_all(source, Span(span.offset, 1 << 20))).hexdigest()
            return Plan(self.name, session, 1, (tuple,), findings=(Finding("too-long", message, 1, span.offset),))
        read = self._read(source, span, whole)
        if read is None:
            raw = read_all(source, span)
            kind, message = (
                ("too-deep", f"a conversation that is {TOO_DEEP}")
                if is_too_deep(raw)
                else (
                    "not-json",
                    "a conversation that is no JSON object, is cut, or has a member twice: its bytes are kept",
                )
            )
            finding = Finding(kind, message, 1, span.offset)
            session = hashlib.sha256(raw).hexdigest()
            return Plan(self.name, session, 1, (partial(_unread, source, whole),), findings=(finding,))
        conversation, lines, nodes, odd = read
        path, findings = _path(nodes, self.leaf(conversation, nodes), in_order=self.in_order)
        if not isinstance(conversation.get(self.member), (dict, list)):
            findings.append(
                (
                    "no-messages",
                    f"an object without {self.member}: its bytes are kept, and it has no message; a conversation that stands deeper "
                    "in the document is read if it is taken out into a file of its own",
                )
            )
        findings += odd
        losses = Losses()
        said = sum(len(drafts) for drafts in self.told(path, losses, files))
        on_the_way = set(map(id, path))
        left = sum(len(self._left(node, files)) for node in nodes if id(node) not in on_the_way)
        return Plan(
            format=self.name,
            session=self.session(conversation) or hashlib.sha256(lines[0].raw).hexdigest(),
            lines=len(lines),
            generations=(partial(self._entries, source, files, span, whole),),
            provider=self.provider if said else None,
            model=self.model(conversation, path),
            labels=labels(title=self.title(conversation)),
            edition=self._edition(conversation, nodes),
            findings=(*(Finding(kind, message, None, span.offset) for kind, message in findings), *left_finding(left)),
            losses=losses.found(),
        )

    def _edition(self, conversation: Json, nodes: list[Node]) -> tuple[str, str] | None:
        changed, said = self.times(conversation, nodes)
        edition = time_of_member(changed), max(map(time_of_member, said), default="")
        return edition if any(edition) else None

    def _entries(self, source: Source, files: AttachedFiles, span: Span, whole: Span) -> Iterator[Entry]:
        read = self._read(source, span, whole)
        if read is None:  # somebody changed it since it was planned
            yield from _unread(source, whole)
            return
        conversation, lines, nodes, _ = read
        path, _ = _path(nodes, self.leaf(conversation, nodes), in_order=self.in_order)
        places = {id(node): number for number, node in enumerate(nodes, 1)}
        told = {places[id(node)]: drafts for node, drafts in zip(path, self.told(path, Losses(), files), strict=True)}
        beside = deque(number for number in range(len(lines)) if number not in told)

        def event(place: int) -> Iterator[Entry]:
            drafts = self._left(nodes[place - 1], files) if place else []
            first = drafts[0] if drafts else Draft()
            first.lines.append(lines[place])
            return (left_entry(draft.entry()) for draft in (drafts or [first]))

        if not any(told.values()):  # nothing was said that has a time: the conversation has one
            yield Draft(
                at=time_of_member(self.times(conversation, nodes)[0]) or None, lines=[lines[beside.popleft()]]
            ).entry()
        for place, drafts in told.items():
            while beside and beside[0] < place:  # whatever is not on the way comes where it stands in the document
                yield from event(beside.popleft())
            drafts = drafts or [Draft()]  # noqa: PLW2901
            drafts[0].lines.append(lines[place])
            yield from (draft.entry() for draft in drafts)
        for other in beside:
            yield from event(other)

    def _left(self, node: Node, files: AttachedFiles) -> list[Draft]:
        """What a node beside the way says."""
        return self.told([node], Losses(), files)[0]

    def _read(
        self, source: Source, span: Span, whole: Span
    ) -> tuple[Json, list[Line], list[Node], tuple[Oddity, ...]] | None:
        """The conversation; its first line and one for each node; the nodes; in which ways its text is no strict JSON."""
        raw = read_all(source, span)
        conversation, odd = read_object(raw)
        if conversation is None:
            return None
        nodes = self.nodes(conversation)
        pieces = pieces_within(raw, self.member)
        if len(pieces) != 1 + len(nodes):  # a key that stands twice
            return None
        before = read_all(source, Span(whole.offset, span.offset - whole.offset))
        end = span.offset + span.size
        pieces[0] = (pieces[0][0] - len(before), before + pieces[0][1])
        pieces[-1] = (pieces[-1][0], pieces[-1][1] + read_all(source, Span(end, whole.offset + whole.size - end)))
        values = (None, *(node.value for node in nodes))
        lines = [
            Line(number, span.offset + offset, piece, value)
            for number, ((offset, piece), value) in enumerate(zip(pieces, values, strict=True), 1)
        ]
        return conversation, lines, nodes, odd


def _beside(source: Source, spans: list[Span]) -> Iterator[Finding]:
    """What stands beside the conversations and is none: an array with something in it, a number, a text."""
    at = 0
    for span in (*spans, Span(source.size, 0)):
        size = span.offset - at
        if size > _LONGEST_GAP_BYTES or read_all(source, Span(at, size)).strip(_NOTHING):
            message = (
                f"{size:,} bytes beside the conversations hold none that can be read: a conversation in them is imported "
                "from a file of its own"
            )
            yield Finding("beside", message, None, at)
        at = span.offset + span.size


def _unread(source: Source, span: Span) -> Iterator[Entry]:
    yield Draft(lines=[Line(1, span.offset, read_all(source, span), None)]).entry()


def _path(nodes: list[Node], leaf: str | None, *, in_order: bool) -> tuple[list[Node], list[tuple[str, str]]]:
    """The nodes from the root to the leaf, and what is wrong with the tree. ``in_order``: they stand as they were said."""
    if leaf is None:
        return nodes, []
    places = {node.id: place for place, node in enumerate(nodes)}
    if nodes and leaf not in places:
        return nodes, [("no-leaf", f"the conversation ends with the message {leaf}, which is not there")]
    path: list[Node] = []
    findings: list[tuple[str, str]] = []
    below: dict[int, int] = {}
    at = places.get(leaf)
    while at is not None:
        if at in below:
            findings.append(("circle", f"the message {nodes[at].id} is a parent of itself"))
            break
        below[at] = at - 1
        path.append(nodes[at])
        parent, before = nodes[at].parent, at
        at = None if parent is None else places.get(parent)
        if parent is not None and at is None:
            at = _not_yet_seen(below, before) if in_order else None
            told = "the conversation begins here" if at is None else "it follows the message before it"
            findings.append(("dangling-parent", f"the message {path[-1].id} names a parent that is not there: {told}"))
    return path[::-1], findings


def _not_yet_seen(below: dict[int, int], at: int) -> int | None:
    """The nearest place before ``at`` that was not seen. ``below``: for each that was, an earlier one; all between the two were seen.

    Each step shortens the way for the next one: going down place by place, a file could make it walk over the same ones again and again.
    """
    while at in below:
        below[at] = at = below.get(below[at], below[at])
    return None if at < 0 else at


def part_of(value: object, *names: str) -> object:
    """What stands in an object, or in one within it."""
    for name in names:
        value = obj(value).get(name)
    return value
