"""``transcript-store mcp``: a library for agents, by the Model Context Protocol on standard input and output."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from transcript_store import ConversationNotFoundError
from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.keys import add_keys, command_keys, say_what_does_not_open
from transcript_store.cli._shared.names import is_backend_address, libraries, library_at
from transcript_store.cli._shared.redaction import add_redact_pattern
from transcript_store.mcp import LibraryTools, Scope, make_server
from transcript_store.redaction import SecretRedactor

DESCRIPTION = """\
Let an agent read the conversations of a library: a server of the Model Context Protocol (MCP) on standard input and output,
which the agent's program starts. It has four tools: list_conversations, search_conversations, read_conversation, read_record.

It only reads. No tool takes a path. Answers are bounded. Text of conversations is marked as quoted; keys, tokens and other
secrets with a recognizable form are removed. It reads sealed conversations only with their key, and no sealed snapshots.
LIBRARY may be a backend's address; nothing is claimed there.
"""
EPILOG = """\
examples:
  claude mcp add --scope user past -- "$(command -v transcript-store)" mcp \\
    ~/chats
  codex mcp add past -- "$(command -v transcript-store)" mcp ~/chats \\
    --label project=x
  transcript-store mcp postgresql://keeper@db.example/agents
  transcript-store mcp chats --redact-pattern 'ACME-[0-9]{6}'
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "libraries", metavar="LIBRARY", nargs="?", type=path, help="the library (default: that of `chat`)"
    )
    parser.add_argument(
        "--label",
        metavar="NAME[=VALUE]",
        action="append",
        type=_label,
        default=[],
        help="only conversations with this label (may be repeated: all must match)",
    )
    add_redact_pattern(parser, "also remove text that matches this")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Answer until standard input ends."""
    keys = command_keys(arguments)
    (directory,) = libraries([] if arguments.libraries is None else [arguments.libraries], on_backends=True)
    if is_backend_address(directory):
        library_at(directory).list(
            limit=1
        )  # an unreachable library is reported here to a person, not later to an agent
    elif arguments.libraries is not None and not os.path.isdir(directory):
        raise ConversationNotFoundError(path=directory, reason="there is no such directory")
    else:
        say_what_does_not_open(directory, keys)
    redact = SecretRedactor(patterns=arguments.redact_pattern or ())
    with LibraryTools(library_at(directory), scope=Scope(arguments.label), redact=redact, **keys.options) as past:
        make_server(past).run()
    return 0


def _label(text: str) -> str:
    try:
        Scope([text])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return text
