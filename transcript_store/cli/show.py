"""``transcript-store show``: print a conversation, for a person or for a program, and follow it."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from transcript_store import (
    ConversationMetadata,
    ConversationNotFoundError,
    ConversationStore,
    GenerationNotFoundError,
    Hint,
    Record,
    TranscriptStoreError,
)
from transcript_store.cli._shared.arguments import add_conversation, add_json, positive, whole_number
from transcript_store.cli._shared.hints import in_the_shell
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.messages import (
    RenderOptions,
    kind_of_event,
    lines_of_parts,
    lines_of_written,
    manner_here,
    message_lines,
    parts_of_extra,
    summary,
    what_was_imported,
    without_source,
    written_by_the_program,
)
from transcript_store.cli._shared.names import (
    conversation_at,
    is_backend_address,
    library_at,
    printable_name,
    project_of,
    short_ids,
    with_id,
)
from transcript_store.cli._shared.terminal import (
    Line,
    Look,
    Misuse,
    TerminalSpan,
    columns,
    columns_of,
    complain,
    fitting,
    flush,
    many,
    one_line,
    paged,
    say,
    say_json,
    say_line,
    size,
    time,
)
from transcript_store.display import title_in
from transcript_store.import_notes import first_shown
from transcript_store.messages import left_of, role_of

if TYPE_CHECKING:
    from transcript_store import Salvage, Salvaged

DESCRIPTION = """\
Print the conversation in DIR, whichever provider's form its messages have. Nothing is changed and no lock is taken, so
this works beside a writer. Control sequences (terminal escapes, characters that turn the direction of text) are shown as
escapes such as \\x1b. Times are UTC; sizes are those of the message as JSON.

The first line describes the conversation; --full prints all of its metadata. Retracted messages are counted there; --full prints
them too. Messages on abandoned branches are counted as events; --branches prints them in place. Text that a program wrote in
the user's name is shortened and dimmed; --full prints it.

Imported data other than messages is shortened: adjacent events are counted on one line, and a message's source lines are not
printed. --full prints all of it, --messages no events.

On a terminal Markdown and code are formatted, lines are wrapped between words, and output longer than the screen goes through
$PAGER, or less. --plain, or NO_COLOR=1 in the environment, prints the text unformatted (formatted Markdown needs the extra
`view`). --no-pager, or TRANSCRIPT_STORE_NO_PAGER=1 in the environment, prints all of it at once.

With --salvage a damaged conversation is printed too: verified records, records that can only be read, and gaps.
Then the exit code is 1 if anything is damaged.
"""
EPILOG = """\
examples:
  transcript-store show chats/today --last 5
  transcript-store show chats/last --messages
  transcript-store show chats/last --around 14
  transcript-store show chats/today --last 0 --follow
  transcript-store show chats/today --salvage
  transcript-store show chats/today --json | jq -r 'select(.message.role == "user") | .at'
"""

_T = TypeVar("_T")
_NEIGHBOURS = 3
_LEAST_NAME = 20
_SHOWN_ABOVE = ("scaffolding", "compaction", "left_branch")
"""The facts of a message's extra that its heading shows."""
_ROLES: Mapping[str, Look] = {"user": "cyan", "assistant": "green", "model": "green"}


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument(
        "-n", "--last", metavar="N", type=whole_number, help="only the last N messages, and the events among them"
    )
    parser.add_argument("--around", metavar="SEQ", type=positive, help="only this record and three on each side")
    parser.add_argument("--messages", action="store_true", help="only messages, no events")
    parser.add_argument("--branches", action="store_true", help="also messages on abandoned branches")
    parser.add_argument("--full", action="store_true", help="do not shorten tool calls, results, thinking and events")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-f", "--follow", action="store_true", help="also print new records as they come, until Ctrl-C")
    which.add_argument("--generation", metavar="N", type=whole_number, help="an archived generation (see generations)")
    which.add_argument("--salvage", action="store_true", help="read a damaged conversation as far as possible")
    parser.add_argument("--plain", action="store_true", help="print unformatted text, even on a terminal")
    parser.add_argument("--no-pager", action="store_true", help="print all of it at once, even on a terminal")
    add_keys(parser)
    add_json(parser, "one JSON object a record, with generation, seq, at, message and extra")


def run(arguments: Namespace) -> int:
    """Print the conversation."""
    with paged(is_wanted=not (arguments.no_pager or arguments.follow or arguments.json)):
        return _show_what_is_left(arguments) if arguments.salvage else _show(arguments)
    return 0  # the user left the pager before the end


