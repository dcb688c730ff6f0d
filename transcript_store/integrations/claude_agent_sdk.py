"""A session store of the Claude Agent SDK that survives a power cut.

.. code-block:: text

    from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore

    options = ClaudeAgentOptions(session_store=TranscriptSessionStore("chats"), session_store_flush="eager")

It needs the extra ``claude-agent-sdk``. It works with asyncio and with trio.

An entry is a record. What the model was told or said, an entry's ``message``, is the record's message, in Claude's form; the entry
around it is the record's extra. An entry without a message is an event. The last record of a batch has the SDK's summary of the
session too, in the same commit.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any

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
    Options,
    close_within,
    conversation,
    home_at,
    id_of,
)
from transcript_store.integrations._values import (
    of_items,
    readable,
    redacted,
    require_items,
    restored,
    restored_extra,
    stored,
)
from transcript_store.library import ConversationLibrary, ConversationSummary, delete_conversation
from transcript_store.messages import EncodedMessage, decode_message

__all__ = ["TranscriptSessionStore"]

FRAMEWORK = "claude-agent-sdk"
_KEY = f"{FRAMEWORK}.key"
"""The label that has the key, as JSON in ASCII: project, session, and the path of a sub-agent or null."""
_SUBAGENTS = "subagents"
_POLL_SECONDS = 0.002
_A_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")

Key = Mapping[str, str]
Entry = dict[str, Any]


class TranscriptSessionStore:
    """A ``SessionStore`` of the Claude Agent SDK: each session is a conversation, and each of its sub-agents.

    A project is a library in ``directory``: a folder that is called as the project, if that can be a name. An entry whose
    ``uuid`` is stored already is left out, also within one call; so a batch may be tried again. When ``append`` returns, its
    entries survive a power loss: all of them or, after a crash before that, none. Several processes may use one session; they take
    turns, and each call sees what the others stored before it.

    Args:
        directory: the folder with the projects. It is made if there is none.
        durability: as of ``ConversationStore``.
        lock_timeout_seconds: how long to wait for the turns of others. After 60 s the SDK gives a batch up.
        redact: as of ``ConversationStore``: takes out of an entry what must not be stored, before it is. It gets an entry's ``message``,
            and the rest of the entry as ``{"entry": …}``. Give the same function each time.

    Raises:
        TypeError: ``redact`` cannot be called.
        ValueError: ``directory`` is a file, or there is no such ``durability``.
        CorruptTranscriptError: any call about a session; it is damaged. ``transcript-store verify`` and ``repair`` help.
        ConversationLockedError: any call about a session; a store that holds its lock (``hold_lock=True``) has it open.
        TranscriptStoreError: any call, as ``ConversationStore``.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        durability: Durability = "power-loss",
        lock_timeout_seconds: float = 10.0,
        redact: Redact | None = None,
    ) -> None:
        self._directory = home_at(directory)
        self._options = Options(durability, lock_timeout_seconds, redact)
        self._max_bytes = self._options.store(
            self._directory, id_of(FRAMEWORK)
        ).max_line_bytes  # which checks the options

    def __repr__(self) -> str:
        return f"TranscriptSessionStore({self._directory!r})"

    # ---- the protocol --------------------------------------------------------------------------------------------

    async def append(self, key: Key, entries: Sequence[Entry]) -> None:
        """Store a batch; on return it is durable. Without entries nothing is written.

        Raises:
            TypeError: JSON cannot carry an entry, or this is no list. Nothing was stored.
            InvalidMessageError: an entry is too long. Nothing was stored.
            RedactionError: ``redact`` raised, or gave no object. Nothing was stored.
            TranscriptStoreError: as ``ConversationStore.append_messages``.
        """
        require_items("entries", entries)
        redact = of_items(self._options.redact)
        given = [_Given.of(entry, f"entries[{k}]", self._max_bytes, redact) for k, entry in enumerate(entries)]
        if given:
            async with conversation(*self._place(key), self._options) as found:
                await found.call(partial(self._append, found, key, given), partial(self._begin, found, key, given))

    async def load(self, key: Key) -> list[Entry] | None:
        """The entries in order, as they were given; None if nothing was stored under this key.

        Raises:
            TranscriptStoreError: the session cannot be read. It is never taken for an empty one.
        """
        async with conversation(*self._place(key), self._options) as found:
            return await found.call(_entries)

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """The sessions of a project with the times of their last entries, in milliseconds since 1970; in any order.

        A session whose metadata is damaged is not listed, since nothing tells its key; ``transcript-store list`` shows it.

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
        """Delete a session with its sub-agents, or one sub-agent. What is not there is deleted already.

        After a crash before the return, some sub-agents are deleted and others are not; the session itself goes last.

        Raises:
            TranscriptStoreError: as ``ConversationLibrary.delete``.
        """
        directory, name = self._place(key)
        if key.get("subpath") is None:
            subagents = self._subagents(key)
            for one in await _listed(subagents):
                await self._delete(subagents, os.path.basename(one.directory))
            with suppress(OSError):  # somebody put something there, or there is none
                os.rmdir(subagents)
        await self._delete(directory, name)

    async def list_subkeys(self, key: Key) -> list[str]:
        """The paths of the session's sub-agents, in any order.

        Raises:
            StorageError: the folder cannot be read.
        """
        keys = [_key_in(one) for one in await _listed(self._subagents(key))]
        return [found[2] for found in keys if found is not None and found[2] is not None]

    # ---- besides -------------------------------------------------------------------------------------------------

    def directory(self, key: Key) -> str:
        """The folder of the conversation that belongs to a key."""
        return "/".join(self._place(key))

    def conversation(self, key: Key) -> ConversationStore:
        """The conversation underneath, loaded to read: use it in a ``with`` statement, or close it.

        Raises:
            ConversationNotFoundError: nothing was stored under this key.
            TranscriptStoreError: as ``ConversationStore.load``.
        """
        store = ConversationStore(self.directory(key), read_only=True)
        store.load()
        return store

    def close(self) -> None:
        """Close the sessions' files. The next call opens what it needs again. No other process waits for this."""
        close_within(self._directory)

    # ---- within --------------------------------------------------------------------------------------------------

    def _project(self, project_key: str) -> str:
        name = project_key if _A_NAME.fullmatch(project_key) else id_of(FRAMEWORK, project_key)
        return f"{self._directory}/{name}"

    def _subagents(self, key: Key) -> str:
        main = id_of(FRAMEWORK, key["project_key"], key["session_id"])
        return f"{self._project(key['project_key'])}/{_SUBAGENTS}/{main}"

    def _place(self, key: Key) -> tuple[str, str]:
        subpath = key.get("subpath")
        if subpath is None:
            return self._project(key["project_key"]), id_of(FRAMEWORK, key["project_key"], key["session_id"])
        return self._subagents(key), id_of(FRAMEWORK, key["project_key"], key["session_id"], subpath)

    async def _sessions(self, project_key: str, *, extra: bool) -> list[tuple[str, ConversationSummary]]:
        found = [(_key_in(one), one) for one in await _listed(self._project(project_key), last_extra=extra)]
        return [
            (key[1], one)
            for key, one in found
            if key is not None and key[0] == project_key and one.updated_at is not None
        ]

    async def _delete(self, directory: str, id: str) -> None:
        async with conversation(directory, id, self._options) as found:
            await found.awaited.call(partial(_delete, found, self._options.lock_timeout_seconds))

    def _append(self, found: Conversation, key: Key, given: Sequence[_Given], store: ConversationStore) -> None:
        memo: _Memo = found.memo or _Memo.read(store)
        while True:
            found.memo = memo
            if new := memo.new_ones(given):
                messages, extras, summary = self._records(key, new, memo.summary)
                with suppress(ConversationChangedError):  # another process was faster: its entries may be among these
                    memo.note(new, store.append_messages(messages, extras=extras, if_head=memo.head)[-1], summary)
                    return
            elif memo.head == store.head:
                return
            memo = _Memo.read(store, memo)

    def _begin(self, found: Conversation, key: Key, given: Sequence[_Given], store: ConversationStore) -> None:
        messages, extras, _ = self._records(key, _Memo().new_ones(given), None)
        name = readable(key.get("subpath") or key["session_id"])
        store.initialize(
            id=found.id,
            provider=FRAMEWORK,
            labels={_KEY: json.dumps([key["project_key"], key["session_id"], key.get("subpath")]), "title": name},
            messages=messages,
            extras=extras,
        )

    def _records(
        self, key: Key, new: Sequence[_Given], before: Any
    ) -> tuple[list[EncodedMessage | None], list[EncodedMessage], Any]:
        """Messages and extras; and the session's summary, which the last extra has. A sub-agent has none."""
        summary = None
        if key.get("subpath") is None:
            known = None if before is None else {"session_id": key["session_id"], "mtime": 0, "data": before}
            summary = fold_session_summary(known, key, [one.entry for one in new])["data"]
        extras = [*(one.around for one in new[:-1]), new[-1].with_summary(summary, self._max_bytes)]
        return [one.message for one in new], extras, summary


