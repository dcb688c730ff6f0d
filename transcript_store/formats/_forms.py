"""The forms of each provider: Claude's messages, OpenAI's chat completions and items, Gemini's contents.

pydantic-ai's messages are only read: no program takes them from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._members import objects, text_in
from transcript_store.formats._neutral import NeutralMessage, Role, arguments_of, media_at, own_of
from transcript_store.messages import PROMPT_ROLES, as_text, document_in, pydantic_ai_in_claude_form

_DOCUMENTS = frozenset({"application/pdf", "text/plain"})


class Claude:
    """Claude: a message is ``{"role", "content"}``, its content a text or blocks; results are blocks of the user's next message."""

    name = "claude"
    alternates = True
    marks_failures = True
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        role: Role = "assistant" if message.get("role") == "assistant" else "user"
        if message.get("role") == "system":
            role = "system"
        own = message if message.get("role") == role else None  # no role, or one that Claude does not know
        content = message.get("content")
        if not isinstance(content, list):
            return NeutralMessage(role, (Text(content),) if isinstance(content, str) else (), own, self.name)
        blocks = tuple(self._block(block) for block in content)
        return NeutralMessage(role, blocks, own if all(block.own for block in blocks) else None, self.name)

    def holds(self, block: Block, role: Role) -> bool:
        if own_of(block, self.name) is not None:
            return not isinstance(block, Thinking) or bool(block.signature)
        if isinstance(block, Thinking):
            return role == "assistant" and block.provider == self.name and bool(block.signature)
        if isinstance(block, Media):
            return role == "user" and _source(block) is not None
        return not isinstance(block, Other)

    def messages_of(self, turn: NeutralMessage) -> list[dict[str, Any]]:
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
            case "search_result" if (document := document_in(block)) is not None:
                return Text(document[1], title=document[0], **own)
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


_IN_FILES = frozenset({"application/pdf"})
_SOUNDS = {"audio/wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


class ChatCompletions:
    """OpenAI's chat completions: calls are ``tool_calls`` of a reply, with JSON text; each result is a message of the role ``tool``."""

    name = "openai"
    alternates = False
    marks_failures = False
    id_length = 40

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        role = message.get("role")
        if role in ("tool", "function"):
            number = text_in(message, "tool_call_id")
            content = tuple(b for b in self._content(message.get("content")) if isinstance(b, (Text, Media)))
            result = Result(number, text_in(message, "name"), content, own=message, provider=self.name)
            return NeutralMessage("user", (result,))
        blocks = [*self._thinking(message), *self._content(message.get("content"))]
        if refusal := text_in(message, "refusal"):
            blocks.append(Text(refusal))
        blocks += [self._call(call) for call in objects(message.get("tool_calls"))]
        if isinstance(call := message.get("function_call"), dict):
            blocks.append(Call("", text_in(call, "name"), arguments_of(call.get("arguments"))))
        speaker: Role = "assistant" if role == "assistant" else "system" if role in PROMPT_ROLES else "user"
        sound = all(block.own for block in blocks if isinstance(block, Call))
        return NeutralMessage(speaker, tuple(blocks), message if sound else None, self.name)

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Thinking):
            return role == "assistant" and block.provider == self.name and bool(block.text)
        if isinstance(block, Media):
            return role == "user" and self._part(block) is not None
        return own_of(block, self.name) is not None or not isinstance(block, Other)

    def messages_of(self, turn: NeutralMessage) -> list[dict[str, Any]]:
        results = [block for block in turn.blocks if isinstance(block, Result)]
        messages = [self._result(result) for result in results]
        # A result holds only text, so its pictures are the user's next message.
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
            case "file" if (document := document_in(part)) is not None:
                return Text(document[1], title=document[0], **own)
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


_OUTPUTS = ("tool_search_output",)
_ARGUMENTS = ("arguments", "action", "operation", "input")
"""Where a call may have its arguments: ``shell_call`` has an ``action``, ``apply_patch_call`` an ``operation``."""


def is_item(message: dict[str, Any]) -> bool:
    """True if it can be nothing but an item. (A message of Claude's API has the type ``message`` too, with other blocks.)"""
    kind, content = text_in(message, "type"), message.get("content")
    if kind == "message" and isinstance(content, str):
        return True
    first = content[0] if isinstance(content, list) and content else None
    return (
        kind in ("reasoning", "item_reference", "compaction", "agent_message")
        or (kind.endswith(("_call", "_output")) and "role" not in message)
        or (isinstance(first, dict) and str(first.get("type")).startswith(("input_t", "input_i", "input_f", "output_")))
    )


