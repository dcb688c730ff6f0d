"""What does a server of pages need besides ``render_page``? Pages that grow, and its own pages built in the same safe way.

:mod:`transcript_store.serving` is that server. The extra ``view`` has what is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

from transcript_store.conversation import ConversationStore
from transcript_store.import_notes import note_of
from transcript_store.view._contents import PageItem, contents_of, contents_of_store, torn_tail_of
from transcript_store.view._html import Html, day, full_time, joined, tag, time_of_day
from transcript_store.view._messages import GrowingPieces
from transcript_store.view._page import Served, asset, facts, page, page_head, policy, script_of
from transcript_store.view._rich_text import excerpt_html

__all__ = [
    "Html",
    "LiveConversation",
    "PagePosition",
    "PageUpdate",
    "Served",
    "day",
    "excerpt_html",
    "full_time",
    "joined",
    "page_document",
    "policies",
    "still_page",
    "tag",
    "time_of_day",
]


# ---- live ----
# A conversation that is viewed while it grows: its page, and the changes of the page.

_LONGEST_CHANGE = 4_000_000
"""Characters. To make the page again costs less than to give each browser so much beside what it has."""


class PagePosition(NamedTuple):
    """How far a viewer has seen a conversation: a generation, and the number of its last record."""

    generation: int
    seq: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> PagePosition | None:
        """What ``str`` made of one; None for any other text."""
        generation, dash, seq = text.partition("-")
        is_one = dash and all(part.isascii() and part.isdigit() and len(part) < 19 for part in (generation, seq))
        return cls(int(generation), int(seq)) if is_one else None


@dataclass(frozen=True, slots=True)
class PageUpdate:
    """What brings a page from an earlier position to ``position``."""

    position: PagePosition
    is_another: bool = False
    """True if the browser has to load the page again: the transcript was replaced, messages were taken back, an older copy was
    put back, or very much is new."""
    pieces: Sequence[tuple[int, str]] = field(default_factory=list)
    """The pieces that are new or not as they were, with their numbers."""
    prompts: list[tuple[str, str, str]] = field(default_factory=list)
    """The lines of the outline, as far as they are new: anchor, label and the text below it."""
    first_prompt: int = 0
    """How many lines the outline has before these."""
    facts: str = ""
    """The head's list."""

    def as_json(self) -> dict[str, Any]:
        return {
            "replaced": self.is_another,
            "pieces": self.pieces,
            "firstPrompt": self.first_prompt,
            "prompts": self.prompts,
            "facts": self.facts,
        }


