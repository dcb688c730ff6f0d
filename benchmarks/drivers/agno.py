"""agno: ``JsonDb``; a run, which is what an agent stores when it has answered, holds one message here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agno.db.base import SessionType
from agno.db.json import JsonDb
from agno.db.utils import build_single_run_row
from agno.models.message import Message as AgnoMessage
from agno.run.agent import RunOutput
from agno.session import AgentSession

from benchmarks.drivers.base import Driver, Message, blocks

_SESSION, _AGENT = "a-conversation", "an-agent"


class Json(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._database = JsonDb(db_path=str(folder))
        if not any(folder.iterdir()):
            self._database.upsert_session(AgentSession(session_id=_SESSION, agent_id=_AGENT))
        self._count = 0

    def translate(self, message: Message) -> Any:
        self._count += 1
        stored = AgnoMessage(role=message["role"], content=blocks(message))
        return RunOutput(
            run_id=str(uuid.uuid4()),
            agent_id=_AGENT,
            session_id=_SESSION,
            messages=[stored],
            created_at=1_800_000_000 + self._count,
        )

    def fill(self, given: list[Any]) -> None:
        # What upsert_run() writes; calling it for each would read and write all of them each time.
        rows = [build_single_run_row(run=run, session_id=_SESSION, run_index=k) for k, run in enumerate(given)]
        self._database._write_runs_file(rows)

    def append(self, given: list[Any]) -> None:
        for run in given:
            self._database.upsert_run(run, session_id=_SESSION)

    def load(self) -> Sequence[Any]:
        session = self._database.get_session(session_id=_SESSION, session_type=SessionType.AGENT)
        loaded: list[Any] = session.get_messages()
        return loaded

    def create(self, count: int) -> None:
        for number in range(count - 1):  # one is there
            data = {"session_name": f"chat {number}"}
            session = AgentSession(session_id=f"conversation-{number}", agent_id=_AGENT, session_data=data)
            self._database.upsert_session(session)

    def list(self) -> int:
        return len(self._database.get_sessions(session_type=SessionType.AGENT))
