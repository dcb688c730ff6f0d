"""A library for agents: four tools of the Model Context Protocol, which read and never write.

.. code-block:: python

    from transcript_store import ConversationLibrary
    from transcript_store.mcp import LibraryTools, Scope, make_server

    with ConversationLibrary("chats").create(labels={"project": "x"}) as conversation:
        conversation.append_message({"role": "user", "content": "Why is the socket closed?"})
    with LibraryTools("chats", scope=Scope(["project=x"])) as past:
        print(past.search_conversations("socket")["hits"])  # what an agent would get
        server = make_server(past)  # server.run() answers on standard input and output

The server needs the extra ``mcp``. docs/mcp.md describes the tools' answers, and what an agent cannot reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transcript_store.errors import MissingExtraError
from transcript_store.mcp._tools import LibraryTools, Scope

if TYPE_CHECKING:
    from mcp.server import MCPServer

__all__ = ["LibraryTools", "Scope", "make_server"]


def make_server(past: LibraryTools) -> MCPServer[Any]:
    """A server of the MCP SDK with the four tools. Its ``run()`` answers on standard input and output until the input ends.

    Raises:
        MissingExtraError: the extra ``mcp`` is not installed.
    """
    try:
        from transcript_store.mcp._server import server_of
    except ModuleNotFoundError as error:
        raise MissingExtraError(feature="a server for agents", extra="mcp") from error
    return server_of(past)
