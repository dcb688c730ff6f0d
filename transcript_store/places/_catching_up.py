"""A folder that is behind what stands on a place goes on from there. More invariants of the way between the two (S1–S4: ``_shipping``):

S5  Nothing is written into a folder unless it is an earlier state of what is on the place: its transcript is a beginning of that generation
    there, byte for byte, and its metadata is what the place said at some time. It is asked before the lock is taken, and again with it.
S6  A generation gets its place as by a replace: what ends is in the archive first, and what begins is whole and on the medium before it is
    renamed. So wherever it is cut off, the folder is a state that the conversation had, and the next run goes on.

An append would do for what is new of one generation. But many appends that are written as one may be torn anywhere by a power cut, and
what is whole behind a hole is damage. So the live transcript is written anew, too: all of it was read from the place anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from transcript_store._conversation.storage import Options, Storage
from transcript_store._conversation.writer import Writer
from transcript_store._log.image import Image
from transcript_store._log.record import Position
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.refusals import refusals
from transcript_store.errors import ConversationExistsError
from transcript_store.places._filling import metadata_of
from transcript_store.places._slots import START, LogState, Slot, lines_of


class Transcript(NamedTuple):
    """One generation as it is on the place: pieces of whole lines, and where it ends."""

    lines: list[bytes]
    end: Position


class Standing(NamedTuple):
    """What is on the place, to be a folder."""

    state: LogState
    transcripts: dict[int, Transcript]
    """By generation, in their order."""
    said: frozenset[bytes]
    """The metadata of each time, without the time of its last change."""

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> Standing:
        """What all slots of a conversation come to."""
        transcripts: dict[int, Transcript] = {}
        for slot in slots:
            if slot.kind in ("generation", "append"):
                lines = transcripts.get(slot.after.generation, Transcript([], START)).lines
                lines.append(lines_of(slot.data))
                transcripts[slot.after.generation] = Transcript(lines, slot.after.end)
        return cls(slots[-1].after, transcripts, frozenset(_timeless(slot.after.members) for slot in slots))

    def is_all_in(self, folder: Storage) -> bool:
        """Whether a folder has the transcript that the place has."""
        header, state = folder.log.header, self.state
        return (header.conversation, header.generation, folder.log.end) == (
            state.conversation,
            state.generation,
            state.end,
        )

    def has_news_for(self, folder: Storage) -> bool:
        """Whether a folder that is an earlier state lacks something."""
        is_noted = folder.mark is not None  # otherwise metadata.json is of the generation before
        return not (is_noted and self.is_all_in(folder) and _timeless(folder.members) == _timeless(self.state.members))

    def why_not_from(self, folder: Storage) -> str | None:
        """S5: why a folder is no earlier state of what is on the place; None if it is."""
        log, state = folder.log, self.state
        if log.header.conversation != state.conversation:
            return f"it is there, and is the conversation {log.header.conversation}"
        ends = f"it is there, and ends in {log.end.head.decode()} (generation {log.header.generation})"
        there = f"on the place it ends in {state.end.head.decode()} (generation {state.generation})"
        known = self.transcripts.get(log.header.generation)
        if known is None:
            return f"{ends}, which the place does not have; {there}"
        if log.end.offset_bytes > known.end.offset_bytes or not _begins(known.lines, folder):
            return f"{ends}, and is no beginning of what is on the place; {there}"
        if _timeless(folder.members) not in self.said or str(folder.members["updated_at"]) > max(
            state.at, str(state.members["updated_at"]), log.updated_at
        ):
            return f"{ends}, and its metadata was changed here; {there}"
        return None


def _begins(lines: Sequence[bytes], folder: Storage) -> bool:
    """Whether a folder's transcript is a beginning of these lines, byte for byte."""
    begin, stop = 0, folder.log.end.offset_bytes
    for piece in lines:
        if begin >= stop:
            break
        here = folder.log.read(begin, min(len(piece), stop - begin))
        if piece[: stop - begin] != here:
            return False
        begin += len(piece)
    return True


def _timeless(members: dict[str, Any]) -> bytes:
    kept = {name: value for name, value in members.items() if name != "updated_at"}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)


def catch_up(files: FileSystem, path: str, standing: Standing, key: bytes | None) -> int:
    """Bring a folder up to date that is an earlier state of the conversation; returns how many records it did not have.

    ``key`` is put beside it if there is no key file. Raises ``ConversationExistsError`` if it is no earlier state: nothing was written.
    """
    writer = Writer(files, path, Options(max_line_bytes=0))  # no key is needed: what is sealed is taken as it is
    with writer.let_go_at_the_end():
        writer.load()
        with refusals(path, "compare it with what is on the place", "It is as it was"):
            reason = standing.why_not_from(writer)
        if reason is not None:
            raise ConversationExistsError(path=path, reason=reason)
        live, end = writer.log.header.generation, writer.log.end
        due = [
            transcript
            for number, transcript in standing.transcripts.items()
            if number > live or (number == live and transcript.end != end)
        ]
        writer.go_on_with(map(_Kept, due), metadata_of(standing.state), key)
        added = sum(transcript.end.seq for transcript in due)
        return added - (end.seq if standing.transcripts[live] in due else 0)


class _Kept(Image):
    """A transcript as it is kept elsewhere, to the byte."""

    def __init__(self, transcript: Transcript) -> None:
        line, feed, _ = transcript.lines[0].partition(b"\n")
        never = (0, "", None)  # nothing is written behind it before it is loaded anew
        super().__init__(line + feed, never, never, (), cache_bytes=0)
        self._transcript = transcript

    def pieces(self) -> Iterator[bytes | bytearray]:
        yield from self._transcript.lines
        self.end = self._transcript.end
        self.cache.skip_to(self.end)
