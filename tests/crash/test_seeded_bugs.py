"""The harness must catch stores that are broken on purpose, or its passing means nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash import enumeration
from tests.crash.model import ViolationError
from tests.crash.operations import CASES, Case
from tests.crash.seeded_bugs import BUGS, Bug
from tests.crash.snapshot_stores import CASES as OF_SNAPSHOTS
from transcript_store import TranscriptStoreError

TECHNIQUES: dict[str, Callable[[Case], int]] = {
    "power_cuts": lambda case: enumeration.power_cuts(case, limit=60),
    "power_cuts_without_syncs": lambda case: enumeration.power_cuts(case, limit=60, durability="process-crash"),
    "kills": enumeration.kills,
    "kills_then_power_cuts": lambda case: enumeration.kills_then_power_cuts(case, limit=20),
    "errors": enumeration.errors,
    "damage": enumeration.damage,
}


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.name}-{bug.caught_by}")
def test_a_seeded_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1 to P9: the technique that the bug names objects to it. (The next test: with our store it is content there.)"""
    enumeration.states(bug.case)  # what is allowed is what a store that is not broken does
    bug.break_it(monkeypatch)
    with pytest.raises((ViolationError, TranscriptStoreError)):
        TECHNIQUES[bug.caught_by](bug.case)


USED = {(bug.caught_by, bug.case): bug for bug in BUGS}
IN_THE_MATRIX = {*CASES, *OF_SNAPSHOTS}
"""What tests/crash/test_matrix.py tries in the same ways, though of some with fewer cuts: here it is among the long proofs."""


@pytest.mark.sampled(every=11)
@pytest.mark.parametrize(
    ("technique", "case"),
    [
        pytest.param(*used, id=f"{used[1].name}-{used[0]}", marks=pytest.mark.long if used[1] in IN_THE_MATRIX else ())
        for used in USED
    ],
)
def test_where_a_bug_is_caught_our_store_is_not(technique: str, case: Case) -> None:
    """P1 to P9: what is objected to is the bug, and not the case."""
    assert TECHNIQUES[technique](case) > 0
