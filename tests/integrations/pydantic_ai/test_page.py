"""The examples of docs/integrations.md, with a scripted model."""

from __future__ import annotations

import asyncio
from functools import partial

import pydantic_ai
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from tests.integrations.page import examples
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.view import render_conversation

SECTION = "pydantic-ai"


def test_each_example_runs(monkeypatch, tmp_path, capsys):
    """In one folder, in the order of the page, as a reader would try them."""
    monkeypatch.chdir(tmp_path)
    pay = ToolCallPart("pay", {"amount": 5})
    answers = iter([TextPart("Hello, Ada."), TextPart("You are Ada."), pay, TextPart("Bob has them.")])
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[next(answers)]))
    agent = pydantic_ai.Agent
    monkeypatch.setattr(pydantic_ai, "Agent", lambda name, **more: partial(agent, model)(**more))
    with asyncio.Runner() as runner:
        runner.get_loop()  # run_sync() takes the thread's loop. One that it has to make it never closes.
        for number, example in enumerate(examples(SECTION)):
            exec(compile(example, f"docs/integrations.md, {SECTION}, example {number + 1}", "exec"), {})
    said = capsys.readouterr().out
    assert "You are Ada." in said
    assert "Bob has them." in said

    (summary,) = (each for each in ConversationLibrary("chats").list() if each.title == "user-1")
    with ConversationStore(summary.directory, read_only=True) as conversation:
        conversation.load()
        page = b"".join(render_conversation(conversation, to="markdown").pieces).decode()
    for speaker, text in (("user", "My name is Ada."), ("assistant", "Hello, Ada."), ("assistant", "You are Ada.")):
        assert f"## {speaker} " in page
        assert f"\n{text}\n" in page  # in a fence, unless a parser of Markdown is installed
