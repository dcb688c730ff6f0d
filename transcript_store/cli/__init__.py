"""The command ``transcript-store``: each of its commands calls the library and prints the result.

Exit codes: 0 success; 1 damage was found or something failed; 2 misuse; 130 Ctrl-C; 141 the reader of the output has gone.
An error is one line on standard error, without a traceback.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import takewhile
from types import ModuleType
from typing import Any, NoReturn

from transcript_store import (
    InvalidBaseUrlError,
    InvalidIdError,
    MissingTokenError,
    NotAPathError,
    TranscriptStoreError,
    WrongKeyError,
    __version__,
)
from transcript_store.cli._shared import terminal
from transcript_store.cli._shared.arguments import HelpFormatter, conversation_name

_MISUSE = (InvalidIdError, InvalidBaseUrlError, MissingTokenError, NotAPathError)
"""The errors that count as misuse: the user has to change the command line or the environment."""
_OBJECTS_BEFORE_A_COLLECTION = 50_000
INTERRUPTED, OUTPUT_CLOSED = 130, 141  # 128 plus the number of the signal (SIGINT, SIGPIPE), as a shell shows it

_DESCRIPTION = "Durable conversations for AI agents: record, read and check transcripts that do not lose a message."
_EPILOG = """\
A conversation is a directory; DIR is its path. A library is a directory of conversations.

examples:
  transcript-store chat                            talk to a model; run it again to continue
  agent | transcript-store record chats/today      log what an agent prints, one JSON message a line
  transcript-store show chats/today --last 5       print its last messages
  transcript-store view chats/today --open         open it as a page in the browser
  transcript-store serve chats                     browse all of them
  transcript-store list chats                      list the conversations
  transcript-store search "socket timeout" chats   find messages
  transcript-store import                          import other programs' sessions
  transcript-store verify chats/today              check every line
  transcript-store repair chats/today              if it is damaged: what can be kept?
  transcript-store demo                            kill a writer repeatedly, and count what was lost

exit codes: 0 success; 1 damage found, or failure; 2 misuse; 130 Ctrl-C; 141 the output was closed

