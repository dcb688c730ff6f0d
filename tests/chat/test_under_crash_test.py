"""The public chat clients under ``crash_test``: stopped at every call of the disk and between any two of their effects.

A client is asked as a program asks it that may die at any time: ``chat`` if nothing was asked, ``retry`` if no answer came. The
connection is scripted, and everything else is what a user has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from tests.chat.dialects import DIALECTS, Dialect
from transcript_store import ConversationStore
from transcript_store.chat import ChatConfig, Tool, create_client
from transcript_store.chat._create import PROVIDERS
from transcript_store.chat._history import History
from transcript_store.chat._provider import Connection
from transcript_store.testing import CrashTestError, crash_test
from transcript_store.testing._exchanges import calls_in

BILLS = ("rent", "power")
SCHEMA = {"type": "object", "properties": {"bill": {"type": "string"}}}
QUESTION = "Pay the bills."


class Scripted:
    """A ``Connection`` to a model that is a function of the messages it is sent."""

    def __init__(self, dialect: Dialect, model: Callable[[list[Any]], tuple[str, Any]]) -> None:
        self._dialect, self._model = dialect, model

    def send(self, model: str, body: Any) -> Any:
        return json.loads(self._dialect.reply(*self._model(self._dialect.messages(body))).body)

    def stream(self, model: str, body: Any) -> Generator[Any, None, None]:
        yield from ()

    def refusal(self, error: Exception) -> None:
        """None: it refuses nothing."""

    def close(self) -> None:
        """Nothing is open."""


def pays_one_after_the_other(messages: list[Any]) -> tuple[str, Any]:
    """Calls for each bill in a reply of its own, and then says that it is done."""
    calls = [call for message in messages for call in calls_in(message)]
    left = BILLS[len(calls) :]
    return ("", (("pay", {"bill": left[0]}),)) if left else ("Both are paid.", ())


def pays_both_at_once(messages: list[Any]) -> tuple[str, Any]:
    """Parallel calls."""
    if any(calls_in(message) for message in messages):
        return "Both are paid.", ()
    return "", tuple(("pay", {"bill": bill}) for bill in BILLS)


MODELS = [pays_one_after_the_other, pays_both_at_once]


def agent_of(dialect: Dialect, patch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What one process of a program does that asks one question of a client, and is content with any answer."""

    def agent(conversation: ConversationStore, tools: Any, model: Any) -> None:
        def connect(**_: Any) -> Connection:
            return Scripted(dialect, model)

        patch.setitem(PROVIDERS, dialect.provider, replace(info, connect=connect))
        with conversation:
            config: Any = {"provider": dialect.provider, "token": "sk-test", "base_url": "http://127.0.0.1:9"}
            client: Any = create_client(ChatConfig(**config), conversation=conversation, allow_insecure_base_url=True)
            with client:
                client.set_tools([Tool("pay", "Pay.", SCHEMA, handler=lambda bill: tools["pay"](bill=bill))])
                said = conversation.get_messages()
                if not said:
                    client.chat(QUESTION)
                elif "Both are paid." not in json.dumps(said[-1]):
                    client.retry()

    info = PROVIDERS[dialect.provider]
    return agent


def pay(bill: str) -> str:
    return f"{bill} is paid"


def none_is_paid_twice(end: Any) -> None:
    """A client does not repeat a call whose outcome it does not know: it says so to the model."""
    paid = [run.arguments["bill"] for run in end.runs]
    assert len(set(paid)) == len(paid), f"paid twice: {paid}"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("model", MODELS, ids=[model.__name__ for model in MODELS])
@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.long)])
def test_a_client_ends_as_if_nothing_had_happened(
    dialect: Dialect, model: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1, P3, P21: nothing acknowledged is lost, no call is repeated, no request is refused, and the answer comes."""
    agent = agent_of(dialect, monkeypatch)
    report = crash_test(agent, model=model, tools={"pay": pay}, invariants=[none_is_paid_twice], examples=count)
    assert report.examples == count
    assert report.moments > 100


def test_a_client_that_records_a_reply_too_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: a reply is kept until its first result is there. The tool runs for a call that nobody remembers."""
    append = History.append
    kept: list[Any] = []

    def late(history: History, message: Any, extra: Any = None) -> None:
        if calls_in(message):
            kept.append((message, extra))
            return
        while kept:
            append(history, *kept.pop(0))
        append(history, message, extra)

    monkeypatch.setattr(History, "append", late)
    agent = agent_of(DIALECTS["openai"], monkeypatch)
    with pytest.raises(CrashTestError, match="runs, and its call is not on record"):
        crash_test(agent, model=pays_both_at_once, tools={"pay": pay}, examples=1)
