"""The exports of chat sites: one document with all conversations, each a tree of messages.

The path from the root to the last seen leaf is the conversation. Messages beside it, from other answers or other prompts, become
events that keep them. A line of such a format is one message of the tree with its bytes; the first line of a conversation has
everything before its messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from transcript_store.formats._document import (
    LONGEST_BYTES,
    Oddity,
    Span,
    objects_of,
    pieces_within,
    read_all,
    read_object,
    why_unread,
)
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, first_text, labels, obj, objects, present, text_in
from transcript_store.formats._neutral import Losses
from transcript_store.formats._plan import ImportFinding, PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, left_finding
from transcript_store.formats._rows import object_beside
from transcript_store.formats._scaffolding import marked
from transcript_store.formats._times import time_member, time_of_member
from transcript_store.formats._trees import left_entry
from transcript_store.messages import as_text

_LONGEST_GAP_BYTES = 1 << 16
_NOTHING = b"\xef\xbb\xbf \t\r\n,[]"
"""Bytes that may separate conversations."""


@dataclass(frozen=True, slots=True)
class ExportNode:
    """A message of the tree."""

    id: str
    parent: str | None
    value: Json


class Export(ABC):
    """Reads the conversations of one site's export."""

    name: str
    provider: str
    member: str
    """The member of a conversation that has its messages."""
    in_order = False
    """True if the messages are stored in the order of the conversation, so that one may follow the one before it if its parent is
    missing.
    """

    @abstractmethod
    def recognizes(self, head: SourceHead) -> bool:
        """True for a source of this site."""

    @abstractmethod
    def session(self, conversation: Json) -> str | None:
        """Its id."""

    @abstractmethod
    def nodes(self, conversation: Json) -> list[ExportNode]:
        """A node for each object in ``member``, in the order of the document."""

    @abstractmethod
    def leaf(self, conversation: Json, nodes: list[ExportNode]) -> str | None:
        """The id of the last message; None if the messages are a list and not a tree."""

    @abstractmethod
    def times(self, conversation: Json, nodes: list[ExportNode]) -> tuple[object, Iterable[object]]:
        """When the conversation last changed, and when its messages were sent, as the export has them."""

    @abstractmethod
    def drafts_on(self, path: list[ExportNode], losses: Losses, files: AttachedFiles) -> list[list[Draft]]:
        """For each node its messages; none if it is an event."""

    @abstractmethod
    def model(self, conversation: Json, path: list[ExportNode]) -> str | None:
        """Which model answered last."""

    def title(self, conversation: Json) -> str | None:
        return first_text(conversation.get("name"))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        spans = list(objects_of(source))
        beside, files = tuple(_beside(source, spans)), AttachedFiles(source)
        for span in spans:
            plan = self._plan(source, files, span, Span(0, source.size) if len(spans) == 1 else span)
            yield replace(plan, findings=(*plan.findings, *beside)) if beside and span is spans[-1] else plan

    def _plan(self, source: Source, files: AttachedFiles, span: Span, whole: Span) -> SessionPlan:
        """The conversation at ``span``. ``whole`` is what its lines have: of an only one the document with its brackets."""
        if span.size > LONGEST_BYTES:
            message = f"a conversation longer than {LONGEST_BYTES:,} bytes was left out"
            session = hashlib.sha256(read_all(source, Span(span.offset, 1 << 20))).hexdigest()
            finding = ImportFinding("too-long", message, 1, span.offset)
            return SessionPlan(self.name, session, 1, (tuple,), findings=(finding,))
        read = self._read(source, span, whole)
        if read is None:
            raw = read_all(source, span)
            message = "a conversation that is not a JSON object, is cut off, or has a member twice: its bytes are kept"
            finding = ImportFinding(*why_unread(raw, "a conversation that is", message), 1, span.offset)
            session = hashlib.sha256(raw).hexdigest()
            return SessionPlan(self.name, session, 1, (partial(_unread, source, whole),), findings=(finding,))
        conversation, lines, nodes, odd = read
        path, findings = _path(nodes, self.leaf(conversation, nodes), in_order=self.in_order)
        if not isinstance(conversation.get(self.member), (dict, list)):
            message = (
                f"an object without {self.member}: its bytes are kept, and it has no message; a conversation that stands deeper "
                "in the document is read if it is taken out into a file of its own"
            )
            findings.append(("no-messages", message))
        findings += odd
        losses = Losses()
        said = sum(len(drafts) for drafts in self.drafts_on(path, losses, files))
        on_the_way = set(map(id, path))
        left = sum(len(self._left(node, files)) for node in nodes if id(node) not in on_the_way)
        return SessionPlan(
            format=self.name,
            session=self.session(conversation) or hashlib.sha256(lines[0].raw).hexdigest(),
            lines=len(lines),
            generations=(partial(self._entries, source, files, span, whole),),
            provider=self.provider if said else None,
            model=self.model(conversation, path),
            labels=labels(title=self.title(conversation)),
            edition=self._edition(conversation, nodes),
            findings=(*(ImportFinding(*each, None, span.offset) for each in findings), *left_finding(left)),
            losses=losses.found(),
        )

    def _edition(self, conversation: Json, nodes: list[ExportNode]) -> tuple[str, str] | None:
        changed, said = self.times(conversation, nodes)
        edition = time_of_member(changed), max(map(time_of_member, said), default="")
        return edition if any(edition) else None

    def _entries(self, source: Source, files: AttachedFiles, span: Span, whole: Span) -> Iterator[PlannedRecord]:
        read = self._read(source, span, whole)
        if read is None:  # the file changed since it was planned
            yield from _unread(source, whole)
            return
        conversation, lines, nodes, _ = read
        path, _ = _path(nodes, self.leaf(conversation, nodes), in_order=self.in_order)
        places = {id(node): number for number, node in enumerate(nodes, 1)}
        made = {
            places[id(node)]: drafts for node, drafts in zip(path, self.drafts_on(path, Losses(), files), strict=True)
        }
        beside = deque(number for number in range(len(lines)) if number not in made)

        def event(place: int) -> Iterator[PlannedRecord]:
            drafts = self._left(nodes[place - 1], files) if place else []
            first = drafts[0] if drafts else Draft()
            first.lines.append(lines[place])
            return (left_entry(draft.entry()) for draft in (drafts or [first]))

        if not any(made.values()):  # no message has a time, but the conversation has
            at = time_of_member(self.times(conversation, nodes)[0]) or None
            yield Draft(at=at, lines=[lines[beside.popleft()]]).entry()
        for place, drafts in made.items():
            while beside and beside[0] < place:  # nodes beside the path are events in the order of the document
                yield from event(beside.popleft())
            drafts = drafts or [Draft()]  # noqa: PLW2901
            drafts[0].lines.append(lines[place])
            yield from (draft.entry() for draft in drafts)
        for other in beside:
            yield from event(other)

    def _left(self, node: ExportNode, files: AttachedFiles) -> list[Draft]:
        """The messages of a node beside the path."""
        return self.drafts_on([node], Losses(), files)[0]

    def _read(
        self, source: Source, span: Span, whole: Span
    ) -> tuple[Json, list[SourceLine], list[ExportNode], tuple[Oddity, ...]] | None:
        """The conversation; its first line and one for each node; the nodes; in which ways its text is no strict JSON."""
        raw = read_all(source, span)
        conversation, odd = read_object(raw)
        if conversation is None:
            return None
        nodes = self.nodes(conversation)
        pieces = pieces_within(raw, self.member)
        if len(pieces) != 1 + len(nodes):  # a key occurs twice
            return None
        before = read_all(source, Span(whole.offset, span.offset - whole.offset))
        end = span.offset + span.size
        pieces[0] = (pieces[0][0] - len(before), before + pieces[0][1])
        pieces[-1] = (pieces[-1][0], pieces[-1][1] + read_all(source, Span(end, whole.offset + whole.size - end)))
        values = (None, *(node.value for node in nodes))
        lines = [
            SourceLine(number, span.offset + offset, piece, value)
            for number, ((offset, piece), value) in enumerate(zip(pieces, values, strict=True), 1)
        ]
        return conversation, lines, nodes, odd


