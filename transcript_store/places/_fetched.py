"""What was fetched of a conversation on a place: its slots, verified, and a spool that is filled from them; and who only reads it."""

from __future__ import annotations

from typing import Any

from transcript_store._conversation.reader import Reader, RefreshResult
from transcript_store._conversation.sealing import Sealing
from transcript_store._conversation.storage import Options, Storage
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import KEY
from transcript_store.errors import CorruptKeyFileError, NotSealedError
from transcript_store.places._claimed import ClaimedLog
from transcript_store.places._filling import fill
from transcript_store.places._spool import Spool

_DATA = frozenset({"generation", "append", "metadata"})
"""The kinds of slots that change what is read."""


class Fetched(Storage):
    """What a reader and a writer share: the slots, and the spool that is filled from them."""

    def __init__(self, slots: ClaimedLog, machine: FileSystem, options: Options, **more: Any) -> None:
        self.slots = slots
        self.spool = Spool(machine)
        self.is_filled = True
        """G2: whether the spool has everything but what is ``fresh``."""
        super().__init__(self.spool, slots.path, options, **more)

    def fetch(self) -> None:
        """Read every slot anew, verified; the spool is not filled yet."""
        self.is_filled = False
        self.slots.load_patiently()
        self._unlock()

    def _unlock(self) -> None:
        """With keys: put the key file beside what is to be filled in, and open it: nobody claims a conversation without its key."""
        keys = self.options.keys
        if keys is None:
            return
        if not self.slots.state.is_sealed:
            if self.options.accept_plain:
                self.sealing_ahead = self.slots.key.ahead(keys, self.files, self.slots.opens)
                return
            raise NotSealedError(path=self.path, reason="a key was given, and the conversation there is not sealed")
        data = self.slots.key.read()
        with Folder.make(self.spool, self.path) as folder:
            if data is None:
                folder.discard(KEY)
                # Not of the file in memory: its path is none that a person can look at.
                reason = (
                    "the backend does not have the key; ship() with with_key=True, or `ship --with-key`, puts it there"
                )
                raise CorruptKeyFileError(path=self.slots.key.path, kind="missing", reason=reason)
            folder.replace_file(KEY, [data])
            self.sealing = Sealing.of(keys, folder, self.slots.id, self.sealing)

    def look(self) -> bool:
        """Take in what stands on the place now; whether the spool has other bytes than before."""
        if self.is_filled:
            self.slots.look_patiently()
        else:
            self.fetch()
        return self.fill()

    def fill(self) -> bool:
        """Write into the spool what was taken in; whether that changed what is read."""
        slots = self.slots.fresh
        has_news = any(slot.kind in _DATA for slot in slots)
        if has_news:
            self.is_filled = False
            fill(self.spool, self.path, slots)
        self.slots.fresh, self.is_filled = [], True
        return has_news

    def let_go(self) -> None:
        super().let_go()
        self.spool.clear()


class PlacedReader(Fetched, Reader):
    """As one reader sees it. It claims nothing."""

    def load(self) -> None:
        self.fetch()
        self.fill()
        super().load()

    def refresh(self) -> RefreshResult:
        self.look()
        return super().refresh()
