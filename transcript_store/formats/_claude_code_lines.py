"""Claude Code's lines: the members that are needed to walk the tree without reading it again."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from transcript_store.formats._lines import KeptLines
from transcript_store.formats._members import obj, objects, text_in
from transcript_store.formats._plan import ImportFinding
from transcript_store.formats._scaffolding import CLAUDE_CODE, texts_in

IN_THE_TREE = frozenset({"user", "assistant", "system", "attachment", "progress"})
"""The types whose lines name a parent. ``progress`` is never a leaf: later versions skip it."""
SPEAKERS = ("user", "assistant")
_GIVEN = frozenset({"file", "directory", "pdf_reference", "mcp_resource", "selected_lines_in_ide", "edited_text_file"})
"""Attachments that the program sends to a model in a form of its own."""
SYNTHETIC = "<synthetic>"
"""The model of a reply that the program wrote: its own text, or the text of a reply that the user stopped."""
_QUEUE = "queue-operation"
_OTHERWISE_SENT = ("/", "!", "<")
"""A command, or news of a task, is sent in other words than those that waited."""
_PLACEHOLDER = "[Pasted text #"
_OWN_WORDS = frozenset({"No response requested.", "(no content)"})
"""The program's own replies. Errors have ``isApiErrorMessage``."""


@dataclass(slots=True)
class TreeLine:
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
    """True if a model is sent it."""
    reply: tuple[str, str] | None
    """Of a block of a reply: which reply. Two of a reply's lines have the same."""
    answers: bool
    """True if it holds the result of a call."""
    is_queued: bool
    """True if the user said it while the model was at work."""
    boundary: bool
    """True if a compaction starts here."""
    summary: bool
    kept: tuple[str, str, str] | None
    """The first and the last line that a compaction kept, and the line that they follow now."""
    model: str
    """Of a reply; empty if no model is named."""
    is_prompt: bool
    """True if the user typed it."""
    clears: bool
    """True if the user cleared the session here, provided the line has no parent: the command, or the program's text about it."""
    after_rewind: bool = False
    """True if a rewind is right before it."""
    anchor: TreeLine | None = None
    """The nearest message above it."""
    call: tuple[str, str] | None = None
    """The reply of a block, of a result, and of a message between them. A child of one of them is a child of all."""


@dataclass(slots=True)
class FirstPass:
    """The result of the first pass over the lines."""

    lines: KeptLines
    by_place: dict[int, TreeLine] = field(default_factory=dict)
    """In the order of the lines."""
    by_id: dict[str, TreeLine] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    """By the uuid of the line that a summary names as its leaf."""
    sessions: dict[str, None] = field(default_factory=dict)
    """In the order in which they last appeared."""
    streamed: str = ""
    """The id of the session, if these are lines that the program printed while it ran."""
    version: str | None = None
    cwd: str = ""
    """The first one: it is the one that names the folder."""
    branch: str = ""
    """The last one."""
    forked_from: str = ""
    """The session that ``/branch`` copied: each copied line names it."""
    models: dict[str, str] = field(default_factory=dict)
    first: bytes = b""
    given: set[int] = field(default_factory=set)
    """Places of lines whose attachment is sent and is not a message."""
    rewound: str | None = None
    """The uuid that the last rewind went back to, if no line of the tree follows; empty for the start. None without such a rewind."""
    waiting: dict[int, str] = field(default_factory=dict)
    """Prompts that were typed during the model's work and are in no message so far, by the place of their line."""
    findings: list[ImportFinding] = field(default_factory=list)

    @property
    def unsent(self) -> dict[int, TreeLine]:
        """A message for each prompt that was typed and never sent: it was taken back, or the session ended."""
        lines = ((place, self.lines[place].value) for place in self.waiting)
        return {place: _node(place, "user", value) for place, value in lines if value is not None}

    @property
    def nodes(self) -> list[TreeLine]:
        return [*self.by_place.values()]


def look_at(lines: KeptLines) -> FirstPass:
    """Read every line once."""
    look = FirstPass(lines)
    for place, line in enumerate(lines.read()):
        look.first = look.first or hashlib.sha256(line.raw).digest()
        if line.value is not None:
            _take(look, place, line.value)
    _link(look)
    return look


def message_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """The message of a line as a request has it, without id and usage. The content is the line's own object."""
    if value.get("type") == "attachment":  # one kind is a prompt, typed during the model's work
        prompt = _attachment(value).get("prompt")
        is_said = text_in(_attachment(value), "type") == "queued_command" and _is_said("user", "user", prompt)
        return {"role": "user", "content": prompt} if is_said else None
    if value.get("type") == _QUEUE:
        return {"role": "user", "content": value.get("content")}
    message = value.get("message")
    if not isinstance(message, dict):
        return None
    role, content = message.get("role"), message.get("content")
    if not _is_said(value.get("type", role), role, content):
        return None
    return message if len(message) == 2 else {"role": role, "content": content}


