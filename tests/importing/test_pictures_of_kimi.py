"""What a result of Kimi shows was base64 in its text. What is on record so stays until the session grows, and is one generation more then (F2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.helpers import exported_original, imported, line
from transcript_store import ConversationLibrary

PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"


def loop(kind: str, **members: object) -> str:
    return line(type="context.append_loop_event", event={"type": kind, **members}, time=1785915003489)


LOOKED = [
    line(type="metadata", protocol_version="1.5", created_at=1785915003489),
    loop("step.begin"),
    loop("tool.call", toolCallId="c", name="Read", args={}),
    loop("step.end"),
    loop("tool.result", toolCallId="c", result={"output": [{"type": "image_url", "imageUrl": {"url": PICTURE}}]}),
]
ANSWERED = [
    loop("step.begin"),
    loop("content.part", part={"type": "text", "text": "A dot."}),
    loop("step.end"),
]


def test_f2_a_picture_on_record_as_text_becomes_one_new_generation_once(
    tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "wire.jsonl"
    source.write_text("".join(LOOKED))
    with monkeypatch.context() as patch:
        patch.setattr(
            "transcript_store.formats._kimi._picture", lambda part: None
        )  # the earlier version knew none there
        first = imported(source, library)
    with library.open(str(first.id), read_only=True) as store:
        assert PICTURE in store.get_messages()[-1]["content"]
    actions = [imported(source, library).action]
    source.write_text("".join(LOOKED + ANSWERED))
    actions += [imported(source, library).action for _ in range(2)]
    assert actions == ["unchanged", "replaced", "unchanged"]
    with library.open(str(first.id), read_only=True) as store:
        assert store.get_metadata().generation == 1
        assert [message["role"] for message in store.get_messages()] == ["assistant", "tool", "user", "assistant"]
    assert exported_original(library, str(first.id)) == source.read_bytes()


def test_a_session_with_a_picture_grows(tmp_path: Path, library: ConversationLibrary) -> None:
    source = tmp_path / "wire.jsonl"
    source.write_text("".join(LOOKED))
    actions = [imported(source, library).action]
    source.write_text("".join(LOOKED + ANSWERED))
    report = imported(source, library)
    assert [*actions, report.action] == ["created", "grew"]
    assert exported_original(library, str(report.id)) == source.read_bytes()