def _beside(source: Source, spans: list[Span]) -> Iterator[ImportFinding]:
    """Report bytes between the conversations that are not one: an array with content, a number, a text."""
    at = 0
    for span in (*spans, Span(source.size, 0)):
        size = span.offset - at
        if size > _LONGEST_GAP_BYTES or read_all(source, Span(at, size)).strip(_NOTHING):
            message = (
                f"{size:,} bytes beside the conversations hold none that can be read: a conversation in them is imported "
                "from a file of its own"
            )
            yield ImportFinding("beside", message, None, at)
        at = span.offset + span.size


def _unread(source: Source, span: Span) -> Iterator[PlannedRecord]:
    yield Draft(lines=[SourceLine(1, span.offset, read_all(source, span), None)]).entry()


def _path(
    nodes: list[ExportNode], leaf: str | None, *, in_order: bool
) -> tuple[list[ExportNode], list[tuple[str, str]]]:
    """The nodes from the root to the leaf, and the faults of the tree. ``in_order``: they are stored in the order of the conversation."""
    if leaf is None:
        return nodes, []
    places = {node.id: place for place, node in enumerate(nodes)}
    if nodes and leaf not in places:
        return nodes, [("no-leaf", f"the conversation ends with the message {leaf}, which is not there")]
    path: list[ExportNode] = []
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
            why = "the conversation starts here" if at is None else "it follows the message before it"
            findings.append(("dangling-parent", f"the message {path[-1].id} names a parent that is not there: {why}"))
    return path[::-1], findings


