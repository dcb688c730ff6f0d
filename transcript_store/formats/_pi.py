"""pi's sessions, and OpenClaw's: JSON lines of entries that name their parents. The last entry is the leaf.

The first line is the header (``session``). pi itself (0.73.1) shows:

* Version 1 has no ids: its entries are in the order of their lines, and a compaction names its first kept entry by number. Version
  2 has ``id`` and ``parentId``. Version 3 calls ``hookMessage`` ``custom``.
* A ``compaction`` replaces the entries before it by a summary, and by those from ``firstKeptEntryId`` on.
* pi does not send a reply that failed or was stopped. Its text is a message here. A user's private command is never sent.

A session may have replies of several providers. It has the form of the last one. Thinking of others is lost.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.errors import InvalidMessageError
from transcript_store.formats._arranging import FORMS, LOST_THINKING, as_said, form_family
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import BytesSource, KeptLines
from transcript_store.formats._members import Json, first_text, labels, obj, objects, text_in
from transcript_store.formats._neutral import Form, Losses, NeutralMessage, Role, arguments_of
from transcript_store.formats._neutral_lines import form_by_name
from transcript_store.formats._outgoing import ProgramForm, arranged_records, json_line
from transcript_store.formats._packing import pack_line
from transcript_store.formats._plan import (
    ImportFinding,
    PlannedRecord,
    SessionPlan,
    Source,
    SourceHead,
    Tables,
    WrittenSession,
)
from transcript_store.formats._replay import SessionFacts
from transcript_store.formats._rows import rows_of, sql_value, text_beside, unpacked_zstd
from transcript_store.formats._scaffolding import PI, marked
from transcript_store.formats._trees import Chain, Link, TreeMessage, chain_of
from transcript_store.messages import cost_in, parse_message, provider_family, tokens_in

# ---- openclaw ----
#
# OpenClaw's database since 2026.8: the lines of pi's sessions as rows of ``transcript_events``, in the order of ``seq``.
#
# A row has the line in ``event_json``. Since 2026.9.6 ``event_zstd`` has a line of 1 KiB or more, packed with zstandard.
# The columns are those of schema 23, from OpenClaw's tests and from programs of others that read it, and of the database that 2026.9.6
# wrote. What it moved to ``session_transcript_archives`` is not read.

_TABLE = "transcript_events"
_COLUMNS = "session_id seq event_json event_zstd"
_LONGEST_BYTES = 16 << 20
"""The limit of an unpacked row. OpenClaw packs nothing above 4 MiB."""


def is_openclaw(head: SourceHead) -> bool:
    """True if a database has OpenClaw's sessions."""
    return head.has_table(_TABLE, "session_id seq event_json")


def sessions_of(tables: Tables) -> Iterator[tuple[BytesSource, list[ImportFinding]]]:
    """The lines of each session of a database, and the findings about rows that are no line: each is an entry that pi does not know."""
    rows = rows_of(tables, _TABLE, _COLUMNS, "session_id seq")
    for session, found in groupby(rows, key=lambda row: str(row["session_id"])):
        lines, findings = [], []
        for number, row in enumerate(found, 1):
            line, why_not = _line(row)
            lines.append(line + b"\n")
            if why_not is not None:
                why = f"the row {row['seq']} of {_TABLE} {why_not}"
                findings.append(ImportFinding("unreadable-row", why, number))
        yield BytesSource(f"{tables.name}: {session}", b"".join(lines)), findings


def _line(row: dict[str, Any]) -> tuple[bytes, str | None]:
    """The line of a row; for an unreadable row a line that keeps its value, and the reason: nothing is dropped (F6)."""
    said, packed, why_not = row["event_json"], row["event_zstd"], "holds no line"
    if said is None and isinstance(packed, bytes):
        said, why_not = unpacked_zstd(packed, _LONGEST_BYTES)
        why_not = why_not or "holds no line"
    raw = said.encode(errors="surrogatepass") if isinstance(said, str) else said
    if isinstance(raw, bytes) and raw.strip() and b"\n" not in raw:
        return raw, None
    kept = sql_value(raw if isinstance(raw, bytes) or said is not None else packed)
    return orjson.dumps({"type": "unreadable_row", "seq": str(sql_value(row["seq"])), "row": kept}), why_not


# ---- pi blocks ----
#
# pi's messages: one form for every provider, from which each provider's own is built.

COMPACTED = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
)
CAME_BACK = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
"""What pi itself makes of a summary before it sends it (0.73)."""

