"""Which conversations does a framework have open in this process, and which run may use one?

Frameworks make a session object for each request, and several for one key. So the open stores are in one table. What
holds:

* Two objects with the same key and the same options use one store, whichever event loop or thread they are in. With
  other options, or in another process, they are two writers. All stores let go of the lock between two calls
  (``hold_lock=False``), so writers take turns, and a store that was never closed blocks no other.
* A function that a call is given may be many turns, and another process may write between any two of them.
* A call is made to its end, also if its caller is cancelled (``transcript_store.aio``).
* After an error that is not about the caller's values the store is closed: the next call reads the disk again, and
  meets the same damage, or succeeds.
* At most ``MOST_OPEN`` unused ones stay open, with at most ``MOST_BYTES`` of their ends in memory; the
  longest unused one is closed first.
* On a backend nothing is different for the frameworks: a call that writes claims the conversation if another process
  wrote last, and a change that another writer got in front of is made again, behind what that one wrote.
* A forked child begins with an empty table. At the end of the interpreter all are closed.

One run at a time may use a conversation; the other runs of this process wait in a queue. A run reads the history when
it begins and stores messages until it ends. Two runs at once would put their messages between each other's, and a
provider refuses a call whose result is elsewhere. The runs of other processes are not in this queue.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID, uuid5

from transcript_store.aio import AsyncConversationStore
from transcript_store.conversation import ConversationStore, Durability, Record, Redact
from transcript_store.errors import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    CorruptTranscriptError,
    FeatureNotEnabledError,
    InvalidMessageError,
    InvalidMetadataError,
    RedactionError,
    StorageError,
    TranscriptStoreError,
)
from transcript_store.file_names import TRANSCRIPT, absolute_path
from transcript_store.hints import Hint
from transcript_store.integrations._values import of_items
from transcript_store.library import ConversationLibrary

# ---- homes ----
# Where a framework's conversations are, how each is named there, and its options.

Home = str | ConversationLibrary
"""Where the conversations are: the absolute path of their folder, or a library, which may be on a backend."""

NAMESPACE = UUID("6d1f1f0a-2f3c-5f0e-8a43-0b6a54f1c7d9")
"""It never changes: with another one no conversation would be found again."""
CACHE_BYTES = 1280 << 10
"""Of each open conversation at most so much is in memory: the end, which the next request reads again. A thousand messages of 1 KB
fit. Data read from the disk is verified again, which takes several times as long."""


class OpenOptions(NamedTuple):
    """The options to open a conversation."""

    durability: Durability = "power-loss"
    lock_timeout_seconds: float = 10.0
    redact: Redact | None = None

    @classmethod
    def of(cls, home: Home, durability: Durability, lock_timeout_seconds: float, redact: Redact | None) -> OpenOptions:
        """With the library's redactor, unless another one was given."""
        if redact is None and isinstance(home, ConversationLibrary):
            redact = home.redact
        return cls(durability, lock_timeout_seconds, redact)

    def store(self, home: Home, id: str) -> ConversationStore:
        """A store that is not loaded; raises ``TypeError`` or ``ValueError`` if an option cannot be."""
        options: Any = {
            **self._replace(redact=of_items(self.redact))._asdict(),
            "hold_lock": False,
            "cache_bytes": CACHE_BYTES,
        }
        library = ConversationLibrary(home) if isinstance(home, str) else home
        return library.store(id, **options)

    def key(self) -> tuple[object, ...]:
        """Equal for two options that one store can be opened with."""
        try:
            hash(self.redact)
        except TypeError:  # an object that can be called, and compared by its value
            return *self[:2], id(self.redact)
        return tuple(self)


def id_for_key(framework: str, *key: str) -> str:
    """The id of the conversation that belongs to a key, which may hold any characters and any number of them.

    Raises:
        TypeError: it is not text. None, an id that a program forgot to set, would be one conversation for all users.
    """
    for part in key:
        if not isinstance(part, str):
            raise TypeError(f"a key must be text, not {type(part).__name__}")
    return _id_of(framework, *key)


@lru_cache(maxsize=1000)  # a store of many sessions gets the session in each call
def _id_of(*names: str) -> str:
    return str(uuid5(NAMESPACE, json.dumps(names)))


