"""``transcript-store programs``: the programs that import reads: where their sessions are, what is lost, when they are deleted."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable

from transcript_store.cli._shared.arguments import add_json
from transcript_store.cli._shared.terminal import columns, say, say_json, wrapped
from transcript_store.sources import PROGRAMS, KnownProgram, program_table

DESCRIPTION = """\
List the programs and sites whose sessions `import` reads: the versions that were tested, where each keeps its sessions, what is
read and what is lost, how to resume a session that `export --to` wrote, and the setting by which the program deletes sessions.
This machine's files are not read.
"""
EPILOG = """\
examples:
  transcript-store programs
  transcript-store programs --json | jq '.programs[] | {program, retention}'
"""
_LEAST_COLUMNS = 20


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser, "one JSON object, with the name of its schema and a version")


def run(arguments: Namespace) -> int:
    """Print the table."""
    if arguments.json:
        say_json(program_table())
        return 0
    width = columns()
    for program in PROGRAMS:
        say(f"{program.program}: {program.title}")
        for name, text in _facts(program):
            beside = f"  {name:<11}"
            for line, _ in wrapped(text, (), None if width is None else max(_LEAST_COLUMNS, width - len(beside))):
                say(f"{beside}{line}")
                beside = " " * len(beside)
    return 0


def _facts(program: KnownProgram) -> list[tuple[str, str]]:
    versions = f"{', '.join(program.tried)}, on {program.tried_on}" if program.tried else "not run"
    facts = [("versions", versions)]
    for kept_at in program.session_folders:
        named = f" (or ${kept_at.variable})" if kept_at.variable else ""
        facts.append(("sessions", f"~/{kept_at.folder}{named}: {', '.join(kept_at.patterns)}"))
    facts += [("read", program.reads), ("lost", program.loses)]
    if program.resume is not None:
        facts.append(("resumed by", program.resume))
    if (kept := program.retention) is not None:
        when = "nothing" if kept.days is None else f"sessions after {kept.days:g} days"
        beside = f"; {kept.note}" if kept.note else ""
        facts.append(("deletes", f"{when}, unless {kept.key} in {kept.file} says otherwise: {kept.keeps}{beside}"))
    return facts


_LEAST_NAME = 2


def programs_meant(text: str, programs: Iterable[str]) -> list[str | None]:
    """Which of the programs the names in a text mean, with commas between them; None for each that means none.

    A name is that of a program, whatever its case, or the beginning of only one.
    """
    known = dict.fromkeys(programs)
    return [_meant(name.strip().lower().replace(" ", "-"), known) for name in text.split(",")]


def _meant(name: str, known: Iterable[str]) -> str | None:
    if name in known:
        return name
    begin_so = [program for program in known if program.startswith(name)]
    return begin_so[0] if len(begin_so) == 1 and len(name) >= _LEAST_NAME else None
