"""metadata.json is damaged, edited or lost: what a repair takes from it, and what from the header."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.kit.damage import write
from tests.kit.machines import HASTY
from tests.kit.meanwhile import CHAT, TRANSCRIPT, a_conversation
from tests.kit.scratch import scratch_directory
from tests.repair.helpers import ALL, Base, carried, metadata_of, notation, repaired, with_json
from transcript_store import ConversationStore, repair, verify
from transcript_store._log.repair_plan import MODES, Mode


def changed_later(base: Base, directory: str) -> bytes:
    """The base with a model that only metadata.json knows; returns that."""
    write(directory, base.metadata, b"".join(base.lines))
    with ConversationStore(directory, file_system=HASTY) as conversation:
        conversation.load()
        conversation.update_metadata(model="m-2")
    os.remove(f"{directory}/lock")
    return Path(directory, "metadata.json").read_bytes()


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "NUL", "changed", "not JSON"])
def test_metadata_is_rebuilt_from_the_header(base: Base, damage: str, mode: Mode) -> None:
    """A lost or damaged metadata.json: what the transcript's header says, which does not know of later changes."""
    with scratch_directory() as directory:
        path = Path(f"{directory}/c/metadata.json")
        whole = changed_later(base, f"{directory}/c")
        damaged = {
            "lost": None,
            "empty": b"",
            "cut": whole[:100],
            "NUL": bytes(len(whole)),
            "changed": whole.replace(b'"generation": 0', b'"generation":-9'),
            "not JSON": b"#!/bin/sh\n",
        }[damage]
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        done = repaired(f"{directory}/c", mode)
        assert (done.metadata_from, done.generation) == ("header", None)
        assert [Path(original).read_bytes() for original in done.originals] == ([] if damaged is None else [damaged])
        assert (metadata_of(f"{directory}/c").model, metadata_of(f"{directory}/c").generation) == ("m-1", 0)
        assert notation(base, carried(f"{directory}/c")[:-1]) == ALL


@pytest.mark.parametrize("mode", MODES)
def test_metadata_that_was_edited_by_hand(base: Base, mode: Mode) -> None:
    """``accept-edits`` takes the edit, even of an editor that leaves a byte order mark; the others go by the header."""
    with scratch_directory() as directory:
        whole = changed_later(base, f"{directory}/c")
        edit = b"\xef\xbb\xbf" + whole.replace(b"m-2", b"m-3").replace(b"\n", b"\r\n")
        Path(f"{directory}/c/metadata.json").write_bytes(edit)
        done = repaired(f"{directory}/c", mode)
        accepts = mode == "accept-edits"
        assert done.metadata_from == ("metadata.json" if accepts else "header")
        assert metadata_of(f"{directory}/c").model == ("m-3" if accepts else "m-1")
        assert [Path(original).read_bytes() for original in done.originals] == [edit]


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param((b'"m-2"', b"7"), id="a model that is a number"),
        pytest.param((b'"labels": {', b'"labels": {"deep": ' + b"[" * 2000 + b"]" * 2000 + b","), id="too deep"),
        pytest.param((b'"version": 1', b'"version": 2'), id="a later version"),
        pytest.param((b'"id": "', b'"id": "../'), id="an id that is a path"),
    ],
)
def test_an_edit_of_the_metadata_that_cannot_be(base: Base, edit: tuple[bytes, bytes]) -> None:
    """P15: what may not stand in metadata.json is not taken from an edited one either."""
    with scratch_directory() as directory:
        whole = changed_later(base, f"{directory}/c")
        Path(f"{directory}/c/metadata.json").write_bytes(whole.replace(*edit))
        done = repaired(f"{directory}/c", "accept-edits")
        assert done.metadata_from == "header"
        assert metadata_of(f"{directory}/c").model == "m-1"


def test_an_edit_cannot_make_it_another_conversation(base: Base) -> None:
    """Identity and generation are the transcript's as long as it has a header that is whole."""
    with scratch_directory() as directory:
        whole = changed_later(base, f"{directory}/c")
        own = json.loads(whole)["id"]
        edit = whole.replace(own.encode(), b"0" * 8 + own[8:].encode()).replace(b'"generation": 0', b'"generation": 4')
        Path(f"{directory}/c/metadata.json").write_bytes(edit)
        repaired(f"{directory}/c", "accept-edits")
        assert (metadata_of(f"{directory}/c").id, metadata_of(f"{directory}/c").generation) == (own, 0)


def test_beside_the_metadata_of_another_conversation_the_archive_stays(tmp_path: Path) -> None:
    """P10: the metadata is kept aside, and the transcript that it refused; not the generations that nothing is wrong with."""
    for name in ("c", "other"):
        with ConversationStore(tmp_path / name) as store:
            store.initialize(messages=[{"n": 1}])
            store.replace_transcript([{"n": 2}])
    shutil.copy(tmp_path / "other/metadata.json", tmp_path / "c/metadata.json")
    refused = {(tmp_path / "c" / name).read_bytes() for name in ("metadata.json", "transcript.jsonl")}
    done = repair(tmp_path / "c", mode="accept-edits", dry_run=False)
    assert {Path(kept).read_bytes() for kept in done.originals} == refused


@pytest.mark.parametrize("mode", MODES)
def test_transcript_and_metadata_damaged_at_once(base: Base, mode: Mode) -> None:
    """Both originals are kept; the metadata is the header's."""
    with scratch_directory() as directory:
        write(f"{directory}/c", base.metadata[:50], b"".join(base.lines[:2] + base.lines[3:]))
        done = repaired(f"{directory}/c", mode)
        assert (done.metadata_from, done.generation, len(done.originals)) == ("header", 1, 2)
        assert metadata_of(f"{directory}/c").provider == "claude"


def test_a_header_edited_beside_lost_metadata(base: Base) -> None:
    """With nothing else left, ``accept-edits`` believes the first line by its form; the others know nothing."""
    with scratch_directory() as directory:
        for mode in MODES:
            write(f"{directory}/c", b"", with_json(base.lines))
            os.remove(f"{directory}/c/metadata.json")
            done = repaired(f"{directory}/c", mode)
            accepts = mode == "accept-edits"
            assert done.metadata_from == ("header" if accepts else "nothing")
            assert metadata_of(f"{directory}/c").provider == ("claude" if accepts else None)
            assert (metadata_of(f"{directory}/c").id == json.loads(base.metadata)["id"]) is accepts


def test_a_repair_of_metadata_alone_keeps_nothing_open() -> None:
    """The transcript is read to its end for the mark, and closed."""
    disk = a_conversation()
    before = disk.tree()[TRANSCRIPT]
    disk.write_file(f"{CHAT}/metadata.json", b"{}")
    assert repair(CHAT, dry_run=False, file_system=disk).applied
    assert verify(CHAT, file_system=disk).is_intact
    assert disk.tree()[TRANSCRIPT] == before
    assert disk.open_handles == []
