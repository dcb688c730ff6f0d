"""The blocks of the Agent Client Protocol, which are those of MCP, and what a call answered."""

from __future__ import annotations

from collections.abc import Iterator

from transcript_store.formats._blocks import Block, Media, Text
from transcript_store.formats._members import Json, first_text, obj, objects, text_in, text_member
from transcript_store.messages import as_text


def blocks_of(content: object) -> list[Block]:
    """The blocks of ACP, which are those of MCP."""
    found: list[Block] = []
    for one in objects(content):
        kind = one.get("type")
        resource = obj(one.get("resource"))
        if kind == "text":
            found.append(Text(text_in(one, "text")))
        elif kind in ("image", "audio"):
            held = text_member(one.get("data")), text_member(one.get("uri"))
            found.append(Media(text_in(one, "mimeType") or f"{kind}/*", *held))
        elif kind == "resource":
            found.append(Text(text_in(resource, "text") or f"[{text_in(resource, 'uri')}]"))
        elif kind == "resource_link":
            found.append(Text(f"[{first_text(one.get('uri'), one.get('name')) or 'resource'}]"))
    return found


def answer_of(call: Json) -> Iterator[Text | Media]:
    """The result of a call: its content, else its raw output."""
    found = False
    for one in objects(call.get("content")):
        inner = blocks_of([one.get("content")]) if one.get("type") == "content" else blocks_of([one])
        if one.get("type") == "diff":
            inner = [Text(as_text({name: one.get(name) for name in ("path", "oldText", "newText")}))]
        for block in inner:
            if isinstance(block, (Text, Media)):
                found = True
                yield block
    if not found and call.get("rawOutput") is not None:
        yield Text(as_text(call["rawOutput"]))
