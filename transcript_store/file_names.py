"""The names of the files in a conversation's folder, as docs/format.md gives them, for programs that inspect paths."""

from transcript_store._os.filesystem import absolute_path
from transcript_store._os.names import KEY, LOCK, METADATA, TRANSCRIPT, generation_of, is_id

__all__ = ["KEY", "LOCK", "METADATA", "TRANSCRIPT", "absolute_path", "generation_of", "is_id"]
