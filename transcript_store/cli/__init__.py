"""The command ``transcript-store``: each command is a call on the library and a print.

Exit codes: 0 well; 1 damage was found or something failed; 2 misuse; 130 Ctrl-C; 141 nobody reads the output any more.
Errors are one line on standard error, without a traceback.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from transcript_store import InvalidBaseUrlError, InvalidIdError, MissingTokenError, TranscriptStoreError, __version__
from transcript_store.cli._shared import terminal

_MISUSE = (InvalidIdError, InvalidBaseUrlError, MissingTokenError)
"""The errors that only another command line, or another environment, can mend."""
INTERRUPTED, OUTPUT_CLOSED = 130, 141  # 128 and the number of the signal, as a shell shows it

_DESCRIPTION = "Durable conversations for AI agents: record, read and check transcripts that do not lose a message."
_EPILOG = """\
A conversation is a directory; DIR is its path. A library is a directory of conversations.

examples:
  transcript-store chat                            talk to a model; the same again goes on with it
  agent | transcript-store record chats/today      log what an agent prints, one JSON message a line
  transcript-store show chats/today --last 5       read the end of it
  transcript-store list chats                      which conversations are there?
  transcript-store verify chats/today              is every line whole?
  transcript-store repair chats/today              if not: what can be kept?
  transcript-store demo                            kill a writer again and again, and see what is left

exit codes: 0 well; 1 damage found, or failed; 2 misuse; 130 Ctrl-C; 141 the output was closed
`transcript-store COMMAND --help` says more.
"""
_COMMANDS = {
    "chat": ("chat.command", "talk to a model; the conversation goes on the next time, whatever happens"),
    "record": ("record", "append messages from standard input, and acknowledge each"),
    "show": ("show", "print a conversation: messages, tool calls and results, times and sizes"),
    "list": ("listing", "list the conversations in a directory, the one that changed last first"),
    "fork": ("fork", "copy a conversation, or its beginning, into a new one"),
    "rename": ("rename", "give a conversation a title"),
    "delete": ("delete", "delete a conversation, its archive and its quarantine"),
    "generations": ("generations", "list what a conversation was before each replace"),
    "verify": ("verify", "check every line, the archive and the metadata; change nothing"),
    "repair": ("repair", "say what of a damaged conversation can be kept; with --apply, make it whole"),
    "head": ("head", "print the head: a fingerprint of the whole transcript"),
    "snapshot": ("snapshot", "store conversations as snapshots, list, show and restore them; keys"),
    "doctor": ("doctor", "try what conversations need of a directory, and say which promises hold there"),
    "demo": ("demo.command", "kill a writer with SIGKILL again and again, and count what was lost"),
}
"""The commands: the module of each, which is imported when it is asked for, and what it is for."""


class _Parser(argparse.ArgumentParser):
    """argparse, but for an argument that it repeats in an error: that may hold anything."""

    def error(self, message: str) -> NoReturn:
        super().error(terminal.one_line(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (argparse raises ``SystemExit`` for ``--help`` and for misuse)."""
    try:
        with terminal.warnings_shown():
            try:
                return _run(argv)
            finally:
                terminal.flush()
    except BrokenPipeError:
        terminal.give_up_output()
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        terminal.give_up_output()
        terminal.complain(f"cannot go on: {error}")
        return 1


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(words).parse_args(words)
    try:
        if getattr(arguments, "names_a_conversation", False):
            _find(arguments)
        status: int = arguments.run(arguments)
        return status
    except terminal.Misuse as error:
        terminal.complain(str(error))
        return 2
    except TranscriptStoreError as error:
        from transcript_store.cli._shared.ways_out import sentence

        terminal.complain(sentence(error, arguments.command))
        return 2 if isinstance(error, _MISUSE) else 1
    except RecursionError:
        terminal.complain("a message nests too deeply to be shown")
        return 1


def _find(arguments: argparse.Namespace) -> None:
    """Put in ``directory`` the path of the conversation that is named there, perhaps in two words."""
    from transcript_store.cli._shared.conversations import find

    in_library = getattr(arguments, "id", None)
    arguments.directory = find(f"{arguments.directory}/{in_library}" if in_library else arguments.directory)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for a command line; of the commands that are not among its words it knows the names alone."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog=terminal.PROGRAM, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"{terminal.PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name, (home, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what, formatter_class=plain)
        if name in words:
            module = import_module(f"{__name__}.{home}")
            command.description, command.epilog = module.DESCRIPTION, module.EPILOG
            module.configure(command)
            command.set_defaults(run=module.run)
    return parser