_SAID = ("user", "developer", "custom", "hookMessage", "toolResult", "compactionSummary", "branchSummary")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_FORMS = {"claude": "claude", "gemini": "gemini", "openai": "openai", "openai-compatible": "openai"}


def provider_of_replies(reply: dict[str, Any]) -> str:
    """The form of a conversation with such a reply: pi names the API, its first files only the provider."""
    return form_by_name(text_in(reply, "api"), text_in(reply, "provider"), text_in(reply, "model"))


def is_said(message: dict[str, Any]) -> bool:
    """True if a model receives it. A reply that failed or was stopped counts with its text; a private command does not."""
    role = message.get("role")
    if role == "assistant":
        return not _is_cut(message) or any(text_in(block, "text").strip() for block in objects(message.get("content")))
    if role == "bashExecution":
        return message.get("excludeFromContext") is not True
    return role in _SAID


def _is_cut(reply: dict[str, Any]) -> bool:
    """True if it failed, or the user stopped it."""
    return reply.get("stopReason") in ("aborted", "error")


def turn_in_pi(message: dict[str, Any]) -> NeutralMessage | None:
    """The message in neutral form; None for an unknown role."""
    content = message.get("content")
    match message.get("role"):
        case "user" | "developer" | "custom" | "hookMessage":
            return NeutralMessage("user", tuple(_said(content)))
        case "assistant":
            blocks = tuple(_block(block, message) for block in objects(content))
            # A call of a reply that was cut has no result, and its thinking no signature.
            cut = tuple(block for block in blocks if isinstance(block, Text) and block.text.strip())
            return NeutralMessage("assistant", cut if _is_cut(message) else blocks)
        case "toolResult":
            number, name = _id(text_in(message, "toolCallId")), text_in(message, "toolName")
            parts = tuple(block for block in _said(content) if isinstance(block, (Text, Media)))
            return NeutralMessage("user", (Result(number, name, parts, failed=message.get("isError") is True),))
        case "bashExecution":
            return NeutralMessage("user", (Text(_ran(message)),))
        case "compactionSummary":
            return NeutralMessage("user", (Text(COMPACTED.format(text_in(message, "summary"))),))
        case "branchSummary":
            return NeutralMessage("user", (Text(CAME_BACK.format(text_in(message, "summary"))),))
    return None


def _said(content: object) -> Iterator[Block]:
    if isinstance(content, str):
        yield Text(content)
    for block in objects(content):
        yield _block(block, {})


def _block(block: dict[str, Any], reply: dict[str, Any]) -> Block:
    match block.get("type"):
        case "text":
            return _text(block, reply)
        case "thinking":
            return _thinking(block, reply)
        case "toolCall":
            return _call(block, reply)
        case "image":
            return Media(text_in(block, "mimeType") or "image/*", text_in(block, "data"))
    return Other()


def _text(block: dict[str, Any], reply: dict[str, Any]) -> Text:
    text = text_in(block, "text")
    if (signature := text_in(block, "textSignature")) and provider_of_replies(reply) == "gemini":
        return Text(text, own={"text": text, "thoughtSignature": signature}, provider="gemini")
    return Text(text)


def _thinking(block: dict[str, Any], reply: dict[str, Any]) -> Thinking:
    text, signature = text_in(block, "thinking"), text_in(block, "thinkingSignature")
    provider = _FORMS[provider_of_replies(reply)]
    if provider == "gemini" and signature:
        own = {"text": text, "thought": True, "thoughtSignature": signature}
        return Thinking(text, signature, own=own, provider=provider)
    if provider == "openai" and signature.startswith("{"):  # an item of the responses API
        try:
            return Thinking(text, signature, own=parse_message(signature.encode()), provider="openai-responses")
        except (InvalidMessageError, UnicodeEncodeError):
            pass
    return Thinking(text, signature, redacted=block.get("redacted") is True, provider=provider)


def _call(block: dict[str, Any], reply: dict[str, Any]) -> Call:
    number, name = _id(text_in(block, "id")), text_in(block, "name")
    arguments = arguments_of(block.get("arguments"))
    signature = text_in(block, "thoughtSignature")
    if signature and provider_of_replies(reply) == "gemini":
        own = {"functionCall": {"id": number, "name": name, "args": arguments}, "thoughtSignature": signature}
        return Call(number, name, arguments, own=own, provider="gemini")
    return Call(number, name, arguments)


