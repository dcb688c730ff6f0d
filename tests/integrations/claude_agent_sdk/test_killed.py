"""SIGKILL at random under the SDK's own ``query()``, with a program that is scripted."""

from __future__ import annotations

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from tests.integrations.claude_agent_sdk.bench import key_of
from tests.integrations.claude_agent_sdk.scripted import Scripted
from tests.integrations.killed import live_and_die, numbers_in
from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore
from transcript_store.messages import parts_of


@pytest.mark.parametrize("flush", ["eager", "batched"])
def test_what_the_sdk_was_told_is_stored_is_there_once_and_in_order(flush, tmp_path, record_property):
    """When the SDK gives its result, question and answer are on disk, once, behind those before them."""
    store = TranscriptSessionStore(tmp_path)
    options = ClaudeAgentOptions(
        session_store=store, session_store_flush=flush, env={"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    )

    async def turn(n: int) -> None:
        program = Scripted("one", f"answer {n}", str(tmp_path / "config"))
        answers = [each async for each in query(prompt=f"question {n}", options=options, transport=program)]
        assert isinstance(answers[-1], ResultMessage)

    def said() -> list[int]:
        with store.conversation(key_of("one")) as conversation:
            return numbers_in([parts_of(message)[0].text for message in conversation.get_messages()])

    kills = 15
    assert live_and_die(turn, said, kills) >= kills
    record_property("agents of a framework killed", kills)
