"""SIGKILL before every call that changes something, in a separate process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

_CHANGING = frozenset({"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "sqlite3.connect"})
_WRITING = os.O_WRONLY | os.O_RDWR


def ends_before(nth: int, call: Callable[[], object]) -> bool:
    """Run a call in a child that is killed before its nth change (from 1); True if it ended before.

    A call that raises fails the test: the child's exit code is 1.
    """
    pid = os.fork()
    if pid == 0:
        count = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            is_write = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
            if event in _CHANGING or is_write:
                count += 1
                if count == nth:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            call()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0
    return True
