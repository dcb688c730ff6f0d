"""The lines of Aider's chat history: which are of one run of the program, and which belong together. See ``_aider``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from transcript_store.formats._lines import SourceLine

STARTED = "# aider chat started at "
PROMPT = b"#### "


def runs_of(data: bytes) -> Iterator[list[SourceLine]]:
    """The lines of each run. The empty line before its heading is its own."""
    found: list[bytes] = []
    offset = 0
    for raw in re.findall(rb"[^\n]*\n|[^\n]+\Z", data):
        if raw.startswith(STARTED.encode()) and any(line.strip() for line in found):
            before = [found.pop()] if not found[-1].strip() else []
            yield _numbered(found, offset)
            offset += sum(map(len, found))
            found = before
        found.append(raw)
    if found:
        yield _numbered(found, offset)


def _numbered(raws: list[bytes], offset: int) -> list[SourceLine]:
    lines: list[SourceLine] = []
    for number, raw in enumerate(raws, 1):
        lines.append(SourceLine(number, offset, raw, None))
        offset += len(raw)
    return lines


def grouped(lines: list[SourceLine]) -> Iterator[tuple[str, list[SourceLine]]]:
    """Group the lines, each group with its kind.

    The program writes an empty line after a heading and after a reply, and one before a prompt.
    """
    group: list[SourceLine] = []
    empty: list[SourceLine] = []
    """Empty lines that are not in a group yet."""
    kind = ""
    follows = False
    """True if the line before is the program's or a prompt. A report may start then, and its end may be on a later line."""
    is_open = False
    """Whether a report has not ended."""
    for line in lines:
        said = text_on(line)
        is_prompt = line.raw.startswith(PROMPT)
        if line.raw.startswith(STARTED.encode()):
            now, is_open = "started", False
        elif is_prompt:
            now, is_open = "prompt", False
        elif said.startswith(">") and (said.endswith("  ") or follows):
            now, is_open = "note", not said.endswith("  ")
        elif is_open:
            is_open = not said.endswith("  ")
            group.append(line)
            follows = not is_open
            continue
        elif not said.strip():
            empty.append(line)
            follows = False
            continue
        else:
            now = "text"
        if now != kind or now in ("note", "started") or (now == "prompt" and not follows):
            own = 1 if kind in ("text", "started") else 0
            group += empty[:own]
            if group:
                yield kind, group
            group, empty = [], empty[own:]
        group += [*empty, line]
        kind, follows, empty = now, now != "text", []
    if group or empty:
        yield kind, [*group, *empty]


def text_on(line: SourceLine) -> str:
    """Its text, without its end."""
    return line.raw.decode(errors="replace").rstrip("\r\n")
