"""How do records become the items of a page: messages with their calls and results, events, gaps, days?

One generation at a time. A result is shown with its call, wherever it stands; so its message has no place of its own on
the page unless it says more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from textwrap import dedent
from typing import Any, Literal, NamedTuple

from transcript_store.display import many
from transcript_store.formats import Block, Call, Media, NeutralMessage, Other, Result, Text, Thinking
from transcript_store.messages import document_in, left_of, parts_of, tokens_in, typed_of
from transcript_store.naming import is_prompt, label_of, turn_of
from transcript_store.view._contents import (
    PageItem,
    ShownMessage,
    about_of,
    answers_in,
    event_of,
    notes_of,
    shown_messages,
    tokens_shown,
)
from transcript_store.view._html import (
    NOTHING,
    Html,
    day,
    element,
    full_time,
    joined,
    listing,
    readable_json,
    tag,
    text,
    time_of_day,
)
from transcript_store.view._rich_text import code, markdown, media
from transcript_store.view.calls import COMMANDS, summary_of_call, typed
from transcript_store.view.diffs import Diff, diff_of
from transcript_store.view.output import terminal, without_colours

# ---- tools ----
# A call together with its result: its name, its subject, the first lines of its result, and all of it folded.

_PATHS = ("file_path", "path", "filePath", "filename", "absolute_path", "notebook_path")
_CONTENTS = ("content", "contents", "file_text", "text")
_READERS = frozenset({"read", "read_file", "view", "cat", "readfile", "open_file"})
_NAME, _ABOUT_IT, _NOTE, _STATE, _PEEK = (
    element("span", class_=name) for name in ("name", "about", "note", "state", "peek")
)
_MARKS = {"completed": "✓", "in_progress": "▸"}
_SUMMARY, _RESULT = element("summary"), element("div", class_="result")
_LONGEST_ABOUT, _PEEK_LINES, _PEEK_CHARACTERS, _MOST_OPEN = 160, 4, 400, 24


def tool(call: Call, result: Result | None, *, anchor: str | None) -> Html:
    """A call and its result as one element that unfolds. ``anchor`` is the id for the result's place."""
    about, diff = summary_of_call(call.arguments), diff_of(call.arguments)
    said = "" if result is None else result.text
    shown, used = _arguments(call, diff)
    file = _file_read(call, result)
    is_open = diff is not None and len(diff[0].lines) <= _MOST_OPEN
    state = "no result" if result is None else "failed" if result.failed else ""
    todos = _todo_lines(call.arguments)
    note = f"+{diff[0].added} −{diff[0].removed}" if diff else _lines(said) if said and not todos else ""
    head = [_NAME(call.name or "tool"), _ABOUT_IT(about)]
    if note:
        head.append(_NOTE(note))
    if state:
        head.append(_STATE(state))
    if isinstance(described := call.arguments.get("description"), str) and described.strip() and described != about:
        head.insert(2, _NOTE(" ".join(described.split())[:_LONGEST_ABOUT]))
    if todos:
        head.append(_PEEK(_peek("\n".join(todos))))
    elif diff is None and (first := _peek(said)):
        head.append(_PEEK(code(first, file_name=file) if file else terminal(first)))
    elif diff is not None and not is_open:
        head.append(_PEEK(_first_changes(diff[0])))
    rest = {name: value for name, value in call.arguments.items() if name not in used}
    inside = [
        shown,
        listing(code(readable_json(rest), language="json")) if rest else NOTHING,
        NOTHING if result is None else _result(result, file, anchor),
    ]
    kind = "tool failed" if state == "failed" else "tool"
    return element("details", class_=kind, open=is_open)(_SUMMARY(*head), *inside)


def lone_result(result: Result, *, anchor: str | None) -> Html:
    """A result whose call is not there."""
    head = [_NAME(result.name or "result"), _ABOUT_IT(f"a result without its call {result.id}".strip())]
    if first := _peek(result.text):
        head.append(_PEEK(terminal(first)))
    body = joined(*_contents(result))
    return tag("details", _SUMMARY(*head), tag("div", body, class_="result", id=anchor), class_="tool")


def _file_read(call: Call, result: Result | None) -> str:
    """The name of the file whose text the result is; else empty."""
    path = _first(call.arguments, _PATHS) if call.name.lower() in _READERS else ""
    if not path or result is None or result.failed or result.media or "\x1b" in result.text:
        return ""
    return path.rpartition("/")[2]