def _is_said(kind: Any, role: Any, content: Any) -> bool:
    """True if a model is sent a line of this kind with a message of this role and content."""
    return kind in SPEAKERS and role in SPEAKERS and (content.__class__ is list or content.__class__ is str)


def _take(look: FirstPass, place: int, value: dict[str, Any]) -> None:
    kind = value.get("type")
    if kind is None and "uuid" in value and isinstance(value.get("message"), dict):
        kind = value["message"].get("role")  # a tool took the type away
    if not look.streamed and is_streamed(value):
        look.streamed = text_in(value, "session_id")
    session = text_in(value, "sessionId")
    if session and (not look.sessions or next(reversed(look.sessions)) != session):
        look.sessions.pop(session, None)
        look.sessions[session] = None
    if kind.__class__ is not str or kind not in IN_THE_TREE:
        _take_aside(look, place, kind, value)
        return
    node = _node(place, kind, value)
    # One object for each id and name, however many lines have it: there may be millions of lines.
    if (parent := look.by_id.get(node.parent)) is not None:
        node.parent = parent.id
    node.model = look.models.setdefault(node.model, node.model)
    if kind != "progress" and not node.sidechain:
        node.after_rewind = look.rewound is not None
        look.rewound = None
    if look.waiting and node.says and kind != "assistant":
        said = "\n".join(texts_in((message_of(value) or {}).get("content")))
        look.waiting = {at: prompt for at, prompt in look.waiting.items() if prompt not in said}
    if kind == "attachment" and not node.says and text_in(_attachment(value), "type") in _GIVEN:
        look.given.add(place)
    look.version = text_in(value, "version") or look.version
    look.cwd = look.cwd or text_in(value, "cwd")
    look.branch = text_in(value, "gitBranch") or look.branch
    look.forked_from = look.forked_from or text_in(obj(value.get("forkedFrom")), "sessionId")
    before = look.by_id.get(node.id)
    if before is not None:
        same = look.lines[before.place].value == value
        why = "for the second time: the first one counts" if same else "with something else: the last one counts"
        look.findings.append(look.lines.finding("duplicate-uuid", f"the uuid of an earlier line, {why}", place))
        if same:
            return
        del look.by_place[before.place]
    look.by_place[place] = node
    if node.id:
        look.by_id[node.id] = node


@dataclass(slots=True)
class _Said:
    """How far a conversation came, or that of a sub-agent."""

    tip: TreeLine | None = None
    """Its last line."""
    prompts: set[int] = field(default_factory=set)
    """The places that its prompts follow; -1 for the start. A prompt that follows the same place as an earlier one was typed after
    a rewind.
    """
    compacted: int = -1
    """The place of its last compaction. No rewind goes back past it."""


def _link(look: FirstPass) -> None:
    """Find the line that each line follows: its parent, unless the program named one that the user never went back to.

    Retries, hooks, resumed sessions and compactions of several versions name a parent far above the line before them. A user goes
    back only by a rewind: then the next line is a prompt that follows the same line as an earlier prompt. Any other line that would
    leave out the last message follows the line before it.
    """
    if not any(node.parent in look.by_id for node in look.by_place.values()):
        return  # the order of the lines counts
    of_agents: dict[str | None, _Said] = defaultdict(_Said)
    for node in look.by_place.values():
        parent = look.by_id.get(node.parent) if node.parent else None
        if parent is not None and parent.place > node.place:
            continue
        if not node.sidechain or node.agent:  # the first versions interleave their sub-agents, and do not name them
            _link_one(look, of_agents[node.agent if node.sidechain else None], node, parent)


def _link_one(look: FirstPass, far: _Said, node: TreeLine, parent: TreeLine | None) -> None:
    tip = far.tip
    if not node.parent and tip is not None and (node.boundary or node.kind == "progress"):
        parent, node.parent = tip, tip.id  # some name the line that they follow, others mean the line before
    # A parent that is not in the file is the line before: see way_to.
    above = parent if parent is not None else tip if node.parent else None
    node.anchor = None if above is None else _said_at(above)
    node.call = node.reply
    if (node.answers or node.is_queued) and node.anchor is not None:
        node.call = node.anchor.call
    if node.kind == "progress":
        return
    if tip is not None and node.anchor is not _said_at(tip):
        if above is None and node.clears:
            node.boundary, node.parent = True, tip.id
        elif _leaves_out(far, node, _said_at(tip)):
            why = (
                "its parent is not the last message, and the user did not go back to it: it follows the line before it"
            )
            look.findings.append(look.lines.finding("broken-chain", why, node.place))
            node.parent, node.anchor = tip.id, _said_at(tip)
        elif node.answers and not _is_side_by_side(node.anchor, _said_at(tip)):
            return  # it follows its call; the next line follows the last message
    if node.is_prompt:
        far.prompts.add(-1 if node.anchor is None else node.anchor.place)
    if node.boundary:
        far.compacted = node.place
    if node.id:
        far.tip = node


