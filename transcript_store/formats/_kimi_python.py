"""The wire log of Kimi CLI in Python, in the records of the one that followed it: ``{"timestamp", "message": {"type", "payload"}}``.

It does not say what a compaction left: the conversation goes on as if there had been none.

Source: ``src/kimi_cli/wire`` of MoonshotAI/kimi-cli, protocol 1.1 to 1.3.
"""

from __future__ import annotations

from transcript_store.formats._members import Json, obj, text


def record_of(value: Json) -> Json:
    """The record, with its time in seconds under ``timestamp``. One of another type has no type."""
    message = obj(value.get("message"))
    kind, payload = text(message.get("type")), obj(message.get("payload"))
    event: Json | None = None
    if kind in ("TurnBegin", "SteerInput"):
        said = payload.get("user_input")
        content = [{"type": "text", "text": said}] if isinstance(said, str) else said
        return {"type": "context.append_message", "message": {"role": "user", "content": content}}
    if kind == "StepBegin":
        event = {"type": "step.begin"}
    elif kind == "ContentPart":
        event = {"type": "content.part", "part": payload}
    elif kind == "ToolCall":
        function = obj(payload.get("function"))
        event = {"type": "tool.call", "toolCallId": payload.get("id"), "name": function.get("name")}
        event["args"] = function.get("arguments")
    elif kind == "ToolResult":
        returned = obj(payload.get("return_value"))
        result = {"output": returned.get("output") or returned.get("message"), "isError": returned.get("is_error")}
        event = {"type": "tool.result", "toolCallId": payload.get("tool_call_id"), "result": result}
    elif kind in ("StatusUpdate", "StepInterrupted", "TurnEnd"):
        used = obj(payload.get("token_usage"))
        if used or kind != "StatusUpdate":
            event = {"type": "step.end", "usage": {_USAGE[name]: used[name] for name in _USAGE if name in used}}
            event["messageId"] = payload.get("message_id")
    return {} if event is None else {"type": "context.append_loop_event", "event": event}


_USAGE = {
    "input_other": "inputOther",
    "output": "output",
    "input_cache_read": "inputCacheRead",
    "input_cache_creation": "inputCacheCreation",
}
