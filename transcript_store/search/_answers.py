"""What an index answers: hits, pages of a list, and how far it knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transcript_store.errors import StorageError
    from transcript_store.library import ConversationSummary
from transcript_store.search._matching import Span

Sort = Literal["rank", "newest"]
Order = Literal["updated", "created", "title", "records", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that matches. It was read and its hash checked when the answer was made."""

    conversation: str
    """The conversation's id."""
    directory: str
    title: str | None
    """What the conversation is called: its title, or its first prompt, or its program and when it began."""
    generation: int
    """The number of the live one, or of an earlier one."""
    beside: Literal["left-branch", "earlier-generation"] | None
    """None of a message that counts. Else why it does not: it stands on a branch that the conversation left, or a compaction took it out
    of sight. Such hits stand behind the others."""
    seq: int
    at: str
    """When it was said: RFC 3339 in UTC."""
    role: str
    where: str
    """What of the message matches: ``text``, ``thinking``, ``call``, ``result``, or ``scaffolding``, which a program wrote in the user's
    name."""
    excerpt: str
    """A piece of it on one line. Somebody else wrote it: it may hold anything."""
    marks: tuple[Span, ...]
    """Which stretches of the excerpt match: ``excerpt[start:end]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The hits of a search, the best or the newest first; iterate over it."""

    hits: tuple[Hit, ...]
    total: int | None
    """How many messages match, as the index has it; at most one more than 2,000, or than the limit if
    that is more. None if only reading them could tell."""
    elsewhere: dict[str, int]
    """If there is no hit: in which other columns there are some, and how many."""
    not_indexed: int
    """How many conversations may hold more, because the time for updating the index was over. 0 is everything."""
    is_busy: bool
    """Whether another process is updating the index, so that this one did not."""
    ignored: tuple[str, ...]
    """Pieces of the query that mean nothing: words without a letter, dates that are none."""
    as_of: str | None = None
    """Everything that was acknowledged before then is found: RFC 3339 in UTC. None if nobody knows: something is left to index, or on an
    object store nothing was refreshed yet."""
    not_searched: int = 0
    """How many sealed conversations were not searched: no key was given, or none of them opens it, or it is damaged."""
    damaged: tuple[str, ...] = ()
    """The directories of the conversations in which damage was met: nothing behind it is found. ``verify`` says more."""
    not_read: tuple[StorageError, ...] = ()
    """What the system refused to read: for each conversation that was not searched for it an error, with its ``path`` and the way out."""

    @property
    def is_complete(self) -> bool:
        """Whether every conversation was searched to its end."""
        return not (self.not_indexed or self.not_searched or self.damaged or self.not_read)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A page of a list; iterate over it."""

    summaries: tuple[ConversationSummary, ...]
    names: tuple[str, ...]
    """What each of them is called: its title, or its first prompt, or its program and when it began. The first two may be anything."""
    total: int
    """How many conversations pass the filter, on all pages."""
    next: str | None
    """What to give as ``after`` for the next page; None on the last one."""
    as_of: str
    """The list is as the library was then, or later: RFC 3339 in UTC. On an object store, as its writers left word."""
    not_looked_at: int
    """How many folders were not looked at since, because the time for it was over."""
    ignored: tuple[str, ...]
    """Pieces of the filter that mean nothing, as :attr:`Answer.ignored`."""

    def __iter__(self) -> Iterator[ConversationSummary]:
        return iter(self.summaries)

    def __len__(self) -> int:
        return len(self.summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What an index has. Nothing is updated for it."""

    path: str | None
    """Its file; None if none can be kept (it is locked, or the directory cannot be written): it lives as long as the object."""
    size_bytes: int
    conversations: int
    messages: int
    forgotten: int
    """Messages that lead nowhere any more. Their words are in the file until it is built anew."""
    not_indexed: int
    is_whole: bool
    """Whether all of the file was read and is what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an update left to do."""

    not_indexed: int
    is_busy: bool
    """Whether another process is updating the index, so that this one stopped."""
    not_read: tuple[StorageError, ...] = ()
    """As :attr:`Answer.not_read`. It is tried again with each update; ``not_indexed`` does not count it."""