def _not_yet_seen(below: dict[int, int], at: int) -> int | None:
    """The nearest unseen place before ``at``. ``below`` maps each seen place to an earlier one; all between the two were seen.

    Each step shortens the path for the next one. Place by place, a hostile file would cause quadratic time.
    """
    while at in below:
        below[at] = at = below.get(below[at], below[at])
    return None if at < 0 else at


def part_of(value: object, *names: str) -> object:
    """The member of an object, or of an object within it."""
    for name in names:
        value = obj(value).get(name)
    return value


# ---- chatgpt ----
#
# ChatGPT: ``conversations.json`` of an export, conversations with a tree ``mapping`` and ``current_node``.
#
# A node is ``{"id", "parent", "children", "message"}``; a message has ``author.role``, ``content.content_type``, ``recipient`` and
# ``metadata``. A message to another recipient than ``all`` is a call, and its tool's next message is the result. Nodes without a
# message and hidden ones are events. So are the model's thoughts: the reply that follows has them as ``reasoning_content``. Messages are
# built: the site's requests are not in the export. Pictures, sounds and documents beside the conversations are parts of the messages.

_CHATGPT_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NOT_SAID = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


class ChatGpt(Export):
    """Reads the conversations of a ChatGPT export."""

    name = "chatgpt"
    revision = 3
    provider = "openai"
    member = "mapping"

    def recognizes(self, head: SourceHead) -> bool:
        return head.is_document_with("mapping", "create_time", opening=(b"[", b"{"))

    def session(self, conversation: Json) -> str | None:
        return first_text(conversation.get("conversation_id"), conversation.get("id"))

    def nodes(self, conversation: Json) -> list[ExportNode]:
        """A node may name its children alone: some exports leave out the one link, some the other."""
        mapping = {name: value for name, value in obj(conversation.get("mapping")).items() if isinstance(value, dict)}
        above = {
            child: name
            for name, value in mapping.items()
            for child in (value["children"] if isinstance(value.get("children"), list) else ())
            if isinstance(child, str)
        }
        found = [ExportNode(name, first_text(value.get("parent")), value) for name, value in mapping.items()]
        return [one if one.parent in mapping else replace(one, parent=above.get(one.id, one.parent)) for one in found]

    def leaf(self, conversation: Json, nodes: list[ExportNode]) -> str | None:
        """The node that the export names; else the last node without children."""
        if found := first_text(conversation.get("current_node")):
            return found
        parents = {node.parent for node in nodes}
        return next((node.id for node in reversed(nodes) if node.id not in parents), None)

    def title(self, conversation: Json) -> str | None:
        return first_text(conversation.get("title"))

    def model(self, conversation: Json, path: list[ExportNode]) -> str | None:
        found = (first_text(part_of(node.value, "message", "metadata", "model_slug")) for node in reversed(path))
        return next((slug for slug in found if slug), None) or first_text(conversation.get("default_model_slug"))

    def times(self, conversation: Json, nodes: list[ExportNode]) -> tuple[object, Iterable[object]]:
        return conversation.get("update_time"), (part_of(node.value, "message", "create_time") for node in nodes)

    def drafts_on(self, path: list[ExportNode], losses: Losses, files: AttachedFiles) -> list[list[Draft]]:
        talk = _Talk(losses, files)
        return [talk.messages(node) for node in path]


