"""A log may begin anew at every second line, each time with all that was said before. What is planned of it stays as long as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.of_others import Bytes, assert_nothing_is_lost, lines, original
from transcript_store.formats import PlannedRecord, SessionPlan, SessionReader
from transcript_store.formats._codex import Codex
from transcript_store.formats._gemini_cli import GeminiCli
from transcript_store.formats._replay import Allowance

AT = "2026-11-23T06:32:49.218Z"
CODEX = {"timestamp": AT, "type": "session_meta", "payload": {"id": "01a2071b-7309-70e1-ba72-e99f646caf7a", "cwd": "/"}}
GEMINI = {"sessionId": "5e747910", "projectHash": "0a1a3cbd", "startTime": AT, "lastUpdated": AT, "kind": "main"}


def codex(steps: list[tuple[str, int]]) -> bytes:
    found: list[Any] = [CODEX]
    for number, (step, turns) in enumerate(steps):
        if step == "rollback":
            payload: Any = {"type": "thread_rolled_back", "num_turns": turns}
        else:
            content = [{"type": "input_text" if step == "user" else "output_text", "text": f"{step} {number}"}]
            payload = {"type": "message", "role": step, "content": content}
        kind = "event_msg" if step == "rollback" else "response_item"
        found.append({"timestamp": AT, "type": kind, "payload": payload})
    return lines(*found)


def gemini(steps: list[tuple[str, int]]) -> bytes:
    found: list[Any] = [GEMINI]
    there: list[str] = []
    for number, (step, turns) in enumerate(steps):
        if step == "rollback":
            at = max(len(there) - turns, 0)
            found.append({"$rewindTo": there[at] if at < len(there) else "nobody"})
            del there[at if at < len(there) else 0 :]
        else:
            there.append(f"m{number}")
            kind = "user" if step == "user" else "gemini"
            found.append({"id": there[-1], "timestamp": AT, "type": kind, "content": f"{step} {number}"})
    return lines(*found)


def planned(reader: SessionReader, data: bytes) -> tuple[SessionPlan, list[list[PlannedRecord]]]:
    (plan,) = reader.plans(Bytes(data))
    return plan, [list(generation()) for generation in plan.generations]


@contextmanager
def allowed(times: int, size: int = 1 << 30) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allowance, "TIMES", times)
        patch.setattr(Allowance, "BYTES", size)
        patch.setattr(Allowance, "OF_THE_SOURCE", 0)
        yield


def said_in(entries: list[PlannedRecord]) -> list[Any]:
    return [entry.message for entry in entries if entry.message is not None]


STEPS = st.lists(
    st.sampled_from(
        [("user", 0), ("assistant", 0), ("rollback", 0), ("rollback", 1), ("rollback", 2), ("rollback", 9)]
    ),
    max_size=24,
)


@pytest.mark.parametrize(("reader", "written"), [(Codex(), codex), (GeminiCli(), gemini)], ids=["codex", "gemini-cli"])
@given(STEPS, st.integers(1, 4))
def test_behind_a_limit_the_live_conversation_is_the_same_and_no_line_is_lost(reader, written, steps, times):
    data = written(steps)
    free, every = planned(reader, data)
    with allowed(times):
        plan, few = planned(reader, data)
        assert_nothing_is_lost(plan)
        assert original(plan) == data
    assert said_in(few[-1]) == said_in(every[-1])
    assert len(few) <= times + 2
    if len(every) <= times:
        assert few == every
    assert {finding.kind for finding in plan.findings} <= {"many-generations", "left-branch"}
    assert {finding.kind for finding in free.findings} <= {"left-branch"}


@given(STEPS, st.integers(1, 4))
def test_what_was_said_in_the_generations_that_are_joined_stands_in_one_of_them(steps, times):
    """Of Codex. What Gemini CLI takes back behind the limit is an event, for a later line may still change a message."""
    _, every = planned(Codex(), codex(steps))
    with allowed(times):
        _, few = planned(Codex(), codex(steps))
    if len(every) > times + 1:
        assert few[:times] == every[:times]
        assert few[-1] == every[-1]
        own = [entry for each in every[times + 1 : -1] for entry in each if entry.lines]
        assert few[times] == every[times] + own


@pytest.mark.parametrize(("reader", "written"), [(Codex(), codex), (GeminiCli(), gemini)], ids=["codex", "gemini-cli"])
def test_a_file_of_nothing_but_turns_that_are_retracted_is_no_longer_planned_than_it_is_allowed(reader, written):
    """It would be the square of it: 1,000 generations of 1,000 messages each."""
    steps = [("user", 0)] * 1000 + [("user", 0), ("rollback", 1)] * 1000
    data = written(steps)
    with allowed(1000, 4 * len(data)):
        plan, few = planned(reader, data)
    assert len(orjson.dumps([entry.message for each in few for entry in each])) < 8 * len(data)
    assert [finding.kind for finding in plan.findings] == ["many-generations", "left-branch"]
    assert len(said_in(few[-1])) == 1000
