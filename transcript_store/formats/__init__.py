"""Other programs' histories, a format a module: pure functions from bytes or rows to a :class:`SessionPlan`, and back. No I/O, no clock.

What is said in a conversation needs none of them, so they are imported when somebody asks for ``READERS`` or ``WRITERS``.
"""

import typing as _typing

from transcript_store._lazy import lazy_names as _opened
from transcript_store.formats._arranging import is_form_known, to_neutral
from transcript_store.formats._lines import SourceLine, SourceLines, head_of, in_another_encoding, nearly_json_lines
from transcript_store.formats._neutral import Block, Call, Media, NeutralMessage, Other, Result, Text, Thinking
from transcript_store.formats._outgoing import OutgoingConversation, handed
from transcript_store.formats._packing import (
    original_lines,
    pack_line,
    redacted_extra,
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
    Tables,
    WrittenSession,
)
from transcript_store.formats._trees import with_branches

if _typing.TYPE_CHECKING:
    from transcript_store.formats._registry import READERS, WRITERS, generic_sessions
else:
    __getattr__, __dir__ = _opened(__name__, "_registry")

__all__ = [
    "READERS",
    "WRITERS",
    "Block",
    "Call",
    "Format",
    "ImportFinding",
    "Loss",
    "Media",
    "NeutralMessage",
    "Other",
    "OutgoingConversation",
    "PlannedRecord",
    "Result",
    "SessionFolder",
    "SessionPlan",
    "SessionReader",
    "SessionWriter",
    "Source",
    "SourceHead",
    "SourceLine",
    "SourceLines",
    "Tables",
    "Text",
    "Thinking",
    "WrittenSession",
    "generic_sessions",
    "handed",
    "head_of",
    "in_another_encoding",
    "is_form_known",
    "nearly_json_lines",
    "original_lines",
    "pack_line",
    "redacted_extra",
    "redacted_plan",
    "redacted_record",
    "redaction_of",
    "to_neutral",
    "unpack_line",
    "with_branches",
]
