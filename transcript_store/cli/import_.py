"""``transcript-store import``: import other programs' sessions into a library, and follow them."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import datetime

from transcript_store import ConversationLibrary, ConversationNotFoundError
from transcript_store.cli._shared.arguments import add_json, path, positive, since
from transcript_store.cli._shared.hints import import_cache, why_not_imported
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import import_destination, is_backend_address, library_at
from transcript_store.cli._shared.redaction import add_redact, redactor_of
from transcript_store.cli._shared.tally import ImportTally
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    flush,
    has_status,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_on,
    show_bar,
    size,
    status,
)
from transcript_store.cli.programs import programs_meant
from transcript_store.display import MOMENTS
from transcript_store.formats import READERS
from transcript_store.importing import (
    FoundSource,
    SourceFollower,
    discover,
    find_sources,
    import_conversations,
    overviews,
)
from transcript_store.sources import added_names, session_folders

DESCRIPTION = """\
Import the sessions in the PATHs (files or folders), or those that the named PROGRAMs keep on this machine. Without either, show
what all programs keep here, and ask. A session is imported completely, with its own times, and always under the same id: a second
import adds only new records. A conversation that you continued here is never overwritten. A deleted one stays deleted, unless
--again is given or its file is named. The sources are not changed.

It reports for each program (with -v, for each session) what was done, and what became of every line: a message, an event or a
finding. The exit code is 1 if anything was left out. Other files in a folder (settings, caches) are counted, and are no error.
"""
_FORMATS = [reader.name for reader in READERS]
EPILOG = f"""\
formats: {", ".join(_FORMATS)}, and those that installed packages add

examples:
  transcript-store import                            show what is here, and ask
  transcript-store import --all --into chats         all of it, without asking
  transcript-store import claude-code codex          only these two programs
  transcript-store import ~/.claude/projects --dry-run
  transcript-store import conversations.zip --into chats --json | jq -r 'select(.findings != [])'
  transcript-store import --all --since 2w           only changes of the last two weeks
  transcript-store import --all --redact             without keys and tokens
  transcript-store import --all --follow             keep up, until Ctrl-C
