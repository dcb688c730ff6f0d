"""Every way we could think of to damage a transcript, and what ``load()`` may answer to it.

Crash tests never find silent acceptance: a crash leaves a torn tail, and a torn tail is what every store looks for. What
it does with a flipped bit before the mark, with two lines glued together, with the right line in the wrong place, only a
table of damage shows. So here one small transcript (single records, two batches, two events, the mark in its middle) is
damaged in every byte, and an oracle, written from docs/format.md and not from the code, says what is allowed:

* damage before the mark is refused, with the offset of the first line that is not whole, and nothing is touched;
* a torn tail is cut back to the last complete append, with its bytes in quarantine;
* damage after the mark with whole records of other appends behind it is refused (kind hole).
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.damage import NEW, flipped, resealed, write
from tests.kit.machines import HASTY, Counting
from tests.kit.mutations import SEED, Mutations
from tests.kit.oracle import Verdict, oracle, sealed
from tests.kit.scratch import scratch_directory
from tests.kit.trees import contents
from transcript_store import ConversationStore, CorruptMetadataError, CorruptTranscriptError, verify
from transcript_store._log import resync as _resync
from transcript_store._log import scan as _scan
from transcript_store._log.log import Log

pytestmark = pytest.mark.usefixtures("quiet")

# ---- the conversation that is damaged -------------------------------------------------------------------------------


class Base(NamedTuple):
    """A whole conversation, and what is true of it."""

    metadata: bytes
    transcript: bytes
    mark: int
    """How many bytes the mark in ``metadata`` vouches for."""
    ends: list[int]
    """Where each append ends."""
    lines: list[bytes]
    other: bytes
    """The transcript of another conversation."""


@pytest.fixture(scope="module")
def base() -> Iterator[Base]:
    with scratch_directory() as directory:
        ends = write_some(f"{directory}/ours", first_half)
        transcript = Path(directory, "ours/transcript.jsonl")
        metadata = Path(directory, "ours/metadata.json").read_bytes()  # as it is if the next writer is killed
        mark = transcript.stat().st_size
        assert json.loads(metadata)["mark"]["offset"] == mark
        ends += write_some(f"{directory}/ours", second_half)
        write_some(f"{directory}/other", first_half)
        data = transcript.read_bytes()
        lines = data.splitlines(keepends=True)
        assert mark in ends
        assert mark < ends[-2], "there are several appends after the mark"
        yield Base(metadata, data, mark, ends, lines, Path(directory, "other/transcript.jsonl").read_bytes())


def write_some(directory: str, write: Callable[[ConversationStore], Iterator[object]]) -> list[int]:
    """Write with a store of its own; returns where each append ended."""
    with ConversationStore(directory) as conversation:
        conversation.load_or_initialize(provider="claude")
        path = Path(directory, "transcript.jsonl")
        return [path.stat().st_size for _ in write(conversation)]


def first_half(conversation: ConversationStore) -> Iterator[object]:
    yield conversation.append_message({"role": "user", "content": "one"})
    yield conversation.append_messages([{"n": 1}, {"n": 2, "s": "ü"}, {}], extras=[None, {"u": [1]}, None])
    yield conversation.append_event({"marker": True})


def second_half(conversation: ConversationStore) -> Iterator[object]:
    yield conversation.append_message({"role": "user", "content": "two"})
    yield conversation.append_messages([{"n": 3}, {"n": 4}, {"n": 5}])
    yield conversation.append_event({"marker": None})
    yield conversation.append_message({"role": "assistant", "content": 'x"}'}, extra={"usage": [1, 2]})


# ---- one case -------------------------------------------------------------------------------------------------------


def as_records(data: bytes) -> list[tuple[int, Any, Any]]:
    lines = [json.loads(line) for line in data.split(b"\n") if line][1:]
    return [(line["seq"], line.get("message"), line.get("extra")) for line in lines]


def records_of(conversation: ConversationStore) -> list[tuple[int, Any, Any]]:
    return [(record.seq, record.message, record.extra) for record in conversation.get_records()]


def check(base: Base, data: bytes, directory: str, name: str) -> str:
    """Damage the transcript to be ``data``, and hold everything that reads it against the oracle."""
    write(directory, base.metadata, data)
    before = contents(directory)
    expected = oracle(data, base.mark)
    _never_worse_than_its_bytes(base, data, expected)

    seen = verify(directory, file_system=HASTY)
    assert seen.is_intact == (expected.answer == "whole"), f"{name}: verify says {seen.findings}, expected {expected}"
    if not seen.is_intact:
        assert seen.findings[0].offset_bytes == expected.at, name
        assert seen.findings[0].kind in (expected.kinds or ("torn-tail",)), name

    reader = ConversationStore(directory, read_only=True, file_system=HASTY)
    writer = ConversationStore(directory, file_system=HASTY)
    if expected.answer == "refused":
        for store in (reader, writer):
            with pytest.raises(CorruptTranscriptError) as caught:
                store.load()
            assert caught.value.kind in expected.kinds, f"{name}: {caught.value}"
            assert caught.value.offset_bytes == expected.at, f"{name}: {caught.value}"
            assert caught.value.line_number == data.count(b"\n", 0, expected.at) + 1, f"{name}: {caught.value}"
        assert contents(directory) == before, f"{name}: refused, and touched"
        return expected.answer

    reader.load()
    torn = expected.answer == "torn"
    assert records_of(reader) == as_records(data[: expected.complete] if torn else data), name
    reader.close()
    assert contents(directory) == before, f"{name}: a reader or verify() changed something"

    writer.load()
    keep = expected.keep if torn else len(data)
    kept = data[:keep] if data[keep - 1 : keep] == b"\n" else data[:keep] + b"\n"
    assert Path(directory, "transcript.jsonl").read_bytes() == kept, name
    assert records_of(writer) == as_records(kept), name
    recovery = writer.recovery
    assert (recovery is not None) == torn, name
    if recovery is not None:
        assert recovery.torn_bytes == len(data) - keep, name
        assert recovery.messages_kept == len(writer.get_messages()), name
        if recovery.torn_bytes:
            _assert_quarantined(directory, recovery.quarantine, data[keep:], keep, name)
        else:
            assert recovery.quarantine is None, name
    records, messages = records_of(writer), writer.get_messages()
    writer.append_message(NEW)
    writer.close()
    assert verify(directory, file_system=HASTY).is_intact, f"{name}: {verify(directory).findings}"
    writer.load()
    assert writer.get_messages() == [*messages, NEW], name
    assert records_of(writer)[:-1] == records, name
    assert writer.recovery is None, f"{name}: recovery found something to do again"
    writer.close()
    return expected.answer


def _never_worse_than_its_bytes(base: Base, data: bytes, expected: Verdict) -> None:
    """The oracle itself may not lose an append whose bytes still stand where they stood (R1, R2)."""
    unlike = (at for at, pair in enumerate(zip(data, base.transcript, strict=False)) if pair[0] != pair[1])
    same = next(unlike, min(len(data), len(base.transcript)))
    if expected.answer != "refused":
        kept = len(data) if expected.answer == "whole" else expected.keep
        assert kept >= max(end for end in [0, *base.ends] if end <= same)
        assert kept >= base.mark


def _assert_quarantined(directory: str, path: str | None, removed: bytes, offset: int, name: str) -> None:
    digest = sha256(removed).hexdigest()
    assert path == f"{directory}/quarantine/g0-o{offset}-{digest[:16]}", name
    assert Path(path).read_bytes() == removed, f"{name}: the bytes in quarantine are not those that were cut"
    note = json.loads(Path(f"{path}.json").read_bytes())
    expected = {"generation": 0, "offset": offset, "bytes": len(removed), "sha256": digest, "kind": "torn-tail"}
    assert expected.items() <= note.items(), name


def check_all(base: Base, cases: Iterator[tuple[str, bytes]]) -> dict[str, int]:
    """Check every case; returns how many had which answer."""
    answers: dict[str, int] = {}
    with scratch_directory() as directory:
        for name, data in cases:
            answer = check(base, data, f"{directory}/c", name)
            answers[answer] = answers.get(answer, 0) + 1
    return answers


# ---- the damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.long)])
def test_every_byte_prefix(base, step):
    """P3, P8: cut at any byte, the transcript loads to its complete appends, or is refused where synced bytes are missing."""
    sizes = sorted(
        {
            *range(0, len(base.lines[0]), 7),
            *range(len(base.lines[0]), len(base.transcript) + 1, step),
            base.mark,
            *base.ends,
        }
    )
    answers = check_all(base, ((f"first {n} bytes", base.transcript[:n]) for n in sizes))
    # Everything shorter than the mark is refused; at and after it nothing is. (An end without its LF is recovered.)
    assert answers["refused"] == sum(n < base.mark for n in sizes)
    assert answers["whole"] == sum(end >= base.mark for end in base.ends)
    assert answers["torn"] == len(sizes) - answers["refused"] - answers["whole"]


def test_a_flipped_bit(base):
    """P8, P10: one flipped bit, in every 17th byte, never passes: refused, or reported as a torn tail with its bytes kept."""
    places = [*range(0, len(base.lines[0]), 17), *range(len(base.lines[0]), len(base.transcript), 17)]
    answers = check_all(base, ((f"bit {at % 8} of byte {at}", flipped(base.transcript, at, at % 8)) for at in places))
    assert "whole" not in answers
    assert answers["refused"] > sum(at < base.mark for at in places)
    # Only damage to the very last append looks like a torn tail: everything else has whole records behind it.
    assert 0 < answers["torn"] <= len(base.transcript) - base.ends[-2]


@pytest.mark.long
def test_every_flipped_bit(base):
    """P8, P10: the same for all eight bits of every byte."""
    data = base.transcript
    cases = ((f"bit {bit} of byte {at}", flipped(data, at, bit)) for at in range(len(data)) for bit in range(8))
    answers = check_all(base, cases)
    assert "whole" not in answers
    assert sum(answers.values()) == 8 * len(data)


def nul_tails(data: bytes, step: int) -> Iterator[tuple[str, bytes]]:
    for at in range(0, len(data), step):
        yield f"NULs from byte {at}", data[:at] + bytes(len(data) - at)


def test_nuls_to_the_end(base):
    """P8: a power cut leaves the size of an append and none of its bytes; the NULs are cut after the mark, refused before."""
    answers = check_all(base, nul_tails(base.transcript, 41))
    assert answers.keys() == {"refused", "torn"}


@pytest.mark.long
def test_nuls_from_every_byte_to_the_end(base):
    """P8: the same from every byte on."""
    assert check_all(base, nul_tails(base.transcript, 1)).keys() == {"refused", "torn"}


def nul_runs(data: bytes, lengths: tuple[int, ...], step: int) -> Iterator[tuple[str, bytes]]:
    for length in lengths:
        for at in range(0, len(data) - length, step):
            yield f"{length} NULs at byte {at}", data[:at] + bytes(length) + data[at + length :]


def test_nul_runs_in_the_middle(base):
    """P8, P10: a run of NULs with records behind it (a lost page) is damage, never something to cut."""
    answers = check_all(base, nul_runs(base.transcript, (16, 200), 41))
    assert "whole" not in answers


@pytest.mark.long
def test_nul_runs_at_every_byte(base):
    """P8, P10: the same at every byte, in five lengths."""
    answers = check_all(base, nul_runs(base.transcript, (1, 2, 43, 200, 700), 1))
    assert "whole" not in answers


def line_damage(base: Base) -> Iterator[tuple[str, bytes]]:
    lines, foreign = base.lines, base.other.splitlines(keepends=True)

    def joined(*parts: list[bytes]) -> bytes:
        return b"".join(line for part in parts for line in part)

    for i in range(len(lines)):
        yield f"line {i} dropped", joined(lines[:i], lines[i + 1 :])
        yield f"line {i} repeated", joined(lines[: i + 1], lines[i:])
        yield f"line {i} repeated at the end", joined(lines, [lines[i]])
        yield f"line {i} without its LF", joined(lines[:i], [lines[i][:-1]], lines[i + 1 :])
        yield f"line {i} with CR LF", joined(lines[:i], [lines[i][:-1] + b"\r\n"], lines[i + 1 :])
        yield f"line {i} with a space", joined(lines[:i], [lines[i][:-1] + b" \n"], lines[i + 1 :])
        yield f"CR LF from line {i} on", joined(lines[:i], [line[:-1] + b"\r\n" for line in lines[i:]])
        yield f"an empty line before {i}", joined(lines[:i], [b"\n"], lines[i:])
        yield f"a foreign line before {i}", joined(lines[:i], [foreign[-1]], lines[i:])
        yield f"two foreign lines before {i}", joined(lines[:i], foreign[-2:], lines[i:])
        yield f"JSON of somebody else before {i}", joined(lines[:i], [b'{"type":"user"}\n'], lines[i:])
        yield f"line {i} re-indented", joined(lines[:i], [lines[i].replace(b",", b", ")], lines[i + 1 :])
        yield f"line {i} with its keys sorted", joined(lines[:i], [sorted_keys(lines[i])], lines[i + 1 :])
        for j in range(i + 1, len(lines)):
            swapped = [*lines]
            swapped[i], swapped[j] = swapped[j], swapped[i]
            yield f"lines {i} and {j} swapped", joined(swapped)
            if j > i + 1:
                yield f"lines {i} to {j} dropped", joined(lines[:i], lines[j:])
    yield "a byte order mark", b"\xef\xbb\xbf" + base.transcript
    yield "UTF-16", base.transcript.decode().encode("utf-16")
    yield "another conversation's records", joined(lines[:1], foreign[1:])
    yield "lines reversed", joined(lines[::-1])


def sorted_keys(line: bytes) -> bytes:
    return json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_lines_dropped_repeated_moved_glued_and_edited(base):
    """P10: a lost, moved, repeated, foreign, glued or edited line is always seen, wherever it stands."""
    answers = check_all(base, line_damage(base))
    assert answers["refused"] > 0
    assert answers["torn"] > 0
    # One thing looks whole, and no reader can tell: the last appends gone without a trace, all of them after the mark.
    silent = {data for _, data in line_damage(base) if oracle(data, base.mark).answer == "whole"}
    assert silent <= {base.transcript[:end] for end in base.ends if end >= base.mark}


def tails(base: Base) -> Iterator[tuple[str, bytes]]:
    foreign = base.other.splitlines(keepends=True)
    more = {
        "an opening brace": b"{",
        "a line feed": b"\n",
        "three line feeds": b"\n\n\n",
        "a NUL": b"\0",
        "a page of NULs": bytes(4096),
        "NULs and a line feed": bytes(100) + b"\n",
        "text": b"garbage",
        "a line of text": b"garbage\n",
        "bytes that are not UTF-8": b"\xff\xfe\x80\n",
        "the last line again": base.lines[-1],
        "the last line again, cut": base.lines[-1][:-1],
        "the header again": base.lines[0],
        "the whole file again": base.transcript,
        "a line of another conversation": foreign[-1],
        "three lines of another conversation": b"".join(foreign[-3:]),
        "all of another conversation": base.other,
        "a hash": b',"hash":"' + b"0" * 32 + b'"}\n',
        "a record with a made-up hash": b'{"seq":12,"at":"2026-01-01T00:00:00.000000Z","hash":"' + b"a" * 32 + b'"}\n',
    }
    for name, data in more.items():
        yield name, base.transcript + data
        if data != b"\n":
            yield f"{name} instead of the last LF", base.transcript[:-1] + data
        yield f"{name} after half a line", base.transcript[:-20] + data
        yield f"{name} after the mark", base.transcript[: base.mark] + data
        yield f"{name} at the mark", base.transcript[: base.mark] + data + base.transcript[base.mark :]


def test_bytes_after_the_end(base):
    """P8: what was glued on behind the last append is cut and kept, or refused where it is a stored record; never read."""
    answers = check_all(base, tails(base))
    assert answers.keys() == {"refused", "torn"}


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_batch_is_whole_or_absent(base, step):
    """P3: of a batch that is damaged in any of its lines, at the end of the file, not one record is read."""
    batch_end = base.ends[4]
    batch_start = base.ends[3]
    with scratch_directory() as directory:
        torn = 0
        for at in range(batch_start, batch_end - 1, step):
            data = flipped(base.transcript[:batch_end], at, 0)
            answer = check(base, data, f"{directory}/c", f"byte {at} of a batch at the end")
            if answer == "torn":
                torn += 1
                assert oracle(data, base.mark).keep == batch_start
            else:  # the line feed between two whole records, or a line that looks like what a person appended
                assert answer == "refused"
        assert torn > 300 / step


@pytest.mark.parametrize("count", [pytest.param(6, id="6"), pytest.param(1000, id="1000", marks=pytest.mark.long)])
def test_seeded_mutations_of_a_longer_transcript(count, record_property):
    """P10: 1,000 mutations of each kind, none undetected: the reader or the torn tail it passes over tells of each."""
    randomly = random.Random(SEED)
    print(f"seed {SEED}")
    with scratch_directory() as directory:
        for name in ("a", "other"):
            with ConversationStore(f"{directory}/{name}", durability="process-crash") as conversation:
                conversation.initialize()
                for n in range(100):
                    conversation.append_message({"role": "user", "content": "word " * randomly.randrange(20), "n": n})
                    if n % 9 == 0:
                        conversation.append_messages([{"n": n, "k": k} for k in range(3)])
        metadata = Path(directory, "a/metadata.json").read_bytes()
        data = Path(directory, "a/transcript.jsonl").read_bytes()
        other = Path(directory, "other/transcript.jsonl").read_bytes()
        mutations = Mutations(data.splitlines(keepends=True), other.splitlines(keepends=True))
        for kind, mutate in mutations.kinds.items():
            for n in range(count):
                damaged = mutate()
                write(f"{directory}/c", metadata, damaged)
                found = verify(f"{directory}/c", file_system=HASTY)
                assert not found.is_intact, f"{kind} {n} of seed {SEED} went undetected"
                reader = ConversationStore(f"{directory}/c", read_only=True, file_system=HASTY)
                if damaged.startswith(data):
                    reader.load()  # something behind the mark; a reader passes over it
                else:
                    with pytest.raises(CorruptTranscriptError):
                        reader.load()
                reader.close()
        record_property("mutations of a transcript, all detected", count * len(mutations.kinds))


# ---- the metadata beside it -----------------------------------------------------------------------------------------


def verify_and_load_say(
    directory: str, kind: str, error: type[CorruptTranscriptError | CorruptMetadataError] = CorruptTranscriptError
) -> None:
    """Both find this and nothing else, and leave it as it is."""
    before = contents(directory)
    assert [finding.kind for finding in verify(directory, file_system=HASTY).findings] == [kind]
    with pytest.raises(error) as caught:
        ConversationStore(directory, file_system=HASTY).load()
    assert caught.value.kind == kind  # type: ignore[attr-defined]
    assert contents(directory) == before


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_verify_agrees_with_load_about_every_damaged_byte_of_the_metadata(base, step):
    """P10, P13: metadata.json damaged in any byte is refused by load, found by verify, and left as it is."""
    with scratch_directory() as directory:
        for at in range(0, len(base.metadata), step):
            write(f"{directory}/c", flipped(base.metadata, at, at % 8), base.transcript)
            verify_and_load_say(f"{directory}/c", "damaged", CorruptMetadataError)


def test_a_mark_that_the_transcript_does_not_know(base):
    """P10: a history that was rewritten whole, with a chain that verifies, is still not the one the mark remembers."""
    with scratch_directory() as directory:
        rewritten = resealed(base.lines, lambda body: body.replace(b'"one"', b'"eno"'))
        write(f"{directory}/c", base.metadata, rewritten)
        verify_and_load_say(f"{directory}/c", "rewritten")


def test_verify_agrees_with_load_about_a_mark_of_another_generation(base):
    """P10: a mark that names a generation other than its own file's is refused by load, so verify must find it too."""
    from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
    from transcript_store._log.record import Mark

    document = decode_document(base.metadata)
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    strange = encode_document(document.members, Mark(7, document.mark.position))
    with scratch_directory() as directory:
        write(f"{directory}/c", strange, base.transcript)
        verify_and_load_say(f"{directory}/c", "wrong-generation")


