"""OpenAI's chat completions: calls are ``tool_calls`` of a reply, with JSON text; each result is a message of the role ``tool``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    media_at,
    objects,
    own_of,
    text_in,
)
from transcript_store.histories import PROMPT_ROLES
from transcript_store.messages import as_text

_IN_FILES = frozenset({"application/pdf"})
_SOUNDS = {"audio/wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


class ChatCompletions:
    name = "openai"
    alternates = False
    marks_failures = False
    id_length = 40

    def turn_of(self, message: dict[str, Any]) -> Turn:
        role = message.get("role")
        if role in ("tool", "function"):
            number = text_in(message, "tool_call_id")
            content = tuple(b for b in self._content(message.get("content")) if isinstance(b, (Text, Media)))
            result = Result(number, text_in(message, "name"), content, own=message, provider=self.name)
            return Turn("user", (result,))
        blocks = [*self._thinking(message), *self._content(message.get("content"))]
        if refusal := text_in(message, "refusal"):
            blocks.append(Text(refusal))
        blocks += [self._call(call) for call in objects(message.get("tool_calls"))]
        if isinstance(call := message.get("function_call"), dict):
            blocks.append(Call("", text_in(call, "name"), arguments_of(call.get("arguments"))))
        speaker: Role = "assistant" if role == "assistant" else "system" if role in PROMPT_ROLES else "user"
        sound = all(block.own for block in blocks if isinstance(block, Call))
        return Turn(speaker, tuple(blocks), message if sound else None, self.name)

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Thinking):
            return role == "assistant" and block.provider == self.name and bool(block.text)
        if isinstance(block, Media):
            return role == "user" and self._part(block) is not None
        return own_of(block, self.name) is not None or not isinstance(block, Other)

    def messages_of(self, turn: Turn) -> list[dict[str, Any]]:
        results = [block for block in turn.blocks if isinstance(block, Result)]
        messages = [self._result(result) for result in results]
        # A result holds text alone, so what it shows is said by the user behind it.
        seen = [media for result in results if own_of(result, self.name) is None for media in result.media]
        parts = [p for b in (*seen, *turn.blocks) if (p := self._part(b)) is not None]
        calls = [self._written(block) for block in turn.blocks if isinstance(block, Call)]
        thoughts = [block.text for block in turn.blocks if isinstance(block, Thinking)]
        if not (parts or calls or thoughts):
            return messages
        plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
        message: dict[str, Any] = {"role": turn.role, "content": parts[0]["text"] if plain else parts or None}
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        return [*messages, message]

    def _thinking(self, message: Mapping[str, Any]) -> Iterator[Thinking]:
        if text := text_in(message, "reasoning_content", "reasoning"):
            yield Thinking(text, provider=self.name)

    def _content(self, content: object) -> list[Block]:
        if isinstance(content, str):
            return [Text(content)] if content else []
        return [self._block(part) for part in objects(content)]

    def _block(self, part: dict[str, Any]) -> Block:
        own: dict[str, Any] = {"own": part, "provider": self.name}
        match part.get("type"):
            case "text" if isinstance(part.get("text"), str):
                return Text(part["text"], **own)
            case "refusal":
                return Text(text_in(part, "refusal"), **own)
            case "image_url":
                place = part.get("image_url")
                return media_at(text_in(place, "url") if isinstance(place, dict) else str(place), **own)
            case "input_audio" if isinstance(part.get("input_audio"), dict):
                sound = part["input_audio"]
                return Media(f"audio/{text_in(sound, 'format')}", text_in(sound, "data"), **own)
            case "file" if isinstance(part.get("file"), dict):
                return media_at(text_in(part["file"], "file_data", "file_id"), "application/pdf", **own)
        return Other(**own)

    def _call(self, call: dict[str, Any]) -> Call:
        custom = call.get("custom")
        if isinstance(custom, dict):
            arguments = {"input": custom.get("input")}
            return Call(text_in(call, "id"), text_in(custom, "name"), arguments, own=call, provider=self.name)
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = arguments_of(function.get("arguments"))
        own = call if isinstance(function.get("arguments"), str) else None
        return Call(text_in(call, "id"), text_in(function, "name"), arguments, own=own, provider=self.name)

    def _result(self, result: Result) -> dict[str, Any]:
        return own_of(result, self.name) or {"role": "tool", "tool_call_id": result.id, "content": result.text}

    def _part(self, block: Block) -> dict[str, Any] | None:
        if isinstance(block, (Call, Result, Thinking)):
            return None
        if (own := own_of(block, self.name)) is not None:
            return own
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        if not isinstance(block, Media) or block.data_url is None:
            return None
        if block.type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": block.data_url}}
        if block.type in _SOUNDS and block.data is not None:
            return {"type": "input_audio", "input_audio": {"data": block.data, "format": _SOUNDS[block.type]}}
        if block.type in _IN_FILES and block.data is not None:
            return {"type": "file", "file": {"filename": "file", "file_data": block.data_url}}
        return None

    def _written(self, call: Call) -> dict[str, Any]:
        function = {"name": call.name, "arguments": as_text(call.arguments)}
        return own_of(call, self.name) or {"id": call.id, "type": "function", "function": function}
