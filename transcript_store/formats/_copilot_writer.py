"""A conversation as the JSON lines of ``copilot sessions import``, which are not those that Copilot CLI keeps.

A header, then messages of the user and the assistant; the calls of a reply follow it, and their results precede the next message.
It refuses thinking, an empty message, and a file of more than 10 MB. A picture is a file beside the lines.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._members import Json, present, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, Role
from transcript_store.formats._outgoing import ProgramForm, arranged_records, json_line
from transcript_store.formats._plan import WrittenSession

_LONGEST_FILE_BYTES, _LONGEST_FILES_BYTES, _MOST_FILES = 10_000_000, 24_000_000, 100
_CALLS = "(calls a tool)"
_NOTHING = "(nothing)"


class InterchangeForm(ProgramForm):
    """The form of the lines."""

    name = "copilot"

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Media):
            return role == "user" and block.data is not None
        return not isinstance(block, (Other, Thinking))


class CopilotWriter:
    """Writes sessions for GitHub Copilot CLI."""

    name = "copilot"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.Writer`."""
        losses = Losses()
        lines, at = _InterchangeLines(session, losses), now
        for turn, extra, at in arranged_records(records, metadata, InterchangeForm(), losses, now):
            lines.add(turn, at, text_in(extra, "model") or metadata.model)
        header: Json = {"type": "session", "version": 1, "externalId": session, "createdAt": now}
        header |= present(title=metadata.labels.get("title"))
        header |= {"updatedAt": max(now, at), "workspace": {"workingDirectory": cwd}}
        header["source"] = {"application": "transcript-store", "version": "1"}
        data = b"".join(map(json_line, (header, *lines.lines)))
        files = (*lines.files, (f"transcript-store/{session}.jsonl", data))
        return WrittenSession(files, "copilot sessions import {file} && copilot --continue", losses.found())


class _InterchangeLines:
    def __init__(self, session: str, losses: Losses) -> None:
        self._session, self._losses = session, losses
        self.lines: list[Json] = []
        self.files: list[tuple[str, bytes]] = []
        self._turn = 0

    def add(self, turn: NeutralMessage, at: str, model: str | None) -> None:
        for block in turn.blocks:
            if isinstance(block, Result):
                self._result(block, at)
        content = [part for block in turn.blocks if (part := self._content(block)) is not None]
        calls = [block for block in turn.blocks if isinstance(block, Call)]
        if turn.role == "user" and content:
            self._turn += 1
        if calls and not content:
            self._losses.note("empty", "a reply that only calls a tool got a text, for Copilot refuses an empty one")
            content = [{"type": "text", "text": _CALLS}]
        if content:
            about = {"model": model} if turn.role == "assistant" and model else {}
            self._line("message", at, {"role": turn.role, **about, "content": content})
        for call in calls:
            self._line("tool-call", at, {"name": call.name, "arguments": call.arguments}, call.id)

    def _line(self, kind: str, at: str, members: Json, number: str | None = None) -> None:
        its_id = number or f"{kind}-{len(self.lines) + 1}"
        self.lines.append({"type": kind, "id": its_id, "timestamp": at, **members, "turnId": f"turn-{self._turn}"})

    def _result(self, result: Result, at: str) -> None:
        if shown := len(result.media):
            self._losses.note("media", "a picture in a result was left out: Copilot's results hold text", shown)
        said = result.text or _NOTHING
        if not result.text:
            self._losses.note("empty", "a result without a text got one, for Copilot refuses an empty one")
        outcome: Json = {"success": True, "content": said}
        if result.failed:
            outcome = {"success": False, "error": {"message": said, "code": "failure"}}
        self._line("tool-result", at, {"toolCallId": result.id, **outcome})

    def _content(self, block: Block) -> Json | None:
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        if not isinstance(block, Media):
            return None
        try:
            data = base64.b64decode(block.data or "", validate=True)
        except binascii.Error:
            data = b""
        in_all = sum(len(file) for _, file in self.files) + len(data)
        fits = len(data) <= _LONGEST_FILE_BYTES and in_all <= _LONGEST_FILES_BYTES and len(self.files) < _MOST_FILES
        if not data or not fits:
            why = "a picture was left out: Copilot takes 100 files of 10 MB each, and 24 MB in all"
            self._losses.note("media", why)
            return None
        name = f"{self._session}-{len(self.files) + 1}.{block.type.rpartition('/')[2].strip('*') or 'bin'}"
        self.files.append((f"transcript-store/{name}", data))
        return {"type": "attachment", "path": name, "mediaType": block.type, "name": name}
