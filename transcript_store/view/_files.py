"""How is a page's file written? With mode 0600, and complete before it has its name. Only an existing page is replaced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from transcript_store.errors import TranscriptStoreError
from transcript_store.new_files import make_folders, temporary

MARK = b"<!doctype html><!-- transcript-store view -->\n"
"""How a page begins: what begins so may be replaced by a newer page."""


class PageError(TranscriptStoreError):
    """A page cannot be written at ``path``; ``reason`` says why. The existing file was not changed."""

    path: str
    reason: str


def replace_page(path: str, pieces: Iterable[bytes]) -> str:
    """Write the pieces into a new file and give it the name; returns the path. Missing folders are made.

    Leftovers of a killed writer of this page are removed.

    Raises:
        PageError: the existing file is not a page, or the system refuses.
    """
    folder, name = os.path.split(path)
    try:
        make_folders(folder)
        _refuse_what_is_no_page(path)
        with temporary(folder, f".{name[:200]}.") as (file, written):
            file.writelines(pieces)
            file.flush()
            os.replace(written, path)
    except OSError as error:
        raise PageError(path=path, reason=f"the page cannot be written: {error.strerror}") from error
    return path


def _refuse_what_is_no_page(path: str) -> None:
    with suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if file.read(len(MARK)) != MARK:
                raise PageError(
                    path=path, reason="a file that is not a page of this program is there; choose another path"
                )
