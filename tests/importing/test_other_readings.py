"""F2 where a reader understands more than an earlier version did: what is on record stays, or is replaced by one generation, once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import imported, line
from transcript_store import ConversationLibrary
from transcript_store.formats._blocks import Other
from transcript_store.formats._forms import Responses
from transcript_store.formats._neutral import NeutralMessage

ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look"}]},
    {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "c", "output": "a.txt"},
]


def an_earlier_file(patch: pytest.MonkeyPatch) -> None:
    """Items in a file stood in messages as they are."""
    patch.setattr("transcript_store.formats._jsonl.is_item", lambda message: False)


def an_earlier_database(patch: pytest.MonkeyPatch) -> None:
    """A call that was none of a function was an event."""
    understood = Responses.turn_of

    def turn_of(form: Responses, message: dict[str, Any]) -> NeutralMessage:
        turn = understood(form, message)
        if message.get("type") == "shell_call":
            turn = NeutralMessage("assistant", (Other(own=message, provider=form.name),))
        return turn

    patch.setattr(Responses, "turn_of", turn_of)


def as_file(path: Path, items: list[dict[str, Any]]) -> None:
    path.write_text("".join(line(**item) for item in items))


def as_database(path: Path, items: list[dict[str, Any]]) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        for item in items:
            database.execute(
                "INSERT INTO agent_messages (session_id, message_data) VALUES ('s', ?)", (json.dumps(item),)
            )
        database.commit()


@pytest.mark.parametrize(
    ("earlier", "write", "untouched"),
    [(an_earlier_file, as_file, "unchanged"), (an_earlier_database, as_database, "replaced")],
)
def test_f2_what_an_earlier_version_imported_becomes_one_new_generation_once(
    earlier: Callable[[pytest.MonkeyPatch], None],
    write: Callable[[Path, list[dict[str, Any]]], None],
    untouched: str,
    tmp_path: Path,
    library: ConversationLibrary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file whose bytes are on record is not read again until it grows; of a database the rows are compared."""
    source = tmp_path / "source"
    write(source, ITEMS)
    with monkeypatch.context() as patch:
        earlier(patch)
        first = imported(source, library)
    actions = [imported(source, library).action for _ in range(2)]
    write(source, [*ITEMS, {"type": "message", "role": "assistant", "content": "There it is."}])
    actions += [imported(source, library).action for _ in range(2)]
    assert actions == [untouched, "unchanged", "grew" if untouched == "replaced" else "replaced", "unchanged"]
    with library.open(str(first.id), read_only=True) as store:
        assert store.get_metadata().generation == 1
        said = store.get_messages()
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant"]
