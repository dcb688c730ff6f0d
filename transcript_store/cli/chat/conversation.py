"""Find the conversation for ``chat``: in a directory, or in the library in the user's data directory."""

from __future__ import annotations

import os
import uuid
from contextlib import nullcontext
from typing import Any

from transcript_store import (
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
)
from transcript_store.cli._shared.conversations import chat_place, find_in
from transcript_store.cli._shared.conversations import find as conversation_named
from transcript_store.cli._shared.keys import Keys
from transcript_store.cli._shared.places import (
    LAST,
    conversation_at,
    existing_on,
    is_address,
    library_at,
    taken_apart,
    with_id,
)
from transcript_store.cli._shared.terminal import Misuse, warnings_hidden
from transcript_store.redaction import SecretRedactor


class Place:
    """The place of a conversation. ``conversation`` is open, or None until it is created.

    As a context it closes the conversation at its end. A new conversation of the library is deleted again if nothing was
    said in it. If ``was_refused`` is set, the user was already told that the disk refused something: the library's warnings
    about the same are hidden at the end.
    """

    def __init__(
        self,
        *,
        directory: str,
        named: str = "",
        shelf: str = "",
        conversation: ConversationStore | None,
        library: ConversationLibrary | None,
        redact: SecretRedactor | None = None,
        keys: Keys,
    ) -> None:
        self.directory = directory
        self._named = named or directory
        self.shelf = shelf or (
            taken_apart(self._named).library if is_address(self._named) else os.path.dirname(directory)
        )
        """What the library is called that it is in: a directory, or an address."""
        self._redact = redact
        self.keys = keys
        self.conversation = conversation
        self.was_refused = False
        self._library = library
        self._is_new = conversation is None
        self._count_at_start = self.record_count
        self.has_recorded = False
        """Set at the end of the context: whether a record was added since the conversation was found."""

    @property
    def record_count(self) -> int:
        """How many records the conversation has; 0 until it is created, and read."""
        try:
            return 0 if self.conversation is None else self.conversation.record_count
        except ConversationNotLoadedError:  # somebody stopped us between its making and its first use
            return 0

    def create(self, **facts: Any) -> ConversationStore:
        """The store for a new conversation.

        In the library, the conversation exists on return, with ``facts`` in its metadata. In a directory of the user's it
        does not exist yet: ``create_client`` creates it last, so that nothing is left behind if the client cannot be made.
        """
        if self._library is not None:
            self.conversation = self._library.create(id=self._id, **facts)
        else:
            self.conversation = conversation_at(
                self._named, creates=True, redact=self._redact, take_over=True, **self.keys.options
            )
        return self.conversation

    def clean(self, text: str) -> str:
        """A text without the secrets that are taken out of what is recorded here."""
        return text if self._redact is None else str(self._redact.redact(text).value)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self.conversation is None:
            return
        self.has_recorded = self.record_count > self._count_at_start
        nothing_said = self._library is not None and self._is_new and self.record_count == 0
        with warnings_hidden() if self.was_refused else nullcontext():
            self.conversation.close()
        if nothing_said and self._library is not None:
            self._library.delete(self._id)

    @property
    def _id(self) -> str:
        return self.directory.rpartition("/")[2]


def find(
    directory: str | None, *, new: bool, resume: str | None, keys: Keys, redact: SecretRedactor | None = None
) -> Place:
    """The place that the command line names. ``redact`` takes secrets out of what is recorded there; with ``keys`` it is sealed.

    It is a directory, the conversation that ``--resume`` names, a new conversation of the library, or its last one.

    Raises:
        Misuse: two arguments name different conversations. Or ``--new`` names a conversation that exists, or ``last``. Or several
            ids begin with the name. Or the name is ``last`` and no conversation exists. Or the name reads as a question.
        TranscriptStoreError: the conversation cannot be opened, as in ``ConversationStore.load()``.
    """
    shelf_at = None
    if directory is not None and is_address(directory) and taken_apart(directory).what is None:
        shelf_at, directory = directory, None
    if directory is not None:
        if resume is not None:
            raise Misuse("--resume names a conversation of the library, and DIR another: give one of them")
        store = conversation_at(_named(directory, new=new), creates=True, redact=redact, take_over=True, **keys.options)
        exists = store.exists()
        if exists and new:
            raise Misuse(
                f"{store.directory}: --new, and something is there already: without --new it goes on, or name another folder"
            )
        if exists:
            store.load()
        found = store if exists else None
        return Place(
            directory=store.directory, named=directory, conversation=found, library=None, redact=redact, keys=keys
        )
    shelf_at = shelf_at or chat_place()
    shelf = library_at(shelf_at, creates=True, redact=redact, **keys.options)
    name = None
    if resume is not None and is_address(shelf_at):
        _, name = with_id(existing_on(shelf_at, resume.rpartition("/")[2]))
    elif resume is not None:
        path = find_in(shelf.directory, resume) or conversation_named(resume)
        if os.path.lexists(path) and os.path.dirname(path) != shelf.directory:
            # A conversation outside the library is the user's own: it is never deleted, even if nothing is said in it.
            store = ConversationStore(path, redact=redact, **keys.options)
            store.load()
            return Place(directory=path, conversation=store, library=None, redact=redact, keys=keys)
        if not os.path.lexists(path):
            reason = f"there is no conversation {resume!r}; `transcript-store chat --list` shows those that are there"
            raise ConversationNotFoundError(path=shelf.directory, reason=reason, way_out=None)
        name = os.path.basename(path)
    elif not new:
        name = next((summary.id for summary in shelf.list(limit=1)), None)
    last = None if name is None else shelf.open(name, take_over=True)
    where = f"{shelf.directory}/{uuid.uuid4()}" if last is None else last.directory
    return Place(directory=where, shelf=shelf_at, conversation=last, library=shelf, redact=redact, keys=keys)


def _named(name: str, *, new: bool) -> str:
    """The folder that a name means: of a conversation that is there, else of one that is to be created."""
    path = conversation_named(name)
    if is_address(path):
        return path
    if new and os.path.basename(name.rstrip("/")) == LAST and not os.path.lexists(os.path.expanduser(name)):
        # A folder of this name would be meant from then on, and no `last` of that library would be found again.
        raise Misuse(
            f"{name}: --new begins a conversation, and `last` means one that is there: name the folder of a new one"
        )
    if os.path.basename(path) == LAST and not os.path.lexists(path):
        raise Misuse(f"{path}: there is no conversation yet, so none is the last; name the folder of a new one")
    if not new and " " in name and "/" not in name and name.rstrip()[-1:] in tuple("?!.") and not os.path.lexists(path):
        raise Misuse(
            f"{name!r} reads as something to say, and there is no folder of this name: begin `transcript-store chat` and say it there, "
            "or `echo … | transcript-store chat`. --new begins a conversation in such a folder"
        )
    # A folder may be called as the id of another conversation begins: --new is how to say that it is not meant.
    return name if new else path
