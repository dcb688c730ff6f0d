"""``transcript-store session``: repair, restore and relink the sessions of other programs, under safeguards."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict

from transcript_store import ConversationLibrary, TranscriptStoreError
from transcript_store.cli._shared.arguments import HelpFormatter, add_json, path
from transcript_store.cli._shared.keys import add_keys, command_keys, say_what_does_not_open
from transcript_store.cli._shared.names import existing, is_backend_address, libraries, library_at, with_id
from transcript_store.cli._shared.terminal import Misuse, Working, complain, for_shell, many, one_line, say, say_json
from transcript_store.exporting import ExportError
from transcript_store.library import iter_with_labels
from transcript_store.sessions import (
    Mend,
    Program,
    RelinkedConversation,
    RelinkedProgram,
    RepairedFile,
    RestoredSession,
    Undone,
    find_session,
    finished_changes,
    folders_of,
    interrupted_change,
    line_programs,
    moved_folder,
    program_named,
    program_names,
    program_of,
    relink_library,
    relink_program,
    relinkable_programs,
    repair_file,
    repair_program,
    require_not_running,
    restore_session,
    undo_change,
    undo_interrupted,
)

DESCRIPTION = """\
Change the session files of other programs: repair torn ones, restore lost sessions, follow a project that was moved.

Each command shows what it would do, and does it with --apply: completely or not at all; the next call undoes a killed one. It is
refused while the program runs. A copy of every file and database that changes is kept next to it, and
`transcript-store session undo` restores the copies.
"""
EPILOG = """\
examples:
  transcript-store session repair copilot                    list its torn files
  transcript-store session restore 0b8f --apply              restore a session into its program
  transcript-store session relink ~/shop ~/code/shop --in claude-code,codex

exit code: 0 if nothing had to be done or it was done; 1 if --apply is missing, or it failed; 2 misuse
"""
_MOST_MENDS = 20
_OTHER_NAMES = {"claude": "claude-code", "gemini": "gemini-cli", "qwen": "qwen-code", "copilot-cli": "copilot"}


def configure(parser: ArgumentParser) -> None:
    """Add the commands."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="session_command")

    def add(name: str, run: Callable[[Namespace], int], what: str, more: str) -> ArgumentParser:
        command = commands.add_parser(
            name, help=what, description=f"{what[0].upper()}{what[1:]}.\n\n{more}", formatter_class=HelpFormatter
        )
        command.set_defaults(run_session=run)
        command.add_argument("--apply", action="store_true", help="do it")
        command.add_argument("--dry-run", action="store_true", help="change nothing (the default without --apply)")
        return command

    repair = add(
        "repair",
        _repair,
        "repair torn session files, so that their program reads them",
        "Splits lines with several objects, removes NUL bytes, byte order marks and empty lines, escapes raw line\n"
        "feeds and U+2028 within texts, and cuts torn lines. Reports what was cut, and where.",
    )
    names = ", ".join(line_programs())
    repair.add_argument("what", metavar="FILE|PROGRAM", type=path, help=f"a session file, or one of: {names}")
    add_json(repair, "one JSON object a file that has faults")
    restore = add(
        "restore",
        _restore,
        "restore a session, so that its program lists and resumes it",
        "Writes the imported bytes into the files, and adds the session to the program's list. Sessions that the program\n"
        "already lists are skipped.",
    )
    restore.add_argument(
        "what",
        metavar="ID|PROGRAM",
        type=path,
        help="the conversation, as `show` takes it, or the id of the program's session; or a program, for all of its sessions",
    )
    restore.add_argument("id", metavar="ID|LIBRARY", nargs="?", help="its id in the library, or the library of all")
    restore.add_argument("--to", metavar="PROGRAM", help="another program, which gets a new session")
    add_keys(restore)
    add_json(restore, "one JSON object")
    relink = add(
        "relink",
        _relink,
        "reunite a project whose folder was renamed or moved",
        "Changes the folder of a library's conversations from OLD to NEW; with --in also in the programs' own files.",
    )
    relink.add_argument("old", metavar="OLD", type=path, help="where the project was")
    relink.add_argument("new", metavar="NEW", type=path, help="where it is")
    relink.add_argument(
        "library", metavar="LIBRARY", nargs="?", type=path, help="the library (default: that of `chat`)"
    )
    relink.add_argument(
        "--in", dest="programs", metavar="PROGRAMS", help=f"separated by commas: {', '.join(relinkable_programs())}"
    )
    add_keys(relink)
    add_json(relink, "one JSON object a conversation, and one a program")
    undo = add(
        "undo",
        _undo,
        "restore the files that a change replaced",
        "Without CHANGE, undoes the newest one. Files that changed since then stay.",
    )
    undo.add_argument("what", metavar="FILE|PROGRAM", type=path, help="the file or the program that was changed")
    undo.add_argument("change", metavar="CHANGE", nargs="?", help="the id of the change")
    add_json(undo, "one JSON object")


