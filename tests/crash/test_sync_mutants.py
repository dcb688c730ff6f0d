"""P5: every sync in the code is needed. Each one is turned into a no-op, alone, and the power cuts must object.

That all of them are reached is checked against the source.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.crash import enumeration, sealed_conversations, snapshot_stores
from tests.crash.kernel import Note
from tests.crash.operations import CASES, REPAIRS, Case
from tests.crash.sync_sites import Site, in_the_source, syncing


def sites_of(case: Case, patch: pytest.MonkeyPatch) -> set[Site]:
    """The syncs that a case makes."""
    made: set[Site] = set()

    def note(site: Site) -> bool:
        made.add(site)
        return True

    with patch.context() as within:
        syncing(within, note)
        for durability in case.durabilities:
            enumeration.calls_of(case, durability)
    return made


def by_site(patch: pytest.MonkeyPatch) -> dict[Site, list[Case]]:
    """For each sync the cases that make it."""
    found: dict[Site, list[Case]] = {}
    for case in [*CASES, *REPAIRS[:4], *snapshot_stores.CASES, *sealed_conversations.CASES]:
        for made in sites_of(case, patch):
            found.setdefault(made, []).append(case)
    return found


@pytest.mark.long
def test_every_sync_is_needed(monkeypatch: pytest.MonkeyPatch, record_property: Note) -> None:
    """P5: the list of syncs in the source equals the list of mutants killed."""
    killed = {mutant for mutant, cases in by_site(monkeypatch).items() if _is_killed(mutant, cases, monkeypatch)}
    assert {(module, line) for module, _, line in killed} == in_the_source()
    record_property("syncs turned into no-ops, each noticed: simulated disk", len(killed))


def _is_killed(mutant: Site, cases: list[Case], patch: pytest.MonkeyPatch) -> bool:
    return any(_power_cuts_object(case, mutant, patch) for case in cases)


def _power_cuts_object(case: Case, mutant: Site, patch: pytest.MonkeyPatch) -> bool:
    judge = _judge_of(case)
    with patch.context() as within:
        syncing(within, lambda site: site != mutant)
        try:
            for durability in case.durabilities:
                enumeration.power_cuts(case, limit=60, durability=durability, judge=judge)
            enumeration.kills_then_power_cuts(case, limit=10, judge=judge)
        except Exception:
            return True
    return False


@cache
def _judge_of(case: Case) -> enumeration.Judge:
    """One judge for all mutants: a sync decides what lasts, not what a process sees, and so not what is found on a disk."""
    enumeration.states(case)  # of the store that is not broken
    return enumeration.Judge(case)
