"""A folder of the wrong kind for a command: its kind, and the command to use."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress

from transcript_store.errors import TranscriptStoreError
from transcript_store.file_names import METADATA, TRANSCRIPT, is_id


def instead_of_a_conversation(directory: str) -> str:
    """A sentence for a path that is not a conversation: it is a file, a library, a snapshot store, or unknown."""
    quoted = shlex.quote(directory)
    if not os.path.isdir(directory):
        return "give the folder of a conversation, not a file in it"
    if os.path.lexists(os.path.join(directory, METADATA)):
        return f"this is a file of a conversation; name the conversation: {quoted}"
    if _holds_conversations(directory):
        return f"this is a library, a directory of conversations: `transcript-store list {quoted}` lists them; name one"
    if _holds_snapshots(directory):
        return f"this is a snapshot store: `transcript-store snapshot verify --store {quoted}` checks it"
    return "give the folder of a conversation, or choose a new one; these files are not ours and stay unchanged"


def instead_of_a_store(directory: str) -> str | None:
    """A sentence for a folder that cannot be a snapshot store because it holds conversations; else None."""
    if any(os.path.lexists(os.path.join(directory, name)) for name in (METADATA, TRANSCRIPT)):
        return f"this is a conversation, not a snapshot store: {_MAKES_ONE}"
    if _holds_conversations(directory) and not _holds_snapshots(directory):
        return f"this is a library of conversations, not a snapshot store: {_MAKES_ONE}"
    return None


def why_not_imported(directory: str) -> str | None:
    """A sentence for a folder with conversations of our own, or a transcript in one: they need no import. Else None."""
    copies = "--into LIBRARY` copies it into another library"
    if os.path.basename(directory) == TRANSCRIPT:
        directory = os.path.dirname(directory)
    if all(os.path.lexists(os.path.join(directory, name)) for name in (METADATA, TRANSCRIPT)):
        return f"this is a conversation of our own, which needs no import: `transcript-store fork {shlex.quote(directory)} {copies}"
    if _holds_conversations(directory):
        quoted = shlex.quote(directory)
        return (
            "this is a library of our own, which needs no import: copy the folder, or copy a conversation of it: "
            f"`transcript-store fork {quoted} ID {copies}; to import into it, use --into {quoted}"
        )
    return None


_MAKES_ONE = "`transcript-store snapshot save DIR --store STORE` saves a snapshot into another directory"


def _holds_conversations(directory: str) -> bool:
    from transcript_store import list_conversations  # only an error needs it

    with suppress(OSError, TranscriptStoreError):
        return bool(list_conversations(directory))
    return False


def _holds_snapshots(directory: str) -> bool:
    with suppress(OSError):
        return any(name.endswith(".json") and is_id(name.removesuffix(".json")) for name in os.listdir(directory))
    return False


def import_cache() -> str:
    """The folder of the import stamps, in the user's cache directory."""
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    below = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), caches)
    return os.path.join(below, "transcript-store")
