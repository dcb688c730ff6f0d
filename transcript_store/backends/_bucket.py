"""An object store as a few requests on names: the one module that knows the client library.

Invariants, which the tests name:

B1  No text of the client library or of the server goes into an error: it holds addresses, keys and bytes. An error says what kind of
    failure it was, the status, and the server's code, which is a word.
B2  The client library hangs in a child of a process that used it. So no request is made there: the call is refused at once.
B3  "Not stored" is said only of what the server refused, or of what was never sent. All else is :class:`OutcomeUnknownError`.
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
"""How many requests are made beside one another."""

_STATUS = re.compile(r"\bStatus \{\s+status: (\d{3}),")
_REPEATED = re.compile(r"\bretries: [1-9]")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_WAITS = frozenset({408, 409, 425, 429})
"""Refusals that a later attempt may not meet."""
_UNFIT = frozenset({501})
_NEVER_SENT = frozenset({"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError", "ValueError"})

_LOCAL = ("memory:", "file:")
"""Stores that are not asked over a network. Each one in memory is another one."""
_CONNECTING = "kind: Connect,"
"""How the client library says that no connection could be made."""

_NOBODY_THERE = "no connection to the object store could be made: start the server, or give another endpoint"

_process: int | None = None
"""B2: the process in which the client library was used first."""

T = TypeVar("T")
R = TypeVar("R")


class ListedObject(NamedTuple):
    """An object as a list shows it."""

    key: str
    tag: str | None
    """Its ETag, or None: other bytes have another one."""
    size: int
    modified: datetime


_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
"""Where the client library looks for an address that was not given."""


class StoredObject(NamedTuple):
    """An object as a get gives it."""

    data: bytes
    tag: str | None
    version: str | None
    """What GCS compares in the place of the tag."""


class Bucket:
    """What begins with one prefix in one bucket. Any number of threads may use it; every call is one request, or one for each page.

    Every call may raise ``OutcomeUnknownError``: it is not known whether it was done; or ``BackendError``: it was not.
    """

    def __init__(self, url: str, options: dict[str, Any], name: str | None) -> None:
        try:
            import obstore
        except ImportError as error:
            raise MissingExtraError(feature="a place on an object store", extra="objects") from error
        self.name = name or _name(url)
        where = [_name(url), *(str(options[key]) for key in sorted(options) if "endpoint" in key.lower())]
        self.identity = "objects:" + sha256(json.dumps(where).encode()).hexdigest()
        self._api = obstore
        self._patient = self._opened(url, options)
        self._first: ObjectStore | None = None
        """Until somebody has answered, requests are made once: so it is known of a connection that was not made that nothing was sent."""
        if not url.startswith(_LOCAL):
            self._first = self._opened(url, {**options, "retry_config": {"max_retries": 0}})

    @property
    def _store(self) -> ObjectStore:
        return self._first or self._patient

    def _opened(self, url: str, options: dict[str, Any]) -> ObjectStore:
        given = dict(options)
        client = {**TIMEOUTS, **given.pop("client_options", {})}
        endpoints = (url, *given.values(), *(os.environ.get(name) for name in _ENDPOINTS))
        if any(isinstance(value, str) and _is_loopback(value) for value in endpoints):
            client.setdefault(
                "allow_http", True
            )  # elsewhere, whoever wants messages and keys to go in clear has to say so
        retries = {**RETRIES, **given.pop("retry_config", {})}
        try:
            return self._api.store.from_url(url, client_options=client, retry_config=retries, **given)  # type: ignore[no-any-return, call-overload]
        except Exception as error:
            kind = type(error).__name__
        raise self.refused("open the place", f"its address or an option cannot be used ({kind})")

    # ---- requests --------------------------------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> bool:
        """Put an object if nothing has that name. False: this call did not do it (and perhaps nothing is there)."""
        return self._asked("write an object", lambda: self._put(key, data, "create"))

    def swap(self, key: str, data: bytes, there: StoredObject) -> bool:
        """Put an object in the place of the one that was found. False: there is another one now."""
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
            if pages is None:  # here, for it asks nobody before its first page
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
        """Remove objects. Those that are not there are passed over."""
        wanted = [*keys]

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

    # ---- what is told of it ----------------------------------------------------------------------------------------------

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
        except (self._api.exceptions.BaseError, FileNotFoundError, ValueError, OSError) as error:
            told = self._told(doing, error)
        raise told  # outside of `except`, so that nothing keeps the original: B1

    def _told(self, doing: str, failed: Exception) -> BackendError | OutcomeUnknownError:
        """B3: what a failure is, in our words."""
        text = str(failed)
        status = int(found[1]) if (found := _STATUS.search(text)) else None
        code = f" ({found[1]})" if (found := _CODE.search(text)) else ""
        answered = f"the object store answered {status}{code}" if status else "the object store did not answer"
        kind = type(failed).__name__
        if _CONNECTING in text and not _REPEATED.search(text):
            return BackendUnreachableError(_NOBODY_THERE, has_answered=self._first is None)
        self._first = None
        if _REPEATED.search(text):  # what the client library had sent before may have been done
            return OutcomeUnknownError(answered)
        if kind in _NEVER_SENT:
            return self.refused(doing, f"the client of object stores does not do that ({kind})")
        if "kind: Builder" in text:
            return self.refused(
                doing, "plain http goes to this machine alone, unless client_options={'allow_http': True}"
            )
        if isinstance(failed, FileNotFoundError):
            return self.refused(doing, f"there is no such bucket{code}")
        if status is not None and (300 <= status < 500 or status in _UNFIT) and status not in _WAITS:
            return self.refused(doing, answered)
        return OutcomeUnknownError(answered)

    def refused(self, doing: str, reason: str) -> BackendError:
        """The error for what was not done, and will not be."""
        return BackendError(path=self.name, doing=doing, reason=reason, outcome="not stored")


def same_tag(listed: str | None, found: str | None) -> bool:
    """Whether two tags are those of the same bytes. Lists and answers of one store may quote them in two ways; None fits anything."""
    return listed is None or found is None or _plain(listed) == _plain(found)


def _plain(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')


def _name(url: str) -> str:
    """What errors may say of an address: neither a host, nor a user, nor what stands behind a question mark."""
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
