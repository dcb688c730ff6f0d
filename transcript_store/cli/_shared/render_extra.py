"""A record's ``extra``, for a person: usage, an answer that was interrupted, a tool result that came before its message.

A chat client writes these members; docs/chat.md describes them. What a session store of the Claude Agent SDK writes around a
message is of use to Claude Code alone. A member in an unknown form is shown as JSON: nothing
that is stored raises an error here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transcript_store.cli._shared.terminal import many
from transcript_store.messages import Part, as_text, parts_of, tokens_in


def parts_of_extra(extra: Mapping[str, Any]) -> Iterator[Part]:
    """The parts of a record's ``extra``, the most important first. Each member of it is in exactly one part."""
    rest = dict(extra)
    incomplete = rest.get("incomplete")
    if isinstance(incomplete, dict) and isinstance(incomplete.get("reason"), str):
        yield Part("besides", f"interrupted: {incomplete['reason']}", as_text(rest.pop("incomplete")))
    refused = rest.get("refused")
    if isinstance(refused, dict) and isinstance(refused.get("reason"), str):
        yield Part("besides", f"refused: {refused['reason']}", as_text(rest.pop("refused")))
    lost = rest.get("interrupted")
    if isinstance(lost, list):
        yield Part("besides", f"interrupted: nobody knows the outcome of {', '.join(map(as_text, lost))}", "")
        del rest["interrupted"]
    result = rest.get("tool_result")
    if isinstance(result, dict) and isinstance(result.get("result"), dict):
        name = as_text(result.get("name"))
        yield Part(
            "besides", f"what {name} gave, before the message with all results", as_text(rest.pop("tool_result"))
        )
        yield from parts_of(result["result"])
    yield from _reply(rest)
    yield from _around(rest)
    if rest:
        yield Part("other", "extra", as_text(rest))


def _reply(rest: dict[str, Any]) -> Iterator[Part]:
    """What the provider said about its reply: tokens, stop reason, model. Removes from ``rest`` what it shows."""
    facts, shown = [], {}
    usage = rest.get("usage")
    if isinstance(usage, dict):
        took = tokens_in(usage)
        if took.input is not None and took.output is not None:
            facts.append(f"{many(took.input, 'token')} in, {took.output:,} out")
            shown["usage"] = rest.pop("usage")
    for name in ("stop_reason", "model"):
        if isinstance(rest.get(name), str):
            facts.append(f"{name.replace('_', ' ')} {rest[name]}")
            shown[name] = rest.pop(name)
    if facts:
        if isinstance(rest.get("response_id"), str):
            shown["response_id"] = rest.pop("response_id")
        yield Part("besides", "; ".join(facts), as_text(shown))


def _around(rest: dict[str, Any]) -> Iterator[Part]:
    """What stood around a message of Claude Code, with null in the message's place. Removes from ``rest`` what it shows."""
    entry = rest.get("entry")
    if isinstance(entry, dict) and "message" in entry and entry["message"] is None:
        shown = {name: rest.pop(name) for name in ("entry", "summary") if name in rest}
        names = ", ".join(name for name in entry if name != "message")
        yield Part("besides", f"around it: {names}", as_text(shown))
