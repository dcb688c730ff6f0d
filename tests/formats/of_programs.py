"""What the tests of programs' readers share: what a plan says, in short, and the sessions that the real programs wrote for us."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.formats.of_others import Bytes, assert_nothing_is_lost
from tests.formats.sources import SHARED
from transcript_store.formats import READERS, Call, Media, PlannedRecord, Result, SessionPlan, Text, Thinking, head_of
from transcript_store.formats._arranging import to_neutral
from transcript_store.sources import find_sources, open_parts

READER = {reader.name: reader for reader in READERS}


def plan_of_bytes(name: str, data: bytes) -> SessionPlan:
    """The only plan of a file, in which nothing is lost, and which this reader alone claims."""
    source = Bytes(data)
    assert [reader.name for reader in READERS if reader.recognizes(head_of(source))] == [name]
    (plan,) = READER[name].plans(source)
    assert_nothing_is_lost(plan)
    return plan


def said(plan: SessionPlan, generation: int = -1) -> list[str]:
    """What is said, a text each: ``user: Hi``, ``assistant: (thinks) text read#1{"a": 1}``, ``#1: answer``, ``#1 failed: why``.

    ``*`` stands before what a program wrote in the user's name.
    """
    return [_said(entry, plan.provider or "") for entry in plan.generations[generation]() if entry.message is not None]


def _said(entry: PlannedRecord, provider: str) -> str:
    assert entry.message is not None
    turn = to_neutral((entry.message,), provider)[0]
    words = []
    for block in turn.blocks:
        match block:
            case Text():
                words.append(block.text)
            case Thinking():
                words.append(f"({block.text})")
            case Call():
                words.append(f"{block.name}#{block.id}{block.arguments}")
            case Media():
                words.append(f"[{block.type}]")
            case Result():
                shown = " ".join(part.text if isinstance(part, Text) else f"[{part.type}]" for part in block.content)
                return f"#{block.id}{' failed' if block.failed or entry.extra.get('failed') else ''}: {shown}"
    return f"{'*' if 'scaffolding' in entry.extra else ''}{turn.role}: {' '.join(words)}"


def made(program: str, version: str) -> list[Path]:
    """The sources that a version of a program wrote here. They are no part of this repository."""
    if not SHARED or not (folder := Path(SHARED) / "corpora/made" / program / version).is_dir():
        pytest.skip(f"needs the sessions of {program} {version} in the shared corpora")
    return [Path(found.path) for found in find_sources(folder)]


def plans_at(path: Path) -> list[SessionPlan]:
    """The plans of a file on the disk, with what stands beside it."""
    found: list[SessionPlan] = []
    with open_parts(str(path)) as parts:
        for head, source in parts:  # type: ignore[misc]
            for reader in READERS:
                if reader.recognizes(head):
                    found += [_held(plan) for plan in reader.plans(source)]
    return found


def _held(plan: SessionPlan) -> SessionPlan:
    """With its entries made while the source is open."""
    entries = [list(generation()) for generation in plan.generations]
    return replace(plan, generations=tuple(partial(list, one) for one in entries))


def by_prompt(paths: Iterable[Path], prompt: str) -> list[SessionPlan]:
    """The plans whose first generation has this text in one of its messages of the user."""
    plans = [plan for path in paths for plan in plans_at(path)]
    return [plan for plan in plans if any(prompt in one for one in said(plan, 0) if one.startswith("user:"))]
