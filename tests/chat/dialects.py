"""The wire formats as a test server uses them: how it sends text and tool calls, and reads requests.

Written from the providers' documentation and the recorded traffic in corpora/wire, not from the code under test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.chat.server import Answer

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Turn:
    """A request's messages in neutral words: who, what text, which calls (name, arguments), which results (text)."""

    role: str
    text: str = ""
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class Dialect:
    name: str
    provider: str
    base_path = ""
    model_name = "model-under-test"

    def reply(self, text: str = "", calls: tuple[Call, ...] = ()) -> Answer:
        return Answer(json.dumps(self.body(text, calls)).encode())

    def stream(self, text: str = "", calls: tuple[Call, ...] = (), *, stop: bool = True, cut: bool = False) -> Answer:
        body = "".join(self.events(text, calls, stop=stop)).encode()
        if cut:  # in a comment behind the last event, so that every event arrives
            return Answer(body + b": cut here\n", content_type="text/event-stream", cut_after=len(body) + 2)
        return Answer(body, content_type="text/event-stream")

    def body(self, text: str, calls: tuple[Call, ...]) -> dict[str, Any]:
        raise NotImplementedError

    def events(self, text: str, calls: tuple[Call, ...], *, stop: bool) -> list[str]:
        raise NotImplementedError

    def system_prompts(self, body: Any) -> list[str]:
        raise NotImplementedError

    def messages(self, body: Any) -> list[Any]:
        """The native messages of a request, without the system prompt."""
        raise NotImplementedError

    def refusal(self, body: Any) -> str | None:
        """Why the real service would refuse the request with a 400."""
        raise NotImplementedError


def sse(data: Any, event: str | None = None) -> str:
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(data)}\n\n"


def events(*chunks: Any) -> Answer:
    """A stream of these events."""
    return Answer("".join(map(sse, chunks)).encode(), content_type="text/event-stream")


def delta(finish_reason: str | None = None, index: int | None = 0, **members: Any) -> dict[str, Any]:
    """A chunk of a chat completion."""
    return {"choices": [{"index": index, "delta": members, "finish_reason": finish_reason}]}


