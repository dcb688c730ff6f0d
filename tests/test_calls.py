"""The everyday calls run a bounded number of our functions.

These bounds do not depend on the machine. Turns, sealing, redaction and places had each put a door in the way of an append, and no
clock on a busy machine had shown it. What makes a way shorter sets its bound anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.everyday import counted, walked
from transcript_store import ConversationStore

LINE = {"role": "user", "content": "x"}
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there each sync is a function of ours")
BOUNDS = {
    "append_message": (16, 7, 12),
    "append_message in a turn": (51, 10, 33),
    "get_messages": (13, 6, 8),
    "update_metadata": (46, 14, 31),
    "load": (157, 24, 116),  # one to know the line of the program that opened it
}
"""Calls of our own functions, the modules that they stand in, and how often the next call stands in another module."""


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """What is walked, each once it is warm, on the file system of this machine."""
    with ConversationStore(tmp_path / "closed") as closed:
        closed.initialize(provider="claude", model="m", messages=[LINE] * 7)
    with (
        ConversationStore(tmp_path / "held") as held,
        ConversationStore(tmp_path / "in turns", hold_lock=False) as in_turns,
        ConversationStore(tmp_path / "closed") as again,
    ):
        for store in (held, in_turns):
            store.initialize(provider="claude")
            for _ in range(5):
                store.append_message(LINE)
        yield {
            "append_message": lambda: held.append_message(LINE),
            "append_message in a turn": lambda: in_turns.append_message(LINE),
            "get_messages": held.get_messages,
            "update_metadata": lambda: held.update_metadata(model="m"),
            "load": again.load,
        }


@pytest.mark.parametrize("name", BOUNDS)
def test_the_way_of_a_call_is_as_short_as_it_was(name: str, ways: dict[str, Callable[[], object]]) -> None:
    """No more calls, modules and changes of module than when its bound was set."""
    found = min(counted(walked(ways[name])) for _ in range(3))  # the first call in another second makes its time anew
    assert all(now <= bound for now, bound in zip(found, BOUNDS[name], strict=True)), (found, BOUNDS[name])


def test_the_bounds_are_those_that_the_architecture_has() -> None:
    """docs/architecture.md shows the walk of each call with its bound."""
    page = (Path(__file__).parent.parent / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`( in a turn)? \| (\d+) \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    assert {name + turn: (int(a), int(b), int(c)) for name, turn, a, b, c in rows} == BOUNDS
