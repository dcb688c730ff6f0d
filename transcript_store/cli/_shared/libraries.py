"""The libraries that a command is about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from transcript_store import ConversationNotFoundError
from transcript_store.cli._shared.places import LAST, is_address, shown
from transcript_store.cli._shared.terminal import Misuse, complain, for_shell, many
from transcript_store.file_names import TRANSCRIPT, absolute_path

_NONE_YET = (
    "there is no conversation yet; `transcript-store chat` begins one, `transcript-store import` brings in those of other "
    "programs, or name a library"
)
_NONE_HERE = "there is no conversation directly under it"


def libraries(given: Sequence[str], *, on_places: bool = False) -> list[str]:
    """The directories of these libraries; without any that of ``chat``. Each of them is a directory, or, ``on_places``, an address.

    Raises:
        Misuse: none is given, and the extra that ``chat`` needs is not installed.
        ConversationNotFoundError: one is not there, or is a file or a conversation; the sentence says what to name.
    """
    directories = [one if is_address(one) else absolute_path(one) for one in given or [_of_chat()]]
    for directory in directories:
        if not is_address(directory):
            _check(directory)
        elif not on_places:
            raise Misuse(f"{shown(directory)} is a place, and this command needs the directory of a library")
    return directories


def the_library(given: str | None, *, on_places: bool = False) -> str:
    """The directory of one library; if none is given, of the default one, and standard error says which that is.

    Raises:
        Misuse, ConversationNotFoundError: as :func:`libraries`.
    """
    (directory,) = libraries([] if given is None else [given], on_places=on_places)
    if given is None:
        complain(f"in {shown(directory)}, as no library is named")
    return directory


def query_and_libraries(
    words: Sequence[str], *, needs_query: bool = True, is_of_paths: bool = False
) -> tuple[str, list[str]]:
    """The query that words of a command line are, and the libraries that the last of them name.

    A word names a library if it is an address, or the path of a directory that holds conversations; one that ends with a slash always
    does, and if it ``is_of_paths`` also what can only be a path. If the command ``needs_query``, the first word belongs to it, whatever
    it is.
    """
    end = len(words)
    while end > needs_query and (_names_a_library(words[end - 1]) or (is_of_paths and is_path(words[end - 1]))):
        end -= 1
    return " ".join(words[:end]), list(words[end:])


def _names_a_library(word: str) -> bool:
    if is_address(word):
        return not word.startswith(("http:", "https:"))
    path = os.path.expanduser(word)
    if not os.path.isdir(path):
        return word.endswith("/") and len(word) > 1
    return is_path(word) or _has_conversations(path) or os.path.lexists(os.path.join(path, TRANSCRIPT))


def is_path(word: str) -> bool:
    """Whether a directory of this name can only be meant as one: its path leads elsewhere, or is absolute."""
    return word in (".", "..") or word.startswith(("/", "./", "../", "~/"))


def destination(named: str) -> str:
    """The directory of a library to write into, which may not be there yet; or the address of a place.

    Raises:
        ConversationNotFoundError: it is a file or a conversation; the sentence says what to name.
        Misuse: a new one would have the name that means a conversation.
    """
    if is_address(named):
        return named
    directory = absolute_path(named)
    if os.path.lexists(directory):
        _check(directory)
    elif os.path.basename(directory) == LAST:
        raise Misuse(
            f"{for_shell(named)}: `last` means the conversation that changed last; name a library: a directory"
        )
    return directory


def none_in(directory: str) -> str | None:
    """That a library has no conversation, in words, and in which folders of it there are some; None if it has one."""
    if _has_conversations(directory):
        return None
    return too_high(directory) or _NONE_HERE


def too_high(directory: str) -> str | None:
    """That this is no library but folders in it are, in words; None if none is, or this is one.

    The projects of a Claude Agent are such folders, and whoever looks for a conversation may name the folder above.
    """
    if _has_conversations(directory):
        return None
    with suppress(OSError), os.scandir(directory) as folders:
        within = sorted(folder.path for folder in folders if _has_conversations(folder.path))
        if within:
            found = f"there are some in {many(len(within), 'folder')} of it, as in {for_shell(within[0])}"
            return f"{_NONE_HERE}; {found}: name that"
    return None


def _has_conversations(directory: str) -> bool:
    with suppress(OSError), os.scandir(directory) as entries:
        return any(os.path.lexists(os.path.join(entry.path, TRANSCRIPT)) for entry in entries)
    return False


def _check(directory: str) -> None:
    if not os.path.lexists(directory):
        raise ConversationNotFoundError(path=directory, reason="there is no such directory")
    if not os.path.isdir(directory):
        reason = "a file stands where a library should be; name a directory"
        raise ConversationNotFoundError(path=directory, reason=reason, way_out=None)
    if os.path.lexists(os.path.join(directory, TRANSCRIPT)):
        reason = f"this is a conversation, and no library; name the library that it is in: {for_shell(os.path.dirname(directory))}"
        raise ConversationNotFoundError(path=directory, reason=reason, way_out=None)


def _of_chat() -> str:
    from transcript_store.cli._shared.conversations import chat_place  # needs all that writes conversations

    try:
        directory = chat_place()
    except ModuleNotFoundError:
        raise Misuse(
            "name a library (without one that of `chat` is meant, and the extra `chat` is not installed)"
        ) from None
    if not is_address(directory) and not os.path.isdir(directory):
        raise ConversationNotFoundError(path=directory, reason=_NONE_YET, way_out=None)
    return directory
