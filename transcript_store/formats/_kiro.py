"""Kiro CLI, in the forms of its three engines.

* The first: rows of ``conversations_v2`` (key: the folder, conversation_id, value), or of ``conversations`` before; the value's ``history``
  has turns {user {content {Prompt {prompt} | ToolUseResults {tool_use_results}}, timestamp}, assistant {Response | ToolUse {content,
  tool_uses}}, request_metadata}. A value is rewritten with each turn: its messages are compared.
* The second: ``sessions/cli/ID.jsonl``, lines {version, kind Prompt | AssistantMessage | ToolResults | Clear, data {content [{kind text |
  toolUse | toolResult | image, data}]}}; ``ID.json`` beside it has the id, the title, the folder and the model. A ``Compaction`` has
  a ``summary``; its ``messages_snapshot`` repeats messages before it.
* The third: ``sessions/HASH/sess_ID/messages.jsonl``, lines {id, timestamp, payload {type user | assistant | tool_call | tool_result, …}};
  ``session.json`` beside it.

Facts: tenequm/pond#209, Dicklesworthstone/cross_agent_session_resumer#15, aws-bench. No file that the program wrote was at hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import Any

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._lines import BytesSource, SourceLine, SourceLines, lines_of_document
from transcript_store.formats._members import Json, first_text, obj, objects, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, arguments_of
from transcript_store.formats._neutral_lines import named_provider, said_drafts, walked
from transcript_store.formats._plan import SessionPlan, SourceHead
from transcript_store.formats._replay import Draft, Restart, SessionFacts, Steps, facts_of
from transcript_store.formats._rows import file_of, is_file_source, object_beside, rows_of, spans_of
from transcript_store.formats._scaffolding import marked, marked_summary
from transcript_store.formats._times import time_in_ms, time_member, time_of_member
from transcript_store.messages import as_text, provider_family

# ---- kiro turns ----
#
# The messages in the lines and rows of Kiro CLI.

_KINDS = ("Prompt", "AssistantMessage", "ToolResults", "Clear", "Compaction")
_PAYLOADS = ("user", "assistant", "tool_call", "tool_result", "usage_summary")
_CONTEXT, _TYPED_FROM, _TYPED_TO = (
    "--- CONTEXT ENTRY BEGIN ---",
    "--- USER MESSAGE BEGIN ---",
    "--- USER MESSAGE END ---",
)
"""The lines in a prompt as the first engine sends it."""
_Said = tuple[NeutralMessage, str | None]
"""A turn, and when it was said."""


def is_second(value: Json) -> bool:
    return value.get("kind") in _KINDS and isinstance(value.get("data"), dict) and "version" in value


def is_third(value: Json) -> bool:
    kind = obj(value.get("payload")).get("type")
    return {"id", "timestamp"} <= value.keys() and kind in _PAYLOADS


def turns_of_line(value: Json, provider: str) -> list[_Said]:
    """The messages of a line of the second or the third engine."""
    if is_second(value):
        return list(_of_second(value, provider))
    return list(_of_third(value, provider)) if is_third(value) else []


def _of_second(value: Json, provider: str) -> Iterator[_Said]:
    data = obj(value.get("data"))
    at = time_member(obj(data.get("meta")).get("timestamp"))
    if value["kind"] == "Compaction":
        if summary := text_in(data, "summary"):
            yield NeutralMessage("user", (Text(summary),)), at
        return
    blocks = tuple(block for part in objects(data.get("content")) for block in _block(part, provider))
    if blocks:
        yield NeutralMessage("assistant" if value["kind"] == "AssistantMessage" else "user", blocks), at


def _block(part: Json, provider: str) -> Iterator[Block]:
    data = part.get("data")
    about = obj(data)
    match part.get("kind"):
        case "text" if first_text(data):
            yield Text(str(data))
        case "thinking" | "reasoning":
            said = data if isinstance(data, str) else text_in(about, "text", "thinking")
            yield Thinking(said, text_in(about, "signature"), provider=provider_family(provider))
        case "toolUse" if first_text(about.get("name")):
            yield Call(text_in(about, "toolUseId"), about["name"], arguments_of(about.get("input")))
        case "toolResult":
            failed = str(about.get("status", "success")).lower() != "success"
            yield Result(text_in(about, "toolUseId"), "", tuple(_shown(about.get("content"))), failed=failed)
        case "image":
            kind, inner = text_in(about, "format", "mimeType") or "png", obj(about.get("source"))
            if encoded := text_in(about, "data", "bytes") or text_in(inner, "data", "bytes"):
                yield Media(kind if "/" in kind else f"image/{kind}", encoded)


def _shown(content: object) -> Iterator[Text]:
    """The result of a tool: ``{"Text"}`` and ``{"Json"}`` of the first engine, ``{"kind", "data"}`` of the second."""
    for one in content if isinstance(content, list) else [content] if content is not None else []:
        given = obj(one)
        said = next((given[name] for name in ("Text", "Json", "data") if name in given), one)
        yield Text(as_text(said))


def _of_third(value: Json, provider: str) -> Iterator[_Said]:
    payload = obj(value.get("payload"))
    at, said = time_in_ms(value.get("timestamp")), payload.get("content")
    content = said if isinstance(said, str) else "" if said is None else as_text(said)
    number = text_in(payload, "toolCallId")
    match payload.get("type"):
        case "user" if content:
            yield NeutralMessage("user", (Text(content),)), at
        case "assistant" if content:
            speaks = payload.get("operationType", "Say") == "Say"
            thinking = Thinking(content, provider=provider_family(provider))
            yield NeutralMessage("assistant", (Text(content) if speaks else thinking,)), at
        case "tool_call" if first_text(payload.get("toolName")):
            call = Call(number, payload["toolName"], arguments_of(payload.get("args")))
            yield NeutralMessage("assistant", (call,)), at
        case "tool_result":
            result = Result(number, "", (Text(content),), failed=payload.get("success") is False)
            yield NeutralMessage("user", (result,)), at


def turns_of_row(value: Json, provider: str) -> list[_Said]:  # noqa: ARG001 (nothing is thought there)
    """The messages of a turn of the first engine."""
    user = obj(value.get("user"))
    content, assistant, found = obj(user.get("content")), obj(value.get("assistant")), []
    at = first_text(user.get("timestamp"))
    answers = content.get("ToolUseResults", content.get("CancelledToolUses"))
    results = []
    for one in objects(obj(answers).get("tool_use_results")):
        failed = str(one.get("status")).lower() == "error"
        results.append(Result(text_in(one, "tool_use_id"), "", tuple(_shown(one.get("content"))), failed=failed))
    prompt = first_text(obj(content.get("Prompt")).get("prompt")) or first_text(obj(answers).get("prompt"))
    if results or prompt:
        found.append((NeutralMessage("user", (*results, *([Text(prompt)] if prompt else ()))), at))
    reply = obj(assistant.get("ToolUse")) or obj(assistant.get("Response"))
    blocks: list[Block] = [Text(reply["content"])] if first_text(reply.get("content")) else []
    calls = [one for one in objects(reply.get("tool_uses")) if first_text(one.get("name"))]
    blocks += [Call(text_in(one, "id"), one["name"], arguments_of(one.get("args"))) for one in calls]
    if blocks:
        ended = time_in_ms(obj(value.get("request_metadata")).get("stream_end_timestamp_ms"))
        found.append((NeutralMessage("assistant", tuple(blocks)), ended))
    return found


# ---- kiro ----

_TABLES = ("conversations_v2", "conversations")
_ROW = "key conversation_id value created_at updated_at"


class Kiro:
    """Reads the database, or a file of one of the later engines."""

    name = "kiro"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        tables = any(head.has_table(table, "key value") for table in _TABLES)
        return tables or any(is_second(value) or is_third(value) for value in head.objects)

    def session_stamps(self, source: Any) -> dict[str, str]:
        """When each conversation was last written; the older table does not say so."""
        rows = rows_of(source, _TABLES[0], "conversation_id updated_at")
        return {str(row["conversation_id"]): str(row["updated_at"]) for row in rows if row["updated_at"] is not None}

    def session_times(self, source: Any) -> list[tuple[float, float]]:
        """When each conversation began and last changed."""
        rows = rows_of(source, _TABLES[0], "created_at updated_at")
        return spans_of(((row["created_at"], row["updated_at"]) for row in rows), per_second=1000)

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        if is_file_source(source):
            yield from _of_lines(source)
            return
        seen: set[str] = set()
        for table in _TABLES:
            for row in rows_of(source, table, _ROW, "created_at key"):
                if row["conversation_id"] in skip:
                    continue
                for plan in _of_row(source, row):
                    if plan.session not in seen and plan.session not in skip:
                        yield plan
                    seen.add(plan.session)


def _of_row(source: Any, row: Json) -> Iterator[SessionPlan]:
    value = row["value"]
    raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        return
    lines, findings = lines_of_document(BytesSource(source.name, raw), "history")
    about = obj(lines[0].value)
    model = first_text(obj(about.get("model_info")).get("model_id"), about.get("model"))
    created, changed = (time_in_ms(row[name]) for name in ("created_at", "updated_at"))
    known_as = first_text(row["conversation_id"], about.get("conversation_id")) or hashlib.sha256(raw).hexdigest()
    folder = row["key"] if isinstance(row["key"], str) else ""
    cwd = folder if folder.startswith(("/", "\\")) or folder[1:2] == ":" else None
    facts = facts_of(session=known_as, model=model, cwd=cwd)
    edition = (time_of_member(changed), "") if changed else None
    yield _plan(source, facts, lines, turns_of_row, created, len(lines), findings=findings, edition=edition)


def _of_lines(source: Any) -> Iterator[SessionPlan]:
    lines = SourceLines(source)
    held = list(lines)
    if not held:
        return
    names = (f"{file_of(source).removesuffix('.jsonl')}.json", "session.json")
    beside = next((found for name in names if (found := object_beside(source, name))), {})
    state = obj(beside.get("session_state"))
    info = obj(obj(state.get("rts_model_state")).get("model_info"))
    model = first_text(info.get("model_id"), beside.get("modelId"))
    is_agent = "subagent" in str(beside.get("session_created_reason"))
    first = next((line.raw for line in held if line.value is not None), held[0].raw)
    known_as = first_text(beside.get("session_id"), beside.get("id")) or hashlib.sha256(first.strip()).hexdigest()
    began = first_text(beside.get("created_at")) or first_text(beside.get("createdAt"))
    facts = facts_of(
        session=known_as,
        model=model,
        title=first_text(beside.get("title"), beside.get("name")),
        cwd=first_text(beside.get("cwd"), beside.get("workspacePath")),
        **{"part_of" if is_agent else "forked_from": beside.get("parent_session_id")},
    )
    yield _plan(source, facts, held, turns_of_line, began, lines)


def _plan(
    source: Any,
    facts: SessionFacts,
    lines: list[SourceLine],
    turns: Any,
    began: str | None,
    read: SourceLines | int,
    **more: Any,
) -> SessionPlan:
    provider = named_provider(None, facts.model)
    said, losses = walked(source, partial(_walk, lines, turns, provider, began, facts.model))
    speaks = any(turns(line.value or {}, provider) for line in lines)
    return facts.plan(Kiro.name, read, said, provider if speaks else None, losses, **more)


def _typed_in(said: str) -> str:
    """The typed part of a prompt; the same text if that is all of it. A pattern would take the third power of its blanks."""
    typed, ended, after = said.partition(_TYPED_FROM)[2].rpartition(_TYPED_TO)
    return typed.strip() if said.startswith(_CONTEXT) and ended and not after.strip() else said


def _about_prompt(turn: NeutralMessage) -> Json:
    """The mark of the context that the program puts around a prompt. A result has none."""
    if any(isinstance(block, Result) for block in turn.blocks):
        return {}
    texts = [block.text for block in turn.blocks if isinstance(block, Text)]
    typed = list(map(_typed_in, texts))
    return marked(None if typed == texts else "\n\n".join(filter(None, typed)), is_said=True)


def _walk(
    lines: list[SourceLine], turns: Any, provider: str, began: str | None, model: str | None, losses: Losses
) -> Steps:
    says = False
    for line in lines:
        value = line.value or {}
        compacts = value.get("kind") == "Compaction" and is_second(value) and bool(turns(value, provider))
        if (value.get("kind") == "Clear" or compacts) and says:
            yield Restart()
            says = False
        if not line.raw:
            continue
        drafts = []
        for turn, at in turns(value, provider):
            about: Json = {"model": model} if turn.role == "assistant" else _about_prompt(turn)
            about = marked_summary() if compacts else about
            drafts += said_drafts(turn, provider, about, at or (None if says else began), None, losses)
            says = True
        drafts = drafts or [Draft(at=began if line is lines[0] else None)]
        drafts[0].lines.append(line)
        yield from drafts
