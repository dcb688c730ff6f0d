"""OpenCode, Kilo and Copilot CLI: every session that the programs wrote when they were run, held to what stands in it.

The texts, calls and results are read from the raw rows and lines by a rule of this test, with none of the readers.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.formats.of_others import assert_nothing_is_lost, entries, messages
from tests.kit.cases import for_each
from transcript_store.formats import READERS, Call, Result, SessionPlan, Text, to_neutral
from transcript_store.messages import left_of
from transcript_store.sources import open_parts

CORPORA = Path(os.environ.get("TRANSCRIPT_STORE_SHARED") or "/nowhere") / "corpora"
MADE = Path(os.environ.get("TRANSCRIPT_STORE_MADE") or CORPORA / "made")
"""The folder of results of tests.programs.recipes, if that runs these tests."""
WILD = CORPORA / "wild"
pytestmark = pytest.mark.skipif(
    not MADE.exists(), reason="needs the sessions that the programs made: the shared corpora"
)

DATABASES = [(name, path) for name in ("opencode", "kilo") for path in sorted(MADE.glob(f"{name}/*/{name}.db"))]
EVENTS = sorted(MADE.glob("copilot/*/session-state/*/events.jsonl"))


def plans_in(path: Path, program: str) -> list[SessionPlan]:
    found: list[SessionPlan] = []
    with open_parts(str(path)) as parts:
        for part in parts:  # each is open until the next one is asked for
            assert isinstance(part, tuple), part
            head, source = part
            reader = next(reader for reader in READERS if reader.recognizes(head))
            assert reader.name == program
            found += reader.plans(source)
            for plan in found:
                assert_nothing_is_lost(plan)
    return found


def said(plan: SessionPlan) -> tuple[set[str], dict[str, Any]]:
    """The texts of a session, also those on branches that were left; and the result of each call, None if it has none."""
    texts: set[str] = set()
    results: dict[str, Any] = {}
    for number in range(len(plan.generations)):
        left = [
            found[0] for entry in entries(plan, number) if entry.message is None and (found := left_of(entry.extra))
        ]
        for turn in to_neutral([*messages(plan, number), *left], plan.provider or "openai"):
            for block in turn.blocks:
                if isinstance(block, Text):
                    texts.add(block.text)
                elif isinstance(block, Call):
                    results.setdefault(block.id, None)
                elif isinstance(block, Result):
                    assert block.id in results, "a result stands behind its call"
                    results[block.id] = block.text
    return texts, results


def rows(path: Path, tmp_path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Session, role and part of each row."""
    copy = shutil.copyfile(path, tmp_path / "copy.db")
    with closing(sqlite3.connect(copy)) as database:
        query = "SELECT part.session_id, message.data, part.data FROM part JOIN message ON message.id = part.message_id"
        for session, message, part in database.execute(query):
            yield session, json.loads(message)["role"], json.loads(part)


@pytest.mark.parametrize(("program", "path"), DATABASES)
def test_each_text_and_each_result_in_the_rows_is_in_the_plan(program: str, path: Path, tmp_path: Path) -> None:
    found = {plan.session: said(plan) for plan in plans_in(path, program)}
    count = 0
    for session, _, part in rows(path, tmp_path):
        texts, results = found[session]
        if part["type"] == "text" and part["text"]:
            assert part["text"] in texts
            count += 1
        elif part["type"] == "tool":
            state = part["state"]
            assert results[part["callID"]] == (state.get("error") or state.get("output")), state
            count += 1
    assert count > 50
    assert len(found) == 11


@pytest.mark.parametrize(("program", "path"), DATABASES)
def test_what_the_recipe_did_is_what_is_there(program: str, path: Path) -> None:
    """A sub-agent, a fork, an undo, a compaction, an abort with what had streamed; the Messages API with what it signed."""
    plans = plans_in(path, program)
    by_title = {plan.labels.get("title"): plan for plan in plans}
    compacted, undone = by_title["Typo in the notes"], by_title["Hamlet and others"]
    assert [m["role"] for m in messages(compacted, 1)] == ["user", "assistant", "user", "assistant"]
    assert [finding.kind for finding in undone.findings] == ["left-branch"]
    assert len(messages(undone)) == 4
    fork = by_title["Typo in the notes (fork #1)"]
    assert fork.labels["forked_from"] == compacted.session
    assert messages(fork)[: len(messages(compacted, 0))] == messages(compacted, 0), (
        "the one is the beginning of the other"
    )
    helper = by_title["Count lines (@general subagent)"]
    assert helper.labels["part_of"] in {plan.session for plan in plans}
    aborted = messages(by_title["Aborted"])
    # The recipe aborts after four seconds: on a busy machine the reply has not begun by then.
    assert all(reply["content"].startswith("Once upon a time") for reply in aborted[1:2])
    (claude,) = [plan for plan in plans if plan.provider == "claude"]
    thinking = [
        block
        for m in messages(claude)
        for block in m["content"]
        if isinstance(block, dict) and block["type"] == "thinking"
    ]
    assert len(thinking) == 3
    assert all(block["signature"] for block in thinking)
    failed = [e for plan in plans for e in entries(plan, 0) if e.extra.get("failed")]
    assert failed
    killed = [plan for plan in plans if any("slow build" in str(m) for m in messages(plan))]
    assert [m["role"] for m in messages(killed[0])] == ["user", "assistant"], "no result was made up"
    pictures = [m for plan in plans for m in messages(plan) if "data:image/png;base64," in str(m["content"])]
    assert len(pictures) == 1
    replies = [
        e.extra
        for plan in plans
        for g in range(len(plan.generations))
        for e in entries(plan, g)
        if e.extra.get("usage")
    ]
    assert all(reply["model"].startswith("fake-") and reply["usage"]["input_tokens"] > 0 for reply in replies)
    assert {plan.labels["cwd"] for plan in plans} == {"/home/ada/project"}


