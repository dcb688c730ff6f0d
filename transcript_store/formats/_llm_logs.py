"""``llm``'s logs, a SQLite file that may have both generations of its schema.

* from 0.33: ``threads``, each a chain of ``messages`` back from ``tip_message_hash`` by ``parent_hash``, with their ``parts``.
  Forked threads share rows, and each has them. ``turns`` have the model and its cost.
* before: ``responses``, each with its prompt, of one of ``conversations`` or of none; ``tool_results`` were sent with the prompt.

Texts in ``fragments``, and ``attachments``, are inserted at their place. A line of this format is a message with its parts, or a
response with its rows.

Source: ``llm/migrations.py``, ``llm/logs.py`` and ``llm/parts.py`` of llm 0.36.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from transcript_store.formats._arranging import FORMS
from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._document import parse_object, why_unread
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, counts_of, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, Role, arguments_of
from transcript_store.formats._neutral_lines import NeutralLine, neutral_records
from transcript_store.formats._plan import ImportFinding, PlannedRecord, SessionPlan, SourceHead, Tables
from transcript_store.formats._replay import facts_of
from transcript_store.formats._rows import as_texts, row_line, rows_of, sql_time, sql_value

_COST = "input_tokens output_tokens token_details datetime_utc"
_RESPONSE = f"id conversation_id model resolved_model system prompt response reasoning options_json {_COST}"
_TURN = f"id thread_id tip_message_hash model resolved_model {_COST}"
_THREAD = "id name tip_message_hash forked_from datetime_utc"
_PART = "message_hash position type tool_name text payload"
_CALL = "response_id id name arguments tool_call_id"
_RESULT = "response_id id name output tool_call_id exception"


class LlmLogs:
    """Reads the logs of ``llm``."""

    name = "llm"
    revision = 3

    def recognizes(self, head: SourceHead) -> bool:
        threads = head.has_table("threads", "id tip_message_hash")
        return threads or head.has_table("responses", "prompt response conversation_id")

    def plans(self, source: Tables) -> Iterable[SessionPlan]:
        stored = _Stored(source)
        yield from (_thread(stored, row) for row in rows_of(source, "threads", _THREAD, "id"))
        # The conversation of each response first; their content, a conversation at a time.
        sessions: dict[str, list[Any]] = defaultdict(list)
        for row in rows_of(source, "responses", "id conversation_id", "datetime_utc id"):
            sessions[str(row["id"] if row["conversation_id"] is None else row["conversation_id"])].append(row["id"])
        for session, numbers in sessions.items():
            rows = [row for number in numbers for row in stored.having("responses", _RESPONSE, id=number)]
            names = stored.having("conversations", "name", id=session)
            findings: list[ImportFinding] = []
            steps = [_response_step(stored, number, row, findings) for number, row in enumerate(rows, 1)]
            yield _plan(session, first_text(names[-1]["name"]) if names else None, None, rows, steps, findings)


class _Stored:
    """Looks up the rows that a session refers to, by the program's own indexes.

    Where the program has no index, this holds the keys alone.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._turns: dict[Any, dict[Any, Any]] = defaultdict(dict)
        for row in rows_of(tables, "turns", "thread_id tip_message_hash id", "datetime_utc id"):
            self._turns[row["tip_message_hash"]][row["thread_id"]] = row["id"]
        self._calls = self._ids("tool_calls", "response_id", "id")
        self._results = self._ids("tool_results", "response_id", "id")

    def _ids(self, table: str, key: str, order: str) -> dict[Any, list[Any]]:
        """The ids of the rows by another column."""
        found: dict[Any, list[Any]] = defaultdict(list)
        for row in rows_of(self._tables, table, f"{key} id", f"{order} id"):
            found[row[key]].append(row["id"])
        return found

    def having(self, table: str, columns: str, order: str = "id", **where: object) -> list[Json]:
        """The rows that have these values."""
        return list(rows_of(self._tables, table, columns, order, where))

    def message(self, number: Any) -> Json | None:
        found = self.having("messages", "hash parent_hash role", hash=number)
        return found[-1] if found else None

    def turn(self, tip: Any, thread: Any) -> Json | None:
        """The last turn that ended with this message.

        A hash is that of the texts, so two threads that began alike have the same messages: the thread's own turn counts. A forked
        thread has none for what it shares.
        """
        numbers = self._turns.get(tip, {})
        number = numbers.get(thread, next(reversed(numbers.values()), None))
        return next(iter(self.having("turns", _TURN, id=number)), None) if number is not None else None

    def calls(self, response: Any) -> list[Json]:
        return [row for key in self._calls.get(response, ()) for row in self.having("tool_calls", _CALL, id=key)]

    def results(self, response: Any) -> list[Json]:
        return [row for key in self._results.get(response, ()) for row in self.having("tool_results", _RESULT, id=key)]

    def fragments(self, table: str, response: Any) -> list[Json]:
        """Of ``prompt_fragments`` or ``system_fragments``: which ones."""
        return self.having(table, "response_id fragment_id order", "order", response_id=response)

    def fragment(self, number: object) -> str:
        found = self.having("fragments", "content", id=number) if isinstance(number, (int, str)) else ()
        return next((first_text(row["content"]) or "" for row in found), "")

    def media(self, name: object) -> Media | None:
        known = "type path url content"
        found = self.having("attachments", known, id=name) if isinstance(name, (int, str)) else []
        if not found:
            return None
        row = found[-1]
        data = base64.b64encode(row["content"]).decode() if isinstance(row["content"], bytes) else None
        # The path is on the user's machine, so it is not an address that could be sent.
        own, kind = {"path": row["path"]}, first_text(row["type"]) or "image/*"
        return Media(kind, data, first_text(row["url"]), own=own, provider=LlmLogs.name)


