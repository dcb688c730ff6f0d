"""``transcript-store export``: export a conversation as a file, or as a new session of another program."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext

from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_through, path, whole_number
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at
from transcript_store.cli._shared.redaction import add_redact, redaction_counts, redactor_of
from transcript_store.cli._shared.terminal import (
    Misuse,
    RawOutput,
    Working,
    complain,
    confirmed,
    count_lines,
    for_shell,
    is_at_a_terminal,
    one_line,
    safe,
    say,
    say_json_text,
)
from transcript_store.exporting import Exported, Stream, export, program_folder, targets
from transcript_store.formats import Loss

DESCRIPTION = f"""\
Write a conversation in another form: `original`, the bytes that it was imported from; `jsonl`, a line a record;
`markdown`, to read; `html`, the page of `view`; or the name of a program, which then lists it as a new session.
It reports what the form cannot hold before it writes. Existing files are never changed. On a terminal it asks before it writes
into a program's own folder. The session keeps the conversation's times; `import` skips it until the program adds to it.

{NAMES}"""
EPILOG = """\
examples:
  transcript-store export chats/last --to markdown
  transcript-store export chats/0b8f --to html --output today.html
  transcript-store export chats/0b8f --to original --output session.jsonl
  transcript-store export chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51 --to jsonl --through 12
"""


_TEXTS = ("original", "jsonl", "markdown", "html")
PROGRAMS = ("claude-code", "codex", "gemini-cli", "pi", "opencode", "kilo", "copilot")
"""The writers' names, for the help: the formats have them too, but each would be imported."""
_OTHER_NAMES = {
    "md": "markdown",
    "htm": "html",
    "page": "html",
    "json": "jsonl",
    "raw": "original",
    "claude": "claude-code",
    "gemini": "gemini-cli",
}
_FORMS = (*_TEXTS, *PROGRAMS)


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    forms = f"{', '.join((*_TEXTS, *PROGRAMS))}, or one that an installed package adds"
    parser.add_argument("--to", metavar="FORM", type=_form, required=True, help=f"the form: {forms}")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=path,
        help="the file to write (default and -: standard output), in a folder that is created if it is missing; "
        "for a program the folder to use instead of its own",
    )
    parser.add_argument("--generation", metavar="N", type=whole_number, help="an archived generation (see generations)")
    add_through(parser)
    parser.add_argument("--branches", action="store_true", help="for markdown: also the abandoned branches")
    parser.add_argument(
        "--cwd", metavar="DIR", type=path, help="for a program: the session's directory (default: the imported one)"
    )
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before a session is written into a program's folder"
    )
    add_redact(parser)
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Export, and print what was written and how to resume it."""
    keys, redactor = command_keys(arguments), redactor_of(arguments)
    output = None if arguments.output == "-" else arguments.output
    if arguments.output == "-" and arguments.to not in _TEXTS:
        raise Misuse(f"--output - is standard output, and {arguments.to} takes a folder")
    if output is None and arguments.to not in _TEXTS and is_at_a_terminal() and not arguments.yes:
        where = f" into {one_line(folder)}" if (folder := program_folder(arguments.to)) else ""
        if not confirmed(f"write it as a new session of {arguments.to}{where}?"):
            complain("nothing was written; --output DIR writes it elsewhere")
            return 2
    if output is None and arguments.to in _TEXTS:
        output = _output_for(arguments.to)
    # On standard output the text itself shows progress, and a status line would interrupt it.
    is_shown = output is not None and not isinstance(output, str)
    with (
        conversation_at(arguments.directory, read_only=True, **keys.options) as conversation,
        nullcontext() if is_shown else Working("exporting") as working,
    ):

        def say_losses(losses: Iterable[Loss]) -> None:
            with nullcontext() if working is None else working.paused():
                _say_losses(arguments.to, losses)

        conversation.load(verify="tail")
        try:
            done = export(
                conversation,
                to=arguments.to,
                output=output,
                generation=arguments.generation,
                through_seq=arguments.through,
                cwd=arguments.cwd,
                before_writing=say_losses,
                redact=redactor,
                branches=arguments.branches,
            )
        except ValueError as error:
            raise Misuse(str(error)) from None
        from_there = conversation.get_metadata().labels.get("cwd")
    _say_done(done, None if arguments.cwd is not None else from_there, output)
    if redactor is not None:
        complain(redaction_counts(done.redacted))
    return 0


def _form(text: str) -> str:
    """The type of ``--to``. No package is imported to look at its name."""
    text = _OTHER_NAMES.get(text.lower(), text)
    if text in _FORMS:
        return text
    from transcript_store.sources import added_names

    if text not in added_names():
        raise ArgumentTypeError(f"there is no form {text!r}; use one of {', '.join(targets())}")
    return text


def _say_losses(to: str, losses: Iterable[Loss]) -> None:
    counts: Counter[str] = Counter()
    for loss in losses:
        counts[loss.message] += loss.count
    if counts:
        complain(f"{to} cannot hold all of it (the conversation here keeps it):", count_lines(counts))


def _say_done(done: Exported, imported_cwd: str | None, output: str | None) -> None:
    for written in done.paths:
        say(one_line(written))
    if done.command is None or done.cwd is None:
        return
    if output is not None and for_shell(done.paths[-1]) not in done.command:
        complain(
            f"{one_line(output)}: the program reads its own folder: move these files there, or export without --output"
        )
    if not os.path.isdir(done.cwd):
        complain(f"{done.cwd}: this directory does not exist here; create it before you resume the session")
    elif imported_cwd and not os.path.isdir(imported_cwd):
        complain(
            f"{imported_cwd}: the conversation took place there, and this directory does not exist here; --cwd names another"
        )
    going_there = f"cd {for_shell(done.cwd)} && " if done.cwd != os.getcwd() else ""
    say(f"resume it: {going_there}{one_line(done.command)}")


class _Printed:
    """Standard output for text, with control sequences shown as escapes."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json

    def writelines(self, pieces: Iterable[bytes], /) -> None:
        for piece in pieces:
            text = piece.decode().removesuffix("\n")
            say_json_text(text) if self._is_json else say(safe(text))


def _output_for(to: str) -> Stream:
    if to in ("jsonl", "markdown"):
        return _Printed(is_json=to == "jsonl")
    return RawOutput("original" if to == "original" else "page")
