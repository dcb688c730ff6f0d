"""Transcripts by file position, and one row of a listing: for indexes and views, which read only what changed.

.. code-block:: python

    from transcript_store.transcripts import open_transcript

    def new_records(directory, known):
        with open_transcript(directory) as transcript:
            if not transcript.holds(known):  # replaced, repaired, or restored from a backup
                known = transcript.begin
            return list(transcript.records(known))
"""

from transcript_store._conversation.summary import ConversationSummary as ConversationSummary  # noqa: PLC0414 (for indexes: without a library)
from transcript_store._conversation.summary import summary_of
from transcript_store._conversation.transcript_file import (
    FilePosition,
    LocatedLine,
    LocatedRecord,
    TranscriptFile,
    open_transcript,
)

__all__ = ["FilePosition", "LocatedLine", "LocatedRecord", "TranscriptFile", "open_transcript", "summary_of"]
