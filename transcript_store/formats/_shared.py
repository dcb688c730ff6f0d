"""What readers, writers and imports share: public names of ``formats`` that a command which only shows a conversation does not load."""

from transcript_store.formats._lines import SourceLine, SourceLines, head_of, in_another_encoding, nearly_json_lines
from transcript_store.formats._outgoing import OutgoingConversation, handed
from transcript_store.formats._packing import (
    original_lines,
    pack_line,
    redacted_extra,
    redacted_fields,
    redacted_plan,
    redacted_record,
    redaction_of,
    unpack_line,
)
from transcript_store.formats._plan import (
    Format,
    ImportFinding,
    Loss,
    PlannedRecord,
    SessionFolder,
    SessionPlan,
    SessionReader,
    SessionWriter,
    Source,
    SourceHead,
    StampingReader,
    Tables,
    WrittenSession,
)
from transcript_store.formats._times import moment_of
from transcript_store.formats._trees import with_branches

__all__ = [
    "Format", "ImportFinding", "Loss", "OutgoingConversation", "PlannedRecord", "SessionFolder", "SessionPlan",
    "SessionReader", "SessionWriter", "Source", "SourceHead", "SourceLine", "SourceLines", "StampingReader", "Tables",
    "WrittenSession", "handed", "head_of", "in_another_encoding", "moment_of", "nearly_json_lines", "original_lines", "pack_line",
    "redacted_extra", "redacted_fields", "redacted_plan", "redacted_record", "redaction_of", "unpack_line",
    "with_branches",
]  # fmt: skip
