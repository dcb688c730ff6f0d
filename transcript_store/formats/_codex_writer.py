"""A conversation as a rollout of Codex: the session, its items, and what the terminal shows of them.

Codex sends the items. It shows, and lists, what ``event_msg`` says again. With ``session_meta`` it wants ``id``, ``timestamp``, ``cwd``,
``originator``, ``cli_version`` and ``source``. Which model of which provider is called it takes from the user's settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._blocks import objects
from transcript_store.formats._handing_on import handed, json_line
from transcript_store.formats._members import text
from transcript_store.formats._plan import Written

_ORIGINATOR = "transcript_store"
_OWN = "codex"


class CodexWriter:
    """Writes sessions for Codex."""

    name = "codex"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> Written:
        """See :class:`formats.Writer`."""
        was_codex = metadata.labels.get("source") == _OWN
        found = handed(records, metadata, "openai-responses", now, keeps_prompt=was_codex)
        meta: dict[str, Any] = {
            "id": session,
            "timestamp": _milliseconds(now),
            "cwd": cwd,
            "originator": _ORIGINATOR,
            "cli_version": "0.0.0",
            "source": "cli",  # and no model_provider: Codex resumes with no other than the one that is recorded
        }
        if was_codex and metadata.system_prompt:
            meta["base_instructions"] = {"text": metadata.system_prompt}
        lines = [_line(now, "session_meta", meta)]
        if title := metadata.labels.get("title"):
            named = {"type": "thread_name_updated", "thread_id": session, "thread_name": title}
            lines.append(_line(now, "event_msg", named))
        for message, at in found.messages:
            item = _item(message)
            lines.append(_line(at, "response_item", item))
            lines += [_line(at, "event_msg", event) for event in _shown(item)]
        day, _, second = now.partition("T")
        name = f"rollout-{day}T{second[:8].replace(':', '-')}-{session}.jsonl"
        path = f"sessions/{day.replace('-', '/')}/{name}"
        return Written(((path, b"".join(lines)),), f"codex resume {session}", found.losses)


def _line(at: str, kind: str, payload: dict[str, Any]) -> bytes:
    return json_line({"timestamp": _milliseconds(at), "type": kind, "payload": payload})


def _item(message: dict[str, Any]) -> dict[str, Any]:
    """A message always says that it is one; what we know as a system message is the developer's."""
    if "role" not in message:
        return message
    role = "developer" if message["role"] == "system" else message["role"]
    content = message.get("content")
    kind = "output_text" if role == "assistant" else "input_text"
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return {"type": "message", **message, "role": role, "content": parts}


def _shown(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    said = "\n".join(part["text"] for part in objects(item.get("content")) if text(part.get("text")))
    if said and item.get("role") == "user":
        yield {"type": "user_message", "message": said, "images": []}
    elif said and item.get("role") == "assistant":
        yield {"type": "agent_message", "message": said}


def _milliseconds(at: str) -> str:
    """Ours has six digits, JavaScript's and Codex's times have three."""
    head, dot, fraction = at.rstrip("Z").partition(".")
    return f"{head}{dot}{fraction[:3]}Z"