def _thread(stored: _Stored, thread: Json) -> SessionPlan:
    chain, findings = _chain(stored, thread["tip_message_hash"])
    ended = [stored.turn(row["hash"], thread["id"]) for row in chain]
    times = [sql_time(turn["datetime_utc"]) for turn in _next(ended)]
    known = enumerate(zip(chain, ended, times, strict=True), 1)
    steps = [_message_step(stored, number, row, turn or {}, at, findings) for number, (row, turn, at) in known]
    turns = [turn for turn in ended if turn is not None]
    name, parent = first_text(thread["name"]), first_text(thread["forked_from"])
    return _plan(str(thread["id"]), name, parent, turns, steps, findings)


def _chain(stored: _Stored, tip: Any) -> tuple[list[Json], list[ImportFinding]]:
    """The messages back from the tip, the oldest first."""
    chain: list[Json] = []
    seen: set[Any] = set()
    while tip is not None:
        row = None if tip in seen else stored.message(tip)
        if row is None:
            what = "comes again: the chain is a circle" if tip in seen else "is not there"
            message = f"the message {tip}, which another names as its parent, {what}"
            return chain[::-1], [ImportFinding("broken-chain", message)]
        seen.add(tip)
        chain.append(row)
        tip = row["parent_hash"]
    return chain[::-1], []


def _next(ended: list[Json | None]) -> list[Json]:
    """The turn of each message: the first one that ends with it or later."""
    found: list[Json] = []
    turn: Json = {"datetime_utc": None}
    for own in reversed(ended):
        turn = own or turn
        found.append(turn)
    return found[::-1]


def _message_step(
    stored: _Stored, number: int, row: Json, turn: Json, at: str | None, findings: list[ImportFinding]
) -> NeutralLine:
    parts = stored.having("parts", _PART, "position", message_hash=row["hash"])
    findings += _unreadable(parts, number)
    line = row_line(number, {**row, "parts": parts, **({"turn": turn} if turn else {})})
    blocks = [block for part in parts for block in _part(stored, part)]
    roles: dict[Any, Role] = {"assistant": "assistant", "system": "system"}
    role = roles.get(row["role"], "user")
    return _said(line, [(role, blocks)], _about(turn), at)


def _unreadable(parts: list[Json], number: int) -> Iterator[ImportFinding]:
    """Findings about parts whose payload cannot be read: only their text is sent."""
    for part in parts:
        if _json(part["payload"]) is None:
            where = f"the payload of the part {part['position']} of the message {part['message_hash']}"
            given = part["payload"]
            raw = given.encode(errors="surrogatepass") if isinstance(given, str) else given
            otherwise = f"{where} holds no JSON object: it is kept, and not sent"
            yield ImportFinding(*why_unread(raw if isinstance(raw, bytes) else b"", f"{where} is", otherwise), number)


def _part(stored: _Stored, part: Json) -> Iterator[Block]:
    payload = _json(part["payload"])
    if payload is None:
        if said := first_text(part["text"]):
            yield Thinking(said) if part["type"] == "reasoning" else Text(said)
        return
    name, number = first_text(payload.get("name"), part["tool_name"]) or "", text_in(payload, "tool_call_id")
    said = first_text(part["text"]) or _joined(stored, payload)
    if part["type"] == "text":
        yield Text(said)
    elif part["type"] == "reasoning":
        yield Thinking(said)
    elif part["type"] == "tool_call":
        yield Call(number, name, arguments_of(payload.get("arguments")))
    elif part["type"] == "tool_result":
        found = [stored.media(obj(each).get("id")) for each in objects(payload.get("attachments"))]
        yield _result(number, name, payload, [media for media in found if media is not None])
    elif part["type"] == "attachment" and (media := stored.media(obj(payload.get("attachment")).get("id"))) is not None:
        yield media


