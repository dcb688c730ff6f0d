"""What takes longer than a second says so, on standard error: a line that counts the seconds, or a bar.

On a terminal the line is rewritten, and gone when the work is done; elsewhere it is printed once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from transcript_store.cli._shared.terminal import complain, has_status, status

PATIENCE_SECONDS = 1.0
_BAR_CHARACTERS = 30


class Working:
    """Says ``what`` is being waited for, from one second after the beginning until ``done()``; as a context, until its end."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._done = threading.Event()
        self._says = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def done(self) -> None:
        """Stop saying so: on return the line is gone. Calling it twice does nothing."""
        if not self._done.is_set():
            self._done.set()
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let somebody else say something: the line is gone for as long."""
        with self._says:
            if has_status():
                status("")
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    def _run(self) -> None:
        seconds = 0
        while not self._done.wait(PATIENCE_SECONDS):
            seconds += 1
            with self._says:
                if has_status():
                    status(f"{self.what} … {seconds} s")
                elif seconds == 1:
                    complain(f"{self.what} …")
        if seconds and has_status():
            status("")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], object]]:
    """A bar for a download; what it gives is to be called with the bytes that came and the bytes there are."""
    if not has_status():
        complain(f"{what} …")
        yield lambda _done, _total: None
        return
    try:
        yield lambda done, total: status(f"{what} {drawn(done, total)} {done / 1e6:.1f}/{total / 1e6:.1f} MB")
    finally:
        status("")


def drawn(done: int, total: int) -> str:
    """How much is done of what is to be done, as a picture."""
    return f"[{'#' * (done * _BAR_CHARACTERS // max(total, 1)):<{_BAR_CHARACTERS}}]"
