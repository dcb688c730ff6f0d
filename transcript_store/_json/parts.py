"""Which parts does a message show, where does a turn start, and which calls and results belong together?

The known forms are Claude (``content`` blocks with ``tool_use`` and ``tool_result``), OpenAI chat completions
(``tool_calls``, role ``tool``) and responses (``function_call``, ``function_call_output``), Gemini (``parts`` with
``functionCall`` and ``functionResponse``), pydantic-ai (``parts`` with a ``part_kind``), and the variants of agents.
Content in an unknown form is shown as JSON, so any JSON value can be shown. Signatures of blocks are not shown;
``--json`` prints the whole message.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from transcript_store._json.pydantic_ai import in_claude_form, role_in
from transcript_store._json.times import is_time

Kind = Literal["text", "thinking", "call", "result", "media", "document", "other", "besides"]


class Part(NamedTuple):
    """One part of a message. ``title`` names the part; it is empty for plain text. For a document (text that was pasted
    or attached, not typed) it is the document's name.
    """

    kind: Kind
    title: str
    text: str


PROMPT_ROLES = ("system", "developer")
"""The roles of a prompt."""

# Each tuple lists the names that one member has in the known forms. The first one that is present is used.
_CALL_TYPES = frozenset({"tool_use", "toolCall", "tool_call", "function_call", "server_tool_use", "mcp_tool_use"})
_ARGUMENTS = ("input", "arguments", "args")
_RESULT_IDS = ("tool_use_id", "tool_call_id", "toolCallId")
_RESULT_TEXTS = ("content", "output", "response", "result")
_THINKING = ("thinking", "reasoning_content", "reasoning", "summary", "text")
_MEDIA = ("source", "inlineData", "inline_data", "fileData", "file_data", "image_url", "input_audio", "file")
_MEDIA_TYPES = ("media_type", "mimeType", "mime_type", "format", "filename", "type")
_ENVELOPE = frozenset({"role", "content", "parts", "tool_calls", "function_call", "refusal", "reasoning_content"})


def role_of(message: object) -> str:
    """The role of a message, or its type if it has no role."""
    if not isinstance(message, dict):
        return "not an object"
    return role_in(message) or _first_text(message, ("role", "type")) or "message"


def parts_of(message: object) -> list[Part]:
    """The parts of a message, in the order in which a person reads them."""
    if not isinstance(message, dict):
        return [Part("other", "", as_text(message))]
    message = in_claude_form(message) or message
    if not _ENVELOPE & message.keys() - {"role"} or (_is_result(message) and "parts" not in message):
        # The message itself is one block: an item of OpenAI's responses, or a message with a tool's result.
        return [_part(message)]
    parts = [Part("thinking", "thinking", as_text(text)) for text in _present(message, "reasoning_content")]
    for content in (*_present(message, "content"), *_present(message, "parts")):
        parts += _blocks(content)
    parts += [Part("text", "", f"(refusal) {as_text(text)}") for text in _present(message, "refusal")]
    for calls in _present(message, "tool_calls"):
        parts += _blocks(calls)
    parts += [_call(call) for call in _present(message, "function_call")]
    rest = {name: member for name, member in message.items() if name not in _ENVELOPE and member is not None}
    if rest.get("type") == "message":
        del rest["type"]
    if rest:
        parts.append(Part("besides", f"besides: {', '.join(rest)}", as_text(rest)))
    return parts


def document_in(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """The name and the text of a block that is a document of text, in any provider's form; None for any other block."""
    if block.get("type") == "search_result" and isinstance(block.get("content"), list):
        return f"document {_first_text(block, ('title', 'source'))}".strip(), _flat(block["content"])
    source = next((block[name] for name in _MEDIA if isinstance(block.get(name), dict)), None)
    if block.get("type") == "input_file":  # its members stand in the block itself
        source = block
    if source is None:
        return None
    name = _first_text(block, ("title", "filename", "name")) or _first_text(source, ("filename", "displayName"))
    about = _first_text(source, ("media_type", "mimeType", "mime_type"))
    kind, data, content = source.get("type"), source.get("data"), source.get("content")
    said: str | None = None
    if kind == "text" and isinstance(data, str):
        said = data
    elif kind == "content" and isinstance(content, (str, list)):
        said = _flat(content)
    elif about.startswith("text/") and isinstance(data, str):
        said = _decoded(data)
    elif isinstance(given := source.get("file_data"), str) and given.startswith("data:text/"):
        about, _, encoded = given.removeprefix("data:").partition(";base64,")
        said = _decoded(encoded) if encoded else None
    return None if said is None else (f"document {name or about}".strip(), said)