class Claude(Dialect):
    name = provider = "claude"

    def body(self, text, calls):
        blocks: list[Any] = [{"type": "thinking", "thinking": "hm", "signature": "c2lnbmF0dXJl", "x_new": [1]}]
        if text:
            blocks.append({"type": "text", "text": text, "citations": None})
        blocks += [
            {"type": "tool_use", "id": f"toolu_{k}", "name": name, "input": arguments, "caller": {"type": "direct"}}
            for k, (name, arguments) in enumerate(calls)
        ]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": self.model_name,
            "content": blocks,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 2, "output_tokens": 5},
        }

    def events(self, text, calls, *, stop):
        body = self.body(text, calls)
        start = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
        out = [sse({"type": "message_start", "message": start}, "message_start"), sse({"type": "ping"}, "ping")]
        for index, block in enumerate(body["content"]):
            parts: list[dict[str, Any]] = []
            if block["type"] == "text":
                opening = {**block, "text": ""}
                parts = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
            elif block["type"] == "thinking":
                opening = {**block, "thinking": "", "signature": ""}
                parts = [
                    *({"type": "thinking_delta", "thinking": piece} for piece in halves(block["thinking"])),
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            else:
                opening = {**block, "input": {}}
                pieces = ["", *halves(json.dumps(block["input"]))]
                parts = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            start_event = {"type": "content_block_start", "index": index, "content_block": opening}
            out.append(sse(start_event, "content_block_start"))
            out += [
                sse({"type": "content_block_delta", "index": index, "delta": p}, "content_block_delta") for p in parts
            ]
            out.append(sse({"type": "content_block_stop", "index": index}, "content_block_stop"))
        if stop:
            delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
            usage = {"output_tokens": 5}
            out.append(sse({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta"))
            out.append(sse({"type": "message_stop"}, "message_stop"))
        return out

    def system_prompts(self, body):
        found = [body["system"]] if "system" in body else []
        return found + [m["content"] for m in body["messages"] if m["role"] == "system"]

    def messages(self, body):
        return body["messages"]

    def refusal(self, body):
        wanted: set[str] = set()
        if [message["role"] for message in body["messages"][:1]] != ["user"]:
            return "messages: first message must use the user role"
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            is_result = [block["type"] == "tool_result" for block in blocks]
            if is_result != sorted(is_result, reverse=True):
                return "tool_result blocks must come first in the content"
            if not message["content"]:
                return "messages must have non-empty content"
            if message.keys() - {"role", "content"}:
                return "Extra inputs are not permitted"
            if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
                return "text content blocks must contain non-whitespace text"
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            given = set(results)
            if len(given) < len(results):
                return "each tool_use must have a single result"
            if wanted - given:
                return "`tool_use` ids were found without `tool_result` blocks immediately after"
            if given - wanted:
                return "unexpected `tool_use_id` found in `tool_result` blocks"
            wanted = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if json.dumps(body).count('"cache_control"') > 4:
            return "A maximum of 4 blocks with cache_control may be provided"
        return "`tool_use` ids were found without `tool_result` blocks immediately after" if wanted else None


class OpenAI(Dialect):
    name = provider = "openai"

    def body(self, text, calls):
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None, "x_new": {"a": 1}}
        if calls:
            message["tool_calls"] = [
                {"id": f"call_{k}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                for k, (n, a) in enumerate(calls)
            ]
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": self.model_name,
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
        }

    def events(self, text, calls, *, stop):
        body = self.body(text, calls)
        (choice,) = body["choices"]
        message = choice["message"]
        head = {k: body[k] for k in ("id", "created", "model")} | {"object": "chat.completion.chunk", "usage": None}
        opening = {k: message[k] for k in ("role", "refusal", "x_new")} | {"content": "" if text else None}
        deltas: list[dict[str, Any]] = [opening, *({"content": piece} for piece in halves(text))]
        for k, call in enumerate(message.get("tool_calls", ())):
            first = {**call, "index": k, "function": {**call["function"], "arguments": ""}}
            deltas.append({"tool_calls": [first]})
            deltas += [
                {"tool_calls": [{"index": k, "function": {"arguments": piece}}]}
                for piece in halves(call["function"]["arguments"])
            ]
        out = [sse({**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]}) for d in deltas]
        if stop:
            ending = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
            out.append(sse({**head, "choices": [ending]}))
            out.append(sse({**head, "choices": [], "usage": body["usage"]}))
            out.append("data: [DONE]\n\n")
        return out

    def system_prompts(self, body):
        return [m["content"] for m in body["messages"] if m["role"] in ("system", "developer")]

    def messages(self, body):
        return [m for m in body["messages"] if m["role"] not in ("system", "developer")]

    def refusal(self, body):
        wanted: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in wanted:
                    return "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
                wanted.remove(message["tool_call_id"])
                continue
            if wanted:
                return "an assistant message with 'tool_calls' must be followed by tool messages"
            if message.get("tool_calls") == []:
                return "[] is too short - 'messages.tool_calls'"
            wanted = [call["id"] for call in message.get("tool_calls", ())]
        return "an assistant message with 'tool_calls' must be followed by tool messages" if wanted else None


class OpenAICompatible(OpenAI):
    name = provider = "openai-compatible"


class Gemini(Dialect):
    name = provider = "gemini"

    def body(self, text, calls):
        parts: list[Any] = [{"text": "hm", "thought": True}]
        if text:
            parts.append({"text": text})
        parts += [
            {"functionCall": {"name": n, "args": a}, "thoughtSignature": "Et0B+/8=", "xNew": [1]} for n, a in calls
        ]
        return {
            "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3, "thoughtsTokenCount": 2},
            "modelVersion": self.model_name,
            "responseId": "r1",
        }

    def events(self, text, calls, *, stop):
        body = self.body(text, calls)
        parts: list[Any] = []
        for part in body["candidates"][0]["content"]["parts"]:
            parts += [{**part, "text": piece} for piece in halves(part["text"])] if "text" in part else [part]
        head = {"usageMetadata": body["usageMetadata"], "modelVersion": self.model_name, "responseId": "r1"}
        chunks = [{"candidates": [{"content": {"parts": [p], "role": "model"}, "index": 0}], **head} for p in parts]
        if stop:
            chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        return [sse(chunk) for chunk in chunks]

    def system_prompts(self, body):
        found = [p["text"] for p in body.get("systemInstruction", {}).get("parts", ())]
        return found + [p["text"] for c in body["contents"] if c.get("role") == "system" for p in c["parts"]]

    def messages(self, body):
        return body["contents"]

    def refusal(self, body):
        wanted: list[str] = []
        if [content.get("role", "user") for content in body["contents"][:1]] != ["user"]:
            return "contents must begin with a user turn"
        for content in body["contents"]:
            if not content.get("parts"):
                return "contents.parts must not be empty"
            if any(part in ({}, {"text": ""}) for part in content["parts"]):
                return "it has an empty text parameter"
            given = [p["functionResponse"]["name"] for p in content["parts"] if "functionResponse" in p]
            if sorted(given) != sorted(wanted):
                return "the number of function response parts must equal the number of function call parts"
            wanted = [p["functionCall"]["name"] for p in content["parts"] if "functionCall" in p]
        return "a function call must be followed by its response" if wanted else None


def halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]] if len(text) > 1 else [text] if text else []


DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (Claude(), OpenAI(), OpenAICompatible(), Gemini())}
