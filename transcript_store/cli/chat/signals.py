"""SIGTERM and SIGHUP: the machine shuts down, the terminal is closed, a supervisor ends the program.

Unhandled they end a process where it stands, and what it had shown of an answer is lost. Here they are an exception, as Ctrl-C is:
whatever is under way ends in order, and what came is kept.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(SystemExit):
    """A signal told the process to end; ``code`` is the exit code that a shell shows for it.

    It is a ``SystemExit`` because an event loop (the prompt's) passes that on, and logs any other exception.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


@contextmanager
def raised() -> Iterator[None]:
    """Raise :class:`Terminated` for the first of these signals; those after it are ignored, so that what came can be kept.

    One that was ignored when the program began (nohup) stays ignored.
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
