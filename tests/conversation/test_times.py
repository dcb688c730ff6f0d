"""Messages with earlier times: an import passes the times of its source, and they are kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conversation.helpers import ONE, THREE, TWO
from tests.kit.cases import few
from tests.kit.machines import Clock
from tests.kit.trees import tree
from transcript_store import ConversationLibrary, ConversationStore, InvalidMessageError, verify

DAY = 86_400_000_000
NOW = "2026-09-21T14:13:20.000000Z"
EARLY, LATER, LATEST = (f"2024-0{month}-01T08:00:00.000000Z" for month in (1, 2, 3))


def clock_at(text: str) -> Clock:
    return Clock((datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))


def times_of(store: ConversationStore) -> list[str]:
    return [record.at for record in store.get_records()]


def header_of(store: ConversationStore) -> dict[str, object]:
    header: dict[str, object] = json.loads(Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[0])
    return header


# ---- what is kept ---------------------------------------------------------------------------------------------------


def test_a_conversation_begins_at_the_first_of_its_times(tmp_path):
    """The header and created_at have the first time, each record its own, and updated_at the last: a list sorts by that."""
    library = ConversationLibrary(tmp_path)
    with library.create(messages=[ONE, TWO, THREE], times=[EARLY, LATER, LATEST]) as store:
        assert times_of(store) == [EARLY, LATER, LATEST]
        assert header_of(store)["at"] == store.get_metadata().created_at == EARLY
        assert store.get_metadata().updated_at == LATEST
    (summary,) = library.list()
    assert (summary.created_at, summary.updated_at) == (EARLY, LATEST)
    with library.open(summary.id or "") as again:
        assert times_of(again) == [EARLY, LATER, LATEST]
        assert again.append_message(ONE).at > NOW[:4], "what is appended without a time has now's"
    assert verify(f"{tmp_path}/{summary.id}").is_intact


def test_each_spelling_of_a_time(tmp_path):
    """RFC 3339 with any offset and any digits, and aware datetimes: the moment is kept, in UTC, to the microsecond."""
    moment = datetime(2024, 1, 1, 8, 0, 0, 123456, UTC)
    given: list[str | datetime] = [
        "2024-01-01T08:00:00.123456Z",
        "2024-01-01T09:30:00.123456+01:30",
        "2024-01-01T08:00:00.123456789Z",
        moment,
        moment.astimezone(timezone(timedelta(hours=-7))),
    ]
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        with pytest.raises(InvalidMessageError):
            store.append_messages([ONE], times=[moment.replace(tzinfo=None)])
        store.replace_transcript([ONE] * 5, times=given)
        assert times_of(store) == ["2024-01-01T08:00:00.123456Z"] * 5


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "0033-04-03T15:00:00Z", "1969-07-20T20:17:40Z"])
def test_times_long_before_computers(tmp_path, at):
    """A time before 1970, and one whose year has leading zeros, is one like any other, also after a load."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE], times=[at])
        written = f"{at[:-1]}.000000Z"
        assert times_of(store) == [written]
        store.load()
        assert times_of(store) == [written]
        assert header_of(store)["at"] == written
        later = f"{at[:-3]}59Z"
        assert store.append_messages([TWO], times=[later])[0].at == f"{later[:-1]}.000000Z"
    assert verify(store.directory).is_intact


def test_a_time_that_goes_back_is_that_of_the_record_before(tmp_path):
    """A record's time is the later of its own and the record's before: the rule of the format, within a batch and across."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[ONE, TWO], times=[LATER, EARLY])
        assert times_of(store) == [LATER, LATER]
        store.append_messages([ONE, TWO, THREE], times=[EARLY, LATEST, LATER])
        assert times_of(store)[2:] == [LATER, LATEST, LATEST]
        store.load()
        assert store.append_messages([ONE], times=[EARLY])[0].at == LATEST


def test_a_time_that_has_not_come_is_now(tmp_path):
    """The clock of another machine was ahead: the record has now's time, and what follows is not held up for years."""
    with ConversationStore(tmp_path / "c", file_system=clock_at(NOW)) as store:
        store.initialize(messages=[ONE, TWO], times=["9999-12-31T23:59:59Z", "2026-09-21T14:13:21Z"])
        assert times_of(store) == [NOW, NOW]
        assert (header_of(store)["at"], store.get_metadata().created_at) == (NOW, NOW)
        assert store.append_message(THREE).at == NOW
        assert store.append_messages([THREE], times=["9999-12-31T23:59:59-14:00"])[0].at == NOW


