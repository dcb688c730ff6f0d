"""The harness has to catch stores that are broken on purpose, or its silence about ours means nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash import enumeration
from tests.crash.model import ViolationError
from tests.crash.operations import Case
from tests.crash.seeded_bugs import BUGS, Bug
from transcript_store import TranscriptStoreError

TECHNIQUES: dict[str, Callable[[Case], int]] = {
    "power_cuts": lambda case: enumeration.power_cuts(case, limit=60),
    "power_cuts_without_syncs": lambda case: enumeration.power_cuts(case, limit=60, durability="process-crash"),
    "kills": enumeration.kills,
    "kills_then_power_cuts": lambda case: enumeration.kills_then_power_cuts(case, limit=20),
    "errors": enumeration.errors,
    "damage": enumeration.damage,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.name}-{bug.caught_by}")
def test_a_seeded_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1 to P9: the technique that the bug names objects to it, on a case on which it is content with our store."""
    assert TECHNIQUES[bug.caught_by](bug.case) > 0
    with monkeypatch.context() as patch:
        bug.break_it(patch)
        with pytest.raises((ViolationError, TranscriptStoreError)):
            TECHNIQUES[bug.caught_by](bug.case)