@dataclass(frozen=True)
class _Given:
    """An entry that a call was given, encoded and so copied: the model's message, and the record's extra around it."""

    name: str
    message: EncodedMessage | None
    around: EncodedMessage
    redact: Redact | None

    @classmethod
    def of(cls, entry: Entry, name: str, max_bytes: int, redact: Redact | None) -> _Given:
        """Raises as ``stored()``."""
        message = entry.get("message")
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            return cls(name, None, stored({"entry": entry}, name, max_bytes), redact)
        around = {**entry, "message": None}  # which keeps the place, so that the members keep their order
        said = stored(message, f"{name}.message", max_bytes)
        return cls(name, said, stored({"entry": around}, name, max_bytes), redact)

    @cached_property
    def entry(self) -> Entry:
        """The entry as it will be read again. The SDK cuts texts for its summary, and half a secret would not be known as one."""
        return (
            _joined(restored(self._read(self.around)), None if self.message is None else self._read(self.message)) or {}
        )

    def _read(self, encoded: EncodedMessage) -> dict[str, Any]:
        plain = decode_message(encoded.text)
        return plain if self.redact is None else redacted(self.redact, plain, self.name)

    def with_summary(self, summary: Any, max_bytes: int) -> EncodedMessage:
        extra = restored(decode_message(self.around.text))
        return self.around if summary is None else stored({**extra, "summary": summary}, "summary", max_bytes)


