"""Find the conversation that a person names: by its folder, by its id, by the beginning of its id, or as ``last``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from transcript_store import ConversationLibrary, ConversationNotFoundError, ConversationSummary, list_conversations
from transcript_store.cli._shared.places import (
    BEGINNING,
    LAST,
    existing_on,
    is_address,
    library_at,
    shown,
    taken_apart,
    the_only,
    with_id,
)
from transcript_store.cli._shared.terminal import Misuse
from transcript_store.file_names import TRANSCRIPT, absolute_path

_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")


VARIABLE = "TRANSCRIPT_STORE_LIBRARY"
"""Names the library of ``chat``, which is meant wherever no library is given: a directory, or the address of a place."""


def chat_place() -> str:
    """Where ``chat`` keeps its conversations: what the variable names, otherwise a folder in the user's data directory.

    Raises:
        ModuleNotFoundError: ``platformdirs`` is not installed; the extra ``chat`` installs it.
        Misuse: the variable names no library. The error names the variable, which the user may not think of.
    """
    if named := os.environ.get(VARIABLE, "").strip():  # an empty variable (`NAME=` in a unit file) means none
        return _library_of_the_variable(named)
    from platformdirs import user_data_path

    return str(user_data_path("transcript-store") / "conversations")


def _library_of_the_variable(named: str) -> str:
    if is_address(named):
        library, what = taken_apart(named)
        if what is not None:
            raise Misuse(f"{VARIABLE} names a conversation; name the library: {shown(library)}")
        try:
            library_at(named)
        except Misuse as error:
            raise Misuse(f"{VARIABLE}: {error}") from None
        return named
    path = absolute_path(named)
    if os.path.exists(path) and not os.path.isdir(path):
        raise Misuse(f"{VARIABLE}: {path} is no directory; name that of a library, or the address of a place")
    return path


def is_default(library: str) -> bool:
    """Whether it is the library that every command means where none is named."""
    with suppress(ModuleNotFoundError, Misuse):
        return library == chat_place()
    return False


def chat_library(**options: Any) -> ConversationLibrary:
    """The library in which ``chat`` keeps its conversations. Raises as :func:`chat_place`."""
    return library_at(chat_place(), **options)


def find(name: str) -> str:
    """The path of the conversation that a name means. If there is none, the name itself as a path.

    If something exists at the path, it is meant. Else ``chats/0b8f`` is looked for among the conversations in ``chats``, ``./0b8f`` among
    those in the working directory, and ``0b8f`` in the library that every command means where none is named: :func:`chat_place`.

    Raises:
        Misuse: the name is the beginning of several ids.
    """
    if is_address(name):
        library, what = taken_apart(name)
        return name if what is None else existing_on(library, what)
    path = absolute_path(name)
    if os.path.lexists(path):
        return path
    return find_in(_library_meant(name) or os.path.dirname(path), os.path.basename(path)) or path


def _library_meant(name: str) -> str | None:
    """The library in which a name is looked for that says none; None if it says one, or is no name of a conversation in a library.

    Raises:
        Misuse: no library is meant, for ``chat`` is not installed and the variable is not set.
    """
    if os.path.dirname(name) or not _is_in_a_library(name):
        return None
    try:
        return chat_place()
    except ModuleNotFoundError:
        reason = (
            f"is looked for in the library of `chat`, and the extra `chat` is not installed; {VARIABLE} names another"
        )
        raise Misuse(f"{name} {reason}, and the one in this directory is ./{name}") from None


def _is_in_a_library(what: str) -> bool:
    return what == LAST or BEGINNING.fullmatch(what) is not None


def existing(name: str, in_library: str | None = None) -> str:
    """As :func:`find`, for a command that needs the conversation to be there. It may have two words: its library, and its name there.

    Raises:
        Misuse: the name is the beginning of several ids.
        ConversationNotFoundError: it is too short for the beginning of an id, or nothing in the library that is meant has it. For any other
            name the command itself says what is missing.
    """
    if in_library is not None and is_address(name):
        return existing_on(name, in_library)
    path = find(f"{name}/{in_library}" if in_library else name)
    if is_address(path):
        with_id(path)  # or it is a library
    elif os.path.lexists(path):
        return path
    elif in_library is None and (library := _library_meant(name)) is not None:
        here = f"; the one in this directory is ./{name}" if find_in(os.getcwd(), name) else ""
        reason = "there is no conversation yet" if name == LAST else f"there is no conversation {name!r}"
        raise ConversationNotFoundError(path=shown(library), reason=f"{reason}{here}")
    elif _TOO_SHORT.fullmatch(os.path.basename(path)):
        reason = "there is no conversation, and the beginning of an id has at least four characters"
        raise ConversationNotFoundError(path=path, reason=reason)
    elif in_library is not None:
        reason = "there is no conversation (two words are a library, and a conversation in it)"
        raise ConversationNotFoundError(path=path, reason=reason)
    return path


def conversation_and_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """The path of the conversation that the first of these words names, or the first two (a library, and its name there); and the others.

    Raises:
        Misuse, ConversationNotFoundError: as :func:`existing`.
    """
    first, *others = words
    if others and _is_library(first):
        return existing(first, others[0]), others[1:]
    return existing(first), others


def _is_library(name: str) -> bool:
    if is_address(name):
        return taken_apart(name).what is None
    path = absolute_path(name)
    return os.path.isdir(path) and not os.path.lexists(os.path.join(path, TRANSCRIPT))


def find_in(directory: str, what: str) -> str | None:
    """The path of the conversation in a directory that ``what`` means; None if there is none.

    ``what`` is an id, the beginning of an id, or ``last``: the conversation that changed last.

    Raises:
        Misuse: ``what`` is the beginning of several ids.
    """
    if not _is_in_a_library(what):
        return None
    if is_address(directory):
        with suppress(ConversationNotFoundError):
            return existing_on(directory, what)
        return None
    try:
        there = list_conversations(directory)
    except ConversationNotFoundError:
        return None
    found = there[:1] if what == LAST else [summary for summary in there if _begins(summary, what)]
    the_only([summary.id or summary.directory for summary in found], what, directory)
    return found[0].directory if found else None


def _begins(summary: ConversationSummary, what: str) -> bool:
    return (summary.id or "").startswith(what) or os.path.basename(summary.directory).startswith(what)
