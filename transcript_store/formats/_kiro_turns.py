"""The messages in the lines and rows of Kiro CLI."""

from __future__ import annotations

from collections.abc import Iterator

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._members import Json, obj, objects, text_in, text_member
from transcript_store.formats._neutral import NeutralMessage, arguments_of
from transcript_store.formats._times import time_in_ms, time_member
from transcript_store.messages import as_text, provider_family

_KINDS = ("Prompt", "AssistantMessage", "ToolResults", "Clear")
_PAYLOADS = ("user", "assistant", "tool_call", "tool_result", "usage_summary")
_Said = tuple[NeutralMessage, str | None]
"""A turn, and when it was said."""


def is_second(value: Json) -> bool:
    return value.get("kind") in _KINDS and isinstance(value.get("data"), dict) and "version" in value


def is_third(value: Json) -> bool:
    kind = obj(value.get("payload")).get("type")
    return {"id", "timestamp"} <= value.keys() and kind in _PAYLOADS


def turns_of_line(value: Json, provider: str) -> list[_Said]:
    """The messages of a line of the second or the third engine."""
    if is_second(value):
        return list(_of_second(value, provider))
    return list(_of_third(value, provider)) if is_third(value) else []


def _of_second(value: Json, provider: str) -> Iterator[_Said]:
    data = obj(value.get("data"))
    at = time_member(obj(data.get("meta")).get("timestamp"))
    blocks = tuple(block for part in objects(data.get("content")) for block in _block(part, provider))
    if blocks:
        yield NeutralMessage("assistant" if value["kind"] == "AssistantMessage" else "user", blocks), at


def _block(part: Json, provider: str) -> Iterator[Block]:
    data = part.get("data")
    about = obj(data)
    match part.get("kind"):
        case "text" if text_member(data):
            yield Text(str(data))
        case "thinking" | "reasoning":
            said = data if isinstance(data, str) else text_in(about, "text", "thinking")
            yield Thinking(said, text_in(about, "signature"), provider=provider_family(provider))
        case "toolUse" if text_member(about.get("name")):
            yield Call(text_in(about, "toolUseId"), about["name"], arguments_of(about.get("input")))
        case "toolResult":
            failed = str(about.get("status", "success")).lower() != "success"
            yield Result(text_in(about, "toolUseId"), "", tuple(_shown(about.get("content"))), failed=failed)
        case "image":
            kind, inner = text_in(about, "format", "mimeType") or "png", obj(about.get("source"))
            if encoded := text_in(about, "data", "bytes") or text_in(inner, "data", "bytes"):
                yield Media(kind if "/" in kind else f"image/{kind}", encoded)


def _shown(content: object) -> Iterator[Text]:
    """The result of a tool: ``{"Text"}`` and ``{"Json"}`` of the first engine, ``{"kind", "data"}`` of the second."""
    for one in content if isinstance(content, list) else [content] if content is not None else []:
        given = obj(one)
        said = next((given[name] for name in ("Text", "Json", "data") if name in given), one)
        yield Text(as_text(said))


def _of_third(value: Json, provider: str) -> Iterator[_Said]:
    payload = obj(value.get("payload"))
    at, said = time_in_ms(value.get("timestamp")), payload.get("content")
    content = said if isinstance(said, str) else "" if said is None else as_text(said)
    number = text_in(payload, "toolCallId")
    match payload.get("type"):
        case "user" if content:
            yield NeutralMessage("user", (Text(content),)), at
        case "assistant" if content:
            speaks = payload.get("operationType", "Say") == "Say"
            thinking = Thinking(content, provider=provider_family(provider))
            yield NeutralMessage("assistant", (Text(content) if speaks else thinking,)), at
        case "tool_call" if text_member(payload.get("toolName")):
            call = Call(number, payload["toolName"], arguments_of(payload.get("args")))
            yield NeutralMessage("assistant", (call,)), at
        case "tool_result":
            result = Result(number, "", (Text(content),), failed=payload.get("success") is False)
            yield NeutralMessage("user", (result,)), at


def turns_of_row(value: Json, provider: str) -> list[_Said]:  # noqa: ARG001 (nothing is thought there)
    """The messages of a turn of the first engine."""
    user = obj(value.get("user"))
    content, assistant, found = obj(user.get("content")), obj(value.get("assistant")), []
    at = text_member(user.get("timestamp"))
    answers = content.get("ToolUseResults", content.get("CancelledToolUses"))
    results = []
    for one in objects(obj(answers).get("tool_use_results")):
        failed = str(one.get("status")).lower() == "error"
        results.append(Result(text_in(one, "tool_use_id"), "", tuple(_shown(one.get("content"))), failed=failed))
    prompt = text_member(obj(content.get("Prompt")).get("prompt")) or text_member(obj(answers).get("prompt"))
    if results or prompt:
        found.append((NeutralMessage("user", (*results, *([Text(prompt)] if prompt else ()))), at))
    reply = obj(assistant.get("ToolUse")) or obj(assistant.get("Response"))
    blocks: list[Block] = [Text(reply["content"])] if text_member(reply.get("content")) else []
    calls = [one for one in objects(reply.get("tool_uses")) if text_member(one.get("name"))]
    blocks += [Call(text_in(one, "id"), one["name"], arguments_of(one.get("args"))) for one in calls]
    if blocks:
        ended = time_in_ms(obj(value.get("request_metadata")).get("stream_end_timestamp_ms"))
        found.append((NeutralMessage("assistant", tuple(blocks)), ended))
    return found
