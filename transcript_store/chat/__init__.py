"""Chat clients whose conversations can be resumed: a message is on disk before the client acts on it.

.. code-block:: python

    from pathlib import Path

    from transcript_store.chat import ChatConfig, Tool

    config = ChatConfig(provider="claude", system_prompt="Be brief.")
    read_file = Tool(
        "read_file",
        "Read a file.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        handler=lambda path: Path(path).read_text(),
    )

``create_client(config, conversation=…)`` makes a client. docs/chat.md describes how a turn is journaled and resumed. This file
lists the public names. A provider's SDK is imported only when a client for that provider is made.
"""

from transcript_store.chat._client import ResumableChatClient
from transcript_store.chat._config import (
    MAX_BASE_URL_LENGTH,
    ChatClient,
    ChatConfig,
    PersistentChatClient,
    Provider,
    StreamEvent,
    StreamingChatClient,
    TextDelta,
    Tool,
    ToolCallEnded,
    ToolCallStarted,
    TurnEnded,
    Usage,
    host_of,
    is_loopback,
    validate_base_url,
)
from transcript_store.chat._create import PROVIDERS, ProviderInfo, create_client

__all__ = [
    "MAX_BASE_URL_LENGTH",
    "PROVIDERS",
    "ChatClient",
    "ChatConfig",
    "PersistentChatClient",
    "Provider",
    "ProviderInfo",
    "ResumableChatClient",
    "StreamEvent",
    "StreamingChatClient",
    "TextDelta",
    "Tool",
    "ToolCallEnded",
    "ToolCallStarted",
    "TurnEnded",
    "Usage",
    "create_client",
    "host_of",
    "is_loopback",
    "validate_base_url",
]