def _show(arguments: Namespace) -> int:
    with conversation_at(arguments.directory, read_only=True, **command_keys(arguments).options) as conversation:
        conversation.load()
        metadata, records = conversation.get_metadata(), conversation.get_records(generation=arguments.generation)
        generation = metadata.generation if arguments.generation is None else arguments.generation
        if (torn := conversation.torn_tail) is not None and arguments.generation is None:
            what = f"{many(torn.length_bytes, 'byte')} after the last whole record: {torn.reason}"
            hint = in_the_shell(Hint.LOAD_CUTS_IT, conversation.directory)
            complain(f"{conversation.directory}: torn tail: {what}; {hint}")
        wanted = _wanted(
            arguments, _around(arguments.around, records)
        )  # before the first line: the argument may be wrong
        if not arguments.json:
            for line in _description(conversation.directory, metadata, generation, records, arguments):
                say_line(line)
        _print(arguments, generation, wanted if arguments.last is None else _last(arguments.last, wanted, _is_said))
        if arguments.follow:
            flush()
            for generation, more, event in news(conversation):
                if event is not None:
                    complain(event) if arguments.json else say(f"\n-- {event}")
                _print(arguments, generation, _wanted(arguments, more))
                flush()
    return 0


def _show_what_is_left(arguments: Namespace) -> int:
    """Print what can be read of a conversation that may be damaged. The exit code is 1 if it is."""
    left, is_whole = _left_of(arguments.directory)
    generation = left.metadata.generation
    if not arguments.json:
        records = [found.record for found in left.found if found.record]
        for line in _description(left.directory, left.metadata, generation, records, arguments):
            say_line(line)
    manner = manner_here(full=arguments.full, plain=arguments.plain)
    wanted = [one for one in left.found if one.damage or one.record is None or _is_wanted(arguments, one.record)]
    for found in (
        wanted
        if arguments.last is None
        else _last(arguments.last, wanted, lambda found: found.record is None or _is_said(found.record))
    ):
        if arguments.json:
            say_json({"generation": generation, **_members(found.record), **_location(found), "damage": found.damage})
        else:
            say()
            for line in _salvaged(found, manner):
                say_line(line)
    return 0 if is_whole else 1


def _left_of(name: str) -> tuple[Salvage, bool]:
    """What can be read of a conversation, and whether it is intact. One on a backend is read from a temporary copy."""
    from transcript_store import salvage

    if not is_backend_address(name):
        left = salvage(name)
        return left, left.is_intact
    import tempfile

    library, own_id = with_id(name)
    there = library_at(library)
    found = there.verify(own_id).findings
    for finding in found:
        complain(f"{finding.path}: {finding.reason}")
    with tempfile.TemporaryDirectory(prefix="transcript-store-show-") as folder:
        path = os.path.join(folder, own_id)
        there.export_damaged(own_id, path)  # type: ignore[attr-defined]  # a library on a backend has it
        left = replace(salvage(path), directory=printable_name(name))
    return left, left.is_intact and not found


def _around(seq: int | None, records: Sequence[Record]) -> Sequence[Record]:
    """The records near one; all of them for None."""
    if seq is None:
        return records
    if not records or not records[0].seq <= seq <= records[-1].seq:
        raise Misuse(f"there is no record {seq}: the conversation has {many(len(records), 'record')}")
    return [record for record in records if abs(record.seq - seq) <= _NEIGHBOURS]


def _is_wanted(arguments: Namespace, record: Record) -> bool:
    is_said = record.message is not None or (arguments.branches and left_of(record.extra) is not None)
    is_of_that_kind = is_said or not arguments.messages
    return is_of_that_kind and (arguments.full or not record.is_retracted)


def _wanted(arguments: Namespace, records: Sequence[Record]) -> Sequence[Record]:
    return [record for record in records if _is_wanted(arguments, record)]


def _last(number: int, found: Sequence[_T], is_said: Callable[[_T], bool]) -> Sequence[_T]:
    """The last messages, with the events among and after them."""
    at = len(found) if number == 0 else 0
    for place in reversed(range(len(found))):
        number -= is_said(found[place])
        if number <= 0:
            at = max(at, place) if number == 0 else at
            break
    return found[at:]


def _is_said(record: Record) -> bool:
    return record.message is not None


def _members(record: Record | None) -> dict[str, Any]:
    names = ("seq", "at", "message", "extra")
    members = {name: None if record is None else getattr(record, name) for name in names}
    if record is not None and record.retracts is not None:
        members["retracts"] = record.retracts
    if record is not None and record.is_retracted:
        members["is_retracted"] = True
    return members


