"""Standard input as lines of bytes. It may be a terminal, a pipe or a file, and it may be closed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO


def standard_input() -> BinaryIO:
    """The stream to read from. It is empty if standard input is closed."""
    if sys.stdin is None:
        return io.BytesIO()
    with suppress(OSError):
        # Node gives its children a non-blocking pipe. A read of one returns nothing while it is empty, and that looks like
        # the end of the input.
        os.set_blocking(sys.stdin.fileno(), True)
    return sys.stdin.buffer


def lines(source: BinaryIO, *, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number, from 1.

    A line longer than ``max_bytes`` is cut after ``max_bytes + 1`` bytes: the caller sees that it is too long, and should
    read no further, because the rest of the line would come next.
    """
    number = 0
    while line := source.readline(max_bytes + 1):
        number += 1
        if len(line) > max_bytes or line.strip(b" \t\r\n"):
            yield number, line
