"""How does a search index read a library on a backend: its conversations, their stamps, and each one, fetched and
verified?
"""

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
"""So many conversations stay fetched: the next read of one of them requests only its new slots."""


class BackendIndexSource:
    """The ``IndexSource`` of a library on a backend. A conversation is named by its id; one thread at a time may use it.

    Args:
        backend: the backend.
        reader: creates a reader of a conversation.
        store: creates a store that reads one, with keys.
        patience: the waits between two attempts, and the function that waits.
    """

    def __init__(
        self,
        backend: Backend,
        reader: Callable[[str], BackendReader],
        store: Callable[..., ConversationStore],
        patience: tuple[tuple[float, ...], Callable[[float], None]],
    ) -> None:
        self.name: str = backend.name
        self.identity: str | None = backend.identity
        self._backend = backend
        self._reader = reader
        self._store = store
        self._patience = patience
        self._fetched: OrderedDict[str, BackendReader] = OrderedDict()

    def path(self, folder: str) -> str:
        """A conversation's name in errors and hits."""
        return f"{self.name}/{folder}"

    # ---- stamps ---------------------------------------------------------------------------------------------------

    def looks(self, known: Mapping[str, str], *, refresh: bool) -> tuple[Iterator[list[tuple[str, str]]], bool]:
        """Pages of all ids, each with its stamp (the number of its last slot), and whether that is current.

        A backend that can list the last slots is asked for them. For another one the list summaries are used, which may
        be late, and lack conversations without one; with ``refresh`` every conversation is read for new slots.

        Args:
            known: known stamps.
            refresh: True to read each one if the backend cannot list all at once.
        """
        first = self._ends("")
        if first is not None:
            return self._pages_from(first), True
        return (self._asked(known), True) if refresh else (self._left(known), False)

    def _pages_from(self, page: list[tuple[str, int]]) -> Iterator[list[tuple[str, str]]]:
        while page:
            yield [(each, str(slot)) for each, slot in page]
            page = self._ends(page[-1][0]) or []

    def _ends(self, after: str) -> list[tuple[str, int]] | None:
        found: list[tuple[str, int]] | None = self._ask(lambda: self._backend.ends(after=after, limit=_PAGE))
        return found

    def _asked(self, known: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
        after = ""
        while page := self._ask(lambda after=after: self._backend.conversations(after=after, limit=_PAGE)):  # type: ignore[misc]
            found = ((each, self._last_slot(each, _number(known.get(each)))) for each in page)
            yield [(each, str(slot)) for each, slot in found if slot]
            after = page[-1]

    def _last_slot(self, id: str, known: int) -> int:
        new = self._ask(lambda: self._backend.read(id, known))
        return max((piece.last for piece in new), default=known)

    def _left(self, known: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
        before: tuple[str, str] | None = None
        while page := self._ask(lambda before=before: self._backend.summaries(before=before, limit=_PAGE)):  # type: ignore[misc]
            yield [(each.id, str(max(each.slot, _number(known.get(each.id))))) for each in page]
            before = page[-1].updated_at, page[-1].id

    def _ask(self, call: Callable[[], Any]) -> Any:
        waits, sleep = self._patience
        return patiently(call, waits, sleep, path=self.name, doing="list the conversations")

    # ---- one of them -----------------------------------------------------------------------------------------------------

    def summary(self, folder: str) -> ConversationSummary | None:
        """The current row of a listing; None if it was deleted."""
        path = self.path(folder)
        try:
            reader = self._read(folder)
        except ConversationNotFoundError:
            return None
        except (CorruptTranscriptError, UnsupportedVersionError) as error:
            return ConversationSummary(id=folder, directory=path, damage=error.reason)
        return summary_in(reader.mirror, path)

    @contextmanager
    def transcript(self, folder: str) -> Iterator[TranscriptFile]:
        """The current live transcript, open to read.

        Raises:
            ConversationNotFoundError: it was deleted.
            CorruptTranscriptError: its slots do not verify.
            BackendError: the backend does not answer.
        """
        reader = self._read(folder)
        with transcript_in(reader.mirror, self.path(folder)) as transcript:
            yield transcript

    def store(self, folder: str, **keys: Any) -> ConversationStore:
        """A store that reads the conversation, not loaded yet."""
        return self._store(folder, read_only=True, **keys)

    def close(self) -> None:
        """Release what was fetched."""
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
