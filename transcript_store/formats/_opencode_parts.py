"""OpenCode's parts → blocks of neutral form: those of version 1 (a row of ``part``) and those of version 2 (an item of
``content``).

A tool's part has its call and its result; ``state`` tells its progress. Names that differ are read side by side: ``callID`` and
``id``, ``output`` and ``content``, ``metadata`` and ``native``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._members import (
    Json,
    count_member,
    first_text,
    obj,
    objects,
    present,
    text_in,
    text_member,
)
from transcript_store.formats._neutral import NeutralMessage, arguments_of, media_at
from transcript_store.formats._neutral_lines import form_by_name
from transcript_store.messages import as_text, cost_in

ASKED = "What did we do so far?"
"""What OpenCode itself sends in the place of a part ``compaction``, before the summary (1.18)."""
_UNDER_WAY = ("pending", "running", "streaming")
_READ_OUT = ("text/plain", "application/x-directory")
"""The content of a file of these kinds is a text part of its own."""


def form_of(data: Json, parts: Iterable[Json]) -> str:
    """The form of a reply: a signature proves it, else the provider's name decides."""
    for part in parts:
        signed = _signed(part)
        if "anthropic" in signed:
            return "claude"
        if "google" in signed or "vertex" in signed:
            return "gemini"
    model = obj(data.get("model"))
    named = first_text(data.get("modelID"), model.get("modelID"), model.get("id")) or ""
    return form_by_name("", provider_in(data), named)


def _signed(part: Json) -> Json:
    """The member with the provider's signature."""
    return obj(part.get("metadata")) or obj(part.get("native")) or obj(part.get("state"))


def provider_in(data: Json) -> str:
    """The name that the user gave the provider of a reply."""
    return first_text(data.get("providerID"), obj(data.get("model")).get("providerID")) or ""


def asked_in(parts: list[Json]) -> tuple[NeutralMessage, str | None]:
    """The user's message, and the part that the user typed; None for all of it."""
    blocks: list[Block] = []
    typed: list[str] = []
    added = False
    for part in parts:
        kind, said = part.get("type"), text_member(part.get("text"))
        if kind == "text" and said and part.get("ignored") is not True:
            blocks.append(Text(said))
            added = added or part.get("synthetic") is True
            typed += [] if part.get("synthetic") is True else [said]
        elif kind == "file" and part.get("mime") not in _READ_OUT:
            blocks.append(_media(part))
        elif kind == "compaction":
            blocks, typed, added = [Text(ASKED)], [], True
        elif kind == "subtask" and (prompt := text_member(part.get("prompt"))):
            blocks.append(Text(prompt))
    return NeutralMessage("user", tuple(blocks)), "\n\n".join(typed) if added else None


def replied_in(parts: list[Json], form: str) -> Iterator[NeutralMessage]:
    """The reply and its results: one reply per step, because early versions store several in a message."""
    said: list[Block] = []
    results: list[Block] = []
    for part in [*parts, {"type": "step-start"}]:
        kind = part.get("type")
        if (kind == "step-start" or (kind in ("text", "reasoning") and results)) and said:
            yield NeutralMessage("assistant", tuple(said))
            if results:
                yield NeutralMessage("user", tuple(results))
            said, results = [], []
        if kind == "text" and (found := text_member(part.get("text"))):
            said.append(Text(found))
        elif kind == "reasoning":
            said.append(_thinking(part, form))
        elif kind == "tool":
            call, result = _tool(part)
            said.append(call)
            results += [result] if result is not None else []


def about_stored_reply(data: Json) -> Json:
    """What belongs to a reply and is not sent. OpenCode counts cached tokens apart from the input, and reasoning from the output."""
    model, tokens = obj(data.get("model")), obj(data.get("tokens"))
    cache = obj(tokens.get("cache"))
    thought = count_member(tokens.get("reasoning")) or 0
    written = count_member(tokens.get("output"))
    usage = present(
        input_tokens=count_member(tokens.get("input")),
        output_tokens=None if written is None else written + thought,
        cache_read_input_tokens=count_member(cache.get("read")),
        cache_creation_input_tokens=count_member(cache.get("write")),
        output_tokens_details={"reasoning_tokens": thought} if thought else None,
        cost=cost_in(data) or None,
    )
    is_counted = usage.get("input_tokens") or usage.get("output_tokens")
    return present(
        model=first_text(data.get("modelID"), model.get("id"), model.get("modelID")),
        stop_reason=text_member(data.get("finish")),
        usage=usage if is_counted else None,
    )


def _thinking(part: Json, form: str) -> Thinking:
    said, signed = text_in(part, "text"), _signed(part)
    claude, google = obj(signed.get("anthropic")), obj(signed.get("google")) or obj(signed.get("vertex"))
    if hidden := text_member(claude.get("redactedData")):
        return Thinking("", hidden, redacted=True, provider="claude")
    if signature := text_member(google.get("thoughtSignature")):
        own = {"text": said, "thought": True, "thoughtSignature": signature}
        return Thinking(said, signature, own=own, provider="gemini")
    return Thinking(said, text_in(claude, "signature"), provider="openai" if form.startswith("openai") else form)


def _tool(part: Json) -> tuple[Call, Result | None]:
    state = obj(part.get("state"))
    number = first_text(part.get("callID"), part.get("id")) or ""
    name = first_text(part.get("tool"), part.get("name")) or ""
    given = arguments_of(state.get("input"))
    call, status = Call(number, name, given), state.get("status")
    if status in _UNDER_WAY or status is None:
        return call, None  # it was stopped there, or is still at work
    error = state.get("error")
    failed = status == "error" or (name == "invalid" and "error" in given)  # a call that no tool took is ``completed``
    said = text_member(error) or text_member(obj(error).get("message")) if status == "error" else None
    output = said or text_member(state.get("output"))
    shown: list[Text | Media] = [Text(output)] if output else []
    for each in (*objects(state.get("content")), *objects(state.get("attachments"))):
        found = text_member(each.get("text"))
        if found and not output:
            shown.append(Text(found))
        elif each.get("type") in ("file", "media"):
            shown.append(_media(each))
    if not shown and error is not None:
        shown.append(Text(as_text(error)))
    return call, Result(number, name, tuple(shown), failed=failed)


def _media(part: Json) -> Media:
    """An attached file. Its path is on the user's machine, so it is not an address."""
    kind = first_text(part.get("mime"), part.get("mediaType")) or "image/*"
    if data := text_member(part.get("data")):
        return Media(kind, data)
    where = first_text(part.get("url"), part.get("uri")) or ""
    own = {"path": first_text(part.get("filename"), part.get("name")) or where}
    if where.startswith(("data:", "http:", "https:")):
        found = media_at(where, kind, own=own, provider="opencode")
        return replace(found, own=None, provider=None)
    return Media(kind, own=own, provider="opencode")
