"""Claude Code in place of the program: it answers from a script, and mirrors what it would write into its own file."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import anyio
from claude_agent_sdk import Transport

from tests.integrations.claude_agent_sdk.bench import PROJECT


class Scripted(Transport):  # type: ignore[misc]  # the SDK's types are not followed
    """One exchange: it says ``answer`` to whatever it is asked."""

    def __init__(self, session: str, answer: str, config: str) -> None:
        self._answer = answer
        self._path = f"{config}/projects/{PROJECT}/{session}.jsonl"
        self._session = session
        self._send, self._receive = anyio.create_memory_object_stream[dict[str, Any]](100)

    async def connect(self) -> None: ...

    async def end_input(self) -> None: ...

    async def close(self) -> None:
        self._send.close()
        self._receive.close()

    def is_ready(self) -> bool:
        return True

    async def write(self, data: str) -> None:
        asked = json.loads(data)
        if asked["type"] == "control_request":
            response = {"subtype": "success", "request_id": asked["request_id"], "response": {}}
            await self._send.send({"type": "control_response", "response": response})
        elif asked["type"] == "user":
            said = {"role": "assistant", "model": "scripted", "content": [{"type": "text", "text": self._answer}]}
            for entry in (("user", asked["message"]), ("assistant", said)):
                await self._mirror(*entry)
            await self._send.send({"type": "assistant", "message": said, "session_id": self._session})
            await self._send.send(
                {
                    "type": "result",
                    "subtype": "success",
                    "duration_ms": 1,
                    "duration_api_ms": 1,
                    "is_error": False,
                    "num_turns": 1,
                    "session_id": self._session,
                }
            )
            self._send.close()

    async def _mirror(self, kind: str, message: dict[str, Any]) -> None:
        entry = {"type": kind, "uuid": str(uuid.uuid4()), "sessionId": self._session, "message": message}
        await self._send.send({"type": "transcript_mirror", "filePath": self._path, "entries": [entry]})

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        with self._receive:
            async for message in self._receive:
                yield message
