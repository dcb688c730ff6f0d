"""Attacks on the files of a sealed conversation without its key: the rows of docs/encryption.md's table, one function each."""

import hashlib
import json
from typing import Any

from tests.sealed.conversations import (
    FIRST_ARCHIVED,
    FOLDER,
    ID,
    KEY_FILE,
    MESSAGES,
    METADATA,
    TRANSCRIPT,
    content,
    lines,
    opened,
    sealed,
)
from transcript_store import CorruptKeyFileError, CorruptMetadataError, CorruptTranscriptError, NotSealedError
from transcript_store._log.record import GENESIS, close_line
from transcript_store.testing import SimulatedFileSystem


def rechained(changed, start=b""):
    """Lines with their hashes computed anew: anybody can do that."""
    head, found = GENESIS, []
    for line in changed:
        whole, head = close_line(head, line[: line.rindex(b',"hash":"')])
        found.append(whole)
    return b"".join(found)


def with_hash(body):
    return body + b',"hash":"%b"}\n' % hashlib.sha256(body).hexdigest()[:32].encode()


def without_key(disk, path=METADATA):
    """metadata.json as somebody writes it who lacks the key: without its check, and with its mark where the caller wants it."""
    document = json.loads(content(disk, path))
    del document["hash"], document["check"]
    return document


def forged(document):
    return with_hash(json.dumps(document).encode()[:-1])


def change_a_byte(disk):
    """A byte of a sealed record, with every hash computed anew."""
    found = lines(disk)
    sealed_at = found[2].index(b'"sealed":"') + 30
    found[2] = (
        found[2][:sealed_at]
        + (b"A" if found[2][sealed_at : sealed_at + 1] != b"A" else b"B")
        + found[2][sealed_at + 1 :]
    )
    disk.write_file(TRANSCRIPT, rechained(found))
    move_the_mark(disk)


def move_the_mark(disk):
    """Without the key: the mark fits what stands there now, and the check is the old one."""
    document = json.loads(content(disk, METADATA))
    check = document["check"]
    del document["hash"], document["check"]
    found = lines(disk)
    document["mark"] |= {"seq": len(found) - 1, "offset": len(content(disk)), "head": json.loads(found[-1])["hash"]}
    body = json.dumps(document).encode()[:-1] + b',"check":"%b"' % check.encode()
    disk.write_file(METADATA, with_hash(body))


def swap_two(disk):
    """Two records swapped, with their numbers and times exchanged."""
    found = [json.loads(line) for line in lines(disk)]
    found[1]["sealed"], found[2]["sealed"] = found[2]["sealed"], found[1]["sealed"]
    disk.write_file(TRANSCRIPT, rechained([json.dumps(one, separators=(",", ":")).encode() for one in found]))
    move_the_mark(disk)


def behind_the_mark(disk):
    """Records that no mark covers yet: whoever wrote them was killed. Nothing but what is sealed in them says where they belong."""
    store = opened(disk)
    store.load()
    store.append_messages([{"content": "one"}, {"content": "two"}])
    store.append_message({"content": "three"})
    store.retract()


def swap_two_behind_the_mark(disk):
    """Two records of one batch, which have one time, swapped."""
    behind_the_mark(disk)
    found = [json.loads(line) for line in lines(disk)]
    found[-4]["sealed"], found[-3]["sealed"] = found[-3]["sealed"], found[-4]["sealed"]
    disk.write_file(TRANSCRIPT, rechained([json.dumps(line, separators=(",", ":")).encode() for line in found]))


def change_a_time_behind_the_mark(disk):
    behind_the_mark(disk)
    found = [json.loads(line) for line in lines(disk)]
    found[-1]["at"] = "2031-01-01T00:00:00.000000Z"
    disk.write_file(TRANSCRIPT, rechained([json.dumps(line, separators=(",", ":")).encode() for line in found]))


def replay_one_of_another_generation(disk):
    """What stood at the same number, at the same time, in a later generation that somebody put back."""
    behind_the_mark(disk)
    found = [json.loads(line) for line in lines(disk)]
    other = disk.copy()
    with opened(other) as store:
        store.load()
        store.replace_transcript([{"content": f"later {number}"} for number in range(len(found) - 1)])
    later = json.loads(lines(other)[len(found) - 2])
    found[-2] |= {"sealed": later["sealed"], "at": later["at"]}
    found[-1]["at"] = later["at"]
    del found[-1]
    disk.write_file(TRANSCRIPT, rechained([json.dumps(line, separators=(",", ":")).encode() for line in found]))


