"""A library on a place as an index reads it: which conversations there are, how each looks, and each of them, fetched and verified."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transcript_store._conversation.summary import ConversationSummary, summary_in
from transcript_store._conversation.transcript_file import TranscriptFile, transcript_in
from transcript_store.backends._backend import Backend, patiently
from transcript_store.backends._storage import BackendReader
from transcript_store.errors import ConversationNotFoundError, CorruptTranscriptError, UnsupportedVersionError

if TYPE_CHECKING:
    from transcript_store.conversation import ConversationStore

_PAGE = 1000
_KEPT = 32
"""So many conversations stay fetched: the next look at one of them asks for what came since, and nothing else."""


class BackendIndexSource:
    """What ``SearchIndex`` asks of a library on a place. A conversation is called by its id; one thread at a time may ask.

    Args:
        place: the place.
        reader: makes a reader of a conversation.
        store: makes a store that reads one, with keys.
        patience: the waits between two attempts, and what waits.
    """

    def __init__(
        self,
        place: Backend,
        reader: Callable[[str], BackendReader],
        store: Callable[..., ConversationStore],
        patience: tuple[tuple[float, ...], Callable[[float], None]],
    ) -> None:
        self.name: str = place.name
        self.identity: str | None = place.identity
        self._place = place
        self._reader = reader
        self._store = store
        self._patience = patience
        self._fetched: OrderedDict[str, BackendReader] = OrderedDict()

    def path(self, folder: str) -> str:
        """What errors and hits call a conversation."""
        return f"{self.name}/{folder}"

    # ---- how they look ---------------------------------------------------------------------------------------------------

    def looks(self, known: Mapping[str, str], *, refresh: bool) -> tuple[Iterator[list[tuple[str, str]]], bool]:
        """Pages of all ids, each with its look: the number of its last slot. And whether that is what stands there now.

        A place that can tell the last slots is asked for them. Of another one, what its writers left for lists is taken, which may be
        late, and lacks whom nobody listed yet; unless ``refresh`` has every conversation asked for what came since.

        Args:
            known: looks that are known.
            refresh: whether each is asked for, where the place cannot tell of all at once.
        """
        first = self._ends("")
        if first is not None:
            return self._told(first), True
        return (self._asked(known), True) if refresh else (self._left(known), False)

    def _told(self, page: list[tuple[str, int]]) -> Iterator[list[tuple[str, str]]]:
        while page:
            yield [(each, str(slot)) for each, slot in page]
            page = self._ends(page[-1][0]) or []

    def _ends(self, after: str) -> list[tuple[str, int]] | None:
        found: list[tuple[str, int]] | None = self._ask(lambda: self._place.ends(after=after, limit=_PAGE))
        return found

    def _asked(self, known: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
        after = ""
        while page := self._ask(lambda after=after: self._place.conversations(after=after, limit=_PAGE)):  # type: ignore[misc]
            found = ((each, self._last_slot(each, _number(known.get(each)))) for each in page)
            yield [(each, str(slot)) for each, slot in found if slot]
            after = page[-1]

    def _last_slot(self, id: str, known: int) -> int:
        new = self._ask(lambda: self._place.read(id, known))
        return max((piece.last for piece in new), default=known)

    def _left(self, known: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
        before: tuple[str, str] | None = None
        while page := self._ask(lambda before=before: self._place.summaries(before=before, limit=_PAGE)):  # type: ignore[misc]
            yield [(each.id, str(max(each.slot, _number(known.get(each.id))))) for each in page]
            before = page[-1].updated_at, page[-1].id

    def _ask(self, call: Callable[[], Any]) -> Any:
        waits, sleep = self._patience
        return patiently(call, waits, sleep, path=self.name, doing="look at the conversations")

    # ---- one of them -----------------------------------------------------------------------------------------------------

    def summary(self, folder: str) -> ConversationSummary | None:
        """The line of a list, as it stands on the place now; None if it was deleted."""
        path = self.path(folder)
        try:
            reader = self._read(folder)
        except ConversationNotFoundError:
            return None
        except (CorruptTranscriptError, UnsupportedVersionError) as error:
            return ConversationSummary(id=folder, directory=path, damage=error.reason)
        return summary_in(reader.spool, path)

    @contextmanager
    def transcript(self, folder: str) -> Iterator[TranscriptFile]:
        """The live transcript, as it stands on the place now, open to read.

        Raises:
            ConversationNotFoundError: it was deleted.
            CorruptTranscriptError: its slots do not verify.
            BackendError: nobody answers.
        """
        reader = self._read(folder)
        with transcript_in(reader.spool, self.path(folder)) as transcript:
            yield transcript

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        """A store that reads the conversation, not loaded yet."""
        return self._store(folder, read_only=True, **keys)

    def close(self) -> None:
        """Let go of what was fetched."""
        while self._fetched:
            self._fetched.popitem()[1].let_go()

    def _read(self, id: str) -> BackendReader:
        reader = self._fetched.pop(id, None) or self._reader(id)
        try:
            reader.look()
        except BaseException:
            reader.let_go()
            raise
        self._fetched[id] = reader
        if len(self._fetched) > _KEPT:
            self._fetched.popitem(last=False)[1].let_go()
        return reader


def _number(look: str | None) -> int:
    return int(look) if look and look.isdecimal() else 0
