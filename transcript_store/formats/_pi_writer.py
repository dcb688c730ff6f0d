"""A conversation as a new session of pi, which ``pi --session`` goes on with: the third version of its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._blocks import (
    Block,
    Call,
    Losses,
    Media,
    Other,
    Result,
    Role,
    Text,
    Thinking,
    Turn,
    text_in,
)
from transcript_store.formats._handing_on import Said, json_line, said_in
from transcript_store.formats._plan import Written
from transcript_store.formats._turns import arranged_for, form_family, turns_of
from transcript_store.messages import tokens_in

_APIS = {
    "claude": ("anthropic-messages", "anthropic"),
    "gemini": ("google-generative-ai", "google"),
    "openai": ("openai-completions", "openai"),
    "openai-responses": ("openai-responses", "openai"),
}
_STOPS = ("stop", "length", "toolUse")


class PiForm:
    """What pi's messages have a place for. Whose thinking it is they say themselves, so it is kept whoever thought it."""

    name = "pi"
    alternates = False
    marks_failures = True
    id_length = 64

    def turn_of(self, message: dict[str, Any]) -> Turn:
        raise NotImplementedError("_pi_blocks reads them: they stand in entries")

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Thinking):
            return role == "assistant" and bool(block.text or block.signature)
        if isinstance(block, Media):
            return role == "user" and block.data is not None and block.type.startswith("image/")
        return not isinstance(block, Other)

    def messages_of(self, turn: Turn) -> Sequence[dict[str, Any]]:
        if turn.role == "assistant":
            return [{"role": "assistant", "content": [_block(block) for block in turn.blocks]}]
        results = [block for block in turn.blocks if isinstance(block, Result)]
        rest = [_block(block) for block in turn.blocks if not isinstance(block, Result)]
        messages = [self._result(result) for result in results]
        return [*messages, {"role": "user", "content": rest}] if rest else messages

    def _result(self, result: Result) -> dict[str, Any]:
        content = [_block(part) for part in result.content if self.holds(part, "user")]
        about = {"role": "toolResult", "toolCallId": result.id, "toolName": result.name}
        return {**about, "content": content, "isError": result.failed}


class PiWriter:
    """Writes sessions of pi."""

    name = "pi"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> Written:
        """See :class:`formats.Writer`."""
        losses = Losses()
        said = said_in(records, metadata, losses)
        turns = [
            _user_instead_of_system(turn, losses)
            for turn in turns_of((one.message for one in said), metadata.provider or "")
        ]
        form = PiForm()
        arranged = arranged_for(turns, form, join=False)
        losses.add(arranged.losses)
        lines: list[dict[str, Any]] = []
        at = said[0].at if said else now
        for turn, origins in zip(arranged.turns, arranged.origins, strict=True):
            origin = said[origins[0]] if origins else None
            at = at if origin is None else origin.at
            for message in form.messages_of(turn):
                about = _about_reply(turn, origin, metadata) if turn.role == "assistant" else {}
                moment = {"timestamp": int(datetime.fromisoformat(at).timestamp() * 1000)}
                lines.append({"type": "message", "timestamp": at, "message": {**message, **about, **moment}})
        if not lines:
            raise ValueError("the conversation has no message that could be sent")
        if title := metadata.labels.get("title"):
            lines.append({"type": "session_info", "timestamp": at, "name": title})
        header = {"type": "session", "version": 3, "id": session, "timestamp": now, "cwd": cwd}
        entries = [{**line, **_place(number)} for number, line in enumerate(lines)]
        data = b"".join(map(json_line, (header, *entries)))
        folder = cwd.removeprefix("/").replace("/", "-").replace("\\", "-").replace(":", "-")
        name = f"{now.replace(':', '-').replace('.', '-')}_{session}.jsonl"
        return Written(((f"sessions/--{folder}--/{name}", data),), f"pi --session {session}", losses.found())


def _user_instead_of_system(turn: Turn, losses: Losses) -> Turn:
    if turn.role != "system":
        return turn
    losses.note("system", "a system message in the conversation was handed on as the user's")
    return Turn("user", turn.blocks)


def _place(number: int) -> dict[str, Any]:
    return {"id": f"{number:08x}", "parentId": f"{number - 1:08x}" if number else None}


def _about_reply(turn: Turn, origin: Said | None, metadata: ConversationMetadata) -> dict[str, Any]:
    extra = {} if origin is None else origin.extra
    family = form_family(metadata.provider or "")
    items = any(block.provider == "openai-responses" for block in turn.blocks)
    api, provider = _APIS["openai-responses" if items else family] if family in _APIS else _APIS["openai"]
    usage = extra.get("usage")
    tokens = tokens_in(usage if isinstance(usage, dict) else {})
    counts = {"input": tokens.input or 0, "output": tokens.output or 0, "cacheRead": 0, "cacheWrite": 0}
    stop = text_in(extra, "stop_reason")
    calls = any(isinstance(block, Call) for block in turn.blocks)
    return {
        "api": api,
        "provider": metadata.provider if metadata.provider == "openai-compatible" else provider,
        "model": text_in(extra, "model") or metadata.model or "unknown",
        "usage": {**counts, "totalTokens": tokens.total or 0, "cost": dict.fromkeys((*counts, "total"), 0)},
        "stopReason": stop if stop in _STOPS else "toolUse" if calls else "stop",
    }


def _block(block: Block) -> dict[str, Any]:
    own = block.own if block.provider == "gemini" and block.own is not None else {}
    signature = text_in(own, "thoughtSignature", "thought_signature")
    match block:
        case Text(text=text):
            return {"type": "text", "text": text, **({"textSignature": signature} if signature else {})}
        case Thinking(text=text):
            return {"type": "thinking", "thinking": text, **_signed(block)}
        case Call():
            call = {"type": "toolCall", "id": block.id, "name": block.name, "arguments": block.arguments}
            return {**call, "thoughtSignature": signature} if signature else call
        case Media(type=kind, data=data):
            return {"type": "image", "data": data, "mimeType": kind}
    raise TypeError(f"pi has no place for {type(block).__name__}")  # holds() was not asked


def _signed(thinking: Thinking) -> dict[str, Any]:
    if thinking.provider == "openai-responses" and thinking.own is not None:
        return {"thinkingSignature": json.dumps(thinking.own, ensure_ascii=False, separators=(",", ":"))}
    signed: dict[str, Any] = {"thinkingSignature": thinking.signature} if thinking.signature else {}
    return {**signed, "redacted": True} if thinking.redacted else signed