class _Talk:
    """The messages on the path to the current node, and the calls without a result."""

    def __init__(self, losses: Losses, files: AttachedFiles) -> None:
        self._losses, self._files = losses, files
        self._calls: list[tuple[str, str]] = []
        """Those without a result: recipient and id."""
        self._result: tuple[object, Json] | None = None
        """The last tool and its message, until another speaker follows."""
        self._thoughts: list[str] = []
        """Those whose reply has not followed."""

    def messages(self, node: ExportNode) -> list[Draft]:
        value = obj(node.value.get("message"))
        metadata, content = obj(value.get("metadata")), obj(value.get("content"))
        if metadata.get("is_visually_hidden_from_conversation") is True:
            return []
        if content.get("content_type") in _NOT_SAID:
            self._thoughts += _thoughts(content)
            return []
        said, attached = _said(content, metadata, self._losses, self._files)
        role, recipient = part_of(value, "author", "role"), first_text(value.get("recipient")) or "all"
        if not said or role not in ("user", "assistant", "system", "tool"):
            return []
        at = time_member(value.get("create_time"))
        shown = [part for each in attached if (part := each.part()) is not None]
        # Only a user's message may show a picture: those of a tool or the model follow its message.
        behind = [Draft({"role": "user", "content": shown}, marked("", is_said=True), at)] if shown else []
        if role == "tool":
            if (
                not self._calls and self._result is None
            ):  # a quotation from the user's files, which the site looks up by itself
                self._losses.note("no-call", "a tool's message that answers no call is text in the user's name")
                return [Draft({"role": "user", "content": said}, marked("", is_said=True), at), *behind]
            message = self._answer(part_of(value, "author", "name"), said)
            return behind if message is None else [Draft(message, {}, at), *behind]
        self._result = None
        thoughts, self._thoughts = self._thoughts, []
        if role == "user" and shown:
            typed = said if any(each.type == "text/plain" for each in attached) else None
            return [Draft({"role": role, "content": [{"type": "text", "text": said}, *shown]}, marked(typed), at)]
        stopped = first_text(part_of(metadata, "finish_details", "type"))
        about = present(model=first_text(metadata.get("model_slug")), stop_reason=stopped)
        extra = about if role == "assistant" else {}
        reasoning = present(reasoning_content="\n".join(thoughts)) if role == "assistant" else {}
        if role == "assistant" and recipient != "all":
            self._calls.append((recipient, _known_as(node.id)))
            called: Json = {
                "role": "assistant",
                "content": None,
                **reasoning,
                "tool_calls": [_call(node.id, recipient, said)],
            }
            return [Draft(called, extra, at), *behind]
        return [Draft({"role": role, "content": said, **reasoning}, extra, at), *behind]

    def _answer(self, tool: object, said: str) -> Json | None:
        """A tool's message; None if it continues the one before (a search reports each file by itself)."""
        asked = next((call for call in self._calls if call[0] == tool or call[0].startswith(f"{tool}.")), None)
        if asked is None and self._result is not None and (self._result[0] == tool or not self._calls):
            self._result[1]["content"] += "\n" + said
            return None
        asked = asked or self._calls[0]
        self._calls.remove(asked)
        self._result = (tool, {"role": "tool", "tool_call_id": asked[1], "content": said})
        return self._result[1]


def _thoughts(content: Json) -> Iterator[str]:
    """Each thought: what it is about, and what was thought."""
    for thought in objects(content.get("thoughts")):
        yield from (said for member in ("summary", "content") if (said := first_text(thought.get(member))))


def _call(node: str, recipient: str, said: str) -> Json:
    try:
        arguments = said if isinstance(json.loads(said), dict) else None
    except (ValueError, RecursionError):
        arguments = None
    given = arguments or json.dumps({"input": said}, ensure_ascii=False)
    function = {"name": _NOT_IN_NAMES.sub("_", recipient)[:64], "arguments": given}
    return {"id": _known_as(node), "type": "function", "function": function}


