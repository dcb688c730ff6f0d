"""A plugin for the tests of OpenAI's Agents SDK: where they say ``SQLiteSession``, they get ours.

It runs in the environment of that SDK, in front of its tests. ``:memory:``, which is their default, is a new folder. With
``TRANSCRIPT_STORE_ON_A_BACKEND`` set, what they name as a file is a backend in memory, and so is ``:memory:``.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from functools import wraps
from typing import Any

import agents
import agents.memory

from transcript_store import ConversationLibrary
from transcript_store.integrations.openai_agents import TranscriptSession
from transcript_store.testing import SimulatedBackend

_ON_A_BACKEND = "TRANSCRIPT_STORE_ON_A_BACKEND" in os.environ
_libraries: defaultdict[str, ConversationLibrary] = defaultdict(lambda: ConversationLibrary(SimulatedBackend()))
_theirs_takes = TranscriptSession.__init__


@wraps(_theirs_takes)
def _init(self: Any, session_id: str, db_path: Any = ":memory:", *_: Any, session_settings: Any = None) -> None:
    directory: Any
    if _ON_A_BACKEND:
        directory = ConversationLibrary(SimulatedBackend()) if str(db_path) == ":memory:" else _libraries[str(db_path)]
    else:
        directory = tempfile.mkdtemp() if str(db_path) == ":memory:" else db_path
    _theirs_takes(self, session_id, directory, session_settings)


TranscriptSession.__init__ = _init  # type: ignore[method-assign,assignment]
agents.SQLiteSession = agents.memory.SQLiteSession = TranscriptSession
