"""A message as lines, for a person: its text, with Markdown on a terminal, and its other parts under headings."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from transcript_store.cli._shared.terminal import Line, Look, TerminalSpan, columns, has_looks, many, one_line, safe
from transcript_store.messages import Part, as_text, left_of, parts_of, tokens_in, typed_of

_LINES, _CHARACTERS = 12, 1200
"""The limits for a tool's arguments and results, thinking and unknown parts, unless shown in full."""
_PREVIEW = 60
"""In characters: for text that a program wrote in the user's name."""
_WIDEST = 100
"""In columns. Longer lines are hard to read, even on a wide terminal."""
_TEXT_INDENT, _PART_INDENT = 4, 6
_TITLES: Mapping[str, tuple[Look, ...]] = {"call": ("strong",), "result": ("strong",)}
_TEXTS: Mapping[str, tuple[Look, ...]] = {"thinking": ("quiet", "italic")}


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The display of messages."""

    full: bool
    """Nothing is cut."""
    prose: Callable[[str], Iterable[Line]]
    listing: Callable[[str, str, str], Iterable[Line]]
    """The lines of a text, by its language and the kind of its part."""
    arranged: Callable[[str], tuple[str, str]]
    """The arguments of a call for a person, and their language."""
    is_spaced: bool = False
    """True if empty lines separate the parts of a message."""


def manner_here(*, full: bool, plain: bool) -> RenderOptions:
    """The display for this standard output: with Markdown on a terminal, if the extra ``view`` is installed."""
    columns_there = columns()
    if not plain and columns_there is not None and has_looks():
        try:
            return _with_markdown(full, min(columns_there, _WIDEST))
        except ModuleNotFoundError:
            pass
    as_it_is = RenderOptions(full, _as_written, lambda text, *_: _as_written(text), lambda text: (text, ""))
    if plain:
        return as_it_is

    return replace(as_it_is, arranged=as_typed)


def _with_markdown(full: bool, width: int) -> RenderOptions:
    from transcript_store.cli._shared.markdown import code_lines, markdown_lines, output

    def listing(text: str, language: str, kind: str) -> Iterator[Line]:
        if kind in ("result", "error"):
            return output(text, width - _PART_INDENT)
        return code_lines(text, width - _PART_INDENT, language=language, looks=_TEXTS.get(kind, ()))

    return RenderOptions(
        full, lambda text: markdown_lines(text, width - _TEXT_INDENT), listing, arranged, is_spaced=True
    )


def message_lines(message: object, manner: RenderOptions) -> Iterator[Line]:
    """The lines for a message. All of them are indented: the first column is for the headings of records."""
    return lines_of_parts(parts_of(message), manner)


@dataclass(frozen=True, slots=True)
class ScaffoldingText:
    """A message with text that a program wrote in the user's name."""

    typed: str
    """The user's text; empty if the program wrote all of it."""
    others: tuple[Part, ...]
    """Parts other than text: images, results."""
    text: str
    """All of its texts."""


def written_by_the_program(message: object, extra: Mapping[str, Any] | None) -> ScaffoldingText | None:
    """The message if a program wrote part of it; else None."""
    if "scaffolding" not in (extra or {}):
        return None
    parts = parts_of(message)
    text = "\n\n".join(part.text for part in parts if part.kind == "text")
    return ScaffoldingText(typed_of(extra, ""), tuple(part for part in parts if part.kind != "text"), text)


def lines_of_written(written: ScaffoldingText, manner: RenderOptions) -> Iterator[Line]:
    """The lines for such a message: the user's text, and the start of the program's."""
    if written.typed:
        yield from _indented(manner.prose(written.typed), _TEXT_INDENT)
    yield from lines_of_parts(written.others, manner)
    if written.text:
        begins = one_line(written.text.strip())
        shown = begins if len(begins) <= _PREVIEW else f"{begins[:_PREVIEW]}…"
        more = f" ({many(len(written.text), 'character')} that the program wrote; --full shows them)"
        yield [TerminalSpan(" " * _TEXT_INDENT), TerminalSpan(shown, ("quiet",)), TerminalSpan(more, ("quiet",))]