def _known_as(node: str) -> str:
    return node if _CHATGPT_ID.fullmatch(node) else hashlib.sha256(node.encode(errors="replace")).hexdigest()[:40]


def _said(content: Json, metadata: Json, losses: Losses, files: AttachedFiles) -> tuple[str, list[Attached]]:
    """The text of a message, in which each file has its name, and those of its files that the export has."""
    parts: list[Any] = content["parts"] if isinstance(content.get("parts"), list) else []
    found: list[str] = [] if parts else [first_text(content.get("text"), content.get("result")) or ""]
    names = {its_id: name for one in _uploads(metadata) for its_id, name in [(one["id"], first_text(one.get("name")))]}
    attached: dict[str, Attached] = {}
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict) and (said := first_text(part.get("text"))):
            found.append(said)
        elif isinstance(part, dict):
            for asset in _pointers(part):
                pointer, kind = asset["asset_pointer"], first_text(asset.get("content_type")) or "file"
                its_id, name = next(((each, name) for each, name in names.items() if each in pointer), (pointer, None))
                if (file := files.find(pointer, name)) is not None and file.type:
                    attached[its_id] = file
                    found.append(f"[{file.type.partition('/')[0]}: {file.name}]")
                    continue
                losses.note("media", "a picture or a sound is a file beside the export: the text has its name")
                found.append(f"[{kind}: {f'{name}, {pointer}' if name else pointer}]")
    said = _with_links("\n".join(piece for piece in found if piece), metadata)
    is_all = not said
    for one in objects(metadata.get("attachments")):
        its_id, name = first_text(one.get("id")) or "", first_text(one.get("name"))
        if its_id and (its_id in attached or its_id in said):
            continue  # a picture is an attachment too
        file = files.find(its_id, name)
        if file is not None and file.type:
            attached[its_id] = file
        else:
            losses.note("files", "the export has the name of a file, but not its content")
        if (is_all or its_id in attached) and (not name or name not in said):
            said += f"\n[file: {name or (file.name if file is not None else 'unnamed')}]"
    return said.removeprefix("\n"), [*attached.values()]


def _uploads(metadata: Json) -> Iterator[Json]:
    """The attachments of a message that have an id: the pointers to them have it too."""
    return (one for one in objects(metadata.get("attachments")) if first_text(one.get("id")))


def _with_links(said: str, metadata: Json) -> str:
    """The text with the addresses of its citations; the site writes private characters instead."""
    for reference in objects(metadata.get("content_references")):
        marker = first_text(reference.get("matched_text"))
        if not marker or not marker.strip() or marker not in said:
            continue
        pages = [reference, *objects(reference.get("items")), *objects(reference.get("sources"))]
        named = ((text_in(page, "url"), text_in(page, "title")) for page in pages)
        links = {url: f"[{title or url}]({url})" for url, title in named if url}
        if links:
            said = said.replace(marker, " ".join(links.values()))
    return said


def _pointers(part: Json) -> Iterator[Json]:
    """The objects of a part that name a file. Speech has its sound one level deeper, and so have camera pictures."""
    for each in (part, *part.values()):
        yield from (one for one in (objects(each) or [obj(each)]) if first_text(one.get("asset_pointer")))


# ---- claude ai ----
#
# Claude.ai: ``conversations.json`` of an export, conversations with ``chat_messages``.
#
# A message is ``{"uuid", "parent_message_uuid"?, "sender": "human" | "assistant", "content": […], "text", "attachments", "files"}``.
# ``text`` repeats ``content``. The results of tools are within the assistant's message: it becomes several, as the API has them.
# Attachments have their text, ``files`` only their names; thinking has no signature there.

_CLAUDE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_NOT_SUPPORTED = "```\nThis block is not supported on your current device yet.\n```"
"""What the site writes into ``text`` in the place of a call."""
_NOBODY = ("00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000")
"""The parent that the first message names."""


