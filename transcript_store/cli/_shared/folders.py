"""A folder that is not what a command expects: what it is instead, and which command is for it."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress

from transcript_store.errors import TranscriptStoreError
from transcript_store.file_names import METADATA, TRANSCRIPT, is_id


def instead_of_a_conversation(directory: str) -> str:
    """A sentence for a path that is no conversation: whether it is a file, a library, a store of snapshots, or unknown."""
    quoted = shlex.quote(directory)
    if not os.path.isdir(directory):
        return "give the folder of a conversation, not a file in it"
    if os.path.lexists(os.path.join(directory, METADATA)):
        return f"this is a file of a conversation; name the conversation: {quoted}"
    if _holds_conversations(directory):
        return f"this is a library, a directory of conversations: `transcript-store list {quoted}` lists them; name one"
    if _holds_snapshots(directory):
        return f"this is a store of snapshots: `transcript-store snapshot verify --store {quoted}` checks it"
    return (
        "give the folder of a conversation, or choose a new one; what is here was not made by us, leave it where it is"
    )


def instead_of_a_store(directory: str) -> str | None:
    """A sentence for a folder that cannot be a store of snapshots, because it holds conversations. None if it can be one."""
    if any(os.path.lexists(os.path.join(directory, name)) for name in (METADATA, TRANSCRIPT)):
        return f"this is a conversation, not a store of snapshots: {_MAKES_ONE}"
    if _holds_conversations(directory) and not _holds_snapshots(directory):
        return f"this is a library of conversations, not a store of snapshots: {_MAKES_ONE}"
    return None


def why_not_imported(directory: str) -> str | None:
    """A sentence for a folder that holds conversations of ours, which need no import, or for a transcript in it. None for others."""
    copies = "--into LIBRARY` copies it into another library"
    if os.path.basename(directory) == TRANSCRIPT:
        directory = os.path.dirname(directory)
    if all(os.path.lexists(os.path.join(directory, name)) for name in (METADATA, TRANSCRIPT)):
        return f"this is a conversation of our own, which needs no import: `transcript-store fork {shlex.quote(directory)} {copies}"
    if _holds_conversations(directory):
        quoted = shlex.quote(directory)
        return (
            "this is a library of our own, which needs no import: copy the folder as it is, or name a conversation in it: "
            f"`transcript-store fork {quoted} ID {copies}; what is to be imported into it needs --into {quoted}"
        )
    return None


_MAKES_ONE = "`transcript-store snapshot save DIR --store STORE` puts one of a conversation into another directory"


def _holds_conversations(directory: str) -> bool:
    from transcript_store import list_conversations  # only an error asks

    with suppress(OSError, TranscriptStoreError):
        return bool(list_conversations(directory))
    return False


def _holds_snapshots(directory: str) -> bool:
    with suppress(OSError):
        return any(name.endswith(".json") and is_id(name.removesuffix(".json")) for name in os.listdir(directory))
    return False


def import_cache() -> str:
    """The folder in which it is noted what an import found unchanged: in the user's cache directory."""
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    below = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), caches)
    return os.path.join(below, "transcript-store")
