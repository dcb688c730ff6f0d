"""GitHub Copilot CLI: ``session-state/SESSION/events.jsonl``, lines ``{"type", "data", "id", "timestamp", "parentId"}``.

* ``user.message`` (``content`` was typed, ``transformedContent`` was sent), ``assistant.message`` with its ``toolRequests``, and
  ``tool.execution_complete``, which ends them in any order. ``session.usage_record`` is before the reply that it counts.
* The lines of a sub-agent have ``agentId`` (before 1.0 only ``parentToolCallId``): they are another conversation.
* ``session.compaction_complete``: a new generation, which starts with its summary. No line has the other messages that it kept.
* ``/undo`` removes lines from the file.

The input of ``sessions import`` is read too: ``session``, ``message``, ``tool-call``, ``tool-result``. Until 0.0.342 a session was
one document, ``history-session-state/*.json``: ``{"sessionId", "startTime", "chatMessages", "timeline"}``, with messages of chat
completions.

Source: GitHub Copilot CLI 1.0.102, which was run; files of 0.0.420 and 1.0.11 of jazzyalex/agent-sessions. The documents are known
from the tests of others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._arranging import FORMS
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import SourceLine, SourceLines, lines_of_document
from transcript_store.formats._members import Json, count_member, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import Form, Losses, NeutralMessage, Role, arguments_of
from transcript_store.formats._neutral_lines import NeutralLine, drafts_of
from transcript_store.formats._outgoing import ProgramForm, arranged_records, json_line
from transcript_store.formats._plan import ImportFinding, SessionPlan, Source, SourceHead, WrittenSession
from transcript_store.formats._replay import Draft, Replay, Restart, SessionFacts, Steps, facts_of, replayed
from transcript_store.formats._rows import text_beside
from transcript_store.formats._scaffolding import marked, marked_summary, texts_in
from transcript_store.messages import as_text, provider_family

_ENVELOPE = frozenset({"type", "data", "id", "timestamp", "parentId"})
_HEAD_BYTES = 64 << 10
_SPEAKERS = ("user", "assistant", "tool")
_MEMBERS = ("role", "content", "tool_calls", "tool_call_id", "name")
"""Members of chat completions. A message without a call needs its text."""
_NAME = re.compile(r"^name: *(.*(?:\n(?:  .*|$))*)", re.MULTILINE)


class Copilot:
    """Reads the sessions of GitHub Copilot CLI."""

    name = "copilot"

    def recognizes(self, head: SourceHead) -> bool:
        return head.is_document_with("sessionId", "startTime", "chatMessages") or any(map(_is_ours, head.objects))

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        if (
            b'"chatMessages"' in source.read(0, _HEAD_BYTES)
            and (lines := lines_of_document(source, "chatMessages"))[0][1:]
        ):
            yield _of_document(*lines)
            return
        scan = _scan(source)
        if scan.lines.count:
            yield self._plan(source, scan, None)
        yield from (self._plan(source, scan, agent) for agent in scan.agents)

    def _plan(self, source: Source, scan: _Scan, agent: str | None) -> SessionPlan:
        about = scan.of.get(agent) or _Agent()
        form, losses = FORMS[provider_family(about.provider)], Losses()
        walk = _AgentWalk(source, agent, form, losses)
        said = replayed(source, walk.steps(), lambda: _AgentWalk(source, agent, form, Losses()).steps())
        facts, provider = replace(scan.facts, system_prompt=about.prompt), about.provider if walk.speaks else None
        facts.last(
            title=scan.agents.get(agent) if agent is not None else _title(source, about.first), model=about.model
        )
        if agent is None:
            return replace(facts.plan(self.name, scan.lines, said, provider, losses), lines=walk.lines)
        facts.session, facts.part_of = f"{facts.session}/{agent}", facts.session
        return facts.plan(self.name, walk.lines, Replay(said.generations, ()), provider, losses, is_part=True)


def _is_ours(value: Json) -> bool:
    """True for an event, and for the header of the import format."""
    is_event = value.keys() >= _ENVELOPE and "." in str(value["type"]) and isinstance(value["data"], dict)
    return is_event or (value.get("type") == "session" and "externalId" in value)


def _of_document(lines: list[SourceLine], findings: list[ImportFinding]) -> SessionPlan:
    about, began = obj(lines[0].value), first_text(obj(lines[0].value).get("startTime"))
    prompts = [text_in(obj(line.value), "content") for line in lines[1:] if obj(line.value).get("role") == "system"]
    drafts = []
    for number, line in enumerate(lines):
        value = obj(line.value) if number else {}
        is_said = value.get("role") in _SPEAKERS and bool(text_in(value, "content") or objects(value.get("tool_calls")))
        message = {name: value[name] for name in _MEMBERS if name in value} if is_said else None
        drafts.append(Draft(message, {}, began if number < 2 else None, [line]))
    facts = facts_of(session=about.get("sessionId"), system_prompt=first_text(*prompts))
    facts.first(session=hashlib.sha256(lines[0].raw).hexdigest())
    provider = "openai-compatible" if any(draft.message is not None for draft in drafts) else None
    said = Replay((lambda: (draft.entry() for draft in drafts),), tuple(findings))
    return facts.plan(Copilot.name, lines, said, provider, edition=("", ""))


@dataclass(slots=True)
class _Agent:
    """Facts of the session, or of a sub-agent, from the first pass."""

    provider: str = "openai-compatible"
    model: str | None = None
    prompt: str | None = None
    first: str = ""


@dataclass(slots=True)
class _Scan:
    lines: SourceLines
    facts: SessionFacts = field(default_factory=SessionFacts)
    of: dict[str | None, _Agent] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    """The titles of sub-agents, by their ids."""


def _scan(source: Source) -> _Scan:
    scan, first, usage = _Scan(SourceLines(source)), "", Json()
    titles: dict[str, str] = {}
    for line in scan.lines:
        first = first or hashlib.sha256(line.raw).hexdigest()
        value = line.value or {}
        kind, data, agent = value.get("type"), _data(value), _agent_of(value)
        about = scan.of.setdefault(agent, _Agent())
        if agent is not None:
            scan.agents.setdefault(agent, "")
        if kind in ("session.start", "session.resume", "session"):
            context = obj(data.get("context")) or obj(data.get("workspace"))
            scan.facts.first(session=first_text(data.get("sessionId"), data.get("externalId")))
            scan.facts.last(
                version=data.get("copilotVersion"), model=data.get("selectedModel"), title=data.get("title")
            )
            scan.facts.last(cwd=first_text(context.get("cwd"), context.get("workingDirectory")))
            scan.facts.last(git_branch=context.get("branch"))
        elif kind == "session.usage_record":
            usage = obj(data.get("usage"))
            scan.facts.first(session=obj(usage.get("accounting")).get("sourceSessionId"))
        elif kind == "subagent.started":
            named = first_text(data.get("agentDisplayName"), data.get("agentName"))
            titles[agent or str(data.get("toolCallId"))] = named or ""
        elif kind == "system.message" and data.get("role") == "system":
            about.prompt = first_text(data.get("content")) or about.prompt
        elif kind == "assistant.message" or (kind == "message" and data.get("role") == "assistant"):
            about.model = first_text(data.get("model")) or about.model
            about.provider = _provider(data, usage if usage.get("apiCallId") == data.get("apiCallId") else {})
        elif kind == "user.message":
            about.first = about.first or first_text(data.get("content")) or ""
    scan.facts.first(session=first)
    scan.agents = {agent: titles.get(agent, "") for agent in scan.agents}
    return scan


def _data(value: Json) -> Json:
    """The data of a line; in the import format the line itself."""
    return obj(value["data"]) if "data" in value else value


def _agent_of(value: Json) -> str | None:
    return first_text(value.get("agentId"), _data(value).get("parentToolCallId"))


def _provider(data: Json, usage: Json) -> str:
    """The form of a reply. GitHub uses chat completions for every model, unless the line says otherwise."""
    spoken = first_text(obj(data.get("reasoningBlocks")).get("provider"), usage.get("apiEndpoint")) or ""
    return "claude" if "messages" in spoken else "openai" if "responses" in spoken else "openai-compatible"


class _AgentWalk:
    """The lines of one agent, in order. Of the session itself the sub-agents' lines are events."""

    def __init__(self, source: Source, agent: str | None, form: Form, losses: Losses) -> None:
        self._source, self._agent, self._form, self._losses = source, agent, form, losses
        self.lines = 0
        self.speaks = False
        self._waiting: list[NeutralLine] = []
        """A reply without all its results, and the lines since."""
        self._later: list[NeutralLine] = []
        self._missing: set[str] = set()
        self._results: NeutralLine | None = None
        self._reply: NeutralLine | None = None
        self._usage: Json = {}
        self._pictures: dict[str, str] = {}

    def steps(self) -> Steps:
        for line in SourceLines(self._source):
            value = line.value or {}
            is_ours = _agent_of(value) == self._agent
            if not is_ours and self._agent is not None:
                continue
            self.lines += len(line.numbers) if line.part == 0 else 0
            if line.raw:
                kind = str(value.get("type")) if is_ours else ""
                yield from self._step(line, kind, _data(value), first_text(value.get("timestamp")))
        yield from self._flush()

    def _step(self, line: SourceLine, kind: str, data: Json, at: str | None) -> Steps:
        one = NeutralLine([line], at=at)
        if kind in ("user.message", "message") and data.get("role", "user") == "user":
            one.said = [self._asked(data)]
            if self._missing:
                self._later.append(one)
                return
            yield from self._flush()
        elif kind in ("assistant.message", "message"):
            yield from self._flush()
            self._reply = one
            blocks, usage = tuple(self._replied(data)), self._usage
            is_its = data.get("apiCallId") is not None and usage.get("apiCallId") == data.get("apiCallId")
            one.said = [(NeutralMessage("assistant", blocks), _about(data, usage if is_its else {}))]
            self._missing = {block.id for block in blocks if isinstance(block, Call)}
        elif kind == "tool-call" and self._reply is not None:
            (turn, about), *_ = self._reply.said or [(NeutralMessage("assistant", ()), {})]
            self._reply.said = [(NeutralMessage("assistant", (*turn.blocks, _call(data, "id"))), about)]
            self._reply.lines.append(line)
            self._missing.add(str(data.get("id")))
            return
        elif kind in ("tool.execution_complete", "tool-result"):
            self._missing.discard(str(data.get("toolCallId")))
            result = _result(data)
            if self._results is not None and self._form.alternates:  # results of one reply are one message there
                (turn, about), *_ = self._results.said
                self._results.said = [(NeutralMessage("user", (*turn.blocks, result)), about)]
                self._results.lines.append(line)
                return
            one.said = [(NeutralMessage("user", (result,)), {})]
            self._results = one
        elif kind == "session.compaction_complete" and (summary := first_text(data.get("summaryContent"))):
            yield from self._flush()
            yield Restart()
            one.said = [(NeutralMessage("user", (Text(summary),)), marked_summary())]
        elif kind == "session.binary_asset" and first_text(data.get("data")):
            self._pictures[str(data.get("assetId"))] = data["data"]
        elif kind == "session.usage_record":
            self._usage = obj(data.get("usage"))
        self._waiting.append(one)
        if self._reply is None and self._results is None:
            yield from self._flush()

    def _flush(self) -> Steps:
        waiting, self._waiting = [*self._waiting, *self._later], []
        self._later, self._reply, self._results = [], None, None
        self._missing = set()
        for one in waiting:
            for draft in drafts_of(one, self._form, self._losses):
                self.speaks = self.speaks or draft.message is not None
                yield draft

    def _asked(self, data: Json) -> tuple[NeutralMessage, Json]:
        typed, content = first_text(data.get("content")) or "", data.get("content")
        sent = first_text(data.get("transformedContent")) or typed
        blocks: list[Block] = [Text(sent)] if sent else []
        blocks += [Text(part["text"]) for part in objects(content) if first_text(part.get("text"))]
        attached, has_more = (part for part in objects(content) if part.get("type") == "attachment"), False
        for each in (*objects(data.get("attachments")), *attached):
            kind = first_text(each.get("mimeType"), each.get("mediaType")) or ""
            held = self._pictures.get(str(each.get("assetId")))
            found = first_text(each.get("data")) or held
            if (selected := first_text(each.get("text"))) and selected not in sent:
                blocks.append(Text(f"[{first_text(each.get('displayName')) or 'selection'}]\n{selected}"))
                has_more = True
            elif found or kind:
                blocks.append(Media(kind or "image/*", found, own={"path": each.get("path")}, provider=Copilot.name))
        if self._agent is None and data.get("source") not in (None, "user"):
            typed = ""  # the program's own
        return NeutralMessage("user", tuple(blocks)), marked(
            None if typed == sent and not has_more else typed, is_said=True
        )

    def _replied(self, data: Json) -> Iterator[Block]:
        thoughts, is_claude = obj(data.get("reasoningBlocks")), self._form.name == "claude"
        if is_claude and "anthropic" in str(thoughts.get("provider")):
            yield from FORMS["claude"].turn_of({"role": "assistant", "content": objects(thoughts.get("blocks"))}).blocks
        elif said := first_text(data.get("reasoningText")):
            signature = (first_text(data.get("reasoningOpaque")) or "") if is_claude else ""
            yield Thinking(said, signature, provider=self._form.name)
        yield from (Text(said) for said in texts_in(data.get("content")) if said)
        yield from (_call(request, "toolCallId") for request in objects(data.get("toolRequests")))