def _result(result: Result, file: str, anchor: str | None) -> Html:
    body = listing(code(result.text, file_name=file)) if file else joined(*_contents(result))
    return _RESULT(body) if anchor is None else tag("div", body, class_="result", id=anchor)


def _contents(result: Result) -> Iterator[Html]:
    for block in result.content:
        if not isinstance(block, Text):
            yield media(block)
        elif block.text:
            yield listing(terminal(block.text), None if "\n" in block.text.strip("\n") else "wrapped")
    if not result.content:
        yield tag("p", "(nothing was printed)", class_="media")


def _arguments(call: Call, diff: Any) -> tuple[Html, frozenset[str]]:
    """The arguments that have a form of their own, and their names."""
    if diff is not None:
        diff, names = diff
        return listing(_marked(diff.lines), "diff"), names | (frozenset(_PATHS) & call.arguments.keys())
    if todos := _todo_lines(call.arguments):
        return listing("\n".join(todos), "wrapped"), frozenset({"todos"})
    for name in COMMANDS:
        command = typed(call.arguments.get(name))
        if command:
            return listing(code(command, language="bash")), frozenset({name})
    path = _first(call.arguments, _PATHS)
    for name in _CONTENTS:
        if path and isinstance(call.arguments.get(name), str):
            shown = code(call.arguments[name], file_name=path.rpartition("/")[2])
            return listing(shown), frozenset({name, *_PATHS})
    return NOTHING, frozenset()


def _todo_lines(arguments: Mapping[str, Any]) -> list[str]:
    """A list of things to do, one a line; none if the call has no such list."""
    todos = arguments.get("todos")
    items = [one for one in todos if isinstance(one, dict)] if isinstance(todos, list) else []
    return [
        f"{_MARKS.get(str(one.get('status')), '○')} {one['content']}"
        for one in items
        if isinstance(one.get("content"), str)
    ]


def _marked(lines: Sequence[str]) -> Html:
    kinds = {"+": "ins", "-": "del", "@": "hunk"}
    ends = ["\n"] * (len(lines) - 1) + [""]
    return joined(
        *(
            tag("span", line + end, class_=f"line {kinds[line[0]]}") if line[:1] in kinds else text(line + end)
            for line, end in zip(lines, ends, strict=True)
        )
    )


def _first_changes(diff: Diff) -> Html:
    """The lines from the first on that was changed, with … if there are more."""
    first = next((at for at, line in enumerate(diff.lines) if line[:1] in ("+", "-")), 0)
    shown = [line[:_LONGEST_ABOUT] for line in diff.lines[first : first + _PEEK_LINES]]
    return joined(_marked(shown), "" if len(diff.lines) <= first + _PEEK_LINES else " …")


