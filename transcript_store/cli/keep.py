"""``transcript-store keep``: a library that follows the programs of this machine by itself."""

from __future__ import annotations

import calendar
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transcript_store import ConversationLibrary
from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.hints import import_cache
from transcript_store.cli._shared.keys import VARIABLE, add_keys, command_keys
from transcript_store.cli._shared.names import (
    backend_at,
    import_destination,
    is_backend_address,
    library_at,
    printable_name,
    taken_apart,
)
from transcript_store.cli._shared.redaction import add_redact, redactor_of
from transcript_store.cli._shared.tally import ImportTally
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    confirmed,
    for_shell,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_json,
    without_credentials,
)
from transcript_store.cli.programs import programs_meant
from transcript_store.file_names import absolute_path
from transcript_store.new_files import make_folders
from transcript_store.sources import PROGRAMS, discover

if TYPE_CHECKING:
    from transcript_store.keeping import KeepEvent, KeepService, KeepState, RetentionOutlook

DESCRIPTION = """\
Import the sessions of every program on this machine, and follow them until it is stopped. The library has each change some seconds
after the program wrote it, once, and keeps the session when the program deletes its own. The sources are not changed. Imported
conversations are indexed, and with --ship sent to a database or a bucket. A key seals them (see seal); --redact removes secrets.

  keep               run, in the foreground, until Ctrl-C
  keep install       install a service that runs while you are logged in; shows what it writes, and asks
  keep uninstall     stop the service, and remove it; the library stays
  keep status        what was imported, when and from where, what failed, how far it is behind, and what programs will delete
"""
EPILOG = """\
exit code of `status`: 0 if it runs and has no problem, 1 otherwise; of `--once`: 1 if a session, the index or the copy failed

examples:
  transcript-store keep --once                           import once, and stop
  transcript-store keep install --redact                 a service that removes keys and tokens
  transcript-store keep install --ship s3://bucket/mine  and a copy elsewhere
  transcript-store keep install --dry-run                show what would be written
  transcript-store keep status --json | jq '.retention[].sentence'
"""
_ACTIONS = ("run", "install", "uninstall", "status")
_SHOWN = 10
_LATE_LOOKS = 3
"""A keeper that has not read the folders for this many times its own pause does not keep up."""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "action", metavar="ACTION", nargs="?", choices=_ACTIONS, default="run", help=", ".join(_ACTIONS)
    )
    parser.add_argument(
        "--into",
        "--in",
        metavar="LIBRARY",
        type=path,
        help="a directory, or a backend's address (default: that of `chat`)",
    )
    parser.add_argument(
        "--only",
        metavar="PROGRAM",
        action="append",
        help="only the sessions of this program (may be repeated, or several with commas)",
    )
    parser.add_argument("--ship", metavar="ADDRESS", type=path, help="keep a copy on this backend too")
    parser.add_argument(
        "--with-key", action="store_true", help="with --ship: send key.json of sealed conversations too"
    )
    parser.add_argument("--once", action="store_true", help="import once, and stop")
    parser.add_argument("--poll", action="store_true", help="poll for changes even if watchfiles is installed")
    parser.add_argument(
        "--dry-run", action="store_true", help="write nothing; print what would be imported, or installed"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before install and uninstall")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each session, also on a terminal")
    add_redact(parser)
    add_keys(parser, what="the key; what is imported is sealed with it")
    add_json(parser, "one JSON object: an event, or the answer")


def run(arguments: Namespace) -> int:
    """Run, install, uninstall, or print the status."""
    if arguments.only is not None:
        arguments.only = _programs_named(arguments.only)
    if arguments.ship is not None and not is_backend_address(arguments.ship):
        raise Misuse("--ship takes a backend's address, such as postgresql://host/database or s3://bucket/prefix")
    if arguments.ship is not None and taken_apart(arguments.ship).what is not None:
        raise Misuse(f"--ship {printable_name(arguments.ship)}: name the library there; conversations keep their ids")
    library = import_destination(arguments.into)
    if arguments.ship is not None and is_backend_address(library):
        raise Misuse("--ship copies a library in a directory; this one is already on a backend")
    do = {"run": _run, "install": _install, "uninstall": _uninstall, "status": _status}
    return do[arguments.action](arguments, library)