def _id(given: str) -> str:
    """An id that every provider accepts, the same for a call and its result. The responses API's has the item's id after a bar."""
    return _ODD.sub("_", given.partition("|")[0])[:64]


def _ran(message: dict[str, Any]) -> str:
    """A command that the user ran, as pi tells it to the model."""
    output = text_in(message, "output")
    text = f"Ran `{text_in(message, 'command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled") is True:
        return text + "\n\n(command cancelled)"
    return f"{text}\n\nCommand exited with code {code}" if (code := message.get("exitCode")) else text


# ---- pi ----

_ENTRIES = ("message", "compaction", "model_change", "thinking_level_change", "branch_summary", "custom_message")
_OF_CLAUDE = ("tool_use", "tool_result")
_OF_OMP = ("title_change", "session_init", "model_usage")


@dataclass(slots=True)
class PiFacts(SessionFacts):
    """Facts that other lines than the header have."""

    chosen_title: str | None = None
    """Overrides the title of any other line."""


class Pi:
    """Reads a session file, or the database that OpenClaw keeps its sessions in."""

    name = "pi"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        return is_openclaw(head) or (any(map(_is_ours, head.objects)) and not any(map(_is_anothers, head.objects)))

    def plans(self, source: Any) -> Iterable[SessionPlan]:
        yield from self._of_lines(source)
        for session, findings in sessions_of(source) if hasattr(source, "columns") else ():
            for plan in self._of_lines(session):
                yield replace(plan, findings=(*findings, *plan.findings))

    def _of_lines(self, source: Source) -> Iterable[SessionPlan]:
        about = _PiAbout(self.learn)
        chain = chain_of(source, about.link_of, last_counts=True)
        if not chain.lines.count:
            return
        replies = [about.replies[link.place] for link in chain.way if link.says and link.place in about.replies]
        provider = replies[-1].provider if replies else provider_of_replies(about.chosen or about.header)
        facts, form, version = about.facts, FORMS[provider_family(provider)], about.header.get("version")
        facts.last(title=facts.chosen_title)
        facts.first(title=_label_beside(source, text_in(about.header, "id")))
        facts.first(session=text_in(about.header, "id") or chain.first, **self.labels_of(about.header))
        facts.first(version=str(version) if isinstance(version, int) else None)
        facts.first(model=replies[-1].model if replies else None)
        said = chain.generations(partial(_made, chain.lines, about.replies, form))
        speaks = any(link.says for link in chain.way)
        yield facts.plan(
            self.name, chain.lines, said, provider if speaks else None, _losses(chain, about.replies, form)
        )

    def learn(self, facts: PiFacts, value: Json) -> None:
        """Note a line's facts of the session."""
        if value.get("type") == "session_info":
            facts.title = first_text(value.get("name"))

    def labels_of(self, header: Json) -> dict[str, str]:
        """The header's labels: the directory, and the session's origin or parent."""
        return labels(cwd=header.get("cwd"), forked_from=_parent_session(header))


def _label_beside(source: Source, session: str) -> str | None:
    """The label that a user gave a session of OpenClaw: in the list beside its sessions."""
    return _labels_in(text_beside(source, "sessions.json")).get(session)


@lru_cache(maxsize=1)
def _labels_in(listed: bytes) -> dict[str, str | None]:
    """The label of each session in a list. Parsed once: the list of a thousand sessions is beside each of them."""
    sessions = list(map(obj, (parse_object(listed) or {}).values()))
    # Of two with one id the first counts.
    return {one["sessionId"]: first_text(one.get("label")) for one in reversed(sessions) if text_in(one, "sessionId")}


class _Reply(NamedTuple):
    """What decides on the form of a conversation with this reply."""

    provider: str
    model: str
    thinks: bool
    """True if it has thinking."""