def test_a_database_as_its_program_left_it_with_its_log(tmp_path: Path) -> None:
    """The rows that stand in the write-ahead log alone come in too."""
    left = next(MADE.glob("opencode/*/as-left.tar.gz"), None)
    if left is None:
        pytest.skip("needs the sessions of OpenCode")
    with tarfile.open(left) as archive:
        archive.extractall(tmp_path, filter="data")
    assert len(plans_in(tmp_path / "opencode.db", "opencode")) == 11


@pytest.mark.parametrize(("program", "path"), DATABASES)
def test_what_the_program_itself_exports_is_what_the_rows_say(program: str, path: Path) -> None:
    by_session = {plan.session: plan for plan in plans_in(path, program)}
    for document in sorted((path.parent / "exported").glob("*.json")):
        (plan,) = plans_in(document, program)
        its = by_session[plan.session]
        assert [messages(plan, n) for n in range(len(plan.generations))] == [
            messages(its, n) for n in range(len(its.generations))
        ]
        assert dict(plan.labels) == dict(its.labels)


@for_each("path", EVENTS)
def test_each_text_and_each_result_in_the_events_is_in_a_plan(path: Path) -> None:
    found = [said(plan) for plan in plans_in(path, "copilot")]
    texts = set().union(*(each[0] for each in found))
    results = {number: result for each in found for number, result in each[1].items()}
    for line in path.read_text().split("\n"):
        value: dict[str, Any] = json.loads(line) if line else {"type": ""}
        data = value.get("data", {})
        if value["type"] == "user.message":
            assert data["transformedContent"] in texts
        elif value["type"] == "assistant.message" and data["content"]:
            assert data["content"] in texts
        elif value["type"] == "session.compaction_complete":
            assert data["summaryContent"] in texts
        elif value["type"] == "tool.execution_complete":
            shown = data["result"]["content"] if data["success"] else data["error"]["message"]
            assert results[data["toolCallId"]] == shown


@pytest.mark.skipif(not EVENTS, reason="needs the sessions of Copilot CLI")
def test_what_the_recipe_did_at_copilot_is_what_is_there() -> None:
    plans = [plan for path in EVENTS for plan in plans_in(path, "copilot")]
    assert sum(plan.is_part for plan in plans) == 1
    assert sorted({str(plan.provider) for plan in plans}) == ["claude", "openai", "openai-compatible"]
    (named,) = [plan for plan in plans if plan.labels.get("title") == "Notes, corrected"]
    assert len(named.generations) == 2
    assert len(EVENTS) == 9
    assert {plan.labels["git_branch"] for plan in plans} == {"main"}
    assert any("data:image/png;base64," in str(m) for plan in plans for m in messages(plan))


@pytest.mark.parametrize("path", sorted(WILD.glob("copilot/*.jsonl")), ids=lambda path: path.name)
def test_copilot_files_that_others_published(path: Path) -> None:
    plans = plans_in(path, "copilot")
    assert any(m["role"] == "assistant" for plan in plans for m in messages(plan))


def test_json_folders_that_others_published(tmp_path: Path) -> None:
    """jazzyalex/agent-sessions: the folders of 1.1 to 1.3, whose paths stand in the names of the files."""
    for path in WILD.glob("opencode/as-storage_v2__*.json"):
        _, *folders = path.name.removeprefix("as-").split("__")
        there = tmp_path.joinpath("storage", *folders)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)
    (plan,) = plans_in(next(tmp_path.glob("storage/session/*/*.json")), "opencode")
    assert (plan.session, dict(plan.labels)) == ("s_stage0_small", {"title": "OpenCode Small", "cwd": "/tmp/repo"})
    assert messages(plan) == [{"role": "user", "content": "Hello"}]
