"""What did an edit change? The lines of a diff, from the arguments of agents' edit tools, whatever their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple

_OLD = ("old_string", "oldText", "old_text", "old_str", "oldString", "find")
_NEW = ("new_string", "newText", "new_text", "new_str", "newString", "replace")
_LISTS = ("edits", "changes")
_PATCHES = ("patch", "diff", "input", "patchText")
_BEGINS_A_PATCH = ("*** Begin Patch", "--- ", "diff --git ", "@@ ")
_CONTEXT = 3
_MOST_LINES = 2_000
"""Longer texts are shown one after the other: the comparison takes quadratic time."""
_MOST_PAIRS = 50_000
"""With more pairs of equal lines, stretches are not looked for at lines that come again and again: it takes time by the third power."""


_MEMBERS = frozenset({*_OLD, *_NEW, *_LISTS, *_PATCHES})


class Diff(NamedTuple):
    """The lines of a diff, each with the sign that it begins with: a blank, ``+``, ``-`` or ``@``."""

    lines: tuple[str, ...]

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self.lines)


def diff_of(arguments: Mapping[str, Any]) -> tuple[Diff, frozenset[str]] | None:
    """The diff that a call's arguments mean, and the members that it is made of; None if they mean no edit, or one that changes no line."""
    if _MEMBERS.isdisjoint(arguments):  # most calls
        return None
    for name in _PATCHES:
        patch = arguments.get(name)
        if isinstance(patch, str) and patch.lstrip().startswith(_BEGINS_A_PATCH):
            heads = ("*** ", "diff ", "index ", "--- ", "+++ ")
            marked = ("@" + line if line.startswith(heads) else line for line in patch.strip("\n").split("\n"))
            return Diff(tuple(marked)), frozenset({name})
    lines, names = _edited(arguments)
    diff = Diff(tuple(lines))
    return (diff, names) if diff.added or diff.removed else None


def _edited(arguments: Mapping[str, Any]) -> tuple[list[str], frozenset[str]]:
    """The lines of a diff of texts and what replaces them, and the members that hold these; nothing of other arguments."""
    for name in _LISTS:
        edits = arguments.get(name)
        if isinstance(edits, list) and edits and all(_pair(edit) for edit in edits):
            lines = [line for edit in edits for line in ("@@", *_compared(*(_pair(edit) or ("", ""))))]
            return lines[1:], frozenset({name})
    if (pair := _pair(arguments)) is None:
        return [], frozenset()
    return list(_compared(*pair)), frozenset({*_OLD, *_NEW} & arguments.keys())


def _pair(edit: object) -> tuple[str, str] | None:
    if not isinstance(edit, dict):
        return None
    old = next((edit[name] for name in _OLD if isinstance(edit.get(name), str)), None)
    new = next((edit[name] for name in _NEW if isinstance(edit.get(name), str)), None)
    return None if old is None or new is None else (old, new)


def _compared(old: str, new: str) -> Iterator[str]:
    before, after = (text.removesuffix("\n").split("\n") if text else [] for text in (old, new))
    if len(before) + len(after) > _MOST_LINES:
        yield from (f"-{line}" for line in before)
        yield from (f"+{line}" for line in after)
        return
    times = Counter(after)
    has_many = sum(times[line] for line in before) > _MOST_PAIRS
    groups = SequenceMatcher(None, before, after, autojunk=has_many).get_grouped_opcodes(_CONTEXT)
    for number, group in enumerate(groups):
        if number:
            yield "@@"
        for what, begin, end, other_begin, other_end in group:
            if what == "equal":
                yield from (f" {line}" for line in before[begin:end])
                continue
            yield from (f"-{line}" for line in before[begin:end])
            yield from (f"+{line}" for line in after[other_begin:other_end])
