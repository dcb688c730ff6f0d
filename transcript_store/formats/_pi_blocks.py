"""pi's messages: one form for every provider, from which each provider's own is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from transcript_store.errors import InvalidMessageError
from transcript_store.formats._blocks import (
    Block,
    Call,
    Media,
    Other,
    Result,
    Text,
    Thinking,
    Turn,
    arguments_of,
    objects,
    text_in,
)
from transcript_store.messages import parse_message

COMPACTED = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
)
CAME_BACK = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
"""What pi itself makes of a summary before it sends it (0.73)."""

_SAID = ("user", "custom", "hookMessage", "toolResult", "compactionSummary", "branchSummary")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_OF_OPENAI = frozenset({"openai", "openai-codex", "azure-openai-responses"})
_FORMS = {"claude": "claude", "gemini": "gemini", "openai": "openai", "openai-compatible": "openai"}


def provider_of(reply: dict[str, Any]) -> str:
    """Whose form a conversation with such replies has: pi names the API, and in its first files the provider alone."""
    return _provider(text_in(reply, "api"), text_in(reply, "provider"), text_in(reply, "model"))


@lru_cache(maxsize=64)  # a session has few models, and thousands of replies
def _provider(api: str, provider: str, model: str) -> str:
    api, provider, model = api.lower(), provider.lower(), model.lower()
    if "anthropic" in (api or provider) or ("bedrock" in api and ("claude" in model or "anthropic" in model)):
        return "claude"
    if (api or provider).startswith("google"):
        return "gemini"
    return "openai" if provider in _OF_OPENAI else "openai-compatible"


def is_said(message: dict[str, Any]) -> bool:
    """Whether somebody said it. A reply that failed or was stopped says what was written of it; a command that the user kept for
    himself is said to nobody.
    """
    role = message.get("role")
    if role == "assistant":
        return not _is_cut(message) or any(text_in(block, "text").strip() for block in objects(message.get("content")))
    if role == "bashExecution":
        return message.get("excludeFromContext") is not True
    return role in _SAID


def _is_cut(reply: dict[str, Any]) -> bool:
    """Whether it failed, or the user stopped it."""
    return reply.get("stopReason") in ("aborted", "error")


def turn_in_pi(message: dict[str, Any]) -> Turn | None:
    """What a message says; None if pi has no such role."""
    content = message.get("content")
    match message.get("role"):
        case "user" | "custom" | "hookMessage":
            return Turn("user", tuple(_said(content)))
        case "assistant":
            blocks = tuple(_block(block, message) for block in objects(content))
            # A call of a reply that was cut has no result, and its thinking no signature.
            cut = tuple(block for block in blocks if isinstance(block, Text) and block.text.strip())
            return Turn("assistant", cut if _is_cut(message) else blocks)
        case "toolResult":
            number, name = _id(text_in(message, "toolCallId")), text_in(message, "toolName")
            parts = tuple(block for block in _said(content) if isinstance(block, (Text, Media)))
            return Turn("user", (Result(number, name, parts, failed=message.get("isError") is True),))
        case "bashExecution":
            return Turn("user", (Text(_ran(message)),))
        case "compactionSummary":
            return Turn("user", (Text(COMPACTED.format(text_in(message, "summary"))),))
        case "branchSummary":
            return Turn("user", (Text(CAME_BACK.format(text_in(message, "summary"))),))
    return None


def _said(content: object) -> Iterator[Block]:
    if isinstance(content, str):
        yield Text(content)
    for block in objects(content):
        yield _block(block, {})


def _block(block: dict[str, Any], reply: dict[str, Any]) -> Block:
    match block.get("type"):
        case "text":
            return _text(block, reply)
        case "thinking":
            return _thinking(block, reply)
        case "toolCall":
            return _call(block, reply)
        case "image":
            return Media(text_in(block, "mimeType") or "image/*", text_in(block, "data"))
    return Other()


def _text(block: dict[str, Any], reply: dict[str, Any]) -> Text:
    text = text_in(block, "text")
    if (signature := text_in(block, "textSignature")) and provider_of(reply) == "gemini":
        return Text(text, own={"text": text, "thoughtSignature": signature}, provider="gemini")
    return Text(text)


def _thinking(block: dict[str, Any], reply: dict[str, Any]) -> Thinking:
    text, signature = text_in(block, "thinking"), text_in(block, "thinkingSignature")
    provider = _FORMS[provider_of(reply)]
    if provider == "gemini" and signature:
        own = {"text": text, "thought": True, "thoughtSignature": signature}
        return Thinking(text, signature, own=own, provider=provider)
    if provider == "openai" and signature.startswith("{"):  # an item of the responses API
        try:
            return Thinking(text, signature, own=parse_message(signature.encode()), provider="openai-responses")
        except (InvalidMessageError, UnicodeEncodeError):
            pass
    return Thinking(text, signature, redacted=block.get("redacted") is True, provider=provider)


def _call(block: dict[str, Any], reply: dict[str, Any]) -> Call:
    number, name = _id(text_in(block, "id")), text_in(block, "name")
    arguments = arguments_of(block.get("arguments"))
    signature = text_in(block, "thoughtSignature")
    if signature and provider_of(reply) == "gemini":
        own = {"functionCall": {"id": number, "name": name, "args": arguments}, "thoughtSignature": signature}
        return Call(number, name, arguments, own=own, provider="gemini")
    return Call(number, name, arguments)


def _id(given: str) -> str:
    """An id that every provider takes; a call and its result get the same. The responses API's has its item's id behind a bar."""
    return _ODD.sub("_", given.partition("|")[0])[:64]


def _ran(message: dict[str, Any]) -> str:
    """A command that the user ran, as pi tells it to the model."""
    output = text_in(message, "output")
    text = f"Ran `{text_in(message, 'command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled") is True:
        return text + "\n\n(command cancelled)"
    return f"{text}\n\nCommand exited with code {code}" if (code := message.get("exitCode")) else text