def _programs_named(words: Sequence[str]) -> list[str]:
    known = [one.program for one in PROGRAMS if one.session_folders]
    names = [name for word in words for name in word.split(",")]
    found = {name: program for name in names for program in programs_meant(name, known)}
    if unknown := [name.strip() for name, program in found.items() if program is None]:
        raise Misuse(f"--only {', '.join(unknown)}: there is no such program; use one of {', '.join(known)}")
    return [program for program in dict.fromkeys(found.values()) if program is not None]


# ---- run -------------------------------------------------------------------------------------------------------------


def _run(arguments: Namespace, name: str) -> int:
    from transcript_store.keeping import Keeper, best_watcher, only_keeper, state_path

    if arguments.dry_run:
        return _dry_run(arguments, name)
    state = state_path(_identity(name))
    options = command_keys(arguments).options
    with only_keeper(printable_name(name), state):
        keeper = Keeper(
            lambda: library_at(name, creates=True, **options),
            state_path=state,
            say=lambda event: _tell(arguments, event),
            programs=arguments.only,
            cache=import_cache(),
            redact=redactor_of(arguments),
            shipper=None if arguments.ship is None else _shipper(arguments, name),
            ships_to="" if arguments.ship is None else printable_name(arguments.ship),
            watcher=best_watcher(polls=arguments.poll),
            jobs=min(4, os.cpu_count() or 1),
        )
        if not (arguments.once or arguments.json or arguments.verbose):  # the service has --verbose
            say("it follows the programs until Ctrl-C; `transcript-store keep install` makes it a service", now=True)
        before = signal.signal(signal.SIGTERM, _end)  # like Ctrl-C: systemd and launchd stop a service with it
        try:
            keeper.run(once=arguments.once)
        except KeyboardInterrupt:
            return 0  # the ordinary end
        finally:
            signal.signal(signal.SIGTERM, before)
    return 1 if _has_failed(keeper.state) else 0


def _has_failed(state: KeepState) -> bool:
    """True if a session was not imported, or the copy was not sent."""
    return bool(state.failed or state.problem is not None or (state.ship is not None and state.ship["failed"]))


