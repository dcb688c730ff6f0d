"""Zed's threads: a row each, with all messages in one JSON text, which may be packed. Made here as files of others have it; it was not run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.of_others import Rows, assert_nothing_is_lost, few_or_many_seeds
from tests.formats.of_programs import READER, said
from transcript_store.formats import SessionPlan
from transcript_store.testing import check_format

USE = {"id": "c1", "name": "read_file", "raw_input": "{}", "input": {"path": "a.rs"}, "is_input_complete": True}
SHOWN = {"tool_use_id": "c1", "tool_name": "read_file", "is_error": True, "content": {"Text": "no file"}}
MENTION = {"Mention": {"uri": {"File": {"abs_path": "/w/a.rs"}}, "content": "fn main() {}"}}
THREAD = {
    "version": "0.3.0",
    "title": "Fruit",
    "messages": [
        {"User": {"id": "u1", "content": [{"Text": "Read it."}, MENTION, {"Image": {"source": "aGk="}}]}},
        {
            "Agent": {
                "content": [{"Thinking": {"text": "Hm.", "signature": None}}, {"Text": "I read."}, {"ToolUse": USE}],
                "tool_results": {"c1": SHOWN},
            }
        },
        {"Agent": {"content": [{"Text": "It is not there."}], "tool_results": {}}},
        "Resume",
    ],
    "request_token_usage": {"u1": {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 10}},
    "model": {"provider": "zed.dev", "model": "claude-sonnet-4-5"},
}
OLD = {
    "version": "0.2.0",
    "summary": "Old",
    "messages": [
        {
            "id": 0,
            "role": "user",
            "segments": [{"type": "text", "text": "Read it."}],
            "tool_results": [],
            "context": "",
        },
        {
            "id": 1,
            "role": "assistant",
            "segments": [{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "I read."}],
            "tool_uses": [{"id": "c1", "name": "read_file", "input": {"path": "a.rs"}}],
        },
        {"id": 2, "role": "user", "segments": [], "tool_results": [{**SHOWN, "content": "no file"}]},
    ],
}
SAID = ["assistant: (Hm.) I read. read_file#c1{'path': 'a.rs'}", "#c1 failed: no file"]


def row(data: Any, id: str = "t-1", kind: str = "json", parent: str | None = None) -> dict[str, Any]:
    times = {"created_at": "2026-05-01T12:00:00Z", "updated_at": "2026-05-01T12:30:00Z"}
    about = {"id": id, "parent_id": parent, "summary": "A summary", "folder_paths": "/home/ada/garden\n/home/ada/b"}
    return {**about, **times, "data_type": kind, "data": data}


def plans_of(*rows: dict[str, Any]) -> list[SessionPlan]:
    plans = list(READER["zed"].plans(Rows({"threads": rows})))
    for plan in plans:
        assert_nothing_is_lost(plan)
    return plans


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["zed"], [{"threads": [row(json.dumps(THREAD)), row(json.dumps(OLD), "t-2")]}], seeds=seeds)


def test_a_complete_thread_is_read():
    (plan,) = plans_of(row(json.dumps(THREAD), parent="t-0"))
    assert said(plan) == ["*user: Read it. [image/png] fn main() {}", *SAID, "assistant: It is not there."]
    assert (plan.model, plan.version) == ("claude-sonnet-4-5", "0.3.0")
    assert plan.labels == {"title": "Fruit", "cwd": "/home/ada/garden", "part_of": "t-0"}
    usage = [entry.extra["usage"] for entry in plan.generations[0]() if "usage" in entry.extra]
    assert usage == [{"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 10}]


def test_a_thread_of_the_version_before():
    (plan,) = plans_of(row(json.dumps(OLD)))
    assert said(plan) == ["user: Read it.", *SAID]


def test_a_packed_thread_is_unpacked():
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(json.dumps(THREAD).encode())
    assert [said(plan)[1:3] for plan in plans_of(row(packed, kind="zstd"))] == [SAID]


@pytest.mark.parametrize(("data", "kind"), [(b"\x28\xb5\x2f\xfd broken", "zstd"), ("[]", "json"), (None, "json")])
def test_a_thread_that_cannot_be_read_is_a_finding_and_is_kept(data, kind):
    (plan,) = plans_of(row(data, kind=kind))
    assert [finding.kind for finding in plan.findings] == ["unreadable-row"]
    assert said(plan) == []
