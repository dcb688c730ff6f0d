"""Which messages does an SDK's reply hold that can be sent again, and what else belongs to the reply?

A reply is more than a message: an id, a stop reason, usage. The providers refuse most of that in the next request, and
the SDKs add members of their own (``parsed``), which they refuse as well. So the message has what a request may
contain, and its extra has the rest.

Sources: https://docs.anthropic.com/en/api/messages, https://platform.openai.com/docs/api-reference,
https://ai.google.dev/api/generate-content, and the types of anthropic 2.14, openai 3.57 and google-genai 3.6.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

JSON = dict[str, Any]


class ReplyMessages(NamedTuple):
    """One reply as ``append_messages`` takes it: two lists of one length, never empty.

    A reply of Claude, of chat completions and of Gemini is one message. One of OpenAI's Responses is a message for each
    item of its output. If nothing can be sent again (an empty answer) the message is None, which with its extra is an
    event.
    """

    messages: list[JSON | None]
    extras: list[JSON | None]
    """``response_id``, ``model``, ``stop_reason`` and ``usage``, as far as the provider reported them, in its own
    words, at the last message of the reply; what only a response may hold; and in ``left_out`` the content that cannot
    be sent again.
    """


def from_reply(reply: Any) -> ReplyMessages:
    """The messages of a reply, ready to be stored and to be sent again, and the extra of each.

    ::

        messages, extras = from_reply(client.messages.create(...))
        conversation.append_messages(messages, extras=extras)      # one commit

    Args:
        reply: what an SDK returned, or the same as a dict: a ``Message`` of anthropic; a ``ChatCompletion``, its
            ``message``, or a ``Response`` of openai; a ``GenerateContentResponse`` of google-genai, or a list of the
            chunks of its stream. Also what ``parse()`` returns, and ``get_final_message()``, ``get_final_completion()``
            and ``get_final_response()`` of a stream. Of several choices or candidates the first counts.

    Raises:
        TypeError: it is none of these, but for example an event of a stream, or the stream itself. Nothing was stored.
    """
    if isinstance(reply, list | tuple) and reply:
        return _gemini(_merged([_members(chunk) for chunk in reply]))
    members = _members(reply)
    if isinstance(members.get("choices"), list) and members.get("object") != "chat.completion.chunk":
        return _chat_completions(members)
    if isinstance(members.get("output"), list):
        return _responses(members)
    if "candidates" in members or "promptFeedback" in members or "usageMetadata" in members:
        return _gemini(members)
    if members.get("type") == "message" and isinstance(members.get("content"), list):
        return _claude(members)
    if members.get("role") == "assistant" and "type" not in members:
        return _chat_completions({"choices": [{"message": members}]})
    raise _not_a_reply(reply)


_SDKS = ("anthropic", "openai", "google")


def is_of_a_reply(value: object) -> bool:
    """True if an object comes from an SDK: a reply, or a part of one. Nothing is imported, and no method of it is called."""
    return _is_model(value) and type(value).__module__.partition(".")[0] in _SDKS


def _is_model(value: object) -> bool:
    return callable(getattr(value, "model_dump", None)) and hasattr(type(value), "model_fields")


def _members(reply: Any) -> JSON:
    if isinstance(reply, Mapping):
        copy: JSON = _copied(reply)
        return {_CAMEL.get(name, name): value for name, value in copy.items()} if "candidates" in copy else copy
    if not _is_model(reply):
        raise _not_a_reply(reply)
    # exclude_unset: fields that the server did not send are left out, whatever the SDK's class has.
    dumped: JSON = reply.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return dumped


_CAMEL = {
    "usage_metadata": "usageMetadata",
    "prompt_feedback": "promptFeedback",
    "response_id": "responseId",
    "model_version": "modelVersion",
}
"""Gemini's members as the service spells them: ``model_dump()`` without ``by_alias`` spells them otherwise."""


