"""The way back from damage: what a repair keeps, and that nothing it does not keep is gone.

The first half is a table of what really happens to files: power cuts, editors, ``jq``, other programs, backups restored in
part. For each it says by hand what each mode keeps. ``123_5678`` are the records 1, 2, 3, a record that tells of a gap, and
5 to 8. The second half damages transcripts at random and holds the repair against an oracle, written from docs/format.md
and not from the code.

Whatever the damage, ``repaired`` insists: a dry run changes nothing and takes no lock, what it said is what is done, the
original is in quarantine byte for byte, ``verify`` finds nothing, a second repair has nothing to do, and the conversation
goes on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.test_damage import HASTY, NEW, _digest, scratch_directory, tree, write
from transcript_store import (
    ConversationStore,
    Repair,
    repair,
    verify,
)
from transcript_store._salvage import GAP, MODES, Mode

Carried = tuple[str, Any, Any]
"""What a record carries: its time, its message, its extra."""


class Base(NamedTuple):
    """A whole conversation of eight records: 3, 4 and 5 are a batch, 6 is an event, the mark is behind 6."""

    metadata: bytes
    lines: list[bytes]
    foreign: bytes
    """A record of another conversation."""


@pytest.fixture(scope="module")
def base() -> Base:
    with scratch_directory() as directory:
        with ConversationStore(f"{directory}/a", file_system=HASTY) as conversation:
            conversation.initialize(provider="claude", model="m-1", system_prompt="be ürgent", labels={"title": "t"})
            conversation.append_message({"role": "user", "content": "one"})
            conversation.append_message({"role": "user", "content": "two \x7f"})
            conversation.append_messages([{"k": 3}, {"k": 4, "s": "vier"}, {"k": 5}], extras=[None, {"u": [1]}, None])
            conversation.append_event({"marker": True})
        metadata = Path(directory, "a/metadata.json").read_bytes()
        with ConversationStore(f"{directory}/a", file_system=HASTY) as conversation:
            conversation.load()
            conversation.append_message({"role": "user", "content": "seven", "n": 2**53})
            conversation.append_message({"role": "assistant", "content": 'x"}{"seq":'}, extra={"usage": [1, 2]})
        lines = Path(directory, "a/transcript.jsonl").read_bytes().splitlines(keepends=True)
        with ConversationStore(f"{directory}/b", file_system=HASTY) as conversation:
            conversation.initialize(messages=[{"of": "somebody else"}, {"foreign": True}])
        foreign = Path(directory, "b/transcript.jsonl").read_bytes().splitlines(keepends=True)[-1]
        return Base(metadata, lines, foreign)


def carried(directory: str) -> list[Carried]:
    """What the records of a conversation carry, read with Python's json and checked with nothing of the package."""
    previous, found = b"0" * 32, []
    lines = Path(directory, "transcript.jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    for seq, line in enumerate(lines):
        previous = _digest(previous, line[:-43])
        assert line[-43:] == b',"hash":"' + previous + b'"}'
        members = json.loads(line)
        if seq:
            assert members["seq"] == seq
            assert "batch" not in members
            found.append((members["at"], members.get("message"), members.get("extra")))
    return found


def of_line(line: bytes) -> Carried:
    members = json.loads(line)
    return members["at"], members.get("message"), members.get("extra")


def notation(base: Base, found: list[Carried]) -> str:
    """Records of the base by their number, gaps as ``_``, the foreign one as ``X``, anything else as ``?``."""
    known = {json.dumps(of_line(line)): str(number) for number, line in enumerate(base.lines) if number}
    known[json.dumps(of_line(base.foreign))] = "X"
    return "".join(
        "_" if GAP in (extra or ()) else known.get(json.dumps((at, message, extra)), "?")
        for at, message, extra in found
    )


def repaired(directory: str, mode: Mode) -> Repair:
    """Repair a damaged conversation, and insist on all that holds whatever the damage."""
    before = tree(directory)
    proposal = repair(directory, mode=mode, file_system=HASTY)
    assert tree(directory) == before, "a dry run changed something"
    assert not os.path.exists(f"{directory}/lock"), "a dry run took the lock"
    assert not proposal.applied
    assert [f.kind for f in proposal.findings] == [f.kind for f in verify(directory, file_system=HASTY).findings]

    done = repair(directory, mode=mode, dry_run=False, file_system=HASTY)
    assert done == dataclasses.replace(proposal, applied=bool(proposal.findings))
    after = tree(directory)
    if not proposal.findings:
        assert after == before, "a repair of a whole conversation changed something"
        assert not done.originals
    damaged = {
        path for path in (finding.path for finding in done.findings) if os.path.relpath(path, directory) in before
    }
    kept = [Path(path).read_bytes() for path in done.originals]
    for path in damaged:
        assert before[os.path.relpath(path, directory)] in kept, f"{path} is nowhere"
    assert all(Path(f"{path}.json").exists() for path in done.originals)
    assert all(
        path in damaged or content in kept or content in after.values() or path.endswith("metadata.json")
        for path, content in before.items()
    )

    assert verify(directory, file_system=HASTY).findings == ()
    records = carried(directory)
    assert done.records_kept == sum(GAP not in (extra or ()) for _, _, extra in records)
    again = repair(directory, mode=mode, dry_run=False, file_system=HASTY)
    assert (again.findings, again.applied, again.originals) == ((), False, ())
    assert tree(directory) == after

    with ConversationStore(directory, file_system=HASTY) as conversation:
        conversation.load()
        assert conversation.recovery is None
        assert conversation.get_messages() == [message for _, message, _ in records if message is not None]
        conversation.append_message(NEW)
    with ConversationStore(directory, file_system=HASTY) as conversation:
        conversation.load()
        assert [(r.at, r.message, r.extra) for r in conversation.get_records()][:-1] == records
        assert conversation.get_messages()[-1] == NEW
    assert verify(directory, file_system=HASTY).is_whole
    return done


# ---- damage of the real world ----------------------------------------------------------------------------------------


def joined(*numbers: int) -> Callable[[list[bytes]], bytes]:
    """The lines with these numbers; the header is 0."""
    return lambda lines: b"".join(lines[number] for number in numbers)


def nuls(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + bytes(end - start) + data[end:]


def start_of(lines: list[bytes], number: int) -> int:
    return sum(map(len, lines[:number]))


def edited(number: int, change: Callable[[bytes], bytes]) -> Callable[[list[bytes]], bytes]:
    """One line changed."""
    return lambda lines: b"".join(change(line) if n == number else line for n, line in enumerate(lines))


def nul_run_over_a_line_end(lines: list[bytes]) -> bytes:
    return nuls(b"".join(lines), start_of(lines, 5) - 60, start_of(lines, 5) + 60)


def nuls_to_the_end(lines: list[bytes]) -> bytes:
    start = start_of(lines, 8) + 20
    return b"".join(lines)[:start] + bytes(4096)


def with_jq(lines: list[bytes]) -> bytes:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    return subprocess.run(["jq", "-c", "."], input=b"".join(lines), capture_output=True, check=True).stdout


def with_json(lines: list[bytes]) -> bytes:
    return b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in lines)


def resealed(lines: list[bytes], change: Callable[[bytes], bytes]) -> bytes:
    """A history that somebody rewrote, with a chain that verifies."""
    head, out = b"0" * 32, b""
    for line in lines:
        body = change(line[:-44])
        head = _digest(head, body)
        out += body + b',"hash":"' + head + b'"}\n'
    return out


class Damage(NamedTuple):
    make: Callable[[list[bytes]], bytes]
    prefix: str
    salvage: str
    accept_edits: str


ALL = "12345678"
DAMAGE: dict[str, Damage] = {
    "a NUL run in the middle": Damage(
        edited(4, lambda line: line[:50] + bytes(20) + line[70:]), "12", "123_5678", "123_5678"
    ),
    "a NUL run over a line end": Damage(nul_run_over_a_line_end, "12", "123_678", "123_678"),
    "a line feed that is NUL": Damage(edited(2, lambda line: line[:-1] + b"\0"), "1", "12_345678", "12_345678"),
    "a page of NULs behind the end": Damage(lambda lines: b"".join(lines) + bytes(4096), ALL, ALL + "_", ALL + "_"),
    "NULs from the last record on": Damage(nuls_to_the_end, "1234567", "1234567_", "1234567_"),
    "two records glued": Damage(edited(2, lambda line: line[:-1]), "1", ALL, ALL),
    "three records glued": Damage(lambda lines: b"".join(lines).replace(b"\n", b"", 4)[0:], "", ALL, ALL),
    "a record cut, and the next that follows it behind it": Damage(
        edited(7, lambda line: line[:80]), "123456", "123456_", "123456_8"
    ),
    "a record cut, and behind it the next that follows the last whole one": Damage(
        lambda lines: b"".join(lines[:7]) + lines[7][:80] + lines[7] + lines[8], "123456", "123456_78", "123456_78"
    ),
    "a record with something written behind it": Damage(
        edited(2, lambda line: line[:-1] + b"garbage\n"), "1", "12_345678", "12_345678"
    ),
    "bytes that are not UTF-8": Damage(
        edited(4, lambda line: line.replace(b"vier", b"vi\xffr")), "12", "123_5678", "123_5678"
    ),
    "a byte order mark": Damage(lambda lines: b"\xef\xbb\xbf" + b"".join(lines), "", ALL, ALL),
    "CR LF line ends": Damage(lambda lines: b"".join(lines).replace(b"\n", b"\r\n"), "", ALL, ALL),
    "a byte order mark and CR LF": Damage(
        lambda lines: b"\xef\xbb\xbf" + b"".join(lines).replace(b"\n", b"\r\n"), "", ALL, ALL
    ),
    "spaces and empty lines": Damage(lambda lines: b"\n\t ".join(lines) + b" \n\n", "", ALL, ALL),
    "a truncated header": Damage(edited(0, lambda line: line[:60] + b"\n"), "", "_2345678", ALL),
    "a truncated header with a record behind it": Damage(edited(0, lambda line: line[:60]), "", "_2345678", ALL),
    "a header that was edited": Damage(edited(0, lambda line: line.replace(b"m-1", b"m-2")), "", ALL, ALL),
    "no header": Damage(joined(1, 2, 3, 4, 5, 6, 7, 8), "", "_2345678", ALL),
    "a NUL page at the beginning": Damage(
        lambda lines: nuls(b"".join(lines), 0, start_of(lines, 2) + 9), "", "_345678", "_345678"
    ),
    "overwritten by another program": Damage(lambda lines: b"#!/bin/sh\necho hello\n", "", "_", "_"),
    "overwritten with JSON of another program": Damage(lambda lines: b'{"type":"user"}\n' * 3, "", "_", "_"),
    "an empty file": Damage(lambda lines: b"", "", "", ""),
    "a single line feed": Damage(lambda lines: b"\n", "", "", ""),
    "lines removed by a tool": Damage(joined(0, 1, 2, 5, 6, 7, 8), "12", "12_678", "125678"),
    "re-serialised by jq": Damage(with_jq, "1", "1_345678", ALL),
    "re-serialised by json.dumps": Damage(with_json, "", "_", ALL),
    "a record repeated": Damage(joined(0, 1, 2, 2, 3, 4, 5, 6, 7, 8), "12", ALL, ALL),
    "the last record repeated": Damage(joined(0, 1, 2, 3, 4, 5, 6, 7, 8, 8), ALL, ALL, ALL),
    "lines swapped": Damage(joined(0, 1, 7, 3, 4, 5, 6, 2, 8), "1", "1_456_", "17345628"),
    "the whole file twice": Damage(lambda lines: 2 * b"".join(lines), ALL, ALL + "_", ALL + "_"),
    "a torn tail": Damage(lambda lines: b"".join(lines)[:-50], "1234567", "1234567_", "1234567_"),
    "a hole": Damage(edited(7, lambda line: line.replace(b"seven", b"eleven")), "123456", "123456_8", "123456?8"),
    "a number that a tool rounded": Damage(
        edited(7, lambda line: line.replace(b"%d" % 2**53, b"9.007199254740992e15")), "123456", "123456_8", "123456?8"
    ),
    "a message edited by hand": Damage(
        edited(1, lambda line: line.replace(b'"one"', b'"eins"')), "", "_2345678", "?2345678"
    ),
    "half a batch": Damage(joined(0, 1, 2, 3, 4), "12", "1234", "1234"),
    "a batch without its last line feed": Damage(lambda lines: b"".join(lines[:6])[:-1], "12345", "12345", "12345"),
    "no last line feed": Damage(lambda lines: b"".join(lines)[:-1], ALL, ALL, ALL),
    "a NUL for the last line feed": Damage(lambda lines: b"".join(lines)[:-1] + b"\0", ALL, ALL + "_", ALL + "_"),
    "truncated before the mark": Damage(joined(0, 1, 2), "12", "12", "12"),
    "rewritten": Damage(
        lambda lines: resealed(lines, lambda body: body.replace(b'"one"', b'"eno"')), "?2345678", "?2345678", "?2345678"
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_kept(base: Base, name: str, mode: Mode) -> None:
    """Exactly what the mode promises, with its times and extras, whatever happened to the transcript."""
    damage = DAMAGE[name]
    data = damage.make(base.lines)
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, data)
        done = repaired(f"{directory}/c", mode)
        expected = {"prefix": damage.prefix, "salvage": damage.salvage, "accept-edits": damage.accept_edits}[mode]
        assert notation(base, carried(f"{directory}/c")[:-1]) == expected
        assert done.generation == 1
        assert done.metadata_from == "metadata.json"
        metadata = metadata_of(f"{directory}/c")
        assert (metadata.provider, metadata.model, metadata.system_prompt) == ("claude", "m-1", "be ürgent")
        assert metadata.id == json.loads(base.metadata)["id"]
        whole = len(damage.salvage.replace("_", ""))
        assert done.records_left_out == (whole - len(expected) if mode == "prefix" else 0)


def metadata_of(directory: str) -> Any:
    with ConversationStore(directory, read_only=True, file_system=HASTY) as conversation:
        conversation.load()
        return conversation.get_metadata()
