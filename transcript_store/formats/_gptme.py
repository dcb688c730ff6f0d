"""gptme: ``logs/<date>-<name>/conversation.jsonl``, one message per line.

A line is ``{"role", "content", "timestamp", "pinned", "hide", "files", "metadata"}``. Calls are code blocks in the model's text. A
result is a message of ``system``, or of ``tool`` without the id of a call: here it is the program's, in the user's name. The
folder's name is part of the id: a fork begins with the same lines. It is the title too, unless the ``config.toml`` beside it has a
name. Only the paths of files are known.

Source: ``logmanager.py`` and ``message.py`` of gptme/gptme, run as version 0.35.1; a file in the tests of kenn-io/agentsview.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator
from functools import partial

from transcript_store.formats._blocks import Text
from transcript_store.formats._dialogue import Dialogue
from transcript_store.formats._lines import SourceLines
from transcript_store.formats._members import Json, counts_of, first_text, obj, text_in
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import facts_of
from transcript_store.formats._rows import text_beside
from transcript_store.formats._scaffolding import marked

_FILE = "conversation.jsonl"
_USAGE = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
_USAGE |= {"cache_read_tokens": "cache_read_input_tokens", "cache_creation_tokens": "cache_creation_input_tokens"}
_DATE = "0000-00-00-"


class Gptme:
    """Reads the conversations of gptme."""

    name = "gptme"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(is_gptme, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines, beginning, is_begun = SourceLines(source), hashlib.sha256(), False
        name = str(source.name)
        facts = facts_of(title=(_named(source) if _folder(name) else None) or _title(name))
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
        former = beginning.hexdigest()
        beginning.update((_folder(str(source.name)) or "").encode(errors="surrogatepass"))
        facts.first(session=beginning.hexdigest())
        said = partial(_entries, source)
        yield facts.plan(self.name, lines, said, dialogue.provider, dialogue.losses, former_session=former)


def is_gptme(value: Json) -> bool:
    """True for a message that is pinned or hidden or has files: only gptme writes these members."""
    own = not value.keys().isdisjoint(("pinned", "hide", "files", "file_hashes", "call_id"))
    return own and isinstance(value.get("timestamp"), str) and isinstance(value.get("content"), str) and "role" in value


def _folder(name: str) -> str | None:
    """The folder of a conversation. gptme resumes it by this name; a copy of its file elsewhere has none."""
    *_, folder, file = ("", "", *name.replace("\\", "/").split("/"))
    return folder if file == _FILE else None


def _named(source: Source) -> str | None:
    """The name of a conversation in the ``config.toml`` beside it, which the model or ``/rename`` gave it."""
    try:
        found = tomllib.loads(text_beside(source, "config.toml").decode(errors="replace"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return first_text(obj(found.get("chat")).get("name"), found.get("name"))


def _title(name: str) -> str | None:
    """The name of the folder, without its date: ``2026-06-13-write-hello-world``."""
    folder = _folder(name) or ""
    dated = "".join("0" if one.isdecimal() else one for one in folder[: len(_DATE)]) == _DATE
    return (folder[len(_DATE) :] if dated else folder) or None


def _entries(source: Source, dialogue: Dialogue | None = None) -> Iterator[PlannedRecord]:
    dialogue = dialogue or Dialogue()
    speaks = False
    for line in SourceLines(source):
        value = line.value or {}
        role, said, at = value.get("role"), text_in(value, "content"), first_text(value.get("timestamp"))
        if not line.raw:
            continue
        if role == "user":
            # The program itself asks whether the model has finished.
            is_own = said.startswith("<system>") and said.rstrip().endswith("</system>")
            dialogue.user([Text(said)], line, at, marked("", is_said=True) if is_own else {})
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
