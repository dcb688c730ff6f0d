"""A library in the browser: a server on this machine alone, which answers nobody but its own page (F13) and never writes.

``serve("chats", ready=print)`` prints the path of a file that leads a browser there, and ends with Ctrl-C. It needs
the extra ``view``. docs/view.md has the rules that it keeps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from transcript_store.errors import MissingExtraError
from transcript_store.keys import KeyProvider
from transcript_store.library import ConversationLibrary

__all__ = ["serve"]


def serve(
    library: ConversationLibrary | str | os.PathLike[str],
    *,
    ready: Callable[[str], object],
    failed: Callable[[BaseException], object] | None = None,
    cache: str | os.PathLike[str] | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
) -> None:
    """Show a library until the process is interrupted (SIGINT, SIGTERM, SIGHUP). Call it in the main thread.

    It listens at 127.0.0.1 alone, on a port that is free, below a path that nobody can guess. That address stands in one file, readable by
    its owner alone, which leads a browser there. The file is gone on return. Nothing is written into the library; the index of
    :class:`transcript_store.search.SearchIndex` stands in the cache directory.

    Args:
        library: the library, or its directory. One on a place is read there: nothing is claimed.
        ready: called with the path of that file, as soon as the server answers.
        failed: called with an error of the server's own, which whoever asked gets no word of.
        cache: where the index is kept; None for the user's cache directory.
        encryption_key: the key of sealed conversations. Without it they are listed, and not shown.
        retired_keys: earlier keys.

    Raises:
        MissingExtraError: the extra ``view`` is not installed.
        ConversationNotFoundError: there is no such directory.
        KeyboardInterrupt: it was interrupted.
        OSError: the system gives it no port, or no place for the file.
        PlaceError: nobody answers there.
    """
    try:
        from transcript_store.serving._server import run
    except ModuleNotFoundError as error:
        raise MissingExtraError(feature="a server of pages", extra="view") from error
    if not isinstance(library, ConversationLibrary):
        library = ConversationLibrary(library)
    keys = {} if encryption_key is None else {"encryption_key": encryption_key, "retired_keys": retired_keys}
    run(library, ready=ready, failed=failed or _unsaid, cache=cache, keys=keys)


def _unsaid(_: BaseException) -> None:
    pass