class _PiAbout:
    """Facts of the session, complete after the last line."""

    def __init__(self, learn: Callable[[PiFacts, Json], None]) -> None:
        self._learn = learn
        self.facts = PiFacts()
        self.header: Json = {}
        self.chosen: Json = {}
        """The last model that the user chose: before the first reply it decides the form."""
        self.replies: dict[int, _Reply] = {}
        """By their places."""
        self._numbers = array("q")
        """The places of the entries, by their number: version 1 names an entry by it."""
        self._known: dict[_Reply, _Reply] = {}

    def link_of(self, place: int, value: Json) -> Link | None:
        self._numbers.append(place)
        self._learn(self.facts, value)
        if value.get("type") == "session":
            self.header = self.header or value
            return None
        if value.get("type") == "model_change":
            self.chosen = value
        message = value.get("message")
        if isinstance(message, dict) and message.get("role") == "assistant":
            thinks = any(block.get("type") == "thinking" for block in objects(message.get("content")))
            reply = _Reply(provider_of_replies(message), text_in(message, "model"), thinks)
            self.replies[place] = self._known.setdefault(reply, reply)  # there may be millions of lines
        link = Link(place, text_in(value, "id"), text_in(value, "parentId"), _is_said(value))
        if value.get("type") == "compaction":
            link.begins, link.kept_from = True, self._kept(value)
        return link

    def _kept(self, value: Json) -> str | int:
        """The id of the first entry that a compaction kept; in version 1 its place, or -1 if there is no such entry."""
        number = value.get("firstKeptEntryIndex")
        if (named := text_in(value, "firstKeptEntryId")) or type(number) is not int or number < 0:
            return named
        if number == 0 and self.header:
            return ""  # the number of the header: no entry was kept
        return self._numbers[number] if number < len(self._numbers) else -1


def _is_ours(value: dict[str, Any]) -> bool:
    """True for the header or an entry: a crash may tear the header."""
    kind = text_in(value, "type")
    if kind == "session":
        return isinstance(value.get("id"), str) and ("cwd" in value or "version" in value)
    is_entry = kind in _ENTRIES and value.keys() >= {"id", "parentId", "timestamp"}
    return is_entry and (kind != "message" or isinstance(value.get("message"), dict))


def _is_anothers(value: dict[str, Any]) -> bool:
    """True if only a program writes it that took over the entries and not the messages: Factory Droid has Claude's blocks."""
    has_blocks = any(block.get("type") in _OF_CLAUDE for block in objects(obj(value.get("message")).get("content")))
    return has_blocks or is_omp(value) or value.get("type") == "session_start"


def is_omp(value: dict[str, Any]) -> bool:
    """True if only omp writes it: the line of the title, a header with the title's source, an entry that pi does not have."""
    kind = value.get("type")
    if kind == "title":
        return "pad" in value
    if kind == "session":
        return "titleSource" in value or "providerPromptCacheKey" in value
    if kind == "custom":
        return value.get("customType") == "tool_execution_start"
    if kind == "model_change":
        return "model" in value and "modelId" not in value
    return kind in _OF_OMP and value.keys() >= {"id", "parentId", "timestamp"}


def _is_said(value: dict[str, Any]) -> bool:
    """True if a model receives the entry. Its content is checked later."""
    kind, message = value.get("type"), value.get("message")
    if kind == "message" and isinstance(message, dict):
        return is_said(message)
    return kind in ("custom_message", "compaction") or (kind == "branch_summary" and bool(value.get("summary")))


def _turn(value: dict[str, Any]) -> NeutralMessage | None:
    """The message of an entry; None if it has none."""
    match value.get("type"):
        case "message" if isinstance(value.get("message"), dict):
            return turn_in_pi(value["message"])
        case "custom_message":
            return turn_in_pi({**value, "role": "custom"})
        case "compaction":
            return turn_in_pi({**value, "role": "compactionSummary"})
        case "branch_summary":
            return turn_in_pi({**value, "role": "branchSummary"})
    return None


def _made(
    lines: KeptLines, replies: dict[int, _Reply], form: Form, said: TreeMessage[Link], taken_over: bool
) -> Iterator[PlannedRecord]:
    """The messages of an entry; an event if this provider has no place for anything in it."""
    (link,) = said.nodes
    line = lines[link.place]
    value = line.value or {}
    turn = _turn(value) if link.says else None
    messages = [] if turn is None else as_said(turn, form)
    if not messages:
        yield from () if taken_over else lines.event(link.place)
        return
    about = _about(value["message"]) if link.place in replies else _injected(value, turn)
    if turn is not None and not form.marks_failures and any(isinstance(b, Result) and b.failed for b in turn.blocks):
        about["failed"] = True
    at = text_in(value, "timestamp") or None
    packed = [] if taken_over else [pack_line(line.number, line.raw, line.value, messages[0], part=line.part)]
    yield PlannedRecord(messages[0], {**about, "source": {"lines": packed}}, at, () if taken_over else (line.number,))
    for message in messages[1:]:  # what a result shows, where the provider's results hold text alone
        yield PlannedRecord(message, {"source": {"lines": []}}, at)


