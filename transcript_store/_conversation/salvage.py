"""Reading what is damaged as it is: :func:`salvage` shows what each line of a transcript still holds, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from transcript_store._conversation.metadata import ConversationMetadata, public
from transcript_store._conversation.remains import MetadataSource, Remains, opened
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
    """Where the metadata comes from. Anything but ``metadata.json`` may be older than the last change of it."""
    found: tuple[Salvaged, ...]
    """The live transcript behind its header, in its order."""

    @property
    def is_whole(self) -> bool:
        """Whether every record verifies, and nothing stands between them or behind them."""
        return all(found.damage is None for found in self.found)


def salvage(directory: filesystem.AnyPath, *, file_system: FileSystem | None = None) -> Salvage:
    """Read a damaged conversation as far as that is possible; changes nothing and takes no lock.

    Every record that verifies is there, wherever it stands, and so is every line that has the form of a record but was
    changed: its ``damage`` says so, and what it says may not be what was stored. Bytes that hold neither are there as a
    length. So nothing has to be repaired before it can be read; :func:`repair` with ``mode="accept-edits"`` keeps the same
    records. Costs memory for the whole file. Beside a live writer the last line may be one that is being written.

    Raises ``ConversationNotFoundError``, ``CorruptTranscriptError`` and ``CorruptMetadataError`` of kind ``foreign`` if nothing
    that is there is ours, ``UnsupportedVersionError``, and ``StorageError`` if the disk refuses.
    """
    with opened(directory, file_system, "read the conversation") as folder:
        left = Remains(folder, accepts_edits=True)
        found: tuple[Salvaged, ...] = ()
        if left.has_transcript:
            with left.reading(TRANSCRIPT) as source:
                found = tuple(contents(source.read, source.size, at=left.members["created_at"]))
        return Salvage(
            directory=folder.path,
            metadata=public(left.members, left.members["updated_at"]),
            metadata_from=left.metadata_from,
            found=found,
        )
