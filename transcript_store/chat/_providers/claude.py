"""Claude: the Messages API, through the ``anthropic`` SDK.

A message is ``{"role", "content"}``. Its content is a text or a list of blocks. Tool calls are ``tool_use`` blocks of a reply. All
their results are ``tool_result`` blocks of the one user message that follows. The system prompt is the body's ``system``.

Sources: https://docs.anthropic.com/en/api/messages, and the types of anthropic 2.12.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
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
)
from transcript_store.chat._providers.sdk import PostConnection, options

DEFAULT_MAX_TOKENS = 8192
"""Sent if the configuration gives no limit, because the Messages API requires one."""

CUT_SHORT = ("max_tokens", "model_context_window_exceeded")
"""The stop reasons after which the last block may be incomplete."""

REFUSED = "refusal"
"""The stop reason of a reply that a safety classifier stopped. None of its tools may run."""

PAUSED = "pause_turn"
"""The stop reason of a reply whose server tools still run. The API continues it if the next request ends with it."""

MOST_CACHE_CONTROLS = 4
"""How many blocks of a request may have ``cache_control``."""

_RESPONSE_MEMBERS = frozenset(
    {"id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container", "context_management"}
)
"""Members of a whole response, which another program may have recorded as the message. A request may not have them."""

_NO_TEXT = "(no text)"
_THINKING = ("thinking", "redacted_thinking")
_FILE_CITATIONS = ("char_location", "page_location", "content_block_location")


class ClaudeWire:
    """The Messages format as a ``Wire``."""

    results_are_messages = False
    has_system_messages = False
    pause_reason: str | None = PAUSED
    thinking_members: tuple[str, ...] = ()

    def user_message(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def is_reply(self, message: Message) -> bool:
        return message.get("role") == "assistant"

    def may_open(self, message: Message) -> bool:
        rest = None if self.is_reply(message) else self.without_results(message)
        return rest is not None and _sendable(rest) is not None

    def calls(self, message: Message) -> list[ToolCall]:
        return [
            ToolCall(id=block.get("id"), name=block.get("name", ""), arguments=_object(block.get("input")))
            for block in _blocks(message)
            if block.get("type") == "tool_use"
        ]

    def results(self, message: Message) -> list[ToolResult]:
        return [
            ToolResult(id=block.get("tool_use_id"), name=None, native=block)
            for block in _blocks(message)
            if block.get("type") == "tool_result"
        ]

    def without_results(self, message: Message) -> Message | None:
        if not self.results(message):
            return message
        rest = [block for block in _blocks(message) if block.get("type") != "tool_result"]
        return {**message, "content": rest} if rest else None

    def result(self, call: ToolCall, text: str, *, is_error: bool) -> JSON:
        block: JSON = {"type": "tool_result", "tool_use_id": call.id, "content": text}
        return {**block, "is_error": True} if is_error else block

    def results_message(self, results: Sequence[JSON]) -> Message:
        return {"role": "user", "content": list(results)}

    def request(self, request: Request, *, stream: bool) -> JSON:
        body: JSON = {"model": request.model, "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS}
        if request.system_prompt:
            body["system"] = request.system_prompt
        body["messages"] = _as_sent(request.messages)
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
        if request.schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        if stream:
            body["stream"] = True
        return body

    def reply(self, body: JSON) -> Reply:
        return _reply(body, set())

    def assembly(self) -> Assembly:
        return ClaudeAssembly()


class ClaudeAssembly:
    """Builds a message from a stream, in which each block starts, grows by deltas, and stops."""

    def __init__(self) -> None:
        self._message: JSON = {}
        self._blocks: dict[int, JSON] = {}
        self._inputs: dict[int, str] = {}  # the JSON text of a tool_use block's input, until the block stops
        self._open: set[int] = set()

    def add(self, event: JSON) -> str:
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "message_start":
            self._message = dict(event["message"])
        elif kind == "content_block_start":
            self._blocks[index] = dict(event["content_block"])
            self._open.add(index)
            return _text(self._blocks[index])
        elif kind == "content_block_delta":
            return self._delta(index, event["delta"])
        elif kind == "content_block_stop":
            if self._finish_input(index):
                self._open.discard(index)
        elif kind == "message_delta":
            self._message.update(event.get("delta") or {})
            self._message["usage"] = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
        return ""

    def reply(self) -> Reply:
        order = sorted(self._blocks)
        half = {place for place, index in enumerate(order) if index in self._open}
        blocks = [
            {**self._blocks[i], "partial_json": self._inputs[i]} if i in self._inputs else self._blocks[i]
            for i in order
        ]
        return _reply({**self._message, "content": blocks}, half)

    def _delta(self, index: int, delta: JSON) -> str:
        block = self._blocks[index]
        kind = delta.get("type")
        if kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        else:  # text_delta, thinking_delta, signature_delta and later kinds: each text member continues
            for name, value in delta.items():
                if name != "type":
                    before = block.get(name)
                    block[name] = (
                        join_text(before, value) if isinstance(before, str) and isinstance(value, str) else value
                    )
        return str(delta.get("text", "")) if kind == "text_delta" else ""

    def _finish_input(self, index: int) -> bool:
        """Parse the input of a ``tool_use`` block. False if it is not JSON; then the block is incomplete."""
        text = self._inputs.get(index)
        if text:
            try:
                self._blocks[index]["input"] = json.loads(text)
            except (ValueError, RecursionError):  # not JSON, an integer of thousands of digits, or nested too deeply
                return False
        self._inputs.pop(index, None)
        return True


def _reply(body: JSON, half: set[int]) -> Reply:
    """The reply in a body. ``half`` are the places of the blocks that a stream never ended; empty for a whole body."""
    blocks = body.get("content") or []
    stop_reason = body.get("stop_reason")
    if stop_reason in CUT_SHORT and blocks and blocks[-1].get("type") == "tool_use":
        half = half | {len(blocks) - 1}
    incomplete = None
    if stop_reason is None:
        incomplete = "the reply ended without a stop reason"
    elif stop_reason == REFUSED:
        incomplete = f"the reply was refused ({stop_reason})"
    elif half:
        incomplete = f"the reply was cut short ({stop_reason})"
    elif stop_reason != PAUSED and not any(map(_is_answer, blocks)):
        thought = any(block.get("type") in _THINKING for block in blocks)
        incomplete = f"the reply {'is nothing but thinking' if thought else 'holds no content'} ({stop_reason})"
    elif stop_reason == "tool_use" and not any(block.get("type") == "tool_use" for block in blocks):
        incomplete = f"the reply was to call a tool, and calls none ({stop_reason})"
    kept = blocks
    if incomplete:
        kept = _without_last_thoughts([block for place, block in enumerate(blocks) if _whole(block, place in half)])
    message = {"role": body.get("role") or "assistant", "content": kept}
    return Reply(
        message=message if kept or not incomplete else None,
        text="".join(map(_text, kept)),
        stop_reason=stop_reason,
        extra=about_reply(body.get("id"), body.get("model"), stop_reason, body.get("usage")),
        incomplete=incomplete,
        raw=body if incomplete else None,
        is_refusal=stop_reason == REFUSED,
    )


def _is_answer(block: JSON) -> bool:
    return block.get("type") not in _THINKING and _can_be_sent(block)


def _whole(block: JSON, half: bool) -> bool:
    """True if a block of an incomplete reply can be sent again. ``half`` says that the block itself is incomplete.

    An incomplete text can be sent. Thinking needs its signature, which comes last.
    """
    kind = block.get("type")
    if kind == "text":
        return bool(block.get("text", "").strip())
    if kind == "thinking":
        return bool(block.get("signature"))
    return not half


def _without_last_thoughts(blocks: list[JSON]) -> list[JSON]:
    """The blocks without thinking at the end: the API refuses a message that ends with thinking."""
    end = len(blocks)
    while end and blocks[end - 1].get("type") in _THINKING:
        end -= 1
    return blocks[:end]


def _as_sent(messages: Sequence[Message]) -> list[Message]:
    """The messages as a request may carry them.

    Beside what :func:`_sendable` leaves out, these are left out: a call of a server tool without its result, unless the request
    asks the API to continue that reply; all but the newest ``cache_control``; and white space at the end of a request that ends
    with a reply.
    """
    answered = {block.get("tool_use_id") for message in messages for block in _blocks(message)}
    replies = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    last = replies[-1] if replies else -1
    if any(ClaudeWire().without_results(message) for message in messages[last + 1 :]):
        last = -1  # a question follows, so no reply is continued
    sent = [
        sendable
        for place, message in enumerate(messages)
        if (sendable := _sendable(message if place == last else _without_open_calls(message, answered)))
    ]
    controls = [block for message in sent for block in _cached(_blocks(message))]
    old = {id(block) for block in controls[:-MOST_CACHE_CONTROLS]}
    sent = [_without_controls(message, old) for message in sent] if old else sent
    if sent and sent[-1].get("role") == "assistant":
        sent[-1] = _without_last_space(sent[-1])
    return sent


def _without_open_calls(message: Message, answered: Collection[Any]) -> Message:
    def is_open(block: JSON) -> bool:
        return block.get("type") in ("server_tool_use", "mcp_tool_use") and block.get("id") not in answered

    blocks = _blocks(message)
    kept = [block for block in blocks if not is_open(block)]
    return message if len(kept) == len(blocks) else {**message, "content": kept}


def _cached(blocks: Sequence[JSON]) -> Iterator[JSON]:
    """The blocks with ``cache_control`` in order, also those within the result of a tool."""
    for block in blocks:
        inner = block.get("content")
        if isinstance(inner, list):
            yield from _cached(inner)
        if block.get("cache_control"):
            yield block


def _without_controls(message: Message, old: Collection[int]) -> Message:
    def cleared(block: JSON) -> JSON:
        less = {n: v for n, v in block.items() if n != "cache_control"} if id(block) in old else block
        inner = less.get("content")
        return {**less, "content": list(map(cleared, inner))} if isinstance(inner, list) else less

    content = message.get("content")
    return {**message, "content": list(map(cleared, content))} if isinstance(content, list) else message


def _without_last_space(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content.rstrip()}
    *before, last = _blocks(message)
    return {**message, "content": [*before, {**last, "text": last["text"].rstrip()}]} if _text(last) else message


def _sendable(message: Message) -> Message | None:
    """The message as a request may carry it, or None if nothing of it can be sent.

    The API refuses a text that is only white space, also in a tool's result; thinking without its signature, which another
    model or a gateway wrote, and thinking at the end of a reply. They are left out. So are the ``file_id`` of a citation in a
    document, a ``caller`` that is null, what the SDK parsed, and the members of a whole response, which only a response may contain.
    A result that says that its call failed has to have a text. In a user's message, tool results are moved to the front: the API
    does not find them after a text.
    """
    if message.keys() & _RESPONSE_MEMBERS:
        message = {name: value for name, value in message.items() if name not in _RESPONSE_MEMBERS}
    content = message.get("content")
    if not isinstance(content, list):
        return message if not isinstance(content, str) or content.strip() else None
    blocks = [_sendable_block(block) for block in content if _can_be_sent(block)]
    if message.get("role") == "assistant":
        blocks = _without_last_thoughts(blocks)
    else:
        blocks.sort(key=lambda block: block.get("type") != "tool_result")
    return {**message, "content": blocks} if blocks else None


def _can_be_sent(block: JSON) -> bool:
    kind = block.get("type")
    if kind == "text":
        return bool((block.get("text") or "").strip())
    return kind != "thinking" or bool(block.get("signature"))


def _sendable_block(block: JSON) -> JSON:
    if "parsed_output" in block or block.get("caller", block) is None:
        block = {
            name: value
            for name, value in block.items()
            if name != "parsed_output" and (name, value) != ("caller", None)
        }
    if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
        block = {**block, "input": {}}
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list) and not all(map(_can_be_sent, inner)):
        block = {**block, "content": [each for each in inner if _can_be_sent(each)]}
    if block.get("type") == "tool_result" and block.get("is_error") and not block.get("content"):
        block = {**block, "content": _NO_TEXT}
    citations = block.get("citations")
    if not isinstance(citations, list):
        return block
    return {
        **block,
        "citations": [
            {name: value for name, value in citation.items() if name != "file_id"}
            if citation.get("type") in _FILE_CITATIONS
            else citation
            for citation in citations
        ],
    }


def _blocks(message: Message) -> list[JSON]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _text(block: JSON) -> str:
    return str(block.get("text", "")) if block.get("type") == "text" else ""


def _object(value: Any) -> JSON | None:
    return value if isinstance(value, dict) else None


def connect(**given: Any) -> PostConnection:
    """A connection to the Messages API. ``given`` are ``token``, ``base_url`` and ``timeout_seconds``."""
    import anthropic

    client = anthropic.Anthropic(**options(anthropic, **given))
    return PostConnection(client, anthropic.Stream[object], "/v1/messages")
