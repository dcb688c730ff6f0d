"""A library in the browser: a server on this machine only, which answers only its own page (F13) and never writes.

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
    show_address: Callable[[str], object] | None = None,
    failed: Callable[[BaseException], object] | None = None,
    alive: Callable[[], object] | None = None,
    port: int = 0,
    forwarded_port: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
) -> None:
    """Show a library until the process is interrupted (SIGINT, SIGTERM, SIGHUP). Call it in the main thread.

    It listens at 127.0.0.1 alone. Every path begins with a token of 256 bits, which is another one each time. The
    address stands in one file, readable by its owner alone, which leads a browser there and is removed on return.
    Nothing is written into the library; the index of :class:`transcript_store.search.SearchIndex` is in the cache
    directory.

    Args:
        library: the library, or its directory. One on a backend is read there: nothing is claimed.
        ready: called with the path of that file, as soon as the server answers.
        show_address: called with the address itself before that. Show it to a person; a log or another process must not get it.
        failed: called with an error of the server's own, of which the client learns nothing. An error that any other user of the machine
            can cause, such as too many open files, is reported once.
        alive: called each second from the loop that answers requests: a sign of life for health checks.
        port: the port to listen at; 0 for a free one.
        forwarded_port: the port at which the browser reaches this one, if it is another: ``ssh -L 9000:127.0.0.1:8000``
            is 9000. The address has this port, and a request may name either of the two.
        cache: where the index is kept; None for the user's cache directory.
        encryption_key: the key of sealed conversations. Without it they are listed, and not shown.
        retired_keys: earlier keys.

    Raises:
        MissingExtraError: the extra ``view`` is not installed.
        ConversationNotFoundError: there is no such directory.
        KeyboardInterrupt: it was interrupted.
        ValueError: a port is not a number from 1 to 65535 (``port`` may be 0).
        OSError: the port is in use, or may not be used; or there is no place for the file.
        BackendError: the backend does not answer.
    """
    try:
        from transcript_store.serving._server import run
    except ModuleNotFoundError as error:
        raise MissingExtraError(feature="a server of pages", extra="view") from error
    for name, number, least in (
        ("port", port, 0),
        ("forwarded_port", 1 if forwarded_port is None else forwarded_port, 1),
    ):
        if type(number) is not int or not least <= number <= 65535:
            raise ValueError(f"{name} must be a number from {least} to 65535, not {number!r}")
    if not isinstance(library, ConversationLibrary):
        library = ConversationLibrary(library)
    keys = {} if encryption_key is None else {"encryption_key": encryption_key, "retired_keys": retired_keys}
    run(
        library,
        ready=ready,
        show_address=show_address or _ignored,
        failed=failed or _ignored,
        alive=alive or bool,
        port=port,
        forwarded_port=forwarded_port,
        cache=cache,
        keys=keys,
    )


def _ignored(_: object) -> None:
    pass
