"""``transcript-store head``: print the head of a transcript."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from transcript_store.cli._shared.arguments import add_conversation, add_json
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at
from transcript_store.cli._shared.terminal import say, say_json

DESCRIPTION = """\
Print the head of the conversation in DIR: the hash of its last record, which is chained to every record before it.
A copy of it elsewhere (in another system, on paper) detects any later change to those records. It is not keyed: anyone
who can write the files can compute a new one.
"""
EPILOG = """\
examples:
  transcript-store head chats/today
  transcript-store head chats/today --json | jq -r .seq
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    add_keys(parser)
    add_json(parser, "one JSON object with head, seq (the number of records), generation and id")


def run(arguments: Namespace) -> int:
    """Print the head."""
    with conversation_at(arguments.directory, read_only=True, **command_keys(arguments).options) as conversation:
        conversation.load()
        if arguments.json:
            metadata = conversation.get_metadata()
            say_json(
                {
                    "head": conversation.head,
                    "seq": conversation.record_count,
                    "generation": metadata.generation,
                    "id": metadata.id,
                }
            )
        else:
            say(conversation.head)
    return 0
