"""Pieces of a conversation → messages of chat completions, for files without messages of any API.

Several programs write thinking, text and calls of a reply one after the other. A reply ends at another speaker, or when the model
continues after a result; if a program names its replies, the name decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from transcript_store.formats._blocks import Block, Call, Media, Result, Text, Thinking
from transcript_store.formats._forms import ChatCompletions
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, present
from transcript_store.formats._neutral import Losses, NeutralMessage, Role, text_in_file
from transcript_store.formats._replay import Draft

PROVIDER = "openai-compatible"
_FORM = ChatCompletions()


def thinking(text: str) -> Thinking:
    """Thinking within a message: ``reasoning_content``."""
    return Thinking(text, provider=_FORM.name)


class Dialogue:
    """Joins pieces to messages, in order. :meth:`take` empties it. Empty members of ``extra`` are left out."""

    def __init__(self, losses: Losses | None = None) -> None:
        self.losses = Losses() if losses is None else losses
        self.speaks = False
        """True if there was a message."""
        self._drafts: list[Draft] = []
        self._replies: dict[str, tuple[Draft, list[Block]]] = {}
        self._open: str | None = None
        """The key of the reply that the next piece is part of."""
        self._has_called = False
        """True if that reply has a call."""

    @property
    def provider(self) -> str | None:
        """Of a plan: None if there was no message."""
        return PROVIDER if self.speaks else None

    def event(self, *lines: SourceLine, at: str | None = None) -> None:
        """Lines that no model is sent."""
        self._drafts.append(Draft(at=at, lines=[*lines]))

    def user(
        self, blocks: Sequence[Block], line: SourceLine | None = None, at: str | None = None, extra: Json | None = None
    ) -> Draft:
        """Add a message of the user, or of the program in the user's name. Lines may be added to the draft; without a message it is
        an event.
        """
        self._open = None
        return self._add("user", blocks, line, at, extra)

    def result(
        self, result: Result, line: SourceLine | None = None, at: str | None = None, extra: Json | None = None
    ) -> Draft:
        """Add a tool's result. A failure is noted in ``extra``: chat completions have no member for it."""
        self._open = None
        return self._add("user", [result], line, at, {**(extra or {}), "failed": result.failed or None})

    def reply(
        self,
        blocks: Sequence[Block],
        line: SourceLine | None = None,
        at: str | None = None,
        extra: Json | None = None,
        *,
        key: str | None = None,
    ) -> Draft:
        """Add a piece of a reply. Its message is made in :meth:`take`. ``key`` is the program's name for the reply."""
        name = self._open if key is None else f"key {key}"
        if key is None and self._has_called and isinstance(next(iter(blocks), None), (Text, Thinking)):
            name = None  # it speaks again
        if name is None:
            name = f"number {len(self._drafts)}"
        if name not in self._replies:
            self._replies[name] = Draft(at=at), []
            self._drafts.append(self._replies[name][0])
        draft, said = self._replies[name]
        self._has_called = any(isinstance(block, Call) for block in blocks) or (self._has_called and name == self._open)
        self._open = name
        said += blocks
        draft.extra.update(present(**extra or {}))
        if line is not None:
            draft.lines.append(line)
        return draft

    def take(self, context: list[Draft] | None = None) -> Iterator[Draft]:
        """The messages so far, in order. Later pieces belong to other messages. ``context`` gets those that a model is sent."""
        for draft, said in self._replies.values():
            made = self._messages("assistant", merged_texts(said))
            draft.message = made[0] if made else None
        drafts, self._drafts, self._replies, self._open = self._drafts, [], {}, None
        for draft in drafts:
            if draft.message is None:
                draft.extra = {}
            elif context is not None:
                context.append(draft)
            if draft.message is not None or draft.lines:
                yield draft

    def _add(
        self, role: Role, blocks: Sequence[Block], line: SourceLine | None, at: str | None, extra: Json | None
    ) -> Draft:
        messages = self._messages(role, blocks)
        draft = Draft(messages[0] if messages else None, present(**extra or {}), at, [] if line is None else [line])
        self._drafts.append(draft)
        self._drafts += [Draft(message, {}, at) for message in messages[1:]]  # what a result shows
        return draft

    def _messages(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        held: list[Block] = []
        for given in blocks:
            said = text_in_file(given) if isinstance(given, Media) else None
            block = said or given
            if not _FORM.holds(block, role):
                self.losses.note("media", "what chat completions have no place for is kept, and not sent")
            elif not isinstance(block, Text) or block.text:
                held.append(block)
        messages = _FORM.messages_of(NeutralMessage(role, tuple(held)))
        self.speaks = self.speaks or bool(messages)
        return messages


def merged_texts(blocks: Iterable[Block]) -> list[Block]:
    """The blocks; texts that follow one another, as chunks of a stream do, are one. Of thinking the last signature counts."""
    found: list[Block] = []
    for _, run in groupby(blocks, _kind):
        first, *rest = run
        if rest and isinstance(first, (Text, Thinking)):
            pieces = [block for block in (first, *rest) if isinstance(block, (Text, Thinking))]
            whole = replace(first, text="".join(piece.text for piece in pieces))
            if isinstance(whole, Thinking):
                signatures = (piece.signature for piece in reversed(pieces) if isinstance(piece, Thinking))
                whole.signature = next(filter(None, signatures), "")
            found.append(whole)
        else:
            found += [first, *rest]
    return found


def _kind(block: Block) -> object:
    """The same for pieces that are one text."""
    is_text = isinstance(block, Text) or (isinstance(block, Thinking) and not block.redacted)
    return type(block) if is_text else id(block)
