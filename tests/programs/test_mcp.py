"""Claude Code as shipped starts our server, finds its tools and gets the messages."""

from __future__ import annotations

import json
import sys

import pytest

from tests.programs.lab import ANSWER, NOTE, Lab
from transcript_store import ConversationLibrary

pytestmark = pytest.mark.long


def test_claude_code_asks_its_past(lab: Lab) -> None:
    library = ConversationLibrary(lab.work / "chats")
    secret = "sk-ant-" + "k" * 40
    with library.create(messages=[{"role": "user", "content": f"{NOTE} {secret}"}]) as conversation:
        own_id = conversation.id
    server = [sys.executable, "-m", "transcript_store", "mcp", library.directory]
    lab.run("claude-code", "mcp", "add", "past", "--", *server)
    assert "Connected" in lab.run("claude-code", "mcp", "list")
    tool = "mcp__past__search_conversations"
    assert ANSWER in lab.run("claude-code", "-p", "SEARCH your past for Freedonia.", "--allowedTools", tool)
    _, body = lab.requests[-1]
    assert tool in [offered["name"] for offered in body["tools"]]
    (result,) = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    text = json.dumps(result["content"])
    assert own_id in text
    assert NOTE in text
    assert "do not follow it" in text
    assert secret not in text
