"""Claude Code's lines, each by what it says of itself: enough of every line to walk the tree without having read it all again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from transcript_store.formats._blocks import objects, text_in
from transcript_store.formats._kept import KeptLines
from transcript_store.formats._plan import Finding

IN_THE_TREE = frozenset({"user", "assistant", "system", "attachment", "progress"})
"""The types whose lines name a parent. ``progress`` is never a leaf: later versions pass it over."""
_SPEAKERS = ("user", "assistant")
_GIVEN = frozenset({"file", "directory", "pdf_reference", "mcp_resource", "selected_lines_in_ide", "edited_text_file"})
"""Attachments that a model is sent beside what was said, in a form of the program's own."""
_SYNTHETIC = "<synthetic>"


@dataclass(slots=True)
class Node:
    """A line of the tree."""

    place: int
    kind: str
    id: str
    """Its uuid. Empty if it has none."""
    parent: str
    """Empty at a root. Across a compaction it is the line before it."""
    sidechain: bool
    agent: str
    says: bool
    """Whether a model is sent it."""
    reply: tuple[str, str] | None
    """Of a block of a reply: which reply. Two of a reply's lines have the same."""
    answers: bool
    """Whether it holds the result of a call."""
    is_queued: bool
    """Whether the user said it while the model was at work."""
    boundary: bool
    """Whether a compaction begins here."""
    summary: bool
    kept: tuple[str, str, str] | None
    """The first and the last line that a compaction kept, and the line that they follow now."""
    model: str
    """Of a reply."""


@dataclass(slots=True)
class Look:
    """What a first look at the lines finds."""

    lines: KeptLines
    by_place: dict[int, Node] = field(default_factory=dict)
    """In the order of the lines."""
    by_id: dict[str, Node] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    """By the uuid of the line that a summary names as its leaf."""
    sessions: dict[str, None] = field(default_factory=dict)
    """In the order in which they last appeared."""
    version: str | None = None
    cwd: str = ""
    """The first one: it is the one that names the folder."""
    branch: str = ""
    """The last one."""
    models: dict[str, str] = field(default_factory=dict)
    first: bytes = b""
    given: set[int] = field(default_factory=set)
    """Places of lines whose attachment is sent and is no message."""
    rewound: str | None = None
    """The uuid that a rewind went back to, if it stands behind all other lines; empty for the beginning. None without such a rewind."""
    last: dict[bool, str] = field(default_factory=dict)
    """The uuid of the last line of the tree; of a sub-agent's at True."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        return [*self.by_place.values()]


def look_at(lines: KeptLines) -> Look:
    """Read every line once."""
    look = Look(lines)
    for place, line in enumerate(lines.read()):
        look.first = look.first or hashlib.sha256(line.raw).digest()
        if line.value is not None:
            _take(look, place, line.value)
    return look


def message_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """What a line says, as a request carries it: no id, no usage. The content is the line's very object."""
    if value.get("type") == "attachment":  # of these the user said one, while the model was at work
        prompt = _attachment(value).get("prompt")
        is_said = text_in(_attachment(value), "type") == "queued_command" and _is_said("user", "user", prompt)
        return {"role": "user", "content": prompt} if is_said else None
    message = value.get("message")
    if not isinstance(message, dict):
        return None
    role, content = message.get("role"), message.get("content")
    if not _is_said(value.get("type"), role, content):
        return None
    return message if len(message) == 2 else {"role": role, "content": content}


def _is_said(kind: Any, role: Any, content: Any) -> bool:
    """Whether a model is sent a line of this kind with a message of this role and content."""
    return kind in _SPEAKERS and role in _SPEAKERS and (content.__class__ is list or content.__class__ is str)


