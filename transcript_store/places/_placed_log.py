"""One conversation on a place: created, claimed, appended to, read back verified.

======================  ================  ====================================================================================
call                    from              to
======================  ================  ====================================================================================
create, load            any               OWNER; NEW if it is refused, or if nobody knows whether the claim is in place
load(read_only=True)    any               READER; NEW if it is refused
append, replace, …      OWNER             OWNER, also if the outcome is unknown; DEPOSED if another writer claimed
refresh                 READER, OWNER     the same; DEPOSED if another writer claimed
release, delete         OWNER             NEW
get_…, iter_…           all but NEW       the same
======================  ================  ====================================================================================
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import orjson

from transcript_store._conversation.arguments import changed, changes, entries
from transcript_store._conversation.metadata import (
    CHANGEABLE,
    ConversationMetadata,
    checked_fields,
    checked_id,
    new_members,
    public,
    require_to_fit,
)
from transcript_store._json.times import format_time, parse_time
from transcript_store._log.log import AppendResult
from transcript_store._log.record import (
    DAY_US,
    GENESIS,
    SINGLE,
    Batch,
    Entry,
    Position,
    Record,
    Stamp,
    as_record,
    close_line,
    header_body,
    record_body,
)
from transcript_store.errors import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    InvalidMessageError,
    ReadOnlyError,
)
from transcript_store.places._claimed import PACK_EACH, WAITS_SECONDS, ClaimedLog
from transcript_store.places._errors import ConversationTakenOverError, PlaceError
from transcript_store.places._place import Place
from transcript_store.places._slots import LogState, encoded
from transcript_store.ways_out import WayOut

__all__ = ["PlacedLog"]

IDLE_SECONDS = 60
"""Who has written nothing for so long may be taken over without being asked for it. Politeness only: no promise needs it."""


class Mode(Enum):
    """What may be done with a log; the table above says which call leads from which to which."""

    NEW = "nothing was loaded or created yet, or it was released"
    READER = "it can be read, and refreshed"
    OWNER = "the claim is ours, as far as we know"
    DEPOSED = "another writer claimed it; what was read can be read"


class PlacedLog:
    """One conversation on a place. Several hosts may have one each; one of them writes, and the others are told who it is.

    Any number of threads may use it. What was read is in memory.

    Args:
        place: where it lives.
        id: of the conversation, a canonical lower-case UUID. ``str(uuid.uuid4())`` makes one.
        holder: what a writer that is deposed is told of this one, beside host and pid: a name for people.
        max_line_bytes: the longest line that an append may make.
        pack_each: on a place that packs, how many slots are packed together, by the way: after a write, and at a release if there are
            a 32nd of them. 0 leaves it to ``pack()``.
        waits_seconds: how long to wait between two attempts of a call that nobody answers.
        now_us: the clock, in microseconds since 1970. It stamps records; nothing that is promised needs it.
        sleep: waits so many seconds.
        random_bytes: makes so many random bytes: the token of a claim.
    """

    def __init__(
        self,
        place: Place,
        id: str,
        *,
        holder: str = "",
        max_line_bytes: int = 64 * 2**20,
        pack_each: int = PACK_EACH,
        waits_seconds: Sequence[float] = WAITS_SECONDS,
        now_us: Callable[[], int] | None = None,
        sleep: Callable[[float], None] | None = None,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self._log = ClaimedLog(
            place, checked_id(id), waits_seconds=waits_seconds, sleep=sleep or time.sleep, pack_each=pack_each
        )
        self._mode = Mode.NEW
        self._holder = {"name": holder, "host": socket.gethostname(), "pid": os.getpid()}
        self._max_line_bytes = max_line_bytes
        self._now_us = now_us or _now_us
        self._random_bytes = random_bytes or secrets.token_bytes
        self._pid = os.getpid()
        self._lock = threading.RLock()

    # ---- begin and end ---------------------------------------------------------------------------------------------------

    def create(
        self,
        *,
        messages: Iterable[Mapping[str, Any]] = (),
        extras: Iterable[Mapping[str, Any] | None] | None = None,
        **metadata: Any,
    ) -> None:
        """Begin the conversation and claim it. On return, it is stored whole.

        Args:
            messages: those that it begins with, each a JSON object.
            extras: one for each message, or None.
            metadata: ``provider``, ``model``, ``system_prompt``, ``tools``, ``labels``, ``compaction_count``.

        Raises:
            ConversationExistsError: there is one with this id; nothing was changed.
            ConversationNotFoundError: one with this id was deleted, and its content was removed. Take another id.
            PlaceError: the outcome is unknown. ``load()`` tells: it loads what was stored, or finds nothing.
        """
        with self._lock:
            self._require_this_process()
            if unknown := metadata.keys() - set(CHANGEABLE):
                raise TypeError(f"a conversation has no {', '.join(sorted(unknown))} to begin with")
            fields = checked_fields(metadata, self._max_line_bytes)
            first = entries(messages, extras, None, self._max_line_bytes)
            self._mode = Mode.NEW
            log = self._log
            log.state, log.lines = LogState(conversation=log.id), bytearray()

            def make(state: LogState, token: str) -> bytes:
                now = self._stamp(state)
                members = new_members(now[1], id=log.id, **fields)
                return self._generation(state, now, members, first, {}, token=token, holder=self._holder)

            def may(state: LogState) -> None:
                if state.slot:
                    raise ConversationExistsError(path=log.path, reason="there is a conversation")

            self._claim(make, may)

    def load(self, *, take_over: bool = False, read_only: bool = False) -> None:
        """Read the conversation, verify it, and claim it. On return, no append of an earlier writer is acknowledged any more
        that is not read here.

        Args:
            take_over: claim it even if its last writer has not released it, and wrote within the last minute.
            read_only: read it, and claim nothing. ``refresh()`` takes in what came since.

        Raises:
            ConversationNotFoundError: there is none with this id.
            ConversationLockedError: it has a writer; ``take_over=True`` takes it over.
            CorruptTranscriptError: it does not verify, seen twice. ``kind`` says how.
            PlaceError: nobody answers, or nobody knows whether the claim is in place. ``load()`` again.
        """
        with self._lock:
            self._require_this_process()
            log, self._mode = self._log, Mode.NEW
            while True:
                log.load_patiently()
                if log.state.is_deleted:
                    raise ConversationNotFoundError(path=log.path, reason="the conversation was deleted")
                if read_only:
                    self._mode = Mode.READER
                    return
                if self._claim(self._claiming, lambda state: self._may_claim(state, take_over=take_over)):
                    return

    def _claim(self, make: Callable[[LogState, str], bytes], may: Callable[[LogState], None]) -> bool:
        if not self._log.claim(make, self._random_bytes(16).hex(), may):
            return False
        self._mode = Mode.OWNER
        return True

    def _claiming(self, state: LogState, token: str) -> bytes:
        return encoded(state, "claim", self._stamp(state)[1], token=token, holder=self._holder)

    def _may_claim(self, state: LogState, *, take_over: bool) -> None:
        if state.is_deleted:
            raise ConversationNotFoundError(path=self._log.path, reason="the conversation was deleted")
        claim = state.claim
        idle_us = self._now_us() - parse_time(state.at)
        if take_over or claim is None or state.is_released or self._log.is_ours or idle_us >= IDLE_SECONDS * 1_000_000:
            return
        raise ConversationLockedError(
            path=self._log.path,
            reason=f"it has a writer since {claim.at}; take_over=True takes it over",
            holder_pid=claim.holder.get("pid"),
            holder_host=claim.holder.get("host"),
        )

    def release(self) -> None:
        """Say that nobody has the conversation: the next one need not take it over. Nothing happens if another writer has it."""
        with self._lock:
            if self._mode is not Mode.OWNER:
                return
            with suppress(ConversationTakenOverError):
                self._write(lambda state: encoded(state, "release", self._stamp(state)[1]), "release the conversation")
            self._mode = Mode.NEW

    def delete(self) -> None:
        """Delete the conversation: from now on it is not there. ``Place.expunge`` removes its content."""
        with self._lock:
            self._write(lambda state: encoded(state, "deleted", self._stamp(state)[1]), "delete the conversation")
            self._mode = Mode.NEW

    # ---- write -----------------------------------------------------------------------------------------------------------

    def append_message(self, message: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None) -> AppendResult:
        """Append one message; see :meth:`append_messages`."""
        return self.append_messages([message], extras=[extra])[0]

    def append_messages(
        self,
        messages: Iterable[Mapping[str, Any] | None],
        *,
        extras: Iterable[Mapping[str, Any] | None] | None = None,
        if_head: str | None = None,
    ) -> list[AppendResult]:
        """Append messages as one batch, which is whole or absent. On return, it is as durable as the place makes things.

        Args:
            messages: each a JSON object, or None for an event, which has only an extra.
            extras: one for each message, or None.
            if_head: append only if the transcript ends in this hash.

        Raises:
            ConversationTakenOverError: another writer claimed the conversation. Nothing of this call is stored.
            ConversationChangedError: ``if_head`` does not fit. Nothing of this call is stored.
            PlaceError: nobody answered in time, and whether it is stored is unknown. The next call finds out; then ``outcome(error)``
                tells.
            InvalidMessageError: a message cannot be carried. Nothing of this call is stored.
        """
        given = entries(messages, extras, None, self._max_line_bytes)
        with self._lock:
            if not given:
                self._require(Mode.OWNER)
                return []
            stored: list[AppendResult] = []

            def make(state: LogState) -> bytes:
                if if_head is not None and if_head != state.end.head.decode():
                    raise ConversationChangedError(
                        path=self._log.path,
                        reason="the transcript does not end where it did",
                        expected_head=if_head,
                        head=state.end.head.decode(),
                    )
                now = self._stamp(state)
                lines, end, stored[:] = self._lines(state.end, given, now)
                return encoded(state, "append", now[1], lines=lines, end=end)

            self._write(make, "append to the conversation")
            return stored

    def replace_transcript(
        self, messages: Iterable[Mapping[str, Any]], *, extras: Iterable[Mapping[str, Any] | None] | None = None
    ) -> None:
        """Begin the next generation with these messages. It is whole or absent; the one before stays in its slots."""
        given = entries(messages, extras, None, self._max_line_bytes)
        with self._lock:

            def make(state: LogState) -> bytes:
                now = self._stamp(state)
                members = {**state.members, "generation": state.generation + 1, "updated_at": now[1]}
                replaces = {"generation": state.generation, "records": state.end.seq, "head": state.end.head.decode()}
                return self._generation(state, now, members, given, {"replaces": replaces})

            self._write(make, "replace the transcript")

    def update_metadata(self, **given: Any) -> None:
        """Change ``model``, ``system_prompt``, ``tools``, ``labels`` or ``compaction_count``; whole or absent."""
        checked = changes(given, self._max_line_bytes)
        with self._lock:

            def make(state: LogState) -> bytes:
                at = self._stamp(state)[1]
                members = {**changed(state.members, checked), "updated_at": at}
                require_to_fit(members)
                return encoded(state, "metadata", at, metadata=members)

            self._write(make, "change the metadata")

    def pack(self, *, tidy: bool = False) -> int:
        """On a place that packs, join the slots that no pack holds; returns how many. ``tidy`` removes those that may go then."""
        with self._lock:
            self._require(Mode.OWNER)
            return self._log.pack_patiently(tidy=tidy)

    def outcome(self, error: PlaceError) -> bool | None:
        """Whether the write is stored that ended in this error; None as long as it is unknown. ``refresh()``, and any write, find out."""
        return None if error.slot_hash is None else self._log.outcome(error.slot_hash)

    def _write(self, make: Callable[[LogState], bytes], doing: str) -> None:
        self._require(Mode.OWNER)
        try:
            self._log.write(make, doing)
        except ConversationTakenOverError:
            self._mode = Mode.DEPOSED
            raise

    def _generation(
        self,
        state: LogState,
        now: Stamp,
        members: dict[str, Any],
        given: Sequence[Entry],
        in_header: dict[str, Any],
        **more: Any,
    ) -> bytes:
        require_to_fit(members)
        body = header_body(
            conversation=members["id"], generation=members["generation"], at=now[1], metadata=members, **in_header
        )
        header, head = close_line(GENESIS, body)
        parts, end = [header], Position(0, len(header), head)
        for entry in given:  # a record that begins a generation has no batch, as in a folder
            line, end, _ = self._lines(end, [entry], now)
            parts.append(line)
        return encoded(state, "generation", now[1], lines=b"".join(parts), end=end, **more)

    def _lines(self, begin: Position, given: Sequence[Entry], now: Stamp) -> tuple[bytes, Position, list[AppendResult]]:
        lines: list[bytes] = []
        stored: list[AppendResult] = []
        first, offset, head = begin
        _, at, clock = now
        for k, (message, extra, _) in enumerate(given, 1):
            batch = SINGLE if len(given) == 1 else Batch(k, len(given))
            previous = head.decode()
            line, head = close_line(head, *record_body(first + k, at.encode(), message, extra, clock, batch))
            if len(line) > self._max_line_bytes:
                reason = f"makes a line of {len(line):,} bytes, more than max_line_bytes ({self._max_line_bytes:,})"
                raise InvalidMessageError(member=f"messages[{k - 1}]", reason=reason)
            stored.append(AppendResult(first + k, at, offset, len(line), head.decode(), previous))
            lines.append(line)
            offset += len(line)
        return b"".join(lines), Position(first + len(given), offset, head), stored

    def _stamp(self, state: LogState) -> Stamp:
        """The time of what is written now; never before that of the last slot, as ``_log.log`` has it."""
        now, last = self._now_us(), parse_time(state.at) if state.at else 0
        if last - now < DAY_US:
            return max(now, last), format_time(max(now, last)), None
        return last, format_time(last), format_time(now).encode()

    # ---- read ------------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Of the conversation."""
        return self._log.id

    @property
    def epoch(self) -> int:
        """The number of the last claim that is known: a fencing token for the side effects of tools. It only grows."""
        return self._known().epoch

    @property
    def head(self) -> str:
        """The hash of the last record, or of the header: the fingerprint of the transcript."""
        return self._known().end.head.decode()

    @property
    def record_count(self) -> int:
        """How many records the live generation has."""
        return self._known().end.seq

    def refresh(self) -> int:
        """Take in what came since; returns how many slots. An owner that was deposed is told with its next write."""
        with self._lock:
            self._known()
            return len(self._log.look_patiently())

    def get_messages(self) -> list[dict[str, Any]]:
        """Every message of the live generation, in order: fresh copies."""
        return [record.message for record in self.iter_records() if record.message is not None]

    def iter_records(self) -> Iterator[Record]:
        """Every record of the live generation, in order."""
        for line in self.transcript().split(b"\n")[1:-1]:
            record = as_record(orjson.loads(line))
            assert record is not None, "a line that was taken in is a record"
            yield record

    def get_metadata(self) -> ConversationMetadata:
        """What the conversation is: a fresh copy."""
        state = self._known()
        return public(state.members, state.at)

    def transcript(self) -> bytes:
        """The live generation as a transcript.jsonl, byte for byte: what a folder would hold, and ``verify`` reads."""
        with self._lock:
            self._known()
            return bytes(self._log.lines)

    # ---- state -----------------------------------------------------------------------------------------------------------

    def _known(self) -> LogState:
        if self._mode is Mode.NEW:
            raise ConversationNotLoadedError(path=self._log.path, reason="it is not loaded")
        return self._log.state

    def _require(self, mode: Mode) -> None:
        self._require_this_process()
        self._known()
        if self._mode is Mode.DEPOSED:
            self._log.require_claim()
        if self._mode is not mode:
            raise ReadOnlyError(path=self._log.path)

    def _require_this_process(self) -> None:
        """What was loaded before a fork is the parent's: two processes with one claim would depose one another without a name."""
        if os.getpid() != self._pid:
            raise ConversationNotLoadedError(
                path=self._log.path,
                reason="it belongs to another process: open the place after the fork",
                way_out=WayOut.LOAD_HERE,
            )


def _now_us() -> int:
    return time.time_ns() // 1000