def _leaves_out(far: _Said, node: TreeLine, said: TreeLine | None) -> bool:
    """True if this line would leave out the last message although no user went back."""
    above = node.anchor
    if said is None or node.after_rewind or (node.reply is not None and node.reply == said.call):
        return False  # or tools ran side by side
    if _is_side_by_side(above, said):
        return False
    if node.answers:
        return above is None or above.reply is None  # else it follows its call
    place = -1 if above is None else above.place
    return place < far.compacted or not node.is_prompt or place not in far.prompts


def _is_side_by_side(one: TreeLine | None, other: TreeLine | None) -> bool:
    """True if the two are of one reply: a call of it, or the result of one."""
    return one is not None and other is not None and one.call is not None and one.call == other.call


def _said_at(node: TreeLine) -> TreeLine | None:
    return node if node.says else node.anchor


def _take_aside(look: FirstPass, place: int, kind: Any, value: dict[str, Any]) -> None:
    """Read a line outside the tree: a title, a rewind, a prompt that waits; ignore any other."""
    # The program writes the line also where nothing was taken back; then it is not explicit.
    if kind == "last-prompt" and "leafUuid" in value and True in (value.get("explicit"), value.get("rewound")):
        look.rewound = text_in(value, "leafUuid")
    if kind == "summary":
        look.summaries[text_in(value, "leafUuid")] = text_in(value, "summary")
    if kind == _QUEUE and value.get("operation") == "enqueue":
        prompt = text_in(value, "content").strip()
        if prompt and not prompt.startswith(_OTHERWISE_SENT) and _PLACEHOLDER not in prompt:
            look.waiting[place] = prompt
    for name, member in (("custom-title", "customTitle"), ("agent-name", "agentName"), ("ai-title", "aiTitle")):
        if kind == name and text_in(value, member):
            look.titles[name] = text_in(value, member)


def _node(place: int, kind: str, value: dict[str, Any]) -> TreeLine:
    get = value.get
    boundary = kind == "system" and get("subtype") == "compact_boundary"
    given = get("message")
    message: dict[str, Any] = given if given.__class__ is dict else {}
    summary = get("isCompactSummary") is True
    hidden = get("isVisibleInTranscriptOnly") is True and not summary
    content = message.get("content")
    by_the_program = get("isApiErrorMessage") is True or (
        message.get("model") == SYNTHETIC and "".join(texts_in(content)).strip() in _OWN_WORDS
    )
    reply, answers, model = None, False, ""
    if kind == "assistant":
        number = text_in(message, "id")
        reply = (number, text_in(value, "requestId")) if number else (str(place), "")
        model = text_in(message, "model") if message.get("model") != SYNTHETIC else ""
    elif kind == "user" and content.__class__ is list:
        answers = any(block.get("type") == "tool_result" for block in objects(content))
    says = not hidden and not by_the_program and message_of(value) is not None
    is_prompt = says and kind == "user" and not answers and typed_command(value) != ""
    return TreeLine(
        place,
        kind,
        text_in(value, "uuid"),
        text_in(value, "parentUuid") or text_in(value, "logicalParentUuid"),
        get("isSidechain") is True or text_in(value, "parent_tool_use_id") != "",
        text_in(value, "agentId", "parent_tool_use_id"),
        says,
        reply,
        answers,
        kind == "attachment" and message_of(value) is not None,
        boundary,
        summary,
        _kept(value) if boundary else None,
        model,
        is_prompt,
        (says and kind == "user" and not answers and not is_prompt)
        or (kind == "attachment" and text_in(_attachment(value), "hookName") == "SessionStart:clear"),
    )


def is_streamed(value: dict[str, Any]) -> bool:
    """True if it is a line that the program prints while it runs, for the program that started it."""
    if text_in(value, "session_id") == "":
        return False
    return "parent_tool_use_id" in value or (value.get("subtype") == "init" and "claude_code_version" in value)


def is_injected(value: dict[str, Any]) -> bool:
    """True if the line says that the program wrote it: the text of a command, news of a task, a summary."""
    kind = text_in(value["origin"], "kind") if isinstance(value.get("origin"), dict) else ""
    return True in (value.get("isMeta"), value.get("isCompactSummary")) or kind not in ("", "human")


def typed_command(value: dict[str, Any]) -> str | None:
    """The part of a line's message that the user typed; None for all of it."""
    message = message_of(value)
    if is_injected(value):
        return CLAUDE_CODE.command_in(texts_in(message["content"])) if message is not None else ""
    return None if message is None or message["role"] != "user" else CLAUDE_CODE.typed_of(texts_in(message["content"]))


def _attachment(value: dict[str, Any]) -> dict[str, Any]:
    return obj(value.get("attachment"))


def _kept(value: dict[str, Any]) -> tuple[str, str, str] | None:
    segment = obj(value.get("compactMetadata")).get("preservedSegment")
    if not isinstance(segment, dict):
        return None
    return text_in(segment, "headUuid"), text_in(segment, "tailUuid"), text_in(segment, "anchorUuid")
