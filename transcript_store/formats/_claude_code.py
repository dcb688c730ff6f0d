"""Claude Code: JSON lines that name their parents (``parentUuid``). The conversation is the path from the last line to its root.

A line of the type ``user`` or ``assistant`` has a message of Claude's API. The program itself (2.1.112) shows, for its files since
2025:

* The leaf is the last line outside a sub-agent (``isSidechain``), or the line that a later rewind names (``last-prompt``, explicit:
  2.1.330). Branches that were left stay in the file, and become events that keep them.
* A prompt during the model's work is an attachment, ``queued_command``. It is sent as the user's message.
* Each block of a reply has its own line, with the reply's ``message.id``: together they are one message. With parallel tools, the
  path misses some of these lines, and the results below them. They belong to the conversation.
* A compaction is a ``compact_boundary`` without a parent. Its ``logicalParentUuid`` is the line before it, and is often missing. A
  summary follows (``isCompactSummary``). ``preservedSegment`` names the lines that were kept.
* A ``<synthetic>`` reply is the text of a reply that the user stopped. The program's own words have this mark too: its errors
  (``isApiErrorMessage``) and its fixed sentences are events.
* ``/branch`` copies the lines into another session: each names its origin (``forkedFrom``).
* A line may name a parent that the user did not go back to: see ``_claude_code_lines``.

Files without parents, and edited ones, are in the order of their lines. So is the output of ``--output-format stream-json``: lines
of these types with ``session_id`` and ``parent_tool_use_id``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._arranging import form_family, messages_of
from transcript_store.formats._claude_code_lines import (
    IN_THE_TREE,
    SPEAKERS,
    SYNTHETIC,
    FirstPass,
    TreeLine,
    is_injected,
    is_streamed,
    look_at,
    message_of,
    typed_command,
)
from transcript_store.formats._lines import KeptLines
from transcript_store.formats._members import obj, objects, text_in
from transcript_store.formats._neutral import Losses
from transcript_store.formats._outgoing import id_within, json_line, outgoing_records, timed_records, turns_said
from transcript_store.formats._packing import pack_line
from transcript_store.formats._plan import (
    ImportFinding,
    Loss,
    PlannedRecord,
    SessionPlan,
    Source,
    SourceHead,
    WrittenSession,
)
from transcript_store.formats._replay import left_finding
from transcript_store.formats._rows import file_of, object_beside
from transcript_store.formats._scaffolding import marked
from transcript_store.formats._trees import Segment, TreeMessage, planned_records, way_through, way_to

# ---- tree ----
#
# What hangs beside the way through Claude Code's tree, and where its compactions cut it.


def with_side_lines(look: FirstPass, way: list[TreeLine]) -> list[TreeLine]:
    """The path with the lines of its replies that it misses, the results of these, and prompts sent after those.

    Parallel calls are lines of their own, and each result names its call as its parent: only one of them is on the path.
    """
    seen = {node.place for node in way}
    lines: dict[tuple[str, str], list[TreeLine]] = defaultdict(list)
    results: dict[str, list[TreeLine]] = defaultdict(list)
    queued: dict[str, list[TreeLine]] = defaultdict(list)
    for node in look.nodes:
        if node.reply is not None:
            lines[node.reply].append(node)
        elif node.answers:
            results[node.parent if node.anchor is None else node.anchor.id].append(node)
        elif node.is_queued:
            queued[node.parent].append(node)
    last = {node.reply: node.place for node in way if node.reply is not None}
    found: list[TreeLine] = []
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


def generations_of(look: FirstPass, way: list[TreeLine], findings: list[ImportFinding]) -> list[Segment[TreeLine]]:
    """The way cut at its compactions."""
    found: list[Segment[TreeLine]] = [Segment(begins=0)]
    segments: list[list[TreeLine]] = [[]]
    says = False  # True if the last segment has a message
    positions: dict[str, int] = {}  # on the way: where each line is
    for at, node in enumerate(way):
        # A compaction is a boundary followed by its summary: `says` is still False there, so the summary cuts nothing. A summary
        # without a boundary is the cut itself.
        if node.boundary or (node.summary and says):
            segments.append([])
            found.append(Segment(max(node.place, found[-1].begins)))
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


def _taken_at(said: list[TreeMessage[TreeLine]], kept: tuple[str, str, str] | None) -> int:
    """The index after the line that a compaction names; else after its summary."""
    anchor = None if kept is None else kept[2]
    behind = [at for at, one in enumerate(said, 1) if any(node.id == anchor for node in one.nodes)]
    summaries = [at for at, one in enumerate(said, 1) if one.nodes[0].summary]
    return next(iter((*behind, *summaries)), 0)


def _kept_of(
    look: FirstPass, way: list[TreeLine], positions: dict[str, int], boundary: TreeLine, findings: list[ImportFinding]
) -> list[TreeMessage[TreeLine]]:
    """The lines that a compaction kept, from the first to the last that it names."""
    assert boundary.kept is not None
    head, tail, _ = boundary.kept
    first, last = positions.get(head), positions.get(tail)
    if first is None or last is None or first > last:
        why = "the lines that this compaction kept are not before it: nothing was taken over"
        findings.append(look.lines.finding("kept-missing", why, boundary.place))
        return []
    return _said(way[first : last + 1])


def _said(nodes: list[TreeLine]) -> list[TreeMessage[TreeLine]]:
    """The messages of these lines, in order; the lines of a reply are one. Side by side calls and results are in the order of the file."""
    found: list[TreeMessage[TreeLine]] = []
    replies: dict[tuple[str, str], TreeMessage[TreeLine]] = {}
    for node in nodes:
        if not node.says:
            continue
        if node.reply is not None and node.reply in replies:
            replies[node.reply].nodes.append(node)
            continue
        found.append(TreeMessage([node]))
        if node.reply is not None:
            replies[node.reply] = found[-1]
    for one in replies.values():
        one.nodes.sort(key=attrgetter("place"))
    runs = groupby(found, key=lambda one: one.nodes[0].answers)
    ordered = (
        one for answers, run in runs for one in (sorted(run, key=lambda one: one.nodes[0].place) if answers else run)
    )
    return [*_behind_results(ordered)]


def _behind_results(said: Iterable[TreeMessage[TreeLine]]) -> Iterator[TreeMessage[TreeLine]]:
    """Move prompts between a call and its results after the results: no provider accepts anything in between."""
    queued: list[TreeMessage[TreeLine]] = []
    for one in said:
        if one.nodes[0].is_queued:
            queued.append(one)
            continue
        if not one.nodes[0].answers:
            yield from queued
            queued.clear()
        yield one
    yield from queued


# ---- reader ----

_ABOUT_A_SESSION = ("queue-operation", "custom-title", "ai-title", "agent-name", "mode", "permission-mode")
_MOST_LINES = 100
"""A longer reply is packed without holes: each line would be searched in the whole message."""

_ABOUT = (("id", "response_id"), ("model", "model"), ("stop_reason", "stop_reason"), ("usage", "usage"))
"""Members of a reply, and what they are called in a record's ``extra``."""


