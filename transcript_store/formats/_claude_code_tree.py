"""What hangs beside the way through Claude Code's tree, and where its compactions cut it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from transcript_store.formats._claude_code_lines import Look, Node
from transcript_store.formats._plan import Finding
from transcript_store.formats._trees import Generation, Said


def with_side_lines(look: Look, way: list[Node]) -> list[Node]:
    """The way, and the lines of its replies that it misses, the results that hang on them, and what was asked behind those.

    Tools that run side by side are calls on lines of their own, and each result names its own call as its parent: only one of
    them is on the way.
    """
    seen = {node.place for node in way}
    lines: dict[tuple[str, str], list[Node]] = defaultdict(list)
    results: dict[str, list[Node]] = defaultdict(list)
    queued: dict[str, list[Node]] = defaultdict(list)
    for node in look.nodes:
        if node.reply is not None:
            lines[node.reply].append(node)
        elif node.answers:
            results[node.parent if node.anchor is None else node.anchor.id].append(node)
        elif node.is_queued:
            queued[node.parent].append(node)
    last = {node.reply: node.place for node in way if node.reply is not None}
    found: list[Node] = []
    for node in way:
        found.append(node)
        if node.reply is None or last[node.reply] != node.place:
            continue
        whole = lines[node.reply]
        hanging = (result for line in whole if line.id for result in results[line.id])
        beside = [one for one in (*whole, *hanging) if one.place not in seen]
        beside += [asked for one in beside for asked in queued[one.id] if asked.place not in seen]
        seen.update(one.place for one in beside)
        found += beside
    return found


def generations_of(look: Look, way: list[Node], findings: list[Finding]) -> list[Generation[Node]]:
    """The way cut at its compactions."""
    found: list[Generation[Node]] = [Generation(begins=0)]
    segments: list[list[Node]] = [[]]
    says = False  # whether the last segment says anything
    positions: dict[str, int] = {}  # on the way: where each line is
    for at, node in enumerate(way):
        if node.boundary or (node.summary and says):
            segments.append([])
            found.append(Generation(max(node.place, found[-1].begins)))
            says = False
        segments[-1].append(node)
        says = says or node.says
        if node.kept is not None:
            found[-1].taken_over = _kept_of(look, way, positions, node, findings)
        positions[node.id] = at
    for generation, segment in zip(found, segments, strict=True):
        generation.said = _said(segment)
        generation.taken_at = _taken_at(generation.said, segment[0].kept if segment else None)
    return found


def _taken_at(said: list[Said[Node]], kept: tuple[str, str, str] | None) -> int:
    """Behind the line that a compaction names; else behind its summary."""
    anchor = None if kept is None else kept[2]
    behind = [at for at, one in enumerate(said, 1) if any(node.id == anchor for node in one.nodes)]
    summaries = [at for at, one in enumerate(said, 1) if one.nodes[0].summary]
    return next(iter((*behind, *summaries)), 0)


def _kept_of(
    look: Look, way: list[Node], positions: dict[str, int], boundary: Node, findings: list[Finding]
) -> list[Said[Node]]:
    """What a compaction kept: the lines from the first to the last that it names."""
    assert boundary.kept is not None
    head, tail, _ = boundary.kept
    first, last = positions.get(head), positions.get(tail)
    if first is None or last is None or first > last:
        told = "what this compaction kept is not among what stood before it: nothing was taken over"
        findings.append(look.lines.finding("kept-missing", told, boundary.place))
        return []
    return _said(way[first : last + 1])


def _said(nodes: list[Node]) -> list[Said[Node]]:
    """The messages of these lines, in order; the lines of a reply are one. Side by side calls and results are in the order of the file."""
    found: list[Said[Node]] = []
    replies: dict[tuple[str, str], Said[Node]] = {}
    for node in nodes:
        if not node.says:
            continue
        if node.reply is not None and node.reply in replies:
            replies[node.reply].nodes.append(node)
            continue
        found.append(Said([node]))
        if node.reply is not None:
            replies[node.reply] = found[-1]
    for one in replies.values():
        one.nodes.sort(key=attrgetter("place"))
    runs = groupby(found, key=lambda one: one.nodes[0].answers)
    ordered = (
        one for answers, run in runs for one in (sorted(run, key=lambda one: one.nodes[0].place) if answers else run)
    )
    return [*_behind_results(ordered)]


def _behind_results(said: Iterable[Said[Node]]) -> Iterator[Said[Node]]:
    """What the user said between a call and its results stands behind them: nothing may be sent in between."""
    queued: list[Said[Node]] = []
    for one in said:
        if one.nodes[0].is_queued:
            queued.append(one)
            continue
        if not one.nodes[0].answers:
            yield from queued
            queued.clear()
        yield one
    yield from queued