def test_without_a_time_a_record_has_now_s(tmp_path):
    """None among the times is now; what was before now cannot follow it."""
    with ConversationStore(tmp_path / "c", file_system=clock_at(NOW)) as store:
        store.initialize(messages=[ONE, TWO, THREE], times=[EARLY, None, LATER])
        assert times_of(store) == [EARLY, NOW, NOW]
        store.replace_transcript([ONE, TWO], times=[None, EARLY])
        assert times_of(store) == [NOW, NOW]
        store.replace_transcript([ONE, TWO], times=None)
        assert times_of(store) == [NOW, NOW]


def test_a_new_generation_begins_at_the_first_of_its_times(tmp_path):
    """A replace with times may lie before what it replaces: its header has the first, and the change is of now."""
    with ConversationStore(tmp_path / "c", file_system=clock_at(NOW)) as store:
        store.initialize(messages=[ONE], times=[LATEST])
        store.replace_transcript([TWO, THREE], times=[EARLY, LATER], model="m")
        assert header_of(store)["at"] == EARLY
        assert times_of(store) == [EARLY, LATER]
        assert [generation.began_at for generation in store.generations()] == [LATEST, EARLY]
        metadata = store.get_metadata()
        assert (metadata.created_at, metadata.updated_at) == (LATEST, NOW)
        assert store.append_messages([ONE], times=[LATER])[0].at == LATER
        store.load()
        assert times_of(store) == [EARLY, LATER, LATER]
    assert verify(store.directory).is_intact


def test_the_clock_is_noted_only_beside_a_time_of_now(tmp_path):
    """P19: a clock a day behind is noted where it is the reason for a record's time, not beside a time that was given."""
    clock = clock_at(NOW)
    with ConversationStore(tmp_path / "c", file_system=clock) as store:
        store.initialize(messages=[ONE])
        clock.now -= 2 * DAY
        store.append_messages([TWO, THREE], times=[None, EARLY])
        late = Path(store.directory, "transcript.jsonl").read_bytes().splitlines()[2:]
        assert [b'"clock"' in line for line in late] == [True, True], "both have the time of the record before them"
        store.replace_transcript([TWO, THREE], times=[EARLY, None])
        first, second = Path(store.directory, "transcript.jsonl").read_bytes().split(b"\n")[1:3]
        assert (b'"clock"' in first, b'"clock"' in second) == (False, True)
        assert times_of(store) == [EARLY, NOW]


# ---- an event in a batch --------------------------------------------------------------------------------------------


