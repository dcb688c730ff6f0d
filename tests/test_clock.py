"""The clock jumps, and nothing depends on it.

Suspended laptops, virtual machines resumed from a snapshot, NTP after a dead battery: a transcript whose order came from
its timestamps would be shuffled by each of them. Here ``seq`` is the order, ``at`` is the later of now and the record
before, and a clock a day behind is noted beside it and warned of, never a reason to refuse anything.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.cases import few
from tests.kit.machines import Clock
from transcript_store import ConversationStore, verify

HOUR, DAY = 3_600_000_000, 86_400_000_000
NOON = Clock.NOON


def lines_of(directory: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(directory, "transcript.jsonl").read_bytes().split(b"\n") if line]


def check(directory: str, expected: list[Any]) -> None:
    """The order is that of the appends, ``at`` never decreases, and the conversation loads, whole."""
    header, *records = lines_of(directory)
    assert [record["message"] for record in records] == expected
    assert [record["seq"] for record in records] == list(range(1, len(expected) + 1))
    assert all(earlier["at"] <= later["at"] for earlier, later in pairwise([header, *records]))
    assert verify(directory).is_intact
    with ConversationStore(directory, read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == expected
        assert reader.get_metadata().updated_at >= records[-1]["at"]


@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
@pytest.mark.parametrize(
    ("jump", "noted"),
    [(-HOUR, False), (-DAY + 1, False), (-DAY, True), (-2 * DAY, True), (+2 * DAY, False), (-1, False)],
)
def test_a_jump_between_appends(tmp_path, caplog, jump, noted, durability):
    """P19: a jump changes neither order nor durability; ``at`` stands still; a day behind, ``clock`` tells what it said."""
    clock = Clock()
    with caplog.at_level(logging.WARNING, logger="transcript_store"):
        with ConversationStore(tmp_path / "c", file_system=clock, durability=durability) as store:
            store.initialize(messages=[{"n": 1}])
            clock.now += 1_000_000
            at = store.append_message({"n": 2}).at
            clock.now += jump
            third = store.append_message({"n": 3})
            batch = store.append_messages([{"n": 4}, {"n": 5}])
            on_disk = lines_of(store.directory)  # before close: the jump delayed no write
            assert [record["seq"] for record in on_disk[1:]] == [1, 2, 3, 4, 5]
        records = lines_of(store.directory)[1:]
        if jump < 0:
            assert third.at == at
            assert all(appended.at == at for appended in batch)
        else:
            assert third.at > at
        assert ["clock" in record for record in records] == [False, False, noted, noted, noted]
        if noted:
            read = [datetime.fromisoformat(record["clock"]).timestamp() for record in records[2:]]
            assert read == pytest.approx([(NOON + 1_000_000 + jump) / 1e6] * 3, abs=1e-6)
        warnings = [record for record in caplog.records if "clock" in record.getMessage()]
        assert len(warnings) == noted, "warned of once, not at every append"
    check(store.directory, [{"n": n} for n in range(1, 6)])


def test_the_clock_member_is_not_part_of_the_message(tmp_path):
    """P19: what is noted of a clock stays out of messages and records, and the time of the record stays readable."""
    clock = Clock()
    with ConversationStore(tmp_path / "c", file_system=clock) as store:
        store.initialize(messages=[{"n": 1}])
        clock.now -= 3 * DAY
        store.append_message({"n": 2}, extra={"e": 1})
        store.append_event({"e": 2})
        assert store.get_messages() == [{"n": 1}, {"n": 2}]
        assert [record.extra for record in store.get_records()] == [None, {"e": 1}, {"e": 2}]
        assert len({record.at for record in store.get_records()}) == 1


def test_a_clock_that_is_behind_at_every_step(tmp_path, caplog):
    """P19: load, replace, update and close with a clock years before the last record all work, and nothing goes back."""
    with ConversationStore(tmp_path / "c", file_system=Clock()) as store:
        store.initialize(messages=[{"n": 1}], model="old")
        last = store.append_message({"n": 2}).at
    with caplog.at_level(logging.WARNING, logger="transcript_store"):
        with ConversationStore(tmp_path / "c", file_system=Clock(0)) as store:  # 1970: no battery
            store.load()
            assert store.recovery is None
            store.append_message({"n": 3})
            store.update_metadata(model="new")
            assert store.get_metadata().updated_at == last
            store.replace_transcript([{"n": 3}])
            assert store.get_metadata().updated_at == last
            assert store.append_message({"n": 4}).at == last
    check(str(tmp_path / "c"), [{"n": 3}, {"n": 4}])
    assert lines_of(str(tmp_path / "c"))[0]["at"] == last


def test_a_torn_tail_is_recovered_whatever_the_time(tmp_path):
    """P19: recovery does not ask the clock what is old."""
    with ConversationStore(tmp_path / "c", file_system=Clock()) as store:
        store.initialize(messages=[{"n": 1}])
    with open(tmp_path / "c/transcript.jsonl", "ab") as file:
        file.write(b'{"seq":2,"at":"2999-01-01T00:00:00.000000Z","message":{')
    with ConversationStore(tmp_path / "c", file_system=Clock(NOON - 700 * DAY)) as store:
        store.load()
        assert store.recovery is not None
        store.append_message({"n": 2})
    check(str(tmp_path / "c"), [{"n": 1}, {"n": 2}])


def test_a_lock_is_waited_for_by_count_and_not_by_the_clock(tmp_path):
    """P19: lock_timeout_seconds neither ends early nor never ends when the clock jumps while it waits."""
    from transcript_store import ConversationLockedError

    class Jumping(Clock):
        waited = 0.0

        def wait(self, seconds: float) -> None:  # type: ignore[override]
            self.waited += seconds
            self.now -= DAY

    holder = ConversationStore(tmp_path / "c")
    holder.initialize()
    clock = Jumping()
    with pytest.raises(ConversationLockedError):
        ConversationStore(tmp_path / "c", file_system=clock, lock_timeout_seconds=2.5).load()
    assert clock.waited == pytest.approx(2.5, abs=0.1)
    holder.close()


@settings(max_examples=few(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jumps=st.lists(st.integers(-(10**15), 10**15) | st.sampled_from([-HOUR, -DAY, DAY, 0, 1, -1]), max_size=12))
def test_any_jumps(tmp_path_factory, jumps):
    """P19: after any sequence of jumps the order is that of the appends, and no time goes back; a load changes nothing."""
    clock = Clock(40 * 365 * DAY)
    directory = str(tmp_path_factory.mktemp("clock") / "c")
    store = ConversationStore(directory, file_system=clock, durability="process-crash")
    store.initialize(messages=[{"n": 0}])
    for n, jump in enumerate(jumps, 1):
        clock.now = min(max(0, clock.now + jump), 200 * 365 * DAY)
        store.append_message({"n": n})
        if n % 4 == 0:
            store.load()
    store.close()
    check(directory, [{"n": n} for n in range(len(jumps) + 1)])
