"""ChatGPT: ``conversations.json`` of an export, conversations with a tree ``mapping`` and ``current_node``.

A node is ``{"id", "parent", "children", "message"}``; a message has ``author.role``, ``content.content_type``, ``recipient`` and
``metadata``. What goes to another recipient than ``all`` is a call, and what its tool says next is its result. Nodes without a
message, hidden ones, and the model's thoughts are events. Messages are built: the site's requests are not in the export.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.formats._blocks import Losses, objects
from transcript_store.formats._exports import Export, Node, part_of
from transcript_store.formats._generations import Draft
from transcript_store.formats._members import Json, first_text, obj, text, time_of
from transcript_store.formats._plan import Head

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NOT_SAID = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


class ChatGpt(Export):
    """Reads the conversations of a ChatGPT export."""

    name = "chatgpt"
    revision = 2
    provider = "openai"
    member = "mapping"

    def recognizes(self, head: Head) -> bool:
        begins = head.start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"[", b"{")
        return begins and b'"mapping"' in head.start and b'"create_time"' in head.start

    def session(self, conversation: Json) -> str | None:
        return first_text(conversation.get("conversation_id"), conversation.get("id"))

    def nodes(self, conversation: Json) -> list[Node]:
        mapping = obj(conversation.get("mapping"))
        return [
            Node(name, text(value.get("parent")), value) for name, value in mapping.items() if isinstance(value, dict)
        ]

    def leaf(self, conversation: Json, nodes: list[Node]) -> str | None:
        """What the export names; else the last node that nobody names as its parent."""
        if found := text(conversation.get("current_node")):
            return found
        parents = {node.parent for node in nodes}
        return next((node.id for node in reversed(nodes) if node.id not in parents), None)

    def title(self, conversation: Json) -> str | None:
        return text(conversation.get("title"))

    def model(self, conversation: Json, path: list[Node]) -> str | None:
        found = (text(part_of(node.value, "message", "metadata", "model_slug")) for node in reversed(path))
        return next((slug for slug in found if slug), None) or text(conversation.get("default_model_slug"))

    def times(self, conversation: Json, nodes: list[Node]) -> tuple[object, Iterable[object]]:
        return conversation.get("update_time"), (part_of(node.value, "message", "create_time") for node in nodes)

    def told(self, path: list[Node], losses: Losses) -> list[list[Draft]]:
        talk = _Talk(losses)
        return [talk.messages(node) for node in path]


class _Talk:
    """What is said on the way to the current node, and which calls have no result yet."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._calls: list[tuple[str, str]] = []
        """Those without a result: recipient and id."""
        self._result: tuple[object, Json] | None = None
        """The tool that spoke last and its message, until somebody else speaks."""

    def messages(self, node: Node) -> list[Draft]:
        value = obj(node.value.get("message"))
        metadata, content = obj(value.get("metadata")), obj(value.get("content"))
        if metadata.get("is_visually_hidden_from_conversation") is True or content.get("content_type") in _NOT_SAID:
            return []
        said = _said(content, metadata, self._losses)
        role, recipient = part_of(value, "author", "role"), text(value.get("recipient")) or "all"
        if not said or role not in ("user", "assistant", "system", "tool"):
            return []
        at = time_of(value.get("create_time"))
        if role == "tool":
            message = self._answer(part_of(value, "author", "name"), said)
            return [] if message is None else [Draft(message, {}, at)]
        self._result = None
        extra: Json = {}
        if role == "assistant":
            about = {
                "model": text(metadata.get("model_slug")),
                "stop_reason": text(part_of(metadata, "finish_details", "type")),
            }
            extra = {name: found for name, found in about.items() if found}
        if role == "assistant" and recipient != "all":
            self._calls.append((recipient, _known_as(node.id)))
            called: Json = {"role": "assistant", "content": None, "tool_calls": [_call(node.id, recipient, said)]}
            return [Draft(called, extra, at)]
        return [Draft({"role": role, "content": said}, extra, at)]

    def _answer(self, tool: object, said: str) -> Json | None:
        """A tool's message; None if it goes on with the one before (a search says each file that it found), or answers nothing."""
        asked = next((call for call in self._calls if call[0] == tool or call[0].startswith(f"{tool}.")), None)
        if asked is None and self._result is not None and (self._result[0] == tool or not self._calls):
            self._result[1]["content"] += "\n" + said
            return None
        if asked is None and not self._calls:
            self._losses.note("no-call", "what a tool said although nobody called it is kept, and not sent")
            return None
        asked = asked or self._calls[0]
        self._calls.remove(asked)
        self._result = (tool, {"role": "tool", "tool_call_id": asked[1], "content": said})
        return self._result[1]


def _call(node: str, recipient: str, said: str) -> Json:
    try:
        arguments = said if isinstance(json.loads(said), dict) else None
    except (ValueError, RecursionError):
        arguments = None
    function = {
        "name": _NOT_IN_NAMES.sub("_", recipient)[:64],
        "arguments": arguments or json.dumps({"input": said}, ensure_ascii=False),
    }
    return {"id": _known_as(node), "type": "function", "function": function}


def _known_as(node: str) -> str:
    return node if _ID.fullmatch(node) else hashlib.sha256(node.encode(errors="replace")).hexdigest()[:40]


def _said(content: Json, metadata: Json, losses: Losses) -> str:
    """The text of a message. Of a picture, a sound or a file only the name is in the export."""
    parts: list[Any] = content["parts"] if isinstance(content.get("parts"), list) else []
    found: list[str] = [] if parts else [first_text(content.get("text"), content.get("result")) or ""]
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict) and (said := text(part.get("text"))):
            found.append(said)
        elif isinstance(part, dict):
            for pointer in _pointers(part):
                losses.note("media", "a picture or a sound is a file beside the export: its name stands in the text")
                name = _name_of(pointer["asset_pointer"], metadata)
                found.append(f"[{text(pointer.get('content_type')) or 'file'}: {name}]")
    said = _with_links("\n".join(piece for piece in found if piece), metadata)
    # A picture is an attachment too, by the id that its pointer has.
    shown = [
        one
        for one in objects(metadata.get("attachments"))
        if not any(name and name in said for name in (text(one.get("id")), text(one.get("name"))))
    ]
    if shown:
        losses.note("files", "the export has the name of a file, and not what is in it", len(shown))
    return said or "\n".join(f"[file: {text(one.get('name')) or 'unnamed'}]" for one in shown)


def _name_of(pointer: str, metadata: Json) -> str:
    """What an upload is called, and where it is: the pointer has the id that the attachment has."""
    for one in objects(metadata.get("attachments")):
        if (known := text(one.get("id"))) and known in pointer and (name := text(one.get("name"))):
            return f"{name}, {pointer}"
    return pointer


def _with_links(said: str, metadata: Json) -> str:
    """The text with the addresses that its citations stand for: the site writes private characters instead."""
    for reference in objects(metadata.get("content_references")):
        marker = text(reference.get("matched_text"))
        if not marker or not marker.strip() or marker not in said:
            continue
        pages = [reference, *objects(reference.get("items")), *objects(reference.get("sources"))]
        links = {url: f"[{text(page.get('title')) or url}]({url})" for page in pages if (url := text(page.get("url")))}
        if links:
            said = said.replace(marker, " ".join(links.values()))
    return said


def _pointers(part: Json) -> Iterator[Json]:
    """The part, or what of its members names a file: what was spoken has its sound one level deeper, and pictures of a camera."""
    for each in (part, *part.values()):
        yield from (one for one in (objects(each) or [obj(each)]) if text(one.get("asset_pointer")))