def run(arguments: Namespace) -> int:
    """Run one of the commands."""
    if arguments.dry_run and arguments.apply:
        raise Misuse("--dry-run changes nothing, and --apply does")
    run_session: Callable[[Namespace], int] = arguments.run_session
    return run_session(arguments)


def _program(name: str) -> str | None:
    """The name of a known program, however a person wrote it; None if it is unknown."""
    name = _OTHER_NAMES.get(name.lower(), name.lower())
    return name if name in program_names() else None


def _finish_interrupted(program: Program | None, folder: str, arguments: Namespace) -> bool:
    """Undo a killed change before anything else is planned; without --apply, only report it. True if there was one.

    Raises:
        SessionChangeError: the program runs.
    """
    if (what := interrupted_change(folder)) is None:
        return False
    if not arguments.apply:
        complain(f"{folder}: `{what}` was interrupted; the next call with --apply undoes it first")
        return True
    require_not_running(program, folder, [])
    if (undone := undo_interrupted(folder)) is not None:
        complain(
            f"{folder}: `{undone.what}` was interrupted, and is undone: {many(len(undone.put_back), 'file')} put back"
        )
    return True


# ---- repair -----------------------------------------------------------------------------------------------------------


def _repair(arguments: Namespace) -> int:
    name = None if os.path.lexists(arguments.what) else _program(arguments.what)
    if name is None and not os.path.isfile(arguments.what):
        raise Misuse(f"{arguments.what} is neither a file nor a program; the programs are {', '.join(line_programs())}")
    if name is not None and name not in line_programs():
        raise Misuse(
            f"{name} keeps its sessions in a database, which this cannot repair; `sqlite3 FILE .recover` can read one"
        )
    if name is None:
        found = program_of(os.path.abspath(arguments.what))
        program, folder = found or (None, os.path.dirname(os.path.abspath(arguments.what)))
        _finish_interrupted(program, folder, arguments)
        results: Iterator[RepairedFile] = iter([repair_file(arguments.what, apply=arguments.apply)])
    else:
        for folder in folders_of(program_named(name)):
            _finish_interrupted(program_named(name), folder, arguments)
        results = repair_program(program_named(name), apply=arguments.apply)
    with Working("looking"):
        found_all = list(results)
    faulty = [result for result in found_all if result.needs_repair]
    for result in faulty:
        if arguments.json:
            say_json({**asdict(result), "mends": [asdict(mend) for mend in result.mends]})
        else:
            _say_repair(result)
    undone = [result for result in faulty if not result.applied]
    mendable = [result for result in undone if result.reason is None]
    if not arguments.json:
        if not faulty:
            say(f"{many(len(found_all), 'session file')}: nothing to repair")
        elif mendable:
            count = f"{len(mendable):,} of {many(len(found_all), 'session file')}"
            say(f"{count} would change; nothing was changed: add --apply")
    return 1 if undone else 0


def _say_repair(result: RepairedFile) -> None:
    say(one_line(result.path))
    if result.reason is not None:
        say(f"  cannot be repaired: it {one_line(result.reason)}")
        return
    for mend in result.mends[:_MOST_MENDS]:
        say(f"  line {mend.line:,}, byte {mend.offset:,}: {one_line(mend.message)}{_excerpt(mend)} [{mend.kind}]")
    if len(result.mends) > _MOST_MENDS:
        say(f"  and {many(len(result.mends) - _MOST_MENDS, 'more fault')} (--json lists them)")
    verb = "has" if result.applied else "would have"
    say(f"  {verb} {many(result.lines, 'line')}, {result.bytes_after:,} bytes instead of {result.bytes_before:,}")
    if result.original is not None:
        say(f"  as it was: {one_line(for_shell(result.original))}")


def _excerpt(mend: Mend) -> str:
    return f": {one_line(mend.excerpt)}" if mend.excerpt else ""


# ---- restore ----------------------------------------------------------------------------------------------------------


