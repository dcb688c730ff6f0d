"""The conversations that are open in some browser: each is read and rendered once, whoever looks at it."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from transcript_store.errors import TranscriptStoreError
from transcript_store.file_names import TRANSCRIPT
from transcript_store.transcripts import summary_of
from transcript_store.view.served import LiveConversation, first_prompt

_MOST = 4
"""Rendered conversations that are kept though nobody asks for them at the moment."""

_MOST_NAMES = 10_000


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

    def __init__(self, library: str, keys: Mapping[str, Any]) -> None:
        self._library = library
        self._keys = keys
        self._mutex = Lock()
        self._names: dict[str, tuple[int, str]] = {}
        self._leases: OrderedDict[str, Lease] = OrderedDict()

    def path_of(self, name: str) -> str | None:
        """The path of a folder directly in the library; None for what is not its name. Nothing is asked of the disk before."""
        if not name or name.startswith(".") or len(name) > 255 or any(c in name for c in "/\\\0"):
            return None
        path = os.path.join(self._library, name)
        return path if os.path.isdir(path) and not os.path.islink(path) else None

    def name_of(self, name: str) -> str | None:
        """What a conversation without a title is called: its first prompt. None if there is none, or it cannot be read.

        One that is sealed is not read for a list.
        """
        path = self.path_of(name)
        try:
            inode = os.stat(os.path.join(path or "", TRANSCRIPT)).st_ino
            if (found := self._names.get(name)) and found[0] == inode:
                return found[1]
            called = first_prompt(path) if path and not self.keys_of(path) else None
        except (OSError, TranscriptStoreError):
            return None
        if called:  # it stands in its place until another transcript takes the place of this one
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[name] = inode, called
        return called

    def keys_of(self, path: str) -> Mapping[str, Any]:
        """The keys, if the conversation is sealed: a library may have others beside it, and its list says which is which."""
        summary = summary_of(path)
        return self._keys if summary is not None and summary.sealed else {}

    @contextmanager
    def opened(self, name: str, path: str) -> Iterator[LiveConversation]:
        """The conversation, to be used in the block.

        Raises:
            TranscriptStoreError: as :class:`LiveConversation`.
        """
        lease = self.take(name, path)
        try:
            yield lease.conversation
        except TranscriptStoreError:
            self.forget(lease)
            raise
        finally:
            self.give_back(lease)

    def take(self, name: str, path: str) -> Lease:
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
                lease.live = lease.live or LiveConversation(path, keys=self.keys_of(path))
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
