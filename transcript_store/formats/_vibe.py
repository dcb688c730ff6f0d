"""Mistral Vibe: ``messages.jsonl`` of version 2, a message of chat completions per line; and the folder of version 3
(``_vibe_unified``).

A line of version 2 has ``injected`` (True if the program wrote it), and all but results have a ``message_id``. Resuming copies a
session, with its message ids, into a folder with another id. So the id of the first message identifies it: the copy is the same
session, which grew. Times, model, title and folder are in ``meta.json`` beside it.

Source: files of 2.11.1 and 3.0.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from transcript_store.formats._dialogue import PROVIDER
from transcript_store.formats._facts import facts_of
from transcript_store.formats._lines import SourceLines
from transcript_store.formats._members import Json, first_text, obj, text_member
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, replayed
from transcript_store.formats._rows import lines_beside, object_beside
from transcript_store.formats._scaffolding import marked
from transcript_store.formats._vibe_unified import UnifiedSession, is_unified

_MEMBERS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
_ROLES = ("user", "assistant", "system", "tool")
_FAILED = "<tool_error>"


class MistralVibe:
    """Reads the sessions of Mistral Vibe."""

    name = "mistral-vibe"

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(is_of_vibe, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines = SourceLines(source)
        first, last, speaks, is_new = "", 0, False, False
        for line in lines:
            value = line.value or {}
            first = first or text_member(value.get("message_id")) or hashlib.sha256(line.raw).hexdigest()
            is_new = is_new or is_unified(value)
            if _is_second(value):
                speaks, last = True, line.number
        if not lines.count:
            return
        about = object_beside(source, "meta.json")
        parent = object_beside(source, "../.session-index.json") if is_new else {}
        config, environment = obj(about.get("config")), obj(about.get("environment"))
        facts = facts_of(
            model=first_text(config.get("model_name"), config.get("active_model")),
            title=about.get("title"),
            cwd=first_text(environment.get("working_directory"), about.get("origin_directory")),
            git_branch=about.get("git_branch"),
            part_of=_parent(source),
            archived=about.get("archived_at"),
        )
        if is_new:
            session = UnifiedSession(lambda: SourceLines(source))
            said = replayed(source, session.walk(), session.walk)
            facts.last(session=session.id or first, **session.relation(about, parent))
            dialogue = session.dialogue
            yield facts.plan(self.name, lines, said, dialogue.provider, dialogue.losses, edition=("", ""))
            return
        times = text_member(about.get("start_time")), text_member(about.get("end_time"))
        facts.session = first
        records = partial(_records, source, times, last)
        yield facts.plan(self.name, lines, records, PROVIDER if speaks else None)


def is_of_vibe(value: Json) -> bool:
    """True if it is a line of one of the versions."""
    return _is_second(value) or is_unified(value)


def _is_second(value: Json) -> bool:
    has_id = isinstance(value.get("message_id"), str) or isinstance(value.get("tool_call_id"), str)
    return value.get("role") in _ROLES and isinstance(value.get("injected"), bool) and has_id


def _records(source: Source, times: tuple[str | None, str | None], last: int) -> Iterator[PlannedRecord]:
    begins, ends = times
    for line in SourceLines(source):
        value = line.value or {}
        if not line.raw:
            continue
        if not _is_second(value):
            yield Draft(lines=[line]).entry()
            continue
        at, begins = begins, None
        message = {name: value[name] for name in _MEMBERS if name in value}
        yield Draft(message, _beside(value), at or (ends if line.number == last else None), [line]).entry()


def _beside(value: Json) -> Json:
    if value["injected"] and value["role"] == "user":
        return marked("", is_said=True)
    failed = value["role"] == "tool" and str(value.get("content")).startswith(_FAILED)
    return {"failed": True} if failed else {}


def _parent(source: Any) -> str | None:
    """Of a sub-agent's folder, which lies in ``agents`` of the session's: the session's id."""
    above = str(source.name).replace("\\", "/").split("/")[-3:-2]
    first = lines_beside(source, "../../messages.jsonl")[:1] if above == ["agents"] else []
    return text_member(first[0].get("message_id")) if first else None
