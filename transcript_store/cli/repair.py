"""``transcript-store repair``: what of a damaged conversation can be kept, and keeping it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transcript_store import Finding, Repair
from transcript_store import repair as mend
from transcript_store.cli._shared.arguments import add_directory, add_json
from transcript_store.cli._shared.terminal import many, one_line, say, say_json

DESCRIPTION = """\
Say what is wrong with the conversation in DIR and what each way of repairing it would keep and leave out. Nothing is
changed without --apply. Then a new generation is written, the damaged files are kept byte for byte in quarantine/, and
verify finds nothing.

  prefix        the records before the first damage (the default)
  salvage       every whole record; a record without a message marks each gap
  accept-edits  every line that has the form of a record: for files that were edited by hand
"""
EPILOG = """\
exit code: 0 if there is nothing to repair or it was repaired, 1 if there is damage and nothing was done

examples:
  transcript-store repair chats/today
  transcript-store repair chats/today --mode salvage --apply
"""
_MODES = ("prefix", "salvage", "accept-edits")


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_directory(parser)
    parser.add_argument("--mode", choices=_MODES, help="what to keep; without it, and without --apply, all are shown")
    parser.add_argument("--apply", action="store_true", help="do it")
    add_json(parser, "one JSON object a mode: what it keeps, leaves out, and where the originals are")


def run(arguments: Namespace) -> int:
    """Look, or repair; 1 if there is damage and nothing was done."""
    modes: Sequence[Any] = [arguments.mode] if arguments.mode else _MODES[:1] if arguments.apply else _MODES
    results = [mend(arguments.directory, mode=mode, dry_run=not arguments.apply) for mode in modes]
    if arguments.json:
        for result in results:
            say_json(asdict(result))
    else:
        _print(results)
    return 1 if results[0].findings and not arguments.apply else 0


def _print(results: list[Repair]) -> None:
    first = results[0]
    say(one_line(first.directory))
    if not first.findings:
        say("  whole: there is nothing to repair")
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
            say(f"    and {len(result.gaps) - 20:,} more gaps (--json lists them)")
        if result.metadata_from != "metadata.json":
            say(f"    metadata {'is' if result.applied else 'would be'} from: {_SOURCES[result.metadata_from]}")
        if result.generation is not None:
            say(f"    as generation {result.generation}")
    say()
    verb = "are kept" if first.applied else "would be kept"
    for path in first.originals:
        say(f"a damaged original {verb.replace('are', 'is')}: {one_line(path)}")
    if first.applied:
        if first.originals:
            say("(for another mode: copy the folder, give an original its old name in the copy, and repair that)")
        say("repaired")
    else:
        say("nothing was changed: choose one with --mode (prefix if none is named), and add --apply")


_SOURCES = {
    "header": "the transcript's first line, which does not know of changes since",
    "archive": "the last archived generation, which does not know of changes since",
    "nothing": "nothing, none was left: a new id, no model, no system prompt",
}


def _where(result: Repair, finding: Finding) -> str:
    path = one_line(finding.path.removeprefix(f"{result.directory}/"))
    return path if finding.line_number is None else f"{path}, line {finding.line_number}, byte {finding.offset_bytes}"


def _left_out(result: Repair) -> str:
    return f", leaving out {many(result.records_left_out, 'whole record')}" if result.records_left_out else ""
