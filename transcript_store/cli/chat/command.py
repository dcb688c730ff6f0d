"""``transcript-store chat``: talk to a model, in a conversation that survives crashes."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from signal import SIGHUP, SIGINT
from typing import TYPE_CHECKING

from transcript_store.cli._shared.arguments import path, seconds
from transcript_store.cli._shared.forks import PROVIDERS, fork_for_provider
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import library_of
from transcript_store.cli._shared.redaction import add_redact, redaction_counts, redactor_of
from transcript_store.cli._shared.terminal import Misuse, complain, confirmed, give_up_output, is_at_a_terminal, say
from transcript_store.cli.chat import HINT
from transcript_store.cli.chat.local import QWEN
from transcript_store.cli.chat.provider import USUAL_PORTS
from transcript_store.cli.listing import list_all
from transcript_store.installation import install_command

if TYPE_CHECKING:
    from transcript_store.cli.chat.conversation import ChatConversation

DESCRIPTION = f"""\
Talk to a model. Every message is on disk before it is sent, and the same command continues the conversation: after Ctrl-D,
after a crash, after kill -9. Without DIR it is the latest conversation of a library in your data directory.

The provider is the one that --provider names; else the one on record; else a compatible server, if a base URL is given;
else the first whose key is in the environment and whose SDK is installed (claude, openai, gemini); else a model server that runs
on this machine (Ollama, LM Studio, llama.cpp), with its largest chat model; else local: {QWEN.name}, a small model that
needs no key and no server. It is fetched once ({QWEN.size_bytes // 1_000_000} MB), has no tools, and is often wrong.

{HINT}
With standard input from a pipe each line is a turn, and the first turn that fails ends the command with 1.
"""
EPILOG = """\
examples:
  transcript-store chat
  transcript-store chat --resume                              # choose one by its title
  transcript-store chat --new --provider claude --system "Be brief."
  transcript-store chat notes/today --provider openai-compatible --model qwen3
  transcript-store chat --base-url https://gateway.internal/v1 --model large
  echo "Where were we?" | transcript-store chat notes/today
  transcript-store chat notes/today --retry < /dev/null       # the turn failed: ask again
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", type=path, help="the conversation's folder, DIR/ID, or DIR/last"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new", action="store_true", help="start a new conversation")
    which.add_argument("--list", action="store_true", help="list the conversations of the library, and exit")
    which.add_argument(
        "--resume",
        metavar="CONVERSATION",
        nargs="?",
        const="",
        help="continue this one: its id, the start of its id, its folder, or last; without a name, choose one by its title",
    )
    parser.add_argument("--provider", choices=PROVIDERS, help="the provider of the model")
    parser.add_argument("--model", metavar="NAME", help="the model (default: the one on record, or a current one)")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt (default: the one on record)")
    parser.add_argument("--base-url", metavar="URL", help="the URL of the provider's API")
    parser.add_argument(
        "--allow-insecure-base-url", action="store_true", help="allow http for a server on this machine (Ollama, vLLM)"
    )
    parser.add_argument(
        "--ports",
        metavar="PORT,…",
        type=_ports,
        default=tuple(USUAL_PORTS),
        help=f"ports of this machine to search for a model server (default {','.join(map(str, USUAL_PORTS))}; '' for none)",
    )
    parser.add_argument("--retry", action="store_true", help="first ask the last question again, if it has no answer")
    add_redact(parser)
    add_keys(parser, what="the key; a new conversation is sealed with it")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=_timeout, default=60.0, help="how long a server may be silent (default 60)"
    )


def run(arguments: Namespace) -> int:
    """Talk until the input ends."""
    from transcript_store.cli._shared.terminal import Working
    from transcript_store.cli.chat.conversation import open_named
    from transcript_store.cli.chat.provider import OtherFormError
    from transcript_store.cli.chat.session import ChatRun, Terminated, raised, terminal_kept

    keys = command_keys(arguments)
    chat: ChatConversation | None = None
    try:
        if arguments.list:
            return _list(arguments)
        if arguments.resume == "":
            arguments.resume = _picked(arguments)
            if arguments.resume is None:
                return 0
        with Working("opening the conversation"):
            redactor = redactor_of(arguments)
            chat = open_named(
                arguments.directory, new=arguments.new, resume=arguments.resume, redact=redactor, keys=keys
            )
        try:
            with terminal_kept(), raised(), chat:
                return ChatRun(arguments, chat).run()
        except OtherFormError as other:
            question = (
                f"The conversation is with another provider. Copy it for {other.provider}, and continue the copy?"
            )
            if not confirmed(question):
                raise
            library = library_of(chat.directory)
            fork = fork_for_provider(chat.directory, other.provider, library, **keys.options)
            say(f"{chat.directory} is not changed")
            arguments.directory, arguments.resume = f"{library.directory}/{fork}", None
            return run(arguments)
        finally:
            if redactor is not None:
                complain(redaction_counts(redactor.counts))
    except Terminated as end:
        if end.signal == SIGHUP:
            give_up_output()  # the terminal was closed: unflushed output can no longer be written
        complain(f"{end.signal.name}: stopped; {_kept(chat)}")
        return int(end.signal) + 128
    except KeyboardInterrupt:
        complain(f"stopped; {_kept(chat)}")
        return SIGINT + 128
    except Misuse as error:
        complain(str(error))
        return 2
    except ModuleNotFoundError as error:
        if error.name != "prompt_toolkit":
            raise
        install = f"{install_command('chat')} (or the extra local, for a model that needs no key)"
        complain(f"chat needs {error.name}, which is not installed: {install}")
        return 1


def _kept(chat: ChatConversation | None) -> str:
    return "the received part is on record" if chat is not None and chat.has_recorded else "nothing was recorded"


def _picked(arguments: Namespace) -> str | None:
    """The folder of the chosen conversation; None without a choice."""
    from transcript_store.cli._shared.names import default_library
    from transcript_store.cli.chat.conversation import picked

    if arguments.directory is not None:
        raise Misuse("--resume is for the library in your data directory, and DIR already names a conversation")
    if not is_at_a_terminal():
        raise Misuse("--resume without a name needs a terminal to ask: `chat --list` lists the names")
    library = default_library()
    return picked(library)


def _list(arguments: Namespace) -> int:
    from transcript_store.cli._shared.names import default_library

    if arguments.directory is not None:
        raise Misuse("--list is for the library in your data directory; `transcript-store list DIR` lists another one")
    list_all(default_library())
    return 0


def _timeout(text: str) -> float:
    if not (number := seconds(text)):
        raise ArgumentTypeError("must be more than 0")
    return number


def _ports(text: str) -> tuple[int, ...]:
    ports = [port.strip() for port in text.split(",") if port.strip()]
    if not all(port.isascii() and port.isdigit() and 0 < int(port[:9]) < 65_536 for port in ports):
        raise ArgumentTypeError(f"{text!r} is not a list of ports, such as 11434,1234")
    return tuple(map(int, ports))
