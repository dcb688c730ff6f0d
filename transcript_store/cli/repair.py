"""``transcript-store verify`` and ``repair``: is a conversation damaged, and what would a repair keep?"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from transcript_store import ConversationStore, Finding, Repair, Verification
from transcript_store import repair as mend
from transcript_store import verify as look_at
from transcript_store.cli._shared.arguments import add_conversation, add_json
from transcript_store.cli._shared.arguments import path as folder_path
from transcript_store.cli._shared.hints import as_members, in_the_shell
from transcript_store.cli._shared.keys import VARIABLE, CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import (
    conversation_at,
    is_backend_address,
    library_at,
    printable_name,
    summary_at,
    with_id,
)
from transcript_store.cli._shared.terminal import (
    Misuse,
    complain,
    for_shell,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_json,
    say_on,
)
from transcript_store.cli._shared.whole_libraries import all_of, each_of
from transcript_store.display import line_location
from transcript_store.library import with_misplaced

VERIFY_DESCRIPTION = """\
Check every line of the conversation in DIR, its archived generations and its metadata. Report each damage: where, what kind,
and what to do. Nothing is changed and no lock is taken. Beside a live writer, the line that is being written may show as a
torn tail.

For a library, check all conversations: a line for each damaged one, and a total.

A sealed conversation is checked as far as possible without the key; with the key every record is opened too.
"""
VERIFY_EPILOG = """\
exit code: 0 if everything is intact, 1 if anything is damaged

examples:
  transcript-store verify chats/today
  transcript-store verify chats                                  all of them
  transcript-store verify                                        all of the default library
  transcript-store verify chats/today --json | jq '.findings[].hint'
