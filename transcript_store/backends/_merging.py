"""Merge a conversation into a library in which it may have continued, equally or differently.

Invariants, which the tests name:

M1  A library never loses anything: a folder only grows, and gets labels. The history of an id stays its history.
M2  More records of one history are appended to the folder. If two histories diverge, the other one becomes a copy: a conversation whose
    id is derived from the original's and the first differing line, so the same copy has the same id everywhere.
    A sealed history cannot be rewritten without its key: it keeps its id, in a folder with another name (``ID-<8 hex>``).
M3  A copy names its original (``forked_from``), and has its lines except for id and hashes. So it becomes the original again when it is
    merged elsewhere, and no history is stored twice.
M4  A second merge changes nothing: without new records, nothing is written. A missing key.json is new, a different one is not.

Every write is that of a restore (S5, S6: ``_restoring``): checked again under the lock, and one commit for each generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import orjson

from transcript_store._conversation import layout
from transcript_store._conversation.layout import header_of, occupant
from transcript_store._conversation.metadata import REPLACED
from transcript_store._conversation.storage import Reader, StorageOptions
from transcript_store._conversation.writer import Writer
from transcript_store._log.record import FORMAT, GENESIS, SUFFIX_BYTES, Mark, Position, close_line, record_head
from transcript_store._log.scan import PIECE_BYTES
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import KEY, is_id
from transcript_store.backends._restoring import (
    Kept,
    RemoteState,
    RemoteTranscript,
    Restored,
    StagedFolder,
    encoded_document,
    standing_of_folder,
    timeless,
)
from transcript_store.errors import ConversationExistsError

_DOING = "merge the conversation"
_FORK = "forked_from"
_NEXT = "next"
"""In ``forked_from`` of a copy: the hash of the original's first line that the library's own history did not have."""
_OF_THE_LATER = ("model", "system_prompt", "tools")
"""Metadata of which the later change wins. Labels are joined; everything else belongs to the longer transcript."""


Change = Callable[[dict[str, Any]], dict[str, Any]]


class Way(Enum):
    """The relation of an incoming history to the existing one."""

    SAME = "both end in the same record"
    BEHIND = "the existing one is a prefix of the incoming one"
    AHEAD = "the incoming one is a prefix of the existing one"
    APART = "each has a record that the other lacks"


class Comparison(NamedTuple):
    """The relation of two histories, and where they diverge."""

    way: Way
    origin: dict[str, Any] | None = None
    """``forked_from`` of a copy of the incoming one, if they diverge."""


# ---- compare -----------------------------------------------------------------------------------------------------------


def compare(there: RemoteState, incoming: RemoteState, path: str) -> Comparison:
    """The relation of two histories: one hash decides, since it covers all lines before it.

    Raises ``ConversationExistsError`` if it is unknown, because the incoming generation was deleted there.
    """
    live, theirs = there.state.generation, incoming.state.generation
    number = min(live, theirs)
    # The older of the two live generations decides: the newer history has it in its archive, or states where it ended.
    if number not in there.transcripts:
        end = _stated_end(there, number, path)
        if end == layout.End(incoming.state.end.seq, incoming.state.end.head.decode()):
            return Comparison(Way.AHEAD)
        reason = f"generation {number} was deleted here, so it is unknown whether the incoming one is part of it; restore it elsewhere"
        raise ConversationExistsError(path=path, reason=reason)
    ours = there.transcripts[number]
    if number not in incoming.transcripts:
        if _stated_end(incoming, number, path) == layout.End(ours.end.seq, ours.end.head.decode()):
            return Comparison(Way.BEHIND)
        return Comparison(Way.APART, _parting(there, incoming, path))
    other = incoming.transcripts[number]
    # A generation that has a successor can no longer grow, so only a live end may lie within the other history.
    is_behind = live == number and other.holds(ours.end)
    is_ahead = theirs == number and ours.holds(other.end)
    if is_behind or is_ahead:
        return Comparison(Way.SAME if is_behind and is_ahead else Way.BEHIND if is_behind else Way.AHEAD)
    return Comparison(Way.APART, _parting(there, incoming, path))


def _parting(there: RemoteState, incoming: RemoteState, path: str) -> dict[str, Any]:
    """Where two histories diverge: the first incoming line that is missing, in the first differing generation."""
    number = 0
    for number in sorted({*there.transcripts} & {*incoming.transcripts}):
        ours, other = there.transcripts[number], incoming.transcripts[number]
        if other.holds(ours.end) and ours.holds(other.end):
            continue
        if ours.holds(other.end):
            break  # the difference is what ended or replaced it
        if other.holds(ours.end):
            return _apart(incoming, number, ours.end, _line_at(other, ours.end.offset_bytes))
        offset, before = _first_difference(ours, other)
        return _apart(incoming, number, before, _line_at(other, offset))
    later = [each for each in incoming.transcripts if each > number] or [min(incoming.transcripts)]
    following = incoming.transcripts[min(later)]
    line = bytes(following.read(0, following.header(path)[1].offset_bytes - 1))
    return _apart(incoming, number, following.end, line)


def _stated_end(standing: RemoteState, number: int, path: str) -> layout.End | None:
    """The end of a deleted generation, from the next one's header."""
    following = standing.transcripts.get(number + 1)
    header = None if following is None else following.header(path)[0]
    return layout.end_of(number, standing.state.conversation, header, standing.state.members)


