"""Gemini: a content is ``{"role", "parts"}``; calls often have no id, and their results are parts of the user's next content."""

from __future__ import annotations

from collections.abc import Mapping
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
from transcript_store.messages import as_text


class Gemini:
    name = "gemini"
    alternates = True
    marks_failures = True
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> Turn:
        role: Role = "assistant" if message.get("role") in ("model", "assistant") else "user"
        blocks = tuple(self._block(part) for part in objects(message.get("parts")))
        return Turn("system" if message.get("role") == "system" else role, blocks, message, self.name)

    def holds(self, block: Block, role: Role) -> bool:  # noqa: ARG002 (the model may say all that the user may)
        if own_of(block, self.name) is not None:
            return True
        if isinstance(block, Media):
            return block.data is not None or block.url is not None
        return not isinstance(block, (Thinking, Other))

    def messages_of(self, turn: Turn) -> list[dict[str, Any]]:
        parts = [self._part(block) for block in turn.blocks]
        seen = [m for b in turn.blocks if isinstance(b, Result) and not own_of(b, self.name) for m in b.media]
        parts += [self._part(media) for media in seen]
        return [{"role": "model" if turn.role == "assistant" else "user", "parts": parts}]

    def _block(self, part: dict[str, Any]) -> Block:
        own: dict[str, Any] = {"own": part, "provider": self.name}
        if (call := _member(part, "functionCall", "function_call")) is not None:
            return Call(text_in(call, "id"), text_in(call, "name"), arguments_of(call.get("args")), **own)
        if (result := _member(part, "functionResponse", "function_response")) is not None:
            response = result.get("response")
            failed = isinstance(response, dict) and "error" in response
            content = (Text(_said(response)),)
            return Result(text_in(result, "id"), text_in(result, "name"), content, failed=failed, **own)
        if isinstance(part.get("text"), str):
            if part.get("thought") is True:
                return Thinking(part["text"], text_in(part, "thoughtSignature", "thought_signature"), **own)
            return Text(part["text"], **own)
        for names in (("inlineData", "inline_data"), ("fileData", "file_data")):
            if (media := _member(part, *names)) is not None:
                kind = text_in(media, "mimeType", "mime_type") or "image/*"
                data = text_in(media, "data") or None
                return Media(kind, data, text_in(media, "fileUri", "file_uri") or None, **own)
        return Other(**own)

    def _part(self, block: Block) -> dict[str, Any]:
        if (own := own_of(block, self.name)) is not None:
            return own
        match block:
            case Text(text=text):
                return {"text": text}
            case Call():
                return {"functionCall": {"id": block.id, "name": block.name, "args": block.arguments}}
            case Result():
                response = {"error" if block.failed else "output": block.text}
                return {"functionResponse": {"id": block.id, "name": block.name, "response": response}}
            case Media(data=str() as data):
                return {"inlineData": {"mimeType": block.type, "data": data}}
            case Media():
                return {"fileData": {"mimeType": block.type, "fileUri": block.url}}
        raise TypeError(f"{self.name} has no place for {type(block).__name__}")  # holds() was not asked


def _member(part: Mapping[str, Any], *names: str) -> dict[str, Any] | None:
    return next((part[name] for name in names if isinstance(part.get(name), dict)), None)


def _said(response: object) -> str:
    """What a tool said: ``{"output": text}`` and ``{"error": text}`` are how programs wrap it; any other object is JSON."""
    if isinstance(response, dict) and len(response) == 1:
        for name in ("output", "error", "result"):
            if isinstance(response.get(name), str):
                return str(response[name])
    return as_text(response)
