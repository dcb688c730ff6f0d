"""Every hint: what to do about an error.

Errors, and findings of ``verify()``, carry one as a value. The command line prints it in words of the shell. So no code
has to replace words in a finished sentence, where they may be part of the user's path.
"""

from __future__ import annotations

import errno
from enum import Enum

__all__ = ["Hint"]


class Hint(Enum):
    """What to do about an error. The value says it in words of Python; the command line has its own words.

    A name in braces is a fact of the error.
    """

    # a conversation that is missing, not loaded, or another writer's
    CHECK_THE_PATH = "check the path"
    INITIALIZE = "check the path; initialize() starts a new conversation there"
    LIST_CONVERSATIONS = "list() shows the conversations"
    LIST_SNAPSHOTS = "list() shows the snapshots"
    LOAD = "call load(), initialize() or load_or_initialize() first"
    LOAD_HERE = "load() it in this process"
    RELOAD = "call load() again"
    SAVE_AND_RELOAD = "call load() again; save get_messages() first if you need it"
    LOAD_TO_SEE = "call load() again to see what the disk holds"
    CREATE_THE_REST = "list() shows what was created; create the rest again"
    LOAD_TO_CHECK = "load() tells"
    CHECK_WITH_EXISTS = "exists() and load() show whether it was"
    OPEN_TO_WRITE = "open it without read_only=True"
    OPEN_TO_READ = "open it with read_only=True to read every whole record"
    READ_WHAT_CAME = "read the new records, and append with the current head"
    RESTART_READING = (
        "start again: iter_records() reads the current records, iter_records(generation=…) the replaced ones"
    )
    ENABLE_IT = (
        "the next generation can have it: keep_records(range(1, record_count + 1), features=['{error.feature}']) keeps every "
        "record, replace_transcript(…, features=['{error.feature}']) other messages"
    )
    WAIT = "close that writer, or try again when it is done"
    WAIT_OR_READ = (
        "close that writer, open both with hold_lock=False, or open with read_only=True; lock_timeout_seconds waits, and without it a "
        "store that holds its lock waits 0 seconds"
    )
    TAKE_OVER = "wait with lock_timeout_seconds, close that writer, take it over with take_over=True, or open with read_only=True"
    FORK_AND_DELETE = (
        "fork() what should stay, which makes a conversation without earlier generations, and delete() this one"
    )
    SEAL_A_COPY = (
        "seal(keep_plain=True) seals it from here on; to keep no plaintext, fork() it from a library without a key into one with it, and "
        "delete() this one"
    )
    COLLECT_A_COPY = "copy the objects below snapshots/ into a directory; there a FileStore collects"
    FORK_WHAT_IS_LEFT = "an id is not used again: fork() a copy that is left elsewhere, or delete() that one too"
    SAVE_AND_FORK = "copy it into a folder with fork(id, into=…), and do it there"
    FIX_REDACT = (
        "fix the redact function: it gets messages, extras and metadata, each a JSON object, and must return one"
    )
    CHOOSE_A_FOLDER = "pass the folder of a conversation, or choose a new one"
    OPEN_ONE_OF_THEM = "open one of the conversations in it"

    # damage
    RESTORE = "restore it from a backup"
    RESTORE_OR_REPAIR = "restore it from a backup, or repair() it; verify() lists what is intact"
    REPAIR_AGAIN = "call repair() again to continue"
    REBUILD = "repair() rebuilds it from the transcript's first line, or accepts the edits (mode='accept-edits')"
    LOAD_CUTS_IT = (
        "the next load() that may write cuts it off and keeps its bytes in quarantine/ (or a writer is active now)"
    )
    ACCEPT_OR_REMOVE_LINES = (
        "repair(mode='accept-edits') accepts lines that have the form of a message; or remove the lines"
    )
    MOVE_AWAY = "move it away, and restore the right file"
    MOVE_OTHERS_AWAY = "move that away first"
    PUT_BACK = "files of different conversations or moments were mixed: restore the one that belongs here"
    RENAME_THE_FOLDER = "rename the folder to the conversation's own id, or fork() it"
    UPGRADE = "upgrade transcript-store"

    # snapshots and their keys
    GIVE_THE_KEY = "pass the key that it was sealed with, as encryption_key or among retired_keys"
    GIVE_THE_KEY_OR_DELETE = "give the key that it was sealed with, or delete() it first"
    GIVE_THE_KEY_OR_SAVE_ELSEWHERE = (
        "give the key (encryption_key), or save to a directory of its own; if it is damaged, move it away"
    )
    SEAL_IT = "rotate_key() of a store that was opened without a key seals its files"
    KEEP_BOTH_KEYS = "keep both keys; call rotate_key() again to continue"
    MAKE_A_KEY = "generate_encryption_key() makes one, write_key_file() one in a file"
    MAKE_BYTES = "bytes.fromhex() makes bytes of hex digits"

    # sealed conversations
    PROTECT_THE_KEY = "chmod 600 it, and consider whether it was read"
    CHECK_THE_PROVIDER = "testing.check_key_provider() finds what is wrong with the provider"
    LOOK_AT_THE_PROVIDER = "the provider's own error is the cause of this one (__cause__)"
    RESTORE_THE_KEY_FILE = (
        "restore key.json from where key files are backed up; without it the conversation cannot be read"
    )
    SEAL_THE_CONVERSATION = "seal() it, if it is the right conversation; or open it without encryption_key"
    ACCEPT_THE_REPAIR = (
        "it was repaired without its key: check its records; load(accept_unkeyed_repair=True) accepts it"
    )
    FORK_IT = "a fork() of it has a data key of its own"

    # the operating system
    FREE_SPACE = "free some space and try again"
    FREE_QUOTA = "free some of the quota and try again"
    ALLOW_LARGER_FILES = "allow larger files (ulimit -f, or another file system)"
    ALLOW_MORE_FILES = "close some files, or allow more (ulimit -n)"
    FREE_MEMORY = "free some memory, or allow more (ulimit -v)"
    MOUNT_TO_WRITE = "mount the file system to write, or choose another"
    CHECK_PERMISSIONS = "check the owner, the permissions and the file's attributes (lsattr)"
    CHECK_PERMISSIONS_OR_READ = "check the owner and the permissions, or open it with read_only=True"
    CHECK_THE_DISK = "the disk may be failing: make a backup, and check it"
    CLEAR_THE_WAY = "move away the file or the symbolic link at that path, or choose another path"
    USE_LOCKS = "choose a file system with locks (is this a network file system?)"
    SHORTEN_THE_NAME = "choose a shorter name"

    # backends
    OPEN_BACKEND = (
        "backends.open_backend(address) opens the backend, and ConversationLibrary(backend) is the library on it"
    )
    WRITE_BOTH_SLASHES = "give it as a str, with both (pathlib takes one away); a folder that is called so is ./x:/…"
    CHOOSE_A_FIT_SERVER = "choose a server that keeps If-None-Match, such as S3, GCS, Azure or SeaweedFS"

    SHIP_ELSEWHERE = "compare both; ship it to another backend if both should stay"

    # chat
    ALLOW_INSECURE = "use https, or allow_insecure_base_url=True for a server on this machine"
    INSTALL_EXTRA = "{error.install}"
    INSTALL_PROGRAM = "install the program {error.program!r} on the PATH"
    SET_THE_TOKEN = "set that variable, or pass a token to ChatConfig"  # noqa: S105 (it is a sentence)


