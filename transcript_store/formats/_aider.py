"""Aider: ``.aider.chat.history.md`` of a repository, Markdown that each run extends. A run is a session here.

* ``# aider chat started at <time>``: the only time, local and without its zone.
* ``#### ``: the user's text, line by line.
* ``> ``: the program's text, up to two spaces at the end of a line; only the first line of a report has the sign. A quotation of
  the model looks the same: the end of the line and the line before decide.
* everything else: the model's text. Reasoning, images and results of tools are not in the file.

``/clear`` and ``/reset`` start a generation. ``.aider.input.history`` beside it has a time for each prompt.

Source: files of 0.86.2, and its ``io.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate

from transcript_store.formats._blocks import Text
from transcript_store.formats._dialogue import Dialogue
from transcript_store.formats._document import Span, read_all
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._plan import SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Draft, Restart, Steps, facts_of, replayed
from transcript_store.formats._rows import file_of, text_beside

STARTED = "# aider chat started at "
PROMPT = b"#### "
_FILE = ".aider.chat.history.md"
_MODEL = re.compile(r"> (?:Main model|Model): (\S+) with ")
_TOKENS = re.compile(r"> Tokens: ([\d.]+)(k?) sent.*?, ([\d.]+)(k?) received\.")
_CLEARED = (["/clear"], ["/reset"])
_TIME = 19
"""The length of ``2026-11-27 09:48:53``."""


class Aider:
    """Reads the chat history of a repository."""

    name = "aider"

    def recognizes(self, head: SourceHead) -> bool:
        return head.start.lstrip().startswith(STARTED.encode())

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        times = _times_of_prompts(text_beside(source, ".aider.input.history"))
        folder = str(source.name).removesuffix(_FILE).rstrip("/\\") if file_of(source) == _FILE else ""
        seen: set[str] = set()
        for lines in runs_of(read_all(source, Span(0, source.size))):
            run = _AiderRun(lines, times)
            said = replayed(source, run.walk(), partial(_again, lines, times))
            if run.session in seen:  # the very same run, twice in one file
                run.session += f" {len(seen)}"
            seen.add(run.session)
            facts = facts_of(session=run.session, model=run.model, cwd=folder)
            yield facts.plan(self.name, lines, said, run.dialogue.provider, run.dialogue.losses)


def _again(lines: list[SourceLine], times: dict[str, list[str]]) -> Steps:
    return _AiderRun(lines, times).walk()


class _AiderRun:
    """One run of the program."""

    def __init__(self, lines: list[SourceLine], times: dict[str, list[str]]) -> None:
        self._lines = lines
        self._times = {said: list(at) for said, at in times.items()}
        self.dialogue = Dialogue()
        self.model: str | None = None
        beginning = hashlib.sha256()
        for line in lines:  # through the first typed line, so that a run that grows stays the same
            beginning.update(line.raw.strip())
            if line.raw.startswith(PROMPT):
                break
        self.session = beginning.hexdigest()

    def walk(self) -> Steps:
        at: str | None = None
        reply: Draft | None = None
        for kind, group in grouped(self._lines):
            said = "\n".join(map(text_on, group)).strip()
            if kind == "prompt":
                reply = None
                said = "\n".join(text_on(line)[len(PROMPT) :].rstrip() for line in group if line.raw.strip())
                at = next(iter(self._times.get(said, ())), at)
                self._times[said] = self._times.get(said, [])[1:]
                yield from self._prompt(said, group, at)
            elif kind == "text":
                about = {"model": self.model}
                reply = self.dialogue.reply([Text(said)], None, None, about, key=str(group[0].number))
                reply.lines += group
            else:
                if kind == "started":
                    at = said[len(STARTED) : len(STARTED) + _TIME].replace(" ", "T")
                self._note(said, reply)
                self.dialogue.event(*group, at=at if kind == "started" else None)
        yield from self.dialogue.take()

    def _prompt(self, said: str, group: list[SourceLine], at: str | None) -> Steps:
        yield from self.dialogue.take()
        if said.split()[:1] in _CLEARED:
            yield Restart()
            self.dialogue.event(*group, at=at)
            return
        self.dialogue.user([Text(said)], None, at).lines += group

    def _note(self, said: str, reply: Draft | None) -> None:
        if (found := _MODEL.match(said)) is not None:
            self.model = found[1]
        elif (counts := _TOKENS.match(said)) is not None and reply is not None:
            names = ("input_tokens", "output_tokens")
            pairs = zip(names, (counts.group(1, 2), counts.group(3, 4)), strict=True)
            reply.extra["usage"] = {name: round(float(given) * (1000 if k else 1)) for name, (given, k) in pairs}


def _times_of_prompts(history: bytes) -> dict[str, list[str]]:
    """When each text was typed, in their order. The program notes each prompt twice in a row."""
    found: dict[str, list[str]] = defaultdict(list)
    typed: list[str] = []
    at, last = "", ("", "")
    for raw in [*history.decode(errors="replace").split("\n"), "# "]:
        if raw.startswith("# "):
            said = "\n".join(typed)
            if typed and (said, at[:_TIME]) != last:
                found[said].append(at)
            last, at, typed = (said, at[:_TIME]) if typed else last, raw[2:].replace(" ", "T"), []
        elif raw.startswith("+"):
            typed.append(raw[1:].rstrip())
    return found


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
    placed = zip(raws, accumulate(map(len, raws), initial=offset), strict=False)
    return [SourceLine(number, at, raw, None) for number, (raw, at) in enumerate(placed, 1)]


def grouped(lines: list[SourceLine]) -> Iterator[tuple[str, list[SourceLine]]]:
    """Group the lines, each group with its kind.

    The program writes an empty line after a heading and after a reply, and one before a prompt.
    """
    group: list[SourceLine] = []
    empty: list[SourceLine] = []  # lines that are not in a group yet
    kind, is_open = "", False  # True if a report has not ended
    follows = False  # True after a line of the program or a prompt: a report that starts then may end on a later line
    for line in lines:
        said = text_on(line)
        if line.raw.startswith(STARTED.encode()):
            now, is_open = "started", False
        elif line.raw.startswith(PROMPT):
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