def _location(found: Salvaged) -> dict[str, int]:
    return {"offset_bytes": found.offset_bytes, "length_bytes": found.length_bytes}


def _salvaged(found: Salvaged, manner: RenderOptions) -> Iterator[Line]:
    where = f"{many(found.length_bytes, 'byte')} at byte {found.offset_bytes}"
    if found.record is None:
        yield [TerminalSpan(f"-- {where} cannot be read: {one_line(found.damage or '')}", ("red",))]
        return
    lines = _record(found.record, manner)
    yield next(lines)
    if found.damage is not None:
        warning = f"    damaged ({where}), so this may not be what was stored: {one_line(found.damage)}"
        yield [TerminalSpan(warning, ("red",))]
    yield from lines


def _print(arguments: Namespace, generation: int, records: Sequence[Record]) -> None:
    if arguments.json:
        for record in records:
            say_json({"generation": generation, **_members(record)})
        return
    manner = manner_here(full=arguments.full, plain=arguments.plain)
    if arguments.branches or arguments.full:
        from transcript_store.formats import with_branches  # imported here: `show` works without the formats

        records = [*with_branches(records)]
    for is_kept, together in groupby(records, lambda record: not arguments.full and _kept(record) is not None):
        if is_kept:
            say()
            say_line([TerminalSpan(_counted(list(together)), ("quiet",))])
            continue
        for record in together:
            say()
            for line in _record(record, manner):
                say_line(line)


def _description(
    directory: str, metadata: ConversationMetadata, generation: int, records: Sequence[Record], arguments: Namespace
) -> Iterator[Line]:
    in_force = [record for record in records if not record.is_retracted]
    messages = sum(record.message is not None for record in in_force)
    events = len(in_force) - messages
    left = sum(record.message is None and left_of(record.extra) is not None for record in in_force)
    how = "" if arguments.branches or arguments.full else "; --branches shows them"
    retracted = len(records) - len(in_force)
    others = f" (and {many(events, 'record')} of {'an event' if events == 1 else 'events'})" if events else ""
    updated = records[-1].at if records else metadata.created_at
    about = {
        "conversation": metadata.id,
        "directory": directory,
        "provider": metadata.provider,
        "model": metadata.model,
        "system prompt": metadata.system_prompt and _shortened(metadata.system_prompt, 100),
        "tools": ", ".join(tool["name"] for tool in metadata.tools or ()),
        "labels": ", ".join(f"{name}={value}" for name, value in metadata.labels.items()),
        "created": time(metadata.created_at),
        "updated": time(updated),
        "messages": f"{messages:,}{others}",
    }
    what_is_missing = {
        "left branches": f"{many(left, 'message')}{how}" if left else None,
        "retracted": many(retracted, "message") if retracted else None,
        "generation": f"{generation}{which}" if (which := _which(generation, metadata)) or arguments.full else None,
        "forked from": _origin(metadata),
    }
    if not arguments.full:
        yield _head(directory, metadata, records, many(messages, "message"), updated)
    for name, fact in ({**about, **what_is_missing} if arguments.full else what_is_missing).items():
        if fact:
            yield TerminalSpan(f"{name:<14} ", ("quiet",)), TerminalSpan(one_line(fact))


def _head(directory: str, metadata: ConversationMetadata, records: Sequence[Record], length: str, updated: str) -> Line:
    """A conversation on one line: its name, how long it is, when something was last said, its project, program, model and folder."""
    labels = metadata.labels
    name = title_in(labels) or _first_prompt(directory, metadata, records)
    name = (
        name
        or f"{labels.get('source') or metadata.provider or 'conversation'}, {metadata.created_at[:16].replace('T', ' ')}"
    )
    folder = os.path.basename(directory)
    facts = (
        length,
        time(updated),
        project_of(labels),
        one_line(labels.get("source") or metadata.provider or ""),
        one_line(metadata.model or ""),
        short_ids(os.path.dirname(directory))(folder) if folder == metadata.id else one_line(directory),
    )
    name, behind = one_line(name), "".join(f"  {fact}" for fact in facts if fact)
    width = columns()
    if width is not None:
        name = fitting(name, max(_LEAST_NAME, width - columns_of(behind)))
    return TerminalSpan(name, ("strong",)), TerminalSpan(behind, ("quiet",))


def _first_prompt(directory: str, metadata: ConversationMetadata, records: Sequence[Record]) -> str | None:
    """The first prompt: of the first generation, if a compaction removed it."""
    from transcript_store.naming import first_prompt, first_prompt_in

    if metadata.generation:
        with suppress(TranscriptStoreError):  # it is sealed, or on a backend: the shown records have a prompt too
            return first_prompt(directory)
    return first_prompt_in(records, metadata.provider)


