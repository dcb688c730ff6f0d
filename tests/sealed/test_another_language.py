"""docs/format.md is enough to read a sealed conversation in another language: ``reader.mjs`` was written from that page, with node's own modules.

It reads what this library reads, and refuses what this library refuses: the attacks of tests/sealed/attacks.py. P17, P20.
"""

import subprocess
from pathlib import Path

import orjson
import pytest

from tests.sealed.attacks import ATTACKS, repaired_as
from tests.sealed.conversations import (
    CANARY,
    FOLDER,
    KEY,
    MESSAGES,
    OTHER_KEY,
    TRANSCRIPT,
    content,
    lines,
    opened,
    sealed,
)
from transcript_store import repair

pytestmark = pytest.mark.needs("node")
READER = Path(__file__).with_name("reader.mjs")


def run(disk, folder, key=KEY):
    """What the reader says of the files on a disk."""
    folder.mkdir()
    for path, data in disk.tree().items():
        if path.startswith(f"{FOLDER}/") and data is not None and "/" not in (name := path.removeprefix(f"{FOLDER}/")):
            (folder / name).write_bytes(data)
    return subprocess.run(
        ["node", READER, folder], input=key.hex().encode(), capture_output=True, timeout=60, check=False
    )


def read(disk, folder):
    done = run(disk, folder)
    assert done.returncode == 0, done.stderr.decode()
    return orjson.loads(done.stdout)


def agrees(found, disk):
    with opened(disk.copy(), read_only=True) as store:
        store.load()
        metadata, records = store.get_metadata(), store.get_records()
        assert found["messages"] == store.get_messages()
    for name in ("id", "provider", "model", "system_prompt", "tools", "labels", "compaction_count", "created_at"):
        assert found["metadata"][name] == orjson.loads(orjson.dumps(getattr(metadata, name))), name
    shown = [(one["seq"], one["at"], one.get("message"), one.get("extra")) for one in found["records"]]
    assert shown == [(one.seq, one.at, one.message, one.extra) for one in records]
    assert [tuple(one["retracts"]) if one.get("retracts") else None for one in found["records"]] == [
        record.retracts for record in records
    ]


@pytest.mark.parametrize("replaced", [False, True])
def test_it_reads_what_we_read(tmp_path, replaced):
    """Messages, extras, an event, a batch, a retraction; system prompt, labels and tools."""
    disk = sealed(replaced=replaced)
    found = read(disk, tmp_path / "c")
    assert found["messages"] == MESSAGES
    assert found["metadata"]["system_prompt"] == f"{CANARY} prompt"
    agrees(found, disk)


def test_it_passes_over_a_torn_tail_and_half_a_batch(tmp_path):
    disk = sealed().copy()
    with opened(disk) as store:
        store.load()
        store.append_messages([{"content": "one"}, {"content": "two"}])
        half = b"".join(line + b"\n" for line in lines(disk)[:-1])
        store_metadata = disk.tree()[f"{FOLDER}/metadata.json"]
    disk.write_file(TRANSCRIPT, half + b'{"seq":')
    disk.write_file(f"{FOLDER}/metadata.json", store_metadata or b"")
    assert read(disk, tmp_path / "c")["messages"] == MESSAGES


def test_it_reads_a_repair_that_was_accepted_and_no_other(tmp_path):
    disk = sealed().copy()
    damaged = lines(disk)
    damaged[2] = damaged[2].replace(b'"sealed":"', b'"sealed":"!')
    disk.write_file(TRANSCRIPT, b"".join(line + b"\n" for line in damaged))
    repair(FOLDER, mode="salvage", dry_run=False, file_system=disk)
    assert b"repaired without its key" in run(disk, tmp_path / "before").stderr
    with opened(disk) as store:
        store.load(accept_unkeyed_repair=True)
        store.append_message({"content": "after"})
    found = read(disk, tmp_path / "after")
    assert found["messages"] == [MESSAGES[0], MESSAGES[2], MESSAGES[3], {"content": "after"}]
    agrees(found, disk)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_it_refuses_what_we_refuse(tmp_path, attack):
    """P17: the rows of docs/encryption.md that this page gives a reader the means for."""
    disk = sealed().copy()
    attack(disk)
    done = run(disk, tmp_path / "c")
    assert done.returncode == 1
    assert CANARY.encode() not in done.stdout + done.stderr


def test_it_refuses_another_key_and_says_nothing_of_the_content(tmp_path):
    done = run(sealed(), tmp_path / "c", OTHER_KEY)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"another key" in done.stderr


def test_it_refuses_records_that_were_turned_round(tmp_path):
    disk = sealed().copy()
    repaired_as(disk, [2, 1])
    assert run(disk, tmp_path / "c").returncode == 1
    assert content(disk)
