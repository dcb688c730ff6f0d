"""pydantic-ai: what its messages say. They are read alone: no program takes them from a file, so nothing is written in this form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transcript_store.formats._blocks import Other, Turn
from transcript_store.formats._form_claude import Claude
from transcript_store.messages import pydantic_ai_in_claude_form

_CLAUDE = Claude()


class PydanticAi:
    name = "pydantic-ai"

    def turn_of(self, message: dict[str, Any]) -> Turn:
        read = pydantic_ai_in_claude_form(message)
        if read is None:
            return Turn("user", (Other(own=message, provider=self.name),))
        turn = _CLAUDE.turn_of(read)
        # No provider has said these objects, and no signature of thinking is left: so none is sent as its own.
        blocks = (
            replace(block, own=block.own if isinstance(block, Other) else None, provider=self.name)
            for block in turn.blocks
        )
        return Turn(turn.role, tuple(blocks))
