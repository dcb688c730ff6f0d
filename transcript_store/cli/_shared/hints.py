"""Errors in words of the shell, and the command that suits a folder of another kind.

An error has its hint as a value. The library words it with calls, the commands with commands and options. The rest of an
error's sentence is not translated.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transcript_store.cli._shared.keys import VARIABLE
from transcript_store.errors import TranscriptStoreError
from transcript_store.file_names import KEY, LOCK, METADATA, TRANSCRIPT, generation_of, is_id
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store import Finding


def instead_of_a_conversation(directory: str) -> str:
    """A sentence for a path that is not a conversation: it is a file, a library, a snapshot store, or unknown."""
    quoted = shlex.quote(directory)
    if _is_a_backup(directory):
        return f"this is a backup; `transcript-store restore {quoted} LIBRARY` checks each line, and restores it into a library"
    if not os.path.isdir(directory):
        return "give the folder of a conversation, not a file in it"
    if os.path.lexists(os.path.join(directory, METADATA)):
        return f"this is a file of a conversation; name the conversation: {quoted}"
    if _holds_conversations(directory):
        return f"this is a library, a directory of conversations: `transcript-store list {quoted}` lists them; name one"
    if _holds_snapshots(directory):
        return f"this is a snapshot store: `transcript-store snapshot verify --store {quoted}` checks it"
    return "give the folder of a conversation, or choose a new one; these files are not ours and stay unchanged"


def _is_a_backup(path: str) -> bool:
    begins = b'{"format":"transcript-store-backup",'
    with suppress(OSError):
        if os.path.isfile(path):  # a FIFO would wait for a writer
            with open(path, "rb") as file:
                return file.read(len(begins)) == begins
    return False


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


_CHECK_THE_PATH = "check the path: `transcript-store list DIR` lists the conversations in a directory"

_IN_THE_SHELL = {
    Hint.CHECK_THE_PATH: _CHECK_THE_PATH,
    Hint.INITIALIZE: _CHECK_THE_PATH,  # in a shell the path was probably mistyped: a new conversation there would be wrong
    Hint.LIST_CONVERSATIONS: _CHECK_THE_PATH,
    Hint.LIST_SNAPSHOTS: "`transcript-store snapshot list` lists the stored ones",
    Hint.OPEN_ONE_OF_THEM: "`transcript-store list {directory}` lists them; name one",
    Hint.LOAD: "start the program again",
    Hint.LOAD_HERE: "start the program again",
    Hint.RELOAD: "start the program again",
    Hint.SAVE_AND_RELOAD: "start the program again",
    Hint.LOAD_TO_SEE: "`transcript-store show {directory}` shows what is stored",
    Hint.CREATE_THE_REST: "`transcript-store list` shows what exists; run it again for the rest",
    Hint.LOAD_TO_CHECK: "check with `transcript-store snapshot show`",
    Hint.CHECK_WITH_EXISTS: "check with `transcript-store verify {directory}`",
    Hint.OPEN_TO_WRITE: "choose a command that may write",
    Hint.OPEN_TO_READ: "`transcript-store show {directory}` still prints every whole record",
    Hint.READ_WHAT_CAME: "`transcript-store show {directory}` shows the new records; then try again",
    Hint.RESTART_READING: "run the command again",
    Hint.ENABLE_IT: "the program that writes the conversation can start its next generation with that feature",
    Hint.WAIT: "try again when it is done",
    Hint.WAIT_OR_READ: "try again when it is done",
    Hint.TAKE_OVER: "try again when it is done, or has been silent for a minute",
    Hint.OPEN_BACKEND: "see its --help for arguments that may be an address",
    Hint.WRITE_BOTH_SLASHES: "write both, as in s3://…; write a folder of this name as ./x:/…",
    Hint.FORK_AND_DELETE: "fork the records to keep, and delete this one",
    Hint.SEAL_A_COPY: "--keep-plain seals it from here on; to have no plaintext, fork it into a folder, seal that, fork it back, and "
    "delete this one",
    Hint.COLLECT_A_COPY: "copy the objects below snapshots/ into a directory, and `transcript-store snapshot collect-media` there",
    Hint.FORK_WHAT_IS_LEFT: "an id is not used again: `transcript-store fork` gives a copy that is left elsewhere another one; or "
    "`transcript-store delete` that copy too",
    Hint.SAVE_AND_FORK: "fork it into a folder (fork --into), and do it there",
    Hint.RESTORE_OR_REPAIR: "restore it from a backup, or see what `transcript-store repair {directory}` can keep",
    Hint.ACCEPT_OR_REMOVE_LINES: "`transcript-store repair {directory} --mode accept-edits` accepts lines in the form of a message; or "
    "remove the lines",
    Hint.RENAME_THE_FOLDER: "rename the folder to the conversation's own id, or `transcript-store fork {directory}` copies it under "
    "a new one",
    Hint.REPAIR_AGAIN: "run `transcript-store repair` again to continue",
    Hint.REBUILD: "`transcript-store repair {directory}` rebuilds it from the first line of transcript.jsonl, or, with --mode "
    "accept-edits, accepts the edited file",
    Hint.LOAD_CUTS_IT: "the next writer that opens the conversation cuts it, and keeps its bytes in "
    "quarantine/ (or a writer is appending now)",
    Hint.GIVE_THE_KEY: f"give the key that it was sealed with: --key-file FILE (repeat it for earlier keys), or {VARIABLE}",
    Hint.GIVE_THE_KEY_OR_DELETE: "give the key that it was sealed with, in a --key-file, or "
    "`transcript-store snapshot delete` it first",
    Hint.GIVE_THE_KEY_OR_SAVE_ELSEWHERE: "give the key in --key-file, or save to another directory; if it is damaged, "
    "move it away",
    Hint.SEAL_IT: "`transcript-store snapshot rotate-key` without --key-file seals it",
    Hint.KEEP_BOTH_KEYS: "keep both key files, and run `transcript-store snapshot rotate-key` again to continue",
    Hint.MAKE_A_KEY: "`transcript-store new-key FILE` makes one",
    Hint.MAKE_BYTES: "`transcript-store new-key FILE` makes one",
    Hint.CHECK_THE_PROVIDER: "check the program that keeps the keys",
    Hint.LOOK_AT_THE_PROVIDER: "check the program that keeps the keys",
    Hint.SEAL_THE_CONVERSATION: "if you expected this, `transcript-store seal {directory}` seals it; or read it unsealed, "
    "with --no-key",
    Hint.PROTECT_THE_KEY: "chmod 600 it, and check who may have read it",
    Hint.RESTORE_THE_KEY_FILE: "restore key.json from your backup of the key files; without it the conversation cannot be read",
    Hint.ACCEPT_THE_REPAIR: "it was repaired without its key: `transcript-store verify {directory} --no-key` shows its state, "
    "and `transcript-store repair {directory} --accept-unkeyed-repair` accepts it",
    Hint.FORK_IT: "`transcript-store fork` makes a copy with a new data key",
    Hint.CHECK_PERMISSIONS_OR_READ: "check the owner and the permissions; `transcript-store show {directory}` only needs to read",
    Hint.ALLOW_INSECURE: "use https, or --allow-insecure-base-url for a server on this machine",
    Hint.SET_THE_TOKEN: "set that variable",
}
"""The hints in words of the shell. Those that are missing here name no call: the library's words are used."""

