"""Many conversations in one file or stream: new records are appended.

::

    file  := first frame*
    first := {"format":"transcript-store-backup","version":1,"at":TIME[,"key_id":TEXT,"wrapped":BASE64],"hash":HASH} LF
    frame := {"frame":N,"kind":K[,…],"bytes":B,"hash":HASH} LF content
           | {"frame":N[,"kind":"end"],"bytes":B,"hash":HASH} LF BASE64 LF    in a sealed file: a frame of the first form without its hash

=========  ===============================================  =======================================================
kind       more members                                     content
=========  ===============================================  =======================================================
lines      ``conversation``, ``life``, ``generation``       whole lines of that generation's transcript, after earlier ones
metadata   ``conversation``, ``life``[, ``folder``]         metadata.json; the folder's name, if that is not the id
key        ``conversation``, ``life``                       key.json of a sealed conversation
end        ``conversations``                                none: a run ended
=========  ===============================================  =======================================================

``hash`` is the hash of a transcript line (``_log/record``), over the frame and its content, chained to the frame before. A sealed frame
is bound to the file and to its number (``_sealing/data_key``), so no frame can be left out, moved or taken from another file.
``life`` counts the histories of one conversation that do not continue each other: the backup never removes one.

F1  The lines of a run count once the metadata after them is written. A file that ends within a frame was cut off there: the next run
    cuts that frame, and continues after the lines before it.
F2  When a run returns, it is on disk, and its ``end`` is the last frame. A stream without one was cut off.
F3  All frames before an ``end`` were synced before it was written. So a bad frame with an ``end`` after it is damage: nothing is
    written after it. Without one, a run was cut off there, whatever follows.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from transcript_store._conversation.metadata import MetadataDocument, decode_document
from transcript_store._json.times import format_time
from transcript_store._log.record import GENESIS, SUFFIX_BYTES, Position, chain_hash, close_line, record_head
from transcript_store._log.scan import PIECE_BYTES, Read
from transcript_store._os import filesystem
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import DELETED, is_id
from transcript_store._sealing.data_key import KEY_BYTES, NONCE_BYTES, DataKey
from transcript_store._sealing.keys import EncryptionKey, keyring_of
from transcript_store.backends._merging import Way, compare, on_medium
from transcript_store.backends._restoring import RemoteState, RemoteTranscript, Restored, timeless
from transcript_store.backends._slots import LogState
from transcript_store.errors import (
    ConversationLockedError,
    CorruptTranscriptError,
    KeyNeededError,
    NotSealedError,
    UnsupportedVersionError,
)

__all__ = ["BackupFile"]

FORMAT = "transcript-store-backup"
_BEGINS = b'{"format":"transcript-store-backup",'
_LONGEST_LINE = 1 << 20
_END, _LONGEST_END = re.compile(rb'\n\{"frame":\d{1,18},"kind":"end"'), 60
_DOING = "write the backup"


@dataclass(slots=True)
class _Lines:
    """The lines of a generation: the positions of their frames, and its end."""

    parts: list[tuple[int, int, int]] = field(default_factory=list)
    """For each frame: the transcript offset after it, its number, its offset in the file."""
    end: Position = Position(0, 0, GENESIS)  # noqa: RUF009 (a tuple)


@dataclass(slots=True)
class _KeptHistory:
    """One history of a conversation, as far as the file has it."""

    lines: dict[int, _Lines] = field(default_factory=dict)
    ends: dict[int, Position] = field(default_factory=dict)
    """F1: the end of each generation when its metadata was written."""
    document: bytes = b""
    key: bytes | None = None
    folder: str = ""


class _NotAFrameError(Exception):
    """These bytes are not a whole frame; the reason says why."""


class BackupFile:
    """A file with conversations, opened to read or to append; a ``with`` block closes it.

    Args:
        path: the file. With ``writes`` it is created if it is missing.
        writes: open it to append: it is locked, and the incomplete end of a killed run is cut off.
        encryption_key: seals a new file, and opens a sealed one. Sealed conversations are sealed twice.
        retired_keys: earlier keys, only to open.
        file_system: for tests.

    Raises:
        ConversationLockedError: another process is appending to it.
        CorruptTranscriptError: it is not a backup file, or damaged. A reader gets everything before the damage, and ``damage``
            has this error.
        KeyNeededError, WrongKeyError: it is sealed; give its key.
        NotSealedError: a key was given, and the file is not sealed: choose another file.
        UnsupportedVersionError: a later version of this library wrote it.
        StorageError: the system refused.
    """

    def __init__(
        self,
        path: filesystem.AnyPath,
        *,
        writes: bool = False,
        encryption_key: EncryptionKey | None = None,
        retired_keys: Any = (),
        file_system: FileSystem | None = None,
    ) -> None:
        self._files = filesystem.REAL if file_system is None else file_system
        self.name = filesystem.absolute_path(path)
        self._begin(writes, encryption_key, retired_keys)
        folder, _, self._base = self.name.rpartition("/")
        with refusals(self.name, "open the backup"):
            try:
                self._open(folder or "/", writes)
            except NotOursError as error:
                self.close()
                raise CorruptTranscriptError(path=self.name, kind="foreign", reason=error.reason) from None
            except BaseException:
                self.close()
                raise

    def _begin(self, writes: bool, encryption_key: EncryptionKey | None, retired_keys: Any) -> None:
        self._keys = keyring_of(encryption_key, retired_keys)
        self._writes = writes
        self._folder: Folder | None = None
        self._handle = -1
        self._stream: BinaryIO | None = None
        self._data_key: DataKey | None = None
        self._file_id = ""
        self._lives: dict[str, list[_KeptHistory]] = {}
        self._hash, self._frames, self._size = GENESIS, 0, 0
        self.is_complete = False
        """True if its last run ended."""
        self.is_broken = False
        """True if the system refused a write: nothing more is appended. The next run continues."""
        self.damage: CorruptTranscriptError | None = None
        """The damage after the readable part; None if there is none."""

    @classmethod
    def to_stream(cls, stream: BinaryIO, **options: Any) -> Self:
        """A backup that is written to a stream, such as a pipe; options are the keys."""
        made = cls._streamed(stream, "the stream", **options)
        made._writes = True
        made._start()
        return made

    @classmethod
    def from_stream(cls, stream: BinaryIO, folder: filesystem.AnyPath, **options: Any) -> Self:
        """A backup from a stream, which is read to its end into a file without a name in this folder; options are the keys."""
        where, size = filesystem.absolute_path(folder), 0
        with filesystem.refusals(where, "keep the stream there until its end", "Nothing was restored"):
            kept = tempfile.TemporaryFile(dir=where)  # noqa: SIM115 (closed with the backup)
        try:
            while data := stream.read(PIECE_BYTES):  # what its source refuses is no error of the folder
                with filesystem.refusals(where, "keep the stream there until its end", "Nothing was restored"):
                    kept.write(data)
                    kept.flush()
                size += len(data)
            made = cls._streamed(kept, "standard input", **options)
            made._handle = kept.fileno()
            made._read_all(size)
        except BaseException:
            kept.close()
            raise
        return made

    @classmethod
    def _streamed(
        cls, stream: BinaryIO, name: str, *, encryption_key: EncryptionKey | None = None, retired_keys: Any = ()
    ) -> Self:
        made = cls.__new__(cls)
        made._files, made.name = filesystem.REAL, name
        made._begin(False, encryption_key, retired_keys)
        made._stream = stream
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Frames since the last :meth:`finish` may not be on disk."""
        handle, self._handle = self._handle, -1
        with suppress(OSError):
            if self._stream is not None and not self._writes:
                self._stream.close()
            elif handle >= 0:
                self._files.close(handle)
        if self._folder is not None:
            with suppress(OSError):
                self._folder.close()

    # ---- read ------------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The conversations in it."""
        return [*self._lives]

    @contextmanager
    def opened(self, id: str) -> Iterator[list[RemoteState]]:
        """The histories of a conversation: more than one if it was backed up again after it had diverged."""
        yield [self._standing(id, life) for life in self._lives[id] if life.document]

    def _open(self, folder: str, writes: bool) -> None:
        self._folder = Folder.make(self._files, folder) if writes else Folder.open(self._files, folder)
        try:
            self._handle, status = self._folder.open_file(self._base, to_append=writes)
        except FileNotFoundError:
            if not writes:
                raise
            self._handle = self._files.create(self._folder.handle, self._base)
            self._folder.sync()
            status = self._files.handle_status(self._handle)
        # The lock before the size: another run may be appending.
        if writes and not self._files.try_lock(self._handle):
            raise ConversationLockedError(path=self.name, reason="another process is appending to this backup")
        size = self._files.handle_status(self._handle).st_size if writes else status.st_size
        self._read_all(size)
        if not writes:
            return
        if self.damage is not None:
            raise self.damage
        if self._size < size:  # F1: the cut is synced with the next write
            self._files.truncate(self._handle, self._size)
        if not self._size:
            self._start()
            self._folder.sync(self._handle)  # before any frame: a file without its first line is not a backup

    def _read(self, offset: int, length: int) -> bytearray:
        return self._files.read(self._handle, offset, length)

    def _read_all(self, size: int) -> None:
        """Read and verify the file; F1 and F3 say what its end may be."""
        line = self._line(0)
        if line is None and b"\n" not in self._read(0, size) and _BEGINS.startswith(self._read(0, len(_BEGINS))[:size]):
            return  # empty, or cut off in its first line
        if not self._read(0, min(size, 1 << 16)).strip(b"\0") and size < 1 << 16:
            return  # a power loss before the first line was on disk
        if line is None or not line.startswith(_BEGINS):
            reason = "it is not a backup of transcript-store"
            raise CorruptTranscriptError(path=self.name, kind="foreign", reason=reason)
        self._take_first(line)
        try:
            while self._size < size:
                self._take_frame(size)
        except _NotAFrameError as error:
            number = self._frames + 1
            # F3 distinguishes a killed run, whose end is cut, from damage, which is refused.
            if self._has_end_behind(size):
                reason = f"frame {number}, at byte {self._size}: {error}"
                self.damage = CorruptTranscriptError(path=self.name, kind="damaged-line", reason=reason)
            self.is_complete = False

    def _line(self, offset: int) -> bytes | None:
        """The line at an offset, without its line feed; None if it has no end."""
        length = 512
        while True:
            data = bytes(self._read(offset, length))
            if (end := data.find(b"\n")) >= 0:
                return data[:end]
            if len(data) < length or length >= _LONGEST_LINE:
                return None
            length *= 4

    def _take_first(self, line: bytes) -> None:
        try:
            members = orjson.loads(line)
        except orjson.JSONDecodeError:
            members = None
        if type(members) is not dict or close_line(GENESIS, line[:-SUFFIX_BYTES])[0][:-1] != line:
            raise CorruptTranscriptError(path=self.name, kind="damaged-header", reason="its first line is damaged")
        if members.get("version") != 1:
            reason = f"it is of format version {members.get('version')!r:.20}, this program reads version 1"
            raise UnsupportedVersionError(path=self.name, reason=reason)
        self._hash = self._file_id_of(line)
        self._size = len(line) + 1
        if "wrapped" in members:
            if self._keys is None:
                raise KeyNeededError(path=self.name, reason="the backup is sealed, and no key was given")
            wrapped = base64.b64decode(str(members["wrapped"]))
            self._data_key = DataKey(self._keys.unwrap(str(members["key_id"]), wrapped, self.name), self._file_id)
        # Otherwise a run that was given a key would append plaintext (P17).
        elif self._keys is not None and self._writes:
            raise NotSealedError(path=self.name, reason="a key was given, and the backup there is not sealed")

    def _file_id_of(self, line: bytes) -> bytes:
        found = line[-SUFFIX_BYTES:][len(b',"hash":"') : -len(b'"}')]
        self._file_id = found.decode()
        return found

    def _has_end_behind(self, size: int) -> bool:
        """True if the end of a run follows a bad frame. (No line of a content starts like it.)"""
        begin = self._size
        while begin < size:
            if _END.search(self._read(begin, PIECE_BYTES + _LONGEST_END)):
                return True
            begin += PIECE_BYTES
        return False

    def _take_frame(self, size: int) -> None:
        members, content, end = self._frame_at(self._size, self._frames + 1, size, self._hash)
        self._apply(members, content)
        self._size, self._frames = end, self._frames + 1

    def _frame_at(
        self, offset: int, number: int, size: int, previous: bytes | None
    ) -> tuple[dict[str, Any], bytes, int]:
        """A frame: its members, its content, and its end. It is verified with the hash of the one before."""
        line = self._line(offset)
        if line is None:
            raise _NotAFrameError("its line has no end")
        try:
            members = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise _NotAFrameError("its line is not JSON") from None
        length = members.get("bytes") if type(members) is dict else None
        if type(length) is not int or length < 0 or members.get("frame") != number:
            raise _NotAFrameError("its number is not the next one")
        begin = offset + len(line) + 1
        if begin + length > size:
            raise _NotAFrameError("it is cut off")
        content = bytes(self._read(begin, length))
        if previous is not None:
            found = chain_hash(previous, (line[:-SUFFIX_BYTES], content))
            if line[-SUFFIX_BYTES:] != b',"hash":"%b"}' % found:
                raise _NotAFrameError("its hash does not match its bytes")
            self._hash = found
        if self._data_key is not None:
            plain = self._data_key.open(content[:-1], self._associated_data(number))
            if plain is None:
                raise _NotAFrameError("the key does not open it")
            line, _, content = plain.partition(b"\n")
            members = orjson.loads(line)
        return members, content, begin + length

    def _associated_data(self, number: int) -> bytes:
        return b"transcript-store/1/backup/%b/%d" % (self._file_id.encode(), number)

    def _apply(self, members: dict[str, Any], content: bytes) -> None:
        kind, own_id, number = members.get("kind"), members.get("conversation"), members.get("life")
        self.is_complete = kind == "end"
        if kind == "end":
            return
        if type(own_id) is not str or not is_id(own_id) or type(number) is not int:
            raise _NotAFrameError("it names no conversation")
        lives = self._lives.setdefault(own_id, [])
        # A new history of the conversation; earlier ones can no longer grow.
        if number == len(lives):
            lives.append(_KeptHistory())
        elif number != len(lives) - 1:
            raise _NotAFrameError("its history has ended")
        life = lives[-1]
        if kind == "metadata":
            life.folder = _folder_name(members.get("folder"))
            # The metadata closes what was added: lines of a killed run after it do not count until the next one.
            life.document, life.ends = content, {each: lines.end for each, lines in life.lines.items()}
        elif kind == "key":
            life.key = content
        elif kind == "lines" and type(members.get("generation")) is int:
            lines = life.lines.setdefault(members["generation"], _Lines())
            end = _end_behind(lines.end, content)
            lines.parts.append((end.offset_bytes, self._frames + 1, self._size))
            lines.end = end
        else:
            raise _NotAFrameError("its kind is unknown to this version")

    def _standing(self, id: str, life: _KeptHistory) -> RemoteState:
        document = decode_document(life.document)
        number = max(life.ends, default=-1)
        if not isinstance(document, MetadataDocument) or document.members["id"] != id or number < 0:
            raise CorruptTranscriptError(path=f"{self.name}/{id}", kind="missing", reason="its metadata is missing")
        transcripts = {
            each: RemoteTranscript(self._reads(life.lines[each]), end) for each, end in sorted(life.ends.items())
        }
        for each, transcript in transcripts.items():
            header = transcript.header(f"{self.name}/{id}")[0]
            if (header.conversation, header.generation) != (id, each):
                reason = f"in the place of generation {each} is generation {header.generation} of {header.conversation}"
                raise CorruptTranscriptError(path=f"{self.name}/{id}", kind="wrong-conversation", reason=reason)
        state = LogState(
            conversation=id,
            slot=1,
            generation=number,
            members=document.members,
            end=transcripts[number].end,
            is_sealed=header.is_sealed,
        )
        return RemoteState(
            state, transcripts, frozenset({timeless(document.members)}), life.document, life.key, life.folder
        )

    def _reads(self, lines: _Lines) -> Read:
        """Reads the lines of a generation, frame by frame."""
        kept: dict[int, bytes] = {}

        def read(offset: int, length: int) -> bytearray:
            found, begin = bytearray(), 0
            for end, number, at in lines.parts:
                if end > offset and begin < offset + length:
                    if number not in kept:
                        kept.clear()
                        kept[number] = self._frame_at(at, number, self._size, None)[1]
                    found += kept[number][max(offset - begin, 0) : offset + length - begin]
                begin = end
            return found

        return read

    # ---- write -----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        more: dict[str, Any] = {}
        if self._keys is not None:
            data_key = self._files.random_bytes(KEY_BYTES)
            key_id, wrapped = self._keys.wrap(data_key, self.name)
            more = {"key_id": key_id, "wrapped": base64.b64encode(wrapped).decode()}
        at = format_time(self._files.now_us())
        line, _ = close_line(GENESIS, orjson.dumps({"format": FORMAT, "version": 1, "at": at, **more})[:-1])
        self._hash = self._file_id_of(line[:-1])
        if self._keys is not None:
            # The file's own first hash is its id: frames of another file, even with the same key, do not open.
            self._data_key = DataKey(data_key, self._file_id)
        self._put(line)

    def _put(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.write(data)
        else:
            with refusals(self.name, _DOING, "Everything backed up before is intact"):
                assert self._folder is not None
                try:
                    self._folder.write_all(self._handle, data)
                except OSError:
                    self.is_broken = True  # F3: nothing may follow a partial frame
                    with suppress(OSError):
                        self._files.truncate(self._handle, self._size)
                    raise
        self._size += len(data)

    def add(self, incoming: RemoteState) -> Restored:
        """Append the missing records of a conversation.

        Raises:
            CorruptTranscriptError: the conversation is damaged. Lines before the damage may be in the file, but do not count.
            StorageError: the system refused; the next run continues.
        """
        own_id, before = incoming.state.conversation, self._frames
        lives = self._lives.setdefault(own_id, [])
        if lives and self._is_all_there(lives[-1], incoming):
            return self._report(incoming, is_new=False, added=0, is_changed=False)
        # The source is synced first: a backup must not have a record that a power loss takes from the original.
        incoming = on_medium(incoming)
        is_new, added = not lives, 0
        if not lives or not self._grows(lives[-1], incoming):
            if lives and self._has(lives[-1], incoming):
                return self._report(incoming, is_new=False, added=0, is_changed=False)
            lives.append(_KeptHistory())
        life = lives[-1]
        live = max(life.lines, default=0)
        for number in sorted(incoming.transcripts):
            # Earlier generations are complete in the file, and never change.
            if number >= live:
                added += self._add_lines(own_id, number, incoming.transcripts[number])
        if incoming.key is not None and incoming.key != life.key:
            self._frame({"kind": "key", **self._of(own_id)}, incoming.key)
        named = {"folder": incoming.folder} if incoming.folder else {}
        if (incoming.document, incoming.folder) != (life.document, life.folder) or life.ends != {
            each: lines.end for each, lines in life.lines.items()
        }:
            self._frame({"kind": "metadata", **self._of(own_id), **named}, incoming.document)
        return self._report(incoming, is_new=is_new, added=added, is_changed=self._frames > before)

    def _report(self, incoming: RemoteState, *, is_new: bool, added: int, is_changed: bool) -> Restored:
        state = incoming.state
        return Restored(
            id=state.conversation,
            directory=f"{self.name}/{state.conversation}",
            generation=state.generation,
            record_count=state.end.seq,
            head=state.end.head.decode(),
            is_new=is_new,
            added_records=added,
            key_is_missing=state.is_sealed and incoming.key is None,
            is_changed=is_changed,
        )

    def _of(self, id: str) -> dict[str, Any]:
        return {"conversation": id, "life": len(self._lives[id]) - 1}

    def _is_all_there(self, life: _KeptHistory, incoming: RemoteState) -> bool:
        """True if the file ends in the same record, with the same metadata and key; nothing is read for this."""
        live = max(life.lines, default=-1)
        ends = (life.ends.get(live), life.lines[live].end if life.lines else None)
        is_same_key = incoming.key is None or incoming.key == life.key
        same = (incoming.state.generation, incoming.state.end, incoming.state.end) == (live, *ends)
        return same and is_same_key and (incoming.document, incoming.folder) == (life.document, life.folder)

    def _grows(self, life: _KeptHistory, incoming: RemoteState) -> bool:
        """True if the conversation continues a history in the file, which may end anywhere after a killed run."""
        number = max(life.lines, default=-1)
        if number < 0:
            return True
        transcript = incoming.transcripts.get(number)
        return transcript is not None and transcript.holds(life.lines[number].end)

    def _has(self, life: _KeptHistory, incoming: RemoteState) -> bool:
        """True if the file already has the whole conversation: a library that was set back."""
        there = self._standing(incoming.state.conversation, life) if life.document else None
        return there is not None and compare(there, incoming, self.name).way in (Way.AHEAD, Way.SAME)

    def _add_lines(self, id: str, number: int, transcript: RemoteTranscript) -> int:
        lines = self._lives[id][-1].lines.get(number)
        begin = Position(0, 0, GENESIS) if lines is None else lines.end
        part = bytearray()
        for piece in transcript.pieces(f"{self.name}/{id}", begin):
            part += piece
            # Bounded frames: a reader verifies a frame as a whole, in memory.
            if len(part) >= PIECE_BYTES:
                self._frame({"kind": "lines", **self._of(id), "generation": number}, bytes(part))
                part.clear()
        if part:
            self._frame({"kind": "lines", **self._of(id), "generation": number}, bytes(part))
        return transcript.end.seq - begin.seq

    def _frame(self, members: Mapping[str, Any], content: bytes) -> None:
        number = self._frames + 1
        inner = {"frame": number, **members}
        if self._data_key is None:
            body, stored = inner, content
        else:
            plain = orjson.dumps(inner) + b"\n" + content
            stored = (
                self._data_key.seal(self._files.random_bytes(NONCE_BYTES), plain, self._associated_data(number)) + b"\n"
            )
            body = {"frame": number} | ({"kind": "end"} if members["kind"] == "end" else {})
        line = orjson.dumps({**body, "bytes": len(stored)})[:-1]
        found = chain_hash(self._hash, (line, stored))
        begin = self._size
        self._put(b'%b,"hash":"%b"}\n%b' % (line, found, stored))
        after, self._size = self._size, begin
        self._apply(dict(members), content)
        # Only after the frame was written and understood: a refused write leaves the file as it was remembered.
        self._hash, self._frames, self._size = found, number, after

    def finish(self) -> None:
        """End a run: the appended frames are on disk, and a reader sees that the file is complete."""
        end = {"kind": "end", "conversations": len(self._lives)}
        if self._stream is not None:
            self._frame(end, b"")
            self._stream.flush()
            return
        with refusals(self.name, "sync the backup", "Whether it is on the disk is unknown; run it again"):
            assert self._folder is not None
            # Two syncs: the frames first, so that an `end` on disk proves them (F3).
            if not self.is_complete:
                self._folder.sync(self._handle)  # F3
                self._frame(end, b"")
            self._folder.sync(self._handle)

    def check(self) -> None:
        """Read the file again, from its first byte; raise unless each frame is whole, and the last one is ours."""
        if self._stream is not None:
            return
        with refusals(self.name, "verify the backup"):
            read = BackupFile.__new__(BackupFile)
            read._files, read.name = self._files, self.name
            read._begin(False, None, ())
            read._keys, read._handle = self._keys, self._handle
            read._read_all(self._size)
        if read.damage is not None:
            raise read.damage
        if (read._size, read._hash) != (self._size, self._hash):
            reason = "the file does not have the written bytes"
            raise CorruptTranscriptError(path=self.name, kind="rewritten", reason=reason)


def _folder_name(found: object) -> str:
    """The name of a folder, if it is one: a text in a file is never a path."""
    if (
        not isinstance(found, str)
        # A backup may come from another person: its names must not lead out of the library, nor hide in it.
        or found.startswith(".")
        or "/" in found
        or not found.isprintable()
        or found == DELETED
    ):
        return ""
    return found if len(found.encode("utf-8", "replace")) <= 255 else ""


def _end_behind(before: Position, content: bytes) -> Position:
    """The end of a transcript after whole lines."""
    if not content.endswith(b"\n"):
        raise _NotAFrameError("its content is not whole lines")
    begin = content.rfind(b"\n", 0, -1) + 1
    last = content[begin:-1]
    found = record_head(last)
    if found is None and not last.startswith(b'{"format":'):
        raise _NotAFrameError("its last line is not a record")
    head = last[-SUFFIX_BYTES:][len(b',"hash":"') : -len(b'"}')]
    return Position(found.seq if found else 0, before.offset_bytes + len(content), head)
