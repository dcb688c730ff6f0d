"""Damage to real files after a process was killed. P8, P10."""

from __future__ import annotations

import shutil

import pytest

from tests.crash.enumeration import Run, compare, states
from tests.crash.kernel import scratch
from tests.crash.model import State, ViolationError
from tests.crash.operations import TRANSCRIPT, Case, append, append_event, append_long, grown
from tests.crash.real_disk import RealDisk
from tests.crash.seeded_bugs import BUGS, Bug
from transcript_store import TranscriptStoreError


def damage(case: Case) -> int:
    """Change one byte in each append behind the mark that has another behind it: refused, and nothing is cut."""
    with scratch() as folder:
        disk = RealDisk.holding(folder / "sound", case.disk().tree())
        run = Run(case, disk)
        run.go()
        sound = disk.tree()
        run.store.close()
        lines = (sound[TRANSCRIPT] or b"").splitlines(keepends=True)
        numbers = range(len(lines) - len(case.steps), len(lines) - 1)
        for number in numbers:
            line = lines[number]
            changed = b"".join([*lines[:number], line[:30] + bytes([line[30] ^ 1]) + line[31:], *lines[number + 1 :]])
            left = RealDisk.holding(folder / "left", {**sound, TRANSCRIPT: changed})
            compare(case, case.world.observe(left), {State(None, refused="hole")}, f"line {number + 1} changed")
            if left.tree()[TRANSCRIPT] != changed:
                raise ViolationError(f"{case.name}, line {number + 1} changed: refused, and touched")
            shutil.rmtree(left.root)
        return len(numbers)


CASES = [Case(grown, (append, append, append)), Case(grown, (append_event, append_long, append))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_damaged_append_with_others_behind_it_is_never_cut(case: Case) -> None:
    """P8, P10: it is a hole, and stays as it is."""
    assert damage(case) == 2


@pytest.mark.parametrize("bug", [bug for bug in BUGS if "damage" in bug.on_the_kernel], ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(bug: Bug) -> None:
    """P8, P10: a store that takes it for a torn tail is found out."""
    states(bug.case)  # of the store that is not broken
    with pytest.MonkeyPatch.context() as patch, pytest.raises((ViolationError, TranscriptStoreError)):
        bug.break_it(patch)
        damage(bug.case)
