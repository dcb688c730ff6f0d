"""What can go wrong with an export."""

from __future__ import annotations

from transcript_store.errors import TranscriptStoreError


class ExportError(TranscriptStoreError):
    """A conversation, or a file to be written, at ``path`` stands in the way of an export. Nothing was written."""

    path: str
    reason: str
