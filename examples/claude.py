"""A chat on the Claude client that goes on wherever it was stopped: ``python examples/claude.py FOLDER QUESTION``.

Needs the extra ``claude`` and ANTHROPIC_API_KEY. The client journals: the question is on record before it is
sent, the answer before you see it. A question whose answer never came is there at the next start, and is answered then.
"""

import sys
from pathlib import Path

from transcript_store import ConversationStore, TranscriptStoreError
from transcript_store.chat import ChatConfig, create_client


def main(folder: Path, question: str) -> int:
    with ConversationStore(folder) as conversation:
        config = ChatConfig(provider="claude", model="claude-opus-4-8", system_prompt="Answer in one sentence.")
        client = create_client(config, conversation=conversation)
        print(client.chat(question))
        said = conversation.get_metadata()
        print(f"{conversation.position.seq} records, begun {said.created_at}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), " ".join(sys.argv[2:])) if len(sys.argv) > 2 else __doc__)
    except TranscriptStoreError as error:  # each says what happened, and what to do
        sys.exit(str(error))
