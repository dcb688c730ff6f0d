"""Which conversation a person means: by its folder, by its id, by the beginning of its id, or as the last one."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from transcript_store import ConversationLibrary, ConversationNotFoundError, ConversationSummary, list_conversations
from transcript_store.cli._shared.terminal import Misuse

LAST = "last"
_BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
"""The beginning of an id. Fewer characters are too easily those of a folder whose name was mistyped."""


def chat_library() -> ConversationLibrary:
    """The library that ``chat`` keeps its conversations in. Raises ``ModuleNotFoundError`` without ``platformdirs``."""
    from platformdirs import user_data_path

    return ConversationLibrary(user_data_path("transcript-store") / "conversations")


def find(name: str) -> str:
    """The path of the conversation that is meant; the path that the name is, if there is none.

    ``chats/0b8f`` is looked for among the conversations in ``chats``, and ``0b8f`` among those of the working directory and
    then those of ``chat``. What exists at the path is meant before anything else. Raises ``Misuse`` if several are meant.
    """
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.lexists(path):
        return path
    directory, what = os.path.split(path)
    places = [directory]
    if os.path.dirname(name) == "":
        with suppress(ModuleNotFoundError):  # without what chat needs, nothing was kept there
            places.append(chat_library().directory)
    return next((found for place in places if (found := find_in(place, what)) is not None), path)


def find_in(directory: str, what: str) -> str | None:
    """The path of the conversation in a directory that an id, the beginning of one, or ``last`` means; None if there is none."""
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
