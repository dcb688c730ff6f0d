"""Cursor's messages as blocks of Claude's API: its transcripts have nearly these, its databases those of Vercel's AI SDK."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from transcript_store.formats._members import Json, first_text, objects, present, text_in, text_member
from transcript_store.formats._plan import ImportFinding
from transcript_store.formats._scaffolding import Scaffolding

_QUERY = "user_query"
_AROUND = """user_info timestamp system_reminder system-reminder system_notification agent_notification rules user_rules context
always_applied_workspace_rules agent_skills available_skills manually_attached_skills cursor_commands attached_files current_file
open_and_recently_viewed_files image_files external_links linter_errors project_layout git_status additional_data mcp_instructions
mcp_file_system agent_transcripts"""
CURSOR = Scaffolding(frozenset({_QUERY, *_AROUND.split()}), typed_within=lambda found: found.get(_QUERY, ""))
_CALLS = ("tool_use", "tool_call", "tool-call")
_RESULTS = ("tool_result", "tool-result")


_REDACTED = "[REDACTED]"
"""Cursor's replacement for thinking that it does not store."""


def claude_blocks(content: object) -> list[Json] | None:
    """A content as blocks; None if it is none. The very objects where they are blocks of the API."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(part) for part in objects(content)] if isinstance(content, list) else None


def without_redacted(blocks: list[Json]) -> list[Json]:
    """The blocks of a reply without the marks of its thinking."""
    kept = []
    for block in blocks:
        said = block.get("text")
        if isinstance(said, str) and said.rstrip().endswith(_REDACTED):
            block = {**block, "text": said.rstrip().removesuffix(_REDACTED).rstrip()}  # noqa: PLW2901
        kept.append(block)
    return kept


def _block(part: Json) -> Json:
    kind = part.get("type")
    if kind in _CALLS:
        arguments: Any = next((part[name] for name in ("input", "args") if name in part), {})
        number, name = text_in(part, "id", "toolCallId"), text_in(part, "name", "toolName")
        return {"type": "tool_use", "id": number, "name": name, "input": arguments}
    if kind in _RESULTS:
        said = next((part[name] for name in ("content", "result", "output") if part.get(name) is not None), None)
        number = first_text(part.get("tool_use_id"), part.get("toolCallId")) or ""
        result = {"type": "tool_result", "tool_use_id": number, "content": said}
        return {**result, "is_error": True} if True in (part.get("is_error"), part.get("isError")) else result
    if kind in ("thinking", "reasoning"):
        said = first_text(part.get("thinking"), part.get("text")) or ""
        return {"type": "thinking", "thinking": said, **present(signature=text_member(part.get("signature")))}
    if kind == "redacted-reasoning":
        return {"type": "redacted_thinking", "data": text_member(part.get("data")) or ""}
    if kind == "image" and isinstance(part.get("image"), str):
        head, comma, data = part["image"].partition(";base64,")
        named = first_text(part.get("mimeType"), part.get("mediaType"), "image/png")
        kind = head.removeprefix("data:") if comma else named
        source = {"media_type": kind, "data": data if comma else part["image"]}
        return {"type": "image", "source": {"type": "base64", **source}}
    if isinstance(part.get("text"), str) and kind != "text":
        return {"type": "text", "text": part["text"]}
    return part


def missing_messages(count: int, where: str) -> ImportFinding:
    """The finding about messages that a session names and its database lacks."""
    return ImportFinding("missing-message", f"{count:,} messages that the {where} names are not in the database")


def merged(there: Sequence[str], left: Iterable[str], times: Mapping[str, str]) -> list[str]:
    """The ids in order, with the left ones inserted by their times, so that none moves when more follow."""
    beside = sorted(left, key=lambda one: (times.get(one, ""), one))
    found: list[str] = []
    for one in there:
        while beside and times.get(one, "") > times.get(beside[0], "") > "":
            found.append(beside.pop(0))
        found.append(one)
    return [*found, *beside]


def tied(contents: Sequence[list[Json] | None]) -> list[list[Json] | None]:
    """The contents, with an id for each call that has none: the id of the next result without a call, else a made one."""
    known = {block["id"] for block in _of(contents, "tool_use") if block["id"]}
    open_calls: list[tuple[int, Json]] = []
    made = 0
    for content in contents:
        for block in content or ():
            if block.get("type") == "tool_use" and not block.get("id"):
                open_calls.append((made, block))
                made += 1
            elif block.get("type") == "tool_result" and open_calls and block["tool_use_id"] not in known:
                number, call = open_calls.pop(0)
                call["id"] = block["tool_use_id"] = block["tool_use_id"] or _made_id(number, call)
                known.add(call["id"])
    for number, call in open_calls:
        call["id"] = _made_id(number, call)
    return list(contents)


def _of(contents: Sequence[list[Json] | None], kind: str) -> Iterator[Json]:
    return (block for content in contents for block in content or () if block.get("type") == kind)


def _made_id(number: int, call: Json) -> str:
    said: Any = (number, call.get("name"))
    return f"call_{hashlib.sha256(repr(said).encode(errors='replace')).hexdigest()[:24]}"
