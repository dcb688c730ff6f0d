"""Cursor: three stores. A session of one may also have a transcript, which has less of it.

* Transcripts of its agent: ``projects/SLUG/agent-transcripts/ID/ID.jsonl``, and ``ID/subagents/ID.jsonl``. A line is ``{"role",
  "message": {"content"}}`` with blocks of Claude's API, without times and ids of calls, and mostly without results; others mark the
  end of a turn. Only the path has the id; elsewhere the first line identifies a file.
* The agent's ``store.db``: below.
* The editor's ``state.vscdb``: below.

The prompt is within ``<user_query>``, Cursor's additions in other elements; a ``<timestamp>`` is the only time. Source:
skillsynchq/txcript, kenn-io/agentsview, fixtures of jazzyalex/agent-sessions. No file of the program itself was available.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from urllib.parse import unquote

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import SourceLine, SourceLines
from transcript_store.formats._members import Json, count_member, counts_of, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, arguments_of
from transcript_store.formats._neutral_lines import named_provider, said_drafts, turn_in, walked
from transcript_store.formats._plan import ImportFinding, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Steps, facts_of
from transcript_store.formats._rows import is_file_source, object_in, rows_of, spans_of, text_line
from transcript_store.formats._scaffolding import Scaffolding, marked, texts_in
from transcript_store.formats._times import time_in_ms, time_of_member
from transcript_store.formats._trees import left_draft
from transcript_store.messages import as_text, provider_family

# ---- blocks ----
#
# Cursor's messages as blocks of Claude's API: its transcripts have nearly these, its databases those of Vercel's AI SDK.

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
        return {"type": "thinking", "thinking": said, **present(signature=first_text(part.get("signature")))}
    if kind == "redacted-reasoning":
        return {"type": "redacted_thinking", "data": first_text(part.get("data")) or ""}
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


# ---- editor ----
#
# The ``state.vscdb`` of Cursor's editor: only rows of conversations in ``cursorDiskKV`` are read. Others hold secrets.
#
# * ``composerData:ID`` {name, createdAt, fullConversationHeadersOnly [{bubbleId}], subComposerIds}; formerly with the bubbles in it
#   (``conversation``). It changes with each turn, so it is not a line: its name and its order count.
# * ``bubbleId:ID:BUBBLE`` {type 1 of the user, 2 of the assistant, text, thinking, toolFormerData {toolCallId, name, status, rawArgs,
#   result}, createdAt, modelInfo, tokenCount}: a line. A bubble that its conversation no longer names is kept as a branch that was
#   left. Those of a deleted conversation are in the order of their times.
#
# A conversation does not name its folder; a bubble may (``workspaceUris``).

_TABLE, _COMPOSER, _BUBBLE = "cursorDiskKV", "composerData:", "bubbleId:"
_ROLES = {"1": "user", "2": "assistant"}
_OPEN = ("loading", "pending", "running")


def is_editor(head: SourceHead) -> bool:
    """True if a database is the editor's."""
    return head.has_table(_TABLE, "key value")


def editor_stamps(source: Any) -> dict[str, str]:
    """For each conversation a text that changes with each turn: made of its note and its bubbles."""
    found = {}
    for composer, bubbles in _composers(source).items():
        about = _value(source, f"{_COMPOSER}{composer}")
        found[composer] = hashlib.sha256(repr((about, [*bubbles])).encode(errors="replace")).hexdigest()
    return found


def editor_times(source: Any) -> list[tuple[float, float]]:
    """When each conversation began and last changed."""
    abouts = (object_in(_value(source, f"{_COMPOSER}{composer}")) for composer in _composers(source))
    return spans_of(((about.get("createdAt"), about.get("lastUpdatedAt")) for about in abouts), per_second=1000)


def _composers(source: Any) -> dict[str, dict[str, None]]:
    """The bubbles of each conversation, by their keys alone."""
    composers: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows_of(source, _TABLE, "key", "key"):
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
            yield _editor_plan(source, composer, list(bubbles), parents.get(composer))


def _value(source: Any, key: str) -> object:
    return next((row["value"] for row in rows_of(source, _TABLE, "key value", "key", {"key": key})), None)


def _listed(said: object, name: str) -> Iterator[str]:
    found = object_in(said).get(name)
    return (one for one in found if isinstance(one, str)) if isinstance(found, list) else iter(())