"""

_MOST_JOBS = 8
"""The default of ``--jobs``. More processes would wait for the disk, and each takes memory."""
_FEW = 5
"""Up to this many named files, each gets a line."""
_POLL_SECONDS = 2.0


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "paths",
        metavar="PATH|PROGRAM",
        nargs="*",
        type=path,
        help="a file, a folder (with all below it), or a program such as codex (several: codex,pi)",
    )
    parser.add_argument(
        "--into",
        metavar="LIBRARY",
        type=path,
        help="the library: a directory, or a backend's address (default: that of `chat`)",
    )
    parser.add_argument(
        "--format", metavar="NAME", type=_format, help="the format, one of those below (default: detected)"
    )
    parser.add_argument("--all", action="store_true", help="import all sessions on this machine, without asking")
    parser.add_argument("--since", metavar="WHEN", type=since, help=f"only files that changed since: {MOMENTS}")
    parser.add_argument(
        "--diverged",
        choices=("report", "fork"),
        default="report",
        help="if source and conversation were both continued: report it (default), or import a second one",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="also sessions that were deleted here (not on a backend), or that export wrote",
    )
    parser.add_argument("--empty", action="store_true", help="import sessions without a message too")
    parser.add_argument("--dry-run", action="store_true", help="report what would be imported, and stop")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print a line for each session, with its title and findings"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow the programs' sessions, until Ctrl-C")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=positive,
        default=min(_MOST_JOBS, os.cpu_count() or 1),
        help="number of processes for a large import (default here: %(default)s)",
    )
    add_redact(parser)
    parser.add_argument(
        "--forget",
        action="store_true",
        help="with --redact: also remove secrets from the library, as `secrets --forget`",
    )
    add_keys(parser, what="the key; imported conversations are sealed with it")
    add_json(parser, "one JSON object a session")


def run(arguments: Namespace) -> int:
    """Import, and print the result."""
    if arguments.paths and arguments.all:
        raise Misuse("--all imports what this machine's programs keep: give either --all, or files and folders")
    if arguments.follow and arguments.dry_run:
        raise Misuse("--dry-run and --follow exclude each other: give one of them")
    if arguments.forget and (redactor_of(arguments) is None or arguments.dry_run or arguments.follow):
        raise Misuse("--forget needs --redact, and excludes --dry-run and --follow")
    named_programs = {named: _programs(named) for named in arguments.paths}
    programs = frozenset(program for its in named_programs.values() for program in its)
    arguments.paths = [named for named in arguments.paths if not named_programs[named]]
    for named in arguments.paths:
        if (why_not := why_not_imported(os.path.abspath(os.path.expanduser(named)))) is not None:
            raise Misuse(f"{named}: {why_not}")
    library = library_at(
        import_destination(arguments.into), creates=not arguments.dry_run, **command_keys(arguments).options
    )
    chosen: frozenset[str] | None = programs
    if not (arguments.paths or programs):
        chosen = _chosen(arguments, library, [one for one in discover() if _is_recent(one, arguments.since)])
    if chosen is None:
        return 0
    redacts = redactor_of(arguments) is not None
    found = _found(arguments, chosen)
    tally = ImportTally(
        {one.path: one.program for one in found if one.program is not None},
        is_json=arguments.json,
        is_dry_run=arguments.dry_run,
        is_verbose=arguments.verbose or (bool(arguments.paths) and len(found) <= _FEW),
        is_redacted=redacts,
    )
    began = time.monotonic()
    if arguments.follow:
        _say_beside(arguments, "following the programs' sessions; Ctrl-C stops, and keeps what was imported")
    try:
        _import(arguments, library, found, tally)
        if arguments.follow:
            _say_beside(arguments, f"so far: {tally.done}; waiting for more (Ctrl-C stops)")
            _follow(arguments, library, chosen, found, tally)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    finally:
        if has_status():
            status("")
    what = f"followed for {many(round(time.monotonic() - began), 'second')}: " if arguments.follow else ""
    if arguments.json and arguments.follow:
        complain(f"{what}{tally.done}")
    elif not arguments.json:
        tally.say_all(library, what)
    if (redactor := redactor_of(arguments)) is None or arguments.dry_run:
        return tally.exit_code
    from transcript_store.cli.secrets import forget, say_what_is_kept

    if arguments.forget:
        return max(forget(arguments, [library.directory], redactor), tally.exit_code)
    say_what_is_kept(library, redactor, complain if arguments.json else say)
    return tally.exit_code


def _say_beside(arguments: Namespace, text: str) -> None:
    """Print a message that is not a report: to standard error if the reports are JSON."""
    if has_status():
        status("")
    complain(text) if arguments.json else say(text, now=True)


def _is_recent(found: FoundSource, since: datetime | None) -> bool:
    return since is None or found.why_not is not None or found.mtime_ns >= since.timestamp() * 1e9


def _chosen(arguments: Namespace, library: ConversationLibrary, found: list[FoundSource]) -> frozenset[str] | None:
    """The programs to import from; None for none."""
    if arguments.json and not (arguments.all or arguments.yes or arguments.dry_run):
        raise Misuse("--json cannot ask: add --yes for all programs of this machine, or name files and folders")
    programs = list(dict.fromkeys(str(one.program) for one in found))
    if not arguments.json:
        for one in overviews(found):
            days = "" if one.first is None or one.last is None else f"  {one.first:%Y-%m-%d} to {one.last:%Y-%m-%d}"
            say(f"{one.program:<14} {many(one.sessions, 'session'):>15}  {size(one.size):>9}{days}")
        if not programs:
            recent = " that changed since then" if arguments.since is not None else ""
            say(f"no session{recent} of a known program was found; name files or folders")
    if arguments.all or arguments.yes or arguments.dry_run:
        return frozenset(kept.program for kept in session_folders())  # also those that --follow finds later
    if not programs:
        return None
    if not is_at_a_terminal():
        say("nothing was imported; --yes imports it")
        return None
    say_on(f"Import them into {one_line(library.directory)}? [y, n, or names of programs] ")
    answer = sys.stdin.readline().replace(",", " ").split()
    if [word.lower() for word in answer] in (["y"], ["yes"], ["all"]):
        return frozenset(programs)
    if [word.lower() for word in answer] in ([], ["n"], ["no"]):
        say("nothing was imported")
        return None
    named = {word: [program for program in programs if program.startswith(word.lower())] for word in answer}
    if unknown := [word for word, its in named.items() if not its]:
        say(f"{one_line(', '.join(unknown))}: the list above has no such program; nothing was imported")
        return None
    return frozenset(program for its in named.values() for program in its)


def _are_files(paths: list[str]) -> bool:
    """True if only files were named: then they are imported even if they were deleted from the library before."""
    return bool(paths) and all(os.path.isfile(os.path.expanduser(path)) for path in paths)


def _programs(named: str) -> list[str]:
    """The programs that an argument names, with commas between several; empty if it is a path.

    Raises:
        Misuse: some of the names are programs and others are not.
    """
    if os.path.lexists(os.path.expanduser(named)) or is_backend_address(named):
        return []
    known = tuple(dict.fromkeys(kept.program for kept in session_folders()))
    meant = programs_meant(named, known)
    found = [program for program in meant if program is not None]
    if found and len(found) < len(meant):
        unknown = [word.strip() for word, program in zip(named.split(","), meant, strict=True) if program is None]
        raise Misuse(
            f"{', '.join(unknown)}: no program of that name; use one of {', '.join(known)}. Separate paths by spaces"
        )
    return found


def _found(arguments: Namespace, programs: frozenset[str], *, may_be_gone: bool = False) -> list[FoundSource]:
    found = (
        [one for one in discover() if one.program in programs and _is_recent(one, arguments.since)] if programs else []
    )
    missing: list[str] = []
    for named in arguments.paths:
        try:
            found += find_sources(named)
        except FileNotFoundError:
            missing.append(named if is_backend_address(named) else os.path.abspath(os.path.expanduser(named)))
        except OSError as error:
            if not may_be_gone:
                found.append(FoundSource(named, 0, 0, 0, why_not=f"cannot be read: {error.strerror}"))
    if missing and not may_be_gone:
        is_pattern = any(set("*?[") & set(os.path.basename(path)) for path in missing)
        reason = "no file has a name of this pattern" if is_pattern else "there is no such file or folder"
        if len(missing) == len(arguments.paths):
            raise ConversationNotFoundError(path=missing[0], reason=reason)
        found += [FoundSource(path, 0, 0, 0, why_not=reason) for path in missing]  # the others are still imported
    return found


def _import(arguments: Namespace, library: ConversationLibrary, found: list[FoundSource], tally: ImportTally) -> None:
    try:
        reports = import_conversations(
            found,
            library,
            format=arguments.format,
            diverged=arguments.diverged,
            dry_run=arguments.dry_run,
            since=arguments.since,
            cache=import_cache(),
            redact=redactor_of(arguments),
            jobs=arguments.jobs,
            empty=arguments.empty,
            again=arguments.again or _are_files(arguments.paths),
        )
    except ValueError as error:  # a package adds a format of that name that it can only write
        raise Misuse(str(error)) from None
    if len(found) == 1:
        with Working("importing") as working:
            for report in reports:
                with working.paused():
                    tally.add(report)
        return
    done = set()
    for report in reports:
        tally.add(report)
        done.add(report.source)
        if has_status():
            show_bar(len(done), len(found), before="importing ", after=f" {len(done):,}/{len(found):,}")


def _format(text: str) -> str:
    """The type of ``--format``. No package is imported to look at its name."""
    if text not in _FORMATS and text not in (added := added_names()):
        raise ArgumentTypeError(f"there is no format {text!r}; use one of {', '.join((*_FORMATS, *added))}")
    return text


def _follow(
    arguments: Namespace,
    library: ConversationLibrary,
    programs: frozenset[str],
    imported: list[FoundSource],
    tally: ImportTally,
) -> None:
    """Import each changed source again once it has been quiet for a while. Ends with Ctrl-C."""
    follower = SourceFollower(imported)
    while True:
        flush()
        time.sleep(_POLL_SECONDS)
        follower.look(_found(arguments, programs, may_be_gone=True), is_all=True)
        if changed := follower.due():
            _import(arguments, library, changed, tally)
            follower.imported(changed)
