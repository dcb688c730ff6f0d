"""``ChatClientMachine``: turns, tools, failures, interruptions and resumes of a persistent chat client at random."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from transcript_store import ConversationStore
from transcript_store.chat import Tool
from transcript_store.testing._chat_contract import ChatBench, ScriptedReply
from transcript_store.testing._model import close_after_kill
from transcript_store.testing._simulated_machine import FileSystemCall, SimulatedFileSystem, SimulatedStop

__all__ = ["ChatClientMachine"]

_PROMPT = "Be brief."
_TEXTS = st.text("abé ", min_size=1, max_size=6).filter(str.strip)
_PATH = "/conversation"


class ChatClientMachine(RuleBasedStateMachine):
    """One conversation of a persistent chat client, over several of its processes, with a model whose replies are scripted.

    Make a subclass with a ``make_bench`` of your own, as for ``check_chat_client``, and give its ``TestCase`` to your test runner.
    ``check_chat_client`` has each rule of the contract alone; this finds what happens between many turns. These hold throughout:

    * Every request carries the record as it is, with the system prompt once, and no call without its result.
    * A tool runs at most once for each call.
    * A recorded message stays recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedFileSystem()
        self.recorded: list[dict[str, Any]] = []
        """The records at the end of the last step."""
        self.asked = 0
        self.ran: list[int] = []
        """The numbers of the calls that ran."""
        self._bench = ExitStack()
        self._start()

    def make_bench(self) -> AbstractContextManager[ChatBench]:
        """A new bench, without any requests: your clients, and a model with scripted replies."""
        raise NotImplementedError("give your machine a make_bench(), as for check_chat_client")

    def teardown(self) -> None:
        self.conversation.close()
        self._bench.close()

    # ---- rules -----------------------------------------------------------------------------------------------------

    @rule(text=_TEXTS, answer=_TEXTS)
    def chat(self, text: str, answer: str) -> None:
        self.bench.script(ScriptedReply(text=answer))
        assert self.client.chat(text) == answer
        self._insist_on_the_last_request()

    @rule(text=_TEXTS, counts=st.lists(st.integers(1, 3), min_size=1, max_size=2), answer=_TEXTS)
    def use_tools(self, text: str, counts: list[int], answer: str) -> None:
        """One or two replies with calls, and then the answer."""
        before = len(self.ran)
        self.bench.script(*(self._calls(count) for count in counts), ScriptedReply(text=answer))
        assert self.client.chat(text) == answer
        assert len(self.ran) == before + sum(counts)
        self._insist_on_the_last_request()

    @rule(text=_TEXTS)
    def add(self, text: str) -> None:
        self.client.add(text)

    @rule(text=_TEXTS)
    def fail(self, text: str) -> None:
        """The request fails; the question stays on record."""
        self.bench.script(ScriptedReply(fails=True))
        try:
            self.client.chat(text)
        except Exception:
            return
        raise AssertionError("a failed request raised nothing")

    @rule(text=_TEXTS, count=st.integers(1, 3), at=st.integers(0, 2))
    def interrupt_a_tool(self, text: str, count: int, at: int) -> None:
        """Ctrl-C in one of the tools."""
        self._interrupted_at = len(self.ran) + min(at, count - 1)
        self.bench.script(self._calls(count))
        try:
            self.client.chat(text)
        except KeyboardInterrupt:
            return
        finally:
            self._interrupted_at = -1
        raise AssertionError("Ctrl-C in a tool was swallowed")

    @rule(text=_TEXTS, count=st.integers(0, 2), moment=st.integers(1, 40))
    def kill(self, text: str, count: int, moment: int) -> None:
        """SIGKILL at some call of the disk in a turn, or after it; the next process continues."""
        first = self.disk.calls_made + moment

        def stop(call: FileSystemCall) -> None:
            if call.number >= first:
                raise SimulatedStop

        if count:
            self.bench.script(self._calls(count))
        self.bench.script(ScriptedReply(text="done"))
        self.disk.on_call = stop
        try:
            self.client.chat(text)
        except SimulatedStop:
            pass
        finally:
            self.disk.on_call = None
        self.disk = self.disk.kill_process()
        close_after_kill(self.conversation)
        self._start()

    @rule()
    def resume(self) -> None:
        """Another process continues the conversation."""
        self.conversation.close()
        self._start()

    @invariant()
    def keeps_its_record(self) -> None:
        """Every stored record is still stored, at the same position; no call ran twice; no request was one that
        providers refuse.
        """
        found = self.conversation.get_messages()
        assert found[: len(self.recorded)] == self.recorded
        self.recorded = found
        assert len(set(self.ran)) == len(self.ran)
        for request in self.bench.sent:
            assert request.unpaired == 0
            assert request.system_prompts == [_PROMPT]

    # ---- within ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """A process with its own bench, so that no reply scripted for another process is left."""
        self._bench.close()
        self._interrupted_at = -1
        self.bench = self._bench.enter_context(self.make_bench())
        self.conversation = ConversationStore(_PATH, file_system=self.disk)
        self.client = self.bench.client(self.conversation, token="none", system_prompt=_PROMPT)  # noqa: S106
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        self.client.set_tools([Tool("count", "Counts.", schema, handler=self._count)])

    def _calls(self, count: int) -> ScriptedReply:
        self.asked += count
        return ScriptedReply(calls=tuple(("count", {"n": self.asked - place}) for place in range(count)))

    def _count(self, n: int) -> str:
        if len(self.ran) == self._interrupted_at:
            raise KeyboardInterrupt
        self.ran.append(n)
        return str(n)

    def _insist_on_the_last_request(self) -> None:
        sent, there = self.bench.sent[-1].messages, self.conversation.get_messages()
        assert sent == there[:-1], f"sent: {json.dumps(sent)[:500]}; on record: {json.dumps(there)[:500]}"
