"""A page that grows equals the page written at once, whatever the order of changes and readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view import conversations
from transcript_store import ConversationStore, Record
from transcript_store.view._contents import PageItem
from transcript_store.view._messages import GrowingPieces, render_items
from transcript_store.view.served import LiveConversation, PagePosition, Served

CALL = {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}
KINDS: dict[str, Any] = {
    "prompt": {"role": "user", "content": "Go on."},
    "answer": {"role": "assistant", "content": [{"type": "text", "text": "Here it is."}]},
    "calls": {"role": "assistant", "content": [{**CALL, "id": "a"}, {**CALL, "id": "b"}]},
    "result of a": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]},
    "result of b": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "done"}]},
    "both": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": each, "content": "done"} for each in "ba"],
    },
    "event": None,
}
"""What may come, in any order: results before their calls, twice, late, or never."""
SERVED = Served(home="../../", of_conversation=lambda _: None, of_generation=lambda _: "./")


def record(seq: int, at: str, message: Any, extra: dict[str, Any] | None) -> Record:
    return Record(seq=seq, at=at, message=message, extra=extra)


def stretch(seq: int, kind: str) -> PageItem:
    extra = {"event": seq} if KINDS[kind] is None else {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 2}}
    return PageItem(record(seq, f"2026-01-{1 + seq // 5 % 28:02}T00:00:00Z", KINDS[kind], extra))


@given(st.lists(st.lists(st.sampled_from([*KINDS]), max_size=6), max_size=8))
def test_in_any_steps_the_pieces_are_those_of_once(steps):
    """And a reader who applies what each step says to have changed has the same pieces, at the same numbers."""
    growing = GrowingPieces("claude")
    stretches: list[PageItem] = []
    shown: list[str] = []
    for step in steps:
        new = [stretch(len(stretches) + at + 1, kind) for at, kind in enumerate(step)]
        stretches += new
        for number in growing.add(new):
            shown[number : number + 1] = [growing.pieces.html[number]]
        once = render_items(stretches, "claude")
        assert shown == growing.pieces.html == once.html
        assert growing.pieces.outline == once.outline
        assert growing.pieces.counts == once.counts


@pytest.mark.parametrize("name", [*conversations.SHAPES])
def test_in_every_providers_form(name):
    messages = conversations.SHAPES[name]
    stretches = [
        PageItem(record(seq, "2026-01-01T00:00:00Z", message, None)) for seq, message in enumerate(messages, 1)
    ]
    growing = GrowingPieces(name)
    for each in stretches:
        growing.add([each])
    assert growing.pieces == render_items(stretches, name)


def test_a_position_is_read_back_and_nothing_else_is():
    assert PagePosition.parse(str(PagePosition(3, 14))) == (3, 14)
    for text in ("", "-", "1", "1-", "-1", "1-2-3", "a-b", "+1-2", "1 -2", "١-٢", "9" * 19 + "-1"):
        assert PagePosition.parse(text) is None, text


def test_what_changed_is_told_from_any_position(tmp_path: Path):
    """To who was there from the beginning and to who came back late; to nobody twice; and a replace to everybody."""
    path = tmp_path / "c"
    with ConversationStore(path) as writer:
        writer.initialize(provider="claude", messages=[KINDS["prompt"]])
        with LiveConversation(path) as live:
            list(live.page(SERVED))
            assert live.change_since(PagePosition(0, 1), SERVED) is None
            writer.append_message(KINDS["calls"])
            first = live.change_since(PagePosition(0, 1), SERVED)
            assert first is not None
            assert [number for number, _ in first.pieces] == [1]
            writer.append_message(KINDS["result of b"])
            writer.append_message(KINDS["prompt"])
            second = live.change_since(first.position, SERVED)
            assert second is not None
            assert [number for number, _ in second.pieces] == [1, 2]
            assert [anchor for anchor, *_ in second.prompts] == ["4"]
            late = live.change_since(PagePosition(0, 1), SERVED)
            assert late is not None
            assert late.pieces == second.pieces
            assert live.change_since(second.position, SERVED) is None
            writer.keep_records(range(1, writer.record_count + 1), features=["retract"])
            third = live.change_since(second.position, SERVED)
            assert third is not None
            writer.append_message({"role": "user", "content": "not to be seen"})
            shown = live.change_since(third.position, SERVED)
            assert shown is not None
            assert len(shown.pieces) == 1
            writer.retract()
            taken_back = live.change_since(shown.position, SERVED)
            assert taken_back is not None
            assert taken_back.is_another, "what a page shows already, it cannot take away"
            assert b"not to be seen" not in b"".join(live.page(SERVED))
            assert live.change_since(taken_back.position, SERVED) is None
            writer.append_message(KINDS["prompt"])
            after = live.change_since(taken_back.position, SERVED)
            assert after is not None
            assert (after.is_another, len(after.pieces)) == (False, 1)
            writer.replace_transcript([KINDS["prompt"]])
            for position in (
                PagePosition(0, 1),
                second.position,
                after.position,
                PagePosition(7, 1),
                PagePosition(0, 99),
            ):
                change = live.change_since(position, SERVED)
                assert change is not None
                assert change.is_another
            assert live.change_since(PagePosition(2, 1), SERVED) is None
