"""The conversation that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.machines import HASTY
from tests.kit.scratch import scratch_directory
from tests.repair.helpers import Base
from transcript_store import ConversationStore


@pytest.fixture(scope="module")
def base() -> Base:
    with scratch_directory() as directory:
        with ConversationStore(f"{directory}/a", file_system=HASTY) as conversation:
            conversation.initialize(provider="claude", model="m-1", system_prompt="be ürgent", labels={"title": "t"})
            conversation.append_message({"role": "user", "content": "one"})
            conversation.append_message({"role": "user", "content": "two \x7f"})
            conversation.append_messages([{"k": 3}, {"k": 4, "s": "vier"}, {"k": 5}], extras=[None, {"u": [1]}, None])
            conversation.append_event({"marker": True})
        metadata = Path(directory, "a/metadata.json").read_bytes()
        with ConversationStore(f"{directory}/a", file_system=HASTY) as conversation:
            conversation.load()
            conversation.append_message({"role": "user", "content": "seven", "n": 2**53})
            conversation.append_message({"role": "assistant", "content": 'x"}{"seq":'}, extra={"usage": [1, 2]})
        lines = Path(directory, "a/transcript.jsonl").read_bytes().splitlines(keepends=True)
        with ConversationStore(f"{directory}/b", file_system=HASTY) as conversation:
            conversation.initialize(messages=[{"of": "somebody else"}, {"foreign": True}])
        foreign = Path(directory, "b/transcript.jsonl").read_bytes().splitlines(keepends=True)[-1]
        return Base(metadata, lines, foreign)
