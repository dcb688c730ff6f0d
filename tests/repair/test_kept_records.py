"""Typical damage to files, and what each mode keeps of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.damage import nuls, resealed, write
from tests.kit.machines import HASTY
from tests.kit.oracle_of_repair import of_line
from tests.kit.scratch import scratch_directory
from tests.kit.tools import tool
from tests.repair.helpers import ALL, Base, carried, metadata_of, notation, repaired, with_json
from transcript_store import ConversationStore, repair, salvage
from transcript_store._log.repair_plan import GAP, MODES, Mode


def joined(*numbers: int) -> Callable[[list[bytes]], bytes]:
    """The lines with these numbers; the header is 0."""
    return lambda lines: b"".join(lines[number] for number in numbers)


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
    if tool("jq") is None:
        pytest.skip("jq is not installed")
    return subprocess.run(["jq", "-c", "."], input=b"".join(lines), capture_output=True, check=True).stdout


class Damage(NamedTuple):
    make: Callable[[list[bytes]], bytes]
    prefix: str
    salvage: str
    accept_edits: str


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
    "a hash that was changed": Damage(
        edited(3, lambda line: line[:-34] + b"0" * 31 + line[-3:]), "12", "12_45678", ALL
    ),
    "a record moved behind a repeated one": Damage(joined(0, 1, 2, 4, 5, 6, 7, 8, 2, 3), "12", "12_56783", "12456783"),
    "a byte order mark and no header": Damage(lambda lines: b"\xef\xbb\xbf" + b"".join(lines[1:]), "", "_2345678", ALL),
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


@pytest.mark.sampled(every=4)
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
        assert b'"batch":[' not in Path(directory, "c/transcript.jsonl").read_bytes()
        assert done.generation == 1
        assert done.metadata_from == "metadata.json"
        metadata = metadata_of(f"{directory}/c")
        assert (metadata.provider, metadata.model, metadata.system_prompt) == ("claude", "m-1", "be ürgent")
        assert metadata.id == json.loads(base.metadata)["id"]
        whole = len(damage.salvage.replace("_", ""))
        assert done.records_left_out == (whole - len(expected) if mode == "prefix" else 0)


def test_a_gap_is_said_where_it_was(base: Base) -> None:
    """A record without a message stands in the gap: offset, length, reason, and the file that has the bytes."""
    with scratch_directory() as directory:
        damaged = base.lines[4].replace(b"vier", b"zwei")
        write(f"{directory}/c", base.metadata, b"".join((*base.lines[:4], damaged, *base.lines[5:])))
        done = repaired(f"{directory}/c", "salvage")
        (gap,) = done.gaps
        assert (gap.offset_bytes, gap.length_bytes) == (start_of(base.lines, 4), len(damaged) - 1)
        at, message, extra = carried(f"{directory}/c")[3]
        assert (at, message) == (of_line(base.lines[3])[0], None), "it has the time of the record before it"
        assert extra == {
            GAP: {
                "offset": gap.offset_bytes,
                "bytes": gap.length_bytes,
                "reason": gap.reason,
                "original": os.path.basename(done.originals[0]),
            }
        }
        assert Path(done.originals[0]).read_bytes()[gap.offset_bytes :][: gap.length_bytes] == damaged[:-1]


@pytest.mark.parametrize("last", [7, 8])
@pytest.mark.parametrize("behind", [b"", b"garbage", b"garbage\n", b"\n \n"])
def test_a_gap_ends_where_what_is_lost_ends(base: Base, behind: bytes, last: int) -> None:
    """A newcomer found `prefix` counting one byte more than `salvage` and `verify`: the line feed. Blank lines are no loss."""
    damaged = b"".join((*base.lines[:last], *(line.replace(b'"at"', b'"it"') for line in base.lines[last:9]), behind))
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, damaged)
        gaps = [
            [(gap.offset_bytes, gap.length_bytes) for gap in repair(f"{directory}/c", mode=mode).gaps] for mode in MODES
        ]
        assert gaps[0] == gaps[1] == [(start_of(base.lines, last), len(damaged.rstrip()) - start_of(base.lines, last))]


def test_members_that_this_version_does_not_know_are_kept(base: Base) -> None:
    """What a later version wrote into a record or a header goes with it."""
    lines = resealed(base.lines, lambda body: body + b',"later":{"a":[1]}').splitlines(keepends=True)
    with scratch_directory() as directory:
        for mode in MODES:
            write(f"{directory}/c", base.metadata, b"".join(lines[:2] + lines[3:]).replace(b'"k": 4', b'"k": 44'))
            repair(f"{directory}/c", mode=mode, dry_run=False, file_system=HASTY)
            records = Path(directory, "c/transcript.jsonl").read_bytes().splitlines()[1:]
            known = [json.loads(line) for line in records if GAP.encode() not in line]
            assert known
            assert all(record["later"] == {"a": [1]} for record in known)


def test_a_first_record_that_was_edited_stays_retracted(tmp_path: Path) -> None:
    """P14: `accept-edits` takes a record in under its own number, also the first one, so a retraction that names it still does.

    The mutant forgot the number of the first record, and what had been taken back was said again.
    """
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(features=["retract"], messages=[{"content": "plum"}, {"content": "pear"}])
        store.retract(2)
    transcript = tmp_path / "c" / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"plum", b"PLUM"))
    repair(tmp_path / "c", mode="accept-edits", dry_run=False)
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        assert [record.message["content"] for record in store.get_records() if record.message] == ["PLUM", "pear"]
        assert store.get_messages() == []


def test_a_message_by_hand_has_no_number_that_a_retraction_could_mean(tmp_path: Path) -> None:
    """P14: `accept-edits` takes in a message that somebody put in front of the first one. It is not what was taken back."""
    said = [{"content": "plum"}, {"content": "pear"}]
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(features=["retract"], messages=said)
        store.retract(2)
    transcript = tmp_path / "c" / "transcript.jsonl"
    header, rest = transcript.read_bytes().split(b"\n", 1)
    transcript.write_bytes(header + b'\n{"role":1}\n' + rest)
    repair(tmp_path / "c", mode="accept-edits", dry_run=False)
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        assert [record.message for record in store.get_records()] == [{"role": 1}, *said, None]
        assert store.get_messages() == [{"role": 1}]


@pytest.mark.parametrize("features", [[], ["retract"]], ids=["plain", "retract"])
def test_an_edit_retracts_only_where_a_record_may(tmp_path: Path, features: list[Any]) -> None:
    """P14: a line that somebody wrote by hand does not take messages back in a transcript whose header knows no such thing."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(features=features, messages=[{"content": "plum"}, {"content": "pear"}])
    with (tmp_path / "c/transcript.jsonl").open("ab") as transcript:
        transcript.write(b'{"seq":3,"retracts":[1,2]}\n')
    done = repair(tmp_path / "c", mode="accept-edits", dry_run=False)
    assert (done.records_kept, len(done.gaps)) == ((3, 0) if features else (2, 1))
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        assert len(store.get_messages()) == (0 if features else 2)


