"""Sessions that programs wrote, made by recipes or kept by others: what holds of each file, and the traps that each program sets.

The files lie beside the repository (``TRANSCRIPT_STORE_SHARED``); without them nothing is asked here, and the tests of each format
hold the same with inputs of our own.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import session_properties
from tests.formats.sources import SHARED
from transcript_store import ConversationLibrary, Record
from transcript_store.importing import import_conversations

CORPORA = Path(SHARED or "/nonexistent") / "corpora"
PROGRAMS = (
    "made/qwen-code",
    "made/cline",
    "made/droid",
    "made/hermes-agent",
    "wild/qwen",
    "wild/droid",
    "wild/cursor",
    "wild/hermes",
)
FILES = [
    path
    for folder in PROGRAMS
    for path in sorted((CORPORA / folder).rglob("*"))
    if path.is_file() and path.name.endswith((".jsonl", ".json", ".zst", ".zip", ".db", ".sqlite"))
]
needs_them = pytest.mark.skipif(not FILES, reason="needs the shared corpora")


@needs_them
@pytest.mark.sampled(every=20)
@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-2:]))
def test_what_holds_of_every_session_holds_of_it(path: Path, tmp_path: Path) -> None:
    """Said is shown and found, a result stands behind its call, twice is once, and the bytes come out again."""
    folder = shutil.copytree(path.parent, tmp_path / "copy")  # with what stands beside it
    assert list(session_properties.problems_of(folder / path.name)) == []


class Made:
    """The sessions of one program in a library."""

    def __init__(self, folder: str, tmp_path: Path) -> None:
        copy = shutil.copytree(CORPORA / folder, tmp_path / "copy")
        self.library = ConversationLibrary(tmp_path / "library")
        self.reports = [one for one in import_conversations([copy], self.library) if one.id is not None]
        again = [one.action for one in import_conversations([copy], self.library) if one.id is not None]
        assert set(again) <= {"unchanged", "empty"}, again

    def records(self, session: str, generation: int | None = None) -> list[Record]:
        (report,) = (one for one in self.reports if str(one.session).startswith(session))
        with self.library.open(str(report.id), read_only=True) as store:
            return [record for record in store.get_records(generation=generation) if record.message is not None]

    def labels(self, session: str) -> dict[str, str]:
        (report,) = (one for one in self.reports if str(one.session).startswith(session))
        with self.library.open(str(report.id), read_only=True) as store:
            return dict(store.get_metadata().labels)


def extras(records: list[Record], name: str) -> list[Any]:
    return [(record.extra or {}).get(name) for record in records]


@needs_them
def test_qwen_code(tmp_path: Path) -> None:
    made = Made("made/qwen-code/0.24.4/projects", tmp_path)
    compacted = made.records("cbf2f7fa")
    assert [len(compacted), len(made.records("cbf2f7fa", 0))] == [9, 10]
    assert made.labels("cbf2f7fa")["title"] == "Notes, corrected"
    assert made.labels("27ca0355")["forked_from"] == "cbf2f7fa-fa36-506d-8180-52ef9cb07052"
    assert made.labels("105d8d4e-a6d7-56f4-957d-d517b96d3496/agent")["part_of"].startswith("105d8d4e")
    switched = [model for model in extras(made.records("e2cb7d44"), "model") if model]
    assert switched == ["fake-1", "fake-1", "claude-sonnet-4-5"]
    assert [usage["candidatesTokenCount"] for usage in extras(compacted, "usage") if usage] == [25, 25, 25], (
        "thoughts are counted apart"
    )


@needs_them
def test_cline(tmp_path: Path) -> None:
    made = Made("made/cline/3.0.65/data/sessions", tmp_path)
    assert made.labels("1795772731459_m7k23")["title"] == "Typo in the notes"
    assert extras(made.records("1795772731459_m7k23", 0), "failed").count(True) == 3
    assert extras(made.records("1795772731459_m7k23"), "compaction").count(True) == 1
    (prompt,) = made.records("1795772788181_yss5y")
    assert (prompt.message or {})["content"] == "Tell me a long story, again.", "killed before the first reply"
    assert [(record.message or {})["role"] for record in made.records("1795772779859_bh57g")] == ["user"], (
        "an error is no reply"
    )
    assert made.labels("1795772867587_66pj4__agent")["part_of"] == "1795772867587_66pj4"
    roles = [(record.message or {})["role"] for record in made.records("1795772796649_2g6as")]
    assert roles == ["user", "assistant", "user", "assistant"], (
        "killed in a tool: the next prompt stands behind the call"
    )


@needs_them
@pytest.mark.long
def test_droid(tmp_path: Path) -> None:
    made = Made("made/droid/0.225.2/sessions", tmp_path)
    records = made.records("28d1873e")
    assert Counter((record.message or {})["role"] for record in records) == {"user": 2, "assistant": 4, "tool": 5}
    assert extras(records, "scaffolding")[:2] == [True, None]
    assert extras(records, "failed").count(True) == 2
    assert [(record.message or {})["role"] for record in made.records("033caf3a")] == ["user", "user", "assistant"], (
        "killed in a tool"
    )
    thinking = (made.records("b2d490b5")[2].message or {})["content"][0]
    assert thinking == {
        "type": "thinking",
        "thinking": "I think about step 1 of #tools first.",
        "signature": "c2lnbmF0dXJl",
    }


@needs_them
@pytest.mark.long
def test_hermes(tmp_path: Path) -> None:
    made = Made("made/hermes-agent/0.19.0/live", tmp_path / "live")
    (report,) = made.reports
    assert report.messages == 2, "all of it stands in the write-ahead log"
    os.makedirs(tmp_path / "whole")
    shutil.copy(CORPORA / "made/hermes-agent/0.19.0/state.db", tmp_path / "whole")
    library = ConversationLibrary(tmp_path / "library")
    reports = {report.title: report for report in import_conversations([tmp_path / "whole"], library)}
    with library.open(str(reports["Fruit count"].id), read_only=True) as store:
        assert sum(record.message is not None for record in store.iter_records(generation=0)) == 16
        live = [record for record in store.get_records() if record.message]
        assert len(live) == 19, "the copies of a compaction are what a model is sent, and no second history"
        assert [finding.kind for finding in reports["Fruit count"].findings] == ["left-branch"]
    with library.open(str(reports["Apples and pears"].id), read_only=True) as store:
        models = [
            model for model in extras([record for record in store.get_records() if record.message], "model") if model
        ]
        assert models == ["fake-large"] * 4 + ["fake-small"]
