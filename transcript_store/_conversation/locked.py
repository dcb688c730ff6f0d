"""The writer's lock of a folder, for what changes a conversation without loading it: a repair, a shred, a rotation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transcript_store._conversation.layout import settle_name
from transcript_store._os.directory import Folder
from transcript_store._os.lock import Lock
from transcript_store._os.names import LOCK
from transcript_store._os.refusals import NotOursError
from transcript_store.errors import ConversationNotFoundError, CorruptTranscriptError


@contextmanager
def locked(folder: Folder, *, is_settled: bool = False) -> Iterator[None]:
    """Hold the writer's lock of a folder; raises an error of ours if that cannot be had."""
    if not is_settled:
        settle_name(folder)
    lock = Lock(folder)
    with lock.released_at_the_end():
        try:
            is_taken = lock.take(0)
        except NotOursError as error:
            reason = f"{LOCK}: {error.reason}"
            raise CorruptTranscriptError(path=folder.path, kind="foreign", reason=reason) from None
        if not is_taken or not folder.is_at_its_path():
            raise ConversationNotFoundError(path=folder.path, reason="the conversation was moved away just now")
        yield
