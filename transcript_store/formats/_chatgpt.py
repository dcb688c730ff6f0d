"""ChatGPT: ``conversations.json`` of an export, conversations with a tree ``mapping`` and ``current_node``.

A node is ``{"id", "parent", "children", "message"}``; a message has ``author.role``, ``content.content_type``, ``recipient`` and
``metadata``. What goes to another recipient than ``all`` is a call, and what a tool says next is its result. Nodes without a
message, hidden ones, and the model's thoughts are events. Messages are built: the site's requests are not in the export.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from transcript_store.formats._blocks import Losses
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

    def told(self, path: list[Node], losses: Losses) -> list[list[Draft]]:
        calls: list[tuple[str, str]] = []  # those without a result: recipient and id
        return [_messages(node, calls, losses) for node in path]


def _messages(node: Node, calls: list[tuple[str, str]], losses: Losses) -> list[Draft]:
    value = obj(node.value.get("message"))
    metadata, content = obj(value.get("metadata")), obj(value.get("content"))
    said = _text(content, losses)
    if (
        metadata.get("is_visually_hidden_from_conversation") is True
        or content.get("content_type") in _NOT_SAID
        or not said
    ):
        return []
    role, recipient = part_of(value, "author", "role"), text(value.get("recipient")) or "all"
    extra: Json = {}
    if role == "assistant":
        about = {
            "model": text(metadata.get("model_slug")),
            "stop_reason": text(part_of(metadata, "finish_details", "type")),
        }
        extra = {name: found for name, found in about.items() if found}
    if role == "assistant" and recipient != "all":
        message: Json = {"role": "assistant", "content": None, "tool_calls": [_call(node.id, recipient, said)]}
        calls.append((recipient, _known_as(node.id)))
    elif role in ("user", "assistant", "system"):
        message = {"role": role, "content": said}
    elif role == "tool":
        asked = next(
            (call for call in calls if call[0] == part_of(value, "author", "name")), calls[0] if calls else None
        )
        if asked is None:
            losses.note("no-call", "what a tool said although nobody called it is kept, and not sent")
            return []
        calls.remove(asked)
        message = {"role": "tool", "tool_call_id": asked[1], "content": said}
    else:
        return []
    return [Draft(message, extra, time_of(value.get("create_time")))]


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


def _text(content: Json, losses: Losses) -> str:
    parts: list[Any] = content["parts"] if isinstance(content.get("parts"), list) else []
    if not parts:
        return first_text(content.get("text"), content.get("result")) or ""
    found: list[str] = []
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict) and (said := text(part.get("text"))):
            found.append(said)
        elif isinstance(part, dict) and (place := text(part.get("asset_pointer"))):
            losses.note("media", "a picture or a sound is a file beside the export: its name stands in the text")
            found.append(f"[{text(part.get('content_type')) or 'file'}: {place}]")
    return "\n".join(piece for piece in found if piece)
