"""Find the conversation that a person names: by its folder, by its id, by the beginning of its id, or as ``last``."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from transcript_store import ConversationLibrary, ConversationNotFoundError, ConversationSummary, list_conversations
from transcript_store.cli._shared.terminal import Misuse

LAST = "last"
_BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
"""The beginning of an id, at least four characters. With fewer, a mistyped folder name would often match an id."""
_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")


def chat_library() -> ConversationLibrary:
    """The library in which ``chat`` keeps its conversations.

    Raises:
        ModuleNotFoundError: ``platformdirs`` is not installed; the extra ``chat`` installs it.
    """
    from platformdirs import user_data_path

    return ConversationLibrary(user_data_path("transcript-store") / "conversations")


def find(name: str) -> str:
    """The path of the conversation that a name means. If there is none, the name itself as a path.

    If something exists at the path, it is meant. Else ``chats/0b8f`` is looked for among the conversations in ``chats``.
    ``0b8f`` is looked for among those in the working directory, and then among those of ``chat``.

    Raises:
        Misuse: the name is the beginning of several ids.
    """
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.lexists(path):
        return path
    directory, what = os.path.split(path)
    places = [directory]
    if os.path.dirname(name) == "":
        with suppress(ModuleNotFoundError):  # without platformdirs `chat` does not run, so it has no conversations here
            places.append(chat_library().directory)
    return next((found for place in places if (found := find_in(place, what)) is not None), path)


def existing(name: str) -> str:
    """As :func:`find`, for a command that needs the conversation to be there.

    Raises:
        Misuse: the name is the beginning of several ids.
        ConversationNotFoundError: it is too short for the beginning of an id. For any other name the command itself says what is missing.
    """
    path = find(name)
    if not os.path.lexists(path) and _TOO_SHORT.fullmatch(os.path.basename(path)):
        reason = "there is no conversation, and the beginning of an id has at least four characters"
        raise ConversationNotFoundError(path=path, reason=reason)
    return path


def find_in(directory: str, what: str) -> str | None:
    """The path of the conversation in a directory that ``what`` means; None if there is none.

    ``what`` is an id, the beginning of an id, or ``last``: the conversation that changed last.

    Raises:
        Misuse: ``what`` is the beginning of several ids.
    """
    if what != LAST and not _BEGINNING.fullmatch(what):
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