def _end(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _identity(name: str) -> str:
    return name if is_backend_address(name) else absolute_path(name)


def _shipper(arguments: Namespace, name: str) -> Any:
    from transcript_store.backends import LibraryShipper

    make_folders(absolute_path(name))
    return LibraryShipper(absolute_path(name), backend_at(arguments.ship, creates=True), with_key=arguments.with_key)


def _tell(arguments: Namespace, event: KeepEvent) -> None:
    """Print an event: totals on a terminal, each session in a log."""
    if arguments.json:
        say_json({"at": _now(), "event": event.kind, **event.facts, "text": event.text})
    elif event.kind in ("failed", "problem", "gap"):
        complain(event.text)
    elif event.kind != "imported" or arguments.verbose or not is_at_a_terminal():
        say(one_line(event.text), now=True)
    if arguments.json:
        sys.stdout.flush()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _dry_run(arguments: Namespace, name: str) -> int:
    from transcript_store.importing import import_conversations

    found = [one for one in discover() if arguments.only is None or one.program in arguments.only]
    programs = {one.path: one.program or "?" for one in found}
    tally = ImportTally(programs, is_json=arguments.json, is_dry_run=True, is_verbose=arguments.verbose)
    library = library_at(name, **command_keys(arguments).options)
    redact = redactor_of(arguments)
    for report in import_conversations(
        found, library, dry_run=True, diverged="fork", cache=import_cache(), redact=redact
    ):
        tally.add(report)
    if not arguments.json:
        tally.say_all(library, "")
    return tally.exit_code


# ---- install, uninstall ----------------------------------------------------------------------------------------------


def _service(arguments: Namespace, name: str) -> KeepService:
    from transcript_store.keeping import service_for

    words = [sys.executable, "-m", "transcript_store", "keep", "--into", _identity(name)]
    for program in arguments.only or ():
        words += ["--only", program]
    if arguments.ship is not None:
        if (
            without_credentials(arguments.ship) != arguments.ship
            and ":" in arguments.ship.partition("@")[0].partition("://")[2]
        ):
            raise Misuse(
                "--ship: the service's file would contain the password; put it into ~/.pgpass, or into the service's environment"
            )
        words += ["--ship", arguments.ship] + ["--with-key"] * arguments.with_key
    words += ["--redact"] * bool(arguments.redact) + ["--poll"] * arguments.poll + ["--verbose"]
    for pattern in arguments.redact_pattern or ():
        words += ["--redact-pattern", pattern]
    for file in arguments.key_file:
        words += ["--key-file", os.path.abspath(os.path.expanduser(file))]
    words += ["--no-key"] * arguments.no_key
    return service_for(words)


def _install(arguments: Namespace, name: str) -> int:
    """Show the file and the commands, ask, and install."""
    from transcript_store.new_files import replace_file

    if command_keys(arguments) and command_keys(arguments).files[0] == VARIABLE:
        raise Misuse(f"{VARIABLE} holds the key itself, which the service's file would contain: give --key-file FILE")
    service = _service(arguments, name)
    commands = [" ".join(map(for_shell, command)) for command in service.start]
    answer = {"kind": service.kind, "path": service.path, "text": service.text, "commands": commands}
    if not arguments.json:
        say(f"{one_line(service.path)}:")
        say()
        say(service.text)
        for command in commands:
            say(f"  {command}")
        for note in service.notes:
            say(f"({note})")
        if os.path.lexists(service.path):
            say("(it replaces the existing service)")
    is_wanted = not arguments.dry_run and (
        arguments.yes or (not arguments.json and confirmed("Write it, and start it?"))
    )
    if not is_wanted:
        if arguments.json:
            say_json({**answer, "is_written": False, "is_started": False})
        elif not arguments.dry_run:
            complain("nothing was written; --yes writes it")
        return 0 if arguments.dry_run else 1
    replace_file(service.path, service.text.encode())
    problem = _carry_out(service.start)
    if arguments.json:
        say_json({**answer, "is_written": True, "is_started": problem is None, "problem": problem})
    elif problem is None:
        say("it runs; `transcript-store keep status` shows its state")
    if problem is not None:
        complain(f"{service.path} was written, but not started: {problem}")
    return 0 if problem is None else 1


def _carry_out(commands: Sequence[Sequence[str]]) -> str | None:
    """Run the commands; return why one failed, or None."""
    for command in commands:
        if shutil.which(command[0]) is None:
            return f"there is no {command[0]} on this machine; run the service's command another way"
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own words)
        if done.returncode:
            return (
                f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip() or f'exit code {done.returncode}'}"
            )
    return None


def _uninstall(arguments: Namespace, name: str) -> int:
    service = _service(arguments, name)
    is_there = os.path.lexists(service.path)
    commands = [" ".join(map(for_shell, command)) for command in service.stop]
    answer = {"kind": service.kind, "path": service.path, "commands": commands, "was_there": is_there}
    if not is_there:
        if arguments.json:
            say_json({**answer, "is_removed": False})
        else:
            say(f"{one_line(service.path)}: there is no such service")
        return 0
    if not arguments.json:
        for command in [*commands, f"rm {for_shell(service.path)}"]:
            say(f"  {command}")
    if arguments.dry_run or not (arguments.yes or (not arguments.json and confirmed("Stop it, and remove the file?"))):
        if arguments.json:
            say_json({**answer, "is_removed": False})
        elif not arguments.dry_run:
            complain("nothing was removed; --yes removes it")
        return 0 if arguments.dry_run else 1
    problem = _carry_out(service.stop)
    os.unlink(service.path)
    if arguments.json:
        say_json({**answer, "is_removed": True, "problem": problem})
    else:
        say("removed; what was imported stays")
        if problem is not None:
            complain(problem)
    return 0


# ---- status ----------------------------------------------------------------------------------------------------------


def _status(arguments: Namespace, name: str) -> int:
    from transcript_store.keeping import KeepState, is_kept, read_state, retention_outlook, state_path

    where = state_path(_identity(name))
    state, runs = read_state(where), is_kept(where)
    with Working("comparing what is here with the library"):
        found = [one for one in discover() if arguments.only is None or one.program in arguments.only]
        library = _library_if_there(name, command_keys(arguments).options)
        behind = _behind(found, library)
        outlooks = retention_outlook(found, library, cache=import_cache())
    late = _late(state) if runs and state is not None else None
    known_state = state or KeepState(library=_identity(name))
    is_ok = runs and late is None and not _has_failed(known_state) and not any(one.missing for one in outlooks)
    if arguments.json:
        say_json(
            {
                "runs": runs,
                "is_ok": is_ok,
                "late_seconds": late,
                **asdict(known_state),
                "library": printable_name(known_state.library),
                "behind": behind,
                "retention": [{**asdict(one), "sentence": one.sentence} for one in outlooks],
            }
        )
    else:
        _say_status(known_state, runs, late, behind, outlooks)
    return 0 if is_ok else 1