def _copied(value: Any) -> Any:
    """A copy of what ``model_dump()`` without ``mode="json"`` may return: bytes become base64, as the services spell them."""
    if isinstance(value, Mapping):
        return {name: _copied(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(member) for member in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.value if isinstance(value, Enum) else value


def _not_a_reply(reply: Any) -> TypeError:
    kind = type(reply)
    hint = next(
        (f"; pass what its {name}() returns" for name in _ENDS if hasattr(reply, name)),
        ": a Message of anthropic, a ChatCompletion or Response of openai, a GenerateContentResponse of google-genai, or the same "
        "as a dict",
    )
    return TypeError(f"from_reply() takes a whole reply, not {kind.__module__}.{kind.__qualname__}{hint}")


_ENDS = ("get_final_message", "get_final_completion", "get_final_response", "parse")


def _without_nulls(members: Mapping[str, Any], *others: str) -> JSON:
    return {name: value for name, value in members.items() if value is not None and name not in others}


def _extra(response_id: Any, model: Any, stop_reason: Any, usage: Any, **others: Any) -> JSON:
    named = {"response_id": response_id, "model": model, "stop_reason": stop_reason, "usage": usage}
    return {**_without_nulls(named), **{name: value for name, value in others.items() if value not in (None, [], {})}}


def _one(message: JSON | None, extra: JSON) -> ReplyMessages:
    return ReplyMessages([message], [extra or ({} if message is None else None)])


# ---- Claude ----------------------------------------------------------------------------------------------------------

_CLAUDE_ONLY_IN_RESPONSES = ("stop_sequence", "stop_details", "container", "context_management", "diagnostics")
_FILE_CITATIONS = ("char_location", "page_location", "content_block_location")
_THINKING = ("thinking", "redacted_thinking")


def _claude(reply: JSON) -> ReplyMessages:
    blocks = [_claude_block(block) for block in reply["content"] if isinstance(block, dict)]
    kept = [block for block in blocks if _claude_takes(block)]
    while kept and kept[-1].get("type") in _THINKING:  # the API refuses a message that ends with thinking
        kept.pop()
    extra = _extra(
        *(reply.get(name) for name in ("id", "model", "stop_reason", "usage")),
        **{name: reply.get(name) for name in _CLAUDE_ONLY_IN_RESPONSES},
        left_out=[block for block in blocks if block not in kept and block.get("text") != ""],
    )
    return _one({"role": reply.get("role") or "assistant", "content": kept} if kept else None, extra)


def _claude_takes(block: JSON) -> bool:
    """True if a request may contain the block: not a text of white space, nor thinking without its signature."""
    if block.get("type") == "text":
        return bool(str(block.get("text", "")).strip())
    return block.get("type") != "thinking" or bool(block.get("signature"))


def _claude_block(block: JSON) -> JSON:
    block = _without_nulls(block, "parsed_output", "__json_buf")
    if isinstance(citations := block.get("citations"), list):
        block["citations"] = [
            _without_nulls(citation, "file_id") if citation.get("type") in _FILE_CITATIONS else citation
            for citation in citations
        ]
    return block


# ---- OpenAI ----------------------------------------------------------------------------------------------------------


def _chat_completions(reply: JSON) -> ReplyMessages:
    choice = (reply["choices"] or [{}])[0]
    said = choice.get("message") or {}
    message = {"role": "assistant", **_without_nulls(said, "parsed", "annotations")}
    if not isinstance(message.get("content"), list | str | None):
        raise _not_a_reply(reply)
    if calls := message.pop("tool_calls", None):  # the API refuses an empty list
        message["tool_calls"] = [_call(call) for call in calls]
    audio = message.get("audio")
    if isinstance(audio, dict):
        message["audio"] = {"id": audio.get("id")}
    extra = _extra(
        *(reply.get("id"), reply.get("model"), choice.get("finish_reason"), reply.get("usage")),
        **{name: reply.get(name) for name in ("service_tier", "system_fingerprint")},
        logprobs=choice.get("logprobs"),
        annotations=said.get("annotations"),
        audio=audio,
    )
    says_something = any(value for name, value in message.items() if name not in ("role", "name"))
    return _one(message if says_something else None, extra)


def _call(call: JSON) -> JSON:
    call = _without_nulls(call, "index")
    if isinstance(function := call.get("function"), dict):
        call["function"] = _without_nulls(function, "parsed_arguments")
    return call


def _responses(reply: JSON) -> ReplyMessages:
    items = [_item(item) for item in reply["output"] if isinstance(item, dict)]
    # Without storage on the server, reasoning can be sent again only with what it is encrypted in.
    lost = [
        item
        for item in items
        if reply.get("store") is False and item.get("type") == "reasoning" and "encrypted_content" not in item
    ]
    messages: list[JSON | None] = [item for item in items if item not in lost]
    messages = messages or [None]
    details = reply.get("incomplete_details") or {}
    extra = _extra(
        *(reply.get("id"), reply.get("model"), details.get("reason") or reply.get("status"), reply.get("usage")),
        **{name: reply.get(name) for name in ("previous_response_id", "service_tier", "error")},
        left_out=lost,
    )
    return ReplyMessages(messages, [None] * (len(messages) - 1) + [extra])


def _item(item: JSON) -> JSON:
    item = _without_nulls(item, "parsed_arguments", "created_by")
    if isinstance(content := item.get("content"), list):
        item["content"] = [_without_nulls(part, "parsed") if isinstance(part, dict) else part for part in content]
    return item


# ---- Gemini ----------------------------------------------------------------------------------------------------------


def _gemini(reply: JSON) -> ReplyMessages:
    candidate = ((reply.get("candidates") or [{}])[0]) or {}
    content = candidate.get("content") or {}
    parts = [_without_nulls(part) for part in content.get("parts") or ()]
    parts = [
        part for part in parts if part.get("text") or part.keys() - {"text", "thought"}
    ]  # an empty text is refused
    feedback = _without_nulls(reply.get("promptFeedback") or {})
    others = _without_nulls(candidate, "content", "index")
    stop_reason = others.pop("finishReason", None) or others.pop("finish_reason", None) or feedback.get("blockReason")
    extra = _extra(
        *(reply.get("responseId"), reply.get("modelVersion"), stop_reason, _counts(reply.get("usageMetadata"))),
        **others,
        promptFeedback=feedback,
    )
    return _one(
        {**_without_nulls(content), "role": content.get("role") or "model", "parts": parts} if parts else None, extra
    )


def _counts(usage: JSON | None) -> JSON | None:
    return None if usage is None else _without_nulls(usage)


def _merged(chunks: Iterable[JSON]) -> JSON:
    """The chunks of a stream as one response: the parts of all in order, a text and its continuation as one part."""
    whole: JSON = {}
    candidate: JSON = {}
    parts: list[JSON] = []
    for chunk in chunks:
        if "choices" in chunk or "delta" in chunk:
            raise TypeError(
                "from_reply() takes a list of google-genai's chunks only; pass the final object of another stream"
            )
        whole |= _without_nulls(chunk, "candidates")
        newer = (chunk.get("candidates") or [{}])[0]
        candidate |= _without_nulls(newer, "content")
        content = newer.get("content") or {}
        for part in map(_without_nulls, content.get("parts") or ()):
            last = parts[-1] if parts else {}
            if "text" in part and last.keys() == part.keys() <= {"text", "thought"}:
                last["text"] += part["text"]
            else:
                parts.append(part)
    return {**whole, "candidates": [{**candidate, "content": {"parts": parts}}]}


# ---- usage ----
# The token counts of a reply and its cost, read from any provider's ``usage`` object.

# Providers have different names for the same count. At most one name of ``_INPUT`` and one of ``_OUTPUT`` is used.
# A provider does not include the counts of ``_APART_FROM_…`` in these, so they are added.
_INPUT = ("input_tokens", "prompt_tokens", "promptTokenCount", "prompt_token_count")
_APART_FROM_INPUT = (
    *("cache_creation_input_tokens", "cache_read_input_tokens"),  # Claude's
    *("toolUsePromptTokenCount", "tool_use_prompt_token_count"),  # Gemini's
)
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "candidates_token_count")
_APART_FROM_OUTPUT = ("thoughtsTokenCount", "thoughts_token_count")  # Gemini's
_TOTAL = ("total_tokens", "totalTokenCount", "total_token_count")


class Tokens(NamedTuple):
    """The tokens of one reply. A count that the provider does not report is None.

    ``total`` is the provider's own figure. If there is none, it is the sum of input and output.
    """

    input: int | None
    output: int | None
    total: int | None


def tokens_in(usage: Mapping[str, Any]) -> Tokens:
    """The counts in a reply's ``usage`` object. Members that are not integers, and negative ones, are ignored."""
    counts = {name: count for name, count in usage.items() if type(count) is int and count >= 0}
    taken = _sum(counts, _INPUT, _APART_FROM_INPUT)
    given = _sum(counts, _OUTPUT, _APART_FROM_OUTPUT)
    stated = next((counts[name] for name in _TOTAL if name in counts), None)
    total = (taken or 0) + (given or 0) if stated is None and (taken, given) != (None, None) else stated
    return Tokens(taken, given, total)


_CACHE_READS = (
    "cache_read_input_tokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "prompt_cache_hit_tokens",
    "cached_input_tokens",  # Codex's
)
_CACHE_READ_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_CACHE_WRITES = ("cache_creation_input_tokens", "cache_write_input_tokens")  # Claude's, Codex's


def cache_reads_in(usage: Mapping[str, Any]) -> int:
    """How many input tokens of a reply's ``usage`` object came from the provider's cache; 0 if it does not say."""
    details = (usage.get(name) for name in _CACHE_READ_DETAILS)
    nested = [part.get("cached_tokens") for part in details if isinstance(part, Mapping)]
    counts = [*(usage.get(name) for name in _CACHE_READS), *nested]
    return next((count for count in counts if type(count) is int and count > 0), 0)


def cache_writes_in(usage: Mapping[str, Any]) -> int:
    """How many input tokens were written to the cache; 0 if it does not say."""
    counts = (usage.get(name) for name in _CACHE_WRITES)
    return next((count for count in counts if type(count) is int and count > 0), 0)


def cost_in(usage: Mapping[str, Any]) -> float | None:
    """The cost of a reply in US dollars, if its ``usage`` object has ``cost`` (OpenRouter, pi); None otherwise."""
    cost = usage.get("cost")
    if isinstance(cost, Mapping):
        cost = cost.get("total")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if 0 <= cost < 1e9 else None


def _sum(counts: Mapping[str, int], names: tuple[str, ...], besides: tuple[str, ...]) -> int | None:
    one_of_them = [counts[name] for name in names if name in counts][:1]
    found = one_of_them + [counts[name] for name in besides if name in counts]
    return sum(found) if found else None
