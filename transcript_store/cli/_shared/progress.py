"""Progress on standard error, for work that takes longer than a second: a line that counts the seconds, or a bar.

On a terminal the line is rewritten, and removed when the work is done. Elsewhere it is printed once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from transcript_store.cli._shared.terminal import complain, has_status, status, status_columns

PATIENCE_SECONDS = 1.0
_BAR_CHARACTERS = 30


class Working:
    """Shows what the user is waiting for, from one second after construction until ``done()``.

    As a context it calls ``done()`` at its end. ``what`` may be set to another text meanwhile.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._done = threading.Event()
        self._says = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def done(self) -> None:
        """Stop. On return the line is gone, and nothing more is printed. A second call does nothing."""
        if not self._done.is_set():
            self._done.set()
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the line while the block runs, so that other text can be printed."""
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
    """A bar for a download. Call what it yields with the number of bytes received and the number expected."""
    if not has_status():
        complain(f"{what} …")
        yield lambda _done, _total: None
        return

    def show(done: int, total: int) -> None:
        show_bar(done, total, before=f"{what} ", after=f" {done / 1e6:.1f}/{total / 1e6:.1f} MB")

    try:
        yield show
    finally:
        status("")


def show_bar(done: int, total: int, *, before: str = "", after: str) -> None:
    """Show in the status line a bar such as ``[#####     ]`` for ``done`` of ``total``, as long as fits between two texts."""
    length = max(0, min(_BAR_CHARACTERS, status_columns() - len(f"{before}[]{after}")))
    status(f"{before}[{'#' * (done * length // max(total, 1)):<{length}}]{after}")
