"""OpenAI's responses: items. A message, a call, its output and reasoning are an item each, and stand in the order they were said."""

from __future__ import annotations

from collections.abc import Iterator
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

_OUTPUTS = ("tool_search_output",)
_ARGUMENTS = ("arguments", "action", "operation", "input")
"""Where a call may have its arguments: ``shell_call`` has an ``action``, ``apply_patch_call`` an ``operation``."""


def is_item(message: dict[str, Any]) -> bool:
    """Whether it can be nothing but an item. (A message of Claude's API has the type ``message`` too, with other blocks.)"""
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
    name = "openai-responses"
    alternates = False
    marks_failures = False
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> Turn:
        kind = text_in(message, "type")
        own: dict[str, Any] = {"own": message, "provider": self.name}
        if "role" in message and kind in ("", "message"):
            role = message["role"]
            speaker: Role = "assistant" if role == "assistant" else "system" if role in PROMPT_ROLES else "user"
            return Turn(speaker, tuple(self._content(message.get("content"))), **own)
        number, name = text_in(message, "call_id", "id"), text_in(message, "name")
        if kind == "agent_message":  # another agent's: to this one it is what it is asked
            return Turn("user", tuple(self._content(message.get("content"))), **own)
        if kind in _OUTPUTS or kind.endswith("_call_output"):
            content = tuple(self._shown(message.get("output", message.get("tools"))))
            return Turn("user", (Result(number, name, content, **own),))
        if kind == "function_call":
            spelled = isinstance(message.get("arguments"), str)
            arguments = arguments_of(message.get("arguments"))
            return Turn("assistant", (Call(number, name, arguments, **(own if spelled else {})),))
        if kind == "custom_tool_call":
            return Turn("assistant", (Call(number, name, {"input": message.get("input")}, **own),))
        # A call whose result is another item. What the provider did itself has no call_id, and its result in it.
        if kind == "local_shell_call" or (kind.endswith("_call") and text_in(message, "call_id")):
            given = next((message[member] for member in _ARGUMENTS if member in message), None)
            return Turn("assistant", (Call(number, name or kind.removesuffix("_call"), arguments_of(given), **own),))
        if kind == "reasoning":
            said = objects(message.get("content")) or objects(message.get("summary"))
            text = "\n".join(text_in(part, "text") for part in said)
            return Turn("assistant", (Thinking(text, text_in(message, "encrypted_content"), **own),))
        return Turn("assistant", (Other(**own),))

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, (Thinking, Other)):
            return own_of(block, self.name) is not None
        if isinstance(block, Media):
            return role == "user" and _part(block, role) is not None
        return True

    def messages_of(self, turn: Turn) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        said: list[dict[str, Any]] = []  # by the message item that is last
        for block in turn.blocks:
            if (part := _part(block, turn.role)) is not None:
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
        """What a result shows; what is no text and no picture there (what a command wrote, and how it ended) as JSON."""
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
            parts = [p for b in block.content if (p := _part(b, "user")) is not None]
            output = parts if block.media else block.text
            return {"type": "function_call_output", "call_id": block.id, "output": output}
        raise TypeError(f"{self.name} has no place for {type(block).__name__}")  # holds() was not asked


def _part(block: Block, role: Role) -> dict[str, Any] | None:
    """A block as part of a message; None for what is an item of its own."""
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