def _restore(arguments: Namespace) -> int:
    if not os.path.lexists(arguments.what) and (name := _program(arguments.what)) is not None:
        return _restore_all(name, arguments)
    library, own_id = _named(arguments)
    to = None if arguments.to is None else _program(arguments.to)
    if arguments.to is not None and to is None:
        raise Misuse(f"{arguments.to!r} is not a known program; use one of {', '.join(program_names())}")
    for name in program_names() if to is None else (to,):
        for folder in folders_of(program_named(name)):
            _finish_interrupted(program_named(name), folder, arguments)
    try:
        with Working("reading"):
            done = restore_session(library, own_id, to=to, apply=arguments.apply)
    except ValueError as error:
        raise Misuse(str(error)) from None
    if arguments.json:
        say_json({**asdict(done), "is_listed": done.is_listed})
    else:
        _say_restore(done)
    return 0 if done.applied or done.is_listed else 1


def _restore_all(name: str, arguments: Namespace) -> int:
    """Every session of a program that is in a library and not in the program."""
    if arguments.to is not None:
        raise Misuse("--to is for one conversation: `session restore ID --to PROGRAM`")
    for folder in folders_of(program_named(name)):
        _finish_interrupted(program_named(name), folder, arguments)
    [directory] = libraries([] if arguments.id is None else [arguments.id], on_backends=True)
    keys = command_keys(arguments)
    say_what_does_not_open(directory, keys)
    library = library_at(directory, **keys.options)
    labels = [(each.id, each.labels or {}) for each in iter_with_labels(library)]
    own_ids = [own for own, its in labels if own is not None and its.get("source") == name and "part_of" not in its]
    open_ones = done = 0
    with Working("reading") as working:
        for own in own_ids:
            try:
                found = restore_session(library, own, apply=arguments.apply)
            except ExportError as error:
                with working.paused():
                    complain(f"{own}: {error.reason}")
                open_ones += 1
                continue
            if found.is_listed:
                continue
            done += found.applied
            open_ones += not found.applied
            with working.paused():
                if arguments.json:
                    say_json({**asdict(found), "is_listed": False})
                else:
                    _say_restore(found)
    if not arguments.json:
        say(
            f"{many(len(own_ids), 'session')} of {name} in {one_line(directory)}: {done:,} restored, {open_ones:,} to restore"
        )
    return 1 if open_ones else 0


def _named(arguments: Namespace) -> tuple[ConversationLibrary, str]:
    """The library and the conversation's id. The id of a program's session counts too."""
    keys = command_keys(arguments).options
    words = (arguments.what,) if arguments.id is None else (arguments.what, arguments.id)
    try:
        found = existing(*words)
        if is_backend_address(found):
            address, own_id = with_id(found)
            return library_at(address, **keys), own_id
        if os.path.isdir(found):
            return ConversationLibrary(os.path.dirname(found), **keys), os.path.basename(found)
    except TranscriptStoreError:
        found = ""
    [directory] = libraries([] if arguments.id is None else [arguments.what], on_backends=True)
    library = library_at(directory, **keys)
    if (own := find_session(library, words[-1])) is None:
        raise Misuse(f"{words[-1]!r} is neither a conversation of {directory}, nor a session that was imported into it")
    return library, own


def _say_restore(done: RestoredSession) -> None:
    if done.is_listed:
        say(f"{done.program} has session {one_line(str(done.session))} already: nothing to restore")
    else:
        verb = "restored to" if done.applied else "would be restored to"
        say(f"session {one_line(str(done.session))} {verb} {done.program}")
    for file in done.files:
        say(f"  {file.action:8} {one_line(file.path)}{f' ({one_line(file.reason)})' if file.reason else ''}")
        if file.copy is not None:
            say(f"           as it was: {one_line(for_shell(file.copy))}")
    for note in done.notes:
        complain(note)
    if done.command is not None and (done.applied or done.is_listed):
        going = f"cd {for_shell(done.cwd)} && " if done.cwd and done.cwd != os.getcwd() else ""
        say(f"resume it: {one_line(going + done.command)}")
    elif not done.is_listed:
        say("nothing was changed: add --apply")


# ---- relink -----------------------------------------------------------------------------------------------------------


