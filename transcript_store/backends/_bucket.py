"""How are requests made to an object store? The only module that uses the client library.

Invariants, which the tests name:

B1  No text of the client library or of the server goes into an error: it may contain addresses, keys and bytes. An
    error has the kind of failure, the status, and the server's code, which is one word.
B2  The client library hangs in a child of a process that used it. So no request is made there: the call is refused at once.
B3  "Not stored" is reported only if the server refused, or nothing was sent. Everything else is
    :class:`OutcomeUnknownError`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from transcript_store.backends._backend import BackendError, BackendUnreachableError, OutcomeUnknownError
from transcript_store.display import printable_address, safe
from transcript_store.errors import MissingExtraError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
"""How often the client library repeats a request by itself. Its own default may take three minutes."""
TIMEOUTS = {"connect_timeout": "5s", "timeout": "30s"}
AT_ONCE = 16
"""How many requests run at the same time."""

_STATUS = re.compile(r"\bStatus \{\s+status: (\d{3}),")
_REPEATED = re.compile(r"\bretries: [1-9]")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_WAITS = frozenset({408, 409, 425, 429})
"""Refusals that may be temporary."""
_UNFIT = frozenset({501})
_NEVER_SENT = frozenset(
    {"InvalidPathError", "NotImplementedError", "NotSupportedError", "UnknownConfigurationKeyError", "ValueError"}
)

_LOCAL = ("memory:", "file:")
"""Stores without a network. Each one in memory is separate."""
_CONNECTING = "kind: Connect,"
"""The client library's texts for a connection that could not be made."""

_UNREACHABLE = "no connection to the object store could be made: start the server, or use another endpoint"

_process: int | None = None
"""B2: the process in which the client library was used first."""

T = TypeVar("T")
R = TypeVar("R")


class ListedObject(NamedTuple):
    """An object in a listing."""

    key: str
    tag: str | None
    """Its ETag, or None: other bytes have another one."""
    size: int
    modified: datetime


_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
"""Where the client library looks for a missing address."""


class StoredObject(NamedTuple):
    """An object as a get returns it."""

    data: bytes
    tag: str | None
    version: str | None
    """The version that GCS compares instead of the tag."""


