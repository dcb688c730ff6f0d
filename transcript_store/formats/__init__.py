"""Other programs' histories, a format a module: pure functions from bytes or rows to a :class:`Plan`, and back. No I/O, no clock.

What is said in a conversation needs none of them, so they are imported when somebody asks for ``READERS`` or ``WRITERS``.
"""

import typing as _typing

from transcript_store._doors import opened as _opened
from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking, Turn
from transcript_store.formats._format import Format, Place
from transcript_store.formats._handing_on import Handed, handed
from transcript_store.formats._left import with_branches
from transcript_store.formats._lines import Line, Lines, head_of
from transcript_store.formats._nearly import in_another_encoding, nearly_lines
from transcript_store.formats._original import original, pack, unpack
from transcript_store.formats._plan import Entry, Finding, Head, Loss, Plan, Reader, Source, Tables, Writer, Written
from transcript_store.formats._redacted import redacted_extra, redacted_plan, redacted_record, redaction_of
from transcript_store.formats._turns import is_form_known, turns_of

if _typing.TYPE_CHECKING:
    from transcript_store.formats._known import READERS, WRITERS, generic_sessions
else:
    __getattr__, __dir__ = _opened(__name__, "_known")

__all__ = [
    "READERS",
    "WRITERS",
    "Block",
    "Call",
    "Entry",
    "Finding",
    "Format",
    "Handed",
    "Head",
    "Line",
    "Lines",
    "Loss",
    "Media",
    "Other",
    "Place",
    "Plan",
    "Reader",
    "Result",
    "Source",
    "Tables",
    "Text",
    "Thinking",
    "Turn",
    "Writer",
    "Written",
    "generic_sessions",
    "handed",
    "head_of",
    "in_another_encoding",
    "is_form_known",
    "nearly_lines",
    "original",
    "pack",
    "redacted_extra",
    "redacted_plan",
    "redacted_record",
    "redaction_of",
    "turns_of",
    "unpack",
    "with_branches",
]
