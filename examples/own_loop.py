"""An agent on the Anthropic SDK alone, with a tool, that resumes where it was killed: ``python examples/own_loop.py FOLDER QUESTION``.

Needs the extra ``claude`` and ANTHROPIC_API_KEY. There is no chat client here: the loop is yours, and the store keeps its messages.
``from_reply`` makes of a reply the messages that the API takes again; a reply is stored before its tools run.
"""

import sys
from pathlib import Path

import anthropic

from transcript_store import ConversationStore
from transcript_store.messages import from_reply

MODEL = "claude-opus-4-8"
LIST_FILES = {
    "name": "list_files",
    "description": "The names of the files in a folder.",
    "input_schema": {"type": "object", "properties": {"folder": {"type": "string"}}, "required": ["folder"]},
}


def run_tool(name: str, arguments: dict) -> str:
    assert name == "list_files"
    try:
        return "\n".join(sorted(path.name for path in Path(arguments["folder"]).iterdir())) or "(empty)"
    except (KeyError, OSError) as error:
        return f"Error: {error}"


def owed(messages: list[dict]) -> list[dict]:
    """The calls at the end that have no result yet: of this reply, or of one before which the process was killed."""
    last = messages[-1]
    blocks = last["content"] if last["role"] == "assistant" else []
    return [block for block in blocks if block["type"] == "tool_use"]


def main(folder: Path, question: str) -> None:
    client = anthropic.Anthropic()
    with ConversationStore(folder) as conversation:
        conversation.load_or_initialize(provider="claude", model=MODEL)
        messages = conversation.get_messages()
        if not messages or (messages[-1]["role"] == "assistant" and not owed(messages)):  # else a turn is resumed
            conversation.append_message({"role": "user", "content": question})
        while True:
            if calls := owed(conversation.get_messages(last=1)):
                results = [
                    {"type": "tool_result", "tool_use_id": call["id"], "content": run_tool(call["name"], call["input"])}
                    for call in calls
                ]
                conversation.append_message({"role": "user", "content": results})
            messages = conversation.get_messages()
            reply = client.messages.create(model=MODEL, max_tokens=8192, messages=messages, tools=[LIST_FILES])
            stored, extras = from_reply(reply)
            conversation.append_messages(stored, extras=extras)
            if reply.stop_reason != "tool_use":
                return print("".join(block.text for block in reply.content if block.type == "text"))


main(Path(sys.argv[1]), " ".join(sys.argv[2:]))
