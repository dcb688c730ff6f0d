"""Pages on their way to browsers, bounded by bytes: equal ones are held once, and each connection is given a slice at a time.

A reader may be slow, or stop. A page that was handed to the socket in one piece would be copied for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from threading import Lock
from weakref import WeakValueDictionary

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_MOST_BYTES = 256 * 1024 * 1024
"""Of all pages that are being sent. A larger one is sent if it is the only one."""
SLICE = 65_536
"""What a connection is given before it has read what it got."""


class TooMuchAtOnceError(Exception):
    """Too many bytes of pages are being sent already."""


class _Page:
    """The bytes of a page. It goes with the last answer that sends it."""

    __slots__ = ("__weakref__", "pieces", "size")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = tuple(pieces)
        self.size = sum(map(len, self.pieces))


class Pages:
    """The pages that are being sent. Threads may share it."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._sent: WeakValueDictionary[bytes, _Page] = WeakValueDictionary()

    def answer(self, pieces: Iterable[bytes], *, status: int, headers: Mapping[str, str]) -> Response:
        """An answer that sends a page of HTML.

        Raises:
            TooMuchAtOnceError: the pages that are being sent have too many bytes with this one.
        """
        page = _Page(pieces)
        digest = blake2b(digest_size=32)
        for piece in page.pieces:
            digest.update(piece)
        with self._mutex:
            same = self._sent.get(digest.digest())
            if same is None:
                others = sum(each.size for each in list(self._sent.values()))
                if others and others + page.size > _MOST_BYTES:
                    raise TooMuchAtOnceError
                same = self._sent[digest.digest()] = page
        return _Answer(same, status, headers)


class _Answer(Response):
    media_type = "text/html"

    def __init__(self, page: _Page, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status, {**headers, "Content-Length": str(page.size)})
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._page.pieces:
            for start in range(0, len(piece), SLICE):
                body = piece[start : start + SLICE]
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
