"""gptme: ``logs/<date>-<name>/conversation.jsonl``, one message per line.

A line is ``{"role", "content", "timestamp", "pinned", "hide", "files", "metadata"}``. Calls are code blocks in the model's text. A
result is a message of ``system``, or of ``tool`` without the id of a call: here it is the program's, in the user's name. The
folder's name is the title. Only the paths of files are known.

Source: ``logmanager.py`` and ``message.py`` of gptme/gptme, and a file in the tests of kenn-io/agentsview. It was not run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial

from transcript_store.formats._blocks import Text
from transcript_store.formats._dialogue import Dialogue
from transcript_store.formats._lines import SourceLines
from transcript_store.formats._members import Json, counts_of, first_text, obj, text_in
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import facts_of
from transcript_store.formats._scaffolding import marked

_FILE = "conversation.jsonl"
_USAGE = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
_USAGE |= {"cache_read_tokens": "cache_read_input_tokens", "cache_creation_tokens": "cache_creation_input_tokens"}
_DATE = "0000-00-00-"


class Gptme:
    """Reads the conversations of gptme."""

    name = "gptme"

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(is_gptme, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines, beginning, is_begun = SourceLines(source), hashlib.sha256(), False
        facts = facts_of(title=_title(str(source.name)))
        for line in lines:
            value = line.value or {}
            if not is_begun:  # many conversations share the prompt of the system
                beginning.update(line.raw.strip())
                is_begun = value.get("role") in ("user", "assistant")
                facts.first(system_prompt=value.get("content") if value.get("role") == "system" else None)
            facts.last(model=obj(value.get("metadata")).get("model"))
        if not lines.count:
            return
        dialogue = Dialogue()
        for _ in _entries(source, dialogue):
            pass
        facts.first(session=beginning.hexdigest())
        yield facts.plan(self.name, lines, partial(_entries, source), dialogue.provider, dialogue.losses)


def is_gptme(value: Json) -> bool:
    """True for a message that is pinned or hidden or has files: only gptme writes these members."""
    own = not value.keys().isdisjoint(("pinned", "hide", "files", "file_hashes", "call_id"))
    return own and isinstance(value.get("timestamp"), str) and isinstance(value.get("content"), str) and "role" in value


def _title(name: str) -> str | None:
    """The name of the folder, without its date: ``2026-06-13-write-hello-world``."""
    *_, folder, file = ("", "", *name.replace("\\", "/").split("/"))
    dated = "".join("0" if one.isdecimal() else one for one in folder[: len(_DATE)]) == _DATE
    return (folder[len(_DATE) :] if dated else folder) if file == _FILE else None


def _entries(source: Source, dialogue: Dialogue | None = None) -> Iterator[PlannedRecord]:
    dialogue = dialogue or Dialogue()
    speaks = False
    for line in SourceLines(source):
        value = line.value or {}
        role, said, at = value.get("role"), text_in(value, "content"), first_text(value.get("timestamp"))
        if not line.raw:
            continue
        if role == "user":
            dialogue.user([Text(said)], line, at)
        elif role == "assistant":
            dialogue.reply([Text(said)], line, at, _about(obj(value.get("metadata"))), key=f"{line.number} {line.part}")
        elif role in ("system", "tool") and speaks and value.get("hide") is not True:
            dialogue.user([Text(said)], line, at, marked("", is_said=True))
        else:
            dialogue.event(line, at=at)
        speaks = speaks or role in ("user", "assistant")
        yield from (draft.entry() for draft in dialogue.take())


def _about(metadata: Json) -> Json:
    cost = metadata.get("cost")
    usage = counts_of(obj(metadata.get("usage")), _USAGE) | ({"cost": cost} if isinstance(cost, float) else {})
    return {"model": first_text(metadata.get("model")), "usage": usage}
