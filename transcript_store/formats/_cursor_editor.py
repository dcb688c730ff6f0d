"""The ``state.vscdb`` of Cursor's editor: only rows of conversations in ``cursorDiskKV`` are read. Others hold secrets.

* ``composerData:ID`` {name, createdAt, fullConversationHeadersOnly [{bubbleId}], subComposerIds}; formerly with the bubbles in it
  (``conversation``). It changes with each turn, so it is not a line: its name and its order count.
* ``bubbleId:ID:BUBBLE`` {type 1 of the user, 2 of the assistant, text, thinking, toolFormerData {toolCallId, name, status, rawArgs,
  result}, createdAt, modelInfo, tokenCount}: a line. A bubble that its conversation no longer names is kept as a branch that was
  left. Those of a deleted conversation are in the order of their times.

A conversation does not name its folder; a bubble may (``workspaceUris``).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import unquote

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._cursor_blocks import merged, missing_messages
from transcript_store.formats._document import parse_object
from transcript_store.formats._facts import facts_of
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, counts_of, first_text, obj, objects, text_in, text_member
from transcript_store.formats._messages_api import named_provider, said_drafts, walked
from transcript_store.formats._neutral import Losses, NeutralMessage, arguments_of
from transcript_store.formats._plan import ImportFinding, SessionPlan, SourceHead
from transcript_store.formats._replay import Draft, Steps
from transcript_store.formats._rows import rows_of, spans_of, text_line
from transcript_store.formats._times import time_in_ms, time_of_member
from transcript_store.formats._trees import left_draft
from transcript_store.messages import as_text, provider_family

_TABLE, _COMPOSER, _BUBBLE = "cursorDiskKV", "composerData:", "bubbleId:"
_ROLES = {"1": "user", "2": "assistant"}
_OPEN = ("loading", "pending", "running")


def is_editor(head: SourceHead) -> bool:
    """True if a database is the editor's."""
    return {"key", "value"} <= set(head.tables.get(_TABLE, ()))


def editor_stamps(source: Any) -> dict[str, str]:
    """For each conversation a text that changes with each turn: made of its note and its bubbles."""
    found = {}
    for composer, bubbles in _composers(source).items():
        about = _value(source, f"{_COMPOSER}{composer}")
        found[composer] = hashlib.sha256(repr((about, [*bubbles])).encode(errors="replace")).hexdigest()
    return found


def editor_times(source: Any) -> list[tuple[float, float]]:
    """When each conversation began and last changed."""
    abouts = (object_on_value(_value(source, f"{_COMPOSER}{composer}")) for composer in _composers(source))
    spans = spans_of((about.get("createdAt"), about.get("lastUpdatedAt")) for about in abouts)
    return [(began / 1000, changed / 1000) for began, changed in spans]


def _composers(source: Any) -> dict[str, dict[str, None]]:
    """The bubbles of each conversation, by their keys alone."""
    composers: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows_of(source, _TABLE, ("key",), ("key",)):
        kind, _, name = row["key"].partition(":") if isinstance(row["key"], str) else ("", "", "")
        composer, colon, bubble = name.partition(":")
        if f"{kind}:" == _COMPOSER:
            composers[name]  # made, if no bubble of it is there
        elif f"{kind}:" == _BUBBLE and colon and ":" not in bubble:
            composers[composer][bubble] = None
    return composers


def editor_plans(source: Any, skip: Container[str] = ()) -> Iterable[SessionPlan]:
    """Each conversation of a database, but for those in ``skip``."""
    composers = _composers(source)
    parents: dict[str, str] = {}
    for composer in composers:
        for child in _listed(_value(source, f"{_COMPOSER}{composer}"), "subComposerIds"):
            parents.setdefault(child, composer)
    for composer, bubbles in composers.items():
        if composer not in skip:
            yield _plan(source, composer, list(bubbles), parents.get(composer))


def _value(source: Any, key: str) -> object:
    return next((row["value"] for row in rows_of(source, _TABLE, ("key", "value"), ("key",), {"key": key})), None)


def _listed(said: object, name: str) -> Iterator[str]:
    found = object_on_value(said).get(name)
    return (one for one in found if isinstance(one, str)) if isinstance(found, list) else iter(())