`transcript-store COMMAND --help` says more.
"""
_COMMANDS = {
    "chat": ("chat.command", "talk to a model; the next run continues the conversation"),
    "record": ("record", "append messages from standard input, and acknowledge each"),
    "show": ("show", "print a conversation: messages, tool calls and results, times and sizes"),
    "list": ("listing", "list the conversations of a library, latest change first"),
    "search": ("search", "find messages in libraries"),
    "usage": ("usage", "sum tokens and cost by day, model, program, project, session"),
    "index": ("search", "update, rebuild or remove the index of a library"),
    "import": ("import_", "import other programs' sessions into a library, and follow them"),
    "keep": ("keep", "keep a library up to date with this machine's programs, as a service"),
    "mcp": ("mcp", "let an agent search and read a library (Model Context Protocol)"),
    "view": ("view", "write a conversation as one HTML page"),
    "serve": ("serve", "show a library in the browser, and follow what is appended"),
    "export": ("export", "export a conversation as a file, or as another program's session"),
    "backup": ("backup", "copy a library to a folder, file, database, bucket or pipe; again: only new records"),
    "restore": ("backup", "restore a backup, or merge it into a library"),
    "session": ("session", "repair, restore and relink other programs' sessions"),
    "ship": ("ship", "copy conversations to a database or a bucket, and keep the copy up to date"),
    "bisect": ("bisect", "find the first message after which a command fails"),
    "fork": ("manage", "copy a conversation, or its beginning, into a new one"),
    "rename": ("manage", "give a conversation a title"),
    "delete": ("manage", "delete a conversation, its archive and its quarantine"),
    "prune": ("prune", "list expired conversations and generations, and remove them"),
    "generations": ("manage", "list the archived generations of a conversation"),
    "secrets": ("secrets", "list conversations that hold secrets; with --forget, remove the secrets"),
    "verify": ("repair", "check every line, the archive and the metadata; change nothing"),
    "repair": ("repair", "show what a repair would keep; with --apply, repair"),
    "head": ("manage", "print the head: the hash of the whole transcript"),
    "snapshot": ("snapshot", "save, list, show and restore snapshots of conversations; manage their keys"),
    "seal": ("manage_keys", "encrypt a conversation with a key"),
    "unseal": ("manage_keys", "decrypt a sealed conversation"),
    "shred": ("manage_keys", "destroy the key of a sealed conversation: it can never be read again"),
    "rotate-key": ("manage_keys", "change the key of a library's sealed conversations"),
    "new-key": ("manage_keys", "write a new key for sealed conversations to a file"),
    "writers": ("manage", "list the writers of a library's conversations"),
    "programs": ("programs", "list the programs that import reads, what is lost, and when they delete sessions"),
    "doctor": ("doctor", "test a directory, and report which promises hold there"),
    "demo": ("demo", "kill a writer with SIGKILL repeatedly, and count what was lost"),
}
"""The commands by name: the module of each and its line in the help. A module is imported only if its command is used."""

_OTHER_NAMES = {
    "--library": ("--in", "--into"),
    "--to": ("--into", "--output"),
    "--at": ("--through", "--around"),
    "--tail": ("--last",),
    "--max": ("--limit",),
    "--count": ("--limit", "--last"),
    "--limit": ("--last",),
    "--format": ("--to", "--json"),
    "--cwd": ("--project",),
    "--program": ("--source",),
    "--before": ("--until",),
    "--after": ("--since",),
    "--all": ("--full", "--limit"),
    "--out": ("--output",),
    "--continue": ("--resume",),
    "--name": ("--title",),
    "--force": ("--yes", "--apply"),
    "--fix": ("--apply",),
    "--today": ("--since",),
    "--reverse": ("--sort",),
    "-E": ("--regex",),
    "-r": ("--regex",),
}
"""Our options by the names that other programs give them; the first that the command has is suggested."""


_OTHER_COMMANDS = {
    "search": ("find", "grep", "rg", "query"),
    "list": ("ls", "ll", "history", "projects", "conversations", "stats", "du"),
    "show": ("cat", "less", "more", "print", "read", "open", "info", "tail", "head-of", "get"),
    "delete": ("rm", "remove", "del", "erase", "drop"),
    "rename": ("mv", "title", "name", "tag", "label"),
    "fork": ("cp", "copy", "clone", "branch"),
    "chat": ("resume", "continue", "talk", "ask", "run"),
    "import": ("add", "load", "pull", "ingest", "scan"),
    "export": ("convert", "dump", "save-as", "share"),
    "serve": ("web", "ui", "browse", "gui"),
    "view": ("html", "page"),
    "snapshot": ("save",),
    "backup": ("archive",),
    "restore": ("merge", "sync"),
    "ship": ("push", "upload", "replicate"),
    "secrets": ("redact", "leaks", "scrub"),
    "prune": ("clean", "gc", "cleanup", "purge"),
    "verify": ("check", "fsck", "validate", "test"),
    "repair": ("fix", "recover", "mend"),
    "generations": ("versions", "undo", "log"),
    "seal": ("encrypt", "lock"),
    "unseal": ("decrypt", "unlock"),
    "record": ("append", "write"),
    "index": ("reindex",),
    "keep": ("watch", "daemon", "service", "sync", "archive"),
    "usage": ("cost", "costs", "tokens", "spend", "ccusage"),
    "session": ("sessions", "rescue", "relink", "moved"),
}
"""What people type for each of our commands, because other programs call it so."""


class _Parser(argparse.ArgumentParser):
    """argparse with errors that are safe on a terminal: they repeat arguments, which may hold control characters."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Report unknown arguments with the command's own usage: that of ``main()`` has no options."""
        self._given = args or ()
        known, unknown = super().parse_known_args(self._with_values(self._given), namespace)
        if hasattr(known, "words"):  # words after an option: argparse takes only adjacent ones
            known.words += [word for word in unknown if not word.startswith("-")]
            unknown = [word for word in unknown if word.startswith("-")]
        elif unknown and getattr(known, "id", "") is None and not unknown[0].startswith("-"):  # likewise: DIR --json ID
            try:
                known.id = conversation_name(unknown.pop(0))
            except argparse.ArgumentTypeError as error:
                self.error(f"argument ID: {error}")
        elif unknown and not unknown[0].startswith("-") and (names := getattr(known, "two_words", None)):  # A --json B
            before = [word for name in names if (word := getattr(known, name)) is not None]
            if len(before) == 1 and unknown[0]:
                known.__dict__.update(zip(names, (*before, unknown.pop(0)), strict=True))
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def _with_values(self, words: Sequence[str]) -> list[str]:
        """The words with a value that begins with a minus joined to its option: argparse would take `--filter -model:opus` for two."""
        joined: list[str] = []
        for word in words:
            before = self._option_string_actions.get(joined[-1]) if joined and joined[-1].startswith("--") else None
            needs_value = before is not None and before.nargs is None and "--" not in joined
            if needs_value and word.startswith("-") and word not in self._option_string_actions:
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print on standard output as the commands do: argparse ignores that it refuses (a full disk), and exits with 0."""
        if message and file is not None and file is sys.stdout:
            terminal.say_on(message)
        else:
            with suppress(OSError):  # as argparse does since 3.11.3: the code says that the command line was wrong
                super()._print_message(message, file)

    def print_help(self, file: Any = None) -> None:
        """Print the help, unless ``-h`` was the start of a folder's name such as ``-home-ada``, which Python 3.13 splits."""
        if names := self._names_like_options():
            self.error(f"unrecognized arguments: {names[0]}")
        super().print_help(file)

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required") and (mistyped := self._unknown_option()):
            message = f"unrecognized arguments: {mistyped}"  # argparse would not look at it
        if names := self._names_like_options():  # it was parsed as an option, -home-ada as -h
            message += f"; write a name that starts with a dash as ./{names[0]}"
        if meant := _meant(message) or self._option_meant(message):
            if unknown := re.match("argument COMMAND: invalid choice: ('[^']*')", message):
                message = f"there is no command {unknown[1]}"  # argparse would list all thirty
            message += f"; did you mean {meant}?"
        elif not names and re.search("unrecognized arguments: -[^-]", message):
            message += "; write an argument that starts with a minus after --"
        quoted = f"{self.prog}: error: {terminal.one_line(terminal.without_credentials(message))} (`{self.prog} --help` says more)"
        width = terminal.status_columns() if terminal.has_status() else None
        self.exit(2, self.format_usage() + "\n".join(terminal.sentence_lines(quoted, width)) + "\n")

    def _option_meant(self, message: str) -> str | None:
        """The option of this command that an unknown one probably means: another program's name for it, or a typing mistake."""
        if (quoted := re.search(r"unrecognized arguments: (--?[\w-]+)", message)) is None:
            return None
        ours = list(self._option_string_actions)  # argparse has no public access to them
        others = [name for name in _OTHER_NAMES.get(quoted[1], ()) if name in ours]
        return next(iter(others or _nearest(quoted[1], ours)), None)

    def _unknown_option(self) -> str | None:
        """The first long option that was given and that this command does not have."""
        given = (word.partition("=")[0] for word in takewhile("--".__ne__, self._given) if word.startswith("--"))
        ours = list(self._option_string_actions)
        return next((name for name in given if not any(option.startswith(name) for option in ours)), None)

    def _names_like_options(self) -> list[str]:
        return [name for name in self._given if name.startswith("-") and os.path.exists(name)]


