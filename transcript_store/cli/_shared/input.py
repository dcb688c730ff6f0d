"""Standard input as lines of bytes, whatever it is: a terminal, a pipe, a file, closed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO


def standard_input() -> BinaryIO:
    """What to read from; empty if standard input is closed."""
    if sys.stdin is None:
        return io.BytesIO()
    with suppress(OSError):
        # An input that does not wait (Node hands such on) would look as if it had ended whenever it is empty.
        os.set_blocking(sys.stdin.fileno(), True)
    return sys.stdin.buffer


def lines(source: BinaryIO, *, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; of a line that is too long, only as much as shows that it is."""
    number = 0
    while line := source.readline(max_bytes + 1):
        number += 1
        if len(line) > max_bytes or line.strip(b" \t\r\n"):
            yield number, line
