"""A call together with its result: its name, what it is about, the first lines of what came of it, and all of it folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import dedent
from typing import Any

from transcript_store.formats import Call, Result, Text
from transcript_store.view._html import NOTHING, Html, element, joined, listing, tag, text
from transcript_store.view._markdown import code
from transcript_store.view._media import media
from transcript_store.view._times import indented
from transcript_store.view.calls import COMMANDS, summary_of_call, typed
from transcript_store.view.diffs import Diff, diff_of
from transcript_store.view.output import terminal, without_colours
from transcript_store.words import many

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
    about, told = summary_of_call(call.arguments), diff_of(call.arguments)
    said = "" if result is None else result.text
    shown, used = _arguments(call, told)
    file = _file_read(call, result)
    is_open = told is not None and len(told[0].lines) <= _MOST_OPEN
    state = "no result" if result is None else "failed" if result.failed else ""
    note = f"+{told[0].added} −{told[0].removed}" if told else _lines(said) if said else ""
    head = [_NAME(call.name or "tool"), _ABOUT_IT(about)]
    if note:
        head.append(_NOTE(note))
    if state:
        head.append(_STATE(state))
    if isinstance(described := call.arguments.get("description"), str) and described.strip() and described != about:
        head.insert(2, _NOTE(" ".join(described.split())[:_LONGEST_ABOUT]))
    if todos := _todo_lines(call.arguments):
        head.append(_PEEK("\n".join(todos)))
    elif told is None and (first := _peek(said)):
        head.append(_PEEK(code(first, file_name=file) if file else terminal(first)))
    elif told is not None and not is_open:
        head.append(_PEEK(_first_changes(told[0])))
    rest = {name: value for name, value in call.arguments.items() if name not in used}
    inside = [
        shown,
        listing(code(indented(rest), language="json")) if rest else NOTHING,
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


def _arguments(call: Call, told: Any) -> tuple[Html, frozenset[str]]:
    """The arguments that have a form of their own, and their names."""
    if told is not None:
        diff, names = told
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
