"""The crash matrix: every operation, stopped everywhere, leaves a state that is allowed and can be lived with.

P1, P2, P3, P4, P7, P8, P9 on a disk that keeps nothing that was not synced. The figures are asserted from below: a
harness that cut, killed or refused nothing must fail.
"""

from __future__ import annotations

import pytest

from tests.crash import enumeration, snapshot_stores
from tests.crash.kernel import Note
from tests.crash.operations import (
    CASES,
    REPAIRS,
    Case,
    half_a_batch,
    stale,
    torn,
    unmarked,
    unsynced_parents,
    without_line_feed,
)

CONVERSATIONS = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
CASES = [*CASES, *snapshot_stores.CASES]
ALL = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# A parent that may not be opened is taken for somebody else's, and not synced: refusing it when it is ours proves nothing.
REFUSED = [case for case in CASES if case.base is not unsynced_parents]
REFUSALS = pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
QUICK_REFUSALS = pytest.mark.parametrize(
    "case", [case for case in REFUSED if snapshot_stores.rotate not in case.steps], ids=lambda case: case.name
)
UNSYNCED = pytest.mark.parametrize(
    "case", [case for case in CASES if "process-crash" in case.durabilities], ids=lambda case: case.name
)
RECOVERIES = pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.base in (unmarked, torn, without_line_feed, half_a_batch)],
    ids=lambda case: case.name,
)


@pytest.mark.sampled(every=19)
@ALL
def test_a_power_cut_leaves_what_was_acknowledged(case: Case, record_property: Note) -> None:
    """P1, P3, P4: whatever part of the unsynced bytes and names reaches the disk, with NUL or with stale fill."""
    count = enumeration.power_cuts(case, limit=8, fills=(b"\0", stale(case)))
    record_property("states after a power cut, simulated disk", count)
    assert count >= 5


@pytest.mark.long
@ALL
def test_a_power_cut_leaves_what_was_acknowledged_in_many_more_states(case: Case, record_property: Note) -> None:
    """P1, P3, P4: the same, to five hundred states at every sync."""
    count = enumeration.power_cuts(case, limit=500, fills=(b"\0", stale(case)))
    record_property("states after a power cut, simulated disk", count)
    assert count >= 20


@pytest.mark.sampled(every=19)
@pytest.mark.parametrize("limit", [6, pytest.param(300, marks=pytest.mark.long)])
@UNSYNCED
def test_without_syncs_a_power_cut_leaves_a_prefix_or_is_refused(case: Case, limit: int, record_property: Note) -> None:
    """P2: with process-crash durability a power cut may cost the end, never a middle, and never in silence."""
    count = enumeration.power_cuts(case, limit=limit, durability="process-crash", fills=(b"\0", stale(case)))
    record_property("states after a power cut, simulated disk", count)
    assert count >= 5


@pytest.mark.sampled(every=19)
@ALL
def test_a_kill_at_any_call_loses_nothing_acknowledged(case: Case, record_property: Note) -> None:
    """P2, P3, P4: SIGKILL before every call, and within every write."""
    count = enumeration.kills(case)
    record_property("kills, simulated disk", count)
    assert count >= 5


@pytest.mark.sampled(every=19)
@pytest.mark.parametrize(("limit", "every"), [(2, 3), pytest.param(20, 1, marks=pytest.mark.long)])
@CONVERSATIONS  # a store of snapshots is read without a lock, and so without a sync
def test_what_a_load_shows_after_a_kill_survives_a_power_cut(
    case: Case, limit: int, every: int, record_property: Note
) -> None:
    """P1, P9: a killed process leaves names and bytes in the cache; the next one may act on what it is shown."""
    count = enumeration.kills_then_power_cuts(case, limit=limit, every=every)
    record_property("states after a kill, a load and a power cut, simulated disk", count)
    assert count >= 5 // every


@pytest.mark.sampled(every=19)
@QUICK_REFUSALS
def test_an_error_at_any_call_is_ours_and_the_store_continues(case: Case, record_property: Note) -> None:
    """P6, P7: every ninth of all errnos at all calls, once or for ever. (The next test has each of them.)"""
    count = enumeration.errors(case, every=9)
    record_property("errors, simulated disk", count)
    assert count >= 3


@pytest.mark.long
@REFUSALS
def test_an_error_and_then_a_power_cut(case: Case, record_property: Note) -> None:
    """P6, P7: every errno at every call, once and for ever; and then the power fails too. (A rotation is judged by three more of them each time.)"""
    count = enumeration.errors(case, cut_limit=4 if snapshot_stores.rotate in case.steps else 10)
    record_property("errors, simulated disk", count)
    assert count >= 10


@pytest.mark.sampled(every=3)
@RECOVERIES
def test_recovery_can_itself_be_cut_off(case: Case, record_property: Note) -> None:
    """P9: a second crash during recovery, at every call of it, ends where the first recovery would have."""
    count = enumeration.cut_recoveries(case, limit=4, every=20)
    record_property("second crashes during a recovery, simulated disk", count)
    assert count >= 10


@pytest.mark.long
@RECOVERIES
def test_recovery_can_itself_be_cut_off_in_many_more_states(case: Case, record_property: Note) -> None:
    """P9: the same with many more first and second crashes."""
    count = enumeration.cut_recoveries(case, limit=20)
    record_property("second crashes during a recovery, simulated disk", count)
    assert count >= 50


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("case", REPAIRS[:4], ids=lambda case: case.name)
def test_a_power_cut_during_a_repair(case: Case, record_property: Note) -> None:
    """P4, P9, P13: it is as it was, or repaired; repaired again it is whole; the original is somewhere."""
    count = enumeration.power_cuts(case, limit=10)
    record_property("states after a power cut, simulated disk", count)
    assert count >= 10


@pytest.mark.long
@pytest.mark.parametrize("case", REPAIRS, ids=lambda case: case.name)
def test_a_repair_is_done_or_not(case: Case, record_property: Note) -> None:
    """P4, P6, P7, P9, P13: every damage, stopped everywhere in every way, and the repair after that stopped too."""
    count = enumeration.power_cuts(case, limit=60, fills=(b"\0", stale(case)))
    record_property("states after a power cut, simulated disk", count)
    assert count >= 20
    count = enumeration.kills(case)
    record_property("kills, simulated disk", count)
    assert count >= 20
    count = enumeration.kills_then_power_cuts(case, limit=10)
    record_property("states after a kill, a load and a power cut, simulated disk", count)
    assert count >= 20
    count = enumeration.errors(case)
    record_property("errors, simulated disk", count)
    assert count >= 50
    count = enumeration.cut_recoveries(case, limit=4, every=20)
    record_property("second crashes during a recovery, simulated disk", count)
    assert count >= 20
