"""The keys of a command: from files or the environment, never from an argument, which every process can read.

``--key-file`` overrides the variable. The variable holds a path, or the key itself in 64 hex digits; a path is better, because the
programs that a command starts inherit its environment. A path starts with ``/``, ``./``, ``../`` or ``~/``, so that a mistyped key
is never taken for the name of a file and repeated in an error.
"""

from __future__ import annotations

import os
import re
import stat
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from transcript_store import InvalidKeyError
from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.names import conversation_at, is_backend_address, library_at, summary_at
from transcript_store.cli._shared.terminal import complain, many
from transcript_store.errors import TranscriptStoreError
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store import ConversationSummary


VARIABLE = "TRANSCRIPT_STORE_KEY"
_LONGEST_FILE = 4096
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_PATHS = ("/", "./", "../", "~/")
_ABOUT = f"without --key-file, {VARIABLE} is used: the path of a key file (/…, ./…, ~/…), or 64 hex digits"


def add_keys(parser: ArgumentParser, *, of: str = "keys of sealed conversations", what: str = "the key") -> None:
    """Add ``--key-file`` and ``--no-key``. The command finds its keys by :func:`command_keys`."""
    keys = parser.add_argument_group(of, _ABOUT)
    either = keys.add_mutually_exclusive_group()
    either.add_argument(
        "--key-file",
        metavar="FILE",
        type=path,
        action="append",
        default=[],
        help=f"{what}: 32 bytes, or 64 hex digits (repeat it for earlier keys; the first is the current one)",
    )
    either.add_argument("--no-key", action="store_true", help=f"use no key, even if {VARIABLE} is set")


def add_retired_keys(parser: ArgumentParser) -> None:
    """Add ``--retired-key-file``, for commands whose only ``--key-file`` was the current key."""
    parser.add_argument(
        "--retired-key-file",
        metavar="FILE",
        type=path,
        action="append",
        default=[],
        help="an earlier key, like a second --key-file",
    )


class CommandKeys:
    """The keys that the user gave, if any; ``repr`` and pickling do not show them."""

    __slots__ = ("files", "key", "retired")

    def __init__(self, key: bytes | None, retired: Sequence[bytes] = (), files: Sequence[str] = ()) -> None:
        self.key = key
        """The current key; None if none was given."""
        self.retired = list(retired)
        self.files = tuple(files)
        """Their sources, the current key's first: a path, or the variable's name if it holds the key itself."""

    def __bool__(self) -> bool:
        return self.key is not None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments to open a store or a library."""
        return {} if self.key is None else {"encryption_key": self.key, "retired_keys": self.retired}

    def environment(self) -> dict[str, str]:
        """The value of the variable for a program that is to read the same: a path, else the key itself."""
        if self.key is None:
            return {}
        file = self.files[0]
        if file == VARIABLE:
            return {VARIABLE: os.environ[VARIABLE]}
        return {VARIABLE: os.path.abspath(os.path.expanduser(file))}

    def __repr__(self) -> str:
        return f"<{len(self.files)} keys>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys cannot be pickled")


def command_keys(arguments: Namespace) -> CommandKeys:
    """The keys that the user gave: those of ``--key-file``, else that of the variable.

    Raises:
        InvalidKeyError: a file is missing, not a file, or readable by others, or it or the variable has no key; the sentence says
            which, and never repeats the value.
        OSError: the file cannot be read.
    """
    if isinstance(known := getattr(arguments, "keys", None), CommandKeys):
        return known  # a pipe can be read once
    retired = [key_in(file) for file in getattr(arguments, "retired_key_file", [])]
    names = list(getattr(arguments, "retired_key_file", []))
    if arguments.no_key:
        found = CommandKeys(None)
    elif arguments.key_file:
        key, *others = (key_in(file) for file in arguments.key_file)
        found = CommandKeys(key, [*others, *retired], [*arguments.key_file, *names])
    else:
        text = os.environ.get(VARIABLE, "").strip()  # an empty variable (`NAME=` in a unit file) means no key
        found = CommandKeys(*_of_variable(text, retired, names)) if text else CommandKeys(None)
    if retired and not found:
        raise InvalidKeyError(
            reason=f"--retired-key-file needs the current key too, in --key-file or {VARIABLE}",
            length_bytes=None,
            hint=None,
        )
    arguments.keys = found
    return found


def given(arguments: Namespace) -> str:
    """The sources of a command's keys, in words; "" without any."""
    names = [*getattr(arguments, "key_file", []), *getattr(arguments, "retired_key_file", [])]
    if not names and not getattr(arguments, "no_key", True) and os.environ.get(VARIABLE, "").strip():
        names = [VARIABLE]
    return f"given: {', '.join(names)}" if names else ""


