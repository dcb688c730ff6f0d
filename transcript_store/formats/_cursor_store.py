"""The ``store.db`` of Cursor's agent: blobs by their SHA-256. Some are messages in JSON, the others a graph in protobuf.

``meta`` has under ``0`` the hex of a JSON object {agentId, latestRootBlobId, name, createdAt, lastUsedModel}. Field 1 of the root
blob names the messages of the context, in order. Messages that it no longer names, because they were taken back or compacted, are
kept as a branch that was left. The graph has nothing more, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from transcript_store.formats._cursor_blocks import CURSOR, claude_blocks, merged, missing_messages, tied
from transcript_store.formats._document import parse_object
from transcript_store.formats._facts import facts_of
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, count_member, first_text, obj, text_member
from transcript_store.formats._messages_api import named_provider, said_drafts, turn_in, walked
from transcript_store.formats._neutral import Losses
from transcript_store.formats._plan import ImportFinding, SessionPlan, SourceHead
from transcript_store.formats._replay import Draft, Steps
from transcript_store.formats._rows import rows_of, text_line
from transcript_store.formats._scaffolding import marked, texts_in
from transcript_store.formats._times import time_in_ms, time_of_member
from transcript_store.formats._trees import left_draft

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
    return (_about(row["value"]) for row in rows_of(source, "meta", ("key", "value"), ("key",), {"key": "0"}))


def store_plans(source: Any) -> Iterable[SessionPlan]:
    """The session of a database, if it is one."""
    about = next(_abouts(source), {})
    messages: dict[str, tuple[SourceLine, Json]] = {}
    for row in rows_of(source, "blobs", ("id", "data"), ("id",)):
        value = _message(row["data"])
        if value is not None:
            messages[str(row["id"])] = (text_line(0, row["data"]), value)
    if not messages and not about:
        return
    rows = rows_of(source, "blobs", ("data",), ("id",), {"id": about.get("latestRootBlobId")})
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
    models = [model for one in reversed(there) if (model := _model(values[one]))]
    model = models[0] if models else text_member(about.get("lastUsedModel"))
    provider = named_provider(None, model)
    arguments = (order, left, lines, values, provider, time_in_ms(about.get("createdAt")))
    said, losses = walked(source, partial(_walk, *arguments))
    folders = (found.decode(errors="replace") for number, found in fields if number == _WORKSPACE)
    places = [folder.removeprefix("file://") for folder in folders]
    facts = facts_of(
        session=text_member(about.get("agentId")) or next(iter(order), "store"),
        model=model,
        system_prompt=first_text(*(_prompt(values[one]) for one in there)),
        title=about.get("name"),
        cwd=first_text(about.get("workspacePath"), *places),
    )
    speaks = any(values[one].get("role") in _SPEAKERS for one in order)
    its = provider if speaks else None
    yield facts.plan("cursor", len(lines), said, its, losses, findings=findings, left=len(left))


def _walk(
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
        about = {"model": _model(value)} if role == "assistant" else _typed(value, content)
        drafts = said_drafts(turn_in({"role": role, "content": content}, provider), provider, about, at, line, losses)
        yield from map(left_draft, drafts) if one in left else drafts


def _typed(value: Json, content: list[Json]) -> Json:
    return marked(CURSOR.typed_of(texts_in(content))) if value["role"] == "user" else {}


def _model(value: Json) -> str | None:
    return text_member(obj(obj(value.get("providerOptions")).get("cursor")).get("modelName"))


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
