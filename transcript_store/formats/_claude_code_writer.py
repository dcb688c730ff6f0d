"""A conversation as a new session of Claude Code: a file in the project's folder, which ``claude --resume`` goes on with.

A session was taken up by the real program (2.1.330) only with the whole envelope, a chain of parents from a first line that is a
message, and in the folder whose name it makes of the directory. The last line ends in a line end: the next one is appended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._blocks import Losses, text_in
from transcript_store.formats._handing_on import id_within, json_line, said_in
from transcript_store.formats._plan import Written
from transcript_store.formats._turns import form_family, messages_of, turns_of

_VERSION = "2.1.112"
"""Of the program whose form this is."""
_LONGEST_NAME = 200


class ClaudeCodeWriter:
    """Writes sessions of Claude Code."""

    name = "claude-code"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> Written:
        """See :class:`formats.Writer`."""
        losses = Losses()
        said = said_in(records, metadata, losses)
        provider = metadata.provider or "openai"
        turns = turns_of((one.message for one in said), provider)
        handed = messages_of(turns, "claude", join=form_family(provider) != "claude")
        losses.add(handed.losses)
        if not handed.messages:
            raise ValueError("the conversation has no message that could be sent")
        envelope = {
            "isSidechain": False,
            "userType": "external",
            "cwd": cwd,
            "sessionId": session,
            "version": _VERSION,
            "gitBranch": metadata.labels.get("git_branch", ""),
        }
        lines: list[dict[str, Any]] = []
        parent = None
        replies: set[str] = set()
        at = said[0].at if said else now
        for number, (message, origins) in enumerate(zip(handed.messages, handed.origins, strict=True)):
            origin = said[origins[0]] if origins else None
            at = at if origin is None else origin.at
            own = id_within(session, number)
            line = {
                "parentUuid": parent,
                **envelope,
                "type": message["role"],
                "message": message,
                "uuid": own,
                "timestamp": at,
            }
            if message["role"] == "assistant":
                extra = {} if origin is None else origin.extra
                line["message"] = _reply(message, extra, metadata, own, replies)
                line["requestId"] = f"req_{own.replace('-', '')}"
            lines.append(line)
            parent = own
        if title := metadata.labels.get("title"):
            lines.append({"type": "custom-title", "customTitle": title, "sessionId": session})
        path = f"projects/{_folder(cwd)}/{session}.jsonl"
        data = b"".join(map(json_line, lines))
        return Written(((path, data),), f"claude --resume {session}", losses.found())


def _reply(
    message: dict[str, Any], extra: dict[str, Any], metadata: ConversationMetadata, own: str, replies: set[str]
) -> dict[str, Any]:
    """A reply as the API gave it. Two of them never have one id: the program would join them."""
    number = text_in(extra, "response_id") or text_in(message, "id")
    if not number or number in replies:
        number = f"msg_{own.replace('-', '')}"
    replies.add(number)
    usage = extra.get("usage")
    counted = (
        isinstance(usage, dict) and type(usage.get("input_tokens")) is int and type(usage.get("output_tokens")) is int
    )
    content = message["content"]
    calls = isinstance(content, list) and any(block.get("type") == "tool_use" for block in content)
    return {
        "id": number,
        "type": "message",
        "role": "assistant",
        "model": text_in(extra, "model") or metadata.model or "unknown",
        "content": content if isinstance(content, list) else [{"type": "text", "text": content}],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": usage if counted else {"input_tokens": 0, "output_tokens": 0},
    }


def _folder(cwd: str) -> str:
    """The name of a project's folder, as the program makes it of a directory (2.1)."""
    name = re.sub(r"[^a-zA-Z0-9]", lambda found: "-" * (1 + (found[0] > "\uffff")), cwd)  # JavaScript counts halves
    if len(name) <= _LONGEST_NAME:
        return name
    number = 0
    units = cwd.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):  # Java's hash of a text: 31 times the sum so far, in 32 bits with a sign
        number = (number * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    return f"{name[:_LONGEST_NAME]}-{_in_base_36(number)}"


def _in_base_36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not number:
            return digits