def _apart(incoming: RemoteState, number: int, common: Position, line: bytes) -> dict[str, Any]:
    """``forked_from`` of a copy. It depends only on the first differing line, so it is the same in every library."""
    seq, head = common.seq, common.head.decode()
    if line.startswith(FORMAT):
        replaces = orjson.loads(line).get("replaces") or {}
        number, seq = replaces.get("generation", 0), replaces.get("records", 0)
        head = replaces.get("head", GENESIS.decode())
    return {
        "conversation": incoming.state.conversation,
        "generation": number,
        "seq": seq,
        "head": head,
        _NEXT: line[-SUFFIX_BYTES:][len(b',"hash":"') : -len(b'"}')].decode(),
    }


def _line_at(transcript: RemoteTranscript, offset: int) -> bytes:
    line = bytearray()
    while (end := line.find(b"\n")) < 0 and (more := transcript.read(offset + len(line), PIECE_BYTES)):
        line += more
    return bytes(line[: end if end >= 0 else None])


def _first_difference(ours: RemoteTranscript, other: RemoteTranscript) -> tuple[int, Position]:
    """The start of the first differing line, and the position before it."""
    at, last_feed = 0, -1
    tail = b""
    while True:
        first, second = bytes(ours.read(at, PIECE_BYTES)), bytes(other.read(at, PIECE_BYTES))
        same = next((place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
        shared = first[: min(len(first), len(second)) if same is None else same]
        if (feed := shared.rfind(b"\n")) >= 0:
            last_feed = at + feed
            tail = (tail + shared[: feed + 1])[-SUFFIX_BYTES - 1 :]
        if same is not None or len(first) != len(second) or not first:
            break
        at += len(first)
    offset = last_feed + 1
    if not offset:
        return 0, Position(0, 0, GENESIS)
    head = bytes(other.read(offset - SUFFIX_BYTES - 1, SUFFIX_BYTES))[len(b',"hash":"') : -len(b'"}')]
    found = record_head(_line_at(other, offset))
    return offset, Position(found.seq - 1 if found else 0, offset, head)


# ---- a copy, and its original -------------------------------------------------------------------------------------------


def copy_id(original: str, word: str) -> str:
    """The id of a copy of a conversation; ``word`` distinguishes it from other copies."""
    return str(uuid5(UUID(original), f"transcript-store/1/copy/{word}"))


def copy_of(incoming: RemoteState, origin: Mapping[str, Any], path: str) -> RemoteState:
    """M2, M3: a history as a separate conversation. Its former ``forked_from`` is kept within the new one."""

    def change(members: dict[str, Any]) -> dict[str, Any]:
        before = {_FORK: members[_FORK]} if members.get(_FORK) else {}
        return {**members, _FORK: {**origin, **before}}

    return rewritten(incoming, copy_id(str(origin["conversation"]), str(origin[_NEXT])), change, path)


def is_copy(incoming: RemoteState) -> bool:
    """True if a merge made this copy, beside the history from which it diverged."""
    origin = incoming.state.members.get(_FORK)
    if incoming.state.is_sealed or type(origin) is not dict:
        return False
    original, word = origin.get("conversation"), origin.get(_NEXT)
    if type(original) is not str or type(word) is not str or not is_id(original):
        return False
    return incoming.state.conversation == copy_id(original, word)


def _is_there(files: FileSystem, library: str, copy: RemoteState) -> bool:
    """True if the library has the original of a copy: without it the copy stays a copy."""
    path = f"{library}/{copy.state.members[_FORK]['conversation']}"
    with refusals(path, _DOING, "Nothing was written there"):
        return occupant(files, path) is not None


def original_history(incoming: RemoteState, path: str) -> RemoteState:
    """M3: the incoming conversation, as the original if it is a copy of one."""
    while is_copy(incoming):
        origin = incoming.state.members[_FORK]
        before = origin.get(_FORK)

        def change(members: dict[str, Any], before: object = before) -> dict[str, Any]:
            if before is not None:
                return {**members, _FORK: before}
            return {name: value for name, value in members.items() if name != _FORK}

        incoming = rewritten(incoming, origin["conversation"], change, path)
    return incoming


class _LinesInMemory:
    """A transcript in memory, built line by line."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = Position(0, 0, GENESIS)

    def add(self, seq: int, body: bytes) -> None:
        line, head = close_line(self.end.head, body)
        self.data += line
        self.end = Position(seq, len(self.data), head)

    def read(self, offset: int, length: int) -> bytearray:
        return self.data[offset : offset + length]


def rewritten(
    standing: RemoteState, id: str, change: Change, path: str, records: Callable[[bytes], bytes] | None = None
) -> RemoteState:
    """A history under another id, with other metadata: each line unchanged, except the first of each generation, and the hashes.

    ``change`` returns the new metadata for the old, ``records`` the new body of a record's line. The result is deterministic, and a
    longer history gives a longer result.
    """
    old = standing.state.conversation
    made: dict[int, _LinesInMemory] = {}

    def moved(members: dict[str, Any]) -> dict[str, Any]:
        found = {**change(members), "id": id}
        if type(earlier_metadata := found.get(REPLACED)) is list:
            found[REPLACED] = [_moved_end(entry, old, id, made) for entry in earlier_metadata]
        return found

    for number in sorted(standing.transcripts):
        transcript, copy = standing.transcripts[number], _LinesInMemory()
        header = transcript.header(path)[0]
        members = {name: value for name, value in header.members.items() if name != "hash"}
        members |= {"conversation": id, "metadata": moved(header.metadata)}
        if type(replaces := members.get("replaces")) is dict and replaces.get("generation") in made:
            members["replaces"] = {**replaces, "head": made[replaces["generation"]].end.head.decode()}
        copy.add(0, orjson.dumps(members)[:-1])
        # Without the first piece, which is the header: it was rewritten above.
        for piece in islice(transcript.pieces(path), 1, None):
            for seq, line in enumerate(piece.split(b"\n")[:-1], copy.end.seq + 1):
                body = line[:-SUFFIX_BYTES]
                copy.add(seq, body if records is None else records(body))
        made[number] = copy
    state = standing.state
    members, end = moved(state.members), made[state.generation].end
    state = state._replace(conversation=id, members=members, end=end)
    transcripts = {number: RemoteTranscript(copy.read, copy.end) for number, copy in made.items()}
    document = encoded_document(members, Mark(state.generation, end))
    return RemoteState(state, transcripts, frozenset({timeless(members)}), document)


def _moved_end(entry: Any, old: str, id: str, made: Mapping[int, _LinesInMemory]) -> Any:
    """The copy's metadata about generations whose successor was deleted."""
    if type(entry) is not dict or entry.get("conversation") != old or entry.get("generation") not in made:
        return entry
    return {**entry, "conversation": id, "head": made[entry["generation"]].end.head.decode()}


# ---- merge -------------------------------------------------------------------------------------------------------------


def merge_history(files: FileSystem, library: str, incoming: RemoteState, *, mirrors: bool = False) -> Restored:
    """Merge a conversation into a library: M1 to M4. On return all of it is stored, and survives a power loss.

    If this raises, or is killed, each folder is a state that its conversation had; call it again.

    Args:
        files: the machine.
        library: the path of the library.
        incoming: the conversation.
        mirrors: the library is a copy without other writers: metadata that is not older, and key.json, are adopted unchanged.

    Raises:
        ConversationExistsError: the histories cannot be compared: the generation was deleted. Nothing was written.
        ConversationLockedError: the folder lacks something, and has a writer.
        CorruptTranscriptError: the folder or the incoming conversation is damaged.
        StorageError: the system refused.
    """
    copied_from = beside = None
    if not mirrors and is_copy(incoming) and _is_there(files, library, incoming):
        # The original may have got further here, so the copy has to be compared as the history that it came from.
        incoming = original_history(on_medium(incoming), library)
    while True:
        own_id = incoming.state.conversation
        with refusals(library, _DOING, "Nothing was written there"):
            path = beside or _path_of(files, library, incoming)
        with refusals(path, _DOING, "Nothing was written there"):
            is_new = occupant(files, path) is None
        if is_new:
            incoming = on_medium(incoming)
            try:
                StagedFolder(files, path, own_id).make(incoming, verifies=True)
            except ConversationExistsError:
                if occupant(files, path) is None:
                    raise
                continue  # another process was faster
            added = sum(transcript.end.seq for transcript in incoming.transcripts.values())
            return _report(files, path, incoming, copied_from, is_new=True, added=added, is_changed=True)
        reader = Reader(files, path, StorageOptions(max_line_bytes=0, tail_only=True))
        with reader.let_go_at_the_end(), refusals(path, _DOING, "Nothing was written there"):
            reader.load()
            there = standing_of_folder(reader)
            if there.state.conversation != own_id:
                raise ConversationExistsError(
                    path=path, reason=f"the path is taken by conversation {there.state.conversation}"
                )
            found = compare(there, incoming, path)
            if found.origin is None:
                has_news = _document(there, incoming, found.way, path, mirrors) is not None or _takes_key(
                    reader.folder, incoming, mirrors
                )
                if not has_news:
                    return _report(files, path, there, copied_from)
        # Synced only now: most conversations have nothing new, and a sync of each would slow a second restore.
        if incoming.synced is not None:
            incoming = on_medium(incoming)
            continue
        if found.origin is not None:
            copied_from = copied_from or own_id
            if incoming.state.is_sealed:
                # Sealed lines are bound to their id, so they cannot get another one: the same id in another folder.
                beside = f"{path}-{found.origin[_NEXT][:8]}"
            else:
                incoming = copy_of(incoming, found.origin, path)
            continue
        if (grown := _grow(files, path, incoming, mirrors)) is not None:
            return _report(files, path, grown[0], copied_from, added=grown[1], is_changed=True)


def on_medium(incoming: RemoteState) -> RemoteState:
    """The incoming conversation, to be written: its source is synced."""
    if incoming.synced is None:
        return incoming
    return incoming.synced()._replace(folder=incoming.folder)


def _path_of(files: FileSystem, library: str, incoming: RemoteState) -> str:
    """Its folder: that of its id, or of its former name if that is free or has this conversation."""
    by_id = f"{library}/{incoming.state.conversation}"
    if not incoming.folder or occupant(files, by_id) is not None:
        return by_id
    by_name = f"{library}/{incoming.folder}"
    if occupant(files, by_name) is None:
        return by_name
    with suppress(OSError, NotOursError), Folder.open(files, by_name) as folder:
        header = header_of(folder)
        if header is not None and header.conversation == incoming.state.conversation:
            return by_name
    return by_id


def _ends(standing: RemoteState) -> str:
    state = standing.state
    return f"record {state.end.seq} of generation {state.generation}, {state.end.head.decode()}"


def _grow(files: FileSystem, path: str, incoming: RemoteState, mirrors: bool) -> tuple[RemoteState, int] | None:
    """Write the new records into a folder, under its lock; None if the histories have diverged by now."""
    writer = Writer(
        files, path, StorageOptions(max_line_bytes=0)
    )  # no key is needed: sealed records are copied unchanged
    with writer.let_go_at_the_end():
        writer.load()
        # Compared again under the lock: its writer may have appended since the look without one.
        there = standing_of_folder(writer)
        with refusals(path, _DOING, "It is unchanged"):
            found = compare(there, incoming, path)
            if found.origin is not None:
                return None
            document = _document(there, incoming, found.way, path, mirrors)
            if incoming.key is not None and _takes_key(writer.folder, incoming, mirrors):
                writer.folder.replace_file(KEY, [incoming.key])
        if document is None:
            return there, 0
        live, end = there.state.generation, there.state.end
        due: list[int] = []
        if found.way is Way.BEHIND:
            grows = live in incoming.transcripts and incoming.transcripts[live].end != end
            due = [number for number in incoming.transcripts if number > live or (number == live and grows)]
        writer.go_on_with((Kept(incoming.transcripts[number], path) for number in due), document, incoming.key)
        added = sum(incoming.transcripts[number].end.seq for number in due) - (end.seq if live in due else 0)
        return incoming if found.way is Way.BEHIND else there, added


def _takes_key(folder: Folder, incoming: RemoteState, mirrors: bool) -> bool:
    """Whether the key file that comes is put there: in a library only if it has none. A copy takes every later one, too."""
    if incoming.key is None:
        return False
    # A library may have rotated or destroyed its key since the backup, so what it has stays.
    return folder.read_file(KEY) != incoming.key if mirrors else folder.status(KEY) is None


def _document(there: RemoteState, incoming: RemoteState, way: Way, path: str, mirrors: bool) -> bytes | None:
    """The merged metadata.json; None if nothing is new."""
    ours, theirs = there.state.members, incoming.state.members
    is_later = str(theirs["updated_at"]) >= str(ours["updated_at"])
    if (
        there.state.is_sealed or incoming.state.is_sealed
    ):  # sealed metadata cannot be merged: it is adopted completely, or not at all
        if way is Way.BEHIND:
            if not (is_later or mirrors or timeless(ours) in incoming.earlier_metadata):
                reason = f"it is sealed, it lacks new records ({_ends(incoming)}), and its metadata was changed here"
                raise ConversationExistsError(path=path, reason=reason)
            return incoming.document
        has_news = way is Way.SAME and is_later and timeless(ours) != timeless(theirs)
        return incoming.document if has_news else None
    further = incoming if way is Way.BEHIND else there
    takes = mirrors and is_later and way is not Way.AHEAD
    members = theirs if takes else joined_members(ours, theirs, further.state.members)
    if way is not Way.BEHIND and timeless(members) == timeless(ours):
        return None
    return encoded_document(members, Mark(further.state.generation, further.state.end))


def joined_members(ours: dict[str, Any], theirs: dict[str, Any], further: dict[str, Any]) -> dict[str, Any]:
    """The merged metadata of two copies of one history: every label of both; of two values, the later change wins."""
    earlier, later = sorted((ours, theirs), key=lambda members: (str(members["updated_at"]), orjson.dumps(members)))
    labels = {**(earlier.get("labels") or {}), **(later.get("labels") or {})}
    found = {**further, **{name: later[name] for name in _OF_THE_LATER if name in later}}
    # In the order of the history that got further, so that a merge which adds nothing changes no byte of its metadata.
    order = [*(further.get("labels") or {}), *sorted(labels)]
    return {**found, "labels": {name: labels[name] for name in order}, "updated_at": later["updated_at"]}


def _report(
    files: FileSystem,
    path: str,
    standing: RemoteState,
    copied_from: str | None,
    *,
    is_new: bool = False,
    added: int = 0,
    is_changed: bool = False,
) -> Restored:
    state = standing.state
    with refusals(path, "look for its key"), Folder.open(files, path) as folder:
        key_is_missing = state.is_sealed and folder.status(KEY) is None
    return Restored(
        id=state.conversation,
        directory=path,
        generation=state.generation,
        record_count=state.end.seq,
        head=state.end.head.decode(),
        is_new=is_new,
        added_records=added,
        key_is_missing=key_is_missing,
        copy_of=copied_from,
        is_changed=is_changed,
    )