def _joined(extra: dict[str, Any], message: dict[str, Any] | None) -> Entry | None:
    """The entry of a record; None if the record is the note of a repair."""
    entry: Entry | None = extra.get("entry")
    if entry is not None and message is not None:
        entry["message"] = restored(message)
    return entry


def _entries(store: ConversationStore) -> list[Entry]:
    while True:
        with suppress(ConversationChangedError):  # it was replaced while it was read, which are many turns
            return [entry for entry in map(_entry, store.iter_records()) if entry is not None]


def _entry(record: Record) -> Entry | None:
    return _joined(restored_extra(record.extra), record.message)


@dataclass
class _Memo:
    """What an append must know of what is stored. Others may have written since, so each append says what it knows (``head``)."""

    head: str = ""
    """What the transcript ended in before this was read: with this head, everything is known."""
    generation: int = 0
    seq: int = 0
    at: str = ""
    """When the record with that number was, the last that is known; another one stands there if the conversation is another."""
    uuids: set[str] = field(default_factory=set)
    summary: Any = None

    @classmethod
    def read(cls, store: ConversationStore, known: _Memo | None = None) -> _Memo:
        """Read what came since, or all of it if what is known is not there any more."""
        while True:
            memo = cls() if known is None else known
            try:
                if memo._has_read_on(store):
                    return memo
            except ConversationChangedError:
                pass  # it was replaced meanwhile
            known = None

    def _has_read_on(self, store: ConversationStore) -> bool:
        self.head = store.head  # first: what comes between this and the reading is seen by the append
        generation = store.get_metadata().generation
        records = store.iter_records(after_seq=max(0, self.seq - 1))
        if self.seq:
            last = next(records, None)
            if self.generation != generation or last is None or last.at != self.at:
                return False
        self.generation = generation
        for record in records:
            extra = restored_extra(record.extra)
            self.uuids.update(_uuids([extra.get("entry") or {}]))
            if extra.get("summary") is not None:
                self.summary = extra["summary"]
            self.seq, self.at = record.seq, record.at
        return True

    def new_ones(self, given: Iterable[_Given]) -> list[_Given]:
        new, seen = [], set[str]()
        for one in given:
            uuids = set(_uuids([one.entry]))
            if not uuids or uuids - seen - self.uuids:
                new.append(one)
                seen |= uuids
        return new

    def note(self, new: Sequence[_Given], last: AppendResult, summary: Any) -> None:
        self.uuids.update(_uuids(one.entry for one in new))
        self.head, self.seq, self.at = last.head, last.seq, last.at
        self.summary = summary


def _uuids(entries: Iterable[Entry]) -> Iterator[str]:
    return (entry["uuid"] for entry in entries if isinstance(entry.get("uuid"), str))


async def _listed(directory: str, *, last_extra: bool = False) -> list[ConversationSummary]:
    return await anyio.to_thread.run_sync(partial(ConversationLibrary(directory).list, last_extra=last_extra))


def _key_in(summary: ConversationSummary) -> tuple[str, str, str | None] | None:
    try:
        project, session, subpath = json.loads((summary.labels or {})[_KEY])
    except (KeyError, ValueError):
        return None
    return project, session, subpath


def _mtime(summary: ConversationSummary) -> int:
    return int(datetime.fromisoformat(summary.updated_at or "").timestamp() * 1000)


def _delete(found: Conversation, patience_seconds: float, store: ConversationStore) -> None:
    found.memo = None
    store.close()
    until = time.monotonic() + patience_seconds
    while True:
        try:
            with suppress(ConversationNotFoundError):
                delete_conversation(store.directory)
            return
        except ConversationLockedError:  # it is somebody's turn
            if time.monotonic() >= until:
                raise
            time.sleep(_POLL_SECONDS)