class ClaudeAi(Export):
    """Reads the conversations of a Claude.ai export."""

    name = "claude-ai"
    revision = 3
    in_order = True
    provider = "claude"
    member = "chat_messages"

    def recognizes(self, head: SourceHead) -> bool:
        return head.is_document_with("chat_messages", opening=(b"[", b"{"))

    def session(self, conversation: Json) -> str | None:
        return first_text(conversation.get("uuid"))

    def nodes(self, conversation: Json) -> list[ExportNode]:
        values = objects(conversation.get("chat_messages"))
        found = (
            ExportNode(text_in(value, "uuid"), first_text(value.get("parent_message_uuid")), value) for value in values
        )
        return [replace(one, parent=None) if one.parent in _NOBODY else one for one in found]

    def leaf(self, conversation: Json, nodes: list[ExportNode]) -> str | None:
        """The message that the export names; else the last one, if any message has a parent here."""
        known = {node.id for node in nodes}
        if not any(node.parent in known for node in nodes):
            return None
        return first_text(conversation.get("current_leaf_message_uuid")) or nodes[-1].id

    def model(self, conversation: Json, path: list[ExportNode]) -> str | None:  # noqa: ARG002 (a message does not say)
        return first_text(conversation.get("model"))

    def times(self, conversation: Json, nodes: list[ExportNode]) -> tuple[object, Iterable[object]]:
        said = (node.value.get(name) for node in nodes for name in ("created_at", "updated_at"))
        return conversation.get("updated_at"), said

    def drafts_on(self, path: list[ExportNode], losses: Losses, files: AttachedFiles) -> list[list[Draft]]:  # noqa: ARG002
        return [_messages(node.value, losses) for node in path]


def _messages(value: Json, losses: Losses) -> list[Draft]:
    at = first_text(value.get("created_at"))
    files = objects(value.get("files")) or objects(value.get("files_v2"))
    if files:
        losses.note("files", "the export has the name of a file, but not its content", len(files))
    role = "assistant" if value.get("sender") == "assistant" else "user"
    turn = _ExportMessage(text_in(value, "uuid"), role, losses)
    for attached in objects(value.get("attachments")):
        if extracted := first_text(attached.get("extracted_content")):
            source = {"type": "text", "media_type": "text/plain", "data": extracted}
            title = present(title=first_text(attached.get("file_name")))
            turn.add({"type": "document", "source": source, **title})
    for block in objects(value.get("content")):
        turn.block(block)
    said = (first_text(value.get("text")) or "").replace(_NOT_SUPPORTED, "").strip()
    if said and not turn.speaks:  # ``content`` is missing, or has only blocks that say nothing
        turn.add({"type": "text", "text": value["text"].replace(_NOT_SUPPORTED, "")})
    if not turn.said:
        names = (text_in(file, "file_name") or "unnamed" for file in files)
        for name in names:
            turn.add({"type": "text", "text": f"[file: {name}]"})
    return [Draft({"role": role, "content": blocks}, {}, at) for role, blocks in turn.said]


class _ExportMessage:
    """One message of the export as turns: results of tools are the user's."""

    def __init__(self, uuid: str, role: str, losses: Losses) -> None:
        self.said: list[tuple[str, list[Json]]] = []
        self.speaks = False
        """True if a block was a text, a call or a result."""
        self._uuid, self._role, self._losses = uuid, role, losses
        self._open: list[tuple[str, Any, str]] = []
        """The calls that have no result: the id given, the name, the id that it has now."""

    def add(self, block: Json, role: str | None = None) -> None:
        role = role or self._role
        if not self.said or self.said[-1][0] != role:
            self.said.append((role, []))
        self.said[-1][1].append(block)

    def block(self, block: Json) -> None:
        kind = block.get("type")
        if kind in ("text", "voice_note"):
            if (said := first_text(block.get("text"), block.get("transcript"))) and said.strip():
                self.speaks = True
                self.add({"type": "text", "text": said})
        elif kind == "tool_use" and self._role == "assistant" and first_text(block.get("name")):
            self._call(block)
        elif kind == "tool_result" and self._role == "assistant":
            self._result(block)
        elif kind == "thinking":
            self._losses.note("thinking", "thinking has no signature in the export: it is kept, and not sent")
        else:
            self._losses.note("own", "what only Claude.ai knows is kept, and not sent")

    def _call(self, block: Json) -> None:
        self.speaks = True
        given = first_text(block.get("id")) or ""
        number = sum(len(blocks) for _, blocks in self.said)
        made = hashlib.sha256(f"{self._uuid}/{number}/{given}".encode(errors="replace")).hexdigest()[:24]
        is_taken = given in {now for _, _, now in self._open}
        known = given if _CLAUDE_ID.fullmatch(given) and not is_taken else f"toolu_{made}"
        self._open.append((given, block["name"], known))
        self.add({"type": "tool_use", "id": known, "name": block["name"], "input": obj(block.get("input"))})

    def _result(self, block: Json) -> None:
        self.speaks = True
        given, name = first_text(block.get("tool_use_id")) or "", block.get("name")
        call = next((call for call in self._open if (call[0] == given if given else call[1] == name)), None)
        if call is None:
            self._losses.note("no-call", "a result that no call asked for is kept, and not sent")
            return
        self._open.remove(call)
        result = {"type": "tool_result", "tool_use_id": call[2], "content": _shown(block.get("content"))}
        self.add({**result, "is_error": True} if block.get("is_error") is True else result, "user")


