"""``transcript-store verify``: what is whole, what is not, and the way out."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store import Finding, Verification
from transcript_store import verify as look_at
from transcript_store.cli._shared.arguments import add_directory, add_json
from transcript_store.cli._shared.folders import instead_of_a_conversation
from transcript_store.cli._shared.terminal import many, one_line, say, say_json

DESCRIPTION = """\
Check every line of the conversation in DIR, its archived generations and its metadata, and say what is whole and what
is not: where, what kind of damage, and the way out. Nothing is changed and no lock is taken. Beside a live writer, the
line that is being written may show as a torn tail.
"""
EPILOG = """\
exit code: 0 if everything is whole, 1 if anything is not

examples:
  transcript-store verify chats/today
  transcript-store verify chats/today --json | jq '.findings[].way_out'
"""

_BACKUP = "restore this file from a backup, or see what `transcript-store repair {directory}` can keep"
_WAYS_OUT = {
    "truncated": f"messages that were stored are gone: {_BACKUP}",
    "rewritten": "the lines are whole, but they are not the ones that were stored here: an older copy was put back, or "
    f"somebody wrote them anew; {_BACKUP}",
    "missing": f"{_BACKUP} (metadata.json is rebuilt from the first line of transcript.jsonl)",
    "damaged": "`transcript-store repair {directory}` rebuilds it from the first line of transcript.jsonl, or, with "
    "--mode accept-edits, takes it as it was edited",
    "foreign": "something that is not ours stands there: move it away, and put back what belongs there",
    "wrong-conversation": "the files of two conversations were mixed: put back the one that belongs here",
    "wrong-generation": "files of different moments were mixed: put back the one that belongs here",
    "version": "a later version of transcript-store wrote it: upgrade this one",
}


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_directory(parser)
    add_json(parser, "one JSON object")


def run(arguments: Namespace) -> int:
    """Look, and print what was seen; 1 if anything is not whole."""
    found = look_at(arguments.directory)
    if arguments.json:
        findings = [{**asdict(finding), "way_out": way_out(found, finding)} for finding in found.findings]
        say_json({**asdict(found), "is_whole": found.is_whole, "findings": findings})
    else:
        _print(found)
    return 0 if found.is_whole else 1


def way_out(found: Verification, finding: Finding) -> str:
    """What to do about a finding, in a sentence."""
    if finding.kind == "torn-tail":
        if finding.path.startswith(f"{found.directory}/archive/"):
            way = f"an archived generation lost its end, the live transcript is not concerned; {_BACKUP}"
            return way.replace("{directory}", shlex.quote(found.directory))
        return (
            "none is needed: a crash left the beginning of a message that was never acknowledged, and whoever next "
            "opens the conversation to write cuts it and keeps its bytes in quarantine/ (or a writer is at work now)"
        )
    if finding.kind == "foreign" and finding.path == found.directory:
        return instead_of_a_conversation(found.directory)
    return _WAYS_OUT.get(finding.kind, _BACKUP).replace("{directory}", shlex.quote(found.directory))


def _print(found: Verification) -> None:
    say(one_line(found.directory))
    if any(finding.path == found.directory for finding in found.findings):
        pass  # there is no conversation to speak of
    elif found.generation is None:
        say("  transcript   cannot be read from its first line on")
    else:
        say(f"  transcript   {many(found.records, 'whole record')}, generation {found.generation}, head {found.head}")
    if found.archived_generations:
        generations = ", ".join(map(str, found.archived_generations))
        say(f"  archive      {many(len(found.archived_generations), 'earlier generation')}: {generations}")
    if found.quarantined:
        say(f"  quarantine   {many(len(found.quarantined), 'file')} of bytes that recovery took out (not damage):")
    for path in found.quarantined:
        say(f"    {one_line(path)}")
    for finding in found.findings:
        say()
        where = "" if finding.line_number is None else f", line {finding.line_number}, byte {finding.offset_bytes}"
        length = "" if finding.length_bytes is None else f" ({many(finding.length_bytes, 'byte')})"
        say(f"{one_line(finding.path)}{where}{length}")
        say(f"  {finding.kind}: {one_line(finding.reason)}")
        say(f"  way out: {one_line(way_out(found, finding))}")
    say()
    say("whole: nothing is wrong" if found.is_whole else f"not whole: {many(len(found.findings), 'finding')}")
