"""The bubbles of Cursor's editor as messages: a text, thinking, a call with its result."""

from __future__ import annotations

from typing import Any

from transcript_store.formats._document import parse_object
from transcript_store.formats._members import Json, first_text, obj, objects, text_in, text_member
from transcript_store.formats._neutral import Block, Call, Media, NeutralMessage, Result, Text, Thinking, arguments_of
from transcript_store.messages import as_text, provider_family

_ROLES = {"1": "user", "2": "assistant"}
_OPEN = ("loading", "pending", "running")


def object_on_value(said: object) -> Json:
    """The JSON object that a value of the database is; empty if it is none."""
    raw = said.encode(errors="surrogatepass") if isinstance(said, str) else said
    return parse_object(raw) or {} if isinstance(raw, bytes) else {}


def turn_of_bubble(value: Json, provider: str) -> tuple[NeutralMessage, NeutralMessage | None] | None:
    """The message of a bubble, and the result of its tool; None if it has neither."""
    role = _ROLES.get(str(value.get("type")))
    if role is None:
        return None
    blocks: list[Block] = []
    thinking = obj(value.get("thinking"))
    if role == "assistant" and text_member(thinking.get("text")):
        blocks.append(Thinking(thinking["text"], text_in(thinking, "signature"), provider=provider_family(provider)))
    if shown := text_member(value.get("text")) or _rich_text(value.get("richText")):
        blocks.append(Text(shown))
    blocks += [Media("image/png", image["data"]) for image in objects(value.get("images")) if text_in(image, "data")]
    tool, answer = obj(value.get("toolFormerData")), None
    if role == "assistant" and text_member(tool.get("name")):
        number = first_text(tool.get("toolCallId"), value.get("bubbleId")) or "call"
        given: Any = next((tool[name] for name in ("rawArgs", "params") if tool.get(name) is not None), {})
        blocks.append(Call(number, tool["name"], arguments_of(given)))
        if tool.get("result") is not None and tool.get("status") not in _OPEN:
            said = (Text(as_text(tool["result"])),)
            result = Result(number, tool["name"], said, failed=tool.get("status") == "error")
            answer = NeutralMessage("user", (result,))
    return (NeutralMessage("user" if role == "user" else "assistant", tuple(blocks)), answer) if blocks else None


def _rich_text(said: object) -> str:
    """The text of a rich-text document, one paragraph per line: bubbles of 2025 may have no other text."""
    paragraphs = objects(obj(object_on_value(said).get("root")).get("children"))
    return "\n".join("".join(text_in(one, "text") for one in objects(each.get("children"))) for each in paragraphs)