def lines_of_parts(parts: Iterable[Part], manner: RenderOptions) -> Iterator[Line]:
    """The lines for parts of a message."""
    for at, part in enumerate(parts):
        if at and manner.is_spaced:
            yield ()
        if part.kind == "text":
            yield from _indented(manner.prose(part.text) if part.text else (), _TEXT_INDENT)
        else:
            title = one_line(part.title or part.kind)
            yield [TerminalSpan(" " * _TEXT_INDENT), TerminalSpan(title, _TITLES.get(part.kind, ("quiet",)))]
            if manner.full or part.kind != "besides":
                text, language = manner.arranged(part.text) if part.kind == "call" else (part.text, "")
                text = text if manner.full else _cut(text)
                yield from _indented(manner.listing(text, language, part.kind) if text else (), _PART_INDENT)


def _as_written(text: str) -> Iterator[Line]:
    return ([TerminalSpan(line)] for line in safe(text).split("\n"))


def _indented(lines: Iterable[Line], indent: int) -> Iterator[Line]:
    return ((TerminalSpan(" " * indent), *line) for line in lines)


def _cut(text: str) -> str:
    kept = "\n".join(text.split("\n", _LINES)[:_LINES])[:_CHARACTERS]
    return text if kept == text else f"{kept}\n… {many(len(text) - len(kept), 'more character')} (--full shows them)"


# ---- calls ----
#
# The arguments of a call, for a person: an edit as its diff, a text of several lines as lines, everything else as JSON.


def as_typed(arguments: str) -> tuple[str, str]:
    """A shell call as typed at a prompt, ``$ pytest -q``, with its language; other calls unchanged."""
    return (command, "bash") if (command := _command(_object(arguments) or {})) else (arguments, "")


def _command(given: dict[str, Any]) -> str | None:
    """The command of a shell call, followed by its description and other arguments as a comment."""
    from transcript_store.view.calls import COMMANDS, shell_command_of

    if not (command := shell_command_of(given)).strip():
        return None
    first, *others = command.split("\n")
    beside = {key: value for key, value in given.items() if key not in COMMANDS and value not in (None, "", False)}
    text = beside.pop("description", "")
    about = [text] if isinstance(text, str) and text else []
    about += [json.dumps(beside, ensure_ascii=False)] if beside else []
    behind = f"  # {' '.join(about)}" if about else ""
    return "\n".join((f"$ {first}{behind}", *(f"  {line}" for line in others)))


def arranged(arguments: str) -> tuple[str, str]:
    """The arguments, which are JSON or any other text, and their language."""
    from transcript_store.view.diffs import diff_of  # a pipe gets no diff

    given = _object(arguments)
    if given is not None and (command := _command(given)) is not None:
        return command, "bash"
    found = None if given is None else diff_of(given)
    if given is None:
        return arguments, "json"
    if found is not None:
        diff, names = found
        return "\n".join((*_others(given, names), *diff.lines)), "diff"
    texts = {name: text for name, text in given.items() if isinstance(text, str) and "\n" in text.strip("\n")}
    if not texts:
        return arguments, "json"
    blocks = (f"{name}:\n{_indented_text(text)}" for name, text in texts.items())
    return "\n".join((*_others(given, frozenset(texts)), *blocks)), ""


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _others(given: dict[str, Any], names: frozenset[str]) -> list[str]:
    """The members without a form of their own, on one line."""
    rest = {name: value for name, value in given.items() if name not in names}
    return [json.dumps(rest, ensure_ascii=False)] if rest else []


def _indented_text(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.strip("\n").split("\n"))


# ---- render extra ----
#
# A record's ``extra``, for a person: usage, an answer that was interrupted, a tool result that came before its message.
#
# A chat client writes these members; docs/chat.md describes them. The Claude Agent SDK's session store writes more around a
# message, for Claude Code only. A member in an unknown form is shown as JSON: nothing
# that is stored raises an error here.


