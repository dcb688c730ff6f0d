"""pi's sessions, and OpenClaw's: JSON lines of entries that name their parents. The last entry is the leaf.

The first line is the header (``session``). What follows was read from pi itself (0.73.1):

* Version 1 has no ids: its entries are in the order of their lines, and a compaction names the first entry that it kept by its
  number. Version 2 has ``id`` and ``parentId``. Version 3 calls ``hookMessage`` ``custom``.
* A ``compaction`` replaces what stood before it by a summary, and by what stood from ``firstKeptEntryId`` on.
* Of a reply that failed or was stopped pi sends nothing to a model. What was written of it is text here. A command that the user kept
  for himself is sent to no model.

One session may have replies of several providers. It has the form of the provider who replied last. Thinking of others is lost.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from transcript_store.formats._blocks import Form, Losses, Text, Thinking, Turn, objects, text_in
from transcript_store.formats._kept import KeptLines
from transcript_store.formats._left import left_finding
from transcript_store.formats._openclaw import is_openclaw, sessions_of
from transcript_store.formats._original import pack
from transcript_store.formats._pi_blocks import is_said, provider_of, turn_in_pi
from transcript_store.formats._plan import Entry, Finding, Head, Loss, Plan, Source
from transcript_store.formats._scaffolding import PI, marked
from transcript_store.formats._trees import Generation, Said, told, way_through
from transcript_store.formats._turns import FORMS, as_said
from transcript_store.messages import cost_in, provider_family

_ENTRIES = frozenset(
    {"message", "compaction", "model_change", "thinking_level_change", "branch_summary", "custom_message"}
)


_OF_CLAUDE = ("tool_use", "tool_result")


@dataclass(slots=True)
class _Node:
    """An entry."""

    place: int
    id: str
    parent: str
    says: bool
    """Whether a model is sent it."""
    provider: str
    """Of a reply."""
    model: str
    thinks: bool
    """Whether a reply has thinking."""
    compacts: bool
    kept: str
    """The id of the first entry that a compaction kept."""
    kept_number: int
    """Its number in the file, in version 1; else -1."""


@dataclass(slots=True)
class _Look:
    """What a first look at the lines finds."""

    lines: KeptLines
    header: dict[str, Any] = field(default_factory=dict)
    nodes: list[_Node] = field(default_factory=list)
    by_id: dict[str, _Node] = field(default_factory=dict)
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """The places of the entries, by their number."""
    models: dict[str, str] = field(default_factory=dict)
    first: str = ""
    title: str = ""
    chosen: dict[str, Any] = field(default_factory=dict)
    """The last model that the user chose: before a reply it says whose form a conversation has."""
    findings: list[Finding] = field(default_factory=list)


class Pi:
    """Reads a session file, or the database that OpenClaw keeps its sessions in."""

    name = "pi"
    revision = 2

    def recognizes(self, head: Head) -> bool:
        return is_openclaw(head) or (any(map(_is_ours, head.objects)) and not any(map(_is_anothers, head.objects)))

    def plans(self, source: Any) -> Iterable[Plan]:
        yield from self._of_lines(source)
        for session in sessions_of(source) if hasattr(source, "columns") else ():
            for plan in self._of_lines(session):
                yield replace(plan, findings=(*session.findings, *plan.findings))

    def _of_lines(self, source: Source) -> Iterable[Plan]:
        look = _look_at(KeptLines(source))
        if not look.lines.count:
            return
        findings = [*look.lines.findings, *look.findings]
        way = way_through(look.nodes, look.by_id, look.nodes[-1], look.lines, findings) if look.nodes else []
        generations = _generations_of(look, way, findings)
        on_the_way = {node.place for node in way}
        left = {node.place: node for node in look.nodes if node.says and node.place not in on_the_way}
        findings += left_finding(len(left))
        last = next((node for node in reversed(way) if node.says and node.provider), None)
        provider = last.provider if last is not None else provider_of(look.chosen or look.header)
        form = FORMS[provider_family(provider)]
        labels = {"title": look.title, "cwd": text_in(look.header, "cwd"), "forked_from": _parent_session(look.header)}
        yield Plan(
            format=self.name,
            session=text_in(look.header, "id") or look.first,
            lines=look.lines.count,
            generations=told(look.lines, generations, range(len(look.lines)), partial(_made, look, form), left),
            version=str(version) if isinstance(version := look.header.get("version"), int) else None,
            provider=provider if any(generation.said for generation in generations) else None,
            model=last.model if last is not None and last.model else None,
            labels={name: text for name, text in labels.items() if text},
            findings=tuple(findings),
            losses=_losses(look, way, form),
            tail=look.lines.tail,
        )


def _is_ours(value: dict[str, Any]) -> bool:
    """Whether it is the header, or an entry: the header may be what a crash tore."""
    kind = text_in(value, "type")
    if kind == "session":
        return isinstance(value.get("id"), str) and ("cwd" in value or "version" in value)
    return kind in _ENTRIES and value.keys() >= {"id", "parentId", "timestamp"}


def _is_anothers(value: dict[str, Any]) -> bool:
    """Whether only a program writes it that took over the entries and not the messages: Factory Droid has Claude's blocks."""
    message = value.get("message")
    blocks = objects(message.get("content")) if isinstance(message, dict) else []
    return value.get("type") == "session_start" or any(block.get("type") in _OF_CLAUDE for block in blocks)


