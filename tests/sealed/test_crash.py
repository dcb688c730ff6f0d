"""The crash matrix for sealed conversations and for keys: stopped everywhere, on a disk that keeps nothing that was not synced.

P1, P3, P4, P7, P9, P13, P17, and K1 to K3 of ``_conversation/key_changes.py``. The rows are in tests/crash/sealed_conversations.py; on the kernel they are in
tests/crash/test_system_calls.py, and what each sync is for in tests/crash/test_sync_mutants.py.
"""

from __future__ import annotations

import pytest

from tests.crash import enumeration
from tests.crash.model import DIRECTORY, ID
from tests.crash.operations import Case
from tests.crash.sealed_conversations import (
    CASES,
    FINISHED_ROTATION,
    KEY,
    REPAIRS,
    ROTATION,
    SHRED,
    library,
    opens,
    shred,
    two,
)
from transcript_store import ConversationExistsError, ConversationStore

ALL = [*CASES, *REPAIRS]
EACH = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
QUICK = {CASES[0], CASES[2], ROTATION, FINISHED_ROTATION, SHRED}
SOME = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.long, id=case.name) for case in ALL]
)


@pytest.mark.sampled(every=3)
@SOME
def test_a_kill_at_any_call_loses_nothing(case: Case) -> None:
    """P3, P4: SIGKILL before every call, and within every write."""
    assert enumeration.kills(case) >= 5


@SOME
def test_a_power_cut_leaves_what_was_acknowledged(case: Case) -> None:
    """P1, P3, P4: whatever part of the unsynced bytes and names reaches the disk."""
    assert enumeration.power_cuts(case, limit=6, fills=(b"\0",)) >= 1


@pytest.mark.sampled(every=3)
@SOME
def test_what_a_load_shows_after_a_kill_survives_a_power_cut(case: Case) -> None:
    """P9, K2: what the next process is told (of a rotation, a rotation) stays."""
    assert enumeration.kills_then_power_cuts(case, limit=4) >= 1


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.long)])
@EACH
def test_an_error_at_any_call_leaves_a_conversation_that_continues(case: Case, every: int) -> None:
    """P7: each errno at each call, once and for ever; a full disk in the middle of a rotation is one of them."""
    assert enumeration.errors(case, every=every) >= 1


def test_a_key_that_was_shredded_is_destroyed_after_a_power_cut() -> None:
    """P1, of forgetting: on return no power cut brings the key back."""
    disk = two()
    shred(library(disk))
    for after in disk.power_failures():
        assert opens(after, ID, KEY) is None


def test_a_key_file_without_a_conversation_is_never_overwritten() -> None:
    """P13: the rest may come back from a backup; without its key it would be lost."""
    disk = two()
    folder = disk.open_directory(DIRECTORY)
    for name in ("transcript.jsonl", "metadata.json", "lock"):
        disk.unlink(folder, name)
    key_file = disk.tree()[f"{DIRECTORY}/key.json"]
    with (
        ConversationStore(DIRECTORY, encryption_key=KEY, file_system=disk) as store,
        pytest.raises(ConversationExistsError),
    ):
        store.initialize()
    assert disk.tree()[f"{DIRECTORY}/key.json"] == key_file
