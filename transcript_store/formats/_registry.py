"""The formats there are, to be read and to be written."""

from transcript_store.formats._acp import AcpUpdates
from transcript_store.formats._aider import Aider
from transcript_store.formats._antigravity import Antigravity
from transcript_store.formats._chat_exports import ChatGpt, ClaudeAi
from transcript_store.formats._claude_code import ClaudeCode, ClaudeCodeWriter
from transcript_store.formats._cline import Cline
from transcript_store.formats._codex import Codex, CodexWriter
from transcript_store.formats._continue import Continue
from transcript_store.formats._copilot import Copilot, CopilotWriter
from transcript_store.formats._crush import Crush
from transcript_store.formats._cursor import Cursor
from transcript_store.formats._droid import Droid
from transcript_store.formats._gemini_cli import GeminiCli, GeminiCliWriter
from transcript_store.formats._goose import Goose
from transcript_store.formats._gptme import Gptme
from transcript_store.formats._grok import GrokHistory
from transcript_store.formats._hermes import Hermes
from transcript_store.formats._jsonl import JsonLines, generic_sessions
from transcript_store.formats._kimi import Kimi
from transcript_store.formats._kiro import Kiro
from transcript_store.formats._llm_logs import LlmLogs
from transcript_store.formats._openai_agents import OpenAIAgents
from transcript_store.formats._opencode import Kilo, KiloWriter, MiMoCode, OpenCode, OpenCodeWriter
from transcript_store.formats._openhands import OpenHands
from transcript_store.formats._pi import Omp, Pi, PiWriter
from transcript_store.formats._plan import SessionReader, SessionWriter
from transcript_store.formats._qwen_code import QwenCode
from transcript_store.formats._vibe import MistralVibe
from transcript_store.formats._vscode_chat import VsCodeChat
from transcript_store.formats._zed import Zed

__all__ = ["READERS", "WRITERS", "generic_sessions"]

READERS: tuple[SessionReader, ...] = (
    ClaudeCode(), Codex(), GeminiCli(), Kimi(), Copilot(), Pi(), QwenCode(), Cline(), Droid(), Cursor(), Hermes(),
    Goose(), Kiro(), Omp(), OpenHands(), MistralVibe(), Continue(), Aider(), VsCodeChat(), AcpUpdates(),
    GrokHistory(), Antigravity(), Gptme(), Crush(), Zed(), OpenAIAgents(), LlmLogs(), Kilo(), MiMoCode(), OpenCode(),
    ClaudeAi(), ChatGpt(), JsonLines(),
)  # fmt: skip
"""In the order in which they are asked: the generic one last."""

WRITERS: tuple[SessionWriter, ...] = (
    ClaudeCodeWriter(), CodexWriter(), GeminiCliWriter(), PiWriter(), OpenCodeWriter(), KiloWriter(), CopilotWriter(),
)  # fmt: skip
"""The programs to which a conversation can be handed on."""
