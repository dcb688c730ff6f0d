"""Recorded replies of the real services: corpora/wire has traffic that other projects recorded against the real APIs.

The recorded responses are served as they came (Gemini's is a JSON array and is re-framed as events), and our second request is
looked at twice: it carries each recorded reply equal as a JSON value; and it says what the recorder's second request said, which
the real service accepted: the same roles, calls, arguments, signatures and results in the same order.

The streams in corpora/sse are those of the SDK's own tests. The data is not part of this repository; TRANSCRIPT_STORE_SHARED
names the folder that has it.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS
from tests.chat.server import Answer, Server
from transcript_store.chat import Tool
from transcript_store.errors import IncompleteResponseError

SHARED = os.environ.get("TRANSCRIPT_STORE_SHARED")
pytestmark = pytest.mark.skipif(SHARED is None, reason="TRANSCRIPT_STORE_SHARED is not set")


def corpus(name: str) -> Path:
    return Path(SHARED or "") / "corpora" / name


def interactions(name: str) -> list[tuple[Any, str]]:
    """The recorded pairs of request (parsed) and response (text)."""
    recorded = yaml.safe_load(corpus(f"wire/{name}.yaml").read_text())["interactions"]
    return [
        (
            json.loads(pair["request"]["body"]),
            zlib.decompressobj(31).decompress(pair["response"]["body"]["string"]).decode(),  # some lack their end
        )
        for pair in recorded
    ]


def tool(name: str, *results: str) -> Tool:
    left = list(results)
    return Tool(name, "", {"type": "object"}, handler=lambda **_: left.pop(0))


def gist(message: Any) -> list[Any]:
    """A native message of any of the three formats: role, calls, signatures, results and said text, in order."""
    out: list[Any] = [message["role"]]
    content = message.get("content") or message.get("parts") or []
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        if message["role"] == "tool":
            out.append(("result", message["tool_call_id"], block["text"]))
        elif call := block.get("functionCall") or block.get("function_call"):
            out.append(("call", call["name"], call["args"], block.get("thoughtSignature")))
        elif given := block.get("functionResponse") or block.get("function_response"):
            out.append(("result", given["name"], given["response"]))
        elif block.get("type") == "tool_use":
            out.append(("call", block["id"], block["name"], block["input"]))
        elif block.get("type") == "tool_result":
            out.append(("result", block["tool_use_id"], block["content"]))
        elif block["text"].strip():
            out.append(("text", block["text"]))
    out += [("call", c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())]  # fmt: skip
    return out


def test_claude(server: Server) -> None:
    """Two parallel calls, streamed."""
    pairs = interactions("anthropic-tools")
    server.answers += [Answer(text.encode(), content_type="text/event-stream; charset=utf-8") for _, text in pairs]
    client = connect(DIALECTS["claude"], server)
    client.set_tools([tool("pelican_name_generator", "Charles", "Sammy")])
    list(client.stream_chat("Two names for a pet pelican"))
    events = [json.loads(line[6:]) for line in pairs[0][1].splitlines() if line.startswith("data: ")]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]  # no input comes
    ours = server.bodies[1]["messages"]
    assert ours[1] == {"role": "assistant", "content": blocks}
    assert [gist(m) for m in ours] == [gist(m) for m in pairs[1][0]["messages"]]
    assert client.export_history()[-1]["content"][0]["text"].endswith("your feathered friend! 🦅")


def test_openai(server: Server) -> None:
    """Two calls in a chain, not streamed."""
    pairs = interactions("openai-chat-tool-chain")
    server.answers += [Answer(text.encode()) for _, text in pairs]
    client = connect(DIALECTS["openai"], server)
    client.set_tools([tool("lookup_population", "123124"), tool("can_have_dragons", "true")])
    question = pairs[0][0]["messages"][0]["content"]
    assert client.chat(question) == "YES"
    replies = [json.loads(text)["choices"][0]["message"] for _, text in pairs]
    assert [m for m in client.export_history() if m["role"] == "assistant"] == replies
    for (recorded, _), ours in zip(pairs[1:], server.bodies[1:], strict=True):
        assert [gist(m) for m in ours["messages"]] == [gist(m) for m in recorded["messages"]]
        sent = [m for m in ours["messages"] if m["role"] == "assistant"]
        for reply, message in zip(replies, sent, strict=False):
            assert reply.pop("annotations", []) == []  # only a response may have it
            assert message == reply


def test_gemini(server: Server) -> None:
    """A call with its thought signature, streamed: the signature goes back with its part."""
    pairs = interactions("gemini-thought-signatures")
    for _, text in pairs:
        events = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in json.loads(text))
        server.answers.append(Answer(events.encode(), content_type="text/event-stream"))
    client = connect(DIALECTS["gemini"], server)
    client.set_tools([tool("multiply", "15")])
    list(client.stream_chat("What is 5 times 3?"))
    ours = server.bodies[1]["contents"]
    parts = [part for chunk in json.loads(pairs[0][1]) for part in chunk["candidates"][0]["content"]["parts"]]
    assert client.export_history()[1] == {"role": "model", "parts": parts}
    assert ours[1] == {"role": "model", "parts": [part for part in parts if part != {"text": ""}]}
    assert [gist(m) for m in ours] == [gist(m) for m in pairs[1][0]["contents"]]
    assert client.export_history()[-1]["parts"] == [{"text": "5 times 3 is 15."}]


def test_the_sdks_own_streams(server: Server) -> None:
    """Text; a tool call; and one that ends in the middle of a tool's input, whose text is kept and whose call is not."""
    for name in ("basic_response", "tool_use_response", "incomplete_partial_json_response"):
        body = corpus(f"sse/anthropic-{name}.txt").read_bytes()
        server.answers.append(Answer(body, content_type="text/event-stream"))
    client = connect(DIALECTS["claude"], server, max_steps=1)
    events = list(client.stream_chat("Hi"))
    assert events[-1].text == "Hello there!"
    with pytest.raises(Exception, match="max_steps"):
        list(client.stream_chat("The weather?"))
    (call,) = [block for block in client.export_history()[3]["content"] if block["type"] == "tool_use"]
    assert call["input"] == {"location": "Paris"}
    with pytest.raises(IncompleteResponseError, match="max_tokens"):
        list(client.stream_chat("My taxes?"))
    text = "I'll create a comprehensive tax guide for someone with multiple W2s and save it in a file called taxes.txt. Let me do that for you now."
    assert client.export_history()[-1]["content"] == [{"type": "text", "text": text}]
