"""A plugin for the tests of the Claude Agent SDK: where they say ``InMemorySessionStore``, they get ours, in a new folder.

Theirs has three helpers for tests beside the protocol; here they are made of what ours has.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import anyio
import claude_agent_sdk
from claude_agent_sdk._internal import session_store

from transcript_store import list_conversations
from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore


class InMemorySessionStore(TranscriptSessionStore):
    def __init__(self) -> None:
        self.place = tempfile.mkdtemp()
        super().__init__(self.place)

    def get_entries(self, key: Any) -> list[Any]:
        """All entries: read in an event loop of its own, as a test may call this from within one."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(anyio.run, self.load, key).result() or []

    @property
    def size(self) -> int:
        return sum(len(list_conversations(project)) for project in Path(self.place).iterdir())

    def clear(self) -> None:
        self.close()
        shutil.rmtree(self.place)
        Path(self.place).mkdir()


claude_agent_sdk.InMemorySessionStore = session_store.InMemorySessionStore = InMemorySessionStore
