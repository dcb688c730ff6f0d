"""The examples of docs/integrations.md, with a scripted program in place of Claude Code."""

from __future__ import annotations

from functools import partial

import claude_agent_sdk

from tests.integrations.claude_agent_sdk.bench import PROJECT
from tests.integrations.claude_agent_sdk.scripted import Scripted
from tests.integrations.page import examples
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.view import render_conversation

SECTION = "Claude Agent SDK"
SESSION = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"


def test_each_example_runs(monkeypatch, tmp_path, capsys):
    """In one folder, in the order of the page, as a reader would try them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    program = Scripted(SESSION, "Hello, Ada.", str(tmp_path / "config"))
    monkeypatch.setattr(claude_agent_sdk, "query", partial(claude_agent_sdk.query, transport=program))
    for number, example in enumerate(examples(SECTION)):
        exec(compile(example, f"docs/integrations.md, {SECTION}, example {number + 1}", "exec"), {})
    assert "Hello, Ada." in capsys.readouterr().out

    (summary,) = ConversationLibrary(f"chats/{PROJECT}").list()
    assert summary.title == SESSION
    with ConversationStore(summary.directory, read_only=True) as conversation:
        conversation.load()
        page = b"".join(render_conversation(conversation, to="markdown").pieces).decode()
    for text in ("My name is Ada.", "Hello, Ada."):
        assert text in page
