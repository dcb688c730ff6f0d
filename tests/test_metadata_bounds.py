"""Metadata has a limit: a metadata.json that is too long is an error of ours, not memory.

The incident: a sparse metadata.json of 2 GB, which takes no room on a disk, made a list take 4.1 GB and 18 seconds. What is not
read for its length must not be written either, or a conversation could shut itself out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from transcript_store import (
    ConversationStore,
    CorruptMetadataError,
    InvalidMetadataError,
    Snapshot,
    repair,
    restore_snapshot,
    verify,
)
from transcript_store._conversation import layout, metadata
from transcript_store._log import scan

SPARSE = 300_000_000
"""More than the addresses that a process is given here. (A repair reads all of it, piece by piece, to name it by its hash.)"""
SAID = [{"n": 1}, {"n": 2}]

LOOK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
from transcript_store import (
    ConversationLibrary, ConversationStore, CorruptMetadataError, list_conversations, repair, salvage, verify
)
from transcript_store.cli import main

path = sys.argv[1]
for load in (
    lambda: ConversationStore(path).load(),
    lambda: ConversationStore(path, read_only=True).load(),
    lambda: ConversationStore(path).load(verify="tail"),
    lambda: ConversationStore(path).load_or_initialize(),
):
    try:
        load()
    except CorruptMetadataError as error:
        assert error.kind == "damaged" and "300,000,000 bytes long" in str(error), error
    else:
        raise AssertionError("it was loaded")
assert ConversationStore(path).exists()
[found] = list_conversations(path.rpartition("/")[0])
assert "300,000,000 bytes long" in found.damage, found
[finding] = verify(path).findings
assert (finding.kind, finding.path) == ("damaged", f"{path}/metadata.json"), finding
assert len(salvage(path).found) == 2
assert repair(path, mode="accept-edits").metadata_from == "header"
assert main(["show", path]) == 1
assert main(["verify", path]) == 1
"""


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    path = tmp_path / "chats" / "c"
    with ConversationStore(path) as store:
        store.initialize(model="m", messages=SAID)
    os.truncate(path / "metadata.json", SPARSE)
    return path


def test_a_sparse_file_in_its_place_is_an_error_and_not_memory(sparse: Path) -> None:
    """P15: load, list, verify, show, repair, each within a quarter of a gigabyte of addresses."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(sparse)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "300,000,000 bytes long" in done.stderr
    assert (sparse / "metadata.json").stat().st_size == SPARSE, "it was touched"


def test_a_repair_keeps_it_and_rebuilds_it(tmp_path: Path) -> None:
    """P13: a file of one byte more than the limit goes to quarantine whole, and the header has the metadata."""
    path = tmp_path / "c"
    with ConversationStore(path) as store:
        store.initialize(model="m", messages=SAID)
    os.truncate(path / "metadata.json", (64 << 20) + 1)
    assert [finding.kind for finding in verify(path).findings] == ["damaged"]
    done = repair(path, mode="salvage", dry_run=False)
    assert [Path(original).stat().st_size for original in done.originals] == [(64 << 20) + 1]
    with ConversationStore(path) as store:
        store.load()
        assert store.get_messages() == SAID
        assert store.get_metadata().model == "m"


@pytest.fixture
def four_mebibytes(monkeypatch: pytest.MonkeyPatch) -> int:
    """The limit, a sixteenth of itself."""
    limit = 4 << 20
    for module in (metadata, layout, scan):
        monkeypatch.setattr(module, "LONGEST_METADATA_BYTES", limit)
    return limit


@pytest.mark.parametrize("way", ["initialize", "update_metadata", "replace_transcript", "restore_snapshot"])
def test_what_would_not_be_read_again_is_refused(tmp_path: Path, four_mebibytes: int, way: str) -> None:
    """P7: each of the two is short enough by itself. What is there stays, and can be loaded."""
    half = "x" * (four_mebibytes * 5 // 8)
    tools = [{"name": "t", "description": half}]
    with ConversationStore(tmp_path / "c") as store:
        if way != "initialize":
            store.initialize(model="m", system_prompt=half, messages=SAID)
        with pytest.raises(InvalidMetadataError, match=r"at most 4,194,304 fit") as caught:
            if way == "initialize":
                store.initialize(system_prompt=half, tools=tools)
            elif way == "update_metadata":
                store.update_metadata(tools=tools)
            elif way == "replace_transcript":
                store.replace_transcript([], tools=tools)
            else:
                restore_snapshot(Snapshot.create(provider="", system_prompt=half, metadata={"a": half}), store)
        assert caught.value.field in ("system_prompt", "tools", "restored_from")
        if way == "initialize":
            assert not store.exists()
            return
        store.append_message({"n": 3})
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert store.get_messages() == [*SAID, {"n": 3}]
        assert store.get_metadata().model == "m"


def test_the_longest_metadata_can_be_read(tmp_path: Path, four_mebibytes: int) -> None:
    """P7: of what may be written all is read: by a load, from the header after a replace, and by a repair from there."""
    longest = four_mebibytes - (1 << 20) - 600
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=SAID, system_prompt="x" * longest)
        with pytest.raises(InvalidMetadataError, match="system_prompt"):
            store.update_metadata(system_prompt="x" * (longest + 600))
        store.replace_transcript(SAID)
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert len(store.get_metadata().system_prompt or "") == longest
    (tmp_path / "c" / "metadata.json").unlink()
    repair(tmp_path / "c", mode="prefix", dry_run=False)
    assert verify(tmp_path / "c").is_intact


@pytest.mark.parametrize("more", [0, 1])
def test_metadata_of_just_the_longest_is_read(tmp_path: Path, four_mebibytes: int, more: int) -> None:
    """P7: of another writer, which puts blanks between the members: the last byte that may be there is read, and not one more."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=SAID)
    path = tmp_path / "c/metadata.json"
    body, _, tail = path.read_bytes().rpartition(b',"hash":')
    body += b" " * (four_mebibytes + more - len(body) - len(b',"hash":') - len(tail))
    path.write_bytes(b'%b,"hash":"%b"}\n' % (body, sha256(body).hexdigest()[:32].encode()))
    assert path.stat().st_size == four_mebibytes + more
    with ConversationStore(tmp_path / "c") as store:
        if more:
            with pytest.raises(CorruptMetadataError):
                store.load()
        else:
            store.load()
            assert store.get_messages() == SAID
