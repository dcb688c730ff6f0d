"""``transcript-store verify``: check a conversation, and say what is damaged and what to do."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store import Verification
from transcript_store import verify as look_at
from transcript_store.cli._shared.arguments import add_conversation, add_json
from transcript_store.cli._shared.hints import as_members, in_the_shell
from transcript_store.cli._shared.keys import CommandKeys, add_keys, command_keys
from transcript_store.cli._shared.names import conversation_at, is_backend_address, library_at, summary_at, with_id
from transcript_store.cli._shared.terminal import many, one_line, say, say_json
from transcript_store.cli._shared.whole_libraries import all_of, each_of
from transcript_store.display import line_location

DESCRIPTION = """\
Check every line of the conversation in DIR, its archived generations and its metadata, and say what is whole and what
is not: where, what kind of damage, and the way out. Nothing is changed and no lock is taken. Beside a live writer, the
line that is being written may show as a torn tail.

Of a library all conversations: a line for each that is not whole, and a sum.

Of a sealed conversation all that needs no key. With the key every record is opened besides.
"""
EPILOG = """\
exit code: 0 if everything is whole, 1 if anything is not

examples:
  transcript-store verify chats/today
  transcript-store verify chats                                  all of them
  transcript-store verify chats/today --json | jq '.findings[].hint'
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True, or_library=True)
    add_keys(parser, what="the key, to look also at what is sealed")
    add_json(parser, "one JSON object a conversation")


def run(arguments: Namespace) -> int:
    """Verify, and print the findings. The exit code is 1 if anything is damaged."""
    if (names := all_of(arguments.directory)) is not None:
        return each_of(
            arguments, names, lambda name: _problem(name, command_keys(arguments), arguments), "verifying", "whole"
        )
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


def _problem(name: str, keys: CommandKeys, arguments: Namespace) -> str | None:
    """What is wrong with a conversation of a library, in a line; None if nothing is."""
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
    """What a verification found, and whether the conversation is sealed."""
    if is_backend_address(name):
        library, own_id = with_id(name)
        found = library_at(library).verify(own_id)
    else:
        found = look_at(name)
    summary = summary_at(name)
    return found, summary is not None and summary.sealed


def _open(name: str, found: Verification, keys: CommandKeys, *, is_json: bool) -> None:
    """Open every record with the key; raises if the key is another, or what is sealed is not what was sealed here."""
    if keys:
        with conversation_at(name, read_only=True, **keys.options) as conversation:
            conversation.load()
            for generation in (*found.archived_generations, None):
                for _ in conversation.iter_records(generation=generation):
                    pass
    if not is_json:
        say("the key opens every record" if keys else "without the key it was not tried whether what is sealed opens")


def _print(found: Verification, *, is_sealed: bool) -> None:
    say(one_line(found.directory))
    if any(finding.path == found.directory for finding in found.findings):
        pass  # the finding is about the folder itself: there is no conversation to describe
    elif found.generation is None:
        say("  transcript   cannot be read from its first line on")
    else:
        say(f"  transcript   {many(found.records, 'whole record')}, generation {found.generation}, head {found.head}")
        if is_sealed:
            say("  sealed       what stands there is whole or not whole without the key, too")
    if found.archived_generations:
        generations = ", ".join(map(str, found.archived_generations))
        say(f"  archive      {many(len(found.archived_generations), 'earlier generation')}: {generations}")
    if found.quarantined:
        say(f"  quarantine   {many(len(found.quarantined), 'file')} of bytes that recovery took out (not damage):")
    for path in found.quarantined:
        say(f"    {one_line(path)}")
    for finding in found.findings:
        say()
        where = line_location(finding.line_number, finding.offset_bytes)
        length = "" if finding.length_bytes is None else f" ({many(finding.length_bytes, 'byte')})"
        if finding.path != found.directory:  # the first line of the output is the directory
            say(f"{one_line(finding.path)}{where}{length}")
        say(f"  {finding.kind}: {one_line(finding.reason)}")
        say(f"  way out: {one_line(in_the_shell(finding.hint, found.directory))}")
    say()
    if any(finding.path == found.directory for finding in found.findings):
        say("nothing was checked")  # there is no conversation that could be whole or not
    else:
        say("whole: nothing is wrong" if found.is_intact else f"not whole: {many(len(found.findings), 'finding')}")
