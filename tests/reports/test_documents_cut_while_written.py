"""A session that is one JSON document, imported while its program writes it anew: what was imported stays, under its own id.

cline/cline#954, #2321 and oobabooga/textgen#7656: a program that ends while it writes leaves half a document, or an empty one. The next
import took the conversation back to nothing, and a half file beside it made a second conversation of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.testing import SimulatedBackend

SHOWN = [{"ts": 1750000000000, "type": "say", "say": "text", "text": "find the zebra"}]
HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "<task>\nfind the zebra\n</task>"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "In the stable."}]},
    {"role": "user", "content": [{"type": "text", "text": "Thank you."}]},
]


@pytest.mark.parametrize("is_on_a_backend", [False, True])
def test_a_half_document_takes_nothing_back(tmp_path: Path, is_on_a_backend: bool) -> None:
    """Wherever it ends, and whichever of the two files: the messages stay, and when the file is whole again it goes on."""
    home: Any = SimulatedBackend() if is_on_a_backend else tmp_path / "library"
    library = ConversationLibrary(home)
    task = tmp_path / "tasks" / "1750000000000"
    task.mkdir(parents=True)

    def imported(history: str, shown: str) -> str:
        (task / "api_conversation_history.json").write_text(history)
        (task / "ui_messages.json").write_text(shown)
        found = [one for one in import_conversations([task], library) if one.action != "skipped"]
        return found[0].action

    whole, shown = json.dumps(HISTORY), json.dumps(SHOWN)
    assert imported(whole, shown) == "created"
    (summary,) = library.list()
    assert summary.id is not None
    for cut in (len(whole) - 1, len(whole) // 2, 120):
        assert imported(whole[:cut], shown) == "refused"
    assert imported("", shown) == "empty"
    assert imported(whole, shown[:-5]) == "unchanged"
    longer = json.dumps([*HISTORY, {"role": "assistant", "content": [{"type": "text", "text": "You are welcome."}]}])
    assert imported(longer, shown) == "grew"  # though its messages have no times, by which an edition would be known
    edited = longer.replace("In the stable", "In the barn")
    assert imported(edited, shown) == "replaced"
    assert [one.id for one in library.list()] == [summary.id]
    with library.open(summary.id, read_only=True) as store:
        assert [message["role"] for message in store.get_messages()] == ["user", "assistant", "user", "assistant"]
        assert "In the stable." in str([record.message for record in store.iter_records(generation=0)])
