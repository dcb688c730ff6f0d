"""Other programs' histories, a format a module: pure functions from bytes or rows to a :class:`SessionPlan`, and back. No I/O, no clock.

Showing a conversation needs none of them, so the readers, and what they share, are imported on first use.
"""

# ruff: noqa: F405 (`_shared` lists its names)

import typing as _typing

from transcript_store._lazy import lazy_names as _opened
from transcript_store.formats._arranging import is_form_known, to_neutral
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._neutral import NeutralMessage

if _typing.TYPE_CHECKING:
    from transcript_store.formats._registry import READERS, WRITERS, generic_sessions
    from transcript_store.formats._shared import *
else:
    __getattr__, __dir__ = _opened(__name__, "_shared", "_registry")

__all__ = [
    "READERS", "WRITERS", "Block", "Call", "Format", "ImportFinding", "Loss", "Media", "NeutralMessage", "Other",
    "OutgoingConversation", "PlannedRecord", "Result", "SessionFolder", "SessionPlan", "SessionReader",
    "SessionWriter", "Source", "SourceHead", "SourceLine", "SourceLines", "StampingReader", "Tables", "Text",
    "Thinking", "WrittenSession", "generic_sessions", "handed", "head_of", "in_another_encoding", "is_form_known", "moment_of",
    "nearly_json_lines", "original_lines", "pack_line", "redacted_extra", "redacted_fields", "redacted_plan",
    "redacted_record", "redaction_of", "to_neutral", "unpack_line", "with_branches",
]  # fmt: skip