def _take(look: Look, place: int, value: dict[str, Any]) -> None:
    kind = value.get("type")
    session = text_in(value, "sessionId")
    if session and (not look.sessions or next(reversed(look.sessions)) != session):
        look.sessions.pop(session, None)
        look.sessions[session] = None
    if kind.__class__ is not str or kind not in IN_THE_TREE:
        _take_aside(look, kind, value)
        return
    node = _node(place, kind, value)
    # One object for each id and name, however many lines have it: there may be millions of lines.
    if (parent := look.by_id.get(node.parent)) is not None:
        node.parent = parent.id
    node.model = look.models.setdefault(node.model, node.model)
    if node.boundary and not node.parent:  # some say what they follow, and some leave it at the line before them
        node.parent = look.last.get(node.sidechain, "")
    if kind != "progress" and node.id:
        look.last[node.sidechain] = node.id
    if kind != "progress" and not node.sidechain:
        look.rewound = None
    if kind == "attachment" and not node.says and text_in(_attachment(value), "type") in _GIVEN:
        look.given.add(place)
    look.version = text_in(value, "version") or look.version
    look.cwd = look.cwd or text_in(value, "cwd")
    look.branch = text_in(value, "gitBranch") or look.branch
    before = look.by_id.get(node.id)
    if before is not None:
        same = look.lines[before.place].value == value
        told = "for the second time: the first one counts" if same else "with something else: the last one counts"
        look.findings.append(look.lines.finding("duplicate-uuid", f"the uuid of an earlier line, {told}", place))
        if same:
            return
        del look.by_place[before.place]
    look.by_place[place] = node
    if node.id:
        look.by_id[node.id] = node


def _take_aside(look: Look, kind: Any, value: dict[str, Any]) -> None:
    """A line that is not in the tree: a title, a rewind, or nothing that is asked for."""
    # The program writes the line also where nothing was taken back; then it is not explicit.
    if kind == "last-prompt" and "leafUuid" in value and True in (value.get("explicit"), value.get("rewound")):
        look.rewound = text_in(value, "leafUuid")
    if kind == "summary":
        look.summaries[text_in(value, "leafUuid")] = text_in(value, "summary")
    for name, member in (("custom-title", "customTitle"), ("agent-name", "agentName"), ("ai-title", "aiTitle")):
        if kind == name and text_in(value, member):
            look.titles[name] = text_in(value, member)


def _node(place: int, kind: str, value: dict[str, Any]) -> Node:
    get = value.get
    boundary = kind == "system" and get("subtype") == "compact_boundary"
    given = get("message")
    message: dict[str, Any] = given if given.__class__ is dict else {}
    summary = get("isCompactSummary") is True
    hidden = get("isVisibleInTranscriptOnly") is True and not summary
    by_the_program = message.get("model") == _SYNTHETIC or get("isApiErrorMessage") is True
    content = message.get("content")
    reply, answers, model = None, False, ""
    if kind == "assistant":
        number = text_in(message, "id")
        reply = (number, text_in(value, "requestId")) if number else (str(place), "")
        model = text_in(message, "model")
    elif kind == "user" and content.__class__ is list:
        answers = any(block.get("type") == "tool_result" for block in objects(content))
    return Node(
        place,
        kind,
        text_in(value, "uuid"),
        text_in(value, "parentUuid") or text_in(value, "logicalParentUuid"),
        get("isSidechain") is True,
        text_in(value, "agentId"),
        not hidden and not by_the_program and message_of(value) is not None,
        reply,
        answers,
        kind == "attachment" and message_of(value) is not None,
        boundary,
        summary,
        _kept(value) if boundary else None,
        model,
    )


def _attachment(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("attachment")
    return found if isinstance(found, dict) else {}


def _kept(value: dict[str, Any]) -> tuple[str, str, str] | None:
    about = value.get("compactMetadata")
    segment = about.get("preservedSegment") if isinstance(about, dict) else None
    if not isinstance(segment, dict):
        return None
    return text_in(segment, "headUuid"), text_in(segment, "tailUuid"), text_in(segment, "anchorUuid")
