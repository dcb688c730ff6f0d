"""``transcript-store chat``: a conversation with a model that goes on after any end of the process."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.terminal import Misuse, complain, one_line, say
from transcript_store.cli.chat import HINT
from transcript_store.cli.chat.local import MODEL, SIZE_BYTES
from transcript_store.cli.listing import lines_of_summary

PROVIDERS = ("claude", "openai", "openai-compatible", "gemini", "local")
DESCRIPTION = f"""\
Talk to a model. Every message is on disk before it is sent, and the same command again goes on with the conversation:
after Ctrl-D, after a crash, after kill -9. Without DIR it is the last conversation of a library in your data directory.

The provider is the one that --provider names; else the one on record; else a compatible server, if a base URL is given;
else the first whose key is in the environment (claude, openai, gemini); else local: {MODEL}, a small model that
runs on this machine and needs no key. It is fetched once ({SIZE_BYTES // 1_000_000} MB), has no tools, and its answers are a demonstration.

{HINT}
With standard input from a pipe each line is a turn, and the first turn that fails ends the command with 1.
"""
EPILOG = """\
examples:
  transcript-store chat
  transcript-store chat --new --provider claude --system "Be brief."
  transcript-store chat notes/today --provider openai-compatible --model qwen3 \\
      --base-url http://localhost:11434/v1 --allow-insecure-base-url
  echo "Where were we?" | transcript-store chat notes/today
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("directory", metavar="DIR", nargs="?", type=path, help="the conversation's directory")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new", action="store_true", help="begin a new conversation")
    which.add_argument("--list", action="store_true", help="list the conversations of the library, and end")
    which.add_argument(
        "--resume",
        metavar="CONVERSATION",
        help="go on with this one: its id, the beginning of its id, its folder, or last",
    )
    parser.add_argument("--provider", choices=PROVIDERS, help="whose model answers")
    parser.add_argument("--model", metavar="NAME", help="the model (default: the one on record, or a current one)")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt (default: the one on record)")
    parser.add_argument("--base-url", metavar="URL", help="where the provider's API is")
    parser.add_argument(
        "--allow-insecure-base-url", action="store_true", help="allow http for a server on this machine (Ollama, vLLM)"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=60.0, help="how long a server may be silent (default 60)"
    )


def run(arguments: Namespace) -> int:
    """Talk until the input ends."""
    from transcript_store.cli._shared.progress import Working
    from transcript_store.cli.chat.conversation import find
    from transcript_store.cli.chat.session import Turns

    try:
        if arguments.list:
            return _list(arguments)
        with Working("opening the conversation"):
            place = find(arguments.directory, new=arguments.new, resume=arguments.resume)
        with place:
            return Turns(arguments, place).run()
    except Misuse as error:
        complain(str(error))
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("prompt_toolkit", "platformdirs"):
            raise
        way_out = "pip install 'transcript-store[chat]' (or [local], for a model that needs no key)"
        complain(f"chat needs {error.name}, which is not installed: {way_out}")
        return 1


def _list(arguments: Namespace) -> int:
    from transcript_store.cli._shared.conversations import chat_library

    if arguments.directory is not None:
        raise Misuse("--list is for the library in your data directory: transcript-store list DIR lists another one")
    shelf = chat_library()
    summaries = shelf.list()
    for summary in summaries:
        for line in lines_of_summary(summary):
            say(line)
    if not summaries:
        say(f"{one_line(shelf.directory)}: there is no conversation yet")
    return 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