def _shown(content: object) -> str:
    """A result as text: the export's blocks have members that the API does not know."""
    if not isinstance(content, list):
        return "" if content is None else as_text(content)
    texts = (obj(part).get("text") for part in content)
    return "\n".join(
        said if isinstance(said, str) else as_text(part) for said, part in zip(texts, content, strict=True)
    )


# ---- attached ----
#
# Pictures, sounds and documents beside the conversations of an export, found by the ids in messages.
#
# A file's name starts with its id: ``file-AbC.dat``, ``file_00ff-zebra.png``. Its first bytes tell its type. The user's name for it
# is in ``conversation_asset_file_names.json``, or in the message.

LONGEST_FILE_BYTES = 16 << 20
"""A larger file stays a name: base64 in a message costs a third more than its bytes."""
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_NAMES = "conversation_asset_file_names.json"
_BEGINS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mp3"),
    (b"\xff\xfb", "audio/mp3"),
    (b"%PDF-", "application/pdf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


class Attached(NamedTuple):
    """A file of an export."""

    name: str
    """The user's name for it, or its name in the export."""
    type: str
    """``text/plain`` of a text, whatever it is; empty if it is of no known type."""
    data: bytes

    def part(self) -> Json | None:
        """As a part of a message of chat completions; None of what has no place there."""
        encoded = base64.b64encode(self.data).decode()
        if self.type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": f"data:{self.type};base64,{encoded}"}}
        if self.type.startswith("audio/"):
            return {"type": "input_audio", "input_audio": {"data": encoded, "format": self.type[len("audio/") :]}}
        if self.type == "application/pdf":
            data = f"data:{self.type};base64,{encoded}"
            return {"type": "file", "file": {"filename": self.name, "file_data": data}}
        return {"type": "text", "text": f"[file: {self.name}]\n{self.data.decode()}"} if self.type else None


class AttachedFiles:
    """The files beside a source."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def find(self, pointer: str, name: str | None = None) -> Attached | None:
        """The file that a message names by id, or by an address with the id; None if it is missing or too long. ``name`` is its
        name there.
        """
        path = next((self._paths[each] for each in _FILE_ID.findall(pointer) if each in self._paths), None)
        data = None if path is None else self._source.beside(path, longest=LONGEST_FILE_BYTES)
        if path is None or data is None:
            return None
        file = path.rpartition("/")[2]
        known = first_text(self._names.get(path)) or first_text(self._names.get(file)) or file
        return Attached(name or known.rpartition("/")[2], _type_of(data), data)

    @cached_property
    def _paths(self) -> dict[str, str]:
        names = getattr(self._source, "names_beside", None)
        found: dict[str, str] = {}
        for path in () if names is None else names():
            if (its_id := _FILE_ID.match(path.rpartition("/")[2])) is not None:
                found.setdefault(its_id[0], path)
        return found

    @cached_property
    def _names(self) -> Json:
        return object_beside(self._source, _NAMES)


def _type_of(data: bytes) -> str:
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12], "")
    for begins, kind in _BEGINS:
        if data.startswith(begins):
            return kind
    try:
        return "" if b"\0" in data or not data.decode().strip() else "text/plain"
    except UnicodeDecodeError:
        return ""
