"""Reading a damaged conversation: :func:`salvage` gives what each line of its transcript still holds, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transcript_store._conversation.metadata import ConversationMetadata, public
from transcript_store._conversation.remains import MetadataSource, Remains, opened
from transcript_store._log.retractions import TakenBack
from transcript_store._log.salvage import Salvaged, contents
from transcript_store._os import filesystem
from transcript_store._os.filesystem import FileSystem
from transcript_store._os.names import TRANSCRIPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What can still be read of a conversation, whole or damaged."""

    directory: str
    metadata: ConversationMetadata
    metadata_from: MetadataSource
    """Where the metadata comes from. Unless this is ``metadata.json``, it may be older than its last change."""
    found: tuple[Salvaged, ...]
    """The live transcript without its header, in order."""

    @property
    def is_whole(self) -> bool:
        """Whether every record verifies, and nothing stands between them or behind them."""
        return all(found.damage is None for found in self.found)


def salvage(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> Salvage:
    """Read a damaged conversation as far as that is possible. Changes nothing and takes no lock.

    The result has every record that verifies, wherever it stands. It also has every line that has the form of a record but was
    changed; ``damage`` then says so, and the content may not be what was stored. Other bytes are given by their length. So
    nothing has to be repaired before it can be read. :func:`repair` with ``mode="accept-edits"`` keeps the same records.

    The result takes memory for the whole transcript. Beside a live writer the last line may be one that is being written.

    Raises:
        ConversationNotFoundError: nothing is there; check the path.
        CorruptTranscriptError: nothing there is ours (``kind`` is ``foreign``); choose another folder.
        CorruptMetadataError: something that is not a file stands where metadata.json should be (``foreign``); move it away.
        UnsupportedVersionError: a later version wrote it; upgrade.
        StorageError: the system refuses to read it; the message says what to do.
    """
    with opened(directory, file_system, "read the conversation") as folder:
        left = Remains(folder, accepts_edits=True)
        found: tuple[Salvaged, ...] = ()
        if left.has_transcript:
            with left.reading(TRANSCRIPT) as source:
                found = _marked(list(contents(source.read, source.size, at=left.members["created_at"])))
        return Salvage(
            directory=folder.path,
            metadata=public(left.members, left.members["updated_at"]),
            metadata_from=left.metadata_from,
            found=found,
        )


def _marked(found: Sequence[Salvaged]) -> tuple[Salvaged, ...]:
    """The same, with the records marked that one behind them takes back."""
    taken_back, marked = TakenBack(), []
    for one in reversed(found):
        record = one.record
        if record is not None and record.retracts:
            taken_back.add(*record.retracts)
        is_retracted = record is not None and record.message is not None and record.seq in taken_back
        marked.append(replace(one, record=replace(record, is_retracted=True)) if record and is_retracted else one)
    return tuple(reversed(marked))