def _call(request: Json, number: str) -> Call:
    given = request.get("arguments", request.get("args"))
    return Call(first_text(request.get(number)) or "", first_text(request.get("name")) or "", arguments_of(given))


def _result(data: Json) -> Result:
    result, error = data.get("result", data.get("content")), data.get("error")
    said = first_text(result, obj(result).get("content"), error, obj(error).get("message"))
    shown = as_text(result or error) if said is None and (result or error) else said
    number, failed = first_text(data.get("toolCallId")) or "", data.get("success") is False
    return Result(number, "", (Text(shown),) if shown else (), failed=failed)


def _about(data: Json, usage: Json) -> Json:
    """What belongs to a reply and is not sent. Copilot counts cached tokens as a part of the input."""
    tokens = present(
        prompt_tokens=count_member(usage.get("inputTokens")),
        completion_tokens=count_member(usage.get("outputTokens", data.get("outputTokens"))),
        prompt_tokens_details=present(cached_tokens=count_member(usage.get("cacheReadTokens")) or None),
    )
    return present(
        model=first_text(data.get("model")),
        response_id=first_text(data.get("apiCallId")),
        stop_reason=first_text(usage.get("finishReason")),
        usage=tokens,
    )


def _title(source: Source, first: str) -> str | None:
    """The name in ``workspace.yaml`` beside the events, unless it is only the beginning of the first prompt."""
    found = _NAME.search(text_beside(source, "workspace.yaml").decode(errors="replace"))
    name = "" if found is None else " ".join(found[1].lstrip("|>-+").split())
    if name.startswith("'"):
        name = name[1:-1].replace("''", "'")
    elif name.startswith('"'):
        name = str(obj(parse_object(b'{"name": %b}' % name.encode())).get("name"))
    return None if not name or " ".join(first.split()).startswith(name.rstrip("…. ")) else name


