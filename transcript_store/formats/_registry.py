"""The formats there are, to be read and to be written."""

from transcript_store.formats._chat_exports import ChatGpt, ClaudeAi
from transcript_store.formats._claude_code import ClaudeCode
from transcript_store.formats._claude_code_lines import ClaudeCodeWriter
from transcript_store.formats._codex import Codex, CodexWriter
from transcript_store.formats._gemini_cli import GeminiCli, GeminiCliWriter
from transcript_store.formats._jsonl import JsonLines, generic_sessions
from transcript_store.formats._kimi import Kimi
from transcript_store.formats._llm_logs import LlmLogs
from transcript_store.formats._openai_agents import OpenAIAgents
from transcript_store.formats._pi import Pi, PiWriter
from transcript_store.formats._plan import SessionReader, SessionWriter

__all__ = ["READERS", "WRITERS", "generic_sessions"]

READERS: tuple[SessionReader, ...] = (
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

WRITERS: tuple[SessionWriter, ...] = (ClaudeCodeWriter(), CodexWriter(), GeminiCliWriter(), PiWriter())
"""The programs to which a conversation can be handed on."""