def home_at(directory: str | os.PathLike[str] | ConversationLibrary) -> Home:
    """The given library, or the absolute path of the folder with the conversations.

    In an event loop an absolute path is taken as it is, so that a constructor does not wait for the disk. Objects that
    name one folder through different links are then two writers, which take turns.

    Raises:
        TypeError: it is neither a path nor a library.
        ValueError: it is a file, for example the database of another store.
        NotAPathError: it is an address; open a library on its backend.
    """
    if isinstance(directory, ConversationLibrary):
        return directory
    path = absolute_path(directory)
    given = os.path.expanduser(directory)
    if _is_in_an_event_loop() and os.path.isabs(given) and ".." not in given.split("/"):
        return path  # the disk is not asked here: the first call does that, in the store's thread, and refuses a file
    path = os.path.realpath(given)  # links are followed before ``..`` is
    if os.path.isfile(path):
        raise ValueError(f"{path} is a file: name the folder for the conversations (it is created if it is missing)")
    return path


def _is_in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def path_of(home: Home) -> str:
    """The name of a home in errors, and the start of a conversation's path."""
    return home if isinstance(home, str) else home.directory


def is_folder(home: Home) -> bool:
    """True if the conversations are in a folder, not on a backend."""
    return isinstance(home, str) or type(home) is ConversationLibrary


def to_read(home: Home, id: str) -> ConversationStore:
    """The conversation's store, loaded to read.

    Raises:
        ConversationNotFoundError: nothing was stored yet.
        TranscriptStoreError: as ``ConversationStore.load``.
    """
    library = ConversationLibrary(home) if isinstance(home, str) else home
    store = library.store(id, read_only=True)
    store.load()
    return store


# ---- conversations ----

logger: logging.Logger = logging.getLogger("transcript_store.integrations")

T = TypeVar("T")

MOST_OPEN = 32
MOST_BYTES = 8 << 20
"""The bytes of all of their ends together. Reopening one takes a few milliseconds; memory is used all the time."""

_ABOUT_THE_CALL = (
    ConversationChangedError,
    FeatureNotEnabledError,
    InvalidMessageError,
    InvalidMetadataError,
    RedactionError,
)


class Conversation:
    """One conversation, opened by the first call that needs it, and again by the first call after it was closed."""

    def __init__(self, home: Home, id: str, options: OpenOptions) -> None:
        self.key = home, id, options.key()
        self.id = id
        self.again_seconds = 0.0 if is_folder(home) else options.lock_timeout_seconds
        """How long a call is repeated while other writers come first."""
        self.store = options.store(home, id)
        self.awaited = AsyncConversationStore.of(self.store)
        self.busy = threading.Lock()
        """A call has it, which may be many calls of the store: a close comes before it or after it."""
        self.users = 0
        """How many calls need it just now; the table counts them."""
        self.closer: object = None
        """Who is closing it because it is one too many, if no call needed it since. It stays in the table until it is
        closed: a call that needs it waits for that, and does not meet the lock of a forgotten store.
        """
        self.memo: Any = None
        """An integration's knowledge of this conversation. Others may have written since."""
        self.bytes = 0
        """At most so much of it is in memory. Each call notes it in the store's thread: the event loop does not wait for the disk."""

    async def call(
        self, function: Callable[[ConversationStore], T], begin: Callable[[ConversationStore], T] | None = None
    ) -> T | None:
        """Call ``function(store)`` in the store's thread; if there is no conversation, ``begin(store)``, which creates it.

        Returns:
            The function's result; None if there is no conversation and no ``begin``.

        Raises:
            TranscriptStoreError: as ``ConversationStore.load``, and what the function raises.
        """
        return await self.awaited.call(partial(self._call, function, begin))

    def _call(
        self,
        function: Callable[[ConversationStore], T],
        begin: Callable[[ConversationStore], T] | None,
        store: ConversationStore,
    ) -> T | None:
        try:
            with self.busy:
                return self._until_current(function, begin, store)
        except _ABOUT_THE_CALL:
            raise
        except TranscriptStoreError:
            # Closed after any other error, so that the next call loads what the disk holds.
            _close(self)
            raise
        finally:
            self.bytes = _size_of_its_end(self.store)

    def _until_current(
        self,
        function: Callable[[ConversationStore], T],
        begin: Callable[[ConversationStore], T] | None,
        store: ConversationStore,
    ) -> T | None:
        """Repeat the call while other writers come first, at most as long as it may wait for the lock.

        This happens on a backend only: nothing of the call is stored then, and each time another writer came forward.
        """
        until = time.monotonic() + self.again_seconds
        while True:
            try:
                return self._opened(function, begin, store)
            except ConversationLockedError as error:
                if error.hint is not Hint.RELOAD or time.monotonic() >= until:
                    raise

    def _opened(
        self,
        function: Callable[[ConversationStore], T],
        begin: Callable[[ConversationStore], T] | None,
        store: ConversationStore,
    ) -> T | None:
        while True:
            try:
                return function(store)
            except ConversationNotLoadedError:  # the first call, or it was closed, or this is a forked child
                pass
            except ConversationNotFoundError:  # it was removed since the last turn
                store.close()
            self.memo = None
            try:
                store.load(verify="tail")
            except ConversationNotFoundError:
                if begin is None:
                    return None
                try:
                    return begin(store)
                except ConversationExistsError:
                    store.load(verify="tail")  # another process was faster; otherwise load() raises the right error
            # Another conversation may have been copied into this folder: its records would be mixed with ours.
            if store.id != self.id:
                reason = f"conversation {store.id} is in the folder that belongs to {self.id}"
                raise CorruptTranscriptError(path=store.directory, kind="wrong-conversation", reason=reason)


