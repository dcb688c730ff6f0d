"""Google ADK: ``SqliteSessionService`` and ``DatabaseSessionService``."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.drivers.base import Driver, Message, blocks, result_text

_WHERE = {"app_name": "an-app", "user_id": "a-user", "session_id": "a-conversation"}


class Sqlite(Driver):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._runner = asyncio.Runner()
        self._database = folder / "sessions.db"
        self._service = self._make()
        self._session: Any = None
        self._number = 0
        if self._get() is None:
            self._runner.run(self._service.create_session(**_WHERE))

    def translate(self, message: Message) -> Any:
        self._number += 1
        content = types.Content(
            role="user" if message["role"] == "user" else "model", parts=[_part(block) for block in blocks(message)]
        )
        return Event(author=message["role"], invocation_id=f"invocation-{self._number}", content=content)

    def fill(self, given: list[Any]) -> None:
        # What append_event() writes, in one transaction instead of one for each.
        with sqlite3.connect(self._database) as transaction:
            place = (_WHERE["app_name"], _WHERE["user_id"], _WHERE["session_id"])
            rows = [(e.id, *place, e.invocation_id, e.timestamp, e.model_dump_json(exclude_none=True)) for e in given]
            transaction.executemany(
                "INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def append(self, given: list[Any]) -> None:
        if self._session is None:
            self._session = self._get()

        async def each() -> None:
            for event in given:
                await self._service.append_event(self._session, event)

        self._runner.run(each())

    def load(self) -> Sequence[Any]:
        loaded: list[Any] = self._get().events
        return loaded

    def last(self, count: int) -> Sequence[Any]:
        loaded: list[Any] = self._get(GetSessionConfig(num_recent_events=count)).events
        return loaded

    def create(self, count: int) -> None:
        async def each() -> None:
            for number in range(count - 1):  # one is there
                where = {**_WHERE, "session_id": f"conversation-{number}"}
                await self._service.create_session(**where, state={"title": f"chat {number}"})

        self._runner.run(each())

    def list(self) -> int:
        found = self._runner.run(self._service.list_sessions(app_name=_WHERE["app_name"]))
        return len(found.sessions)

    def close(self) -> None:
        self._runner.run(self._service.close())
        self._runner.close()

    def _make(self) -> Any:
        return SqliteSessionService(str(self._database))

    def _get(self, config: Any = None) -> Any:
        return self._runner.run(self._service.get_session(**_WHERE, config=config))


class Database(Sqlite):
    def fill(self, given: list[Any]) -> None:
        stored = self._service._get_schema_classes().StorageEvent
        session = self._get()

        async def all_at_once() -> None:
            async with self._service.database_session_factory() as transaction:
                transaction.add_all([stored.from_event(session, event) for event in given])
                await transaction.commit()

        self._runner.run(all_at_once())

    def _make(self) -> Any:
        from google.adk.sessions import DatabaseSessionService

        return DatabaseSessionService(f"sqlite+aiosqlite:///{self._database}")


def _part(block: dict[str, Any]) -> Any:
    if block["type"] == "text":
        return types.Part(text=block["text"])
    if block["type"] == "tool_use":
        return types.Part(function_call=types.FunctionCall(id=block["id"], name=block["name"], args=block["input"]))
    answer = {"result": result_text(block)}
    return types.Part(function_response=types.FunctionResponse(id=block["tool_use_id"], name="a_tool", response=answer))
