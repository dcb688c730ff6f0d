"""gptme: messages a line, in which what came of a call is said by nobody whom a provider knows. Lines as 0.35.1 writes them."""

from __future__ import annotations

import pytest

from tests.formats.of_others import Bytes, few_or_many_seeds, lines
from tests.formats.of_programs import READER, plan_of_bytes, said
from tests.formats.sources import corpora
from transcript_store.testing import check_format

AT = "2026-06-13T10:00:0"
USAGE = {"input_tokens": 120, "output_tokens": 42, "cache_read_tokens": 80}
LINES = [
    {"role": "system", "content": "You are gptme.", "timestamp": AT + "0", "pinned": True, "hide": True},
    {"role": "user", "content": "Write it.", "timestamp": AT + "1", "files": ["a.png"]},
    {"role": "assistant", "content": "Here.", "timestamp": AT + "2", "metadata": {"model": "p/m", "usage": USAGE, "cost": 0.5}},
    {"role": "system", "content": "Saved file: hello.py", "timestamp": AT + "3"},
    {"role": "tool", "content": "Hello!", "timestamp": AT + "4"},
]  # fmt: skip


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["gptme"], [lines(*LINES)], seeds=seeds)


def test_a_complete_conversation_is_read():
    plan = plan_of_bytes("gptme", lines(*LINES))
    assert said(plan) == ["user: Write it.", "assistant: Here.", "*user: Saved file: hello.py", "*user: Hello!"]
    assert (plan.system_prompt, plan.model) == ("You are gptme.", "p/m")
    usage = {"input_tokens": 120, "output_tokens": 42, "cache_read_input_tokens": 80, "cost": 0.5}
    assert list(plan.generations[0]())[2].extra["usage"] == usage


def test_the_folder_is_its_title():
    source = Bytes(lines(*LINES), "/home/ada/.local/share/gptme/logs/2026-06-13-write-it/conversation.jsonl")
    assert [plan.labels["title"] for plan in READER["gptme"].plans(source)] == ["write-it"]


def test_a_fork_is_another_conversation_and_has_the_name_that_it_was_given():
    """``/fork`` of gptme 0.35.1 copies the lines into another folder: both had one id, so one of them was imported."""

    class Named(Bytes):
        def beside(self, path):
            return b'[chat]\nmodel = "m"\nname = "Fruit count"\n' if path == "config.toml" else None

    (own,) = READER["gptme"].plans(Named(lines(*LINES), "logs/talk/conversation.jsonl"))
    (fork,) = READER["gptme"].plans(Bytes(lines(*LINES), "logs/other/conversation.jsonl"))
    assert own.session != fork.session
    assert own.former_session == fork.former_session == plan_of_bytes("gptme", lines(*LINES)).session
    assert (own.labels["title"], fork.labels["title"]) == ("Fruit count", "other")


def test_what_gptme_asks_in_the_users_name():
    asked = {"role": "user", "content": "<system>No tool call detected.</system>", "timestamp": AT + "5"}
    assert said(plan_of_bytes("gptme", lines(*LINES, asked)))[-1].startswith("*user: <system>")


def test_a_file_of_others_is_read():
    found = corpora("wild/gptme")
    if not found:
        pytest.skip("needs the shared corpora")
    assert [len(said(plan_of_bytes("gptme", path.read_bytes()))) for path in found] == [6]
