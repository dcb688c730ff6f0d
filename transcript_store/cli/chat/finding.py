"""What ``chat`` finds: a conversation by its title, to go on with, and messages of the library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from transcript_store import ConversationSummary, TranscriptStoreError
from transcript_store.cli._shared.keys import Keys
from transcript_store.cli._shared.names import called
from transcript_store.cli._shared.places import library_at, shown
from transcript_store.cli._shared.terminal import Misuse, columns, complain, fitting, many, one_line, say, time
from transcript_store.cli._shared.ways_out import sentence as in_the_shell
from transcript_store.cli.search import say_found, say_what_is_missing
from transcript_store.file_names import is_id
from transcript_store.search import SearchIndex

_OFFERED = 10
_FOUND = 10

Ask = Callable[[], str]
"""Asks a person for a line. Raises ``EOFError`` at its end, which is Ctrl-D."""


def show_found(library: str, query: str, keys: Keys) -> bool:
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
            raise Misuse(f"{shown(library)}: {none if others else 'there is no conversation yet'}")
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
