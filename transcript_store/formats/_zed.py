"""Zed's own agent: ``threads/threads.db``, a row of ``threads`` for each thread, whose ``data`` is JSON, mostly packed with zstandard.

* Version 0.3.0: ``messages`` are ``{"User": {"id", "content"}}``, ``{"Agent": {"content", "tool_results"}}`` and ``"Resume"``; a piece of
  content is ``{"Text": …}``, ``{"Thinking": {…}}``, ``{"ToolUse": {…}}``, ``{"Mention": {"uri", "content"}}`` or ``{"Image": {"source"}}``.
* Version 0.2.0: ``{"role", "segments", "tool_uses", "tool_results", "context"}``.

No message has a time: the thread's first has that of its creation, and the last that of its last change. ``request_token_usage`` has the
tokens by the id of the user's message.

Source: files in the tests of others, for zed-industries/zed @f14fea9b. It was not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, counts_of, first_text, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of
from transcript_store.formats._plan import ImportFinding, SessionPlan, SourceHead, Tables
from transcript_store.formats._replay import Draft, Replay, facts_of
from transcript_store.formats._rows import row_line, rows_of, unpacked_zstd
from transcript_store.formats._scaffolding import marked

_COLUMNS = "id parent_id summary created_at updated_at folder_paths data_type data"
_LONGEST_BYTES = 256 << 20
_COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Zed:
    """Reads the threads of Zed."""

    name = "zed"

    def recognizes(self, head: SourceHead) -> bool:
        return head.has_table("threads", "id summary data_type data")

    def plans(self, source: Tables) -> Iterable[SessionPlan]:
        for row in rows_of(source, "threads", _COLUMNS, "created_at updated_at id"):
            if (session := first_text(row["id"])) is not None:
                yield _plan(session, row)


def _plan(session: str, row: Json) -> SessionPlan:
    thread, why_not = _thread(row)
    findings = [ImportFinding("unreadable-row", f"the thread {session} {why_not}", 1)] if thread is None else []
    thread = thread or {}
    given = thread.get("messages")
    messages = given if isinstance(given, list) else []
    head = {name: value for name, value in row.items() if name != "data" or findings}
    about = {name: value for name, value in thread.items() if name != "messages"}
    lines = [row_line(1, {**head, "thread": about})]
    lines += [row_line(number, {"message": one}) for number, one in enumerate(messages, 2)]
    dialogue, usage = Dialogue(), obj(thread.get("request_token_usage"))
    drafts = list(_drafts(dialogue, lines, usage, first_text(row["created_at"]), first_text(row["updated_at"])))
    model, folders = obj(thread.get("model")), first_text(row["folder_paths"]) or ""
    facts = facts_of(
        session=session,
        version=thread.get("version"),
        model=model.get("model"),
        title=first_text(thread.get("title"), row["summary"]),
        cwd=folders.splitlines()[0] if folders.startswith("/") else None,
        part_of=row["parent_id"],
    )
    said = Replay((lambda: [draft.entry() for draft in drafts],), tuple(findings))
    return facts.plan(Zed.name, lines, said, dialogue.provider, dialogue.losses, edition=("", ""))


def _thread(row: Json) -> tuple[Json | None, str]:
    data, why_not = row["data"], "holds no JSON object"
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    if row["data_type"] == "zstd" and isinstance(raw, bytes):
        raw, why = unpacked_zstd(raw, _LONGEST_BYTES)
        why_not = why or why_not
    return parse_object(raw) if isinstance(raw, bytes) else None, why_not


def _drafts(
    dialogue: Dialogue, lines: list[SourceLine], usage: Json, created: str | None, updated: str | None
) -> Iterator[Draft]:
    dialogue.event(lines[0], at=created)
    at, asked = created, ""
    for line in lines[1:]:
        message = (line.value or {}).get("message")
        user, agent = obj(obj(message).get("User")), obj(obj(message).get("Agent"))
        role, at = obj(message).get("role"), updated if line is lines[-1] else at
        if user or role == "user":
            asked = text_in(user, "id")
            _prompt(dialogue, line, user or obj(message), at)
        elif agent or role == "assistant":
            counts = {
                name: count
                for name, count in counts_of(obj(usage.get(asked)), dict(zip(_COUNTED, _COUNTED, strict=True))).items()
                if count
            }
            _reply(dialogue, line, agent or obj(message), at, {"usage": counts})
            asked = ""
        else:
            dialogue.event(line, at=at)
        at = None
    yield from dialogue.take()


def _prompt(dialogue: Dialogue, line: SourceLine, message: Json, at: str | None) -> None:
    added = [
        Text(text_in(obj(one.get("Mention")), "content")) for one in objects(message.get("content")) if "Mention" in one
    ]
    added += [Text(text_in(message, "context"))]
    said = _blocks(message)
    results = _results(message)
    typed = "\n\n".join(block.text for block in said if isinstance(block, Text))
    has_more = any(block.text for block in added)
    draft = dialogue.user([*said, *added], line, at, marked(typed if has_more else None, is_said=True))
    for result in results:  # of version 0.2.0
        dialogue.result(result, None, draft.at)


def _reply(dialogue: Dialogue, line: SourceLine, message: Json, at: str | None, extra: Json) -> None:
    dialogue.reply(_blocks(message), line, at, extra, key=str(line.number))
    for result in _results(message):
        dialogue.result(result, None, at)


def _blocks(message: Json) -> list[Block]:
    found: list[Block] = []
    for one in [*objects(message.get("content")), *objects(message.get("segments"))]:
        thought = obj(one.get("Thinking")) or (one if one.get("type") == "thinking" else {})
        if said := text_in(one, "Text") or (text_in(one, "text") if one.get("type") == "text" else ""):
            found.append(Text(said))
        elif thought:
            found += [thinking(text_in(thought, "text"))] if text_in(thought, "text") else []
        elif used := obj(one.get("ToolUse")):
            found.append(_call(used))
        elif image := obj(one.get("Image")):
            found.append(Media("image/png", first_text(image.get("source"))))
    return [*found, *(_call(one) for one in objects(message.get("tool_uses")))]


def _call(used: Json) -> Call:
    given = used.get("input", used.get("raw_input"))
    if isinstance(given, dict) and given.get("type") == "json" and isinstance(given.get("value"), dict):
        given = given["value"]
    return Call(text_in(used, "id"), text_in(used, "name"), arguments_of(given))


def _results(message: Json) -> list[Result]:
    given: Any = message.get("tool_results")
    found = objects(list(given.values()) if isinstance(given, dict) else given)
    return [
        Result(text_in(one, "tool_use_id"), text_in(one, "tool_name"), _shown(one), failed=one.get("is_error") is True)
        for one in found
    ]


def _shown(result: Json) -> tuple[Text | Media, ...]:
    content = result.get("content")
    if isinstance(content, str):
        return (Text(content),)
    blocks = _blocks({"content": content if isinstance(content, list) else [content]})
    return tuple(block for block in blocks if isinstance(block, (Text, Media)))
