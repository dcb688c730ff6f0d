"""Rules for every repair, whatever the damage."""

from __future__ import annotations

import dataclasses
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.damage import NEW
from tests.kit.machines import HASTY
from tests.kit.oracle import digest
from tests.kit.oracle_of_repair import Carried, of_line
from tests.kit.trees import contents
from transcript_store import ConversationStore, Repair, repair, verify
from transcript_store._log.repair_plan import GAP, Mode


class Base(NamedTuple):
    """A whole conversation of eight records: 3, 4 and 5 are a batch, 6 is an event, the mark is behind 6."""

    metadata: bytes
    lines: list[bytes]
    foreign: bytes
    """A record of another conversation."""


def carried(directory: str) -> list[Carried]:
    """What the records of a conversation carry, read with Python's json; the chain is checked with nothing of the package."""
    previous, found = b"0" * 32, []
    lines = Path(directory, "transcript.jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    for seq, line in enumerate(lines):
        previous = digest(previous, line[:-43])
        assert line[-43:] == b',"hash":"' + previous + b'"}'
        members = json.loads(line)
        if seq:
            assert members["seq"] == seq
            found.append((members["at"], members.get("message"), members.get("extra")))
    return found


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
    before = contents(directory)
    proposal = repair(directory, mode=mode, file_system=HASTY)
    assert contents(directory) == before, "a dry run changed something"
    assert not os.path.exists(f"{directory}/lock"), "a dry run took the lock"
    assert not proposal.applied
    seen = verify(directory, file_system=HASTY)
    assert [f.kind for f in proposal.findings] == [f.kind for f in seen.findings]
    if mode == "salvage":
        assert proposal.records_kept == seen.records

    done = repair(directory, mode=mode, dry_run=False, file_system=HASTY)
    assert done == dataclasses.replace(proposal, applied=bool(proposal.findings))
    after = contents(directory)
    if not proposal.findings:
        assert after == before, "a repair of a whole conversation changed something"
        assert not done.originals
    kept = [Path(path).read_bytes() for path in done.originals]
    damaged = {os.path.relpath(finding.path, directory) for finding in done.findings}
    for name, content in before.items():
        if name in damaged:
            assert content in kept, f"{name} is not in quarantine"
        elif name != "metadata.json":
            assert any(file.startswith(content) for file in after.values()), f"{name} is nowhere"
    for path, content in zip(done.originals, kept, strict=True):
        note = json.loads(Path(f"{path}.json").read_bytes())
        assert (note["offset"], note["bytes"], note["sha256"]) == (0, len(content), sha256(content).hexdigest())

    assert verify(directory, file_system=HASTY).findings == ()
    records = carried(directory)
    assert done.records_kept == sum(GAP not in (extra or ()) for _, _, extra in records)
    again = repair(directory, mode=mode, dry_run=False, file_system=HASTY)
    assert (again.findings, again.applied, again.originals) == ((), False, ())
    assert contents(directory) == after

    with ConversationStore(directory, file_system=HASTY) as conversation:
        conversation.load()
        assert conversation.recovery is None
        assert conversation.get_messages() == [message for _, message, _ in records if message is not None]
        conversation.append_message(NEW)
    with ConversationStore(directory, file_system=HASTY) as conversation:
        conversation.load()
        assert [(r.at, r.message, r.extra) for r in conversation.get_records()][:-1] == records
        assert conversation.get_messages()[-1] == NEW
    assert verify(directory, file_system=HASTY).is_intact
    return done


def metadata_of(directory: str) -> Any:
    with ConversationStore(directory, read_only=True, file_system=HASTY) as conversation:
        conversation.load()
        return conversation.get_metadata()


def with_archive(directory: str) -> dict[str, bytes]:
    """A conversation in its third generation; returns its files."""
    with ConversationStore(directory, file_system=HASTY) as conversation:
        conversation.initialize(provider="claude", messages=[{"n": 0}])
        conversation.replace_transcript([{"n": 1}, {"n": 2}], compaction_count=1)
        conversation.append_message({"n": 3})
        conversation.replace_transcript([{"n": 4}, {"n": 5}, {"n": 6}], compaction_count=2)
        conversation.append_message({"n": 7})
    os.remove(f"{directory}/lock")
    return contents(directory)


FIRST, SECOND = "archive/transcript-000000.jsonl", "archive/transcript-000001.jsonl"


def messages_of(directory: str, generation: int | None = None) -> list[Any]:
    with ConversationStore(directory, read_only=True, file_system=HASTY) as conversation:
        conversation.load()
        return [record.message for record in conversation.get_records(generation=generation)]


def with_json(lines: list[bytes]) -> bytes:
    return b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in lines)


ALL = "12345678"