"""


def configure_verify(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True, or_none=True)
    add_keys(parser, what="the key, to check sealed records too")
    add_json(parser, "one JSON object a conversation")


def run_verify(arguments: Namespace) -> int:
    """Verify, and print the findings. The exit code is 1 if anything is damaged."""
    if (names := all_of(arguments.directory)) is not None:
        return _verify_all(names, arguments)
    keys = command_keys(arguments)
    found, is_sealed = _look_at(arguments.directory)
    if not arguments.json:
        _print(found, is_sealed=is_sealed)
    if found.is_intact and (keys or is_sealed):
        _open(arguments.directory, found, keys, is_json=arguments.json)
    # After the key was tried: what it does not open is not called intact.
    if arguments.json:
        _say_json(found, is_sealed=is_sealed)
    else:
        _say_verdict(found)
    return 0 if found.is_intact else 1


def _verify_all(names: Sequence[str], arguments: Namespace) -> int:
    """Verify a library. Without the key, sealed records are not opened; one line says how many conversations that concerns."""
    keys = command_keys(arguments)
    code = each_of(arguments, names, lambda name: _problem(name, keys, arguments), "verifying", "intact")
    sealed = 0 if keys else sum(summary is not None and summary.sealed for summary in map(summary_at, names))
    if sealed and not arguments.json:
        which = "1 is sealed, and its" if sealed == 1 else f"{sealed:,} are sealed, and their"
        complain(f"{which} records were not opened: that needs the key")
    return code


def _problem(name: str, keys: CommandKeys, arguments: Namespace) -> str | None:
    """The damage of a conversation of a library, in a line; None if it is intact."""
    found, is_sealed = _look_at(name, is_in_library=True)
    if found.is_intact and keys and is_sealed:
        _open(name, found, keys, is_json=True)
    if arguments.json:
        _say_json(found, is_sealed=is_sealed)
    return _in_a_line(found)


def _in_a_line(found: Verification) -> str | None:
    """The damage, with a hint; None if there is none."""
    if found.is_intact:
        return None
    first, *others = found.findings
    where = line_location(first.line_number, first.offset_bytes)
    more = f", and {many(len(others), 'finding')} more" if others else ""
    return f"{first.path}{where}: {first.kind}: {first.reason}{more}; {in_the_shell(first.hint, found.directory)}"


def _look_at(name: str, *, is_in_library: bool = False) -> tuple[Verification, bool]:
    """The result of a verification, and whether the conversation is sealed."""
    if is_backend_address(name):
        library, own_id = with_id(name)
        found = library_at(library).verify(own_id)
    else:
        found = look_at(name)
    summary = summary_at(name)
    # A folder outside of a library may have any name, also a UUID of your own.
    if is_in_library and summary is not None and not is_backend_address(name):
        found = with_misplaced(found, os.path.basename(found.directory), summary.id)
    return found, summary is not None and summary.sealed


def _open(name: str, found: Verification, keys: CommandKeys, *, is_json: bool) -> None:
    """Open every record with the key; raise if the key is wrong, or if a record was not sealed here."""
    if keys:
        with conversation_at(name, read_only=True, **keys.options) as conversation:
            conversation.load()
            for generation in (*found.archived_generations, None):
                for _ in conversation.iter_records(generation=generation):
                    pass
    if not is_json:
        say("the key opens every record" if keys else "without the key, the sealed records were not opened")


def _print(found: Verification, *, is_sealed: bool) -> None:
    say(one_line(found.directory))
    if any(finding.path == found.directory for finding in found.findings):
        pass  # the finding is about the folder itself: there is no conversation to describe
    elif found.generation is None:
        say("  transcript   cannot be read, from its first line")
    else:
        say(f"  transcript   {many(found.records, 'whole record')}, generation {found.generation}, head {found.head}")
        if is_sealed:
            say("  sealed       these findings need no key")
    if found.archived_generations:
        generations = ", ".join(map(str, found.archived_generations))
        say(f"  archive      {many(len(found.archived_generations), 'earlier generation')}: {generations}")
    if found.quarantined:
        say(f"  quarantine   {many(len(found.quarantined), 'file')} of bytes that recovery removed (not damage):")
    for path in found.quarantined:
        say(f"    {one_line(path)}")
    for finding in found.findings:
        say()
        where = line_location(finding.line_number, finding.offset_bytes)
        length = "" if finding.length_bytes is None else f" ({many(finding.length_bytes, 'byte')})"
        if finding.path != found.directory:  # the first line of the output is the directory
            say(f"{one_line(finding.path)}{where}{length}")
        say(f"  {finding.kind}: {one_line(finding.reason)}")
        say(f"  hint: {one_line(in_the_shell(finding.hint, found.directory))}")
    say()


def _say_json(found: Verification, *, is_sealed: bool) -> None:
    findings = [as_members(finding, found.directory) for finding in found.findings]
    say_json({**asdict(found), "is_intact": found.is_intact, "findings": findings, "is_sealed": is_sealed})


def _say_verdict(found: Verification) -> None:
    if any(finding.path == found.directory for finding in found.findings):
        say("nothing was checked")  # there is no conversation that could be intact or damaged
    else:
        say("intact: no problem found" if found.is_intact else f"damaged: {many(len(found.findings), 'finding')}")


REPAIR_DESCRIPTION = """\
List the damage of the conversation in DIR, and what each repair mode would keep and leave out. Nothing is changed without
--apply. With it a new generation is written, and the damaged files are kept byte for byte in quarantine/; verify then finds
no problem. `transcript-store show DIR --salvage` reads it without repairing it.

  prefix        the records before the first damage
  salvage       every whole record; a record without a message marks each gap
  accept-edits  every line that has the form of a record: for files that were edited by hand

A sealed conversation is repaired without its key; the sealed records are kept unchanged. Commands with the key then refuse it
until --accept-unkeyed-repair, because a person without the key may have removed records.

On a backend nothing is rewritten. This lists what could be kept; --into DIR writes the damaged conversation into a folder. Repair
that one, and `fork DIR --into URL` brings it back under another id.

For a library it lists, for each damaged conversation, what each mode would keep, and a total; nothing is changed.

If the modes keep different records, --apply needs --mode; on a terminal it asks.
"""
REPAIR_EPILOG = """\
exit code: 0 if there is nothing to repair or it was repaired, 1 if there is damage and nothing was done, 2 if no mode
was chosen

examples:
  transcript-store repair chats/today
  transcript-store repair chats/today --mode salvage --apply
  transcript-store repair postgresql://keeper@db.example/agents/0b8f --into left
