"""``transcript-store verify``: check a conversation, and report damage with a hint."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict

from transcript_store import Verification
from transcript_store import verify as look_at
from transcript_store.cli._shared.arguments import add_conversation, add_json
from transcript_store.cli._shared.hints import as_members, in_the_shell
from transcript_store.cli._shared.keys import CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at, is_backend_address, library_at, summary_at, with_id
from transcript_store.cli._shared.terminal import complain, many, one_line, say, say_json
from transcript_store.cli._shared.whole_libraries import all_of, each_of
from transcript_store.display import line_location

DESCRIPTION = """\
Check every line of the conversation in DIR, its archived generations and its metadata. Report each damage: where, what kind,
and what to do. Nothing is changed and no lock is taken. Beside a live writer, the line that is being written may show as a
torn tail.

For a library, check all conversations: a line for each damaged one, and a total.

A sealed conversation is checked as far as possible without the key; with the key every record is opened too.
"""
EPILOG = """\
exit code: 0 if everything is intact, 1 if anything is damaged

examples:
  transcript-store verify chats/today
  transcript-store verify chats                                  all of them
  transcript-store verify                                        all of the default library
  transcript-store verify chats/today --json | jq '.findings[].hint'
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True, or_none=True)
    add_keys(parser, what="the key, to check sealed records too")
    add_json(parser, "one JSON object a conversation")


def run(arguments: Namespace) -> int:
    """Verify, and print the findings. The exit code is 1 if anything is damaged."""
    if (names := all_of(arguments.directory)) is not None:
        return _verify_all(names, arguments)
    keys = command_keys(arguments)
    found, is_sealed = _look_at(arguments.directory)
    if arguments.json:
        findings = [as_members(finding, found.directory) for finding in found.findings]
        say_json({**asdict(found), "is_intact": found.is_intact, "findings": findings, "is_sealed": is_sealed})
    else:
        _print(found, is_sealed=is_sealed)
    if found.is_intact and (keys or is_sealed):
        _open(arguments.directory, found, keys, is_json=arguments.json)
    return 0 if found.is_intact else 1


def _verify_all(names: Sequence[str], arguments: Namespace) -> int:
    """Verify a library. Without the key, sealed records are not opened; one line says how many conversations that concerns."""
    keys = command_keys(arguments)
    code = each_of(arguments, names, lambda name: _problem(name, keys, arguments), "verifying", "whole")
    sealed = 0 if keys else sum(summary is not None and summary.sealed for summary in map(summary_at, names))
    if sealed and not arguments.json:
        which = "1 is sealed, and its" if sealed == 1 else f"{sealed:,} are sealed, and their"
        complain(f"{which} records were not opened: that needs the key")
    return code


def _problem(name: str, keys: CommandKeys, arguments: Namespace) -> str | None:
    """The damage of a conversation of a library, in a line; None if it is intact."""
    found, is_sealed = _look_at(name)
    if arguments.json:
        findings = [as_members(finding, found.directory) for finding in found.findings]
        say_json({**asdict(found), "is_intact": found.is_intact, "findings": findings, "is_sealed": is_sealed})
    if found.is_intact:
        if keys and is_sealed:
            _open(name, found, keys, is_json=True)
        return None
    first, *others = found.findings
    where = line_location(first.line_number, first.offset_bytes)
    more = f", and {many(len(others), 'finding')} more" if others else ""
    return f"{first.path}{where}: {first.kind}: {first.reason}{more}; {in_the_shell(first.hint, found.directory)}"


def _look_at(name: str) -> tuple[Verification, bool]:
    """The result of a verification, and whether the conversation is sealed."""
    if is_backend_address(name):
        library, own_id = with_id(name)
        found = library_at(library).verify(own_id)
    else:
        found = look_at(name)
    summary = summary_at(name)
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
    if any(finding.path == found.directory for finding in found.findings):
        say("nothing was checked")  # there is no conversation that could be intact or damaged
    else:
        say("intact: no problem found" if found.is_intact else f"damaged: {many(len(found.findings), 'finding')}")