def _decoded(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except ValueError:
        return None


def as_text(value: object) -> str:
    """A string unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _present(message: Mapping[str, Any], name: str) -> Iterator[Any]:
    if message.get(name) not in (None, "", []):
        yield message[name]


def _blocks(content: object) -> list[Part]:
    return [_part(block) for block in (content if isinstance(content, list) else [content])]


def _part(block: object) -> Part:
    if isinstance(block, str):
        return Part("text", "", block)
    if not isinstance(block, dict):
        return Part("other", "", as_text(block))
    kind = _first_text(block, ("type", "part_kind"))
    for name in ("functionCall", "function_call", "function"):
        if isinstance(block.get(name), dict):
            return _call({"id": block.get("id"), **block[name]})
    for name in ("functionResponse", "function_response"):
        if isinstance(block.get(name), dict):
            return _result(block[name])
    if _is_result(block):
        return _result(block)
    if kind in _CALL_TYPES:
        return _call(block)
    if kind in ("thinking", "reasoning") or block.get("thought") is True:
        text = next((block[name] for name in _THINKING if block.get(name)), "(not shown by the provider)")
        return Part("thinking", "thinking", _flat(text))
    if isinstance(block.get("text"), str):
        return Part("text", "", block["text"])
    if (document := document_in(block)) is not None:
        return Part("document", *document)
    for name in _MEDIA:
        if isinstance(block.get(name), (dict, str)):
            return _media(kind or name, block[name])
    return Part("other", kind, as_text(block))


def _call(call: object) -> Part:
    if not isinstance(call, dict):
        return Part("call", "call", as_text(call))
    arguments: object = next((call[name] for name in _ARGUMENTS if call.get(name) is not None), {})
    return Part("call", _title("call", call), as_text(arguments))


def _is_result(block: Mapping[str, Any]) -> bool:
    return any(name in block for name in _RESULT_IDS) or ("call_id" in block and "output" in block)


def _result(result: Mapping[str, Any]) -> Part:
    response = result.get("response")
    failed = True in (result.get("is_error"), result.get("isError")) or (
        isinstance(response, dict) and "error" in response
    )
    content = next((result[name] for name in _RESULT_TEXTS if result.get(name) is not None), "")
    return Part("result", _title("error" if failed else "result", result), _flat(content))


def _media(kind: str, source: object) -> Part:
    if not isinstance(source, dict):
        return Part("media", kind, as_text(source))
    about = _first_text(source, _MEDIA_TYPES)
    data = _first_text(source, ("data", "file_data"))
    where = _first_text(source, ("url", "fileUri", "file_uri", "file_id"))
    text = f"{len(data):,} characters of data" if data else where or as_text(source)
    return Part("media", f"{kind} {about}".strip(), text)


def _title(what: str, named: Mapping[str, Any]) -> str:
    name = _first_text(named, ("name", "toolName", "tool_name"))
    number = _first_text(named, (*_RESULT_IDS, "call_id", "id"))
    return " ".join(word for word in (what, name, f"({number})" if number else "") if word)


def _flat(content: object) -> str:
    """The content of a tool's result as text: a string unchanged, blocks one below the other, any other value as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [
            _part(block) if isinstance(block, (dict, str)) else Part("other", "", as_text(block)) for block in content
        ]
        return "\n".join(part.text if part.kind == "text" else f"[{part.title}] {part.text}" for part in parts)
    return as_text(content)


def _first_text(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if isinstance(member := members.get(name), str):
            return member
    return ""


_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")
_AT_ONCE = ("server_tool_use", "mcp_tool_use")
"""Calls that the provider itself answers, in the same message."""


def begins_turn(message: dict[str, Any]) -> bool:
    """True if a turn starts with this message: a user's, without results of tools."""
    return role_of(message) in ("user", "human") and not any(True for _ in result_ids(message))


def call_ids(message: dict[str, Any]) -> Iterator[str]:
    """The ids of the calls in a message; of one without an id (Gemini's) the name."""
    for block in _message_and_blocks(message):
        kind = block.get("type")
        if kind == "tool_use" or (type(block.get("function")) is dict and "id" in block):
            yield str(block.get("id"))
        elif type(kind) is str and kind.endswith("_call") and "call_id" in block and kind not in _AT_ONCE:
            yield str(block["call_id"])
        yield from _named(block, _CALLS)


def result_ids(message: dict[str, Any]) -> Iterator[str]:
    """The ids of the calls whose results are in a message."""
    for block in _message_and_blocks(message):
        kind = block.get("type")
        if kind == "tool_result":
            yield str(block.get("tool_use_id"))
        elif block.get("role") == "tool":
            yield str(block.get("tool_call_id"))
        elif type(kind) is str and kind.endswith("_output") and "call_id" in block:
            yield str(block["call_id"])
        yield from _named(block, _RESULTS)


def calls_left_open(messages: Iterable[dict[str, Any]]) -> set[str]:
    """The calls that stay without a result if these messages are retracted."""
    results, made = Counter[str](), Counter[str]()
    for message in messages:
        made.update(call_ids(message))
        results.update(result_ids(message))
    return set(results - made)


def _named(block: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if type(inner := block.get(name)) is dict:
            yield str(inner.get("id") or inner.get("name"))


def _message_and_blocks(message: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The message, which may be a block itself (an item of Responses), and the blocks in it."""
    message = in_claude_form(message) or message
    yield message
    for name in ("content", "parts", "tool_calls"):
        if type(inner := message.get(name)) is list:
            yield from (block for block in inner if type(block) is dict)


# ---- imported ----
# What an import notes beside a message: what the user typed, what was written on an abandoned branch, when it was
# imported.


def typed_of(extra: Mapping[str, Any] | None, said: str) -> str:
    """What the user typed of a message with the text ``said``: all of it, unless ``extra.scaffolding`` marks it.

    Returns:
        The text that the user typed; empty if a program wrote all of the message.
    """
    mark = (extra or {}).get("scaffolding")
    if isinstance(mark, dict):
        typed = mark.get("typed")
        return typed if isinstance(typed, str) else ""
    return "" if mark is True else said


def imported_at(extra: Mapping[str, Any] | None) -> str:
    """When an import wrote the record with this ``extra``, if it is one of its notes; empty otherwise. Its records have the times of the
    source.
    """
    note = (extra or {}).get("import")
    at = note.get("at") if isinstance(note, dict) else None
    return at if isinstance(at, str) and is_time(at) else ""


def left_of(extra: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The message of an abandoned branch that an event keeps, and its extra; None for any other event."""
    left = (extra or {}).get("left_branch")
    message = left.get("message") if isinstance(left, dict) else None
    if not isinstance(left, dict) or not isinstance(message, dict):
        return None
    return message, {name: value for name, value in left.items() if name != "message"}