def _meant(message: str) -> str | None:
    """The choice that a mistyped one resembles. (From Python 3.12 on, argparse's sentence has no quotes.)"""
    quoted = re.search(
        r"(?:invalid choice: |there is no \w+ )'([^']*)'(?: \(choose from |; use one of )([^()]*)", message
    )
    if quoted is None:
        return None
    choices = [choice.strip(" '") for choice in quoted[2].split(",")]
    elsewhere = (ours for ours, theirs in _OTHER_COMMANDS.items() if quoted[1] in theirs and ours in choices)
    return next(elsewhere, None) or next(iter(_nearest(quoted[1], choices)), None)


_MISTYPED = 4
"""More letters than this are a name that was not typed to its end, such as `claude` for `claude-code`."""


def _nearest(word: str, choices: list[str]) -> list[str]:
    import difflib  # only for a sentence about a mistake

    begun = [choice for choice in choices if len(word) > _MISTYPED and choice.startswith(word)]
    return begun[:1] or difflib.get_close_matches(word, choices, n=1, cutoff=0.7)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Raises:
        SystemExit: argparse ended the command, after ``--help`` (code 0) or because of invalid arguments (code 2).
    """
    try:
        return _main(argv)
    finally:
        terminal.give_up_closed_errors()


def _main(argv: Sequence[str] | None) -> int:
    try:
        with _seldom_collected(), terminal.warnings_shown():
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
        # Standard output itself may have failed (a full disk). Python would flush it again at exit, and fail again.
        terminal.give_up_output()
        where = f"{error.filename}: " if error.filename else ""
        terminal.complain(f"cannot continue: {where}{error.strerror or error}")
        return 1


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A start creates a hundred thousand objects that all stay: forty garbage collections were a tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BEFORE_A_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _run(argv: Sequence[str] | None) -> int:
    words = _as_options(sys.argv[1:] if argv is None else argv)
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
        from transcript_store.cli._shared.hints import error_sentence

        terminal.complain(error_sentence(error, arguments.command) + _with_which_keys(error, arguments))
        return 2 if isinstance(error, _MISUSE) else 1
    except RecursionError:
        terminal.complain("a message nests too deeply to be shown")
        return 1


def _as_options(words: Sequence[str]) -> Sequence[str]:
    """`help search` and `version`, as other programs have them, are options here."""
    match words:
        case ["help", *command]:
            return [*command, "--help"]
        case []:  # as gh and cargo answer
            return ["--help"]
        case ["version"]:
            return ["--version"]
    return words


def _with_which_keys(error: TranscriptStoreError, arguments: argparse.Namespace) -> str:
    """Which keys were given, if none of them was the right one."""
    if not isinstance(error, WrongKeyError):
        return ""
    from transcript_store.cli._shared.keys import given

    return f" ({given(arguments)})"


def _find(arguments: argparse.Namespace) -> None:
    """Replace the name in ``arguments.directory`` by the path of the conversation that it names.

    The name may also be given in two words, the library and the id.
    """
    from transcript_store.cli._shared.names import existing, is_backend_address, taken_apart, the_library

    named = arguments.directory
    if named is None:
        arguments.directory = the_library(None, on_backends=arguments.on_backends)
        return
    if arguments.or_library and arguments.id is None and is_backend_address(named) and taken_apart(named).what is None:
        return
    arguments.directory = existing(arguments.directory, getattr(arguments, "id", None))
    if not arguments.on_backends:
        from transcript_store.cli._shared.names import refuse

        refuse(arguments.directory, arguments.command)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for a command line.

    Only the commands among its words get their arguments: the others need not be imported.
    """
    parser = _Parser(prog=terminal.PROGRAM, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=HelpFormatter)
    parser.add_argument("--version", action="version", version=f"{terminal.PROGRAM} {__version__}")
    # With its name given, argparse need not format a usage to find it.
    commands = parser.add_subparsers(prog=terminal.PROGRAM, metavar="COMMAND", required=True, dest="command")
    for name in (
        words[:1] if words and words[0] in _COMMANDS else _COMMANDS
    ):  # the full list is only needed for help and for mistakes
        home, what = _COMMANDS[name]
        command = commands.add_parser(name, help=what, formatter_class=HelpFormatter)
        if name in words:
            module = import_module(f"{__name__}.{home}")
            command.description, command.epilog, configure, run = _parts(module, name.replace("-", "_"))
            configure(command)
            command.set_defaults(run=run)
    return parser


def _parts(module: ModuleType, name: str) -> Any:
    """The description, the epilog, and the two functions of a command. A module with several commands has them for each."""
    if hasattr(module, f"run_{name}"):
        texts = (getattr(module, f"{name.upper()}_{text}") for text in ("DESCRIPTION", "EPILOG"))
        return *texts, getattr(module, f"configure_{name}"), getattr(module, f"run_{name}")
    return module.DESCRIPTION, module.EPILOG, module.configure, module.run
