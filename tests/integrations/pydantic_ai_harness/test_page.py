"""The example of docs/integrations.md, with a scripted model."""

from __future__ import annotations

from functools import partial

import pydantic_ai
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from tests.integrations.page import examples
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.view import render_conversation

SECTION = "pydantic-ai-harness"


def test_the_example_runs(monkeypatch, tmp_path, capsys):
    """It prints the history, and the page of the run shows what was said."""
    monkeypatch.chdir(tmp_path)
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("It is paid.")]))
    agent = pydantic_ai.Agent
    monkeypatch.setattr(pydantic_ai, "Agent", lambda name, **more: partial(agent, model)(**more))
    (example,) = examples(SECTION)
    exec(compile(example, f"docs/integrations.md, {SECTION}", "exec"), {})
    assert "It is paid." in capsys.readouterr().out

    (summary,) = ConversationLibrary("runs").list()
    assert summary.title == "bill-7"
    with ConversationStore(summary.directory, read_only=True) as conversation:
        conversation.load()
        page = b"".join(render_conversation(conversation, to="markdown").pieces).decode()
    for speaker, text in (("user", "Pay the bill."), ("assistant", "It is paid.")):
        assert f"## {speaker} " in page
        assert f"\n{text}\n" in page  # in a fence, unless a parser of Markdown is installed