def _injected(value: dict[str, Any], turn: NeutralMessage | None) -> dict[str, Any]:
    """The mark of what pi or an extension wrote in the user's name, and of a compaction's summary."""
    kind = value.get("type")
    role = value["message"].get("role") if isinstance(value.get("message"), dict) else kind
    if turn is None or turn.role != "user" or role == "toolResult":
        return {}
    if role == "bashExecution":
        return marked(f"! {text_in(value['message'], 'command')}")
    if role in ("user", "developer"):
        return marked(PI.typed_of(block.text for block in turn.blocks if isinstance(block, Text)))
    return {**marked("", is_said=True), **({"compaction": True} if kind == "compaction" else {})}


def _about(reply: dict[str, Any]) -> dict[str, Any]:
    """What belongs to a reply and is not sent, under the names that the library reads. pi counts cached tokens apart."""
    names = {"responseId": "response_id", "model": "model", "stopReason": "stop_reason"}
    about: dict[str, Any] = {ours: reply[theirs] for theirs, ours in names.items() if text_in(reply, theirs)}
    usage = reply.get("usage")
    if isinstance(usage, dict):
        counts = {"input": "input_tokens", "output": "output_tokens"}
        counts |= {"cacheRead": "cache_read_input_tokens", "cacheWrite": "cache_creation_input_tokens"}
        about["usage"] = {ours: usage[theirs] for theirs, ours in counts.items() if type(usage.get(theirs)) is int}
        if cost := cost_in(usage):
            about["usage"]["cost"] = cost
    return about


def _losses(chain: Chain, replies: dict[int, _Reply], form: Form) -> Losses:
    losses = Losses()
    for link in chain.way:
        thinks = link.says and link.place in replies and replies[link.place].thinks
        turn = _turn(chain.lines[link.place].value or {}) if thinks else None
        for block in turn.blocks if turn is not None else ():
            if isinstance(block, Thinking) and not form.holds(block, "assistant"):
                losses.note("thinking", LOST_THINKING)
    return losses


def _parent_session(header: dict[str, Any]) -> str:
    """The id in the name of the file that a session was branched from: ``<time>_<id>.jsonl``."""
    path = text_in(header, "parentSession", "branchedFrom")
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]


# ---- pi writer ----
#
# A conversation as a new session of pi, which ``pi --session`` continues: the third version of its files.

_APIS = {
    "claude": ("anthropic-messages", "anthropic"),
    "gemini": ("google-generative-ai", "google"),
    "openai": ("openai-completions", "openai"),
    "openai-responses": ("openai-responses", "openai"),
}
_STOPS = ("stop", "length", "toolUse")


class PiForm(ProgramForm):
    """The form of pi's messages. They name the provider of thinking, so all thinking is kept."""

    name = "pi"

    def holds(self, block: Block, role: Role) -> bool:
        if isinstance(block, Thinking):
            return role == "assistant" and bool(block.text or block.signature)
        if isinstance(block, Media):
            return role == "user" and block.data is not None and block.type.startswith("image/")
        return not isinstance(block, Other)

    def messages_of(self, turn: NeutralMessage) -> Sequence[dict[str, Any]]:
        if turn.role == "assistant":
            return [{"role": "assistant", "content": [_written_block(block) for block in turn.blocks]}]
        results = [block for block in turn.blocks if isinstance(block, Result)]
        rest = [_written_block(block) for block in turn.blocks if not isinstance(block, Result)]
        messages = [self._result(result) for result in results]
        return [*messages, {"role": "user", "content": rest}] if rest else messages

    def _result(self, result: Result) -> dict[str, Any]:
        content = [_written_block(part) for part in result.content if self.holds(part, "user")]
        about = {"role": "toolResult", "toolCallId": result.id, "toolName": result.name}
        return {**about, "content": content, "isError": result.failed}


