"""``transcript-store generations``: list the archived generations of a conversation, and delete some."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store.cli._shared.arguments import add_conversation, add_json, whole_number
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at
from transcript_store.cli._shared.terminal import complain, many, one_line, say, say_json, size, time

DESCRIPTION = """\
List the generations of the conversation in DIR: those that a compaction, undo or other replace moved to archive/, and
the live one. Each is read and verified. `transcript-store show DIR --generation N` prints one. Nothing is changed without
--delete or --purge-quarantine: these permanently remove what must not be kept, such as a leaked secret.
"""
EPILOG = """\
exit code: 0 if every generation is intact, 1 if one is damaged

examples:
  transcript-store generations chats/today
  transcript-store show chats/today --generation 0
  transcript-store generations chats/today --delete 0 --purge-quarantine
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument(
        "--delete",
        metavar="N",
        type=whole_number,
        action="append",
        default=[],
        help="first delete this generation (may be repeated)",
    )
    parser.add_argument("--purge-quarantine", action="store_true", help="first empty quarantine/")
    add_keys(parser)
    add_json(parser, "one JSON object a generation")


def run(arguments: Namespace) -> int:
    """Delete what the options name, then print the generations. The exit code is 1 if one is damaged."""
    is_change = arguments.delete or arguments.purge_quarantine
    with conversation_at(
        arguments.directory, read_only=not is_change, **command_keys(arguments).options
    ) as conversation:
        conversation.load()
        try:
            for number in arguments.delete:
                conversation.delete_generation(number)
        except ValueError:
            live = conversation.get_metadata().generation
            complain(f"--delete {live}: this generation is the live one; only archived ones can be deleted")
            return 2
        if arguments.purge_quarantine:
            conversation.purge_quarantine()
        found = conversation.generations()
    for generation in found:
        if arguments.json:
            say_json(asdict(generation))
        elif generation.damage is not None:
            say(f"{generation.number:>4}  damaged: {one_line(generation.damage)}")
        else:
            facts = (
                f"{generation.number:>4}",
                f"began {time(generation.began_at)}",
                f"{many(generation.record_count or 0, 'record'):>13}",
                f"{size(generation.size_bytes or 0):>8}",
                f"head {generation.head}",
            )
            say("  ".join(facts) + ("  live" if generation.is_live else ""))
    return 0 if all(generation.damage is None for generation in found) else 1
