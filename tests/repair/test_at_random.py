"""A thousand transcripts of each kind of damage, each held against the oracle."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.kit.damage import KINDS, Randomly, write
from tests.kit.oracle_of_repair import Items, kept_by_the_oracle
from tests.kit.scratch import scratch_directory
from tests.repair.helpers import carried, repaired
from transcript_store import Repair
from transcript_store._log.repair_plan import GAP, MODES, Mode


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("count", [pytest.param(6, id="6"), pytest.param(1000, id="1000", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_damaged_at_random(kind: str, count: int) -> None:
    """P10: of a thousand of each kind, a repair keeps exactly what the oracle says; the original is there; once is enough.

    The modes take turns. The same damage in the same mode, which a few kinds come to again and again, is repaired once.
    """
    seed = 20260922
    print(f"seed {seed}")
    tried: set[tuple[bytes, Mode]] = set()
    with scratch_directory() as directory:
        randomly = Randomly(seed, directory)
        created_at = json.loads(randomly.metadata)["created_at"]
        for number, mode in zip(range(count), itertools.cycle(MODES)):
            data = getattr(randomly, kind)()
            if (data, mode) in tried:
                continue
            tried.add((data, mode))
            write(f"{directory}/c", randomly.metadata, data)
            done = repaired(f"{directory}/c", mode)
            found: Items = [
                None if GAP in (extra or ()) else (at, m, extra) for at, m, extra in carried(f"{directory}/c")
            ]
            assert found[:-1] == kept_by_the_oracle(data, mode, created_at), f"{kind} {number}, {mode}, seed {seed}"
            _only_what_is_lost_is_in_a_gap(data, done)
    assert {mode for _, mode in tried} == {*MODES}


def _only_what_is_lost_is_in_a_gap(data: bytes, done: Repair) -> None:
    """The gaps are in order, apart from each other, within the file, and one record tells of each."""
    end = -1
    for gap in done.gaps:
        assert end < gap.offset_bytes < gap.offset_bytes + gap.length_bytes <= len(data)
        end = gap.offset_bytes + gap.length_bytes