def retract_more_behind_the_mark(disk):
    """A retraction names more records in sight than it names sealed."""
    behind_the_mark(disk)
    found = lines(disk)
    last = json.loads(found[-1])["retracts"][1]
    found[-1] = found[-1].replace(b'"retracts":[%d,' % last, b'"retracts":[1,')
    disk.write_file(TRANSCRIPT, rechained(found))


def put_a_header_without_a_check_behind_earlier_metadata(disk):
    """A generation that nobody with the key began: as a replace leaves it that was cut off before it wrote metadata.json."""
    with opened(disk) as store:
        store.load()
        earlier = content(disk, METADATA)
        store.replace_transcript([])
    header = json.loads(lines(disk)[0])
    del header["check"], header["begins_with"], header["hash"]
    disk.write_file(TRANSCRIPT, rechained([json.dumps({**header, "hash": ""}, separators=(",", ":")).encode()]))
    disk.write_file(METADATA, earlier)


def replay_one(disk):
    """A record appended again behind the mark."""
    found = lines(disk)
    again = json.loads(found[3]) | {"seq": len(found)}
    disk.write_file(TRANSCRIPT, rechained([*found, json.dumps(again, separators=(",", ":")).encode()]))


def replay_one_as_a_repaired_one(disk):
    """The same, which says where it was sealed."""
    found = lines(disk)
    stands = json.loads(found[3])
    again = {"seq": len(found), "at": stands["at"], "sealed": stands["sealed"], "sealed_at": [0, 3], "hash": ""}
    disk.write_file(TRANSCRIPT, rechained([*found, json.dumps(again, separators=(",", ":")).encode()]))


def append_plain(disk):
    """A plain record, with the right number and hash."""
    found = lines(disk)
    line = (
        b'{"seq":%d,"at":"2026-11-24T00:00:00.000000Z","message":{"role":"user","content":"forged"},"hash":""}'
        % len(found)
    )
    disk.write_file(TRANSCRIPT, rechained([*found, line]))


def append_plain_retraction(disk):
    """A retraction that nobody sealed."""
    found = lines(disk)
    line = b'{"seq":%d,"at":"2026-11-24T00:00:00.000000Z","retracts":[1,2],"hash":""}' % len(found)
    disk.write_file(TRANSCRIPT, rechained([*found, line]))


def retract_more(disk):
    """A retraction names more records in sight than it names sealed."""
    found = lines(disk)
    found[-1] = found[-1].replace(b'"retracts":[6,6]', b'"retracts":[1,6]')
    disk.write_file(TRANSCRIPT, rechained(found))
    move_the_mark(disk)


def retract_nothing(disk):
    """A retraction without what it names in sight."""
    found = lines(disk)
    found[-1] = found[-1].replace(b'"retracts":[6,6],', b"")
    disk.write_file(TRANSCRIPT, rechained(found))
    move_the_mark(disk)


def change_a_time(disk):
    """The time of a record."""
    found = lines(disk)
    found[-1] = found[-1].replace(json.loads(found[-1])["at"].encode(), b"2031-01-01T00:00:00.000000Z")
    disk.write_file(TRANSCRIPT, rechained(found))
    move_the_mark(disk)


def truncate(disk):
    """The last records cut off, and a mark that fits."""
    disk.write_file(TRANSCRIPT, b"".join(line + b"\n" for line in lines(disk)[:3]))
    move_the_mark(disk)


def truncate_with_a_mark_of_nothing(disk):
    """The last records cut off, and metadata.json as a create leaves it before its commit."""
    disk.write_file(TRANSCRIPT, b"".join(line + b"\n" for line in lines(disk)[:2]))
    disk.write_file(METADATA, forged(without_key(disk) | {"mark": None}))


def strip_the_check(disk):
    """metadata.json without its check."""
    disk.write_file(METADATA, forged(without_key(disk)))


def change_the_provider(disk):
    """What stands in sight of the metadata."""
    disk.write_file(METADATA, content(disk, METADATA).replace(b'"claude"', b'"openai"'))
    body = content(disk, METADATA)[:-44]
    disk.write_file(METADATA, with_hash(body))


def put_in_a_plain_prompt(disk):
    """A system prompt in sight."""
    disk.write_file(METADATA, forged(without_key(disk) | {"system_prompt": "forged"}))


def make_it_plain(disk):
    """A plain conversation in the place of the sealed one."""
    other = SimulatedFileSystem()
    with opened(other, None) as store:
        store.initialize(id=ID, messages=[{"role": "user", "content": "forged"}])
    for path in (TRANSCRIPT, METADATA):
        disk.write_file(path, content(other, path))