def _look_at(lines: KeptLines) -> _Look:
    look = _Look(lines)
    for place, line in enumerate(lines.read()):
        look.first = look.first or hashlib.sha256(line.raw).hexdigest()
        if line.value is None:
            continue
        look.numbers.append(place)
        if line.value.get("type") == "session":
            look.header = look.header or line.value
            continue
        if line.value.get("type") == "session_info":
            look.title = text_in(line.value, "name")
        elif line.value.get("type") == "model_change":
            look.chosen = line.value
        node = _node(place, line.value)
        # One object for each id and name, however many lines have it: there may be millions of lines.
        if (parent := look.by_id.get(node.parent)) is not None:
            node.parent = parent.id
        node.model = look.models.setdefault(node.model, node.model)
        if node.id in look.by_id:
            told = "the id of an earlier entry: the last one counts"
            look.findings.append(lines.finding("duplicate-id", told, place))
        look.nodes.append(node)
        if node.id:
            look.by_id[node.id] = node
    if look.by_id:  # in a tree, a line without an id is nobody's parent, and never the leaf
        look.nodes = [node for node in look.nodes if look.by_id.get(node.id) is node]
    return look


def _node(place: int, value: dict[str, Any]) -> _Node:
    message = value.get("message")
    reply = message if isinstance(message, dict) and message.get("role") == "assistant" else {}
    number = value.get("firstKeptEntryIndex")
    return _Node(
        place=place,
        id=text_in(value, "id"),
        parent=text_in(value, "parentId"),
        says=_is_said(value),
        provider=provider_of(reply) if reply else "",
        model=text_in(reply, "model"),
        thinks=any(block.get("type") == "thinking" for block in objects(reply.get("content"))),
        compacts=value.get("type") == "compaction",
        kept=text_in(value, "firstKeptEntryId"),
        kept_number=number if type(number) is int else -1,
    )


def _is_said(value: dict[str, Any]) -> bool:
    """Whether an entry says something to a model. What it says is only looked at when it is told."""
    kind, message = value.get("type"), value.get("message")
    if kind == "message" and isinstance(message, dict):
        return is_said(message)
    return kind in ("custom_message", "compaction") or (kind == "branch_summary" and bool(value.get("summary")))


def _turn(value: dict[str, Any]) -> Turn | None:
    """What an entry says to a model; None if it says nothing to it."""
    match value.get("type"):
        case "message" if isinstance(value.get("message"), dict):
            return turn_in_pi(value["message"])
        case "custom_message":
            return turn_in_pi({**value, "role": "custom"})
        case "compaction":
            return turn_in_pi({**value, "role": "compactionSummary"})
        case "branch_summary":
            return turn_in_pi({**value, "role": "branchSummary"})
    return None


