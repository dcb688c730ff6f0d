"""``transcript-store show``: a conversation, readable for a person or for a program."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence

from transcript_store import ConversationMetadata, ConversationStore, Record
from transcript_store.cli._shared.arguments import add_directory, add_json, count
from transcript_store.cli._shared.follow import news
from transcript_store.cli._shared.render_extra import parts_of_extra
from transcript_store.cli._shared.terminal import complain, flush, many, one_line, safe, say, say_json, size, time
from transcript_store.messages import Part, parts_of, role_of

DESCRIPTION = """\
Print the conversation in DIR, whichever provider's form its messages have. Nothing is changed and no lock is taken, so
this works beside a writer. What a terminal would obey (escape sequences, characters that turn the direction of text)
is shown as an escape such as \\x1b. Times are UTC; sizes are those of the message as JSON.
"""
EPILOG = """\
examples:
  transcript-store show chats/today --last 5
  transcript-store show chats/today --last 0 --follow
  transcript-store show chats/today --json | jq -r 'select(.message.role == "user") | .at'
"""

_LINES, _CHARACTERS = 12, 1200
"""How much of a tool's arguments and results, of thinking and of unknown parts is shown without ``--full``."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_directory(parser)
    parser.add_argument("--last", metavar="N", type=count, help="only the last N records")
    parser.add_argument("--full", action="store_true", help="do not shorten tool calls, results and thinking")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--follow", action="store_true", help="go on with what other processes append, until Ctrl-C")
    which.add_argument("--generation", metavar="N", type=count, help="what it was before a replace (see generations)")
    add_json(parser, "one JSON object a record, with generation, seq, at, message and extra")


def run(arguments: Namespace) -> int:
    """Print the conversation."""
    with ConversationStore(arguments.directory, read_only=True) as conversation:
        conversation.load()
        metadata, records = conversation.get_metadata(), conversation.get_records(generation=arguments.generation)
        generation = metadata.generation if arguments.generation is None else arguments.generation
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


def _print(arguments: Namespace, generation: int, records: Sequence[Record]) -> None:
    for record in records:
        if arguments.json:
            envelope = {"generation": generation, "seq": record.seq, "at": record.at}
            say_json({**envelope, "message": record.message, "extra": record.extra})
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
    """The lines for a record. Only its heading begins in the first column, so that no message can pretend to be one."""
    if record.message is None:
        yield f"#{record.seq}  event  {time(record.at)}"
    else:
        length = size(len(json.dumps(record.message, ensure_ascii=False, separators=(",", ":")).encode()))
        yield f"#{record.seq}  {one_line(role_of(record.message))}  {time(record.at)}  {length}"
        yield from lines_of(record.message, full=full)
    if record.extra is not None:
        yield from _lines(parts_of_extra(record.extra), full=full)


def lines_of(message: object, *, full: bool) -> Iterator[str]:
    """The lines for a message, none of which begins in the first column."""
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
    return text if kept == text else f"{kept}\n… {len(text) - len(kept):,} more characters (--full shows them)"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"