_WAYS_OUT_OF_NUMBERS = {
    errno.ENOSPC: Hint.FREE_SPACE,
    errno.EDQUOT: Hint.FREE_QUOTA,
    errno.EFBIG: Hint.ALLOW_LARGER_FILES,
    errno.EROFS: Hint.MOUNT_TO_WRITE,
    errno.EACCES: Hint.CHECK_PERMISSIONS,
    errno.EPERM: Hint.CHECK_PERMISSIONS,
    errno.EMFILE: Hint.ALLOW_MORE_FILES,
    errno.ENFILE: Hint.ALLOW_MORE_FILES,
    errno.ENOMEM: Hint.FREE_MEMORY,
    errno.ENOLCK: Hint.USE_LOCKS,
    errno.EIO: Hint.CHECK_THE_DISK,
    errno.ELOOP: Hint.CLEAR_THE_WAY,
    errno.ENOTDIR: Hint.CLEAR_THE_WAY,
    errno.ENAMETOOLONG: Hint.SHORTEN_THE_NAME,
}


def hint_of_errno(number: int) -> Hint | None:
    """The hint for an error of the operating system, by its errno."""
    return _WAYS_OUT_OF_NUMBERS.get(number)


_WAYS_OUT_OF_DAMAGE = {
    "foreign": Hint.MOVE_AWAY,
    "replaced": Hint.RELOAD,
    "version": Hint.UPGRADE,
    "wrong-conversation": Hint.PUT_BACK,
    "wrong-generation": Hint.PUT_BACK,
}


def hint_of_damage(kind: str, path: str, line_number: int | None = None) -> Hint:
    """The hint for damage of a kind that docs/format.md lists, in this file of a conversation."""
    name = path.rpartition("/")[2]
    if (
        kind == "torn-tail" and name == "transcript.jsonl"
    ):  # no writer appends to an archived generation: that is damage
        return Hint.LOAD_CUTS_IT
    if kind == "foreign" and line_number is not None and line_number > 1:  # lines of others in a file of ours
        return Hint.ACCEPT_OR_REMOVE_LINES
    if kind in ("missing", "damaged") and name == "metadata.json":
        return Hint.REBUILD
    return _WAYS_OUT_OF_DAMAGE.get(kind, Hint.RESTORE_OR_REPAIR)