class ClaudeCode:
    """Reads a session file, or the file of a sub-agent. With ``branches``, each branch that was left is also a plan."""

    name = "claude-code"
    revision = 2

    def __init__(self, *, branches: bool = False) -> None:
        self._branches = branches

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(_is_ours, head.objects)) and not any(map(_is_anothers, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        look = look_at(KeptLines(source))
        if not look.lines.count:
            return
        _learn_beside(look, source)
        main = [node for node in look.nodes if not node.sidechain]
        session = _session(look, source.name)
        findings = [*look.lines.findings, *look.findings]
        if not main and look.nodes:  # the file of a sub-agent
            way = _way(look, look.nodes, findings)
            agent = next((node.agent for node in look.nodes if node.agent), "")
            yield self._plan(look, f"{session}/agent-{agent}", way, findings, part_of=session)
            return
        way = _way(look, main, findings)
        yield self._plan(look, session, way, findings)
        for number, nodes in enumerate(_sub_agents(look), 1):
            findings = []
            agent = next((node.agent for node in nodes if node.agent), "") or nodes[0].id or str(number)
            side = _way(look, nodes, findings)
            places = {node.place for node in (*nodes, *side)}
            yield self._plan(look, f"{session}/agent-{agent}", side, findings, places, part_of=session)
        if self._branches:
            for leaf in _left_leaves(main, way):
                left = with_side_lines(look, way_to(leaf, look.by_id, main, look.lines, []))
                places = {node.place for node in left}
                yield self._plan(look, f"{session}/branch-{leaf.id}", left, [], places, forked_from=session)

    def _plan(
        self,
        look: FirstPass,
        session: str,
        way: list[TreeLine],
        findings: list[ImportFinding],
        only: set[int] | None = None,
        **labels: str,
    ) -> SessionPlan:
        """The conversation of this way. It accounts for every line of the file, or ``only`` for these places."""
        generations = generations_of(look, way, findings)
        places = range(len(look.lines)) if only is None else sorted(only)
        on_the_way = {node.place for node in way}
        is_of_an_agent = bool(way) and way[0].sidechain
        left = {  # the lines of a sub-agent are a conversation of their own
            node.place: node
            for node in look.nodes
            if node.says and node.place not in on_the_way and node.sidechain == is_of_an_agent
            if only is None or node.place in only
        }
        left |= look.unsent if only is None and not labels else {}
        findings += left_finding(len(left))
        found = {"title": _title(look) if only is None else "", "cwd": look.cwd, "git_branch": look.branch}
        found |= {} if labels else {"forked_from": look.forked_from}
        return SessionPlan(
            format=self.name,
            session=session,
            lines=look.lines.count if only is None else len({look.lines.number(place) for place in places}),
            generations=planned_records(look.lines, generations, places, partial(_message, look), left),
            version=look.version,
            provider="claude" if any(one.said or one.taken_over for one in generations) else None,
            model=next((node.model for node in reversed(way) if node.model and node.says), None),
            labels={**{name: text for name, text in found.items() if text}, **labels},
            findings=tuple(findings),
            losses=_losses(look, way),
            is_part=only is not None,
            tail=look.lines.tail if only is None else b"",
        )


def _is_ours(value: dict[str, Any]) -> bool:
    kind = text_in(value, "type")
    if kind in IN_THE_TREE and is_streamed(value):
        return True
    if kind in IN_THE_TREE and isinstance(value.get("uuid"), str):
        # A tool that trims sessions may remove everything but the messages.
        is_said = kind in SPEAKERS and obj(value.get("message")).get("role") == kind
        return is_said or "sessionId" in value or "parentUuid" in value
    if kind == "summary":
        return "leafUuid" in value
    if kind == "file-history-snapshot":
        return "messageId" in value
    return kind in _ABOUT_A_SESSION and "sessionId" in value


def _is_anothers(value: dict[str, Any]) -> bool:
    """True if only a program writes it that took over the tree and not the messages: Qwen Code has Gemini's."""
    message = obj(value.get("message"))
    has_parts = "parts" in message and "content" not in message
    return has_parts or "systemPayload" in value or "qwen_code_version" in value


def _session(look: FirstPass, name: str) -> str:
    """The id of the session: the file's name if a line has this id, else the last id. Lines taken over keep the id of their
    session.

    Output that was printed is not the session's own file: its lines differ, so it has another id.
    """
    if look.streamed:
        return f"{look.streamed}/stream"
    stem = name.rpartition("/")[2].removesuffix(".jsonl")
    return stem if stem in look.sessions else next(reversed(look.sessions), look.first.hex())


def _learn_beside(look: FirstPass, source: Source) -> None:
    """Learn the titles beside a session: the user's, the one in the program's list, the task of a sub-agent."""
    stem = file_of(source).removesuffix(".jsonl")
    if custom := text_in(object_beside(source, f"{stem}/custom-title.json"), "customTitle"):
        look.titles["custom-title"] = custom
    if asked := text_in(object_beside(source, f"{stem}.meta.json"), "description"):
        look.titles.setdefault("ai-title", asked)
    if not look.titles and not look.summaries:
        listed = objects(object_beside(source, "sessions-index.json").get("entries"))
        its = next((entry for entry in listed if entry.get("sessionId") == stem), {})
        look.summaries[""] = text_in(its, "customTitle") or text_in(its, "summary")


def _title(look: FirstPass) -> str:
    for name in ("custom-title", "agent-name", "ai-title"):
        if name in look.titles:
            return look.titles[name]
    ours = [text for leaf, text in look.summaries.items() if leaf in look.by_id]
    return next(reversed(ours or [*look.summaries.values()]), "")


def _way(look: FirstPass, nodes: list[TreeLine], findings: list[ImportFinding]) -> list[TreeLine]:
    if not nodes:
        return []
    may_be = [node for node in nodes if node.kind != "progress"] or nodes
    leaf = may_be[-1]
    if look.rewound is not None and not leaf.sidechain:
        if not look.rewound:
            return []
        leaf = look.by_id.get(look.rewound, leaf)
    way = way_through(may_be, look.by_id, leaf, look.lines, findings)
    return with_side_lines(look, way)


def _losses(look: FirstPass, way: list[TreeLine]) -> tuple[Loss, ...]:
    given = sum(node.place in look.given for node in way)
    why = "attached files are kept as events, and not sent: the program sends them in a form of its own"
    return (Loss("attachments", given, why),) if given else ()


def _sub_agents(look: FirstPass) -> Iterator[list[TreeLine]]:
    """The lines of each sub-agent that are in its parent's file: by their ``agentId``, else by the root that they lead to."""
    roots: dict[str, str] = {}
    found: dict[str, list[TreeLine]] = defaultdict(list)
    for node in look.nodes:
        if not node.sidechain:
            continue
        parent = look.by_id.get(node.parent)
        root = roots.get(node.parent, node.id) if parent is not None and parent.sidechain else node.id
        roots[node.id] = root
        found[node.agent or root or str(node.place)].append(node)
    yield from found.values()


def _left_leaves(main: list[TreeLine], way: list[TreeLine]) -> list[TreeLine]:
    """The last message of each branch that was left."""
    parents = {node.parent for node in main}
    kept = {node.place for node in way}
    return [node for node in main if node.says and node.id not in parents and node.place not in kept]


def _message(look: FirstPass, said: TreeMessage[TreeLine], taken_over: bool) -> Iterator[PlannedRecord]:
    lines = [look.lines[node.place] for node in said.nodes]
    values = [line.value for line in lines if line.value is not None]
    messages = [message for value in values if (message := message_of(value)) is not None]
    message = messages[0]
    if len(messages) > 1:
        message = {"role": message["role"], "content": [block for one in messages for block in _blocks(one)]}
    shared = message if len(lines) <= _MOST_LINES else None
    extra = _about([value["message"] for value in values]) if said.nodes[0].reply is not None else {}
    if message["role"] == "user":
        extra |= marked(typed_command(values[0]), is_said=is_injected(values[0]))
    if said.nodes[0].summary:
        extra["compaction"] = True
    numbers: tuple[int, ...] = ()
    packed: list[dict[str, Any]] = []
    if not taken_over:
        packed = [pack_line(li.number, li.raw, li.value, shared, part=li.part) for li in lines]
        numbers = tuple([line.number for line in lines])
    extra["source"] = {"lines": packed}
    yield PlannedRecord(message, extra, text_in(values[0], "timestamp") or None, numbers)


def _blocks(message: dict[str, Any]) -> list[Any]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _about(replies: list[dict[str, Any]]) -> dict[str, Any]:
    """What belongs to a reply and is not sent. Each of its lines repeats it, and the last one has the final figures."""
    about: dict[str, Any] = {}
    for reply in replies:
        for theirs, ours in _ABOUT:
            if (said := reply.get(theirs)) is not None and said != SYNTHETIC:
                about[ours] = said
    return about


# ---- writer ----
#
# A conversation as a new session of Claude Code: a file in the project's folder, which ``claude --resume`` continues.
#
# A session was taken up by the real program (2.1.330) only with the whole envelope, a chain of parents from a first line that is a
# message, and in the folder whose name it makes of the directory. The last line ends in a line end: the next one is appended.

_VERSION = "2.1.112"
"""The version whose form is written."""
_LONGEST_NAME = 200


class ClaudeCodeWriter:
    """Writes sessions of Claude Code."""

    name = "claude-code"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.SessionWriter`."""
        losses = Losses()
        said = outgoing_records(records, metadata, losses)
        provider = metadata.provider or "openai"
        turns = turns_said(said, provider)
        handed = messages_of(turns, "claude", join=form_family(provider) != "claude")
        losses.add(handed.losses)
        envelope = {"isSidechain": False, "userType": "external", "cwd": cwd, "sessionId": session}
        envelope |= {"version": _VERSION, "gitBranch": metadata.labels.get("git_branch", "")}
        lines: list[dict[str, Any]] = []
        parent = None
        replies: set[str] = set()
        timed = timed_records(handed.messages, handed.origins, said, now)
        for number, (message, extra, at) in enumerate(timed):
            own = id_within(session, number)
            line: dict[str, Any] = {"parentUuid": parent, **envelope, "type": message["role"], "message": message}
            line |= {"uuid": own, "timestamp": at}
            if message["role"] == "assistant":
                line["message"] = _reply(message, extra, metadata, own, replies)
                line["requestId"] = f"req_{own.replace('-', '')}"
            lines.append(line)
            parent = own
        if title := metadata.labels.get("title"):
            lines.append({"type": "custom-title", "customTitle": title, "sessionId": session})
        path = f"projects/{project_folder(cwd)}/{session}.jsonl"
        data = b"".join(map(json_line, lines))
        return WrittenSession(((path, data),), f"claude --resume {session}", losses.found())


def _reply(
    message: dict[str, Any], extra: dict[str, Any], metadata: ConversationMetadata, own: str, replies: set[str]
) -> dict[str, Any]:
    """A reply as the API gave it. Two of them never have one id: the program would join them."""
    number = text_in(extra, "response_id") or text_in(message, "id")
    if not number or number in replies:
        number = f"msg_{own.replace('-', '')}"
    replies.add(number)
    usage, none = obj(extra.get("usage")), {"input_tokens": 0, "output_tokens": 0}
    content = message["content"]
    calls = isinstance(content, list) and any(block.get("type") == "tool_use" for block in content)
    model = text_in(extra, "model") or metadata.model or "unknown"
    return {
        "id": number,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content if isinstance(content, list) else [{"type": "text", "text": content}],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": usage if all(type(usage.get(name)) is int for name in none) else none,
    }


def project_folder(cwd: str) -> str:
    """The name of a project's folder, as the program makes it of a directory (2.1)."""
    name = re.sub(r"[^a-zA-Z0-9]", lambda found: "-" * (1 + (found[0] > "\uffff")), cwd)  # JavaScript counts halves
    if len(name) <= _LONGEST_NAME:
        return name
    number = 0
    units = cwd.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):  # Java's hash of a text: 31 times the sum so far, in 32 bits with a sign
        number = (number * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    return f"{name[:_LONGEST_NAME]}-{_in_base_36(number)}"


def _in_base_36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not number:
            return digits
