"""Grok Build's chat history, and that a session is not read twice. Made here as files of others have it; it was not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.of_programs import READER, plan_of_bytes, plans_at, said
from tests.formats.sources import SHARED
from transcript_store.sources import find_sources
from transcript_store.testing import check_format

CALL = {"id": "c1", "name": "read_file", "arguments": '{"target_file": "a"}'}
HISTORY = [
    {"type": "system", "content": "You are Grok."},
    {"type": "user", "content": [{"type": "text", "text": "<user_info>…</user_info>"}], "synthetic_reason": "context"},
    {"type": "user", "content": [{"type": "text", "text": "Read it."}], "prompt_index": 0},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"},
    {"type": "assistant", "content": "I read.", "tool_calls": [CALL], "model_id": "grok-4.5"},
    {"type": "tool_result", "tool_call_id": "c1", "content": "apples"},
    {"type": "backend_tool_call", "kind": {"tool_type": "web_search"}},
    {"type": "reasoning", "id": "q", "summary": [{"type": "summary_text", "text": "Done?"}]},
]


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["grok"], [lines(*HISTORY)], seeds=seeds)


def test_a_complete_session_is_read():
    plan = plan_of_bytes("grok", lines(*HISTORY))
    assert said(plan) == [
        "*user: <user_info>…</user_info>",
        "user: Read it.",
        "assistant: (Hm.) I read. read_file#c1{'target_file': 'a'}",
        "#c1: apples",
        "assistant: (Done?)",
    ]
    assert (plan.model, plan.system_prompt) == ("grok-4.5", "You are Grok.")


def test_a_session_that_has_its_updates_is_read_from_them_alone(tmp_path: Path):
    for name in ("updates.jsonl", "chat_history.jsonl", "summary.json"):
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "compaction_checkpoints").mkdir()
    assert [Path(found.path).name for found in find_sources(tmp_path)] == ["updates.jsonl"]
    (tmp_path / "updates.jsonl").unlink()
    assert "chat_history.jsonl" in [Path(found.path).name for found in find_sources(tmp_path)]


def test_files_of_others_are_read():
    if not SHARED or not (folder := Path(SHARED) / "corpora/wild/grok").is_dir():
        pytest.skip("needs the shared corpora")
    told = [said(plan) for path in sorted(folder.glob("*.jsonl")) for plan in plans_at(path)]
    assert [len(one) for one in told] == [8, 4]
    assert any("[image/png]" in one for one in told[0])
