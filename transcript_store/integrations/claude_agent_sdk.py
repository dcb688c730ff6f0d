"""A session store of the Claude Agent SDK that survives a power cut.

.. code-block:: text

    from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore

    options = ClaudeAgentOptions(session_store=TranscriptSessionStore("chats"), session_store_flush="eager")

It needs the extra ``claude-agent-sdk``. It works with asyncio and with trio. ``_claude_entries`` says how an entry is a record.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from transcript_store.conversation import AppendResult, ConversationStore, Durability, Record, Redact
from transcript_store.errors import (
    ConversationChangedError,
    ConversationLockedError,
    ConversationNotFoundError,
    MissingExtraError,
)

try:
    from claude_agent_sdk import fold_session_summary
except ModuleNotFoundError as _error:
    if _error.name != "claude_agent_sdk":
        raise
    raise MissingExtraError(
        feature="transcript_store.integrations.claude_agent_sdk", extra="claude-agent-sdk"
    ) from _error

import anyio.to_thread

from transcript_store.integrations._conversations import (
    Conversation,
    Home,
    Known,
    OpenOptions,
    close_within,
    conversation,
    home_at,
    id_for_key,
    is_folder,
    logger,
    path_of,
    to_read,
)
from transcript_store.integrations._values import (
    of_items,
    readable,
    redact_item,
    require_items,
    restored,
    restored_extra,
    stored,
)
from transcript_store.library import ConversationLibrary, ConversationSummary, delete_conversation, iter_with_labels
from transcript_store.messages import EncodedMessage, decode_message

__all__ = ["TranscriptSessionStore"]


# ---- claude entries ----
#
# The entries of Claude's Agent SDK as records, and back; and what an append must know of those that are stored.
#
# An entry is a record. What the model received or produced, an entry's ``message``, is the record's message, in
# Claude's form; the entry around it is the record's extra. An entry without a message is an event. The last record of a
# batch has the SDK's summary of the session too, in the same commit.

Entry = dict[str, Any]


class NewEntry(NamedTuple):
    """An entry that a call was given, encoded and so copied: the model's message, and the record's extra around it."""

    name: str
    message: EncodedMessage | None
    around: EncodedMessage
    redact: Redact | None

    @classmethod
    def of(cls, entry: Entry, name: str, max_bytes: int, redact: Redact | None) -> NewEntry:
        """Raises as ``stored()``."""
        message = entry.get("message")
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            return cls(name, None, stored({"entry": entry}, name, max_bytes), redact)
        around = {**entry, "message": None}  # which keeps the place, so that the members keep their order
        encoded = stored(message, f"{name}.message", max_bytes)
        return cls(name, encoded, stored({"entry": around}, name, max_bytes), redact)

    def read(self) -> StoredEntry:
        """The entry as it will be read again. The SDK cuts texts for its summary, and half a secret would not be known as one."""
        message = None if self.message is None else self._read(self.message)
        entry = _joined(restored(self._read(self.around)), message) or {}
        return StoredEntry(self, entry, _uuid(entry))

    def _read(self, encoded: EncodedMessage) -> dict[str, Any]:
        plain = decode_message(encoded.text)
        return plain if self.redact is None else redact_item(self.redact, plain, self.name)

    def with_summary(self, summary: Any, max_bytes: int) -> EncodedMessage:
        extra = restored(decode_message(self.around.text))
        return self.around if summary is None else stored({**extra, "summary": summary}, "summary", max_bytes)


class StoredEntry(NamedTuple):
    """An entry as given, and as it comes back."""

    given: NewEntry
    entry: Entry
    uuid: str | None


def _joined(extra: dict[str, Any], message: dict[str, Any] | None) -> Entry | None:
    """The entry of a record; None if the record is the note of a repair."""
    entry: Entry | None = extra.get("entry")
    if entry is not None and message is not None:
        entry["message"] = restored(message)
    return entry


def sdk_entries(store: ConversationStore) -> list[Entry]:
    while True:
        with suppress(ConversationChangedError):  # it was replaced while it was read, which are many turns
            return [entry for entry in map(_entry, store.iter_records()) if entry is not None]


def _entry(record: Record) -> Entry | None:
    return _joined(restored_extra(record.extra), record.message)


@dataclass
class Memo(Known):
    """The ``uuid`` of each entry that is stored, and the SDK's summary of them."""

    uuids: set[str] = field(default_factory=set)
    summary: Any = None

    def take(self, record: Record) -> None:
        extra = restored_extra(record.extra)
        if (uuid := _uuid(extra.get("entry") or {})) is not None:
            self.uuids.add(uuid)
        if extra.get("summary") is not None:
            self.summary = extra["summary"]

    def new_ones(self, given: Iterable[StoredEntry]) -> list[StoredEntry]:
        new, seen = [], set[str]()
        for one in given:
            if one.uuid is None:
                new.append(one)
            elif one.uuid not in self.uuids and one.uuid not in seen:
                new.append(one)
                seen.add(one.uuid)
        return new

    def note(self, new: Iterable[StoredEntry], last: AppendResult, summary: Any) -> None:
        self.uuids.update(one.uuid for one in new if one.uuid is not None)
        self.head, self.seq, self.at = last.head, last.seq, last.at
        self.summary = summary