def _first(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((members[name] for name in names if isinstance(members.get(name), str)), "")


def _peek(said: str) -> str:
    """The first lines, with … if there is more."""
    said = said.strip("\n")
    lines = said[: _PEEK_CHARACTERS * 4].split("\n")
    first = "\n".join(lines[:_PEEK_LINES]).rstrip()
    if first.startswith((" ", "\t")):  # else there is nothing that all lines begin with
        first = dedent(first)
    if len(first) > _PEEK_CHARACTERS:
        return f"{without_colours(first)[:_PEEK_CHARACTERS]}…"
    return f"{first} …" if len(lines) > _PEEK_LINES or len(said) > _PEEK_CHARACTERS * 4 else first


def _lines(said: str) -> str:
    return many(said.strip("\n").count("\n") + 1, "line")


# ---- messages ----

Kind = Literal["text", "tools", "thinking"]

_LONGEST_EVENT = 4_000
_MESSAGES_A_MARK = 8
_SAID, _HEADING = element("div", class_="said"), element("header")
_OF_A_PROMPT, _OF_A_REPLY, _MODEL, _TOKENS = (
    element("h2"),
    element("h3"),
    element("span", class_="model"),
    element("span", class_="tokens"),
)
_STOPPED_EARLY = frozenset(
    (
        *("aborted", "cancelled", "canceled", "interrupted", "error", "failed", "incomplete"),
        *("max_tokens", "max_output_tokens", "length", "refusal", "content_filter", "safety"),
    )
)
"""The stop reasons, in lower case, of a reply that is not all that the model had to say."""
_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System"}


class OutlineEntry(NamedTuple):
    """A line of the outline."""

    anchor: str
    label: str
    at: str = ""
    edits: int = 0
    failures: int = 0
    """Of the calls that followed."""

    @property
    def note(self) -> str:
        """When it was said, and what came of it, as far as a person looks for it."""
        edits = many(self.edits, "edit") if self.edits else ""
        return " · ".join(
            filter(None, (time_of_day(self.at), edits, f"{self.failures:,} failed" if self.failures else ""))
        )


@dataclass(slots=True)
class Counts:
    """The counts for the head of the page."""

    messages: int = 0
    prompts: int = 0
    calls: int = 0
    events: int = 0
    gaps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    reply: str | None = None
    """The id of the last reply that was counted: a program may store one in several messages, each with the usage of all."""
    models: dict[str, None] = field(default_factory=dict)
    first_at: str = ""
    last_at: str = ""


@dataclass(slots=True)
class Pieces:
    """What :func:`render_items` makes; ``html`` has a piece for each message, or run of events, or gap."""

    html: list[Html] = field(default_factory=list)
    outline: list[OutlineEntry] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


def render_items(stretches: Iterable[PageItem], provider: str | None, *, prefix: str = "") -> Pieces:
    """Render the items in order. ``prefix`` precedes the number of a record in its anchor."""
    growing = GrowingPieces(provider, prefix=prefix)
    growing.add(stretches)
    return growing.pieces


class GrowingPieces:
    """The pieces of a conversation that grows: what is added later changes no number of a piece that is there."""

    def __init__(self, provider: str | None, *, prefix: str = "") -> None:
        self._provider = provider
        self._said: list[ShownMessage] = []
        self._answers: dict[tuple[int, int], tuple[int, int]] = {}
        self._renderer = _Renderer(prefix, provider)

    @property
    def pieces(self) -> Pieces:
        return self._renderer.pieces

    def add(self, stretches: Iterable[PageItem]) -> list[int]:
        """Add what comes next; returns the numbers of the pieces that are new or not as they were, in order.

        A piece that was there changes if a call in it is answered, or if it is the run of events at the end and grows.
        """
        first = len(self._said)
        self._said += shown_messages(stretches, self._provider)
        known, self._answers = self._answers, answers_in(self._said)
        answered = [call[0] for call in self._answers if call not in known]
        return self._renderer.render(self._said, self._answers, from_number=min([first, *answered]))


class _Checkpoint(NamedTuple):
    """Where the rendering of a message started, and the state then: every eighth message has one, because it costs as
    much as a message.
    """

    number: int
    pieces: int
    prompts: int
    last_prompt: OutlineEntry | None
    counts: Counts
    speaker: str
    day: str


class _Renderer:
    def __init__(self, prefix: str, provider: str | None) -> None:
        self.pieces = self._pieces = Pieces()
        self._provider = provider
        self._prefix = prefix
        self._answers: dict[tuple[int, int], tuple[int, int]] = {}
        self._answered: set[tuple[int, int]] = set()
        self._speaker = ""
        self._day = ""
        self._events: list[PageItem] = []
        self._anchored: dict[int, int] = {}
        """The records whose anchor is within a call, and the number of the message with that call."""
        self._marks: list[_Checkpoint] = []

    def render(
        self, said: Sequence[ShownMessage], answers: dict[tuple[int, int], tuple[int, int]], *, from_number: int
    ) -> list[int]:
        """Render the items from a number on, again or for the first time; returns which of them changed."""
        start, before = self._rewind(from_number)
        kept = len(self._pieces.html)
        self._answers, self._answered = answers, set(answers.values())
        for number in range(start, len(said)):
            if not self._events and (not self._marks or number >= self._marks[-1].number + _MESSAGES_A_MARK):
                self._marks.append(self._mark(number))
            each = said[number]
            record = each.stretch.record
            if record is not None:
                self._count_times(record.at, about_of(record))
            if record is not None and each.turn is None and each.stretch.damage is None:
                self._events.append(each.stretch)
                continue
            self._end_events()
            if each.turn is None:
                self._gap(each.stretch)
            else:
                self._message(number, each, said)
        self._end_events()
        after = self._pieces.html[kept:]
        return [kept + at for at, piece in enumerate(after) if at >= len(before) or before[at] != piece]

    def _mark(self, number: int) -> _Checkpoint:
        pieces = self._pieces
        counts = replace(pieces.counts, models=dict(pieces.counts.models))
        last = pieces.outline[-1] if pieces.outline else None
        return _Checkpoint(number, len(pieces.html), len(pieces.outline), last, counts, self._speaker, self._day)

    def _rewind(self, number: int) -> tuple[int, list[Html]]:
        """Go back to where this message, or the run of events that it is in, begins; returns its number, and the pieces from there on."""
        at = bisect_right(self._marks, number, key=lambda mark: mark.number) - 1
        if at < 0:
            return 0, []
        mark = self._marks[at]
        del self._marks[at:]
        before = self._pieces.html[mark.pieces :]
        del self._pieces.html[mark.pieces :]
        del self._pieces.outline[mark.prompts :]
        if mark.last_prompt is not None:
            self._pieces.outline[-1] = mark.last_prompt
        self._pieces.counts, self._speaker, self._day = mark.counts, mark.speaker, mark.day
        self._anchored = {seq: caller for seq, caller in self._anchored.items() if caller < mark.number}
        return mark.number, before

    def _message(self, number: int, each: ShownMessage, said: Sequence[ShownMessage]) -> None:
        record, turn = each.stretch.record, each.turn
        assert record is not None
        assert turn is not None
        self._pieces.counts.messages += 1
        body, kinds = [], set()
        for kind, html in self._blocks(number, _typed(turn, record.extra), said):
            kinds.add(kind)
            body.append(html)
        if not turn.blocks and record.message is not None:
            for part in parts_of(record.message):
                kinds.add(_kind(part.kind))
                body.append(_folded(part.title or part.kind, part.text))
        if (written := _written_by_the_program(turn, record.extra)) is not None:
            body.append(written)
        body += [tag("p", note, class_="note") for note in notes_of(record.extra or {})]
        if each.stretch.damage:
            body.insert(0, tag("p", each.stretch.damage, class_="gap"))
        if not body:
            return  # its results are shown with their calls
        speaker = _SPEAKERS[turn.role]
        prompts = is_prompt(turn, record.extra)
        if turn.role == "user" and not prompts:
            speaker = "Tool" if written is None else "Program"
        if prompts:
            self._prompt(record.seq, record.at, turn, record.extra)
        self._show(record.seq, record.at, speaker, body, kinds, about=about_of(record), is_prompt=prompts)

    def _blocks(self, number: int, turn: NeutralMessage, said: Sequence[ShownMessage]) -> Iterator[tuple[Kind, Html]]:
        for index, block in enumerate(turn.blocks):
            if isinstance(block, Call):
                self._pieces.counts.calls += 1
                place = self._answers.get((number, index))
                self._note_in_outline(block, place, said)
                yield "tools", self._call(block, place, number, said)
            elif isinstance(block, Result):
                if (number, index) not in self._answered:
                    yield "tools", lone_result(block, anchor=None)
            elif html := _block(block, turn.role):
                yield html

    def _call(self, call: Call, place: tuple[int, int] | None, number: int, said: Sequence[ShownMessage]) -> Html:
        if place is None:
            return tool(call, None, anchor=None)
        answer = said[place[0]]
        assert answer.turn is not None
        assert answer.stretch.record is not None
        result = answer.turn.blocks[place[1]]
        assert isinstance(result, Result)
        seq = answer.stretch.record.seq
        alone = place[0] != number and all(isinstance(block, Result) for block in answer.turn.blocks)
        anchor = f"{self._prefix}{seq}" if alone and seq not in self._anchored else None
        self._anchored.setdefault(seq, number)
        return tool(call, result, anchor=anchor)

    def _note_in_outline(self, call: Call, place: tuple[int, int] | None, said: Sequence[ShownMessage]) -> None:
        """Count an edit, or a call that failed, with the prompt that it followed."""
        turn = said[place[0]].turn if place else None
        result = turn.blocks[place[1]] if place and turn else None
        edits, failures = diff_of(call.arguments) is not None, isinstance(result, Result) and result.failed
        if (outline := self._pieces.outline) and (edits or failures):
            last = outline[-1]
            outline[-1] = last._replace(edits=last.edits + edits, failures=last.failures + failures)

    def _prompt(self, seq: int, at: str, turn: NeutralMessage, extra: dict[str, Any] | None) -> None:
        self._pieces.outline.append(OutlineEntry(f"{self._prefix}{seq}", label_of(turn, extra), at))
        self._pieces.counts.prompts += 1

    def _show(
        self,
        seq: int,
        at: str,
        speaker: str,
        body: Sequence[Html],
        kinds: Iterable[Kind],
        *,
        about: dict[str, Any],
        is_prompt: bool,
    ) -> None:
        anchor = f"{self._prefix}{seq}"
        model = about.get("model")
        if isinstance(model, str):
            self._pieces.counts.models[model] = None
        goes_on = speaker == self._speaker and not is_prompt
        self._speaker = speaker
        parts = [(_OF_A_PROMPT if is_prompt else _OF_A_REPLY)(speaker)]
        if isinstance(model, str) and not goes_on:
            parts.append(_MODEL(model))
        when = full_time(at)
        if used := tokens_shown(about):
            parts.append(_TOKENS(used))
            when += f"; {used}"
        link = tag(
            "a", tag("time", time_of_day(at), datetime=at, title=when), f" #{seq}", href=f"#{anchor}", class_="link"
        )
        heading = _HEADING(*parts, link)
        stopped = about.get("stop_reason")
        if isinstance(stopped, str) and stopped.lower() in _STOPPED_EARLY:
            body = (*body, tag("p", f"Stopped early: {stopped}", class_="state"))
        classes = _classes(speaker, frozenset(kinds), is_prompt=is_prompt, goes_on=goes_on)
        article = tag("article", heading, *body, id=anchor, class_=classes, tabindex=-1)
        self._add(at, article)

    def _add(self, at: str, html: Html) -> None:
        if at and (today := day(at)) != self._day:
            self._day = today
            html = joined(tag("p", today, class_="day"), html)
        self._pieces.html.append(html)

    def _gap(self, stretch: PageItem) -> None:
        self._pieces.counts.gaps += 1
        self._speaker = ""
        self._pieces.html.append(tag("p", stretch.damage or "", class_="gap"))

    def _end_events(self) -> None:
        if not self._events:
            return
        events, self._events = self._events, []
        for is_left, together in groupby(
            events, lambda event: event.record and left_of(event.record.extra) is not None
        ):
            run = list(together)
            self._pieces.html.append(self._left(run) if is_left else self._folded_events(run))

    def _left(self, events: Sequence[PageItem]) -> Html:
        """Messages on a branch that the conversation left."""
        shown: list[Html] = []
        for event in events:
            record = event.record
            assert record is not None
            message, about = left_of(record.extra) or ({}, {})
            turn = turn_of(message, self._provider)
            speaker = _SPEAKERS[turn.role]
            if turn.role == "user" and not is_prompt(turn, about):
                speaker = "Program" if "scaffolding" in about else "Tool"
            head = tag("p", tag("span", speaker, class_="name"), f" {time_of_day(record.at)} #{record.seq}")
            shown.append(
                tag("div", head, *_alone(turn, message, about), id=f"{self._prefix}{record.seq}", class_="event")
            )
        said = f"{many(len(events), 'message')} on an abandoned branch"
        return tag("details", tag("summary", said), *shown, class_="events left")

    def _folded_events(self, events: Sequence[PageItem]) -> Html:
        self._pieces.counts.events += len(events)
        shown: list[Html] = []
        names: dict[str, None] = {}
        for event in events:
            record = event.record
            assert record is not None
            name, value = event_of(record.extra or {})
            if record.retracts is not None:
                name, value = "messages were retracted", {"retracts": record.retracts, **(record.extra or {})}
            names[name] = None
            head = tag("p", tag("span", name, class_="name"), f" {time_of_day(record.at)} #{record.seq}")
            shown.append(tag("div", head, _json(value), id=f"{self._prefix}{record.seq}", class_="event"))
        listed = ", ".join(list(names)[:6]) + (", …" if len(names) > 6 else "")
        summary = tag("summary", many(len(events), "event"), tag("span", listed, class_="about"))
        return tag("details", summary, *shown, class_="events")

    def _count_times(self, at: str, about: dict[str, Any]) -> None:
        counts = self._pieces.counts
        counts.first_at, counts.last_at = counts.first_at or at, at
        usage, reply = about.get("usage"), about.get("reply")
        if isinstance(usage, dict) and (reply is None or reply != counts.reply):
            counts.reply = reply
            tokens = tokens_in(usage)
            counts.tokens_in += tokens.input or 0
            counts.tokens_out += tokens.output or 0


@lru_cache(maxsize=64)
def _classes(speaker: str, kinds: frozenset[Kind], *, is_prompt: bool, goes_on: bool) -> str:
    named = [speaker.lower(), "prompt" if is_prompt else "reply", *(f"has-{kind}" for kind in sorted(kinds))]
    return " ".join(named + ["goes-on"] * goes_on)


def _typed(turn: NeutralMessage, extra: dict[str, Any] | None) -> NeutralMessage:
    """The turn with what the user typed alone, where a program wrote some of it."""
    if "scaffolding" not in (extra or {}):
        return turn
    typed = typed_of(extra, "")
    others = (block for block in turn.blocks if not isinstance(block, Text))
    return replace(turn, blocks=(*((Text(typed),) if typed else ()), *others))


def _written_by_the_program(turn: NeutralMessage, extra: dict[str, Any] | None) -> Html | None:
    """A message of which a program wrote some, folded."""
    if "scaffolding" not in (extra or {}):
        return None
    said = "\n\n".join(block.text for block in turn.blocks if isinstance(block, Text))
    if not said.strip():
        return None
    about = tag("span", " ".join(said[:400].split())[:160], class_="about")
    summary = tag("summary", tag("span", "Written by the program", class_="name"), about)
    return tag("details", summary, listing(said), class_="tool scaffolding")


def _alone(turn: NeutralMessage, message: dict[str, Any], extra: dict[str, Any]) -> Iterator[Html]:
    """The blocks of a message, each by itself; what a program wrote of it is folded."""
    for block in _typed(turn, extra).blocks:
        if isinstance(block, Call):
            yield tool(block, None, anchor=None)
        elif isinstance(block, Result):
            yield lone_result(block, anchor=None)
        elif found := _block(block, turn.role):
            yield found[1]
    if (written := _written_by_the_program(turn, extra)) is not None:
        yield written
    if not turn.blocks:
        yield from (_folded(part.title or part.kind, part.text) for part in parts_of(message))


def _block(block: Block, role: str) -> tuple[Kind, Html] | None:
    if isinstance(block, Text) and block.title is not None:
        return "text", _folded(block.title, block.text)
    if isinstance(block, Text):
        return ("text", _SAID(markdown(block.text))) if block.text.strip() else None
    if isinstance(block, Thinking):
        if not block.text.strip():
            return "thinking", tag("p", "Thinking, not shown by the provider", class_="note")
        said = " ".join(block.text[:400].replace("**", "").split())  # a summary of thinking begins with a bold line
        first = said[:160] + ("…" if len(said) > 160 else "")
        summary = tag("summary", tag("span", "Thinking", class_="name"), tag("span", first, class_="about"))
        return "thinking", tag("details", summary, tag("div", markdown(block.text), class_="said"), class_="thinking")
    if isinstance(block, Media):
        document = document_in(block.own or {})
        return "text", media(block) if document is None else _folded(*document)
    own = block.own if isinstance(block, Other) else None
    if own is None:
        return None
    parts = parts_of({"role": role, "content": [own]})
    return "text", joined(*(_folded(part.title or part.kind, part.text) for part in parts))


def _folded(title: str, said: str) -> Html:
    return tag("details", tag("summary", tag("span", title, class_="name")), listing(said), class_="tool")


def _kind(kind: str) -> Kind:
    return "tools" if kind in ("call", "result") else "thinking" if kind == "thinking" else "text"


def _json(value: Any) -> Html:
    said = value if isinstance(value, str) else readable_json(value)
    cut = len(said) - _LONGEST_EVENT
    more = f"\n… {many(cut, 'more character')}: `transcript-store show` has them" if cut > 0 else ""
    return listing(joined(code(said[:_LONGEST_EVENT], language="json"), more))