@pytest.mark.parametrize("cut", [0, 60])
def test_what_stands_beside_a_record_on_its_line_is_told(tmp_path: Path, cut: int) -> None:
    """Each byte of a damaged transcript is in a record or in a gap. In front of one is garbage, or the beginning of another record."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": 1}, {"n": 2}, {"n": 3}])
    path = tmp_path / "c" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    front, record = lines[1][:cut] + b"garbage", lines[2][:-1]
    lines[2] = front + record + b" and more\n"
    path.write_bytes(b"".join(lines))
    found = salvage(tmp_path / "c").found
    assert [one.record.message if one.record else None for one in found] == [{"n": 1}, None, {"n": 2}, None, {"n": 3}]
    told = [path.read_bytes()[one.offset_bytes :][: one.length_bytes].strip() for one in found]
    assert told == [lines[1].strip(), front, record, b"and more", lines[3].strip()]


def test_a_first_message_whose_number_is_lost_is_number_one(tmp_path: Path) -> None:
    """Somebody wrote another member in front of it."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=[{"n": 1}, {"n": 2}])
    path = tmp_path / "c" / "transcript.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"seq":1,', b'{"by":"hand",', 1))
    assert [one.record.seq if one.record else None for one in salvage(tmp_path / "c").found] == [1, 2]