def _generations_of(look: _Look, way: list[_Node], findings: list[Finding]) -> list[Generation[_Node]]:
    """The way cut at its compactions: the summary, then what it kept, then what came after."""
    found: list[Generation[_Node]] = [Generation(begins=0)]
    positions: dict[str | int, int] = {}  # on the way: by an entry's id, and by its place
    for at, node in enumerate(way):
        if node.compacts:
            first = _first_kept(look, positions, node, findings)
            kept = [Said([one]) for one in way[first:at] if one.says and not one.compacts]
            found.append(Generation(max(node.place, found[-1].begins), taken_over=kept, taken_at=1))
        if node.says:
            found[-1].said.append(Said([node]))
        positions[node.place] = at
        if node.id:
            positions[node.id] = at
    return found


def _first_kept(look: _Look, positions: dict[str | int, int], compaction: _Node, findings: list[Finding]) -> int:
    """Where on the way what a compaction kept begins; behind all that was if nothing was kept."""
    number = compaction.kept_number
    place = look.numbers[number] if 0 <= number < len(look.numbers) else -1
    if (first := positions.get(compaction.kept or place)) is not None:
        return first
    if compaction.kept or number > 0:
        lost = "what this compaction kept is not among what stood before it: nothing was taken over"
        findings.append(look.lines.finding("kept-missing", lost, compaction.place))
    return len(look.nodes)


def _made(look: _Look, form: Form, said: Said[_Node], taken_over: bool) -> Iterator[Entry]:
    """The messages of an entry; an event if this provider has no place for anything in it."""
    (node,) = said.nodes
    line = look.lines[node.place]
    turn = _turn(line.value) if line.value is not None and node.says else None
    messages = [] if turn is None else as_said(turn, form)
    if not messages:
        yield from () if taken_over else look.lines.event(node.place)
        return
    assert line.value is not None
    given = line.value.get("message")
    about = _about(given) if node.provider and isinstance(given, dict) else _injected(line.value, turn)
    at = text_in(line.value, "timestamp") or None
    packed = [] if taken_over else [pack(line.number, line.raw, line.value, messages[0], part=line.part)]
    yield Entry(messages[0], {**about, "source": {"lines": packed}}, at, () if taken_over else (line.number,))
    for message in messages[1:]:  # what a result shows, where the provider's results hold text alone
        yield Entry(message, {"source": {"lines": []}}, at)


def _injected(value: dict[str, Any], turn: Turn | None) -> dict[str, Any]:
    """The mark of what pi or an extension wrote in the user's name, and of a compaction's summary."""
    kind = value.get("type")
    role = value["message"].get("role") if isinstance(value.get("message"), dict) else kind
    if turn is None or turn.role != "user" or role == "toolResult":
        return {}
    if role == "bashExecution":
        return marked(f"! {text_in(value['message'], 'command')}")
    if role == "user":
        return marked(PI.typed_of(block.text for block in turn.blocks if isinstance(block, Text)))
    return {**marked("", is_said=True), **({"compaction": True} if kind == "compaction" else {})}


def _about(reply: dict[str, Any]) -> dict[str, Any]:
    """What belongs to a reply and is not sent, under the names that the library reads. pi counts cached tokens apart."""
    names = {"responseId": "response_id", "model": "model", "stopReason": "stop_reason"}
    about: dict[str, Any] = {ours: reply[theirs] for theirs, ours in names.items() if text_in(reply, theirs)}
    usage = reply.get("usage")
    if isinstance(usage, dict):
        counts = {"input": "input_tokens", "output": "output_tokens"}
        counts |= {"cacheRead": "cache_read_input_tokens", "cacheWrite": "cache_creation_input_tokens"}
        about["usage"] = {ours: usage[theirs] for theirs, ours in counts.items() if type(usage.get(theirs)) is int}
        if cost := cost_in(usage):
            about["usage"]["cost"] = cost
    return about


def _losses(look: _Look, way: list[_Node], form: Form) -> tuple[Loss, ...]:
    losses = Losses()
    for node in way:
        value = look.lines[node.place].value if node.thinks and node.says else None
        turn = None if value is None else _turn(value)
        for block in turn.blocks if turn is not None else ():
            if isinstance(block, Thinking) and not form.holds(block, "assistant"):
                losses.note(
                    "thinking", "thinking was left out: another provider thought it, or its signature is missing"
                )
    return losses.found()


def _parent_session(header: dict[str, Any]) -> str:
    """The id in the name of the file that a session was branched from: ``<time>_<id>.jsonl``."""
    path = text_in(header, "parentSession", "branchedFrom")
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]
