"""All conversations of a library, sent to a backend: one that cannot go does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.os_errors import NotOursError, refusals
from transcript_store.backends._backend import Backend, BackendError
from transcript_store.backends._claims import WAITS_SECONDS
from transcript_store.backends._shipping import Shipped, Shipper, looks_of
from transcript_store.errors import ConversationNotFoundError, TranscriptStoreError

__all__ = ["LibraryShipper", "NotShipped", "ship_library"]

_MOST_OPEN = 64
"""How many conversations a library's shipper keeps open: those that changed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShipped:
    """A conversation that failed, and why. Either side is unchanged, or has a part of the new data."""

    directory: str
    error: TranscriptStoreError


class LibraryShipper:
    """Sends the conversations of a library again and again, each time those that changed: ``transcript-store ship --follow``.

    Arguments are those of :func:`ship_library`. :meth:`close` releases what was claimed; a ``with`` block calls it.
    """

    def __init__(
        self,
        directory: filesystem.AnyPath,
        backend: Backend,
        *,
        waits_seconds: Sequence[float] = WAITS_SECONDS,
        file_system: FileSystem | None = None,
        **options: Any,
    ) -> None:
        self._files = filesystem.REAL if file_system is None else file_system
        self._path = filesystem.absolute_path(directory)
        self._backend = backend
        self._options: dict[str, Any] = {"waits_seconds": waits_seconds, "file_system": self._files, **options}
        self._open: dict[str, Shipper] = {}
        self._sent: dict[str, object] = {}
        """The stamps of each completely sent folder before it was sent."""

    def __enter__(self) -> LibraryShipper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self) -> Iterator[Shipped | NotShipped]:
        """Send what changed since the last call; as :func:`ship_library`. A folder in which nothing changed is not opened."""
        return self._each(lambda shipper: shipper.send())

    def lag(self) -> Iterator[Shipped | NotShipped]:
        """Report for each conversation what the backend lacks. Nothing is written, and nothing is claimed."""
        return self._each(lambda shipper: shipper.lag())

    def _each(self, act: Callable[[Shipper], Shipped]) -> Iterator[Shipped | NotShipped]:
        failed_before = False
        for directory, looks in self._changed():
            shipper = self._open.pop(directory, None) or Shipper(directory, self._backend, **self._options)
            try:
                report = act(shipper)
            except TranscriptStoreError as error:
                shipper.close()
                # After two calls without an answer the backend is at fault, and each further conversation would wait
                # half a minute.
                if isinstance(error, BackendError) and failed_before:
                    raise
                failed_before = isinstance(error, BackendError)
                yield NotShipped(directory=directory, error=error)
                continue
            except BaseException:
                shipper.close()
                raise
            failed_before = False
            self._open[directory] = shipper
            if not report.left_records:
                self._sent[directory] = looks
            while len(self._open) > _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            yield report

    def _changed(self) -> list[tuple[str, object]]:
        """The folders with a transcript that changed since they were completely sent."""
        with refusals(self._path, "look into the library"):
            try:
                folder = Folder.open(self._files, self._path)
            except FileNotFoundError:
                raise ConversationNotFoundError(path=self._path, reason="there is no such directory") from None
            with folder:
                looked = [(folder.path_of(name), self._looks(folder, name)) for name in folder.names()]
        return [(path, looks) for path, looks in looked if looks and looks != self._sent.get(path)]

    @staticmethod
    def _looks(library: Folder, name: str) -> object:
        """The stamps of a folder's files; None if it is not a conversation's."""
        if name.startswith("."):
            return None
        try:
            with library.subfolder(name) as folder:
                return looks_of(folder)
        except (NotOursError, FileNotFoundError):
            return None
        except OSError:
            return object()  # unlike all others: opening it reports why it is refused

    def close(self) -> None:
        """Release what was claimed, and close all folders. Never raises."""
        while self._open:
            self._open.popitem()[1].close()


def ship_library(
    directory: filesystem.AnyPath, backend: Backend, *, dry_run: bool = False, **options: Any
) -> Iterator[Shipped | NotShipped]:
    """Send every conversation directly under a directory, in the order of their names, each as :func:`ship` does.

    It yields one report for each. A failed one is a :class:`NotShipped`, and the others continue.

    Args:
        directory: the library.
        backend: where to.
        dry_run: send nothing, and report the number of records still to send.
        options: ``take_over``, ``with_key``, ``waits_seconds``, ``file_system``, as of :func:`ship`.

    Raises:
        ConversationNotFoundError: there is no such directory.
        BackendError: two conversations in a row got no answer, or the backend refused both. Call it again.
        StorageError: the directory cannot be read.
    """
    with LibraryShipper(directory, backend, **options) as shipper:
        yield from shipper.lag() if dry_run else shipper.send()
