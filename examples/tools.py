"""An agent with tools that may be killed at any moment: ``python examples/tools.py [FOLDER]``, again and again.

The model is scripted. What matters is the order: a call is on record before its tool runs, that it runs is on record before
it does, and its result before anybody acts on it. So no tool runs twice for one call.
"""

import json
import sys
from pathlib import Path

from transcript_store import ConversationStore, Record

SHOPPING = ["bread", "milk", "tea"]


def model(messages: list[dict]) -> dict:
    """Buys one thing after the other, and says so in the end."""
    done = sum(message["role"] == "tool" for message in messages)
    if done == len(SHOPPING):
        return {"role": "assistant", "content": "Everything is bought, or may have been."}
    buying = {"name": "buy", "arguments": json.dumps({"what": SHOPPING[done]})}
    return {"role": "assistant", "tool_calls": [{"id": f"call_{done}", "type": "function", "function": buying}]}


def buy(what: str, receipts: Path) -> str:
    """What must not happen twice."""
    with receipts.open("a") as file:
        print(what, file=file)
    return f"1 {what}"


def without_a_result(records: list[Record]) -> list[dict]:
    messages = [record.message for record in records if record.message is not None]
    answered = {message.get("tool_call_id") for message in messages}
    return [call for message in messages for call in message.get("tool_calls", []) if call["id"] not in answered]


def main(folder: Path) -> None:
    with ConversationStore(folder / "chat") as conversation:
        conversation.load_or_initialize(provider="openai")
        if not conversation.get_messages():
            conversation.append_message({"role": "user", "content": "Buy what we need."})
        while True:
            records = conversation.get_records()
            begun = {record.extra["runs"] for record in records if record.extra and "runs" in record.extra}
            for call in without_a_result(records):
                if call["id"] in begun:  # a process before this one died while it ran; nobody knows how far it came
                    result = "interrupted: it may have been bought"
                else:
                    conversation.append_event({"runs": call["id"]})
                    result = buy(json.loads(call["function"]["arguments"])["what"], folder / "receipts")
                conversation.append_message({"role": "tool", "tool_call_id": call["id"], "content": result})
                print(result, flush=True)
            last = conversation.get_messages(last=1)[0]
            if last["role"] == "assistant" and "tool_calls" not in last:
                return
            conversation.append_message(model(conversation.get_messages()))


main(Path(sys.argv[1] if len(sys.argv) > 1 else "shopping"))
