"""ChatGPT: ``conversations.json`` of an export, conversations with a tree ``mapping`` and ``current_node``.

A node is ``{"id", "parent", "children", "message"}``; a message has ``author.role``, ``content.content_type``, ``recipient`` and
``metadata``. What goes to another recipient than ``all`` is a call, and what its tool says next is its result. Nodes without a
message, hidden ones, and the model's thoughts are events. Messages are built: the site's requests are not in the export. Pictures, sounds
and documents that stand beside them in the export are parts of the messages.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.formats._attached import Attached, AttachedFiles
from transcript_store.formats._blocks import Losses, objects
from transcript_store.formats._exports import Export, Node, part_of
from transcript_store.formats._generations import Draft
from transcript_store.formats._members import Json, first_text, obj, text, time_of
from transcript_store.formats._plan import Head
from transcript_store.formats._scaffolding import marked

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NOT_SAID = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


class ChatGpt(Export):
    """Reads the conversations of a ChatGPT export."""

    name = "chatgpt"
    revision = 2
    provider = "openai"
    member = "mapping"

    def recognizes(self, head: Head) -> bool:
        begins = head.start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"[", b"{")
        return begins and b'"mapping"' in head.start and b'"create_time"' in head.start

    def session(self, conversation: Json) -> str | None:
        return first_text(conversation.get("conversation_id"), conversation.get("id"))

    def nodes(self, conversation: Json) -> list[Node]:
        """A node may name its children alone: some exports leave out the one link, some the other."""
        mapping = {name: value for name, value in obj(conversation.get("mapping")).items() if isinstance(value, dict)}
        above = {
            child: name
            for name, value in mapping.items()
            for child in (value["children"] if isinstance(value.get("children"), list) else ())
            if isinstance(child, str)
        }
        parents = ((name, text(value.get("parent")), value) for name, value in mapping.items())
        return [
            Node(name, parent if parent in mapping else above.get(name, parent), value)
            for name, parent, value in parents
        ]

    def leaf(self, conversation: Json, nodes: list[Node]) -> str | None:
        """What the export names; else the last node that nobody names as its parent."""
        if found := text(conversation.get("current_node")):
            return found
        parents = {node.parent for node in nodes}
        return next((node.id for node in reversed(nodes) if node.id not in parents), None)

    def title(self, conversation: Json) -> str | None:
        return text(conversation.get("title"))

    def model(self, conversation: Json, path: list[Node]) -> str | None:
        found = (text(part_of(node.value, "message", "metadata", "model_slug")) for node in reversed(path))
        return next((slug for slug in found if slug), None) or text(conversation.get("default_model_slug"))

    def times(self, conversation: Json, nodes: list[Node]) -> tuple[object, Iterable[object]]:
        return conversation.get("update_time"), (part_of(node.value, "message", "create_time") for node in nodes)

    def told(self, path: list[Node], losses: Losses, files: AttachedFiles) -> list[list[Draft]]:
        talk = _Talk(losses, files)
        return [talk.messages(node) for node in path]


class _Talk:
    """What is said on the way to the current node, and which calls have no result yet."""

    def __init__(self, losses: Losses, files: AttachedFiles) -> None:
        self._losses, self._files = losses, files
        self._calls: list[tuple[str, str]] = []
        """Those without a result: recipient and id."""
        self._result: tuple[object, Json] | None = None
        """The tool that spoke last and its message, until somebody else speaks."""

    def messages(self, node: Node) -> list[Draft]:
        value = obj(node.value.get("message"))
        metadata, content = obj(value.get("metadata")), obj(value.get("content"))
        if metadata.get("is_visually_hidden_from_conversation") is True or content.get("content_type") in _NOT_SAID:
            return []
        said, attached = _said(content, metadata, self._losses, self._files)
        role, recipient = part_of(value, "author", "role"), text(value.get("recipient")) or "all"
        if not said or role not in ("user", "assistant", "system", "tool"):
            return []
        at = time_of(value.get("create_time"))
        shown = [part for each in attached if (part := each.part()) is not None]
        # Only a user's message may show a picture: what a tool or the model made stands behind its message.
        behind = [Draft({"role": "user", "content": shown}, marked("", is_said=True), at)] if shown else []
        if role == "tool":
            message = self._answer(part_of(value, "author", "name"), said)
            return behind if message is None else [Draft(message, {}, at), *behind]
        self._result = None
        if role == "user" and shown:
            typed = said if any(each.type == "text/plain" for each in attached) else None
            return [Draft({"role": role, "content": [{"type": "text", "text": said}, *shown]}, marked(typed), at)]
        extra: Json = {}
        if role == "assistant":
            about = {
                "model": text(metadata.get("model_slug")),
                "stop_reason": text(part_of(metadata, "finish_details", "type")),
            }
            extra = {name: found for name, found in about.items() if found}
        if role == "assistant" and recipient != "all":
            self._calls.append((recipient, _known_as(node.id)))
            called: Json = {"role": "assistant", "content": None, "tool_calls": [_call(node.id, recipient, said)]}
            return [Draft(called, extra, at), *behind]
        return [Draft({"role": role, "content": said}, extra, at), *behind]

    def _answer(self, tool: object, said: str) -> Json | None:
        """A tool's message; None if it goes on with the one before (a search says each file that it found), or answers nothing."""
        asked = next((call for call in self._calls if call[0] == tool or call[0].startswith(f"{tool}.")), None)
        if asked is None and self._result is not None and (self._result[0] == tool or not self._calls):
            self._result[1]["content"] += "\n" + said
            return None
        if asked is None and not self._calls:
            self._losses.note("no-call", "what a tool said although nobody called it is kept, and not sent")
            return None
        asked = asked or self._calls[0]
        self._calls.remove(asked)
        self._result = (tool, {"role": "tool", "tool_call_id": asked[1], "content": said})
        return self._result[1]


