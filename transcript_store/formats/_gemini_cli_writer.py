"""A conversation as a session of Gemini CLI: the log that it resumes, and the file by which it finds the folder of a project.

The project's folder below ``tmp`` is named after the directory, as the program names it. Whose folder it is says ``.project_root``.
A call stands with its result in ``toolCalls``; the program makes the user's turn of it, so none is written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._blocks import objects
from transcript_store.formats._handing_on import handed, id_within, json_line
from transcript_store.formats._members import obj, text
from transcript_store.formats._plan import Loss, Written

_PASSED_OVER = "a message begins with / or ?: it is in the session, but the program does not send it to the model"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class GeminiCliWriter:
    """Writes sessions for Gemini CLI."""

    name = "gemini-cli"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> Written:
        """See :class:`formats.Writer`."""
        found = handed(records, metadata, "gemini", now)
        about: dict[str, Any] = {
            "sessionId": session,
            "projectHash": hashlib.sha256(cwd.encode()).hexdigest(),
            "startTime": now,
            "lastUpdated": now,
            "kind": "main",
        }
        if title := metadata.labels.get("title"):
            about["summary"] = title
        messages = [
            {"id": id_within(session, number), "timestamp": at, **message}
            for number, (message, at) in enumerate(_messages(found.messages))
        ]
        folder = f"tmp/{_NOT_IN_NAMES.sub('-', cwd.rstrip('/').rpartition('/')[2].lower()).strip('-') or 'project'}"
        name = f"session-{now[:16].replace(':', '-')}-{session[:8]}.jsonl"
        files = (
            (f"{folder}/.project_root", cwd.encode()),
            (f"{folder}/chats/{name}", b"".join(map(json_line, (about, *messages)))),
        )
        passed_over = sum(map(_is_passed_over, messages))
        losses = (*found.losses, Loss("commands", passed_over, _PASSED_OVER)) if passed_over else found.losses
        return Written(files, f"gemini --resume {session}", losses)


def _messages(given: tuple[tuple[dict[str, Any], str], ...]) -> Iterator[tuple[dict[str, Any], str]]:
    nobody: tuple[dict[str, Any], str] = ({}, "")
    for (turn, at), (following, _) in pairwise((*given, nobody)):
        parts = objects(turn.get("parts"))
        if turn.get("role") == "model":
            calls = [obj(part.get("functionCall")) for part in parts if "functionCall" in part]
            results = [part for part in objects(following.get("parts")) if "functionResponse" in part]
            made = [_call(call, results[number : number + 1], at) for number, call in enumerate(calls)]
            yield {"type": "gemini", "content": parts, "thoughts": [], **({"toolCalls": made} if made else {})}, at
        elif said := [part for part in parts if "functionResponse" not in part]:
            # What begins like a command is passed over with all that is in its message: so it has one of its own.
            together = not _is_passed_over({"type": "user", "content": said})
            for content in [said] if together else [[part] for part in said]:
                yield {"type": "user", "content": content}, at


def _is_passed_over(message: dict[str, Any]) -> bool:
    """``isIgnoredUserContent`` of 0.61.0: what looks like a command to the program itself."""
    said = "".join(text(part.get("text")) or "" for part in objects(message["content"]))
    return message["type"] == "user" and said.strip().startswith(("/", "?"))


def _call(call: dict[str, Any], result: list[dict[str, Any]], at: str) -> dict[str, Any]:
    name = text(call.get("name")) or "tool"
    failed = any("error" in obj(obj(part.get("functionResponse")).get("response")) for part in result)
    known_as = text(call.get("id")) or hashlib.sha256(f"{at}/{name}".encode()).hexdigest()[:24]
    return {
        "id": known_as,
        "name": name,
        "args": obj(call.get("args")),
        "result": result,
        "status": "error" if failed else "success",
        "timestamp": at,
    }