def rewrite_the_header(disk):
    """A header without its check, and a mark of nothing."""
    found = lines(disk)
    header = json.loads(found[0])
    del header["check"], header["hash"]
    found[0] = json.dumps(header, separators=(",", ":")).encode()[:-1] + b',"hash":""}'
    disk.write_file(TRANSCRIPT, rechained(found))
    disk.write_file(METADATA, forged(without_key(disk) | {"mark": None}))


def take_the_records_of_another(disk):
    """The transcript, the metadata and the key of another conversation with the same key."""
    other = SimulatedFileSystem()
    with opened(other) as store:
        store.initialize(messages=[{"content": "of another"}])
    found = lines(disk)
    stolen = json.loads(lines(other)[1])
    line = json.loads(found[1]) | {"sealed": stolen["sealed"], "at": stolen["at"]}
    found[1] = json.dumps(line, separators=(",", ":")).encode()
    disk.write_file(TRANSCRIPT, rechained(found))
    move_the_mark(disk)


def take_the_key_of_another(disk):
    """Another conversation's key file."""
    other = SimulatedFileSystem()
    with opened(other) as store:
        store.initialize()
    disk.write_file(KEY_FILE, content(other, KEY_FILE))


def take_the_newest_archive(disk):
    """The newest earlier generation removed."""
    folder = disk.open_directory(f"{FOLDER}/archive")
    disk.unlink(folder, "transcript-000000.jsonl")


def forge_the_archive(disk):
    """An earlier generation written anew, plain."""
    other = SimulatedFileSystem()
    with opened(other, None) as store:
        store.initialize(id=ID, messages=MESSAGES[:2])
    disk.write_file(FIRST_ARCHIVED, content(other))


def put_back_earlier_metadata(disk):
    """metadata.json of the generation before, which somebody with the key wrote, and the first records of this one cut off."""
    disk.write_file(METADATA, content(sealed_before_a_replace(), METADATA))
    disk.write_file(TRANSCRIPT, lines(disk)[0] + b"\n")


def sealed_before_a_replace():
    return sealed()


ATTACKS = {
    change_a_byte: "not-genuine",
    swap_two: "not-genuine",
    swap_two_behind_the_mark: "not-genuine",
    change_a_time_behind_the_mark: "not-genuine",
    replay_one_of_another_generation: "not-genuine",
    retract_more_behind_the_mark: "not-genuine",
    put_a_header_without_a_check_behind_earlier_metadata: "unkeyed-repair",
    replay_one: "not-genuine",
    replay_one_as_a_repaired_one: "not-genuine",
    append_plain: "not-genuine",
    append_plain_retraction: "not-genuine",
    retract_more: "not-genuine",
    retract_nothing: "not-genuine",
    change_a_time: "not-genuine",
    truncate: "not-genuine",
    truncate_with_a_mark_of_nothing: "unkeyed-repair",
    strip_the_check: "unkeyed-repair",
    change_the_provider: "not-genuine",
    put_in_a_plain_prompt: "unkeyed-repair",
    rewrite_the_header: "unkeyed-repair",
    take_the_records_of_another: "not-genuine",
}
OTHERS: dict[Any, Any] = {
    make_it_plain: NotSealedError,
    take_the_key_of_another: CorruptKeyFileError,
    take_the_newest_archive: CorruptTranscriptError,
    forge_the_archive: CorruptTranscriptError,
    put_back_earlier_metadata: (CorruptTranscriptError, CorruptMetadataError),
}


def repaired_as(disk, kept):
    """What somebody without the key can write who calls it a repair: these records, by the numbers that they had."""
    found = [json.loads(line) for line in lines(disk)]
    header = {name: value for name, value in found[0].items() if name not in ("check", "begins_with")}
    header |= {"generation": 1, "kept_sealed": len(kept), "metadata": header["metadata"] | {"generation": 1}}
    copies = [
        {"seq": seq, "at": found[was]["at"], "sealed": found[was]["sealed"], "sealed_at": [0, was], "hash": ""}
        for seq, was in enumerate(kept, 1)
    ]
    del header["hash"]
    all_lines = [{**header, "hash": ""}, *copies]
    disk.write_file(TRANSCRIPT, rechained([json.dumps(one, separators=(",", ":")).encode() for one in all_lines]))
    disk.write_file(METADATA, forged(without_key(disk) | {"generation": 1, "mark": None}))
