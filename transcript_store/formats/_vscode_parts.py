"""The requests of Copilot chat as blocks: text, thinking, calls with their arguments and results, pictures."""

from __future__ import annotations

from collections.abc import Iterator

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import thinking
from transcript_store.formats._members import Json, first_text, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of, media_at


def reply_blocks(request: Json) -> Iterator[Block]:
    """The blocks of a reply as it was shown, with the arguments and results that the model received."""
    metadata = obj(obj(request.get("result")).get("metadata"))
    rounds = objects(metadata.get("toolCallRounds"))
    calls = {text_in(call, "id"): call for one in rounds for call in objects(one.get("toolCalls"))}
    results = obj(metadata.get("toolCallResults"))
    for part in objects(request.get("response")):
        kind = part.get("kind")
        if kind == "thinking":
            value = part.get("value")
            said = "".join(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))
            yield from [thinking(said)] if said else []
        elif kind == "toolInvocationSerialized":
            yield from _invocation(part, calls.get(text_in(part, "toolCallId"), {}), results)
        elif kind == "inlineReference":
            yield Text(f"`{_reference(part)}`")
        elif kind in (None, "markdownContent", "markdownVuln"):
            yield Text(_markdown(part if kind is None else part.get("content")))


def _invocation(part: Json, call: Json, results: Json) -> Iterator[Block]:
    number, name = text_in(part, "toolCallId"), text_in(call, "name") or text_in(part, "toolId")
    about = obj(part.get("toolSpecificData"))
    given = call.get("arguments", about or {"": _markdown(part.get("invocationMessage"))})
    yield Call(number, name, arguments_of(given))
    confirmed = part.get("isConfirmed")
    denied = confirmed is False or obj(confirmed).get("type") == 0
    said = [text_in(one, "value") for one in objects(obj(results.get(number)).get("content"))]
    shown = "\n".join(filter(None, said)) or _markdown(part.get("pastTenseMessage"))
    if shown or part.get("isComplete") is True:
        failed = denied or obj(part.get("resultDetails")).get("isError") is True
        yield Result(number, name, (Text(shown),), failed=failed)


def _markdown(value: object) -> str:
    return value if isinstance(value, str) else text_in(obj(value), "value")


def _reference(part: Json) -> str:
    of = obj(part.get("inlineReference"))
    places = of, obj(of.get("uri")), obj(obj(of.get("location")).get("uri"))
    path = first_text(*(place.get("path") for place in places)) or ""
    return first_text(part.get("name"), of.get("name"), path.rpartition("/")[2]) or "reference"


def images_in(variables: list[Json]) -> Iterator[Media | Text]:
    """The pictures of a prompt; the name of one without bytes."""
    for one in variables:
        if one.get("kind") == "image":
            value, kind = one.get("value"), text_in(one, "mimeType") or "image/png"
            data = value if isinstance(value, str) else text_in(obj(value), "$base64", "data")
            if data.startswith("data:"):
                yield media_at(data, own={}, provider="")
            else:
                yield Media(kind, data) if data else Text(f"[image: {text_in(one, 'name')}]")
