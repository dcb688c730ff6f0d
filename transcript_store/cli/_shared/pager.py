"""What is longer than the screen goes through a pager. It was made safe before: the pager is given no escape of a transcript, only our
looks, for which ``less`` needs ``-R``.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from transcript_store.cli._shared.terminal import is_at_a_terminal

if TYPE_CHECKING:
    import subprocess

_DEFAULT = "less -R"
_LOOKS = re.compile(r"\x1b\[[0-9;]*m")
_NONE = ("", "cat")


@contextmanager
def paged(*, is_wanted: bool) -> Iterator[None]:
    """Show what is printed in the block page by page, if it is longer than the terminal that standard output is.

    ``PAGER`` names the program, by default ``less``. Without one, with ``TRANSCRIPT_STORE_NO_PAGER``, or if standard input or output
    is no terminal, everything is printed as it is. Whoever leaves the pager ends the block.
    """
    output = sys.stdout
    try:
        command = shlex.split(os.environ.get("PAGER", _DEFAULT))
    except ValueError:  # a quotation mark without its other one
        command = []
    if not is_wanted or not _is_possible(output, command):
        yield
        return
    pages = _Pages(output, command)
    sys.stdout = pages
    try:
        yield
    except BrokenPipeError:
        if not pages.has_pager:
            raise
    finally:
        sys.stdout = output
        pages.end()


def _is_possible(output: TextIO | None, command: list[str]) -> bool:
    if output is None or not is_at_a_terminal() or os.environ.get("TERM") == "dumb":
        return False  # without a keyboard nobody could leave the pager
    if os.environ.get("TRANSCRIPT_STORE_NO_PAGER") or " ".join(command) in _NONE:
        return False
    return shutil.which(command[0]) is not None


class _Pages(io.TextIOBase):
    """Keeps what is written until it is more than the screen holds; from then on a pager has it."""

    def __init__(self, output: TextIO, command: list[str]) -> None:
        self._output = output
        self._command = command
        self._kept: list[str] = []
        self._columns, lines = shutil.get_terminal_size()
        self._rows_left = lines - 1  # the last is the prompt's
        self._pager: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a text stream has one
        return self._output.encoding

    @property
    def has_pager(self) -> bool:
        return self._pager is not None

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self._pager is not None:
            self._to_pager(text)
        else:
            self._kept.append(text)
            lines = _LOOKS.sub("", text).split("\n")
            self._rows_left -= len(lines) - 1 + sum(max(0, len(line) - 1) // self._columns for line in lines)
            if self._rows_left < 0:
                self._start()
        return len(text)

    def end(self) -> None:
        """Print what no pager was needed for, or wait until the pager is left."""
        if self._pager is None:
            self._output.write("".join(self._kept))
            return
        assert self._pager.stdin is not None
        with suppress(BrokenPipeError):
            self._pager.stdin.close()
        while True:
            try:
                self._pager.wait()
                return
            except KeyboardInterrupt:  # Ctrl-C is the pager's: it ends a search, and not the pager
                continue

    def _start(self) -> None:
        # LESSSECURE: no shell, no editor, no other file and no preprocessor out of the pager.
        environment = {"LESS": "-R", **os.environ, "LESSSECURE": "1"}
        encoding = self._output.encoding
        import subprocess  # most output goes through no pager

        self._pager = subprocess.Popen(  # noqa: S603 (whoever sets PAGER is whoever runs this)
            self._command, stdin=subprocess.PIPE, env=environment, encoding=encoding, errors="backslashreplace"
        )
        self._to_pager("".join(self._kept))
        self._kept.clear()

    def _to_pager(self, text: str) -> None:
        assert self._pager is not None
        assert self._pager.stdin is not None
        self._pager.stdin.write(text)
