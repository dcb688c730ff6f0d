"""A conversation as the document that ``opencode import`` and ``kilo import`` take: each call and its result are one part.

What a part needs was tried key by key (OpenCode 1.18.33). Ids are made of the times, as the program's own are: it sorts by them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._arranging import form_family
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._members import Json, obj, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, Role
from transcript_store.formats._opencode import exported_slug
from transcript_store.formats._outgoing import ProgramForm, arranged_records
from transcript_store.formats._plan import WrittenSession
from transcript_store.messages import tokens_in

_PROVIDERS = {"claude": "anthropic", "gemini": "google", "openai": "openai", "openai-responses": "openai"}
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LONGEST_TITLE = 200


class PartsForm(ProgramForm):
    """The form of OpenCode's parts. Their metadata names the provider of thinking, so all thinking is kept."""

    name = "opencode"

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Thinking):
            return role == "assistant" and bool(block.text)
        if isinstance(block, Media):
            return role == "user" and block.data_url is not None and block.data is not None
        return not isinstance(block, Other)


class OpenCodeWriter:
    """Writes sessions for OpenCode."""

    name = "opencode"
    agent = "build"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.Writer`."""
        losses = Losses()
        turns = arranged_records(records, metadata, PartsForm(), losses, now)
        document = _Document(session, self.agent, cwd, metadata, turns[0][2])
        for turn in turns:
            document.add(*turn)
        title = metadata.labels.get("title") or " ".join(document.prompt.split())[:_LONGEST_TITLE] or "Imported"
        times = {"created": document.began, "updated": document.at}
        info = {"id": document.id, "slug": document.slug, "projectID": "global", "directory": cwd, "title": title}
        whole = {"info": {**info, "version": "1.18.33", "time": times}, "messages": document.messages}
        data = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        command = f"{self.name} import {{file}} && {self.name} --session {document.id}"
        return WrittenSession(((f"transcript-store/{document.id}.json", data),), command, losses.found(), document.id)


class KiloWriter(OpenCodeWriter):
    """Writes sessions for Kilo."""

    name = "kilo"
    agent = "code"


class _Document:
    """The messages, as they are added. A user's turn of results alone ends the calls of the reply before it."""

    def __init__(self, session: str, agent: str, cwd: str, metadata: ConversationMetadata, began: str) -> None:
        self._session, self._agent, self._cwd, self._metadata = session, agent, cwd, metadata
        self.began = self.at = _milliseconds(began)
        self._stamp = 0
        self.id = self._id("ses")
        self.messages: list[Json] = []
        self.prompt = ""
        self._asked = ""
        self._calls: dict[str, Json] = {}

    @property
    def slug(self) -> str:
        """By which an import knows the session again, and leaves it alone as long as nothing is added to it."""
        return exported_slug([message["info"]["id"] for message in self.messages])

    def add(self, turn: NeutralMessage, extra: Json, at: str) -> None:
        self.at = max(self.at, _milliseconds(at))
        for block in turn.blocks:
            if isinstance(block, Result) and (part := self._calls.pop(block.id, None)) is not None:
                part["state"] = self._state(part, block)
        blocks = [block for block in turn.blocks if not isinstance(block, Result)]
        if blocks and turn.role == "assistant":
            self._reply(blocks, extra)
        elif blocks:
            self._prompt(blocks)

    def _prompt(self, blocks: Sequence[Block]) -> None:
        self._asked = number = self._id("msg")
        self.prompt = self.prompt or next((block.text for block in blocks if isinstance(block, Text)), "")
        model = {"providerID": self._provider(), "modelID": self._metadata.model or "unknown"}
        info = {"id": number, "sessionID": self.id, "role": "user", "time": {"created": self.at}}
        info |= {"agent": self._agent, "model": model}
        self.messages.append({"info": info, "parts": [self._part(number, block) for block in blocks]})

    def _reply(self, blocks: Sequence[Block], extra: Json) -> None:
        number, tokens = self._id("msg"), tokens_in(obj(extra.get("usage")))
        calls = any(isinstance(block, Call) for block in blocks)
        counts = {"input": tokens.input or 0, "output": tokens.output or 0, "reasoning": 0}
        info = {
            "id": number,
            "sessionID": self.id,
            "role": "assistant",
            "parentID": self._asked or self._id("msg"),
            "mode": self._agent,
            "agent": self._agent,
            "path": {"cwd": self._cwd, "root": self._cwd},
            "cost": 0,
            "tokens": {**counts, "cache": {"read": 0, "write": 0}},
            "modelID": text_in(extra, "model") or self._metadata.model or "unknown",
            "providerID": self._provider(),
            "time": {"created": self.at, "completed": self.at},
            "finish": "tool-calls" if calls else "stop",
        }
        self.messages.append({"info": info, "parts": [self._part(number, block) for block in blocks]})

    def _part(self, message: str, block: Block) -> Json:
        part: Json = {"id": self._id("prt"), "sessionID": self.id, "messageID": message}
        match block:
            case Text(text=text):
                return {**part, "type": "text", "text": text}
            case Thinking(text=text):
                signed = (
                    {"metadata": {"anthropic": {"signature": block.signature}}} if block.provider == "claude" else {}
                )
                return {**part, "type": "reasoning", "text": text, **signed, "time": {"start": self.at, "end": self.at}}
            case Media(type=kind):
                return {**part, "type": "file", "mime": kind, "url": block.data_url, "filename": kind.replace("/", ".")}
            case Call():
                state = {"status": "running", "input": block.arguments, "time": {"start": self.at}}
                part |= {"type": "tool", "callID": block.id, "tool": block.name, "state": state}
                self._calls[block.id] = part
                return part
        raise TypeError(f"OpenCode has no place for {type(block).__name__}")  # holds() was not asked

    def _state(self, part: Json, result: Result) -> Json:
        state = {"input": part["state"]["input"], "time": {**part["state"]["time"], "end": self.at}}
        if result.failed:
            return {"status": "error", **state, "error": result.text or "failed"}
        shown = [self._part(part["messageID"], media) for media in result.media if media.data is not None]
        attached = {"attachments": shown} if shown else {}
        return {"status": "completed", **state, "output": result.text, "title": "", "metadata": {}, **attached}

    def _provider(self) -> str:
        return _PROVIDERS.get(form_family(self._metadata.provider or ""), "openai-compatible")

    def _id(self, kind: str) -> str:
        """48 bits of the time in ms, times 4096, and a counter; of a session their complement. Then 14 letters."""
        self._stamp = max(self._stamp + 1, self.at * 4096 + 1)
        number = int.from_bytes(hashlib.sha256(f"{self._session}/{self._stamp}".encode()).digest()[:16])
        letters = "".join(_LETTERS[number // 62**place % 62] for place in range(14))
        stamp = ~self._stamp if kind == "ses" else self._stamp
        return f"{kind}_{stamp & 0xFFFFFFFFFFFF:012x}{letters}"


def _milliseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)