def _editor_plan(source: Any, composer: str, bubbles: list[str], parent: str | None) -> SessionPlan:
    about = object_in(_value(source, f"{_COMPOSER}{composer}"))
    headers = objects(about.get("fullConversationHeadersOnly"))
    named = [found for one in headers if (found := first_text(one.get("bubbleId")))]
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
    model = first_text(*map(_model_of_bubble, reversed(values)), obj(about.get("modelConfig")).get("modelName"))
    provider = named_provider(None, model)
    began = time_in_ms(about.get("createdAt"))
    said, losses = walked(source, partial(_editor_walk, order, set(there), provider, began))
    listed = (value["workspaceUris"] for value in values if isinstance(value.get("workspaceUris"), list))
    folder = first_text(next((uri for uris in listed for uri in uris), "")) or ""
    facts = facts_of(session=composer or "composer", model=model, title=about.get("name"), part_of=parent)
    facts.first(cwd=unquote(folder.removeprefix("file://")))
    its = provider if any(turn_of_bubble(value, provider) is not None for value in values) else None
    return facts.plan("cursor", len(order), said, its, losses, findings=findings, left=len(left))


def _model_of_bubble(value: Json) -> str | None:
    return first_text(obj(value.get("modelInfo")).get("modelName"))


def _editor_walk(
    order: dict[str, SourceLine], there: set[str], provider: str, began: str | None, losses: Losses
) -> Steps:
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
            about = {"model": _model_of_bubble(value), "usage": usage}
        drafts = said_drafts(said, provider, about, at, line, losses)
        if answer is not None and drafts[0].message is not None:
            drafts += said_drafts(answer, provider, {}, at, None, losses)
        yield from drafts if one in there else map(left_draft, drafts)


def turn_of_bubble(value: Json, provider: str) -> tuple[NeutralMessage, NeutralMessage | None] | None:
    """The message of a bubble, and the result of its tool; None if it has neither."""
    role = _ROLES.get(str(value.get("type")))
    if role is None:
        return None
    blocks: list[Block] = []
    thinking = obj(value.get("thinking"))
    if role == "assistant" and first_text(thinking.get("text")):
        blocks.append(Thinking(thinking["text"], text_in(thinking, "signature"), provider=provider_family(provider)))
    if shown := first_text(value.get("text")) or _rich_text(value.get("richText")):
        blocks.append(Text(shown))
    blocks += [Media("image/png", image["data"]) for image in objects(value.get("images")) if text_in(image, "data")]
    tool, answer = obj(value.get("toolFormerData")), None
    if role == "assistant" and first_text(tool.get("name")):
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
    paragraphs = objects(obj(object_in(said).get("root")).get("children"))
    return "\n".join("".join(text_in(one, "text") for one in objects(each.get("children"))) for each in paragraphs)


# ---- store ----
#
# The ``store.db`` of Cursor's agent: blobs by their SHA-256. Some are messages in JSON, the others a graph in protobuf.
#
# ``meta`` has under ``0`` the hex of a JSON object {agentId, latestRootBlobId, name, createdAt, lastUsedModel}. Field 1 of the root
# blob names the messages of the context, in order. Messages that it no longer names, because they were taken back or compacted, are
# kept as a branch that was left. The graph has nothing more, and is left out.

_MESSAGES, _WORKSPACE = 1, 9
"""Fields of the root."""
_ID_BYTES = 32
_SPEAKERS = ("user", "assistant", "tool")


def is_store(head: SourceHead) -> bool:
    """True if a database is a session of Cursor's agent."""
    return set(head.tables.get("blobs", ())) == {"id", "data"} and set(head.tables.get("meta", ())) == {"key", "value"}


def store_times(source: Any) -> list[tuple[float, float]]:
    """When the session of a database began."""
    began = (count_member(about.get("createdAt")) for about in _abouts(source))
    return [(at / 1000, at / 1000) for at in began if at is not None]


def _abouts(source: Any) -> Iterator[Json]:
    """The notes of the database on its session."""
    return (_about(row["value"]) for row in rows_of(source, "meta", "key value", "key", {"key": "0"}))