def _plan(source: Any, composer: str, bubbles: list[str], parent: str | None) -> SessionPlan:
    about = object_on_value(_value(source, f"{_COMPOSER}{composer}"))
    headers = objects(about.get("fullConversationHeadersOnly"))
    named = [found for one in headers if (found := text_member(one.get("bubbleId")))]
    lines: dict[str, SourceLine] = {}
    for number, one in enumerate(dict.fromkeys([*named, *bubbles]), 1):
        said = _value(source, f"{_BUBBLE}{composer}:{one}")
        if said is not None:
            lines[one] = text_line(number, said)
    within = objects(about.get("conversation")) if not lines else []
    for place, bubble in enumerate(within):
        lines[first_text(bubble.get("bubbleId")) or str(place)] = text_line(place + 1, as_text(bubble))
    there = [*dict.fromkeys(one for one in named if one in lines)] if not within else list(lines)
    findings = []
    if missing := len(set(named) - lines.keys()) if not within else 0:
        findings.append(missing_messages(missing, "conversation"))
    times = {one: time_of_member(obj(line.value).get("createdAt")) for one, line in lines.items()}
    if not about and lines:
        why = "the conversation was deleted in Cursor, and its messages are still there: in the order of their times"
        findings.append(ImportFinding("deleted-session", why))
        there = merged((), lines, times)
    left = lines.keys() - set(there)
    order = {one: lines[one]._replace(number=number) for number, one in enumerate(merged(there, left, times), 1)}
    values = [obj(line.value) for line in order.values()]
    model = first_text(*map(_model, reversed(values)), obj(about.get("modelConfig")).get("modelName"))
    provider = named_provider(None, model)
    began = time_in_ms(about.get("createdAt"))
    said, losses = walked(source, partial(_walk, order, set(there), provider, began))
    listed = (value["workspaceUris"] for value in values if isinstance(value.get("workspaceUris"), list))
    folder = text_member(next((uri for uris in listed for uri in uris), "")) or ""
    facts = facts_of(session=composer or "composer", model=model, title=about.get("name"), part_of=parent)
    facts.first(cwd=unquote(folder.removeprefix("file://")))
    its = provider if any(turn_of_bubble(value, provider) is not None for value in values) else None
    return facts.plan("cursor", len(order), said, its, losses, findings=findings, left=len(left))


def _model(value: Json) -> str | None:
    return text_member(obj(value.get("modelInfo")).get("modelName"))


def _walk(order: dict[str, SourceLine], there: set[str], provider: str, began: str | None, losses: Losses) -> Steps:
    for one, line in order.items():
        value = line.value or {}
        at = time_in_ms(value.get("createdAt")) or (began if line.number == 1 else None)
        turns = turn_of_bubble(value, provider)
        if turns is None:
            yield Draft(lines=[line], at=at)
            continue
        said, answer = turns
        about: Json = {}
        if said.role == "assistant":
            counts = counts_of(
                obj(value.get("tokenCount")), {"inputTokens": "input_tokens", "outputTokens": "output_tokens"}
            )
            usage = {name: count for name, count in counts.items() if count}
            about = {"model": _model(value), "usage": usage}
        drafts = said_drafts(said, provider, about, at, line, losses)
        if answer is not None and drafts[0].message is not None:
            drafts += said_drafts(answer, provider, {}, at, None, losses)
        yield from drafts if one in there else map(left_draft, drafts)


def object_on_value(said: object) -> Json:
    """The JSON object that a value of the database is; empty if it is none."""
    raw = said.encode(errors="surrogatepass") if isinstance(said, str) else said
    return parse_object(raw) or {} if isinstance(raw, bytes) else {}


def turn_of_bubble(value: Json, provider: str) -> tuple[NeutralMessage, NeutralMessage | None] | None:
    """The message of a bubble, and the result of its tool; None if it has neither."""
    role = _ROLES.get(str(value.get("type")))
    if role is None:
        return None
    blocks: list[Block] = []
    thinking = obj(value.get("thinking"))
    if role == "assistant" and text_member(thinking.get("text")):
        blocks.append(Thinking(thinking["text"], text_in(thinking, "signature"), provider=provider_family(provider)))
    if shown := text_member(value.get("text")) or _rich_text(value.get("richText")):
        blocks.append(Text(shown))
    blocks += [Media("image/png", image["data"]) for image in objects(value.get("images")) if text_in(image, "data")]
    tool, answer = obj(value.get("toolFormerData")), None
    if role == "assistant" and text_member(tool.get("name")):
        number = first_text(tool.get("toolCallId"), value.get("bubbleId")) or "call"
        given: Any = next((tool[name] for name in ("rawArgs", "params") if tool.get(name) is not None), {})
        blocks.append(Call(number, tool["name"], arguments_of(given)))
        if tool.get("result") is not None and tool.get("status") not in _OPEN:
            said = (Text(as_text(tool["result"])),)
            result = Result(number, tool["name"], said, failed=tool.get("status") == "error")
            answer = NeutralMessage("user", (result,))
    return (NeutralMessage("user" if role == "user" else "assistant", tuple(blocks)), answer) if blocks else None


def _rich_text(said: object) -> str:
    """The text of a rich-text document, one paragraph per line: bubbles of 2025 may have no other text."""
    paragraphs = objects(obj(object_on_value(said).get("root")).get("children"))
    return "\n".join("".join(text_in(one, "text") for one in objects(each.get("children"))) for each in paragraphs)
