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
    chat_place,
    conversation_at,
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
        keys: CommandKeys,
    ) -> None:
        self.directory = directory
        self._named = named or directory
        self.shelf = shelf or (
            taken_apart(self._named).library if is_backend_address(self._named) else os.path.dirname(directory)
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
    """The place that the command line names. ``redact`` takes secrets out of what is recorded there; with ``keys`` it is sealed.

    It is a directory, the conversation that ``--resume`` names, a new conversation of the library, or its last one.

    Raises:
        Misuse: two arguments name different conversations. Or ``--new`` names a conversation that exists, or ``last``. Or several
            ids begin with the name. Or the name is ``last`` and no conversation exists. Or the name reads as a question.
        TranscriptStoreError: the conversation cannot be opened, as in ``ConversationStore.load()``.
    """
    index_source_at = None
    if directory is not None and is_backend_address(directory) and taken_apart(directory).what is None:
        index_source_at, directory = directory, None
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
        return ChatConversation(
            directory=store.directory, named=directory, conversation=found, library=None, redact=redact, keys=keys
        )
    index_source_at = index_source_at or chat_place()
    shelf = library_at(index_source_at, creates=True, redact=redact, **keys.options)
    name = None
    if resume is not None and is_backend_address(index_source_at):
        _, name = with_id(existing_on(index_source_at, resume.rpartition("/")[2]))
    elif resume is not None:
        path = find_in(shelf.directory, resume) or conversation_named(resume)
        if os.path.lexists(path) and os.path.dirname(path) != shelf.directory:
            # A conversation outside the library is the user's own: it is never deleted, even if nothing is said in it.
            store = ConversationStore(path, redact=redact, **keys.options)
            store.load()
            return ChatConversation(directory=path, conversation=store, library=None, redact=redact, keys=keys)
        if not os.path.lexists(path):
            reason = f"there is no conversation {resume!r}; `transcript-store chat --list` shows those that are there"
            raise ConversationNotFoundError(path=shelf.directory, reason=reason, hint=None)
        name = os.path.basename(path)
    elif not new:
        name = next((summary.id for summary in shelf.list(limit=1)), None)
    last = None if name is None else shelf.open(name, take_over=True)
    where = f"{shelf.directory}/{uuid.uuid4()}" if last is None else last.directory
    return ChatConversation(
        directory=where, shelf=index_source_at, conversation=last, library=shelf, redact=redact, keys=keys
    )


def _named(name: str, *, new: bool) -> str:
    """The folder that a name means: of a conversation that is there, else of one that is to be created."""
    path = conversation_named(name)
    if is_backend_address(path):
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


# ---- finding ----
#
# What ``chat`` finds: a conversation by its title, to go on with, and messages of the library.

_OFFERED = 10
_FOUND = 10

Ask = Callable[[], str]
"""Asks a person for a line. Raises ``EOFError`` at its end, which is Ctrl-D."""


def show_found(library: str, query: str, keys: CommandKeys) -> bool:
    """Print the messages of a library that a query finds. Returns False if it cannot be read."""
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
    """The folder of the conversation that a person picks; None if they leave.

    The latest are offered by title. A number takes one of them, nothing the first one; words of a title leave those that have them,
    and if that is one it is taken.

    Raises:
        Misuse: there is no conversation that can be gone on with.
        StorageError: the library cannot be read.
        ModuleNotFoundError: ``prompt_toolkit`` is not installed.
    """
    with SearchIndex(library_at(library)) as index:
        offered = _latest(index, "")
        if not offered:
            others = index.list(limit=1).total
            none = f"none of {many(others, 'conversation')} can be gone on with; `transcript-store list` shows them"
            raise Misuse(f"{printable_name(library)}: {none if others else 'there is no conversation yet'}")
        asked = ask or _asker(index)
        _say(offered)
        say("A number, or words of the title; Enter takes the first one, Ctrl-D leaves.", now=True)
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
                complain("no title has these words; nothing but Enter takes the first one of the list")


def _latest(index: SearchIndex, words: str) -> list[ConversationSummary]:
    """The latest conversations that can be gone on with, of those whose titles have the words, or whose id it is."""
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
    """A prompt that shows the titles which have what is typed, while it is typed; a terminal that cannot do so has a plain one."""
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