def store_plans(source: Any) -> Iterable[SessionPlan]:
    """The session of a database, if it is one."""
    about = next(_abouts(source), {})
    messages: dict[str, tuple[SourceLine, Json]] = {}
    for row in rows_of(source, "blobs", "id data", "id"):
        value = _message(row["data"])
        if value is not None:
            messages[str(row["id"])] = (text_line(0, row["data"]), value)
    if not messages and not about:
        return
    rows = rows_of(source, "blobs", "data", "id", {"id": about.get("latestRootBlobId")})
    fields = list(_protobuf(next((row["data"] for row in rows if isinstance(row["data"], bytes)), b"")))
    named = [found.hex() for number, found in fields if number == _MESSAGES and len(found) == _ID_BYTES]
    there = [one for one in named if one in messages]
    findings = []
    if missing := len(named) - len(there):
        findings.append(missing_messages(missing, "session"))
    values = {one: value for one, (_, value) in messages.items()}
    times = {one: time_of_member(time_in_ms(value.get("createdAt"))) for one, value in values.items()}
    if not there:  # their order is unknown
        there = merged((), messages, times)
        findings.append(
            ImportFinding(
                "no-order", "no root names the messages: they are in the order of their times, as far as they have one"
            )
        )
    # Its former prompts are not messages of a branch.
    left = {one for one in messages.keys() - set(there) if values[one].get("role") in _SPEAKERS}
    order = merged(there, left, times)
    lines = {one: messages[one][0]._replace(number=number) for number, one in enumerate(dict.fromkeys(order), 1)}
    models = [model for one in reversed(there) if (model := _model_of_blob(values[one]))]
    model = models[0] if models else first_text(about.get("lastUsedModel"))
    provider = named_provider(None, model)
    arguments = (order, left, lines, values, provider, time_in_ms(about.get("createdAt")))
    said, losses = walked(source, partial(_store_walk, *arguments))
    folders = (found.decode(errors="replace") for number, found in fields if number == _WORKSPACE)
    places = [folder.removeprefix("file://") for folder in folders]
    facts = facts_of(
        session=first_text(about.get("agentId")) or next(iter(order), "store"),
        model=model,
        system_prompt=first_text(*(_prompt(values[one]) for one in there)),
        title=about.get("name"),
        cwd=first_text(about.get("workspacePath"), *places),
    )
    speaks = any(values[one].get("role") in _SPEAKERS for one in order)
    its = provider if speaks else None
    yield facts.plan("cursor", len(lines), said, its, losses, findings=findings, left=len(left))


def _store_walk(
    order: list[str],
    left: set[str],
    lines: dict[str, SourceLine],
    values: dict[str, Json],
    provider: str,
    began: str | None,
    losses: Losses,
) -> Steps:
    contents = tied([claude_blocks(values[one].get("content")) for one in order])
    seen: set[str] = set()
    for place, (one, content) in enumerate(zip(order, contents, strict=True)):
        value = values[one]
        line = None if one in seen else lines[one]
        seen.add(one)
        at = time_in_ms(value.get("createdAt")) or (began if place == 0 else None)
        if value.get("role") not in _SPEAKERS or content is None:
            if line is not None:
                yield Draft(lines=[line], at=at)
            continue
        role = "assistant" if value["role"] == "assistant" else "user"
        about = {"model": _model_of_blob(value)} if role == "assistant" else _typed(value, content)
        drafts = said_drafts(turn_in({"role": role, "content": content}, provider), provider, about, at, line, losses)
        yield from map(left_draft, drafts) if one in left else drafts


def _typed(value: Json, content: list[Json]) -> Json:
    return marked(CURSOR.typed_of(texts_in(content))) if value["role"] == "user" else {}


def _model_of_blob(value: Json) -> str | None:
    return first_text(obj(obj(value.get("providerOptions")).get("cursor")).get("modelName"))


def _prompt(value: Json) -> str | None:
    return "\n".join(texts_in(value.get("content"))) or None if value.get("role") == "system" else None


def _message(data: object) -> Json | None:
    raw = data if isinstance(data, bytes) else data.encode(errors="surrogatepass") if isinstance(data, str) else b""
    value = parse_object(raw) if raw.startswith(b"{") else None
    return value if value is not None and isinstance(value.get("role"), str) else None


def _about(said: object) -> Json:
    """The JSON object, stored in hex or as text."""
    given = said.decode(errors="replace") if isinstance(said, bytes) else said
    if not isinstance(given, str):
        return {}
    try:
        return parse_object(bytes.fromhex(given)) or {}
    except ValueError:
        return parse_object(given.encode(errors="replace")) or {}


