"""The examples of docs/integrations.md, with a scripted model."""

from __future__ import annotations

from functools import partial

import pydantic_ai
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from tests.integrations.page import examples
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.view import render_conversation

SECTION = "pydantic-ai"


def test_each_example_runs(monkeypatch, tmp_path, capsys):
    """In one folder, in the order of the page, as a reader would try them."""
    monkeypatch.chdir(tmp_path)
    answers = iter(["Hello, Ada.", "You are Ada."])
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(next(answers))]))
    agent = pydantic_ai.Agent
    monkeypatch.setattr(pydantic_ai, "Agent", lambda name, **more: partial(agent, model)(**more))
    for number, example in enumerate(examples(SECTION)):
        exec(compile(example, f"docs/integrations.md, {SECTION}, example {number + 1}", "exec"), {})
    assert "You are Ada." in capsys.readouterr().out

    (summary,) = ConversationLibrary("chats").list()
    with ConversationStore(summary.directory, read_only=True) as conversation:
        conversation.load()
        page = b"".join(render_conversation(conversation, to="markdown").pieces).decode()
    for speaker, text in (("user", "My name is Ada."), ("assistant", "Hello, Ada."), ("assistant", "You are Ada.")):
        assert f"## {speaker} " in page
        assert f"```markdown\n{text}\n```" in page