def _uuid(entry: Entry) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) else None


# ---- claude agent sdk ----

FRAMEWORK = "claude-agent-sdk"
_KEY = f"{FRAMEWORK}.key"
"""The label that has the key, as JSON in ASCII: project, session, and the path of a sub-agent or null."""
_SUBAGENTS = "subagents"
_POLL_SECONDS = 0.002
_A_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")

Key = Mapping[str, str]


class _SaysWhatToDo(logging.Filter):
    """Says once for each folder what to do about entries that the SDK drops: it calls no store then, and only logs a path."""

    def __init__(self) -> None:
        super().__init__()
        self._folders: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("[SessionStore] dropping mirror frame") and isinstance(record.args, tuple):
            folder = str(record.args[-1])
            if folder not in self._folders:
                self._folders.add(folder)
                logger.warning(
                    "the session is not stored: Claude Code writes to %s, and the Claude Agent SDK expects its sessions under %s. "
                    "Set HOME in os.environ of the SDK's process too, not only in options.env, or set CLAUDE_CONFIG_DIR there",
                    record.args[0],
                    folder,
                )
        return True


logging.getLogger("claude_agent_sdk._internal.transcript_mirror_batcher").addFilter(_SaysWhatToDo())


class TranscriptSessionStore:
    """A ``SessionStore`` of the Claude Agent SDK: each session is a conversation, and each of its sub-agents.

    In a directory a project is a library in ``directory``: a folder with the project's name, if that is a valid name.
    An entry whose ``uuid`` is stored already is left out, also within one call; so a batch may be tried again. When
    ``append`` returns, its entries survive a power loss: all of them or, after a crash before that, none. Several
    processes may use one session; they take turns, and each call sees what the others stored before it.

    Args:
        directory: the folder with the projects, created if it is missing. Or a ``ConversationLibrary``, which may be on
            a backend: all projects are in it, and the list of sessions is as late as a list of the library is.
        durability: as of ``ConversationStore``.
        lock_timeout_seconds: how long to wait for the turns of others. After 60 s the SDK gives a batch up.
        redact: as of ``ConversationStore``: removes from an entry what must not be stored. It gets an
            entry's ``message``, and the rest of the entry as ``{"entry": …}``. Give the same function each time.

    Raises:
        TypeError: ``redact`` cannot be called.
        ValueError: ``directory`` is a file, or there is no such ``durability``.
        CorruptTranscriptError: any call about a session; it is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationLockedError: any call about a session; a store that holds its lock (``hold_lock=True``) has it open.
        TranscriptStoreError: any call, as ``ConversationStore``.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | ConversationLibrary,
        *,
        durability: Durability = "power-loss",
        lock_timeout_seconds: float = 10.0,
        redact: Redact | None = None,
    ) -> None:
        self._home = home_at(directory)
        self._options = OpenOptions.of(self._home, durability, lock_timeout_seconds, redact)
        self._max_bytes = self._options.store(
            self._home, id_for_key(FRAMEWORK)
        ).max_line_bytes  # which checks the options

    def __repr__(self) -> str:
        return f"TranscriptSessionStore({path_of(self._home)!r})"

    # ---- the protocol --------------------------------------------------------------------------------------------

    async def append(self, key: Key, entries: Sequence[Entry]) -> None:
        """Store a batch; on return it is durable. Without entries nothing is written.

        Raises:
            TypeError: JSON cannot hold an entry, or this is not a list. Nothing was stored.
            InvalidMessageError: an entry is too long. Nothing was stored.
            RedactionError: ``redact`` raised, or gave no object. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        require_items("entries", entries)
        redact = of_items(self._options.redact)
        given = [NewEntry.of(entry, f"entries[{k}]", self._max_bytes, redact) for k, entry in enumerate(entries)]
        if given:
            for life in count():
                async with conversation(*self._place(key, life), self._options) as found:
                    try:
                        await found.call(
                            partial(self._append, found, key, given), partial(self._begin, found, key, given)
                        )
                        return
                    except ConversationNotFoundError:  # it was deleted, and on a backend an id has one life
                        if is_folder(self._home):
                            raise

    async def load(self, key: Key) -> list[Entry] | None:
        """The entries in order, unchanged; None if nothing was stored under this key.

        Raises:
            TranscriptStoreError: the session cannot be read. It is never treated as empty.
        """
        life = 0
        while True:
            async with conversation(*self._place(key, life), self._options) as found:
                entries = await found.call(sdk_entries)
                if entries is not None or is_folder(self._home) or not await found.awaited.exists():
                    return entries
            life += 1

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """The sessions of a project with the times of their last entries, in milliseconds since 1970; in any order.

        A session whose metadata is damaged is not listed, since its key is unknown; ``transcript-store list`` shows it.

        Raises:
            StorageError: the folder cannot be read.
        """
        sessions = await self._sessions(project_key, extra=False)
        return [{"session_id": session, "mtime": _mtime(one)} for session, one in sessions]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """The SDK's summary of each session of a project. One line of each transcript is read.

        Raises:
            StorageError: the folder cannot be read.
        """
        sessions = await self._sessions(project_key, extra=True)
        data = [(session, one, restored_extra(one.last_extra).get("summary")) for session, one in sessions]
        return [
            {"session_id": session, "mtime": _mtime(one), "data": summary}
            for session, one, summary in data
            if summary is not None
        ]

    async def delete(self, key: Key) -> None:
        """Delete a session with its sub-agents, or one sub-agent. A missing one counts as deleted.

        After a crash before the return, some sub-agents are deleted and others are not; the session itself goes last.

        Raises:
            TranscriptStoreError: as ``ConversationLibrary.delete``.
        """
        if key.get("subpath") is None:
            home = self._subagents(key)
            for one in await self._subagents_of(key):
                await self._delete(home, os.path.basename(one.directory))
            if isinstance(home, str):
                with suppress(OSError):  # another program put a file there, or it was deleted already
                    os.rmdir(home)
        for life in count():
            if not await self._delete(*self._place(key, life)):
                return

    async def list_subkeys(self, key: Key) -> list[str]:
        """The paths of the session's sub-agents, in any order.

        Raises:
            StorageError: the folder cannot be read.
        """
        keys = [_key_in(one) for one in await self._subagents_of(key)]
        return [found[2] for found in keys if found is not None and found[2] is not None]

    # ---- besides -------------------------------------------------------------------------------------------------

    def directory(self, key: Key) -> str:
        """The folder of the conversation that belongs to a key; on a backend, what errors call it."""
        home, name = self._place_now(key)
        return f"{path_of(home)}/{name}"

    def conversation(self, key: Key) -> ConversationStore:
        """The conversation underneath, loaded to read: use it in a ``with`` statement, or close it.

        Raises:
            ConversationNotFoundError: nothing was stored under this key.
            TranscriptStoreError: as ``ConversationStore.load``.
        """
        return to_read(*self._place_now(key))

    def close(self) -> None:
        """Close the sessions' files. The next call opens the needed ones again. No other process waits for this."""
        close_within(self._home)

    # ---- within --------------------------------------------------------------------------------------------------

    def _project(self, project_key: str) -> Home:
        if not isinstance(self._home, str):
            return self._home
        name = project_key if _A_NAME.fullmatch(project_key) else id_for_key(FRAMEWORK, project_key)
        return f"{self._home}/{name}"

    def _subagents(self, key: Key) -> Home:
        if not isinstance(self._home, str):
            return self._home
        main = id_for_key(FRAMEWORK, key["project_key"], key["session_id"])
        return f"{self._project(key['project_key'])}/{_SUBAGENTS}/{main}"

    def _place(self, key: Key, life: int = 0) -> tuple[Home, str]:
        """Where the conversation is, and its id. On a backend an id that was deleted stays deleted: the next one has another life."""
        subpath = key.get("subpath")
        home = self._project(key["project_key"]) if subpath is None else self._subagents(key)
        parts = [key["project_key"], key["session_id"], *([] if subpath is None else [subpath])]
        if life:
            parts = [json.dumps(parts), "life", str(life), ""]  # no key has four parts
        return home, id_for_key(FRAMEWORK, *parts)

    def _place_now(self, key: Key) -> tuple[Home, str]:
        """Where it is in the last life that there was; in the first if there was none."""
        home, name = self._place(key)
        if not isinstance(home, str):
            for life in count(1):
                later = self._place(key, life)[1]
                if is_folder(home) or not home.store(later, read_only=True).exists():
                    break
                name = later
        return home, name

    async def _sessions(self, project_key: str, *, extra: bool) -> list[tuple[str, ConversationSummary]]:
        found = [(_key_in(one), one) for one in await _listed(self._project(project_key), last_extra=extra)]
        return [
            (key[1], one)
            for key, one in found
            if key is not None and key[0] == project_key and key[2] is None and one.updated_at is not None
        ]

    async def _subagents_of(self, key: Key) -> list[ConversationSummary]:
        own = key["project_key"], key["session_id"]
        found = [(_key_in(one), one) for one in await _listed(self._subagents(key))]
        if isinstance(self._home, str):  # they are in a folder of their own
            return [one for _, one in found]
        return [one for its, one in found if its is not None and its[:2] == own and its[2] is not None]

    async def _delete(self, home: Home, id: str) -> bool:
        """Delete it, if it exists; whether it may be created again."""
        async with conversation(home, id, self._options) as found:
            await found.awaited.call(partial(_delete, found, home, self._options.lock_timeout_seconds))
            return not is_folder(home) and await found.awaited.exists()

    def _append(self, found: Conversation, key: Key, given: Sequence[NewEntry], store: ConversationStore) -> None:
        memo: Memo = found.memo or Memo.read(store)
        read = [one.read() for one in given]
        while True:
            found.memo = memo
            if new := memo.new_ones(read):
                messages, extras, summary = self._records(key, new, memo.summary)
                with suppress(ConversationChangedError):  # another process was faster: its entries may be among these
                    memo.note(new, store.append_messages(messages, extras=extras, if_head=memo.head)[-1], summary)
                    return
            elif memo.head == store.head:
                return
            memo = Memo.read(store, memo)

    def _begin(self, found: Conversation, key: Key, given: Sequence[NewEntry], store: ConversationStore) -> None:
        messages, extras, _ = self._records(key, Memo().new_ones(one.read() for one in given), None)
        name = readable(key.get("subpath") or key["session_id"])
        store.initialize(
            id=found.id,
            provider=FRAMEWORK,
            labels={_KEY: json.dumps([key["project_key"], key["session_id"], key.get("subpath")]), "title": name},
            messages=messages,
            extras=extras,
        )

    def _records(
        self, key: Key, new: Sequence[StoredEntry], before: Any
    ) -> tuple[list[EncodedMessage | None], list[EncodedMessage], Any]:
        """Messages and extras; and the session's summary, which the last extra has. A sub-agent has none."""
        summary = None
        if key.get("subpath") is None:
            known = None if before is None else {"session_id": key["session_id"], "mtime": 0, "data": before}
            summary = fold_session_summary(known, key, [one.entry for one in new])["data"]
        extras = [*(one.given.around for one in new[:-1]), new[-1].given.with_summary(summary, self._max_bytes)]
        return [one.given.message for one in new], extras, summary


