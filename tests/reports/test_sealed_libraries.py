"""A sealed library whose key is there is no library without titles, labels and projects.

``list_runs()`` of the harness's own tests (pydantic-ai-harness, tests/step_persistence) and ``list_sessions()``, ``list_subkeys()`` and
``delete()`` of the Claude Agent SDK's kit gave nothing there: a list shows no label of a sealed conversation, and these go by labels. So
did whatever else goes by a label: usage by project, relink, ``session restore PROGRAM``, prune with a label.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kit.homes import set_home
from tests.reports.sessions import changed_by, told
from tests.sessions.homes import claude_code
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.keys import read_key_file, write_key_file
from transcript_store.library import iter_with_labels
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore

KEY = b"k" * 32


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    set_home(monkeypatch, folder)
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path / "chats"))
    return folder


def test_its_sessions_are_summed_moved_and_put_back(home: Path) -> None:
    """As those of a plaintext library; without the key nothing is changed."""
    key_file, old, new = str(home.parent / "key"), str(home.parent / "shop"), str(home.parent / "our shop")
    Path(new).mkdir()
    write_key_file(key_file)
    library = ConversationLibrary(home.parent / "chats", encryption_key=read_key_file(key_file))
    path = claude_code(home, old)
    counted = {"input_tokens": 10, "output_tokens": 5}
    said = json.loads(path.read_bytes().splitlines()[1])
    said |= {"uuid": "u2", "message": {**said["message"], "id": "counted", "usage": counted}}
    data = path.read_bytes() + json.dumps(said).encode() + b"\n"
    path.write_bytes(data)
    [report] = import_conversations([path], library)
    [listed] = library.list()
    assert (listed.sealed, listed.labels) == (True, None)

    sums = map(json.loads, told("usage", "--by", "project", "--json", "--key-file", key_file).splitlines())
    assert next(sums)["project"] == old

    said_without = changed_by("relink", old, new, "--apply", "--no-key")
    assert "1 sealed conversation not read: give the key" in said_without
    assert "0 conversations" in said_without
    [moved] = changed_by("relink", old, new, "--apply", "--json", "--key-file", key_file).splitlines()
    assert json.loads(moved)["new"] == new
    [named] = iter_with_labels(library)
    assert (named.labels or {})["cwd"] == new

    path.unlink()
    changed_by("restore", "claude-code", "--apply", "--key-file", key_file)
    assert path.read_bytes() == data
    assert report.id == named.id


@pytest.mark.parametrize("make_home", [None, SimulatedBackend, SimulatedObjectStore])
def test_prune_knows_the_labels_that_its_key_opens(make_home: type | None, tmp_path: Path) -> None:
    """It removes the ones that have the label, and names those of which it cannot know."""
    home = tmp_path / "chats" if make_home is None else make_home()
    library = ConversationLibrary(home, encryption_key=KEY)
    ids = {}
    for name, key in (("old", KEY), ("kept", KEY), ("other", b"o" * 32)):
        one = ConversationLibrary(home, encryption_key=key)
        with one.create(labels={"kind": name}, messages=[{"role": "user", "content": "hi"}]) as made:
            ids[made.get_metadata().id] = name
    for dry_run in (True, False):
        done = library.prune(older_than=timedelta(0), labels={"kind": "old"}, dry_run=dry_run)
        assert {ids[item.id]: item.skipped is None for item in done.items} == {"old": True, "other": False}
        assert all("its labels are sealed" in str(item.skipped) for item in done.skipped)
    assert {ids[str(one.id)] for one in library.list()} == {"kept", "other"}
