"""The formats there are, to be read and to be written."""

from transcript_store.formats._chatgpt import ChatGpt
from transcript_store.formats._claude_ai import ClaudeAi
from transcript_store.formats._claude_code import ClaudeCode
from transcript_store.formats._claude_code_writer import ClaudeCodeWriter
from transcript_store.formats._codex import Codex
from transcript_store.formats._codex_writer import CodexWriter
from transcript_store.formats._gemini_cli import GeminiCli
from transcript_store.formats._gemini_cli_writer import GeminiCliWriter
from transcript_store.formats._jsonl import JsonLines, generic_sessions
from transcript_store.formats._kimi import Kimi
from transcript_store.formats._llm_logs import LlmLogs
from transcript_store.formats._openai_agents import OpenAIAgents
from transcript_store.formats._pi import Pi
from transcript_store.formats._pi_writer import PiWriter
from transcript_store.formats._plan import Reader, Writer

__all__ = ["READERS", "WRITERS", "generic_sessions"]

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
