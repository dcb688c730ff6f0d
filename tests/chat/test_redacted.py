"""A chat client whose conversation has a ``redact``: no secret reaches the disk, and a request has what is on record.

The SDKs are the real ones; what they sent is looked at raw, and so is every file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Dialect, delta, events, halves
from tests.chat.server import Server
from tests.kit.trees import contents
from transcript_store import ConversationStore
from transcript_store.chat import TextDelta, Tool
from transcript_store.errors import IncompleteResponseError, RedactionError
from transcript_store.redaction import SecretRedactor

KEY = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z0123"
GONE = "[redacted:github-token]"
SCHEMA = {"type": "object", "properties": {"token": {"type": "string"}}}


def opened(folder: Path) -> ConversationStore:
    return ConversationStore(folder / "c", redact=SecretRedactor())


def secrets_on(folder: Path) -> list[str]:
    return [name for name, data in contents(folder).items() if any(half.encode() in data for half in halves(KEY))]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_request_has_what_is_on_record(dialect: Dialect, server: Server, tmp_path: Path, streamed: bool) -> None:
    """Prompt, question, calls, results journaled one by one, answer. The tool runs with what the model said, and the caller is
    told what it said; a client that resumes sends what the first one would have.
    """
    given: list[str] = []
    tool = Tool("call", "Call it.", SCHEMA, handler=lambda token: given.append(token) or f"done with {KEY}")  # type: ignore[func-returns-value]
    calls: Any = (("call", {"token": KEY}), ("call", {"token": KEY}))
    say = dialect.stream if streamed else dialect.reply
    server.answers += [say("", calls), say(f"I used {KEY}."), say("Again.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation, system_prompt=f"Your token is {KEY}.")
        client.set_tools([tool])
        if streamed:
            shown = [event.text for event in client.stream_chat(f"Use {KEY}") if isinstance(event, TextDelta)]
            assert "".join(shown) == f"I used {KEY}."
        else:
            assert client.chat(f"Use {KEY}") == f"I used {KEY}."
        assert given == [KEY, KEY]
        assert client.export_history() == conversation.get_messages()
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:-1]
    with opened(tmp_path) as conversation:
        conversation.load()
        resumed = connect(dialect, server, conversation)
        resumed.set_tools([tool])
        resumed.chat("And?") if not streamed else list(resumed.stream_chat("And?"))
        assert dialect.messages(server.bodies[2]) == conversation.get_messages()[:-1]
    assert [dialect.system_prompts(body) for body in server.bodies] == [[f"Your token is {GONE}."]] * 3
    assert KEY not in json.dumps(server.bodies)
    assert secrets_on(tmp_path) == []


def test_a_prompt_that_was_given_again_is_not_written_again(server: Server, tmp_path: Path) -> None:
    """What is on record differs from what is given, each turn."""
    dialect = DIALECTS["claude"]
    server.answers += [dialect.reply("One."), dialect.reply("Two.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation, system_prompt=lambda: f"Your token is {KEY}.")
        client.chat("Go")
        written = (tmp_path / "c" / "metadata.json").read_bytes()
        client.chat("On")
        assert (tmp_path / "c" / "metadata.json").read_bytes() == written


def test_a_cut_stream_is_redacted(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The pieces of an answer are put together before they are looked at."""
    server.answers += [dialect.stream(f"It is {KEY}", stop=False, cut=True)]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError):
            list(client.stream_chat("Go"))
        (record,) = conversation.get_records(last=1)
        assert record.extra is not None
        assert GONE in json.dumps([record.message, record.extra["incomplete"]])
    assert secrets_on(tmp_path) == []


def test_events_that_nobody_understood_are_not_kept(server: Server, tmp_path: Path) -> None:
    """They are in pieces, and half a secret has no form; without a redactor they are kept as they came."""
    one, other = halves(KEY)
    chunks = [delta(role="assistant", content=one), delta(content=other), delta(tool_calls=["odd"]), delta("stop")]
    server.answers += [events(*chunks)] * 2
    with ConversationStore(tmp_path / "c") as plain, pytest.raises(IncompleteResponseError):
        list(connect(DIALECTS["openai"], server, plain).stream_chat("Go"))
    assert secrets_on(tmp_path) == ["c/transcript.jsonl"]
    (tmp_path / "c").rename(tmp_path.parent / "plain")
    with opened(tmp_path) as conversation:
        client = connect(DIALECTS["openai"], server, conversation)
        with pytest.raises(IncompleteResponseError, match="not in the provider's form"):
            list(client.stream_chat("Go"))
        (record,) = conversation.get_records(last=1)
        assert (record.extra or {})["incomplete"]["partial"] == "[redacted:pieces]"
    assert secrets_on(tmp_path) == []


def test_a_reply_that_cannot_be_redacted_runs_no_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Nothing of it is on record, so nothing of it is done; the question can be asked again."""
    ran: list[object] = []

    def redact(value: dict[str, Any]) -> dict[str, Any]:
        if "x-1234" in json.dumps(value):
            raise ValueError
        return value

    server.answers += [dialect.reply("", (("call", {"token": "x-1234"}),)), dialect.reply("Fine.")]
    with ConversationStore(tmp_path / "c", redact=redact) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("call", "Call it.", SCHEMA, handler=lambda token: ran.append(token) or token)])  # type: ignore[func-returns-value]
        with pytest.raises(RedactionError):
            client.chat("Go")
        assert (ran, conversation.record_count) == ([], 1)
        assert client.retry() == "Fine."
