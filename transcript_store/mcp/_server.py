"""How are the four tools offered as a server of the Model Context Protocol: their names, arguments and descriptions?"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from transcript_store.errors import TranscriptStoreError
from transcript_store.mcp._stdio import StdioServer
from transcript_store.mcp._tools import (
    LONGEST_QUERY,
    MOST_FOUND,
    MOST_LISTED,
    MOST_READ,
    NOTICE,
    Kind,
    LibraryTools,
    Order,
    Sort,
)

_P = ParamSpec("_P")

_INSTRUCTIONS = f"""\
The user's past conversations with AI models, to read. {NOTICE}
Search or list first; both give ids. An incomplete answer has a `cursor`: call the same tool with it for the next page."""

_QUERY = (
    'words (all of them), "a phrase", begin*, *part*, -without, a OR b; filters title: model: provider: project: label:name=value '
    "source: role:user after:2026-01-31 before:2026-02-28 in:text|result|call|thinking|scaffolding"
)
Query = Annotated[str, Field(description=_QUERY, max_length=LONGEST_QUERY)]
Cursor = Annotated[
    str | None, Field(description="`cursor` of the page before; then only `limit` counts", max_length=100)
]
Id = Annotated[str, Field(description="the conversation's id, as an answer has it", max_length=100)]
Include = Annotated[list[Kind], Field(description="the parts of messages to show", max_length=10)]
_TEXTS: list[Kind] = ["text", "call", "result", "media"]


def server_of(past: LibraryTools) -> MCPServer[Any]:
    """The server with the tools of ``past``."""

    def list_conversations(
        query: Query = "",
        sort: Order = "updated",
        limit: Annotated[int, Field(description=f"at most {MOST_LISTED}")] = 10,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """List past conversations, latest change first. Words of the query must be in the title."""
        return past.list_conversations(query, sort=sort, limit=limit, cursor=cursor)

    def search_conversations(
        query: Query = "",
        sort: Sort | None = None,
        limit: Annotated[int, Field(description=f"at most {MOST_FOUND}")] = 10,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """Find messages of past conversations: each with the conversation's id, its number (seq) and an excerpt.

        `beside` marks messages that are no longer live: on an abandoned branch, or removed by a compaction.
        """
        return past.search_conversations(query, sort=sort, limit=limit, cursor=cursor)

    def read_conversation(
        id: Id = "",
        from_seq: Annotated[int, Field(description="the number of the first message; -20: the last 20 messages")] = 1,
        limit: Annotated[int, Field(description=f"at most {MOST_READ}")] = 20,
        include: Include = _TEXTS,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """Read messages of a past conversation. Long ones are cut (`is_cut`): read_record has all of them."""
        return past.read_conversation(id, from_seq=from_seq, limit=limit, include=include, cursor=cursor)

    def read_record(
        id: Id = "", seq: Annotated[int, Field(description="the message's number")] = 1, cursor: Cursor = None
    ) -> dict[str, Any]:
        """Read one complete message of a past conversation."""
        return past.read_record(id, seq, cursor=cursor)

    server = StdioServer("transcript-store", instructions=_INSTRUCTIONS, log_level="ERROR")
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for tool in (list_conversations, search_conversations, read_conversation, read_record):
        server.add_tool(_with_errors(tool), annotations=reads)
    return server


def _with_errors(tool: Callable[_P, dict[str, Any]]) -> Callable[_P, dict[str, Any]]:
    """The tool, whose errors are reported to its caller. Other exceptions are our bugs; the SDK hides their text."""

    @wraps(tool)
    def called(*arguments: _P.args, **named: _P.kwargs) -> dict[str, Any]:
        try:
            return tool(*arguments, **named)
        except (ValueError, TranscriptStoreError) as error:
            raise ToolError(str(error)) from error

    return called