def _joined(stored: _Stored, payload: Json) -> str:
    """A text whose pieces are in fragments."""
    pieces = objects(payload.get("text_ref"))
    return "".join(first_text(piece.get("literal")) or stored.fragment(piece.get("fragment")) for piece in pieces)


def _result(number: str, name: str, row: Json, media: list[Media]) -> Result:
    said = [Text(row["output"])] if first_text(row.get("output")) else []
    return Result(number, name, (*said, *media), failed=first_text(row.get("exception")) is not None)


def _response_step(stored: _Stored, number: int, row: Json, findings: list[ImportFinding]) -> NeutralLine:
    key = row["id"]
    calls, results, fragments = stored.calls(key), stored.results(key), stored.fragments("prompt_fragments", key)
    hangs = {"tool_calls": calls, "tool_results": results, "fragments": fragments}
    line = row_line(number, {**row, **{kind: found for kind, found in hangs.items() if found}})
    row = as_texts(row, findings, number)
    calls, results = ([as_texts(one, findings, number) for one in found] for found in (calls, results))
    asked: list[Block] = [_result(text_in(one, "tool_call_id"), text_in(one, "name"), one, []) for one in results]
    pieces = [stored.fragment(each["fragment_id"]) for each in fragments]
    asked.append(Text("\n".join(piece for piece in (*pieces, text_in(row, "prompt")) if piece)))
    named = "response_id attachment_id order"
    for each in stored.having("prompt_attachments", named, "order", response_id=key):
        asked += [media] if (media := stored.media(each["attachment_id"])) is not None else []
    said: list[Block] = [Thinking(text_in(row, "reasoning")), Text(text_in(row, "response"))]
    for call in calls:
        given = arguments_of(sql_value(call["arguments"]))
        said.append(Call(text_in(call, "tool_call_id"), text_in(call, "name"), given))
    system = [stored.fragment(each["fragment_id"]) for each in stored.fragments("system_fragments", key)]
    prompt = "\n".join(piece for piece in (*system, text_in(row, "system")) if piece)
    said_by: list[tuple[Role, list[Block]]] = [("system", [Text(prompt)]), ("user", asked), ("assistant", said)]
    return _said(line, said_by, _about(row), sql_time(row["datetime_utc"]))


def _said(line: SourceLine, said: list[tuple[Role, list[Block]]], about: Json, at: str | None) -> NeutralLine:
    """The line with its messages. The system prompt, which each request repeats, is on it and is not a message."""
    turns = [(NeutralMessage(role, tuple(blocks)), about if role == "assistant" else {}) for role, blocks in said]
    return NeutralLine([line], turns, at)


def _plan(
    session: str,
    name: str | None,
    parent: str | None,
    turns: list[Json],
    steps: list[NeutralLine],
    findings: list[ImportFinding],
) -> SessionPlan:
    model = first_text(*(named for turn in reversed(turns) for named in (turn["resolved_model"], turn["model"])))
    provider = provider_of_model(model or "")
    losses = Losses()
    said = sum(entry.message is not None for entry in _entries(steps, provider, losses))
    systems = (turn.blocks for step in steps for turn, _ in step.said if turn.role == "system")
    prompts = (block.text for blocks in systems for block in blocks if isinstance(block, Text))
    facts = facts_of(session=session, model=model, system_prompt=first_text(*prompts), title=name, forked_from=parent)
    records = partial(_entries, steps, provider)
    return facts.plan(LlmLogs.name, len(steps), records, provider if said else None, losses, findings=findings)


def _entries(steps: list[NeutralLine], provider: str, losses: Losses | None = None) -> Iterator[PlannedRecord]:
    said = [replace(step, said=[one for one in step.said if one[0].role != "system"]) for step in steps]
    return neutral_records(said, FORMS[provider], losses or Losses())


def provider_of_model(model: str) -> str:
    """The form of a model, by its name. ``llm`` has a hundred plugins; most servers use chat completions."""
    return next((provider for provider in ("claude", "gemini") if provider in model.lower()), "openai")


def _about(row: Json) -> Json:
    counts = counts_of(row, {"input_tokens": "input_tokens", "output_tokens": "output_tokens"})
    usage = (_json(row.get("token_details")) or {}) | counts if counts else {}
    return present(model=first_text(row.get("resolved_model"), row.get("model")), usage=usage)


def _json(value: object) -> Json | None:
    """The object in a column; empty for an empty column, None if it cannot be read."""
    if value is None or value == "":
        return {}
    if isinstance(value, (str, bytes)):
        return parse_object(value if isinstance(value, bytes) else value.encode(errors="surrogatepass"))
    return value if isinstance(value, dict) else None
