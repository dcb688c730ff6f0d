"""Who is measured, in which version, and what each promises: one table."""

from __future__ import annotations

from typing import Literal, NamedTuple

Survives = Literal["a power cut", "the end of the process", "neither"]


class Contender(NamedTuple):
    """One way to keep a conversation. What it ``survives`` is meant of an append that has returned, and of all before it."""

    name: str
    driver: str
    survives: Survives
    promise: str
    requirements: tuple[str, ...] = ()
    """What its virtual environment holds; without any, it is this interpreter that runs it."""
    imports: str = ""
    """What its users have to import for it."""

    @property
    def package(self) -> str:
        """The package that is measured, and its version."""
        return self.requirements[0] if self.requirements else ""


LIMIT = Contender(
    "the limit, synced",
    "limit:WriteAndSync",
    "a power cut",
    "the bare calls on the same bytes: encode, hash, `write`, `fdatasync`; read and decode. No checks, no recovery",
)
LIMIT_UNSYNCED = Contender(
    "the limit, not synced",
    "limit:Write",
    "the end of the process",
    "the same without `fdatasync`",
)
OURS = Contender(
    "transcript_store, `power-loss`",
    "ours:PowerLoss",
    "a power cut",
    "one `fdatasync` an append; checksum chain; a torn tail is cut, damage is refused",
    imports="from transcript_store import ConversationStore",
)
OURS_UNSYNCED = Contender(
    "transcript_store, `process-crash`",
    "ours:ProcessCrash",
    "the end of the process",
    "as above without the sync: after a power cut a prefix, or an error",
    imports="from transcript_store import ConversationStore",
)
SQLITE_UNSYNCED = Contender(
    "SQLite, WAL, NORMAL",
    "standard:SqliteNormal",
    "the end of the process",
    "syncs at checkpoints only; no checksums of pages",
)
UNSYNCED = (LIMIT_UNSYNCED, OURS_UNSYNCED, SQLITE_UNSYNCED)
"""Who reads as another contender does that syncs."""

CONTENDERS: tuple[Contender, ...] = (
    LIMIT,
    OURS,
    Contender("SQLite, WAL, FULL", "standard:SqliteFull", "a power cut", "one sync a commit; no checksums of pages"),
    Contender(
        "OpenAI Agents SDK, `SQLiteSession`",
        "openai_agents:Session",
        "a power cut",
        "SQLite, WAL, FULL; a row that does not decode is skipped without a word",
        ("openai-agents==0.24.0",),
        "from agents import SQLiteSession",
    ),
    Contender(
        "langchain-community, `SQLChatMessageHistory`",
        "langchain:Sql",
        "a power cut",
        "SQLite with a rollback journal, through SQLAlchemy",
        ("langchain-community==0.4.2", "greenlet"),
        "from langchain_community.chat_message_histories import SQLChatMessageHistory",
    ),
    Contender(
        "LangGraph, `SqliteSaver`",
        "langgraph:Checkpoints",
        "a power cut",
        "SQLite, WAL, FULL; each checkpoint holds all messages again",
        ("langgraph-checkpoint-sqlite==3.1.2",),
        "from langgraph.checkpoint.sqlite import SqliteSaver",
    ),
    Contender(
        "llm, `log_to_db`",
        "simonw_llm:Logs",
        "a power cut",
        "SQLite with a rollback journal; a hash chain, and a `verify()`",
        ("llm==0.36",),
        "import llm",
    ),
    Contender(
        "Google ADK, `SqliteSessionService`",
        "google_adk:Sqlite",
        "a power cut",
        "SQLite with a rollback journal, connected anew for each call",
        ("google-adk[db]==2.13.0",),
        "from google.adk.sessions.sqlite_session_service import SqliteSessionService",
    ),
    Contender(
        "Google ADK, `DatabaseSessionService`",
        "google_adk:Database",
        "a power cut",
        "SQLite with a rollback journal, through SQLAlchemy",
        ("google-adk[db]==2.13.0",),
        "from google.adk.sessions import DatabaseSessionService",
    ),
    LIMIT_UNSYNCED,
    OURS_UNSYNCED,
    SQLITE_UNSYNCED,
    Contender(
        "JSONL file",
        "standard:PlainJsonl",
        "the end of the process",
        "never syncs; a torn line stays, and breaks the reader",
    ),
    Contender(
        "Strands Agents, `FileSessionManager`",
        "strands_agents:Files",
        "the end of the process",
        "a file for each message, renamed into place; never syncs",
        ("strands-agents==1.62.0",),
        "from strands.session.file_session_manager import FileSessionManager",
    ),
    Contender(
        "agno, `JsonDb`",
        "agno:Json",
        "the end of the process",
        "reads and rewrites one file for all runs, renamed into place; never syncs",
        ("agno==3.1.10",),
        "from agno.db.json import JsonDb",
    ),
    Contender(
        "pydantic-ai, `ModelMessagesTypeAdapter`",
        "pydantic_ai:Dump",
        "neither",
        "the documented pattern: all messages written again, in place; never syncs",
        ("pydantic-ai-slim==2.68.0",),
        "from pydantic_ai import ModelMessagesTypeAdapter",
    ),
    Contender(
        "langchain-community, `FileChatMessageHistory`",
        "langchain:File",
        "neither",
        "reads and rewrites the file in place; never syncs",
        ("langchain-community==0.4.2", "greenlet"),
        "from langchain_community.chat_message_histories import FileChatMessageHistory",
    ),
)