def _which(generation: int, metadata: ConversationMetadata) -> str:
    if generation != metadata.generation:
        return f" (the live one is {metadata.generation})"
    return f" (the one before it: --generation {generation - 1})" if generation else ""


def _origin(metadata: ConversationMetadata) -> str | None:
    origin = metadata.forked_from
    return f"{origin.get('conversation')}, after its record {origin.get('seq')}" if type(origin) is dict else None


def _kept(record: Record) -> str | None:
    """A word for an imported event; None for every other record."""
    return kind_of_event(record.extra) if record.message is None and record.extra is not None else None


def _counted(events: Sequence[Record]) -> str:
    """One line for adjacent imported events."""
    what = summary([_kept(event) or "" for event in events])
    first, last = events[0], events[-1]
    if len(events) == 1:
        return f"#{first.seq}  event  {time(first.at)}  {what}"
    return f"#{first.seq}–{last.seq}  {many(len(events), 'event')}  {time(first.at)}  {what}"


def _record(record: Record, manner: RenderOptions) -> Iterator[Line]:
    """The lines for a record. Only its heading begins in the first column, so that no message can imitate a heading."""
    extra, full = record.extra, manner.full
    number = TerminalSpan(f"#{record.seq}  ", ("strong",))
    if record.message is None:
        note = None if full or extra is None else kind_of_event(extra) or what_was_imported(extra)
        note = note if record.retracts is None else _what_was_taken_back(record.retracts)
        yield number, TerminalSpan(f"event  {time(record.at)}" + (f"  {note}" if note else ""), ("quiet",))
        extra = None if note and record.retracts is None else extra
    else:
        length = size(len(json.dumps(record.message, ensure_ascii=False, separators=(",", ":")).encode()))
        note = "  retracted" if record.is_retracted else ""
        note += "  on an abandoned branch" if (extra or {}).get("left_branch") is True else ""
        written = None if full else written_by_the_program(record.message, extra)
        note += "" if written is None or written.typed else "  written by the program"
        role = role_of(record.message)
        who = TerminalSpan(one_line(role), ("strong", _ROLES.get(role, "yellow")))
        yield number, who, TerminalSpan(f"  {time(record.at)}  {length}{note}", ("quiet",))
        yield from message_lines(record.message, manner) if written is None else lines_of_written(written, manner)
    if extra is not None and record.message is not None:
        extra = {name: value for name, value in extra.items() if name not in _SHOWN_ABOVE}
    if extra:
        yield from lines_of_parts(parts_of_extra(extra if full else without_source(extra)), manner)


def _what_was_taken_back(named: tuple[int, ...]) -> str:
    if not named:
        return "retracted messages that are not shown"
    first, last = named[0], named[-1]
    return f"retracted #{first}" if first == last else f"retracted the messages #{first} to #{last}"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


_POLL_SECONDS = 0.2


class News(NamedTuple):
    """Either records that were appended to a generation, or an event: a sentence about the conversation."""

    generation: int
    records: Sequence[Record]
    event: str | None = None


def news(conversation: ConversationStore) -> Iterator[News]:
    """Yield new records; end when the conversation is deleted.

    ``conversation`` is read-only and loaded. Its current records are not repeated.
    """
    generation, seen = conversation.get_metadata().generation, conversation.record_count
    while True:
        sleep(_POLL_SECONDS)
        try:
            conversation.refresh()
        except ConversationNotFoundError:
            yield News(generation, (), "the conversation was deleted")
            return
        live = conversation.get_metadata().generation
        shown_from = first_shown(conversation) if generation < live else 0
        while generation < live:
            # It was replaced since the last refresh, perhaps several times. Records that were appended before a replace, and not
            # seen yet, are in the archive now.
            try:
                if generation < shown_from:
                    end = "its end is not shown: secrets were removed since"
                    yield News(generation, (), f"generation {generation}: {end}")
                else:
                    yield News(generation, conversation.get_records(generation=generation)[seen:])
            except GenerationNotFoundError:
                yield News(generation, (), f"generation {generation} is not in the archive: its end cannot be shown")
            generation, seen = generation + 1, 0
            yield News(generation, (), f"the transcript was replaced: generation {generation} starts")
        count = conversation.record_count
        # A writer never lowers the generation or removes records within one: a backup was restored.
        if generation > live or count < seen:
            yield News(live, (), "an older copy of the conversation was put in its place")
        elif count > seen:
            yield News(live, conversation.get_records(last=count - seen))
        generation, seen = live, count
