"""Find the conversation for ``chat``: in a directory, or in the library in the user's data directory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from transcript_store import (
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
    ConversationSummary,
    TranscriptStoreError,
)
from transcript_store.cli._shared.hints import error_sentence as in_the_shell
from transcript_store.cli._shared.keys import CommandKeys
from transcript_store.cli._shared.names import (
    LAST,
    called,
    conversation_at,
    default_library,
    existing_on,
    find_in,
    is_backend_address,
    library_at,
    printable_name,
    taken_apart,
    with_id,
)
from transcript_store.cli._shared.names import resolve_name as conversation_named
from transcript_store.cli._shared.terminal import (
    Misuse,
    columns,
    complain,
    fitting,
    many,
    one_line,
    say,
    time,
    warnings_hidden,
)
from transcript_store.cli.search import say_found, say_what_is_missing
from transcript_store.file_names import is_id
from transcript_store.redaction import SecretRedactor
from transcript_store.search import SearchIndex


class ChatConversation:
    """The conversation of a chat. ``conversation`` is open, or None until it is created.

    As a context it closes the conversation at its end. A new conversation of the library is deleted again if it has no
    message. If ``was_refused`` is set, the refusal of the disk was already reported: the library's warnings about it are hidden
    at the end.
    """

    def __init__(
        self,
        *,
        directory: str,
        named: str = "",
        library_name: str = "",
        conversation: ConversationStore | None,
        library: ConversationLibrary | None,
        redact: SecretRedactor | None = None,
        keys: CommandKeys,
    ) -> None:
        self.directory = directory
        self._named = named or directory
        self.library_name = library_name or (
            taken_apart(self._named).library if is_backend_address(self._named) else os.path.dirname(directory)
        )
        """The name of its library: a directory, or an address."""
        self._redact = redact
        self.keys = keys
        self.conversation = conversation
        self.was_refused = False
        self._library = library
        self._is_new = conversation is None
        self._count_at_start = self.record_count
        self.has_recorded = False
        """Set at the end of the context: True if a record was added since the conversation was found."""

    @property
    def record_count(self) -> int:
        """How many records the conversation has; 0 until it is created, and read."""
        try:
            return 0 if self.conversation is None else self.conversation.record_count
        except ConversationNotLoadedError:  # it was interrupted between its creation and its first use
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
        """A text without the secrets that the redactor removes from records."""
        return text if self._redact is None else str(self._redact.redact(text).value)

    def __enter__(self) -> ChatConversation:
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


def open_named(
    directory: str | None, *, new: bool, resume: str | None, keys: CommandKeys, redact: SecretRedactor | None = None
) -> ChatConversation:
    """The conversation that the command line names. ``redact`` removes secrets from its records; with ``keys`` it is sealed.

    It is a directory, the conversation that ``--resume`` names, a new conversation of the library, or its latest one.

    Raises:
        Misuse: two arguments name different conversations. Or ``--new`` names a conversation that exists, or ``last``. Or several
            ids start with the name. Or the name is ``last`` and no conversation exists. Or the name reads like a question.
        TranscriptStoreError: the conversation cannot be opened, as in ``ConversationStore.load()``.
    """
    library_name = None
    if directory is not None and is_backend_address(directory) and taken_apart(directory).what is None:
        library_name, directory = directory, None
    if directory is not None:
        if resume is not None:
            raise Misuse("give --resume or DIR, not both: each names a conversation")
        store = conversation_at(_named(directory, new=new), creates=True, redact=redact, take_over=True, **keys.options)
        exists = store.exists()
        if exists and new:
            raise Misuse(
                f"{store.directory}: --new needs a new folder, and this one exists: leave out --new to continue it"
            )
        if exists:
            store.load()
        found = store if exists else None
        return ChatConversation(
            directory=store.directory, named=directory, conversation=found, library=None, redact=redact, keys=keys
        )
    library_name = library_name or default_library()
    library = library_at(library_name, creates=True, redact=redact, **keys.options)
    name = None
    if resume is not None and is_backend_address(library_name):
        _, name = with_id(existing_on(library_name, resume.rpartition("/")[2]))
    elif resume is not None:
        path = find_in(library.directory, resume) or conversation_named(resume)
        if os.path.lexists(path) and os.path.dirname(path) != library.directory:
            # A conversation outside the library is the user's own: it is never deleted, even without messages.
            store = ConversationStore(path, redact=redact, **keys.options)
            store.load()
            return ChatConversation(directory=path, conversation=store, library=None, redact=redact, keys=keys)
        if not os.path.lexists(path):
            reason = f"there is no conversation {resume!r}; `transcript-store chat --list` lists them"
            raise ConversationNotFoundError(path=library.directory, reason=reason, hint=None)
        name = os.path.basename(path)
    elif not new:
        name = next((summary.id for summary in library.list(limit=1)), None)
    last = None if name is None else library.open(name, take_over=True)
    where = f"{library.directory}/{uuid.uuid4()}" if last is None else last.directory
    return ChatConversation(
        directory=where, library_name=library_name, conversation=last, library=library, redact=redact, keys=keys
    )


def _named(name: str, *, new: bool) -> str:
    """The folder that a name means: of an existing conversation, else of a new one."""
    path = conversation_named(name)
    if is_backend_address(path):
        return path
    if new and os.path.basename(name.rstrip("/")) == LAST and not os.path.lexists(os.path.expanduser(name)):
        # From then on `last` would mean this folder, and no longer the latest conversation of that library.
        raise Misuse(f"{name}: --new starts a conversation, and `last` means an existing one: name a new folder")
    if os.path.basename(path) == LAST and not os.path.lexists(path):
        raise Misuse(f"{path}: there is no conversation yet, so there is no last one; name a new folder")
    if not new and " " in name and "/" not in name and name.rstrip()[-1:] in tuple("?!.") and not os.path.lexists(path):
        raise Misuse(
            f"{name!r} looks like a message, and there is no folder of this name: start `transcript-store chat` and type it there, "
            "or `echo … | transcript-store chat`. --new starts a conversation in such a folder"
        )
    # The folder's name may also be the start of another conversation's id: --new decides for the folder.
    return name if new else path


# ---- finding ----
#
# Find a conversation by its title, to continue it, and messages of the library.

_OFFERED = 10
_FOUND = 10

Ask = Callable[[], str]
"""Asks a person for a line. Raises ``EOFError`` on Ctrl-D."""


def show_found(library: str, query: str, keys: CommandKeys) -> bool:
    """Print the messages of a library that match a query. Return False if it cannot be read."""
    try:
        with SearchIndex(library_at(library, **keys.options), **keys.options) as index:
            answer = index.search(query, limit=_FOUND)
    except TranscriptStoreError as error:
        complain(in_the_shell(error, "chat"))
        return False
    say_found(answer, library)
    say_what_is_missing(answer, library, keys)
    return True


def picked(library: str, ask: Ask | None = None) -> str | None:
    """The folder of the conversation that a person chooses; None if they leave.

    The latest are listed by title. A number chooses one, an empty line the first one; words select the titles that have them,
    and a single match is chosen.

    Raises:
        Misuse: there is no conversation that can be continued.
        StorageError: the library cannot be read.
        ModuleNotFoundError: ``prompt_toolkit`` is not installed.
    """
    with SearchIndex(library_at(library)) as index:
        offered = _latest(index, "")
        if not offered:
            others = index.list(limit=1).total
            none = f"none of {many(others, 'conversation')} can be continued; `transcript-store list` shows them"
            raise Misuse(f"{printable_name(library)}: {none if others else 'there is no conversation yet'}")
        asked = ask or _asker(index)
        _say(offered)
        say("A number, or words of the title; Enter chooses the first one, Ctrl-D leaves.", now=True)
        while True:
            try:
                line = asked().strip()
            except EOFError:
                return None
            if line.isascii() and line.isdigit() and 1 <= int(line[:9]) <= len(offered):
                return offered[int(line) - 1].directory
            found = _latest(index, line) if line else offered[:1]
            found = [one for one in found if one.id == line] or found
            if len(found) == 1:
                return found[0].directory
            if found:
                offered = found
                _say(offered)
            else:
                complain("no title has these words; an empty line chooses the first one of the list")


def _latest(index: SearchIndex, words: str) -> list[ConversationSummary]:
    """The latest conversations that can be continued and whose title has the words, or whose id this is."""
    asked = f"id:{words}" if is_id(words) else words
    found: list[ConversationSummary] = []
    page = index.list(limit=_OFFERED, filter=asked)
    while True:
        found += (one for one in page if one.damage is None and is_id(os.path.basename(one.directory)))
        if len(found) >= _OFFERED or page.next is None:
            return found[:_OFFERED]
        page = index.list(limit=_OFFERED, filter=asked, after=page.next)


def _say(offered: Sequence[ConversationSummary]) -> None:
    for number, one in enumerate(offered, 1):
        line = f"{number:>3}  {time(one.updated_at)}  {_title(one)}"
        width = columns()
        say(line if width is None else fitting(line, width), now=True)


def _title(summary: ConversationSummary) -> str:
    return one_line(called(summary))


def _asker(index: SearchIndex) -> Ask:
    """A prompt that shows matching titles while the user types; a plain one on a terminal that cannot."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Titles(Completer):
        def get_completions(self, document: Document, _event: CompleteEvent) -> Iterator[Completion]:
            typed = document.text
            if not typed.strip() or typed.isdigit():
                return
            for one in _latest(index, typed):
                yield Completion(
                    one.id or "", start_position=-len(typed), display=_title(one), display_meta=time(one.updated_at)
                )

    session: PromptSession[str] = PromptSession("> ", completer=Titles(), complete_in_thread=True)
    return session.prompt
