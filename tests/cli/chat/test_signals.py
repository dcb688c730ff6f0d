"""Where a signal meets the prompt in the middle of its own clean-up, the terminal is left as it was found."""

from __future__ import annotations

import io
import os
import sys
import termios
import tty

import pytest

from transcript_store.cli.chat.session import Terminated, terminal_kept


def test_the_terminal_is_as_it_was_whatever_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt made it raw, and did not come to undo that: on a busy machine one SIGTERM in some thousand ended so."""
    master, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(terminal)
        with pytest.raises(Terminated), terminal_kept():
            tty.setraw(terminal)
            raise Terminated(15)
        assert termios.tcgetattr(terminal) == before
    os.close(master)


def test_without_a_terminal_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, and no standard input at all."""
    for stdin in (io.StringIO("hi"), None):
        monkeypatch.setattr(sys, "stdin", stdin)
        with terminal_kept():
            pass
