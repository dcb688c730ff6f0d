"""One sentence for a person about what went wrong in a turn, for the errors of all SDKs.

An SDK may not be installed, so its classes cannot be imported. Its errors are recognised by the status that they carry
(``status_code`` or ``code``) and by the names of their classes.

The sentence quotes the server, with two exceptions, because some servers repeat the key that they refuse. The words of a
server that refused a key are left out. In what is quoted, the values of the environment's keys and tokens are replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from transcript_store import IncompleteResponseError, TranscriptStoreError
from transcript_store.cli._shared.ways_out import sentence as said

_MOST_CHARACTERS = 300
_SHORTEST_KEY = 8


def sentence(error: Exception, *, server: str, timeout_seconds: float) -> str:
    """The sentence for an error. ``server`` is the name of the server that was asked."""
    causes = list(_causes(error))
    status = next((found for cause in causes if (found := _status(cause)) is not None), None)
    names = {base.__name__ for cause in causes for base in type(cause).__mro__}
    if isinstance(error, IncompleteResponseError):
        return f"{_network(names, server, timeout_seconds) or error.reason}; what came of the answer is kept"
    if isinstance(error, TranscriptStoreError):
        return said(error, "chat")
    if status in (401, 403):
        return f"{server} refused the key ({status})"
    if status is not None:
        what = {404: "does not know this model or address", 429: "has had too many requests"}.get(
            status, "has a problem" if status >= 500 else "refused the request"
        )
        return f"{server} {what} ({status}): {_quoted(error)}"
    return _network(names, server, timeout_seconds) or f"{server}: {type(error).__name__}: {_quoted(error)}"


def _network(names: set[str], server: str, timeout_seconds: float) -> str | None:
    if any("Timeout" in name for name in names):
        return f"{server} said nothing for {timeout_seconds:g} seconds (--timeout)"
    if {"ConnectError", "gaierror", "ConnectionRefusedError"} & names:
        return f"{server} cannot be reached (is it running, is there a network?)"
    if {"APIConnectionError", "RemoteProtocolError", "NetworkError", "ConnectionError"} & names:
        return f"the connection to {server} broke"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    found = (getattr(error, name, None) for name in ("status_code", "code"))
    return next((status for status in found if type(status) is int and 400 <= status < 600), None)


def _quoted(error: Exception) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    words = " ".join(str(message or getattr(error, "message", None) or error).split())
    for name, value in os.environ.items():
        if name.endswith(("_KEY", "_TOKEN")) and len(value) >= _SHORTEST_KEY:
            words = words.replace(value, f"<{name}>")
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…"
