"""Repairs on the real kernel: killed at every system call, refused at every one, and the power cut around them.

A repair is what somebody runs on the only copy of a conversation that is damaged already. Stopped anywhere it leaves the conversation
as it was, or repaired; the same call again ends as the first one would have; and the damaged bytes are in some file, always.
P4, P7, P9, P13.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.crash import kernel
from tests.crash.enumeration import states
from tests.crash.kernel import FINE, Note
from tests.crash.model import ViolationError
from tests.crash.operations import (
    REPAIRS,
    Case,
    damaged_everything,
    damaged_metadata,
    damaged_transcript,
    edited_by_hand,
    lost_transcript,
    unfinished_replace,
)
from tests.crash.strace import Injection, SystemCall, injections
from transcript_store import TranscriptStoreError
from transcript_store._conversation import repair
from transcript_store._os.directory import Folder

pytestmark = [pytest.mark.long, pytest.mark.needs("strace")]

KILLED = [
    case
    for case in REPAIRS
    if case.base in (damaged_transcript, damaged_metadata, damaged_everything, lost_transcript, unfinished_replace)
]
"""Each kind of file that a repair rebuilds or takes out. (The others make such calls on other bytes.)"""
REFUSED = [case for case in REPAIRS if case.base in (damaged_transcript, damaged_metadata, edited_by_hand)]
"""Each mode."""


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@each(KILLED)
def test_killed_at_every_system_call(case: Case, record_property: Note) -> None:
    """P4, P9, P13: SIGKILL on entry to each call; what is left is judged, and repaired again."""
    count = kernel.kills(case)
    record_property("kills at a system call of a repair", count)
    assert count > 80


def spread(calls: list[SystemCall]) -> list[Injection]:
    """Every call refused, and every error of a call, once and for ever, at some call of its name: the errors go round."""
    chosen: list[Injection] = []
    for name in {call.name for call in calls}:
        same = [call for call in calls if call.name == name]
        errors = [(one.what, one.for_ever) for call in same for one in injections(call)]
        ways = list(dict.fromkeys(errors))
        for number in range(max(len(same), len(ways)) if ways else 0):
            call, (what, for_ever) = same[number % len(same)], ways[number % len(ways)]
            if (what, for_ever) in [(one.what, one.for_ever) for one in injections(call)]:
                chosen.append(Injection(call, what, for_ever))
            else:  # not one that this call may meet
                chosen.append(next(iter(injections(call))))
    return chosen


@each(REFUSED)
def test_refused_at_every_system_call(case: Case, record_property: Note) -> None:
    """P7, P9: an error of ours; once the cause is gone the same call finishes, and the conversation is used as before."""
    count = errors(case)
    record_property("errors at a system call of a repair", count)
    assert count > 120


def errors(case: Case) -> int:
    """Refuse calls as ``spread`` says; returns how many were refused."""
    with kernel.scratch() as folder:
        chosen = spread(kernel.run(case, folder / "all").calls)
        for injection in chosen:
            outcome = kernel.run(case, folder / "c", injection)
            if outcome.verdict != FINE:
                raise ViolationError(f"{case.name}, {injection}: {outcome.verdict}")
        return len(chosen)


@each(REPAIRS)
def test_power_cuts_around_every_system_call(case: Case, record_property: Note) -> None:
    """P4, P9, P13: what the calls that were really made may leave on a disk that keeps only what was synced."""
    count = kernel.power_cuts(case, limit=30)
    record_property("states after a power cut, traced calls of a repair", count)
    assert count >= 20


# ---- does the harness object? ----------------------------------------------------------------------------------------


def original_not_kept(patch: pytest.MonkeyPatch) -> None:
    """The damaged file is replaced, and nothing of it is put into quarantine."""
    patch.setattr(repair, "quarantine_bytes", lambda folder, removed, **_: folder.path_of("quarantine/nothing"))


def rewritten_in_place(patch: pytest.MonkeyPatch) -> None:
    """The repaired transcript takes the damaged one's place in two steps."""

    def replace_file(self: Folder, name: str, chunks: object) -> None:
        self.discard(name)
        real(self, name, chunks)  # type: ignore[arg-type]

    real = Folder.replace_file
    patch.setattr(Folder, "replace_file", replace_file)


def errors_passed_on_raw(patch: pytest.MonkeyPatch) -> None:
    """What the disk refuses is not translated."""
    patch.setattr(repair, "refusals", lambda *_, **__: nullcontext())


BUGS = {original_not_kept: kernel.kills, rewritten_in_place: kernel.kills, errors_passed_on_raw: errors}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_repair_with_a_seeded_bug_is_caught(bug: object) -> None:
    """The harness itself: each of these bugs fails the test that it is for."""
    case = REFUSED[0]
    assert case.base is damaged_transcript
    states(case)  # of the repair that is not broken
    with pytest.MonkeyPatch.context() as patch, pytest.raises((ViolationError, TranscriptStoreError)):
        bug(patch)  # type: ignore[operator]
        BUGS[bug](case)  # type: ignore[index]
