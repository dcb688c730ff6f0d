"""Shared by the tests of formats: a source in memory, and the rules for every plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transcript_store.formats import PlannedRecord, SessionPlan, SessionReader, head_of
from transcript_store.testing import MemorySource, MemoryTables
from transcript_store.testing._format_contract import check_accounts, check_storable, original_of

Bytes = MemorySource
Rows = MemoryTables
original = original_of


few_or_many_seeds = pytest.mark.parametrize("seeds", [12, pytest.param(1000, marks=pytest.mark.long)])
"""How often input is made wrong: some of it each time, all of it among the long proofs."""

a_handful_or_many_seeds = pytest.mark.parametrize("seeds", [4, pytest.param(500, marks=pytest.mark.long)])
"""The same for a reader whose samples are several."""


def lines(*values: object) -> bytes:
    """As JavaScript writes them, one on a line."""
    return b"".join(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for value in values)


def plan_of(reader: SessionReader, *values: object) -> SessionPlan:
    """The plan of a file with these lines: its only one, in which nothing is lost, and from which the bytes come out again."""
    source = Bytes(lines(*values))
    assert reader.recognizes(head_of(source))
    (plan,) = reader.plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data
    return plan


def entries(plan: SessionPlan, generation: int = -1) -> list[PlannedRecord]:
    return list(plan.generations[generation]())


def messages(plan: SessionPlan, generation: int = -1) -> list[dict[str, Any]]:
    return [entry.message for entry in entries(plan, generation) if entry.message is not None]


def assert_nothing_is_lost(plan: SessionPlan) -> None:
    """F6: each line is accounted for, by a message, an event or a finding. What is to be stored can be stored."""
    for generation in plan.generations:
        assert list(generation()) == list(generation()), "a generation is the same whenever it is asked for"
    check_accounts(plan)
    check_storable(plan)
    told = plan.provider is not None or plan.format == "jsonl"  # there the messages alone may not tell
    assert told or not any(messages(plan, n) for n in range(len(plan.generations)))