class LiveConversation:
    """The page of a conversation, rendered once; what is appended is rendered when it comes. Close it, or use ``with``.

    It reads only, and takes no lock of the conversation. Several threads may use it; one call waits for the other.

    Args:
        source: the conversation's folder; or a store of it that reads and is not loaded yet, which is closed with this.
        keys: the arguments ``encryption_key`` and ``retired_keys`` of the store, for a sealed conversation in a folder.

    Raises:
        TranscriptStoreError: as :meth:`ConversationStore.load`. The page of a damaged one is made by ``render_page``.
    """

    def __init__(
        self, source: str | os.PathLike[str] | ConversationStore, *, keys: Mapping[str, Any] | None = None
    ) -> None:
        self._mutex = Lock()
        self._taken_back_at = 0
        """How many records there were when messages were last taken back, which an earlier page still shows."""
        if not isinstance(source, ConversationStore):
            source = ConversationStore(source, read_only=True, **(keys or {}))
        self._store = source
        try:
            self._store.load()
            self._begin()
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        with self._mutex:
            self._store.close()

    def __enter__(self) -> LiveConversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def imported_session(self) -> str | None:
        """The id that its program gave the session that this was imported from; None if it was not imported."""
        with self._mutex:
            records = (item.record for item in reversed(self._contents.stretches) if item.record is not None)
            note = next(filter(None, map(note_of, records)), {})
        session = note.get("session")
        return session if isinstance(session, str) else None

    def _begin(self) -> None:
        from transcript_store.usage import ConversationUsage

        self._usage = ConversationUsage()
        self._usage.add_conversation(self._store)
        self._contents = replace(contents_of_store(self._store, with_tail=False), usage=self._usage.total)
        self._growing = GrowingPieces(self._contents.metadata.provider)
        self._changed: list[int] = []
        self._new_prompts: list[int] = []
        self._add(self._contents.stretches, self._store.record_count)

    def _add(self, stretches: tuple[PageItem, ...], seen: int) -> None:
        """Add the records up to the number ``seen``."""
        self._seen = seen
        for number in self._growing.add(stretches):
            self._changed[number : number + 1] = [self._seen]
        more = len(self._growing.pieces.outline) - len(self._new_prompts)
        self._new_prompts += [self._seen] * more

    def _refresh(self) -> PagePosition:
        result = self._store.refresh()
        generation, count = self._store.get_metadata().generation, self._store.record_count
        if result.started_over or generation != self._contents.generation or count < self._seen:
            self._begin()
            self._taken_back_at = 0
        elif count > self._seen:
            new = self._store.get_records(last=count - self._seen)
            if any(record.retracts for record in new):
                self._begin()
                self._taken_back_at = count
            else:
                self._usage.add_records(new, self._contents.metadata.model)
                self._add(tuple(map(PageItem, new)), count)
        return PagePosition(generation, count)

    def page(self, served: Served) -> Iterator[bytes]:
        """The page as the conversation is now. All of it is made on return.

        Raises:
            TranscriptStoreError: as :meth:`ConversationStore.refresh`.
        """
        with self._mutex:
            position = self._refresh()
            now = replace(self._contents, metadata=self._store.get_metadata())
            tail = torn_tail_of(self._store)
            return iter(list(page(now, served=served, live=self._growing.pieces, position=str(position), tail=tail)))

    def change_since(self, position: PagePosition, served: Served) -> PageUpdate | None:
        """The changes since a viewer's position; None if there are none.

        Raises:
            ConversationNotFoundError: it was deleted.
            TranscriptStoreError: as :meth:`ConversationStore.refresh`.
        """
        with self._mutex:
            now = self._refresh()
            if now == position:
                return None
            is_older = now.seq < position.seq or position.seq < self._taken_back_at <= now.seq
            if now.generation != position.generation or is_older:
                return PageUpdate(now, is_another=True)
            pieces = self._growing.pieces
            new = [(at, pieces.html[at]) for at, seen in enumerate(self._changed) if seen > position.seq]
            if sum(len(html) for _, html in new) > _LONGEST_CHANGE:
                return PageUpdate(now, is_another=True)
            first_prompt = sum(seen <= position.seq for seen in self._new_prompts)
            return PageUpdate(
                now,
                pieces=new,
                prompts=[(prompt.anchor, prompt.label, prompt.note) for prompt in pieces.outline[first_prompt:]],
                first_prompt=first_prompt,
                facts=facts(replace(self._contents, metadata=self._store.get_metadata()), pieces.counts, served),
            )


# ---- served ----


def still_page(
    source: str | os.PathLike[str] | ConversationStore,
    *,
    generation: int | None,
    served: Served,
    keys: Mapping[str, Any] | None = None,
) -> Iterator[bytes]:
    """The page of a conversation that does not grow: an earlier generation, or a damaged one.

    ``source`` is its folder, and ``keys`` has the arguments ``encryption_key`` and ``retired_keys`` of the store, if it
    is sealed. Or it is a store that reads and is not loaded yet: then it is closed on return, and damage is raised.

    Raises:
        GenerationNotFoundError: there is no such generation.
        TranscriptStoreError: as :func:`transcript_store.salvage`.
    """
    if not isinstance(source, ConversationStore):
        return page(contents_of(source, generation=generation, redact=None, keys=keys or {}), served=served)
    with source:
        source.load()
        return page(contents_of_store(source, generation=generation, with_usage=True), served=served)


def page_document(title: str, *body: Html) -> bytes:
    """A page of the server's own: it has the style of the others, and the script ``library.js``."""
    script = Html(asset("library.js"))
    top = tag("head", *page_head(title, script, is_served=True))
    page = joined(top, tag("body", *body, tag("script", script), class_="library"))
    return joined(Html("<!doctype html>"), tag("html", page, lang="en")).encode()


def policies() -> dict[str, str]:
    """The policy of each kind of page, to be sent with it: ``live``, ``still`` and ``library``."""
    scripts = {"live": script_of(True), "still": script_of(False), "library": asset("library.js")}
    return {kind: policy(script, is_served=True) for kind, script in scripts.items()}