"""
_WRITTEN_ONCE = (
    "a conversation on a backend is not repaired there: `transcript-store repair URL --into DIR` writes it into a folder, "
    "to repair it there"
)
_MODES = ("prefix", "salvage", "accept-edits")


def configure_repair(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    what = "for a conversation on a backend: write the damaged conversation into this new folder"
    parser.add_argument("--into", metavar="DIR", type=folder_path, help=what)
    parser.add_argument("--mode", choices=_MODES, help="what to keep (default: show all modes)")
    parser.add_argument("--apply", action="store_true", help="do it")
    parser.add_argument("--dry-run", action="store_true", help="change nothing (the default without --apply)")
    parser.add_argument(
        "--accept-unkeyed-repair", action="store_true", help="accept a sealed conversation as a repair has left it"
    )
    add_keys(parser, what="the key, to accept a repair; a repair needs none")
    add_json(parser, "one JSON object a mode: what it keeps, leaves out, and where the originals are")


def run_repair(arguments: Namespace) -> int:
    """Print what each mode would keep, or repair with ``--apply``.

    The exit code is 1 if there is damage and nothing was repaired, and 2 if ``--apply`` needs a mode and has none.
    """
    keys = command_keys(arguments)
    if arguments.dry_run and arguments.apply:
        raise Misuse("--dry-run and --apply exclude each other")
    if (names := all_of(arguments.directory)) is not None:
        if arguments.apply or arguments.accept_unkeyed_repair or arguments.into:
            raise Misuse(f"{printable_name(arguments.directory)} is a library: name one of its conversations to repair")
        return each_of(arguments, names, lambda name: _needs(name, arguments), "looking", "intact")
    if is_backend_address(arguments.directory):
        return _on_backend(arguments)
    if arguments.into is not None:
        raise Misuse("--into is for a conversation on a backend; one in a folder is repaired in place")
    if arguments.accept_unkeyed_repair:
        if not keys:
            raise Misuse(f"--accept-unkeyed-repair needs the key, in --key-file or {VARIABLE}")
        with ConversationStore(arguments.directory, **keys.options) as conversation:
            conversation.load(accept_unkeyed_repair=True)
            say(f"{one_line(conversation.directory)}: taken as it is, with {many(conversation.record_count, 'record')}")
        return 0
    proposals = _proposals(arguments, (arguments.mode,) if arguments.mode else _MODES)
    if not arguments.apply:
        _report(arguments, proposals)
        if proposals[0].findings and not arguments.json:
            say("nothing was changed: choose one with --mode, and add --apply")
        return 1 if proposals[0].findings else 0
    chosen = _chosen(arguments, proposals)
    if chosen is None:
        complain("nothing was changed: these modes keep different records, choose one with --mode")
        return 2
    if _keeps_nothing(chosen):
        others = " or ".join(f"--mode {other.mode}" for other in _proposals(arguments, _MODES) if other.records_kept)
        what = f"nothing was changed: {chosen.mode} would keep none of its records"
        complain(f"{chosen.directory}: {what}; {f'choose {others}' if others else 'restore it from a backup'}")
        return 1
    # The proposals were made without the lock: a writer may have changed the files since. So this call, which holds the
    # lock, examines them again, and its own result is reported.
    _report(arguments, [mend(arguments.directory, mode=chosen.mode, dry_run=False)])
    return 0


def _needs(name: str, arguments: Namespace) -> str | None:
    """What each mode would keep of a damaged conversation of a library, in a line; None if it is intact."""
    if is_backend_address(name):
        library, own_id = with_id(name)
        found = library_at(library).verify(own_id)
        return None if found.is_intact else f"{many(len(found.findings), 'finding')}; {_WRITTEN_ONCE}"
    chosen: Sequence[Any] = _MODES if arguments.mode is None else (arguments.mode,)
    first, *others = (mend(name, mode=mode) for mode in chosen)
    if not first.findings:
        return _in_a_line(_look_at(name, is_in_library=True)[0])  # a folder that is misplaced needs another name
    kept = ", ".join(f"{one.mode} keeps {many(one.records_kept, 'record')}" for one in (first, *others))
    return f"{many(len(first.findings), 'finding')}: {kept}; to repair it: `transcript-store repair {one_line(for_shell(name))} --apply`"


def _on_backend(arguments: Namespace) -> int:
    """Print what each mode would keep of a conversation on a backend, or write it into a folder, to be repaired there."""
    named, (library, own_id) = printable_name(arguments.directory), with_id(arguments.directory)
    if arguments.apply or arguments.accept_unkeyed_repair:
        raise Misuse(f"{named}: {_WRITTEN_ONCE}")
    there = library_at(library)
    found = there.verify(own_id)
    if found.is_intact:
        say(f"{one_line(named)}\n  intact: nothing to repair")
        return 0
    if arguments.into is not None:
        there.export_damaged(own_id, arguments.into)  # type: ignore[attr-defined]  # a library on a backend has it
        folder = one_line(for_shell(os.path.abspath(arguments.into)))
        say(f"the damaged conversation: {folder}")
        say(f"  transcript-store repair {folder}")
        say(f"  transcript-store fork {folder} --into {one_line(for_shell(printable_name(library)))}")
        return 1
    from tempfile import TemporaryDirectory  # here: `verify` needs none

    with TemporaryDirectory(prefix="transcript-store-repair-") as folder:
        arguments.directory = os.path.join(folder, own_id)
        there.export_damaged(own_id, arguments.directory)  # type: ignore[attr-defined]
        proposals = _proposals(arguments, (arguments.mode,) if arguments.mode else _MODES)
        results = [_called(proposal, named, found.findings) for proposal in proposals]
    _report(arguments, results)
    if not arguments.json:
        say(_WRITTEN_ONCE)
    return 1


def _called(result: Repair, named: str, findings: tuple[Finding, ...]) -> Repair:
    """The proposal without its temporary folder: the damage on the backend first, then that in the lines of its slots."""
    path = result.directory
    within = tuple(replace(each, path=each.path.replace(path, named, 1)) for each in result.findings)
    return replace(result, directory=named, findings=(*findings, *within), originals=(), taken_from=())


def _proposals(arguments: Namespace, modes: Sequence[Any]) -> list[Repair]:
    return [mend(arguments.directory, mode=mode) for mode in modes]


def _chosen(arguments: Namespace, proposals: list[Repair]) -> Repair | None:
    """The proposal to apply. If several modes keep different records, a person at a terminal chooses; None without a choice."""
    if len({(one.records_kept, one.records_left_out, one.metadata_from) for one in proposals}) == 1:
        return proposals[0]
    _report(arguments, proposals)
    if arguments.json or not is_at_a_terminal():
        return None
    say_on(f"which of them ({', '.join(_MODES)})? ")
    answer = sys.stdin.readline().strip()
    return next((one for one in proposals if one.mode == answer), None)


def _keeps_nothing(proposal: Repair) -> bool:
    """True if this mode would keep no record although there were some."""
    is_gone = any(finding.kind == "missing" for finding in proposal.findings)
    is_lost = bool(proposal.gaps) or proposal.records_left_out > 0 or is_gone
    return proposal.generation is not None and proposal.records_kept == 0 and is_lost


def _report(arguments: Namespace, results: list[Repair]) -> None:
    if arguments.json:
        for result in results:
            findings = [as_members(finding, result.directory) for finding in result.findings]
            say_json({**asdict(result), "findings": findings})
    else:
        _print_repair(results)


def _print_repair(results: list[Repair]) -> None:
    first = results[0]
    say(one_line(first.directory))
    if not first.findings:
        say("  intact: nothing to repair")
        return
    for finding in first.findings:
        say(f"  {_where(first, finding)}: {one_line(finding.reason)} [{finding.kind}]")
    for result in results:
        say()
        verb = "kept" if result.applied else "would keep"
        say(f"{result.mode}: {verb} {many(result.records_kept, 'record')}{_left_out(result)}")
        for gap in result.gaps[:20]:
            say(f"    gap: {many(gap.length_bytes, 'byte')} at byte {gap.offset_bytes:,}: {one_line(gap.reason)}")
        if len(result.gaps) > 20:
            say(f"    and {many(len(result.gaps) - 20, 'more gap')} (--json lists them)")
        if result.metadata_from != "metadata.json":
            say(f"    metadata {'is' if result.applied else 'would be'} from: {_SOURCES[result.metadata_from]}")
        if result.generation is not None:
            say(f"    as generation {result.generation}")
    say()
    for path, was in zip(first.originals, first.taken_from, strict=True):
        name = was.removeprefix(f"{first.directory}/")
        say(f"{one_line(name)} as it was {'is' if first.applied else 'would be'} kept: {one_line(path)}")
    if first.applied:
        if first.originals:
            say("to undo it and repair in another way (only while nothing was appended since):")
        for path, was in zip(first.originals, first.taken_from, strict=True):
            say(f"  cp -p {one_line(shlex.quote(path))} {one_line(shlex.quote(was))}")
        if first.originals:
            say(f"  transcript-store repair {one_line(shlex.quote(first.directory))}")
        say("repaired")


_SOURCES = {
    "header": "the transcript's first line, which lacks later changes",
    "archive": "the last archived generation, which lacks later changes",
    "nothing": "nothing: a new id, no model, no system prompt",
}


def _where(result: Repair, finding: Finding) -> str:
    path = one_line(finding.path.removeprefix(f"{result.directory}/"))
    return path + line_location(finding.line_number, finding.offset_bytes)


def _left_out(result: Repair) -> str:
    return f", leaving out {many(result.records_left_out, 'whole record')}" if result.records_left_out else ""