def _library_if_there(name: str, options: dict[str, Any]) -> ConversationLibrary | None:
    if not is_backend_address(name) and not os.path.isdir(name):
        return None
    return library_at(name, **options)


def _behind(found: list[Any], library: ConversationLibrary | None) -> dict[str, int]:
    """For each program, how many sources have something that the library lacks."""
    from transcript_store.importing import import_conversations

    programs = {one.path: one.program or "?" for one in found}
    counts: dict[str, int] = {}
    if library is None:
        for program in programs.values():
            counts[program] = counts.get(program, 0) + 1
        return counts
    seen = set()
    for report in import_conversations(found, library, dry_run=True, cache=import_cache(), diverged="fork"):
        source = report.source.partition("!")[0]
        if report.action not in ("unchanged", "empty", "deleted", "skipped") and source not in seen:
            seen.add(source)
            program = programs.get(source, report.format or "?")
            counts[program] = counts.get(program, 0) + 1
    return counts


def _late(state: KeepState) -> float | None:
    """For how long a running keeper has not read the folders, if that is too long; None if it keeps up."""
    try:
        looked = calendar.timegm(time.strptime(state.looked_at or "", "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None
    since = time.time() - looked
    return round(since) if since > max(60.0, _LATE_LOOKS * state.looks_every_seconds) else None


def _say_status(
    state: KeepState, runs: bool, late: float | None, behind: dict[str, int], outlooks: list[RetentionOutlook]
) -> None:
    say(f"library   {one_line(printable_name(state.library))}")
    if runs:
        say(f"keep      runs since {state.started_at}, process {state.pid}, by {state.how}")
    else:
        say(
            "keep      does not run: `transcript-store keep install` makes it a service, `transcript-store keep` runs it"
        )
    if late is not None:
        say(f"          has not read the folders for {late:,.0f} seconds: it is stopped, or the machine slept")
    if state.imported_at is not None:
        say(f"imported  last at {state.imported_at}; indexed at {state.indexed_at or 'no time yet'}")
    if (gap := state.last_gap) is not None:
        say(
            f"stood     still, or the clock was set, at {gap['at']}, by {gap['seconds']:,} seconds; everything was compared again"
        )
    if state.ship is not None:
        to, at = one_line(state.ship["to"]), state.ship["at"]
        if at is None:
            say(f"ship      to {to}: nothing was sent yet")
        elif state.ship["failed"]:
            say(f"ship      to {to} failed at {at}; the number of records still to send is unknown")
        else:
            say(f"shipped   to {to} at {at}; {state.ship['left_records']:,} records still to send")
        for what, reason in [*state.ship["failed"].items()][:_SHOWN]:
            complain(f"not shipped: {_about(what, reason)}")
    for program, its in sorted(state.programs.items()):
        if its.sessions or its.imports:
            lag = f", {behind[program]:,} of them have something that the library lacks" if behind.get(program) else ""
            last = f"; last {its.last_at} from {one_line(its.last_source or '')}" if its.last_at else ""
            say(f"  {program:<14} {many(its.sessions, 'session')}{lag}{last}")
    for program, count in sorted(behind.items()):
        if program not in state.programs:
            say(f"  {program:<14} {many(count, 'session')} that {'is' if count == 1 else 'are'} not in the library")
    if state.problem is not None:
        complain(f"since {state.problem['since']} it cannot {state.problem['doing']}: {state.problem['reason']}")
    for source, failure in [*state.failed.items()][:_SHOWN]:
        complain(_about(source, failure["reason"]))
    if len(state.failed) > _SHOWN:
        complain(f"and {len(state.failed) - _SHOWN:,} more that failed (--json has all)")
    from transcript_store.cli.doctor import say_outlooks  # here: `doctor` imports its probes

    say_outlooks(outlooks)


def _about(path: str, reason: str) -> str:
    """A reason with the path that it is about, once: an error of the library begins with it."""
    return reason if path in reason else f"{path}: {reason}"