def key_in(file: str) -> bytes:
    """The key in a file that only its owner may read, or in a pipe, such as ``<(pass show key)``.

    Raises:
        InvalidKeyError: the file is missing, a folder, readable by others, or holds no key.
        OSError: the file cannot be read.
    """
    try:
        opened = open(os.path.expanduser(file), "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise _refused(file, "there is no such key file") from None
    except IsADirectoryError:
        raise _refused(file, "this is a folder; name the key file in it", None) from None
    with opened:
        status = os.fstat(opened.fileno())
        # Only a regular file is checked: the permissions of a pipe mean nothing.
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
            raise _refused(
                file,
                f"other users may read this key (mode {status.st_mode & 0o777:03o})",
                Hint.PROTECT_THE_KEY,
            )
        data = opened.read(_LONGEST_FILE)
    if len(data) == 32:
        return data
    text = data.decode("ascii", "replace").strip()
    if not _HEX.fullmatch(text):
        length = len(data)
        reason = f"a key is 32 bytes or 64 hex digits; this is neither, at {many(length, 'byte')}"
        raise _refused(file, reason, length_bytes=length)
    return bytes.fromhex(text)


def _of_variable(text: str, retired: Sequence[bytes], names: Sequence[str]) -> tuple[bytes, list[bytes], list[str]]:
    if _HEX.fullmatch(text):
        return bytes.fromhex(text), [*retired], [VARIABLE, *names]
    if text.startswith(_PATHS) and not _BASE64.fullmatch(text):
        try:
            return key_in(text), [*retired], [text, *names]
        except InvalidKeyError as error:
            raise _refused(VARIABLE, error.reason, error.hint, length_bytes=error.length_bytes) from None
    # The value may be a mistyped key: it is not repeated.
    reason = f"a key is 64 hex digits, and a path starts with /, ./, ../ or ~/; this is neither, at {many(len(text), 'character')}"
    raise _refused(VARIABLE, reason, length_bytes=len(text))


def _refused(
    where: str, reason: str, hint: Hint | None = Hint.MAKE_A_KEY, *, length_bytes: int | None = None
) -> InvalidKeyError:
    return InvalidKeyError(reason=f"{where}: {reason}", length_bytes=length_bytes, hint=hint)


# ---- sealed ----
#
# What the commands report about sealed conversations, and which of them the keys open.


def keys_if_sealed(name: str, keys: CommandKeys) -> dict[str, Any]:
    """The keys for a store, in a command whose keys are first those of something else."""
    summary = summary_at(name) if keys else None
    return keys.options if summary is not None and summary.sealed else {}


def has_sealed(library: str) -> bool:
    """True if a conversation of a library is sealed."""
    from transcript_store import list_conversations  # not needed to list plaintext conversations

    return any(summary.sealed for summary in list_conversations(library))


def counted_sealed(directory: str) -> str:
    """How many conversations in a directory are sealed, as a sentence; "" if none is."""
    from transcript_store import list_conversations

    with suppress(TranscriptStoreError):
        found = list_conversations(directory)
        if count := sum(summary.sealed for summary in found):
            return f"sealed: {count:,} of {many(len(found), 'conversation')}"
    return ""


def with_titles(found: list[ConversationSummary], keys: CommandKeys, library: str) -> list[ConversationSummary]:
    """Summaries with the titles and labels that the keys open; the number of unopened ones goes to standard error.

    ``library`` is the directory or the address that has them.
    """
    if not keys:
        return found
    opened = [_with_title(summary, keys, library) if summary.sealed else summary for summary in found]
    _complain_of(sum(summary is None for summary in opened))
    return [summary or before for summary, before in zip(opened, found, strict=True)]


def say_what_does_not_open(library: str, keys: CommandKeys) -> None:
    """Report on standard error how many sealed conversations of a library will not be read."""
    sealed = [summary for summary in _listed(library) if summary.sealed]
    if not keys:
        if sealed:
            complain(f"{many(len(sealed), 'sealed conversation')} not read: give the key, in --key-file or {VARIABLE}")
        return
    _complain_of(sum(_with_title(summary, keys, library) is None for summary in sealed))


def _listed(library: str) -> Iterable[ConversationSummary]:
    from transcript_store import list_conversations

    return library_at(library).iter_list() if is_backend_address(library) else list_conversations(library)


def _complain_of(count: int) -> None:
    if count:
        complain(f"{many(count, 'sealed conversation')} not opened by the key that was given: `verify` says why")


def _with_title(summary: ConversationSummary, keys: CommandKeys, library: str) -> ConversationSummary | None:
    """The summary with its sealed facts; None if the keys do not open it."""
    from transcript_store.library import with_labels  # not needed to list plaintext conversations

    if is_backend_address(library):
        conversation = library_at(library).store(summary.id or "", read_only=True, **keys.options)
    else:
        conversation = conversation_at(summary.directory, read_only=True, **keys.options)
    return with_labels(summary, conversation)
