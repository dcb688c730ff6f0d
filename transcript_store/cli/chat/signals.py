"""SIGTERM and SIGHUP as exceptions. They arrive when the machine shuts down, or the terminal is closed.

Without a handler they end the process at once, and the part of an answer that it had shown is lost. As an exception, like
Ctrl-C, they let the turn end in order: what was received is recorded.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Terminated(SystemExit):
    """A signal told the process to end. ``code`` is the exit code that a shell shows for it.

    It is a ``SystemExit`` because the prompt runs an event loop: an event loop passes a ``SystemExit`` on, and only logs
    other exceptions.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


@contextmanager
def raised() -> Iterator[None]:
    """Within the block, raise :class:`Terminated` for the first of these signals.

    Later ones are ignored: they would interrupt the recording of what was received. A signal that was already ignored
    when the program began (nohup) stays ignored.
    """
    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]

    def told(number: int, _frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    before = {number: signal.signal(number, told) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminal_kept() -> Iterator[None]:
    """After the block the terminal of standard input is as it was before, if there is one.

    The prompt restores it by itself, except where a signal arrives in the middle of that.
    """
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError, TypeError):  # not a terminal, closed, or not there at all
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error, OSError, ValueError, TypeError):
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
