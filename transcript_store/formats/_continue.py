"""Continue (``cn``, and its extensions): ``sessions/<id>.json``, one document that is rewritten each time.

``history`` has items: a ``message`` of chat completions with ``toolCalls``, and with a reply ``toolCallStates``, the results of its
calls. No item has a time; ``sessions.json`` beside the documents has the start of each session, in order: a fork copies an earlier
one. Some versions keep reasoning as an item of the role ``thinking``. After a compaction the file has the summary and later items:
the next import makes a generation of that.

Source: files of @continuedev/cli 1.5.47.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._lines import SourceLine, lines_of_document, objects_on
from transcript_store.formats._members import Json, first_text, obj, objects, text_in
from transcript_store.formats._neutral import arguments_of, media_at
from transcript_store.formats._plan import PlannedRecord, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Replay, facts_of
from transcript_store.formats._rows import object_beside, text_beside
from transcript_store.formats._scaffolding import marked, marked_summary
from transcript_store.formats._times import time_in_ms

_MOST_PARENTS = 20
"""The parent is searched among so many earlier sessions of the folder."""
_LEAST_SHARED = 2
"""A prompt alone may be typed twice."""
_FAILED = ("errored", "canceled")


class Continue:
    """Reads the sessions of Continue."""

    name = "continue"

    def recognizes(self, head: SourceHead) -> bool:
        return head.is_document_with("sessionId", "history", "workspaceDirectory")

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines, findings = lines_of_document(source, "history")
        about = lines[0].value or {}
        dialogue = Dialogue()
        known = objects_on(text_beside(source, "sessions.json"))  # the newest last
        entries = list(_entries(dialogue, lines, _began(known, about)))
        models = [entry.extra["model"] for entry in entries if "model" in entry.extra]
        facts = facts_of(
            session=first_text(about.get("sessionId")) or f"{source.size} bytes",
            model=models[-1] if models else None,
            title=about.get("title"),
            cwd=about.get("workspaceDirectory"),
            forked_from=_parent(source, known, about, [line.value for line in lines[1:]]),
        )
        said = Replay((entries.copy,), tuple(findings))
        yield facts.plan(self.name, lines, said, dialogue.provider, dialogue.losses, edition=("", ""))


def _parent(source: Source, known: list[Json], about: Json, history: list[Json | None]) -> str | None:
    """The id of the session that this one copies as its start. A fork does not name it."""
    names = [
        text_in(one, "sessionId") for one in known if one.get("workspaceDirectory") == about.get("workspaceDirectory")
    ]
    before = names[: names.index(about["sessionId"])] if about.get("sessionId") in names else []
    for name in reversed(before[-_MOST_PARENTS:]):
        other = (
            objects(object_beside(source, f"{name}.json").get("history")) if not {"/", "\\", "\0"} & set(name) else []
        )
        if _LEAST_SHARED <= len(other) < len(history) and other == history[: len(other)]:
            return name
    return None


def _began(known: list[Json], about: Json) -> str | None:
    """When the session was first written, by the program's list."""
    found = next((one.get("dateCreated") for one in known if one.get("sessionId") == about.get("sessionId")), None)
    return time_in_ms(int(found)) if isinstance(found, str) and found.isdecimal() else None


def _entries(dialogue: Dialogue, lines: list[SourceLine], began: str | None) -> Iterator[PlannedRecord]:
    for number, line in enumerate(lines):
        value = line.value or {}
        at, message = began if number == 1 else None, obj(value.get("message"))
        if number and message:
            _item(dialogue, line, value, message, at)
        elif line.raw:
            dialogue.event(line, at=began)
    yield from map(Draft.entry, dialogue.take())


def _item(dialogue: Dialogue, line: SourceLine, value: Json, message: Json, at: str | None) -> None:
    role, blocks = message.get("role"), _blocks(message.get("content"))
    if first_text(value.get("conversationSummary")):
        dialogue.user(blocks, line, at, marked_summary())
    elif role == "user":
        items = [Text(text_in(one, "content")) for one in objects(value.get("contextItems"))]
        typed = "\n\n".join(block.text for block in blocks if isinstance(block, Text)) if items else None
        dialogue.user([*blocks, *items], line, at, marked(typed, is_said=True))
    elif role == "thinking":
        dialogue.reply([thinking(block.text) for block in blocks if isinstance(block, Text)], line, at)
    elif role == "assistant":
        _reply(dialogue, line, value, message, at)
    elif role == "tool":
        said = tuple(block for block in blocks if isinstance(block, (Text, Media)))
        dialogue.result(Result(text_in(message, "toolCallId"), "", said), line, at)
    else:
        dialogue.event(line, at=at)


def _reply(dialogue: Dialogue, line: SourceLine, value: Json, message: Json, at: str | None) -> None:
    states = objects(value.get("toolCallStates"))
    calls = objects(message.get("toolCalls")) or [obj(state.get("toolCall")) for state in states]
    usage = obj(message.get("usage"))
    extra = {"model": first_text(usage.get("model")), "usage": {k: v for k, v in usage.items() if k != "model"}}
    dialogue.reply(
        [
            *([thinking(said)] if (said := text_in(obj(value.get("reasoning")), "text")) else []),
            *_blocks(message.get("content")),
            *(_call(call) for call in calls),
        ],
        line,
        at,
        extra,
        key=f"line {line.number}",
    )
    for state in states:
        output = objects(state.get("output"))
        if output or state.get("status") in ("done", *_FAILED):  # else it was interrupted: no result is made up
            shown = tuple(Text(text_in(one, "content")) for one in output)
            failed = state.get("status") in _FAILED
            dialogue.result(Result(text_in(state, "toolCallId"), "", shown, failed=failed), None, at)


def _call(call: Json) -> Call:
    function = obj(call.get("function"))
    return Call(text_in(call, "id"), text_in(function, "name"), arguments_of(function.get("arguments")))


def _blocks(content: object) -> list[Block]:
    found: list[Block] = [Text(content)] if isinstance(content, str) and content else []
    for part in objects(content):
        if part.get("type") == "imageUrl":
            found.append(media_at(text_in(obj(part.get("imageUrl")), "url")))
        elif said := text_in(part, "text"):
            found.append(Text(said))
    return found