def test_events_and_messages_are_one_batch(tmp_path):
    """A message may be None where an extra is given: a record without a message, in one batch with the others."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[None, ONE], extras=[{"event": 0}, None], times=[EARLY, EARLY])
        stored = store.append_messages(
            [TWO, None, THREE], extras=[None, {"event": 1}, {"e": 3}], times=[LATER, LATER, LATEST]
        )
        assert [record.seq for record in stored] == [3, 4, 5]
        lines = [json.loads(line) for line in Path(store.directory, "transcript.jsonl").read_bytes().splitlines()[3:]]
        assert [line["batch"] for line in lines] == [[1, 3], [2, 3], [3, 3]]
        assert ["message" in line for line in lines] == [True, False, True]
        assert store.get_messages() == [ONE, TWO, THREE]
        assert [record.extra for record in store.get_records()] == [{"event": 0}, None, None, {"event": 1}, {"e": 3}]
        store.replace_transcript([None, THREE], extras=[{"event": 2}, None])
        assert store.get_messages() == [THREE]
        store.load()
        assert [(record.message, record.extra) for record in store.get_records()] == [
            (None, {"event": 2}),
            (THREE, None),
        ]


# ---- what is refused ------------------------------------------------------------------------------------------------

NOT_A_TIME = [
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "10000-01-01T00:00:00Z",
    "2024-02-30T00:00:00Z",
    "2024-01-01T24:00:00Z",
    "2024-01-01T23:59:60Z",
    "2024-01-01T00:00:00",
    "2024-01-01 00:00:00Z",
    "2024-01-01T00:00:00+25:00",
    "2024-01-01",
    "٢٠٢٤-01-01T00:00:00Z",
    "",
    "now",
    "2024-01-01T00:00:00Z\n",
    "\ud800",
    datetime(2024, 1, 1),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    1704067200,
    1704067200.5,
    float("nan"),
    True,
    b"2024-01-01T00:00:00Z",
    {},
]


@pytest.mark.parametrize("bad", NOT_A_TIME, ids=repr)
def test_a_time_that_is_none(store, tmp_path, bad):
    """An error of ours that names the member; nothing is written, not even a folder."""
    before = tree(tmp_path)
    for call in (
        lambda: store.append_messages([ONE, TWO], times=[EARLY, bad]),
        lambda: store.replace_transcript([ONE, TWO], times=[EARLY, bad]),
        lambda: ConversationStore(tmp_path / "new").initialize(messages=[ONE, TWO], times=[EARLY, bad]),
        lambda: ConversationStore(tmp_path / "new").load_or_initialize(messages=[ONE, TWO], times=[None, bad]),
        lambda: ConversationLibrary(tmp_path / "new").create(messages=[ONE, TWO], times=[None, bad]),
    ):
        with pytest.raises(InvalidMessageError, match=r"times\[1\]") as caught:
            call()
        assert caught.value.member == "times[1]"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("times", [[], [EARLY], [None] * 3])
def test_times_of_another_length(store, tmp_path, times):
    """One time for each message: any other number is a ValueError that gives both, and nothing is written."""
    before = tree(tmp_path)
    for call in (
        lambda: store.append_messages([ONE, TWO], times=times),
        lambda: store.replace_transcript([ONE, TWO], times=times),
        lambda: ConversationStore(tmp_path / "new").initialize(messages=[ONE, TWO], times=times),
    ):
        with pytest.raises(ValueError, match=f"2 messages and {len(times)} times"):
            call()
    assert tree(tmp_path) == before


def test_a_record_with_nothing_in_it(store, tmp_path):
    """Neither a message nor an extra: the error names the message, and nothing is written."""
    before = tree(tmp_path)
    without: tuple[list[dict[str, Any] | None] | None, ...] = (None, [{}, None])
    for extras in without:
        with pytest.raises(InvalidMessageError, match=r"messages\[1\]"):
            store.append_messages([ONE, None], extras=extras)
    with pytest.raises(InvalidMessageError, match="message"):
        store.append_message(None)
    assert tree(tmp_path) == before


# ---- any times ------------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC))


@settings(max_examples=few(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.none() | MOMENTS, max_size=4), max_size=6))
def test_any_times(tmp_path_factory, batches):
    """P19: whatever times are given, none goes back, none lies ahead, each is kept where both allow it, and a load agrees."""
    directory = tmp_path_factory.mktemp("times") / "c"
    now = datetime.fromisoformat(NOW)
    with ConversationStore(directory, file_system=clock_at(NOW), durability="process-crash") as store:
        expected: list[datetime] = []
        for begins, batch in enumerate(batches):
            messages = [{"n": len(expected) + k} for k in range(len(batch))]
            if begins:
                store.append_messages(messages, times=batch)
            else:
                store.initialize(messages=messages, times=batch)
            for moment in batch:
                time = now if moment is None else min(moment, now)
                begun = [] if batches[0] else [now]  # without a message the conversation begins now
                expected.append(max([time, *expected[-1:], *begun]))
        if batches:
            assert [record.at_datetime for record in store.get_records()] == expected
            assert all(earlier <= later for earlier, later in pairwise(times_of(store)))
            records = store.get_records()
            store.load()
            assert store.get_records() == records
            assert verify(directory).is_intact