@pytest.mark.parametrize("at", ["yesterday", "2026-01-01T00:00:00", "", "0000-00-00T00:00:00.000000Z"])
def test_a_header_with_a_time_that_is_none(base, at):
    """P13, P15: the chain is not keyed, so anybody can write a header that verifies; a bad time in it is a damaged header."""
    header = json.loads(base.lines[0])
    header["at"] = at
    del header["hash"]
    body = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    line = sealed(b"0" * 32, body)
    void = re.sub(rb'\n  "mark": \{[^}]*\}', b'\n  "mark": null', base.metadata)
    void = void[:-44] + b',"hash":"' + sha256(void[:-44]).hexdigest()[:32].encode() + b'"}\n'
    with scratch_directory() as directory:
        write(f"{directory}/c", void, line)
        assert not verify(f"{directory}/c", file_system=HASTY).is_intact
        with pytest.raises(CorruptTranscriptError) as caught:
            ConversationStore(f"{directory}/c", file_system=HASTY).load()
        assert caught.value.kind == "damaged-header"


def test_an_empty_line_in_front_of_the_header(base: Base) -> None:
    """P10: it is called what it is; it was the whole file that was described."""
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, b"\n" + b"".join(base.lines))
        with pytest.raises(CorruptTranscriptError, match="not a header of ours: an empty line") as caught:
            ConversationStore(f"{directory}/c", file_system=HASTY).load()
        assert caught.value.kind == "foreign"


