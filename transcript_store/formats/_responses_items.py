"""OpenAI's Responses items → messages of chat completions, which our client uses.

Reasoning, text and calls are an item each; those up to the next speaker are one reply. Reasoning is encrypted for Responses alone:
it is kept with the lines of its reply, and not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from transcript_store.formats._blocks import Block, Other, Result, Thinking
from transcript_store.formats._forms import ChatCompletions, Responses
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, text_in
from transcript_store.formats._neutral import Losses, NeutralMessage, Role
from transcript_store.formats._replay import Draft

_ITEM, _CHAT = Responses(), ChatCompletions()


class Items:
    """Joins items to messages, in order. ``drafts`` has the messages so far; the caller may remove them."""

    def __init__(self, losses: Losses | None = None) -> None:
        self.drafts: list[Draft] = []
        self.losses = Losses() if losses is None else losses
        self._reply: Draft | None = None
        self._said: list[Block] = []

    @property
    def open(self) -> bool:
        """True if a reply is under way."""
        return self._reply is not None

    def event(self, line: SourceLine, at: str | None = None, extra: Json | None = None) -> None:
        """A line that no model is sent."""
        self.drafts.append(Draft(None, dict(extra or {}), at, [line]))

    def item(
        self, item: dict[str, Any], line: SourceLine | None, at: str | None = None, extra: Json | None = None
    ) -> Draft | None:
        """The reply that this item is part of; None for any other message."""
        lines, extra = [] if line is None else [line], dict(extra or {})
        turn = _ITEM.turn_of(item)
        if all(isinstance(block, Other) for block in turn.blocks):
            self._lose(turn.blocks)
            self.drafts.append(Draft(at=at, lines=lines))
            return None
        if turn.role != "assistant":
            self.close()
            messages = self._messages(turn.role, turn.blocks)
            self.drafts.append(Draft(messages[0] if messages else None, extra, at, lines))
            self.drafts += [Draft(message, {}, at) for message in messages[1:]]
            return None
        if self._reply is None:
            self._reply = Draft(at=at)
            self.drafts.append(self._reply)
        self._reply.lines += lines
        self._reply.extra.update(extra)
        self._said += turn.blocks
        return self._reply

    def close(self) -> None:
        """End the open reply."""
        if self._reply is not None:
            self._reply.message = next(iter(self._messages("assistant", tuple(self._said))), None)
            self._reply, self._said = None, []

    def take(self) -> Iterator[Draft]:
        """The drafts, closed."""
        self.close()
        taken, self.drafts = self.drafts, []
        yield from taken

    def _messages(self, role: Role, blocks: tuple[Block, ...]) -> list[dict[str, Any]]:
        shown = (media for block in blocks if isinstance(block, Result) for media in block.media)
        self._lose(
            [*(b for b in blocks if not _CHAT.holds(b, role)), *(m for m in shown if not _CHAT.holds(m, "user"))]
        )
        return _CHAT.messages_of(NeutralMessage(role, tuple(block for block in blocks if _CHAT.holds(block, role))))

    def _lose(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if isinstance(block, Thinking):
                self.losses.note("thinking", "reasoning that only OpenAI's Responses can be sent is kept, and not sent")
            elif "compaction" in text_in(block.own or {}, "type"):
                self.losses.note(
                    "compaction", "the summary of a compaction is encrypted for OpenAI alone: it is kept, and not sent"
                )
            else:
                self.losses.note("own", "what chat completions have no place for is kept, and not sent")
