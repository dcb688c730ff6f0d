"""Claude.ai: ``conversations.json`` of an export, conversations with ``chat_messages``.

A message is ``{"uuid", "parent_message_uuid"?, "sender": "human" | "assistant", "content": […], "text", "attachments", "files"}``.
``text`` says once more what ``content`` says. The results of tools stand within the assistant's message: it becomes several, as
the API has them. Of attachments the export has the text, of ``files`` only the names; thinking has no signature there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from transcript_store.formats._attached import AttachedFiles
from transcript_store.formats._blocks import Losses, objects
from transcript_store.formats._exports import Export, Node
from transcript_store.formats._generations import Draft
from transcript_store.formats._members import Json, first_text, text
from transcript_store.formats._plan import Head
from transcript_store.messages import as_text

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_NOBODY = ("00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000")
"""What the first message names as its parent."""


class ClaudeAi(Export):
    """Reads the conversations of a Claude.ai export."""

    name = "claude-ai"
    revision = 2
    in_order = True
    provider = "claude"
    member = "chat_messages"

    def recognizes(self, head: Head) -> bool:
        return head.start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"[", b"{") and b'"chat_messages"' in head.start

    def session(self, conversation: Json) -> str | None:
        return text(conversation.get("uuid"))

    def nodes(self, conversation: Json) -> list[Node]:
        return [
            Node(text(value.get("uuid")) or "", None if parent in _NOBODY else parent, value)
            for value in objects(conversation.get("chat_messages"))
            for parent in [text(value.get("parent_message_uuid"))]
        ]

    def leaf(self, conversation: Json, nodes: list[Node]) -> str | None:
        """What the export names; else the last message, if a message names another as its parent."""
        known = {node.id for node in nodes}
        if not any(node.parent in known for node in nodes):
            return None
        return first_text(conversation.get("current_leaf_message_uuid")) or nodes[-1].id

    def model(self, conversation: Json, path: list[Node]) -> str | None:  # noqa: ARG002 (a message does not say)
        return text(conversation.get("model"))

    def times(self, conversation: Json, nodes: list[Node]) -> tuple[object, Iterable[object]]:
        said = (node.value.get(name) for node in nodes for name in ("created_at", "updated_at"))
        return conversation.get("updated_at"), said

    def told(self, path: list[Node], losses: Losses, files: AttachedFiles) -> list[list[Draft]]:  # noqa: ARG002
        return [_messages(node.value, losses) for node in path]


def _messages(value: Json, losses: Losses) -> list[Draft]:
    at = text(value.get("created_at"))
    if missing := len(objects(value.get("files"))):
        losses.note("files", "the export has the name of a file, and not what is in it", missing)
    turn = _Turn(text(value.get("uuid")) or "", "assistant" if value.get("sender") == "assistant" else "user", losses)
    for attached in objects(value.get("attachments")):
        if extracted := text(attached.get("extracted_content")):
            source = {"type": "text", "media_type": "text/plain", "data": extracted}
            title = text(attached.get("file_name"))
            turn.add({"type": "document", "source": source, **({"title": title} if title else {})})
    content = objects(value.get("content"))
    for block in content:
        turn.block(block)
    if not content and (said := text(value.get("text"))) and said.strip():
        turn.add({"type": "text", "text": said})
    return [Draft({"role": role, "content": blocks}, {}, at) for role, blocks in turn.said]


class _Turn:
    """What one message says, in turns: the results of tools are the user's."""

    def __init__(self, uuid: str, role: str, losses: Losses) -> None:
        self.said: list[tuple[str, list[Json]]] = []
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
        if kind == "text":
            if (said := text(block.get("text"))) and said.strip():
                self.add({"type": "text", "text": said})
        elif kind == "tool_use" and self._role == "assistant" and text(block.get("name")):
            self._call(block)
        elif kind == "tool_result" and self._role == "assistant":
            self._result(block)
        elif kind == "thinking":
            self._losses.note("thinking", "thinking has no signature in the export: it is kept, and not sent")
        else:
            self._losses.note("own", "what only Claude.ai knows is kept, and not sent")

    def _call(self, block: Json) -> None:
        given = text(block.get("id")) or ""
        number = sum(len(blocks) for _, blocks in self.said)
        made = hashlib.sha256(f"{self._uuid}/{number}/{given}".encode(errors="replace")).hexdigest()[:24]
        known = given if _ID.fullmatch(given) and given not in {now for _, _, now in self._open} else f"toolu_{made}"
        arguments = block.get("input")
        self._open.append((given, block["name"], known))
        self.add(
            {
                "type": "tool_use",
                "id": known,
                "name": block["name"],
                "input": arguments if isinstance(arguments, dict) else {},
            }
        )

    def _result(self, block: Json) -> None:
        given, name = text(block.get("tool_use_id")) or "", block.get("name")
        call = next((call for call in self._open if (call[0] == given if given else call[1] == name)), None)
        if call is None:
            self._losses.note("no-call", "a result that no call asked for is kept, and not sent")
            return
        self._open.remove(call)
        failed = {"is_error": True} if block.get("is_error") is True else {}
        self.add(
            {"type": "tool_result", "tool_use_id": call[2], "content": _shown(block.get("content")), **failed}, "user"
        )


def _shown(content: object) -> str:
    """A result as text: the export's blocks have members that the API does not know."""
    if not isinstance(content, list):
        return "" if content is None else as_text(content)
    return "\n".join(
        part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else as_text(part)
        for part in content
    )