@dataclass
class Known:
    """An integration's state of a conversation's records. It is read once; later calls read only new records.

    An append that depends on it gives ``if_head=known.head``. On ``ConversationChangedError`` the caller reads again.
    """

    head: str = ""
    """The transcript's head before this was read: with this head, everything is known."""
    generation: int = 0
    seq: int = 0
    at: str = ""
    """The time of record ``seq``, the last one that is known. Another time there means another conversation."""

    def take(self, record: Record) -> None:
        """Learn from the next record."""

    @classmethod
    def read(cls, store: ConversationStore, known: Self | None = None) -> Self:
        """Read the new records, or everything if the known ones were replaced."""
        while True:
            current = cls() if known is None else known
            try:
                if current._has_read_on(store):
                    return current
            except ConversationChangedError:
                pass  # it was replaced in between
            known = None

    def _has_read_on(self, store: ConversationStore) -> bool:
        self.head = store.head  # read first: the append detects records that come in between
        generation = store.get_metadata().generation
        records = store.iter_records(after_seq=max(0, self.seq - 1))
        if self.seq:
            last = next(records, None)
            # The last known record is read again: only if it is unchanged do the new ones follow it.
            if self.generation != generation or last is None or last.at != self.at:
                return False
        self.generation = generation
        for record in records:
            self.take(record)
            self.seq, self.at = record.seq, record.at
        return True


_Key = tuple[Home, str, tuple[object, ...]]
_table: OrderedDict[_Key, Conversation] = OrderedDict()
"""The longest unused one comes first."""
_guard = threading.Lock()


class conversation:  # noqa: N801  # a block, as contextlib.closing
    """The conversation with this id, for one call or a few; it is not closed during them.

    No generator: one of those takes half as long as the store needs to find the last message.
    """

    __slots__ = ("_found", "_key", "_options")

    def __init__(self, home: Home, id: str, options: OpenOptions) -> None:
        self._key = home, id, options.key()
        self._options = options

    async def __aenter__(self) -> Conversation:
        with _guard:
            self._found = found = _table.get(self._key) or Conversation(*self._key[:2], self._options)
            _table[self._key] = found
            _table.move_to_end(self._key)
            found.users += 1
            found.closer = None
            surplus = _surplus()
        if surplus:
            try:
                await _close_unused(surplus)
            except BaseException:
                await self.__aexit__()
                raise
        return found

    async def __aexit__(self, *_: object) -> None:
        with _guard:
            self._found.users -= 1


def call_now(home: Home, id: str, options: OpenOptions, function: Callable[[ConversationStore], T]) -> T | None:
    """Call ``function(store)`` in this thread, for a hook of a framework that is not async; None if there is no conversation.

    It keeps the event loop waiting for a read from the disk, and for the turn of another process.

    Raises:
        TranscriptStoreError: as :meth:`Conversation.call`.
    """
    key = home, id, options.key()
    with _guard:
        found = _table.setdefault(key, _table.get(key) or Conversation(home, id, options))
        found.users += 1
        found.closer = None
    try:
        return found._call(function, None, found.store)
    finally:
        with _guard:
            found.users -= 1


def close(home: Home, id: str, options: OpenOptions) -> None:
    """Close the conversation, when the call on it that is under way is done. The next call opens it again."""
    with _guard:
        found = _table.get((home, id, options.key()))
    if found is not None:
        with found.busy:
            found.store.close()