_AT = b'"at":"2026-01-01T00:00:00.000000Z"'


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"seq":1,' + _AT + b',"message":{nope}', id="not JSON"),
        pytest.param(b'{"seq":1,' + _AT + b',"message":{"a":"\xff"}', id="not UTF-8"),
        pytest.param(b'{"seq":1,' + _AT + b',"message":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", id="5,000 levels"),
        pytest.param(b'{"seq":1,"message":{"a":1}', id="no time"),
        pytest.param(b'{"seq":1,' + _AT + b',"message":[1]', id="a message that is an array"),
    ],
)
def test_a_forged_record_that_cannot_be_read(body):
    """P15: any program that can write the file can make a line that verifies and is no record; reading it raises an error of ours."""
    with scratch_directory() as directory:
        with ConversationStore(f"{directory}/c") as conversation:
            conversation.initialize()
            head = conversation.head.encode()
        with open(f"{directory}/c/transcript.jsonl", "ab") as file:
            file.write(sealed(head, body))
        reader = ConversationStore(f"{directory}/c", read_only=True, file_system=HASTY)
        with pytest.raises(CorruptTranscriptError):
            reader.load()
            reader.get_records()
        if b'"at"' in body:  # nobody needs the time for the messages
            with pytest.raises(CorruptTranscriptError) as refused:
                reader.get_messages()
            assert (refused.value.kind, refused.value.line_number) == ("foreign", 2)
        reader.close()


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param([(2, b"")], id="a number left out"),
        pytest.param([(1, b""), (1, b"")], id="a number twice"),
        pytest.param([(1, b',"batch":[1,2]'), (2, b"")], id="half a batch, then a record"),
        pytest.param([(1, b',"batch":[1,2]'), (2, b',"batch":[2,3]'), (3, b"")], id="a batch that changes its length"),
        pytest.param([(1, b',"batch":[1,3]'), (2, b',"batch":[2,2]')], id="a batch that ends before its length"),
        pytest.param([(1, b',"batch":[2,2]')], id="the end of a batch without its beginning"),
    ],
)
def test_forged_records_that_are_out_of_order(ends):
    """P15: a chain of hashes that verifies is refused if its numbers or its batches are wrong."""
    with scratch_directory() as directory:
        with ConversationStore(f"{directory}/c") as conversation:
            conversation.initialize()
            head = conversation.head.encode()
        with open(f"{directory}/c/transcript.jsonl", "ab") as file:
            for seq, batch in ends:
                body = b'{"seq":%d,%b,"message":{"a":1}%b' % (seq, _AT, batch)
                line = sealed(head, body)
                head = line[-35:-3]
                file.write(line)
        assert verify(f"{directory}/c", file_system=HASTY).findings[0].kind == "hole"
        with pytest.raises(CorruptTranscriptError, match="hole"):
            ConversationStore(f"{directory}/c").load()