_WITHOUT_A_KEY = (
    "or without a key: {install}--provider local continues a conversation in OpenAI's form, `transcript-store chat --new --provider "
    "local` starts a new one"
)
_INSTEAD_OF_LOCAL = (
    "or set a provider's key, such as ANTHROPIC_API_KEY or OPENAI_API_KEY; or start a model server, such as Ollama"
)

# A command with an option for a hint, or another name for it, has its own words.
_IN_A_COMMAND = {
    "show": {
        Hint.RESTORE_OR_REPAIR: "`transcript-store show {directory} --salvage` reads the rest of it, and "
        "`transcript-store repair {directory}` shows what it can keep"
    },
    "list": {
        Hint.CHECK_THE_PATH: "check the path",
        Hint.CLEAR_THE_WAY: "name the directory of a library",  # a list needs no free name: the file stays where it is
    },
    "import": {Hint.CHECK_THE_PATH: "check the path; quote it if it has a blank"},
    "index": {Hint.CHECK_THE_PATH: "check the path"},
    "doctor": {Hint.CHECK_THE_PATH: "check the path"},
    "search": {Hint.CHECK_THE_PATH: "check the path; quote a query of several words"},
    "record": {
        Hint.WAIT_OR_READ: "--wait SECONDS waits for its end",
        Hint.TAKE_OVER: "--wait SECONDS waits for its end, and --take-over claims it now",
    },
    "chat": {
        Hint.WAIT_OR_READ: "--new starts another conversation, in the library",
        Hint.INSTALL_EXTRA: f"{{error.install}}; {_WITHOUT_A_KEY}",
        Hint.SET_THE_TOKEN: f"set that variable; {_WITHOUT_A_KEY}",
    },
}


def error_sentence(error: TranscriptStoreError, command: str = "") -> str:
    """An error's sentence with its hint in words of the shell. ``command`` is the failed command."""
    if error.hint is None:
        return error.problem
    path = getattr(error, "path", None) or ""
    return f"{error.problem}; {in_the_shell(error.hint, path, command=command, error=error)}"


def in_the_shell(hint: Hint, path: str, *, command: str = "", error: TranscriptStoreError | None = None) -> str:
    """A hint in words of the shell. ``path`` is the path of a conversation, or of a file in it."""
    directory = _conversation_of(path)
    if hint is Hint.CHOOSE_A_FOLDER:
        return instead_of_a_conversation(directory)
    words = _IN_A_COMMAND.get(command, {}).get(hint) or _IN_THE_SHELL.get(hint, hint.value)
    install = ""
    if getattr(error, "provider", None) == "local":
        words = words.replace(_WITHOUT_A_KEY, _INSTEAD_OF_LOCAL)
    elif _WITHOUT_A_KEY in words:
        install = _install_if_missing("local", "xllamacpp")
    if hint is Hint.GIVE_THE_KEY and (number := generation_of(os.path.basename(path))) is not None:
        words += (
            "; if the conversation was unsealed since, `transcript-store seal {directory}` makes it readable again, and "
            f"`transcript-store generations {{directory}} --delete {number}` deletes this generation"
        )
    return words.format(directory=shlex.quote(directory), error=error, install=install)


def _install_if_missing(extra: str, module: str) -> str:
    import importlib.util  # here: each command loads this module

    from transcript_store.installation import install_command

    return "" if importlib.util.find_spec(module) else f"{install_command(extra)}; then "


def as_members(finding: Finding, directory: str) -> dict[str, Any]:
    """A finding as members for JSON, with its hint in words of the shell. ``directory`` is the conversation's."""
    return {**asdict(finding), "hint": in_the_shell(finding.hint, directory)}


def _conversation_of(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if name in (TRANSCRIPT, METADATA, LOCK, KEY):
        return folder
    return folder.rpartition("/")[0] if generation_of(name) is not None else path
