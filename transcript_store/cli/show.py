"""``transcript-store show``: print a conversation, for a person or for a program."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transcript_store import ConversationMetadata, ConversationStore, Record, Salvaged, WayOut, salvage
from transcript_store.cli._shared.arguments import add_conversation, add_json, count
from transcript_store.cli._shared.follow import news
from transcript_store.cli._shared.render_extra import parts_of_extra
from transcript_store.cli._shared.terminal import complain, flush, many, one_line, safe, say, say_json, size, time
from transcript_store.cli._shared.ways_out import in_the_shell
from transcript_store.messages import Part, parts_of, role_of

DESCRIPTION = """\
Print the conversation in DIR, whichever provider's form its messages have. Nothing is changed and no lock is taken, so
this works beside a writer. What a terminal would obey (escape sequences, characters that turn the direction of text)
is shown as an escape such as \\x1b. Times are UTC; sizes are those of the message as JSON.

With --salvage a damaged conversation is printed too: what verifies, what can only be read, and where nothing can be.
Then the exit code is 1 if anything is not whole.
"""
EPILOG = """\
examples:
  transcript-store show chats/today --last 5
  transcript-store show chats/today --last 0 --follow
  transcript-store show chats/today --salvage
  transcript-store show chats/today --json | jq -r 'select(.message.role == "user") | .at'
"""

_LINES, _CHARACTERS = 12, 1200
"""Without ``--full``, a tool's arguments and results, thinking and unknown parts are cut after these numbers."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser)
    parser.add_argument("--last", metavar="N", type=count, help="only the last N records")
    parser.add_argument("--full", action="store_true", help="do not shorten tool calls, results and thinking")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--follow", action="store_true", help="go on with what other processes append, until Ctrl-C")
    which.add_argument("--generation", metavar="N", type=count, help="what it was before a replace (see generations)")
    which.add_argument("--salvage", action="store_true", help="read a damaged conversation as far as that is possible")
    add_json(parser, "one JSON object a record, with generation, seq, at, message and extra")


def run(arguments: Namespace) -> int:
    """Print the conversation."""
    return _show_what_is_left(arguments) if arguments.salvage else _show(arguments)


def _show(arguments: Namespace) -> int:
    with ConversationStore(arguments.directory, read_only=True) as conversation:
        conversation.load()
        metadata, records = conversation.get_metadata(), conversation.get_records(generation=arguments.generation)
        generation = metadata.generation if arguments.generation is None else arguments.generation
        if (torn := conversation.torn_tail) is not None and arguments.generation is None:
            what = f"{many(torn.length_bytes, 'byte')} behind the last whole record: {torn.reason}"
            way_out = in_the_shell(WayOut.LOAD_CUTS_IT, conversation.directory)
            complain(f"{conversation.directory}: torn tail: {what}; {way_out}")
        if not arguments.json:
            for line in _description(conversation.directory, metadata, generation, records):
                say(line)
        shown = records if arguments.last is None else records[max(0, len(records) - arguments.last) :]
        _print(arguments, generation, shown)
        if arguments.follow:
            flush()
            for generation, more, event in news(conversation):
                if event is not None:
                    complain(event) if arguments.json else say(f"\n-- {event}")
                _print(arguments, generation, more)
                flush()
    return 0


def _show_what_is_left(arguments: Namespace) -> int:
    """Print what can be read of a conversation that may be damaged. The exit code is 1 if it is."""
    left = salvage(arguments.directory)
    generation = left.metadata.generation
    if not arguments.json:
        for line in _description(
            left.directory, left.metadata, generation, [found.record for found in left.found if found.record]
        ):
            say(line)
    for found in left.found if arguments.last is None else left.found[max(0, len(left.found) - arguments.last) :]:
        if arguments.json:
            say_json({"generation": generation, **_members(found.record), **_place(found), "damage": found.damage})
        else:
            say()
            for line in _salvaged(found, full=arguments.full):
                say(line)
    return 0 if left.is_whole else 1


