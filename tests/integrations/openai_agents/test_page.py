"""The examples of docs/integrations.md, with a scripted model in place of OpenAI's."""

from __future__ import annotations

from functools import partial

import agents
import pytest
from agents.testing import ScriptedModel, assistant_message

from tests.integrations.page import examples
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.view import render_conversation

SECTION = "OpenAI Agents SDK"


@pytest.fixture(autouse=True)
def model(monkeypatch, tmp_path):
    model = ScriptedModel([[assistant_message(text)] for text in ("Hello, Ada.", "You are Ada.", "More.")])
    monkeypatch.setattr(agents, "Agent", partial(agents.Agent, model=model))
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.chdir(tmp_path)
    return model


def test_each_example_runs(model, capsys):
    """In one folder, in the order of the page, as a reader would try them."""
    agent, taken_back = examples(SECTION)
    exec(compile(agent, f"docs/integrations.md, {SECTION}, example 1", "exec"), {})
    assert "You are Ada." in capsys.readouterr().out
    assert len(model.calls[1].input) == 3  # what was said before was sent

    (summary,) = ConversationLibrary("chats").list()
    assert summary.title == "user-1"
    with ConversationStore(summary.directory, read_only=True) as conversation:
        conversation.load()
        page = b"".join(render_conversation(conversation, to="markdown").pieces).decode()
    for text in ("My name is Ada.", "Hello, Ada.", "You are Ada."):
        assert text in page

    exec(compile(taken_back, f"docs/integrations.md, {SECTION}, example 2", "exec"), {})
    assert "retracted {'id'" in capsys.readouterr().out
