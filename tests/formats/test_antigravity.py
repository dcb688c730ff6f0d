"""Antigravity's readable transcript: steps, whose calls have no ids. Made here as files of others have it; it was not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.of_programs import READER, plan_of_bytes, said
from tests.formats.sources import corpora
from transcript_store.sources import discover
from transcript_store.testing import check_format


def step(number: int, source: str, kind: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    about = {
        "step_index": number,
        "source": source,
        "type": kind,
        "status": "DONE",
        "created_at": f"2026-06-26T21:16:{number:02}Z",
    }
    return {**about, **({} if content is None else {"content": content}), **more}


CALLS = [
    {"name": "list_dir", "args": {"DirectoryPath": '"/tmp/repo"', "Deep": "true"}},
    {"name": "run", "args": {"Cmd": "wc -l"}},
]
CHOSEN = "The user changed setting `Model Selection` from None to Gemini 3.5 Flash (Medium). No need to comment."
STEPS = [
    step(0, "USER_EXPLICIT", "USER_INPUT", f"<USER_REQUEST>\nList them.\n</USER_REQUEST>\n<USER_SETTINGS_CHANGE>\n{CHOSEN}\n</USER_SETTINGS_CHANGE>"),
    step(1, "SYSTEM", "CONVERSATION_HISTORY"),
    step(2, "MODEL", "PLANNER_RESPONSE", "I look.", thinking="Hm.", tool_calls=CALLS),
    step(3, "MODEL", "LIST_DIRECTORY", "a.txt"),
    step(4, "MODEL", "RUN_COMMAND", "no such file", status="ERROR"),
    step(5, "MODEL", "BROWSER_NAVIGATE", "opened a page"),
    step(6, "MODEL", "PLANNER_RESPONSE", "One file.", usage={"input_tokens": 100, "output_tokens": 5}),
]  # fmt: skip


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["antigravity"], [lines(*STEPS, step(7, "SYSTEM", "CHECKPOINT", "# Resuming"))], seeds=seeds)


def test_a_complete_conversation_is_read():
    plan = plan_of_bytes("antigravity", lines(*STEPS))
    first, reply, *rest = said(plan)
    assert first.startswith("*user: <USER_REQUEST>")
    calls = "list_dir#step_3_0{'DirectoryPath': '/tmp/repo', 'Deep': True} run#step_3_1{'Cmd': 'wc -l'}"
    assert reply == f"assistant: (Hm.) I look. {calls}"
    assert rest == ["#step_3_0: a.txt", "#step_3_1 failed: no such file", "assistant: One file."]
    entries = list(plan.generations[0]())
    assert entries[0].extra["scaffolding"] == {"typed": "List them."}
    assert entries[-1].extra["usage"] == {"prompt_tokens": 100, "completion_tokens": 5}
    assert plan.model == "Gemini 3.5 Flash (Medium)"


def test_a_compaction_is_a_generation():
    plan = plan_of_bytes("antigravity", lines(*STEPS, step(7, "SYSTEM", "CHECKPOINT", "{{ CHECKPOINT 0 }}")))
    assert (len(said(plan, 0)), said(plan)) == (5, ["*user: {{ CHECKPOINT 0 }}"])


def test_it_is_found_in_a_hidden_folder(tmp_path: Path):
    """What a star stands for never begins with a dot; a folder that is named may."""
    logs = tmp_path / ".gemini/antigravity/brain/b-1/.system_generated/logs"
    logs.mkdir(parents=True)
    (logs / "transcript.jsonl").write_bytes(lines(*STEPS))
    (tmp_path / ".gemini/antigravity/brain/.b-2").mkdir()
    assert [(found.program, found.path) for found in discover(tmp_path, {})] == [
        ("antigravity", str(logs / "transcript.jsonl"))
    ]


def test_a_file_of_others_is_read():
    found = corpora("wild/antigravity")
    if not found:
        pytest.skip("needs the shared corpora")
    assert [said(plan_of_bytes("antigravity", path.read_bytes()))[1] for path in found] == ["assistant: (...)"]
