"""What is said, whichever provider's form it has: each record with its turn, and which result answers which call."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transcript_store.formats import Call, Result, Turn
from transcript_store.naming import turn_of
from transcript_store.view._contents import Stretch


@dataclass(slots=True)
class Said:
    stretch: Stretch
    turn: Turn | None
    """None for what is not a message."""


def said_in(stretches: Iterable[Stretch], provider: str | None) -> list[Said]:
    """The stretches with the turns of those that are messages, in their order."""
    return [Said(each, _turn_of(each, provider)) for each in stretches]


def _turn_of(stretch: Stretch, provider: str | None) -> Turn | None:
    message = stretch.record.message if stretch.record else None
    return None if message is None else turn_of(message, provider)


def answers_in(said: Sequence[Said]) -> dict[tuple[int, int], tuple[int, int]]:
    """Of each call that has a result, the place of the result: the number of its message, and of the block in it.

    A result belongs to the first call before it with its id that has none yet; one without an id to the last such call of its name.
    """
    waiting: dict[tuple[str, str], deque[tuple[int, int]]] = defaultdict(deque)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for number, each in enumerate(said):
        for index, block in enumerate(each.turn.blocks if each.turn else ()):
            if isinstance(block, Call):
                waiting["id", block.id].append((number, index))
                waiting["name", block.name].append((number, index))
            elif isinstance(block, Result):
                calls = waiting["id", block.id] if block.id else waiting["name", block.name]
                while calls and calls[0] in found:
                    calls.popleft()
                if calls:
                    found[calls.popleft()] = (number, index)
    return found
