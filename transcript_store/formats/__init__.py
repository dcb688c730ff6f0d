"""Other programs' histories, a format a module: pure functions from bytes or rows to a :class:`Plan`, and back. No I/O, no clock."""

from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking, Turn
from transcript_store.formats._chatgpt import ChatGpt
from transcript_store.formats._claude_ai import ClaudeAi
from transcript_store.formats._claude_code import ClaudeCode
from transcript_store.formats._claude_code_writer import ClaudeCodeWriter
from transcript_store.formats._codex import Codex
from transcript_store.formats._codex_writer import CodexWriter
from transcript_store.formats._format import Format, Place
from transcript_store.formats._gemini_cli import GeminiCli
from transcript_store.formats._gemini_cli_writer import GeminiCliWriter
from transcript_store.formats._jsonl import JsonLines
from transcript_store.formats._kimi import Kimi
from transcript_store.formats._lines import Line, Lines, head_of
from transcript_store.formats._llm_logs import LlmLogs
from transcript_store.formats._openai_agents import OpenAIAgents
from transcript_store.formats._original import original, pack, unpack
from transcript_store.formats._pi import Pi
from transcript_store.formats._pi_writer import PiWriter
from transcript_store.formats._plan import Entry, Finding, Head, Loss, Plan, Reader, Source, Tables, Writer, Written
from transcript_store.formats._redacted import covers, redacted_extra, redacted_plan, redaction_of
from transcript_store.formats._turns import is_form_known, turns_of

__all__ = [
    "READERS",
    "WRITERS",
    "Block",
    "Call",
    "Entry",
    "Finding",
    "Format",
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
    "covers",
    "head_of",
    "is_form_known",
    "original",
    "pack",
    "redacted_extra",
    "redacted_plan",
    "redaction_of",
    "turns_of",
    "unpack",
]

READERS: tuple[Reader, ...] = (
    ClaudeCode(),
    Codex(),
    GeminiCli(),
    Kimi(),
    Pi(),
    OpenAIAgents(),
    LlmLogs(),
    ClaudeAi(),
    ChatGpt(),
    JsonLines(),
)
"""In the order in which they are asked: the generic one last."""

WRITERS: tuple[Writer, ...] = (ClaudeCodeWriter(), CodexWriter(), GeminiCliWriter(), PiWriter())
"""The programs to which a conversation can be handed on."""