class Bucket:
    """The objects under one prefix in one bucket. Any number of threads may use it; every call is one request, or one
    per page.

    Every call may raise ``OutcomeUnknownError``: the call is in doubt; or ``BackendError``: it was not done.
    """

    def __init__(self, url: str, options: dict[str, Any], name: str | None) -> None:
        try:
            import obstore
        except ImportError as error:
            raise MissingExtraError(feature="a backend on an object store", extra="objects") from error
        self.name = name or _name(url)
        where = [_name(url), *(str(options[key]) for key in sorted(options) if "endpoint" in key.lower())]
        self.identity = "objects:" + sha256(json.dumps(where).encode()).hexdigest()
        self._api = obstore
        self._patient = self._opened(url, options)
        self._first: ObjectStore | None = None
        """Until the server has answered once, requests are not repeated: then a failed connection means that nothing
        was sent.
        """
        if not url.startswith(_LOCAL):
            self._first = self._opened(url, {**options, "retry_config": {"max_retries": 0}})

    @property
    def _store(self) -> ObjectStore:
        return self._first or self._patient

    def _opened(self, url: str, options: dict[str, Any]) -> ObjectStore:
        given = dict(options)
        client = {**TIMEOUTS, **given.pop("client_options", {})}
        endpoints = (url, *given.values(), *(os.environ.get(name) for name in _ENDPOINTS))
        # A server on this machine has no network in between, so plain http shows nothing to others.
        if any(isinstance(value, str) and _is_loopback(value) for value in endpoints):
            client.setdefault(
                "allow_http", True
            )  # elsewhere, unencrypted messages and keys must be requested explicitly
        retries = {**RETRIES, **given.pop("retry_config", {})}
        try:
            return self._api.store.from_url(url, client_options=client, retry_config=retries, **given)  # type: ignore[no-any-return, call-overload]
        except Exception as error:
            kind = type(error).__name__
        raise self.refused("open the backend", f"its address or an option cannot be used ({kind})")

    # ---- requests --------------------------------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> bool:
        """Put an object if the name is free. False: this call did not do it (and perhaps the name is still free)."""
        return self._asked("write an object", lambda: self._put(key, data, "create"))

    def swap(self, key: str, data: bytes, there: StoredObject) -> bool:
        """Replace the object that was found. False: it has changed."""
        known = {"e_tag": there.tag, "version": there.version}
        mode = {name: value for name, value in known.items() if value is not None}  # the client library takes no None
        return self._asked("write an object", lambda: self._put(key, data, mode))

    def replace(self, key: str, data: bytes) -> None:
        """Put an object, whatever has that name."""
        self._asked("write an object", lambda: self._put(key, data, "overwrite"))

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        try:
            self._api.put(self._store, key, data, mode=mode, use_multipart=False)
        except (self._api.exceptions.AlreadyExistsError, self._api.exceptions.PreconditionError) as error:
            is_repeated = _REPEATED.search(str(error))
        else:
            return True
        if is_repeated:  # the client library sent it before, and that may be what is there
            raise OutcomeUnknownError("the object store did not answer at first")
        return False

    def get(self, key: str) -> StoredObject | None:
        """The object that has this name, or None."""

        def act() -> StoredObject | None:
            try:
                result = self._api.get(self._store, key)
                return StoredObject(bytes(result.bytes()), result.meta["e_tag"], result.meta["version"])
            except FileNotFoundError:
                return None

        return self._asked("read an object", act)

    def list(self, folder: str, after: str = "") -> Iterator[list[ListedObject]]:
        """The objects in a folder and below, whose names come after ``after``, in the order of their names, a page at a time."""
        pages: Iterator[Any] | None = None

        def page() -> list[ListedObject] | None:
            nonlocal pages
            if pages is None:  # here, because it sends nothing before its first page
                pages = iter(self._api.list(self._store, folder, offset=after or None, chunk_size=1000))
            found = next(pages, None)
            return (
                None
                if found is None
                else [ListedObject(o["path"], o["e_tag"], o["size"], o["last_modified"]) for o in found]
            )

        while (found := self._asked("list objects", page)) is not None:
            yield found

    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders in a folder."""
        found = self._asked("list objects", lambda: self._api.list_with_delimiter(self._store, folder))
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Missing ones are skipped."""
        wanted = [*keys]

        # One request for all: a conversation may have thousands of objects.
        def all_of_them() -> bool:
            try:
                self._api.delete(self._store, wanted)
            except FileNotFoundError:  # some stores stop there
                return False
            return True

        def one(key: str) -> None:
            with suppress(FileNotFoundError):
                self._api.delete(self._store, key)

        if not self._asked("remove objects", all_of_them):
            self.at_once(lambda key: self._asked("remove an object", lambda: one(key)), wanted)

    def at_once(self, act: Callable[[T], R], each: Sequence[T]) -> Sequence[R]:
        """``act`` on each, several at the same time; the results in that order."""
        if len(each) < 2:
            return [act(one) for one in each]
        with ThreadPoolExecutor(min(AT_ONCE, len(each))) as pool:
            return [*pool.map(act, each)]

    # ---- errors ----------------------------------------------------------------------------------------------

    def _asked(self, doing: str, act: Callable[[], T]) -> T:
        global _process  # noqa: PLW0603 (it is the process's, as the client library's threads are)
        if _process is None:
            _process = os.getpid()
        if _process != os.getpid():
            raise self.refused(
                doing, "object stores were used before this process was forked: open them after, or start it by spawn"
            )
        try:
            found = act()
            self._first = None
            return found
        except (self._api.exceptions.BaseError, NotImplementedError, ValueError, OSError) as error:
            translated = self._translated(doing, error)
        raise translated  # outside of `except`, so that nothing keeps the original: B1

    def _translated(self, doing: str, failed: Exception) -> BackendError | OutcomeUnknownError:
        """B3: a failure in our words."""
        text = str(failed)
        status = int(found[1]) if (found := _STATUS.search(text)) else None
        code = f" ({found[1]})" if (found := _CODE.search(text)) else ""
        answered = f"the object store answered {status}{code}" if status else "the object store did not answer"
        kind = type(failed).__name__
        # No connection, and no repetition: so nothing was sent, and the outcome is certain.
        if _CONNECTING in text and not _REPEATED.search(text):
            return BackendUnreachableError(_UNREACHABLE, has_answered=self._first is None)
        self._first = None
        if _REPEATED.search(text):  # what the client library had sent before may have been done
            return OutcomeUnknownError(answered)
        if kind in _NEVER_SENT:
            return self.refused(doing, f"the client library for object stores does not support that ({kind})")
        if "kind: Builder" in text:
            return self.refused(
                doing, "plain http goes to this machine alone, unless client_options={'allow_http': True}"
            )
        if isinstance(failed, FileNotFoundError):
            return self.refused(doing, f"there is no such bucket{code}")
        # The server understood the request and rejects it: repeating it would get the same answer.
        if status is not None and (300 <= status < 500 or status in _UNFIT) and status not in _WAITS:
            clock = ": set the clock of this machine" if "(RequestTimeTooSkewed)" in code else ""
            return self.refused(doing, f"{answered}{clock}")
        return OutcomeUnknownError(answered)

    def refused(self, doing: str, reason: str) -> BackendError:
        """The error for a request that was not done, and will not be."""
        return BackendError(path=self.name, doing=doing, reason=reason, outcome="not stored")


def same_tag(listed: str | None, found: str | None) -> bool:
    """True if two tags mean the same bytes. Listings and answers of one store may quote them differently; None matches
    any tag.
    """
    return listed is None or found is None or _plain(listed) == _plain(found)


def _plain(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')


def _name(url: str) -> str:
    """The printable part of an address: no host, no user, and nothing after a question mark."""
    scheme, mark, behind = safe(printable_address(url)).partition("://")
    if scheme.lower() in ("http", "https"):
        return f"objects:{behind[len(behind.partition('/')[0]) :]}"
    return f"{scheme}{mark}{behind.rstrip('/')}"


def _is_loopback(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")