def parts_of_extra(extra: Mapping[str, Any]) -> Iterator[Part]:
    """The parts of a record's ``extra``, the most important first. Each member of it is in exactly one part."""
    rest = dict(extra)
    incomplete = rest.get("incomplete")
    if isinstance(incomplete, dict) and isinstance(incomplete.get("reason"), str):
        yield Part("besides", f"interrupted: {incomplete['reason']}", as_text(rest.pop("incomplete")))
    refused = rest.get("refused")
    if isinstance(refused, dict) and isinstance(refused.get("reason"), str):
        yield Part("besides", f"refused: {refused['reason']}", as_text(rest.pop("refused")))
    if isinstance(rest.get("thinking"), str):
        yield Part("thinking", "thinking, stored beside the message", rest.pop("thinking"))
    if rest.get("failed") is True:
        yield Part("besides", "the call failed", "")
        del rest["failed"]
    lost = rest.get("interrupted")
    if isinstance(lost, list):
        yield Part("besides", f"interrupted: the outcome is unknown for {', '.join(map(as_text, lost))}", "")
        del rest["interrupted"]
    if rest.get("failed") is True:
        del rest["failed"]
        yield Part("besides", "the call failed", "")
    result = rest.get("tool_result")
    if isinstance(result, dict) and isinstance(result.get("result"), dict):
        name = as_text(result.get("name"))
        yield Part(
            "besides", f"the result of {name}, before the message with all results", as_text(rest.pop("tool_result"))
        )
        yield from parts_of(result["result"])
    yield from _reply(rest)
    yield from _around(rest)
    if rest:
        yield Part("other", "extra", as_text(rest))


def _reply(rest: dict[str, Any]) -> Iterator[Part]:
    """The provider's facts about its reply: tokens, stop reason, model. Removes them from ``rest``."""
    facts, shown = [], {}
    usage = rest.get("usage")
    if isinstance(usage, dict):
        took = tokens_in(usage)
        if took.input is not None and took.output is not None:
            facts.append(f"{many(took.input, 'token')} in, {took.output:,} out")
            shown["usage"] = rest.pop("usage")
    for name in ("stop_reason", "model"):
        if isinstance(rest.get(name), str):
            facts.append(f"{name.replace('_', ' ')} {rest[name]}")
            shown[name] = rest.pop(name)
    if facts:
        if isinstance(rest.get("response_id"), str):
            shown["response_id"] = rest.pop("response_id")
        yield Part("besides", "; ".join(facts), as_text(shown))


def _around(rest: dict[str, Any]) -> Iterator[Part]:
    """The line around a message of Claude Code, with null for the message. Removes it from ``rest``."""
    entry = rest.get("entry")
    if isinstance(entry, dict) and "message" in entry and entry["message"] is None:
        shown = {name: rest.pop(name) for name in ("entry", "summary") if name in rest}
        names = ", ".join(name for name in entry if name != "message")
        yield Part("besides", f"around it: {names}", as_text(shown))


# ---- imported ----
#
# What an import stored in the records, in few words: a source line as its kind, a note as its origin.
#
# docs/import.md describes both: ``extra.source`` has the source lines of a record, ``extra.import`` what the import did. They
# serve to restore the source's bytes; one line is enough for a person. Anything in another form is not ours to shorten: then
# these functions return None, and the record is shown like any other.

_MOST_KINDS = 4
_LONGEST_KIND = 40
_OF_A_REPLY = frozenset({"usage", "model", "response_id"})
"""The other member of an event for a paid reply without text: a compaction."""