def _members(record: Record | None) -> dict[str, Any]:
    names = ("seq", "at", "message", "extra")
    return {name: None if record is None else getattr(record, name) for name in names}


def _place(found: Salvaged) -> dict[str, int]:
    return {"offset_bytes": found.offset_bytes, "length_bytes": found.length_bytes}


def _salvaged(found: Salvaged, *, full: bool) -> Iterator[str]:
    where = f"{many(found.length_bytes, 'byte')} at byte {found.offset_bytes}"
    if found.record is None:
        yield f"-- {where} cannot be read: {one_line(found.damage or '')}"
        return
    lines = _record(found.record, full=full)
    yield next(lines)
    if found.damage is not None:
        yield f"    damaged ({where}), so this may not be what was stored: {one_line(found.damage)}"
    yield from lines


def _print(arguments: Namespace, generation: int, records: Sequence[Record]) -> None:
    for record in records:
        if arguments.json:
            say_json({"generation": generation, **_members(record)})
        else:
            say()
            for line in _record(record, full=arguments.full):
                say(line)


def _description(
    directory: str, metadata: ConversationMetadata, generation: int, records: Sequence[Record]
) -> Iterator[str]:
    messages = sum(record.message is not None for record in records)
    events = len(records) - messages
    others = f" (and {many(events, 'record')} of {'an event' if events == 1 else 'events'})" if events else ""
    tools = ", ".join(tool["name"] for tool in metadata.tools or ())
    labels = ", ".join(f"{name}={value}" for name, value in metadata.labels.items())
    facts = {
        "conversation": metadata.id,
        "directory": directory,
        "provider": metadata.provider,
        "model": metadata.model,
        "system prompt": metadata.system_prompt and _shortened(metadata.system_prompt, 100),
        "tools": tools,
        "labels": labels,
        "created": time(metadata.created_at),
        "updated": time(metadata.updated_at),
        "messages": f"{messages:,}{others}",
        "generation": f"{generation}{_which(generation, metadata)}",
        "forked from": _origin(metadata),
    }
    for name, fact in facts.items():
        if fact:
            yield f"{name:<14} {one_line(fact)}"


def _which(generation: int, metadata: ConversationMetadata) -> str:
    return "" if generation == metadata.generation else f" (the live one is {metadata.generation})"


def _origin(metadata: ConversationMetadata) -> str | None:
    origin = metadata.forked_from
    return f"{origin.get('conversation')}, after its record {origin.get('seq')}" if type(origin) is dict else None


def _record(record: Record, *, full: bool) -> Iterator[str]:
    """The lines for a record. Only its heading begins in the first column, so that no message can imitate a heading."""
    if record.message is None:
        yield f"#{record.seq}  event  {time(record.at)}"
    else:
        length = size(len(json.dumps(record.message, ensure_ascii=False, separators=(",", ":")).encode()))
        yield f"#{record.seq}  {one_line(role_of(record.message))}  {time(record.at)}  {length}"
        yield from lines_of(record.message, full=full)
    if record.extra is not None:
        yield from _lines(parts_of_extra(record.extra), full=full)


def lines_of(message: object, *, full: bool) -> Iterator[str]:
    """The lines for a message. All of them are indented: the first column is for the headings of records."""
    return _lines(parts_of(message), full=full)


def _lines(parts: Iterable[Part], *, full: bool) -> Iterator[str]:
    for part in parts:
        if part.kind == "text":
            yield from _indented(part.text, 4)
        else:
            yield f"    {one_line(part.title or part.kind)}"
            if full or part.kind != "besides":
                yield from _indented(part.text if full else _cut(part.text), 6)


def _indented(text: str, columns: int) -> Iterator[str]:
    return (" " * columns + line for line in safe(text).split("\n")) if text else iter(())


def _cut(text: str) -> str:
    kept = "\n".join(text.split("\n", _LINES)[:_LINES])[:_CHARACTERS]
    return text if kept == text else f"{kept}\n… {many(len(text) - len(kept), 'more character')} (--full shows them)"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"