def _relink(arguments: Namespace) -> int:
    names = _programs_of(arguments.programs)
    try:
        moved = moved_folder(arguments.old, arguments.new)
    except ValueError as error:
        raise Misuse(str(error)) from None
    if any(os.path.isdir(old) and not os.path.islink(old) for old in moved.old):
        complain(f"{moved.old[0]} still exists; its sessions move to {moved.new} anyway")
    # The programs first: each is one transaction. The library can be relinked again until it is complete.
    programs: list[RelinkedProgram] = []
    for name in names:
        for folder in folders_of(program_named(name)):
            _finish_interrupted(program_named(name), folder, arguments)
            if arguments.apply:  # before the first of them is changed
                require_not_running(program_named(name), folder, [])
    for name in names:
        programs += relink_program(name, moved, apply=arguments.apply)
    directory = _library_of(arguments)
    conversations: list[RelinkedConversation] = []
    if directory is not None:
        keys = command_keys(arguments)
        say_what_does_not_open(directory, keys)
        conversations = list(relink_library(library_at(directory, **keys.options), moved, apply=arguments.apply))
    failed = [each for each in conversations if each.reason is not None]
    if arguments.json:
        for program in programs:
            say_json(asdict(program))
        for conversation in conversations:
            say_json(asdict(conversation))
    else:
        for program in [each for each in programs if each.steps] or programs[:1]:
            _say_relink(program, is_applied=arguments.apply)
        done = len(conversations) - len(failed)
        verb = "would be" if not arguments.apply else "is" if done == 1 else "are"
        say(f"{many(done, 'conversation')} {verb} listed under {one_line(moved.new)}")
        for each in failed:
            complain(f"{each.id}: {each.reason}")
        if not arguments.apply and (conversations or any(program.steps for program in programs)):
            say("nothing was changed: add --apply")
    is_open = not arguments.apply and (conversations or any(program.steps for program in programs))
    return 1 if failed or is_open else 0


def _library_of(arguments: Namespace) -> str | None:
    """The library; None if none is named, and there is none yet."""
    try:
        [directory] = libraries([] if arguments.library is None else [arguments.library], on_backends=True)
    except (Misuse, TranscriptStoreError):
        if arguments.library is not None or arguments.programs is None:
            raise
        return None
    return directory


def _programs_of(text: str | None) -> list[str]:
    names = [] if text is None else [word.strip() for word in text.split(",") if word.strip()]
    found = [_program(name) for name in names]
    for word, name in zip(names, found, strict=True):
        if name not in relinkable_programs():
            raise Misuse(f"the files of {word!r} cannot be relinked; those of {', '.join(relinkable_programs())} can")
    return [name for name in dict.fromkeys(found) if name is not None]


def _say_relink(program: RelinkedProgram, *, is_applied: bool) -> None:
    verb = "relinked" if is_applied else "would be relinked"
    say(f"{program.program}: {many(program.sessions, 'session')} {verb} ({one_line(program.folder)})")
    for where, what in program.steps[:_MOST_MENDS]:
        say(f"  {one_line(where)}: {one_line(what)}")
    if len(program.steps) > _MOST_MENDS:
        say(f"  and {many(len(program.steps) - _MOST_MENDS, 'more step')} (--json lists them)")
    for note in program.notes:
        complain(note)
    if program.change is not None:
        say(f"  to undo it: transcript-store session undo {program.program} {program.change} --apply")


# ---- undo -------------------------------------------------------------------------------------------------------------


def _undo(arguments: Namespace) -> int:
    name = None if os.path.lexists(arguments.what) else _program(arguments.what)
    found = program_of(os.path.abspath(arguments.what)) if name is None else None
    if name is not None:
        program: Program | None = program_named(name)
        folders = list(folders_of(program_named(name)))
    elif found is not None:
        program, folders = found[0], [found[1]]
    else:
        program, folders = None, [os.path.dirname(os.path.abspath(arguments.what))]
    interrupted = [_finish_interrupted(program, folder, arguments) for folder in folders]
    if any(interrupted):
        return 0 if arguments.apply else 1
    changes = [(change, folder) for folder in folders for change in finished_changes(folder)]
    if arguments.change is not None:
        changes = [(change, folder) for change, folder in changes if change == arguments.change]
    if not changes:
        raise Misuse(f"there is no change of {arguments.what} to undo")
    change, folder = max(changes)
    if not arguments.apply:
        if arguments.json:
            say_json({"id": change, "folder": folder, "applied": False})
        else:
            say(f"{change} in {one_line(folder)} would be undone; nothing was changed: add --apply")
        return 1
    require_not_running(program, folder, [])
    _say_undone(undo_change(folder, change), arguments)
    return 0


def _say_undone(undone: Undone, arguments: Namespace) -> None:
    if arguments.json:
        say_json({**asdict(undone), "applied": True})
        return
    say(f"undone: {one_line(undone.what)}")
    for where in undone.put_back:
        say(f"  put back {one_line(where)}")
    for where in undone.left:
        complain(f"{where}: it was changed since, so it stays; the earlier bytes are next to it")