# ---- copilot writer ----
#
# A conversation as the JSON lines of ``copilot sessions import``, which are not those that Copilot CLI keeps.
#
# A header, then messages of the user and the assistant; the calls of a reply follow it, and their results precede the next message.
# It refuses thinking, an empty message, and a file of more than 10 MB. A picture is a file beside the lines.

_LONGEST_FILE_BYTES, _LONGEST_FILES_BYTES, _MOST_FILES = 10_000_000, 24_000_000, 100
_CALLS = "(calls a tool)"
_NOTHING = "(nothing)"


class InterchangeForm(ProgramForm):
    """The form of the lines."""

    name = "copilot"

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Media):
            return role == "user" and block.data is not None
        return not isinstance(block, (Other, Thinking))


class CopilotWriter:
    """Writes sessions for GitHub Copilot CLI."""

    name = "copilot"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.SessionWriter`."""
        losses = Losses()
        lines, at = _InterchangeLines(session, losses), now
        for turn, extra, at in arranged_records(records, metadata, InterchangeForm(), losses, now):
            lines.add(turn, at, text_in(extra, "model") or metadata.model)
        header: Json = {"type": "session", "version": 1, "externalId": session, "createdAt": now}
        header |= present(title=metadata.labels.get("title"))
        header |= {"updatedAt": max(now, at), "workspace": {"workingDirectory": cwd}}
        header["source"] = {"application": "transcript-store", "version": "1"}
        data = b"".join(map(json_line, (header, *lines.lines)))
        files = (*lines.files, (f"transcript-store/{session}.jsonl", data))
        return WrittenSession(files, "copilot sessions import {file} && copilot --continue", losses.found())


class _InterchangeLines:
    def __init__(self, session: str, losses: Losses) -> None:
        self._session, self._losses = session, losses
        self.lines: list[Json] = []
        self.files: list[tuple[str, bytes]] = []
        self._turn = 0

    def add(self, turn: NeutralMessage, at: str, model: str | None) -> None:
        for block in turn.blocks:
            if isinstance(block, Result):
                self._result(block, at)
        content = [part for block in turn.blocks if (part := self._content(block)) is not None]
        calls = [block for block in turn.blocks if isinstance(block, Call)]
        if turn.role == "user" and content:
            self._turn += 1
        if calls and not content:
            self._losses.note("empty", "a reply that only calls a tool got a text, for Copilot refuses an empty one")
            content = [{"type": "text", "text": _CALLS}]
        if content:
            about = {"model": model} if turn.role == "assistant" and model else {}
            self._line("message", at, {"role": turn.role, **about, "content": content})
        for call in calls:
            self._line("tool-call", at, {"name": call.name, "arguments": call.arguments}, call.id)

    def _line(self, kind: str, at: str, members: Json, number: str | None = None) -> None:
        its_id = number or f"{kind}-{len(self.lines) + 1}"
        self.lines.append({"type": kind, "id": its_id, "timestamp": at, **members, "turnId": f"turn-{self._turn}"})

    def _result(self, result: Result, at: str) -> None:
        if shown := len(result.media):
            self._losses.note("media", "a picture in a result was left out: Copilot's results hold text", shown)
        said = result.text or _NOTHING
        if not result.text:
            self._losses.note("empty", "a result without a text got one, for Copilot refuses an empty one")
        outcome: Json = {"success": True, "content": said}
        if result.failed:
            outcome = {"success": False, "error": {"message": said, "code": "failure"}}
        self._line("tool-result", at, {"toolCallId": result.id, **outcome})

    def _content(self, block: Block) -> Json | None:
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        if not isinstance(block, Media):
            return None
        try:
            data = base64.b64decode(block.data or "", validate=True)
        except binascii.Error:
            data = b""
        in_all = sum(len(file) for _, file in self.files) + len(data)
        fits = len(data) <= _LONGEST_FILE_BYTES and in_all <= _LONGEST_FILES_BYTES and len(self.files) < _MOST_FILES
        if not data or not fits:
            why = "a picture was left out: Copilot takes 100 files of 10 MB each, and 24 MB in all"
            self._losses.note("media", why)
            return None
        name = f"{self._session}-{len(self.files) + 1}.{block.type.rpartition('/')[2].strip('*') or 'bin'}"
        self.files.append((f"transcript-store/{name}", data))
        return {"type": "attachment", "path": name, "mediaType": block.type, "name": name}
