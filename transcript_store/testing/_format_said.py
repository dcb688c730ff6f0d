"""What is said in a conversation, in no provider's form: who says what to whom, in which order; and what of it another one lacks.

Forms differ in what a message is: one has several texts where another has one text of several lines, a result is a message or a part,
its text a text or a member of an object. So a conversation is a stream of lines here, and an item some lines of it that stand together.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from transcript_store.messages import Part, parts_of, role_of

__all__ = ["Item", "items_of", "missing_of"]

_SIDES = {"assistant": "the model", "model": "the model", "system": "the system", "developer": "the system"}
_NAMED = re.compile(r"\w+(?: (?!\()(.*?))?(?: \((.*)\))?", re.DOTALL)
"""The title of a call or a result: its name and the call's id, each if there is one."""


class Item(NamedTuple):
    """A text, a call or a result, as lines that name their side and kind: ``("the user", "says", "hello")``."""

    kind: Literal["text", "call", "result"]
    lines: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        side, does, first = self.lines[0]
        rest = " ".join(line for _, _, line in self.lines[1:])
        return f"{side} {does} {f'{first} {rest}'.strip()!r:.80}"


class _Call(NamedTuple):
    names: tuple[str, str]
    """The id and the name: by the first that is there, the result says whose it is."""
    item: Item
    results: list[Item]


def items_of(messages: Iterable[dict[str, Any]]) -> list[Item]:
    """What is said, called and answered, in order. A reply's texts stand before its calls, and a result behind its call.

    Some forms have no other order, and a result that stood elsewhere is moved there without a word.
    """
    found: list[Item | _Call] = []
    open_calls: list[_Call] = []
    begins = 0
    for side, part in _parts(messages):
        if side != "the model":
            begins = len(found)
        if part.kind == "text" and (lines := _lines(part.text)):
            at = next((at for at in range(begins, len(found)) if isinstance(found[at], _Call)), len(found))
            found.insert(at, Item("text", tuple((side, "says", line) for line in lines)))
        elif part.kind == "call":
            name, known_as = _named(part)
            item = Item("call", ((side, "calls", name), *((side, "calls with", line) for line in _leaves(part.text))))
            call = _Call((known_as, name), item, [])
            found.append(call)
            open_calls.append(call)
        elif part.kind == "result":
            name, known_as = _named(part)
            item = Item("result", ((side, "answers", ""), *((side, "answers", line) for line in _leaves(part.text))))
            whose = [call for call in open_calls if (known_as in call.names if known_as else name == call.names[1])]
            if whose:
                whose[0].results.append(item)
                open_calls.remove(whose[0])
            else:
                found.append(item)
    return [item for one in found for item in ([one.item, *one.results] if isinstance(one, _Call) else [one])]


def missing_of(said: Sequence[Item], found: Sequence[Item], most: int) -> list[Item]:
    """The fewest items of ``said`` without which the others stand in ``found`` in their order; no more than ``most`` and one."""
    stream = [line for item in found for line in item.lines]
    places: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place, line in enumerate(stream):
        places[line].append(place)

    def behind(lines: tuple[tuple[str, str, str], ...], after: int) -> int | None:
        """Where these lines end, if they stand together somewhere behind a place."""
        begins = places.get(lines[0], [])
        for begin in begins[bisect_left(begins, after) :]:
            if tuple(stream[begin : begin + len(lines)]) == lines:
                return begin + len(lines)
        return None

    # By how many are missing: how little of the stream suffices, and which they are, the last one first.
    states: dict[int, tuple[int, Any]] = {0: (0, None)}
    for item in said:
        following: dict[int, tuple[int, Any]] = {}
        for count, (end, gone) in states.items():
            ways = [(count, behind(item.lines, end), gone), (count + 1, end, (item, gone))]
            for number, reaches, without in ways:
                if reaches is not None and (number not in following or reaches < following[number][0]):
                    following[number] = (reaches, without)
        states = {count: state for count, state in following.items() if count <= most} or following
        if min(states) > most:
            break
    items, gone = list[Item](), states[min(states)][1]
    while gone is not None:
        item, gone = gone
        items.insert(0, item)
    return items


def _parts(messages: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Part]]:
    for message in messages:
        side = _SIDES.get(role_of(message), "the user")
        for part in parts_of(message):
            yield {"call": "the model", "result": "a tool"}.get(part.kind, side), part


def _named(part: Part) -> tuple[str, str]:
    matched = _NAMED.fullmatch(part.title)
    return (matched[1] or "", matched[2] or "") if matched else ("", "")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _leaves(text: str) -> Iterator[str]:
    """The lines of a text; of JSON those of the values in it, for a form may wrap it, or have it as an object."""
    waiting: list[Any] = [text]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
        else:
            yield from _lines(value if isinstance(value, str) else json.dumps(value))