def close_within(home: Home) -> None:
    """The same for all conversations of a library, or in a folder, and in the folders within."""
    with _guard:
        found = [each for (place, *_), each in _table.items() if _is_within(place, home)]
    for each in found:
        with each.busy:
            each.store.close()


def _is_within(place: Home, home: Home) -> bool:
    if isinstance(place, str) and isinstance(home, str):
        return f"{place}/".startswith(f"{home}/")
    return place is home


def _surplus() -> list[Conversation]:
    staying = [each for each in _table.values() if each.closer is None]
    number, surplus = len(staying), list[Conversation]()
    if number * CACHE_BYTES <= MOST_BYTES and number <= MOST_OPEN:
        return surplus  # whatever they contain: usually there are a few, and no query is needed
    held = sum(each.bytes for each in staying)
    for each in staying:
        if number <= MOST_OPEN and held <= MOST_BYTES:
            break
        if not each.users:
            surplus.append(each)
            number, held = number - 1, held - each.bytes
    for each in surplus:
        each.closer = surplus
    return surplus


async def _close_unused(surplus: Sequence[Conversation]) -> None:
    closed = 0
    try:
        for unused in surplus:
            closed += 1  # it is closed also if we are cancelled now
            # In the store's thread, after the calls that are queued there.
            await unused.awaited.call(partial(_close, unused))
            await unused.awaited.close()  # and its thread ends
    finally:
        with _guard:
            for number, each in enumerate(surplus):
                if each.closer is surplus:
                    each.closer = None
                    if number < closed:
                        _table.pop(each.key, None)


def _size_of_its_end(store: ConversationStore) -> int:
    size: int | None = getattr(store, "size_bytes", None)  # of a conversation on a backend
    if size is not None:
        return min(CACHE_BYTES, size)
    try:
        return min(CACHE_BYTES, os.stat(f"{store.directory}/{TRANSCRIPT}").st_size)
    except OSError:
        return 0  # there is none


def _close(found: Conversation, *_: object) -> None:
    try:
        found.store.close()
    except StorageError as error:  # it was written but not synced: durability="process-crash" promises no more
        logger.warning("%s", error)


def _close_all() -> None:
    for each in _table.values():
        _close(each)


def _start_again() -> None:
    """In a forked child: the stores are its parent's, and another thread may hold the guard forever."""
    global _table, _guard
    _table, _guard = OrderedDict(), threading.Lock()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_start_again)


_LineKey = tuple[Home, str]
_Place = Future[None]
"""A position in a queue; it has its result when it is the first one."""

_lines: dict[_LineKey, deque[_Place]] = {}
_lines_guard = threading.Lock()
_of_this_task: ContextVar[tuple[_Place, ...]] = ContextVar("transcript_store_runs", default=())
"""The positions of the runs that contain this task. A tool's task inherits them, so a run within a tool knows its outer runs."""


async def begin_turn(home: Home, id: str, timeout_seconds: float) -> Callable[[], None]:
    """Wait for the conversation's turn, in any event loop and thread of this process; returns the function that ends it.

    Raises:
        ConversationLockedError: another run still has the turn after so many seconds, or this run is part of one that has it.
    """
    key, place = (home, id), _Place()
    path = f"{path_of(home)}/{id}"
    with _lines_guard:
        line = _lines.setdefault(key, deque())
        if line and line[0] in _of_this_task.get():
            reason = "a run on this history started another run on it, which would wait forever: give the inner agent another key"
            raise ConversationLockedError(path=path, reason=reason, holder_pid=os.getpid(), hint=None)
        line.append(place)
        if line[0] is place:
            place.set_result(None)
    end = partial(_leave, key, place)
    if not place.done():
        try:
            # The shield: a run that gives up leaves the queue, so no entry in it is cancelled.
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(place)), timeout_seconds)
        except TimeoutError:
            end()
            reason = f"another run has this history, and did not end within {timeout_seconds:g} seconds"
            raise ConversationLockedError(path=path, reason=reason, holder_pid=os.getpid()) from None
        except BaseException:
            end()
            raise
    _of_this_task.set((*_of_this_task.get(), place))
    return end


def _leave(key: _LineKey, place: _Place) -> None:
    with _lines_guard:
        line = _lines.get(key)
        if line is None or place not in line:
            return  # a forked child: the line was its parent's
        line.remove(place)
        if not line:
            del _lines[key]
        elif not line[0].done():
            line[0].set_result(None)


def _start_lines_again() -> None:
    global _lines, _lines_guard
    _lines, _lines_guard = {}, threading.Lock()


os.register_at_fork(after_in_child=_start_lines_again)
