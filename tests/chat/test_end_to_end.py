"""The same against independent servers, and the faults that they inject."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import Dialect
from tests.chat.lives import POINTS, MortalStore, die, first_life, in_another_process, on_record, second_life
from tests.chat.model_servers import STORY, aimock, llmock
from tests.chat.server import Server
from transcript_store import ConversationStore
from transcript_store.chat import TextDelta, Tool
from transcript_store.errors import IncompleteResponseError

__all__ = ["aimock", "llmock"]

pytestmark = pytest.mark.long


# ---- aimock ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorder(dialect: Dialect, server: Server, aimock: str) -> Server:
    """The test server as a recording proxy in front of aimock."""
    server.upstream = aimock + ("/v1" if dialect.name.startswith("openai") else "")
    return server


@pytest.mark.parametrize(("dies", "at"), POINTS, ids=[f"{dies} record {at}" for dies, at in POINTS])
def test_killed_at_every_durable_step(dialect: Dialect, recorder: Server, tmp_path: Path, dies: str, at: int) -> None:
    """The matrix of test_killed.py, the model's side played by aimock."""
    directory = tmp_path / "c"
    store = MortalStore(directory, dies=dies, at=at)
    assert in_another_process(lambda: first_life(dialect, recorder, store, stream=False)) == -signal.SIGKILL
    before, events = on_record(directory)
    assert len(before) + len(events) == at - (dies == "before")
    second_life(dialect, recorder, directory)


@pytest.mark.parametrize("where", ["in the tool", "in the stream"])
def test_killed_between_records(dialect: Dialect, recorder: Server, tmp_path: Path, where: str) -> None:
    directory = tmp_path / "c"
    store = ConversationStore(directory)
    stream, handler = where == "in the stream", die if where == "in the tool" else None
    work = lambda: first_life(dialect, recorder, store, stream=stream, handler=handler)  # noqa: E731
    assert in_another_process(work) == -signal.SIGKILL
    second_life(dialect, recorder, directory)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_tool_turn(dialect: Dialect, recorder: Server, tmp_path: Path, streamed: bool) -> None:
    """Both calls run; what aimock sent is in the next request, and the conversation goes on in another client."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, recorder, conversation, system_prompt="Be brief.")
        client.set_tools([Tool("add", "Add.", {"type": "object"}, handler=lambda a, b: a + b)])
        if streamed:
            events = list(client.stream_chat("What is it?"))
            assert events[-1].text == "3 and 7."
        else:
            assert client.chat("What is it?") == "3 and 7."
    with ConversationStore(tmp_path / "c") as conversation:
        assert connect(dialect, recorder, conversation).chat("Go on.") == "Here again."
        assert dialect.messages(recorder.bodies[-1]) == conversation.get_messages()[:-1]
    assert [dialect.refusal(body) for body in recorder.bodies] == [None] * 3
    assert [dialect.system_prompts(body) for body in recorder.bodies] == [["Be brief."]] * 3


@pytest.mark.parametrize("question", ["busy", "broken"])
def test_a_passing_error_is_retried(dialect: Dialect, recorder: Server, tmp_path: Path, question: str) -> None:
    """A 429 and a 500 that go away cost a moment; the SDK sends the same body again, and nothing is on record twice."""
    with ConversationStore(tmp_path / "c") as conversation:
        # The sequence is counted for each model, whose name makes it this test's own.
        client = connect(dialect, recorder, conversation, model=f"{dialect.name}-{question}")
        assert client.chat(question) == "Here again."
        assert len(conversation.get_messages()) == 2
    assert len({request.raw for request in recorder.requests}) == 1


@pytest.mark.parametrize(
    ("fault", "streamed"),
    [(fault, True) for fault in ("cut", "stall", "garbled", "dropped", "refused")]
    + [(fault, False) for fault in ("garbled", "dropped", "refused")],
)
def test_a_fault_leaves_a_conversation_that_works(
    dialect: Dialect, aimock: str, tmp_path: Path, fault: str, streamed: bool
) -> None:
    """Each fault is an error; what came is kept; the next turn's request holds all of it and works."""
    base_url = aimock + ("/v1" if dialect.name.startswith("openai") else "")
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, Server(), conversation, base_url=base_url, timeout_seconds=1.0)
        shown: list[str] = []
        with pytest.raises(Exception) as caught:
            if streamed:
                for event in client.stream_chat(fault):
                    shown += [event.text] if isinstance(event, TextDelta) else []
            else:
                client.chat(fault)
        assert "".join(shown) in json.dumps(conversation.get_messages())
        if shown:
            assert isinstance(caught.value, IncompleteResponseError)
            assert caught.value.text == "".join(shown)
        assert client.chat("Go on.") == "Here again."