async def _listed(home: Home, *, last_extra: bool = False) -> list[ConversationSummary]:
    library = ConversationLibrary(home) if isinstance(home, str) else home
    return await anyio.to_thread.run_sync(_read, library, last_extra, is_folder(home))


def _read(library: ConversationLibrary, last_extra: bool, in_a_folder: bool) -> list[ConversationSummary]:
    """A list on a backend has no extras, and no list has those of a sealed conversation: each is read for them."""
    found = []
    for one in iter_with_labels(library, last_extra=last_extra and in_a_folder):
        if not last_extra or (in_a_folder and not one.sealed):
            found.append(one)
        elif _key_in(one) is not None:
            with suppress(ConversationNotFoundError), library.open(one.id or "", read_only=True) as store:
                found += [replace(one, updated_at=each.at, last_extra=each.extra) for each in store.get_records(last=1)]
    return found


def _key_in(summary: ConversationSummary) -> tuple[str, str, str | None] | None:
    try:
        project, session, subpath = json.loads((summary.labels or {})[_KEY])
    except (KeyError, ValueError):
        return None
    return project, session, subpath


def _mtime(summary: ConversationSummary) -> int:
    return int(datetime.fromisoformat(summary.updated_at or "").timestamp() * 1000)


def _delete(found: Conversation, home: Home, patience_seconds: float, store: ConversationStore) -> None:
    found.memo = None
    store.close()
    until = time.monotonic() + patience_seconds
    while True:
        try:
            with suppress(ConversationNotFoundError):
                if isinstance(home, str):
                    delete_conversation(store.directory)
                else:
                    home.delete(found.id)
            return
        except ConversationLockedError:  # a call is using it
            if time.monotonic() >= until:
                raise
            time.sleep(_POLL_SECONDS)