def _call(node: str, recipient: str, said: str) -> Json:
    try:
        arguments = said if isinstance(json.loads(said), dict) else None
    except (ValueError, RecursionError):
        arguments = None
    function = {
        "name": _NOT_IN_NAMES.sub("_", recipient)[:64],
        "arguments": arguments or json.dumps({"input": said}, ensure_ascii=False),
    }
    return {"id": _known_as(node), "type": "function", "function": function}


def _known_as(node: str) -> str:
    return node if _ID.fullmatch(node) else hashlib.sha256(node.encode(errors="replace")).hexdigest()[:40]


def _said(content: Json, metadata: Json, losses: Losses, files: AttachedFiles) -> tuple[str, list[Attached]]:
    """The text of a message, in which each file has its name, and those of its files that the export has."""
    parts: list[Any] = content["parts"] if isinstance(content.get("parts"), list) else []
    found: list[str] = [] if parts else [first_text(content.get("text"), content.get("result")) or ""]
    names = {its_id: name for one in _uploads(metadata) for its_id, name in [(one["id"], text(one.get("name")))]}
    attached: dict[str, Attached] = {}
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict) and (said := text(part.get("text"))):
            found.append(said)
        elif isinstance(part, dict):
            for asset in _pointers(part):
                pointer, kind = asset["asset_pointer"], text(asset.get("content_type")) or "file"
                its_id, name = next(((each, name) for each, name in names.items() if each in pointer), (pointer, None))
                if (file := files.find(pointer, name)) is not None and file.type:
                    attached[its_id] = file
                    found.append(f"[{file.type.partition('/')[0]}: {file.name}]")
                    continue
                losses.note("media", "a picture or a sound is a file beside the export: its name stands in the text")
                found.append(f"[{kind}: {f'{name}, {pointer}' if name else pointer}]")
    said = _with_links("\n".join(piece for piece in found if piece), metadata)
    is_all = not said
    for one in objects(metadata.get("attachments")):
        its_id, name = text(one.get("id")) or "", text(one.get("name"))
        if its_id and (its_id in attached or its_id in said):
            continue  # a picture is an attachment too
        file = files.find(its_id, name)
        if file is not None and file.type:
            attached[its_id] = file
        else:
            losses.note("files", "the export has the name of a file, and not what is in it")
        if (is_all or its_id in attached) and (not name or name not in said):
            said += f"\n[file: {name or (file.name if file is not None else 'unnamed')}]"
    return said.removeprefix("\n"), [*attached.values()]


def _uploads(metadata: Json) -> Iterator[Json]:
    """The attachments of a message that have an id: the pointers to them have it too."""
    return (one for one in objects(metadata.get("attachments")) if text(one.get("id")))


def _with_links(said: str, metadata: Json) -> str:
    """The text with the addresses that its citations stand for: the site writes private characters instead."""
    for reference in objects(metadata.get("content_references")):
        marker = text(reference.get("matched_text"))
        if not marker or not marker.strip() or marker not in said:
            continue
        pages = [reference, *objects(reference.get("items")), *objects(reference.get("sources"))]
        links = {url: f"[{text(page.get('title')) or url}]({url})" for page in pages if (url := text(page.get("url")))}
        if links:
            said = said.replace(marker, " ".join(links.values()))
    return said


def _pointers(part: Json) -> Iterator[Json]:
    """The part, or what of its members names a file: what was spoken has its sound one level deeper, and pictures of a camera."""
    for each in (part, *part.values()):
        yield from (one for one in (objects(each) or [obj(each)]) if text(one.get("asset_pointer")))
