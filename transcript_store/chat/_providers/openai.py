"""OpenAI and compatible servers: chat completions, through the ``openai`` SDK.

Tool calls are the ``tool_calls`` of a reply, with their arguments as JSON text. Each result is a message of its own after the reply,
with the role ``tool``. The system prompt is the first message of a request. It is never on record.

Sources: https://platform.openai.com/docs/api-reference/chat, and the types of openai 3.54.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from transcript_store.chat._provider import (
    JSON,
    Assembly,
    Message,
    Reply,
    Request,
    ToolCall,
    ToolResult,
    about_reply,
    join_text,
    refusal_by,
)
from transcript_store.chat._providers.sdk import PostConnection, options

_REPLACED = ("id", "type", "name", "role", "index", "format")
"""Members of a streamed delta that replace the value before. Others are added to it. Some servers repeat these in each event."""

_LIMITS = ("length", "max_tokens", "model_length")
_STOPPED = {
    "content_filter": "blocked",
    "sensitive": "blocked",
    "safety": "blocked",
    "recitation": "blocked",
    "function_call_filter": "blocked",
    "malformed_function_call": "blocked",
    "unexpected_tool_call": "blocked",
    "error": "cut short",
    "network_error": "cut short",
    "insufficient_system_resource": "cut short",
    "abort": "cut short",
    "cancelled": "cut short",
}
"""The finish reasons of a reply that was stopped: OpenAI's, and those of Zhipu, DeepSeek, OpenRouter, SGLang and Gemini, whose own reason
may stand behind a colon: ``content_filter: RECITATION``. A reason that is not here counts as whole."""
_NOT_ALLOWED = ("content_filter", "sensitive", "safety")
"""Those that are about the question too, if nothing of a reply came."""


class OpenAIWire:
    """The chat completions format as a ``Wire``.

    ``limit_member`` is the name of the token limit. Compatible servers know only its older name, ``max_tokens``.
    """

    results_are_messages = True
    has_system_messages = True
    pause_reason: str | None = None
    thinking_members: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_details")

    def __init__(self, *, limit_member: str = "max_completion_tokens") -> None:
        self._limit_member = limit_member

    def user_message(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def is_reply(self, message: Message) -> bool:
        return message.get("role") == "assistant"

    def may_open(self, message: Message) -> bool:
        return message.get("role") != "tool" and _sendable(message) is not None

    def calls(self, message: Message) -> list[ToolCall]:
        return [
            ToolCall(id=call.get("id"), name=_function(call).get("name", ""), arguments=_arguments(call))
            for call in message.get("tool_calls") or ()
        ]

    def results(self, message: Message) -> list[ToolResult]:
        if message.get("role") != "tool":
            return []
        return [ToolResult(id=message.get("tool_call_id"), name=None, native=message)]

    def without_results(self, message: Message) -> Message | None:
        return None if message.get("role") == "tool" else message

    def result(self, call: ToolCall, text: str, *, is_error: bool) -> JSON:
        return {"role": "tool", "tool_call_id": call.id, "content": f"Error: {text}" if is_error else text}

    def results_message(self, results: Sequence[JSON]) -> Message:
        raise NotImplementedError("each result is a message")

    def request(self, request: Request, *, stream: bool) -> JSON:
        messages = [sendable for message in request.messages if (sendable := _sendable(message))]
        if request.system_prompt:
            messages.insert(0, {"role": "system", "content": request.system_prompt})
        body: JSON = {"model": request.model, "messages": messages}
        if request.max_tokens is not None:
            body[self._limit_member] = request.max_tokens
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": request.schema},
            }
        if stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return body

    def reply(self, body: JSON) -> Reply:
        return _reply(body, ended=True)

    def assembly(self) -> Assembly:
        return OpenAIAssembly()


class OpenAIAssembly:
    """Builds a message from a stream: the deltas of one choice, merged into what a response without streaming has."""

    def __init__(self) -> None:
        self._body: JSON = {}
        self._message: JSON = {}
        self._finish_reason: str | None = None

    def add(self, event: JSON) -> str:
        self._body.update({k: v for k, v in event.items() if k != "choices" and v is not None})
        text = ""
        for choice in event.get("choices") or ():
            if (choice.get("index") or 0) == 0:
                delta = choice.get("delta") or {}
                merge(self._message, delta)
                text += _text(delta)
                self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return text

    def reply(self) -> Reply:
        message = dict(self._message)
        if message.get("tool_calls"):  # ``index`` says which call a delta belongs to; messages do not have it
            message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in message["tool_calls"]]
        choice = {"message": message, "finish_reason": self._finish_reason}
        return _reply({**self._body, "choices": [choice]}, ended=False)


def merge(target: JSON, delta: JSON) -> None:
    """Merge a delta into ``target``: a text is appended, objects are merged, and so are entries of lists with equal ``index``."""
    for name, value in delta.items():
        before = target.get(name)
        if isinstance(before, str) and isinstance(value, str) and name not in _REPLACED:
            target[name] = join_text(before, value)
        elif isinstance(before, dict) and isinstance(value, dict):
            merge(before, value)
        elif isinstance(value, list):
            target[name] = _merged_list(before if isinstance(before, list) else [], value)
        elif isinstance(value, dict):
            target[name] = {}
            merge(target[name], value)
        elif value is not None or name not in target:
            target[name] = value


def _merged_list(entries: list[Any], deltas: list[Any]) -> list[Any]:
    for delta in deltas:
        place = _place(entries, delta)
        if place is None:
            entries.append({})
            place = -1
        if isinstance(delta, dict):
            merge(entries[place], delta)
        else:
            entries[place] = delta
    return entries


def _place(entries: list[Any], delta: Any) -> int | None:
    """The place of the entry that a delta continues; None if it begins a new one.

    Some servers give no ``index``. They give the id of a call only once, so a delta with an id begins a new entry.
    """
    if not isinstance(delta, dict):
        return None
    if "index" in delta:
        found = [
            k for k, entry in enumerate(entries) if isinstance(entry, dict) and entry.get("index") == delta["index"]
        ]
        if not found or (delta.get("id") and entries[found[-1]].get("id") not in (None, "", delta["id"])):
            return None  # some servers give every call the index 0, but an id of its own
        return found[-1]
    return None if delta.get("id") or not entries else -1


def _reply(body: JSON, *, ended: bool) -> Reply:
    """The reply in a body. With ``ended`` it is whole even without a finish reason."""
    choice = (body.get("choices") or [{}])[0]
    message: JSON = choice.get("message") or {}
    if message and not message.get("role"):
        message = {**message, "role": "assistant"}  # some servers give none
    stop_reason = choice.get("finish_reason")
    calls = message.get("tool_calls") or []
    whole_calls = [call for call in calls if _is_spelled_out(call) and _arguments(call) is not None]
    reason = str(stop_reason or "").partition(":")[0].strip().lower()
    stopped = _STOPPED.get(reason) or ("cut short" if reason in _LIMITS and calls else None)
    incomplete = None
    if not message:
        incomplete = "the reply holds no message"
    elif stop_reason is None and not ended:
        incomplete = "the reply ended without a finish reason"
    elif stopped:
        incomplete = f"the reply was {stopped} ({stop_reason})"
        # The last call may be cut even if its arguments happen to be JSON, as an empty text is here.
        whole_calls = whole_calls if len(whole_calls) < len(calls) else calls[:-1]
    elif not _is_answer(message):
        thought = any(message.get(name) for name in OpenAIWire.thinking_members)
        incomplete = f"the reply {'is nothing but thinking' if thought else 'holds no content'} ({stop_reason})"
    elif reason == "tool_calls" and not calls:
        incomplete = f"the reply was to call a tool, and calls none ({stop_reason})"
    kept = message
    error = body.get("error")  # gateways answer 200, and say in the body what the provider behind them refused
    refusal = refusal_by(error.get("code"), error.get("message")) if isinstance(error, dict) else None
    if incomplete:
        kept = {name: value for name, value in message.items() if name != "tool_calls"}
        if whole_calls:
            kept["tool_calls"] = whole_calls
    return Reply(
        message=kept if not incomplete or _says_something(kept) else None,
        text=_text(kept),
        stop_reason=stop_reason,
        extra=about_reply(body.get("id"), body.get("model"), stop_reason, body.get("usage")),
        incomplete=incomplete,
        raw=body if incomplete else None,
        is_refusal=not _says_something(kept) and (refusal is not None or reason in _NOT_ALLOWED),
    )


def _says_something(message: Message) -> bool:
    return any(message.get(name) for name in ("content", "refusal", "tool_calls", "function_call", "audio"))


def _is_answer(message: Message) -> bool:
    """True if a reply has more than thinking and white space."""
    content = message.get("content")
    said = content.strip() if isinstance(content, str) else content
    return bool(said or message.get("images") or _says_something({**message, "content": None}))


def _sendable(message: Message) -> Message | None:
    """The message as a request may carry it, or None if nothing of it can be sent.

    Only a response may contain ``annotations``, and members of ``audio`` other than its id; they are left out. The API refuses
    an empty ``tool_calls`` and an empty reply; they are left out too. Some servers give a call's arguments as an object, or
    not at all. They are sent as JSON text, as the API requires. Arguments that the model wrote and that are no JSON object are
    sent as an empty one: llama.cpp and vLLM refuse every request that carries them.
    """
    if message.get("role") != "assistant":
        return message
    if not _says_something(message):
        return None
    calls = message.get("tool_calls")
    left_out = {"annotations"} if calls else {"annotations", "tool_calls"}
    members = {name: value for name, value in message.items() if name not in left_out}
    if isinstance(audio := message.get("audio"), dict):
        members["audio"] = {"id": audio.get("id")}
    if calls and not all(map(_is_spelled_out, calls)):
        members["tool_calls"] = [call if _is_spelled_out(call) else _spelled_out(call) for call in calls]
    return message if members == message else members


def _is_spelled_out(call: JSON) -> bool:
    """True if a call has the text of a JSON object as its function's arguments, or calls something else."""
    function = call.get("function")
    if not isinstance(function, dict):
        return True
    text = function.get("arguments")
    return isinstance(text, str) and bool(text.strip()) and _arguments(call) is not None


def _spelled_out(call: JSON) -> JSON:
    arguments = json.dumps(_arguments(call) or {}, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or message.get("refusal") or ""


def _function(call: JSON) -> JSON:
    """The function, or the custom tool, that a call names. A model may call a custom tool although requests offer none."""
    return call.get("function") or call.get("custom") or {}


def _arguments(call: JSON) -> JSON | None:
    """The arguments of a call, or None if they are not a JSON object. Many servers send nothing if there are no arguments."""
    arguments = _function(call).get("arguments")
    if arguments is None or isinstance(arguments, dict):
        return arguments or {}
    if not isinstance(arguments, str):
        return None
    try:
        arguments = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):  # not JSON, an integer of thousands of digits, or nested too deeply
        return None
    return arguments if isinstance(arguments, dict) else None


def connect(**given: Any) -> PostConnection:
    """A connection to a server's chat completions. ``given`` are ``token``, ``base_url`` and ``timeout_seconds``."""
    import openai

    client = openai.OpenAI(**options(openai, **given))
    return PostConnection(client, openai.Stream[object], "/chat/completions")