def without_source(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """An ``extra`` without the lines of the source, if it names them."""
    return {name: value for name, value in extra.items() if name != "source"} if _lines(extra) is not None else extra


def kind_of_event(extra: Mapping[str, Any]) -> str | None:
    """The kind of an event's source lines, in the source's words; None if the event has more than these."""
    if left_of(extra) is not None:
        return "message on an abandoned branch"
    lines = _lines(extra) if extra.keys() - _OF_A_REPLY == {"source"} else None
    written = [line for line in lines or () if not (isinstance(line, dict) and str(line.get("raw", "-")).isspace())]
    if written and isinstance(written[0], dict) and str(written[0].get("raw", "")).startswith(_OF_A_PROGRAM):
        return _short(written[0]["raw"])  # the first line of a report is its title
    return ", ".join(dict.fromkeys(map(_kind, written or lines))) if lines else None


def what_was_imported(extra: Mapping[str, Any]) -> str | None:
    """An import note as one line; None if the event is another one."""
    note = extra.get("import")
    if extra.keys() != {"import"} or not isinstance(note, dict) or not isinstance(note.get("format"), str):
        return None
    file = note.get("file")
    name = file.get("name") if isinstance(file, dict) else None
    text = f"imported from {note['format']}"
    if isinstance(name, str):
        text += f", {os.path.basename(name)}"
    for counted, what in (("lines", "line"), ("findings_count", "finding")):
        if isinstance(number := note.get(counted), int) and number:
            text += f", {many(number, what)}"
    return one_line(text)


def summary(kinds: Sequence[str]) -> str:
    """Kinds of events, the most frequent first, each with its count if that is more than one."""
    counted = Counter(kinds).most_common()
    if len(counted) == 1:
        return counted[0][0]
    shown = [f"{count:,} {kind}" for kind, count in counted[:_MOST_KINDS]]
    rest = sum(count for _, count in counted[_MOST_KINDS:])
    return ", ".join([*shown, f"{rest:,} others"] if rest else shown)


_OF_A_PROGRAM = ("> ", "# ")
"""The prefixes of Markdown lines with a program's words."""


def _lines(extra: Mapping[str, Any]) -> list[Any] | None:
    source = extra.get("source")
    lines = source.get("lines") if isinstance(source, dict) else None
    return lines if isinstance(lines, list) else None


def _kind(line: object) -> str:
    value = line.get("line") if isinstance(line, dict) else None
    if isinstance(line, dict) and value is None and isinstance(line.get("raw"), str):
        with suppress(ValueError, RecursionError):
            value = _object_in(line["raw"])
    if not isinstance(value, dict):
        # A line that cannot be read, or the part of a document before its messages.
        is_head = isinstance(line, dict) and str(line.get("raw", "")).rstrip().endswith((":", "[", "{"))
        return "document head" if is_head else "text that is not a JSON object"
    inner = value.get("message", value.get("event"))
    kind = next((value[name] for name in ("type", "kind", "role", "sender") if isinstance(value.get(name), str)), None)
    if kind is None or "event" in value:
        named = inner.get("type") if isinstance(inner, dict) else None
        kind = named if isinstance(named, str) else kind or _kind_of_node(value, inner)
    if isinstance(inner, dict) and isinstance(
        inner.get("role"), str
    ):  # not sent: it failed, or its branch was abandoned
        kind += f" ({inner['role']})"
    return _short(kind)


def _short(text: str) -> str:
    return one_line(text.rstrip() if len(text) <= _LONGEST_KIND else f"{text[:_LONGEST_KIND]}…")


def _object_in(raw: str) -> object:
    """The object of a line; for a part of a document, the object after its name."""
    if raw.lstrip().startswith("{"):
        return json.loads(raw)
    return json.JSONDecoder().raw_decode(raw, max(0, raw.find("{")))[0]


def _kind_of_node(value: dict[str, Any], message: object) -> str:
    """The kind of a node in a tree of messages, which names none; for other objects, the kind they name, or their members."""
    if isinstance(message, str):
        return message
    if not isinstance(message, dict):
        is_node = not value.keys().isdisjoint(("parent", "children"))
        return "node" if is_node else ", ".join([*value][:_MOST_KINDS]) or "empty object"
    author, about = message.get("author"), message.get("metadata")
    role = author.get("role") if isinstance(author, dict) else None
    is_hidden = isinstance(about, dict) and about.get("is_visually_hidden_from_conversation") is True
    kind = "hidden message" if is_hidden else "message"
    return f"{kind} ({role})" if isinstance(role, str) else kind
