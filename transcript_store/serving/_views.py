"""The conversations that are open in some browser: each is read and rendered once, whoever looks at it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from transcript_store.errors import TranscriptStoreError
from transcript_store.serving._homes import Home
from transcript_store.view.served import LiveConversation

_MOST = 4
"""Rendered conversations that are kept though nobody asks for them at the moment."""


class Lease:
    """A conversation that is open, and how many use it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.users = 0
        self.opening = Lock()
        self.live: LiveConversation | None = None

    @property
    def conversation(self) -> LiveConversation:
        assert self.live is not None
        return self.live

    def close(self) -> None:
        if self.live is not None:
            self.live.close()


class Views:
    """Conversations by their folder's name. A page and its events use the same."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._mutex = Lock()
        self._leases: OrderedDict[str, Lease] = OrderedDict()

    @contextmanager
    def opened(self, name: str) -> Iterator[LiveConversation]:
        """The conversation, to be used in the block.

        Raises:
            TranscriptStoreError: as :class:`LiveConversation`.
        """
        lease = self.take(name)
        try:
            yield lease.conversation
        except TranscriptStoreError:
            self.forget(lease)
            raise
        finally:
            self.give_back(lease)

    def take(self, name: str) -> Lease:
        """The conversation, which stays open until it is given back.

        Raises:
            TranscriptStoreError: as :class:`LiveConversation`.
        """
        with self._mutex:
            lease = self._leases.setdefault(name, Lease(name))
            self._leases.move_to_end(name)
            lease.users += 1
        try:
            with lease.opening:
                if lease.live is None:
                    source, keys = self._home.source(name)
                    lease.live = LiveConversation(source, keys=keys)
        except BaseException:
            self.forget(lease)
            self.give_back(lease)
            raise
        return lease

    def give_back(self, lease: Lease) -> None:
        """Of those that nobody uses, the ones that were used last are kept."""
        with self._mutex:
            lease.users -= 1
            idle = [each for each in self._leases.values() if not each.users]
            gone = idle[: max(0, len(idle) - _MOST)]
            for each in gone:
                del self._leases[each.name]
            if not lease.users and self._leases.get(lease.name) is not lease and lease not in gone:
                gone.append(lease)
        for each in gone:
            each.close()

    def forget(self, lease: Lease) -> None:
        """Whoever comes next reads it anew: it is damaged or gone, and somebody may repair it."""
        with self._mutex:
            if self._leases.get(lease.name) is lease:
                del self._leases[lease.name]

    def close(self) -> None:
        with self._mutex:
            leases, self._leases = list(self._leases.values()), OrderedDict()
        for lease in leases:
            lease.close()
