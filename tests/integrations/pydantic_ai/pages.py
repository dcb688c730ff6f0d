"""Pages of a user, with the framework's real adapters: what they were sent they show, and what they show they send each time."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from ag_ui.core import AssistantMessage, FunctionCall, RunAgentInput, ToolCall, ToolMessage, UserMessage
from pydantic_ai.ui.ag_ui import AGUIAdapter
from pydantic_ai.ui.vercel_ai import VercelAIAdapter


class _Page:
    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.messages: list[Any] = []
        self.open: dict[str, Any] = {}
        """The parts that still grow."""

    async def ask(self, text: str | None, stop_after: int | None = None) -> int:
        """Send all that is shown and a question, and show what comes; returns how many events that were.

        The user stops it after ``stop_after`` events: the page shows what it has, and reads no more.
        """
        if text is not None:
            self.messages.append(self.question(text))
        events: AsyncIterator[Any] = self.adapter().run_stream()
        number = 0
        try:
            for number in count():
                if number == stop_after or (event := await anext(events, None)) is None:
                    break
                self.show(event)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # it is a generator
        return number

    def question(self, text: str) -> Any:
        raise NotImplementedError

    def adapter(self) -> Any:
        raise NotImplementedError

    def show(self, event: Any) -> None:
        raise NotImplementedError


class AgUi(_Page):
    """A client of AG-UI."""

    def question(self, text: str) -> Any:
        return UserMessage(id=str(uuid.uuid4()), role="user", content=text)

    def question_with_image(self, text: str, image: str) -> Any:
        source = {"type": "data", "value": image, "mimeType": "image/png"}
        content: Any = [{"type": "text", "text": text}, {"type": "image", "source": source}]
        return UserMessage(id=str(uuid.uuid4()), role="user", content=content)

    def adapter(self) -> Any:
        sent = [*self.messages]
        run = {"thread_id": "t", "run_id": str(uuid.uuid4()), "state": {}, "tools": [], "context": []}
        return AGUIAdapter(agent=self.agent, run_input=RunAgentInput(messages=sent, forwarded_props={}, **run))

    def show(self, event: Any) -> None:
        kind = event.type.value
        assert kind != "RUN_ERROR", event.message
        if kind == "TEXT_MESSAGE_START":
            self.messages.append(AssistantMessage(id=event.message_id, role="assistant", content=""))
        elif kind == "TEXT_MESSAGE_CONTENT":
            self._message(event.message_id).content += event.delta
        elif kind == "TOOL_CALL_START":
            message = self._message(event.parent_message_id)
            if message is None:
                message = AssistantMessage(id=event.parent_message_id or str(uuid.uuid4()), role="assistant")
                self.messages.append(message)
            call = ToolCall(id=event.tool_call_id, function=FunctionCall(name=event.tool_call_name, arguments=""))
            message.tool_calls = [*(message.tool_calls or []), call]
        elif kind == "TOOL_CALL_ARGS":
            calls = [call for each in self.messages for call in getattr(each, "tool_calls", None) or []]
            next(call for call in calls if call.id == event.tool_call_id).function.arguments += event.delta
        elif kind == "TOOL_CALL_RESULT":
            result = {"role": "tool", "tool_call_id": event.tool_call_id, "content": event.content}
            self.messages.append(ToolMessage(id=event.message_id, **result))

    def _message(self, id: str | None) -> Any:
        return next((each for each in self.messages if each.id == id), None)


class Vercel(_Page):
    """A client of Vercel's AI SDK."""

    def question(self, text: str) -> Any:
        return {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}

    def question_with_image(self, text: str, image: str) -> Any:
        message = self.question(text)
        for url in (f"data:image/png;base64,{image}", "https://h.example/a.png"):
            message["parts"].append({"type": "file", "mediaType": "image/png", "url": url})
        return message

    def adapter(self) -> Any:
        sent = {"trigger": "submit-message", "id": "t", "messages": self.messages}
        return VercelAIAdapter(agent=self.agent, run_input=VercelAIAdapter.build_run_input(json.dumps(sent).encode()))

    def show(self, event: Any) -> None:
        said = event.model_dump(by_alias=True, exclude_none=True)
        kind = said["type"]
        assert kind != "error", said
        if self.messages[-1]["role"] == "user":
            self.messages.append({"id": str(uuid.uuid4()), "role": "assistant", "parts": []})
        parts = self.messages[-1]["parts"]
        if kind == "start-step":
            parts.append({"type": "step-start"})
        elif kind in {"text-start", "reasoning-start"}:
            self.open[said["id"]] = {"type": kind.partition("-")[0], "text": "", "state": "done"}
            parts.append(self.open[said["id"]])
        elif kind in {"text-delta", "reasoning-delta"}:
            self.open[said["id"]]["text"] += said["delta"]
        elif kind == "tool-input-available":
            state = {"state": "input-available", "input": said["input"]}
            self.open[said["toolCallId"]] = {
                "type": f"tool-{said['toolName']}",
                "toolCallId": said["toolCallId"],
                **state,
            }
            parts.append(self.open[said["toolCallId"]])
        elif kind == "tool-output-available":
            self.open[said["toolCallId"]].update(state="output-available", output=said["output"])
