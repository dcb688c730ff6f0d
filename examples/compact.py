"""An agent that compacts its history and tries two ways on from there: ``python examples/compact.py [FOLDER]``.

A replace is all or nothing, and what was there before stays readable. A fork is a conversation of its own.
"""

import sys
from pathlib import Path

from transcript_store import ConversationLibrary, ConversationNotFoundError, ConversationStore

LONGEST = 8
MAIN = "6f1d7f8e-3c60-4a55-9d0f-3b1c5a6e7d21"
"""The id of the one that goes on; a fork gets one of its own."""


def summary_of(messages: list[dict[str, str]]) -> str:
    """A model would write it."""
    return f"So far {len(messages)} messages, from {messages[0]['content']!r} to {messages[-1]['content']!r}."


def compact(conversation: ConversationStore) -> None:
    """Put a summary in the place of all but the last two messages."""
    messages = conversation.get_messages()
    if len(messages) > LONGEST:
        summary = {"role": "user", "content": summary_of(messages[:-2])}
        conversation.replace_transcript([summary, *messages[-2:]])


def main(folder: Path) -> None:
    library = ConversationLibrary(folder)
    try:
        conversation = library.open(MAIN)
    except ConversationNotFoundError:
        conversation = library.create(id=MAIN, provider="claude")
    with conversation:
        told = [message["content"] for message in conversation.get_messages(last=1)]
        first = int(told[0].removeprefix("line ")) + 1 if told else 0
        for number in range(first, first + 10):
            conversation.append_message(
                {"role": "user" if number % 2 == 0 else "assistant", "content": f"line {number}"}
            )
            compact(conversation)
        print(f"{len(conversation.get_messages())} messages in generation {conversation.get_metadata().generation}")
        for generation in conversation.generations()[:-1]:
            print(f"  before: generation {generation.number}, {generation.record_count} records")
        fork = library.fork(MAIN)
    with library.open(fork) as other:
        other.append_message({"role": "user", "content": "And if we tried it the other way?"})
        print(f"a fork, {fork}, has {len(other.get_messages())} messages")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "chat"))
