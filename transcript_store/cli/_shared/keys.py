"""Keys for the commands: from a file or from the environment. Never from an argument: every process can read arguments."""

from __future__ import annotations

import os
import re
import stat
from argparse import ArgumentParser, Namespace

from transcript_store import InvalidKeyError
from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.terminal import complain, many

VARIABLE = "TRANSCRIPT_STORE_KEY"
_LONGEST_FILE = 4096
_HEX = re.compile(r"[0-9A-Fa-f]{64}")


def add_keys(parser: ArgumentParser) -> None:
    """Add ``--key-file`` and ``--retired-key-file``."""
    keys = parser.add_argument_group("keys of a sealed store", f"without --key-file, {VARIABLE} (64 hex digits) counts")
    keys.add_argument("--key-file", metavar="FILE", type=path, help="the key: 32 bytes, or 64 hex digits")
    keys.add_argument(
        "--retired-key-file",
        metavar="FILE",
        type=path,
        action="append",
        default=[],
        help="an earlier key, for what is not sealed with the key of today yet (more than once: several)",
    )


def key_of(arguments: Namespace) -> bytes | None:
    """The key that the user gave, or None.

    Raises:
        InvalidKeyError: the file does not exist, or there is no key in it or in the variable; its sentence says which.
        OSError: the file cannot be read.
    """
    if arguments.key_file is not None:
        return key_in(arguments.key_file)
    text = os.environ.get(VARIABLE)
    return _of_hex(text, VARIABLE) if text else None  # an empty variable (`NAME=` in a unit file) means no key


def retired_keys_of(arguments: Namespace) -> list[bytes]:
    """The earlier keys that the user gave. Raises as ``key_in()`` does."""
    return [key_in(file) for file in arguments.retired_key_file]


def key_in(file: str) -> bytes:
    """The key in a file. Warns if other users may read the file.

    Raises:
        InvalidKeyError: the file does not exist, or holds no key.
        OSError: the file cannot be read.
    """
    try:
        opened = open(os.path.expanduser(file), "rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise InvalidKeyError(reason=f"{file}: there is no key in this file", length_bytes=None) from error
    with opened:
        status = os.fstat(opened.fileno())
        data = opened.read(_LONGEST_FILE)
    # Only a regular file is judged: a pipe such as <(pass show key) has permissions of its own that say nothing.
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        complain(f"{file}: others than its owner may read this key: chmod 600")
    if len(data) == 32:
        return data
    return _of_hex(data.decode("ascii", "replace"), file, length_bytes=len(data))


def _of_hex(text: str, where: str, length_bytes: int | None = None) -> bytes:
    text = text.strip()
    if not _HEX.fullmatch(text):
        length = len(text) if length_bytes is None else length_bytes
        reason = f"{where}: a key is 32 bytes or 64 hex digits; this is neither, at {many(length, 'byte')}"
        raise InvalidKeyError(reason=reason, length_bytes=length)
    return bytes.fromhex(text)