def _protobuf(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that have bytes, as far as it is one."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = _number(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        elif kind in (0, 1, 5):
            at = _number(data, at)[1] if kind == 0 else at + (8 if kind == 1 else 4)
        else:
            return


def _number(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(10):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        found |= (byte & 127) << (7 * place)
        if byte < 128:
            break
    return found, at


# ---- transcripts and reader ----

_ID = r"[A-Za-z0-9_-]{8,80}"
_PLACE = re.compile(rf"/agent-transcripts/(?:(?P<parent>{_ID})/)?(?:subagents/)?(?P<id>{_ID})\.jsonl\Z")
_TIME = re.compile(
    r"<timestamp>\s*(?:\w+, )?(?P<month>[A-Z][a-z]{2})[a-z]* (?P<day>\d{1,2}), (?P<year>\d{4}),? (?:at )?"
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d)?\s?(?P<half>[AP]M)?(?: \((?:UTC|GMT)(?P<zone>[+-]\d{1,2})?(?::(?P<part>\d\d))?\))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Cursor:
    """Reads a transcript, or one of the databases."""

    name = "cursor"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        are_lines = [_is_line(value) for value in head.objects if not _is_of_nobody(value)]
        return is_store(head) or is_editor(head) or (bool(are_lines) and all(are_lines))

    def session_stamps(self, source: Any) -> dict[str, str]:
        """Of each conversation of the editor what changes with it; a ``store.db`` has one session, and is read as a whole."""
        return editor_stamps(source)

    def session_times(self, source: Any) -> list[tuple[float, float]]:
        """When each session of a database began and last changed."""
        return [*store_times(source), *editor_times(source)]

    def plans(self, source: Any, *, skip: Container[str] = ()) -> Iterable[SessionPlan]:
        if not is_file_source(source):
            yield from store_plans(source)
            yield from editor_plans(source, skip)
            return
        lines = list(SourceLines(source))
        if lines:
            yield _transcript_plan(source, lines)


def _is_line(value: Json) -> bool:
    """True for a message with content alone, and no member that names it."""
    message = value.get("message")
    is_named = bool({"type", "uuid", "id", "seq", "at", "extra"} & value.keys())
    is_message = isinstance(message, dict) and "content" in message and "role" not in message
    return value.get("role") in ("user", "assistant") and is_message and not is_named


def _is_of_nobody(value: Json) -> bool:
    """True for a line without message and session, such as ``turn_ended``."""
    return not {"role", "message", "sessionId", "session_id", "uuid"} & value.keys()


def _transcript_plan(source: Source, lines: list[SourceLine]) -> SessionPlan:
    again = SourceLines(source)
    for _ in again:
        pass
    place = _PLACE.search(str(source.name).replace("\\", "/"))
    values = [line.value or {} for line in lines]
    model = next((model for value in reversed(values) if (model := first_text(value.get("model")))), "")
    provider = named_provider(None, model)
    said, losses = walked(source, partial(_transcript_walk, lines, provider))
    speaks = any(value.get("role") in ("user", "assistant") for value in values)
    parent = place["parent"] if place is not None and place["parent"] != place["id"] else None
    first = hashlib.sha256(lines[0].raw.strip()).hexdigest()
    # Only the path has the id. Elsewhere two transcripts that start with one prompt would claim it, so the first line decides. The
    # database has more of the same session, so "/transcript" makes this another conversation.
    known_as = first if place is None else f"{place['id']}/transcript"
    facts = facts_of(session=known_as, model=model, part_of=parent and f"{parent}/transcript")
    return facts.plan(Cursor.name, again, said, provider if speaks else None, losses)


def _transcript_walk(lines: list[SourceLine], provider: str, losses: Losses) -> Steps:
    contents = tied([claude_blocks(obj((line.value or {}).get("message")).get("content")) for line in lines])
    for line, content in zip(lines, contents, strict=True):
        value = line.value or {}
        role = value.get("role")
        if role not in ("user", "assistant") or content is None:
            if line.raw:
                yield Draft(lines=[line])
            continue
        texts = texts_in(content)
        about = {"model": value.get("model")} if role == "assistant" else marked(CURSOR.typed_of(texts))
        said = without_redacted(content) if role == "assistant" else content
        turn = turn_in({"role": role, "content": said}, provider)
        yield from said_drafts(turn, provider, about, next(filter(None, map(_time_in, texts)), None), line, losses)


def _time_in(said: str) -> str | None:
    found = _TIME.search(said)
    if found is None or found["month"] not in _MONTHS:
        return None
    hour = int(found["hour"]) % 12 + 12 * (found["half"] == "PM") if found["half"] else int(found["hour"])
    hours, minutes = int(found["zone"] or 0), int(found["part"] or 0)
    try:
        zone = timezone(timedelta(hours=hours, minutes=minutes if hours >= 0 else -minutes))
        day = int(found["year"]), _MONTHS.index(found["month"]) + 1, int(found["day"])
        return datetime(*day, hour, int(found["minute"]), tzinfo=zone).isoformat()
    except ValueError:
        return None
