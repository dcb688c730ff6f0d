"""The crash matrix on the real kernel, call by call: killed at it, refused at it, and the power cut around it.

The same cases and the same judge as on the simulated disk, under strace. P1 to P5, P7, P8, P9.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.crash import kernel, sealed_conversations, snapshot_stores
from tests.crash.enumeration import Judge, states
from tests.crash.kernel import Note
from tests.crash.model import ViolationError
from tests.crash.operations import CASES, ON_A_DISK_IN_MEMORY, Case, stale, unsynced_parents
from tests.crash.seeded_bugs import BUGS, Bug
from tests.crash.strace import CALLS, ERRORS, Injection
from tests.crash.sync_sites import Site, in_the_source
from transcript_store import TranscriptStoreError

pytestmark = [pytest.mark.long, pytest.mark.needs("strace")]

CONVERSATIONS = [case for case in [*CASES, *sealed_conversations.CASES] if not ON_A_DISK_IN_MEMORY & set(case.steps)]
ON_THE_KERNEL = [*CONVERSATIONS, *snapshot_stores.CASES]
"""A sync that fails by injection loses nothing here; tests/crash/test_failing_disk.py has disks on which it does."""


BESIDE_A_WRITER = {("_conversation.storage", "sync_before_copy")}
"""Syncs that matter only while another process is between two of its calls, which a trace of one process never is: those
cases run on a disk in memory, and tests/crash/test_sync_mutants.py notices these mutants there."""


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@each(ON_THE_KERNEL)
def test_killed_at_every_system_call(case: Case, record_property: Note) -> None:
    """P2, P3, P4, P8: SIGKILL on entry to each call that touches the conversation."""
    count = kernel.kills(case)
    record_property("kills at a system call", count)
    assert count >= 3


@each([case for case in ON_THE_KERNEL if case.base is not unsynced_parents])
def test_refused_at_every_system_call(case: Case, record_property: Note) -> None:
    """P7: each error that Linux may give, once and for ever: ours, nothing lost, and the store goes on."""
    count = kernel.errors(case)
    record_property("errors at a system call", count)
    assert count >= 10  # an append has three calls, and where once is for ever it is run once


@each(ON_THE_KERNEL)
def test_power_cuts_around_every_system_call(case: Case, record_property: Note) -> None:
    """P1, P3, P4: the calls that were really made, and every state that a weak disk may hold between them."""
    count = kernel.power_cuts(case, limit=150, fills=(b"\0", stale(case)))
    record_property("states after a power cut, traced calls", count)
    assert count >= (1 if case.base is sealed_conversations.sealed_beside_plain else 5)  # that one only removes files


@each(ON_THE_KERNEL)
def test_power_cuts_without_syncs(case: Case, record_property: Note) -> None:
    """P2: the same with process-crash durability: a prefix, or a refusal."""
    count = kernel.power_cuts(case, limit=30, durability="process-crash", fills=(b"\0", stale(case)))
    record_property("states after a power cut, traced calls", count)
    assert count >= (1 if case.base is sealed_conversations.sealed_beside_plain else 5)  # that one only removes files


@each(CONVERSATIONS)  # a store of snapshots is read without a lock, and so without a sync
def test_killed_then_loaded_then_a_power_cut(case: Case, record_property: Note) -> None:
    """P1, P9: what a load shows after a kill at any call survives a power cut."""
    count = kernel.kills_then_power_cuts(case, limit=5)
    record_property("states after a kill, a load and a power cut, traced calls", count)
    assert count >= 1 or case.base is unsynced_parents


def test_every_sync_is_needed(record_property: Note) -> None:
    """P5: each sync that conversations really make is turned into a no-op by strace, and the power cuts must object.

    That the cases reach every sync in the source is for tests/crash/test_sync_mutants.py, which has repairs too.
    """
    made: dict[Site, list[tuple[Case, str, Injection]]] = {}
    for case in CONVERSATIONS:
        for durability in case.durabilities:
            for call, site in kernel.syncs(case, durability).items():
                made.setdefault(site, []).append((case, durability, Injection(call, "retval=0")))
    beside = {site for site in made if (site.module, site.function) in BESIDE_A_WRITER}
    assert {(site.module, site.function) for site in beside} == BESIDE_A_WRITER
    made = {site: mutants for site, mutants in made.items() if site not in beside}
    missed = {site for site, mutants in made.items() if any(_is_missed(*mutant) for mutant in mutants)}
    for kills in (25, 1000):  # a load has syncs for what an earlier process left
        for case in CONVERSATIONS:
            if missed != set(made):
                missed |= _missed_by_a_load(case, set(made) - missed, kills)
    assert missed == set(made)
    assert {(site.module, site.line) for site in missed} <= in_the_source()
    assert len(missed) >= 10
    record_property("syncs turned into no-ops, each noticed: traced calls", len(missed))


@cache
def _judge_of(case: Case) -> Judge:
    """One judge for all mutants: they are what was traced, and what is looked at is the store as it is."""
    return Judge(case, kernel.on_the_kernel)


def _is_missed(case: Case, durability: str, no_sync: Injection) -> bool:
    try:
        kernel.power_cuts(case, limit=60, durability=durability, injection=no_sync, judge=_judge_of(case))
    except Exception:
        return True
    return False


def _missed_by_a_load(case: Case, of: set[Site], kills: int) -> set[Site]:
    """Of these syncs, those that a load of what a killed process left cannot do without."""
    missed: set[Site] = set()
    for load in kernel.loads_after_kills(case, kills=kills):
        for site in of & set(kernel.sites_of(load.traced.calls).values()) - missed:
            try:
                load.power_cuts(_judge_of(case), limit=10, without=site)
            except Exception:
                missed.add(site)
        if missed == of:
            break
    return missed


# ---- the harness itself ------------------------------------------------------------------------------------------------

TECHNIQUES = {
    "kills_at_system_calls": kernel.kills,
    "errors_at_system_calls": kernel.errors,
    "traced_power_cuts": lambda case: kernel.power_cuts(case, limit=200),
    "traced_power_cuts_without_syncs": lambda case: kernel.power_cuts(case, limit=200, durability="process-crash"),
    "traced_kills_then_power_cuts": lambda case: kernel.kills_then_power_cuts(case, limit=20),
}


@pytest.mark.parametrize(
    ("bug", "technique"),
    [pytest.param(bug, by, id=f"{bug.name}-{by}") for bug in BUGS for by in bug.on_the_kernel if by in TECHNIQUES],
)
def test_a_seeded_bug_is_caught(bug: Bug, technique: str) -> None:
    """P1 to P9: each technique objects to the bugs that it is said to catch (all are content with our store above)."""
    states(bug.case)  # of the store that is not broken
    with pytest.MonkeyPatch.context() as patch, pytest.raises((ViolationError, TranscriptStoreError)):
        bug.break_it(patch)
        TECHNIQUES[technique](bug.case)


def test_every_call_with_errors_is_traced() -> None:
    """A call that strace does not show cannot be refused."""
    assert {name for name in ERRORS if " " not in name} <= set(CALLS)


def test_a_call_that_is_never_reached_is_not_passed_over() -> None:
    """A fault that was not injected is a failure of the harness."""
    case = ON_THE_KERNEL[0]
    with kernel.scratch() as folder:
        call = kernel.run(case, folder / "c").calls[0]
        with pytest.raises(AssertionError, match="nothing was injected"):
            kernel.run(case, folder / "c", Injection(call._replace(ordinal=10_000), "error=EIO"))


def test_a_conversation_elsewhere_is_not_passed_over() -> None:
    """A trace in which nothing touched the conversation is a failure of the harness."""
    case = ON_THE_KERNEL[0]
    with kernel.scratch() as folder:
        outcome = kernel.run(case, folder / "c")
        outcome.disk.root = folder / "elsewhere"
        with pytest.raises(AssertionError, match="nothing is tested"):
            assert outcome.calls
