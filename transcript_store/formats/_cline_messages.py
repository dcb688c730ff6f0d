"""What Cline and Roo put into their messages: what was typed of them, what a tool answered, what a reply cost."""

from __future__ import annotations

import re
from typing import Any

from transcript_store.formats._document import parse_object
from transcript_store.formats._members import Json, obj, objects, text_member
from transcript_store.formats._messages_api import usage_of
from transcript_store.formats._scaffolding import Scaffolding, marked

_WITHIN = ("user_input", "task", "user_message", "feedback", "answer")
_SCAFFOLDING = Scaffolding(
    frozenset({*_WITHIN, "environment_details", "mode_notice", "explicit_instructions", "system-reminder"}),
    ("[TASK RESUMPTION]", "[ERROR] You did not use a tool", "Context summary:"),
    typed_within=lambda found: "\n\n".join(found[name] for name in _WITHIN if found.get(name)),
)
_ELEMENT = re.compile(rf"<({'|'.join(_WITHIN)})\b[^<>]*>(.*?)</\1>", re.DOTALL)
_ANSWERED = re.compile(r"\[\w+(?: for .*)?\] Result:")
"""The start of a result in the extensions, where calls are elements in the text of a reply."""


def is_message(message: Json) -> bool:
    """True if a model was sent it, or said it: not the program's own words, nor reasoning that only its provider can read."""
    is_sent = obj(message.get("metadata")).get("displayOnly") is not True
    return is_sent and message.get("role") in ("user", "assistant") and isinstance(message.get("content"), (str, list))


def typed_in_cline(texts: list[str]) -> Json:
    """The mark of the text around what the user typed. After a result only elements are the user's."""
    behind = next((number for number, said in enumerate(texts) if _ANSWERED.match(said)), len(texts))
    before = _SCAFFOLDING.typed_of(texts[:behind])
    if behind == len(texts):
        return marked(before)
    said = [one[2].strip() for text in texts[behind:] for one in _ELEMENT.finditer(text)]
    before_them = texts[:behind] if before is None else [before]
    return marked("\n\n".join(filter(None, (*before_them, *said))), is_said=True)


def is_hidden(message: Json) -> bool:
    """True if Roo no longer sends it, because a summary or a cut replaces it."""
    return bool(text_member(message.get("condenseParent")) or text_member(message.get("truncationParent")))


def answered(content: Any) -> tuple[str, bool] | None:
    """A result as text, and True if the call failed, where Cline stores its own objects; None for any other result."""
    given = content
    if isinstance(content, str):
        given = [parse_object(content.encode(errors="replace"))] if content.startswith('{"query"') else None
    answers = objects(given)
    if (
        not answers
        or len(answers) != len(given or ())
        or not all({"query", "success"} <= one.keys() for one in answers)
    ):
        return None
    said = []
    for one in answers:
        result, error = text_member(one.get("result")) or "", text_member(one.get("error"))
        shown = result if error is None or error in result else "\n".join(filter(None, (result, error)))
        said.append(f"{one['query']}:\n{shown}" if len(answers) > 1 else shown)
    return "\n\n".join(said), any(one["success"] is False for one in answers)


def usage_in(metrics: Json) -> Json:
    """The counts of a reply: Cline's, or within ``tokens`` those of its extension."""
    tokens = obj(metrics.get("tokens"))
    if tokens:
        return usage_of((*map(tokens.get, ("prompt", "completion", "cached")), None), metrics)
    names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
    return usage_of(map(metrics.get, names), metrics)
