"""Two processes and one conversation: the first is killed with SIGKILL during a tool turn, the second continues.

Incident, in every agent that keeps its own log: killed between a tool call and its result, it sent the call without a result from
then on, and the service refused each request with a 400, for ever. Here the first process dies before and after every
single record that a turn writes, in the tool, and in the middle of a stream; what the second one sends is captured raw.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Dialect
from tests.chat.lives import CALLS, POINTS, MortalStore, die, first_life, in_another_process, on_record, second_life
from tests.chat.server import Server
from transcript_store import ConversationStore


@pytest.fixture(autouse=True, scope="module")
def _imported_once() -> None:
    """Here, not again in each process."""
    import anthropic  # noqa: F401
    import openai  # noqa: F401
    from google import genai  # noqa: F401


@pytest.fixture(params=["claude", "openai", pytest.param("openai-compatible", marks=pytest.mark.long), "gemini"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """All of them; the one that shares its wire format with another takes its turn among the long proofs."""
    return DIALECTS[request.param]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(("dies", "at"), POINTS, ids=[f"{dies} record {at}" for dies, at in POINTS])
def test_killed_at_every_durable_step(dialect: Dialect, server: Server, tmp_path: Path, dies: str, at: int) -> None:
    """Wherever the first process dies, the second sends one system prompt, every earlier turn equal, and no unpaired call."""
    server.answers += [dialect.reply("I will add.", CALLS), dialect.reply("3 and 7.")]
    directory = tmp_path / "c"
    store = MortalStore(directory, dies=dies, at=at)
    assert in_another_process(lambda: first_life(dialect, server, store, stream=False)) == -signal.SIGKILL
    before, events = on_record(directory)
    assert len(before) + len(events) == at - (dies == "before")
    body = second_life(dialect, server, directory)
    after, _ = on_record(directory)
    with ConversationStore(directory, read_only=True) as conversation:
        conversation.load()
        interrupted = [
            r.extra["interrupted"] for r in conversation.get_records() if r.extra and "interrupted" in r.extra
        ]
    results_known = max(0, min(2, len(before) + len(events) - 2))
    calls_on_record = len(before) + len(events) >= 2
    assert len([name for names in interrupted for name in names]) == (2 - results_known if calls_on_record else 0)
    assert json.dumps(body).count("outcome is unknown") == (2 - results_known if calls_on_record else 0)
    assert len(after) >= len(before) + 2


def test_killed_in_the_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The tool may have run: its call gets a result that says so, durable and marked, and it is not run again."""
    server.answers += [dialect.reply("", CALLS[:1])]
    directory = tmp_path / "c"
    work = lambda: first_life(dialect, server, ConversationStore(directory), stream=False, handler=die)  # noqa: E731
    assert in_another_process(work) == -signal.SIGKILL
    body = second_life(dialect, server, directory)
    assert json.dumps(body).count("outcome is unknown") == 1


def test_killed_in_a_stream(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """What was shown of the answer is gone with the process; the question is on record, and the next turn works."""
    server.answers += [dialect.stream("dying" * 2)]
    directory = tmp_path / "c"
    work = lambda: first_life(dialect, server, ConversationStore(directory), stream=True)  # noqa: E731
    assert in_another_process(work) == -signal.SIGKILL
    messages, events = on_record(directory)
    assert (len(messages), events) == (1, [])
    second_life(dialect, server, directory)


def test_killed_again_while_paying_the_debt(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A second process that dies while it records what the first one owed changes nothing for the third."""
    server.answers += [dialect.reply("", CALLS)]
    directory = tmp_path / "c"
    store = MortalStore(directory, dies="after", at=2)
    assert in_another_process(lambda: first_life(dialect, server, store, stream=False)) == -signal.SIGKILL
    again = MortalStore(directory, dies="after", at=1)
    assert in_another_process(lambda: connect(dialect, server, again).add("Go on.")) == -signal.SIGKILL
    second_life(dialect, server, directory)