# ---- llmock ----------------------------------------------------------------------------------------------------------


class Chaos:
    """llmock's control door."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._call("reset")

    def queue(self, **behavior: Any) -> None:
        self._call("scenario", {"behaviors": [behavior]})

    def verdict(self) -> Any:
        with urlopen(f"{self.url}/_llmock/verdict") as response:
            return json.load(response)

    def _call(self, door: str, body: Any = None) -> None:
        data = json.dumps(body or {}).encode()
        with urlopen(Request(f"{self.url}/_llmock/{door}", data, {"Content-Type": "application/json"})):
            pass


@pytest.fixture
def chaos(llmock: str) -> Chaos:
    return Chaos(llmock)


def to_llmock(dialect: Dialect, chaos: Chaos, conversation: ConversationStore, **config: Any) -> Any:
    path = {"claude": "/anthropic", "gemini": "/gemini"}.get(dialect.name, "/v1")
    return connect(dialect, Server(), conversation, base_url=chaos.url + path, **config)


def test_llmock_finds_no_fault_with_our_retries(dialect: Dialect, chaos: Chaos, tmp_path: Path) -> None:
    """A rate limit with its ``Retry-After``, a 500, a 503: each is retried as the server asks; its own verdict says so."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = to_llmock(dialect, chaos, conversation)
        for status in (500, 503, 429):
            chaos.queue(type="fail", status=status)
            chaos.queue(type="reply", text=f"After a {status}.")
            assert client.chat(f"Number {status}?") == f"After a {status}."
        assert len(conversation.get_messages()) == 6
        verdict = chaos.verdict()
        assert [f for f in verdict["findings"] if f["severity"] == "error"] == []


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed", "stall"])
@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_broken_stream(dialect: Dialect, chaos: Chaos, tmp_path: Path, kind: str, after: int) -> None:
    """Whatever was shown is on record as a message that can be sent again; the next turn works."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = to_llmock(dialect, chaos, conversation, timeout_seconds=1.0)
        chaos.queue(type="reply", text=STORY)
        chaos.queue(type="stream_fault", kind=kind, after_chunks=after)
        shown = ""
        with pytest.raises(Exception) as caught:
            for event in client.stream_chat("A story?"):
                shown += event.text if isinstance(event, TextDelta) else ""
        record = conversation.get_records()[-1]
        if shown:
            assert isinstance(caught.value, IncompleteResponseError)
            assert STORY.startswith(shown)
            assert json.dumps(shown) in json.dumps(record.message)
        if record.extra is not None:
            assert record.extra["incomplete"]["reason"]
        chaos.queue(type="reply", text="Back.")
        assert client.chat("Go on.") == "Back."


def test_a_tool_loop_and_its_faults(dialect: Dialect, chaos: Chaos, tmp_path: Path) -> None:
    """Llmock calls the tool it is offered; a stream that drops in the call keeps no half call; an unknown tool is told."""
    tool = Tool("get_weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}}, handler=lambda city: f"21C in {city}")  # fmt: skip
    with ConversationStore(tmp_path / "c") as conversation:
        client = to_llmock(dialect, chaos, conversation)
        client.set_tools([tool])
        assert client.chat("What's the weather in Paris?")
        assert "21C in" in json.dumps(conversation.get_messages())
        chaos.queue(type="tool_fault", kind="unknown_tool")
        client.chat("And now the weather?")
        assert "there is no tool named" in json.dumps(conversation.get_messages())
        chaos.queue(type="reply", tool_calls=[{"name": "get_weather", "arguments": {"city": "Paris"}}])
        chaos.queue(type="stream_fault", kind="disconnect", after_chunks=2)
        if dialect.name == "gemini":  # a call comes in one chunk with its finish reason: it is whole before the drop
            list(client.stream_chat("Weather?"))
        else:
            with pytest.raises(IncompleteResponseError):
                list(client.stream_chat("Weather?"))
        chaos.queue(type="reply", text="Back.")
        assert client.chat("Go on.") == "Back."