class Responses:
    """OpenAI's responses: a message, a call, its output and reasoning are an item each, in the order of the conversation."""

    name = "openai-responses"
    alternates = False
    marks_failures = False
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        kind = text_in(message, "type")
        own: dict[str, Any] = {"own": message, "provider": self.name}
        if "role" in message and kind in ("", "message"):
            role = message["role"]
            speaker: Role = "assistant" if role == "assistant" else "system" if role in PROMPT_ROLES else "user"
            return NeutralMessage(speaker, tuple(self._content(message.get("content"))), **own)
        number, name = text_in(message, "call_id", "id"), text_in(message, "name")
        if kind == "agent_message":  # another agent's: to this one it is what it is asked
            return NeutralMessage("user", tuple(self._content(message.get("content"))), **own)
        if kind in _OUTPUTS or kind.endswith("_call_output"):
            content = tuple(self._shown(message.get("output", message.get("tools"))))
            return NeutralMessage("user", (Result(number, name, content, **own),))
        if kind == "function_call":
            spelled = isinstance(message.get("arguments"), str)
            arguments = arguments_of(message.get("arguments"))
            return NeutralMessage("assistant", (Call(number, name, arguments, **(own if spelled else {})),))
        if kind == "custom_tool_call":
            return NeutralMessage("assistant", (Call(number, name, {"input": message.get("input")}, **own),))
        # A call whose result is another item. What the provider did itself has no call_id, and its result in it.
        if kind == "local_shell_call" or (kind.endswith("_call") and text_in(message, "call_id")):
            given = next((message[member] for member in _ARGUMENTS if member in message), None)
            return NeutralMessage(
                "assistant", (Call(number, name or kind.removesuffix("_call"), arguments_of(given), **own),)
            )
        if kind == "reasoning":
            said = objects(message.get("content")) or objects(message.get("summary"))
            text = "\n".join(text_in(part, "text") for part in said)
            return NeutralMessage("assistant", (Thinking(text, text_in(message, "encrypted_content"), **own),))
        return NeutralMessage("assistant", (Other(**own),))

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, (Thinking, Other)):
            return own_of(block, self.name) is not None
        if isinstance(block, Media):
            return role == "user" and _item_part(block, role) is not None
        return True

    def messages_of(self, turn: NeutralMessage) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        said: list[dict[str, Any]] = []  # by the message item that is last
        for block in turn.blocks:
            if (part := _item_part(block, turn.role)) is not None:
                if not said:
                    items.append({"type": "message", "role": turn.role, "content": said})
                said.append(part)
            else:
                items.append(self._item(block))
                said = []
        return items

    def _content(self, content: object) -> list[Block]:
        if isinstance(content, str):
            return [Text(content)]
        return [self._block(part) for part in objects(content)]

    def _shown(self, output: object) -> Iterator[Text | Media]:
        """The blocks of a result; a part that is neither text nor picture (output and exit status of a command) as JSON."""
        for block in self._content([output] if isinstance(output, dict) else output):
            if isinstance(block, (Text, Media)):
                yield block
            else:
                yield Text(as_text(block.own), own=block.own, provider=self.name)

    def _block(self, part: dict[str, Any]) -> Block:
        own: dict[str, Any] = {"own": part, "provider": self.name}
        match part.get("type"):
            case "input_text" | "output_text" | "text" | "refusal":
                return Text(text_in(part, "text", "refusal"), **own)
            case "input_image" | "computer_screenshot":
                return media_at(text_in(part, "image_url", "file_id"), **own)
            case "input_file" if (document := document_in(part)) is not None:
                return Text(document[1], title=document[0], **own)
            case "input_file":
                return media_at(text_in(part, "file_data", "file_url", "file_id"), "application/pdf", **own)
        return Other(**own)

    def _item(self, block: Block) -> dict[str, Any]:
        if (own := own_of(block, self.name)) is not None:
            return own
        if isinstance(block, Call):
            call = {"type": "function_call", "call_id": block.id, "name": block.name}
            return {**call, "arguments": as_text(block.arguments)}
        if isinstance(block, Result):
            parts = [p for b in block.content if (p := _item_part(b, "user")) is not None]
            output = parts if block.media else block.text
            return {"type": "function_call_output", "call_id": block.id, "output": output}
        raise TypeError(f"{self.name} has no place for {type(block).__name__}")  # holds() was not asked


def _item_part(block: Block, role: Role) -> dict[str, Any] | None:
    """A block as part of a message; None for one that is an item."""
    if isinstance(block, (Text, Media)) and (own := own_of(block, Responses.name)) is not None:
        return own
    if isinstance(block, Text):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": block.text}
    if isinstance(block, Media) and block.data_url is not None:
        if block.type.startswith("image/"):
            return {"type": "input_image", "detail": "auto", "image_url": block.data_url}
        if block.type == "application/pdf":
            place = "file_url" if block.data is None else "file_data"
            return {"type": "input_file", "filename": "file.pdf", place: block.data_url}
    return None


class Gemini:
    """Gemini: a content is ``{"role", "parts"}``; calls often have no id, and their results are parts of the user's next content."""

    name = "gemini"
    alternates = True
    marks_failures = True
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        role: Role = "assistant" if message.get("role") in ("model", "assistant") else "user"
        blocks = tuple(self._block(part) for part in objects(message.get("parts")))
        return NeutralMessage("system" if message.get("role") == "system" else role, blocks, message, self.name)

    def holds(self, block: Block, role: Role) -> bool:  # noqa: ARG002 (the model may say all that the user may)
        if own_of(block, self.name) is not None:
            return True
        if isinstance(block, Media):
            return block.data is not None or block.url is not None
        return not isinstance(block, (Thinking, Other))

    def messages_of(self, turn: NeutralMessage) -> list[dict[str, Any]]:
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
    """The text of a result: programs wrap it as ``{"output": text}`` or ``{"error": text}``; any other object is JSON."""
    if isinstance(response, dict) and len(response) == 1:
        for name in ("output", "error", "result"):
            if isinstance(response.get(name), str):
                return str(response[name])
    return as_text(response)


_CLAUDE = Claude()


class PydanticAi:
    """The messages of pydantic-ai."""

    name = "pydantic-ai"

    def turn_of(self, message: dict[str, Any]) -> NeutralMessage:
        read = pydantic_ai_in_claude_form(message)
        if read is None:
            return NeutralMessage("user", (Other(own=message, provider=self.name),))
        turn = _CLAUDE.turn_of(read)
        # No provider made these objects, and thinking has lost its signature, so none is sent as the provider's own.
        blocks = (
            replace(block, own=block.own if isinstance(block, Other) else None, provider=self.name)
            for block in turn.blocks
        )
        return NeutralMessage(turn.role, tuple(blocks))