class PiWriter:
    """Writes sessions of pi."""

    name = "pi"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.SessionWriter`."""
        losses, form = Losses(), PiForm()
        lines: list[dict[str, Any]] = []
        for turn, extra, at in arranged_records(records, metadata, form, losses, now):
            for message in form.messages_of(turn):
                about = _about_reply(turn, extra, metadata) if turn.role == "assistant" else {}
                moment = {"timestamp": int(datetime.fromisoformat(at).timestamp() * 1000)}
                lines.append({"type": "message", "timestamp": at, "message": {**message, **about, **moment}})
        if not lines:
            raise ValueError("the conversation has no message that could be sent")
        if title := metadata.labels.get("title"):
            lines.append({"type": "session_info", "timestamp": at, "name": title})
        header = {"type": "session", "version": 3, "id": session, "timestamp": now, "cwd": cwd}
        entries = [{**line, **_place(number)} for number, line in enumerate(lines)]
        data = b"".join(map(json_line, (header, *entries)))
        folder = cwd.removeprefix("/").replace("/", "-").replace("\\", "-").replace(":", "-")
        name = f"{now.replace(':', '-').replace('.', '-')}_{session}.jsonl"
        return WrittenSession(((f"sessions/--{folder}--/{name}", data),), f"pi --session {session}", losses.found())


def _place(number: int) -> dict[str, Any]:
    return {"id": f"{number:08x}", "parentId": f"{number - 1:08x}" if number else None}


def _about_reply(turn: NeutralMessage, extra: dict[str, Any], metadata: ConversationMetadata) -> dict[str, Any]:
    family = form_family(metadata.provider or "")
    items = any(block.provider == "openai-responses" for block in turn.blocks)
    api, provider = _APIS["openai-responses" if items else family] if family in _APIS else _APIS["openai"]
    usage = extra.get("usage")
    tokens = tokens_in(usage if isinstance(usage, dict) else {})
    counts = {"input": tokens.input or 0, "output": tokens.output or 0, "cacheRead": 0, "cacheWrite": 0}
    stop = text_in(extra, "stop_reason")
    calls = any(isinstance(block, Call) for block in turn.blocks)
    return {
        "api": api,
        "provider": metadata.provider if metadata.provider == "openai-compatible" else provider,
        "model": text_in(extra, "model") or metadata.model or "unknown",
        "usage": {**counts, "totalTokens": tokens.total or 0, "cost": dict.fromkeys((*counts, "total"), 0)},
        "stopReason": stop if stop in _STOPS else "toolUse" if calls else "stop",
    }


def _written_block(block: Block) -> dict[str, Any]:
    own = block.own if block.provider == "gemini" and block.own is not None else {}
    signature = text_in(own, "thoughtSignature", "thought_signature")
    match block:
        case Text(text=text):
            return {"type": "text", "text": text, **({"textSignature": signature} if signature else {})}
        case Thinking(text=text):
            return {"type": "thinking", "thinking": text, **_signed(block)}
        case Call():
            call = {"type": "toolCall", "id": block.id, "name": block.name, "arguments": block.arguments}
            return {**call, "thoughtSignature": signature} if signature else call
        case Media(type=kind, data=data):
            return {"type": "image", "data": data, "mimeType": kind}
    raise TypeError(f"pi has no place for {type(block).__name__}")  # holds() was not asked


def _signed(thinking: Thinking) -> dict[str, Any]:
    if thinking.provider == "openai-responses" and thinking.own is not None:
        return {"thinkingSignature": json.dumps(thinking.own, ensure_ascii=False, separators=(",", ":"))}
    signed: dict[str, Any] = {"thinkingSignature": thinking.signature} if thinking.signature else {}
    return {**signed, "redacted": True} if thinking.redacted else signed


# ---- omp ----
#
# omp (Oh My Pi), a fork of pi: pi's entries after a first line ``title`` of a fixed length, which is rewritten in place.
#
# Differences from pi, in files of 18.2.3:
#
# * the title: the first line's, or the last ``title_change``; the header keeps the first one;
# * a session's ``parentSession`` is an id in a fork, and the path of the parent's file in a sub-agent's file;
# * ``session_init`` has the system prompt, ``model_change`` one name for provider and model; ``developer`` is the program in the
#   user's name;
# * a sentence replaces the result of a file that was read again later. So the file does not only grow: an earlier import becomes an
#   earlier generation.


class Omp(Pi):
    """Reads a session file of omp."""

    name = "omp"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(is_omp, head.objects))

    def learn(self, facts: PiFacts, value: Json) -> None:
        match value.get("type"):
            case "title":
                facts.chosen_title = text_in(value, "title")
            case "title_change" | "session":
                facts.last(title=value.get("title"))
            case "session_init":
                facts.last(system_prompt=value.get("systemPrompt"))

    def labels_of(self, header: Json) -> dict[str, str]:
        parent = text_in(header, "parentSession").replace("\\", "/")
        name = parent.rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]
        return labels(cwd=header.get("cwd"), **({"part_of": name} if "/" in parent else {"forked_from": parent}))
