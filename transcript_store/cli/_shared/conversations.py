"""Find the conversation that a person names: by its folder, by its id, by the beginning of its id, or as ``last``."""

from __future__ import annotations

import os
import re
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
    with_id,
)
from transcript_store.cli._shared.terminal import Misuse

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
    path = os.path.abspath(os.path.expanduser(named))
    if os.path.exists(path) and not os.path.isdir(path):
        raise Misuse(f"{VARIABLE}: {path} is no directory; name that of a library, or the address of a place")
    return path


def chat_library(**options: Any) -> ConversationLibrary:
    """The library in which ``chat`` keeps its conversations. Raises as :func:`chat_place`."""
    return library_at(chat_place(), **options)


def find(name: str) -> str:
    """The path of the conversation that a name means. If there is none, the name itself as a path.

    If something exists at the path, it is meant. Else ``chats/0b8f`` is looked for among the conversations in ``chats``.
    ``0b8f`` is looked for among those in the working directory, and then among those of ``chat``.

    Raises:
        Misuse: the name is the beginning of several ids.
    """
    if is_address(name):
        library, what = taken_apart(name)
        return name if what is None else existing_on(library, what)
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.lexists(path):
        return path
    directory, what = os.path.split(path)
    places = [directory]
    if os.path.dirname(name) == "":
        with suppress(ModuleNotFoundError):  # without platformdirs `chat` does not run, so it has no conversations here
            places.append(chat_place())
    return next((found for place in places if (found := find_in(place, what)) is not None), path)


def existing(name: str, in_library: str | None = None) -> str:
    """As :func:`find`, for a command that needs the conversation to be there. It may have two words: its library, and its name there.

    Raises:
        Misuse: the name is the beginning of several ids.
        ConversationNotFoundError: it is too short for the beginning of an id. For any other name the command itself says what is missing.
    """
    if in_library is not None and is_address(name):
        return existing_on(name, in_library)
    path = find(f"{name}/{in_library}" if in_library else name)
    if is_address(path):
        with_id(path)  # or it is a library
    elif not os.path.lexists(path) and _TOO_SHORT.fullmatch(os.path.basename(path)):
        reason = "there is no conversation, and the beginning of an id has at least four characters"
        raise ConversationNotFoundError(path=path, reason=reason)
    return path


def find_in(directory: str, what: str) -> str | None:
    """The path of the conversation in a directory that ``what`` means; None if there is none.

    ``what`` is an id, the beginning of an id, or ``last``: the conversation that changed last.

    Raises:
        Misuse: ``what`` is the beginning of several ids.
    """
    if what != LAST and not BEGINNING.fullmatch(what):
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
    if len(found) > 1:
        ids = ", ".join(summary.id or summary.directory for summary in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Misuse(f"{directory}: {what} is the beginning of {len(found)} ids: {ids}{more}")
    return found[0].directory if found else None


def _begins(summary: ConversationSummary, what: str) -> bool:
    return (summary.id or "").startswith(what) or os.path.basename(summary.directory).startswith(what)
