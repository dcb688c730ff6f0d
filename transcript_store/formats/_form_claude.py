"""Claude: a message is ``{"role", "content"}``, its content a text or blocks; results are blocks of the user's next message."""

from __future__ import annotations

from typing import Any

from transcript_store.formats._blocks import (
    Block,
    Call,
    Media,
    Other,
    Result,
    Role,
    Text,
    Thinking,
    Turn,
    arguments_of,
    objects,
    own_of,
    text_in,
)
from transcript_store.messages import document_in

_DOCUMENTS = frozenset({"application/pdf", "text/plain"})


class Claude:
    name = "claude"
    alternates = True
    marks_failures = True
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> Turn:
        role: Role = "assistant" if message.get("role") == "assistant" else "user"
        if message.get("role") == "system":
            role = "system"
        content = message.get("content")
        if not isinstance(content, list):
            return Turn(role, (Text(content),) if isinstance(content, str) else (), message, self.name)
        blocks = tuple(self._block(block) for block in content)
        return Turn(role, blocks, message if all(block.own for block in blocks) else None, self.name)

    def holds(self, block: Block, role: Role) -> bool:
        if own_of(block, self.name) is not None:
            return not isinstance(block, Thinking) or bool(block.signature)
        if isinstance(block, Thinking):
            return role == "assistant" and block.provider == self.name and bool(block.signature)
        if isinstance(block, Media):
            return role == "user" and _source(block) is not None
        return not isinstance(block, Other)

    def messages_of(self, turn: Turn) -> list[dict[str, Any]]:
        return [{"role": turn.role, "content": [self._written(block) for block in turn.blocks]}]

    def _block(self, block: object) -> Block:
        if isinstance(block, str):
            return Text(block)
        if not isinstance(block, dict):
            return Other()
        own: dict[str, Any] = {"own": block, "provider": self.name}
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                return Text(block["text"], **own)
            case "thinking":
                return Thinking(text_in(block, "thinking"), text_in(block, "signature"), **own)
            case "redacted_thinking":
                return Thinking("", text_in(block, "data"), redacted=True, **own)
            case "tool_use":
                sound = isinstance(block.get("input"), dict)
                call = (text_in(block, "id"), text_in(block, "name"), arguments_of(block.get("input")))
                return Call(*call, **own) if sound else Call(*call)
            case "tool_result":
                content = self._result(block.get("content"))
                failed = block.get("is_error") is True
                return Result(text_in(block, "tool_use_id"), "", content, failed=failed, **own)
            case "image" | "document" if isinstance(block.get("source"), dict):
                document = document_in(block)
                return _media(block, own) if document is None else Text(document[1], title=document[0], **own)
        return Other(**own)

    def _result(self, content: object) -> tuple[Text | Media, ...]:
        if isinstance(content, str):
            return (Text(content),)
        found = (self._block(block) for block in objects(content))
        return tuple(block for block in found if isinstance(block, (Text, Media)))

    def _written(self, block: Block) -> dict[str, Any]:
        if (own := own_of(block, self.name)) is not None:
            return own
        match block:
            case Text(text=text):
                return {"type": "text", "text": text}
            case Thinking(redacted=True):
                return {"type": "redacted_thinking", "data": block.signature}
            case Thinking():
                return {"type": "thinking", "thinking": block.text, "signature": block.signature}
            case Call():
                return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
            case Result():
                said = [self._written(part) for part in block.content if self.holds(part, "user")]
                only = block.content[0] if len(block.content) == 1 else None
                content = only.text if isinstance(only, Text) and only.own is None else said
                result = {"type": "tool_result", "tool_use_id": block.id, "content": content}
                return {**result, "is_error": True} if block.failed else result
            case Media(type=kind):
                what = "image" if kind.startswith("image/") else "document"
                return {"type": what, "source": _source(block)}
        raise TypeError(f"{self.name} has no place for {type(block).__name__}")  # holds() was not asked


def _media(block: dict[str, Any], own: dict[str, Any]) -> Media:
    source = block["source"]
    kind = "image/*" if block["type"] == "image" else "application/pdf"
    data = text_in(source, "data") if source.get("type") == "base64" else None
    return Media(text_in(source, "media_type") or kind, data, text_in(source, "url", "file_id") or None, **own)


def _source(media: Media) -> dict[str, Any] | None:
    if not media.type.startswith("image/") and media.type not in _DOCUMENTS:
        return None
    if media.data is not None:
        return {"type": "base64", "media_type": media.type, "data": media.data}
    return {"type": "url", "url": media.url} if (media.url or "").startswith(("http://", "https://")) else None