# ---- hostile sizes --------------------------------------------------------------------------------------------------

_HOSTILE: dict[str, Callable[[int], bytes]] = {
    "line feeds": lambda size: b"\n" * size,
    "NULs": bytes,
    "ends of records": lambda size: (b',"hash":"' + b"0123456789abcdef" * 2 + b'"}') * (size // 43),
    "ends of records, one a line": lambda size: (b',"hash":"' + b"0123456789abcdef" * 2 + b'"}\n') * (size // 44),
    "beginnings of records": lambda size: b'{"seq":99,"at":"2026-01-01T00:00:00.000000Z","message":' * (size // 54),
    "beginnings of ends": lambda size: b',"hash":"' * (size // 9),
    "beginnings of batches": lambda size: b',"batch":[' * (size // 10),
    "a record begun and ends of records": lambda size: (
        b'{"seq":99,"at":"2026-01-01T00:00:00.000000Z"' + (b',"hash":"' + b"a" * 32 + b'"}') * (size // 43)
    ),
    "brackets": lambda size: b"[" * size,
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hostile_tail_is_recovered_in_linear_time(base, name):
    """P15 (R4): 3 MB of anything after the mark load in a moment, and eight times as much in about eight times the time."""

    def seconds(size: int) -> float:
        data = base.transcript + _HOSTILE[name](size)
        with scratch_directory() as directory:
            write(f"{directory}/c", base.metadata, data)
            began = time.process_time()
            with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
                conversation.load()
                assert conversation.recovery is not None
                assert conversation.recovery.torn_bytes == len(data) - len(base.transcript)
                assert len(conversation.get_records()) == len(base.lines) - 1
            return time.process_time() - began

    small, large = seconds(350_000), seconds(2_800_000)
    assert large < 30, f"{large:.1f} s"
    assert large < 24 * small + 0.25, f"{small:.3f} s, and {large:.3f} s for eight times the bytes"


@pytest.mark.long
@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hostile_tail_of_20_mb(base, name):
    """P15 (R4): 20 MB of it load within seconds."""
    data = base.transcript + _HOSTILE[name](20_000_000)
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, data)
        began = time.process_time()
        with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
            conversation.load()
            assert conversation.recovery is not None
        assert time.process_time() - began < 60


def test_verify_of_a_transcript_with_many_damaged_lines_is_linear():
    """P15 (R4): verify() lists each damaged stretch; eight times as many of them take about eight times as long."""

    def seconds(count: int) -> float:
        with scratch_directory() as directory:
            with ConversationStore(f"{directory}/a", durability="process-crash") as conversation:
                conversation.initialize(messages=({"n": n, "pad": "x" * 400} for n in range(count)))
            path = Path(directory, "a/transcript.jsonl")
            lines = path.read_bytes().splitlines(keepends=True)
            for n in range(2, len(lines), 3):
                lines[n] = lines[n].replace(b'"pad":"x', b'"pad":"y')
            path.write_bytes(b"".join(lines))
            began = time.process_time()
            findings = verify(f"{directory}/a", file_system=HASTY).findings
            spent = time.process_time() - began
            assert len(findings) == len(range(2, len(lines), 3))
            return spent

    small, large = seconds(1_200), seconds(9_600)
    assert large < 20 * small, f"{small:.2f} s, and {large:.2f} s for eight times the lines"


def test_verify_says_the_same_whatever_it_reads_at_a_time(base, monkeypatch):
    """P15: verify() reads in pieces; where they are cut changes nothing, in lines, in batches, at the mark, in damage."""

    def read(size: int) -> None:
        for module in (_scan, _resync):
            monkeypatch.setattr(module, "PIECE_BYTES", size)

    with scratch_directory() as directory:
        for size in (*range(1, 400, 7), 1 << 20):
            read(size)
            write(f"{directory}/c", base.metadata, base.transcript)
            found = verify(f"{directory}/c", file_system=HASTY)
            last = json.loads(base.lines[-1])
            assert (found.is_intact, found.records, found.head) == (True, last["seq"], last["hash"])
        for at in range(len(base.lines[0]), len(base.transcript), 23):
            damaged = flipped(base.transcript, at, 0) if at % 2 else base.transcript[:at]
            write(f"{directory}/c", base.metadata, damaged)
            read(at % 300 + 1)
            found = verify(f"{directory}/c", file_system=HASTY)
            read(1 << 20)
            assert found == verify(f"{directory}/c", file_system=HASTY)


def test_verify_holds_a_piece_of_the_file_and_reads_it_once():
    """P15: the memory that verify() takes does not grow with a whole transcript; a batch that is long is read at most twice."""
    import tracemalloc

    with scratch_directory() as directory:
        given = [{"pad": "x" * 1000, "n": n} for n in range(4_000)]
        with ConversationStore(f"{directory}/c", durability="process-crash") as conversation:
            conversation.initialize(messages=given)
        path = Path(directory, "c/transcript.jsonl")
        size = path.stat().st_size
        counting = Counting()
        tracemalloc.start()
        try:
            assert verify(f"{directory}/c", file_system=counting).is_intact
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < size / 2, f"{peak} bytes for a file of {size}"
        assert counting.bytes_read < 1.1 * size

        content = path.read_bytes()
        path.write_bytes(flipped(content, 1_000, 0))
        counting.bytes_read = 0
        assert not verify(f"{directory}/c", file_system=counting).is_intact
        assert counting.bytes_read < 2.4 * size, "one that is damaged early is read on for nothing"
        path.write_bytes(content)

        with ConversationStore(f"{directory}/c", durability="process-crash") as conversation:
            conversation.load()
            conversation.append_messages(given)
        verified = 0

        def resume(buffer: Any, base: int, before: Any) -> Any:
            nonlocal verified
            after = whole(buffer, base, before)
            verified += after.stopped.offset_bytes - before.stopped.offset_bytes
            return after

        whole = _scan.resume
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_scan, "resume", resume)
            assert verify(f"{directory}/c", file_system=HASTY).records == 8_000
        assert verified == path.stat().st_size - len(content.split(b"\n", 1)[0]) - 1, (
            "each line is hashed once, of a batch too"
        )


def test_recovery_copies_a_tail_only_a_few_times(base):
    """P15: the memory that recovery takes is a small multiple of the file's size."""
    import tracemalloc

    data = base.transcript + (b',"hash":"' + b"a" * 32 + b'"}\n') * 10_000
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata, data)
        tracemalloc.start()
        try:
            with ConversationStore(f"{directory}/c", file_system=HASTY) as conversation:
                conversation.load()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * len(data), f"{peak / len(data):.1f} times the file"


# ---- does the oracle object? ----------------------------------------------------------------------------------------


def test_the_table_would_notice_a_store_that_believes_everything(base, monkeypatch):
    """The harness itself: with the hash check or the mark taken out of recovery, the table of damage fails."""
    verify = Log.verify
    with scratch_directory() as directory:
        monkeypatch.setattr(Log, "verify", lambda self, mark: verify(self, None))
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(base, base.transcript[: base.mark - 10], f"{directory}/c", "cut before the mark")

    with scratch_directory() as directory:
        monkeypatch.setattr(Log, "verify", verify)
        monkeypatch.setattr(_scan, "sha256", lambda data=b"": _Believer())
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(base, flipped(base.transcript, base.mark + 60, 0), f"{directory}/c", "a flipped bit")


class _Believer:
    """A hash that is always what the line says (which no hash is)."""

    def update(self, data: object) -> None:
        pass

    def hexdigest(self) -> str:
        return "0" * 64
