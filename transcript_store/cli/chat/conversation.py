"""Find the conversation for ``chat``: in a directory, or in the library in the user's data directory."""

from __future__ import annotations

import os
import uuid
from contextlib import nullcontext
from typing import Any

from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.cli._shared.conversations import chat_library, find_in
from transcript_store.cli._shared.conversations import find as conversation_named
from transcript_store.cli._shared.terminal import Misuse, warnings_hidden


class Place:
    """The place of a conversation. ``conversation`` is open, or None until it is created.

    As a context it closes the conversation at its end. A new conversation of the library is deleted again if nothing was
    said in it. If ``was_refused`` is set, the user was already told that the disk refused something: the library's warnings
    about the same are hidden at the end.
    """

    def __init__(
        self, *, directory: str, conversation: ConversationStore | None, library: ConversationLibrary | None
    ) -> None:
        self.directory = directory
        self.conversation = conversation
        self.was_refused = False
        self._library = library
        self._is_new = conversation is None

    def create(self, **facts: Any) -> ConversationStore:
        """The store for a new conversation.

        In the library, the conversation exists on return, with ``facts`` in its metadata. In a directory of the user's it
        does not exist yet: ``create_client`` creates it last, so that nothing is left behind if the client cannot be made.
        """
        if self._library is not None:
            self.conversation = self._library.create(id=self._id, **facts)
        else:
            self.conversation = ConversationStore(self.directory)
        return self.conversation

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self.conversation is None:
            return
        nothing_said = self._library is not None and self._is_new and self.conversation.record_count == 0
        with warnings_hidden() if self.was_refused else nullcontext():
            self.conversation.close()
        if nothing_said and self._library is not None:
            self._library.delete(self._id)

    @property
    def _id(self) -> str:
        return self.directory.rpartition("/")[2]


def find(directory: str | None, *, new: bool, resume: str | None) -> Place:
    """The place that the command line names.

    It is a directory, the conversation that ``--resume`` names, a new conversation of the library, or its last one.

    Raises:
        Misuse: two arguments name different conversations, ``--new`` names one that exists, or ``--resume`` names the
            beginning of several ids.
        TranscriptStoreError: the conversation cannot be opened, as in ``ConversationStore.load()``.
    """
    if directory is not None:
        if resume is not None:
            raise Misuse("--resume names a conversation of the library, and DIR another: give one of them")
        store = ConversationStore(directory)
        exists = store.exists()
        if exists and new:
            raise Misuse(f"{store.directory}: --new, and something is there already")
        if exists:
            store.load()
        return Place(directory=store.directory, conversation=store if exists else None, library=None)
    shelf = chat_library()
    name = None
    if resume is not None:
        path = find_in(shelf.directory, resume) or conversation_named(resume)
        if os.path.lexists(path) and os.path.dirname(path) != shelf.directory:
            # A conversation outside the library is the user's own: it is never deleted, even if nothing is said in it.
            store = ConversationStore(path)
            store.load()
            return Place(directory=path, conversation=store, library=None)
        name = os.path.basename(path) if os.path.lexists(path) else resume
    elif not new:
        name = next((summary.id for summary in shelf.list()), None)
    if name is not None:
        store = shelf.open(name)
        return Place(directory=store.directory, conversation=store, library=shelf)
    return Place(directory=f"{shelf.directory}/{uuid.uuid4()}", conversation=None, library=shelf)
